//! What is wrong with one key: its name, and what this version makes of verl's.

use super::said;

#[test]
fn an_unknown_key_is_named_with_the_nearest_valid_one() {
    golden!(said(&[
        (
            "a misspelt block",
            "BASE\nactor_rolout_ref:\n  actor:\n    ppo_epochs: 2\n",
            &[]
        ),
        (
            "a misspelt inner block",
            "BASE\nactor_rollout_ref:\n  actr:\n    ppo_epochs: 2\n",
            &[]
        ),
        ("a misspelt key", "BASE\nrollout:\n  temprature: 1.0\n", &[]),
        (
            "a key one block too high",
            "BASE\nactor:\n  lr: 1e-5\n",
            &[]
        ),
        (
            "a key of another block",
            "BASE\ntrainer:\n  gamma: 0.9\n",
            &[]
        ),
        (
            "a misspelt key of another block",
            "BASE\nactor:\n  weight_decy: 0.9\n",
            &[]
        ),
        (
            "two letters changed about",
            "BASE\nalgorithm:\n  gmama: 0.9\n",
            &[]
        ),
        ("nothing near", "BASE\nxyzzy: 1\n", &[]),
        (
            "nothing near in a block",
            "BASE\nalgorithm: {xyzzy: 1}\n",
            &[]
        ),
        ("an old name of TRL", "BASE\nactor: {beta: 0.1}\n", &[]),
        ("an override", "BASE\n", &["trainer.tes_freq=5"]),
        ("an override with +", "BASE\n", &["+trainer.my_own=5"]),
        (
            "an override of a misspelt block",
            "BASE\n",
            &["actr.ppo_epochs=2"]
        ),
        (
            "an override with a mapping",
            "BASE\n",
            &["actor.optim={lr: 1e-5, learning_rate: 3}"]
        ),
        (
            "a field of a guard",
            "BASE\ntrainer: {guards: {kl: 1}}\n",
            &[]
        ),
        (
            "a key of launch that is none",
            "BASE\nlaunch:\n  host: gpu1\n",
            &[]
        ),
    ]));
}

#[test]
fn a_key_of_verl_without_effect_says_why() {
    golden!(said(&[
        ("grad_clip", "BASE\nactor:\n  grad_clip: 0.5\n", &[]),
        (
            "grad_clip of the critic",
            "BASE\ncritic:\n  grad_clip: 0.5\n",
            &[]
        ),
        ("clip_ratio alone", "BASE\nactor:\n  clip_ratio: 0.3\n", &[]),
        (
            "clip_ratio with one side",
            "BASE\nactor:\n  clip_ratio: 0.1\n  clip_ratio_high: 0.3\n",
            &[]
        ),
        (
            "clip_ratio with both sides",
            "BASE\nactor: {clip_ratio: 0.1, clip_ratio_low: 0.2, clip_ratio_high: 0.3}\n",
            &[]
        ),
        (
            "clip_ratio out of range",
            "BASE\nactor: {clip_ratio: 1.1}\n",
            &[]
        ),
        (
            "do_sample",
            "BASE\nrollout: {do_sample: false, val_kwargs: {do_sample: true}}\n",
            &[]
        ),
        (
            "offload",
            "BASE\nactor: {fsdp_config: {param_offload: true, optimizer_offload: true, fsdp_size: 4}}\n",
            &[]
        ),
        (
            "offload at verl's default",
            "BASE\nactor: {fsdp_config: {param_offload: false, fsdp_size: -1}}\n",
            &[]
        ),
        (
            "offload off",
            "BASE\nactor: {fsdp_config: {param_offload: null}}\n",
            &[]
        ),
        (
            "dtype of the critic",
            "BASE\ncritic: {fsdp: {model_dtype: bfloat16}}\n",
            &[]
        ),
        (
            "tensor parallel",
            "BASE\nrollout: {tensor_model_parallel_size: 1}\n",
            &[]
        ),
        (
            "LoRA",
            "BASE\nmodel.lora_rank: 1\n",
            &["model.lora_rank=8", "model.target_modules=[q_proj]"]
        ),
        (
            "a Python reward",
            "BASE\ncustom_reward_function: {path: r.py, name: score}\n",
            &[]
        ),
        (
            "a Python reward, new name",
            "BASE\nreward: {custom_reward_function: {path: r.py}}\n",
            &[]
        ),
        (
            "a reward manager",
            "BASE\nreward_model: {reward_manager: dapo}\n",
            &[]
        ),
        (
            "a reward model",
            "BASE\nreward_model: {enable: true, model: {path: rm}}\n",
            &[]
        ),
        (
            "filter groups",
            "BASE\nalgorithm: {filter_groups: {enable: true, max_num_gen_batches: 10}}\n",
            &[]
        ),
        (
            "rejection",
            "BASE\nalgorithm: {rollout_correction: {rollout_rs: token_k1}}\n",
            &[]
        ),
        (
            "the mode of verl's V1",
            "BASE\ntrainer: {v1: {trainer_mode: separate_async, separate_async: {parameter_sync_step: 2}}}\n",
            &[]
        ),
        (
            "the recipes",
            "BASE\nasync_training: {staleness_threshold: 0.5}\nrollout: {total_rollout_steps: 9}\n",
            &[]
        ),
        (
            "a checkpoint deleted once it is loaded",
            "BASE\ntrainer: {del_local_ckpt_after_load: true}\n",
            &[]
        ),
        (
            "a checkpoint to start from that nothing asks for",
            "BASE\ntrainer: {resume_from_path: x/global_step_3}\n",
            &[]
        ),
        (
            "verl's directory, written out",
            "BASE\ntrainer:\n  default_local_dir: checkpoints/${trainer.project_name}/${trainer.experiment_name}\n",
            &[]
        ),
        (
            "another directory",
            "BASE\ntrainer: {default_local_dir: out}\n",
            &[]
        ),
        (
            "free-form engine settings",
            "BASE\nrollout: {engine_kwargs: {vllm: {swap_space: 4}}}\n",
            &[]
        ),
        (
            "Megatron",
            "BASE\nactor: {megatron: {tensor_model_parallel_size: 2}}\n",
            &[]
        ),
        (
            "a dataclass",
            "BASE\nactor: {_target_: verl.workers.config.FSDPActorConfig}\n",
            &[]
        ),
        (
            "another dataclass",
            "BASE\nactor: {_target_: my.Actor}\n",
            &[]
        ),
        ("a profiler", "BASE\nglobal_profiler: {tool: nsys}\n", &[]),
        ("distillation", "BASE\ndistillation: {enabled: true}\n", &[]),
        ("Ray", "BASE\nray_kwargs: {ray_init: {num_cpus: 8}}\n", &[]),
        (
            "composition",
            "BASE\ndefaults: [ppo_trainer, _self_]\nhydra: {searchpath: [x]}\n",
            &[]
        ),
        ("curriculum", "BASE\n", &["data.sampler.class_path=c.py"]),
        (
            "user turns",
            "BASE\nrollout: {multi_turn: {max_user_turns: 3, interaction_config_path: i.yaml}}\n",
            &[]
        ),
        (
            "a mirror of verl's, same",
            "BASE\nactor: {rollout_n: 1, use_fused_kernels: false}\n",
            &[]
        ),
        (
            "a mirror of verl's, other",
            "BASE\nactor: {rollout_n: 4}\n",
            &[]
        ),
    ]));
}

#[test]
fn another_name_of_a_key_is_understood() {
    golden!(said(&[
        (
            "an old name",
            "BASE\nactor: {ppo_micro_batch_size: 4, optim: {warmup_style: cosine}}\n",
            &[]
        ),
        (
            "the critic's old blocks",
            "BASE\ncritic: {model: {optim: {lr: 1e-4}, fsdp_config: {param_offload: true}}}\n",
            &[]
        ),
        (
            "two names, one value",
            "data: {train_files: t, train_batch_size: 256, max_response_length: 64}\nmodel: {path: m}\nrollout: {response_length: 64}\n",
            &[]
        ),
        (
            "two names, two values",
            "data: {train_files: t, train_batch_size: 256, max_response_length: 64}\nmodel: {path: m}\nrollout:\n  response_length: 128\n",
            &[]
        ),
        (
            "short and long",
            "BASE\nactor: {ppo_epochs: 2}\nactor_rollout_ref: {actor: {ppo_epochs: 3}}\n",
            &[]
        ),
        (
            "GPUs, two names",
            "BASE\nrollout: {n_gpus: 4, n_gpus_per_node: 2}\n",
            &[]
        ),
        (
            "the data's seed as null",
            "data: {train_files: t, train_batch_size: 256, seed: null}\nmodel: {path: m}\n",
            &[]
        ),
    ]));
}

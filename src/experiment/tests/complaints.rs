//! The words of every complaint: a table of files and overrides, and exactly what is said about each.

use std::fmt::Write as _;

use experiment::{Severity, from_text};

/// The cases stand in this file already, so the snapshot holds only what is said.
macro_rules! golden {
    ($said:expr) => {
        insta::with_settings!({omit_expression => true}, { insta::assert_snapshot!($said) })
    };
}

/// Enough to be valid; lines 1 to 4 of every case that starts with it.
const BASE: &str =
    "data:\n  train_files: train.parquet\n  train_batch_size: 256\nmodel: {path: m}\n";

/// Each case as `name | override | override`, its file, and what is said.
fn said(cases: &[(&str, &str, &[&str])]) -> String {
    let mut text = String::new();
    for (name, file, overrides) in cases {
        let file = file.replace("BASE", BASE.trim_end());
        let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
        let loaded = from_text("e.yaml", &file, &overrides);
        let _ = writeln!(text, "## {name}");
        for complaint in &loaded.complaints {
            // A note that every base file gets would only repeat itself.
            if complaint.severity == Severity::Note
                && complaint.line.is_none()
                && complaint.override_text.is_none()
            {
                continue;
            }
            let severity = format!("{:?}", complaint.severity).to_lowercase();
            let _ = writeln!(text, "{severity}: {complaint}");
        }
    }
    text
}

#[test]
fn broken_yaml_is_named_with_its_line() {
    golden!(said(&[
        ("empty", "", &[]),
        ("only a comment", "# nothing\n", &[]),
        ("a scalar", "hello\n", &[]),
        ("a list", "- a\n- b\n", &[]),
        ("a tab", "data:\n\ttrain_files: x\n", &[]),
        ("an open quote", "data:\n  train_files: \"x\n", &[]),
        (
            "an open list",
            "data:\n  train_files: [a, b\nmodel: 1\n",
            &[]
        ),
        ("two colons", "data:\n  train_files: a: b\n", &[]),
        (
            "indented too far",
            "data:\n  train_files: a\n    seed: 1\n",
            &[]
        ),
        (
            "indented too little",
            "data:\n    train_files: a\n  seed: 1\n",
            &[]
        ),
        ("two documents", "BASE\n---\ndata: {}\n", &[]),
        (
            "an anchor",
            "BASE\ncritic: &c\n  cliprange_value: 0.5\n",
            &[]
        ),
        ("an alias", "BASE\ncritic: *c\n", &[]),
        (
            "an anchor and its alias",
            "BASE\nactor: {optim: &o {lr: 1e-5}}\ncritic: {optim: *o}\n",
            &[]
        ),
        (
            "a merge key",
            "BASE\ncritic:\n  <<: {cliprange_value: 0.5}\n",
            &[]
        ),
        ("a tag", "BASE\nactor:\n  ppo_epochs: !!int \"1\"\n", &[]),
        (
            "a key twice",
            "BASE\ntrainer:\n  seed: 1\n  test_freq: -1\n  seed: 2\n",
            &[]
        ),
        ("a block twice", "BASE\ndata:\n  seed: 1\n", &[]),
        ("a list as key", "BASE\n? [a]\n: 1\n", &[]),
        ("a dotted key", "BASE\ntrainer.seed: 1\n", &[]),
        (
            "a control character",
            "BASE\ntrainer: {project_name: \"\u{1}\"}\n",
            &[]
        ),
        (
            "everything at once",
            "data:\n  train_fils: x\n  seed: -1\n  seed: 3\nactor: {ppo_epochs: 0, lr: 1}\n",
            &[]
        ),
    ]));
}

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
            "a block that is planned",
            "BASE\nlaunch:\n  host: gpu1\n",
            &[]
        ),
    ]));
}

#[test]
fn a_value_of_the_wrong_type_or_range_names_its_own_line() {
    golden!(said(&[
        (
            "text for a whole number",
            "BASE\nactor:\n  ppo_epochs: abc\n",
            &[]
        ),
        (
            "a quoted number",
            "BASE\nactor:\n  ppo_epochs: \"2\"\n",
            &[]
        ),
        ("a fraction", "BASE\nactor:\n  ppo_epochs: 1.5\n", &[]),
        (
            "a list for a number",
            "BASE\nactor:\n  ppo_epochs: [1, 2]\n",
            &[]
        ),
        (
            "a block for a number",
            "BASE\nactor:\n  ppo_epochs:\n    x: 1\n",
            &[]
        ),
        ("nothing for a number", "BASE\nactor:\n  ppo_epochs:\n", &[]),
        ("a number for a block", "BASE\nactor: 3\n", &[]),
        ("a list for a block", "BASE\nactor:\n  optim: [lr]\n", &[]),
        ("zero", "BASE\nactor:\n  ppo_epochs: 0\n", &[]),
        (
            "negative",
            "data: {train_files: t, train_batch_size: -4}\nmodel: {path: m}\n",
            &[]
        ),
        ("too large", "BASE\nactor: {ppo_epochs: 99999999999}\n", &[]),
        (
            "far too large",
            "BASE\ntrainer: {seed: 99999999999999999999999}\n",
            &[]
        ),
        (
            "negative coefficient",
            "BASE\nalgorithm:\n  use_kl_in_reward: true\n  kl_ctrl:\n    kl_coef: -2\n",
            &[]
        ),
        ("a clip of 1", "BASE\nactor:\n  clip_ratio_low: 1\n", &[]),
        (
            "a negative clip",
            "BASE\nactor:\n  clip_ratio_high: -0.1\n",
            &[]
        ),
        (
            "a dual clip of 1",
            "BASE\nactor: {clip_ratio_c: 1.0}\n",
            &[]
        ),
        ("a discount over 1", "BASE\nalgorithm: {gamma: 1.01}\n", &[]),
        ("infinite", "BASE\nactor: {optim: {lr: .inf}}\n", &[]),
        ("not a number", "BASE\nactor: {optim: {lr: .nan}}\n", &[]),
        ("text for a rate", "BASE\nactor: {optim: {lr: fast}}\n", &[]),
        (
            "a temperature of 0",
            "BASE\nrollout: {temperature: 0}\n",
            &[]
        ),
        ("top_k of 0", "BASE\nrollout: {top_k: 0}\n", &[]),
        ("top_p of 0", "BASE\nrollout: {top_p: 0}\n", &[]),
        ("test_freq of 0", "BASE\ntrainer: {test_freq: 0}\n", &[]),
        ("save_freq of -2", "BASE\ntrainer: {save_freq: -2}\n", &[]),
        (
            "a horizon of 0",
            "BASE\nalgorithm: {use_kl_in_reward: true, kl_ctrl: {type: adaptive, horizon: 0}}\n",
            &[]
        ),
        (
            "memory over 1",
            "BASE\nrollout: {name: vllm, gpu_memory_utilization: 1.2}\n",
            &[]
        ),
        ("one beta", "BASE\nactor: {optim: {betas: [0.9]}}\n", &[]),
        (
            "a beta of 1",
            "BASE\nactor: {optim: {betas: [0.9, 1.0]}}\n",
            &[]
        ),
        (
            "betas as text",
            "BASE\nactor: {optim: {betas: \"0.9, 0.99\"}}\n",
            &[]
        ),
        ("a flag in words", "BASE\nactor: {shuffle: maybe}\n", &[]),
        ("a quoted flag", "BASE\nactor: {shuffle: \"true\"}\n", &[]),
        ("a flag as a number", "BASE\nactor: {shuffle: 1}\n", &[]),
        (
            "a duration without unit",
            "BASE\nrollout: {session_timeout_s: soon}\n",
            &[]
        ),
        (
            "a duration in days",
            "BASE\nrollout: {session_timeout_s: 2d}\n",
            &[]
        ),
        (
            "a duration of 0",
            "BASE\nrollout: {session_timeout_s: 0s}\n",
            &[]
        ),
        (
            "a negative duration",
            "BASE\nrollout: {multi_turn: {tool_timeout_s: -1}}\n",
            &[]
        ),
        (
            "files as a mapping",
            "data: {train_files: {a: b}}\nmodel: {path: m}\n",
            &[]
        ),
        (
            "files as null",
            "data: {train_files: null}\nmodel: {path: m}\n",
            &[]
        ),
        (
            "a list in the files",
            "data: {train_files: [a, [b]]}\nmodel: {path: m}\n",
            &[]
        ),
        (
            "a path as a list",
            "data: {train_files: t, train_batch_size: 256}\nmodel: {path: [m]}\n",
            &[]
        ),
        (
            "template arguments as a list",
            "BASE\nalgorithm: {}\n",
            &["data.apply_chat_template_kwargs=[1]"]
        ),
        (
            "null where there is no null",
            "BASE\ntrainer: {seed: null}\n",
            &[]
        ),
        (
            "a number in an override",
            "BASE\n",
            &["actor.clip_ratio_low=2"]
        ),
        ("text in an override", "BASE\n", &["actor.ppo_epochs=abc"]),
        ("a block in an override", "BASE\n", &["actor=3"]),
    ]));
}

#[test]
fn a_choice_says_what_exists_now() {
    golden!(said(&[
        (
            "a misspelt estimator",
            "BASE\nalgorithm: {adv_estimator: gea}\n",
            &[]
        ),
        (
            "an estimator of verl",
            "BASE\nalgorithm: {adv_estimator: rloo}\n",
            &[]
        ),
        (
            "no such estimator",
            "BASE\nalgorithm: {adv_estimator: magic}\n",
            &[]
        ),
        (
            "a loss of verl",
            "BASE\nactor: {policy_loss: {loss_mode: gspo}}\n",
            &[]
        ),
        (
            "an aggregation with _",
            "BASE\nactor: {loss_agg_mode: token_mean}\n",
            &[]
        ),
        (
            "a KL of verl",
            "BASE\nalgorithm: {use_kl_in_reward: true, kl_penalty: full}\n",
            &[]
        ),
        (
            "a KL misspelt",
            "BASE\nactor: {use_kl_loss: true, kl_loss_type: low_var_lk}\n",
            &[]
        ),
        (
            "half precision",
            "BASE\nactor: {fsdp_config: {dtype: fp16}}\n",
            &[]
        ),
        ("an engine of verl", "BASE\nrollout: {name: trtllm}\n", &[]),
        ("vllm", "BASE\nrollout:\n  name: vllm\n", &[]),
        ("sglang", "BASE\n", &["rollout.name=sglang"]),
        (
            "a mode that comes later",
            "BASE\ntrainer: {mode: async}\n",
            &[]
        ),
        (
            "a mode misspelt",
            "BASE\ntrainer: {mode: one_step_of}\n",
            &[]
        ),
        (
            "a tool format of verl",
            "BASE\nrollout: {multi_turn: {format: glm}}\n",
            &[]
        ),
        (
            "loggers of verl",
            "BASE\ntrainer: {logger: [console, mlflow, swanlab]}\n",
            &[]
        ),
        (
            "no such logger",
            "BASE\ntrainer: {logger: [console, wandbb]}\n",
            &[]
        ),
        (
            "one logger of verl",
            "BASE\ntrainer: {logger: trackio}\n",
            &[]
        ),
        ("a number as a choice", "BASE\ntrainer: {mode: 3}\n", &[]),
        ("a list as a choice", "BASE\ntrainer: {mode: [sync]}\n", &[]),
        ("a device of verl", "BASE\ntrainer: {device: npu}\n", &[]),
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

#[test]
fn overrides_are_read_in_hydras_grammar_and_faults_point_at_their_text() {
    golden!(said(&[
        ("no value", "BASE\n", &["trainer.seed"]),
        ("no key", "BASE\n", &["=3"]),
        ("nothing", "BASE\n", &[""]),
        ("a space in the key", "BASE\n", &["trainer seed=3"]),
        ("two dots", "BASE\n", &["trainer..seed=3"]),
        ("an open list", "BASE\n", &["trainer.logger=[console"]),
        (
            "a list that goes on",
            "BASE\n",
            &["trainer.logger=[console] x"]
        ),
        ("a sweep", "BASE\n", &["trainer.seed=1,2,3"]),
        ("a function", "BASE\n", &["trainer.seed=range(1,3)"]),
        ("an open quote", "BASE\n", &["trainer.project_name='a"]),
        ("an open mapping", "BASE\n", &["actor.optim={lr: 1"]),
        ("a mapping without colon", "BASE\n", &["actor.optim={lr}"]),
        (
            "a mapping with a key twice",
            "BASE\n",
            &["actor.optim={lr: 1e-5, lr: 2e-5}"]
        ),
        ("a stray bracket", "BASE\n", &["trainer.project_name=a]"]),
        (
            "an open interpolation",
            "BASE\n",
            &["trainer.seed=${data.seed"]
        ),
        (
            "+ on what is there",
            "BASE\n",
            &["+data.train_batch_size=512"]
        ),
        (
            "++ on what is there",
            "BASE\n",
            &["++data.train_batch_size=512"]
        ),
        (
            "+ on what has a default only",
            "BASE\n",
            &["+trainer.seed=5"]
        ),
        ("remove what is not there", "BASE\n", &["~trainer.seed"]),
        (
            "remove another value",
            "BASE\n",
            &["~data.train_batch_size=3"]
        ),
        (
            "remove what must be there",
            "BASE\n",
            &["~data.train_files"]
        ),
        ("remove a block", "BASE\n", &["~model"]),
        (
            "the same twice",
            "BASE\n",
            &[
                "trainer.seed=1",
                "trainer.seed=0",
                "actor.ppo_epochs=0",
                "actor.ppo_epochs=2"
            ]
        ),
        (
            "an error in the file that an override mends",
            "BASE\nactor: {ppo_epochs: 0}\n",
            &["actor.ppo_epochs=1"]
        ),
    ]));
}

#[test]
fn an_interpolation_that_leads_nowhere_is_named() {
    golden!(said(&[
        ("no such key", "BASE\ntrainer:\n  seed: ${data.sed}\n", &[]),
        ("itself", "BASE\ntrainer:\n  seed: ${trainer.seed}\n", &[]),
        (
            "a circle",
            "BASE\ntrainer: {seed: \"${actor.data_loader_seed}\"}\nactor: {data_loader_seed: \"${rollout.seed}\"}\nrollout: {seed: \"${trainer.seed}\"}\n",
            &[]
        ),
        ("a block", "BASE\ntrainer:\n  seed: ${critic.optim}\n", &[]),
        (
            "an unknown resolver",
            "BASE\ntrainer:\n  seed: ${now:%Y}\n",
            &[]
        ),
        (
            "no closing brace",
            "BASE\ntrainer:\n  project_name: a${trainer.seed\n",
            &[]
        ),
        (
            "a missing variable",
            "BASE\ntrainer:\n  project_name: ${oc.env:LATHE_NO_SUCH_VARIABLE}\n",
            &[]
        ),
        (
            "the wrong type",
            "BASE\ntrainer:\n  seed: ${trainer.project_name}\n",
            &[]
        ),
        (
            "a mandatory value",
            "BASE\ntrainer:\n  project_name: ${reward.reward_model.rollout.name}\n",
            &[]
        ),
        (
            "a default that is not a value",
            "BASE\ntrainer:\n  seed: \"${oc.select:a.b,[}\"\n",
            &[]
        ),
    ]));
}

#[test]
fn keys_that_do_not_fit_together_are_named() {
    golden!(said(&[
        (
            "mini-batch over batch",
            "BASE\nactor:\n  ppo_mini_batch_size: 512\n",
            &[]
        ),
        (
            "mini-batch that does not divide",
            "BASE\nactor:\n  ppo_mini_batch_size: 100\n",
            &[]
        ),
        (
            "the critic's mini-batch",
            "BASE\ncritic:\n  ppo_mini_batch_size: 512\n",
            &[]
        ),
        (
            "the critic's does not divide",
            "BASE\ncritic:\n  ppo_mini_batch_size: 100\n",
            &[]
        ),
        (
            "micro-batch and dynamic",
            "BASE\nactor: {use_dynamic_bsz: true, ppo_micro_batch_size_per_gpu: 4}\n",
            &[]
        ),
        (
            "a budget too small",
            "BASE\nactor: {use_dynamic_bsz: true, ppo_max_token_len_per_gpu: 512}\n",
            &[]
        ),
        (
            "a divisor nobody uses",
            "BASE\nactor: {loss_scale_factor: 100}\n",
            &[]
        ),
        ("gae without critic", "BASE\ncritic: {enable: false}\n", &[]),
        (
            "grpo with critic",
            "BASE\nalgorithm: {adv_estimator: grpo}\nrollout: {n: 4}\ncritic: {enable: true}\n",
            &[]
        ),
        (
            "grpo and settings of a critic",
            "BASE\nalgorithm: {adv_estimator: grpo}\nrollout: {n: 4}\ncritic:\n  optim:\n    lr: 1e-4\n",
            &[]
        ),
        (
            "grpo of one",
            "BASE\nalgorithm:\n  adv_estimator: grpo\n",
            &[]
        ),
        (
            "grpo and lambda",
            "BASE\nalgorithm: {adv_estimator: grpo, lam: 0.9}\nrollout: {n: 4}\n",
            &[]
        ),
        (
            "warm-up of no critic",
            "BASE\nalgorithm: {adv_estimator: grpo}\nrollout: {n: 4}\ntrainer: {critic_warmup: 5}\n",
            &[]
        ),
        (
            "kl_ctrl unused",
            "BASE\nalgorithm:\n  kl_ctrl:\n    type: adaptive\n",
            &[]
        ),
        (
            "kl_penalty unused",
            "BASE\nalgorithm: {kl_penalty: mse}\n",
            &[]
        ),
        (
            "horizon of a fixed controller",
            "BASE\nalgorithm: {use_kl_in_reward: true, kl_ctrl: {horizon: 100}}\n",
            &[]
        ),
        (
            "kl_loss_coef unused",
            "BASE\nactor: {kl_loss_coef: 0.01}\n",
            &[]
        ),
        (
            "KL twice",
            "BASE\nalgorithm: {use_kl_in_reward: true}\nactor: {use_kl_loss: true}\n",
            &[]
        ),
        (
            "memory of the embedded engine",
            "BASE\nrollout: {gpu_memory_utilization: 0.8}\n",
            &[]
        ),
        (
            "a context too short",
            "BASE\nrollout: {max_model_len: 100}\n",
            &[]
        ),
        (
            "bypass without log-probs",
            "BASE\nrollout: {calculate_log_probs: false}\nalgorithm: {rollout_correction: {bypass_mode: true}}\n",
            &[]
        ),
        (
            "correction without log-probs",
            "BASE\nrollout: {calculate_log_probs: false}\nalgorithm: {rollout_correction: {rollout_is: token}}\n",
            &[]
        ),
        (
            "correction of nothing",
            "BASE\nalgorithm: {rollout_correction: {bypass_mode: true, rollout_is: token}}\n",
            &[]
        ),
        (
            "a correction that has its own loss",
            "BASE\nalgorithm: {rollout_correction: {bypass_mode: true, loss_type: reinforce, rollout_is: token, rollout_is_batch_normalize: true}}\n",
            &[]
        ),
        (
            "two losses",
            "BASE\nactor: {policy_loss: {loss_mode: gspo}}\nalgorithm: {rollout_correction: {bypass_mode: true, loss_type: reinforce}}\n",
            &[]
        ),
        (
            "a loss of bypass mode alone",
            "BASE\nalgorithm: {rollout_correction: {loss_type: reinforce}}\n",
            &[]
        ),
        (
            "verl's other name of bypass mode",
            "BASE\nactor: {policy_loss: {loss_mode: bypass_mode}}\n",
            &[]
        ),
        (
            "a rejection without a threshold",
            "BASE\nalgorithm: {rollout_correction: {rollout_rs: token_k1}}\n",
            &[]
        ),
        (
            "a rejection of something unknown",
            "BASE\nalgorithm: {rollout_correction: {rollout_rs: 'token_k1, seq_k4', rollout_rs_threshold: 2}}\n",
            &[]
        ),
        (
            "a threshold of no rejection",
            "BASE\nalgorithm: {rollout_correction: {rollout_rs_threshold: 2}}\n",
            &[]
        ),
        (
            "a band upside down",
            "BASE\nalgorithm: {rollout_correction: {rollout_is: token, rollout_is_threshold: 5_0.5}}\n",
            &[]
        ),
        (
            "threshold of nothing",
            "BASE\nalgorithm: {rollout_correction: {rollout_is_threshold: 3}}\n",
            &[]
        ),
        (
            "multi-turn",
            "BASE\nrollout: {multi_turn: {enable: true, tool_config_path: t.yaml}}\n",
            &[]
        ),
        (
            "multi-turn, but one turn",
            "BASE\nrollout: {agent: {default_agent_loop: single_turn_agent}, multi_turn: {enable: true, tool_config_path: t.yaml}}\n",
            &[]
        ),
        (
            "tools unused",
            "BASE\nrollout: {multi_turn: {tool_config_path: t.yaml}}\n",
            &[]
        ),
        (
            "no tools",
            "BASE\nrollout: {agent: {default_agent_loop: tool_agent}}\n",
            &[]
        ),
        (
            "stale sync",
            "BASE\ntrainer:\n  mode: sync\n  max_staleness: 1\n",
            &[]
        ),
        ("too stale", "BASE\ntrainer: {max_staleness: 4}\n", &[]),
        (
            "stale sync by override",
            "BASE\ntrainer: {max_staleness: 1}\n",
            &["trainer.mode=sync"]
        ),
        ("no data", "model: {path: m}\n", &[]),
        ("no model", "data: {train_files: t}\n", &[]),
        (
            "a warm-up without a place to go",
            "model: {path: m}\nsft: {train_files: d.parquet}\n",
            &[]
        ),
        (
            "a warm-up",
            "sft: {train_files: d.parquet, init_config: c.json, output_dir: o}\n",
            &[]
        ),
        (
            "evaluation of nothing",
            "BASE\ntrainer: {test_freq: 10}\n",
            &[]
        ),
        (
            "only an evaluation of nothing",
            "BASE\ntrainer: {val_only: true}\n",
            &[]
        ),
        (
            "a first evaluation of nothing",
            "BASE\ntrainer: {val_before_train: true}\n",
            &[]
        ),
        (
            "GPUs",
            "BASE\ntrainer: {nnodes: 2, n_gpus_per_node: 8}\n",
            &[]
        ),
        (
            "a rollout pool without nodes",
            "BASE\nactor_rollout_ref: {hybrid_engine: false}\nrollout: {name: vllm}\n",
            &[]
        ),
    ]));
}

#[test]
fn a_bandit_is_checked_and_what_it_does_not_do_is_said() {
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "nothing but arms",
            "BASE\nreward: {arms: [rule, model]}\n",
            &[],
        ),
        ("no policy", "BASE\nreward: {bandit: {epsilon: 0.1}}\n", &[]),
        (
            "no arms",
            "BASE\nreward: {bandit: {policy: ucb1, rewarded_by: human_agreement}}\n",
            &[],
        ),
        (
            "all it needs",
            "BASE\nreward:\n  arms: [rule, model]\n  bandit: {policy: thompson, probe_files: p.parquet}\n",
            &[],
        ),
        (
            "no probe",
            "BASE\nreward:\n  arms: [rule, model]\n  bandit:\n    policy: kl_ucb\n",
            &[],
        ),
        (
            "a key of another policy",
            "BASE\nreward:\n  arms: [rule, model]\n  bandit:\n    policy: ucb1\n    rewarded_by: negative_loss\n    epsilon: 0.1\n",
            &[],
        ),
        (
            "a key of another posterior",
            "BASE\nreward:\n  arms: [rule, model]\n  bandit:\n    policy: thompson\n    rewarded_by: negative_loss\n    prior_mean: 0\n",
            &[],
        ),
        (
            "values that do not fit together",
            "BASE\nreward:\n  arms: [rule, model]\n  bandit:\n    policy: epsilon_greedy\n    rewarded_by: negative_loss\n    epsilon_floor: 0.5\n",
            &[],
        ),
        (
            "a range upside down",
            "BASE\nreward:\n  arms: [rule, model]\n  bandit: {policy: ucb1, rewarded_by: negative_loss, value_range: [1, 0]}\n",
            &[],
        ),
        (
            "an arm twice",
            "BASE\nreward:\n  arms: [rule, rule]\n  bandit: {policy: ucb1, rewarded_by: negative_loss}\n",
            &[],
        ),
        (
            "an arm that is none",
            "BASE\nreward:\n  arms: [rule, model]\n  bandit: {policy: fixed, fixed_arm: people}\n",
            &[],
        ),
        (
            "a misspelt policy",
            "BASE\nreward:\n  arms: [rule, model]\n  bandit: {policy: thomson}\n",
            &[],
        ),
        (
            "a misspelt key",
            "BASE\nreward:\n  arms: [rule, model]\n  bandit: {policy: ucb1, update_evry: 3, rewarded_by: negative_loss}\n",
            &[],
        ),
        (
            "an ensemble with a probe",
            "BASE\nreward:\n  arms: [rule, model]\n  bandit: {policy: ensemble, weights: [2, 1], probe_files: p.parquet}\n",
            &[],
        ),
        (
            "an override",
            "BASE\n",
            &[
                "reward.bandit.policy=linucb",
                "reward.arms=[a,b]",
                "reward.bandit.rewarded_by=negative_loss",
                "reward.bandit.alpha=-1",
            ],
        ),
    ];
    golden!(said(cases));
}

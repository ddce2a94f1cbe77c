//! What is wrong with one value: its type, its range, a choice that does not exist.

use super::said;

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

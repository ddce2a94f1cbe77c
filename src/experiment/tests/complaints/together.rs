//! Keys that are right one by one and do not fit together.

use super::said;

#[test]
fn keys_that_do_not_fit_together_are_named() {
    golden!(said(&[
        (
            "mini-batch over batch",
            "BASE\nactor:\n  ppo_mini_batch_size: 512\n",
            &[]
        ),
        (
            "what cannot stand beside a reward model",
            "BASE\nsft: {scorers: [numeric, {scorer: model, options: {path: some}}]}\n",
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
            "BASE\nreward: {arms: [exact, numeric]}\n",
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
            "BASE\nreward:\n  arms: [exact, numeric]\n  bandit: {policy: thompson, probe_files: p.parquet}\n",
            &[],
        ),
        (
            "no probe",
            "BASE\nreward:\n  arms: [exact, numeric]\n  bandit:\n    policy: kl_ucb\n",
            &[],
        ),
        (
            "a key of another policy",
            "BASE\nreward:\n  arms: [exact, numeric]\n  bandit:\n    policy: ucb1\n    rewarded_by: negative_loss\n    epsilon: 0.1\n",
            &[],
        ),
        (
            "a key of another posterior",
            "BASE\nreward:\n  arms: [exact, numeric]\n  bandit:\n    policy: thompson\n    rewarded_by: negative_loss\n    prior_mean: 0\n",
            &[],
        ),
        (
            "values that do not fit together",
            "BASE\nreward:\n  arms: [exact, numeric]\n  bandit:\n    policy: epsilon_greedy\n    rewarded_by: negative_loss\n    epsilon_floor: 0.5\n",
            &[],
        ),
        (
            "a range upside down",
            "BASE\nreward:\n  arms: [exact, numeric]\n  bandit: {policy: ucb1, rewarded_by: negative_loss, value_range: [1, 0]}\n",
            &[],
        ),
        (
            "held-out judges are not chosen among",
            "BASE\nreward:\n  arms: [exact, {scorer: numeric, weight: 0}]\n  bandit: {policy: ucb1, rewarded_by: negative_loss}\n",
            &[],
        ),
        (
            "no labels",
            "BASE\nreward:\n  arms: [exact, numeric]\n  bandit: {policy: ucb1, rewarded_by: human_agreement, probe_rows: 3}\n",
            &[],
        ),
        (
            "what an arm that is chosen late does not go with",
            "BASE\nreward:\n  arms: [exact, numeric]\n  bandit: {policy: ucb1, rewarded_by: negative_loss}\nalgorithm:\n  filter_groups: {enable: true, metric: reward}\n  adv_estimator: gdpo\n",
            &[],
        ),
        (
            "a blend that is to learn",
            "BASE\nreward:\n  arms: [exact, numeric]\n  bandit: {policy: ensemble, rewarded_by: negative_loss, steps_per_pull: 2}\n",
            &[],
        ),
        (
            "an arm twice",
            "BASE\nreward:\n  arms: [exact, exact]\n  bandit: {policy: ucb1, rewarded_by: negative_loss}\n",
            &[],
        ),
        (
            "an arm that is none",
            "BASE\nreward:\n  arms: [exact, numeric]\n  bandit: {policy: fixed, fixed_arm: people}\n",
            &[],
        ),
        (
            "a misspelt policy",
            "BASE\nreward:\n  arms: [exact, numeric]\n  bandit: {policy: thomson}\n",
            &[],
        ),
        (
            "a misspelt key",
            "BASE\nreward:\n  arms: [exact, numeric]\n  bandit: {policy: ucb1, update_evry: 3, rewarded_by: negative_loss}\n",
            &[],
        ),
        (
            "an ensemble with a probe",
            "BASE\nreward:\n  arms: [exact, numeric]\n  bandit: {policy: ensemble, weights: [2, 1], probe_files: p.parquet}\n",
            &[],
        ),
        (
            "an override",
            "BASE\n",
            &[
                "reward.bandit.policy=linucb",
                "reward.arms=[exact,math]",
                "reward.bandit.rewarded_by=negative_loss",
                "reward.bandit.alpha=-1",
            ],
        ),
    ];
    golden!(said(cases));
}

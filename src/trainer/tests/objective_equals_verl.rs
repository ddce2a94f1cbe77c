//! Each function of `objective/` gives verl's numbers, gradients and refusals (see `oracles/README.md`).

use std::path::Path;

use trainer::objective::oracle;

fn equals_verl(function: &str) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracles");
    let results = oracle::run(&directory, function).unwrap();
    assert!(!results.is_empty(), "{function} has no cases");
    let wrong: Vec<_> = results
        .iter()
        .filter(|result| !result.mismatches.is_empty())
        .map(|result| {
            format!(
                "{} ({}):\n    {}",
                result.id,
                result.note,
                result.mismatches.join("\n    ")
            )
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "{function}: {} of {} cases differ\n{}",
        wrong.len(),
        results.len(),
        wrong.join("\n")
    );
}

macro_rules! equal_verl {
    ($($test:ident: $function:literal),* $(,)?) => {
        $(#[test]
        fn $test() {
            equals_verl($function);
        })*

        #[test]
        fn every_function_of_the_oracle_is_tested() {
            let tested = [$($function),*];
            let known: Vec<_> = oracle::FUNCTIONS
                .iter()
                .map(|function| function.name)
                .collect();
            assert_eq!(tested.as_slice(), known);
        }
    };
}

equal_verl! {
    gae_equals_verl: "gae",
    grpo_equals_verl: "adv_grpo",
    vectorized_grpo_equals_verl: "adv_grpo_vectorized",
    pass_at_k_equals_verl: "adv_grpo_passk",
    gdpo_equals_verl: "adv_gdpo",
    rloo_equals_verl: "adv_rloo",
    vectorized_rloo_equals_verl: "adv_rloo_vectorized",
    opo_equals_verl: "adv_opo",
    gpg_equals_verl: "adv_gpg",
    reinforce_plus_plus_equals_verl: "adv_reinforce_plus_plus",
    reinforce_plus_plus_with_a_baseline_equals_verl: "adv_reinforce_plus_plus_baseline",
    remax_equals_verl: "adv_remax",
    the_optimal_token_baseline_equals_verl: "adv_optimal_token_baseline",
    the_optimal_token_baseline_with_tools_equals_verl: "adv_tir_optimal_token_baseline",
    kl_estimators_equal_verl: "kl_penalty",
    kl_in_reward_equals_verl: "apply_kl_penalty",
    the_full_kl_equals_its_definition: "kl_full",
    kl_controllers_equal_verl: "kl_controller",
    loss_aggregation_equals_verl: "agg_loss",
    the_vanilla_policy_loss_equals_verl: "loss_vanilla",
    gspo_equals_verl: "loss_gspo",
    cispo_equals_verl: "loss_cispo",
    sapo_equals_verl: "loss_sapo",
    dppo_by_total_variation_equals_verl: "loss_dppo_tv",
    dppo_by_kl_equals_verl: "loss_dppo_kl",
    clip_cov_equals_verl: "loss_clip_cov",
    kl_cov_equals_verl: "loss_kl_cov",
    geo_mean_equals_verl: "loss_geo_mean",
    the_gpg_loss_equals_verl: "loss_gpg",
    dro_equals_verl: "loss_dro",
    the_bypass_loss_equals_verl: "loss_bypass",
    the_value_loss_equals_verl: "value_loss",
    entropy_and_logprobs_equal_verl: "entropy_logprob",
    response_masks_equal_verl: "response_mask",
    masked_statistics_equal_verl: "masked_stats",
    rollout_correction_equals_verl: "rollout_correction",
    the_losses_of_trl_equal_trl: "trl_grpo_loss",
    the_group_advantages_of_trl_equal_trl: "trl_grpo_advantages",
    the_leave_one_out_advantages_of_trl_equal_trl: "trl_rloo_advantages",
}

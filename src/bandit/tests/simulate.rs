//! Environments: what is refused and where, and what a simulation's numbers mean.

use bandit::simulate::{Entry, Environment, Fault, Report, simulate};
use serde_json::{Value as Json, json};

fn fault(json: Json) -> String {
    Environment::from_json(json)
        .map(|_| ())
        .unwrap_err()
        .to_string()
}

fn environment(json: Json) -> Environment {
    Environment::from_json(json).unwrap_or_else(|fault: Fault| panic!("{fault}"))
}

fn play(environment: &Environment) -> Vec<Report> {
    environment
        .policies
        .iter()
        .map(|entry| simulate(environment, entry, 2, &|| {}))
        .collect()
}

#[test]
fn a_fault_says_where_what_and_what_was_expected() {
    let arms = json!([{"name": "a", "gives": {"bernoulli": 0.5}}]);
    let with = |arms: Json| fault(json!({"horizon": 10, "arms": arms}));
    for (got, wanted) in [
        (
            fault(json!([1])),
            "expected a mapping with horizon, arms and policies",
        ),
        (fault(json!({"horizon": 10})), "missing field `arms`"),
        (
            fault(json!({"horizon": "long", "arms": arms})),
            "horizon: expected another kind of value, got string \"long\", expected a whole number from 0 on",
        ),
        (
            fault(json!({"horizon": 0, "arms": arms})),
            "horizon: is 0; expected 1 to 10000000",
        ),
        (
            fault(json!({"horizont": 9, "arms": arms})),
            "horizont: unknown field `horizont`, expected one of `horizon`, `runs`, `seed`, `context_dimensions`, `outcome_delay`, `arms`",
        ),
        (with(json!([])), "arms: there are no arms to choose from"),
        (
            with(json!([{"name": "a", "gives": {"bernoulli": 1.5}}])),
            "arms[0].gives.bernoulli: is 1.5; expected a probability from 0 to 1",
        ),
        (
            with(json!([{"name": "a", "gives": {"poisson": 1.5}}])),
            "arms[0].gives: unknown name `poisson`, expected one of `bernoulli`, `normal`, `beta`, `constant`, `values`, `linear`",
        ),
        (
            with(json!([{"name": "a", "gives": {"normal": {"mean": 0.5}}}])),
            "arms[0].gives.normal: missing field `sd`",
        ),
        (
            with(json!([{"name": "a", "gives": {"linear": {"theta": [1.0]}}}])),
            "arms[0].gives.linear: depends on a context; set context_dimensions",
        ),
        (
            with(
                json!([{"name": "a", "gives": {"constant": 1}, "then": [{"from": 0, "gives": {"constant": 0}}]}]),
            ),
            "arms[0].then[0].from: is 0; expected more than 0",
        ),
        (
            with(
                json!([{"name": "a", "gives": {"constant": 1}}, {"name": "a", "gives": {"constant": 1}}]),
            ),
            "arms: two arms are called a; give one another name",
        ),
        (
            fault(json!({"horizon": 9, "arms": arms, "policies": ["ucb2"]})),
            "policies[0].policy: unknown name `ucb2`, expected one of `thompson`, `ucb1`, `kl_ucb`, `epsilon_greedy`, `linucb`, `fixed`, `ensemble`",
        ),
        (
            fault(
                json!({"horizon": 9, "arms": arms, "policies": [{"policy": "ucb1", "epsilon": 0.1}]}),
            ),
            "policies[0].epsilon: has no effect: ucb1 reads ucb_width, value_range",
        ),
        (
            fault(
                json!({"horizon": 9, "arms": arms, "policies": ["ucb1", {"policy": "epsilon_greedy", "epsilon": 2}]}),
            ),
            "policies[1].epsilon: is 2; expected a number from 0 to 1",
        ),
        (
            fault(json!({"horizon": 9, "arms": arms, "policies": ["ucb1", "ucb1"]})),
            "policies[1]: two policies are called ucb1; give one a label of its own",
        ),
        (
            fault(json!({"horizon": 9, "arms": arms, "policies": ["linucb"]})),
            "policies[0]: linucb chooses by a context; set context_dimensions",
        ),
        (
            fault(json!({"horizon": 9, "arms": arms, "policies": []})),
            "policies: names no policy",
        ),
        (
            fault(json!({"horizon": 9, "arms": arms, "policies": [{"label": "x"}]})),
            "policies[0]: names no policy; expected one of thompson, ucb1, kl_ucb, epsilon_greedy, linucb, fixed, ensemble",
        ),
    ] {
        assert_eq!(got, wanted);
    }
}

#[test]
fn a_report_does_not_depend_on_the_threads_and_changes_with_the_seed() {
    let of = |seed: u64| {
        environment(json!({"horizon": 60, "runs": 7, "seed": seed, "arms": [
        {"name": "a", "gives": {"bernoulli": 0.4}}, {"name": "b", "gives": {"normal": {"mean": 0.5, "sd": 0.2}}}]}))
    };
    let first = of(1);
    for entry in &first.policies {
        let alone = simulate(&first, entry, 1, &|| {});
        assert_eq!(simulate(&first, entry, 3, &|| {}), alone);
        assert_eq!(simulate(&first, entry, 100, &|| {}), alone);
    }
    assert_ne!(play(&first), play(&of(2)));
}

#[test]
fn the_regret_of_a_fixed_arm_and_of_an_ensemble_is_known() {
    let environment = environment(json!({"horizon": 100, "runs": 3, "arms": [
        {"name": "a", "gives": {"constant": 1.0}},
        {"name": "b", "gives": {"constant": 0.5}, "then": [{"from": 60, "gives": {"constant": 2.0}}]},
    ], "policies": [
        {"policy": "fixed", "fixed_arm": "b"},
        {"policy": "fixed", "fixed_arm": "a", "label": "always a"},
        {"policy": "ensemble", "weights": [3, 1]},
    ]}));
    let reports = play(&environment);
    let ends: Vec<(f64, f64, Option<f64>)> = reports
        .iter()
        .map(|report| (report.last().mean, report.last().se, report.wrong_frac))
        .collect();
    // b costs ½ for 60 steps; a costs 1 for 40; the blend costs 1/8 for 60, then 3/4 for 40.
    assert_eq!(
        ends,
        [
            (30.0, 0.0, Some(0.0)),
            (40.0, 0.0, Some(1.0)),
            (37.5, 0.0, Some(1.0))
        ]
    );
    assert!((reports[0].best_frac - 0.4).abs() < 1e-12);
    assert!((reports[2].best_frac - 0.55).abs() < 1e-12);
}

#[test]
fn choosing_at_random_loses_the_mean_gap() {
    let environment = environment(json!({"horizon": 100, "arms": [
        {"name": "a", "gives": {"constant": 1.0}},
        {"name": "b", "gives": {"constant": 0.5}, "then": [{"from": 60, "gives": {"constant": 2.0}}]},
    ]}));
    assert_eq!(environment.random_regret(), Some(60.0 * 0.25 + 40.0 * 0.5));
}

#[test]
fn timed_out_and_missing_pulls_are_as_many_as_asked_for_and_count_in_the_means() {
    let environment = environment(json!({"horizon": 400, "runs": 50, "arms": [
        {"name": "slow", "gives": {"constant": 1.0}, "timed_out_frac": 0.5, "default": 0.2, "missing_frac": 0.25},
        {"name": "fast", "gives": {"constant": 0.5}},
    ], "policies": [{"policy": "fixed", "fixed_arm": "slow"}, "thompson"]}));
    let [slow, thompson] = &play(&environment)[..] else {
        panic!("two policies")
    };
    // Of the answers two thirds are the default: 1/3 · 1 + 2/3 · 0.2 = 7/15, below the fast arm's ½.
    assert!((slow.last().mean - 400.0 * (0.5 - 7.0 / 15.0)).abs() < 1e-9);
    // Five standard errors of a share over 20,000 pulls.
    assert!(
        (slow.timed_out_frac - 0.5).abs() < 5.0 * 0.5 / 141.0
            && (slow.missing_frac - 0.25).abs() < 5.0 * 0.44 / 141.0
    );
    assert!(thompson.last().mean < slow.last().mean);
}

#[test]
fn contexts_pay_and_a_late_outcome_costs() {
    let of = |delay: u64| {
        environment(
            json!({"horizon": 600, "runs": 20, "context_dimensions": 4, "outcome_delay": delay, "arms": [
        {"name": "a", "gives": {"linear": {"theta": [0.5, 0.0, 0.0, 0.0], "bias": 0.5, "sd": 0.1}}},
        {"name": "b", "gives": {"linear": {"theta": [-0.5, 0.0, 0.0, 0.0], "bias": 0.5, "sd": 0.1}}},
    ], "policies": ["linucb", "thompson"]}),
        )
    };
    let [linucb, thompson] = &play(&of(0))[..] else {
        panic!("two policies")
    };
    assert!(
        linucb.last().mean * 4.0 < thompson.last().mean,
        "{:?} {:?}",
        linucb.last(),
        thompson.last()
    );
    assert_eq!(linucb.wrong_frac, None);
    let late = &play(&of(100))[0];
    assert!(
        late.last().mean > linucb.last().mean + 3.0 * (late.last().se + linucb.last().se),
        "{:?}",
        late.last()
    );
}

#[test]
fn values_outside_the_range_are_cut_and_told() {
    let environment = environment(json!({"horizon": 50, "runs": 2, "arms": [
        {"name": "a", "gives": {"constant": 3.0}}, {"name": "b", "gives": {"constant": 0.5}}],
        "policies": ["ucb1", {"policy": "ucb1", "label": "in range", "value_range": [0, 4]}, {"policy": "thompson", "posterior": "gaussian"}]}));
    let clamped: Vec<bool> = play(&environment)
        .iter()
        .map(|report| report.clamped_frac > 0.1)
        .collect();
    assert_eq!(clamped, [true, false, false]);
}

#[test]
fn without_policies_the_usual_ones_play() {
    let labels = |json: Json| -> Vec<String> {
        environment(json)
            .policies
            .into_iter()
            .map(|entry: Entry| entry.label)
            .collect()
    };
    let arms = json!([{"name": "a", "gives": {"values": [0.1, 0.9]}}, {"name": "b", "gives": {"beta": {"alpha": 2, "beta": 1}}}]);
    assert_eq!(
        labels(json!({"horizon": 5, "arms": arms})),
        ["thompson", "kl_ucb", "ucb1", "epsilon_greedy"]
    );
    let with = json!({"horizon": 5, "arms": arms, "context_dimensions": 2});
    assert_eq!(labels(with).last().unwrap(), "linucb");
}

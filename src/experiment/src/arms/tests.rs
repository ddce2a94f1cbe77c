use super::page::{OPTIONS, defaults};
use super::*;
use crate::scorers::SCORERS;
use crate::yaml;

fn arms(text: &str) -> Result<Vec<Arm>, String> {
    read(&yaml::parse(text).root.expect("YAML"))
}

#[test]
fn every_option_is_documented_and_every_documented_option_is_one() {
    for row in &SCORERS {
        let mut written: Vec<&str> = OPTIONS
            .iter()
            .filter(|(id, _)| *id == row.id)
            .flat_map(|(_, options)| options.iter().map(|(name, _)| *name))
            .collect();
        let defaults = defaults(row.id);
        let mut typed: Vec<&str> = defaults.keys().map(String::as_str).collect();
        written.sort_unstable();
        typed.sort_unstable();
        assert_eq!(written, typed, "{}", row.name);
    }
}

#[test]
fn an_arm_says_what_it_is_and_the_rest_is_usual() {
    let read = arms(
        "- math_equal\n- {name: shape, scorer: format, weight: 0.2, timeout: 250ms, default: -1, concurrency: 2, sees: final_answer, options: {tags: [think]}}\n",
    )
    .expect("arms");
    assert_eq!(read[0], Arm::new("math_equal", ScorerName::MathEqual));
    let shape = &read[1];
    assert_eq!(
        (
            shape.weight,
            shape.timeout,
            shape.default,
            shape.concurrency,
            shape.sees
        ),
        (0.2, 0.25, -1.0, 2, Some(Sees::FinalAnswer))
    );
    assert_eq!(
        shape.judge(),
        Ok(Judge::Format(Format {
            tags: vec!["think".to_owned()],
            ..Format::default()
        }))
    );
    // And comes back from what a run writes down.
    let json = serde_json::to_value(&read).expect("string keys");
    assert_eq!(super::read(&yaml::Node::from_json(&json)), Ok(read));
}

#[test]
fn the_reward_of_an_ensemble_is_the_mean_of_its_arms() {
    let mut reward = Reward {
        arms: arms("[{name: a, scorer: math}, {name: b, scorer: numeric, weight: -3}, {name: held, scorer: gsm8k, weight: 0}]")
            .expect("arms"),
        ..Reward::default()
    };
    reward.bandit.policy = Some(PolicyName::Ensemble);
    let weights =
        |reward: &Reward| -> Vec<f64> { judging(reward).iter().map(|arm| arm.weight).collect() };
    assert_eq!(weights(&reward), [0.5, -0.5, 0.0]);
    reward.bandit.weights = vec![1.0, 2.0, 1.0];
    assert_eq!(weights(&reward), [0.25, 0.5, 0.25]);
    reward.bandit.policy = None;
    assert_eq!(weights(&reward), [1.0, -3.0, 0.0]);
}

#[test]
fn what_is_wrong_is_said_with_the_arm_and_the_field() {
    for (text, message) in [
        (
            "[maths]",
            "arm 1 (line 1): there is no scorer \"maths\"; expected",
        ),
        (
            "[math, math]",
            "arm 2 (line 1): two arms are called math; give one another name",
        ),
        ("[{name: a}]", "arm 1 (line 1): there is no scorer \"a\""),
        (
            "[{scorer: math, weigh: 2}]",
            "arm 1 (line 1): there is no field \"weigh\"; did you mean weight?",
        ),
        (
            "[{scorer: math, weight: .nan}]",
            "arm 1 (line 1): weight: expected a finite number, got .nan",
        ),
        (
            "[{scorer: math, timeout: 0}]",
            "arm 1 (line 1): timeout: expected seconds above 0",
        ),
        (
            "[{scorer: math, concurrency: 0}]",
            "arm 1 (line 1): concurrency is 0; expected 1 <= concurrency <= 4096",
        ),
        (
            "[{scorer: math, sees: all}]",
            "arm 1 (line 1): sees is \"all\"; expected model_text, final_answer or dialogue",
        ),
        (
            "[{scorer: math, options: {x: 1}}]",
            "arm 1 (line 1): options: math has none, got x",
        ),
        (
            "[{scorer: exact, options: {case: 1}}]",
            "arm 1 (line 1): options: unknown field `case`, expected `normalise_whitespace` or `ignore_case`",
        ),
        (
            "[{scorer: regex}]",
            "arm 1 (line 1): options: pattern is missing",
        ),
        (
            "[{scorer: format}]",
            "arm 1 (line 1): options: no term of form",
        ),
        (
            "[{scorer: length, options: {min: 3, max: 2}}]",
            "arm 1 (line 1): options: max is below min",
        ),
        (
            "[{scorer: python}]",
            "arm 1 (line 1): options: path is missing",
        ),
        (
            "[{name: a/b, scorer: math}]",
            "arm 1 (line 1): name \"a/b\": expected letters, digits, _, - and .",
        ),
        (
            "[{scorer: http, options: {url: ftp://x}}]",
            "arm 1 (line 1): options: url is \"ftp://x\"; expected http:// or https://",
        ),
        (
            "[{scorer: judge, options: {url: http://x}}]",
            "arm 1 (line 1): options: model is missing",
        ),
        (
            "[3]",
            "arm 1 (line 1): expected an arm {name: ..., scorer: ..., weight: ...} or the name of a scorer, got 3",
        ),
    ] {
        let error = arms(text).expect_err(text);
        assert!(error.starts_with(message), "{text}: {error}");
    }
}

//! `lathe bandit`: tables, curves and words for a wrong environment.

use std::fs;

use super::harness::{Bench, Ran};

const ENVIRONMENT: &str = "\
horizon: 300
runs: 8
arms:
  - name: good
    gives: {bernoulli: 0.8}
  - name: poor
    gives: {bernoulli: 0.3}
policies:
  - thompson
  - ucb1
  - {policy: fixed, fixed_arm: poor, label: \"poor, always\"}
";

fn bench(text: &str) -> Bench {
    let bench = Bench::new();
    fs::write(bench.path("env.yaml"), text).unwrap();
    bench
}

fn simulate(bench: &Bench, more: &[&str]) -> Ran {
    bench.run([&["bandit", "simulate", "env.yaml"], more].concat())
}

#[test]
fn the_table_ranks_the_policies_and_is_the_same_each_time() {
    let bench = bench(ENVIRONMENT);
    let ran = simulate(&bench, &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    insta::assert_snapshot!(ran.stdout);
    assert_eq!(simulate(&bench, &["--threads", "5"]).stdout, ran.stdout);
    let other = simulate(&bench, &["--seed", "1"]);
    assert!(
        other.stdout.contains("(seed 1)") && other.stdout != ran.stdout,
        "{other:?}"
    );
}

#[test]
fn csv_is_the_curve_of_each_policy_and_json_a_line_a_policy() {
    let bench = bench(ENVIRONMENT);
    let csv = simulate(&bench, &["--format", "csv", "--runs", "2"]).stdout;
    let mut lines = csv.lines();
    assert_eq!(
        lines.next(),
        Some("policy,step,regret_mean,regret_se,regret_p05,regret_p95")
    );
    assert_eq!(
        csv.lines().last(),
        Some("\"poor, always\",300,150,0,150,150"),
        "{csv}"
    );
    let rows = simulate(
        &bench,
        &["--format", "json", "--runs", "2", "--policy", "ucb1"],
    )
    .json_lines();
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(
        (row["policy"].as_str(), row["runs"].as_u64()),
        (Some("ucb1"), Some(2))
    );
    assert_eq!(row["random_regret"], 75.0);
    let curve = row["curve"].as_array().unwrap();
    assert_eq!(curve.last().unwrap()["mean"], row["regret_mean"]);
    let in_csv = format!("ucb1,300,{},", row["regret_mean"].as_f64().unwrap());
    assert!(csv.contains(&in_csv), "{in_csv} is not in {csv}");
}

#[test]
fn a_wrong_environment_is_told_with_its_line() {
    let said = |text: &str, more: &[&str]| {
        let ran = simulate(&bench(text), more);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        ran.stderr
    };
    for (wrong, right, wanted) in [
        (
            "{bernoulli: 1.3}",
            "{bernoulli: 0.3}",
            "error: env.yaml:7: arms[1].gives.bernoulli: is 1.3; expected a probability from 0 to 1\n",
        ),
        (
            "name: good\n    given",
            "name: good\n    gives",
            "error: env.yaml:5: arms[0].given: unknown field `given`, expected one of `name`, `gives`, `then`, `timed_out_frac`, `default`, `missing_frac`\n",
        ),
        (
            "- ucb2",
            "- ucb1",
            "error: env.yaml:10: policies[1].policy: unknown name `ucb2`, expected one of `thompson`, `ucb1`, `kl_ucb`, `epsilon_greedy`, `linucb`, `fixed`, `ensemble`\n",
        ),
        (
            "fixed_arm: bad",
            "fixed_arm: poor",
            "error: env.yaml:11: policies[2].fixed_arm: is \"bad\"; expected one of good, poor\n",
        ),
        ("runs: [", "runs: 8", "error: env.yaml:3: "),
        (
            "horizon: 0",
            "horizon: 300",
            "error: env.yaml:1: horizon: is 0; expected 1 to 10000000\n",
        ),
    ] {
        let text = ENVIRONMENT.replace(right, wrong);
        let stderr = said(&text, &[]);
        assert!(stderr.starts_with(wanted), "{stderr}");
    }
    assert_eq!(
        said("", &[]),
        "error: env.yaml:1: is empty; expected horizon, arms and policies\n"
    );
    assert_eq!(
        said(ENVIRONMENT, &["--policy", "kl_ucb"]),
        "error: --policy kl_ucb: env.yaml has none of this label; it has thompson, ucb1, poor, always\n"
    );
    assert_eq!(
        said(ENVIRONMENT, &["--runs", "0"]),
        "error: runs: is 0; expected 1 to 1000000\n"
    );
    let none = Bench::new().run(["bandit", "simulate", "none.yaml"]);
    assert_eq!(none.code, Some(3));
    assert!(
        none.stderr.starts_with("error: cannot read none.yaml: "),
        "{}",
        none.stderr
    );
}

#[test]
fn the_environments_that_ship_can_be_played() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/bandits");
    let mut played = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let ran = Bench::new().run([
            "bandit",
            "simulate",
            path.to_str().unwrap(),
            "--runs",
            "2",
            "--format",
            "json",
        ]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        assert!(ran.json_lines().len() >= 5);
        played += 1;
    }
    assert_eq!(played, 2);
}

#[test]
fn the_policies_are_listed_with_what_they_read() {
    let listed = Bench::new().run(["bandit", "policies"]).stdout;
    for policy in ::bandit::table::POLICIES {
        assert!(
            listed.contains(policy.says) && listed.contains(policy.formula),
            "{listed}"
        );
    }
}

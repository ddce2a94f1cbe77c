//! Runs whose reward has arms, and a bandit that chooses among them.

use std::collections::BTreeMap;
use std::fs;

use runlog::event::EventKind;

use super::run;
use super::tiny::{self, experiment, fixture};

#[test]
fn every_arm_of_the_reward_is_in_the_score_the_metrics_and_the_rollouts() {
    let (root, data) = fixture();
    let arms = "reward:\n  arms:\n    - {name: right, scorer: auto, timeout: 60s}\n    - {name: short, scorer: length, weight: 0.5, timeout: 60s, options: {unit: characters, max: 1000}}\n    - {name: watch, scorer: regex, weight: 0, timeout: 60s, options: {pattern: '[0-9]'}}\n";
    let run = run(root.path(), experiment(&data, arms));
    let state = run.ended_well();
    let rows = runlog::store::read_rollouts(&runlog::store::rollouts_path(&run.directory, 1))
        .expect("the record of step 1");
    for row in &rows {
        let parts: BTreeMap<String, f64> =
            serde_json::from_str(&row.score_parts).expect("numbers by name");
        assert_eq!(
            row.score,
            Some(parts["arm/right"] + 0.5 * parts["arm/short"])
        );
        assert!(parts["arm/watch/ms"] >= 0.0 && parts.contains_key("arm/right/format"));
    }
    let value = |name: &str| {
        let series = state.series.iter().find(|(known, _)| *known == name);
        let points: Vec<f64> = series
            .unwrap_or_else(|| panic!("no {name}"))
            .1
            .iter()
            .map(|point| point.value.0)
            .collect();
        assert_eq!(points.len(), 3, "{name} of every step");
        points
    };
    // No short text of this model is longer, and none is right.
    assert_eq!(value("reward/arm/short/score/mean"), [1.0; 3]);
    assert_eq!(value("critic/score/mean"), [0.5; 3]);
    assert_eq!(value("reward/arm/right/timed_out_frac"), [0.0; 3]);
    assert_eq!(value("reward/arm/watch/missing_frac"), [0.0; 3]);
    value("reward/arm/watch/latency_ms/p99");
    for (arm, weight) in [("right", 1.0), ("short", 0.5), ("watch", 0.0)] {
        assert_eq!(value(&format!("reward/arm/{arm}/weight")), [weight; 3]);
    }
}

#[test]
fn an_arm_that_never_works_ends_the_run_before_its_first_step() {
    let (root, data) = fixture();
    let arms = "reward:\n  custom_reward_function:\n    path: no/such/reward.py\n";
    let run = run(root.path(), experiment(&data, arms));
    assert_eq!(run.output.status.code(), Some(3));
    let message = run.events.iter().find_map(|event| match &event.kind {
        EventKind::RunEnded { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    let message = message.expect("the log says why");
    assert!(
        message
            .contains("reward.arms: custom gave no score for any of the 4 rows it was tried on: "),
        "{message}"
    );
    assert!(
        !run.events
            .iter()
            .any(|event| matches!(event.kind, EventKind::StepEnded { .. }))
    );
}

#[test]
fn a_bandit_chooses_the_arm_that_scores_each_step_and_learns_from_its_probe() {
    for mode in ["sync", "one_step_off", "async"] {
        let (root, data) = fixture();
        let yaml = experiment(&data, &format!("  mode: {mode}\n")) + &tiny::bandit(&data);
        let exact = (mode != "async").to_string();
        let yaml = yaml.replace(
            "full_determinism: true",
            &format!("full_determinism: {exact}"),
        );
        let run = run(root.path(), yaml);
        let state = run.ended_well();
        let chosen: Vec<(u64, String)> = run
            .events
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::BanditChose {
                    step,
                    arm: Some(arm),
                    ..
                } => Some((*step, arm.clone())),
                _ => None,
            })
            .collect();
        let steps: Vec<u64> = chosen.iter().map(|(step, _)| *step).collect();
        assert_eq!(steps, [1, 2, 3], "{mode}");
        for (step, arm) in &chosen {
            let weight = if arm == "digits" { 2.0 } else { 1.0 };
            let path = runlog::store::rollouts_path(&run.directory, *step);
            for row in runlog::store::read_rollouts(&path).expect("the record of the step") {
                let parts: BTreeMap<String, f64> =
                    serde_json::from_str(&row.score_parts).expect("numbers by name");
                assert_eq!(row.score, Some(weight * parts[&format!("arm/{arm}")]));
            }
        }
        for (arm, counts) in [("short", 1.0), ("digits", 2.0), ("truth", 0.0)] {
            let weights = state.series.get(&format!("reward/arm/{arm}/weight"));
            let expected = chosen
                .iter()
                .map(|(_, chosen)| if chosen == arm { counts } else { 0.0 });
            let expected: Vec<f64> = expected.collect();
            assert_eq!(weights.expect("told").values(), expected, "{mode} {arm}");
        }
        let bandit = state.bandit.expect("there is one");
        // Eight rollouts a pull, and an update wants ten: two pulls make one, and the third waits.
        assert_eq!((bandit.choices, bandit.updates), (3, 1), "{mode}");
        assert_eq!(bandit.arms.iter().map(|arm| arm.counted).sum::<u64>(), 2);
        let arms: Vec<&str> = bandit.arms.iter().map(|arm| &*arm.name).collect();
        assert_eq!(arms, ["short", "digits"], "a judge of weight 0 is held out");
        let accuracy = state.series.get("bandit/probe/accuracy").expect("probed");
        assert!(accuracy.values().iter().all(|value| *value == 0.0));
        assert!(state.series.get("reward/arm/truth/score/mean").is_some());
        let evaluated = "val-aux/lathe/calc/arm/truth/mean";
        assert!(state.series.get(evaluated).is_some(), "{mode}");
    }
}

#[test]
fn a_probe_that_cannot_be_verified_ends_the_run_before_its_first_step() {
    let (root, data) = fixture();
    let probe = root.path().join("probe.jsonl");
    let rows = fs::read_to_string(&data).expect("prompts");
    fs::write(&probe, rows.replacen("lathe/calc", "my/own", 1)).expect("a writable folder");
    let yaml = experiment(&data, "") + &tiny::bandit(&probe);
    let run = run(root.path(), yaml);
    assert_eq!(run.output.status.code(), Some(3));
    let message = String::from_utf8_lossy(&run.output.stderr);
    assert!(
        message.contains("reward.bandit.probe_files: row 0 of ")
            && message.contains("cannot be verified: no scorer for data_source `my/own`"),
        "{message}"
    );
}

#[test]
fn evaluations_may_have_a_scorer_of_their_own() {
    let (root, data) = fixture();
    let arms = "reward:\n  val_scorer: auto\n  arms:\n    - {name: any, scorer: length, timeout: 60s, options: {unit: characters, max: 1000}}\n";
    let run = run(root.path(), experiment(&data, arms));
    let state = run.ended_well();
    let means = state
        .series
        .get("val-core/lathe/calc/reward/mean@1")
        .expect("evaluated");
    assert!(
        means.values().iter().all(|mean| *mean == 0.0),
        "no answer is right"
    );
    let trained = state.series.get("critic/score/mean").expect("trained");
    assert!(
        trained.values().iter().all(|mean| *mean == 1.0),
        "all are short"
    );
}

#[test]
fn arms_may_be_rewarded_by_how_far_they_order_answers_as_people_did() {
    let (root, data) = fixture();
    let labels = root.path().join("labels.jsonl");
    // People like short answers without digits, and the last line is still being written.
    let label = r#"{"prompt": "1+1=", "chosen": "two", "rejected": "I would say that it is 2"}"#;
    let broken = "this is { broken";
    fs::write(
        &labels,
        format!("{label}\n{broken}\n{label}\n{{\"prompt\": "),
    )
    .expect("a writable folder");
    let bandit = tiny::bandit(&data)
        .replace("probe_rows: 4\n", "rewarded_by: human_agreement\n")
        .replace(
            &format!("probe_files: {}", data.display()),
            &format!("label_files: {}\n    update_every: 1", labels.display()),
        );
    let yaml = experiment(&data, &bandit).replace("steps: 3", "steps: 8");
    let run = run(root.path(), yaml);
    let state = run.ended_well();
    let bandit = state.bandit.expect("there is one");
    assert_eq!(bandit.updates, 8, "each pull is told at once");
    let alarms: Vec<&str> = state.alarms.iter().map(|alarm| &*alarm.name).collect();
    assert_eq!(
        alarms,
        ["labels that cannot be read"],
        "once, and it goes on"
    );
    for arm in &bandit.arms {
        let mean = arm.mean.expect("a posterior").0;
        // One success of one try, or none: Beta(1 + n, 1) or Beta(1, 1 + n).
        let count = arm.counted as f64;
        let expected = if arm.name == "short" {
            (1.0 + count) / (2.0 + count)
        } else {
            1.0 / (2.0 + count)
        };
        assert!((mean - expected).abs() < 1e-12, "{arm:?}");
    }
    let short = bandit.arms.iter().find(|arm| arm.name == "short");
    assert!(
        short.is_some_and(|arm| arm.counted > 4),
        "{:?}",
        bandit.arms
    );
}

#[test]
fn a_bandit_may_choose_by_the_prompts_and_be_rewarded_by_the_loss_as_laser_is() {
    let (root, data) = fixture();
    let bandit = tiny::bandit(&data)
        .replace("policy: thompson", "policy: linucb")
        .replace(
            "probe_rows: 4\n",
            "rewarded_by: negative_loss\n    update_every: 1\n",
        )
        .replace(&format!("    probe_files: {}\n", data.display()), "");
    let run = run(root.path(), experiment(&data, &bandit));
    let state = run.ended_well();
    let losses = state.series.get("actor/pg_loss").expect("trained").values();
    let values = state.series.get("bandit/value").expect("learned").values();
    // What a pull brought is told with the step that follows it.
    let expected: Vec<f64> = losses.iter().take(2).map(|loss| -loss).collect();
    assert_eq!(values, expected);
    assert_eq!(state.bandit.expect("there is one").reasons["bound"], 3);
}

#[test]
fn a_bandit_may_begin_with_another_runs_weights_between_two_of_its_pulls() {
    let (root, data) = fixture();
    let first = run(root.path(), experiment(&data, "  save_freq: 1\n"));
    let origin = first.directory.checkpoint_path(1);
    let fork = format!(
        "  resume_mode: resume_path\n  resume_from_path: {}\n",
        origin.display()
    );
    let bandit = tiny::bandit(&data) + "    steps_per_pull: 2\n    update_every: 1\n";
    let run = run(root.path(), experiment(&data, &fork) + &bandit);
    let state = run.ended_well();
    let bandit = state.bandit.expect("there is one");
    // Step 2 ends a pull of one step, and step 3, the last, another.
    assert_eq!((bandit.choices, bandit.updates), (2, 2));
}

#[test]
fn labels_that_no_arm_can_score_and_labels_that_are_not_there_are_alarms_and_count_for_nothing() {
    let (root, data) = fixture();
    let labels = root.path().join("labels.jsonl");
    let bandit = tiny::bandit(&data)
        .replace("probe_rows: 4\n", "rewarded_by: human_agreement\n")
        .replace(
            &format!("probe_files: {}", data.display()),
            &format!("label_files: {}", labels.display()),
        );
    let run = run(root.path(), experiment(&data, &bandit));
    let state = run.ended_well();
    let told: Vec<&str> = state
        .alarms
        .iter()
        .filter(|alarm| alarm.name == "nothing to agree with")
        .map(|alarm| &*alarm.message)
        .collect();
    assert_eq!(told.len(), 3, "{:?}", state.alarms);
    assert!(
        told[0].ends_with("label_files hold no labels yet"),
        "{told:?}"
    );
}

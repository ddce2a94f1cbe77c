//! Whole runs of the real program on a model of two layers: what a run directory holds when it ends, whatever way it ends.

mod tiny;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use runlog::event::{Event, EventKind, RunStatus};
use runlog::run_dir::RunDir;
use runlog::tail;
use tiny::{MODEL, experiment, fixture, learned};

struct Run {
    directory: RunDir,
    output: Output,
    events: Vec<Event>,
}

fn run(root: &Path, yaml: String) -> Run {
    let directory = tiny::run_dir(root, yaml);
    let output = Command::new(env!("CARGO_BIN_EXE_lathe-trainer"))
        .args(["run", "--run-dir"])
        .arg(directory.path())
        .output()
        .expect("the program starts");
    let (events, bad) = tail::read_all(&directory.events_path()).unwrap_or_default();
    assert!(bad.is_empty(), "every line is an event: {bad:?}");
    Run {
        directory,
        output,
        events,
    }
}

impl Run {
    fn final_weights(&self) -> Vec<u8> {
        fs::read(self.directory.checkpoint_path(3).join("model.safetensors")).unwrap_or_else(
            |error| panic!("{error}: {}", String::from_utf8_lossy(&self.output.stderr)),
        )
    }
}

#[test]
fn sync_and_one_step_off_with_staleness_0_give_the_same_bits() {
    let (root, data) = fixture();
    let synchronous = run(root.path(), experiment(&data, "  mode: sync\n"));
    let depth_0 = run(
        root.path(),
        experiment(&data, "  mode: one_step_off\n  max_staleness: 0\n"),
    );
    let start = fs::read(Path::new(MODEL).join("model.safetensors")).expect("the starting model");
    assert_ne!(
        synchronous.final_weights(),
        start,
        "three steps move the weights"
    );
    assert!(
        synchronous.final_weights() == depth_0.final_weights(),
        "the same bits in every weight"
    );
}

#[test]
fn one_step_off_generates_each_batch_from_the_weights_before_the_step_in_progress() {
    let (root, data) = fixture();
    let run = run(root.path(), experiment(&data, "  mode: one_step_off\n"));
    assert!(
        run.output.status.success(),
        "{}",
        String::from_utf8_lossy(&run.output.stderr)
    );
    let mut versions = std::collections::BTreeMap::new();
    for event in &run.events {
        if let EventKind::RolloutEnded {
            step,
            policy_version_min,
            policy_version_max,
            ..
        } = &event.kind
        {
            assert_eq!(
                policy_version_min, policy_version_max,
                "no mixture within a batch"
            );
            versions.insert(*step, *policy_version_min);
        }
    }
    assert_eq!(versions, [(1, 0), (2, 0), (3, 1)].into());
    let syncs: Vec<(u64, bool)> = run
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::WeightsSynced {
                version,
                verified,
                sent_fingerprint,
                received_fingerprint,
                ..
            } => {
                assert_eq!(sent_fingerprint, received_fingerprint);
                Some((*version, *verified))
            }
            _ => None,
        })
        .collect();
    assert_eq!(syncs, [(1, true), (2, true), (3, true)]);
    let evaluated: Vec<u64> = run
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::EvalEnded {
                policy_version,
                samples,
                ..
            } => {
                assert_eq!(*samples, 16);
                Some(*policy_version)
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        evaluated,
        [0, 2, 3],
        "before training, every test_freq steps, and at the end"
    );
    assert!(matches!(
        run.events.last().map(|event| &event.kind),
        Some(EventKind::RunEnded {
            status: RunStatus::Completed,
            exit_code: 0,
            steps: 3,
            ..
        })
    ));
}

#[test]
fn async_runs_train_every_batch_in_order_within_their_bound_and_keep_each_tokens_version() {
    for partial in [true, false] {
        let (root, data) = fixture();
        let mode = format!(
            "  mode: async\n  max_staleness: 2\nasync_training:\n  partial_rollout: {partial}\n"
        );
        let yaml = experiment(&data, &mode)
            .replace("full_determinism: true", "full_determinism: false")
            .replace("total_training_steps: 3", "total_training_steps: 8")
            .replace("test_freq: 2", "test_freq: 8");
        let run = run(root.path(), yaml);
        assert!(
            run.output.status.success(),
            "{}",
            String::from_utf8_lossy(&run.output.stderr)
        );
        let mut steps = Vec::new();
        for event in &run.events {
            match &event.kind {
                EventKind::RolloutEnded {
                    step,
                    policy_version_min,
                    policy_version_max,
                    ..
                } => {
                    assert!(step - 1 - policy_version_min <= 2, "{event:?}");
                    assert!(partial || policy_version_min == policy_version_max);
                }
                EventKind::StepEnded { step, values, .. } => {
                    steps.push(*step);
                    assert!(values["staleness/max"].0 <= 2.0, "{values:?}");
                }
                _ => {}
            }
        }
        assert_eq!(steps, (1..=8).collect::<Vec<_>>());
    }
}

#[test]
fn a_dialogue_begun_again_for_the_clock_s_sake_is_told_where_the_same_bits_are_promised() {
    let (root, data) = fixture();
    let yaml = |exact: bool| {
        experiment(&data, "  mode: sync\n  val_before_train: false\n")
            .replace(
                "full_determinism: true",
                &format!("full_determinism: {exact}"),
            )
            .replace("n: 2", "n: 2\n    session_timeout_s: 0.001")
            .replace("total_training_steps: 3", "total_training_steps: 1")
            .replace("test_freq: 2", "test_freq: -1")
            // No answer is drawn in a millisecond.
            .replace("max_response_length: 12", "max_response_length: 150")
            .replace(
                "ppo_max_token_len_per_gpu: 80",
                "ppo_max_token_len_per_gpu: 256",
            )
    };
    for exact in [true, false] {
        let run = run(root.path(), yaml(exact));
        let told: Vec<String> = alarms(&run)
            .into_iter()
            .filter(|(name, _)| name == "not the same bits")
            .map(|(_, message)| message)
            .collect();
        assert_eq!(!told.is_empty(), exact, "{told:?}");
        let line = told.first();
        assert!(
            line.is_none_or(|line| line.contains("is begun again: its deadline passed")),
            "{told:?}"
        );
        let again = run.events.iter().find_map(|event| match &event.kind {
            EventKind::StepEnded { values, .. } => Some(values["async/begun_again"].0),
            _ => None,
        });
        assert!(again.is_some_and(|again| again >= 1.0), "{again:?}");
    }
}

#[test]
fn remax_draws_one_greedy_answer_a_prompt_and_trains_on_the_samples_only() {
    let (root, data) = fixture();
    let yaml = experiment(&data, "  mode: sync\n")
        .replace("adv_estimator: gae", "adv_estimator: remax")
        .replace("total_training_steps: 3", "total_training_steps: 1");
    let run = run(root.path(), yaml);
    assert!(
        run.output.status.success(),
        "{}",
        String::from_utf8_lossy(&run.output.stderr)
    );
    let trained = run
        .events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::RolloutEnded { .. }))
        .count();
    assert_eq!(trained, 4 * 2, "greedy answers are not counted as samples");
    let rows = runlog::store::read_rollouts(&runlog::store::rollouts_path(&run.directory, 1))
        .expect("the record");
    assert_eq!(rows.len(), 8);
    for row in &rows {
        assert!(
            row.score_parts.contains("\"greedy_baseline\":"),
            "{}",
            row.score_parts
        );
    }
    let alarms: Vec<_> = run
        .events
        .iter()
        .filter(|event| matches!(&event.kind, EventKind::Alarm { name, .. } if name == "rollouts left out"))
        .collect();
    assert!(alarms.is_empty(), "{alarms:?}");
}

/// A dialogue of this experiment earns by its length alone, so that the samples of a prompt may differ.
fn dapo(data: &Path, more: &str) -> String {
    experiment(data, "  mode: sync\n")
        .replace(
            "adv_estimator: gae",
            &format!("adv_estimator: grpo\n{more}"),
        )
        .replace("total_training_steps: 3", "total_training_steps: 1")
        .replace("test_freq: 2", "test_freq: -1\n  val_before_train: false")
        .replace("  val_files: ", "  #")
        + "reward:\n  reward_kwargs:\n    overlong_buffer_cfg: {enable: true, len: 12, penalty_factor: 2.0}\n"
}

fn alarms(run: &Run) -> Vec<(String, String)> {
    run.events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Alarm { name, message, .. } => Some((name.clone(), message.clone())),
            _ => None,
        })
        .collect()
}

#[test]
fn a_long_response_loses_score_and_the_record_says_how_much() {
    let (root, data) = fixture();
    let run = run(root.path(), dapo(&data, ""));
    assert!(
        run.output.status.success(),
        "{}",
        String::from_utf8_lossy(&run.output.stderr)
    );
    let rows = runlog::store::read_rollouts(&runlog::store::rollouts_path(&run.directory, 1))
        .expect("the record");
    assert!(!rows.is_empty());
    for row in rows {
        let parts: serde_json::Value = serde_json::from_str(&row.score_parts).expect("JSON");
        let lost = -2.0 * row.response_ids.len() as f64 / 12.0;
        assert!((parts["overlong_penalty"].as_f64().expect("a number") - lost).abs() < 1e-9);
        assert!(
            (row.score.expect("a score") - lost).abs() < 1e-6,
            "every answer is wrong: 0"
        );
    }
}

#[test]
fn groups_that_score_alike_are_drawn_anew_up_to_the_bound_and_then_said() {
    let (root, data) = fixture();
    // Without the punishment every sample scores 0: no group ever teaches.
    let filter = "  filter_groups: {enable: true, max_num_gen_batches: 3}";
    let yaml = dapo(&data, filter).replace("{enable: true, len: 12", "{enable: false, len: 12");
    let run = run(root.path(), yaml);
    assert!(
        run.output.status.success(),
        "{}",
        String::from_utf8_lossy(&run.output.stderr)
    );
    let drawn = run
        .events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::RolloutEnded { .. }))
        .count();
    assert_eq!(
        drawn,
        3 * 4 * 2,
        "three batches of four prompts, two samples each"
    );
    let alarms = alarms(&run);
    assert!(
        alarms
            .iter()
            .any(|(name, message)| name == "too few groups that teach"
                && message.contains("3 batches (12 prompts) gave 0 groups")),
        "{alarms:?}"
    );
}

#[test]
fn a_model_that_is_not_there_ends_the_run_with_code_3_and_its_path() {
    let (root, data) = fixture();
    let yaml = experiment(&data, "").replace(MODEL, "/nowhere/model");
    let run = run(root.path(), yaml);
    assert_eq!(run.output.status.code(), Some(3));
    let Some(EventKind::RunEnded {
        status: RunStatus::Failed,
        exit_code: 3,
        reason,
        ..
    }) = run.events.last().map(|event| &event.kind)
    else {
        panic!("the log says how it ended: {:?}", run.events.last())
    };
    assert!(reason.contains("/nowhere/model"), "{reason}");
}

#[test]
fn an_evaluation_without_training_says_so_when_it_ends() {
    let (root, data) = fixture();
    let run = run(root.path(), experiment(&data, "  val_only: true\n"));
    assert_eq!(run.output.status.code(), Some(0));
    let Some(EventKind::RunEnded {
        status: RunStatus::Completed,
        reason,
        steps: 0,
        ..
    }) = run.events.last().map(|event| &event.kind)
    else {
        panic!("the log says how it ended: {:?}", run.events.last())
    };
    assert_eq!(
        reason,
        "the starting weights were evaluated; trainer.val_only trains no step"
    );
    assert!(
        run.events
            .iter()
            .any(|event| matches!(event.kind, EventKind::EvalEnded { step: 0, .. }))
    );
}

/// Starts the trainer on a run directory, again.
fn go_on(directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lathe-trainer"))
        .args(["run", "--run-dir"])
        .arg(directory)
        .output()
        .expect("the program starts")
}

#[test]
fn a_killed_run_resumes_from_its_newest_whole_checkpoint_and_ends_with_the_bits_of_one_never_killed()
 {
    let (root, data) = fixture();
    let settings = "  mode: sync\n  save_freq: 1\n";
    let whole = run(root.path(), experiment(&data, settings));
    assert!(whole.output.status.success());

    let directory = tiny::run_dir(root.path(), experiment(&data, settings));
    let mut child = Command::new(env!("CARGO_BIN_EXE_lathe-trainer"))
        .args(["run", "--run-dir"])
        .arg(directory.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the program starts");
    while !directory.checkpoint_path(2).join("manifest.json").exists() {
        assert!(child.try_wait().expect("a child of ours").is_none());
        std::thread::yield_now();
    }
    child.kill().expect("a child of ours");
    child.wait().expect("a child of ours");
    // The newest one is damaged, and the log ends in half a line.
    let newest = directory.checkpoint_path(2).join("model.safetensors");
    let mut bytes = fs::read(&newest).expect("weights");
    bytes.truncate(bytes.len() / 2);
    fs::write(&newest, bytes).expect("writable");
    // A run that was over when it was killed has a third one; then there is nothing to lose.
    drop(fs::remove_dir_all(directory.checkpoint_path(3)));
    let before = fs::read(directory.events_path()).expect("a log");
    let mut log = fs::OpenOptions::new()
        .append(true)
        .open(directory.events_path())
        .expect("a log");
    std::io::Write::write_all(&mut log, b"{\"seq\":99").expect("writable");

    let resumed = go_on(directory.path());
    assert!(
        resumed.status.success(),
        "{}",
        String::from_utf8_lossy(&resumed.stderr)
    );
    let after = fs::read(directory.events_path()).expect("a log");
    let lines = before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .expect("lines")
        + 1;
    assert_eq!(
        after[..lines],
        before[..lines],
        "nothing of the log is lost"
    );
    let (events, bad) = tail::read_all(&directory.events_path()).expect("a log");
    assert!(bad.is_empty(), "{bad:?}");
    assert!(events.windows(2).all(|pair| pair[0].seq + 1 == pair[1].seq));
    let Some(EventKind::RunResumed {
        from_step: 1,
        checkpoint: Some(checkpoint),
        passed_over,
        ..
    }) = events
        .iter()
        .map(|event| &event.kind)
        .find(|kind| matches!(kind, EventKind::RunResumed { .. }))
    else {
        panic!("the log says how it went on")
    };
    assert_eq!(checkpoint, "checkpoints/step-000001");
    assert!(passed_over[0].contains("step-000002"), "{passed_over:?}");

    let file = |directory: &RunDir, step: u64, name: &str| {
        fs::read(directory.checkpoint_path(step).join(name)).expect("a checkpoint")
    };
    for name in [
        "model.safetensors",
        "actor_optimizer.safetensors",
        "critic/model.safetensors",
        "critic_optimizer.safetensors",
        "state.json",
    ] {
        for step in [2, 3] {
            assert!(
                file(&directory, step, name) == file(&whole.directory, step, name),
                "{name} of step {step}: the same bits"
            );
        }
    }
    assert_eq!(learned(&directory), learned(&whole.directory));

    // Nothing is left, and nothing is written.
    let log = fs::read(directory.events_path()).expect("a log");
    let again = go_on(directory.path());
    assert_eq!(again.status.code(), Some(8));
    assert_eq!(fs::read(directory.events_path()).expect("a log"), log);
}

#[test]
fn every_arm_of_the_reward_is_in_the_score_the_metrics_and_the_rollouts() {
    let (root, data) = fixture();
    let arms = "reward:\n  arms:\n    - {name: right, scorer: auto, timeout: 60s}\n    - {name: short, scorer: length, weight: 0.5, timeout: 60s, options: {unit: characters, max: 1000}}\n    - {name: watch, scorer: regex, weight: 0, timeout: 60s, options: {pattern: '[0-9]'}}\n";
    let run = run(root.path(), experiment(&data, arms));
    assert!(
        run.output.status.success(),
        "{}",
        String::from_utf8_lossy(&run.output.stderr)
    );
    let rows = runlog::store::read_rollouts(&runlog::store::rollouts_path(&run.directory, 1))
        .expect("the record of step 1");
    for row in &rows {
        let parts: std::collections::BTreeMap<String, f64> =
            serde_json::from_str(&row.score_parts).expect("numbers by name");
        assert_eq!(
            row.score,
            Some(parts["arm/right"] + 0.5 * parts["arm/short"])
        );
        assert!(parts["arm/watch/ms"] >= 0.0 && parts.contains_key("arm/right/format"));
    }
    let state = runlog::open::open(&run.directory).expect("a log").state;
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
        assert!(
            run.output.status.success(),
            "{}",
            String::from_utf8_lossy(&run.output.stderr)
        );
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
                let parts: std::collections::BTreeMap<String, f64> =
                    serde_json::from_str(&row.score_parts).expect("numbers by name");
                assert_eq!(row.score, Some(weight * parts[&format!("arm/{arm}")]));
            }
        }
        let state = runlog::open::open(&run.directory).expect("a log").state;
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
    let state = runlog::open::open(&run.directory).expect("a log").state;
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
    assert!(
        run.output.status.success(),
        "{}",
        String::from_utf8_lossy(&run.output.stderr)
    );
    let state = runlog::open::open(&run.directory).expect("a log").state;
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
    assert!(
        run.output.status.success(),
        "{}",
        String::from_utf8_lossy(&run.output.stderr)
    );
    let state = runlog::open::open(&run.directory).expect("a log").state;
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
    assert!(
        run.output.status.success(),
        "{}",
        String::from_utf8_lossy(&run.output.stderr)
    );
    let state = runlog::open::open(&run.directory).expect("a log").state;
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
    assert!(
        run.output.status.success(),
        "{}",
        String::from_utf8_lossy(&run.output.stderr)
    );
    let state = runlog::open::open(&run.directory).expect("a log").state;
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

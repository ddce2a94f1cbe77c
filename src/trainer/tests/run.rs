//! Whole runs of the real program on a model of two layers: what a run directory holds when it ends, whatever way it ends.

mod arms;
mod tiny;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use runlog::event::{Event, EventKind, RunStatus};
use runlog::run_dir::RunDir;
use runlog::state::RunState;
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
    /// What its log says, of a run that ended as it should.
    fn ended_well(&self) -> RunState {
        let said = String::from_utf8_lossy(&self.output.stderr);
        assert!(self.output.status.success(), "{said}");
        runlog::open::open(&self.directory).expect("a log").state
    }

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

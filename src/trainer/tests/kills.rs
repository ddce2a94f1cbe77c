//! Runs that are killed again and again, at any moment and also inside a checkpoint's write, end as runs that never were.
//!
//! `just kills` does it with twenty kills and a new seed. What each mode promises after a resume:
//!
//! - `sync` on the CPU with `full_determinism`: the same bits in weights, optimizer state, metrics and records.
//! - `one_step_off` and `async`: every step trained once, on the same rows, within its staleness bound. Not the same bits:
//!   batches that were drawn ahead from older weights are drawn again, from the checkpoint's.

mod tiny;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use runlog::event::EventKind;
use runlog::run_dir::RunDir;
use runlog::{store, tail};
use tiny::{experiment, fixture, learned};

/// No step of these runs takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// When a trainer is killed.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// Its log has grown by so many bytes: anything from loading the model to its last step.
    Log(u64),
    /// A checkpoint is being written.
    Writing,
}

fn setting(name: &str, usual: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => text
            .parse()
            .unwrap_or_else(|error| panic!("{name}={text}: {error}")),
        _ => usual,
    }
}

/// How often each run is killed.
fn kills() -> u64 {
    setting("LATHE_KILLS", 4)
}

/// Steps of a run that has a good part of them left after so many kills.
fn steps() -> u64 {
    4 + kills() / 2
}

fn trainer(directory: &RunDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lathe-trainer"));
    command
        .args(["run", "--run-dir"])
        .arg(directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

fn to_its_end(directory: &RunDir) -> Output {
    trainer(directory).output().expect("the program starts")
}

fn log_bytes(directory: &RunDir) -> u64 {
    fs::metadata(directory.events_path()).map_or(0, |metadata| metadata.len())
}

fn is_writing(checkpoints: &Path) -> bool {
    fs::read_dir(checkpoints).is_ok_and(|entries| {
        entries
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().ends_with(".partial"))
    })
}

/// Waits for the moment and kills; false: it ended before.
fn kill_at(child: &mut Child, directory: &RunDir, moment: Moment) -> bool {
    let started = Instant::now();
    let before = log_bytes(directory);
    loop {
        if child.try_wait().expect("a child of ours").is_some() {
            return false;
        }
        let has_come = match moment {
            Moment::Log(bytes) => log_bytes(directory) >= before + bytes,
            Moment::Writing => is_writing(&directory.checkpoints_dir()),
        };
        if has_come {
            child.kill().expect("a child of ours");
            child.wait().expect("a child of ours");
            return true;
        }
        assert!(started.elapsed() < PATIENCE, "{moment:?} never came");
        std::thread::yield_now();
    }
}

/// Starts a run and kills it, `kills()` times, then lets it end. `whole`: the same run, never killed.
fn kill_again_and_again(directory: &RunDir, whole: &RunDir, what: &str) {
    let seed = setting("LATHE_KILL_SEED", 1);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    // Up to two steps' worth of log: some kills come before the run got anywhere, none far after.
    let most = 2 * log_bytes(whole) / steps();
    let (mut killed, mut in_a_write) = (0, 0);
    for kill in 0..kills() {
        let moment = if kill % 3 == 1 {
            Moment::Writing
        } else {
            Moment::Log(rng.random_range(1..=most))
        };
        let mut child = trainer(directory).spawn().expect("the program starts");
        if !kill_at(&mut child, directory, moment) {
            break;
        }
        killed += 1;
        in_a_write += u64::from(is_writing(&directory.checkpoints_dir()));
    }
    let last = to_its_end(directory);
    // A kill after the last checkpoint leaves nothing to train.
    assert!(
        matches!(last.status.code(), Some(0 | 8)),
        "seed {seed}: {}",
        String::from_utf8_lossy(&last.stderr)
    );
    let (events, bad) = tail::read_all(&directory.events_path()).expect("a log");
    assert!(bad.is_empty(), "{bad:?}");
    assert!(events.windows(2).all(|pair| pair[0].seq + 1 == pair[1].seq));
    let resumes: Vec<u64> = events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::RunResumed { from_step, .. } => Some(from_step),
            _ => None,
        })
        .collect();
    assert!(killed > 0, "it was killed at least once");
    assert!(
        !is_writing(&directory.checkpoints_dir()) || last.status.code() == Some(8),
        "a run that goes on clears half a checkpoint away"
    );
    println!(
        "{what}, {} steps, seed {seed}: killed {killed} times, {in_a_write} inside a checkpoint's write; went on after steps {resumes:?}",
        steps()
    );
}

fn settings(mode: &str) -> String {
    format!("  mode: {mode}\n  save_freq: 1\n")
}

fn yaml(data: &Path, mode: &str) -> String {
    experiment(data, &settings(mode)).replace(
        "total_training_steps: 3",
        &format!("total_training_steps: {}", steps()),
    )
}

fn uninterrupted(root: &Path, yaml: &str) -> RunDir {
    let directory = tiny::run_dir(root, yaml.to_owned());
    let output = to_its_end(&directory);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    directory
}

/// Rows of the data that each step was trained on.
fn rows_consumed(directory: &RunDir) -> Vec<Vec<u64>> {
    (1..=steps())
        .map(|step| {
            let path = store::rollouts_path(directory, step);
            let rows = store::read_rollouts(&path).expect("the record of a step");
            rows.iter().map(|row| row.row_index).collect()
        })
        .collect()
}

fn file(directory: &RunDir, name: &str) -> Vec<u8> {
    fs::read(directory.checkpoint_path(steps()).join(name)).expect("the last checkpoint")
}

#[test]
fn a_sync_run_killed_at_random_moments_ends_with_the_bits_of_one_never_killed() {
    let (root, data) = fixture();
    let yaml = yaml(&data, "sync");
    let whole = uninterrupted(root.path(), &yaml);
    let directory = tiny::run_dir(root.path(), yaml);
    kill_again_and_again(&directory, &whole, "sync");

    // Names and hashes of every file: weights, optimizers, critic, counters.
    let manifests = [&whole, &directory]
        .map(|run| String::from_utf8(file(run, "manifest.json")).expect("JSON"));
    assert_eq!(manifests[0], manifests[1]);
    assert_eq!(learned(&directory), learned(&whole));
    for step in 1..=steps() {
        let rows = [&whole, &directory].map(|run| {
            store::read_rollouts(&store::rollouts_path(run, step)).expect("the record of a step")
        });
        assert!(!rows[0].is_empty() && rows[0] == rows[1], "step {step}");
    }
}

/// Arms in the order in which steps were trained with them; of a step that was trained again, the last time.
fn arms_chosen(directory: &RunDir) -> Vec<(u64, String)> {
    let (events, _) = tail::read_all(&directory.events_path()).expect("a log");
    let mut chosen = std::collections::BTreeMap::new();
    for event in events {
        if let EventKind::BanditChose {
            step,
            arm: Some(arm),
            ..
        } = event.kind
        {
            chosen.insert(step, arm);
        }
    }
    chosen.into_iter().collect()
}

#[test]
fn a_bandit_whose_run_is_killed_at_random_moments_chooses_and_believes_as_one_never_killed() {
    let (root, data) = fixture();
    let yaml = yaml(&data, "sync") + &tiny::bandit(&data);
    let whole = uninterrupted(root.path(), &yaml);
    let directory = tiny::run_dir(root.path(), yaml);
    kill_again_and_again(&directory, &whole, "sync with a bandit");

    let states = [&whole, &directory].map(|run| {
        let state: serde_json::Value =
            serde_json::from_slice(&file(run, "state.json")).expect("JSON");
        assert_eq!(state["choosing"]["bandit"]["pulls"], steps());
        state
    });
    assert_eq!(states[0], states[1]);
    let weights = [&whole, &directory].map(|run| file(run, "model.safetensors"));
    assert!(weights[0] == weights[1], "the same bits in every weight");
    let arms = arms_chosen(&whole);
    assert_eq!(arms.len() as u64, steps());
    assert_eq!(arms_chosen(&directory), arms);
}

/// Every step once, each on its rows, none beyond the bound.
fn assert_nothing_lost_or_trained_twice(mode: &str, bound: f64, is_exact: bool) {
    let (root, data) = fixture();
    let yaml = if is_exact {
        yaml(&data, mode)
    } else {
        yaml(&data, mode).replace("full_determinism: true", "full_determinism: false")
    };
    let whole = uninterrupted(root.path(), &yaml);
    let directory = tiny::run_dir(root.path(), yaml);
    kill_again_and_again(&directory, &whole, mode.split('\n').next().unwrap_or(mode));

    let state = runlog::open::open(&directory).expect("a log").state;
    let trained = state.series.get("training/global_step").expect("steps");
    let expected: Vec<u64> = (1..=steps()).collect();
    let steps_trained: Vec<u64> = trained.iter().map(|point| point.step).collect();
    assert_eq!(steps_trained, expected);
    let staleness = state.series.get("staleness/max").expect("ages");
    assert_eq!(staleness.len(), expected.len());
    assert!(
        staleness.values().iter().all(|age| *age <= bound),
        "{:?}",
        staleness.values()
    );
    assert_eq!(rows_consumed(&directory), rows_consumed(&whole));
    // Step, cursor, controllers and seed; the first two are what a resume goes by.
    let counters = [&whole, &directory].map(|run| {
        let state: serde_json::Value =
            serde_json::from_slice(&file(run, "state.json")).expect("JSON");
        (state["step"].clone(), state["cursor"].clone())
    });
    assert_eq!(counters[0], counters[1]);
}

#[test]
fn one_step_off_runs_killed_at_random_moments_lose_no_sample_and_train_none_twice() {
    assert_nothing_lost_or_trained_twice("one_step_off", 1.0, true);
}

#[test]
fn async_runs_killed_at_random_moments_lose_no_sample_and_train_none_twice() {
    assert_nothing_lost_or_trained_twice("async\n  max_staleness: 2", 2.0, false);
}

//! A new run that starts at a checkpoint of another: `trainer.resume_mode: resume_path`, which is `lathe run --from`.

mod tiny;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use runlog::event::{Event, EventKind};
use runlog::run_dir::RunDir;
use runlog::tail;
use tiny::{experiment, fixture};

fn train(directory: &RunDir) -> (Output, Vec<Event>) {
    let output = Command::new(env!("CARGO_BIN_EXE_lathe-trainer"))
        .args(["run", "--run-dir"])
        .arg(directory.path())
        .output()
        .expect("the program starts");
    let (events, bad) = tail::read_all(&directory.events_path()).unwrap_or_default();
    assert!(bad.is_empty(), "{bad:?}");
    (output, events)
}

fn succeeded(directory: &RunDir) -> Vec<Event> {
    let (output, events) = train(directory);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    events
}

/// Three steps, a checkpoint after each.
fn parent(root: &Path, data: &Path) -> RunDir {
    let directory = tiny::run_dir(root, experiment(data, "  mode: sync\n  save_freq: 1\n"));
    succeeded(&directory);
    directory
}

fn child(root: &Path, data: &Path, checkpoint: &Path, more: &str) -> RunDir {
    let from = format!(
        "  mode: sync\n  resume_mode: resume_path\n  resume_from_path: {}\n{more}",
        checkpoint.display()
    );
    tiny::run_dir(root, experiment(data, &from))
}

fn steps(events: &[Event]) -> Vec<u64> {
    events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::StepEnded { step, .. } => Some(step),
            _ => None,
        })
        .collect()
}

#[test]
fn a_fork_goes_on_as_its_parent_did_and_needs_nothing_of_it_afterwards() {
    let (root, data) = fixture();
    let parent = parent(root.path(), &data);
    let second = parent.checkpoint_path(2);
    let fork = child(root.path(), &data, &second, "");
    let events = succeeded(&fork);
    assert_eq!(steps(&events), [3]);
    let resumed = events.iter().find_map(|event| match &event.kind {
        EventKind::RunResumed {
            from_step,
            checkpoint,
            lost_steps,
            ..
        } => Some((*from_step, checkpoint.clone(), *lost_steps)),
        _ => None,
    });
    let origin = second.display().to_string();
    assert_eq!(resumed, Some((2, Some(origin), 0)));
    // Weights, optimizer, critic, counters, stored log-probs.
    let manifests = [&parent, &fork].map(|run| {
        fs::read_to_string(run.checkpoint_path(3).join("manifest.json")).expect("a checkpoint")
    });
    assert_eq!(manifests[0], manifests[1], "the same bits in every file");

    fs::remove_dir_all(parent.path()).expect("removable");
    trainer::checkpoint::verify(&fork.checkpoint_path(2)).expect("its own by now");
    let (again, _) = train(&fork);
    assert_eq!(again.status.code(), Some(8), "its three steps are trained");
}

#[test]
fn a_fork_that_was_killed_before_its_first_checkpoint_starts_where_it_started() {
    let (root, data) = fixture();
    let parent = parent(root.path(), &data);
    let fork = child(root.path(), &data, &parent.checkpoint_path(1), "");
    succeeded(&fork);
    fs::remove_dir_all(fork.checkpoint_path(3)).expect("its last one");
    let events = succeeded(&fork);
    assert_eq!(steps(&events), [2, 3, 2, 3]);
    let state = runlog::open::open(&fork).expect("a log").state;
    assert_eq!((state.step, state.superseded_steps), (3, 2));
}

#[test]
fn a_fork_on_other_data_begins_them_at_their_start_and_says_so() {
    let (root, data) = fixture();
    let parent = parent(root.path(), &data);
    let text = fs::read_to_string(&data).expect("prompts");
    let fewer: String = text.lines().take(8).flat_map(|line| [line, "\n"]).collect();
    let other = root.path().join("other.jsonl");
    fs::write(&other, fewer).expect("writable");
    let fork = child(root.path(), &other, &parent.checkpoint_path(2), "");
    let events = succeeded(&fork);
    assert!(events.iter().any(|event| matches!(
        &event.kind,
        EventKind::Alarm { name, .. } if name == "data begin anew"
    )));
    assert_eq!(steps(&events), [3]);
}

#[test]
fn a_checkpoint_can_be_evaluated_by_itself() {
    let (root, data) = fixture();
    let parent = parent(root.path(), &data);
    let fork = child(
        root.path(),
        &data,
        &parent.checkpoint_path(3),
        "  val_only: true\n",
    );
    let events = succeeded(&fork);
    let evaluated: Vec<u64> = events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::EvalEnded { step, samples, .. } => {
                assert_eq!(samples, 16);
                Some(step)
            }
            _ => None,
        })
        .collect();
    assert_eq!(evaluated, [3]);
    assert!(steps(&events).is_empty());
}

#[test]
fn a_checkpoint_that_is_not_there_or_broken_refuses_the_run_before_anything_is_written() {
    let (root, data) = fixture();
    let nowhere = child(root.path(), &data, Path::new("/nowhere/step-000001"), "");
    let (output, events) = train(&nowhere);
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("/nowhere/step-000001 does not exist"),
        "{said}"
    );
    assert!(events.is_empty());

    let parent = parent(root.path(), &data);
    let broken = parent.checkpoint_path(2);
    fs::write(broken.join("state.json"), "{}").expect("writable");
    let (output, events) = train(&child(root.path(), &data, &broken, ""));
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("state.json is not what was written"),
        "{said}"
    );
    assert!(events.is_empty());
}

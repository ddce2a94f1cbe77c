//! Live control of a running run, and its guards: panes, questions, what is sent.

use runlog::control::{KNOBS, KnobState, Status};
use runlog::number::Number;
use runlog::state::Liveness;

use super::super::control::{Ask, Told};
use super::*;
use crate::tui::action::Message as AppMessage;

/// A bench whose current run is running, at the control pane.
fn running() -> (Ready, RunKey) {
    let mut ready = Ready::new();
    let folder = ready.folder.path().join("runs");
    let mut entry = entry(&folder);
    entry.glance.as_mut().unwrap().liveness = Liveness::Running;
    // The name has a time and an id.
    entry.key = RunKey::new(Path::new("/project/runs/20261129-100000-sample-ab120000"));
    entry.info.id = "ab120000".to_owned();
    let key = entry.key.clone();
    let mut list = ready.bench.app.shared.runs.clone();
    list.entries = vec![entry];
    ready.bench.app.shared.runs = list;
    ready.bench.open_run(&key.path().display().to_string(), 12);
    ready.bench.press("tab tab");
    ready.bench.effects.clear();
    (ready, key)
}

fn told(ready: &mut Ready, key: &RunKey, ask: Ask, told: Told) {
    let message = answer(Message::Controlled {
        key: key.clone(),
        ask,
        told,
    });
    ready.bench.act(Action::Message(message));
}

fn status() -> Status {
    Status {
        run: "sample".to_owned(),
        pid: 1,
        doing: "training step 13".to_owned(),
        step: 12,
        total_steps: 80,
        knobs: KNOBS
            .iter()
            .map(|knob| KnobState {
                key: knob.key.to_owned(),
                value: (knob.key != "critic.optim.lr").then_some(Number(0.25)),
                started_with: Some(Number(0.2)),
                why_not: (knob.key == "critic.optim.lr")
                    .then(|| "this run has no critic".to_owned()),
            })
            .collect(),
        ..Status::default()
    }
}

fn asked(ready: &mut Ready) -> usize {
    let effects = std::mem::take(&mut ready.bench.effects);
    effects
        .iter()
        .filter(|effect| matches!(effect, Effect::Job { name, .. } if name == "control run"))
        .count()
}

#[test]
fn a_running_run_shows_how_it_stands_and_what_may_be_set() {
    let (mut ready, key) = running();
    told(
        &mut ready,
        &key,
        Ask::Status,
        Told::Status(Box::new(status())),
    );
    insta::assert_snapshot!("control_80", ready.screen(80, 24));
    insta::assert_snapshot!("control_120", ready.screen(120, 40));
    ready.bench.make_plain();
    insta::assert_snapshot!("control_plain", ready.screen(80, 24));
}

#[test]
fn a_knob_takes_only_what_is_in_its_range() {
    let (mut ready, key) = running();
    told(
        &mut ready,
        &key,
        Ask::Status,
        Told::Status(Box::new(status())),
    );
    ready.bench.press("enter ctrl-u");
    ready.bench.type_text("7");
    ready.bench.press("enter");
    assert_eq!(asked(&mut ready), 0);
    let screen = ready.screen(80, 24);
    assert!(screen.contains("expected 0 <= x <= 1"), "{screen}");
    ready.bench.press("backspace");
    ready.bench.type_text("1e-5");
    ready.bench.press("enter");
    assert_eq!(asked(&mut ready), 1);
    assert!(!ready.page().is_typing());
    // The critic's has none to set, and says why.
    ready.bench.press("j enter");
    assert!(
        ready.notice().contains("this run has no critic"),
        "{}",
        ready.notice()
    );
}

#[test]
fn stopping_asks_on_another_key_and_pausing_does_not() {
    let (mut ready, key) = running();
    told(
        &mut ready,
        &key,
        Ask::Status,
        Told::Status(Box::new(status())),
    );
    ready.bench.press("X");
    assert_eq!(asked(&mut ready), 0);
    ready.bench.press("X");
    assert_eq!(asked(&mut ready), 0, "the same key cancels");
    ready.bench.press("X y");
    assert_eq!(asked(&mut ready), 1);
    ready.bench.press("p");
    assert_eq!(asked(&mut ready), 1);
    let done = Told::Done("pause: done after step 12".to_owned());
    told(
        &mut ready,
        &key,
        Ask::Do(runlog::control::Command::Pause),
        done,
    );
    assert_eq!(asked(&mut ready), 1, "the status is asked again");
    assert!(ready.screen(80, 24).contains("pause: done after step 12"));
}

#[test]
fn a_run_that_does_not_run_is_not_asked_and_the_reason_is_said() {
    let (mut ready, _) = running();
    let mut list = ready.bench.app.shared.runs.clone();
    list.entries[0].glance.as_mut().unwrap().liveness = Liveness::Finished;
    ready
        .bench
        .act(Action::Message(AppMessage::RunsListed(list)));
    for keys in ["p", "r", "n", "c", "X", "enter"] {
        ready.bench.press(keys);
        assert!(
            ready.notice().contains("is not running: finished"),
            "{keys}: {}",
            ready.notice()
        );
    }
    assert_eq!(asked(&mut ready), 0);
    insta::assert_snapshot!("control_finished", ready.screen(80, 24));
}

#[test]
fn an_answer_of_another_run_is_passed_over() {
    let (mut ready, _) = running();
    let other = RunKey::new(Path::new("/project/runs/other"));
    told(
        &mut ready,
        &other,
        Ask::Status,
        Told::Status(Box::new(status())),
    );
    assert!(!ready.screen(80, 24).contains("training step 13"));
}

#[test]
fn a_run_is_asked_and_answers_over_its_socket() {
    use runlog::control::{Applied, Board, Command as Asked, Job, Server};

    let folder = tempfile::tempdir().unwrap();
    let run_dir =
        runlog::RunDir::create(folder.path(), &runlog::run_dir::NewRun::default()).unwrap();
    let (send, jobs) = std::sync::mpsc::sync_channel::<Job>(3);
    let server = Server::start(&run_dir, Board::new(status()), move |job| {
        send.try_send(job)
            .map(|()| "after this step".to_owned())
            .map_err(|_| unreachable!("three may wait"))
    })
    .unwrap();
    let trainer = std::thread::spawn(move || {
        let job = jobs.recv().unwrap();
        let command = job.command().clone();
        job.applied(Applied {
            step: 12,
            ..Applied::default()
        });
        command
    });
    let (mut ready, _) = running();
    let key = RunKey::new(run_dir.path());
    let mut list = ready.bench.app.shared.runs.clone();
    list.entries[0].key = key.clone();
    ready.bench.app.shared.runs = list;
    ready.bench.app.show_run(key);
    ready.bench.act(Action::Resize {
        columns: 80,
        rows: 24,
    });
    ready.press("R");
    assert!(
        ready
            .screen(80, 24)
            .contains("training step 13, 12 of 80 steps")
    );
    ready.press("p");
    assert_eq!(trainer.join().unwrap(), Asked::Pause);
    let screen = ready.screen(80, 24);
    assert!(screen.contains("pause: done after step 12"), "{screen}");
    drop(server);
}

#[test]
fn a_run_that_cannot_be_reached_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = sample_run_in(folder.path(), 3);
    let (mut ready, _) = running();
    let key = RunKey::new(&path);
    let mut list = ready.bench.app.shared.runs.clone();
    list.entries[0].key = key.clone();
    ready.bench.app.shared.runs = list;
    ready.bench.app.show_run(key);
    ready.bench.act(Action::Message(AppMessage::RunsListed(
        ready.bench.app.shared.runs.clone(),
    )));
    ready.press("p");
    assert!(
        ready.notice().contains("is not running"),
        "{}",
        ready.notice()
    );
}

fn guarded() -> Status {
    use runlog::control::{CheckpointState, GuardState};

    let guard = |name: &str, watches: &str, condition: &str| GuardState {
        name: name.to_owned(),
        watches: watches.to_owned(),
        condition: condition.to_owned(),
        ladder: vec!["sync 1".to_owned(), "roll_back last".to_owned()],
        next: "sync 1".to_owned(),
        value: Some(Number(0.0021)),
        limit: Some(Number(0.02)),
        window_filled: 1,
        window: 1,
        consecutive: 1,
        ..GuardState::default()
    };
    Status {
        guards: vec![
            GuardState {
                trips: 1,
                relapses: 1,
                cools_until: Some(17),
                sync_left: Some(1),
                next: "roll_back last".to_owned(),
                ..guard("kl", "rollout_corr/k3_kl or actor/ppo_kl", "above 0.02")
            },
            GuardState {
                value: Some(Number(2.31)),
                limit: Some(Number(3.2)),
                window: 3,
                window_filled: 2,
                ..guard(
                    "perplexity",
                    "probe/perplexity",
                    "mean of 3 above 1.5 times its start",
                )
            },
            GuardState {
                is_muted: true,
                muted_until: Some(40),
                value: Some(Number(0.0)),
                ..guard("entropy", "alarm entropy_collapse", "raised")
            },
        ],
        checkpoints: [(0, 0.4), (5, 0.52), (10, 0.5)]
            .into_iter()
            .map(|(step, score)| CheckpointState {
                step,
                score: Some(Number(score)),
                is_best: step == 5,
                is_good: step == 10,
            })
            .collect(),
        ..status()
    }
}

/// The trip as the run's log has it.
fn tripped(ready: &mut Ready, key: &RunKey) {
    use runlog::event::{EventKind, GuardDone};

    let state = &ready.bench.app.shared.current_run().unwrap().state;
    let trip = runlog::event::Event {
        seq: state.events,
        elapsed_ms: state.elapsed_ms,
        kind: EventKind::GuardTripped {
            guard: "kl".to_owned(),
            watched: "rollout_corr/k3_kl".to_owned(),
            step: 12,
            since_step: 12,
            value: Number(0.031),
            limit: Number(0.02),
            reason: "rollout_corr/k3_kl is 0.0310, above 0.02, for 1 value".to_owned(),
            relapse: 0,
            done: vec![GuardDone {
                action: "sync 1".to_owned(),
                before: "staleness 1".to_owned(),
                after: "staleness 0 for 1 round, then 1".to_owned(),
                is_done: true,
            }],
            cools_until: Some(17),
            by: None,
        },
    };
    let message = AppMessage::Events {
        key: key.clone(),
        events: vec![trip],
    };
    ready.bench.act(Action::Message(message));
}

fn at_guards() -> (Ready, RunKey) {
    let (mut ready, key) = running();
    ready.bench.press("v");
    tripped(&mut ready, &key);
    let status = Told::Status(Box::new(guarded()));
    told(&mut ready, &key, Ask::Status, status);
    ready.bench.effects.clear();
    (ready, key)
}

/// What the run is asked, by the notice that says so.
fn asked_for(ready: &mut Ready, keys: &str) -> String {
    ready.bench.press(keys);
    let count = asked(ready);
    format!("{count} {}", ready.notice())
}

#[test]
fn guards_show_value_limit_state_and_what_they_did_last() {
    let (mut ready, _) = at_guards();
    insta::assert_snapshot!("guards_80", ready.screen(80, 24));
    insta::assert_snapshot!("guards_120", ready.screen(120, 40));
    ready.bench.press("G");
    insta::assert_snapshot!("guards_checkpoint", ready.screen(80, 24));
    ready.bench.make_plain();
    ready.bench.press("g g");
    insta::assert_snapshot!("guards_plain", ready.screen(80, 24));
    ready.screen(40, 10);
}

#[test]
fn a_guard_is_muted_and_cleared_by_a_key_and_tripped_after_a_question() {
    let (mut ready, _) = at_guards();
    assert_eq!(asked_for(&mut ready, "m"), "1 asked: mute kl");
    assert_eq!(asked_for(&mut ready, "z"), "1 asked: clear kl");
    assert_eq!(asked_for(&mut ready, "j j m"), "1 asked: unmute entropy");
    ready.bench.press("g g t");
    assert_eq!(asked(&mut ready), 0, "not before the answer");
    let screen = ready.screen(80, 24);
    assert!(
        screen.contains("Trip guard kl?") && screen.contains("roll_back last"),
        "{screen}"
    );
    ready.bench.press("t");
    assert_eq!(asked(&mut ready), 0, "the same key cancels");
    assert_eq!(asked_for(&mut ready, "t y"), "1 asked: trip kl");
}

#[test]
fn the_way_back_is_to_the_checkpoint_under_the_cursor_or_to_the_good_one() {
    let (mut ready, _) = at_guards();
    ready.bench.press("b");
    let screen = ready.screen(80, 24);
    assert!(screen.contains("Go back to step 10?"), "{screen}");
    assert_eq!(asked(&mut ready), 0);
    assert_eq!(asked_for(&mut ready, "y"), "1 asked: roll_back 10");
    ready.bench.press("G enter");
    assert!(ready.screen(80, 24).contains("Go back to step 0?"));
    assert_eq!(asked_for(&mut ready, "y"), "1 asked: roll_back 0");
}

#[test]
fn a_run_that_has_ended_shows_its_guards_from_its_log_and_takes_no_orders() {
    let (mut ready, key) = running();
    tripped(&mut ready, &key);
    let mut list = ready.bench.app.shared.runs.clone();
    list.entries[0].glance.as_mut().unwrap().liveness = Liveness::Finished;
    ready
        .bench
        .act(Action::Message(AppMessage::RunsListed(list)));
    ready.bench.press("v");
    ready.bench.run_jobs();
    let screen = ready.screen(80, 24);
    for part in ["kl", "tripped once", "staleness 1", "does not run"] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    for keys in ["m", "z", "t", "b"] {
        assert_eq!(asked(&mut ready), 0);
        ready.bench.press(keys);
        assert!(
            ready.notice().contains("is not running: finished"),
            "{keys}: {}",
            ready.notice()
        );
    }
}

//! Guards of the real program, live: tripped, muted, cleared and gone behind on command, each between two steps, answered and in
//! the log; and what they know outlives an interruption.

mod live;
mod tiny;

use std::fs;

use live::{Live, endless, wait_until};
use runlog::control::{CheckpointName, Command, GuardOrder, GuardState, RunMode, Status};
use runlog::event::{EventKind, RunStatus};
use runlog::number::Number;
use runlog::run_dir::RunDir;
use runlog::state::ControlRecord;
use runlog::{RunState, tail};
use tiny::fixture;

/// Two guards that see nothing wrong by themselves.
const QUIET: &str = "  mode: one_step_off
  save_freq: 2
  guards:
    - {name: lr, metric: actor/lr, above: 100, action: [lower_lr 0.5, sync 3]}
    - {name: short, metric: response_length/mean, below: -1, action: alert}
";

fn order(guard: &str, order: GuardOrder) -> Command {
    Command::guard(guard, order).expect("a guard's name")
}

fn back(to: CheckpointName) -> Command {
    Command::RollBack { to }
}

fn status(live: &mut Live) -> Status {
    live.client.status().expect("a status")
}

fn guard(live: &mut Live, name: &str) -> GuardState {
    let guards = status(live).guards;
    let found = guards.into_iter().find(|guard| guard.name == name);
    found.unwrap_or_else(|| panic!("no guard {name} in the status"))
}

fn knob(live: &mut Live, key: &str) -> f64 {
    let knobs = status(live).knobs;
    let found = knobs.into_iter().find(|state| state.key == key);
    found.and_then(|state| state.value).expect("it has one").0
}

const LR: &str = "actor_rollout_ref.actor.optim.lr";

fn weights(run_dir: &RunDir, step: u64) -> Vec<u8> {
    let path = run_dir.checkpoint_path(step).join("model.safetensors");
    // It is written beside the steps that follow.
    wait_until("a checkpoint", || path.exists());
    fs::read(path).expect("a checkpoint")
}

/// When so many commands about guards are in its log: an answer may come before its event is on the disk.
fn fold_of(run_dir: &RunDir, commands: usize) -> RunState {
    let mut state = RunState::default();
    wait_until("the commands in the log", || {
        state = fold(run_dir);
        // Pausing and stepping are in it too, as often as it took.
        let of_guards = state
            .controls
            .iter()
            .filter(|record| record.target.is_some());
        of_guards.count() >= commands
    });
    state
}

fn fold(run_dir: &RunDir) -> RunState {
    let (events, bad) = tail::read_all(&run_dir.events_path()).expect("a log");
    assert!(bad.is_empty(), "{bad:?}");
    RunState::fold(&events)
}

#[test]
fn a_guard_is_tripped_muted_and_cleared_on_command_and_the_log_says_so() {
    let (root, data) = fixture();
    let mut live = Live::start(root.path(), "run", endless(&data, QUIET));
    let paused = live.apply(Command::Pause).step;
    live.step_to(paused.max(2));
    let paused = status(&mut live).step;
    let lr = guard(&mut live, "lr");
    assert_eq!(
        (lr.watches.as_str(), lr.condition.as_str()),
        ("actor/lr", "above 100")
    );
    assert_eq!(
        (lr.value, lr.limit),
        (Some(Number(1e-3)), Some(Number(100.0)))
    );
    assert_eq!(
        (lr.words(), lr.next),
        ("armed".to_owned(), "lower_lr 0.5".to_owned())
    );

    let tripped = live.apply(order("lr", GuardOrder::Trip));
    assert_eq!(
        tripped.after.as_deref(),
        Some("actor.optim.lr 5.000e-4, critic.optim.lr 5.000e-6")
    );
    assert_eq!(knob(&mut live, LR), 5e-4, "the status knows it");
    let lr = guard(&mut live, "lr");
    assert_eq!(
        lr.words(),
        format!("cooling down until step {}", paused + 5)
    );
    assert_eq!((lr.trips, lr.next.as_str()), (1, "sync 3"));

    let cleared = live.apply(order("lr", GuardOrder::Clear));
    assert_eq!(cleared.after.as_deref(), Some("armed"));
    let muted = live.apply(order("lr", GuardOrder::Mute { steps: Some(2) }));
    assert_eq!(muted.until_step, Some(paused + 2));
    let muted = live.apply(order("all", GuardOrder::Mute { steps: None }));
    assert_eq!(muted.after.as_deref(), Some("lr muted, short muted"));
    live.apply(order("short", GuardOrder::Unmute));

    let reason = live.refused(order("lrr", GuardOrder::Trip));
    assert_eq!(reason, "no guard is called `lrr`; there are lr, short");
    let reason = live.refused(order("all", GuardOrder::Trip));
    assert!(
        reason.contains("one by one; there are lr, short"),
        "{reason}"
    );

    // What a status says is what the log says, to whoever folds it.
    let state = fold_of(&live.run_dir, 7);
    let words = |name: &str| state.guards.find(name).expect("it is armed").words(paused);
    assert_eq!(
        (words("lr"), words("short")),
        ("muted".to_owned(), "armed".to_owned())
    );
    let trip = state.guards.last_trip("lr").expect("it tripped");
    assert_eq!(trip.by.as_deref(), Some("ana@laptop"));
    assert_eq!(trip.done[0].before, "actor.optim.lr 1.000e-3");
    let commands: Vec<String> = state
        .controls
        .iter()
        .filter_map(|record| Some(format!("{} {}", record.command, record.target.as_ref()?)))
        .collect();
    assert_eq!(
        commands,
        [
            "trip lr",
            "clear lr",
            "mute lr",
            "mute all",
            "unmute short",
            "trip lrr",
            "trip all"
        ]
    );
    assert_eq!(live.stop(), Some(130));
}

#[test]
fn a_run_goes_back_to_a_checkpoint_that_is_named_and_goes_on_from_there() {
    let (root, data) = fixture();
    let mut live = Live::start(root.path(), "run", endless(&data, QUIET));
    live.apply(Command::Pause);
    let first = status(&mut live).step;
    // An even one, which has a checkpoint.
    live.step_to(first.max(6).next_multiple_of(2));
    let here = status(&mut live).step;
    live.set("temperature", 0.5);
    let clip = live
        .set("actor.clip_ratio_high", 0.4)
        .from
        .expect("a value before")
        .0;
    live.set("actor.optim.lr", 2e-4);
    let listed = |live: &mut Live| -> Vec<u64> {
        let checkpoints = status(live).checkpoints;
        checkpoints
            .iter()
            .map(|checkpoint| checkpoint.step)
            .collect()
    };
    // They are written beside the steps.
    wait_until("the status lists what was saved", || {
        listed(&mut live).last() == Some(&here)
    });
    let reason = live.refused(back(CheckpointName::Step(1)));
    assert!(
        reason.starts_with(
            "there is no checkpoint of step 1; there are those of steps 0 (best), 2, 4"
        ),
        "{reason}"
    );
    let went = live.apply(back(CheckpointName::Step(2)));
    assert_eq!(went.before, Some(format!("weights of step {here}")));
    let after = went.after.expect("what stands");
    for part in [
        "weights, optimizer, controllers and data of step 2",
        "actor.optim.lr stays 2.000e-4",
        &format!("actor.clip_ratio_high {clip} again"),
        "rollout.temperature 1 again",
    ] {
        assert!(after.contains(part), "{part} in: {after}");
    }
    assert_eq!(
        knob(&mut live, "actor_rollout_ref.rollout.temperature"),
        1.0
    );
    assert_eq!(knob(&mut live, LR), 2e-4);
    // What an interruption would bring back is what the run went back to.
    assert_eq!(weights(&live.run_dir, here), weights(&live.run_dir, 2));
    let all = listed(&mut live);
    assert_eq!(all, [0, 2, here], "what lies between was left behind");
    live.step_to(here + 2);
    assert_eq!(
        live.values(here + 2)["training/global_step"],
        Number((here + 2) as f64)
    );
    assert_ne!(
        weights(&live.run_dir, here),
        weights(&live.run_dir, here + 2)
    );

    // The newest is broken: good passes over it, its own name does not.
    let newest = here + 2;
    wait_until("the status lists the newest", || {
        listed(&mut live).last() == Some(&newest)
    });
    let broken = live
        .run_dir
        .checkpoint_path(newest)
        .join("model.safetensors");
    fs::write(&broken, "torn").expect("writable");
    let reason = live.refused(back(CheckpointName::Step(newest)));
    assert!(
        reason.contains("is not a whole checkpoint: model.safetensors")
            && reason.contains(&format!(
                "there are those of steps 0 (best), 2, {here}, {newest}"
            )),
        "{reason}"
    );
    let went = live
        .apply(back(CheckpointName::Good))
        .after
        .expect("what stands");
    assert!(
        went.starts_with(&format!(
            "weights, optimizer, controllers and data of step {here}"
        )) && went.contains("passed over: ")
            && went.contains(&format!("step-{newest:06} is not a whole checkpoint")),
        "{went}"
    );
    live.apply(Command::Step);
    let is_back = |record: &&ControlRecord| record.command == "roll_back";
    wait_until("four of them in the log", || {
        fold(&live.run_dir).controls.iter().filter(is_back).count() == 4
    });
    assert_eq!(live.stop(), Some(130));
}

#[test]
fn what_a_roll_back_drops_is_counted_in_the_step_that_follows() {
    let (root, data) = fixture();
    let mut live = Live::start(root.path(), "run", endless(&data, QUIET));
    live.apply(Command::Pause);
    let first = status(&mut live).step;
    live.step_to(first.max(4));
    let here = status(&mut live).step;
    // Staleness 1: two batches are begun while the run is paused, of two samples of four prompts each.
    let drawn = |live: &Live| -> Vec<u64> {
        let is_ahead = |step: u64| step == here + 1 || step == here + 2;
        live.kinds()
            .into_iter()
            .filter_map(|kind| match kind {
                EventKind::RolloutEnded {
                    step,
                    response_tokens,
                    ..
                } if is_ahead(step) => Some(u64::from(response_tokens)),
                _ => None,
            })
            .collect()
    };
    wait_until("both batches", || drawn(&live).len() == 16);
    let tokens: u64 = drawn(&live).iter().sum();
    let before = live.values(here);
    assert_eq!(before["async/dropped_rollouts"], Number(0.0));
    live.apply(back(CheckpointName::Step(2)));
    live.step_to(here + 2);
    let after = live.values(here + 1);
    assert_eq!(after["async/dropped_rollouts"], Number(16.0));
    assert_eq!(after["async/dropped_tokens"], Number(tokens as f64));
    let later = live.values(here + 2);
    assert_eq!(later["async/dropped_rollouts"], Number(0.0), "once");
    assert_eq!(live.stop(), Some(130));
}

#[test]
fn a_mode_changes_while_the_run_runs_and_wins_over_a_guard_s_synchronous_steps() {
    let (root, data) = fixture();
    let mut live = Live::start(root.path(), "run", endless(&data, QUIET));
    live.apply(Command::Pause);
    assert_eq!(status(&mut live).mode, "one_step_off");
    let reason = live.refused(Command::mode("async", Some(2)).expect("a mode"));
    assert!(reason.contains("full_determinism is true"), "{reason}");

    // Its second rung: three synchronous steps.
    live.apply(order("lr", GuardOrder::Trip));
    let tripped = live.apply(order("lr", GuardOrder::Trip));
    assert_eq!(
        tripped.after.as_deref(),
        Some("staleness 0 for 3 rounds, then 1")
    );
    assert_eq!(guard(&mut live, "lr").sync_left, Some(3));
    let set = live.set("trainer.max_staleness", 1.0);
    assert_eq!(
        set.note.as_deref(),
        Some("a bound that is set ends the synchronous steps of guard lr: 3 of them were left")
    );
    assert_eq!(guard(&mut live, "lr").sync_left, None);

    let sync = live.apply(Command::mode("sync", None).expect("a mode"));
    assert_eq!(
        (sync.before.as_deref(), sync.after.as_deref()),
        (Some("one_step_off, staleness 1"), Some("sync, staleness 0"))
    );
    let from = sync.from_step.expect("a first step");
    live.step_to(from + 2);
    assert_eq!(status(&mut live).mode, "sync");
    let later = live.run_dir.clone();
    assert_eq!(live.stop(), Some(130));
    for kind in live.kinds() {
        if let EventKind::RolloutEnded {
            step,
            policy_version_min,
            ..
        } = kind
            && step >= from
        {
            assert_eq!(
                policy_version_min,
                step - 1,
                "batch {step}, sync from {from}"
            );
        }
    }
    assert_eq!(fold(&later).started.expect("it started").mode, "sync");
    // It goes on in the mode that it had.
    let mut live = Live::in_dir(later, "run");
    live.apply(Command::Pause);
    assert_eq!(status(&mut live).mode, RunMode::Sync.name());
    assert_eq!(knob(&mut live, "trainer.max_staleness"), 0.0);
    assert_eq!(live.stop(), Some(130));
}

#[test]
fn the_async_advisor_takes_the_bound_of_a_run_that_is_told_so() {
    let (root, data) = fixture();
    let yaml = endless(&data, "  mode: sync\n");
    let yaml = yaml.replace("full_determinism: true", "full_determinism: false");
    let mut live = Live::start(root.path(), "run", yaml);
    let refused = Command::mode("auto", Some(2)).expect_err("it finds its own");
    assert!(refused.contains("takes no bound of staleness"), "{refused}");
    let told = live.apply(Command::mode("auto", None).expect("a mode"));
    assert_eq!(
        (told.before.as_deref(), told.after.as_deref()),
        (Some("sync, staleness 0"), Some("auto, staleness 0"))
    );
    assert_eq!(status(&mut live).mode, "auto");
    // It tries, or finds nothing to gain: what it says at the end tells which.
    wait_until("twelve more steps", || {
        status(&mut live).step >= told.step + 12
    });
    assert_eq!(live.stop(), Some(130));
    let words = live.kinds().into_iter().find_map(|kind| match kind {
        EventKind::LogLine {
            target, message, ..
        } if target == "advisor" => Some(message),
        _ => None,
    });
    let words = words.expect("it measured");
    assert!(
        words.contains("which is now measured against it") || words.contains("the advisor settled"),
        "{words}"
    );
}

#[test]
fn what_guards_know_outlives_a_killed_run() {
    let (root, data) = fixture();
    let mut live = Live::start(root.path(), "run", endless(&data, QUIET));
    live.apply(Command::Pause);
    let step = status(&mut live).step;
    live.step_to(step.max(2));
    live.apply(order("lr", GuardOrder::Trip));
    live.apply(order("lr", GuardOrder::Trip));
    live.apply(order("short", GuardOrder::Mute { steps: None }));
    live.apply(Command::Checkpoint);
    let before = status(&mut live);
    live.child.kill().expect("our child");
    live.child.wait().expect("our child");
    let run_dir = live.run_dir.clone();
    drop(live);

    let mut live = Live::in_dir(run_dir, "run");
    live.apply(Command::Pause);
    wait_until("a status of the resumed run", || {
        !status(&mut live).guards.is_empty()
    });
    let after = status(&mut live);
    assert!(after.step >= before.step, "nothing was lost");
    let (lr, short) = (guard(&mut live, "lr"), guard(&mut live, "short"));
    assert_eq!((lr.trips, lr.relapses), (2, 2));
    assert_eq!(lr.cools_until, before.guards[0].cools_until);
    assert!(short.is_muted);
    assert_eq!(lr.next, before.guards[0].next);
    // Its synchronous steps go on where they were.
    let trained = after.step - before.step;
    assert_eq!(
        lr.sync_left,
        3_u64.checked_sub(trained).filter(|left| *left > 0)
    );
    let state = fold(&live.run_dir);
    let fold_short = state.guards.find("short").expect("it is armed");
    assert!(fold_short.is_muted(after.step));
    assert_eq!(live.stop(), Some(130));
}

#[test]
fn a_guard_that_stops_the_run_is_named_as_the_reason() {
    let (root, data) = fixture();
    let yaml = endless(
        &data,
        "  mode: sync\n  guards: [{name: short, metric: response_length/mean, above: 0, after: 2, action: stop}]\n",
    );
    let run_dir = tiny::run_dir(root.path(), yaml);
    let ended = std::process::Command::new(env!("CARGO_BIN_EXE_lathe-trainer"))
        .args(["run", "--run-dir"])
        .arg(run_dir.path())
        .output()
        .expect("the program starts");
    assert_eq!(ended.status.code(), Some(130));
    let ended = fold(&run_dir).ended.expect("it ended");
    assert_eq!((ended.status, ended.steps), (RunStatus::Stopped, 3));
    assert!(
        ended
            .reason
            .starts_with("stopped after step 3 by guard short: response_length/mean is ")
            && ended.reason.contains("above 0"),
        "{}",
        ended.reason
    );
}

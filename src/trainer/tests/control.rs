//! Live control of the real program: what a client asks is done between two steps, stands in the log, and shows in the numbers.

mod live;
mod tiny;

use std::fs;

use live::{Live, PATIENCE, endless, wait_until};
use runlog::RunState;
use runlog::control::{Answer, Client, Command, find_knob};
use runlog::event::{EventKind, Lane};
use runlog::number::Number;
use runlog::run_dir::RunDir;
use runlog::state::Outcome;
use runlog::tail;
use tiny::{experiment, fixture};

#[test]
fn a_run_is_paused_stepped_changed_saved_resumed_and_stopped_and_its_log_says_so() {
    let (root, data) = fixture();
    let mut live = Live::start(root.path(), "run", endless(&data, "  mode: one_step_off\n"));
    let paused = live.apply(Command::Pause).step;
    let status = live.client.status().expect("a status");
    assert!(status.is_paused);
    assert_eq!(status.doing, format!("paused after step {paused}"));

    // It is alive, and says so each second, while it trains nothing.
    let samples = |live: &Live| {
        let is_sample = |kind: &&EventKind| matches!(kind, EventKind::HostSampled { .. });
        live.kinds().iter().filter(is_sample).count()
    };
    let before = samples(&live);
    wait_until("another host sample", || samples(&live) > before);
    assert_eq!(live.client.status().expect("a status").step, paused);

    assert_eq!(live.apply(Command::Step).step, paused + 1);

    let lr = live.set("actor.optim.lr", 5e-4);
    assert_eq!((lr.from, lr.to), (Some(Number(1e-3)), Some(Number(5e-4))));
    assert_eq!(lr.from_step, Some(paused + 2));
    live.set("critic.optim.lr", 2e-5);
    live.set("actor.clip_ratio_high", 0.3);
    live.set("entropy_coeff", 0.02);
    let temperature = live.set("temperature", 0.7);
    let warm_from = temperature.from_step.expect("a set has a first step");
    assert!(
        (paused + 2..=paused + 4).contains(&warm_from),
        "one step off, at most two batches are begun: {warm_from} after {paused}"
    );
    let reason = live.refused(Command::set("actor.kl_loss_coef", 0.1).expect("a knob"));
    assert!(reason.contains("use_kl_loss is false"), "{reason}");

    // Another client at the same time.
    let mut other = Client::connect(&live.run_dir, "bo@desk").expect("two may talk");
    let (id, _) = other.ask(Command::Checkpoint).expect("an answer");
    let Answer::Applied { applied, .. } = other.wait(id, PATIENCE).expect("a last answer") else {
        panic!("a checkpoint is written")
    };
    let saved = live.run_dir.path().join(applied.note.expect("its path"));
    assert_eq!(saved, live.run_dir.checkpoint_path(paused + 1));
    trainer::checkpoint::verify(&saved).expect("a whole checkpoint");
    let counters: trainer::save::RunCounters =
        serde_json::from_slice(&fs::read(saved.join("state.json")).expect("a state"))
            .expect("a state that reads back");
    assert_eq!(counters.step, paused + 1);
    let knob = |name: &str| counters.knobs[find_knob(name).expect("a knob").key];
    assert_eq!(knob("actor.optim.lr"), 5e-4);
    assert_eq!(knob("rollout.temperature"), 0.7);
    assert_eq!(counters.knobs.len(), 5);

    live.step_to(warm_from);
    live.apply(Command::Resume);
    wait_until("two more steps", || {
        live.client.status().expect("a status").step > warm_from + 1
    });
    assert_eq!(live.stop(), Some(130));

    for (step, name, value) in [
        (paused + 1, "actor/lr", 1e-3),
        (paused + 2, "actor/lr", 5e-4),
        (paused + 2, "critic/lr", 2e-5),
        (paused + 2, "actor/clip_ratio_high", 0.3),
        (paused + 2, "actor/entropy_coeff", 0.02),
        (warm_from, "rollout/temperature", 0.7),
    ] {
        assert_eq!(
            live.values(step).get(name),
            Some(&Number(value)),
            "{name} of step {step}"
        );
    }
    if warm_from > paused + 2 {
        let colder = live.values(warm_from - 1);
        assert_eq!(colder["rollout/temperature"], Number(1.0));
    }
    assert!(!live.values(paused + 1).contains_key("actor/entropy_coeff"));

    let (events, _) = tail::read_all(&live.run_dir.events_path()).expect("a log");
    let state = RunState::fold(&events);
    assert!(!state.is_paused);
    assert!(state.lanes[&Lane::Paused].total_ms > 0.0);
    let commands: Vec<&str> = state
        .controls
        .iter()
        .map(|record| record.command.as_str())
        .collect();
    let steps = commands
        .iter()
        .filter(|command| **command == "step")
        .count();
    assert_eq!(commands.len(), 1 + steps + 6 + 1 + 1 + 1, "{commands:?}");
    assert_eq!(commands[..3], ["pause", "step", "set"]);
    assert_eq!(commands[commands.len() - 2..], ["resume", "stop"]);
    let checkpoint = state
        .controls
        .iter()
        .find(|record| record.command == "checkpoint")
        .expect("it is in the log");
    assert_eq!(checkpoint.who, "bo@desk");
    let refusals = state
        .controls
        .iter()
        .filter(|record| matches!(record.outcome, Outcome::Refused { .. }));
    assert_eq!(refusals.count(), 1);
}

#[test]
fn the_staleness_bound_is_raised_and_lowered_while_the_run_runs() {
    let (root, data) = fixture();
    let mut live = Live::start(root.path(), "run", endless(&data, "  mode: sync\n"));
    let paused = live.apply(Command::Pause).step;
    // Then the learner waits for nothing, and the sampler for newer weights.
    wait_until("the batch that sync mode allows", || {
        live.kinds()
            .iter()
            .any(|kind| matches!(kind, EventKind::RolloutEnded { step, .. } if *step == paused + 1))
    });
    let raised = live.set("trainer.max_staleness", 1.0);
    assert_eq!(raised.from, Some(Number(0.0)));
    let raised = raised.from_step.expect("a first step");
    live.step_to(raised + 3);
    let lowered = live.set("trainer.max_staleness", 0.0).from_step;
    let lowered = lowered.expect("a first step");
    live.step_to(lowered + 3);
    assert_eq!(live.stop(), Some(130));
    let mut seen = 0;
    for kind in live.kinds() {
        let EventKind::RolloutEnded {
            step,
            policy_version_min,
            policy_version_max,
            ..
        } = kind
        else {
            continue;
        };
        let lag = u64::from((raised..lowered).contains(&step)).min(step - 1);
        assert_eq!(
            (policy_version_min, policy_version_max),
            (step - 1 - lag, step - 1 - lag),
            "batch {step}; raised from {raised}, lowered from {lowered}"
        );
        seen = seen.max(step);
    }
    assert!(seen > lowered);
    assert_eq!(live.values(raised)["async/max_staleness"], Number(1.0));
    assert_eq!(live.values(lowered)["async/max_staleness"], Number(0.0));
}

#[test]
fn a_supervised_run_is_controlled_too() {
    let (root, data) = fixture();
    let demonstrations = root.path().join("demonstrations.jsonl");
    let rows: String = (0..8)
        .map(|row| {
            serde_json::json!({"messages": [
                {"role": "user", "content": format!("{row}+{row}=")},
                {"role": "assistant", "content": format!("{}", 2 * row)},
            ]})
            .to_string()
                + "\n"
        })
        .collect();
    fs::write(&demonstrations, rows).expect("a writable folder");
    let yaml = format!(
        "{}sft:\n  train_files: {}\n  batch_size: 2\n  total_training_steps: 100000\n",
        endless(&data, ""),
        demonstrations.display()
    );
    let mut live = Live::start(root.path(), "sft", yaml);
    let paused = live.apply(Command::Pause).step;
    let lr = live.set("sft.optim.lr", 5e-4);
    assert_eq!(lr.from_step, Some(paused + 1));
    assert!(
        live.refused(Command::Checkpoint)
            .contains("saves its model when it ends")
    );
    let reason = live.refused(Command::set("temperature", 0.5).expect("a knob"));
    assert_eq!(reason, "this is a supervised run");
    assert_eq!(live.apply(Command::Step).step, paused + 1);
    assert_eq!(live.stop(), Some(130));
    assert_eq!(live.values(paused + 1)["train/lr"], Number(5e-4));
}

#[test]
fn a_killed_run_in_a_deep_directory_was_under_control_and_is_then_gone() {
    let (root, data) = fixture();
    let deep = root.path().join("a-folder-with-a-long-name/".repeat(8));
    let mut live = Live::start(&deep, "run", endless(&data, ""));
    assert!(live.run_dir.control_path().as_os_str().len() > 200);
    live.apply(Command::Pause);
    live.child.kill().expect("our child");
    live.child.wait().expect("our child");
    assert!(live.client.status().is_err());
    assert!(live.run_dir.control_path().exists(), "nobody tidied up");
    // As a client does that comes later: the process is the one in run.json.
    let found = RunDir::open(live.run_dir.path()).expect("a run");
    let error = Client::connect(&found, "ana").expect_err("it is dead");
    assert!(error.to_string().contains("is gone"), "{error}");
}

#[test]
fn commands_that_come_while_a_run_only_evaluates_are_refused_and_stop_ends_it() {
    let (root, data) = fixture();
    let mut live = Live::start(
        root.path(),
        "run",
        experiment(&data, "  val_only: true\n")
            .replace("n: 2", "n: 2\n    val_kwargs: {n: 500, temperature: 1.0}"),
    );
    let reason = live.refused(Command::Pause);
    assert_eq!(reason, "this run only evaluates (trainer.val_only)");
    assert_eq!(live.stop(), Some(130));
}

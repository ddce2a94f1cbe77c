//! `lathe ctl` where there is nothing to control, and what is wrong with a command before it is sent.

use std::fs;

use runlog::event::RunStatus;

use super::fake_trainer::{Act, ended, started, step, wait_until};
use super::harness::{Bench, exists, is_alive, trainer_pid};

#[test]
fn a_run_that_has_ended_cannot_be_controlled_and_says_how_it_ended() {
    let bench = Bench::new();
    bench.trainer(&[
        started(4),
        step(1, 0.1),
        ended(RunStatus::Failed, 4, "the disk is on fire", 1),
        Act::Exit(4),
    ]);
    bench.run(["run", "toy.yaml"]);
    for command in ["pause", "status", "knobs"] {
        let ran = bench.run(["ctl", "latest", command]);
        assert_eq!(ran.code, Some(7), "{ran:?}");
        assert!(
            ran.stderr
                .contains("is not running: it failed: the disk is on fire"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn a_running_run_without_a_socket_is_told_from_one_that_is_gone() {
    let bench = Bench::new();
    bench.trainer(&[
        started(4),
        step(1, 0.1),
        Act::Touch(bench.path("ready")),
        Act::WaitFor(bench.path("go")),
        ended(RunStatus::Completed, 0, "", 1),
    ]);
    assert_eq!(bench.run(["run", "toy.yaml", "--detach"]).code, Some(0));
    exists(&bench.path("ready"));
    let trainer = trainer_pid(&bench.run_dir());
    let ran = bench.run(["ctl", "toy", "pause"]);
    assert_eq!(ran.code, Some(7), "{ran:?}");
    let said = format!(
        "runs (process {}) without a control socket",
        trainer.as_raw_nonzero()
    );
    assert!(ran.stderr.contains(&said), "{}", ran.stderr);
    fs::write(bench.path("go"), "").unwrap();
    wait_until("the run's end", || !is_alive(trainer));
}

#[test]
fn what_is_wrong_with_a_command_is_said_before_a_run_is_looked_for() {
    let bench = Bench::new();
    for (arguments, said) in [
        ("ctl latest set", "set needs KEY=VALUE"),
        ("ctl latest set actor.optim.lr", "is not KEY=VALUE"),
        ("ctl latest set actor.optim.lr=fast", "`fast` is no number"),
        (
            "ctl latest set temprature=1",
            "did you mean rollout.temperature?",
        ),
        ("ctl latest set temperature=-1", "expected 0 < x <= 100"),
        ("ctl latest pause now", "`now` is too much"),
        ("ctl latest mute", "mute needs a guard's name"),
        ("ctl latest mute kl soon", "`soon` is no number of steps"),
        ("ctl latest mute kl 0", "for 1 step or more"),
        (
            "ctl latest trip kl 3",
            "`3` is too much: trip takes one guard",
        ),
        ("ctl latest roll_back", "best, good or a step"),
        ("ctl latest roll_back worst", "`worst` names no checkpoint"),
        ("ctl latest arm force", "arm force needs an arm's name"),
        ("ctl latest arm release rule", "arm release takes no name"),
        (
            "ctl latest arm thaw rule",
            "there are force, release, freeze, unfreeze",
        ),
        ("ctl latest arm freeze rule now", "`now` is too much"),
        ("ctl latest mode", "mode needs its name"),
        (
            "ctl latest mode fast",
            "there are sync, one_step_off, async and auto",
        ),
        ("ctl latest mode async 9", "expected 0 to 8"),
        ("ctl latest mode sync 1", "mode sync takes no bound"),
        ("ctl latest paws", "invalid value 'paws'"),
        ("ctl latest pause", "there are no runs in"),
    ] {
        let ran = bench.run(arguments.split(' '));
        assert_eq!(ran.code, Some(2), "{arguments}: {ran:?}");
        assert!(ran.stderr.contains(said), "{arguments}: {}", ran.stderr);
    }
}

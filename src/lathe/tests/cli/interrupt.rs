//! Ctrl-C once and twice, and every way in which a watcher may leave a run that goes on.

use std::fs;
use std::io::{BufRead, BufReader};

use runlog::event::RunStatus;
use rustix::process::{Signal, kill_process};

use super::fake_trainer::{Act, checkpoint, ended, started, step, wait_until};
use super::harness::{Bench, exists, finished, is_alive, signal, trainer_pid};

/// Starts, says that it did by a file, and goes on when another file is there.
fn patient(bench: &Bench, rest: Vec<Act>) {
    let mut acts = vec![started(4), step(1, 0.1), Act::Touch(bench.path("ready"))];
    acts.extend(rest);
    bench.trainer(&acts);
}

#[test]
fn ctrl_c_once_lets_the_trainer_save_a_checkpoint_and_stop() {
    let bench = Bench::new();
    patient(
        &bench,
        vec![
            Act::WaitForInterrupt,
            checkpoint(1),
            ended(RunStatus::Stopped, 130, "stopped on request", 1),
            Act::Exit(130),
        ],
    );
    let child = bench.lathe(["run", "toy.yaml"]).spawn().unwrap();
    exists(&bench.path("ready"));
    signal(&child, Signal::INT);
    let ran = finished(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(
        ran.stderr.contains(
            "stopping after this step, saving a checkpoint; Ctrl-C again to exit at once"
        ),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stdout.contains("checkpoint at step 1"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout.contains("toy  stopped  1 of 4 steps"),
        "{}",
        ran.stdout
    );
}

#[test]
fn ctrl_c_twice_asks_once_more_and_then_kills() {
    let bench = Bench::new();
    // Hears SIGTERM, and stays all the same.
    patient(
        &bench,
        vec![
            Act::WaitForInterrupt,
            Act::Touch(bench.path("interrupted")),
            Act::WaitForTerminate,
            Act::Touch(bench.path("terminated")),
            Act::WaitFor(bench.path("never")),
        ],
    );
    let child = bench.lathe(["run", "toy.yaml"]).spawn().unwrap();
    exists(&bench.path("ready"));
    let trainer = trainer_pid(&bench.run_dir());
    signal(&child, Signal::INT);
    exists(&bench.path("interrupted"));
    signal(&child, Signal::INT);
    exists(&bench.path("terminated"));
    let ran = finished(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(!is_alive(trainer));
    assert!(
        ran.stdout.contains("toy  stopped  1 of 4 steps"),
        "{}",
        ran.stdout
    );
}

#[test]
fn a_watcher_that_is_told_to_leave_leaves_the_run_alone() {
    for (number, told) in [(15, Signal::TERM), (1, Signal::HUP)] {
        let bench = Bench::new();
        patient(
            &bench,
            vec![
                Act::WaitFor(bench.path("go")),
                ended(RunStatus::Completed, 0, "", 1),
            ],
        );
        let child = bench.lathe(["run", "toy.yaml"]).spawn().unwrap();
        exists(&bench.path("ready"));
        let trainer = trainer_pid(&bench.run_dir());
        signal(&child, told);
        let ran = finished(child.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(128 + number), "{ran:?}");
        assert!(
            ran.stderr
                .contains("the run goes on; watch it: lathe follow"),
            "{}",
            ran.stderr
        );
        assert!(is_alive(trainer));
        fs::write(bench.path("go"), "").unwrap();
        wait_until("the run's end", || !is_alive(trainer));
        let json = bench.run(["runs", "show", "latest", "--json"]).last_json();
        assert_eq!(json["status"], "finished", "{json}");
    }
}

#[test]
fn killing_the_watcher_leaves_the_run_alone() {
    let bench = Bench::new();
    patient(
        &bench,
        vec![
            Act::WaitFor(bench.path("go")),
            step(2, 0.2),
            ended(RunStatus::Completed, 0, "", 2),
        ],
    );
    let mut child = bench.lathe(["run", "toy.yaml"]).spawn().unwrap();
    exists(&bench.path("ready"));
    let trainer = trainer_pid(&bench.run_dir());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        bench.run(["runs", "show", "latest", "--json"]).last_json()["status"],
        "running"
    );
    fs::write(bench.path("go"), "").unwrap();
    wait_until("the run's end", || !is_alive(trainer));
    assert_eq!(
        bench.run(["runs", "show", "latest", "--json"]).last_json()["summary"]["steps"],
        2
    );
}

#[test]
fn the_trainer_is_out_of_reach_of_the_terminals_ctrl_c() {
    let bench = Bench::new();
    patient(
        &bench,
        vec![
            Act::WaitFor(bench.path("go")),
            ended(RunStatus::Completed, 0, "", 1),
        ],
    );
    let child = bench.lathe(["run", "toy.yaml"]).spawn().unwrap();
    exists(&bench.path("ready"));
    let trainer = trainer_pid(&bench.run_dir());
    assert_eq!(rustix::process::getsid(Some(trainer)).unwrap(), trainer);
    assert_eq!(rustix::process::getpgid(Some(trainer)).unwrap(), trainer);
    fs::write(bench.path("go"), "").unwrap();
    assert_eq!(finished(child.wait_with_output().unwrap()).code, Some(0));
}

#[test]
fn a_reader_that_leaves_ends_the_watching_and_not_the_run() {
    let bench = Bench::new();
    patient(
        &bench,
        vec![
            Act::WaitFor(bench.path("go")),
            step(2, 0.2),
            ended(RunStatus::Completed, 0, "", 2),
        ],
    );
    let mut child = bench.lathe(["run", "toy.yaml"]).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    drop(reader);
    exists(&bench.path("ready"));
    let trainer = trainer_pid(&bench.run_dir());
    fs::write(bench.path("go"), "").unwrap();
    let ran = finished(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    assert!(ran.stderr.contains("the run goes on"), "{}", ran.stderr);
    wait_until("the run's end", || !is_alive(trainer));
    assert_eq!(
        bench.run(["runs", "show", "latest", "--json"]).last_json()["summary"]["steps"],
        2
    );
}

#[test]
fn stopping_a_run_by_name_is_what_ctrl_c_does() {
    let bench = Bench::new();
    patient(
        &bench,
        vec![
            Act::WaitForInterrupt,
            ended(RunStatus::Stopped, 130, "stopped on request", 1),
            Act::Exit(130),
        ],
    );
    assert_eq!(bench.run(["run", "toy.yaml", "--detach"]).code, Some(0));
    exists(&bench.path("ready"));
    let trainer = trainer_pid(&bench.run_dir());
    let ran = bench.run(["stop", "latest"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    wait_until("the run's end", || !is_alive(trainer));
    let again = bench.run(["stop", "latest"]);
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(
        again.stderr.contains("has ended already (stopped)"),
        "{}",
        again.stderr
    );
}

#[test]
fn following_a_run_whose_process_dies_ends_with_its_reason() {
    let bench = Bench::new();
    patient(&bench, vec![Act::WaitFor(bench.path("never"))]);
    assert_eq!(bench.run(["run", "toy.yaml", "--detach"]).code, Some(0));
    exists(&bench.path("ready"));
    let trainer = trainer_pid(&bench.run_dir());
    let follower = bench.lathe(["follow", "latest", "--json"]).spawn().unwrap();
    kill_process(trainer, Signal::KILL).unwrap();
    let ran = finished(follower.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert_eq!(ran.last_json()["status"], "dead");
}

//! From a value that is edited to a run that goes on: pages Config and Launch of the real program, in a real terminal.

use std::fs;

use super::fake_trainer::{
    Act, checkpoint, ended, going_on, save_checkpoint, started, step, wait_until,
};
use super::harness::{Bench, EXPERIMENT, exists, finished, is_alive, trainer_pid};
use super::screen::Screen;
use runlog::event::RunStatus;

/// HOME and the XDG folders lie in the bench, so that a developer's own settings change no test.
fn open(bench: &Bench) -> Screen {
    let home = bench.path("home");
    let home = home.to_str().unwrap().to_owned();
    Screen::start(bench, &[], 100, &[("HOME", &home), ("NO_COLOR", "1")])
}

fn with_experiment() -> Bench {
    let bench = Bench::new();
    fs::create_dir(bench.path("experiments")).unwrap();
    fs::write(bench.path("experiments/toy.yaml"), EXPERIMENT).unwrap();
    bench
}

#[test]
fn a_value_is_edited_saved_launched_and_the_run_outlives_the_workbench() {
    let bench = with_experiment();
    bench.trainer(&[
        started(4),
        step(1, 0.25),
        Act::WaitFor(bench.path("go")),
        ended(RunStatus::Completed, 0, "", 4),
    ]);
    let mut screen = open(&bench);
    screen.shows("Runs");
    screen.type_keys("5");
    screen.shows("toy.yaml");
    screen.type_keys("\r");
    screen.shows("total_training_steps = 4");
    screen.type_keys("/total_training_steps\r\r\x156\r");
    screen.shows("total_training_steps = 6");
    screen.shows("unsaved changes");
    screen.type_keys("w");
    screen.shows("saved experiments/toy.yaml");
    let saved = fs::read_to_string(bench.path("experiments/toy.yaml")).unwrap();
    let wanted = EXPERIMENT.replace("total_training_steps: 4", "total_training_steps: 6");
    assert_eq!(saved, wanted, "that value's bytes and no other");
    // On page Launch: an override, then the start.
    screen.type_keys("L");
    screen.shows("s starts toy");
    screen.type_keys("aactor.optim.lr=1e-5\r");
    screen.shows("actor.optim.lr=1e-5");
    screen.type_keys("s");
    let run = || fs::read_dir(bench.path("runs")).is_ok_and(|runs| runs.count() == 1);
    wait_until("a run directory", run);
    let run = bench.run_dir();
    screen.shows("runs; it goes on without the workbench");
    let copy = fs::read_to_string(run.join("experiment.yaml")).unwrap();
    assert!(copy.contains("lr: 1e-5"), "{copy}");
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
    let pid = trainer_pid(&run);
    assert!(is_alive(pid), "leaving never ends a run");
    fs::write(bench.path("go"), "").unwrap();
    wait_until("the run's end", || !is_alive(pid));
}

#[test]
fn a_queue_starts_the_next_run_when_one_has_ended_and_what_waits_asks_before_leaving() {
    let bench = with_experiment();
    bench.trainer(&[
        started(4),
        Act::WaitFor(bench.path("go")),
        ended(RunStatus::Completed, 0, "", 4),
    ]);
    let count = || fs::read_dir(bench.path("runs")).map_or(0, Iterator::count);
    let mut screen = open(&bench);
    screen.shows("Runs");
    screen.type_keys("6");
    screen.shows("Nothing to start yet");
    screen.type_keys("o");
    screen.shows("toy.yaml");
    screen.type_keys("\r");
    screen.shows("s starts toy");
    screen.type_keys("adata.seed={1,2}\r");
    screen.shows("s queues 2 runs");
    screen.type_keys("s");
    screen.shows("Start 2 runs?");
    screen.type_keys("y");
    // The first shows itself.
    screen.shows("1 more wait on page 6");
    screen.type_keys("6");
    screen.shows("1 waiting");
    wait_until("the first run", || count() == 1);
    exists(&bench.run_dir().join("events.jsonl"));
    screen.type_keys("q");
    screen.shows("1 queued run not started yet");
    // Any other key stays.
    screen.type_keys("n");
    fs::write(bench.path("go"), "").unwrap();
    wait_until("the second run", || count() == 2);
    screen.shows("finished  toy-seed-2");
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
}

#[test]
fn a_run_that_died_goes_on_from_page_runs_and_one_with_nothing_left_says_so() {
    let bench = with_experiment();
    bench.trainer(&[
        started(4),
        step(1, 0.5),
        step(2, 0.6),
        checkpoint(2),
        Act::Die,
    ]);
    let ran = bench.run(&["run", "experiments/toy.yaml", "--json"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    save_checkpoint(&bench.run_dir(), 2);
    bench.trainer(&going_on(2, 4));
    let mut screen = open(&bench);
    screen.shows("dead");
    screen.type_keys("r");
    screen.shows("Have this run go on?");
    screen.shows("at step 2 of 4");
    screen.type_keys("y");
    screen.shows("goes on, also without the workbench");
    screen.shows("finished");
    let log = fs::read_to_string(bench.run_dir().join("events.jsonl")).unwrap();
    assert_eq!(log.matches("\"run_resumed\"").count(), 1, "{log}");
    let words = "lathe-trainer: all 4 steps are trained";
    bench.program("trainer", &format!("echo '{words}' >&2; exit 8"));
    screen.type_keys("r");
    screen.shows("Have this run go on?");
    screen.type_keys("y");
    screen.shows("does not go on");
    screen.shows("all 4 steps are trained");
    screen.type_keys(" ");
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
}

#[test]
fn a_run_that_cannot_start_says_why_on_the_screen() {
    let bench = with_experiment();
    bench.program("trainer", "echo 'no such device' >&2; exit 3");
    let mut screen = open(&bench);
    screen.shows("Runs");
    screen.type_keys("6o");
    screen.shows("toy.yaml");
    screen.type_keys("\r");
    screen.shows("s starts toy");
    screen.type_keys("s");
    screen.shows("toy did not start");
    screen.shows("no such device");
    // Any key closes the problem. (Esc and q in one write would be alt-q.)
    screen.type_keys(" ");
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
}

#[test]
fn doctor_looks_at_this_machine_too_and_makes_nothing_in_its_home() {
    let bench = with_experiment();
    bench.trainer(&[
        started(4),
        Act::WaitFor(bench.path("go")),
        ended(RunStatus::Completed, 0, "", 4),
    ]);
    let ran = bench.run(&["run", "experiments/toy.yaml", "--detach"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let home = bench.path("home");
    fs::create_dir_all(&home).unwrap();
    bench.program("trainer", "echo lathe-trainer 0.1.0");
    let ask = || {
        let mut doctor = bench.lathe(&["doctor", "local", "--json"]);
        finished(doctor.env("HOME", &home).output().unwrap())
    };
    let ran = ask();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report = ran.last_json();
    let what = |about: &str| {
        let findings = report["findings"].as_array().unwrap();
        let found = findings.iter().find(|finding| finding["about"] == about);
        found.map_or_else(String::new, |found| found["what"].to_string())
    };
    assert!(
        what("trainer").contains("lathe-trainer 0.1.0 starts"),
        "{report:#}"
    );
    assert!(what("disk").contains("free of"), "{report:#}");
    assert!(what("runs").contains("1 going or waiting: "), "{report:#}");
    assert_eq!(what("line"), "", "none is needed");
    assert_eq!(fs::read_dir(&home).unwrap().count(), 0);
    // Without a trainer no run starts here, and what to do is said.
    fs::remove_file(bench.path("trainer")).unwrap();
    let ran = ask();
    assert_eq!(ran.code, Some(3), "{ran:?}");
    fs::write(bench.path("go"), "").unwrap();
}

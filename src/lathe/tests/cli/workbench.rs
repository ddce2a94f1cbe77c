//! The workbench in a real terminal: opened, driven by keys, resized, signalled, suspended; a run lives through all of it.

use std::fs;

use rustix::process::{Signal, kill_process};

use super::fake_trainer::{Act, learning, started, step, wait_until};
use super::harness::{Bench, exists, is_alive, trainer_pid};
use super::screen::Screen;

/// A run that waits for the file `go` in the middle.
fn waiting(bench: &Bench) -> Vec<Act> {
    let mut acts = vec![started(4), step(1, 0.25), step(2, 0.5)];
    acts.push(Act::WaitFor(bench.path("go")));
    acts.extend(learning().into_iter().skip(1));
    acts
}

fn with_finished_run() -> Bench {
    let bench = Bench::new();
    bench.trainer(&learning());
    assert_eq!(bench.run(["run", "toy.yaml", "--json"]).code, Some(0));
    bench
}

/// HOME and the XDG folders lie in the bench, so that a developer's own settings change no test.
fn open(bench: &Bench, arguments: &[&str], environment: &[(&str, &str)]) -> Screen {
    let home = bench.path("home");
    let home = home.to_str().unwrap().to_owned();
    let mut all = vec![("HOME", home.as_str()), ("NO_COLOR", "1")];
    all.extend_from_slice(environment);
    Screen::start(bench, arguments, 100, &all)
}

#[test]
fn opens_on_the_list_of_runs_and_q_leaves_the_terminal_as_it_was() {
    let bench = with_finished_run();
    let mut screen = open(&bench, &[], &[]);
    screen.shows("toy");
    screen.shows("finished");
    assert!(screen.has_alternate_screen());
    screen.type_keys("q");
    let (text, code) = screen.end();
    assert_eq!((text.trim(), code), ("", 0));
}

#[test]
fn watch_shows_the_curves_and_survives_every_size() {
    let bench = with_finished_run();
    let mut screen = open(&bench, &["watch", "latest"], &[]);
    screen.shows("Reward");
    for (columns, rows) in [(40, 10), (200, 60), (80, 24), (20, 5), (100, 30)] {
        screen.resize(columns, rows);
        if columns >= 40 {
            screen.shows("Reward");
        }
    }
    screen.type_keys("?");
    screen.shows("crosshair on or off");
    screen.type_keys(" j");
    screen.type_keys("x");
    screen.shows("Reward");
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
}

#[test]
fn a_live_run_is_watched_left_and_found_again() {
    let bench = Bench::new();
    bench.trainer(&waiting(&bench));
    let started = bench.run(["run", "toy.yaml", "--detach", "--json"]);
    assert_eq!(started.code, Some(0), "{started:?}");
    let run = bench.run_dir();
    exists(&run.join("events.jsonl"));
    let mut screen = open(&bench, &["watch", "latest"], &[]);
    screen.shows("step 2/4");
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
    assert!(is_alive(trainer_pid(&run)), "quitting never ends a run");
    let screen = open(&bench, &["watch", "latest"], &[]);
    screen.shows("step 2/4");
    kill_process(screen.pid(), Signal::KILL).unwrap();
    drop(screen);
    assert!(is_alive(trainer_pid(&run)), "killing the viewer neither");
    let mut screen = open(&bench, &["watch", "latest"], &[]);
    fs::write(bench.path("go"), "").unwrap();
    screen.shows("step 4/4");
    screen.type_keys("q");
    screen.end();
}

#[test]
fn sigterm_and_hang_up_give_the_terminal_back() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let bench = with_finished_run();
        let screen = open(&bench, &["watch", "latest"], &[]);
        screen.shows("Reward");
        kill_process(screen.pid(), signal).unwrap();
        let (text, ended) = screen.end();
        assert_eq!((text.trim(), ended), ("", code));
    }
}

#[test]
fn ctrl_z_suspends_and_the_screen_comes_back_whole() {
    let bench = with_finished_run();
    let mut screen = open(&bench, &["watch", "latest"], &[]);
    screen.shows("Reward");
    let pid = screen.pid();
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
        stat[stat.rfind(')').unwrap() + 2..].chars().next()
    };
    screen.type_keys("\x1a");
    wait_until("the process is stopped", || state() == Some('T'));
    wait_until("the shell's screen is back", || {
        !screen.has_alternate_screen()
    });
    kill_process(pid, Signal::CONT).unwrap();
    wait_until("the full screen is back", || screen.has_alternate_screen());
    screen.shows("Reward");
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
}

#[test]
fn pasted_text_is_never_taken_as_keys() {
    let bench = with_finished_run();
    let mut screen = open(&bench, &["watch", "latest"], &[]);
    screen.shows("Reward");
    screen.type_keys("\x1b[200~qqq\x1b[201~");
    screen.shows("pasted text is never taken as keys");
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
}

#[test]
fn a_replay_plays_to_the_end_of_the_run() {
    let bench = with_finished_run();
    let mut screen = open(&bench, &["replay", "latest", "--speed", "1000"], &[]);
    screen.shows("replay");
    screen.shows("step 4/4");
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
}

#[test]
fn a_dumb_ascii_terminal_gets_no_color_and_nothing_but_ascii() {
    let bench = with_finished_run();
    let variables = [("TERM", "dumb"), ("LC_ALL", "C"), ("NO_COLOR", "1")];
    let mut screen = open(&bench, &["watch", "latest"], &variables);
    screen.shows("Reward");
    assert!(screen.text().is_ascii(), "{}", screen.text());
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
}

#[test]
fn a_run_that_is_deleted_while_open_is_said_to_be_gone() {
    let bench = with_finished_run();
    let mut screen = open(&bench, &["watch", "latest"], &[]);
    screen.shows("Reward");
    fs::remove_dir_all(bench.run_dir()).unwrap();
    screen.shows("its directory is gone");
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
}

#[test]
fn without_a_terminal_the_workbench_says_what_to_use() {
    let bench = Bench::new();
    let ran = bench.run(Vec::<&str>::new());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("lathe --plain"), "{}", ran.stderr);
}

#[test]
fn a_late_answer_of_the_terminal_is_never_taken_as_keys() {
    let bench = with_finished_run();
    let mut screen = open(&bench, &["watch", "latest"], &[]);
    screen.shows("Reward");
    screen.type_keys("\x1b]11;rgb:ffff/ffff/ffff\x1b\\?");
    screen.shows("crosshair on or off");
    assert!(!screen.text().contains("Actions"), "{}", screen.text());
    screen.type_keys("x");
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
}

#[test]
fn characters_are_counted_only_where_the_terminal_shows_that_it_does_it() {
    let bench = with_finished_run();
    // It wrote three more; it ignored the request; it says nothing of the cursor; it says nothing at all.
    for (answer, is_counted) in [
        (Some("\x1b[1;5R\x1b[?62;22c"), true),
        (Some("\x1b[1;2R\x1b[?62;22c"), false),
        (Some("\x1b[?6c"), false),
        (None, false),
    ] {
        let home = bench.path("home");
        let environment = [("HOME", home.to_str().unwrap())];
        let arguments = ["watch", "latest"];
        let mut screen = Screen::start_answering(&bench, &arguments, 100, &environment, answer);
        screen.shows("Reward");
        screen.shows("finished");
        screen.type_keys("e");
        screen.shows("panel 1 of ");
        assert_eq!(screen.was_counted(), is_counted, "{answer:?}");
        screen.type_keys("q");
        assert_eq!(screen.end().1, 0);
    }
}

/// Copies the runs of another tracker into a folder of the bench.
fn foreign_runs(bench: &Bench, name: &str, into: &str) {
    let from = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../foreign/tests/data")
        .join(name);
    let to = bench.path(into);
    fs::create_dir_all(&to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn runs_of_other_trackers_stand_in_the_list_and_a_folder_of_them_is_watched() {
    let bench = with_finished_run();
    for name in ["alpha", "beta"] {
        foreign_runs(&bench, "tensorboard-tf2", &format!("runs/boards/{name}"));
    }
    let mut screen = open(&bench, &[], &[]);
    for shown in ["toy", "alpha", "beta"] {
        screen.shows(shown);
    }
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
    let mut screen = open(&bench, &["watch", "runs/boards"], &[]);
    screen.shows("beta");
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
    let left: Vec<_> = fs::read_dir(bench.path("runs/boards/alpha"))
        .unwrap()
        .collect();
    let theirs = fs::read_dir(
        std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../foreign/tests/data/tensorboard-tf2"),
    );
    assert_eq!(left.len(), theirs.unwrap().count(), "nothing was added");
}

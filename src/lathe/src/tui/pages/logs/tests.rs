use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use runlog::event::{Event, EventKind, Level};
use runlog::number::Number;
use tempfile::TempDir;

use super::view::MOST_LINES;
use super::*;
use crate::tui::bindings;
use crate::tui::shared::Wish;
use crate::tui::testing::{Bench, sample_run_in};

fn page(bench: &Bench) -> &Logs {
    &bench.app.pages.logs
}

fn run_of(bench: &Bench) -> PathBuf {
    bench.app.shared.current.as_ref().unwrap().path().to_owned()
}

/// A run with a `log.txt`, on page Logs.
fn bench(log: Option<&str>) -> (TempDir, Bench) {
    let folder = tempfile::tempdir().unwrap();
    // Screens show the names of runs: a random id would change them.
    let run = folder.path().join("20261129-100000-sample-ab120000");
    std::fs::rename(sample_run_in(folder.path(), 12), &run).unwrap();
    if let Some(log) = log {
        std::fs::write(run.join("log.txt"), log).unwrap();
    }
    let mut bench = Bench::default();
    bench.open_run(run.to_str().unwrap(), 12);
    bench.press("8");
    bench.run_jobs();
    (folder, bench)
}

fn real_log() -> String {
    let mut log = String::new();
    for step in 0..12 {
        let _ = writeln!(
            log,
            "step:{step} - actor/entropy:0.26647302508354187 - actor/grad_norm:0.6633066534996033 - actor/lr:0.0 - critic/score/mean:0.45"
        );
        if step == 4 {
            log += "Loading checkpoint:   0%|          |\rLoading checkpoint:  50%|#####     |\rLoading checkpoint: 100%|##########|\n";
            log += "\x1b[33mWARN\x1b[0m NCCL: no IB device, using sockets\n";
        }
        if step == 9 {
            log += "Traceback (most recent call last):\n  File \"search.py\", line 3, in call\nError: search timed out after 30 s\n";
        }
    }
    log + "saving  50%|#####     |\rsaving  90%|######### |"
}

/// A log of `lines` lines with a needle at one of them.
fn long_log(lines: usize, needle: usize) -> String {
    let mut log = String::new();
    for line in 0..lines {
        let what = if line == needle { "needle" } else { "hay" };
        let _ = writeln!(log, "line {line} of {what} {}", "=".repeat(line % 60));
    }
    log
}

fn press_all(bench: &mut Bench) {
    for binding in bindings::all() {
        if binding.context == HERE {
            bench.act(action::Action::Command(binding.command));
            bench.screen(80, 24);
            bench.screen(40, 10);
            bench.run_jobs();
            bench.screen(120, 40);
            if page(bench).is_typing() {
                bench.press("a enter");
            }
        }
    }
}

/// A run that can no longer be read.
fn broken() -> Bench {
    let mut bench = Bench::with_run(5);
    let key = bench.app.shared.current.clone().unwrap();
    let problem = crate::tui::shared::Problem::new("gone", "its directory is gone", "");
    bench.act(action::Action::Message(action::Message::RunBroken {
        key,
        problem,
    }));
    bench
}

/// The first moment of a replay: nothing has happened.
fn replay() -> Bench {
    let mut bench = Bench::with_run(5);
    let key = bench.app.shared.current.clone().unwrap();
    bench.app.start_replay(key, 0.0, 1.0);
    bench
}

#[test]
#[expect(
    clippy::useless_vec,
    reason = "an array of whole workbenches is large for a stack"
)]
fn no_key_panics_wherever_something_is_missing() {
    for mut bench in vec![
        Bench::default(),
        Bench::with_run(0),
        Bench::with_run(30),
        broken(),
        replay(),
        bench(None).1,
        bench(Some("")).1,
        bench(Some("x")).1,
    ] {
        bench.press("8");
        bench.run_jobs();
        press_all(&mut bench);
        press_all(&mut bench);
    }
    let (_folder, mut whole) = bench(Some(&real_log()));
    for _ in 0..3 {
        press_all(&mut whole);
        whole.press("g g l");
    }
}

/// A screen without the header, which is not this page's.
fn below_header(screen: &str) -> String {
    let lines: Vec<&str> = screen.lines().skip(1).collect();
    lines.join("\n")
}

#[test]
fn golden_screens() {
    let (_folder, mut bench) = bench(Some(&real_log()));
    let here = |screen: String| screen.replace("elsewhere", "HOST");
    insta::assert_snapshot!("events_80", here(below_header(&bench.screen(80, 24))));
    insta::assert_snapshot!("events_40", here(below_header(&bench.screen(40, 10))));
    bench.press("tab");
    bench.run_jobs();
    insta::assert_snapshot!("file_80", below_header(&bench.screen(80, 24)));
    bench.press("/");
    bench.type_text("search");
    bench.press("enter N e");
    insta::assert_snapshot!(
        "file_search_whole_120",
        below_header(&bench.screen(120, 40))
    );
    bench.make_plain();
    insta::assert_snapshot!("plain_80", below_header(&bench.screen(80, 24)));
}

#[test]
fn progress_bars_stand_in_their_last_state() {
    let (_folder, mut bench) = bench(Some(&real_log()));
    bench.press("tab");
    bench.run_jobs();
    let screen = bench.screen(120, 40);
    assert!(
        screen.contains("Loading checkpoint: 100%|##########|"),
        "{screen}"
    );
    assert!(!screen.contains("50%"), "{screen}");
    assert!(screen.contains("saving  90%"), "{screen}");
}

#[test]
fn following_shows_what_is_appended_and_moving_up_stops_it() {
    let (_folder, mut bench) = bench(Some("one\ntwo 10%"));
    bench.press("tab");
    bench.run_jobs();
    let log = run_of(&bench).join("log.txt");
    std::fs::write(&log, "one\ntwo 10%\rtwo 99%\nthree\n").unwrap();
    let key = bench.app.shared.current.clone().unwrap();
    let tick = |bench: &mut Bench| {
        bench.act(action::Action::Message(action::Message::CaughtUp {
            key: key.clone(),
        }));
        bench.run_jobs();
    };
    tick(&mut bench);
    let texts = |bench: &Bench| -> Vec<String> {
        page(bench)
            .file
            .lines
            .iter()
            .map(|line| line.text.clone())
            .collect()
    };
    assert_eq!(texts(&bench), ["one", "two 99%", "three"]);
    assert_eq!(page(&bench).selected(), 2);
    bench.press("k");
    std::fs::write(&log, "one\ntwo 10%\rtwo 99%\nthree\nfour\n").unwrap();
    tick(&mut bench);
    assert_eq!(page(&bench).selected(), 1);
    assert!(!bench.screen(80, 24).contains("following"));
    bench.press("G");
    bench.run_jobs();
    tick(&mut bench);
    assert_eq!(texts(&bench).last().unwrap(), "four");
    assert_eq!(page(&bench).selected(), 3);
    // Rotated: another, shorter file by the same name.
    std::fs::write(&log, "new\n").unwrap();
    tick(&mut bench);
    assert_eq!(texts(&bench), ["new"]);
}

#[test]
fn a_long_log_is_read_in_windows_wherever_one_looks() {
    let (_folder, mut bench) = bench(Some(&long_log(100_000, 1234)));
    bench.press("tab");
    bench.run_jobs();
    assert!(bench.screen(80, 24).contains("line 99999"));
    for _ in 0..40 {
        bench.press("pgup pgup pgup pgup pgup pgup pgup pgup");
        bench.run_jobs();
        assert!(page(&bench).file.lines.len() <= MOST_LINES);
    }
    let lines = &page(&bench).file.lines;
    assert!(lines.windows(2).all(|pair| pair[0].id < pair[1].id));
    let seen = lines[page(&bench).selected()].text.clone();
    let number: usize = seen.split(' ').nth(1).unwrap().parse().unwrap();
    let moved = 99_999 - number;
    assert!(moved > 5000, "moved {moved} lines up");
    bench.press("/");
    bench.type_text("needle");
    bench.press("enter");
    bench.run_jobs();
    let screen = bench.screen(80, 24);
    assert!(screen.contains("line 1234 of needle"), "{screen}");
    assert!(
        screen.contains("at the other end") || screen.contains("of 4"),
        "{screen}"
    );
    bench.press("g g");
    bench.run_jobs();
    assert!(bench.screen(80, 24).contains("line 0 of hay"));
    for _ in 0..20 {
        bench.press("pgdn pgdn pgdn pgdn pgdn pgdn pgdn pgdn");
        bench.run_jobs();
        assert!(page(&bench).file.lines.len() <= MOST_LINES);
    }
    assert!(page(&bench).file.start > 0 || page(&bench).file.lines.len() < MOST_LINES);
    bench.press("G");
    bench.run_jobs();
    assert!(bench.screen(80, 24).contains("line 99999"));
}

#[test]
fn a_level_filter_finds_the_few_errors_of_a_long_log() {
    let mut log = long_log(50_000, 0);
    log.insert_str(0, "ERROR the first\n");
    log += "ERROR the last\n";
    let (_folder, mut bench) = bench(Some(&log));
    bench.press("tab");
    bench.run_jobs();
    bench.press("x");
    bench.run_jobs();
    let screen = bench.screen(80, 24);
    assert!(
        screen.contains("the first") && screen.contains("the last"),
        "{screen}"
    );
    assert!(!screen.contains("hay"), "{screen}");
    bench.press("x");
    bench.run_jobs();
    assert!(bench.screen(80, 24).contains("hay"));
}

#[test]
fn another_page_can_ask_for_the_line_at_a_moment() {
    let mut bench = Bench::with_run(12);
    // The alarm of step 7.
    bench.press("8 x");
    bench.app.shared.wish = Some(Wish::LogAt(14_500.0));
    bench.press("f");
    assert_eq!(bench.app.page, PageId::Logs);
    let logs = page(&bench);
    let line = logs.line(logs.selected()).unwrap();
    assert_eq!(line.source, "alarm");
    assert!(line.text.contains("not a number"));
    assert!(!logs.is_following);
}

#[test]
fn from_an_event_the_file_opens_at_its_step() {
    let (_folder, mut bench) = bench(Some(&real_log()));
    bench.app.shared.wish = Some(Wish::LogAt(14_500.0));
    bench.press("h tab");
    bench.run_jobs();
    let logs = page(&bench);
    let line = logs.line(logs.selected()).unwrap();
    assert!(line.text.starts_with("step:7 "), "{}", line.text);
}

#[test]
fn marked_lines_are_copied_in_their_order() {
    let (_folder, mut bench) = bench(Some("a\nb\nc\nd\ne\n"));
    bench.press("tab");
    bench.run_jobs();
    bench.press("g g j j v k k");
    bench.press("v");
    let (text, what) = bench.app.pages.logs.copied(&bench.app.shared).unwrap();
    assert_eq!(
        (text.as_str(), what.as_str()),
        ("a\nb\nc\n", "3 marked lines")
    );
    bench.press("space");
    let (text, _) = bench.app.pages.logs.copied(&bench.app.shared).unwrap();
    assert_eq!(text, "b\nc\n");
    bench.press("esc");
    let (text, _) = bench.app.pages.logs.copied(&bench.app.shared).unwrap();
    assert_eq!(text, "b\n", "nothing is marked: the selected line");
}

#[test]
fn a_search_in_the_events_goes_around() {
    let mut bench = Bench::with_run(30);
    bench.press("8 g g");
    bench.press("/");
    bench.type_text("checkpoints/");
    bench.press("enter");
    let at = |bench: &Bench| {
        page(bench)
            .line(page(bench).selected())
            .unwrap()
            .text
            .clone()
    };
    assert!(at(&bench).contains("step-000010"));
    bench.press("n n");
    assert!(at(&bench).contains("step-000030"));
    bench.press("n");
    assert!(at(&bench).contains("step-000010"));
    bench.press("N");
    assert!(at(&bench).contains("step-000030"));
}

#[test]
fn a_run_that_is_deleted_while_open_is_said() {
    let (folder, mut bench) = bench(Some("a\n"));
    drop(folder);
    bench.press("tab");
    bench.run_jobs();
    let screen = bench.screen(80, 24);
    assert!(screen.contains("log.txt cannot be shown"), "{screen}");
    press_all(&mut bench);
}

#[test]
fn answers_for_another_run_are_ignored() {
    let (_folder, mut bench) = bench(Some("mine\n"));
    bench.press("tab");
    let asked = std::mem::take(&mut bench.effects);
    bench.open_run("/project/runs/20261129-100000-other-ab120001", 3);
    bench.press("8");
    bench.effects.splice(0..0, asked);
    bench.run_jobs();
    assert!(!bench.screen(80, 24).contains("mine"));
    let gone: &Path = Path::new("/project/runs/20261129-100000-other-ab120001");
    assert_eq!(page(&bench).run, Some(RunKey::new(gone)));
}

#[test]
fn old_lines_that_are_dropped_do_not_move_the_selected_one() {
    let mut bench = Bench::default();
    let key = bench.open_run("/project/runs/20261129-100000-sample-ab120000", 0);
    bench.press("8");
    let line = |seq: u64| Event {
        seq,
        elapsed_ms: 1000.0 + seq as f64,
        kind: EventKind::LogLine {
            level: Level::Info,
            target: "t".to_owned(),
            message: format!("message {seq}"),
        },
    };
    let send = |bench: &mut Bench, range: std::ops::Range<u64>| {
        bench.act(action::Action::Message(action::Message::Events {
            key: key.clone(),
            events: range.map(line).collect(),
        }));
    };
    send(&mut bench, 0..2000);
    bench.press("k k k space");
    let text = |bench: &Bench| {
        page(bench)
            .line(page(bench).selected())
            .unwrap()
            .text
            .clone()
    };
    let before = text(&bench);
    send(&mut bench, 2000..3000);
    assert_eq!(text(&bench), before);
    assert_eq!(page(&bench).marked.len(), 1);
}

#[test]
fn what_people_changed_stands_among_the_lines() {
    let mut bench = Bench::default();
    let key = bench.open_run("/project/runs/20261129-100000-sample-ab120000", 0);
    let knob = "actor_rollout_ref.actor.optim.lr".to_owned();
    let changes = [
        EventKind::ControlApplied {
            request: 1,
            who: "ana@laptop".to_owned(),
            command: "set".to_owned(),
            step: 41,
            knob: Some(knob.clone()),
            from: Some(Number(2e-6)),
            to: Some(Number(1e-6)),
            from_step: Some(42),
        },
        EventKind::ControlRefused {
            request: 2,
            who: "ana@laptop".to_owned(),
            command: "set".to_owned(),
            step: 42,
            knob: Some(knob),
            to: Some(Number(-1.0)),
            reason: "expected 0 <= lr".to_owned(),
        },
    ];
    let events = changes
        .into_iter()
        .enumerate()
        .map(|(seq, kind)| Event {
            seq: 1000 + seq as u64,
            elapsed_ms: 5000.0,
            kind,
        })
        .collect();
    bench.act(action::Action::Message(action::Message::Events {
        key,
        events,
    }));
    bench.press("8");
    let screen = bench.screen(160, 24);
    assert!(
        screen.contains(
            "ana@laptop: set actor_rollout_ref.actor.optim.lr from 2e-6 to 1e-6, from step 42 on"
        ),
        "{screen}"
    );
    assert!(
        screen.contains("optim.lr to -1 was refused: expected 0 <= lr"),
        "{screen}"
    );
}

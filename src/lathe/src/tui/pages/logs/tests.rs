use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use runlog::event::{Event, EventKind, Level};
use runlog::number::Number;
use tempfile::TempDir;

use super::view::MOST_LINES;
use super::*;
use crate::tui::shared::Wish;
use crate::tui::testing::{Bench, STATES, do_everything, do_everything_in_turn, sample_run_in};

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

#[test]
fn no_key_panics_wherever_something_is_missing() {
    for make in STATES {
        do_everything(PageId::Logs, make);
    }
    let without_log = || bench(None).1;
    let empty_log = || bench(Some("")).1;
    let short_log = || bench(Some("x")).1;
    for make in [STATES[2], STATES[4], without_log, empty_log, short_log] {
        let mut bench = make();
        bench.press("8");
        bench.run_jobs();
        do_everything_in_turn(PageId::Logs, &mut bench);
        do_everything_in_turn(PageId::Logs, &mut bench);
    }
    let (_folder, mut whole) = bench(Some(&real_log()));
    for _ in 0..3 {
        do_everything_in_turn(PageId::Logs, &mut whole);
        whole.press("g g l");
    }
}

#[test]
fn a_guard_and_a_resume_have_one_line_each() {
    let (_folder, mut bench) = bench(None);
    let key = bench.app.shared.current.clone().unwrap();
    let first = bench.app.shared.current_run().unwrap().state.events;
    let kinds = [
        EventKind::RunStarted {
            experiment_name: "sample".to_owned(),
            mode: "sync".to_owned(),
            total_steps: 12,
            parameters: 1,
            pid: 1,
            host: "h".to_owned(),
            seed: 1,
        },
        EventKind::RunResumed {
            from_step: 10,
            checkpoint: None,
            lost_steps: 2,
            passed_over: Vec::new(),
        },
        EventKind::Alarm {
            name: "guard kl".to_owned(),
            step: Some(11),
            message: "actor/ppo_kl is 0.03, above 0.02".to_owned(),
        },
        EventKind::GuardTripped {
            guard: "kl".to_owned(),
            watched: "actor/ppo_kl".to_owned(),
            step: 11,
            since_step: 11,
            value: Number(0.03),
            limit: Number(0.02),
            reason: "actor/ppo_kl is 0.03, above 0.02".to_owned(),
            relapse: 0,
            done: vec![runlog::event::GuardDone {
                action: "sync 1".to_owned(),
                before: "1".to_owned(),
                after: "0".to_owned(),
                is_done: true,
            }],
            cools_until: None,
            by: None,
        },
    ];
    let events = kinds
        .into_iter()
        .enumerate()
        .map(|(at, kind)| Event {
            seq: first + at as u64,
            elapsed_ms: 30_000.0,
            kind,
        })
        .collect();
    bench.act(action::Action::Message(action::Message::Events {
        key,
        events,
    }));
    let said: Vec<String> = page(&bench)
        .events
        .iter()
        .filter(|line| line.elapsed_ms == Some(30_000.0))
        .map(|line| format!("{} {}", line.source, line.text))
        .collect();
    assert_eq!(
        said,
        [
            "resume goes on in its own directory after step 10; 2 later steps are trained again",
            "guard kl tripped after step 11: actor/ppo_kl is 0.03, above 0.02; sync 1: 1 -> 0",
        ]
    );
}

#[test]
fn lines_that_the_fold_no_longer_has_are_read_from_the_log_when_somebody_goes_there() {
    let (_folder, mut bench) = bench(None);
    let run = run_of(&bench);
    let key = bench.app.shared.current.clone().unwrap();
    // Several at each moment, across the place where the fold cuts.
    let lines: Vec<Event> = (0..2503)
        .map(|line| Event {
            seq: line,
            elapsed_ms: (line / 7) as f64 * 10.0,
            kind: EventKind::LogLine {
                level: Level::Info,
                target: "trainer".to_owned(),
                message: if line == 3 {
                    "a needle".to_owned()
                } else {
                    format!("line {line}")
                },
            },
        })
        .collect();
    std::fs::write(run.join("events.jsonl"), {
        let lines: Vec<String> = lines
            .iter()
            .map(|event| serde_json::to_string(event).unwrap() + "\n")
            .collect();
        lines.concat()
    })
    .unwrap();
    let state = Box::new(runlog::RunState::fold(&lines));
    bench.act(action::Action::Message(action::Message::RunOpened {
        key,
        state,
    }));
    bench.run_jobs();
    let of_log = |bench: &Bench| -> Vec<String> {
        let lines = page(bench).events.iter();
        lines.map(|line| line.text.clone()).collect()
    };
    assert_eq!(of_log(&bench).len(), 2000);
    assert!(
        bench
            .screen(120, 40)
            .contains("older lines: g g reads them")
    );
    bench.press("/");
    bench.type_text("needle");
    bench.press("enter");
    bench.run_jobs();
    let all = of_log(&bench);
    assert_eq!(all.len(), 2503);
    assert_eq!((all[2].as_str(), all[3].as_str()), ("line 2", "a needle"));
    assert_eq!(all[2502], "line 2502");
    let unique: std::collections::BTreeSet<&String> = all.iter().collect();
    assert_eq!(unique.len(), 2503, "none is there twice");
    assert_eq!(
        page(&bench).line(page(&bench).selected()).unwrap().text,
        "a needle"
    );
    assert!(!page(&bench).is_cut);
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
    do_everything_in_turn(PageId::Logs, &mut bench);
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
            target: None,
            before: None,
            after: None,
            until_step: None,
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
            target: None,
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

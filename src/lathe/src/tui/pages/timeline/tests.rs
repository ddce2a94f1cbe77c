use std::path::PathBuf;

use runlog::event::{Event, EventKind, Lane, Phase};
use runlog::number::Values;
use tempfile::TempDir;

use super::*;
use crate::tui::testing::{Bench, STATES, do_everything, do_everything_in_turn, sample_run_in};

fn page(bench: &Bench) -> &Timeline {
    &bench.app.pages.timeline
}

fn state(bench: &Bench) -> &RunState {
    &bench.app.shared.current_run().unwrap().state
}

/// A run as asynchronous training makes it: batch k+1 is generated while step k is trained; at step 4 a tool hangs.
fn events() -> Vec<Event> {
    let mut kinds: Vec<(f64, EventKind)> = vec![(
        200.0,
        EventKind::PhaseChanged {
            phase: Phase::Train,
        },
    )];
    let mut at = 200.0;
    for step in 1..=8_u64 {
        let hangs = step == 4;
        let generate = if hangs { 41_000.0 } else { 1_200.0 };
        let span = |lane, name: String, start: f64, end: f64| {
            (
                end,
                EventKind::Span {
                    lane,
                    name,
                    step: Some(step),
                    start_ms: start,
                    end_ms: end,
                },
            )
        };
        kinds.push(span(
            Lane::Tool,
            format!("calculator {step}-7/2"),
            at + 100.0,
            at + 180.0,
        ));
        if hangs {
            kinds.push(span(
                Lane::Tool,
                "search 9f3".to_owned(),
                at + 800.0,
                at + 38_000.0,
            ));
        }
        kinds.push(span(
            Lane::Generate,
            format!("batch {step}"),
            at,
            at + generate,
        ));
        kinds.push(span(
            Lane::Reward,
            "score".to_owned(),
            at + generate,
            at + generate + 20.0,
        ));
        let wait_end = at + generate + 30.0;
        kinds.push(span(
            Lane::WaitRollouts,
            "waiting for rollouts".to_owned(),
            at + 900.0,
            wait_end,
        ));
        kinds.push(span(
            Lane::OldLogProb,
            "old".to_owned(),
            wait_end,
            wait_end + 300.0,
        ));
        kinds.push(span(
            Lane::ActorUpdate,
            "actor update".to_owned(),
            wait_end + 300.0,
            wait_end + 1_500.0,
        ));
        let end = wait_end + 1_520.0;
        kinds.push(span(
            Lane::WeightSync,
            "publish".to_owned(),
            wait_end + 1_500.0,
            end,
        ));
        if step % 4 == 0 {
            kinds.push(span(
                Lane::Checkpoint,
                format!("step {step}"),
                end,
                end + 60.0,
            ));
        }
        kinds.push((
            end + 70.0,
            EventKind::StepEnded {
                step,
                policy_version: step,
                values: Values::default(),
            },
        ));
        // The next batch begins while this one is trained.
        at = wait_end + 400.0;
    }
    // In a log, events stand in the order of their time.
    kinds.sort_by(|a, b| a.0.total_cmp(&b.0));
    kinds
        .into_iter()
        .enumerate()
        .map(|(seq, (elapsed_ms, kind))| Event {
            seq: seq as u64,
            elapsed_ms,
            kind,
        })
        .collect()
}

fn bench() -> Bench {
    let mut bench = Bench::default();
    let key = bench.open_run("/project/runs/20261129-100000-sample-ab120000", 0);
    bench.act(action::Action::Message(action::Message::RunOpened {
        key: key.clone(),
        state: Box::new(RunState::fold(&events())),
    }));
    bench.act(action::Action::Message(action::Message::CaughtUp { key }));
    bench.press("3");
    bench.run_jobs();
    bench
}

#[test]
fn no_key_panics_wherever_something_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample_run_in(folder.path(), 3);
    let mut on_disk = Bench::default();
    on_disk.open_run(run.to_str().unwrap(), 3);
    for make in STATES {
        do_everything(PageId::Timeline, make);
    }
    let mut benches: Vec<Bench> = STATES.iter().map(|make| make()).collect();
    benches.push(Bench::with_run(1));
    benches.push(bench());
    benches.push(on_disk);
    for mut bench in benches {
        bench.press("3");
        for keys in ["a", "h", "tab", "G", "+ + + + + + + + + + + +", "g g"] {
            bench.press("3");
            do_everything_in_turn(PageId::Timeline, &mut bench);
            bench.press(keys);
        }
    }
}

/// A screen without the header, which is not this page's.
fn below_header(screen: &str) -> String {
    let lines: Vec<&str> = screen.lines().skip(1).collect();
    lines.join("\n")
}

#[test]
fn golden_screens() {
    let mut bench = bench();
    insta::assert_snapshot!("latest_steps_80", below_header(&bench.screen(80, 24)));
    bench.press("S");
    insta::assert_snapshot!("worst_stall_80", below_header(&bench.screen(80, 24)));
    insta::assert_snapshot!("worst_stall_120", below_header(&bench.screen(120, 40)));
    insta::assert_snapshot!("worst_stall_40", below_header(&bench.screen(40, 10)));
    bench.press("a o o tab g g");
    insta::assert_snapshot!(
        "whole_run_by_wait_120",
        below_header(&bench.screen(120, 40))
    );
    bench.make_plain();
    insta::assert_snapshot!("plain_80", below_header(&bench.screen(80, 24)));
}

#[test]
fn the_stall_of_a_hanging_tool_is_named_with_its_instance() {
    let mut bench = bench();
    bench.press("S");
    let screen = bench.screen(80, 24);
    assert!(
        screen.contains("step 4: the learner waits 40.1 s for tool `search`, instance 9f3"),
        "{screen}"
    );
    bench.press("enter");
    assert_eq!(bench.app.page, PageId::Rollouts);
    assert_eq!(bench.app.shared.step, Some(4));
}

#[test]
fn the_cursor_names_the_spans_under_it_in_the_selected_lane_first() {
    let mut bench = bench();
    bench.press("S z");
    bench.press("k k k k k k k k w");
    let screen = bench.screen(120, 40);
    let names: Vec<&str> = screen
        .lines()
        .filter(|line| line.contains("batch"))
        .collect();
    assert!(!names.is_empty(), "{screen}");
    assert!(names[0].starts_with("generate `batch"), "{screen}");
}

#[test]
fn zooming_out_far_says_that_a_column_is_many_steps() {
    let mut bench = Bench::with_run(3000);
    bench.press("3 a");
    let screen = bench.screen(80, 24);
    assert!(screen.contains("zoom in to name its spans"), "{screen}");
}

/// A run on disk whose first steps are no longer among the fold's spans.
fn long_run() -> (TempDir, Bench, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let run = sample_run_in(folder.path(), 1500);
    let mut bench = Bench::default();
    bench.open_run(run.to_str().unwrap(), 1500);
    assert_eq!(state(&bench).recent_spans.len(), RECENT_SPANS);
    (folder, bench, run)
}

#[test]
fn old_spans_are_read_from_the_log_once_a_step() {
    let (_folder, mut bench, _run) = long_run();
    bench.app.shared.step = Some(20);
    bench.press("3");
    assert!(bench.screen(120, 40).contains("reading the spans here"));
    bench.run_jobs();
    let screen = bench.screen(120, 40);
    assert!(screen.contains("generate `batch`, step 20"), "{screen}");
    bench.press("l l l h");
    assert!(
        !bench
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::Job { .. })),
        "what was read of a step is kept"
    );
}

#[test]
fn a_log_that_is_gone_is_said() {
    let (folder, mut bench, run) = long_run();
    std::fs::remove_file(run.join("events.jsonl")).unwrap();
    bench.app.shared.step = Some(20);
    bench.press("3");
    bench.run_jobs();
    let screen = bench.screen(120, 40);
    assert!(screen.contains("the spans here cannot be read"), "{screen}");
    drop(folder);
}

#[test]
fn the_table_sorts_by_the_longest_wait() {
    let mut bench = bench();
    bench.press("o o tab g g");
    assert_eq!(bench.app.shared.step, Some(4));
    let screen = bench.screen(120, 40);
    assert!(
        screen.contains("40.1 s learner: tool `search`, instance 9f3"),
        "{screen}"
    );
}

#[test]
fn a_running_run_is_followed_until_one_looks_elsewhere() {
    let mut bench = bench();
    let end = |bench: &Bench| page(bench).window(state(bench)).end_ms;
    let before = end(&bench);
    let more = |bench: &mut Bench, seq: u64| {
        let key = bench.app.shared.current.clone().unwrap();
        let at = 100_000.0 + seq as f64 * 1000.0;
        bench.act(action::Action::Message(action::Message::Events {
            key,
            events: vec![Event {
                seq: 1000 + seq,
                elapsed_ms: at,
                kind: EventKind::Span {
                    lane: Lane::Generate,
                    name: "batch 9".to_owned(),
                    step: Some(9),
                    start_ms: at - 500.0,
                    end_ms: at,
                },
            }],
        }));
    };
    more(&mut bench, 1);
    assert!(end(&bench) > before);
    bench.press("h");
    let stays = end(&bench);
    more(&mut bench, 2);
    assert_eq!(end(&bench), stays);
    bench.press("G");
    assert!(end(&bench) > stays);
}

#[test]
fn the_copied_table_has_a_line_a_step() {
    let bench = bench();
    let (text, what) = bench.app.pages.timeline.copied(&bench.app.shared).unwrap();
    assert_eq!(what, "the times of 8 steps");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 9);
    let columns = lines[0].split('\t').count();
    assert!(
        lines.iter().all(|line| line.split('\t').count() == columns),
        "{text}"
    );
    assert!(lines[4].contains("search"));
}

#[test]
fn the_waits_are_in_the_table_however_narrow_it_is() {
    let mut bench = bench();
    for columns in [60, 80, 120] {
        let screen = bench.screen(columns, 24);
        assert!(
            screen.contains("w.rol") && screen.contains("gen"),
            "{screen}"
        );
    }
}

//! The dashboard on screens in memory, and what its keys do.

use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use runlog::number::Number;
use runlog::series::XAxis;
use runlog::{Event, EventKind};

use crate::tui::action::{Action, Effect, Message};
use crate::tui::pages::PageId;
use crate::tui::testing::{Bench, STATES, do_everything};

fn live(steps: u64) -> Bench {
    let mut bench = Bench::with_run(steps);
    bench.press("2");
    bench
}

#[test]
fn the_dashboard_at_80_by_24() {
    insta::assert_snapshot!(live(40).screen(80, 24));
}

#[test]
fn the_dashboard_at_120_by_40_with_the_crosshair() {
    let mut bench = live(40);
    bench.press("c H h");
    insta::assert_snapshot!(bench.screen(120, 40));
}

#[test]
fn the_dashboard_without_color_and_unicode() {
    let mut bench = live(40);
    bench.make_plain();
    insta::assert_snapshot!(bench.screen(80, 24));
    assert!(bench.screen(80, 24).is_ascii());
}

#[test]
fn one_chart_at_40_by_10() {
    insta::assert_snapshot!(live(40).screen(40, 10));
}

#[test]
fn an_expanded_panel_is_smoothed_over_the_faint_raw_line() {
    let mut bench = live(60);
    bench.press("l l l e s s");
    insta::assert_snapshot!(bench.screen(80, 24));
}

#[test]
fn two_runs_are_drawn_over_one_another() {
    let mut bench = live(40);
    bench.app.shared.marked = vec![bench.app.shared.current.clone().unwrap()];
    bench.open_run("/project/runs/20261129-110000-other-cd340000", 25);
    insta::assert_snapshot!(bench.screen(120, 40));
}

#[test]
fn the_crosshair_reads_every_point_exactly() {
    let mut bench = live(20);
    bench.press("c");
    assert_eq!(bench.app.shared.step, Some(20));
    bench.press("h h h");
    assert_eq!(bench.app.shared.step, Some(17));
    bench.press("H");
    assert_eq!(bench.app.shared.step, Some(7));
    // The KL of step 7 is not a number, and is read as such.
    let screen = bench.screen(120, 40);
    assert!(screen.contains("NaN"), "{screen}");
    bench.press("enter");
    assert_eq!(bench.app.page, PageId::Rollouts);
    assert_eq!(bench.app.shared.step, Some(7));
}

#[test]
fn a_value_that_is_not_of_the_crosshairs_step_says_of_which_it_is() {
    let mut bench = live(20);
    bench.press("c");
    let test_of = |screen: &str| -> String {
        let title = screen.split("━ test ").nth(1).unwrap();
        title.split('━').next().unwrap().to_owned()
    };
    let at_20 = bench.screen(120, 40);
    assert!(!test_of(&at_20).contains('@'), "{at_20}");
    // The sample run is evaluated every few steps only.
    let evaluated = bench.app.shared.current_run().unwrap().state.evals.clone();
    let between = (1..20)
        .rev()
        .find(|step| evaluated.iter().all(|eval| eval.step != *step));
    for _ in between.unwrap()..20 {
        bench.press("h");
    }
    let screen = bench.screen(120, 40);
    assert!(test_of(&screen).contains(" @"), "{screen}");
}

#[test]
fn values_that_a_log_axis_has_no_place_for_are_counted() {
    let mut bench = live(20);
    let key = bench.app.shared.current.clone().unwrap();
    let run = bench.app.shared.open.get_mut(&key).unwrap();
    run.state.apply(&Event {
        seq: run.state.events,
        elapsed_ms: 60_000.0,
        kind: EventKind::StepEnded {
            step: 21,
            policy_version: 21,
            values: [("critic/score/mean".to_owned(), Number(0.0))].into(),
        },
    });
    let linear = bench.screen(120, 40);
    assert!(!linear.contains("not drawn"), "{linear}");
    bench.press("Y");
    let log = bench.screen(120, 40);
    assert!(log.contains("1 value at or below 0 not drawn"), "{log}");
}

#[test]
fn what_the_run_recorded_is_told_beside_the_alarms_and_can_be_gone_to() {
    let mut bench = marked();
    bench.press("a");
    let screen = bench.screen(120, 40);
    assert!(screen.contains("the run recorded "), "{screen}");
    bench.press("n");
    assert!(
        bench.app.shared.step.is_some(),
        "the crosshair is on an alarm"
    );
}

#[test]
fn a_run_that_failed_before_its_first_step_says_why() {
    let mut bench = live(0);
    let key = bench.app.shared.current.clone().unwrap();
    let run = bench.app.shared.open.get_mut(&key).unwrap();
    run.state = runlog::RunState::fold(&[Event {
        seq: 0,
        elapsed_ms: 1.0,
        kind: EventKind::RunEnded {
            status: runlog::event::RunStatus::Failed,
            exit_code: 3,
            reason: "no GPU is there".to_owned(),
            steps: 0,
        },
    }]);
    run.is_caught_up = true;
    let screen = bench.screen(80, 24);
    assert!(
        screen.contains("It ended before its first step"),
        "{screen}"
    );
    assert!(screen.contains("failed: no GPU is there"), "{screen}");
}

/// A run with one of everything that leaves a mark.
fn marked() -> Bench {
    let mut bench = live(20);
    let key = bench.app.shared.current.clone().unwrap();
    let kinds = [
        EventKind::ControlApplied {
            request: 1,
            who: "ana".to_owned(),
            command: "checkpoint".to_owned(),
            step: 4,
            target: None,
            before: None,
            after: None,
            until_step: None,
            knob: None,
            from: None,
            to: None,
            from_step: None,
        },
        EventKind::Alarm {
            name: "guard kl".to_owned(),
            step: Some(14),
            message: "actor/ppo_kl is 0.03, above 0.02; sync 1: 1 -> 0".to_owned(),
        },
        EventKind::GuardTripped {
            guard: "kl".to_owned(),
            watched: "actor/ppo_kl".to_owned(),
            step: 14,
            since_step: 14,
            value: Number(0.03),
            limit: Number(0.02),
            reason: "actor/ppo_kl is 0.03, above 0.02".to_owned(),
            relapse: 0,
            done: Vec::new(),
            cools_until: None,
            by: None,
        },
    ];
    let first = bench.app.shared.current_run().unwrap().state.events;
    let events = kinds
        .into_iter()
        .enumerate()
        .map(|(at, kind)| Event {
            seq: first + at as u64,
            elapsed_ms: 28_500.0,
            kind,
        })
        .collect();
    bench.act(Action::Message(Message::Events { key, events }));
    bench
}

#[test]
fn what_happened_is_marked_on_the_curves_and_the_letters_are_explained() {
    let mut bench = marked();
    let legend = |bench: &mut Bench| {
        let screen = bench.screen(120, 40);
        let line = screen.lines().rev().nth(1).unwrap().trim().to_owned();
        (line, screen)
    };
    let (line, screen) = legend(&mut bench);
    assert_eq!(
        line, "c checkpoint  k changed by hand  a alarm  g guard tripped",
        "{screen}"
    );
    for axis in ["time", "tokens", "samples"] {
        bench.press("x");
        let (line, screen) = legend(&mut bench);
        assert!(line.contains("g guard tripped"), "{axis}:\n{screen}");
    }
    // Only what is in view: the newest two steps have a checkpoint and no alarm.
    bench.press("x + + +");
    assert_eq!(legend(&mut bench).0, "c checkpoint");
    assert!(
        live(5)
            .screen(120, 40)
            .lines()
            .all(|line| !line.contains("checkpoint"))
    );
}

#[test]
fn the_log_of_a_mark_under_the_crosshair_is_that_of_the_moment_and_not_of_the_steps_end() {
    let bench = marked();
    let at = |step| super::marks::at(XAxis::Step, step, &bench.app.shared);
    // A trip comes before the alarm that says the same; nothing has a mark at step 13.
    assert_eq!((at(14.0), at(13.0)), (Some(28_500.0), None));
}

#[test]
fn all_alarms_are_told_whole_however_narrow_the_screen_is() {
    let mut bench = marked();
    bench.press("a");
    for width in [80, 120] {
        let screen = bench.screen(width, 40);
        let words: Vec<&str> = screen.split_whitespace().collect();
        let message = "guard kl at step 14: actor/ppo_kl is 0.03, above 0.02; sync 1: 1 -> 0";
        assert!(words.join(" ").contains(message), "{screen}");
    }
}

#[test]
fn a_dragged_border_is_remembered_for_the_next_time() {
    let mut bench = live(20);
    let before = bench.screen(80, 24);
    let mut mouse = |kind, column, row| {
        bench.act(Action::Mouse(MouseEvent {
            kind,
            column,
            row,
            modifiers: KeyModifiers::NONE,
        }));
    };
    let left = MouseButton::Left;
    mouse(MouseEventKind::Down(left), 40, 4);
    mouse(MouseEventKind::Drag(left), 55, 4);
    mouse(MouseEventKind::Up(left), 55, 4);
    let dragged = bench.screen(80, 24);
    assert_ne!(before, dragged);
    let titles: String = dragged.lines().nth(1).unwrap().chars().skip(56).collect();
    assert!(titles.starts_with("─ ▸ KL"), "{dragged}");
    let mut shared = crate::tui::testing::shared();
    shared.kept = bench.app.shared.kept.clone();
    let mut again = Bench::new(shared);
    again.open_run("/project/runs/20261129-100000-sample-ab120000", 20);
    again.press("2 l");
    assert_eq!(again.screen(80, 24), dragged, "the press gave the focus");
    again.press("r y");
    assert_eq!(again.screen(80, 24), before, "r puts the first layout back");
}

#[test]
fn the_loss_of_a_supervised_run_is_not_called_reward() {
    let mut bench = Bench::default();
    let key = bench.open_run("/project/runs/20261129-100000-sft-ab120000", 0);
    let events = (1..=3)
        .map(|step| Event {
            seq: step,
            elapsed_ms: step as f64 * 1e3,
            kind: EventKind::StepEnded {
                step,
                policy_version: step,
                values: [("train/loss".to_owned(), Number(1.0 / step as f64))].into(),
            },
        })
        .collect();
    bench.act(Action::Message(Message::Events { key, events }));
    bench.press("2");
    let screen = bench.screen(80, 24);
    assert!(screen.contains("Supervised loss"), "{screen}");
    assert!(!screen.contains("Reward"), "{screen}");
}

#[test]
fn a_metric_without_a_panel_gets_a_log_axis_and_the_others_keep_their_room() {
    let mut bench = Bench::default();
    let key = bench.open_run("/project/runs/20261129-100000-other-ab120000", 0);
    let values = |step: u64| (0..8).map(move |at| (format!("own/m{at}"), Number(step as f64)));
    let events = (1..=3)
        .map(|step| Event {
            seq: step,
            elapsed_ms: step as f64 * 1e3,
            kind: EventKind::StepEnded {
                step,
                policy_version: step,
                values: values(step).collect(),
            },
        })
        .collect();
    bench.act(Action::Message(Message::Events { key, events }));
    bench.press("2");
    let before = bench.screen(120, 40);
    bench.press("Y");
    let after = bench.screen(120, 40);
    for at in 0..8 {
        let title = format!("─ own/m{at} ").replace("─ own/m0", "▸ own/m0");
        assert!(before.contains(&title), "{before}");
        assert!(after.contains(&title), "{after}");
    }
    assert!(after.contains("own/m0 log"), "{after}");
}

#[test]
fn escape_goes_back_one_level_at_a_time() {
    let mut bench = live(20);
    bench.press("e c + +");
    for said in ["", "", "", "nothing to go back from"] {
        bench.press("esc");
        let notice = bench.app.shared.notice.as_ref();
        assert!(notice.map_or("", |notice| &notice.text).starts_with(said));
    }
}

#[test]
fn the_layout_is_remembered_for_the_next_time() {
    let mut bench = live(20);
    bench.press("l p");
    assert!(
        bench
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::SaveState))
    );
    let kept = bench.app.shared.kept.clone();
    let mut shared = crate::tui::testing::shared();
    shared.kept = kept;
    let mut again = Bench::new(shared);
    again.open_run("/project/runs/20261129-100000-sample-ab120000", 20);
    again.press("2");
    let screen = again.screen(80, 24);
    assert!(screen.lines().nth(1).unwrap().contains("^ KL"), "{screen}");
}

#[test]
fn every_key_in_every_state_draws_without_a_panic() {
    for make in STATES {
        do_everything(PageId::Live, make);
    }
    do_everything(PageId::Live, marked);
}

#[test]
fn the_crosshair_on_a_mark_says_who_did_what() {
    let mut bench = marked();
    let below = |bench: &mut Bench| {
        let screen = bench.screen(120, 40);
        screen.lines().rev().nth(1).unwrap().trim().to_owned()
    };
    // From the last step, 20, back to step 14 of the guard, and on to step 4.
    bench.press("c h h h h h h");
    assert_eq!(
        below(&mut bench),
        "g 0:28 kl tripped after step 14: actor/ppo_kl is 0.03, above 0.02"
    );
    bench.press("h h h h h h h h h h");
    assert_eq!(below(&mut bench), "k 0:28 ana: checkpoint, after step 4");
    bench.press("l");
    assert!(
        below(&mut bench).contains("k changed by hand"),
        "step 5 has no mark"
    );
}

#[test]
fn runs_over_one_another_are_named_once_and_stay_told_apart_without_colour() {
    for plain in [false, true] {
        let mut bench = live(40);
        bench.app.shared.marked = vec![bench.app.shared.current.clone().unwrap()];
        bench.open_run("/project/runs/20261129-110000-other-cd340000", 25);
        if plain {
            bench.make_plain();
        }
        let (a, b) = if plain { ("+", "*") } else { ("━", "━") };
        let screen = bench.screen(80, 24);
        let names = screen.lines().nth(1).unwrap();
        assert_eq!(
            names.trim_end(),
            format!(" {a} 20261129-110000-other-cd340000  {b} 20261129-100000-sample-ab120000")
        );
        // Train and test of a run share its colour, and are told apart by their lines.
        bench.press("e");
        let expanded = bench.screen(80, 24);
        let title = expanded.lines().nth(2).unwrap();
        let samples = if plain { ["+", "o"] } else { ["━", "╍╍"] };
        for (sample, name) in samples.into_iter().zip(["test", "train"]) {
            assert!(title.contains(&format!("{sample} {name} ")), "{title}");
        }
    }
}

#[test]
fn a_title_without_room_says_how_many_curves_it_leaves_out() {
    let mut bench = live(40);
    bench.press("e");
    let title = |bench: &mut Bench, columns| {
        let screen = bench.screen(columns, 9);
        screen.lines().nth(1).unwrap().to_owned()
    };
    let wide = title(&mut bench, 80);
    assert!(wide.contains("train") && !wide.contains('+'), "{wide}");
    let narrow = title(&mut bench, 30);
    assert!(
        narrow.contains("+1") && !narrow.contains("train"),
        "{narrow}"
    );
}

#[test]
fn the_footer_says_which_panels_are_on_screen_while_there_are_more() {
    let mut bench = live(40);
    let footer = |bench: &mut Bench, columns, rows| {
        let screen = bench.screen(columns, rows);
        screen.lines().last().unwrap().to_owned()
    };
    assert!(footer(&mut bench, 100, 24).contains("panels 1-6 of 19"));
    bench.press("G");
    assert!(footer(&mut bench, 100, 24).contains("-19 of 19"));
    bench.press("e");
    assert!(footer(&mut bench, 100, 24).contains("panel 19 of 19"));
}

#[test]
fn the_weight_sync_panel_has_its_percentiles_and_what_is_not_proven_first() {
    let mut bench = live(40);
    for (columns, rows, note) in [
        (80, 24, "p50-max 2e-3/2e-3/2e-3 3.07/3.99/3.99"),
        (120, 40, "p50/95/max 0.002/0.002/0.002 3.07/3.99/3.99"),
        (200, 60, "p50/95/max 0.002/0.002/0.002 3.07/3.99/3.99"),
    ] {
        let screen = bench.screen(columns, rows);
        assert!(screen.contains(note), "{screen}");
    }
    bench.press("l l l e");
    let whole = "blocked p50 0.002 p95 0.002 max 0.002; transfer p50 3.07 p95 3.99 max 3.99 ms; 40 verified";
    let screen = bench.screen(120, 40);
    assert!(screen.contains(whole), "{screen}");
    let key = bench.app.shared.current.clone().unwrap();
    let run = bench.app.shared.open.get_mut(&key).unwrap();
    run.state.syncs.last_mut().unwrap().is_verified = false;
    let screen = bench.screen(160, 60);
    assert!(screen.contains("1 NOT verified"), "{screen}");
}

#[test]
fn a_dead_run_with_curves_says_why_below_them() {
    let mut bench = live(40);
    let key = bench.app.shared.current.clone().unwrap();
    let run = bench.app.shared.open.get_mut(&key).unwrap();
    let ended = run.state.ended.as_mut().unwrap();
    ended.status = runlog::event::RunStatus::Failed;
    ended.reason = "CUDA ran out of memory".to_owned();
    let screen = bench.screen(80, 24);
    assert!(
        screen.contains("failed: CUDA ran out of memory"),
        "{screen}"
    );
}

#[test]
fn the_crosshair_stays_in_view_when_the_view_is_moved() {
    let mut bench = live(40);
    bench.screen(120, 40);
    bench.press("c + +");
    let before = bench.app.shared.step;
    for _ in 0..3 {
        bench.press(",");
    }
    assert!(
        bench.app.shared.step < before,
        "{:?}",
        bench.app.shared.step
    );
}

#[test]
fn an_expanded_panel_reads_every_curve_at_the_crosshair() {
    let mut bench = live(40);
    // Utilisation: a GPU, the host and the process.
    bench.press("l l e c");
    let screen = bench.screen(60, 24);
    for name in ["gpu/0", "cpu_percent", "process_cpu_percent"] {
        assert!(screen.contains(name), "{screen}");
    }
    assert!(!screen.lines().nth(1).unwrap().contains('+'), "{screen}");
}

#[test]
fn the_crosshair_goes_from_step_to_step_where_a_step_has_several_samples() {
    let mut bench = live(5);
    let key = bench.app.shared.current.clone().unwrap();
    let first = bench.app.shared.current_run().unwrap().state.events;
    let sampled = |at: u64| Event {
        seq: first + at,
        elapsed_ms: 12_000.0 + at as f64,
        kind: EventKind::HostSampled {
            cpu_percent: 50.0,
            memory_used_bytes: 1,
            memory_total_bytes: 2,
            process_memory_bytes: 1,
            process_cpu_percent: 100.0,
            gpus: Vec::new(),
        },
    };
    let events = (0..4).map(sampled).collect();
    bench.act(Action::Message(Message::Events { key, events }));
    bench.press("l l c");
    let newest = bench.app.shared.step.unwrap();
    bench.press("h");
    assert_eq!(bench.app.shared.step, Some(newest - 1));
    bench.press("l");
    assert_eq!(bench.app.shared.step, Some(newest));
}

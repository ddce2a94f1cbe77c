//! The dashboard on screens in memory, and what its keys do.

use crate::tui::action::{Action, Effect, Message};
use crate::tui::bindings::{self, Context};
use crate::tui::pages::PageId;
use crate::tui::shared::Problem;
use crate::tui::testing::Bench;

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
    let empty = Bench::default;
    let no_events = || live(0);
    let finished = || live(30);
    let broken = || {
        let mut bench = live(30);
        let key = bench.app.shared.current.clone().unwrap();
        bench.act(Action::Message(Message::RunBroken {
            key,
            problem: Problem::new("gone", "deleted", ""),
        }));
        bench
    };
    let states: [&dyn Fn() -> Bench; 4] = [&empty, &no_events, &finished, &broken];
    for make in states {
        for binding in bindings::all() {
            if !matches!(
                binding.context,
                Context::Global | Context::Page(PageId::Live)
            ) {
                continue;
            }
            let mut bench = make();
            bench.press("2");
            for _ in 0..3 {
                bench.act(Action::Command(binding.command));
                bench.screen(80, 24);
            }
            bench.press("esc esc");
            bench.screen(40, 10);
        }
    }
}

use std::path::Path;

use runlog::metrics::Direction;
use runlog::number::Number;
use runlog::{Event, EventKind, RunState};

use super::table::{better, numbers_of};
use super::*;
use crate::tui::action::{Action, Message as AppMessage};
use crate::tui::testing::{Bench, STATES, do_everything, sample_events};

const PATHS: [&str; 3] = [
    "/project/runs/20261129-100000-sample-ab120000",
    "/project/runs/20261129-110000-sample-cd340000",
    "/project/runs/20261129-120000-sample-ef560000",
];

/// The sample run with its rewards scaled, so that runs differ.
fn state(steps: u64, factor: f64) -> RunState {
    let events: Vec<Event> = sample_events(steps)
        .into_iter()
        .map(|mut event| {
            if let EventKind::StepEnded { values, .. } = &mut event.kind {
                for name in ["critic/score/mean", "actor/grad_norm"] {
                    if let Some(value) = values.get_mut(name) {
                        *value = Number(value.0 * factor);
                    }
                }
            }
            event
        })
        .collect();
    RunState::fold(&events)
}

/// The page on `count` runs, the first of which is the current one; their experiments differ in two keys.
fn bench(count: usize) -> Bench {
    let mut bench = Bench::default();
    let keys: Vec<RunKey> = PATHS[..count]
        .iter()
        .map(|path| RunKey::new(Path::new(path)))
        .collect();
    if let Some(first) = keys.first() {
        bench.app.shared.marked = keys.clone();
        let effects = bench.app.show_run(first.clone());
        bench.effects.extend(effects);
    }
    for (index, key) in keys.iter().enumerate() {
        let state = Box::new(state(30 - 5 * index as u64, 1.0 - 0.1 * index as f64));
        bench.act(Action::Message(AppMessage::RunOpened {
            key: key.clone(),
            state,
        }));
        bench.act(Action::Message(AppMessage::CaughtUp { key: key.clone() }));
    }
    bench.press("7");
    let found = keys
        .iter()
        .enumerate()
        .map(|(index, key)| {
            let yaml = format!(
                "trainer:\n  experiment_name: sample\n  seed: {index}\nactor_rollout_ref:\n  actor:\n    optim:\n      lr: {}e-4\n",
                index + 1
            );
            (key.clone(), Ok(config::resolved(&yaml)))
        })
        .collect();
    bench.act(Action::Message(AppMessage::Page(PageMessage::Compare(
        Message::Configs(found),
    ))));
    bench.effects.clear();
    bench
}

fn page(bench: &Bench) -> &Compare {
    &bench.app.pages.compare
}

#[test]
fn runs_stand_side_by_side_at_each_size() {
    let mut bench = bench(2);
    bench.press("tab j j j j");
    insta::assert_snapshot!("compare_80x24", bench.screen(80, 24));
    insta::assert_snapshot!("compare_40x10", bench.screen(40, 10));
    bench.make_plain();
    insta::assert_snapshot!("compare_80x24_plain", bench.screen(80, 24));
    let mut bench = self::bench(3);
    insta::assert_snapshot!("compare_120x40", bench.screen(120, 40));
    bench.press("tab l b %");
    insta::assert_snapshot!("compare_120x40_per_cent", bench.screen(120, 40));
    bench.press("e");
    insta::assert_snapshot!("compare_80x24_curves", bench.screen(80, 24));
}

#[test]
fn without_runs_it_says_how_to_mark_some() {
    let mut bench = Bench::default();
    bench.press("7");
    insta::assert_snapshot!("compare_none", bench.screen(80, 24));
    let mut bench = self::bench(1);
    assert!(bench.screen(80, 24).contains("mark more runs"));
}

#[test]
fn only_keys_that_differ_are_listed_until_all_are_asked_for() {
    let mut bench = bench(2);
    let keys = |bench: &Bench| -> Vec<String> {
        page(bench)
            .table
            .rows
            .iter()
            .filter_map(|row| match row {
                Row::Key { name, .. } => Some(name.clone()),
                _ => None,
            })
            .collect()
    };
    let mut found = keys(&bench);
    found.sort_unstable();
    assert_eq!(found, ["actor_rollout_ref.actor.optim.lr", "trainer.seed"]);
    bench.press("a");
    assert_eq!(keys(&bench).len(), experiment::keys::live().len());
}

#[test]
fn a_default_written_out_is_no_difference() {
    let written = config::resolved("trainer:\n  seed: 1\n");
    let key = experiment::keys::find("trainer.seed").unwrap();
    let default = config::resolved(&format!("trainer:\n  seed: {}\n", key.default));
    assert_ne!(written, default);
    assert_eq!(default, config::resolved("trainer: {}\n"));
}

#[test]
fn another_trackers_settings_are_compared_as_its_own_and_lathes_defaults_are_not_its() {
    let one = config::foreign("lr: 1e-4\nmodel:\n  name: a\ndata:\n  seed: 3\n");
    let names: Vec<&str> = one.others.keys().map(String::as_str).collect();
    assert_eq!(names, ["lr", "model.name"]);
    assert_eq!(one.others["model.name"], "a");
    let keys = experiment::keys::live();
    let said: Vec<&str> = (keys.iter().zip(&one.values))
        .filter(|(_, value)| value.is_some())
        .map(|(key, _)| key.path.as_str())
        .collect();
    assert_eq!(said, ["data.seed"]);

    let mut bench = bench(2);
    let shown: Vec<RunKey> = page(&bench)
        .table
        .runs
        .iter()
        .map(|run| run.key.clone())
        .collect();
    let other = config::foreign("lr: 2e-4\nmodel:\n  name: a\n");
    let found = shown.into_iter().zip([Ok(one), Ok(other)]).collect();
    bench.act(Action::Message(AppMessage::Page(PageMessage::Compare(
        Message::Configs(found),
    ))));
    let rows: Vec<(String, Vec<String>)> = (page(&bench).table.rows.iter())
        .filter_map(|row| match row {
            Row::Key { name, values, .. } => Some((name.clone(), values.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0].0, "lr");
}

#[test]
fn the_better_number_is_marked_as_the_metric_table_says() {
    let numbers = [Some(0.5), Some(0.9), None, Some(f64::NAN)];
    assert_eq!(
        better(&numbers, Direction::Higher),
        [false, true, false, false]
    );
    assert_eq!(
        better(&numbers, Direction::Lower),
        [true, false, false, false]
    );
    assert_eq!(better(&numbers, Direction::Neither), [false; 4]);
    assert_eq!(
        better(&[Some(1.0), Some(1.0)], Direction::Higher),
        [false, false],
        "nothing to beat"
    );
    assert_eq!(
        better(&[Some(1.0), None], Direction::Higher),
        [false, false],
        "nobody to beat"
    );
}

#[test]
fn last_best_and_mean_are_those_of_the_series() {
    let state = state(30, 1.0);
    let series = state.series.get("critic/score/mean").unwrap();
    let numbers = numbers_of(series, Direction::Higher, 10);
    let values = series.values();
    assert_eq!(numbers.last, values.last().copied());
    assert_eq!(numbers.best, values.iter().copied().reduce(f64::max));
    let mean = values[20..].iter().sum::<f64>() / 10.0;
    assert!((numbers.mean.unwrap() - mean).abs() < 1e-12);
    // The NaN of step 7 is left out of the mean and of the best.
    let kl = numbers_of(
        state.series.get("actor/ppo_kl").unwrap(),
        Direction::Lower,
        100,
    );
    assert!(kl.mean.unwrap().is_finite());
    assert!((kl.best.unwrap() - 2e-4).abs() < 1e-12);
}

#[test]
fn more_and_fewer_of_the_last_values_change_the_mean() {
    let mut bench = bench(2);
    let mean = |bench: &Bench| {
        page(bench).table.rows.iter().find_map(|row| match row {
            Row::Metric { name, numbers, .. } if name == "critic/score/mean" => numbers[0].mean,
            _ => None,
        })
    };
    let before = mean(&bench);
    bench.press("M M M M");
    assert_eq!(page(&bench).kept().last_count, 1);
    assert!(mean(&bench) > before, "the reward rises");
    bench.press("m m");
    assert_eq!(page(&bench).kept().last_count, 5);
}

#[test]
fn the_crosshair_reads_every_run_at_one_step_and_its_difference_to_the_baseline() {
    let mut bench = bench(2);
    bench.press("/");
    bench.type_text("score/mean");
    bench.press("enter c");
    // The first run has 30 steps, the other 25.
    assert_eq!(bench.app.shared.step, Some(30));
    let screen = bench.screen(120, 40);
    assert!(screen.contains("(step 25)"), "{screen}");
    bench.press("H h h");
    assert_eq!(bench.app.shared.step, Some(18));
    let at = |index: usize| {
        let run = &bench.app.shared.open[&RunKey::new(Path::new(PATHS[index]))];
        run.state.series.get("critic/score/mean").unwrap().value(17)
    };
    let difference = crate::tui::widgets::text::number(at(1) - at(0));
    let value = crate::tui::widgets::text::number(at(1));
    let screen = bench.screen(120, 40);
    assert!(
        screen.contains(&format!("{value} {difference}")),
        "{value} {difference}\n{screen}"
    );
    insta::assert_snapshot!("compare_120x40_crosshair", screen);
    bench.press("+ +");
    let zoom = page(&bench).view.zoom;
    assert!(
        zoom.is_some_and(|(x0, x1)| (x0..=x1).contains(&18.0)),
        "{zoom:?}"
    );
    assert!(bench.screen(80, 24).contains("zoomed"));
    bench.press("enter");
    assert_eq!(bench.app.page, PageId::Rollouts);
    assert_eq!(bench.app.shared.step, Some(18));
    bench.press("7 esc");
    assert_eq!(bench.app.shared.step, None);
    bench.press("esc");
    assert_eq!(page(&bench).view, Viewport::default());
}

#[test]
fn a_click_on_the_curves_puts_the_crosshair_there() {
    let mut bench = bench(2);
    bench.press("e");
    bench.screen(80, 24);
    let area = bench.app.shared.page_area();
    let plot = draw_chart::plot(page(&bench), &bench.app.shared, area);
    bench.act(Action::Mouse(MouseEvent {
        kind: MouseEventKind::Down(MouseButton::Left),
        column: plot.right() - 1,
        row: plot.y + 2,
        modifiers: crossterm::event::KeyModifiers::NONE,
    }));
    assert_eq!(bench.app.shared.step, Some(30));
}

#[test]
fn differences_are_to_the_baseline_that_was_chosen() {
    let mut bench = bench(2);
    bench.press("tab");
    bench.press("/");
    bench.type_text("score/mean");
    bench.press("enter b");
    assert_eq!(page(&bench).kept().against, Against::Difference);
    let screen = bench.screen(120, 40);
    assert!(screen.contains("(base)"), "{screen}");
    bench.press("%");
    let line = |screen: &str| {
        screen
            .lines()
            .find(|line| line.starts_with("> "))
            .unwrap()
            .to_owned()
    };
    let screen = bench.screen(120, 40);
    assert!(line(&screen).contains('%'), "{screen}");
    // The other run is the base now, and this one's numbers are its differences.
    bench.press("l b");
    let other = bench.screen(120, 40);
    assert_ne!(line(&screen), line(&other));
    bench.press("esc esc");
    assert_eq!(page(&bench).kept().against, Against::Value);
}

#[test]
fn eight_runs_are_reached_by_scrolling() {
    let mut bench = Bench::default();
    let keys: Vec<RunKey> = (0..8)
        .map(|i| {
            RunKey::new(Path::new(&format!(
                "/project/runs/20261129-100000-run-{i:08x}"
            )))
        })
        .collect();
    bench.app.shared.marked = keys.clone();
    let _ = bench.app.show_run(keys[0].clone());
    for key in keys {
        let state = Box::new(state(5, 1.0));
        bench.act(Action::Message(AppMessage::RunOpened { key, state }));
    }
    bench.press("7");
    assert!(bench.screen(80, 24).contains("6 more"));
    assert!(!bench.screen(80, 24).contains("00000007"));
    bench.press("l l l l l l l");
    assert!(bench.screen(80, 24).contains("00000007"));
    bench.press("h h h h h h h");
    assert!(bench.screen(80, 24).contains("00000000"));
}

#[test]
fn a_run_whose_experiment_cannot_be_read_is_named_and_compared_all_the_same() {
    let mut bench = bench(2);
    // Nothing lies there: the page asks again when it is shown.
    bench.app.pages.compare.configs.clear();
    bench.press("1 7");
    bench.run_jobs();
    let screen = bench.screen(100, 30);
    assert!(screen.contains("is not a run"), "{screen}");
    assert!(screen.contains("score/mean"), "{screen}");
}

#[test]
fn the_selected_row_stays_when_the_data_changes() {
    let mut bench = bench(2);
    bench.press("/");
    bench.type_text("grad_norm");
    bench.press("enter");
    assert_eq!(page(&bench).metric(), Some("actor/grad_norm"));
    bench.press("a");
    assert_eq!(page(&bench).metric(), Some("actor/grad_norm"));
    let key = page(&bench).table.runs[1].key.clone();
    bench.act(Action::Message(AppMessage::RunOpened {
        key,
        state: Box::new(state(12, 2.0)),
    }));
    assert_eq!(page(&bench).metric(), Some("actor/grad_norm"));
}

#[test]
fn the_table_is_copied_with_all_its_digits() {
    let bench = bench(2);
    let (text, what) = page(&bench).copied(&bench.app.shared).unwrap();
    assert_eq!(what, "the table of 2 runs");
    assert!(
        text.lines().all(|line| line.split('\t').count() == 3),
        "{text}"
    );
    assert!(text.contains("critic/score/mean best\t0.9"), "{text}");
}

#[test]
fn every_key_in_every_state_does_no_harm() {
    for make in STATES {
        do_everything(PageId::Compare, make);
    }
    do_everything(PageId::Compare, || bench(2));
    do_everything(PageId::Compare, || bench(3));
}

#[test]
fn the_baseline_is_the_run_that_was_marked_first_and_not_the_current_one_beside_it() {
    let mut bench = bench(3);
    let marked: Vec<_> = bench.app.shared.marked.clone();
    assert!(marked.len() >= 2);
    bench.app.shared.current = Some(marked[1].clone());
    let key = marked[1].clone();
    bench.act(Action::Message(AppMessage::CaughtUp { key }));
    let page = page(&bench);
    let base = &page.table.runs[page.baseline_index()];
    assert_eq!(base.key, marked[0]);
}

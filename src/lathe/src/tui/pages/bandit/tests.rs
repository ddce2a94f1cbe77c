//! The page on screens in memory: runs of several policies, what is missing, and orders over a real socket.

use std::path::Path;

use crossterm::event::KeyModifiers;
use runlog::control::{Applied, Board, Job, Server, Status};
use runlog::event::BanditArm;
use runlog::number::{Number, Values};
use runlog::{Event, EventKind, RunState};

use super::*;
use crate::tui::action::{Action, Global, Message as AppMessage};
use crate::tui::pages::PageId;
use crate::tui::testing::{Bench, STATES, do_everything, do_everything_in_turn};

const RUN: &str = "/project/runs/20261129-100000-arms-ab120000";
const NAMES: [&str; 3] = ["rule", "judge", "length"];

/// What the arms are really worth; the bandit ends on the first.
const WORTH: [f64; 3] = [0.7, 0.5, 0.35];

fn started(steps: u64) -> EventKind {
    EventKind::RunStarted {
        experiment_name: "arms".to_owned(),
        mode: "sync".to_owned(),
        total_steps: steps,
        parameters: 800_000,
        pid: 4_000_000,
        host: "elsewhere".to_owned(),
        seed: 1,
    }
}

/// The events of a run of `steps` steps under a policy: a choice, a step and an update each; not ended.
fn events(policy: &str, steps: u64) -> Vec<Event> {
    let mut kinds = vec![started(80)];
    let mut pulls = [0_u64; 3];
    for step in 1..=steps {
        let chosen = match step {
            1..=3 => (step - 1) as usize,
            5 | 9 | 16 => 1,
            7 => 2,
            _ => 0,
        };
        pulls[chosen] += 1;
        let noise = |arm: usize| ((step * 7 + arm as u64 * 13) as f64 * 0.7).sin() * 0.1;
        let scores: Vec<Number> = (0..3)
            .map(|arm| {
                let score = WORTH[arm] + noise(arm) - if arm == chosen { 0.0 } else { 0.2 };
                Number(if policy == "ucb1" && step <= 3 {
                    f64::INFINITY
                } else {
                    score
                })
            })
            .collect();
        kinds.push(EventKind::BanditChose {
            pull: step - 1,
            step,
            uid: String::new(),
            sample: 0,
            arm: Some(NAMES[chosen].to_owned()),
            why: match policy {
                "ucb1" if step <= 3 => "first_round",
                "ucb1" | "linucb" => "bound",
                "epsilon_greedy" if chosen != 0 => "explored",
                "epsilon_greedy" => "best",
                _ => "sampled",
            }
            .to_owned(),
            propensity: (policy == "thompson").then_some(Number(0.2 + 0.5 * WORTH[chosen])),
            scores,
        });
        let mut values: Values = [
            ("bandit/probe/accuracy", 0.3 + 0.01 * step as f64),
            ("bandit/value", 0.02),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Number(value)))
        .collect();
        for (at, name) in NAMES.into_iter().chain(["exact"]).enumerate() {
            let score = 0.2 + 0.1 * at as f64;
            values.insert(format!("reward/arm/{name}/score/mean"), Number(score));
            for (rank, ms) in [("p50", 1.5), ("p99", 12.0)] {
                let metric = format!("reward/arm/{name}/latency_ms/{rank}");
                values.insert(metric, Number(ms * (at + 1) as f64));
            }
        }
        kinds.push(EventKind::StepEnded {
            step,
            policy_version: step,
            values,
        });
        let arms = (0..3)
            .map(|at| BanditArm {
                name: NAMES[at].to_owned(),
                counted: pulls[at],
                timed_out: u64::from(at == 1) * (step / 8),
                missing: u64::from(at == 2),
                mean: (pulls[at] > 0).then(|| Number(WORTH[at] + noise(at) * 0.3)),
                sd: (pulls[at] > 0).then(|| Number(0.3 / (pulls[at] as f64 + 1.0).sqrt())),
                chance: match policy {
                    "thompson" => Some(Number([0.88, 0.1, 0.02][at])),
                    "epsilon_greedy" => Some(Number([0.95, 0.03, 0.02][at])),
                    _ => None,
                },
                is_frozen: false,
                is_forced: false,
            })
            .collect();
        kinds.push(EventKind::BanditUpdated {
            update: step,
            step,
            policy: policy.to_owned(),
            arms,
            epsilon: (policy == "epsilon_greedy")
                .then_some(Number(0.2 * 0.99_f64.powf(step as f64))),
            regret: Some(Number((step as f64).ln_1p())),
            disagreement: Some(Number(0.3 + 0.1 * (step as f64 * 0.4).sin())),
        });
    }
    numbered(kinds)
}

fn numbered(kinds: Vec<EventKind>) -> Vec<Event> {
    kinds
        .into_iter()
        .enumerate()
        .map(|(seq, kind)| Event {
            seq: seq as u64,
            elapsed_ms: seq as f64 * 500.0,
            kind,
        })
        .collect()
}

/// On page Bandit, with a run that goes on.
fn bench_of(events: &[Event]) -> Bench {
    let mut bench = Bench::default();
    let key = bench.open_run(RUN, 0);
    bench.act(Action::Message(AppMessage::RunOpened {
        key: key.clone(),
        state: Box::new(RunState::fold(events)),
    }));
    bench.act(Action::Message(AppMessage::CaughtUp { key }));
    bench.press("9");
    bench.effects.clear();
    bench
}

fn thompson() -> Bench {
    bench_of(&events("thompson", 34))
}

fn control(command: &str, target: Option<&str>) -> EventKind {
    EventKind::ControlApplied {
        request: 1,
        who: "ana".to_owned(),
        command: command.to_owned(),
        step: 34,
        target: target.map(str::to_owned),
        before: Some("free".to_owned()),
        after: Some("forced".to_owned()),
        until_step: None,
        knob: None,
        from: None,
        to: None,
        from_step: Some(35),
    }
}

/// More events of the current run.
fn more(bench: &mut Bench, kinds: Vec<EventKind>) {
    let key = bench.app.shared.current.clone().unwrap();
    let events = numbered(kinds)
        .into_iter()
        .map(|event| Event {
            seq: event.seq + 1000,
            elapsed_ms: event.elapsed_ms + 60_000.0,
            kind: event.kind,
        })
        .collect();
    bench.act(Action::Message(AppMessage::Events { key, events }));
}

fn notice(bench: &Bench) -> &str {
    bench
        .app
        .shared
        .notice
        .as_ref()
        .map_or("", |notice| &notice.text)
}

#[test]
fn golden_screens() {
    let mut bench = thompson();
    insta::assert_snapshot!("thompson_80", bench.screen(80, 24));
    insta::assert_snapshot!("thompson_120", bench.screen(120, 40));
    insta::assert_snapshot!("thompson_200", bench.screen(200, 60));
    insta::assert_snapshot!("thompson_40", bench.screen(40, 10));
    bench.app.shared.theme = bench.app.shared.theme.without_color();
    insta::assert_snapshot!("thompson_mono_80", bench.screen(80, 24));
    bench.make_plain();
    insta::assert_snapshot!("thompson_ascii_120", bench.screen(120, 40));
    assert!(bench.screen(80, 24).is_ascii());
    insta::assert_snapshot!("ucb1_80", bench_of(&events("ucb1", 12)).screen(80, 24));
    let mut greedy = bench_of(&events("epsilon_greedy", 12));
    insta::assert_snapshot!("epsilon_greedy_120", greedy.screen(120, 30));
}

#[test]
fn an_arm_has_the_same_mark_in_its_row_its_choices_and_its_strip() {
    let mut bench = thompson();
    bench.make_plain();
    let screen = bench.screen(120, 40);
    let line = |start: &str| {
        let found = screen
            .lines()
            .find(|line| line.trim_start().starts_with(start));
        found
            .unwrap_or_else(|| panic!("no {start} in\n{screen}"))
            .to_owned()
    };
    for (mark, name) in ["*", "+", "o", "x"]
        .into_iter()
        .zip(["rule", "judge", "length", "exact"])
    {
        assert!(screen.contains(&format!("{mark} {name} ")), "{screen}");
    }
    assert!(
        line("latest").starts_with("latest *+o*+*o*+******+"),
        "{screen}"
    );
    assert!(line("step 34").contains("* rule"), "{screen}");
    assert!(line("x exact").contains("held out"), "{screen}");
}

#[test]
fn a_policy_that_does_not_draw_has_no_chances_and_one_that_explores_its_epsilon() {
    let screen = bench_of(&events("ucb1", 12)).screen(120, 40);
    let rule = screen.lines().find(|line| line.contains("* rule")).unwrap();
    assert!(!rule.contains("0.88") && rule.contains(" - "), "{screen}");
    assert!(
        screen.contains("the highest upper bound  bounds"),
        "{screen}"
    );
    let screen = bench_of(&events("epsilon_greedy", 12)).screen(120, 40);
    assert!(screen.contains("ε 0.177"), "{screen}");
    assert!(screen.contains("the highest mean"), "{screen}");
    let screen = bench_of(&events("linucb", 12)).screen(120, 40);
    assert!(screen.contains("linucb"), "{screen}");
}

#[test]
fn what_is_missing_is_said() {
    let screen = |events: &[Event]| bench_of(events).screen(100, 30);
    assert!(screen(&numbered(vec![started(5)])).contains("No arm was chosen yet"));
    let mut bench = Bench::with_run(3);
    bench.press("9");
    let none = bench.screen(100, 30);
    for said in ["This run has no bandit", "reward.bandit.policy: thompson"] {
        assert!(none.contains(said), "{none}");
    }
    assert!(bench.screen(40, 10).contains("This run has no bandit"));
    // The first choice, before anything was learned from.
    let first = screen(&events("thompson", 1)[..2]);
    assert!(first.contains("1 choice  no update yet"), "{first}");
    assert!(first.contains("* rule"), "{first}");
    let mut replay = Bench::with_run(5);
    let key = replay.app.shared.current.clone().unwrap();
    replay.app.start_replay(key, 0.0, 1.0);
    replay.press("9");
    let screen = replay.screen(100, 30);
    assert!(
        screen.contains("Reading the run") || screen.contains("up to this moment"),
        "{screen}"
    );
}

/// The experiment of the current run has these arms.
fn with_judges(bench: &mut Bench, policy: &str) {
    let arms = "{name: rule, scorer: numeric, weight: 0.5}, {name: judge, scorer: exact}, {name: length, scorer: length, weight: 2}, {name: exact, scorer: exact, weight: 0}";
    let yaml = format!("reward: {{arms: [{arms}]{policy}}}");
    let loaded = experiment::from_text("a.yaml", &yaml, &[]);
    let judges = Judges::of(&loaded.experiment.reward);
    assert!(judges.is_some(), "{yaml}");
    let run = bench.app.shared.current.clone().unwrap();
    let message = Message::Judges { run, judges };
    let message = AppMessage::Page(PageMessage::Bandit(message));
    bench.act(Action::Message(message));
}

/// The metrics of a run whose arms are summed.
fn summed(steps: u64) -> Vec<Event> {
    let kinds = events("thompson", steps)
        .into_iter()
        .map(|event| event.kind);
    let mut kinds: Vec<EventKind> = kinds
        .filter(|kind| {
            let is_bandit = |kind: &EventKind| {
                matches!(
                    kind,
                    EventKind::BanditChose { .. } | EventKind::BanditUpdated { .. }
                )
            };
            !is_bandit(kind)
        })
        .collect();
    for kind in &mut kinds {
        let EventKind::StepEnded { step, values, .. } = kind else {
            continue;
        };
        values.retain(|name, _| !name.starts_with("bandit/"));
        for (at, name) in NAMES.into_iter().enumerate() {
            let score = WORTH[at] + 0.05 * (*step as f64 * 0.5 + at as f64).sin();
            let metric = |what: &str| format!("reward/arm/{name}/{what}");
            values.insert(metric("score/mean"), Number(score));
            values.insert(metric("timed_out_frac"), Number(0.125 * at as f64));
            values.insert(metric("missing_frac"), Number(0.0));
        }
    }
    numbered(kinds)
}

#[test]
fn arms_that_are_summed_stand_with_their_weights_and_without_a_posterior() {
    let mut bench = bench_of(&summed(30));
    let unknown = bench.screen(120, 30);
    assert!(unknown.contains("how they count is not known"), "{unknown}");
    with_judges(&mut bench, "");
    insta::assert_snapshot!("sum_120", bench.screen(120, 30));
    insta::assert_snapshot!("sum_80", bench.screen(80, 24));
    bench.screen(40, 10);
    bench.press("f");
    assert!(notice(&bench).contains("summed") || notice(&bench).contains("not run"));
    bench.make_plain();
    insta::assert_snapshot!("sum_ascii_80", bench.screen(80, 24));
    let row = |bench: &mut Bench, name: &str| {
        let screen = bench.screen(120, 30);
        let line = screen.lines().find(|line| line.contains(name));
        line.unwrap_or_else(|| panic!("no {name} in\n{screen}"))
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut fixed = bench_of(&summed(3));
    with_judges(&mut fixed, ", bandit: {policy: fixed, fixed_arm: judge}");
    assert!(fixed.screen(120, 30).contains("fixed  4 arms"));
    assert!(row(&mut fixed, "+ judge").contains("counts 1 "));
    assert!(row(&mut fixed, "* rule").contains("held out 0 "));
    let mut ensemble = bench_of(&summed(3));
    with_judges(
        &mut ensemble,
        ", bandit: {policy: ensemble, weights: [0.1, 0.2, 0.3, 0.4]}",
    );
    assert!(ensemble.screen(120, 30).contains("ensemble  4 arms"));
    assert!(row(&mut ensemble, "o length").contains("counts 0.3 "));
    ensemble.press("1");
    let tabs = ensemble.screen(120, 30);
    assert!(tabs.lines().next().unwrap().contains("9Band"), "{tabs}");
}

#[test]
fn before_the_first_update_the_arms_stand_in_the_order_of_the_policy_with_its_name() {
    // The judge, the second of the arms, was chosen first.
    let mut kinds = vec![started(5)];
    let first = events("thompson", 2).into_iter().map(|event| event.kind);
    kinds.extend(first.filter(|kind| matches!(kind, EventKind::BanditChose { step: 2, .. })));
    let mut bench = bench_of(&numbered(kinds));
    let screen = bench.screen(100, 30);
    assert!(!screen.contains("thompson"), "not known yet:\n{screen}");
    with_judges(&mut bench, ", bandit: {policy: thompson}");
    let screen = bench.screen(100, 30);
    assert!(
        screen.contains("thompson  1 choice  no update yet"),
        "{screen}"
    );
    let places = ["* rule", "+ judge", "o length", "x exact"].map(|row| screen.find(row));
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{screen}"
    );
    // And before any choice.
    let mut bench = bench_of(&numbered(vec![started(5)]));
    with_judges(&mut bench, ", bandit: {policy: ucb1}");
    let screen = bench.screen(100, 30);
    assert!(
        screen.contains("ucb1  0 choices  no update yet"),
        "{screen}"
    );
    assert!(screen.contains("* rule   free"), "{screen}");
}

#[test]
fn equal_values_are_told_by_their_number_and_not_by_a_deviation_of_nothing() {
    let mut bench = thompson();
    let mut kinds: Vec<EventKind> = events("thompson", 1)
        .into_iter()
        .map(|event| event.kind)
        .filter(|kind| matches!(kind, EventKind::BanditUpdated { .. }))
        .collect();
    let EventKind::BanditUpdated { arms, .. } = &mut kinds[0] else {
        panic!("an update");
    };
    (arms[0].mean, arms[0].sd, arms[0].counted) = (Some(Number(1.0)), Some(Number(0.0)), 4);
    more(&mut bench, kinds);
    let screen = bench.screen(120, 30);
    assert!(screen.contains(" 1 (4 alike) "), "{screen}");
}

#[test]
fn a_page_that_a_run_has_no_use_for_has_no_tab() {
    let mut bench = Bench::with_run(3);
    let has_tab = |bench: &mut Bench| {
        let screen = bench.screen(120, 30);
        screen.lines().next().unwrap().contains("9Band")
    };
    bench.press("2");
    assert!(!has_tab(&mut bench));
    let next = |bench: &mut Bench| {
        bench.act(Action::Command(action::Command::Global(Global::NextPage)));
        bench.app.page
    };
    bench.press("8");
    assert_eq!(next(&mut bench), PageId::Runs, "it is passed over");
    bench.press("9");
    assert!(has_tab(&mut bench), "it can be asked for");
    let mut bench = thompson();
    bench.press("2");
    assert!(has_tab(&mut bench));
    let narrow = bench.screen(80, 24);
    assert!(narrow.lines().next().unwrap().contains("9Band"), "{narrow}");
}

#[test]
fn no_key_panics_wherever_something_is_missing() {
    for make in STATES {
        do_everything(PageId::Bandit, make);
    }
    do_everything(PageId::Bandit, thompson);
    let mut first = bench_of(&events("thompson", 1)[..2]);
    do_everything_in_turn(PageId::Bandit, &mut first);
    let mut bench = thompson();
    bench.app.shared.is_read_only = true;
    do_everything_in_turn(PageId::Bandit, &mut bench);
}

#[test]
fn numbers_that_are_none_and_many_arms_are_drawn() {
    let odd = |value: f64| BanditArm {
        name: format!("arm{value} \u{1b}[2J一二"),
        counted: 0,
        timed_out: 0,
        missing: 0,
        mean: Some(Number(value)),
        sd: Some(Number(value)),
        chance: Some(Number(value)),
        is_frozen: true,
        is_forced: true,
    };
    let values = [f64::NAN, f64::INFINITY, -1e300, 0.0, 1e-300];
    let mut arms: Vec<BanditArm> = values.into_iter().map(odd).collect();
    arms.extend((0..40).map(|at| odd(f64::from(at))));
    let mut bench = thompson();
    more(
        &mut bench,
        vec![EventKind::BanditUpdated {
            update: 35,
            step: 35,
            policy: "\u{7}".to_owned(),
            arms,
            epsilon: Some(Number(f64::NAN)),
            regret: Some(Number(f64::INFINITY)),
            disagreement: Some(Number(f64::NAN)),
        }],
    );
    for (columns, rows) in [(12, 3), (40, 10), (80, 24), (120, 40), (200, 60)] {
        for keys in ["G", "g g"] {
            bench.press(keys);
            let screen = bench.screen(columns, rows);
            assert!(!screen.contains('\u{1b}'), "{screen}");
        }
    }
}

#[test]
fn keys_and_the_mouse_choose_an_arm_and_a_key_asks_for_it() {
    let mut bench = thompson();
    let asked = |bench: &mut Bench, keys: &str| {
        // Page Launch asks how the run stands whenever it was changed.
        bench.effects.clear();
        bench.press(keys);
        let jobs = bench
            .effects
            .drain(..)
            .filter(|effect| matches!(effect, Effect::Job { name, .. } if name == "control run"))
            .count();
        (jobs, notice(bench).to_owned())
    };
    assert_eq!(
        asked(&mut bench, "f"),
        (1, "asked: arm force rule".to_owned())
    );
    assert_eq!(
        asked(&mut bench, "j z"),
        (1, "asked: arm freeze judge".to_owned())
    );
    // What is forced or frozen is let go.
    more(
        &mut bench,
        vec![
            control("arm_force", Some("judge")),
            control("arm_freeze", Some("judge")),
        ],
    );
    assert!(bench.screen(120, 40).contains("forced, frozen"));
    assert_eq!(asked(&mut bench, "f"), (1, "asked: arm release".to_owned()));
    assert_eq!(
        asked(&mut bench, "z"),
        (1, "asked: arm unfreeze judge".to_owned())
    );
    let (jobs, said) = asked(&mut bench, "G f");
    assert_eq!(
        (jobs, said.contains("exact is held out")),
        (0, true),
        "{said}"
    );
    let screen = bench.screen(120, 40);
    let row = screen
        .lines()
        .position(|line| line.contains("o length"))
        .unwrap();
    bench.act(Action::Mouse(MouseEvent {
        kind: MouseEventKind::Down(MouseButton::Left),
        column: 10,
        row: row as u16,
        modifiers: KeyModifiers::NONE,
    }));
    assert_eq!(
        asked(&mut bench, "z"),
        (1, "asked: arm freeze length".to_owned())
    );
    bench.app.shared.is_read_only = true;
    assert_eq!(asked(&mut bench, "f").0, 0);
    assert!(notice(&bench).contains("read-only"));
}

#[test]
fn a_run_that_does_not_run_says_why_it_takes_no_order() {
    let mut bench = thompson();
    more(
        &mut bench,
        vec![EventKind::RunEnded {
            status: runlog::event::RunStatus::Completed,
            exit_code: 0,
            reason: String::new(),
            steps: 34,
        }],
    );
    bench.press("f");
    assert!(notice(&bench).contains("has ended"), "{}", notice(&bench));
    assert!(bench.effects.is_empty());
}

#[test]
fn an_order_reaches_the_run_over_its_socket_and_its_answer_the_screen() {
    let folder = tempfile::tempdir().unwrap();
    let run_dir =
        runlog::RunDir::create(folder.path(), &runlog::run_dir::NewRun::default()).unwrap();
    let (send, jobs) = std::sync::mpsc::sync_channel::<Job>(3);
    let server = Server::start(&run_dir, Board::new(Status::default()), move |job| {
        send.try_send(job)
            .map(|()| "after this step".to_owned())
            .map_err(|_| unreachable!("three may wait"))
    })
    .unwrap();
    let trainer = std::thread::spawn(move || {
        let job = jobs.recv().unwrap();
        let command = job.command().clone();
        job.applied(Applied {
            step: 34,
            before: Some("free".to_owned()),
            after: Some("forced".to_owned()),
            ..Applied::default()
        });
        jobs.recv()
            .unwrap()
            .refused("no arm is called `rule`; there are a, b");
        command
    });
    let mut bench = Bench::default();
    let key = RunKey::new(Path::new(run_dir.path()));
    bench.app.show_run(key.clone());
    bench.act(Action::Message(AppMessage::RunOpened {
        key: key.clone(),
        state: Box::new(RunState::fold(&events("thompson", 34))),
    }));
    bench.act(Action::Message(AppMessage::CaughtUp { key }));
    bench.press("9 f");
    bench.run_jobs();
    assert_eq!(notice(&bench), "arm force rule: free before, forced now");
    bench.press("f");
    bench.run_jobs();
    assert!(
        notice(&bench).contains("there are a, b"),
        "{}",
        notice(&bench)
    );
    let asked = trainer.join().unwrap();
    assert_eq!(asked, Asked::arm("force", Some("rule")).unwrap());
    drop(server);
}

#[test]
fn the_copied_table_has_a_line_a_row() {
    let bench = thompson();
    let (text, what) = bench.app.pages.bandit.copied(&bench.app.shared).unwrap();
    assert_eq!(what, "what is believed of 4 arms");
    let columns: Vec<usize> = text.lines().map(|line| line.split('\t').count()).collect();
    assert_eq!(columns, [13; 5], "{text}");
}

#[test]
fn the_summary_and_the_report_say_what_the_page_says() {
    use crate::export::{self, Extras, Format, Options};
    use crate::headless::summary::{self, Standing};
    use crate::terminal::{Role, Terminal};

    let state = RunState::fold(&events("thompson", 34));
    let standing = Standing {
        word: "running".to_owned(),
        role: Role::Strong,
        reason: None,
    };
    let terminal = Terminal {
        to_screen: false,
        errors_to_screen: false,
        unicode: false,
        color: false,
        color_stderr: false,
        plain: true,
    };
    let lines = summary::lines(
        &state,
        Path::new("/runs/arms"),
        &standing,
        0,
        None,
        terminal,
    )
    .join("\n");
    for said in [
        "bandit         thompson, 34 choices, 34 updates, estimated regret 3.56",
        "    rule    free  0.697 +- 0.0557  28 pulls  chance 0.880",
        "chance 0.100   4 timed out",
        "    exact  held out, scores 0.500",
    ] {
        assert!(lines.contains(said), "{said}\n{lines}");
    }
    let folder = tempfile::tempdir().unwrap();
    let run = runlog::RunDir::create(folder.path(), &runlog::run_dir::NewRun::default()).unwrap();
    let extras = Extras::read(&run, &state, 0, std::time::SystemTime::now());
    let options = Options {
        metrics: Vec::new(),
        axis: runlog::series::XAxis::Step,
        smoothing: 0.0,
        theme: crate::tui::testing::shared().theme,
        width: 800,
        beside: Vec::new(),
    };
    let html = |state: &RunState| {
        let mut page = Vec::new();
        export::export(&run, state, &extras, Format::Html, &options, &mut page).unwrap();
        String::from_utf8(page).unwrap()
    };
    let page = html(&state);
    for said in [
        "<h2>Bandit</h2>",
        "<td>rule</td><td>free</td><td class=\"number\">28</td><td class=\"number\">0.697</td>",
        "<td>exact</td><td>held out</td>",
    ] {
        assert!(page.contains(said), "{said}");
    }
    assert!(!html(&RunState::default()).contains("Bandit"));
    let summed = html(&RunState::fold(&summed(30)));
    for said in [
        "<h2>Arms</h2>",
        "<td>judge</td><td class=\"number\"></td><td class=\"number\">0.486</td>",
        "<td class=\"number\">12 %</td><td class=\"number\">0 %</td>",
    ] {
        assert!(summed.contains(said), "{said}\n{summed}");
    }
    assert!(!html(&RunState::default()).contains("Arms"));
}

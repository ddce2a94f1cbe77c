use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;
use runlog::notes::Notes;
use runlog::number::{Number, Values};
use runlog::run_dir::{RunDir, RunInfo};
use runlog::state::{Glance, Liveness};

use super::*;
use crate::tui::action::{Action, Message as AppMessage};
use crate::tui::shared::{RunList, Unlisted};
use crate::tui::testing::{Bench, NOW, STATES, do_everything, sample_run_in};

fn info(name: &str, started_s_ago: i64) -> RunInfo {
    let (_, rest) = name.split_at(16);
    let (experiment, id) = rest.rsplit_once('-').unwrap();
    let started = Timestamp::from_second(NOW - started_s_ago).unwrap();
    serde_json::from_value(serde_json::json!({
        "format_version": 1, "id": id, "name": name, "experiment_name": experiment,
        "started_at": started.to_string(), "host": "gpu1",
    }))
    .unwrap()
}

fn entry(name: &str, started_s_ago: i64, liveness: Liveness, step: u64, reward: f64) -> RunEntry {
    let last: Values = [
        ("val-core/lathe/calc/reward/mean@1", reward),
        ("critic/score/mean", reward - 0.02),
        ("actor/ppo_kl", 0.001 * step as f64),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), Number(value)))
    .collect();
    RunEntry {
        key: RunKey::new(&Path::new("/project/runs").join(name)),
        info: info(name, started_s_ago),
        glance: Some(Glance {
            is_paused: false,
            mode: "one_step_off".to_owned(),
            total_steps: 80,
            step,
            elapsed_ms: step as f64 * 2000.0,
            end: None,
            liveness,
            last,
        }),
        notes: Notes::default(),
        problem: None,
        is_replayed: false,
        mirror: None,
        trouble: None,
    }
}

/// Six runs in every state, two with notes, and a directory that cannot be read.
fn list() -> RunList {
    let failed = |reason: &str| Liveness::Failed {
        reason: reason.to_owned(),
    };
    let mut entries = vec![
        entry(
            "20261130-105500-quickstart-ab120000",
            90,
            Liveness::Running,
            41,
            0.71,
        ),
        entry(
            "20261130-101500-quickstart-cd340000",
            2_700,
            Liveness::Finished,
            80,
            0.94,
        ),
        entry(
            "20261130-091500-sort-ef560000",
            6_300,
            Liveness::Finished,
            80,
            0.55,
        ),
        entry(
            "20261129-230000-guess-0a0b0000",
            43_000,
            Liveness::Stopped,
            12,
            0.41,
        ),
        entry(
            "20261129-200000-quickstart-99880000",
            54_000,
            failed("the loss of step 17 is NaN"),
            17,
            f64::NAN,
        ),
        entry(
            "20261128-200000-gsm8k-77660000",
            140_000,
            Liveness::PresumedDead {
                reason: "process 4242 is gone and left no end event".to_owned(),
            },
            63,
            0.3,
        ),
    ];
    entries[1].notes.note = "the one in the README".to_owned();
    entries[1].notes.add_tag("paper").unwrap();
    entries[2].notes.add_tag("paper").unwrap();
    RunList {
        entries,
        unlisted: vec![Unlisted::Run(
            "/project/runs/broken: run.json cannot be read: EOF while parsing".to_owned(),
        )],
        problem: None,
        is_read: true,
        version: 0,
    }
}

fn bench_of(list: RunList) -> Bench {
    let mut bench = Bench::default();
    bench.act(Action::Message(AppMessage::RunsListed(list)));
    bench
}

fn bench() -> Bench {
    let mut bench = bench_of(list());
    // As if every log had been read.
    let runs = &mut bench.app.pages.runs;
    let details: Vec<(RunKey, Detail)> = bench
        .app
        .shared
        .runs
        .entries
        .iter()
        .map(|entry| {
            let glance = entry.glance.as_ref().unwrap();
            let metrics = glance
                .last
                .iter()
                .map(|(name, value)| {
                    let detail = details::MetricDetail {
                        first: 0.1,
                        last: value.0,
                        extremes: Some((0.1, 0.96)),
                        newest: vec![0.2, 0.4],
                    };
                    (name.clone(), detail)
                })
                .collect();
            let detail = Detail {
                step: glance.step,
                has_ended: glance.liveness != Liveness::Running,
                metrics,
                summary: vec![
                    format!(
                        "{}  {}  {} of 80 steps",
                        entry.info.experiment_name,
                        entry.state_word(),
                        glance.step
                    ),
                    String::new(),
                    "  val reward      0.100 → 0.940     ▁▂▄▆█".to_owned(),
                ],
                problem: None,
            };
            (entry.key.clone(), detail)
        })
        .collect();
    runs.details.take(1, details);
    runs.rebuild(&bench.app.shared);
    bench.effects.clear();
    bench
}

fn names(bench: &Bench) -> Vec<String> {
    let entries = &bench.app.shared.runs.entries;
    bench
        .app
        .pages
        .runs
        .order
        .iter()
        .map(|index| entries[*index].info.experiment_name.clone())
        .collect()
}

fn selected(bench: &Bench) -> Option<String> {
    bench
        .app
        .pages
        .runs
        .selected_entry(&bench.app.shared)
        .map(|entry| entry.info.id.clone())
}

#[test]
fn the_table_at_each_size() {
    let mut bench = bench();
    bench.press("j space");
    insta::assert_snapshot!("runs_80x24", bench.screen(80, 24));
    insta::assert_snapshot!("runs_120x40", bench.screen(120, 40));
    insta::assert_snapshot!("runs_200x50", bench.screen(200, 50));
    insta::assert_snapshot!("runs_40x10", bench.screen(40, 10));
    bench.make_plain();
    insta::assert_snapshot!("runs_80x24_plain", bench.screen(80, 24));
}

#[test]
fn what_stands_over_the_table() {
    let mut bench = bench();
    bench.press("/");
    bench.type_text("qui kl>");
    insta::assert_snapshot!("runs_filter_wrong", bench.screen(80, 24));
    bench.press("ctrl-u");
    bench.type_text("tag:paper qst");
    insta::assert_snapshot!("runs_filter", bench.screen(80, 24));
    bench.press("esc o");
    insta::assert_snapshot!("runs_sort", bench.screen(80, 24));
    bench.press("esc m");
    bench.type_text("kl");
    insta::assert_snapshot!("runs_metrics", bench.screen(80, 24));
    bench.press("esc G k k k d");
    insta::assert_snapshot!("runs_delete", bench.screen(80, 24));
}

#[test]
fn without_runs_it_says_how_to_start_one() {
    let mut bench = Bench::default();
    insta::assert_snapshot!("runs_none", bench.screen(80, 24));
    let mut bench = bench_of(RunList::default());
    assert!(bench.screen(80, 24).contains("Looking for runs"));
    let problem = RunList {
        is_read: true,
        problem: Some("cannot list /project/runs: permission denied".to_owned()),
        ..RunList::default()
    };
    let mut bench = bench_of(problem);
    assert!(bench.screen(80, 24).contains("permission denied"));
}

#[test]
fn each_letter_filters_at_once_and_esc_shows_all_again() {
    let mut bench = bench();
    bench.press("/");
    bench.type_text("state:run");
    assert_eq!(names(&bench), ["quickstart"]);
    bench.press("ctrl-u");
    bench.type_text("reward>0.5 -state:running");
    assert_eq!(names(&bench), ["quickstart", "sort"]);
    // Half typed it is no filter: the terms before are.
    bench.type_text(" kl>");
    assert_eq!(names(&bench), ["quickstart", "sort"]);
    assert!(bench.screen(80, 24).contains("nothing stands after `>`"));
    bench.press("esc");
    assert_eq!(names(&bench).len(), 6);
}

#[test]
fn a_filter_that_asks_for_what_no_run_has_says_so() {
    let mut bench = bench();
    bench.press("/");
    bench.type_text("klx>1");
    assert!(bench.screen(80, 24).contains("no run has a metric `klx`"));
    bench.press("enter");
    assert!(!bench.app.pages.runs.is_typing());
    assert!(bench.screen(80, 24).contains("No run of 6 fits the filter"));
}

#[test]
fn every_column_sorts_and_what_is_missing_comes_last_both_ways() {
    let mut bench = bench();
    let columns = SortMenu::new(&bench.app.pages.runs.kept());
    let letters = "asdfgqwertyuiopzxcvbnm";
    assert!(format!("{columns:?}").contains("Best"));
    // `w`: the newest reward, better ones first; the failed run's is NaN.
    let reward = letters.find('w').map(|_| "w").unwrap();
    bench.press(&format!("o {reward}"));
    assert_eq!(
        names(&bench),
        [
            "quickstart",
            "quickstart",
            "sort",
            "guess",
            "gsm8k",
            "quickstart"
        ]
    );
    bench.press("O");
    assert_eq!(
        names(&bench),
        [
            "gsm8k",
            "guess",
            "sort",
            "quickstart",
            "quickstart",
            "quickstart"
        ]
    );
    for letter in letters.chars().filter(|letter| !"jk".contains(*letter)) {
        bench.press(&format!("o {letter}"));
        bench.press("esc");
        assert_eq!(names(&bench).len(), 6, "{letter}");
    }
    bench.press("o s");
    let mut sorted = names(&bench);
    sorted.sort_unstable();
    assert_eq!(names(&bench).len(), sorted.len());
}

#[test]
fn the_order_and_the_columns_are_remembered() {
    let mut bench = bench();
    bench.press("o f m");
    bench.type_text("entropy");
    bench.press("enter esc");
    let kept: Kept = bench.app.shared.kept.get(KEPT).unwrap();
    assert_eq!(kept.sort, Column::Progress);
    assert_eq!(kept.metrics, ["reward", "score", "kl", "entropy"]);
    assert!(
        bench
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::SaveState))
    );
    let mut other = Bench::default();
    other.app.shared.kept = bench.app.shared.kept.clone();
    other.act(Action::Message(AppMessage::RunsListed(list())));
    assert_eq!(other.app.pages.runs.kept(), kept);
}

#[test]
fn the_selection_stays_with_its_run_when_the_list_changes() {
    let mut bench = bench();
    bench.press("j j");
    assert_eq!(selected(&bench).as_deref(), Some("ef560000"));
    let mut newer = list();
    newer.entries.insert(
        0,
        entry("20261130-110000-new-11110000", 5, Liveness::Running, 1, 0.0),
    );
    bench.act(Action::Message(AppMessage::RunsListed(newer.clone())));
    assert_eq!(selected(&bench).as_deref(), Some("ef560000"));
    // It is gone: the run in its place.
    newer.entries.retain(|entry| entry.info.id != "ef560000");
    bench.act(Action::Message(AppMessage::RunsListed(newer)));
    assert!(selected(&bench).is_some());
}

#[test]
fn enter_shows_the_run_on_page_live() {
    let mut bench = bench();
    bench.press("j enter");
    assert_eq!(bench.app.page, PageId::Live);
    let current = bench.app.shared.current.clone().unwrap();
    assert!(current.name().ends_with("cd340000"));
    assert!(
        bench
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::OpenRun(key) if *key == current))
    );
}

#[test]
fn marks_open_runs_up_to_as_many_as_have_colors() {
    let mut many = RunList {
        is_read: true,
        ..RunList::default()
    };
    for i in 0..12 {
        many.entries.push(entry(
            &format!("20261130-100000-run-{i:08x}"),
            i64::from(i),
            Liveness::Finished,
            80,
            0.5,
        ));
    }
    let mut bench = bench_of(many);
    bench.press("M");
    assert_eq!(bench.app.shared.marked.len(), 12);
    assert_eq!(bench.app.shared.open.len(), crate::tui::shared::MOST_OPEN);
    bench.press("u");
    assert!(bench.app.shared.open.is_empty() && bench.app.shared.marked.is_empty());
}

/// The list of a real directory with two finished runs.
fn on_disk() -> (tempfile::TempDir, Bench) {
    let root = tempfile::tempdir().unwrap();
    for steps in [5, 30] {
        sample_run_in(root.path(), steps);
    }
    let list = crate::tui::sources::list_now(&[root.path().to_owned()]);
    let mut bench = bench_of(list);
    bench.run_jobs();
    (root, bench)
}

fn directories(root: &Path) -> BTreeSet<String> {
    std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_run_is_deleted_only_after_the_other_key() {
    let (root, mut bench) = on_disk();
    let before = directories(root.path());
    for keys in ["d d", "d enter", "d esc", "d y", "d j"] {
        bench.press(keys);
        bench.press("esc");
        bench.run_jobs();
        assert_eq!(directories(root.path()), before, "{keys}");
    }
    let name = bench.app.pages.runs.selected.clone().unwrap().name();
    bench.press("d");
    let asked = bench.screen(100, 30);
    assert!(
        asked.contains(&name) && asked.contains("x delete it"),
        "{asked}"
    );
    bench.press("x");
    let effects = bench.run_jobs();
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::RefreshRuns))
    );
    let left = directories(root.path());
    assert_eq!(left.len(), 1);
    assert!(
        !left.contains(&name),
        "nothing of it is left, under no name: {left:?}"
    );
    assert_eq!(bench.app.shared.runs.entries.len(), 1);
}

#[test]
fn a_run_goes_on_only_after_the_other_key_and_not_while_it_runs() {
    let is_asked = |bench: &Bench| {
        (bench.effects.iter())
            .any(|effect| matches!(effect, Effect::Job { name, .. } if name == "resume run"))
    };
    let mut bench = bench_of(list());
    bench.press("r");
    let screen = bench.screen(100, 30);
    assert!(
        screen.contains("quickstart-ab120000 is running"),
        "{screen}"
    );
    bench.press("j j j r");
    let screen = bench.screen(100, 30);
    for words in [
        "Have this run go on?",
        "(stopped at step 12 of 80)",
        "y have it go on",
    ] {
        assert!(screen.contains(words), "{words}: {screen}");
    }
    for (width, height) in [(100, 30), (80, 24), (60, 12), (40, 10), (30, 20)] {
        let screen = bench.screen(width, height);
        let words: Vec<&str> = screen.split_whitespace().collect();
        assert!(words.join(" ").contains("y have it go on"), "{screen}");
    }
    bench.press("r");
    assert!(!is_asked(&bench));
    bench.press("r y");
    assert!(is_asked(&bench));
    bench.app.shared.is_read_only = true;
    bench.effects.clear();
    bench.press("r y");
    assert!(!is_asked(&bench));
}

#[test]
fn why_a_run_does_not_go_on_is_told_with_the_log_s_last_words_and_what_to_do() {
    let mut bench = bench_of(list());
    let key = bench.app.shared.runs.entries[3].key.clone();
    let log: Vec<String> = (1..=40).map(|at| format!("line {at} of the log")).collect();
    let answer = Message::Resumed {
        key,
        result: Err(format!("the trainer ended\n{}", log.join("\n"))),
    };
    bench.act(Action::Message(AppMessage::Page(PageMessage::Runs(answer))));
    for (width, height) in [(120, 40), (80, 24), (60, 14)] {
        let screen = bench.screen(width, height);
        for words in [
            "does not go on",
            "the trainer ended",
            "line 40 of the log",
            "a starts its experiment as a run of its own",
        ] {
            assert!(screen.contains(words), "{words}: {screen}");
        }
    }
}

#[test]
fn the_marked_runs_are_deleted_together_and_leave_no_trace_in_the_workbench() {
    let (root, mut bench) = on_disk();
    bench.press("enter");
    bench.press("1 M d x");
    bench.run_jobs();
    assert!(directories(root.path()).is_empty());
    let shared = &bench.app.shared;
    assert!(shared.marked.is_empty() && shared.current.is_none() && shared.open.is_empty());
    assert!(bench.screen(80, 24).contains("No runs yet"));
}

#[test]
fn a_running_run_is_not_even_asked_about() {
    let mut bench = bench();
    bench.press("g g d");
    let screen = bench.screen(80, 24);
    assert!(screen.contains("A running run is not deleted"), "{screen}");
    bench.press("x x");
    assert!(bench.app.pages.runs.to_delete.is_empty());
    assert!(
        !bench
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::Job { name, .. } if name == "delete runs"))
    );
}

#[test]
fn read_only_nothing_is_changed() {
    let (root, mut bench) = on_disk();
    bench.app.shared.is_read_only = true;
    for keys in ["d", "x", "c", "t"] {
        bench.press(keys);
        assert!(!bench.app.pages.runs.is_typing(), "{keys}");
    }
    bench.run_jobs();
    assert_eq!(directories(root.path()).len(), 2);
}

#[test]
fn a_note_and_tags_are_written_beside_the_run() {
    let (_root, mut bench) = on_disk();
    let key = bench.app.pages.runs.selected.clone().unwrap();
    bench.press("c");
    bench.type_text("too high a rate");
    bench.press("enter");
    bench.run_jobs();
    bench.press("t");
    bench.type_text("paper, fig/3");
    bench.press("enter");
    bench.run_jobs();
    let notes = Notes::read(&RunDir::open(key.path()).unwrap()).unwrap();
    assert_eq!(notes.note, "too high a rate");
    assert_eq!(notes.tags().iter().collect::<Vec<_>>(), ["fig/3", "paper"]);
    assert!(
        bench
            .screen(80, 24)
            .contains("too high a rate  [fig/3 paper]")
    );
    // A tag that a filter could not name is refused while it can be corrected.
    bench.press("t ctrl-u");
    bench.type_text("a:b");
    bench.press("enter");
    assert!(bench.app.pages.runs.is_typing());
    assert!(bench.screen(120, 24).contains("a tag is one word"));
    bench.press("esc t ctrl-u enter");
    bench.run_jobs();
    let notes = Notes::read(&RunDir::open(key.path()).unwrap()).unwrap();
    assert!(notes.tags().is_empty());
}

#[test]
fn a_note_that_cannot_be_written_is_a_problem_on_the_screen() {
    let (root, mut bench) = on_disk();
    bench.press("c");
    bench.type_text("lost");
    std::fs::remove_dir_all(root.path()).unwrap();
    bench.press("enter");
    bench.run_jobs();
    assert!(bench.screen(80, 24).contains("It was not saved"));
}

#[test]
fn best_values_and_the_summary_come_from_the_whole_log() {
    let (_root, mut bench) = on_disk();
    let screen = bench.screen(200, 40);
    assert!(screen.contains("best reward"), "{screen}");
    assert!(
        screen.contains("train reward") && screen.contains("30 of 30 steps"),
        "{screen}"
    );
    let runs = &bench.app.pages.runs;
    let entry = runs.selected_entry(&bench.app.shared).unwrap();
    let detail = runs.details.get(&entry.key);
    let best = columns::best_value("score", entry, detail).unwrap();
    assert_eq!(
        best,
        columns::last_value("score", entry, detail).unwrap(),
        "the sample's reward only rises"
    );
    // A step that ended since the log was read.
    let mut newer = entry.clone();
    let last = &mut newer.glance.as_mut().unwrap().last;
    let name = columns::metric_name("score", entry, detail).unwrap();
    last.insert(name.to_owned(), Number(best + 1.0));
    let best_now = columns::best_value("score", &newer, detail);
    assert_eq!(best_now, Some(best + 1.0));
}

#[test]
fn a_configuration_key_filters_once_the_experiments_were_read() {
    let (_root, mut bench) = on_disk();
    bench.press("/");
    bench.type_text("cfg.trainer.experiment_name=sample");
    bench.run_jobs();
    assert_eq!(names(&bench).len(), 2);
    bench.press("ctrl-u");
    bench.type_text("cfg.trainer.experiment_name=other");
    assert_eq!(names(&bench).len(), 0);
}

#[test]
fn answers_to_what_is_no_longer_asked_change_nothing() {
    let mut bench = bench();
    let before = bench.screen(80, 24);
    let stale = Message::Details {
        id: 999,
        found: vec![],
    };
    bench.act(Action::Message(AppMessage::Page(PageMessage::Runs(stale))));
    assert_eq!(bench.screen(80, 24), before);
}

#[test]
fn every_key_in_every_state_does_no_harm() {
    for make in STATES {
        do_everything(PageId::Runs, make);
    }
    do_everything(PageId::Runs, bench);
    do_everything(PageId::Runs, || {
        bench_of(RunList {
            unlisted: vec![Unlisted::Run("broken".to_owned())],
            is_read: true,
            ..RunList::default()
        })
    });
}

#[test]
fn why_a_directory_is_no_run_is_said_in_full_below_the_list_and_beside_it() {
    let reason = "/project/runs/20261129-100000-a-long-name-aa110000: run.json is of format 3, and this program knows up to 1: use the lathe that wrote it";
    let mut list = list();
    list.unlisted = vec![Unlisted::Run(reason.to_owned())];
    let mut bench = bench_of(list);
    bench.press("G");
    let words = |screen: &str| screen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&bench.screen(60, 24)).contains(reason));
    let wide = bench.screen(200, 40);
    assert!(wide.contains("This run cannot be read"), "{wide}");
}

#[test]
fn the_mouse_selects_opens_and_sorts() {
    use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
    let mut bench = bench();
    bench.screen(120, 40);
    let click = |bench: &mut Bench, column: u16, row: u16| {
        bench.act(Action::Mouse(MouseEvent {
            kind: MouseEventKind::Down(MouseButton::Left),
            column,
            row,
            modifiers: KeyModifiers::NONE,
        }));
    };
    // Row 0 is the header, row 1 the headings.
    click(&mut bench, 20, 4);
    assert_eq!(selected(&bench).as_deref(), Some("ef560000"));
    click(&mut bench, 4, 1);
    assert_eq!(bench.app.pages.runs.kept().sort, Column::State);
    click(&mut bench, 20, 2);
    click(&mut bench, 20, 2);
    assert_eq!(bench.app.page, PageId::Live);
}

#[test]
fn the_last_of_five_hundred_runs_is_reached_and_seen() {
    let mut many = RunList {
        is_read: true,
        ..RunList::default()
    };
    for i in 0..500_u32 {
        many.entries.push(entry(
            &format!("20261130-100000-run-{i:08x}"),
            i64::from(i),
            Liveness::Finished,
            80,
            f64::from(i) / 500.0,
        ));
    }
    let mut bench = bench_of(many);
    bench.press("G");
    assert_eq!(selected(&bench).as_deref(), Some("000001f3"));
    assert!(bench.screen(80, 24).contains("run-000001f3"));
}

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent};
use runlog::state::Liveness;

use super::*;
use crate::tui::bindings;
use crate::tui::testing::{Bench, sample_events, sample_run_in};

fn has(bench: &Bench, wanted: fn(&Effect) -> bool) -> bool {
    bench.effects.iter().any(wanted)
}

#[test]
fn number_keys_and_clicks_on_tabs_bring_pages_to_the_front() {
    let mut bench = Bench::with_run(5);
    for (index, page) in PageId::ALL.into_iter().enumerate() {
        bench.press(&(index + 1).to_string());
        assert_eq!(bench.app.page, page);
    }
    let screen = bench.screen(120, 40);
    let column = screen.lines().next().unwrap().find('2').unwrap() as u16;
    bench.act(Action::Mouse(MouseEvent {
        kind: MouseEventKind::Down(MouseButton::Left),
        column,
        row: 0,
        modifiers: KeyModifiers::NONE,
    }));
    assert_eq!(bench.app.page, PageId::Live);
}

/// A run of three steps in `folder`, as the list has it.
fn entry(folder: &std::path::Path, name: &str, liveness: Liveness) -> RunEntry {
    let path = sample_run_in(folder, 3);
    let named = folder.join(name);
    std::fs::rename(path, &named).unwrap();
    let run_dir = runlog::RunDir::open(&named).unwrap();
    let mut glance = runlog::state::glance(&run_dir, std::time::SystemTime::now()).unwrap();
    glance.liveness = liveness;
    RunEntry {
        key: RunKey::new(&named),
        info: run_dir.info().clone(),
        glance: Some(glance),
        problem: None,
        is_replayed: false,
        mirror: None,
        trouble: None,
        notes: runlog::notes::Notes::default(),
    }
}

fn listed(entries: Vec<RunEntry>) -> Action {
    Action::Message(Message::RunsListed(crate::tui::shared::RunList {
        entries,
        is_read: true,
        ..Default::default()
    }))
}

#[test]
fn in_a_replay_the_list_of_runs_stands_at_its_moment_and_tells_the_end_again_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = entry(folder.path(), "a", Liveness::Finished);
    let key = run.key.clone();
    let mut bench = Bench::default();
    bench.act(listed(vec![run.clone()]));
    bench.press("2 P 1");
    // What a replay sends: the events up to its moment.
    let events: Vec<_> = sample_events(3)
        .into_iter()
        .filter(|event| event.elapsed_ms <= 4600.0)
        .collect();
    bench.act(Action::Message(Message::Events {
        key: key.clone(),
        events,
    }));
    let row = |bench: &mut Bench| {
        let screen = bench.screen(120, 30);
        let mut rows = screen.lines().skip(1);
        let row = rows.find(|line| line.contains(" 2/3 ") || line.contains(" 3/3 "));
        row.unwrap_or_else(|| panic!("{screen}")).to_owned()
    };
    let replayed = row(&mut bench);
    assert!(
        replayed.contains("replay") && replayed.contains("2/3"),
        "{replayed}"
    );
    // The list is read again while the replay goes on.
    bench.act(listed(vec![run.clone()]));
    assert_eq!(row(&mut bench), replayed);
    bench.press("P");
    assert!(has(&bench, |effect| matches!(effect, Effect::RefreshRuns)));
    bench.act(listed(vec![run]));
    let after = row(&mut bench);
    assert!(
        after.contains("finished") && after.contains("3/3"),
        "{after}"
    );
}

#[test]
fn a_page_that_needs_a_run_takes_the_one_under_the_cursor_of_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let entries = ["c", "b", "a"].map(|name| entry(folder.path(), name, Liveness::Finished));
    let mut bench = Bench::default();
    bench.act(listed(entries.to_vec()));
    bench.press("1 j");
    let chosen = bench
        .app
        .pages
        .runs
        .chosen_entry(&bench.app.shared)
        .unwrap();
    let chosen = chosen.key.clone();
    assert_ne!(chosen, bench.app.shared.latest_run().unwrap().key);
    bench.press("3");
    assert_eq!(bench.app.shared.current, Some(chosen));
    let notice = bench.app.shared.notice.clone().unwrap();
    assert!(notice.text.contains("under the cursor"), "{notice:?}");
}

#[test]
fn names_that_a_plain_terminal_cannot_show_keep_their_place() {
    let mut bench = Bench::default();
    bench.open_run("/project/runs/größe-模型", 5);
    bench.make_plain();
    for page in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        bench.press(page);
        let screen = bench.screen(100, 30);
        assert!(screen.is_ascii(), "{screen}");
    }
    bench.press("2");
    assert!(bench.screen(100, 30).contains("gr??e-????"));
}

#[test]
fn a_narrow_screen_names_every_page_and_says_how_to_get_help_and_out() {
    let mut bench = Bench::with_run(20);
    for page in PageId::ALL {
        bench.act(Action::Command(Command::Global(Global::Go(page))));
        bench.app.shared.notice = None;
        let screen = bench.screen(80, 24);
        let tabs = screen.lines().next().unwrap();
        for other in PageId::ALL {
            if !other.is_listed(&bench.app.shared, page) {
                continue;
            }
            assert!(tabs.contains(other.short_title()), "{tabs}");
        }
        let footer = screen.lines().last().unwrap();
        for hint in ["? help", ": actions", "q quit"] {
            assert!(footer.contains(hint), "{page:?}: {footer}");
        }
    }
}

#[test]
fn a_page_that_needs_a_run_takes_the_running_one_or_the_newest_when_none_was_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let newest = entry(folder.path(), "b", Liveness::Finished);
    let running = entry(folder.path(), "a", Liveness::Running);
    for page in PageId::ALL {
        let mut bench = Bench::default();
        bench.act(listed(vec![newest.clone()]));
        bench.press(&(page as usize + 1).to_string());
        let current = bench.app.shared.current.clone();
        assert_eq!(current.is_some(), page.needs_run(), "{page:?}");
        if page.needs_run() {
            let notice = &bench.app.shared.notice.as_ref().unwrap().text;
            assert!(notice.contains("this is the newest, sample-"), "{notice}");
        }
    }
    // The list may be read when the page is on the screen already.
    let mut bench = Bench::default();
    bench.press("2");
    bench.act(listed(vec![newest.clone(), running.clone()]));
    assert_eq!(bench.app.shared.current, Some(running.key));
    bench.act(listed(vec![newest]));
    assert_ne!(bench.app.shared.current, None, "a choice stays");
}

#[test]
fn the_palette_finds_an_action_by_its_words_and_does_it() {
    let mut bench = Bench::with_run(5);
    bench.press("ctrl-p");
    bench.type_text("page timeline");
    bench.press("enter");
    assert_eq!(bench.app.page, PageId::Timeline);
}

#[test]
fn the_palette_begins_with_the_pages_own_actions_and_those_picked_before() {
    use crate::tui::bindings::Context;
    use crate::tui::modal::{Palette, Used};
    for page in PageId::ALL {
        let found = Palette::default().matches(page);
        assert_eq!(found[0].context, Context::Page(page));
        assert_ne!(found[0].hint, "", "one that the footer shows");
    }
    let used = Used::from([("runs.refresh".to_owned(), 3), ("app.quit".to_owned(), 9)]);
    let found = Palette::new(used).matches(PageId::Runs);
    assert_eq!(found[0].id, "runs.refresh");
    let globals = found.iter().find(|found| found.context == Context::Global);
    assert_eq!(globals.map(|found| found.id), Some("app.quit"));
    // Picked by its name, it is remembered with the project.
    let mut bench = Bench::with_run(5);
    bench.press("ctrl-p");
    bench.type_text("page timeline");
    bench.press("enter");
    let kept: Used = bench.app.shared.kept.get("palette.picked").unwrap();
    assert_eq!(kept.into_values().collect::<Vec<_>>(), [1]);
    assert!(has(&bench, |effect| matches!(effect, Effect::SaveState)));
}

#[test]
fn pasted_text_reaches_a_field_and_never_the_keys() {
    let mut bench = Bench::default();
    bench.act(Action::Paste("q".to_owned()));
    assert!(!has(&bench, |effect| matches!(effect, Effect::Quit)));
    bench.press("ctrl-p");
    bench.act(Action::Paste("page logs".to_owned()));
    bench.press("enter");
    assert_eq!(bench.app.page, PageId::Logs);
}

#[test]
fn quitting_ends_no_run_and_keeps_the_layout() {
    let mut bench = Bench::with_run(5);
    bench.press("q");
    assert!(has(&bench, |effect| matches!(effect, Effect::Quit)));
    assert!(has(&bench, |effect| matches!(effect, Effect::SaveState)));
}

#[test]
fn a_frozen_screen_loses_nothing() {
    let mut bench = Bench::with_run(5);
    let key = bench.app.shared.current.clone().unwrap();
    let before = bench.app.shared.current_run().unwrap().state.clone();
    bench.press("F");
    let mut event = sample_events(6).pop().unwrap();
    event.seq = before.events;
    bench.act(Action::Message(Message::Events {
        key,
        events: vec![event.clone()],
    }));
    assert_eq!(bench.app.shared.current_run().unwrap().state, before);
    bench.press("F");
    let mut after = before;
    after.apply(&event);
    assert_eq!(bench.app.shared.current_run().unwrap().state, after);
}

#[test]
fn a_replay_goes_by_steps_and_marks_and_back_to_live() {
    let mut bench = Bench::with_run(20);
    bench.press("P");
    let key = bench.app.shared.current.clone().unwrap();
    assert!(has(&bench, |effect| matches!(
        effect,
        Effect::OpenReplay { .. }
    )));
    bench.act(Action::Message(Message::ReplayReady {
        key: key.clone(),
        length_ms: 40_000.0,
        marks_ms: vec![14_500.0, 20_500.0],
        steps_ms: (1..=20)
            .map(|step| (step, 500.0 + step as f64 * 2000.0))
            .collect(),
    }));
    bench.effects.clear();
    bench.press("> > ctrl-n <");
    let seeks: Vec<f64> = bench
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Replay(ReplayCommand::Seek { at_ms }) => Some(*at_ms),
            _ => None,
        })
        .collect();
    assert_eq!(seeks, [2500.0, 4500.0, 14_500.0, 12_500.0]);
    let screen = bench.screen(80, 24);
    assert!(screen.contains("10x  0:12 of 0:40"), "{screen}");
    bench.press("P");
    assert!(bench.app.shared.replay.is_none());
    assert!(has(&bench, |effect| matches!(effect, Effect::OpenRun(_))));
}

#[test]
fn ctrl_c_in_a_text_field_gives_up_the_line_and_does_not_leave() {
    let mut bench = Bench::with_run(5);
    bench.press("2 A");
    bench.type_text("kl");
    bench.act(Action::Key(KeyEvent::new(
        KeyCode::Char('c'),
        KeyModifiers::CONTROL,
    )));
    assert!(!has(&bench, |effect| matches!(effect, Effect::Quit)));
    assert!(!bench.app.pages.get(PageId::Live).is_typing());
}

#[test]
fn a_confirmation_takes_its_own_key_and_nothing_else() {
    for (key, is_done) in [("y", true), ("enter", false), ("r", false), ("esc", false)] {
        let mut bench = Bench::with_run(5);
        bench.press("2 D r");
        bench.effects.clear();
        bench.press(key);
        assert_eq!(
            has(&bench, |effect| matches!(effect, Effect::SaveState)),
            is_done,
            "{key}"
        );
    }
}

#[test]
fn the_help_shows_every_word_of_every_binding_at_80_and_at_40_columns() {
    for (columns, rows) in [(80, 24), (40, 12)] {
        let mut bench = Bench::with_run(5);
        bench.screen(columns, rows);
        bench.press("2 ?");
        let mut seen = String::new();
        // One line on at a time; the last line of a screen is the newest.
        for _ in 0..400 {
            let screen = bench.screen(columns, rows);
            let inside = screen.lines().skip(1).take(usize::from(rows) - 2);
            let words = inside
                .flat_map(|line| line.split(['│', ' ']))
                .filter(|word| !word.is_empty());
            seen.push_str(&words.collect::<Vec<_>>().join(" "));
            seen.push('\n');
            bench.press("j");
        }
        for binding in bindings::all() {
            let is_here = matches!(
                binding.context,
                Context::Global | Context::Page(PageId::Live)
            );
            for word in binding
                .help
                .split(' ')
                .filter(|word| is_here && word.len() < 20 && !word.contains('-'))
            {
                assert!(
                    seen.contains(word),
                    "{columns}: {word} of {:?} is cut",
                    binding.help
                );
            }
        }
        // At the end one key goes one line back at once.
        let end = bench.screen(columns, rows);
        bench.press("k");
        assert_ne!(bench.screen(columns, rows), end);
    }
}

#[test]
fn however_narrow_the_screen_the_header_says_that_the_line_to_a_run_is_cut() {
    use runlog::run_dir::{Mirror, MirrorLink, ProcessIdentity, Standing};
    let mut bench = Bench::default();
    let folder = tempfile::tempdir().unwrap();
    let listed = entry(folder.path(), "a", Liveness::Running);
    let key = listed.key.clone();
    bench.app.shared.runs.entries.push(listed);
    bench.open_run(&key.to_string(), 3);
    let now = jiff::Timestamp::from_second(crate::tui::testing::NOW).unwrap();
    let mut told = |link: MirrorLink| {
        let entries = &mut bench.app.shared.runs.entries;
        let entry = entries.iter_mut().find(|entry| entry.key == key).unwrap();
        entry.mirror = Some(Mirror {
            keeper: ProcessIdentity::of(std::process::id()),
            link,
            standing: Standing::Running,
            heard_at: None,
            warning: None,
            received_bytes: 0,
            resumed_after: None,
        });
        [60, 80, 120, 200].map(|columns| {
            let screen = bench.screen(columns, 24);
            screen.lines().next().unwrap().to_owned()
        })
    };
    let cut = told(MirrorLink::Disconnected {
        since: now - jiff::SignedDuration::from_secs(12),
        attempts: 3,
        reason: "no route".to_owned(),
    });
    for header in &cut {
        assert!(
            header.contains("cut 12 s") || header.contains("disconnected 12 s, retrying"),
            "{cut:#?}"
        );
    }
    let live = told(MirrorLink::Live { behind_ms: 412 });
    for header in &live[2..] {
        assert!(header.contains("0.4 s behind"), "{live:#?}");
    }
    let unwritten = told(MirrorLink::Unwritten {
        since: now - jiff::SignedDuration::from_secs(12),
        reason: "the disk of runs/a is full".to_owned(),
    });
    for header in &unwritten {
        assert!(
            header.contains("not written"),
            "the copy here: {unwritten:#?}"
        );
    }
}

#[test]
fn however_narrow_the_screen_the_header_says_that_a_run_s_disk_is_full_and_page_runs_what_that_means()
 {
    let mut bench = Bench::default();
    let folder = tempfile::tempdir().unwrap();
    let mut listed = entry(folder.path(), "a", Liveness::Running);
    let words = "the disk there is full (12 KB left): events wait in its memory";
    listed.trouble = Some(runlog::state::Trouble {
        mark: "disk there full",
        words: words.to_owned(),
    });
    let key = listed.key.clone();
    bench.app.shared.runs.entries.push(listed);
    bench.open_run(&key.to_string(), 3);
    for columns in [60, 80, 120, 200] {
        let screen = bench.screen(columns, 24);
        let header = screen.lines().next().unwrap();
        assert!(header.contains("disk there full"), "{columns}: {screen}");
    }
    bench.press("1");
    let screen = bench.screen(120, 40);
    assert!(screen.contains(words), "{screen}");
}

#[test]
fn the_header_says_how_far_a_copy_of_a_run_elsewhere_lags_behind_and_since_when_it_is_cut_off() {
    use runlog::run_dir::{Mirror, MirrorLink, ProcessIdentity, Standing};
    let folder = tempfile::tempdir().unwrap();
    let mut run = entry(folder.path(), "a", Liveness::Running);
    let now = jiff::Timestamp::from_second(crate::tui::testing::NOW).unwrap();
    let mut told = |link: MirrorLink, standing: Standing| {
        run.mirror = Some(Mirror {
            keeper: ProcessIdentity::of(std::process::id()),
            link,
            standing,
            heard_at: None,
            warning: None,
            received_bytes: 0,
            resumed_after: None,
        });
        run.link_words(now)
    };
    let live = || MirrorLink::Live { behind_ms: 412 };
    assert_eq!(
        told(live(), Standing::Running).unwrap(),
        "live, 0.4 s behind"
    );
    let queued = Standing::Queued {
        why: "for 1 free GPU: 0 of 2 are free".to_owned(),
    };
    assert_eq!(
        told(live(), queued).unwrap(),
        "waits for 1 free GPU: 0 of 2 are free"
    );
    let cut = MirrorLink::Disconnected {
        since: now - jiff::SignedDuration::from_secs(12),
        attempts: 3,
        reason: "no route".to_owned(),
    };
    assert_eq!(
        told(cut, Standing::Running).unwrap(),
        "disconnected 12 s, retrying"
    );
    assert_eq!(told(MirrorLink::Complete, Standing::Ended), None);
}

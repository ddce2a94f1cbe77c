//! The page on its own: edits, history, files and screens.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::json;

use super::document::Document;
use crate::tui::action::{Action, Effect, Message};
use crate::tui::pages::{Page, PageId};
use crate::tui::testing::{Bench, STATES, do_everything, shared};

const EXPERIMENT: &str = include_str!("../../../../../../experiments/quickstart.yaml");

fn document(text: &str) -> Document {
    Document::new(Path::new("a.yaml"), "a.yaml", text.to_owned(), false)
}

/// A bench on a project with one experiment, opened.
struct Opened {
    folder: tempfile::TempDir,
    bench: Bench,
}

impl Opened {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("experiments")).unwrap();
        fs::write(folder.path().join("experiments/quickstart.yaml"), text).unwrap();
        let mut shared = shared();
        shared.project.directory = folder.path().to_owned();
        shared.project.experiments = folder.path().join("experiments");
        let mut bench = Bench::new(shared);
        bench.press("5");
        bench.run_jobs();
        bench.press("enter");
        bench.run_jobs();
        Self { folder, bench }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("experiments/quickstart.yaml")
    }

    fn on_disk(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    fn press(&mut self, keys: &str) -> Vec<Effect> {
        self.bench.press(keys);
        self.bench.run_jobs()
    }

    /// Brings the cursor to a key by the filter.
    fn find(&mut self, words: &str) {
        self.bench.press("/");
        self.bench.press("ctrl-u");
        self.bench.type_text(words);
        self.bench.press("enter");
    }

    fn changed_outside(&mut self, text: &str) {
        fs::write(self.path(), text).unwrap();
        let message = Message::FileChanged(self.path());
        self.bench.act(Action::Message(message));
        self.bench.run_jobs();
    }

    fn sheet(&self) -> &super::Sheet {
        self.bench.app.pages.config.sheet().expect("it is open")
    }

    fn text(&self) -> &str {
        self.sheet().document.text()
    }

    fn notice(&self) -> &str {
        let notice = self.bench.app.shared.notice.as_ref();
        notice.map_or("", |notice| notice.text.as_str())
    }
}

#[derive(Debug, Clone)]
enum Edit {
    Set(usize, usize),
    Remove(usize),
    Type(usize, String),
    Undo,
    Redo,
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        4 => (any::<usize>(), 0_usize..6).prop_map(|(row, value)| Edit::Set(row, value)),
        1 => any::<usize>().prop_map(Edit::Remove),
        2 => (any::<usize>(), "[a-zé\n #:]{0,5}").prop_map(|(at, text)| Edit::Type(at, text)),
        2 => Just(Edit::Undo),
        1 => Just(Edit::Redo),
    ];
    prop::collection::vec(edit, 0..25)
}

fn apply(document: &mut Document, edit: &Edit) {
    let values = [
        json!(0.5),
        json!(7),
        json!("a: text, \"quoted\""),
        json!(true),
        json!(["x", "y"]),
        json!(null),
    ];
    let path_of = |document: &Document, at: usize| {
        let keys: Vec<String> = document
            .rows()
            .iter()
            .filter(|row| !row.is_block)
            .map(|row| row.path.clone())
            .collect();
        keys[at % keys.len()].clone()
    };
    match edit {
        Edit::Set(at, value) => {
            let path = path_of(document, *at);
            // A refusal changes nothing, which the property shows too.
            let _ = document.set(&path.split('.').collect::<Vec<_>>(), &values[*value]);
        }
        Edit::Remove(at) => {
            let path = path_of(document, *at);
            let _ = document.remove(&path.split('.').collect::<Vec<_>>());
        }
        Edit::Type(at, typed) => {
            let mut text = document.text().to_owned();
            let mut at = at % (text.len() + 1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            text.insert_str(at, typed);
            document.replace(text, "typing", true);
        }
        Edit::Undo => {
            document.undo();
        }
        Edit::Redo => {
            document.redo();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn undoing_every_edit_gives_the_first_bytes_back_and_redoing_the_last(edits in edits()) {
        let mut document = document(EXPERIMENT);
        for edit in &edits {
            apply(&mut document, edit);
        }
        while document.redo().is_some() {}
        let last = document.text().to_owned();
        while document.undo().is_some() {}
        prop_assert_eq!(document.text(), EXPERIMENT);
        prop_assert!(!document.is_modified());
        while document.redo().is_some() {}
        prop_assert_eq!(document.text(), last);
    }

    #[test]
    fn setting_values_keeps_every_comment_in_its_order(sets in prop::collection::vec((any::<usize>(), 0_usize..6), 1..12)) {
        let mut document = document(EXPERIMENT);
        for (row, value) in sets {
            apply(&mut document, &Edit::Set(row, value));
        }
        let comments = |text: &str| -> Vec<String> {
            text.lines()
                .filter_map(|line| Some(line[line.find("# ")?..].to_owned()))
                .collect()
        };
        prop_assert_eq!(comments(document.text()), comments(EXPERIMENT));
    }
}

#[test]
fn typing_a_word_is_one_change_and_a_save_ends_it() {
    let mut document = document("a: 1\n");
    for text in ["a: 1x\n", "a: 1xy\n", "a: 1xyz\n", "a: 1xy\n"] {
        document.replace(text.to_owned(), "typing", true);
    }
    document.mark_saved("a: 1xy\n".to_owned());
    document.replace("a: 1xyw\n".to_owned(), "typing", true);
    assert_eq!(document.undo().as_deref(), Some("typing"));
    assert_eq!(document.text(), "a: 1xy\n");
    assert_eq!(document.undo().as_deref(), Some("typing"));
    assert_eq!(document.text(), "a: 1\n");
    assert_eq!(document.undo(), None);
}

#[test]
fn a_list_whose_lines_have_comments_is_not_pressed_into_one_line() {
    let text = "data:\n  train_files:\n    - a.parquet  # the good ones\n    - b.parquet\n";
    let mut document = document(text);
    let problem = document
        .set(&["data", "train_files"], &json!(["c.parquet"]))
        .unwrap_err();
    assert!(problem.to_string().starts_with("line 3: "), "{problem}");
    assert_eq!(document.text(), text);
}

#[test]
fn a_key_that_the_file_lacks_goes_to_the_block_that_the_file_has() {
    let mut document = document("actor:\n  optim:\n    lr: 1e-5  # slow\n");
    let row = document
        .rows()
        .iter()
        .find(|row| row.key == "actor_rollout_ref.actor.optim.weight_decay")
        .unwrap()
        .clone();
    assert_eq!(row.path, "actor.optim.weight_decay");
    let names: Vec<&str> = row.path.split('.').collect();
    document.set(&names, &json!(0.5)).unwrap();
    assert_eq!(
        document.text(),
        "actor:\n  optim:\n    lr: 1e-5  # slow\n    weight_decay: 0.5\n"
    );
}

#[test]
fn every_live_key_has_exactly_one_row_whatever_the_file_says() {
    for text in [
        "",
        "data:\n",
        "- a\n",
        "a: [",
        EXPERIMENT,
        "actor: {optim: {lr: 1}}\n",
    ] {
        let document = document(text);
        for live in experiment::keys::live() {
            let rows = document
                .rows()
                .iter()
                .filter(|row| row.key == live.path && !row.is_block);
            assert_eq!(rows.count(), 1, "{} in {text:?}", live.path);
        }
    }
}

#[test]
fn a_value_is_edited_in_place_and_saved_with_every_comment() {
    let mut opened = Opened::new(EXPERIMENT);
    opened.find("actor.optim.lr");
    opened.press("enter ctrl-u");
    opened.bench.type_text("5e-5");
    opened.press("enter");
    let expected = EXPERIMENT.replace("lr: 2e-4   ", "lr: 5e-5   ");
    assert_ne!(expected, EXPERIMENT);
    assert_eq!(opened.text(), expected);
    assert_eq!(opened.on_disk(), EXPERIMENT, "not before it is saved");
    assert!(opened.bench.app.pages.config.unsaved().is_some());
    opened.press("w");
    assert_eq!(opened.on_disk(), expected);
    assert_eq!(opened.notice(), "saved experiments/quickstart.yaml");
    assert!(opened.bench.app.pages.config.unsaved().is_none());
    opened.press("u");
    assert_eq!(opened.text(), EXPERIMENT, "undo goes on over a save");
}

#[test]
fn a_wrong_value_is_told_while_it_is_typed_and_not_taken() {
    let mut opened = Opened::new(EXPERIMENT);
    opened.find("actor.optim.lr");
    opened.press("enter ctrl-u");
    opened.bench.type_text("-3");
    let screen = opened.bench.screen(120, 40);
    assert!(
        screen.contains("error: lr is -3; expected >= 0"),
        "{screen}"
    );
    opened.press("enter");
    assert_eq!(opened.text(), EXPERIMENT);
    assert!(opened.bench.app.pages.config.is_typing());
    opened.press("esc");
    assert_eq!(opened.text(), EXPERIMENT);
}

#[test]
fn space_turns_a_switch_and_takes_the_next_choice() {
    let mut opened = Opened::new(EXPERIMENT);
    opened.find("use_dynamic_bsz");
    opened.press("space");
    assert!(
        opened
            .text()
            .contains("use_dynamic_bsz: false       # micro"),
        "{}",
        opened.text()
    );
    opened.find("adv_estimator");
    opened.press("space");
    assert!(
        opened.text().contains("adv_estimator: grpo_vectorized"),
        "{}",
        opened.text()
    );
}

#[test]
fn a_choice_is_taken_from_a_list() {
    let mut opened = Opened::new(EXPERIMENT);
    opened.find("trainer.mode");
    opened.press("enter");
    insta::assert_snapshot!(opened.bench.screen(80, 24));
    opened.press("k enter");
    assert!(opened.text().contains("mode: sync\n"), "{}", opened.text());
}

#[test]
fn a_key_is_taken_out_and_its_default_is_written_in() {
    let mut opened = Opened::new(EXPERIMENT);
    opened.find("weight_decay actor_rollout");
    opened.press("x");
    assert!(!opened.text().contains("weight_decay"));
    opened.press("D");
    assert!(
        opened.text().contains("weight_decay: 0.01\n"),
        "{}",
        opened.text()
    );
    opened.press("u u");
    assert_eq!(opened.text(), EXPERIMENT);
}

#[test]
fn text_is_typed_and_every_letter_counts_as_unsaved() {
    let mut opened = Opened::new("# first\ndata:\n  seed: 1\n");
    opened.press("tab j i");
    opened.press("end");
    opened.bench.type_text("23");
    opened.press("enter");
    opened.bench.type_text("shuffle: true");
    assert_eq!(
        opened.text(),
        "# first\ndata:\n  seed: 123\n  shuffle: true\n"
    );
    assert!(opened.bench.app.pages.config.unsaved().is_some());
    opened
        .bench
        .act(Action::Paste("\r\n# pasted: q w".to_owned()));
    assert!(opened.text().ends_with("true\n# pasted: q w\n"));
    opened.press("ctrl-u");
    assert!(opened.text().ends_with("shuffle: true\n"));
    opened.press("ctrl-s esc");
    assert_eq!(opened.on_disk(), opened.text());
}

#[test]
fn windows_line_ends_survive_an_edit_of_the_text() {
    let mut opened = Opened::new("data:\r\n  seed: 1\r\n");
    opened.press("tab G i");
    opened.bench.type_text("# end");
    assert_eq!(opened.text(), "data:\r\n  seed: 1\r\n# end");
}

#[test]
fn a_file_changed_outside_is_read_again_when_nothing_is_unsaved() {
    let mut opened = Opened::new(EXPERIMENT);
    let theirs = EXPERIMENT.replace("80", "90");
    opened.changed_outside(&theirs);
    assert_eq!(opened.text(), theirs);
    assert!(
        opened
            .notice()
            .contains("changed outside and is read again")
    );
    assert!(opened.bench.app.pages.config.unsaved().is_none());
}

#[test]
fn a_file_changed_outside_is_offered_and_neither_side_is_lost() {
    let mut opened = Opened::new(EXPERIMENT);
    opened.find("trainer.total_training_steps");
    opened.press("enter ctrl-u");
    opened.bench.type_text("7");
    opened.press("enter esc");
    let mine = opened.text().to_owned();
    let theirs = EXPERIMENT
        .replace("seed", "# seed")
        .replace("n: 8 ", "n: 9 ");
    opened.changed_outside(&theirs);
    assert_eq!(opened.text(), mine);
    insta::assert_snapshot!(opened.bench.screen(80, 24));
    opened.press("w");
    assert_eq!(opened.on_disk(), theirs, "a plain save refuses");
    opened.press("R");
    assert_eq!(opened.text(), theirs);
    opened.press("u");
    assert_eq!(opened.text(), mine, "undo brings the edits back");
    opened.press("w");
    assert_eq!(
        opened.on_disk(),
        mine,
        "theirs was seen, so mine may follow"
    );
}

#[test]
fn a_change_that_no_watcher_told_is_found_by_the_save() {
    let mut opened = Opened::new(EXPERIMENT);
    opened.find("use_dynamic_bsz");
    opened.press("space");
    fs::write(opened.path(), "theirs: 1\n").unwrap();
    opened.press("w");
    assert_eq!(opened.on_disk(), "theirs: 1\n");
    assert!(
        opened.notice().starts_with("not saved: "),
        "{}",
        opened.notice()
    );
    opened.press("W");
    assert_eq!(opened.on_disk(), opened.text());
}

#[test]
fn a_deleted_file_is_told_and_written_again_on_demand() {
    let mut opened = Opened::new(EXPERIMENT);
    fs::remove_file(opened.path()).unwrap();
    let message = Message::FileChanged(opened.path());
    opened.bench.act(Action::Message(message));
    opened.bench.run_jobs();
    assert!(
        opened.notice().contains("was deleted"),
        "{}",
        opened.notice()
    );
    opened.press("W");
    assert_eq!(opened.on_disk(), EXPERIMENT);
}

#[test]
fn a_copy_is_saved_under_a_new_name_and_the_first_file_stays() {
    let mut opened = Opened::new(EXPERIMENT);
    opened.find("use_dynamic_bsz");
    opened.press("space S enter");
    let copy = opened.folder.path().join("experiments/quickstart-2.yaml");
    assert!(
        fs::read_to_string(&copy)
            .unwrap()
            .contains("use_dynamic_bsz: false")
    );
    assert_eq!(opened.on_disk(), EXPERIMENT);
    assert_eq!(opened.sheet().document.path(), copy);
    assert!(opened.bench.app.pages.config.unsaved().is_none());
    opened.press("S ctrl-u");
    opened.bench.type_text("experiments/quickstart.yaml");
    opened.press("enter");
    assert_eq!(
        opened.on_disk(),
        EXPERIMENT,
        "an existing file is never replaced by it"
    );
}

#[test]
fn the_editor_gets_a_copy_and_its_text_is_taken_as_an_unsaved_change() {
    let mut opened = Opened::new(EXPERIMENT);
    let effects = opened.press("E");
    let Some(Effect::Foreground { program, then }) = effects
        .into_iter()
        .find(|effect| matches!(effect, Effect::Foreground { .. }))
    else {
        panic!("no editor is started")
    };
    let copy = PathBuf::from(program.get_args().last().unwrap());
    assert_eq!(fs::read_to_string(&copy).unwrap(), EXPERIMENT);
    fs::write(&copy, "data:\n  seed: 3\n").unwrap();
    let message = then(Ok(std::process::ExitStatus::default()));
    opened.bench.act(Action::Message(message));
    assert_eq!(opened.text(), "data:\n  seed: 3\n");
    assert_eq!(opened.on_disk(), EXPERIMENT);
    assert!(!copy.exists(), "the copy is cleaned up");
    opened.press("u");
    assert_eq!(opened.text(), EXPERIMENT);
}

#[test]
fn nothing_is_edited_or_saved_when_read_only() {
    let mut opened = Opened::new(EXPERIMENT);
    opened.bench.app.shared.is_read_only = true;
    opened.find("use_dynamic_bsz");
    for keys in ["space", "enter", "x", "D", "i", "E", "w", "W", "S"] {
        opened.press(keys);
        assert!(
            opened.notice().starts_with("read-only"),
            "{keys}: {}",
            opened.notice()
        );
        assert!(!opened.bench.app.pages.config.is_typing(), "{keys}");
    }
    assert_eq!(opened.text(), EXPERIMENT);
    assert_eq!(opened.on_disk(), EXPERIMENT);
}

#[test]
fn the_filter_finds_keys_that_the_file_does_not_give() {
    let mut opened = Opened::new(EXPERIMENT);
    opened.find("entropy_coeff");
    let row = opened.sheet().row().unwrap();
    assert_eq!(row.key, "actor_rollout_ref.actor.entropy_coeff");
    assert!(!row.is_in_file());
    opened.press("enter ctrl-u");
    opened.bench.type_text("0.01");
    opened.press("enter esc");
    assert!(
        opened.text().contains("    entropy_coeff: 0.01\n"),
        "{}",
        opened.text()
    );
}

#[test]
fn the_next_complaint_is_brought_to_the_cursor() {
    let text = EXPERIMENT
        .replace("n: 8  ", "n: -8 ")
        .replace("mode: one_step_off", "moed: one_step_off");
    let mut opened = Opened::new(&text);
    opened.press("!");
    assert_eq!(
        opened.sheet().row().unwrap().key,
        "actor_rollout_ref.rollout.n"
    );
    opened.press("!");
    assert_eq!(opened.sheet().row().unwrap().key, "critic.optim.lr");
    opened.press("!");
    assert_eq!(opened.sheet().row().unwrap().key, "trainer.moed");
    assert!(
        opened.notice().contains("did you mean trainer.mode?"),
        "{}",
        opened.notice()
    );
    insta::assert_snapshot!(opened.bench.screen(120, 40));
}

#[test]
fn a_run_is_compared_key_by_key_and_line_by_line() {
    let mut opened = Opened::new(EXPERIMENT);
    let run = crate::tui::testing::sample_run_in(&opened.folder.path().join("runs"), 3);
    fs::write(
        run.join("experiment.yaml"),
        EXPERIMENT.replace("lr: 2e-4", "lr: 1e-4"),
    )
    .unwrap();
    let key = crate::tui::shared::RunKey::new(&run);
    opened.bench.app.show_run(key);
    opened.press("c");
    opened.bench.type_text("current");
    opened.press("enter");
    let screen = opened.bench.screen(120, 40);
    assert!(
        screen.contains("actor_rollout_ref.actor.optim.lr"),
        "{screen}"
    );
    assert!(
        screen.contains("0.0001 → 0.0002") || screen.contains("1e-4 → 2e-4"),
        "{screen}"
    );
    opened.press("tab");
    let screen = opened.bench.screen(120, 40);
    assert!(screen.contains("-       lr: 1e-4"), "{screen}");
    assert!(screen.contains("+       lr: 2e-4"), "{screen}");
    opened.press("O");
    assert!(opened.sheet().document.is_record);
    opened.find("optim.lr actor");
    opened.press("enter");
    assert!(
        opened.notice().contains("a run's record is not edited"),
        "{}",
        opened.notice()
    );
}

#[test]
fn a_long_experiment_is_drawn_only_where_it_is_seen() {
    use std::fmt::Write as _;
    let mut text = EXPERIMENT.to_owned();
    text.push_str("  extra:\n");
    for line in 0..2000 {
        let _ = writeln!(text, "    key_{line}: {line}");
    }
    let mut opened = Opened::new(&text);
    opened.press("G");
    let screen = opened.bench.screen(80, 24);
    assert!(screen.contains("key_1999 = 1999"), "{screen}");
    opened.press("tab G k");
    let screen = opened.bench.screen(80, 24);
    assert!(screen.contains("key_1999: 1999"), "{screen}");
}

fn screens(opened: &mut Opened, name: &str) {
    insta::assert_snapshot!(format!("{name}_80"), opened.bench.screen(80, 24));
    insta::assert_snapshot!(format!("{name}_120"), opened.bench.screen(120, 40));
    opened.bench.make_plain();
    insta::assert_snapshot!(format!("{name}_plain"), opened.bench.screen(80, 24));
}

#[test]
fn the_tree_on_the_screen() {
    let mut opened = Opened::new(EXPERIMENT);
    opened.find("optim.lr actor");
    opened.press("enter ctrl-u");
    opened.bench.type_text("5e-5");
    opened.press("enter esc");
    screens(&mut opened, "tree");
    insta::assert_snapshot!(opened.bench.screen(40, 10));
}

#[test]
fn the_text_on_the_screen() {
    let mut opened = Opened::new(&EXPERIMENT.replace("n: 8  ", "n: -8 "));
    opened.press("! tab");
    screens(&mut opened, "text");
}

#[test]
fn the_comparison_with_the_defaults_on_the_screen() {
    let mut opened = Opened::new(EXPERIMENT);
    opened.press("c enter");
    screens(&mut opened, "defaults");
}

#[test]
fn the_list_of_experiments_on_the_screen() {
    let mut opened = Opened::new(EXPERIMENT);
    fs::write(
        opened.folder.path().join("experiments/sort.yaml"),
        "# Sorting letters.\n",
    )
    .unwrap();
    opened.press("o");
    let folder = opened.folder.path().display().to_string();
    let screen = opened.bench.screen(80, 24).replace(&folder, "");
    insta::assert_snapshot!(screen);
}

#[test]
fn every_action_in_every_state_keeps_standing() {
    for make in STATES {
        do_everything(PageId::Config, make);
    }
    do_everything(PageId::Config, || Opened::new("data: [\n").bench);
}

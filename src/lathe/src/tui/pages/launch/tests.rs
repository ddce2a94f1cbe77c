//! The page on its own: the form, sweeps, the queue, and screens. Real starts are tested with the program.

mod control;
mod target;

use std::fs;
use std::path::Path;

use super::dry_run::DryRun;
use super::queue::Stage;
use super::starting::quoted;
use super::{Message, Pane, answer};
use crate::launch::Job;
use crate::tui::action::{Action, Effect};
use crate::tui::pages::{Page, PageId};
use crate::tui::shared::{RunEntry, RunKey};
use crate::tui::testing::{Bench, STATES, do_everything, sample_run_in, shared};

const EXPERIMENT: &str = include_str!("../../../../../../experiments/quickstart.yaml");

/// A bench whose project has one experiment, chosen for launch.
struct Ready {
    folder: tempfile::TempDir,
    bench: Bench,
}

impl Ready {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("experiments")).unwrap();
        fs::write(
            folder.path().join("experiments/quickstart.yaml"),
            EXPERIMENT,
        )
        .unwrap();
        let mut shared = shared();
        shared.project.directory = folder.path().to_owned();
        shared.project.experiments = folder.path().join("experiments");
        let mut bench = Bench::new(shared);
        bench.press("6");
        bench.run_jobs();
        bench.press("o");
        bench.run_jobs();
        bench.press("enter");
        bench.run_jobs();
        Self { folder, bench }
    }

    fn press(&mut self, keys: &str) {
        self.bench.press(keys);
        self.bench.run_jobs();
    }

    fn add(&mut self, text: &str) {
        self.bench.press("a");
        self.bench.type_text(text);
        self.press("enter");
    }

    fn page(&self) -> &super::Launch {
        &self.bench.app.pages.launch
    }

    fn notice(&self) -> &str {
        let notice = self.bench.app.shared.notice.as_ref();
        notice.map_or("", |notice| notice.text.as_str())
    }

    /// The jobs that start runs, not carried out.
    fn starts(&mut self) -> usize {
        let effects = std::mem::take(&mut self.bench.effects);
        effects
            .iter()
            .filter(|effect| matches!(effect, Effect::Job { name, .. } if name == "start run"))
            .count()
    }

    fn started(&mut self, id: u64, outcome: Result<RunKey, String>) {
        let message = answer(Message::Started { id, outcome });
        self.bench.act(Action::Message(message));
    }

    fn screen(&mut self, columns: u16, rows: u16) -> String {
        self.bench.screen(columns, rows)
    }
}

/// A run in the list, finished.
fn entry(folder: &Path) -> RunEntry {
    let path = sample_run_in(folder, 3);
    let run_dir = runlog::RunDir::open(&path).unwrap();
    RunEntry {
        key: RunKey::new(&path),
        info: run_dir.info().clone(),
        glance: runlog::state::glance(&run_dir, std::time::SystemTime::now()).ok(),
        problem: None,
        is_replayed: false,
        mirror: None,
        trouble: None,
        notes: runlog::notes::Notes::default(),
    }
}

#[test]
fn an_override_is_completed_checked_and_counted() {
    let mut ready = Ready::new();
    ready.bench.press("a");
    ready.bench.type_text("actor.optim.l");
    insta::assert_snapshot!(ready.screen(80, 24));
    ready.bench.press("tab");
    ready.bench.type_text("-1");
    ready.bench.press("enter");
    let screen = ready.screen(80, 24);
    assert!(
        screen.contains("error: lr is -1; expected >= 0"),
        "{screen}"
    );
    assert!(ready.page().is_typing(), "a wrong one is not taken");
    ready.bench.press("backspace backspace");
    ready.bench.type_text("{1e-5,3e-5}");
    ready.bench.press("enter");
    assert!(!ready.page().is_typing());
    assert_eq!(ready.page().form.run_count(), 2);
    ready.press("u");
    assert_eq!(ready.page().form.run_count(), 1);
}

#[test]
fn what_is_wrong_with_the_whole_is_told_and_nothing_starts() {
    let mut ready = Ready::new();
    ready.add("~data.train_files");
    let screen = ready.screen(80, 24);
    assert!(screen.contains("It cannot run:"), "{screen}");
    ready.bench.press("s");
    assert_eq!(ready.starts(), 0);
    assert!(
        ready.notice().contains("it cannot run"),
        "{}",
        ready.notice()
    );
}

#[test]
fn a_sweep_asks_queues_and_keeps_to_the_number_at_a_time() {
    let mut ready = Ready::new();
    ready.add("actor.optim.lr={1e-5,3e-5}");
    ready.add("data.seed=range(1,3)");
    insta::assert_snapshot!("sweep_80", ready.screen(80, 24));
    ready.bench.press("s");
    insta::assert_snapshot!("sweep_question", ready.screen(80, 24));
    assert_eq!(ready.starts(), 0, "not before the answer");
    ready.bench.press("y");
    assert_eq!(ready.starts(), 1);
    assert_eq!(ready.page().queue.waiting(), 3);
    let unsaved = ready.page().unsaved().unwrap();
    assert!(
        unsaved.starts_with("3 queued runs not started yet"),
        "{unsaved}"
    );
    let folder = ready.folder.path().join("runs");
    let entry = entry(&folder);
    ready.started(0, Ok(entry.key.clone()));
    assert_eq!(ready.starts(), 0, "it runs");
    assert!(ready.notice().contains("3 more wait on page 6"));
    assert_eq!(ready.bench.app.page, PageId::Live, "the first shows itself");
    ready.bench.press("6");
    // The run's name in the header is of the moment.
    let name = r"\d{8}-\d{6}-samp(le-[0-9a-f]{8})?";
    insta::with_settings!({filters => [(name, "20261130-100000-samp")]}, {
        insta::assert_snapshot!("queue_80", ready.screen(80, 24));
        insta::assert_snapshot!("queue_120", ready.screen(120, 40));
        ready.bench.make_plain();
        insta::assert_snapshot!("queue_plain", ready.screen(80, 24));
    });
    let mut list = ready.bench.app.shared.runs.clone();
    list.entries.push(entry);
    let listed = crate::tui::action::Message::RunsListed(list);
    ready.bench.act(Action::Message(listed));
    assert_eq!(ready.starts(), 1, "the next when it has finished");
    assert_eq!(ready.bench.app.page, PageId::Launch);
    ready.started(1, Err("no model".to_owned()));
    assert_eq!(ready.starts(), 1, "and when one fails");
    assert_eq!(
        ready.page().queue.items()[1].stage,
        Stage::Failed("no model".to_owned())
    );
    ready.bench.press("j j j x");
    assert_eq!(
        ready.page().queue.waiting(),
        0,
        "a waiting one is taken out"
    );
    assert!(ready.page().unsaved().is_none());
}

/// The message of the next job of this name; other effects are let go.
fn answer_of(ready: &mut Ready, wanted: &str) -> Option<crate::tui::action::Message> {
    std::mem::take(&mut ready.bench.effects)
        .into_iter()
        .find_map(|effect| match effect {
            Effect::Job { name, work } if name == wanted => Some(work()),
            _ => None,
        })
}

#[test]
fn every_run_of_a_sweep_is_checked_and_named_with_what_is_wrong_with_it() {
    let mut ready = Ready::new();
    // The first can run; the second has more in an optimizer step than in the batch.
    ready.add("actor.ppo_mini_batch_size={16,4096}");
    let screen = ready.screen(120, 40);
    assert_eq!(ready.page().form.errors(), 0, "{screen}");
    assert!(screen.contains("ppo_mini_batch_size=4096: "), "{screen}");
    ready.bench.press("s");
    assert_eq!(ready.starts(), 0);
    assert!(
        ready.notice().contains("not every run"),
        "{}",
        ready.notice()
    );
    insta::assert_snapshot!("sweep_wrong_80", ready.screen(80, 24));
}

#[test]
fn a_sweep_is_checked_while_it_is_typed() {
    let mut ready = Ready::new();
    ready.bench.press("a");
    ready.bench.type_text("actor.ppo_mini_batch_size={16,4096}");
    ready.bench.run_jobs();
    assert!(ready.page().is_typing());
    let screen = ready.screen(120, 40);
    assert!(screen.contains("ppo_mini_batch_size=4096: "), "{screen}");
    ready.press("esc");
    assert_eq!(ready.page().checking.errors(), 0, "what was typed is gone");
}

#[test]
fn a_large_sweep_is_checked_some_runs_at_a_time_and_never_two_jobs_at_once() {
    let mut ready = Ready::new();
    ready.bench.press("a");
    ready.bench.type_text("data.seed=range(0,100)");
    ready.bench.press("enter");
    let of_checks = |ready: &Ready| {
        let is_check =
            |effect: &&Effect| matches!(effect, Effect::Job { name, .. } if name == "check runs");
        ready.bench.effects.iter().filter(is_check).count()
    };
    assert_eq!(of_checks(&ready), 1, "whatever was typed on the way");
    let stale = answer_of(&mut ready, "check runs").unwrap();
    ready.bench.act(Action::Message(stale));
    assert_eq!(
        ready.page().checking.progress(),
        (0, 100),
        "the answer for what was typed before is passed over"
    );
    let first = answer_of(&mut ready, "check runs").unwrap();
    ready.bench.act(Action::Message(first));
    assert_eq!(ready.page().checking.progress(), (32, 100));
    ready.bench.press("s");
    assert!(ready.notice().contains("32 of 100"), "{}", ready.notice());
    ready.bench.run_jobs();
    assert_eq!(ready.page().checking.progress(), (100, 100));
    let screen = ready.screen(80, 24);
    assert!(
        screen.contains("Start 100 runs?"),
        "what was wanted before is asked now\n{screen}"
    );
}

#[test]
fn letters_typed_into_the_list_of_experiments_search_it_and_do_nothing_else() {
    let mut ready = Ready::new();
    let folder = ready.folder.path().join("experiments");
    fs::write(folder.join("warmup-calc.yaml"), "# Supervised.\n").unwrap();
    let before = ready.page().form.source.clone().unwrap().path;
    ready.press("o");
    ready.bench.effects.clear();
    // Every letter is a command of the page when nothing is typed; `q` and `s` most of all.
    ready.bench.type_text("qcspx");
    assert!(ready.bench.effects.is_empty(), "{:?}", ready.bench.effects);
    let screen = ready.screen(80, 24);
    assert!(screen.contains("None has that"), "{screen}");
    ready.press("enter");
    assert!(
        ready.screen(80, 24).contains("None has that"),
        "nothing is taken"
    );
    for _ in 0..5 {
        ready.press("backspace");
    }
    ready.bench.type_text("WARM");
    ready.press("enter");
    let chosen = ready.page().form.source.clone().unwrap().path;
    assert_ne!(chosen, before);
    assert!(chosen.ends_with("warmup-calc.yaml"), "{}", chosen.display());
}

#[test]
fn without_an_experiment_nothing_can_be_typed_for_it() {
    let mut bench = Bench::new(shared());
    bench.press("6 a");
    let notice = bench.app.shared.notice.clone().unwrap();
    assert_eq!(notice.text, "choose an experiment first: o");
    assert!(!bench.app.pages.get(PageId::Launch).is_typing());
}

#[test]
fn a_supervised_warm_up_is_started_as_one() {
    let mut ready = Ready::new();
    let warm_up = include_str!("../../../../../../experiments/warmup-calc.yaml");
    let path = ready.folder.path().join("experiments/warmup-calc.yaml");
    fs::write(&path, warm_up).unwrap();
    ready.bench.press("o");
    ready.bench.run_jobs();
    ready.press("down enter");
    insta::assert_snapshot!("warm_up_80", ready.screen(80, 24));
    let page = ready.page();
    assert_eq!(page.form.errors(), 0);
    let source = page.form.source.clone().unwrap();
    let plan = page.form.plan.clone().unwrap();
    let order = page.order(&source, &plan[0], Path::new("runs"));
    assert_eq!(order.job, Job::Sft);
    assert_eq!(order.command[..2], ["lathe", "sft"]);
    ready.bench.press("s");
    assert_eq!(ready.starts(), 1);
}

#[test]
fn leaving_with_a_queue_asks() {
    let mut ready = Ready::new();
    ready.add("data.seed={1,2}");
    ready.bench.press("s y q");
    let screen = ready.screen(80, 24);
    assert!(screen.contains("1 queued run not started yet"), "{screen}");
    assert!(
        !ready
            .bench
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::Quit))
    );
}

#[test]
fn a_single_run_is_shown_when_it_has_started() {
    let mut ready = Ready::new();
    ready.bench.press("s");
    assert_eq!(ready.starts(), 1);
    assert_eq!(ready.page().pane, Pane::Start);
    let key = RunKey::new(Path::new("/project/runs/new"));
    ready.started(0, Ok(key.clone()));
    assert_eq!(ready.bench.app.shared.current, Some(key));
    assert_eq!(ready.bench.app.page, PageId::Live);
}

#[test]
fn a_run_that_does_not_start_says_why() {
    let mut ready = Ready::new();
    ready.bench.press("s");
    ready.started(0, Err("cannot find lathe-trainer".to_owned()));
    let screen = ready.screen(80, 24);
    assert!(screen.contains("cannot find lathe-trainer"), "{screen}");
}

#[test]
fn a_run_is_started_again_with_changes_as_its_child() {
    let mut ready = Ready::new();
    let run = sample_run_in(&ready.folder.path().join("runs"), 3);
    fs::write(run.join("experiment.yaml"), EXPERIMENT).unwrap();
    let key = RunKey::new(&run);
    ready.bench.app.show_run(key.clone());
    ready.press("O");
    ready.add("data.seed=7");
    let page = ready.page();
    let source = page.form.source.clone().unwrap();
    let plan = page.form.plan.clone().unwrap();
    let order = page.order(&source, &plan[0], Path::new("runs"));
    assert_eq!(order.experiment, run.join("experiment.yaml"));
    assert_eq!(order.overrides, ["data.seed=7"]);
    assert!(order.parent.is_some());
    assert_eq!(order.name, None, "the experiment's own name");
}

#[test]
fn a_dry_run_reads_every_run_and_tries_the_first() {
    let mut ready = Ready::new();
    ready.add("actor_rollout_ref.model.path=/nowhere/model");
    ready.press("d");
    let Some(DryRun::Done(lines)) = &ready.page().dry_run else {
        panic!("it did not end")
    };
    let told: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
    assert!(
        told.iter()
            .any(|text| text.starts_with("model: ") && text.contains("/nowhere/model")),
        "{told:?}"
    );
    assert!(ready.page().dry_run.as_ref().unwrap().errors() > Some(0));
    ready.press("esc");
    assert!(ready.page().dry_run.is_none());
}

#[test]
fn an_answer_of_an_old_dry_run_is_passed_over() {
    let mut ready = Ready::new();
    ready.bench.press("d d");
    let mut jobs: Vec<Effect> = std::mem::take(&mut ready.bench.effects);
    jobs.retain(|effect| matches!(effect, Effect::Job { name, .. } if name == "dry run"));
    let Effect::Job { work, .. } = jobs.remove(0) else {
        unreachable!("only jobs are kept")
    };
    ready.bench.act(Action::Message(work()));
    assert_eq!(ready.page().dry_run, Some(DryRun::Going));
}

#[test]
fn nothing_starts_when_read_only() {
    let mut ready = Ready::new();
    ready.bench.app.shared.is_read_only = true;
    ready.bench.press("s");
    assert_eq!(ready.starts(), 0);
    assert!(
        ready.notice().starts_with("read-only"),
        "{}",
        ready.notice()
    );
}

#[test]
fn the_command_for_a_shell_is_copied() {
    let mut ready = Ready::new();
    ready.add("trainer.experiment_name=\"a b\"");
    let (copied, _) = ready.page().copied(&ready.bench.app.shared).unwrap();
    assert!(copied.starts_with("lathe run /"), "{copied}");
    assert!(
        copied.contains("'trainer.experiment_name=\"a b\"'"),
        "{copied}"
    );
    assert_eq!(quoted("it's"), "'it'\\''s'");
}

#[test]
fn the_form_on_the_screen() {
    let mut ready = Ready::new();
    ready.add("actor.optim.lr=1e-5");
    insta::assert_snapshot!("form_80", ready.screen(80, 24));
    insta::assert_snapshot!("form_120", ready.screen(120, 40));
    insta::assert_snapshot!("form_40", ready.screen(40, 10));
    ready.bench.make_plain();
    insta::assert_snapshot!("form_plain", ready.screen(80, 24));
}

#[test]
fn without_an_experiment_the_page_says_what_to_do() {
    let mut bench = Bench::default();
    bench.press("6");
    insta::assert_snapshot!(bench.screen(80, 24));
}

#[test]
fn every_action_in_every_state_keeps_standing() {
    for make in STATES {
        do_everything(PageId::Launch, make);
    }
    do_everything(PageId::Launch, || Ready::new().bench);
}

//! The target row: where the runs are to be, and what becomes of a start there.

use remote::targets::TargetKind;

use super::super::starting::command_line;
use super::*;

impl Ready {
    /// Enter on the target row, with the answer of a file that names these.
    fn next_target(&mut self) {
        let names = [
            ("gpu1", TargetKind::Ssh),
            ("lab", TargetKind::Slurm),
            ("head", TargetKind::Ray),
        ];
        let names = names.map(|(name, kind)| (name.to_owned(), kind)).into();
        self.targets(names, None);
    }

    fn targets(&mut self, names: Vec<(String, TargetKind)>, problem: Option<&str>) {
        self.bench.press("g");
        while self.page().row() != super::super::form::Row::Target {
            self.bench.press("j");
        }
        self.bench.run_jobs();
        self.bench.press("enter");
        let (asked, others): (Vec<Effect>, Vec<Effect>) = std::mem::take(&mut self.bench.effects)
            .into_iter()
            .partition(
                |effect| matches!(effect, Effect::Job { name, .. } if name == "list targets"),
            );
        assert_eq!(asked.len(), 1);
        self.bench.effects = others;
        // Not carried out: it would read this machine's own file.
        let message = answer(Message::Targets(names, problem.map(str::to_owned)));
        self.bench.act(Action::Message(message));
        self.bench.run_jobs();
    }

    /// Adds a sweep, each run of which is checked then.
    fn sweep(&mut self, text: &str) {
        self.add(text);
        assert!(self.page().checking.is_done());
    }

    fn target(&self) -> Option<&str> {
        self.page().form.choices().target.as_deref()
    }

    /// The names of the jobs that start runs, not carried out.
    fn start_jobs(&mut self) -> Vec<String> {
        std::mem::take(&mut self.bench.effects)
            .into_iter()
            .filter_map(|effect| match effect {
                Effect::Job { name, .. } if name.starts_with("start run") => Some(name.clone()),
                _ => None,
            })
            .collect()
    }
}

#[test]
fn enter_goes_through_the_targets_and_back_to_this_machine() {
    let mut ready = Ready::new();
    let mut seen = Vec::new();
    for _ in 0..5 {
        ready.next_target();
        seen.push(ready.target().unwrap_or("local").to_owned());
    }
    assert_eq!(seen, ["gpu1", "lab", "head", "local", "gpu1"]);
    // One that the file names no more: this machine.
    ready.targets(vec![("other".to_owned(), TargetKind::Ssh)], None);
    assert_eq!(ready.target(), None);
}

#[test]
fn a_chosen_target_on_the_screen() {
    let mut ready = Ready::new();
    ready.next_target();
    insta::assert_snapshot!("target_80", ready.screen(80, 24));
    insta::assert_snapshot!("target_120", ready.screen(120, 40));
    insta::assert_snapshot!("target_40", ready.screen(40, 10));
    ready.bench.make_plain();
    insta::assert_snapshot!("target_plain", ready.screen(80, 24));
}

#[test]
fn a_start_there_says_so_in_its_command_line() {
    let mut ready = Ready::new();
    ready.next_target();
    ready.bench.press("s");
    assert_eq!(ready.start_jobs(), ["start run"]);
    let page = ready.page();
    let source = page.form.source.clone().unwrap();
    let plan = page.form.plan.clone().unwrap();
    let words = command_line(&page.order(&source, &plan[0], Path::new("runs")));
    assert!(words.join(" ").contains("--on gpu1 --detach"), "{words:?}");
}

#[test]
fn a_sweep_for_a_queue_goes_there_whole_and_says_that_it_goes_on_without_the_workbench() {
    let mut ready = Ready::new();
    ready.next_target();
    ready.next_target();
    ready.sweep("actor.optim.lr={1e-5,3e-5,1e-4}");
    assert_eq!(ready.target(), Some("lab"));
    insta::assert_snapshot!("target_sweep_80", ready.screen(80, 24));
    ready.press("s");
    insta::assert_snapshot!("target_question_80", ready.screen(80, 24));
    ready.bench.effects.clear();
    ready.bench.press("y");
    assert_eq!(ready.start_jobs(), ["start runs"], "all of them in one");
    assert_eq!(ready.page().queue.waiting(), 0);
}

#[test]
fn a_sweep_for_a_machine_without_a_queue_keeps_to_this_workbench_s() {
    let mut ready = Ready::new();
    ready.next_target();
    ready.sweep("actor.optim.lr={1e-5,3e-5,1e-4}");
    ready.press("s");
    ready.bench.effects.clear();
    ready.bench.press("y");
    assert_eq!(ready.start_jobs(), ["start run"]);
    assert_eq!(ready.page().queue.waiting(), 2);
}

#[test]
fn a_target_that_cannot_be_reached_is_told_with_what_to_do_and_nothing_runs() {
    let mut ready = Ready::new();
    ready.next_target();
    ready.bench.press("s");
    assert_eq!(ready.start_jobs().len(), 1);
    let reason = "gpu1 cannot be reached: ssh: connect to host gpu1 port 22: Connection refused; is it on, and is the name right? lathe \
                  doctor gpu1 looks closer";
    ready.started(0, Err(reason.to_owned()));
    insta::assert_snapshot!("target_unreachable_80", ready.screen(80, 24));
    ready.bench.make_plain();
    insta::assert_snapshot!("target_unreachable_plain", ready.screen(80, 24));
    assert_eq!(ready.page().queue.waiting(), 0);
    assert_eq!(ready.bench.app.page, PageId::Launch);
}

#[test]
fn a_file_of_targets_that_is_wrong_or_empty_says_so_and_the_run_stays_here() {
    let mut ready = Ready::new();
    ready.targets(Vec::new(), Some("targets.yaml:3: gpu1.gpus is many"));
    assert_eq!(ready.notice(), "targets.yaml:3: gpu1.gpus is many");
    assert_eq!(ready.target(), None);
    ready.targets(Vec::new(), None);
    assert!(
        ready.notice().contains("names no other machine"),
        "{}",
        ready.notice()
    );
}

//! From the form to runs: what is tried, what is asked, what goes into the queue, and what came of it.

use std::path::Path;

use super::dry_run::{self, DryRun};
use super::form::Source;
use super::sweep::Planned;
use super::{Command, Launch, Message, Pane, answer};
use crate::launch::{self, Order};
use crate::tui::action::{self, Effect};
use crate::tui::modal::Confirm;
use crate::tui::pages::PageId;
use crate::tui::shared::{Notice, Problem, RunKey, Shared, Wish};

impl Launch {
    /// Why nothing can be started or tried now.
    fn source_to_start(&self, shared: &mut Shared) -> Option<(Source, Vec<Planned>)> {
        let Some(source) = &self.form.source else {
            shared.say(Notice::caution("choose an experiment first: o"));
            return None;
        };
        match &self.form.plan {
            Ok(plan) => Some((source.clone(), plan.clone())),
            Err(reason) => {
                shared.say(Notice::bad(reason.clone()));
                None
            }
        }
    }

    pub(super) fn try_out(&mut self, shared: &mut Shared) -> Vec<Effect> {
        let Some((source, plan)) = self.source_to_start(shared) else {
            return Vec::new();
        };
        self.dry_run_id += 1;
        self.pane = Pane::Start;
        self.dry_run = Some(DryRun::Going);
        let id = self.dry_run_id;
        vec![Effect::job("dry run", move || {
            let outcome = dry_run::carry_out(&source, &plan);
            answer(Message::Checked { id, outcome })
        })]
    }

    pub(super) fn start(&mut self, is_confirmed: bool, shared: &mut Shared) -> Vec<Effect> {
        if shared.refuse_when_read_only("starting runs") {
            return Vec::new();
        }
        let Some((source, plan)) = self.source_to_start(shared) else {
            return Vec::new();
        };
        if self.form.errors() > 0 {
            shared.say(Notice::bad("it cannot run: see the errors below the form"));
            return Vec::new();
        }
        if plan.len() > 1 && self.checking.errors() > 0 {
            shared.say(Notice::bad(
                "not every run of the sweep can run: see the errors below the form",
            ));
            return Vec::new();
        }
        if plan.len() > 1 && !self.checking.is_done() {
            let (done, all) = self.checking.progress();
            self.is_start_wanted = true;
            shared.say(Notice::good(format!(
                "checking the runs first: {done} of {all} so far"
            )));
            return Vec::new();
        }
        if plan.len() > 1 && !is_confirmed {
            shared.wish = Some(Wish::Confirm(self.question(&plan)));
            return Vec::new();
        }
        let Some(root) = shared.project.runs_roots.first().cloned() else {
            shared.say(Notice::bad("there is no runs directory to start in"));
            return Vec::new();
        };
        let waits = self.queue.going() >= self.form.choices().at_once;
        let is_alone = plan.len() == 1;
        for (place, planned) in plan.iter().enumerate() {
            let order = self.order(&source, planned, &root);
            let name = self.form.run_name(planned);
            // The first of several only where it starts now: later the screen shows what somebody is looking at.
            let is_shown = is_alone || (place == 0 && !waits);
            self.queue.push(name, order, is_alone, is_shown);
        }
        shared.say(Notice::good(match (plan.len(), waits) {
            (1, false) => format!("starting {}", self.form.run_name(&plan[0])),
            (1, true) => "queued: it starts when the run before has ended".to_owned(),
            (count, _) => format!("queued {count} runs"),
        }));
        if plan.len() > 1 || waits {
            self.pane = Pane::Queue;
        }
        self.start_due(shared)
    }

    /// The chosen target, where it has a queue of its own.
    pub(super) fn scheduler(&self) -> Option<&String> {
        let target = self.form.choices().target.as_ref()?;
        self.schedulers.contains(target).then_some(target)
    }

    fn question(&self, plan: &[Planned]) -> Confirm {
        let at_once = self.form.choices().at_once;
        let mut names: Vec<String> = plan
            .iter()
            .take(6)
            .map(|planned| format!("  {}", self.form.run_name(planned)))
            .collect();
        if plan.len() > names.len() {
            names.push(format!("  and {} more", plan.len() - names.len()));
        }
        let how = match self.scheduler() {
            Some(target) => format!(
                "They go into the queue of {target} together, and how many run at a time is decided there. They go on when the \
                 workbench is left."
            ),
            None => format!(
                "{at_once} at a time. The queue belongs to this workbench: runs that have started go on when it is left, those still \
                 waiting do not start."
            ),
        };
        Confirm {
            title: format!("Start {} runs?", plan.len()),
            body: format!("{}\n\n{how}", names.join("\n")),
            yes: 'y',
            yes_label: "queue them".to_owned(),
            command: action::Command::Launch(Command::StartAll),
        }
    }

    pub(super) fn order(&self, source: &Source, planned: &Planned, root: &Path) -> Order {
        let is_named = !self.form.choices().name.is_empty() || !planned.label.is_empty();
        let mut order = Order {
            job: self.form.job(),
            experiment: source.path.clone(),
            overrides: planned.overrides.clone(),
            name: is_named.then(|| self.form.run_name(planned)),
            runs_root: root.to_owned(),
            target: self.form.choices().target.clone(),
            parent: source.parent.as_ref().map(|(id, _)| id.clone()),
            command: Vec::new(),
        };
        order.command = command_line(&order);
        order
    }

    /// Starts what has room now.
    pub(super) fn start_due(&mut self, _shared: &mut Shared) -> Vec<Effect> {
        let mut due = self.queue.due(self.form.choices().at_once);
        let mut effects = Vec::new();
        if let Some(together) = self.take_together(&mut due) {
            effects.push(together);
        }
        effects.extend(due.into_iter().map(|(id, order)| {
            let target = order.target.clone();
            Effect::job("start run", move || {
                let run_dir = match target {
                    None => launch::start(order).map_err(|error| error.in_full()),
                    Some(target) => {
                        launch::start_elsewhere(order, &target).map_err(|error| error.in_full())
                    }
                };
                let outcome = run_dir.map(|run_dir| RunKey::new(run_dir.path()));
                answer(Message::Started { id, outcome })
            })
        }));
        effects
    }

    /// Runs for a target with a scheduler go into its queue together, all of them: how many run at once is decided there.
    fn take_together(&mut self, due: &mut Vec<(u64, Order)>) -> Option<Effect> {
        let target = due.iter().find_map(|(_, order)| order.target.clone())?;
        if !self.schedulers.contains(&target) {
            return None;
        }
        let is_there = |order: &Order| order.target.as_ref() == Some(&target);
        let mut together: Vec<(u64, Order)> = Vec::new();
        due.retain(|(id, order)| {
            let is_there = is_there(order);
            if is_there {
                together.push((*id, order.clone()));
            }
            !is_there
        });
        together.extend(self.queue.all_due(&is_there));
        Some(Effect::job("start runs", move || {
            let (ids, orders): (Vec<u64>, Vec<Order>) = together.into_iter().unzip();
            let outcomes = match launch::start_together(orders, &target) {
                Ok(runs) => ids
                    .into_iter()
                    .zip(runs)
                    .map(|(id, run_dir)| (id, Ok(RunKey::new(run_dir.path()))))
                    .collect(),
                Err(error) => {
                    let reason = error.in_full();
                    ids.into_iter()
                        .map(|id| (id, Err(reason.clone())))
                        .collect()
                }
            };
            answer(Message::StartedTogether(outcomes))
        }))
    }

    pub(super) fn started_together(
        &mut self,
        outcomes: Vec<(u64, Result<RunKey, String>)>,
        shared: &mut Shared,
    ) -> Vec<Effect> {
        let mut effects: Vec<Effect> = outcomes
            .into_iter()
            .flat_map(|(id, outcome)| self.started(id, outcome, shared))
            .collect();
        effects.dedup_by(|one, other| {
            matches!((one, other), (Effect::RefreshRuns, Effect::RefreshRuns))
        });
        effects
    }

    pub(super) fn started(
        &mut self,
        id: u64,
        outcome: Result<RunKey, String>,
        shared: &mut Shared,
    ) -> Vec<Effect> {
        let failed = outcome.as_ref().err().cloned();
        let key = outcome.as_ref().ok().cloned();
        let Some(item) = self.queue.started(id, outcome) else {
            return Vec::new();
        };
        let (name, is_alone, is_shown) = (item.name.clone(), item.is_alone, item.is_shown);
        match (key, failed) {
            (Some(key), _) => {
                let more = match (is_alone, self.queue.waiting()) {
                    (true, _) | (_, 0) => String::new(),
                    (false, waiting) => format!("; {waiting} more wait on page 6"),
                };
                shared.say(Notice::good(format!(
                    "{name} runs; it goes on without the workbench{more}"
                )));
                if is_shown {
                    shared.wish = Some(Wish::ShowOn(key, PageId::Live));
                }
            }
            (None, Some(reason)) if is_alone => {
                let help = "d tries the experiment without starting it";
                shared.wish = Some(Wish::Problem(Problem::new(
                    format!("{name} did not start"),
                    reason,
                    help,
                )));
            }
            (None, _) => shared.say(Notice::bad(format!(
                "{name} did not start; enter on it says why"
            ))),
        }
        let mut effects = vec![Effect::RefreshRuns];
        effects.extend(self.start_due(shared));
        effects
    }
}

/// What a person would type to start the same run.
pub(super) fn command_line(order: &Order) -> Vec<String> {
    let mut words = vec!["lathe".to_owned()];
    words.extend(order.job.words().iter().map(|word| (*word).to_owned()));
    words.push(quoted(&order.experiment.display().to_string()));
    words.extend(order.overrides.iter().map(|text| quoted(text)));
    if let Some(name) = &order.name {
        words.extend(["--name".to_owned(), quoted(name)]);
    }
    if let Some(target) = &order.target {
        words.extend(["--on".to_owned(), quoted(target)]);
    }
    words.push("--detach".to_owned());
    words
}

/// For a shell.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = !word.is_empty()
        && word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c));
    if is_plain {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

//! What is to be started: an experiment, changes to it, and the runs that they make. Pure, checked while it is typed.

use std::path::PathBuf;

use experiment::keys::{self, Kind, Status};
use experiment::overrides::{self, Action};
use experiment::{Complaint, Severity};

use super::sweep::{self, Combine, Planned};
use crate::launch::Job;

/// The experiment that is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub path: PathBuf,
    /// As people call it.
    pub name: String,
    pub text: String,
    /// Of the run that is started again: its id and its name.
    pub parent: Option<(String, String)>,
    /// Of the run that is started again: what it was.
    pub job: Option<Job>,
}

/// What a person can change; a history of these is the undo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choices {
    /// Empty: the experiment's own name.
    pub name: String,
    pub overrides: Vec<String>,
    /// Of an experiment that has both; else what it is for.
    pub job: Job,
    pub combine: Combine,
    /// Runs of the queue that go at the same time.
    pub at_once: usize,
    /// None: this machine.
    pub target: Option<String>,
}

impl Default for Choices {
    fn default() -> Self {
        Self {
            name: String::new(),
            overrides: Vec::new(),
            job: Job::Run,
            combine: Combine::Grid,
            at_once: 1,
            target: None,
        }
    }
}

#[derive(Debug)]
pub struct Form {
    pub source: Option<Source>,
    choices: Choices,
    history: Vec<Choices>,
    /// The runs to start, or why there are none.
    pub plan: Result<Vec<Planned>, String>,
    /// Of the first run of the plan.
    pub complaints: Vec<Complaint>,
    /// The experiment's name with the overrides, before a label.
    pub base_name: String,
    /// What the experiment is for, by the files that it names; empty while it names none.
    pub jobs: Vec<Job>,
    /// Another number at each change.
    pub version: u64,
}

impl Default for Form {
    fn default() -> Self {
        Self {
            source: None,
            choices: Choices::default(),
            history: Vec::new(),
            plan: Ok(Vec::new()),
            complaints: Vec::new(),
            base_name: String::new(),
            jobs: Vec::new(),
            version: 0,
        }
    }
}

/// A line of the form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    Experiment,
    Name,
    /// Reinforcement learning or the supervised warm-up.
    Job,
    Target,
    Override(usize),
    Add,
    Combine,
    AtOnce,
}

impl Form {
    pub fn choices(&self) -> &Choices {
        &self.choices
    }

    pub fn rows(&self) -> Vec<Row> {
        let mut rows = vec![Row::Experiment, Row::Name];
        if self.jobs.iter().any(|job| *job != Job::Run) {
            rows.push(Row::Job);
        }
        rows.push(Row::Target);
        rows.extend((0..self.choices.overrides.len()).map(Row::Override));
        rows.push(Row::Add);
        if self.sweeps() > 1 {
            rows.push(Row::Combine);
        }
        if self.run_count() > 1 {
            rows.push(Row::AtOnce);
        }
        rows
    }

    fn sweeps(&self) -> usize {
        let swept = self
            .choices
            .overrides
            .iter()
            .filter(|text| sweep::read(text).is_ok_and(|swept| swept.is_sweep()));
        swept.count()
    }

    pub fn run_count(&self) -> usize {
        self.plan.as_ref().map_or(0, Vec::len)
    }

    /// What is started: what was chosen, of what the experiment is for.
    pub fn job(&self) -> Job {
        match self.jobs[..] {
            [only] => only,
            _ => self.choices.job,
        }
    }

    /// Takes another experiment; what was typed for the last one is kept, since it may be meant for this one too.
    pub fn take(&mut self, source: Source) {
        self.choices.job = source.job.unwrap_or(Job::Run);
        self.source = Some(source);
        self.check();
    }

    /// Changes what a person chose; can be undone.
    pub fn change(&mut self, change: impl FnOnce(&mut Choices)) {
        let before = self.choices.clone();
        change(&mut self.choices);
        if self.choices != before {
            self.history.push(before);
            self.check();
        }
    }

    pub fn undo(&mut self) -> bool {
        let Some(before) = self.history.pop() else {
            return false;
        };
        self.choices = before;
        self.check();
        true
    }

    /// What the run is called.
    pub fn run_name(&self, planned: &Planned) -> String {
        sweep::run_name(&self.base_name, &planned.label)
    }

    pub fn errors(&self) -> usize {
        self.complaints
            .iter()
            .filter(|complaint| complaint.severity == Severity::Error)
            .count()
    }

    fn check(&mut self) {
        self.version += 1;
        self.plan = sweep::plan(&self.choices.overrides, self.choices.combine);
        let Some(source) = &self.source else {
            return;
        };
        let first = match &self.plan {
            Ok(plan) => plan.first().map(|planned| planned.overrides.clone()),
            Err(_) => None,
        };
        let loaded = experiment::from_text(
            &source.path.display().to_string(),
            &source.text,
            &first.unwrap_or_default(),
        );
        self.base_name = if self.choices.name.is_empty() {
            loaded.experiment.trainer.experiment_name.clone()
        } else {
            self.choices.name.clone()
        };
        let experiment = &loaded.experiment;
        // The two read the same keys; which one it was, only the run knows that is started again.
        let supervised = match self.choices.job {
            Job::Reward => Job::Reward,
            Job::Run | Job::Sft => Job::Sft,
        };
        let files = [
            (Job::Run, &experiment.data.train_files),
            (supervised, &experiment.sft.train_files),
        ];
        self.jobs = files
            .into_iter()
            .filter(|(_, files)| !files.is_empty())
            .map(|(job, _)| job)
            .collect();
        self.complaints = loaded.complaints;
    }

    /// The runs with another override, at the place of the one that is changed; none while that is no plan.
    pub fn plan_with(&self, at: Option<usize>, text: &str) -> Vec<Planned> {
        let mut overrides = self.choices.overrides.clone();
        match at.and_then(|at| overrides.get_mut(at)) {
            Some(changed) => text.clone_into(changed),
            None => overrides.push(text.to_owned()),
        }
        sweep::plan(&overrides, self.choices.combine).unwrap_or_default()
    }
}

/// What is wrong with an override, every value of a sweep included. The table that checks files decides.
pub fn check_override(text: &str) -> Result<(), String> {
    let swept = sweep::read(text)?;
    for one in swept.overrides() {
        let parsed = overrides::parse(&one).map_err(|error| error.to_string())?;
        let written = parsed.path.join(".");
        let key = keys::canonical(&written).path;
        match (keys::status(&key), &parsed.action) {
            (Status::Live(live), Action::Set(node) | Action::Add(node)) => {
                // An interpolation is checked with the whole experiment.
                if !one.contains("${") {
                    experiment::check_value(live, node)?;
                }
            }
            (Status::Unknown, _) if keys::is_block(&key) => {
                return Err(format!("{written} is a block; name a key in it"));
            }
            (Status::Unknown, _) => {
                return Err(match keys::nearest(&key) {
                    Some(meant) => format!("unknown key {written}; did you mean {meant}?"),
                    None => format!("unknown key {written}"),
                });
            }
            (Status::Planned(what), _) => return Err(format!("{written}: {what}")),
            (Status::Live(_) | Status::Inert(_), _) => {}
        }
    }
    Ok(())
}

/// What may be typed next: whole overrides up to the `=`, or with each choice behind it. Best first.
pub fn completions(typed: &str, most: usize) -> Vec<String> {
    let (key, value) = match typed.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (typed, None),
    };
    let sigil: String = key.chars().take_while(|c| "+~".contains(*c)).collect();
    let key = key.trim_start_matches(['+', '~']).trim();
    if let Some(value) = value {
        let Status::Live(live) = keys::status(&keys::canonical(key).path) else {
            return Vec::new();
        };
        let names: Vec<&str> = match live.kind {
            Kind::Bool => vec!["true", "false"],
            Kind::Choice(choices) => choices.now.to_vec(),
            _ => Vec::new(),
        };
        return names
            .into_iter()
            .filter(|name| name.starts_with(value.trim()) && *name != value.trim())
            .take(most)
            .map(|name| format!("{sigil}{key}={name}"))
            .collect();
    }
    let wanted = key.to_lowercase();
    if wanted.is_empty() {
        return Vec::new();
    }
    // `optim.lr` finds actor_rollout_ref.actor.optim.lr before whatever has it in the middle of a name.
    let rank = |path: &str| {
        let is_whole_end = path == wanted || path.ends_with(&format!(".{wanted}"));
        let starts_name = path.starts_with(&wanted) || path.contains(&format!(".{wanted}"));
        (!is_whole_end, !starts_name, path.len())
    };
    let full = keys::canonical(&wanted).path;
    let mut found: Vec<&str> = keys::live()
        .iter()
        .map(|live| live.path.as_str())
        .filter(|path| path.contains(&wanted) || path.starts_with(&full))
        .collect();
    found.sort_by_key(|path| rank(path));
    found
        .into_iter()
        .take(most)
        .map(|path| format!("{sigil}{path}="))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_are_checked_by_the_table_that_checks_files() {
        for fine in [
            "actor.optim.lr=1e-5",
            "actor.optim.lr={1e-5,3e-5}",
            "+data.seed=7",
            "~critic.optim.lr",
            "data.train_files=[a.parquet,b.parquet]",
            "trainer.mode={sync,one_step_off}",
            "actor.optim.lr=${critic.optim.lr}",
        ] {
            assert_eq!(check_override(fine), Ok(()), "{fine}");
        }
        for (wrong, part) in [
            (
                "actor.optim.lrr=1",
                "did you mean actor_rollout_ref.actor.optim.lr?",
            ),
            ("actor.optim.lr={1e-5,-1}", "lr is -1; expected >= 0"),
            ("actor.optim=1", "is a block"),
            ("actor.optim.lr", "no `=`"),
            ("trainer.mode=later", "expected "),
            ("n=range(1,1)", "no value"),
        ] {
            let reason = check_override(wrong).unwrap_err();
            assert!(reason.contains(part), "{wrong}: {reason}");
        }
    }

    #[test]
    fn keys_and_choices_are_completed_best_first() {
        assert_eq!(
            completions("actor.optim.lr", 1),
            ["actor_rollout_ref.actor.optim.lr="]
        );
        assert_eq!(completions("+seed", 1), ["+data.seed="]);
        assert_eq!(completions("trainer.mode=s", 3), ["trainer.mode=sync"]);
        assert_eq!(completions("", 3), Vec::<String>::new());
        assert!(completions("lr", 50).len() > 5);
    }

    #[test]
    fn what_is_started_follows_from_the_files_that_are_named() {
        let mut form = Form::default();
        let mut take = |text: &str, job| {
            form.take(Source {
                path: PathBuf::from("a.yaml"),
                name: "a".to_owned(),
                text: text.to_owned(),
                parent: None,
                job,
            });
            (form.job(), form.rows().contains(&Row::Job))
        };
        let reinforced = "data: {train_files: a.parquet}\n";
        let supervised = "sft: {train_files: b.parquet}\n";
        assert_eq!(take(reinforced, None), (Job::Run, false));
        assert_eq!(take(supervised, None), (Job::Sft, true));
        let both = format!("{reinforced}{supervised}");
        assert_eq!(take(&both, None), (Job::Run, true));
        assert_eq!(take(&both, Some(Job::Sft)), (Job::Sft, true));
        assert_eq!(take(reinforced, Some(Job::Sft)), (Job::Run, false));
    }

    #[test]
    fn changes_are_undone_one_by_one() {
        let mut form = Form::default();
        form.change(|choices| choices.overrides.push("data.seed={1,2}".to_owned()));
        form.change(|choices| choices.at_once = 2);
        assert_eq!(form.run_count(), 2);
        assert!(form.undo() && form.undo());
        assert_eq!(form.choices(), &Choices::default());
        assert!(!form.undo());
    }
}

//! The whole experiment of every run that would be started, checked while it is typed: in jobs, some runs each, one job at a
//! time, so that a sweep of a thousand runs neither holds up a key nor floods the workers.

use experiment::{Complaint, Severity};

use super::form::Source;
use super::sweep::Planned;
use super::{Message, answer};
use crate::tui::action::Effect;

/// Runs that one job checks: some tens of milliseconds.
const RUNS_A_JOB: usize = 32;

/// A complaint, and which runs it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What tells the first run it was found in from the others; empty when there is only one.
    pub label: String,
    /// Runs that have it too.
    pub more: usize,
    pub complaint: Complaint,
}

impl Finding {
    /// `lr=1e-5 n=3 and 2 more runs: experiments/a.yaml:4: …`; of an override the label tells the value already.
    pub fn words(&self) -> String {
        let more = match self.more {
            0 => String::new(),
            1 => " and 1 more run".to_owned(),
            more => format!(" and {more} more runs"),
        };
        if self.label.is_empty() {
            return self.complaint.to_string();
        }
        match self.complaint.override_text {
            Some(_) => format!("{}{more}: {}", self.label, self.complaint.message),
            None => format!("{}{more}: {}", self.label, self.complaint),
        }
    }
}

#[derive(Debug, Default)]
pub struct Checking {
    /// What the plan was made from: when it is the same, so is the plan.
    of: Option<(u64, String)>,
    plan: Vec<Planned>,
    done: usize,
    found: Vec<Finding>,
    id: u64,
    is_asked: bool,
}

impl Checking {
    /// Takes another plan to check, unless it is the same.
    pub fn want(&mut self, of: (u64, String), plan: impl FnOnce() -> Vec<Planned>) {
        if self.of.as_ref() == Some(&of) {
            return;
        }
        self.of = Some(of);
        self.id += 1;
        self.done = 0;
        self.found.clear();
        self.plan = plan();
    }

    /// The job that checks the next runs, when there are some and none is at it.
    pub fn next_job(&mut self, source: &Source) -> Option<Effect> {
        if self.is_asked || self.done >= self.plan.len() {
            return None;
        }
        self.is_asked = true;
        let id = self.id;
        let end = (self.done + RUNS_A_JOB).min(self.plan.len());
        let runs = self.plan[self.done..end].to_vec();
        let (file, text) = (source.path.display().to_string(), source.text.clone());
        Some(Effect::job("check runs", move || {
            let count = runs.len();
            let complaints = runs
                .into_iter()
                .flat_map(|planned| {
                    let loaded = experiment::from_text(&file, &text, &planned.overrides);
                    let complaints = loaded.complaints.into_iter();
                    complaints.map(move |complaint| (planned.label.clone(), complaint))
                })
                .filter(|(_, complaint)| complaint.severity != Severity::Note)
                .collect();
            answer(Message::RunsChecked {
                id,
                count,
                complaints,
            })
        }))
    }

    /// An answer; of another plan it only makes room for the next job.
    pub fn take(&mut self, id: u64, count: usize, complaints: Vec<(String, Complaint)>) {
        self.is_asked = false;
        if id != self.id {
            return;
        }
        self.done += count;
        for (label, complaint) in complaints {
            match self
                .found
                .iter_mut()
                .find(|known| known.complaint.message == complaint.message)
            {
                Some(known) => known.more += usize::from(known.label != label),
                None => self.found.push(Finding {
                    label,
                    more: 0,
                    complaint,
                }),
            }
        }
        // Errors first; else in the order of the runs.
        self.found.sort_by_key(|found| found.complaint.severity);
    }

    /// How many of the runs were checked: done, all.
    pub fn progress(&self) -> (usize, usize) {
        (self.done, self.plan.len())
    }

    pub fn is_done(&self) -> bool {
        self.done >= self.plan.len()
    }

    /// What was found beside what is told already.
    pub fn found<'a>(&'a self, told: &'a [Complaint]) -> impl Iterator<Item = &'a Finding> {
        self.found.iter().filter(|found| {
            !told
                .iter()
                .any(|complaint| complaint.message == found.complaint.message)
        })
    }

    pub fn errors(&self) -> usize {
        self.found
            .iter()
            .filter(|found| found.complaint.severity == Severity::Error)
            .count()
    }
}

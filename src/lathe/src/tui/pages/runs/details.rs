//! What only the whole log of a run tells (best values, the summary), and what only its experiment does; read in jobs, a few
//! runs at a time, those on screen first.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use runlog::RunState;
use runlog::run_dir::RunDir;
use runlog::state::Liveness;
use serde_json::Value as Json;

use super::Message;
use crate::headless;
use crate::headless::judges::{self, Judges};
use crate::headless::summary::{self, Standing};
use crate::terminal::{Role, Terminal};
use crate::tui::action::{self, Effect, PageMessage};
use crate::tui::shared::{RunEntry, RunKey, Shared};

/// Runs that one job reads: few, so that what is on the screen is there soon.
const RUNS_A_JOB: usize = 8;
/// Newest finite values kept of each metric, for the filter's `mean(metric,20)`.
const NEWEST_KEPT: usize = 64;
/// A running run is read again when this share of its steps is new: following it costs no more than a few reads.
const READ_AGAIN_AFTER: f64 = 0.05;

/// One metric over a whole run.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricDetail {
    pub first: f64,
    pub last: f64,
    /// Least and most of the finite values.
    pub extremes: Option<(f64, f64)>,
    /// Up to [`NEWEST_KEPT`] finite values, the newest last.
    pub newest: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Detail {
    /// Steps that had ended when it was read.
    pub step: u64,
    pub has_ended: bool,
    pub metrics: BTreeMap<String, MetricDetail>,
    /// The text of `lathe runs show`.
    pub summary: Vec<String>,
    /// The log could not be read.
    pub problem: Option<String>,
}

#[derive(Debug, Default)]
pub struct Details {
    read: HashMap<RunKey, Detail>,
    configs: HashMap<RunKey, Arc<Json>>,
    /// The request that is being answered; other answers are stale.
    awaited: Option<u64>,
    requests: u64,
    awaited_configs: HashSet<RunKey>,
    replayed: Option<RunKey>,
}

impl Details {
    pub fn get(&self, key: &RunKey) -> Option<&Detail> {
        self.read.get(key)
    }

    pub fn config(&self, key: &RunKey) -> Option<&Json> {
        self.configs.get(key).map(Arc::as_ref)
    }

    /// Forgets runs that are gone.
    pub fn keep_only(&mut self, entries: &[RunEntry]) {
        if self.read.len() + self.configs.len() == 0 {
            return;
        }
        let known: HashSet<&RunKey> = entries.iter().map(|entry| &entry.key).collect();
        self.read.retain(|key, _| known.contains(key));
        self.configs.retain(|key, _| known.contains(key));
        self.awaited_configs.retain(|key| known.contains(key));
    }

    /// Of a run in a replay what was known at the moment that is shown; when the replay is over, nothing is known of it.
    pub fn follow_replay(&mut self, shared: &Shared) {
        for entry in &shared.runs.entries {
            if !entry.is_replayed {
                if self.replayed.as_ref() == Some(&entry.key) {
                    self.replayed = None;
                    self.read.remove(&entry.key);
                }
                continue;
            }
            self.replayed = Some(entry.key.clone());
            if let Some(run) = shared.open.get(&entry.key) {
                let unicode = shared.glyphs.unicode;
                let detail = of_state(
                    &run.state,
                    &entry.key,
                    &standing(entry),
                    false,
                    0,
                    None,
                    unicode,
                );
                self.read.insert(entry.key.clone(), detail);
            }
        }
    }

    fn is_fresh(&self, entry: &RunEntry) -> bool {
        if entry.is_replayed || entry.is_only_listed() {
            return true;
        }
        let (Some(detail), Some(glance)) = (self.read.get(&entry.key), &entry.glance) else {
            // A log that cannot be read even at its end is not read in full.
            return entry.glance.is_none() || self.read.contains_key(&entry.key);
        };
        let has_ended = glance.liveness != Liveness::Running;
        if has_ended {
            return detail.has_ended && detail.step == glance.step;
        }
        let new = glance.step.saturating_sub(detail.step) as f64;
        glance.step >= detail.step
            && new <= READ_AGAIN_AFTER * (glance.total_steps.max(glance.step) as f64)
    }

    /// Reads the next of `wanted` (in their order) that were not read, unless a job is at it.
    pub fn request<'a>(
        &mut self,
        wanted: impl Iterator<Item = &'a RunEntry>,
        shared: &Shared,
    ) -> Option<Effect> {
        if self.awaited.is_some() {
            return None;
        }
        let runs: Vec<(RunKey, Standing, bool)> = wanted
            .filter(|entry| !self.is_fresh(entry))
            .take(RUNS_A_JOB)
            .map(|entry| (entry.key.clone(), standing(entry), has_ended(entry)))
            .collect();
        if runs.is_empty() {
            return None;
        }
        self.requests += 1;
        let id = self.requests;
        self.awaited = Some(id);
        let unicode = shared.glyphs.unicode;
        Some(Effect::job("read runs", move || {
            let found = runs
                .into_iter()
                .map(|(key, standing, has_ended)| {
                    let detail = read(&key, &standing, has_ended, unicode);
                    (key, detail)
                })
                .collect();
            answer(Message::Details { id, found })
        }))
    }

    /// False: it was not asked for any more.
    pub fn take(&mut self, id: u64, found: Vec<(RunKey, Detail)>) -> bool {
        if self.awaited != Some(id) {
            return false;
        }
        self.awaited = None;
        let replayed = self.replayed.clone();
        let fitting = found
            .into_iter()
            .filter(|(key, _)| Some(key) != replayed.as_ref());
        self.read.extend(fitting);
        true
    }

    /// Reads the experiments that the filter asks for.
    pub fn request_configs(&mut self, entries: &[RunEntry]) -> Option<Effect> {
        let wanted: Vec<RunKey> = entries
            .iter()
            .map(|entry| &entry.key)
            .filter(|key| !self.configs.contains_key(key) && !self.awaited_configs.contains(key))
            .cloned()
            .collect();
        if wanted.is_empty() {
            return None;
        }
        self.awaited_configs.extend(wanted.iter().cloned());
        Some(Effect::job("read experiments", move || {
            let found = wanted
                .into_iter()
                .map(|key| {
                    let config = read_config(&key).unwrap_or(Json::Null);
                    (key, Arc::new(config))
                })
                .collect();
            answer(Message::Configs(found))
        }))
    }

    pub fn take_configs(&mut self, found: Vec<(RunKey, Arc<Json>)>) {
        for (key, _) in &found {
            self.awaited_configs.remove(key);
        }
        self.configs.extend(found);
    }
}

fn answer(message: Message) -> action::Message {
    action::Message::Page(PageMessage::Runs(message))
}

fn has_ended(entry: &RunEntry) -> bool {
    entry
        .glance
        .as_ref()
        .is_some_and(|glance| glance.liveness != Liveness::Running)
}

fn standing(entry: &RunEntry) -> Standing {
    let glance = entry.glance.as_ref().filter(|_| !entry.is_replayed);
    let liveness = glance.map(|glance| &glance.liveness);
    Standing {
        word: entry.state_word().to_owned(),
        role: Role::Strong,
        reason: liveness
            .and_then(|liveness| liveness.reason())
            .map(str::to_owned),
    }
}

/// The experiment in force, every key with its value; None when there is none to read.
pub fn read_config(key: &RunKey) -> Option<Json> {
    let run_dir = RunDir::open(key.path()).ok()?;
    let text = std::fs::read_to_string(run_dir.experiment_path()).ok()?;
    if run_dir.info().foreign_format().is_some() {
        // Another tracker's settings have keys of their own.
        return experiment::yaml::from_text(&text).ok();
    }
    Some(experiment::from_text("experiment.yaml", &text, &[]).effective())
}

fn read(key: &RunKey, standing: &Standing, has_ended: bool, unicode: bool) -> Detail {
    let problem = |reason: String| Detail {
        step: 0,
        has_ended,
        metrics: BTreeMap::new(),
        summary: Vec::new(),
        problem: Some(reason),
    };
    let run_dir = match RunDir::open(key.path()) {
        Ok(run_dir) => run_dir,
        Err(error) => return problem(error.to_string()),
    };
    let (state, bad_lines) = match headless::read(&run_dir) {
        Ok(read) => read,
        Err(error) => return problem(format!("{}: {error}", run_dir.events_path().display())),
    };
    // An experiment takes longer to read than most of the rest, and few have arms.
    let has_arms = state.bandit.is_some() || judges::has_any(&state);
    let judges = has_arms.then(|| Judges::of_run(key.path())).flatten();
    let judges = judges.as_ref();
    of_state(&state, key, standing, has_ended, bad_lines, judges, unicode)
}

fn of_state(
    state: &RunState,
    key: &RunKey,
    standing: &Standing,
    has_ended: bool,
    bad_lines: u64,
    judges: Option<&Judges>,
    unicode: bool,
) -> Detail {
    let metrics = state
        .series
        .iter()
        .filter_map(|(name, series)| {
            let newest = series
                .values()
                .iter()
                .rev()
                .filter(|value| value.is_finite())
                .take(NEWEST_KEPT);
            let mut newest: Vec<f64> = newest.copied().collect();
            newest.reverse();
            let detail = MetricDetail {
                first: series.first()?.value.0,
                last: series.last()?.value.0,
                extremes: series
                    .bounds(0..series.len())
                    .map(|bounds| (bounds.min, bounds.max)),
                newest,
            };
            Some((name.to_owned(), detail))
        })
        .collect();
    let terminal = Terminal {
        to_screen: true,
        errors_to_screen: true,
        unicode,
        color: false,
        color_stderr: false,
        plain: false,
    };
    Detail {
        step: state.step,
        has_ended,
        metrics,
        summary: summary::lines(state, key.path(), standing, bad_lines, judges, terminal),
        problem: None,
    }
}

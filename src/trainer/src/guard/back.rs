//! Going back to a checkpoint while the run runs: which one, and what of it comes back.
//!
//! Weights, optimizers, critic, KL controllers, the bandit, the place in the data and the knobs are the checkpoint's again. Steps and
//! versions go on counting. A learning rate that was lowered since stays lowered, or the same cause would come again; guards
//! keep their trips for the same reason. What the run left behind is no checkpoint to go back to later.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use experiment::settings::Mode;
use runlog::control::{CheckpointName, CheckpointState};
use runlog::number::Number;

use super::act::{RATES, knob_name};
use crate::checkpoint;
use crate::resume;
use crate::training::{STALENESS, Training, said};

/// Checkpoints that a status lists, beside the best: a line has its limit.
const MOST_LISTED: usize = 40;

/// Knobs that lie in the controllers, which come back whole.
const IN_CONTROLLERS: [&str; 2] = [
    "actor_rollout_ref.actor.kl_loss_coef",
    "algorithm.kl_ctrl.kl_coef",
];

impl Training<'_> {
    /// The checkpoints that the run did not leave behind, the oldest first.
    fn checkpoints(&self) -> Result<Vec<(u64, PathBuf)>, String> {
        let found = checkpoint::list(&self.run_dir.checkpoints_dir())
            .map_err(|error| format!("the checkpoints cannot be listed: {error}"))?;
        let is_left = |step: u64| {
            let mut spans = self.guards.left_behind.iter();
            spans.any(|(from, to)| *from < step && step < *to)
        };
        Ok(found
            .into_iter()
            .map(|found| (found.step, found.path))
            .filter(|(step, _)| !is_left(*step))
            .collect())
    }

    /// The one with the best evaluation; the newest where none was evaluated.
    fn best(&self, among: &[(u64, PathBuf)]) -> Option<u64> {
        let steps = || among.iter().map(|(step, _)| *step);
        steps()
            .filter_map(|step| Some((step, self.guards.score(step)?)))
            .max_by(|left, right| left.1.total_cmp(&right.1))
            .map(|(step, _)| step)
            .or_else(|| steps().next_back())
    }

    fn good(&self, among: &[(u64, PathBuf)]) -> Option<u64> {
        let before = self.guards.guards.trouble().unwrap_or(u64::MAX);
        let mut steps = among.iter().map(|(step, _)| *step);
        steps.rfind(|step| *step < before)
    }

    /// For a status: the newest, and the best.
    pub fn checkpoint_states(&self) -> Vec<CheckpointState> {
        let Ok(all) = self.checkpoints() else {
            return Vec::new();
        };
        let (best, good) = (self.best(&all), self.good(&all));
        let newest = all.len().saturating_sub(MOST_LISTED);
        all.iter()
            .enumerate()
            .map(|(at, (step, _))| {
                let state = CheckpointState {
                    step: *step,
                    score: self.guards.score(*step).map(Number),
                    is_best: Some(*step) == best,
                    is_good: Some(*step) == good,
                };
                (at, state)
            })
            .filter(|(at, state)| *at >= newest || state.is_best)
            .map(|(_, state)| state)
            .collect()
    }

    /// To the newest whole checkpoint from before the trouble, or to the best of those.
    pub(super) fn back_before(&mut self, trouble: u64, to_best: bool) -> Result<String, String> {
        let mut before = self.checkpoints()?;
        before.retain(|(step, _)| *step < trouble);
        let chosen = if to_best {
            self.best(&before)
        } else {
            before.last().map(|(step, _)| *step)
        };
        let chosen =
            chosen.ok_or_else(|| format!("there is no checkpoint from before step {trouble}"))?;
        self.back_to_whole(before, chosen)
    }

    /// To a checkpoint that somebody named. One that is broken is refused where its step was named; elsewhere the next older
    /// whole one is taken.
    pub(crate) fn back_to_named(&mut self, to: CheckpointName) -> Result<String, String> {
        let all = self.checkpoints()?;
        let listed = || -> String {
            let (best, good) = (self.best(&all), self.good(&all));
            let words: Vec<String> = all
                .iter()
                .rev()
                .take(MOST_LISTED)
                .rev()
                .map(|(step, _)| {
                    let marks = [("best", best), ("good", good)]
                        .into_iter()
                        .filter(|(_, of)| *of == Some(*step))
                        .map(|(mark, _)| format!(" ({mark})"));
                    format!("{step}{}", marks.collect::<String>())
                })
                .collect();
            if words.is_empty() {
                "there are none yet; `checkpoint` writes one".to_owned()
            } else {
                format!("there are those of steps {}", words.join(", "))
            }
        };
        let chosen = match to {
            CheckpointName::Step(step) => all
                .iter()
                .any(|(of, _)| *of == step)
                .then_some(step)
                .ok_or_else(|| format!("there is no checkpoint of step {step}; {}", listed()))?,
            CheckpointName::Best => self
                .best(&all)
                .ok_or_else(|| format!("there is no best checkpoint; {}", listed()))?,
            CheckpointName::Good => self
                .good(&all)
                .ok_or_else(|| format!("there is no good checkpoint; {}", listed()))?,
        };
        if let CheckpointName::Step(step) = to {
            let (_, path) = all
                .iter()
                .find(|(of, _)| *of == step)
                .expect("looked for above");
            checkpoint::verify(path).map_err(|error| format!("{error}; {}", listed()))?;
        }
        self.back_to_whole(all, chosen)
    }

    /// To the newest whole one of those that are not newer than `chosen`.
    fn back_to_whole(
        &mut self,
        mut among: Vec<(u64, PathBuf)>,
        chosen: u64,
    ) -> Result<String, String> {
        among.retain(|(step, _)| *step <= chosen);
        let paths = among.into_iter().map(|(_, path)| path).collect();
        let (whole, passed_over) =
            resume::newest_whole_of(paths).map_err(|error| error.to_string())?;
        let path = whole.ok_or_else(|| {
            format!(
                "no checkpoint of step {chosen} or older is whole: {}",
                passed_over.join("; ")
            )
        })?;
        let mut after = self.back_to(&path)?;
        if !passed_over.is_empty() {
            after = format!("{after} (passed over: {})", passed_over.join("; "));
        }
        Ok(after)
    }

    /// Puts a whole checkpoint into the living run; says what now stands.
    fn back_to(&mut self, path: &Path) -> Result<String, String> {
        let lowered: Vec<(&str, f64)> = RATES
            .into_iter()
            .filter_map(|key| Some((key, self.knob_value(key)?)))
            .collect();
        // The newest may still be under way; what became of it was told.
        drop(self.saver.wait());
        let counters = self
            .learner
            .restore(path)
            .map_err(|error| error.to_string())?;
        self.rollouts.rewind(self.trained, counters.cursor.clone());
        self.cursor.clone_from(&counters.cursor);
        if let Some(choosing) = &mut self.choosing {
            choosing
                .rewind(counters.choosing, self.trained)
                .map_err(|error| error.to_string())?;
        }
        let mut words = format!(
            "weights, optimizer, controllers and data of step {}",
            counters.step
        );
        let is_same_mode = counters.mode.unwrap_or(self.experiment.trainer.mode) == self.mode;
        let restored = self.restore_knobs(&counters.knobs, is_same_mode, &counters.guards);
        for (key, rate) in lowered {
            if self.knob_value(key).is_some_and(|now| rate < now) && self.turn(key, rate).is_ok() {
                words = format!("{words}, {} stays {rate:.3e}", knob_name(key));
            }
        }
        for (key, value) in restored {
            words = format!("{words}, {} {value} again", knob_name(&key));
        }
        self.guards.guards.rolled_back(counters.step);
        self.guards.left_behind.push((counters.step, self.trained));
        if let Some(score) = self.guards.score(counters.step) {
            self.guards.evaluations.push((self.trained, score));
        }
        // The newest on disk would be of what was left: an interruption now must not bring it back. A failure is an alarm.
        drop(Training::checkpoint(self));
        Ok(words)
    }

    /// The knobs as a checkpoint had them: those it names, and the experiment's values of those set since. Gives the ones that
    /// changed and are not the learning rates.
    fn restore_knobs(
        &mut self,
        saved: &BTreeMap<String, f64>,
        is_same_mode: bool,
        guards: &super::Saved,
    ) -> Vec<(String, f64)> {
        let keys: Vec<String> = saved.keys().chain(self.changed.keys()).cloned().collect();
        let before: BTreeMap<String, f64> = keys
            .iter()
            .filter_map(|key| Some((key.clone(), *self.changed.get(key)?)))
            .collect();
        let mut restored = BTreeMap::new();
        for key in keys {
            if IN_CONTROLLERS.contains(&key.as_str()) {
                continue;
            }
            let Some(mut value) = saved
                .get(&key)
                .copied()
                .or_else(|| said(self.experiment, &key))
            else {
                continue;
            };
            if key == STALENESS {
                if !is_same_mode {
                    continue;
                }
                // A checkpoint from within a guard's synchronous rounds had the bound of after them.
                if let Some(under_way) = &guards.synchronous {
                    value = under_way.back_to as f64;
                }
                if let Some(under_way) = &mut self.guards.synchronous {
                    under_way.back_to = value as u64;
                    continue;
                }
            }
            if self.turn(&key, value).is_ok()
                && !RATES.contains(&key.as_str())
                && before.get(&key).is_some_and(|before| *before != value)
            {
                restored.insert(key, value);
            }
        }
        restored.into_iter().collect()
    }
}

/// As the log says it.
pub(crate) fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Sync => "sync",
        Mode::OneStepOff => "one_step_off",
        Mode::Async => "async",
        Mode::Auto => "auto",
    }
}

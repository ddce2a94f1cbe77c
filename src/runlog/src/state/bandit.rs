//! The bandit of `reward.bandit`: what it believes now, what it chose, and its latest updates.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::{RunState, push_bounded};
use crate::control::ArmState;
use crate::event::{BanditArm, EventKind};
use crate::number::Number;

/// Updates kept one by one; the log itself has all of them.
pub const RECENT_BANDIT_UPDATES: usize = 2000;
/// Choices kept one by one.
pub const RECENT_BANDIT_CHOICES: usize = 2000;

/// All of a run's `BanditChose` and `BanditUpdated`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BanditState {
    pub policy: String,
    /// As the last update left them; empty before the first.
    pub arms: Vec<BanditArm>,
    pub epsilon: Option<Number>,
    pub regret: Option<Number>,
    pub disagreement: Option<Number>,
    /// Choices by arm; a blend of all arms counts under the empty name.
    pub chosen: BTreeMap<String, u64>,
    /// Choices by reason: `sampled`, `explored`, ...
    pub reasons: BTreeMap<String, u64>,
    pub choices: u64,
    /// The latest ones, oldest first.
    pub recent: VecDeque<BanditChoice>,
    pub updates: u64,
    /// The latest ones, oldest first.
    pub history: VecDeque<BanditPoint>,
}

/// A choice, as it was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BanditChoice {
    pub pull: u64,
    pub step: u64,
    /// Empty: all arms, blended.
    pub arm: String,
    /// `sampled`, `explored`, ...
    pub why: String,
    pub propensity: Option<Number>,
    /// In the order of the arms; empty where nothing was compared.
    pub scores: Vec<Number>,
}

/// What an update left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BanditPoint {
    pub elapsed_ms: f64,
    pub step: u64,
    pub update: u64,
    /// In the order of [`BanditState::arms`].
    pub means: Vec<Option<Number>>,
    pub sds: Vec<Option<Number>>,
    /// Share of all choices so far that each arm had, 0..1.
    pub shares: Vec<f64>,
    pub regret: Option<Number>,
    pub disagreement: Option<Number>,
}

/// A bandit in one object, for the summary of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BanditSummary {
    /// As the experiment names it; empty before the first update.
    pub policy: String,
    pub choices: u64,
    pub updates: u64,
    /// In the bandit's order.
    pub arms: Vec<ArmState>,
    /// Judges that it does not choose among, with the mean score of the newest batch.
    pub held_out: BTreeMap<String, Number>,
    /// Choices by reason.
    pub reasons: BTreeMap<String, u64>,
    pub epsilon: Option<Number>,
    pub regret: Option<Number>,
    pub disagreement: Option<Number>,
    /// Mean score of the probe's prompts.
    pub probe_accuracy: Option<Number>,
}

impl BanditState {
    /// Its arms with their pulls; before the first update those that were chosen.
    pub fn arm_states(&self) -> Vec<ArmState> {
        let pulls = |name: &str| self.chosen.get(name).copied().unwrap_or(0);
        if self.arms.is_empty() {
            let named = self.chosen.iter().filter(|(name, _)| !name.is_empty());
            return named
                .map(|(name, pulls)| ArmState {
                    name: name.clone(),
                    pulls: *pulls,
                    ..ArmState::default()
                })
                .collect();
        }
        self.arms
            .iter()
            .map(|arm| ArmState::of(arm, pulls(&arm.name)))
            .collect()
    }

    /// Back to the end of `step`: later choices and updates are made again.
    pub(super) fn rewind(&mut self, step: u64) {
        self.history.retain(|point| point.step <= step);
        let (kept, undone): (VecDeque<_>, VecDeque<_>) = self
            .recent
            .drain(..)
            .partition(|choice| choice.step <= step);
        self.recent = kept;
        let one_less = |counts: &mut BTreeMap<String, u64>, key: &str| {
            if let Some(count) = counts.get_mut(key) {
                *count = count.saturating_sub(1);
            }
        };
        for choice in undone {
            one_less(&mut self.chosen, &choice.arm);
            one_less(&mut self.reasons, &choice.why);
            self.choices = self.choices.saturating_sub(1);
        }
    }
}

impl RunState {
    /// The judges that the bandit does not choose among: arms that score and are none of its own, by name. Empty before the
    /// first update, which says which those are.
    pub fn held_out_judges(&self) -> impl Iterator<Item = (&str, Number)> {
        let bandit = self
            .bandit
            .as_ref()
            .filter(|bandit| !bandit.arms.is_empty());
        bandit.into_iter().flat_map(|bandit| {
            self.series.iter().filter_map(|(metric, series)| {
                let rest = metric.strip_prefix("reward/arm/")?;
                let name = rest.strip_suffix("/score/mean")?;
                let is_own = bandit.arms.iter().any(|arm| arm.name == name);
                let last = series.last().filter(|_| !is_own)?;
                Some((name, last.value))
            })
        })
    }

    /// None: it has none, or it has chosen nothing yet.
    pub fn bandit_summary(&self) -> Option<BanditSummary> {
        let bandit = self.bandit.as_ref()?;
        let probe = self.series.get("bandit/probe/accuracy");
        Some(BanditSummary {
            policy: bandit.policy.clone(),
            choices: bandit.choices,
            updates: bandit.updates,
            arms: bandit.arm_states(),
            held_out: self
                .held_out_judges()
                .map(|(name, score)| (name.to_owned(), score))
                .collect(),
            reasons: bandit.reasons.clone(),
            epsilon: bandit.epsilon,
            regret: bandit.regret,
            disagreement: bandit.disagreement,
            probe_accuracy: probe.and_then(|probe| Some(probe.last()?.value)),
        })
    }

    /// Takes a `BanditChose` or `BanditUpdated`; anything else changes nothing.
    pub(super) fn apply_bandit(&mut self, elapsed_ms: f64, kind: &EventKind) {
        match kind {
            EventKind::BanditChose {
                pull,
                step,
                arm,
                why,
                propensity,
                scores,
                ..
            } => {
                let bandit = self.bandit.get_or_insert_default();
                let arm = arm.clone().unwrap_or_default();
                *bandit.chosen.entry(arm.clone()).or_default() += 1;
                *bandit.reasons.entry(why.clone()).or_default() += 1;
                bandit.choices += 1;
                let choice = BanditChoice {
                    pull: *pull,
                    step: *step,
                    arm,
                    why: why.clone(),
                    propensity: *propensity,
                    scores: scores.clone(),
                };
                push_bounded(&mut bandit.recent, RECENT_BANDIT_CHOICES, choice);
            }
            EventKind::BanditUpdated {
                update,
                step,
                policy,
                arms,
                epsilon,
                regret,
                disagreement,
            } => {
                let bandit = self.bandit.get_or_insert_default();
                policy.clone_into(&mut bandit.policy);
                arms.clone_into(&mut bandit.arms);
                bandit.epsilon = *epsilon;
                bandit.regret = *regret;
                bandit.disagreement = *disagreement;
                bandit.updates = *update;
                let all = bandit.choices.max(1) as f64;
                let share = |arm: &BanditArm| {
                    bandit.chosen.get(&arm.name).copied().unwrap_or(0) as f64 / all
                };
                let point = BanditPoint {
                    elapsed_ms,
                    step: *step,
                    update: *update,
                    means: arms.iter().map(|arm| arm.mean).collect(),
                    sds: arms.iter().map(|arm| arm.sd).collect(),
                    shares: arms.iter().map(share).collect(),
                    regret: *regret,
                    disagreement: *disagreement,
                };
                push_bounded(&mut bandit.history, RECENT_BANDIT_UPDATES, point);
            }
            _ => {}
        }
    }

    /// Somebody forced, froze or let go an arm: what the last update says of it is out of date.
    pub(super) fn control_arm(&mut self, command: &str, target: Option<&str>) {
        let Some(bandit) = &mut self.bandit else {
            return;
        };
        for arm in &mut bandit.arms {
            let is_meant = Some(arm.name.as_str()) == target;
            match command {
                "arm_force" => arm.is_forced = is_meant,
                "arm_release" => arm.is_forced = false,
                "arm_freeze" => arm.is_frozen |= is_meant,
                "arm_unfreeze" => arm.is_frozen &= !is_meant,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;

    fn arm(name: &str, mean: f64) -> BanditArm {
        BanditArm {
            name: name.to_owned(),
            counted: 5,
            timed_out: 1,
            missing: 0,
            mean: Some(Number(mean)),
            sd: Some(Number(0.1)),
            chance: None,
            is_frozen: false,
            is_forced: false,
        }
    }

    fn fold(kinds: Vec<EventKind>) -> RunState {
        let mut state = RunState::default();
        for (seq, kind) in kinds.into_iter().enumerate() {
            state.apply(&Event {
                seq: seq as u64,
                elapsed_ms: seq as f64,
                kind,
            });
        }
        state
    }

    fn chose(pull: u64, arm: Option<&str>) -> EventKind {
        EventKind::BanditChose {
            pull,
            step: 1,
            uid: "u".to_owned(),
            sample: 0,
            arm: arm.map(str::to_owned),
            why: if arm.is_some() { "sampled" } else { "fixed" }.to_owned(),
            propensity: None,
            scores: vec![Number(f64::INFINITY), Number(0.5)],
        }
    }

    fn updated(update: u64, mean: f64) -> EventKind {
        EventKind::BanditUpdated {
            update,
            step: update,
            policy: "thompson".to_owned(),
            arms: vec![arm("rule", mean), arm("model", 0.5)],
            epsilon: None,
            regret: Some(Number(1.5)),
            disagreement: None,
        }
    }

    #[test]
    fn choices_are_counted_by_arm_and_reason_and_the_last_update_is_what_is_believed() {
        assert_eq!(fold(vec![]).bandit, None);
        let state = fold(vec![
            chose(0, Some("rule")),
            chose(1, Some("rule")),
            chose(2, Some("model")),
            chose(3, None),
            updated(1, 0.25),
            updated(2, 0.75),
        ]);
        let bandit = state.bandit.unwrap();
        assert_eq!((bandit.choices, bandit.updates), (4, 2));
        assert_eq!(bandit.chosen["rule"], 2);
        assert_eq!((bandit.chosen[""], bandit.reasons["sampled"]), (1, 3));
        let last = bandit.recent.back().unwrap();
        assert_eq!((&*last.arm, &*last.why, last.pull), ("", "fixed", 3));
        assert_eq!(bandit.arms[0].mean, Some(Number(0.75)));
        let means: Vec<_> = bandit.history.iter().map(|point| point.means[0]).collect();
        assert_eq!(means, [Some(Number(0.25)), Some(Number(0.75))]);
        assert_eq!(bandit.history[1].shares, [0.5, 0.25]);
        assert_eq!(
            (bandit.policy.as_str(), bandit.regret),
            ("thompson", Some(Number(1.5)))
        );
    }

    #[test]
    fn an_arm_is_forced_or_frozen_from_the_command_on_and_not_from_the_next_update() {
        let told = |command: &str, target: Option<&str>| EventKind::ControlApplied {
            request: 1,
            who: "ana".to_owned(),
            command: command.to_owned(),
            step: 1,
            target: target.map(str::to_owned),
            before: None,
            after: None,
            until_step: None,
            knob: None,
            from: None,
            to: None,
            from_step: Some(2),
        };
        let mut kinds = vec![updated(1, 0.5)];
        for (command, target, stand) in [
            ("arm_force", Some("rule"), ["forced", "free"]),
            ("arm_freeze", Some("model"), ["forced", "frozen"]),
            ("arm_force", Some("model"), ["free", "forced, frozen"]),
            ("arm_release", None, ["free", "frozen"]),
            ("arm_unfreeze", Some("model"), ["free", "free"]),
        ] {
            kinds.push(told(command, target));
            let bandit = fold(kinds.clone()).bandit.unwrap();
            let words: Vec<_> = (bandit.arms.iter())
                .map(|arm| crate::control::arm_words(arm.is_forced, arm.is_frozen))
                .collect();
            assert_eq!(words, stand, "after {command} {target:?}");
        }
        let before_any = fold(vec![told("arm_force", Some("rule"))]);
        assert_eq!(before_any.bandit, None, "nothing is known to be a bandit");
    }

    #[test]
    fn a_run_that_goes_on_from_a_checkpoint_counts_what_is_chosen_again_once() {
        let at = |pull: u64, step: u64, name: &str| {
            let mut kind = chose(pull, Some(name));
            if let EventKind::BanditChose { step: at, .. } = &mut kind {
                *at = step;
            }
            kind
        };
        let resumed = EventKind::RunResumed {
            from_step: 1,
            checkpoint: None,
            lost_steps: 2,
            passed_over: Vec::new(),
        };
        let bandit = fold(vec![
            at(0, 1, "rule"),
            at(1, 2, "rule"),
            at(2, 3, "model"),
            resumed,
            at(1, 2, "model"),
        ])
        .bandit
        .unwrap();
        assert_eq!((bandit.chosen["rule"], bandit.chosen["model"]), (1, 1));
        assert_eq!((bandit.choices, bandit.reasons["sampled"]), (2, 2));
        let pulls: Vec<u64> = bandit.recent.iter().map(|choice| choice.pull).collect();
        assert_eq!(pulls, [0, 1]);
    }

    #[test]
    fn a_summary_has_the_arms_with_their_pulls_and_the_judges_that_are_held_out() {
        let scores = |names: [&str; 2]| EventKind::StepEnded {
            step: 1,
            policy_version: 1,
            values: names
                .into_iter()
                .map(|name| (format!("reward/arm/{name}/score/mean"), Number(0.5)))
                .collect(),
        };
        let early = fold(vec![chose(0, Some("rule")), scores(["rule", "exact"])]);
        let summary = early.bandit_summary().unwrap();
        assert_eq!((&*summary.arms[0].name, summary.arms[0].pulls), ("rule", 1));
        assert!(summary.held_out.is_empty(), "nobody knows yet");
        let state = fold(vec![
            chose(0, Some("model")),
            scores(["rule", "exact"]),
            updated(1, 0.25),
        ]);
        let summary = state.bandit_summary().unwrap();
        let pulls: Vec<_> = (summary.arms.iter())
            .map(|arm| (&*arm.name, arm.pulls, arm.counted))
            .collect();
        assert_eq!(pulls, [("rule", 0, 5), ("model", 1, 5)]);
        assert_eq!(summary.held_out.keys().collect::<Vec<_>>(), ["exact"]);
        assert_eq!(fold(vec![scores(["rule", "exact"])]).bandit_summary(), None);
    }

    #[test]
    fn a_long_run_keeps_its_latest_updates() {
        let last = RECENT_BANDIT_UPDATES as u64 + 5;
        let bandit = fold((1..=last).map(|update| updated(update, 0.5)).collect())
            .bandit
            .unwrap();
        assert_eq!(bandit.history.len(), RECENT_BANDIT_UPDATES);
        assert_eq!(bandit.history.back().unwrap().update, last);
    }
}

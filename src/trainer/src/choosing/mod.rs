//! WHICH ARM SCORES A STEP: the bandit of `reward.bandit` while a run trains.
//!
//! ```text
//!  batch of step s, scored by every arm ─► learn what is due ─► choose ─► the arm's scores are the batch's ─► train
//!                                              ▲                               every `steps_per_pull` steps     │
//!   probe of version v (rollout side) ── value ┘◄────────────── the pull ends after its last step ◄─────────────┘
//! ```
//! Every arm is asked about every dialogue, and which of them counts is chosen when the step is trained: the choice then knows
//! all there is to know, however far rollouts run ahead, and arms can be compared. One arm scores a whole batch: the samples of
//! a group are compared with one another, and what a batch brought can be told of one arm only. What is learned before which
//! choice depends on steps and never on the clock: before step s of a run whose batches may lag L versions the probes of
//! versions up to s−1−L are waited for, and later ones are not looked at.

mod context;
mod labels;
mod pull;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use ::bandit::{Bandit, BanditError, Choice, Context, Disagreement, Learned, Outcome, State};
use dialogue::rollout::Rollout;
use experiment::Experiment;
use experiment::bandit::RewardedBy;
use runlog::control::ArmState;
use runlog::event::{BanditArm, EventKind};
use runlog::number::Number;
use serde::{Deserialize, Serialize};

use crate::learner::GREEDY_BASELINE;
use crate::learner::metrics::StepValues;
use crate::overlong::OVERLONG_PENALTY;

pub use context::context;
pub use labels::Labels;
use pull::{Brought, OpenPull};

/// Rollouts that arms are compared over.
const COMPARED_ROLLOUTS: usize = 256;

/// What a probe of one version came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probed {
    pub version: u64,
    /// Rewinds of the run before that version was given out.
    pub rewinds: u64,
    /// Mean score of the probe's rows; NaN: it was cut short.
    pub accuracy: f64,
}

/// An arm that may be chosen.
#[derive(Debug, Clone, PartialEq)]
struct Candidate {
    name: String,
    /// Factor of its score.
    weight: f64,
}

/// What lies in a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    bandit: State,
    pulls: VecDeque<OpenPull>,
    probed: BTreeMap<u64, f64>,
    disagreement: Disagreement,
}

#[derive(Debug)]
pub struct Choosing {
    bandit: Bandit,
    rewarded_by: RewardedBy,
    steps_per_pull: u64,
    total_steps: u64,
    candidates: Vec<Candidate>,
    /// Those without an outcome, the oldest first; the last may be under way.
    pulls: VecDeque<OpenPull>,
    /// Accuracy of the probe by version, as far as pulls need it; NaN: it was cut short.
    probed: BTreeMap<u64, f64>,
    /// Where this process, or the last rewind, began: no older version is probed any more.
    since: u64,
    disagreement: Disagreement,
    /// Values of the pulls that were learned from since the last rows.
    brought: Vec<f64>,
}

impl Choosing {
    /// None where the experiment has no policy that learns.
    pub fn new(experiment: &Experiment, total_steps: u64) -> Result<Option<Self>, BanditError> {
        let reward = &experiment.reward;
        let data = &experiment.data;
        let rollouts = data.train_batch_size * experiment.actor_rollout_ref.rollout.n;
        let steps_per_pull = reward.bandit.steps_per_pull;
        let Some(settings) = reward
            .bandit
            .learning(u64::from(rollouts) * u64::from(steps_per_pull))
        else {
            return Ok(None);
        };
        let candidates: Vec<Candidate> = experiment::arms::candidates(&reward.arms)
            .map(|arm| Candidate {
                name: arm.name.clone(),
                weight: arm.weight,
            })
            .collect();
        let names: Vec<String> = candidates.iter().map(|arm| arm.name.clone()).collect();
        Ok(Some(Self {
            bandit: Bandit::new(settings, &names, experiment.trainer.seed)?,
            rewarded_by: reward.bandit.rewarded_by,
            steps_per_pull: u64::from(steps_per_pull),
            total_steps,
            disagreement: Disagreement::new(candidates.len(), COMPARED_ROLLOUTS),
            candidates,
            pulls: VecDeque::new(),
            probed: BTreeMap::new(),
            since: 0,
            brought: Vec::new(),
        }))
    }

    /// Knows nothing yet, and begins with the weights of step `trained` of another run.
    pub fn begin_at(&mut self, trained: u64) {
        self.since = trained;
    }

    /// Whether the weights that the run begins with, of version `trained`, must be probed wherever they stand among the pulls:
    /// the next pull begins with them.
    pub fn begins_with(&self, trained: u64) -> bool {
        !self.is_under_way() && !self.probed.contains_key(&trained)
    }

    pub fn save(&self) -> Saved {
        Saved {
            bandit: self.bandit.state().clone(),
            pulls: self.pulls.clone(),
            probed: self.probed.clone(),
            disagreement: self.disagreement.clone(),
        }
    }

    /// Goes on where `saved` was taken, after `trained` steps, in another process.
    pub fn resume(&mut self, saved: Saved, trained: u64) -> Result<(), BanditError> {
        self.bandit = Bandit::resume(self.bandit.settings().clone(), &self.names(), saved.bandit)?;
        self.pulls = saved.pulls;
        self.probed = saved.probed;
        self.disagreement = saved.disagreement;
        self.since = trained;
        self.brought.clear();
        Ok(())
    }

    /// The run went back to weights with which `saved` was taken; steps go on counting after `trained`. What is believed is as
    /// it was then. Pulls go on counting, so that the same draws do not lead to the same trouble; what somebody forced or froze
    /// stays so; and pulls whose versions were left behind bring nothing.
    pub fn rewind(&mut self, saved: Option<Saved>, trained: u64) -> Result<(), BanditError> {
        let before = self.bandit.state().clone();
        let settings = self.bandit.settings().clone();
        let mut state = match saved {
            Some(saved) => {
                self.disagreement = saved.disagreement;
                saved.bandit
            }
            None => State::new(&settings, &self.names(), before.seed),
        };
        state.pulls = before.pulls;
        state.forced = before.forced;
        for (arm, held) in state.arms.iter_mut().zip(&before.arms) {
            arm.is_frozen = held.is_frozen;
        }
        let open: Vec<u64> = state.open.iter().map(|open| open.pull).collect();
        self.bandit = Bandit::resume(settings, &self.names(), state)?;
        for pull in open {
            self.bandit.learn(pull, Outcome::Missing)?;
        }
        self.pulls.clear();
        self.probed.clear();
        self.brought.clear();
        self.since = trained;
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        self.candidates.iter().map(|arm| arm.name.clone()).collect()
    }

    /// Whether versions are probed.
    pub fn probes(&self) -> bool {
        self.rewarded_by == RewardedBy::ProbeGain
    }

    /// Whether a choice needs the prompts' embedding.
    pub fn wants_context(&self) -> bool {
        self.bandit.settings().policy == ::bandit::PolicyName::Linucb && !self.is_under_way()
    }

    fn is_under_way(&self) -> bool {
        self.pulls.back().is_some_and(OpenPull::is_under_way)
    }

    /// Takes what a probe came to. One of weights that were left behind is dropped.
    pub fn take(&mut self, probed: Probed, rewinds: u64) {
        if probed.rewinds == rewinds {
            self.probed.insert(probed.version, probed.accuracy);
        }
    }

    /// The newest version whose probe the choice for step `step` knows, of a batch that may lag `lag` versions.
    pub fn limit(&self, step: u64, lag: u64) -> u64 {
        let trained = step - 1;
        // Only probes come from the rollout side, in their own time.
        if self.probes() {
            trained.saturating_sub(lag)
        } else {
            trained
        }
    }

    /// Whether a probe of version `limit` or an older one is still to come before the choice for step `step`: of where a pull
    /// ended, or of where one began or begins now, so that a checkpoint never has a pull without its beginning.
    pub fn awaits(&self, step: u64, limit: u64) -> bool {
        let begins = (!self.is_under_way()).then_some(step - 1);
        let begun = self.pulls.iter().map(|pull| pull.first_step() - 1);
        let mut beginnings = begun.chain(begins).filter(|version| *version <= limit);
        self.probes()
            && (beginnings.any(|version| self.accuracy(version).is_none())
                || self.due(limit).any(|pull| self.brings(pull).is_none()))
    }

    /// Pulls that ended with version `limit` or an older one.
    fn due(&self, limit: u64) -> impl Iterator<Item = &OpenPull> {
        let has_ended = move |pull: &&OpenPull| pull.last_step().is_some_and(|last| last <= limit);
        self.pulls.iter().take_while(has_ended)
    }

    /// What a pull brought; None: that is not known yet.
    fn brings(&self, pull: &OpenPull) -> Option<Brought> {
        let last = pull.last_step()?;
        match self.rewarded_by {
            RewardedBy::ProbeGain => {
                let before = self.accuracy(pull.first_step() - 1)?;
                let after = self.accuracy(last)?;
                Some(pull.brought(after - before))
            }
            RewardedBy::NegativeLoss => Some(pull.brought(-pull.mean_loss())),
            RewardedBy::HumanAgreement => Some(pull.brought(pull.agreement()?)),
        }
    }

    /// NaN: it will never be known.
    fn accuracy(&self, version: u64) -> Option<f64> {
        let never = (version < self.since).then_some(f64::NAN);
        self.probed.get(&version).copied().or(never)
    }

    /// Learns from the pulls that ended with version `limit` or an older one, in order, as far as their values are known.
    /// `step`: steps trained by now.
    pub fn learn(&mut self, limit: u64, step: u64) -> Result<Vec<EventKind>, BanditError> {
        let mut events = Vec::new();
        while let Some((number, brought)) = {
            let first = self.due(limit).next();
            first.and_then(|pull| Some((pull.number(), self.brings(pull)?)))
        } {
            self.pulls.pop_front();
            if let Some(value) = brought.value() {
                self.brought.push(value);
            }
            if let Learned::Updated { .. } = self.bandit.learn(number, brought.outcome())? {
                events.push(self.updated(step));
            }
        }
        self.forget();
        Ok(events)
    }

    /// Probes that no pull needs any more; the newest may be where the next pull begins.
    fn forget(&mut self) {
        let newest = self.probed.keys().next_back().copied();
        let needed = self.pulls.front().map(|pull| pull.first_step() - 1);
        if let Some(from) = needed.or(newest) {
            self.probed = self.probed.split_off(&from);
        }
    }

    /// Chooses the arm of step `step` unless a pull is under way, and makes its scores those of the rollouts.
    pub fn choose(
        &mut self,
        step: u64,
        rollouts: &mut [Rollout],
        context: Option<&Context>,
    ) -> Result<Option<EventKind>, BanditError> {
        let mut event = None;
        if !self.is_under_way() {
            let pull = self.bandit.choose(context)?;
            let arm = chosen(&pull.choice);
            self.pulls.push_back(OpenPull::new(pull.number, arm, step));
            event = Some(EventKind::BanditChose {
                pull: pull.number,
                step,
                uid: String::new(),
                sample: 0,
                arm: Some(self.candidates[arm].name.clone()),
                why: pull.why.name().to_owned(),
                propensity: pull.propensity.map(Number),
                scores: pull.scores.into_iter().map(Number).collect(),
            });
        }
        let current = self.pulls.back_mut().expect("one is under way");
        let arm = &self.candidates[current.arm()];
        for rollout in &mut *rollouts {
            let scores: Vec<Option<f64>> = self
                .candidates
                .iter()
                .map(|arm| rollout.score_parts.get(&part(&arm.name)).copied())
                .collect();
            self.disagreement.observe(&scores);
            let has = |what: &str| {
                rollout
                    .score_parts
                    .contains_key(&format!("{}/{what}", part(&arm.name)))
            };
            current.saw(has("timed_out"), has("missing"));
            score_by(rollout, arm);
        }
        Ok(event)
    }

    /// Step `step` is trained: the pull under way takes its loss, and ends if this was its last step.
    pub fn trained(&mut self, step: u64, loss: Option<f64>) {
        if let Some(pull) = self.pulls.back_mut().filter(|pull| pull.is_under_way()) {
            pull.trained(loss);
            if step.is_multiple_of(self.steps_per_pull) || step >= self.total_steps {
                pull.end(step);
            }
        }
    }

    /// The arm whose pull has just ended after `step`, and its weight: its agreement with people is to be measured.
    pub fn ended_at(&self, step: u64) -> Option<(&str, f64)> {
        let last = self.pulls.back()?;
        let arm = &self.candidates[last.arm()];
        (last.last_step() == Some(step)).then_some((&*arm.name, arm.weight))
    }

    /// How far the arm of the pull that ended last agrees with people; NaN: it cannot be said.
    pub fn agrees(&mut self, agreement: f64) {
        if let Some(pull) = self.pulls.back_mut() {
            pull.agrees(agreement);
        }
    }

    /// The arm that scored the step that was just trained.
    pub fn chosen(&self) -> Option<&str> {
        let pull = self.pulls.back()?;
        Some(&*self.candidates[pull.arm()].name)
    }

    /// `bandit/...` of the step that was just trained.
    pub fn rows(&mut self, values: &mut StepValues) {
        let chosen = self.pulls.back().map(OpenPull::arm);
        for (index, arm) in self.candidates.iter().enumerate() {
            let is_chosen = if chosen == Some(index) { 1.0 } else { 0.0 };
            values.set(&format!("bandit/arm/{}/chosen", arm.name), is_chosen);
        }
        for (arm, belief) in self.candidates.iter().zip(self.bandit.beliefs(None)) {
            for (what, value) in [("mean", belief.mean), ("sd", belief.sd)] {
                if let Some(value) = value {
                    values.set(&format!("bandit/arm/{}/{what}", arm.name), value);
                }
            }
        }
        let brought = std::mem::take(&mut self.brought);
        if !brought.is_empty() {
            let mean = brought.iter().sum::<f64>() / brought.len() as f64;
            values.set("bandit/value", mean);
        }
        if let Some((_, accuracy)) = self.probed.last_key_value() {
            values.set("bandit/probe/accuracy", *accuracy);
        }
        if let Some(regret) = self.bandit.regret() {
            values.set("bandit/regret", regret.total);
        }
        if let Some(epsilon) = self.epsilon() {
            values.set("bandit/epsilon", epsilon);
        }
        if let Some(disagreement) = self.disagreement.mean() {
            values.set("bandit/disagreement", disagreement);
        }
    }

    fn epsilon(&self) -> Option<f64> {
        let policy = self.bandit.settings().policy;
        (policy == ::bandit::PolicyName::EpsilonGreedy).then(|| self.bandit.epsilon())
    }

    /// How the arms stand.
    pub fn standing(&self) -> Vec<BanditArm> {
        let beliefs = self.bandit.beliefs(None);
        let chances = self.bandit.chances();
        let forced = self.bandit.state().forced;
        let arms = self.bandit.arms().iter().zip(beliefs).enumerate();
        arms.map(|(index, (arm, belief))| BanditArm {
            name: arm.name.clone(),
            counted: arm.counted,
            timed_out: arm.timed_out,
            missing: arm.missing,
            mean: belief.mean.map(Number),
            sd: belief.sd.map(Number),
            chance: chances.as_ref().map(|chances| Number(chances[index])),
            is_frozen: arm.is_frozen,
            is_forced: forced == Some(index),
        })
        .collect()
    }

    /// The same for a status.
    pub fn states(&self) -> Vec<ArmState> {
        let arms = self.standing().into_iter().zip(self.bandit.arms());
        arms.map(|(arm, state)| ArmState::of(&arm, state.chosen))
            .collect()
    }

    /// The step whose arm is chosen next, after `trained` steps.
    pub fn next_choice(&self, trained: u64) -> u64 {
        if self.is_under_way() {
            trained.next_multiple_of(self.steps_per_pull) + 1
        } else {
            trained + 1
        }
    }

    /// The event of what is believed now.
    pub fn updated(&self, step: u64) -> EventKind {
        EventKind::BanditUpdated {
            update: self.bandit.state().updates,
            step,
            policy: self.bandit.settings().policy.row().name.to_owned(),
            arms: self.standing(),
            epsilon: self.epsilon().map(Number),
            regret: self.bandit.regret().map(|regret| Number(regret.total)),
            disagreement: self.disagreement.mean().map(Number),
        }
    }

    /// From now on this arm scores, whatever is believed: from the next pull on.
    pub fn force(&mut self, name: &str) -> Result<(), BanditError> {
        self.bandit.force(name)
    }

    pub fn release(&mut self) {
        self.bandit.release();
    }

    /// An arm that is frozen is not chosen any more.
    pub fn freeze(&mut self, name: &str, is_frozen: bool) -> Result<(), BanditError> {
        self.bandit.freeze(name, is_frozen)
    }

    pub fn forced(&self) -> Option<&str> {
        let forced = self.bandit.state().forced?;
        Some(&self.candidates[forced].name)
    }
}

/// Where a rollout has an arm's score.
fn part(arm: &str) -> String {
    format!("arm/{arm}")
}

/// Policies that learn choose one arm.
fn chosen(choice: &Choice) -> usize {
    choice.arm().expect("a policy that learns chooses one arm")
}

/// The arm's score in place of the sum of all, with what length costs; none where the arm gave none.
fn score_by(rollout: &mut Rollout, arm: &Candidate) {
    let parts = &mut rollout.score_parts;
    let lost = parts.get(OVERLONG_PENALTY).copied().unwrap_or(0.0);
    let given = parts.get(&part(&arm.name)).copied();
    let baseline = parts
        .get(&format!("{GREEDY_BASELINE}/{}", part(&arm.name)))
        .map(|score| score * arm.weight);
    // A baseline of all arms is no baseline for one.
    parts.remove(GREEDY_BASELINE);
    if let Some(baseline) = baseline {
        parts.insert(GREEDY_BASELINE.to_owned(), baseline);
    }
    let had_score = rollout.score.is_some();
    rollout.score = given.map(|score| score * arm.weight + lost);
    if had_score && rollout.score.is_none() {
        rollout.score_error = Some(format!(
            "the arm that was chosen, {}, gave no score",
            arm.name
        ));
    }
}

//! The bandit: settings and a state, and the two things that happen to it.

use crate::arm::ArmState;
use crate::draws::{Draws, Uniforms, word};
use crate::error::BanditError;
use crate::linear::{Context, LinearModel};
use crate::outcome::{Choice, Learned, Outcome, Pull, Why};
use crate::policy::{self, Belief, Chosen, Distribution, Situation};
use crate::regret::{self, RegretEstimate};
use crate::settings::{PolicyName, Settings};
use crate::state::{Open, State, Waiting};

#[derive(Debug, Clone, PartialEq)]
pub struct Bandit {
    settings: Settings,
    state: State,
    /// Hash of each arm's name: what its draws are keyed by, so that they do not depend on the order of the arms.
    words: Vec<u64>,
}

impl Bandit {
    /// A bandit that knows nothing. The same settings, arms, seed, contexts and outcomes give the same choices.
    pub fn new(settings: Settings, arms: &[String], seed: u64) -> Result<Self, BanditError> {
        settings.validate(arms)?;
        let state = State::new(&settings, arms, seed);
        Ok(Self::of(settings, state))
    }

    /// Goes on where `state` was taken. Settings may have changed but for policy and arms.
    pub fn resume(settings: Settings, arms: &[String], state: State) -> Result<Self, BanditError> {
        settings.validate(arms)?;
        state.fits(&settings, arms)?;
        let is_discounted = settings.discount < 1.0;
        let differs = |model: &LinearModel| model.is_discounted() != is_discounted;
        if (state.arms.iter()).any(|arm| arm.linear.as_ref().is_some_and(differs)) {
            return Err(BanditError::state(
                "its linear models were kept with discount 1 and the settings have less, or the other way round",
            ));
        }
        Ok(Self::of(settings, state))
    }

    fn of(settings: Settings, state: State) -> Self {
        let words = state.arms.iter().map(|arm| word(&arm.name)).collect();
        Self {
            settings,
            state,
            words,
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn arms(&self) -> &[ArmState] {
        &self.state.arms
    }

    /// Probability with which `epsilon_greedy` explores now.
    pub fn epsilon(&self) -> f64 {
        self.state.epsilon
    }

    /// Chooses an arm for the next rollout. `context`: what `linucb` needs, others ignore it.
    pub fn choose(&mut self, context: Option<&Context>) -> Result<Pull, BanditError> {
        let mut uniforms = Draws::new(&[self.state.seed, self.state.pulls]);
        self.choose_with(context, &mut uniforms)
    }

    /// The same with the randomness of `epsilon_greedy` from elsewhere (recorded numbers, say): one number, and one more when
    /// the first is below epsilon.
    pub fn choose_with(
        &mut self,
        context: Option<&Context>,
        uniforms: &mut impl Uniforms,
    ) -> Result<Pull, BanditError> {
        let is_linear = self.settings.policy == PolicyName::Linucb;
        if is_linear && let Some(context) = context {
            self.prepare(context)?;
        }
        let chosen = if let Some(arm) = self.state.forced {
            Chosen::sure(arm, Why::Forced, Vec::new())
        } else {
            let situation = Situation {
                settings: &self.settings,
                arms: &self.state.arms,
                epsilon: self.state.epsilon,
                context,
            };
            let (seed, pulls) = (self.state.seed, self.state.pulls);
            situation.choose(uniforms, |arm| Draws::new(&[seed, pulls, self.words[arm]]))?
        };
        let number = self.state.pulls;
        self.state.pulls += 1;
        if let Choice::One(arm) = chosen.choice {
            self.state.arms[arm].chosen += 1;
        }
        self.state.open.push(Open {
            pull: number,
            choice: chosen.choice.clone(),
            is_forced: chosen.why == Why::Forced,
            context: context.filter(|_| is_linear).cloned(),
        });
        Ok(Pull {
            number,
            choice: chosen.choice,
            why: chosen.why,
            propensity: chosen.propensity,
            scores: chosen.scores,
        })
    }

    /// Makes the arms' models at the first context; later ones must be as long.
    fn prepare(&mut self, context: &Context) -> Result<(), BanditError> {
        let got = context.dimensions();
        match self.state.dimensions() {
            Some(expected) if expected != got => Err(BanditError::Dimensions { got, expected }),
            Some(_) => Ok(()),
            None => {
                let is_discounted = self.settings.discount < 1.0;
                for arm in &mut self.state.arms {
                    arm.linear = Some(LinearModel::new(got, self.settings.ridge, is_discounted));
                }
                Ok(())
            }
        }
    }

    /// Takes in what a pull brought. Outcomes are learned from in the order in which they are given; statistics and epsilon
    /// change once every `update_every` of them.
    pub fn learn(&mut self, pull: u64, outcome: Outcome) -> Result<Learned, BanditError> {
        if pull >= self.state.pulls {
            return Err(BanditError::UnknownPull {
                pull,
                next: self.state.pulls,
            });
        }
        let Ok(place) = self
            .state
            .open
            .binary_search_by_key(&pull, |open| open.pull)
        else {
            self.state.late += 1;
            return Ok(Learned::Late);
        };
        let open = self.state.open.remove(place);
        let Choice::One(arm) = open.choice else {
            // A blend teaches nothing about any one arm.
            return Ok(match outcome {
                Outcome::Missing => Learned::Missing,
                _ => Learned::Updated {
                    updates: self.state.updates,
                },
            });
        };
        let (value, is_timed_out) = match outcome {
            Outcome::Value(value) => (value, false),
            Outcome::TimedOut { default } => (default, true),
            Outcome::Missing => (f64::NAN, false),
        };
        if !value.is_finite() {
            self.state.arms[arm].missing += 1;
            return Ok(Learned::Missing);
        }
        self.state.waiting.push(Waiting {
            arm,
            value,
            is_timed_out,
            is_forced: open.is_forced,
            context: open.context,
        });
        let waiting = self.state.waiting.len() as u64;
        let wanted = u64::from(self.settings.update_every);
        if waiting >= wanted {
            self.update();
            return Ok(Learned::Updated {
                updates: self.state.updates,
            });
        }
        Ok(Learned::Waiting {
            outcomes_left: (wanted - waiting) as u32,
        })
    }

    /// Updates now with the outcomes that wait, if any: at the end of a run, or of a batch that must not wait for the next.
    pub fn flush(&mut self) {
        if !self.state.waiting.is_empty() {
            self.update();
        }
    }

    fn update(&mut self) {
        let discount = self.settings.discount;
        let mut touched = vec![discount < 1.0; self.state.arms.len()];
        for waiting in std::mem::take(&mut self.state.waiting) {
            if discount < 1.0 {
                for arm in &mut self.state.arms {
                    arm.recent.fade(discount);
                    if let Some(model) = &mut arm.linear {
                        model.fade(discount, self.settings.ridge);
                    }
                }
            }
            let (scaled, was_cut) = self.settings.scaled(waiting.value);
            let arm = &mut self.state.arms[waiting.arm];
            arm.counted += 1;
            arm.timed_out += u64::from(waiting.is_timed_out);
            arm.forced += u64::from(waiting.is_forced);
            arm.clamped += u64::from(was_cut);
            arm.all.add(waiting.value);
            arm.recent.add(scaled);
            touched[waiting.arm] = true;
            if self.settings.policy == PolicyName::Linucb {
                let value = match self.settings.quantiles {
                    None => waiting.value,
                    Some(shares) => {
                        let window = self.settings.quantile_window as usize;
                        self.state.quantiles.push(waiting.value, window);
                        self.state.quantiles.scale(waiting.value, shares)
                    }
                };
                if let (Some(model), Some(context)) = (&mut arm.linear, &waiting.context) {
                    model.add(context, value);
                }
            }
        }
        for (arm, touched) in self.state.arms.iter_mut().zip(touched) {
            if let Some(model) = arm.linear.as_mut().filter(|_| touched) {
                model.solve();
            }
        }
        self.state.updates += 1;
        let (decay, floor) = (self.settings.epsilon_decay, self.settings.epsilon_floor);
        if self.settings.policy == PolicyName::EpsilonGreedy {
            self.state.epsilon = (self.state.epsilon * decay).max(floor);
        }
    }

    /// Every choice is this arm, until [`Bandit::release`]; outcomes are learned from as ever.
    pub fn force(&mut self, name: &str) -> Result<(), BanditError> {
        self.state.forced = Some(self.find(name)?);
        Ok(())
    }

    /// Takes back [`Bandit::force`].
    pub fn release(&mut self) {
        self.state.forced = None;
    }

    /// True: the arm is not chosen any more (unless forced, or the policy is `fixed`); its statistics stay.
    pub fn freeze(&mut self, name: &str, is_frozen: bool) -> Result<(), BanditError> {
        let arm = self.find(name)?;
        let others = (self.state.arms.iter().enumerate())
            .any(|(index, other)| index != arm && !other.is_frozen);
        if is_frozen && !others {
            return Err(BanditError::LastArm {
                name: name.to_owned(),
            });
        }
        self.state.arms[arm].is_frozen = is_frozen;
        Ok(())
    }

    fn find(&self, name: &str) -> Result<usize, BanditError> {
        let arms = &self.state.arms;
        arms.iter().position(|arm| arm.name == name).ok_or_else(|| {
            let known: Vec<&str> = arms.iter().map(|arm| &*arm.name).collect();
            BanditError::UnknownArm {
                name: name.to_owned(),
                known: known.join(", "),
            }
        })
    }

    /// What is believed of each arm; with `context`, of `linucb` in that context.
    pub fn beliefs(&self, context: Option<&Context>) -> Vec<Belief> {
        let context =
            context.filter(|context| Some(context.dimensions()) == self.state.dimensions());
        (self.state.arms.iter())
            .map(|arm| policy::belief(arm, &self.settings, context))
            .collect()
    }

    /// Probability that each arm is chosen next, with no arm forced: of `thompson` by an integral over the posteriors
    /// (0.2 ms for eight arms), of `epsilon_greedy` exactly; None for a policy that does not draw.
    pub fn chances(&self) -> Option<Vec<f64>> {
        let arms = &self.state.arms;
        let free: Vec<usize> = (0..arms.len())
            .filter(|arm| !arms[*arm].is_frozen)
            .collect();
        let mut chances = vec![0.0; arms.len()];
        match self.settings.policy {
            PolicyName::Thompson => {
                let beliefs: Vec<Distribution> = free
                    .iter()
                    .map(|arm| Distribution::of(&arms[*arm], &self.settings))
                    .collect();
                for (arm, chance) in free.iter().zip(policy::chances(&beliefs)) {
                    chances[*arm] = chance;
                }
            }
            PolicyName::EpsilonGreedy => {
                let mean = |arm: usize| arms[arm].recent.mean().unwrap_or(0.0);
                let best = free
                    .iter()
                    .copied()
                    .reduce(|best, arm| if mean(arm) > mean(best) { arm } else { best });
                for arm in &free {
                    let greedy = if Some(*arm) == best {
                        1.0 - self.state.epsilon
                    } else {
                        0.0
                    };
                    chances[*arm] = self.state.epsilon / free.len() as f64 + greedy;
                }
            }
            _ => return None,
        }
        Some(chances)
    }

    /// See [`RegretEstimate`]; None before the first value.
    pub fn regret(&self) -> Option<RegretEstimate> {
        regret::estimate(&self.state.arms)
    }
}

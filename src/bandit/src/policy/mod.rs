//! What each policy compares arms by, and what it believes of them. Pure: nothing here changes a state.

mod bounds;
mod chances;
mod posterior;

use serde::{Deserialize, Serialize};

pub(crate) use chances::chances;
pub(crate) use posterior::Belief as Distribution;

use crate::arm::ArmState;
use crate::draws::Uniforms;
use crate::error::BanditError;
use crate::linear::{Context, LinearModel};
use crate::outcome::{Choice, Why};
use crate::settings::{PolicyName, Settings};

/// What is believed of an arm, in the unit of the values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Belief {
    /// Mean of the posterior; of the values where the policy has none. None while nothing is known.
    pub mean: Option<f64>,
    /// Standard deviation of the posterior (`thompson`), the width of the bound without its factor (`linucb`), else the
    /// standard error of the mean. None where it cannot be said.
    pub sd: Option<f64>,
    /// Values behind it; less than counted where older ones are discounted.
    pub weight: f64,
}

/// What a policy sees when it chooses.
pub(crate) struct Situation<'a> {
    pub settings: &'a Settings,
    pub arms: &'a [ArmState],
    pub epsilon: f64,
    pub context: Option<&'a Context>,
}

/// A choice, not yet a pull.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chosen {
    pub choice: Choice,
    pub why: Why,
    pub propensity: Option<f64>,
    pub scores: Vec<f64>,
}

impl Chosen {
    pub fn sure(arm: usize, why: Why, scores: Vec<f64>) -> Self {
        Self {
            choice: Choice::One(arm),
            why,
            propensity: Some(1.0),
            scores,
        }
    }
}

impl Situation<'_> {
    fn free(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.arms.len()).filter(|arm| !self.arms[*arm].is_frozen)
    }

    /// The first free arm of the highest score; never one whose score is NaN while another has a number.
    fn highest(&self, scores: &[f64]) -> usize {
        let mut free = self.free();
        let first = free.next().expect("the last free arm cannot be frozen");
        free.fold(first, |best, arm| {
            if scores[arm] > scores[best] || scores[best].is_nan() && !scores[arm].is_nan() {
                arm
            } else {
                best
            }
        })
    }

    /// `uniforms`: what `epsilon_greedy` draws from; `draws_of`: the source of an arm's own draws.
    pub(crate) fn choose<U: Uniforms>(
        &self,
        uniforms: &mut impl Uniforms,
        mut draws_of: impl FnMut(usize) -> U,
    ) -> Result<Chosen, BanditError> {
        let name = self.settings.policy;
        match name {
            PolicyName::Fixed => {
                let wanted = self.settings.fixed_arm.as_deref();
                let arm = (self.arms.iter().position(|arm| Some(&*arm.name) == wanted))
                    .expect("settings were validated against the arms");
                return Ok(Chosen::sure(arm, Why::Fixed, Vec::new()));
            }
            PolicyName::Ensemble => return Ok(self.blend()),
            _ => {}
        }
        let mut free = self.free();
        if let (Some(only), None) = (free.next(), free.next()) {
            return Ok(Chosen::sure(only, Why::OnlyOne, Vec::new()));
        }
        drop(free);
        Ok(match name {
            PolicyName::Ucb1 | PolicyName::KlUcb => {
                if let Some(new) = self.free().find(|arm| self.arms[*arm].chosen == 0) {
                    return Ok(Chosen::sure(new, Why::FirstRound, Vec::new()));
                }
                let scores = self.upper_bounds();
                Chosen::sure(self.highest(&scores), Why::Bound, scores)
            }
            PolicyName::Linucb => {
                let context = self.context.ok_or(BanditError::NoContext)?;
                let scores = self.linear_bounds(context);
                Chosen::sure(self.highest(&scores), Why::Bound, scores)
            }
            PolicyName::Thompson => {
                let scores: Vec<f64> = (self.arms.iter().enumerate())
                    .map(|(index, arm)| {
                        let sample =
                            Distribution::of(arm, self.settings).sample(&mut draws_of(index));
                        self.settings.unscaled(sample)
                    })
                    .collect();
                Chosen {
                    choice: Choice::One(self.highest(&scores)),
                    why: Why::Sampled,
                    propensity: None,
                    scores,
                }
            }
            PolicyName::EpsilonGreedy => self.epsilon_greedy(uniforms),
            PolicyName::Fixed | PolicyName::Ensemble => unreachable!("answered above"),
        })
    }

    fn blend(&self) -> Chosen {
        let given = |arm: usize| self.settings.weights.get(arm).copied().unwrap_or(1.0);
        let mut weights: Vec<f64> = (0..self.arms.len())
            .map(|arm| {
                if self.arms[arm].is_frozen {
                    0.0
                } else {
                    given(arm)
                }
            })
            .collect();
        let sum: f64 = weights.iter().sum();
        if sum > 0.0 {
            for weight in &mut weights {
                *weight /= sum;
            }
        } else {
            // Every arm that weighs something is frozen: the free ones share alike.
            let free = self.free().count() as f64;
            for (weight, arm) in weights.iter_mut().zip(self.arms) {
                *weight = if arm.is_frozen { 0.0 } else { 1.0 / free };
            }
        }
        Chosen {
            choice: Choice::Blend(weights),
            why: Why::Fixed,
            propensity: Some(1.0),
            scores: Vec::new(),
        }
    }

    fn epsilon_greedy(&self, uniforms: &mut impl Uniforms) -> Chosen {
        let scores: Vec<f64> = self
            .arms
            .iter()
            .map(|arm| arm.recent.mean().unwrap_or(0.0))
            .collect();
        let best = self.highest(&scores);
        let free: Vec<usize> = self.free().collect();
        let count = free.len() as f64;
        let explores = uniforms.next() < self.epsilon;
        let (arm, why) = if explores {
            let place = (uniforms.next() * count).floor() as usize;
            (free[place.min(free.len() - 1)], Why::Explored)
        } else {
            (best, Why::Best)
        };
        let greedy = if arm == best { 1.0 - self.epsilon } else { 0.0 };
        Chosen {
            choice: Choice::One(arm),
            why,
            propensity: Some(self.epsilon / count + greedy),
            scores,
        }
    }

    /// Of `ucb1` or `kl_ucb`, in the unit of the values.
    fn upper_bounds(&self) -> Vec<f64> {
        let total: f64 = self.arms.iter().map(|arm| arm.recent.weight).sum();
        (self.arms.iter())
            .map(|arm| {
                let Some(mean) = arm.recent.mean() else {
                    return f64::INFINITY;
                };
                let bound = bounds::upper(self.settings, mean, arm.recent.weight, total);
                self.settings.unscaled(bound)
            })
            .collect()
    }

    fn linear_bounds(&self, context: &Context) -> Vec<f64> {
        let prior = LinearModel::new(0, 1.0, false);
        (self.arms.iter())
            .map(|arm| {
                let model = arm.linear.as_ref().unwrap_or(&prior);
                let (mean, width) = model.expect(context);
                mean + self.settings.alpha * width
            })
            .collect()
    }
}

/// What the policy believes of an arm now.
pub(crate) fn belief(arm: &ArmState, settings: &Settings, context: Option<&Context>) -> Belief {
    let weight = arm.recent.weight;
    if settings.policy == PolicyName::Linucb
        && let (Some(context), Some(model)) = (context, &arm.linear)
    {
        let (mean, width) = model.expect(context);
        return Belief {
            mean: Some(mean),
            sd: Some(width),
            weight,
        };
    }
    if settings.policy == PolicyName::Thompson {
        let (mean, sd) = Distribution::of(arm, settings).moments();
        return Belief {
            mean: Some(settings.unscaled(mean)),
            sd: sd.map(|sd| settings.unscaled_width(sd)),
            weight,
        };
    }
    Belief {
        mean: arm.recent.mean().map(|mean| settings.unscaled(mean)),
        sd: (arm.recent.standard_error()).map(|sd| settings.unscaled_width(sd)),
        weight,
    }
}

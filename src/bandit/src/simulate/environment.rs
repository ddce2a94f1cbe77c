//! The form of an environment's file, and what makes one unusable.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::faults::{Fault, Segment};
use crate::draws::Uniforms;
use crate::linear::Context;
use crate::settings::{PolicyName, Settings};

/// More makes a typing error a matter of days.
const MAX_HORIZON: u64 = 10_000_000;
const MAX_RUNS: u64 = 1_000_000;
const MAX_DIMENSIONS: usize = 8192;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// Pulls a run.
    pub horizon: u64,
    /// Runs that the means are over.
    #[serde(default = "default_runs")]
    pub runs: u64,
    #[serde(default)]
    pub seed: u64,
    /// Each pull has a random unit vector of this many dimensions as context.
    #[serde(default)]
    pub context_dimensions: Option<usize>,
    /// An outcome becomes known only after this many further pulls, as in asynchronous training.
    #[serde(default)]
    pub outcome_delay: u64,
    pub arms: Vec<Arm>,
    /// In the file: names, or mappings of `policy`, further settings and `label`.
    #[serde(skip)]
    pub policies: Vec<Entry>,
}

fn default_runs() -> u64 {
    100
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    pub name: String,
    pub gives: Gives,
    /// What it gives later, in order.
    #[serde(default)]
    pub then: Vec<Change>,
    /// Share of pulls that time out, and count with `default`.
    #[serde(default)]
    pub timed_out_frac: f64,
    #[serde(default)]
    pub default: f64,
    /// Share of pulls whose outcome never comes.
    #[serde(default)]
    pub missing_frac: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// First pull, counted from 0, of the new values.
    pub from: u64,
    pub gives: Gives,
}

/// Where an arm's values come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Gives {
    /// 1 with this probability, else 0.
    Bernoulli(f64),
    Normal {
        mean: f64,
        sd: f64,
    },
    Beta {
        alpha: f64,
        beta: f64,
    },
    Constant(f64),
    /// One of these, each as likely: values that were measured.
    Values(Vec<f64>),
    /// `bias + x·theta` and normal noise.
    Linear {
        theta: Vec<f64>,
        #[serde(default)]
        bias: f64,
        #[serde(default)]
        sd: f64,
    },
}

/// One policy to play.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// What tables call it.
    pub label: String,
    pub settings: Settings,
}

impl Environment {
    /// From what YAML or JSON holds.
    pub fn from_json(mut json: Json) -> Result<Self, Fault> {
        let Some(fields) = json.as_object_mut() else {
            return Err(Fault::at(
                &[],
                "expected a mapping with horizon, arms and policies",
            ));
        };
        let policies = fields.remove("policies");
        let mut environment: Self =
            serde_path_to_error::deserialize(json).map_err(|error| Fault::of_serde(&[], &error))?;
        environment.policies = policies.map_or_else(|| Ok(usual(&environment)), entries)?;
        environment.check()?;
        Ok(environment)
    }

    pub fn names(&self) -> Vec<String> {
        self.arms.iter().map(|arm| arm.name.clone()).collect()
    }

    /// What choosing each arm alike would lose; None with contexts, where it needs an integral.
    pub fn random_regret(&self) -> Option<f64> {
        let is_alike = self.context_dimensions.is_none();
        let changes = self
            .arms
            .iter()
            .flat_map(|arm| arm.then.iter().map(|change| change.from));
        let mut starts: Vec<u64> = changes
            .chain([0])
            .filter(|from| *from < self.horizon)
            .collect();
        starts.sort_unstable();
        starts.dedup();
        let loss = |(index, from): (usize, &u64)| {
            let until = starts.get(index + 1).copied().unwrap_or(self.horizon);
            let means: Vec<f64> = self.arms.iter().map(|arm| arm.mean(*from, None)).collect();
            let best = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            (best - means.iter().sum::<f64>() / means.len() as f64) * (until - from) as f64
        };
        is_alike.then(|| starts.iter().enumerate().map(loss).sum())
    }

    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), Fault> {
        let key = |name: &str| vec![Segment::Key(name.to_owned())];
        let within = |name: &str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(Fault::at(
                    &key(name),
                    format!("is {value}; expected {low} to {high}"),
                ))
            }
        };
        within("horizon", self.horizon, 1, MAX_HORIZON)?;
        within("runs", self.runs, 1, MAX_RUNS)?;
        within("outcome_delay", self.outcome_delay, 0, MAX_HORIZON)?;
        if let Some(dimensions) = self.context_dimensions {
            within(
                "context_dimensions",
                dimensions as u64,
                1,
                MAX_DIMENSIONS as u64,
            )?;
        }
        for (index, arm) in self.arms.iter().enumerate() {
            let path = [Segment::Key("arms".to_owned()), Segment::Index(index)];
            self.check_arm(arm, &path)?;
        }
        if self.policies.is_empty() {
            return Err(Fault::at(&key("policies"), "names no policy"));
        }
        let names = self.names();
        for (index, entry) in self.policies.iter().enumerate() {
            let mut path = vec![Segment::Key("policies".to_owned()), Segment::Index(index)];
            let before = &self.policies[..index];
            if before.iter().any(|other| other.label == entry.label) {
                return Err(Fault::at(
                    &path,
                    format!(
                        "two policies are called {}; give one a label of its own",
                        entry.label
                    ),
                ));
            }
            if entry.settings.policy == PolicyName::Linucb && self.context_dimensions.is_none() {
                return Err(Fault::at(
                    &path,
                    "linucb chooses by a context; set context_dimensions",
                ));
            }
            entry.settings.validate(&names).map_err(|error| {
                let message = match error {
                    crate::BanditError::Setting { key, message } => {
                        path.push(Segment::Key(key.to_owned()));
                        message
                    }
                    crate::BanditError::Arms { message } => {
                        path = key("arms");
                        message
                    }
                    other => other.to_string(),
                };
                Fault::at(&path, message)
            })?;
        }
        Ok(())
    }

    fn check_arm(&self, arm: &Arm, path: &[Segment]) -> Result<(), Fault> {
        let under = |keys: &[&str]| {
            let keys = keys.iter().map(|key| Segment::Key((*key).to_owned()));
            path.iter().cloned().chain(keys).collect::<Vec<_>>()
        };
        for (name, share) in [
            ("timed_out_frac", arm.timed_out_frac),
            ("missing_frac", arm.missing_frac),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(Fault::at(
                    &under(&[name]),
                    format!("is {share}; expected a number from 0 to 1"),
                ));
            }
        }
        if arm.timed_out_frac + arm.missing_frac > 1.0 {
            return Err(Fault::at(
                &under(&["missing_frac"]),
                "and timed_out_frac are more than 1 together",
            ));
        }
        if !arm.default.is_finite() {
            return Err(Fault::at(&under(&["default"]), "is not a finite number"));
        }
        self.check_gives(&arm.gives, under(&["gives"]))?;
        let mut before = 0;
        for (index, change) in arm.then.iter().enumerate() {
            let mut path = under(&["then"]);
            path.push(Segment::Index(index));
            if change.from <= before {
                path.push(Segment::Key("from".to_owned()));
                return Err(Fault::at(
                    &path,
                    format!("is {}; expected more than {before}", change.from),
                ));
            }
            before = change.from;
            path.push(Segment::Key("gives".to_owned()));
            self.check_gives(&change.gives, path)?;
        }
        Ok(())
    }

    fn check_gives(&self, gives: &Gives, mut path: Vec<Segment>) -> Result<(), Fault> {
        let name = serde_json::to_value(gives)
            .ok()
            .and_then(|json| Some(json.as_object()?.keys().next()?.clone()));
        path.extend(name.map(Segment::Key));
        let fault = |message: String| Err(Fault::at(&path, message));
        match gives {
            Gives::Bernoulli(p) if !(0.0..=1.0).contains(p) => {
                fault(format!("is {p}; expected a probability from 0 to 1"))
            }
            Gives::Normal { mean, sd } if !(mean.is_finite() && sd.is_finite() && *sd >= 0.0) => {
                fault(format!(
                    "has mean {mean} and sd {sd}; expected finite numbers, sd from 0 on"
                ))
            }
            Gives::Beta { alpha, beta }
                if !(*alpha > 0.0 && *beta > 0.0 && (alpha + beta).is_finite()) =>
            {
                fault(format!(
                    "has alpha {alpha} and beta {beta}; expected numbers above 0"
                ))
            }
            Gives::Constant(value) if !value.is_finite() => {
                fault(format!("is {value}; expected a finite number"))
            }
            Gives::Values(values) if values.is_empty() || values.iter().any(|v| !v.is_finite()) => {
                fault("expected at least one number, all finite".to_owned())
            }
            Gives::Linear { theta, bias, sd } => match self.context_dimensions {
                None => fault("depends on a context; set context_dimensions".to_owned()),
                Some(dimensions) if dimensions != theta.len() => fault(format!(
                    "theta has {} numbers; expected context_dimensions, which is {dimensions}",
                    theta.len()
                )),
                Some(_) => {
                    let finite = theta
                        .iter()
                        .chain([bias, sd])
                        .all(|number| number.is_finite());
                    if finite && *sd >= 0.0 {
                        Ok(())
                    } else {
                        fault("expected finite numbers, sd from 0 on".to_owned())
                    }
                }
            },
            _ => Ok(()),
        }
    }
}

/// When a file names no policies.
fn usual(environment: &Environment) -> Vec<Entry> {
    let mut names = vec![
        PolicyName::Thompson,
        PolicyName::KlUcb,
        PolicyName::Ucb1,
        PolicyName::EpsilonGreedy,
    ];
    if environment.context_dimensions.is_some() {
        names.push(PolicyName::Linucb);
    }
    names.into_iter().map(Entry::of).collect()
}

impl Entry {
    /// A policy with its default settings, under its own name.
    pub fn of(policy: PolicyName) -> Self {
        Self {
            label: policy.row().name.to_owned(),
            settings: Settings::of(policy),
        }
    }
}

fn entries(json: Json) -> Result<Vec<Entry>, Fault> {
    let path = [Segment::Key("policies".to_owned())];
    let Json::Array(items) = json else {
        return Err(Fault::at(
            &path,
            "expected a list of names, or of mappings such as {policy: ucb1, update_every: 1}",
        ));
    };
    items
        .into_iter()
        .enumerate()
        .map(|(index, item)| {
            let path = [path[0].clone(), Segment::Index(index)];
            entry(item, &path)
        })
        .collect()
}

fn entry(json: Json, path: &[Segment]) -> Result<Entry, Fault> {
    let mut fields = match json {
        Json::String(_) => {
            let mut fields = serde_json::Map::new();
            fields.insert("policy".to_owned(), json);
            fields
        }
        Json::Object(fields) => fields,
        _ => {
            return Err(Fault::at(
                path,
                "expected a policy's name, or a mapping such as {policy: ucb1, update_every: 1}",
            ));
        }
    };
    if !fields.contains_key("policy") {
        return Err(Fault::at(
            path,
            format!(
                "names no policy; expected one of {}",
                crate::table::NAMES.join(", ")
            ),
        ));
    }
    let label = fields.remove("label");
    let given: Vec<String> = fields.keys().cloned().collect();
    let settings: Settings = serde_path_to_error::deserialize(Json::Object(fields))
        .map_err(|error| Fault::of_serde(path, &error))?;
    let policy = settings.policy.row();
    if let Some(idle) = given.iter().find(|name| !policy.reads(name)) {
        let mut path = path.to_vec();
        path.push(Segment::Key(idle.clone()));
        return Err(Fault::at(
            &path,
            format!(
                "has no effect: {} reads {}",
                policy.name,
                policy.reads.join(", ")
            ),
        ));
    }
    let label = match label {
        None => policy.name.to_owned(),
        Some(Json::String(label)) if !label.is_empty() && !label.chars().any(char::is_control) => {
            label
        }
        Some(_) => return Err(Fault::at(path, "has a label that is no text")),
    };
    Ok(Entry { label, settings })
}

impl Arm {
    pub(super) fn gives_at(&self, step: u64) -> &Gives {
        (self.then.iter().rev())
            .find(|change| change.from <= step)
            .map_or(&self.gives, |change| &change.gives)
    }

    /// What a pull at `step` is worth on average, time-outs included.
    pub(super) fn mean(&self, step: u64, context: Option<&Context>) -> f64 {
        let mean = self.gives_at(step).mean(context);
        let answered = 1.0 - self.missing_frac;
        if answered <= 0.0 {
            return mean;
        }
        let late = self.timed_out_frac / answered;
        (1.0 - late) * mean + late * self.default
    }
}

impl Gives {
    fn mean(&self, context: Option<&Context>) -> f64 {
        match self {
            Self::Bernoulli(p) => *p,
            Self::Normal { mean, .. } => *mean,
            Self::Beta { alpha, beta } => alpha / (alpha + beta),
            Self::Constant(value) => *value,
            Self::Values(values) => values.iter().sum::<f64>() / values.len() as f64,
            Self::Linear { theta, bias, .. } => bias + along(theta, context),
        }
    }

    pub(super) fn draw(&self, context: Option<&Context>, draws: &mut impl Uniforms) -> f64 {
        match self {
            Self::Bernoulli(p) => f64::from(u8::from(draws.next() < *p)),
            Self::Normal { mean, sd } => mean + sd * draws.normal(),
            Self::Beta { alpha, beta } => draws.beta(*alpha, *beta),
            Self::Constant(value) => *value,
            Self::Values(values) => {
                let place = (draws.next() * values.len() as f64) as usize;
                values[place.min(values.len() - 1)]
            }
            Self::Linear { theta, bias, sd } => bias + along(theta, context) + sd * draws.normal(),
        }
    }
}

fn along(theta: &[f64], context: Option<&Context>) -> f64 {
    let context = context.map_or(&[][..], Context::values);
    theta.iter().zip(context).map(|(a, b)| a * b).sum()
}

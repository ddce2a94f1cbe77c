//! ONE table of what may be set in a running run. Keys, units and ranges are the experiment's (a test in `lathe` holds the
//! two together); a range may be narrower here, where a slip of the finger would ruin a run.

/// A number that a running run takes anew: from some step on it is as if the experiment had had that value.
#[derive(Debug)]
pub struct Knob {
    /// The experiment's key.
    pub key: &'static str,
    /// The same, as people write it.
    pub name: &'static str,
    pub unit: &'static str,
    pub low: f64,
    pub high: f64,
    /// `low` itself is not allowed.
    pub is_low_open: bool,
    /// `high` itself is not allowed.
    pub is_high_open: bool,
    /// Whole numbers only.
    pub is_whole: bool,
    /// The metric on whose curve a change shows.
    pub metric: &'static str,
    /// What a change does, and from when.
    pub help: &'static str,
}

impl PartialEq for Knob {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

const fn knob(
    key: &'static str,
    name: &'static str,
    unit: &'static str,
    (low, high): (f64, f64),
    metric: &'static str,
    help: &'static str,
) -> Knob {
    Knob {
        key,
        name,
        unit,
        low,
        high,
        is_low_open: false,
        is_high_open: false,
        is_whole: false,
        metric,
        help,
    }
}

/// In the order in which they are shown.
pub static TABLE: &[Knob] = &[
    knob(
        "actor_rollout_ref.actor.optim.lr",
        "actor.optim.lr",
        "",
        (0.0, 1.0),
        "actor/lr",
        "Peak learning rate of the actor; warm-up and cosine go on scaling it as before.",
    ),
    knob(
        "critic.optim.lr",
        "critic.optim.lr",
        "",
        (0.0, 1.0),
        "critic/lr",
        "Peak learning rate of the critic; warm-up and cosine go on scaling it as before.",
    ),
    knob(
        "actor_rollout_ref.actor.kl_loss_coef",
        "actor.kl_loss_coef",
        "",
        (0.0, 1000.0),
        "actor/kl_coef",
        "Weight of the KL to the reference in the loss.",
    ),
    knob(
        "algorithm.kl_ctrl.kl_coef",
        "algorithm.kl_ctrl.kl_coef",
        "",
        (0.0, 1000.0),
        "actor/reward_kl_penalty_coeff",
        "Beta of the KL penalty in the reward; an adaptive controller goes on from there.",
    ),
    Knob {
        is_high_open: true,
        ..knob(
            "actor_rollout_ref.actor.clip_ratio_low",
            "actor.clip_ratio_low",
            "",
            (0.0, 1.0),
            "actor/clip_ratio_low",
            "The policy ratio is clipped at 1 - this.",
        )
    },
    knob(
        "actor_rollout_ref.actor.clip_ratio_high",
        "actor.clip_ratio_high",
        "",
        (0.0, 1000.0),
        "actor/clip_ratio_high",
        "The policy ratio is clipped at 1 + this.",
    ),
    knob(
        "actor_rollout_ref.actor.entropy_coeff",
        "actor.entropy_coeff",
        "",
        (0.0, 1000.0),
        "actor/entropy_coeff",
        "Weight of the entropy bonus in the loss.",
    ),
    Knob {
        is_low_open: true,
        ..knob(
            "critic.cliprange_value",
            "critic.cliprange_value",
            "",
            (0.0, 1000.0),
            "critic/cliprange_value",
            "Values move at most this far from the old ones before the loss is clipped.",
        )
    },
    Knob {
        is_low_open: true,
        ..knob(
            "actor_rollout_ref.rollout.temperature",
            "rollout.temperature",
            "",
            (0.0, 100.0),
            "rollout/temperature",
            "Sampling temperature, from the next batch that is begun; a batch is trained at the temperature it was drawn at.",
        )
    },
    Knob {
        is_whole: true,
        ..knob(
            "trainer.max_staleness",
            "trainer.max_staleness",
            "policy versions",
            (0.0, 8.0),
            "async/max_staleness",
            "How far a batch may lag, from the next batch that is begun: 0 is sync, 1 is one_step_off, more is async.",
        )
    },
    knob(
        "sft.optim.lr",
        "sft.optim.lr",
        "",
        (0.0, 1.0),
        "train/lr",
        "Peak learning rate of the supervised warm-up; its schedule goes on scaling it as before.",
    ),
];

/// Why a written name is no knob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KnobError {
    #[error("no knob is called `{written}`{}; `lathe ctl RUN knobs` lists them", meant(nearest.as_deref()))]
    Unknown {
        written: String,
        nearest: Option<String>,
    },
    #[error("`{written}` fits {}; write more of the name", names.join(" and "))]
    Ambiguous { written: String, names: Vec<String> },
}

fn meant(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

/// The knob of a key in full (`actor_rollout_ref.actor.optim.lr`), in short (`actor.optim.lr`), or by its last names where
/// they are only one knob's (`temperature`).
pub fn find(written: &str) -> Result<&'static Knob, KnobError> {
    if let Some(knob) = TABLE
        .iter()
        .find(|knob| knob.key == written || knob.name == written)
    {
        return Ok(knob);
    }
    let ends: Vec<&Knob> = TABLE
        .iter()
        .filter(|knob| {
            knob.key
                .strip_suffix(written)
                .is_some_and(|rest| rest.ends_with('.'))
        })
        .collect();
    match ends[..] {
        [knob] => Ok(knob),
        [] => Err(KnobError::Unknown {
            written: shortened(written),
            nearest: nearest(written),
        }),
        _ => Err(KnobError::Ambiguous {
            written: written.to_owned(),
            names: ends.iter().map(|knob| knob.name.to_owned()).collect(),
        }),
    }
}

/// By the spelling of the whole name, or of its last part.
fn nearest(written: &str) -> Option<String> {
    // A longer text is no slip of the finger, and not worth the comparing.
    if written.len() > 80 {
        return None;
    }
    let last = |name: &'static str| name.rsplit('.').next().unwrap_or(name);
    let wanted = written.rsplit('.').next().unwrap_or(written);
    let near = |distance: usize, name: &str| distance <= (name.chars().count() / 3).max(1);
    TABLE
        .iter()
        .map(|knob| {
            let whole = [knob.key, knob.name]
                .map(|name| (strsim::osa_distance(name, written), name))
                .into_iter()
                .filter(|(distance, name)| near(*distance, name))
                .min();
            let part = strsim::osa_distance(last(knob.name), wanted);
            let part = near(part, last(knob.name)).then_some(part);
            // A slip in the whole name tells more than one in its last part.
            let distance = match (whole, part) {
                (Some((distance, _)), _) => distance,
                (None, Some(distance)) => 10 + distance,
                (None, None) => usize::MAX,
            };
            (distance, knob.name)
        })
        .filter(|(distance, _)| *distance < usize::MAX)
        .min()
        .map(|(_, name)| name.to_owned())
}

/// As much of a stranger's text as an answer repeats.
pub(super) fn shortened(text: &str) -> String {
    const MOST: usize = 80;
    let mut kept: String = text
        .chars()
        .take(MOST)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(MOST).is_some() {
        kept.push('…');
    }
    kept
}

impl Knob {
    /// `0 <= x < 1`, with `whole` where only whole numbers are allowed.
    pub fn range(&self) -> String {
        let (low, high) = (self.low, self.high);
        let left = if self.is_low_open { "<" } else { "<=" };
        let right = if self.is_high_open { "<" } else { "<=" };
        let whole = if self.is_whole { ", whole" } else { "" };
        format!("{low} {left} x {right} {high}{whole}")
    }

    /// `value` when it is allowed, else why not.
    pub fn check(&self, value: f64) -> Result<f64, String> {
        let is_above = if self.is_low_open {
            value > self.low
        } else {
            value >= self.low
        };
        let is_below = if self.is_high_open {
            value < self.high
        } else {
            value <= self.high
        };
        if is_above && is_below && (!self.is_whole || value.fract() == 0.0) {
            // -0.0 is in range and would be shown as it is.
            Ok(value + 0.0)
        } else {
            Err(format!(
                "{} cannot be {value}; expected {}",
                self.name,
                self.range()
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_knob_has_one_name_a_declared_metric_and_help() {
        let mut seen = HashSet::new();
        for knob in TABLE {
            assert!(seen.insert(knob.key), "{}", knob.key);
            assert!(knob.key.ends_with(knob.name), "{}", knob.name);
            assert!(
                crate::metrics::lookup(knob.metric).is_some(),
                "{}",
                knob.metric
            );
            assert!(knob.help.ends_with('.'), "{}", knob.help);
            assert_eq!(find(knob.key), Ok(knob));
            assert_eq!(find(knob.name), Ok(knob));
        }
    }

    #[test]
    fn a_knob_is_found_by_last_names_that_are_only_its_own() {
        let found = |written: &str| find(written).map(|knob| knob.name);
        assert_eq!(found("temperature"), Ok("rollout.temperature"));
        assert_eq!(found("rollout.temperature"), Ok("rollout.temperature"));
        assert_eq!(found("kl_coef"), Ok("algorithm.kl_ctrl.kl_coef"));
        assert_eq!(
            found("lr").unwrap_err().to_string(),
            "`lr` fits actor.optim.lr and critic.optim.lr and sft.optim.lr; write more of the name"
        );
    }

    #[test]
    fn an_unknown_knob_is_answered_with_the_nearest() {
        for (written, nearest) in [
            ("actor.optim.lrr", Some("actor.optim.lr")),
            ("temprature", Some("rollout.temperature")),
            ("actor.clip_ratio_hihg", Some("actor.clip_ratio_high")),
            ("trainer.max_stalenes", Some("trainer.max_staleness")),
            ("ppo.kl_coeff", Some("algorithm.kl_ctrl.kl_coef")),
            ("", None),
            ("data.train_batch_size", None),
        ] {
            let Err(KnobError::Unknown { nearest: found, .. }) = find(written) else {
                panic!("{written} is no knob")
            };
            assert_eq!(found.as_deref(), nearest, "{written}");
        }
        let long = "x".repeat(60_000);
        assert!(find(&long).unwrap_err().to_string().len() < 400);
    }

    #[test]
    fn a_value_outside_the_range_is_refused_with_the_range() {
        let lr = find("actor.optim.lr").unwrap();
        assert_eq!(lr.check(1e-5), Ok(1e-5));
        assert_eq!(lr.check(-0.0).map(f64::is_sign_negative), Ok(false));
        assert_eq!(
            lr.check(1e5).unwrap_err(),
            "actor.optim.lr cannot be 100000; expected 0 <= x <= 1"
        );
        let low = find("clip_ratio_low").unwrap();
        assert!(low.check(1.0).is_err() && low.check(0.999).is_ok());
        let temperature = find("temperature").unwrap();
        assert!(temperature.check(0.0).is_err() && temperature.check(f64::NAN).is_err());
        let staleness = find("max_staleness").unwrap();
        assert_eq!(
            staleness.check(0.5).unwrap_err(),
            "trainer.max_staleness cannot be 0.5; expected 0 <= x <= 8, whole"
        );
    }
}

//! `trainer.guards`: what is watched, from when on it is too much, and what is then done.
//!
//! ```yaml
//! trainer:
//!   guards:
//!     - online                                    # the preset, see [`ONLINE`]
//!     - name: short
//!       metric: response_length/mean              # or `alarm: entropy_collapse`
//!       below: 3
//!       for: 5                                    # values in a row
//!       action: [alert, "roll_back best + lower_lr 0.5"]
//! ```
//! `action` is a ladder: the first trip does the first rung, a relapse the next one. A file says a guard in the flat form
//! [`Written`]; the program reads the typed [`Guard`].

mod action;
mod read;
#[cfg(test)]
mod tests;
mod words;

use serde::{Deserialize, Serialize};

pub use action::{Action, Rung, Target};
pub(crate) use read::{online, read};

/// Alarms that a guard may watch: those of the alarm table that the trainer's own numbers can raise.
pub const ALARMS: [&str; 8] = [
    "non_finite",
    "kl_blow_up",
    "entropy_collapse",
    "length_runaway",
    "reward_hacking",
    "quality_fall",
    "all_equal_groups",
    "clip_saturation",
];

/// The preset `online`, in the form a file would say it. The numbers of the first three are those of the online-RL systems
/// that Lathe was asked to make safe: KL 0.02, perplexity 1.5 times its start, accuracy down 5 points for 5 rounds.
pub const ONLINE: &str = r#"
- {name: kl, metric: [rollout_corr/k3_kl, actor/ppo_kl], above: 0.02, action: [sync 1, sync 3 + lower_lr 0.5, roll_back last + lower_lr 0.5, stop]}
- {name: perplexity, metric: probe/perplexity, above_baseline: 1.5, baseline: 1, action: [roll_back last, roll_back best + lower_lr 0.5, stop]}
- {name: accuracy, metric: "val-core/*/reward/mean@*", drop_points: 0.05, against: best, for: 5, cooldown: 0, action: [roll_back best, roll_back best + lower_lr 0.5, stop]}
- {name: non_finite, metric: actor/skipped_updates, above: 0, for: 2, action: [roll_back last, roll_back last + lower_lr 0.5, stop]}
- {name: ess, metric: rollout_corr/rollout_is_eff_sample_size, below: 0.3, for: 3, action: [shrink_staleness, sync 5, alert]}
- {name: grad_norm, metric: actor/grad_norm, above_baseline: 20, for: 3, action: [alert, lower_lr 0.5]}
- {name: entropy, alarm: entropy_collapse, action: [alert]}
- {name: reward_hacking, alarm: length_runaway, action: [alert]}
- {name: held_out_judge, alarm: reward_hacking, action: [alert]}
"#;

/// Names of presets.
pub const PRESETS: [&str; 1] = ["online"];

/// What `roll_back best` calls best: the reward on unseen dialogues.
pub const GOAL: &str = "val-core/*/reward/mean@*";

/// One guard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Guard {
    pub name: String,
    pub watch: Watch,
    /// Bad values in a row before it trips.
    pub consecutive: u32,
    /// The watched value is the mean of this many latest ones.
    pub window: u32,
    /// Steps after a trip in which it does not trip again.
    pub cooldown: u64,
    /// Steps at the start, and after the critic's warm-up, that it does not judge: with fresh optimizer state the first
    /// step's KL says nothing.
    pub after: u64,
    /// Good values in a row after which the next trip is a first one again.
    pub calm: u32,
    /// Never empty; a trip past the last rung does what [`Guard::rung`] says.
    pub ladder: Vec<Rung>,
}

/// What a guard looks at.
#[derive(Debug, Clone, PartialEq)]
pub enum Watch {
    Metric {
        /// Names, `*` for any text; the first that matches a recorded metric, and the mean of all that match it.
        metrics: Vec<String>,
        condition: Condition,
    },
    /// One of [`ALARMS`]; bad while it is raised.
    Alarm(String),
}

/// When a value is bad. A value that is not finite always is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Condition {
    Above(f64),
    Below(f64),
    /// Above `ratio` times the baseline: the median of the first `points` values.
    AboveBaseline {
        ratio: f64,
        points: u32,
    },
    BelowBaseline {
        ratio: f64,
        points: u32,
    },
    /// Lower than `against` by more than `points`.
    DropPoints {
        points: f64,
        against: Against,
    },
    /// Lower than `against` by more than this share of it.
    DropRelative {
        share: f64,
        against: Against,
    },
}

/// What a drop is measured from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Against {
    /// The highest value so far.
    Best,
    /// The value before.
    Previous,
}

impl Guard {
    /// The rung of trip number `relapse` (0: the first). Past the ladder's end a guard that only tells goes on telling; one
    /// that acts gets what is one degree harder than its last rung, so that the same cause never loops.
    pub fn rung(&self, relapse: usize) -> Rung {
        if let Some(rung) = self.ladder.get(relapse) {
            return rung.clone();
        }
        let last = self.ladder.last().expect("a ladder has a rung");
        let beyond = relapse - self.ladder.len();
        let hardest = last.hardest();
        let mut harder = Action::LADDER
            .into_iter()
            .filter(|action| hardest != Action::Alert && action.degree() > hardest.degree());
        match (harder.nth(beyond), hardest) {
            (Some(action), _) => Rung(vec![action]),
            (None, Action::Alert) => last.clone(),
            (None, _) => Rung(vec![Action::Stop]),
        }
    }

    /// Whether any rung goes back to a checkpoint; the implicit ones count, since they come.
    pub fn may_roll_back(&self) -> bool {
        self.ladder.iter().any(|rung| {
            rung.0
                .iter()
                .any(|action| !matches!(action, Action::Alert | Action::Stop))
        })
    }
}

/// A guard as a file says it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Written {
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<OneOrMore>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alarm: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub above: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub above_baseline: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below_baseline: Option<f64>,
    /// Values that make the baseline; default 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drop_points: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drop_relative: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<Against>,
    #[serde(rename = "for")]
    pub consecutive: Option<u32>,
    pub window: Option<u32>,
    pub cooldown: Option<u64>,
    pub after: Option<u64>,
    pub calm: Option<u32>,
    pub action: Option<OneOrMore>,
}

/// One value stands for a list of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one],
            Self::More(more) => more,
        }
    }
}

//! A guard in words, for logs and screens: what it watches, and from when on that is bad.

use super::{Against, Condition, Guard, Watch};

impl Guard {
    /// `rollout_corr/k3_kl or actor/ppo_kl`, `alarm entropy_collapse`.
    pub fn watches(&self) -> String {
        match &self.watch {
            Watch::Metric { metrics, .. } => metrics.join(" or "),
            Watch::Alarm(name) => format!("alarm {name}"),
        }
    }

    /// `above 0.02`, `more than 0.05 below its best, for 5 values in a row`.
    pub fn condition(&self) -> String {
        let mut words = match &self.watch {
            Watch::Alarm(_) => "raised".to_owned(),
            Watch::Metric { condition, .. } => condition.words(),
        };
        if self.window > 1 {
            words = format!("mean of {} {words}", self.window);
        }
        if self.consecutive > 1 {
            words = format!("{words}, for {} values in a row", self.consecutive);
        }
        words
    }
}

impl Condition {
    fn words(self) -> String {
        let from = |against| match against {
            Against::Best => "its best",
            Against::Previous => "the value before",
        };
        match self {
            Self::Above(limit) => format!("above {limit}"),
            Self::Below(limit) => format!("below {limit}"),
            Self::AboveBaseline { ratio, .. } => format!("above {ratio} times its start"),
            Self::BelowBaseline { ratio, .. } => format!("below {ratio} times its start"),
            Self::DropPoints { points, against } => {
                format!("more than {points} below {}", from(against))
            }
            Self::DropRelative { share, against } => {
                format!("more than {} % below {}", share * 100.0, from(against))
            }
        }
    }
}

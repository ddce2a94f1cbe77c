//! THE table of policies: name, formula, paper, which settings each reads. Rules, help, documentation and the command line
//! read it.

use crate::settings::PolicyName;

/// One way to choose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    pub kind: PolicyName,
    /// As an experiment writes it.
    pub name: &'static str,
    /// One sentence.
    pub says: &'static str,
    /// In the letters of [`LETTERS`].
    pub formula: &'static str,
    pub paper: &'static str,
    /// Settings that it, or it among others, reads; those of [`EVERY`] besides.
    pub reads: &'static [&'static str],
}

/// Settings that every learning policy reads.
pub const EVERY: [&str; 3] = ["policy", "update_every", "discount"];

pub const LETTERS: &str = "m: mean of an arm's values, N: their number (both discounted by `discount` a value); n: ΣN over the arms; \
K: arms that are not frozen; x: context; u: uniform in [0, 1). Values are scaled from `value_range` to 0..1 for `ucb1`, `kl_ucb` and \
`thompson` with a Beta posterior. An exact tie goes to the first arm.";

pub const POLICIES: &[Policy] = &[
    Policy {
        kind: PolicyName::Thompson,
        name: "thompson",
        says: "The arm whose draw from its posterior is highest: each arm as often as it may be the best.",
        formula: "beta: Beta(a + Σv, b + Σ(1 − v)), (a, b) = prior_beta;  gaussian: Normal-inverse-gamma, the spread of the values is learned too",
        paper: "https://arxiv.org/abs/1707.02038",
        reads: &[
            "posterior",
            "prior_beta",
            "prior_mean",
            "prior_sd",
            "prior_pulls",
            "value_range",
        ],
    },
    Policy {
        kind: PolicyName::Ucb1,
        name: "ucb1",
        says: "The highest upper bound; with a discount and a width of 0.6 this is D-UCB.",
        formula: "each arm once;  m + √(ucb_width · ln n / N)",
        paper: "https://doi.org/10.1023/A:1013689704352",
        reads: &["ucb_width", "value_range"],
    },
    Policy {
        kind: PolicyName::KlUcb,
        name: "kl_ucb",
        says: "The highest upper bound by the KL of coins: explores far less than ucb1 where values are near 0 or 1.",
        formula: "each arm once;  max q with N · kl(m, q) <= kl_ucb_width · ln n",
        paper: "https://arxiv.org/abs/1102.2490",
        reads: &["kl_ucb_width", "value_range"],
    },
    Policy {
        kind: PolicyName::EpsilonGreedy,
        name: "epsilon_greedy",
        says: "Mostly the highest mean, at times any arm.",
        formula: "u < ε: any of the K arms;  else the highest m (0 while unknown);  ε ← max(epsilon_floor, ε · epsilon_decay) an update",
        paper: "http://incompleteideas.net/book/the-book-2nd.html",
        reads: &["epsilon", "epsilon_decay", "epsilon_floor"],
    },
    Policy {
        kind: PolicyName::Linucb,
        name: "linucb",
        says: "The highest upper bound of a linear model an arm in the prompt's embedding (LASeR).",
        formula: "x·θ + alpha · √(xᵀA⁻¹x), θ = A⁻¹b, A = ridge·I + Σ xxᵀ, b = Σ v'x;  v': 0 below the lower of quantiles, 1 above the upper, linear between, ½ where they are equal",
        paper: "https://arxiv.org/abs/2410.01735",
        reads: &["alpha", "ridge", "quantiles", "quantile_window"],
    },
    Policy {
        kind: PolicyName::Fixed,
        name: "fixed",
        says: "Always the same arm; its statistics are kept.",
        formula: "fixed_arm",
        paper: "",
        reads: &["fixed_arm"],
    },
    Policy {
        kind: PolicyName::Ensemble,
        name: "ensemble",
        says: "No choice: all arms score every rollout, and the reward is their weighted mean.",
        formula: "Σ w·score, w = weights / Σ weights",
        paper: "https://arxiv.org/abs/2310.02743",
        reads: &["weights"],
    },
];

/// The names, in the order of the table.
pub const NAMES: [&str; POLICIES.len()] = {
    let mut names = [""; POLICIES.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = POLICIES[index].name;
        index += 1;
    }
    names
};

impl PolicyName {
    pub fn row(self) -> &'static Policy {
        POLICIES
            .iter()
            .find(|policy| policy.kind == self)
            .expect("a test finds every policy in the table")
    }

    /// False: outcomes change nothing about what it chooses.
    pub fn is_learning(self) -> bool {
        !matches!(self, Self::Fixed | Self::Ensemble)
    }
}

impl Policy {
    /// Whether a setting, as named in [`Settings`](crate::Settings), changes what this policy does.
    pub fn reads(&self, setting: &str) -> bool {
        let is_learning = self.kind.is_learning();
        self.reads.contains(&setting)
            || EVERY.contains(&setting) && (is_learning || setting != "discount")
    }
}

/// Lines for `lathe keys reward.bandit.policy`.
pub fn help() -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for policy in POLICIES {
        let _ = write!(
            text,
            "\n  {}: {}\n      {}\n      reads {}",
            policy.name,
            policy.says,
            policy.formula,
            policy.reads.join(", ")
        );
    }
    text
}

/// The table of policies as Markdown.
pub fn markdown() -> String {
    use std::fmt::Write as _;
    let mut text =
        String::from("| name | what it does | formula | reads | paper |\n|---|---|---|---|---|\n");
    for policy in POLICIES {
        let reads: Vec<String> = policy
            .reads
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        let paper = if policy.paper.is_empty() {
            String::new()
        } else {
            format!("<{}>", policy.paper)
        };
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {paper} |",
            policy.name,
            policy.says,
            policy.formula.replace('|', "\\|"),
            reads.join(", ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    #[test]
    fn every_policy_is_in_the_table_under_the_name_that_is_read() {
        for policy in POLICIES {
            assert_eq!(serde_json::to_value(policy.kind).unwrap(), policy.name);
            assert_eq!(policy.kind.row().name, policy.name);
        }
        for name in NAMES {
            serde_json::from_value::<PolicyName>(name.into()).unwrap();
        }
    }

    #[test]
    fn every_setting_is_read_by_some_policy_and_every_name_is_a_setting() {
        let settings = serde_json::to_value(Settings::default()).unwrap();
        let settings = settings.as_object().unwrap();
        for name in settings.keys() {
            assert!(POLICIES.iter().any(|policy| policy.reads(name)), "{name}");
        }
        for policy in POLICIES {
            for name in policy.reads {
                assert!(settings.contains_key(*name), "{name}");
            }
        }
    }
}

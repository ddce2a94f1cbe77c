//! THE table of advantage estimators: name, formula, paper, what each needs. The choices of `algorithm.adv_estimator`, the
//! rules about it, its help, the trainer and `docs/estimators.md` read it.

use std::fmt::Write as _;

use crate::settings::AdvEstimator;

/// How a sequence of rewards becomes an advantage per token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimator {
    pub kind: AdvEstimator,
    /// As the experiment writes it.
    pub name: &'static str,
    /// One sentence.
    pub says: &'static str,
    /// In plain letters; see [`LETTERS`].
    pub formula: &'static str,
    pub paper: &'static str,
    pub needs: &'static [Need],
    /// The keys under `algorithm.` that only it, or it among others, reads.
    pub reads: &'static [&'static str],
}

/// What an estimator cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Values of the state before each token.
    Critic,
    /// At least two samples of a prompt.
    Group,
    /// The score of one greedy answer to each prompt.
    GreedyBaseline,
    /// Old log-probs, and Σ π² over the vocabulary beside each.
    SumPiSquared,
    /// The reward's components by name.
    Components,
}

impl Need {
    /// For a table.
    pub fn text(self) -> &'static str {
        match self {
            Self::Critic => "a critic",
            Self::Group => "groups (rollout.n >= 2)",
            Self::GreedyBaseline => {
                "one greedy sample a prompt, drawn and scored beside the others"
            }
            Self::SumPiSquared => {
                "the sum of squared probabilities (a pass over old log-probs, also in bypass mode)"
            }
            Self::Components => "the reward's components",
        }
    }
}

impl Estimator {
    pub fn needs(&self, need: Need) -> bool {
        self.needs.contains(&need)
    }

    pub fn reads(&self, key: &str) -> bool {
        self.reads.contains(&key)
    }
}

/// The letters of the formulas.
pub const LETTERS: &str = "s: score of a sample (the sum of its token rewards); μ, σ: mean and unbiased deviation of the scores of its \
group (the samples of its prompt), n of them; r: reward of a token; γ: `algorithm.gamma`; λ: `algorithm.lam`; V: the critic's value \
before a token; G: the rewards from a token on; B: samples in the batch. *whiten*: minus the mean, over the deviation, of all the \
model's tokens in the batch. A: the same on every token of the model unless it has an index t; tool tokens have none.";

const BY_STD: &str = "norm_adv_by_std_in_grpo";

pub const ESTIMATORS: &[Estimator] = &[
    Estimator {
        kind: AdvEstimator::Gae,
        name: "gae",
        says: "PPO with a critic.",
        formula: "δ_t = r_t + γ·V_(t+1) − V_t;  A_t = δ_t + γλ·A_(t+1);  whiten",
        paper: "https://arxiv.org/abs/1506.02438",
        needs: &[Need::Critic],
        reads: &["gamma", "lam"],
    },
    Estimator {
        kind: AdvEstimator::Grpo,
        name: "grpo",
        says: "A sample against the others of its prompt.",
        formula: "A = (s − μ) / (σ + 1e-6);  s − μ without norm_adv_by_std_in_grpo (Dr. GRPO)",
        paper: "https://arxiv.org/abs/2402.03300",
        needs: &[Need::Group],
        reads: &[BY_STD],
    },
    Estimator {
        kind: AdvEstimator::GrpoVectorized,
        name: "grpo_vectorized",
        says: "grpo under verl's other name.",
        formula: "as grpo",
        paper: "https://arxiv.org/abs/2402.03300",
        needs: &[Need::Group],
        reads: &[BY_STD],
    },
    Estimator {
        kind: AdvEstimator::GrpoPassk,
        name: "grpo_passk",
        says: "Only the best sample of a prompt learns, by its lead over the second.",
        formula: "A = (best − second) / (σ + 1e-6) for the best, 0 for the others;  no σ without norm_adv_by_std_in_grpo",
        paper: "https://arxiv.org/abs/2503.19595",
        needs: &[Need::Group],
        reads: &[BY_STD],
    },
    Estimator {
        kind: AdvEstimator::Gdpo,
        name: "gdpo",
        says: "grpo of each component of the reward by itself, then their weighted sum.",
        formula: "A = whiten(Σ_k w_k · (s_k − μ_k) / (σ_k + 1e-6)), w = gdpo_reward_weights",
        paper: "https://arxiv.org/abs/2601.05242",
        needs: &[Need::Group, Need::Components],
        reads: &[BY_STD, "gdpo_reward_keys", "gdpo_reward_weights"],
    },
    Estimator {
        kind: AdvEstimator::ReinforcePlusPlus,
        name: "reinforce_plus_plus",
        says: "REINFORCE with the whole batch as baseline.",
        formula: "G_t = r_t + γ·G_(t+1);  A_t = whiten(G_t)",
        paper: "https://arxiv.org/abs/2501.03262",
        needs: &[],
        reads: &["gamma"],
    },
    Estimator {
        kind: AdvEstimator::ReinforcePlusPlusBaseline,
        name: "reinforce_plus_plus_baseline",
        says: "REINFORCE++ with the mean of the prompt's samples as baseline.",
        formula: "A = whiten(s − μ)",
        paper: "https://arxiv.org/abs/2501.03262",
        needs: &[Need::Group],
        reads: &[],
    },
    Estimator {
        kind: AdvEstimator::Remax,
        name: "remax",
        says: "A sample against the greedy answer to its prompt.",
        formula: "A_t = G_t − score of the greedy answer",
        paper: "https://arxiv.org/abs/2310.10505",
        needs: &[Need::GreedyBaseline],
        reads: &[],
    },
    Estimator {
        kind: AdvEstimator::Rloo,
        name: "rloo",
        says: "A sample against the mean of the other samples of its prompt.",
        formula: "A = n / (n − 1) · (s − μ);  s alone in its group",
        paper: "https://arxiv.org/abs/2402.14740",
        needs: &[Need::Group],
        reads: &[],
    },
    Estimator {
        kind: AdvEstimator::RlooVectorized,
        name: "rloo_vectorized",
        says: "rloo, but a sample alone in its group has no advantage.",
        formula: "A = n / (n − 1) · (s − μ);  0 alone in its group",
        paper: "https://arxiv.org/abs/2402.14740",
        needs: &[Need::Group],
        reads: &[],
    },
    Estimator {
        kind: AdvEstimator::Opo,
        name: "opo",
        says: "A sample against its prompt's mean weighted by length.",
        formula: "A = s − Σ len·s / Σ len over the group",
        paper: "https://arxiv.org/abs/2505.23585",
        needs: &[Need::Group],
        reads: &[],
    },
    Estimator {
        kind: AdvEstimator::Gpg,
        name: "gpg",
        says: "s − μ, larger where most samples score nothing; goes with the policy loss gpg.",
        formula: "A = α·(s − μ), α = B / (samples with s ≠ 0)",
        paper: "https://arxiv.org/abs/2504.02546",
        needs: &[Need::Group],
        reads: &[],
    },
    Estimator {
        kind: AdvEstimator::OptimalTokenBaseline,
        name: "optimal_token_baseline",
        says: "A baseline for each place of the response, weighted by the variance gathered up to it.",
        formula: "A_t = G_t − Σ G_t·W_t / Σ W_t over the group, W_t = Σ_(j<=t) 1 − 2π_j + Σπ²; places count tool tokens",
        paper: "https://raw.githubusercontent.com/mlresearch/v306/main/assets/li26hy/li26hy.pdf",
        needs: &[Need::Group, Need::SumPiSquared],
        reads: &[],
    },
    Estimator {
        kind: AdvEstimator::TirOptimalTokenBaseline,
        name: "tir_optimal_token_baseline",
        says: "The same for dialogues with tools: places count the model's own tokens only.",
        formula: "as optimal_token_baseline over the model's own tokens",
        paper: "https://raw.githubusercontent.com/mlresearch/v306/main/assets/li26hy/li26hy.pdf",
        needs: &[Need::Group, Need::SumPiSquared],
        reads: &[],
    },
];

/// The choices of `algorithm.adv_estimator`.
pub(crate) const NAMES: [&str; ESTIMATORS.len()] = {
    let mut names = [""; ESTIMATORS.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = ESTIMATORS[index].name;
        index += 1;
    }
    names
};

impl AdvEstimator {
    /// Its row of the table.
    pub fn row(self) -> &'static Estimator {
        ESTIMATORS
            .iter()
            .find(|row| row.kind == self)
            .expect("a test looks every kind up")
    }

    pub fn needs(self, need: Need) -> bool {
        self.row().needs(need)
    }
}

/// A line an estimator, for the help of `algorithm.adv_estimator`.
pub fn help() -> String {
    let longest = NAMES.iter().map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in ESTIMATORS {
        let _ = write!(text, "\n  {:longest$}  {}", row.name, row.says);
        let needs: Vec<&str> = row.needs.iter().map(|need| need.text()).collect();
        if !needs.is_empty() {
            let _ = write!(text, " Needs {}.", needs.join(" and "));
        }
        let _ = write!(text, "\n  {:longest$}  {}", "", row.formula);
    }
    text
}

/// `docs/estimators.md`.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Estimators\n\n\
         Made from the tables in `src/experiment/src/estimators.rs` and `losses.rs`; a test holds the two together. Every number is compared\n\
         with verl 0.9.1's (`lathe-trainer oracle`).\n\n\
         ## Advantage estimators (`algorithm.adv_estimator`)\n\n",
    );
    let _ = writeln!(text, "{LETTERS}\n");
    text.push_str("| name | what it is | formula | needs | paper |\n|---|---|---|---|---|\n");
    for row in ESTIMATORS {
        let needs: Vec<&str> = row.needs.iter().map(|need| need.text()).collect();
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | <{}> |",
            row.name,
            row.says,
            row.formula.replace('|', "\\|"),
            if needs.is_empty() {
                "nothing more".to_owned()
            } else {
                needs.join("; ")
            },
            row.paper
        );
    }
    text.push_str(&crate::losses::markdown());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_the_one_that_the_typed_experiment_reads() {
        for row in ESTIMATORS {
            let read: AdvEstimator = serde_json::from_value(row.name.into()).unwrap();
            assert_eq!((read, read.row().name), (row.kind, row.name));
        }
    }

    #[test]
    fn what_an_estimator_reads_are_keys_of_the_algorithm() {
        for row in ESTIMATORS {
            for key in row.reads {
                assert!(
                    crate::keys::find(&format!("algorithm.{key}")).is_some(),
                    "{key}"
                );
            }
        }
    }
}

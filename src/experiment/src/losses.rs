//! THE table of policy losses: name, formula, paper, the settings each reads, how its tokens become one number, and whether
//! its gradient depends on micro-batches. The choices of `policy_loss.loss_mode`, the rules about it, its help, the trainer's
//! tests and `docs/estimators.md` read it.

use std::fmt::Write as _;

use crate::settings::LossMode;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss {
    pub kind: LossMode,
    /// As the experiment writes it.
    pub name: &'static str,
    /// One sentence.
    pub says: &'static str,
    /// In the letters of [`LETTERS`].
    pub formula: &'static str,
    pub paper: &'static str,
    /// The keys under `actor_rollout_ref.actor.` that it reads, of those that not every loss reads.
    pub reads: &'static [&'static str],
    /// Why the gradient depends on how a mini-batch is cut; None: it does not.
    pub micro_batches_matter: Option<&'static str>,
}

impl Loss {
    pub fn reads(&self, key: &str) -> bool {
        self.reads.contains(&key)
    }
}

pub const LETTERS: &str = "A: advantage of a token; π: its probability under the policy, π_old before the update; ρ = π / π_old, x = \
log ρ; low, high, c: `clip_ratio_low`, `_high`, `_c`; sg: held constant; ⟨ ⟩ the mean over the tokens of a sequence. Each token's \
loss is multiplied by the rollout correction's weight, and their mean is `loss_agg_mode`'s, with the denominators of the whole \
mini-batch.";

const LOW: &str = "clip_ratio_low";
const HIGH: &str = "clip_ratio_high";
const DUAL: &str = "clip_ratio_c";
const AGGREGATION: &str = "loss_agg_mode";

/// What only some losses read.
pub(crate) const SETTINGS: [&str; 12] = [
    LOW,
    HIGH,
    DUAL,
    "tau_pos",
    "tau_neg",
    "policy_loss.clip_cov_ratio",
    "policy_loss.clip_cov_lb",
    "policy_loss.clip_cov_ub",
    "policy_loss.kl_cov_ratio",
    "policy_loss.ppo_kl_coef",
    "policy_loss.dro_beta",
    AGGREGATION,
];

const COVARIANCE: &str = "covariances are taken within a micro-batch, as in verl";

pub const LOSSES: &[Loss] = &[
    Loss {
        kind: LossMode::Vanilla,
        name: "vanilla",
        says: "PPO's clip with a dual clip.",
        formula: "max(−Aρ, −A·clip(ρ, 1 − low, 1 + high));  where A < 0 at most −c·A",
        paper: "https://arxiv.org/abs/1707.06347",
        reads: &[LOW, HIGH, DUAL, AGGREGATION],
        micro_batches_matter: None,
    },
    Loss {
        kind: LossMode::DppoTv,
        name: "dppo_tv",
        says: "A token whose probability has moved too far teaches nothing; clip ratios are probabilities here.",
        formula: "−A·sg(min(ρ, c))·log π where π − π_old <= high (A > 0), >= −low (else);  0 elsewhere",
        paper: "https://arxiv.org/abs/2602.04879",
        reads: &[LOW, HIGH, DUAL, AGGREGATION],
        micro_batches_matter: None,
    },
    Loss {
        kind: LossMode::DppoKl,
        name: "dppo_kl",
        says: "The same by the KL of a coin, this token or any other; clip ratios are nats here.",
        formula: "−A·sg(min(ρ, c))·log π where KL(π_old, π) <= high (A > 0), <= low (else) or π moves back;  0 elsewhere",
        paper: "https://arxiv.org/abs/2602.04879",
        reads: &[LOW, HIGH, DUAL, AGGREGATION],
        micro_batches_matter: None,
    },
    Loss {
        kind: LossMode::Gspo,
        name: "gspo",
        says: "PPO's clip on the ratio of the whole sequence (the paper clips at 3e-4 and 4e-4, and aggregates by seq-mean-token-mean).",
        formula: "max(−A·r, −A·clip(r, 1 − low, 1 + high)), r = sg(exp⟨x⟩)·π / sg(π)",
        paper: "https://arxiv.org/abs/2507.18071",
        reads: &[LOW, HIGH, AGGREGATION],
        micro_batches_matter: None,
    },
    Loss {
        kind: LossMode::Sapo,
        name: "sapo",
        says: "A sigmoid gate in place of the clip; always seq-mean-token-mean.",
        formula: "−A·sigmoid(τ(ρ − 1))·4/τ, τ = tau_pos where A > 0, tau_neg elsewhere",
        paper: "https://arxiv.org/abs/2511.20347",
        reads: &["tau_pos", "tau_neg"],
        micro_batches_matter: None,
    },
    Loss {
        kind: LossMode::Gpg,
        name: "gpg",
        says: "Policy gradient without a ratio, right only on the policy's own samples.",
        formula: "−A·log π",
        paper: "https://arxiv.org/abs/2504.02546",
        reads: &[AGGREGATION],
        micro_batches_matter: None,
    },
    Loss {
        kind: LossMode::ClipCov,
        name: "clip_cov",
        says: "PPO's clip, and a few random tokens of high covariance of A and log π teach nothing, which keeps entropy up.",
        formula: "max(−Aρ, −A·clip(ρ, 1 − low, 1 + high)), times 0 on clip_cov_ratio of the tokens, of those with clip_cov_lb < (A − mean)·(log π − mean) < clip_cov_ub",
        paper: "https://arxiv.org/abs/2505.22617",
        reads: &[
            LOW,
            HIGH,
            "policy_loss.clip_cov_ratio",
            "policy_loss.clip_cov_lb",
            "policy_loss.clip_cov_ub",
            AGGREGATION,
        ],
        micro_batches_matter: Some(COVARIANCE),
    },
    Loss {
        kind: LossMode::KlCov,
        name: "kl_cov",
        says: "No clip; the tokens of the largest covariance are tethered to where they were.",
        formula: "−Aρ, plus ppo_kl_coef·|x| on the kl_cov_ratio of the tokens with the largest (A − mean)·(log π − mean)",
        paper: "https://arxiv.org/abs/2505.22617",
        reads: &[
            "policy_loss.kl_cov_ratio",
            "policy_loss.ppo_kl_coef",
            AGGREGATION,
        ],
        micro_batches_matter: Some(COVARIANCE),
    },
    Loss {
        kind: LossMode::GeoMean,
        name: "geo_mean",
        says: "One loss a sequence from the geometric mean of its ratios; the mean over all sequences, empty ones too.",
        formula: "−⟨A⟩·exp⟨x held in [−low, high] on the side that A pushes it to⟩",
        paper: "https://arxiv.org/abs/2507.20673",
        reads: &[LOW, HIGH],
        micro_batches_matter: None,
    },
    Loss {
        kind: LossMode::Dro,
        name: "dro",
        says: "Policy gradient tethered by a square; needs dro_beta.",
        formula: "−(A·log π − ½·dro_beta·x²)",
        paper: "https://arxiv.org/abs/2405.19107",
        reads: &["policy_loss.dro_beta", AGGREGATION],
        micro_batches_matter: None,
    },
    Loss {
        kind: LossMode::Cispo,
        name: "cispo",
        says: "The clipped ratio is a weight, so that clipped tokens go on teaching.",
        formula: "−sg(clip(ρ, 1 − low, 1 + high))·A·log π",
        paper: "https://arxiv.org/abs/2506.13585",
        reads: &[LOW, HIGH, AGGREGATION],
        micro_batches_matter: None,
    },
];

/// The choices of `actor_rollout_ref.actor.policy_loss.loss_mode`.
pub(crate) const NAMES: [&str; LOSSES.len()] = {
    let mut names = [""; LOSSES.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = LOSSES[index].name;
        index += 1;
    }
    names
};

impl LossMode {
    /// Its row of the table.
    pub fn row(self) -> &'static Loss {
        LOSSES
            .iter()
            .find(|row| row.kind == self)
            .expect("a test looks every kind up")
    }
}

/// A line a loss, for the help of `loss_mode`.
pub(crate) fn help() -> String {
    let longest = NAMES.iter().map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in LOSSES {
        let _ = write!(
            text,
            "\n  {:longest$}  {}\n  {:longest$}  {}",
            row.name, row.says, "", row.formula
        );
    }
    text
}

/// Its part of `docs/estimators.md`.
pub(crate) fn markdown() -> String {
    let mut text =
        String::from("\n## Policy losses (`actor_rollout_ref.actor.policy_loss.loss_mode`)\n\n");
    let _ = writeln!(text, "{LETTERS}\n");
    text.push_str(
        "| name | what it is | loss of a token | reads | gradient depends on micro-batches | paper |\n|---|---|---|---|---|---|\n",
    );
    for row in LOSSES {
        let reads: Vec<String> = row.reads.iter().map(|key| format!("`{key}`")).collect();
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | <{}> |",
            row.name,
            row.says,
            row.formula.replace('|', "\\|"),
            reads.join(", "),
            row.micro_batches_matter
                .map_or_else(|| "no".to_owned(), |why| format!("yes: {why}")),
            row.paper
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_the_one_that_the_typed_experiment_reads() {
        for row in LOSSES {
            let read: LossMode = serde_json::from_value(row.name.into()).unwrap();
            assert_eq!((read, read.row().name), (row.kind, row.name));
        }
    }

    #[test]
    fn what_a_loss_reads_are_keys_of_the_actor() {
        for key in LOSSES.iter().flat_map(|row| row.reads).chain(&SETTINGS) {
            assert!(
                crate::keys::find(&format!("actor_rollout_ref.actor.{key}")).is_some(),
                "{key}"
            );
            assert!(SETTINGS.contains(key), "{key}");
        }
    }
}

//! `reward.bandit` as an experiment says it, and its page of documentation. How it chooses and learns is the crate `bandit`.

use std::fmt::Write as _;

pub use ::bandit::PolicyName;
use ::bandit::{Posterior, Settings, table};
use serde::{Deserialize, Serialize};

/// What a pull's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RewardedBy {
    /// Gain of the policy on prompts whose answer can be verified.
    ProbeGain,
    /// Whether the arm ordered answers as people did later.
    HumanAgreement,
    /// `LASeR`'s: minus the loss of the batch that the arm scored.
    NegativeLoss,
}

impl RewardedBy {
    /// As the experiment says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ProbeGain => "probe_gain",
            Self::HumanAgreement => "human_agreement",
            Self::NegativeLoss => "negative_loss",
        }
    }

    /// Ends of the scale that its values are on: a gain lies around 0, an agreement is a share.
    pub fn usual_range(self) -> [f64; 2] {
        match self {
            Self::ProbeGain => [-0.1, 0.1],
            Self::HumanAgreement => [0.0, 1.0],
            Self::NegativeLoss => [-1.0, 1.0],
        }
    }
}

/// Every field of [`Settings`] under the same name; a test holds the two together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bandit {
    /// None: no bandit.
    pub policy: Option<PolicyName>,
    pub rewarded_by: RewardedBy,
    pub probe_files: Vec<String>,
    pub probe_rows: u32,
    pub label_files: Vec<String>,
    pub label_rows: u32,
    /// Training steps that one choice holds for.
    pub steps_per_pull: u32,
    pub update_every: u32,
    pub discount: f64,
    /// None: as suits what arms are rewarded by.
    pub value_range: Option<[f64; 2]>,
    pub posterior: Posterior,
    pub prior_beta: [f64; 2],
    pub prior_mean: f64,
    pub prior_sd: f64,
    pub prior_pulls: f64,
    pub ucb_width: f64,
    pub kl_ucb_width: f64,
    pub epsilon: f64,
    pub epsilon_decay: f64,
    pub epsilon_floor: f64,
    pub alpha: f64,
    pub ridge: f64,
    pub quantiles: Option<[f64; 2]>,
    pub quantile_window: u32,
    pub fixed_arm: Option<String>,
    pub weights: Vec<f64>,
}

impl Default for Bandit {
    fn default() -> Self {
        let usual = Settings::default();
        Self {
            policy: None,
            rewarded_by: RewardedBy::ProbeGain,
            probe_files: Vec::new(),
            probe_rows: 64,
            label_files: Vec::new(),
            label_rows: 64,
            steps_per_pull: 1,
            update_every: usual.update_every,
            discount: usual.discount,
            value_range: None,
            posterior: usual.posterior,
            prior_beta: usual.prior_beta,
            prior_mean: usual.prior_mean,
            prior_sd: usual.prior_sd,
            prior_pulls: usual.prior_pulls,
            ucb_width: usual.ucb_width,
            kl_ucb_width: usual.kl_ucb_width,
            epsilon: usual.epsilon,
            epsilon_decay: usual.epsilon_decay,
            epsilon_floor: usual.epsilon_floor,
            alpha: usual.alpha,
            ridge: usual.ridge,
            quantiles: usual.quantiles,
            quantile_window: usual.quantile_window,
            fixed_arm: usual.fixed_arm,
            weights: usual.weights,
        }
    }
}

impl Bandit {
    /// What the bandit itself needs; None: there is none.
    pub fn settings(&self) -> Option<Settings> {
        Some(Settings {
            policy: self.policy?,
            update_every: self.update_every,
            discount: self.discount,
            value_range: self.value_range.unwrap_or(self.rewarded_by.usual_range()),
            posterior: self.posterior,
            prior_beta: self.prior_beta,
            prior_mean: self.prior_mean,
            prior_sd: self.prior_sd,
            prior_pulls: self.prior_pulls,
            ucb_width: self.ucb_width,
            kl_ucb_width: self.kl_ucb_width,
            epsilon: self.epsilon,
            epsilon_decay: self.epsilon_decay,
            epsilon_floor: self.epsilon_floor,
            alpha: self.alpha,
            ridge: self.ridge,
            quantiles: self.quantiles,
            quantile_window: self.quantile_window,
            fixed_arm: self.fixed_arm.clone(),
            weights: self.weights.clone(),
        })
    }

    /// The same for a bandit that learns in training, where an outcome is of a pull that scored `rollouts_per_pull` rollouts;
    /// None: it does not learn, or there is none.
    pub fn learning(&self, rollouts_per_pull: u64) -> Option<Settings> {
        let settings = self
            .settings()
            .filter(|settings| settings.policy.is_learning())?;
        let pulls = u64::from(settings.update_every).div_ceil(rollouts_per_pull.max(1));
        Some(Settings {
            update_every: pulls as u32,
            ..settings
        })
    }
}

/// docs/bandit.md, from the table of policies and the table of keys.
pub fn markdown() -> String {
    let mut text = format!(
        "{INTRODUCTION}\n## Policies (`reward.bandit.policy`)\n\n{}\n\n",
        table::LETTERS
    );
    text.push_str(&table::markdown());
    text.push_str("\n## Keys (`reward.bandit.`)\n\n| key | holds | default | what it does |\n|---|---|---|---|\n");
    for key in crate::keys::live() {
        let Some(name) = key.path.strip_prefix("reward.bandit.") else {
            continue;
        };
        let range = key.kind.range(name);
        let comma = if range.is_empty() { "" } else { ", " };
        let null = if key.nullable { ", or null" } else { "" };
        let unit = if key.unit.is_empty() {
            String::new()
        } else {
            format!(" ({})", key.unit)
        };
        let _ = writeln!(
            text,
            "| `{name}` | {}{comma}{range}{null} | `{}`{unit} | {} |",
            key.kind.noun(),
            key.default,
            key.help
        );
    }
    text.push_str(SIMULATION);
    text.push_str(ON_SCREEN);
    text
}

const ON_SCREEN: &str = "
## On screen

Page 9 of the workbench (it has a tab where a run has arms) shows of each arm its state, pulls, posterior on one axis, the
chance to be chosen next, score, late and missing answers and latency; the choices one by one and as shares over time; means,
regret (of the pulls that the policy chose itself: what people force is not counted) and disagreement by update; the last
choices with their reasons. `f` forces or releases the arm under the cursor, `z` freezes it or lets it go. Judges that are held
out (arms that score and are never chosen) stand below. `lathe --plain runs show RUN`, `lathe runs show RUN --json`, the HTML
report and page Compare have the same numbers.

Where nothing is chosen (`fixed`, `ensemble`, `reward.arms` without a bandit) page 9, the summary and the report have the same arms
with their weights, mean scores, latency, and the shares of late and missing answers, without a posterior; page 9 draws the scores.

The alarm `reward_hacking` is raised when the score of the arm that was chosen most (without a bandit that learns: the reward) rises
while a held-out judge falls: an arm that does not count (`reward/arm/NAME/weight` is 0), `bandit/probe/accuracy`, or `val-core/*`. Both by Mann-Kendall's test over the judge's
latest 8 to 32 values, z of 3 or more three times in a row, with the variance of a series whose neighbours are alike. It names both,
by how much, and since when. Guards may watch it (docs/guards.md); the preset `online` tells.
";

const INTRODUCTION: &str = "\
# The bandit over reward sources

Several reward sources (arms) can score a rollout: a rule, a model, a proxy of people. A bandit chooses one at a time and
learns which serves best. Made from the tables in `src/bandit/src/table.rs` and `src/experiment/src/keys/live/bandit.rs`; a test
holds this page to them. Every policy plays the same arms, step by step, as MABWiser, SMPyBandits and a plain numpy program
(Thompson: the same regret within its error), see `src/bandit/tests/oracles`.

**In training** every arm of `reward.arms` is asked about every dialogue (docs/rewards.md). Without a policy the reward is their
weighted sum; `fixed` counts one arm alone, `ensemble` takes their mean, with weights of its own. A policy that learns chooses one arm a pull, and its
score, times its weight, is the reward of every dialogue in the pull's steps:

- A pull is `steps_per_pull` training steps. The arm is chosen when the first of them is trained, so that the choice knows all there
  is to know however far rollouts run ahead. One arm scores a whole batch: the samples of a group are compared with one another.
- An arm of weight 0 is never chosen. It is a **held-out judge**: asked, recorded, and warned by when the chosen arm's score rises
  while its own falls.
- What makes an arm good is `rewarded_by`. `probe_gain`: after each pull the policy answers the first `probe_rows` prompts of
  `probe_files`, sampled as evaluations are and with the same draws each time, scored by their `data_source`; the pull's value is
  the mean score then minus that before it. `human_agreement`: the share of the newest `label_rows` pairs of `label_files` that the
  arm orders as people did (a tie counts half). `negative_loss`: minus the mean policy loss of the pull's steps.
- Gains are small and noisy: `value_range` is [-0.1, 0.1] for them unless it is given, and `posterior: gaussian` with a `prior_sd`
  of their size learns from fewer pulls than `beta`. More `steps_per_pull` make a pull's gain larger beside its noise.
- Where batches lag L policy versions, the choice for step s knows the probes of versions up to s−1−L and no later one, so that a run
  that goes on from a checkpoint chooses as if it had never stopped.
- Evaluations score as training would without a bandit, by the weighted sum; `reward.val_scorer: auto` judges them by their
  `data_source` instead, so that runs with other arms can be compared.
- A run that goes back to a checkpoint believes what it believed then; pulls go on counting, so that other draws follow.

Of every policy:

- Statistics, and epsilon with them, change once every `update_every` rollouts (in training: after as many pulls as have that many
  rollouts; in a simulation a pull is a rollout). An epsilon that decays at each rollout instead explores 20 times in all, and ends
  on a wrong arm in 7 to 42 % of runs; `thompson` and `kl_ucb` lose nothing by waiting.
- An arm that times out counts with its default; a pull most of whose answers were late is marked. An outcome that never comes counts
  for nothing. A late one is dropped and counted.
- An arm can be frozen (not chosen any more, its statistics stay) or forced (chosen always): while a run runs by
  `lathe ctl RUN arm force NAME`, `arm release`, `arm freeze NAME`, `arm unfreeze NAME`. Each is applied between two steps,
  answered with what stood before and what stands now, and an event of the run with who asked. `lathe ctl RUN arm` lists the arms.
- Regret is estimated as the sum, over the values so far, of the highest mean minus the arm's own: low while the best arm is still
  undiscovered. Disagreement of two arms is (1 − Kendall's τ_b) / 2 over the latest rollouts that both scored: 0 the same order, ½
  chance, 1 the opposite.
- Choices are a function of settings, seed and outcomes: a run that goes on from a checkpoint chooses as if it had never stopped.
- `negative_loss` is what LASeR does, and rewards the arm that is easiest to agree with, not the right one. The default is gain on
  prompts whose answers can be verified.
";

const SIMULATION: &str = "
## Three judges: `experiments/bandit.yaml`

One judge errs in 10 of 100 answers, one is a coin, one likes short answers, which the policy can have by guessing instead of calling
the tool. Averaged with equal weights (`reward.bandit.policy=ensemble`) the training reward rises from 0.46 to 0.50 while the validation
reward, by the data's own rule, falls from 0.45 to 0.02; the alarm `quality_fall` says so from step 50 on. `thompson` chooses the good
judge for 26 of 30 pulls of four steps, at the end with a probability of 0.89, and ends at 0.97 (120 steps, one run each, seed 42; the
judges' errors are drawn anew each time, so another run differs). What the three gained a pull: 0.032 ± 0.013, 0.003 ± 0.021 and
-0.13 ± 0.06.

![both runs](bandit.svg)

Two things were needed to tell the judges apart. Adam's memory must be shorter than a pull (`betas: [0.5, 0.999]`): with 0.9 a coin
after a good judge goes on in the good judge's direction, and is credited with it. And errors must be drawn anew: a coin that always
falls the same way for the same text sharpens the policy, which helps one that is right more often than not.

Made by `lathe export BANDIT --with ENSEMBLE --metrics 'val-core/*/reward/mean@*' --metrics critic/score/mean --metrics
bandit/arm/good/chosen --smooth 0 -o bandit.svg`.

## Trying a policy: `lathe bandit simulate ENV`

`experiments/bandits/judges.yaml` is an example. An environment is YAML or JSON:

| field | means | default |
|---|---|---|
| `horizon` | pulls a run | |
| `runs` | runs that means and errors are over | 100 |
| `seed` | other seeds, other runs; the same seed, the same numbers, on any number of processors | 0 |
| `context_dimensions` | each pull has a random unit vector as context, which `linucb` needs | none |
| `outcome_delay` | further pulls before an outcome is known, as in asynchronous training | 0 |
| `arms` | a list of `name`, `gives`, and optionally `then`, `timed_out_frac` with `default`, `missing_frac` | |
| `gives` | `bernoulli: p`, `normal: {mean, sd}`, `beta: {alpha, beta}`, `constant: v`, `values: [...]` (each as likely), or `linear: {theta, bias, sd}` in the context | |
| `then` | what the arm gives from some pull on: `[{from: 1000, gives: ...}]` | never changes |
| `policies` | names, or mappings of `policy`, the keys above that it reads, and a `label` | `thompson`, `kl_ucb`, `ucb1`, `epsilon_greedy`, and `linucb` with contexts |

Regret is the sum over pulls of the best arm's mean at that pull minus the chosen one's, so it needs the truth, which only an
environment has. All policies meet the same contexts and values.
";

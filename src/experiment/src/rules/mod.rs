//! What keys must be to each other, and the choices made where a key was left open.

mod bandit;
mod correction;
mod generation;
mod guards;
mod learning;
mod verl;

use crate::complaint::Severity;
use crate::given::Givens;
use crate::settings::{AUTO_STALENESS, EngineName, Experiment, LoggerName, Mode, ResumeMode};

/// Most policy versions that a batch may lag: each is a batch of rollouts in memory.
const MAX_STALENESS: u32 = 8;
/// Longest dialogue: four times what the longest models of today read.
const MAX_TOKENS: u64 = 1 << 22;
/// Most dialogues at once: a thousand times what a large run holds.
const MAX_ROLLOUTS: u64 = 1 << 20;

/// verl's dead key that we give a meaning: both sides of the clip.
pub const CLIP_RATIO: &str = "actor_rollout_ref.actor.clip_ratio";

/// Fills what was left open and complains about what does not fit together.
pub fn apply(experiment: &mut Experiment, givens: &mut Givens) {
    let mut rules = Rules { experiment, givens };
    rules.clip_ratio();
    rules.names_and_mirrors();
    rules.sizes();
    rules.batches();
    rules.micro_batches();
    rules.estimator();
    rules.policy_loss();
    rules.kl();
    rules.dapo();
    rules.rollout();
    rules.rollout_correction();
    rules.dialogue();
    rules.mode();
    rules.guards();
    rules.resuming();
    rules.bandit();
    rules.beside_a_model();
    rules.files();
    rules.devices();
    rules.verl();
}

fn trainer_keeps_all(experiment: &Experiment) -> bool {
    experiment.trainer.max_actor_ckpt_to_keep.is_none()
}

struct Rules<'a> {
    experiment: &'a mut Experiment,
    givens: &'a mut Givens,
}

impl Rules<'_> {
    fn has(&self, key: &str) -> bool {
        self.givens.get(key).is_some()
    }

    /// The first given key under a block.
    fn first_under(&self, block: &str) -> Option<String> {
        self.givens
            .all
            .iter()
            .find(|given| {
                given.key.starts_with(block)
                    && crate::keys::find(&given.key).is_some()
                    && !given.node.to_json().is_null()
            })
            .map(|given| given.key.clone())
    }

    /// How the user wrote a key; in full when nobody did.
    fn name(&self, key: &str) -> String {
        self.givens
            .get(key)
            .map_or_else(|| key.to_owned(), |given| given.written.clone())
    }

    /// At the first of `keys` that was given. Silent when one of them already has an error: its value here is not
    /// the user's.
    fn say(&mut self, severity: Severity, keys: &[&str], message: String) {
        let doubtful = self.givens.complaints.iter().any(|complaint| {
            complaint.severity == Severity::Error && keys.contains(&complaint.key.as_str())
        });
        if doubtful {
            return;
        }
        let key = keys
            .iter()
            .find(|key| self.has(key))
            .or(keys.first())
            .copied()
            .unwrap_or("");
        let origin = self.givens.origin(key);
        self.givens.complain(severity, &origin, key, message);
    }

    fn error(&mut self, keys: &[&str], message: String) {
        self.say(Severity::Error, keys, message);
    }

    fn warn(&mut self, keys: &[&str], message: String) {
        self.say(Severity::Warning, keys, message);
    }

    fn note(&mut self, keys: &[&str], message: String) {
        self.say(Severity::Note, keys, message);
    }

    fn names_and_mirrors(&mut self) {
        if !self.has("trainer.experiment_name") {
            let file = self.givens.file_stem();
            if !file.is_empty() {
                self.experiment.trainer.experiment_name = file;
            }
        }
        let rollout_gpus = "actor_rollout_ref.rollout.n_gpus_per_node";
        if !self.has(rollout_gpus) {
            self.experiment.actor_rollout_ref.rollout.n_gpus_per_node =
                self.experiment.trainer.n_gpus_per_node;
        }
    }

    /// Counts that no machine has the memory for, told before they are tried.
    fn sizes(&mut self) {
        let (data, rollout) = (
            &self.experiment.data,
            &self.experiment.actor_rollout_ref.rollout,
        );
        let tokens = u64::from(data.max_prompt_length) + u64::from(data.max_response_length);
        let rollouts = u64::from(data.train_batch_size) * u64::from(rollout.n);
        let checked: [(&[&str], u64, u64, &str); 4] = [
            (
                &["data.max_response_length", "data.max_prompt_length"],
                tokens,
                MAX_TOKENS,
                "data.max_prompt_length + data.max_response_length, tokens of one dialogue,",
            ),
            (
                &["actor_rollout_ref.rollout.n", "data.train_batch_size"],
                rollouts,
                MAX_ROLLOUTS,
                "data.train_batch_size * actor_rollout_ref.rollout.n, dialogues of one step,",
            ),
            (
                &["actor_rollout_ref.rollout.val_kwargs.n"],
                u64::from(rollout.val_kwargs.n),
                MAX_ROLLOUTS,
                "actor_rollout_ref.rollout.val_kwargs.n",
            ),
            (
                &["actor_rollout_ref.rollout.max_num_seqs"],
                u64::from(rollout.max_num_seqs),
                MAX_ROLLOUTS,
                "actor_rollout_ref.rollout.max_num_seqs",
            ),
        ];
        for (keys, value, most, what) in checked {
            if value > most {
                self.error(keys, format!("{what} is {value}; expected at most {most}"));
            }
        }
    }

    fn resuming(&mut self) {
        const MODE: &str = "trainer.resume_mode";
        const PATH: &str = "trainer.resume_from_path";
        let trainer = &self.experiment.trainer;
        match (trainer.resume_mode, &trainer.resume_from_path) {
            (ResumeMode::ResumePath, None) => self.error(
                &[MODE],
                format!("{MODE} is resume_path, and {PATH} names no checkpoint"),
            ),
            (ResumeMode::Auto | ResumeMode::Disable, Some(_)) => self.warn(
                &[PATH],
                format!("{PATH} has no effect; set {MODE} to resume_path to start from it"),
            ),
            _ => {}
        }
        if trainer_keeps_all(self.experiment) {
            for key in ["trainer.ckpt_keep_every", "trainer.ckpt_keep_best"] {
                if self.has(key) {
                    self.note(
                        &[key],
                        format!("{key} has no effect: every checkpoint is kept while trainer.max_actor_ckpt_to_keep is null"),
                    );
                }
            }
        }
    }

    fn mode(&mut self) {
        let key = "trainer.max_staleness";
        let mode = self.experiment.trainer.mode;
        let (name, most) = match mode {
            Mode::Sync => ("sync", 0),
            Mode::OneStepOff => ("one_step_off", 1),
            Mode::Async => ("async", MAX_STALENESS),
            Mode::Auto => ("auto", MAX_STALENESS),
        };
        let is_async = matches!(mode, Mode::Async | Mode::Auto);
        let partial = "async_training.partial_rollout";
        if !is_async && self.has(partial) {
            let written = self.name(partial);
            self.warn(
                &[partial],
                format!("{written} has no effect: trainer.mode is {name}"),
            );
        }
        let rollout = &self.experiment.actor_rollout_ref.rollout;
        if is_async && rollout.full_determinism {
            self.error(
                &["actor_rollout_ref.rollout.full_determinism", "trainer.mode"],
                "actor_rollout_ref.rollout.full_determinism is true, but in trainer.mode async and auto the weights of a batch depend on timing; use one_step_off or sync".to_owned(),
            );
        }
        match self.experiment.trainer.max_staleness {
            None => {
                let bound = match mode {
                    Mode::Auto => AUTO_STALENESS,
                    Mode::Sync | Mode::OneStepOff | Mode::Async => most.min(1),
                };
                self.experiment.trainer.max_staleness = Some(bound);
            }
            Some(staleness) if staleness > most => {
                let written = self.name(key);
                let expected = match most {
                    0 => "0".to_owned(),
                    1 => "0 or 1".to_owned(),
                    most => format!("0 to {most}"),
                };
                self.error(
                    &[key, "trainer.mode"],
                    format!(
                        "{written} is {staleness}; with trainer.mode {name} expected {expected}"
                    ),
                );
            }
            Some(_) => {}
        }
    }

    /// What stands beside a reward model that is to be learned.
    fn beside_a_model(&mut self) {
        const SCORERS: &str = "sft.scorers";
        let problems: Vec<String> = (self.experiment.sft.scorers.iter())
            .filter_map(|arm| {
                arm.beside_a_model()
                    .and_then(|()| arm.judge().map(drop))
                    .err()
            })
            .collect();
        for problem in problems {
            self.error(&[SCORERS], format!("{SCORERS}: {problem}"));
        }
    }

    fn files(&mut self) {
        let supervised = !self.experiment.sft.train_files.is_empty();
        if self.experiment.data.train_files.is_empty() && !supervised {
            self.error(
                &["data.train_files"],
                "data.train_files is empty; name the Parquet files to train on".to_owned(),
            );
        }
        if self.experiment.actor_rollout_ref.model.path.is_empty()
            && self.experiment.sft.init_config.is_none()
        {
            let key = "actor_rollout_ref.model.path";
            self.error(
                &[key],
                format!("{key} is not given; name a model directory in the Hugging Face layout"),
            );
        }
        if supervised
            && self.experiment.sft.output_dir.is_none()
            && self.experiment.data.train_files.is_empty()
        {
            let key = "sft.output_dir";
            self.error(
                &[key, "sft.train_files"],
                format!("{key} is not given; name the directory for the warmed-up model"),
            );
        }
        let evaluation = "data.val_files";
        if self.experiment.data.val_files.is_empty() {
            let test = "trainer.test_freq";
            if self.experiment.trainer.val_only {
                self.error(
                    &["trainer.val_only", evaluation],
                    "trainer.val_only is true, but data.val_files is empty".to_owned(),
                );
            } else if self.experiment.trainer.test_freq > 0 {
                let name = self.name(test);
                self.error(
                    &[test, evaluation],
                    format!("{name} is {}, but data.val_files is empty, so there is nothing to evaluate on", self.experiment.trainer.test_freq),
                );
            } else if self.has("trainer.val_before_train")
                && self.experiment.trainer.val_before_train
            {
                let name = self.name("trainer.val_before_train");
                self.warn(
                    &["trainer.val_before_train"],
                    format!("{name} has no effect: data.val_files is empty"),
                );
            }
        }
        let mut seen: Vec<LoggerName> = Vec::new();
        self.experiment.trainer.logger.retain(|logger| {
            let first = !seen.contains(logger);
            seen.push(*logger);
            first
        });
    }

    fn devices(&mut self) {
        let trainer = &self.experiment.trainer;
        let gpus = trainer.nnodes.saturating_mul(trainer.n_gpus_per_node);
        let keys = ["trainer.n_gpus_per_node", "trainer.nnodes"];
        let is_for_verl = crate::verl::is_asked_for(self.experiment);
        if gpus > 1 && !is_for_verl && keys.iter().any(|key| self.has(key)) {
            let name = keys
                .iter()
                .find(|key| self.has(key))
                .map(|key| self.name(key))
                .unwrap_or_default();
            self.warn(
                &keys,
                format!("{name}: this build trains on one device, of the {gpus} asked for"),
            );
        }
        let hybrid = "actor_rollout_ref.hybrid_engine";
        let rollout = &self.experiment.actor_rollout_ref.rollout;
        if !self.experiment.actor_rollout_ref.hybrid_engine
            && rollout.nnodes == 0
            && rollout.name != EngineName::Embedded
        {
            let name = self.name(hybrid);
            self.warn(
                &[hybrid],
                format!(
                    "{name} is false, but rollout.nnodes is 0: verl gives such rollouts no GPUs"
                ),
            );
        }
    }
}

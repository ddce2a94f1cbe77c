//! From an experiment to the things a run needs, with an input error that names the file for each that cannot be had.

use dialogue::chat::Chat;
use dialogue::data::{
    DataSet, Need, Options, Overlong, PromptSource, SourceOptions, screen_prompts,
};
use dialogue::score::Scorers;
use dialogue::tool::{ToolClasses, ToolRegistry};
use experiment::Experiment;
use experiment::bandit::{PolicyName, RewardedBy};
use experiment::scorers::ScorerName;
use experiment::settings::{Device as DeviceName, EngineName};
use std::path::{Path, PathBuf};
use tch::Device;

use crate::choosing::Labels;
use crate::failure::Failure;
use crate::learner::kinds;
use crate::model::config::ModelConfig;
use crate::model::parameters::Parameters;
use crate::reward::arm::Models;

/// Where tensors live.
pub fn device(experiment: &Experiment) -> Result<Device, Failure> {
    match experiment.trainer.device {
        DeviceName::Cpu => Ok(Device::Cpu),
        DeviceName::Auto => Ok(Device::cuda_if_available()),
        DeviceName::Cuda if tch::Cuda::is_available() => Ok(Device::Cuda(0)),
        DeviceName::Cuda => Err(Failure::Input(
            "trainer.device is cuda, but libtorch sees no CUDA device; use trainer.device=auto or cpu, or fetch the CUDA libtorch on a machine with an NVIDIA driver".to_owned(),
        )),
    }
}

/// Refuses what this build cannot do, before anything is loaded.
pub fn refuse_unavailable(experiment: &Experiment) -> Result<(), Failure> {
    match experiment.actor_rollout_ref.rollout.name {
        EngineName::Embedded => Ok(()),
        EngineName::Vllm | EngineName::Sglang => Err(Failure::Input(
            "actor_rollout_ref.rollout.name: this build generates with the embedded engine only; use actor_rollout_ref.rollout.name=embedded".to_owned(),
        )),
    }
}

fn model_directory(experiment: &Experiment) -> PathBuf {
    PathBuf::from(&experiment.actor_rollout_ref.model.path)
}

/// Where the tokenizer files are.
pub fn tokenizer_directory(experiment: &Experiment) -> PathBuf {
    experiment
        .actor_rollout_ref
        .model
        .tokenizer_path
        .as_ref()
        .map_or_else(|| model_directory(experiment), PathBuf::from)
}

pub fn chat(experiment: &Experiment) -> Result<Chat, Failure> {
    Chat::load(
        &tokenizer_directory(experiment),
        experiment
            .actor_rollout_ref
            .model
            .custom_chat_template
            .as_deref(),
        &experiment.data.apply_chat_template_kwargs,
    )
    .map(|chat| chat.with_format(experiment.actor_rollout_ref.rollout.multi_turn.format))
    .map_err(Failure::input)
}

/// The actor's starting weights.
pub fn actor(experiment: &Experiment, device: Device) -> Result<Parameters, Failure> {
    let (kind, _) = kinds(&experiment.actor_rollout_ref.actor.fsdp_config);
    Parameters::load(&model_directory(experiment), kind, device).map_err(Failure::input)
}

/// The critic's own starting weights, if it has any.
pub fn critic(experiment: &Experiment, device: Device) -> Result<Option<Parameters>, Failure> {
    let (kind, _) = kinds(&experiment.actor_rollout_ref.actor.fsdp_config);
    experiment
        .critic
        .model
        .path
        .as_ref()
        .map(|path| {
            Parameters::load_critic(Path::new(path), experiment.trainer.seed, kind, device)
                .map_err(Failure::input)
        })
        .transpose()
}

pub fn tools(experiment: &Experiment) -> Result<ToolRegistry, Failure> {
    let registry = match &experiment
        .actor_rollout_ref
        .rollout
        .multi_turn
        .tool_config_path
    {
        Some(path) => {
            ToolRegistry::load(Path::new(path), &ToolClasses::default()).map_err(Failure::input)?
        }
        None => ToolRegistry::default(),
    };
    Ok(registry)
}

/// What keeps a tool from working on this machine ends the run before its first step.
pub fn ready(tools: &ToolRegistry) -> Result<(), Failure> {
    for (name, ready) in tools.ready() {
        if let Err(problem) = ready {
            return Err(Failure::Input(format!("tool {name}: {problem}")));
        }
    }
    Ok(())
}

pub fn scorers(experiment: &Experiment) -> Result<Scorers, Failure> {
    let device = device(experiment)?;
    Scorers::with_models(&experiment.reward, &Models { device }).map_err(Failure::Input)
}

/// Training prompts, screened: every row read and checked, its prompt counted through the rollouts' own tokenisation.
pub fn train_prompts(
    experiment: &Experiment,
    chat: &Chat,
    tools: &ToolRegistry,
) -> Result<PromptSource, Failure> {
    let data = prompts(
        experiment,
        &experiment.data.train_files,
        experiment.data.train_max_samples,
        chat,
        tools,
    )?;
    PromptSource::new(
        data,
        SourceOptions {
            batch: experiment.data.train_batch_size as usize,
            shuffle: experiment.data.shuffle,
            seed: experiment.data.seed,
            epochs: experiment
                .trainer
                .total_training_steps
                .is_none()
                .then_some(u64::from(experiment.trainer.total_epochs)),
        },
    )
    .map_err(Failure::input)
}

/// Prompts of the test files, in order; None when there are none.
pub fn val_prompts(
    experiment: &Experiment,
    chat: &Chat,
    tools: &ToolRegistry,
) -> Result<Option<DataSet>, Failure> {
    if experiment.data.val_files.is_empty() {
        return Ok(None);
    }
    prompts(
        experiment,
        &experiment.data.val_files,
        experiment.data.val_max_samples,
        chat,
        tools,
    )
    .map(Some)
}

/// What people said of pairs of answers; None where no bandit is rewarded by agreement with them.
pub fn labels(experiment: &Experiment, scorers: &Scorers) -> Result<Option<Labels>, Failure> {
    let bandit = &experiment.reward.bandit;
    let is_learning = bandit.policy.is_some_and(PolicyName::is_learning);
    if !is_learning || bandit.rewarded_by != RewardedBy::HumanAgreement {
        return Ok(None);
    }
    Labels::open(&bandit.label_files, bandit.label_rows, scorers.clone())
        .map(Some)
        .map_err(|error| Failure::Input(format!("reward.bandit.label_files: {error}")))
}

/// Prompts of the bandit's probe, each known to have an answer that can be verified; None where no bandit is rewarded by one.
pub fn probe_prompts(
    experiment: &Experiment,
    chat: &Chat,
    tools: &ToolRegistry,
) -> Result<Option<DataSet>, Failure> {
    let bandit = &experiment.reward.bandit;
    let is_learning = bandit.policy.is_some_and(PolicyName::is_learning);
    if !is_learning || bandit.rewarded_by != RewardedBy::ProbeGain {
        return Ok(None);
    }
    let most = Some(u64::from(bandit.probe_rows));
    let rows = prompts(experiment, &bandit.probe_files, most, chat, tools)?;
    let scorers = Scorers::new(ScorerName::Auto);
    for row in rows.scan().map_err(Failure::input)? {
        let row = row.map_err(Failure::input)?;
        let judged = scorers
            .for_source(&row.data_source)
            .map_err(|error| error.to_string())
            .and_then(|scorer| {
                let truth = row.reward_model.map(|model| model.ground_truth);
                scorer
                    .check(&truth.unwrap_or_default())
                    .map_err(|error| format!("reward_model.ground_truth: {error}"))
            });
        if let Err(problem) = judged {
            return Err(Failure::Input(format!(
                "reward.bandit.probe_files: row {} of {} cannot be verified: {problem}",
                row.index,
                bandit.probe_files.join(", ")
            )));
        }
    }
    Ok(Some(rows))
}

fn prompts(
    experiment: &Experiment,
    files: &[String],
    max_samples: Option<u64>,
    chat: &Chat,
    tools: &ToolRegistry,
) -> Result<DataSet, Failure> {
    let settings = &experiment.data;
    let mut data = DataSet::open(
        files,
        &Options {
            prompt_key: settings.prompt_key.clone(),
            need: Need::Prompts,
            max_samples,
            shuffle: false,
            seed: settings.seed,
        },
    )
    .map_err(Failure::input)?;
    let overlong = if settings.filter_overlong_prompts {
        Overlong::Drop
    } else {
        Overlong::Refuse
    };
    screen_prompts(
        &mut data,
        chat,
        &tools.schemas(),
        settings.max_prompt_length as usize,
        overlong,
    )
    .map_err(Failure::input)?;
    Ok(data)
}

/// A tokenizer that can say ids the model has no row for would fail in the middle of a run.
pub fn check_vocabulary(chat: &Chat, config: &ModelConfig) -> Result<(), Failure> {
    let known = chat.tokenizer().vocabulary_size();
    if known as i64 > config.vocab_size {
        return Err(Failure::Input(format!(
            "{}: the tokenizer knows {known} tokens, the model {} (vocab_size in config.json); they do not belong together",
            chat.tokenizer().directory().display(),
            config.vocab_size
        )));
    }
    Ok(())
}

/// A fixed prompt that touches many rows of the embedding: both sides of a weight sync say its log-probs.
pub fn canary_ids(config: &ModelConfig) -> Vec<u32> {
    let length = config.max_position_embeddings.min(16);
    // A step that is coprime to most vocabulary sizes spreads the ids out.
    (0..length)
        .map(|index| ((index * 7919 + 1) % config.vocab_size) as u32)
        .collect()
}

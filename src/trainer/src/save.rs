//! What a run leaves behind beside its log: the counters in a checkpoint, a model, the record of rollouts.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use dialogue::data::Cursor;
use dialogue::rollout::{Finish, Rollout};
use experiment::settings::Mode;
use runlog::run_dir::RunDir;
use runlog::store::{self, RolloutRow, StoreError};
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use crate::checkpoint::CheckpointError;
use crate::choosing;
use crate::guard;
use crate::learner::{Trained, TrainedBatch};
use crate::objective::controller::KlController;

/// Counters and controllers of a run at a checkpoint: `state.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunCounters {
    /// Steps trained; also the version of the weights.
    pub step: u64,
    /// The controller of the KL in the reward, whole.
    pub kl_controller: KlController,
    /// The same of the KL in the loss; None in checkpoints written before it could adapt.
    #[serde(default)]
    pub kl_loss_controller: Option<KlController>,
    /// What was set while the run ran, and differs from `experiment.yaml` since: key to value.
    #[serde(default)]
    pub knobs: BTreeMap<String, f64>,
    /// Rows consumed by the steps trained; None before the first.
    pub cursor: Option<Cursor>,
    pub seed: u64,
    /// `trainer.mode`, where it was changed while the run ran.
    #[serde(default)]
    pub mode: Option<Mode>,
    /// What guards remember, and have under way.
    #[serde(default)]
    pub guards: guard::Saved,
    /// The bandit and its open pulls, where one learns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choosing: Option<choosing::Saved>,
}

impl RunCounters {
    /// After `step` steps of a run in which nothing was set, guarded, adapted or read.
    pub fn at(step: u64) -> Self {
        Self {
            step,
            kl_controller: KlController::Fixed { coefficient: 0.0 },
            kl_loss_controller: None,
            knobs: BTreeMap::new(),
            cursor: None,
            seed: 42,
            mode: None,
            guards: guard::Saved::default(),
            choosing: None,
        }
    }

    const FILE: &str = "state.json";

    /// Of the checkpoint at `path`.
    pub fn read(path: &Path) -> Result<Self, CheckpointError> {
        let text =
            std::fs::read(path.join(Self::FILE)).map_err(|source| CheckpointError::Read {
                path: path.to_owned(),
                source,
            })?;
        serde_json::from_slice(&text).map_err(|error| CheckpointError::Broken {
            path: path.to_owned(),
            problem: format!("its {} cannot be read ({error})", Self::FILE),
        })
    }

    /// Into the checkpoint that is written at `directory`.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        std::fs::write(directory.join(Self::FILE), serde_json::to_vec_pretty(self)?)
    }
}

/// A model in the Hugging Face layout, with the tokenizer files of `source`.
pub fn trained(trained: &Trained, directory: &Path, source: &Path) -> io::Result<()> {
    trained
        .model
        .parameters()
        .save_pretrained(directory, Some(source))
        .map_err(io::Error::other)
}

/// Every sample that a step trained on, with everything computed for it: `rollouts/step-000120.parquet`.
pub fn rollouts(trained: &TrainedBatch, step: u64, run_dir: &RunDir) -> Result<(), StoreError> {
    let TrainedBatch {
        batch,
        old_logprobs,
        ref_logprobs,
        values,
        advantages,
    } = trained;
    let old_logprobs = numbers(old_logprobs);
    let ref_logprobs = ref_logprobs.as_ref().map(numbers);
    let values = values.as_ref().map(numbers);
    let advantages = numbers(advantages);
    let rows: Vec<RolloutRow> = batch
        .rollouts
        .iter()
        .enumerate()
        .map(|(index, rollout)| {
            let start = index * batch.width;
            let cells = start..start + rollout.response_ids.len();
            let of = |all: &Vec<f32>| all[cells.clone()].to_vec();
            RolloutRow {
                old_logprobs: Some(of(&old_logprobs)),
                ref_logprobs: ref_logprobs.as_ref().map(of),
                values: values.as_ref().map(of),
                advantages: Some(of(&advantages)),
                ..row(rollout, step)
            }
        })
        .collect();
    store::write_rollouts(&store::rollouts_path(run_dir, step), &rows)
}

/// The dialogues of an evaluation of the weights of `step`, in the same form: nothing was computed for them but the score.
pub fn answers(rollouts: &[Rollout], step: u64, path: &Path) -> Result<(), StoreError> {
    let rows: Vec<RolloutRow> = rollouts.iter().map(|rollout| row(rollout, step)).collect();
    store::write_rollouts(path, &rows)
}

fn row(rollout: &Rollout, step: u64) -> RolloutRow {
    RolloutRow {
        uid: rollout.uid.clone(),
        sample: rollout.sample,
        step,
        data_source: rollout.data_source.clone(),
        row_index: rollout.row_index,
        messages: json(&rollout.messages),
        prompt_ids: rollout.prompt_ids.clone(),
        response_ids: rollout.response_ids.clone(),
        response_mask: rollout.response_mask.clone(),
        behavior_logprobs: rollout.behavior_logprobs.clone(),
        old_logprobs: None,
        ref_logprobs: None,
        values: None,
        advantages: None,
        policy_versions: rollout.policy_versions.clone(),
        score: rollout.score,
        score_parts: json(&rollout.score_parts),
        tools: json(&rollout.tools),
        finish: finish_name(rollout.finish),
    }
}

/// The word for it in the log.
pub fn finish_name(finish: Finish) -> String {
    match serde_json::to_value(finish) {
        Ok(serde_json::Value::String(name)) => name,
        _ => unreachable!("a unit variant is a string"),
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("messages and tool records have string keys")
}

/// A `[B, T]` tensor, flat.
fn numbers(tensor: &Tensor) -> Vec<f32> {
    let flat = tensor
        .to_device(Device::Cpu)
        .to_kind(Kind::Float)
        .contiguous()
        .view([-1]);
    Vec::try_from(flat).expect("a flat f32 tensor on the CPU")
}

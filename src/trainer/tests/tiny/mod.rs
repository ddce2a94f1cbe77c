//! A run on a model of two layers that is over in seconds, for the tests of whole runs.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::fs;
use std::path::{Path, PathBuf};

use runlog::run_dir::{NewRun, RunDir};

pub const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny-qwen2-tied");

/// Sixteen short sums whose answers a random model never says, so that every score is known: 0.
fn write_prompts(path: &Path) {
    let rows: String = (0..16)
        .map(|row| {
            serde_json::json!({
                "data_source": "lathe/calc",
                "prompt": [{"role": "user", "content": format!("{row}+{row}=")}],
                "reward_model": {"style": "rule", "ground_truth": format!("{}", 2 * row + 1000)},
                "extra_info": {"index": row},
            })
            .to_string()
                + "\n"
        })
        .collect();
    fs::write(path, rows).expect("a writable temporary directory");
}

/// A PPO experiment with an entropy bonus, which moves the weights whatever the scores are.
pub fn experiment(data: &Path, more: &str) -> String {
    format!(
        r"data:
  train_files: {data}
  val_files: {data}
  train_batch_size: 4
  max_prompt_length: 64
  max_response_length: 12
actor_rollout_ref:
  model:
    path: {MODEL}
  actor:
    ppo_mini_batch_size: 2
    ppo_max_token_len_per_gpu: 80
    use_dynamic_bsz: true
    entropy_coeff: 0.01
    optim:
      lr: 1e-3
  rollout:
    n: 2
    full_determinism: true
algorithm:
  adv_estimator: gae
trainer:
  total_training_steps: 3
  test_freq: 2
  device: cpu
{more}",
        data = data.display()
    )
}

/// Two arms that a bandit chooses between by what a probe of `data` gains, and a third that is only watched.
pub fn bandit(data: &Path) -> String {
    format!(
        r"reward:
  arms:
    - {{name: short, scorer: length, timeout: 60s, options: {{unit: characters, max: 12, over: 12}}}}
    - {{name: digits, scorer: regex, weight: 2, timeout: 60s, options: {{pattern: '[0-9]'}}}}
    - {{name: truth, scorer: auto, weight: 0, timeout: 60s}}
  bandit:
    policy: thompson
    probe_files: {data}
    probe_rows: 4
",
        data = data.display()
    )
}

/// A run directory for `yaml`.
pub fn run_dir(root: &Path, yaml: String) -> RunDir {
    RunDir::create(
        root,
        &NewRun {
            experiment_name: "test".to_owned(),
            experiment_yaml: yaml,
            ..NewRun::default()
        },
    )
    .expect("a run directory")
}

/// A folder with prompts in it.
pub fn fixture() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().expect("a temporary directory");
    let data = root.path().join("prompts.jsonl");
    write_prompts(&data);
    (root, data)
}

/// Metrics of every step and evaluation that are no times or rates, as a reader of the run sees them.
pub fn learned(directory: &RunDir) -> Vec<(String, Vec<(u64, u64)>)> {
    let state = runlog::open::open(directory).expect("a log").state;
    state
        .series
        .iter()
        .filter(|(name, _)| {
            [
                "actor/",
                "critic/",
                "val-core/",
                "response_length/",
                "training/",
            ]
            .iter()
            .any(|start| name.starts_with(start))
        })
        .map(|(name, series)| {
            let points = series
                .iter()
                .map(|point| (point.step, point.value.0.to_bits()))
                .collect();
            (name.to_owned(), points)
        })
        .collect()
}

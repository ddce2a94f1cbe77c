//! Where the files are that an experiment names, and what to say when they are not there.

use std::path::{Path, PathBuf};

use experiment::Experiment;
use experiment::arms::Judge;
use experiment::settings::ResumeMode;
use runlog::checkpoints;
use serde_json::Value;

use super::Finding;
use crate::launch::Job;

/// A path as written in the experiment, and the file it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub written: String,
    pub path: PathBuf,
}

impl Place {
    /// Relative paths are relative to where `lathe` runs, else to the experiment's file.
    pub fn of(written: &str, experiment_file: &Path) -> Self {
        let here = PathBuf::from(written);
        let beside = experiment_file.parent().map(|folder| folder.join(written));
        let path = match beside {
            Some(beside) if !here.exists() && beside.exists() => beside,
            _ => here,
        };
        Self {
            written: written.to_owned(),
            path,
        }
    }

    /// `owner/name` as on Hugging Face's hub, and nothing of that name here.
    pub fn is_hub_id(&self) -> bool {
        let mut parts = self.written.split('/');
        let is_name = |part: Option<&str>| {
            part.is_some_and(|part| !part.is_empty() && !part.starts_with(['.', '~']))
        };
        let owner = parts.next();
        is_name(owner)
            && !owner.is_some_and(is_local_folder)
            && is_name(parts.next())
            && parts.next().is_none()
            && !self.path.exists()
    }

    /// What to do about a model that is not here; None when it is.
    pub fn missing_model(&self) -> Option<String> {
        let key = "actor_rollout_ref.model.path";
        if self.written.is_empty() {
            return Some(format!(
                "{key} is not set; name a directory in the Hugging Face layout"
            ));
        }
        let written = &self.written;
        if self.path.exists() {
            return self.is_without_weights().then(|| {
                format!(
                    "{key} is {written}, which has no weights yet; make them with `lathe sft` on a warm-up whose \
                     sft.output_dir it is, or put model.safetensors there"
                )
            });
        }
        Some(if self.is_hub_id() {
            let folder = written.rsplit('/').next().unwrap_or(written);
            format!(
                "{key} is {written}, which is not on this machine; fetch it with \
                 `hf download {written} --local-dir models/{folder}` and set {key}=models/{folder}"
            )
        } else {
            let name = written.rsplit('/').next().unwrap_or(written);
            format!(
                "{key} is {written}, which does not exist; put a model in the Hugging Face layout there, \
                 e.g. `hf download OWNER/{name} --local-dir {written}`"
            )
        })
    }

    /// A model's directory as it is before its first training: shape and tokenizer, no weights in any form.
    fn is_without_weights(&self) -> bool {
        let holds = |name: &str| self.path.join(name).exists();
        holds("config.json")
            && ![
                "model.safetensors",
                "model.safetensors.index.json",
                "pytorch_model.bin",
            ]
            .into_iter()
            .any(holds)
    }

    fn missing_file(&self, key: &str) -> Option<String> {
        (!self.path.exists()).then(|| {
            format!(
                "{key} names {}, which does not exist; correct the path, or make a data set with `lathe data make`",
                self.written
            )
        })
    }
}

/// A first folder that is by custom one's own, and no owner on the hub.
fn is_local_folder(name: &str) -> bool {
    matches!(name, "models" | "model" | "checkpoints" | "runs" | "data")
        || PathBuf::from(name).is_dir()
}

/// The data files of an experiment with the key that names each.
pub fn data_files(experiment: &Experiment, experiment_file: &Path) -> Vec<(&'static str, Place)> {
    let files = |key, files: &[String]| -> Vec<(&'static str, Place)> {
        files
            .iter()
            .map(|file| (key, Place::of(file, experiment_file)))
            .collect()
    };
    let mut all = files("data.train_files", &experiment.data.train_files);
    all.extend(files("data.val_files", &experiment.data.val_files));
    let bandit = &experiment.reward.bandit;
    all.extend(files("reward.bandit.probe_files", &bandit.probe_files));
    all
}

/// The key of the pairs that people ordered.
const LABELS: &str = "reward.bandit.label_files";

/// The key of the dialogues whose perplexity guards watch.
pub const PROBE: &str = "trainer.guard_probe_files";

/// The files of the guards' probe, with their key.
pub fn probe_files(experiment: &Experiment, experiment_file: &Path) -> Vec<(&'static str, Place)> {
    let files = experiment.trainer.guard_probe_files.iter();
    files
        .map(|file| (PROBE, Place::of(file, experiment_file)))
        .collect()
}

/// The finding of a data file that is not here; None when it is.
pub fn missing_data(key: &str, place: &Place) -> Option<String> {
    place.missing_file(key)
}

/// Overrides that name by their full path the files that lie beside the experiment's file and not here: the copy of the
/// experiment in the run's directory, which the trainer reads, has other neighbours.
pub fn beside_overrides(experiment: &Experiment, experiment_file: &Path) -> Vec<String> {
    let beside = |written: &str| {
        let place = Place::of(written, experiment_file);
        let path = std::path::absolute(&place.path).ok()?;
        (place.path != Path::new(written)).then(|| path.display().to_string())
    };
    named_files(experiment)
        .into_iter()
        .filter(|(_, files)| files.iter().any(|file| beside(file).is_some()))
        .map(|(key, files)| {
            let all: Vec<String> = files
                .into_iter()
                .map(|file| beside(&file).unwrap_or(file))
                .collect();
            files_override(key, &all)
        })
        .collect()
}

/// Names a Python file.
pub const REWARD_FUNCTION: &str = "reward.custom_reward_function.path";

/// The keys that name one file or folder, and not a list.
const SINGLE: [&str; 7] = [
    "actor_rollout_ref.model.path",
    "actor_rollout_ref.model.tokenizer_path",
    "actor_rollout_ref.rollout.multi_turn.tool_config_path",
    "critic.model.path",
    REWARD_FUNCTION,
    "sft.init_config",
    "trainer.resume_from_path",
];

/// Whether a key names a model, which may lie where the run does.
pub fn names_a_model(key: &str) -> bool {
    matches!(
        key,
        "actor_rollout_ref.model.path"
            | "actor_rollout_ref.model.tokenizer_path"
            | "critic.model.path"
    )
}

/// Every key that names files or folders, with what it names, as written.
pub fn named_files(experiment: &Experiment) -> Vec<(&'static str, Vec<String>)> {
    let settings = &experiment.actor_rollout_ref;
    let single = [
        Some(&settings.model.path),
        settings.model.tokenizer_path.as_ref(),
        settings.rollout.multi_turn.tool_config_path.as_ref(),
        experiment.critic.model.path.as_ref(),
        experiment.reward.custom_reward_function.path.as_ref(),
        experiment.sft.init_config.as_ref(),
        experiment.trainer.resume_from_path.as_ref(),
    ];
    let lists = [
        ("data.train_files", &experiment.data.train_files),
        ("data.val_files", &experiment.data.val_files),
        ("sft.train_files", &experiment.sft.train_files),
        ("sft.val_files", &experiment.sft.val_files),
        (PROBE, &experiment.trainer.guard_probe_files),
        (
            "reward.bandit.probe_files",
            &experiment.reward.bandit.probe_files,
        ),
        (LABELS, &experiment.reward.bandit.label_files),
    ];
    SINGLE
        .into_iter()
        .zip(single)
        .filter_map(|(key, written)| Some((key, vec![written?.clone()])))
        .chain(lists.map(|(key, files)| (key, files.clone())))
        .collect()
}

/// The override that gives such a key other names.
pub fn files_override(key: &str, files: &[String]) -> String {
    let quoted: Vec<String> = files.iter().map(|file| quoted(file)).collect();
    if SINGLE.contains(&key) {
        format!("{key}={}", quoted.join(""))
    } else {
        format!("{key}=[{}]", quoted.join(","))
    }
}

/// A text in the grammar of overrides.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// What a job needs and does not find. For `lathe run`, before anything is started.
pub fn missing_inputs(experiment: &Experiment, experiment_file: &Path, job: Job) -> Vec<Finding> {
    let model = Place::of(&experiment.actor_rollout_ref.model.path, experiment_file);
    let is_fresh = job != Job::Run && experiment.sft.init_config.is_some();
    let mut findings = Vec::new();
    if !is_fresh && let Some(message) = model.missing_model() {
        findings.push(Finding::error("model", message));
    }
    let files = match job {
        Job::Run => {
            let mut files = data_files(experiment, experiment_file);
            files.extend(probe_files(experiment, experiment_file));
            files
        }
        Job::Sft | Job::Reward => experiment
            .sft
            .train_files
            .iter()
            .map(|file| ("sft.train_files", Place::of(file, experiment_file)))
            .collect(),
    };
    let missing = files
        .iter()
        .filter_map(|(key, place)| missing_data(key, place));
    findings.extend(missing.map(|message| Finding::error("data", message)));
    if job == Job::Run {
        let missing = wrong_reward_models(experiment, experiment_file).into_iter();
        findings.extend(missing.map(|message| Finding::error("scorer", message)));
    }
    if job == Job::Run
        && experiment.trainer.resume_mode == ResumeMode::ResumePath
        && let Some(written) = &experiment.trainer.resume_from_path
        && let Err(error) = checkpoints::measure(&Place::of(written, experiment_file).path)
    {
        findings.push(Finding::error("checkpoint", error.to_string()));
    }
    findings
}

/// The files of pairs that people ordered, with the key that names them.
pub fn label_files(experiment: &Experiment, experiment_file: &Path) -> Vec<(&'static str, Place)> {
    let files = experiment.reward.bandit.label_files.iter();
    files
        .map(|file| (LABELS, Place::of(file, experiment_file)))
        .collect()
}

/// The label files of arms of the scorer `human`, which may come later, with the arm.
pub fn labels_of_arms(experiment: &Experiment, experiment_file: &Path) -> Vec<(String, Place)> {
    let arms = experiment.reward.arms.iter();
    arms.filter_map(|arm| match arm.judge() {
        Ok(Judge::Human(human)) => {
            Some((arm.name.clone(), Place::of(&human.labels, experiment_file)))
        }
        _ => None,
    })
    .collect()
}

/// What to say of each reward model of `reward.arms` that is not here, or is none.
pub fn wrong_reward_models(experiment: &Experiment, experiment_file: &Path) -> Vec<String> {
    let arms = experiment.reward.arms.iter();
    arms.filter_map(|arm| {
        let Ok(Judge::Model(model)) = arm.judge() else {
            return None;
        };
        let place = Place::of(&model.path, experiment_file);
        let problem = no_reward_model(&place.path)?;
        Some(format!(
            "reward.arms: {}: its path is {}, which {problem}; make a reward model with `lathe reward train`, or correct the path",
            arm.name, model.path
        ))
    })
    .collect()
}

/// Why a folder holds no reward model, as far as its small files tell; None: they tell nothing of the kind.
fn no_reward_model(folder: &Path) -> Option<String> {
    let read = |name: &str| -> Option<Value> {
        let text = std::fs::read(folder.join(name)).ok()?;
        serde_json::from_slice(&text).ok()
    };
    if !folder.join("config.json").exists() {
        return Some("holds no config.json".to_owned());
    }
    if let Some(modules) = read("modules.json") {
        let is_dense = |module: &Value| {
            let class = module["type"].as_str();
            class.is_some_and(|class| class.ends_with(".Dense"))
        };
        let has_head = modules.as_array()?.iter().any(is_dense);
        return (!has_head).then(|| "holds a sentence encoder without a score head".to_owned());
    }
    let config = read("config.json")?;
    let class = config["architectures"][0].as_str()?;
    let has_head = ["ForSequenceClassification", "ForTokenClassification"]
        .iter()
        .any(|end| class.ends_with(end));
    (!has_head).then(|| format!("holds a {class}, which has no score head"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_reward_model_is_told_from_its_small_files() {
        let root = tempfile::tempdir().unwrap();
        let told = |config: &str, modules: Option<&str>| {
            std::fs::write(root.path().join("config.json"), config).unwrap();
            let path = root.path().join("modules.json");
            match modules {
                Some(modules) => std::fs::write(path, modules).unwrap(),
                None => drop(std::fs::remove_file(path)),
            }
            no_reward_model(root.path())
        };
        assert_eq!(
            no_reward_model(root.path()).as_deref(),
            Some("holds no config.json")
        );
        assert_eq!(
            told(r#"{"architectures": ["Qwen2ForCausalLM"]}"#, None).as_deref(),
            Some("holds a Qwen2ForCausalLM, which has no score head")
        );
        let scoring = r#"{"architectures": ["LlamaForSequenceClassification"]}"#;
        assert_eq!(told(scoring, None), None);
        // What its files do not tell, the trainer does.
        assert_eq!(told("{}", None), None);
        let pooled = r#"[{"type": "sentence_transformers.models.Pooling"}]"#;
        assert_eq!(
            told("{}", Some(pooled)).as_deref(),
            Some("holds a sentence encoder without a score head")
        );
        let scoring = r#"[{"type": "sentence_transformers.models.Dense"}]"#;
        assert_eq!(told("{}", Some(scoring)), None);
    }

    #[test]
    fn a_hub_id_is_told_how_to_be_fetched() {
        let place = Place::of("Qwen/Qwen2.5-3B-Instruct", Path::new("x.yaml"));
        let message = place.missing_model().unwrap();
        assert!(
            message.contains(
                "`hf download Qwen/Qwen2.5-3B-Instruct --local-dir models/Qwen2.5-3B-Instruct`"
            ),
            "{message}"
        );
        for written in [
            "models/x",
            "./models/x",
            "/models/x",
            "a/b/c",
            "model",
            "~/x",
        ] {
            assert!(
                !Place::of(written, Path::new("x.yaml")).is_hub_id(),
                "{written}"
            );
        }
    }

    #[test]
    fn a_path_is_looked_for_here_and_then_beside_the_experiment() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.yaml");
        std::fs::write(folder.path().join("beside.parquet"), "").unwrap();
        assert_eq!(
            Place::of("beside.parquet", &file).path,
            folder.path().join("beside.parquet")
        );
        assert_eq!(
            Place::of("nowhere.parquet", &file).path,
            Path::new("nowhere.parquet")
        );
    }
}

//! Tries an experiment on what it names, without libtorch: are model, tokenizer, data, tools and scorer there and do
//! they fit together? Everything wrong is a [`Finding`] that says where and what to do; nothing here prints.
//!
//! ```text
//!  Experiment ─► model (config, weights' headers) ─► chat (tokenizer, template) ─► tools ─► rows (schema, lengths, scorer)
//! ```

mod model;
mod places;
mod rows;

use std::path::Path;

use dialogue::chat::Chat;
use dialogue::tool::{ToolClasses, ToolRegistry};
use experiment::{Experiment, Severity};
use serde::Serialize;

pub use model::ModelFacts;
pub use places::{
    Place, REWARD_FUNCTION, beside_overrides, files_override, missing_inputs, named_files,
    names_a_model,
};
pub use rows::{FileFacts, ScorerFacts};

/// One thing that is wrong or worth knowing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// `model`, `tokenizer`, `tools`, `data` or `scorer`.
    pub area: &'static str,
    /// What, where, and what to do.
    pub message: String,
}

impl Finding {
    pub fn error(area: &'static str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            area,
            message: message.into(),
        }
    }

    pub fn warning(area: &'static str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            area,
            message: message.into(),
        }
    }
}

/// What the dry run saw.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct DryRun {
    /// Told beside the rest, not in it: an experiment that could not be tried has none.
    #[serde(skip)]
    pub findings: Vec<Finding>,
    pub model: Option<ModelFacts>,
    /// Names of the tools, as the model calls them.
    pub tools: Vec<String>,
    /// What is worth knowing of some of them on this machine, such as which sandbox it gives.
    pub tool_notes: Vec<ToolNote>,
    pub files: Vec<FileFacts>,
    pub scorers: Vec<ScorerFacts>,
    /// The first prompt of the first file as the model would read it.
    pub sample_prompt: Option<String>,
}

/// What a tool says of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolNote {
    pub tool: String,
    pub note: String,
}

/// How the dry run goes.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Rows of each file to try, from its start.
    pub rows: u64,
    /// What is not on this machine is an error.
    pub is_strict: bool,
    /// Where to say what is being waited for.
    pub tell: fn(&str),
}

impl Options {
    /// How bad it is that something is not on this machine.
    fn absent(self) -> Severity {
        if self.is_strict {
            Severity::Error
        } else {
            Severity::Warning
        }
    }
}

/// Tries everything that can be tried; a part that is missing leaves out only what depends on it.
pub fn dry_run(experiment: &Experiment, experiment_file: &Path, options: Options) -> DryRun {
    let mut run = DryRun::default();
    let absent = options.absent();
    let settings = &experiment.actor_rollout_ref;
    let model = Place::of(&settings.model.path, experiment_file);
    // A head on a sentence encoder is learned from text alone: there is no template and no language model to look at.
    if is_warm_up(experiment) && model.path.join("modules.json").is_file() {
        rows::try_demonstrations(experiment, experiment_file, options.rows, absent, &mut run);
        return run;
    }
    // A warm-up that starts from random weights has no model to look at.
    let is_fresh = is_warm_up(experiment) && experiment.sft.init_config.is_some();
    match model.missing_model() {
        Some(_) if is_fresh => {}
        Some(message) => run.findings.push(Finding {
            severity: absent,
            area: "model",
            message,
        }),
        None => run.model = model::inspect(&model.path, &mut run.findings),
    }
    let chat = chat(experiment, experiment_file, &mut run.findings);
    let tools = tools(experiment, experiment_file, &mut run.findings);
    run.tools = tools
        .iter()
        .flat_map(ToolRegistry::names)
        .map(str::to_owned)
        .collect();
    for (tool, ready) in tools.iter().flat_map(ToolRegistry::ready) {
        match ready {
            Ok(None) => {}
            Ok(Some(note)) => run.tool_notes.push(ToolNote {
                tool: tool.to_owned(),
                note,
            }),
            Err(problem) => run.findings.push(Finding {
                severity: absent,
                area: "tools",
                message: format!("{tool}: {problem}"),
            }),
        }
    }
    if is_warm_up(experiment) {
        rows::try_demonstrations(experiment, experiment_file, options.rows, absent, &mut run);
        return run;
    }
    rows::try_files(
        experiment,
        experiment_file,
        chat.as_ref(),
        tools.as_ref(),
        options,
        &mut run,
    );
    run
}

/// For `lathe sft`: demonstrations to imitate, no prompts to sample from.
fn is_warm_up(experiment: &Experiment) -> bool {
    experiment.data.train_files.is_empty() && !experiment.sft.train_files.is_empty()
}

/// None: not there (the model's own finding says so) or not readable.
fn chat(
    experiment: &Experiment,
    experiment_file: &Path,
    findings: &mut Vec<Finding>,
) -> Option<Chat> {
    let model = &experiment.actor_rollout_ref.model;
    let named = model.tokenizer_path.as_ref().unwrap_or(&model.path);
    let place = Place::of(named, experiment_file);
    if !place.path.exists() {
        if model.tokenizer_path.is_some() {
            let key = "actor_rollout_ref.model.tokenizer_path";
            findings.push(Finding::error(
                "tokenizer",
                format!("{key} is {named}, which does not exist"),
            ));
        }
        return None;
    }
    let kwargs = &experiment.data.apply_chat_template_kwargs;
    match Chat::load(&place.path, model.custom_chat_template.as_deref(), kwargs) {
        Ok(chat) => Some(chat.with_format(experiment.actor_rollout_ref.rollout.multi_turn.format)),
        Err(error) => {
            findings.push(Finding::error("tokenizer", error.to_string()));
            None
        }
    }
}

/// None: there are some, and they cannot be used.
fn tools(
    experiment: &Experiment,
    experiment_file: &Path,
    findings: &mut Vec<Finding>,
) -> Option<ToolRegistry> {
    let Some(named) = &experiment
        .actor_rollout_ref
        .rollout
        .multi_turn
        .tool_config_path
    else {
        return Some(ToolRegistry::default());
    };
    let place = Place::of(named, experiment_file);
    ToolRegistry::load(&place.path, &ToolClasses::default())
        .map_err(|error| findings.push(Finding::error("tools", error.to_string())))
        .ok()
}

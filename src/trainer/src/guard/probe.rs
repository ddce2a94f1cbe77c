//! The probe: fixed dialogues whose perplexity under the policy tells whether it still speaks the language it was given.

use dialogue::chat::{Chat, Demonstration};
use dialogue::tool::ToolRegistry;
use experiment::Experiment;
use tch::Device;

use crate::failure::Failure;
use crate::learner::Trained;
use crate::sft;

pub const PROBE_METRIC: &str = "probe/perplexity";

#[derive(Debug)]
pub struct Probe {
    demonstrations: Vec<Demonstration>,
    device: Device,
}

impl Probe {
    /// The dialogues of `trainer.guard_probe_files`; None when none are named.
    pub fn load(
        experiment: &Experiment,
        chat: &Chat,
        tools: &ToolRegistry,
        device: Device,
    ) -> Result<Option<Self>, Failure> {
        let settings = &experiment.trainer;
        if settings.guard_probe_files.is_empty() {
            return Ok(None);
        }
        let data = &experiment.data;
        let most = (data.max_prompt_length + data.max_response_length) as usize;
        let mut demonstrations =
            sft::load_demonstrations(&settings.guard_probe_files, chat, &tools.schemas(), most)?;
        demonstrations.truncate(settings.guard_probe_rows as usize);
        Ok(Some(Self {
            demonstrations,
            device,
        }))
    }

    /// Dialogues.
    pub fn len(&self) -> usize {
        self.demonstrations.len()
    }

    pub fn is_empty(&self) -> bool {
        self.demonstrations.is_empty()
    }

    /// exp of the mean −ln p of an assistant's token.
    pub fn perplexity(&self, actor: &Trained) -> Result<f64, Failure> {
        Ok(sft::evaluate(actor, &self.demonstrations, self.device)?.exp())
    }
}

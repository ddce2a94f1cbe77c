//! How far a dialogue may go.

use std::time::Duration;

use experiment::settings::{Data, Rollout as RolloutSettings, ToolFormat, TruncateSide, ValKwargs};

use crate::generate::Sampling;
use crate::tool::{CallRules, react};

/// Bounds of one dialogue.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Tokens of the prompt, tool schemas included.
    pub max_prompt_length: usize,
    /// Tokens after the prompt: the model's, the tools' and the template's.
    pub max_response_length: usize,
    /// Tokens of prompt and response together.
    pub max_model_len: usize,
    /// None: as many as fit.
    pub max_assistant_turns: Option<u32>,
    /// Tokens of one model turn; None: as many as fit.
    pub max_turn_tokens: Option<usize>,
    /// How the model writes its calls.
    pub format: ToolFormat,
    pub calls: CallRules,
    /// A dialogue older than this ends with what it has. None: no deadline.
    pub session_timeout: Option<Duration>,
    /// How many times a session is begun again that its engine failed, or whose deadline passed with nothing drawn.
    pub retries: u32,
    /// How long a deadline waits for an engine to hand over the turn in progress.
    pub abort_grace: Duration,
}

impl Limits {
    /// As the experiment says.
    pub fn new(data: &Data, rollout: &RolloutSettings) -> Self {
        let turns = &rollout.multi_turn;
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        Self {
            max_prompt_length: data.max_prompt_length as usize,
            max_response_length: data.max_response_length as usize,
            max_model_len: rollout.max_model_len.map_or(
                data.max_prompt_length as usize + data.max_response_length as usize,
                |length| length as usize,
            ),
            max_assistant_turns: turns.max_assistant_turns,
            max_turn_tokens: None,
            format: turns.format,
            calls: CallRules {
                max_parallel_calls: turns.max_parallel_calls as usize,
                max_response_characters: turns.max_tool_response_length as usize,
                truncate_side: turns.tool_response_truncate_side,
                timeout: seconds(turns.tool_timeout_s).min(MAX_WAIT),
            },
            session_timeout: rollout.session_timeout_s.map(seconds),
            retries: rollout.session_retries,
            abort_grace: Duration::from_secs(5),
        }
    }
}

/// Longer waits overflow a clock.
const MAX_WAIT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl Default for Limits {
    /// The defaults of an experiment.
    fn default() -> Self {
        Self::new(&Data::default(), &RolloutSettings::default())
    }
}

impl Default for CallRules {
    fn default() -> Self {
        Self {
            max_parallel_calls: 1,
            max_response_characters: 256,
            truncate_side: TruncateSide::Middle,
            timeout: Duration::from_secs(60),
        }
    }
}

impl Sampling {
    /// Training samples of an experiment. `stop_token_ids`: where the chat template ends a turn.
    pub fn for_training(rollout: &RolloutSettings, stop_token_ids: &[u32]) -> Self {
        let mut stop_strings = rollout.stop.clone();
        // What follows is the tool's to write.
        if rollout.multi_turn.format == ToolFormat::React {
            stop_strings.push(react::STOP.to_owned());
        }
        Self {
            temperature: rollout.temperature,
            top_k: positive(rollout.top_k),
            top_p: rollout.top_p,
            min_p: rollout.min_p,
            stop_token_ids: stop_token_ids.to_vec(),
            stop_strings,
            ignore_eos: rollout.ignore_eos,
        }
    }

    /// Evaluation samples: as in training, but temperature, top-k and top-p are `val_kwargs`' own.
    pub fn for_evaluation(rollout: &RolloutSettings, stop_token_ids: &[u32]) -> Self {
        let ValKwargs {
            temperature,
            top_k,
            top_p,
            ..
        } = rollout.val_kwargs;
        Self {
            temperature,
            top_k: positive(top_k),
            top_p,
            min_p: 0.0,
            ..Self::for_training(rollout, stop_token_ids)
        }
    }
}

/// -1 is off.
fn positive(top_k: i64) -> Option<u32> {
    u32::try_from(top_k).ok().filter(|top_k| *top_k > 0)
}

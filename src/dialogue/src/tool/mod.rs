//! Tools a dialogue may call: the trait, the registry made from a verl tool YAML, the calls of one dialogue.
//!
//! ```text
//!  tools.yaml ─► ToolRegistry ─► Toolbox (one dialogue) ─► create once ─► execute … ─► calc_reward ─► release
//!                                     ▲ format::parse(model turn)      │
//!                                          Gate (one a tool): cache ─► a turn ─► time-out
//! ```
//! Whatever the model writes, it gets an answer in words: an unknown tool, bad JSON, wrong arguments, a time-out or a
//! panic of the tool are error texts, counted, never the end of the dialogue.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::generate::BoxFuture;

pub mod calculator;
mod call;
pub mod command;
mod config;
pub mod format;
mod gate;
pub mod guess;
pub mod hermes;
pub mod http;
mod isolated;
mod limits;
mod llama3_json;
pub mod mcp;
pub mod python;
pub mod react;
mod registry;
mod schema;
pub mod search;

pub use call::{CallRules, CallSpan, Toolbox};
pub(crate) use isolated::panic_text;
pub use isolated::{Interrupted, isolated};
pub use limits::ToolLimits;
pub use registry::{Declared, MakeTool, ToolClass, ToolClasses, ToolConfigError, ToolRegistry};
pub use schema::ToolSchema;

/// Named arguments: of a call, or from a data row.
pub type Parameters = serde_json::Map<String, Value>;

/// Names one tool's state for one dialogue. Unique among all dialogues that are alive.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceId(pub Arc<str>);

impl fmt::Display for InstanceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What a call gave.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolOutcome {
    /// For the model.
    pub text: String,
    /// For the record; never part of the training reward by itself.
    pub reward: Option<f64>,
    pub metrics: BTreeMap<String, f64>,
}

impl ToolOutcome {
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }
}

/// A call that gave nothing; the text goes to the model after `error: `.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The tool refuses it, or failed at it.
    #[error("{0}")]
    Failed(String),
    /// The tool stopped it at its time-out, and can say more about it than that.
    #[error("{0}")]
    TimedOut(String),
}

/// What a data row says to one tool (`extra_info.tools_kwargs.<tool>`).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolKwargs {
    pub create_kwargs: Option<Parameters>,
    pub execute_kwargs: Option<Parameters>,
    pub calc_reward_kwargs: Option<Parameters>,
    pub release_kwargs: Option<Parameters>,
}

/// A tool. One value serves every dialogue; what belongs to one dialogue is kept under its `InstanceId`.
///
/// Life of an instance: `create` once, before the first call; `execute` any number of times, several at once when
/// the model asks for several; `calc_reward` once when the dialogue has ended; `release` always, last, also after an
/// error, a time-out, a panic or an abort. Of `kwargs` each method reads its own part.
pub trait Tool: Send + Sync {
    fn create<'a>(
        &'a self,
        instance: &'a InstanceId,
        kwargs: &'a ToolKwargs,
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        let _ = (instance, kwargs);
        Box::pin(async { Ok(()) })
    }

    /// `parameters` already fit the tool's schema.
    fn execute<'a>(
        &'a self,
        instance: &'a InstanceId,
        parameters: &'a Parameters,
        kwargs: &'a ToolKwargs,
    ) -> BoxFuture<'a, Result<ToolOutcome, ToolError>>;

    /// The tool's own view of the whole dialogue; None: it has none.
    fn calc_reward<'a>(
        &'a self,
        instance: &'a InstanceId,
        kwargs: &'a ToolKwargs,
    ) -> BoxFuture<'a, Option<f64>> {
        let _ = (instance, kwargs);
        Box::pin(async { None })
    }

    /// The limits that hold, made from those its YAML gives.
    fn limits(&self, given: ToolLimits) -> ToolLimits {
        given
    }

    /// A call's answer depends on the calls before it, so that none may stand for another.
    fn keeps_state(&self) -> bool {
        false
    }

    /// Whether it can work on this machine: what is worth knowing of it, or why not. May take seconds, and start things.
    fn ready(&self) -> Result<Option<String>, String> {
        Ok(None)
    }

    /// Frees what `create` made. A plain function, where verl's is async, so that it runs from a drop, too.
    fn release(&self, instance: &InstanceId, kwargs: &ToolKwargs) {
        let _ = (instance, kwargs);
    }
}

/// At most `max_characters` of a tool's answer, as verl cuts it: `left` keeps the beginning, `right` the end, `middle`
/// half of each; a marker says so and is not counted.
pub fn truncate(
    text: &str,
    max_characters: usize,
    side: experiment::settings::TruncateSide,
) -> String {
    use experiment::settings::TruncateSide;
    let length = text.chars().count();
    if length <= max_characters {
        return text.to_owned();
    }
    let head = |characters: usize| text.chars().take(characters).collect::<String>();
    let tail = |characters: usize| text.chars().skip(length - characters).collect::<String>();
    match side {
        TruncateSide::Left => format!("{}...(truncated)", head(max_characters)),
        TruncateSide::Right => format!("(truncated)...{}", tail(max_characters)),
        TruncateSide::Middle => {
            let half = max_characters / 2;
            format!("{}...(truncated)...{}", head(half), tail(half))
        }
    }
}

#[cfg(test)]
mod tests {
    use experiment::settings::TruncateSide;

    use super::*;

    #[test]
    fn a_long_answer_is_cut_in_characters_on_the_side_asked_for() {
        assert_eq!(truncate("äöüß", 4, TruncateSide::Left), "äöüß");
        assert_eq!(truncate("äöüß", 3, TruncateSide::Left), "äöü...(truncated)");
        assert_eq!(
            truncate("äöüß", 3, TruncateSide::Right),
            "(truncated)...öüß"
        );
        assert_eq!(
            truncate("äöüß", 3, TruncateSide::Middle),
            "ä...(truncated)...ß"
        );
        assert_eq!(
            truncate("äöüß", 0, TruncateSide::Middle),
            "...(truncated)..."
        );
    }
}

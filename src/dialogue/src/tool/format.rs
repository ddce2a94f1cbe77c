//! The forms in which a model writes its calls (`multi_turn.format`).

use experiment::settings::ToolFormat;

use super::hermes::{self, ParsedTurn};
use super::{ToolRegistry, llama3_json, react};

/// Takes a model turn apart. `tools`: those that its dialogue may call.
pub fn parse(format: ToolFormat, text: &str, tools: &ToolRegistry) -> ParsedTurn {
    match format {
        ToolFormat::Hermes => hermes::parse(text),
        ToolFormat::Llama3Json => llama3_json::parse(text),
        ToolFormat::React => react::parse(text, |name| tools.only_parameter(name)),
    }
}

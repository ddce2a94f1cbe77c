//! Tools of a YAML, called as a dialogue calls them.

use std::sync::Arc;

use dialogue::rollout::ToolRecord;
use dialogue::tool::hermes::Call;
use dialogue::tool::{CallRules, InstanceId, ToolRegistry, Toolbox};
use serde_json::Value;

pub fn toolbox(tools: &ToolRegistry, dialogue: &str) -> Toolbox {
    let rules = CallRules {
        max_parallel_calls: 100,
        max_response_characters: 5000,
        ..CallRules::default()
    };
    Toolbox::new(
        tools.clone(),
        Arc::default(),
        InstanceId(dialogue.into()),
        rules,
    )
}

pub fn call(name: &str, arguments: &Value) -> Call {
    Call {
        name: name.to_owned(),
        arguments: arguments.as_object().expect("an object").clone(),
    }
}

/// The calls of one turn.
pub async fn run(toolbox: &mut Toolbox, calls: impl IntoIterator<Item = Call>) -> Vec<ToolRecord> {
    let calls = calls.into_iter().map(Ok).collect();
    toolbox.run(calls, None, |_| {}).await
}

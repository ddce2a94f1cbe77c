//! Lists the tools of a YAML and what they say of this machine, and calls one of them:
//! `cargo run --release -p dialogue --example call_tool -- tools.yaml search '{"query_list": ["lathe"]}'`

use std::path::Path;
use std::sync::Arc;

use dialogue::tool::hermes::Call;
use dialogue::tool::{CallRules, InstanceId, ToolClasses, ToolRegistry, Toolbox};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, call @ ..] = arguments.as_slice() else {
        return Err("expected a file of tools, and perhaps a name and arguments in JSON".into());
    };
    let tools = ToolRegistry::load(Path::new(file), &ToolClasses::default())
        .map_err(|error| error.to_string())?;
    for (name, ready) in tools.ready() {
        match ready {
            Ok(note) => println!("{name}: {}", note.as_deref().unwrap_or("ready")),
            Err(problem) => println!("{name}: CANNOT WORK HERE: {problem}"),
        }
    }
    let [name, arguments] = call else {
        return Ok(());
    };
    let call = Call {
        name: name.clone(),
        arguments: serde_json::from_str(arguments)?,
    };
    let rules = CallRules {
        max_response_characters: 10_000,
        ..CallRules::default()
    };
    let mut toolbox = Toolbox::new(tools, Arc::default(), InstanceId("by-hand".into()), rules);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    for record in runtime.block_on(toolbox.run(vec![Ok(call)], None, |_| {})) {
        println!("{} ({:.1} ms)", record.result, record.elapsed_ms);
    }
    Ok(())
}

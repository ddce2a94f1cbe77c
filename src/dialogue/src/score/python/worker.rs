//! One Python process with the function in it.

use std::time::Duration;

use experiment::arms::Python as Settings;
use serde_json::json;
use tokio::process::Command;
use tokio::time::timeout;

use crate::process::Process;

const PROGRAM: &str = include_str!("worker.py");
/// Importing what a reward function needs may take long; a judge model takes longer than a rule.
const START_LIMIT: Duration = Duration::from_secs(120);
/// Bytes of an answer; a score and some numbers are far below.
const ANSWER_LIMIT: u64 = 1 << 20;

/// Starts a process and waits until it has its function. The error says why there is none.
pub async fn start(settings: Settings) -> Result<Process, String> {
    let argument = json!({
        "path": settings.path,
        "name": settings.name,
        "kwargs": settings.kwargs,
        "memory_bytes": settings.memory_mb.map(|limit| limit << 20),
    });
    let mut command = Command::new(&settings.python);
    command
        .args(["-u", "-c", PROGRAM])
        .arg(argument.to_string());
    let mut process =
        Process::start(&mut command, "reward worker", ANSWER_LIMIT).map_err(|error| {
            format!(
                "cannot start {}: {error}; set the arm's option `python` to an interpreter",
                settings.python
            )
        })?;
    let greeting = timeout(START_LIMIT, process.line()).await.map_err(|_| {
        format!(
            "{} was not ready within {} s",
            settings.path,
            START_LIMIT.as_secs()
        )
    })??;
    match greeting["error"].as_str() {
        Some(error) => Err(format!(
            "cannot load {} of {}: {error}",
            settings.name, settings.path
        )),
        None => Ok(process),
    }
}

//! Code that a model wrote, run by Python in a sandbox.
//!
//! ```text
//!  execute ─► a sandbox that waits ─► code in, prints out, mark ─► text
//! ```
//! A call has a sandbox for itself as long as it runs, and leaves nothing in it: code runs in a child forked from a Python that has
//! run nothing, and after it all processes are killed and all files removed. With `process: dialogue` each dialogue has a sandbox
//! whose variables stay from call to call. There is no network and no file but a scratch folder in memory; memory, CPU,
//! processes, output and time are bounded. Where the machine allows no sandbox nothing runs, unless `sandbox: none` says so.

mod session;
mod waiting;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

pub(crate) use self::session::{End, Ran, Session};
pub(crate) use self::waiting::Waiting;
use super::config::{take_count, typed};
use super::{
    Declared, InstanceId, Parameters, Tool, ToolError, ToolKwargs, ToolLimits, ToolOutcome,
    ToolSchema,
};
use crate::generate::BoxFuture;
use crate::process::OfDialogues;

/// Of the code, when the YAML does not say.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A sandbox with Python in it may take as long to be ready, on a machine that is busy.
const START_LIMIT: Duration = Duration::from_secs(60);
/// A dialogue's Python may use as many times the CPU of a call.
const CALLS_OF_DIALOGUE: u64 = 100;

/// How long a sandbox lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Life {
    #[default]
    Call,
    Dialogue,
}

/// Which sandbox is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wish {
    #[default]
    Auto,
    Namespaces,
    Bubblewrap,
    None,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Options {
    /// The interpreter; what is installed for it can be imported.
    pub python: String,
    pub sandbox: Wish,
    pub process: Life,
    pub env: BTreeMap<String, String>,
    /// Folders that the code may read.
    pub readable: Vec<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            python: "python3".to_owned(),
            sandbox: Wish::Auto,
            process: Life::Call,
            env: BTreeMap::new(),
            readable: Vec::new(),
        }
    }
}

/// The tool.
#[derive(Debug)]
pub struct Python {
    process: Life,
    timeout: Duration,
    /// The one text argument that is the code.
    parameter: String,
    waiting: Waiting,
    dialogues: OfDialogues<Session>,
}

impl Python {
    pub fn new(declared: &Declared<'_>) -> Result<Self, String> {
        let mut config = declared.config.clone();
        let mut count = |key: &str, low, high, otherwise| {
            Ok::<u64, String>(take_count(&mut config, key, low, high)?.unwrap_or(otherwise))
        };
        let memory_mb = count("memory_mb", 64, 1 << 20, 512)?;
        let scratch_mb = count("scratch_mb", 1, 1 << 20, 64)?;
        let processes = count("processes", 1, 4096, 32)?;
        let max_output_bytes = count("max_output_bytes", 100, 1 << 30, 1 << 16)? as usize;
        let options: Options = typed(&config)?;
        if let Some(path) = options.readable.iter().find(|path| !path.is_absolute()) {
            return Err(format!(
                "`config.readable` names {}; expected full paths",
                path.display()
            ));
        }
        let timeout = declared.limits.timeout.unwrap_or(TIMEOUT);
        let calls = match options.process {
            Life::Call => 1,
            Life::Dialogue => CALLS_OF_DIALOGUE,
        };
        let cpu_s = (timeout.as_secs_f64().ceil() as u64).clamp(1, 1 << 20) + 1;
        let limits = sandbox::Limits {
            memory_bytes: memory_mb << 20,
            scratch_bytes: scratch_mb << 20,
            processes,
            cpu_s: cpu_s * calls,
        };
        Ok(Self {
            process: options.process,
            timeout,
            parameter: parameter(declared.schema)?,
            waiting: Waiting::new(options, limits, max_output_bytes, "config"),
            dialogues: OfDialogues::default(),
        })
    }

    /// The schema used when the YAML gives none: `python(code)`.
    pub fn schema() -> ToolSchema {
        ToolSchema::function(
            "python",
            "Run Python code. What it prints is the answer, and the value of its last expression.",
            &[("code", "string", "For example print(2**10).")],
        )
    }

    async fn run(&self, instance: &InstanceId, code: &str) -> Result<ToolOutcome, ToolError> {
        match self.process {
            Life::Call => {
                let mut session = self.waiting.take().await.map_err(ToolError::Failed)?;
                let outcome = session.run(code, self.timeout).await;
                self.waiting.give_back(session);
                outcome
            }
            Life::Dialogue => {
                let place = self.dialogues.place(instance);
                // One call of a dialogue after the other.
                let mut place = place.lock().await;
                let mut session = match place.take() {
                    Some(session) => session,
                    None => self.waiting.take().await.map_err(ToolError::Failed)?,
                };
                let outcome = session.run(code, self.timeout).await;
                if session.is_whole() {
                    *place = Some(session);
                    return outcome;
                }
                let lost = "; what it had defined is lost";
                outcome.map_err(|error| match error {
                    ToolError::Failed(text) => ToolError::Failed(text + lost),
                    ToolError::TimedOut(text) => ToolError::TimedOut(text + lost),
                })
            }
        }
    }
}

/// The parameter that is the code: the only one, or `code`.
fn parameter(schema: &ToolSchema) -> Result<String, String> {
    let properties = schema.value()["function"]["parameters"]["properties"].as_object();
    let names: Vec<&String> = properties.into_iter().flat_map(|all| all.keys()).collect();
    match names.as_slice() {
        [only] => Ok((*only).clone()),
        names if names.iter().any(|name| *name == "code") => Ok("code".to_owned()),
        _ => Err("tool_schema has no parameter `code`, and not one parameter alone".to_owned()),
    }
}

impl Tool for Python {
    fn execute<'a>(
        &'a self,
        instance: &'a InstanceId,
        parameters: &'a Parameters,
        _: &'a ToolKwargs,
    ) -> BoxFuture<'a, Result<ToolOutcome, ToolError>> {
        Box::pin(async move {
            let code = parameters
                .get(&self.parameter)
                .and_then(serde_json::Value::as_str)
                .ok_or_else(|| {
                    ToolError::Failed(format!("parameter \"{}\" is missing", self.parameter))
                })?;
            self.run(instance, code).await
        })
    }

    fn limits(&self, given: ToolLimits) -> ToolLimits {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        ToolLimits {
            concurrency: given.concurrency.or(Some(processors)),
            // Its own time-out tells what was printed until then.
            timeout: Some(self.timeout + START_LIMIT),
            ..given
        }
    }

    fn keeps_state(&self) -> bool {
        self.process == Life::Dialogue
    }

    fn ready(&self) -> Result<Option<String>, String> {
        self.waiting.describe().map(Some)
    }

    fn release(&self, instance: &InstanceId, _: &ToolKwargs) {
        self.dialogues.remove(instance);
    }
}

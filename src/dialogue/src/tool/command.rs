//! Any program as a tool. It reads one JSON object a line and answers each with one:
//!
//! ```text
//!  {"id":7,"tool":"lookup","instance":"train-1-0/3#12","arguments":{"word":"lathe"},"kwargs":{…of the data row…}}
//!  {"id":7,"text":"a machine that turns","reward":0.5,"metrics":{"hits":1}}      or  {"id":7,"error":"no such word"}
//! ```
//! `process` says how long one lives: `shared` answers one call after the other, whoever asks; `dialogue` belongs to one
//! dialogue and may remember; `call` gets one request, then the end of its input, and may also answer in plain text. One
//! that is late, exits, or talks nonsense is killed with all that it started; the next call has a new one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command as OsCommand;

use super::config::typed;
use super::{
    Declared, InstanceId, Parameters, Tool, ToolError, ToolKwargs, ToolLimits, ToolOutcome,
};
use crate::generate::BoxFuture;
use crate::process::{OfDialogues, Pool, Process};

/// Calls at once, when the YAML does not say: each is a process.
const CONCURRENCY: usize = 8;

/// How long a process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Life {
    #[default]
    Shared,
    Dialogue,
    Call,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The program and its arguments. A program with a `/` in it is looked for here, then beside the YAML.
    command: Vec<String>,
    #[serde(default)]
    process: Life,
    /// The folder it starts in.
    cwd: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Calls after which a shared process is replaced.
    calls: Option<u64>,
    #[serde(default = "max_answer_bytes")]
    max_answer_bytes: u64,
}

fn max_answer_bytes() -> u64 {
    1 << 20
}

impl Options {
    fn start(&self) -> Result<Process, String> {
        let mut command = OsCommand::new(&self.command[0]);
        command.args(&self.command[1..]).envs(&self.env);
        if let Some(folder) = &self.cwd {
            command.current_dir(folder);
        }
        Process::start(&mut command, "tool's program", self.max_answer_bytes)
            .map_err(|error| format!("cannot start {}: {error}", self.command[0]))
    }
}

/// Where a program lies: itself where it has a folder, else the first of its name in `path`. None: nowhere, or it is none.
fn find(program: &str, path: Option<String>) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let is_program = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(is_program);
    }
    std::env::split_paths(&path?)
        .map(|folder| folder.join(program))
        .find(is_program)
}

/// The tool.
#[derive(Debug)]
pub struct Command {
    name: String,
    options: Arc<Options>,
    pool: Pool,
    dialogues: OfDialogues<Process>,
    next_id: AtomicU64,
}

impl Command {
    pub fn new(declared: &Declared<'_>) -> Result<Self, String> {
        let mut options: Options = typed(declared.config)?;
        let program = options
            .command
            .first_mut()
            .filter(|program| !program.is_empty())
            .ok_or("`config.command` is empty; expected [program, argument, ...]")?;
        // One without a folder is looked for in PATH.
        if program.contains('/') {
            *program = declared.file(Path::new(program)).display().to_string();
        }
        if options.calls == Some(0) {
            return Err("`config.calls` must be above 0".to_owned());
        }
        if let Some(folder) = &options.cwd
            && !folder.is_dir()
        {
            return Err(format!(
                "`config.cwd` is {}, which is no folder",
                folder.display()
            ));
        }
        let options = Arc::new(options);
        let of_pool = Arc::clone(&options);
        let start = Box::new(move || -> BoxFuture<'static, _> {
            let started = of_pool.start();
            Box::pin(async { started })
        });
        Ok(Self {
            name: declared.schema.name().to_owned(),
            pool: Pool::new(start, options.calls),
            options,
            dialogues: OfDialogues::default(),
            next_id: AtomicU64::new(0),
        })
    }

    async fn ask(&self, instance: &InstanceId, request: &Value) -> Result<Value, String> {
        match self.options.process {
            Life::Shared => {
                let mut process = self.pool.take().await?;
                let answer = process.ask(request).await.and_then(|answer| {
                    // Out of step: what it says next would be of other calls, too.
                    let id = answer.get("id").filter(|id| **id != request["id"]);
                    id.map_or(Ok(()), |id| {
                        Err(format!(
                            "the tool's program answered request {id} instead of {}",
                            request["id"]
                        ))
                    })?;
                    Ok(answer)
                })?;
                // Not after an error, or when cancelled: it is dropped, which kills it.
                self.pool.give_back(process);
                Ok(answer)
            }
            Life::Dialogue => {
                let place = self.dialogues.place(instance);
                // One call of a dialogue after the other.
                let mut place = place.lock().await;
                let mut process = match place.take() {
                    Some(process) => process,
                    None => self.options.start()?,
                };
                let answer = process.ask(request).await?;
                *place = Some(process);
                Ok(answer)
            }
            Life::Call => {
                let mut process = self.options.start()?;
                process.send(request).await?;
                let said = process.rest().await?;
                let said = String::from_utf8_lossy(&said);
                let answer = serde_json::from_str(&said)
                    .ok()
                    .filter(|answer: &Value| is_answer(answer));
                Ok(answer.unwrap_or_else(|| json!({"text": said.trim_end()})))
            }
        }
    }
}

fn is_answer(answer: &Value) -> bool {
    answer.get("text").is_some() || answer.get("error").is_some()
}

fn read(answer: &Value) -> Result<ToolOutcome, ToolError> {
    let words = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if let Some(error) = answer.get("error").filter(|error| !error.is_null()) {
        return Err(ToolError::Failed(words(error)));
    }
    let text = answer.get("text").map(words).ok_or_else(|| {
        ToolError::Failed(
            "the tool's program answered with neither \"text\" nor \"error\"".to_owned(),
        )
    })?;
    let metrics = answer["metrics"].as_object().into_iter().flatten();
    Ok(ToolOutcome {
        text,
        reward: answer["reward"].as_f64(),
        metrics: metrics
            .filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)))
            .collect(),
    })
}

impl Tool for Command {
    fn execute<'a>(
        &'a self,
        instance: &'a InstanceId,
        parameters: &'a Parameters,
        kwargs: &'a ToolKwargs,
    ) -> BoxFuture<'a, Result<ToolOutcome, ToolError>> {
        Box::pin(async move {
            let request = json!({
                "id": self.next_id.fetch_add(1, Ordering::Relaxed),
                "tool": self.name,
                "instance": instance.to_string(),
                "arguments": parameters,
                "kwargs": kwargs.execute_kwargs.as_ref().or(kwargs.create_kwargs.as_ref()),
            });
            let answer = self.ask(instance, &request).await;
            read(&answer.map_err(ToolError::Failed)?)
        })
    }

    fn limits(&self, given: ToolLimits) -> ToolLimits {
        ToolLimits {
            concurrency: given.concurrency.or(Some(CONCURRENCY)),
            ..given
        }
    }

    fn keeps_state(&self) -> bool {
        self.options.process == Life::Dialogue
    }

    fn ready(&self) -> Result<Option<String>, String> {
        let program = &self.options.command[0];
        let path = self.options.env.get("PATH").cloned();
        match find(program, path.or_else(|| std::env::var("PATH").ok())) {
            Some(_) => Ok(None),
            None if program.contains('/') => {
                Err(format!("{program} is no program that can be run"))
            }
            None => Err(format!("there is no program {program} in PATH")),
        }
    }

    fn release(&self, instance: &InstanceId, _: &ToolKwargs) {
        self.dialogues.remove(instance);
    }
}

//! The tools of a Model Context Protocol server (<https://modelcontextprotocol.io>), over stdio or streamable HTTP.
//!
//! ```text
//!  initialize ─► notifications/initialized ─► tools/list  (once, when the YAML is read: its tools become tools)
//!                                         └─► tools/call  (one at a time for each connection, as many of these as calls at once)
//! ```
//! A connection that is late or breaks is dropped, and a program that it started killed; the next call has a new one.
//! `process: dialogue` gives each dialogue a connection of its own, for servers that remember.

mod link;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use self::link::{Link, Reach};
use super::config::{take_count, typed};
use super::registry::Made;
use super::{
    Declared, InstanceId, Parameters, Tool, ToolError, ToolKwargs, ToolLimits, ToolOutcome,
    ToolSchema,
};
use crate::generate::BoxFuture;
use crate::http::{Client, Target};
use crate::process::OfDialogues;

/// For a server to start and to list its tools; some are fetched first.
const START_LIMIT: Duration = Duration::from_secs(120);
const TIMEOUT: Duration = Duration::from_secs(30);
const CONCURRENCY: usize = 4;
/// Of `tools/list`.
const MOST_PAGES: usize = 100;

/// How long a connection lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Life {
    #[default]
    Shared,
    Dialogue,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// A program that speaks over its standard streams.
    command: Option<Vec<String>>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<PathBuf>,
    /// A server that listens.
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    headers_env: BTreeMap<String, String>,
    key_env: Option<String>,
    #[serde(default)]
    process: Life,
    /// Only these of its tools.
    tools: Option<Vec<String>>,
    /// Put before the names of its tools.
    #[serde(default)]
    prefix: String,
}

/// A server, for all of its tools.
#[derive(Debug)]
struct Server {
    reach: Reach,
    life: Life,
    idle: Mutex<Vec<Link>>,
    dialogues: OfDialogues<Link>,
}

/// One tool of a server.
#[derive(Debug)]
pub struct Mcp {
    server: Arc<Server>,
    /// As the server calls it.
    name: String,
}

/// Every tool that a server lists. Starts the server, or connects to it.
pub(super) fn tools(declared: &Declared<'_>) -> Result<Made, String> {
    let mut config = declared.config.clone();
    let most_bytes = take_count(&mut config, "max_answer_bytes", 100, 1 << 40)?.unwrap_or(1 << 22);
    let options: Options = typed(&config)?;
    let reach = match (&options.command, &options.url) {
        (Some(command), None) => {
            let mut command = command.clone();
            let program = command
                .first_mut()
                .filter(|program| !program.is_empty())
                .ok_or("`config.command` is empty; expected [program, argument, ...]")?;
            if program.contains('/') {
                *program = declared.file(Path::new(program)).display().to_string();
            }
            Reach::Program {
                command,
                env: options.env.clone(),
                cwd: options.cwd.clone(),
                most_bytes,
            }
        }
        (None, Some(url)) => Reach::Http(
            Client::new(Target {
                headers: options.headers.clone(),
                headers_env: options.headers_env.clone(),
                key_env: options.key_env.clone(),
                max_response_bytes: most_bytes,
                timeout: declared.limits.timeout.unwrap_or(TIMEOUT),
                ..Target::new(url)
            })
            .map_err(|problem| format!("`config`: {problem}"))?,
        ),
        _ => {
            return Err(
                "expected `config.command` (a program here) or `config.url` (a server)".to_owned(),
            );
        }
    };
    let listed = list(reach.clone()).map_err(|problem| format!("the MCP server: {problem}"))?;
    let server = Arc::new(Server {
        reach,
        life: options.process,
        idle: Mutex::default(),
        dialogues: OfDialogues::default(),
    });
    let names: Vec<String> = listed
        .iter()
        .map(|tool| tool["name"].as_str().unwrap_or_default().to_owned())
        .collect();
    let wanted = options.tools.as_ref().unwrap_or(&names);
    if let Some(missing) = wanted.iter().find(|name| !names.contains(name)) {
        return Err(format!(
            "`config.tools` names {missing}, which the MCP server does not have; it has {}",
            names.join(", ")
        ));
    }
    let mut tools = Made::new();
    for (listed, name) in listed.iter().zip(&names) {
        if !wanted.contains(name) {
            continue;
        }
        let schema = schema(listed, &options.prefix)
            .map_err(|problem| format!("the MCP server's tool {name}: {problem}"))?;
        let tool = Mcp {
            server: Arc::clone(&server),
            name: name.clone(),
        };
        tools.push((schema, Arc::new(tool)));
    }
    Ok(tools)
}

/// A server's description of a tool in the form of ours.
fn schema(listed: &Value, prefix: &str) -> Result<ToolSchema, String> {
    let name = listed["name"].as_str().unwrap_or_default();
    let mut parameters = listed["inputSchema"].clone();
    if let Some(object) = parameters.as_object_mut() {
        // Of no use to a model.
        object.remove("$schema");
    }
    if !parameters.is_object() {
        parameters = json!({"type": "object", "properties": {}});
    }
    let text = listed["description"].as_str().or(listed["title"].as_str());
    ToolSchema::new(json!({"type": "function", "function": {
        "name": format!("{prefix}{name}"),
        "description": text.unwrap_or_default(),
        "parameters": parameters,
    }}))
}

/// The tools of a server, from a connection that is closed again. A YAML is read by whoever, so it has a thread of its own.
fn list(reach: Reach) -> Result<Vec<Value>, String> {
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        runtime.block_on(async move {
            let listing = async {
                let mut link = Link::open(&reach).await?;
                let mut all = Vec::new();
                let mut cursor = None;
                for _ in 0..MOST_PAGES {
                    let params =
                        cursor.map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
                    let page = link.request("tools/list", &params).await?;
                    let tools = page["tools"].as_array();
                    all.extend(
                        tools
                            .ok_or("tools/list gave no list `tools`")?
                            .iter()
                            .cloned(),
                    );
                    cursor = page["nextCursor"].as_str().map(str::to_owned);
                    if cursor.is_none() {
                        break;
                    }
                }
                Ok(all)
            };
            timeout(START_LIMIT, listing).await.unwrap_or_else(|_| {
                Err(format!(
                    "it had not listed its tools after {} s",
                    START_LIMIT.as_secs()
                ))
            })
        })
    };
    std::thread::spawn(work)
        .join()
        .unwrap_or_else(|_| Err("listing its tools panicked".to_owned()))
}

impl Server {
    async fn call(
        &self,
        instance: &InstanceId,
        name: &str,
        arguments: &Parameters,
    ) -> Result<Value, String> {
        let params = json!({"name": name, "arguments": arguments});
        match self.life {
            Life::Shared => {
                let waiting = self.idle().pop();
                let mut link = match waiting {
                    Some(link) => link,
                    None => Link::open(&self.reach).await?,
                };
                let answer = link.request("tools/call", &params).await;
                // Not when it broke, or was cancelled.
                if link.is_whole() {
                    self.idle().push(link);
                }
                answer
            }
            Life::Dialogue => {
                let place = self.dialogues.place(instance);
                // One call of a dialogue after the other.
                let mut place = place.lock().await;
                let mut link = match place.take() {
                    Some(link) => link,
                    None => Link::open(&self.reach).await?,
                };
                let answer = link.request("tools/call", &params).await;
                if link.is_whole() {
                    *place = Some(link);
                }
                answer
            }
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Link>> {
        self.idle
            .lock()
            .expect("nothing panics while it holds the lock")
    }
}

/// What a server answers, in words.
fn text(result: &Value) -> String {
    let parts: Vec<String> = result["content"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|part| match part["type"].as_str() {
            Some("text") => part["text"].as_str().unwrap_or_default().to_owned(),
            Some("resource") => match part["resource"]["text"].as_str() {
                Some(text) => text.to_owned(),
                None => format!("[resource {}]", part["resource"]["uri"]),
            },
            Some("resource_link") => part["uri"].as_str().unwrap_or_default().to_owned(),
            Some(kind) => format!("[{kind}]"),
            None => String::new(),
        })
        .collect();
    match (parts.is_empty(), result.get("structuredContent")) {
        (true, Some(structured)) => structured.to_string(),
        _ => parts.join("\n"),
    }
}

impl Tool for Mcp {
    fn execute<'a>(
        &'a self,
        instance: &'a InstanceId,
        parameters: &'a Parameters,
        _: &'a ToolKwargs,
    ) -> BoxFuture<'a, Result<ToolOutcome, ToolError>> {
        Box::pin(async move {
            let called = self.server.call(instance, &self.name, parameters).await;
            let result = called.map_err(ToolError::Failed)?;
            if result["isError"] == true {
                return Err(ToolError::Failed(text(&result)));
            }
            Ok(ToolOutcome::text(text(&result)))
        })
    }

    fn limits(&self, given: ToolLimits) -> ToolLimits {
        ToolLimits {
            concurrency: given.concurrency.or(Some(CONCURRENCY)),
            timeout: given.timeout.or(Some(TIMEOUT)),
            ..given
        }
    }

    fn keeps_state(&self) -> bool {
        self.server.life == Life::Dialogue
    }

    fn release(&self, instance: &InstanceId, _: &ToolKwargs) {
        self.server.dialogues.remove(instance);
    }
}

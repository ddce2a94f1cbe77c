//! One connection to a server: JSON-RPC, one request at a time.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::http::Client;
use crate::process::Process;

/// The revision of the protocol that is spoken here; a server may answer with an older one.
const VERSION: &str = "2025-06-18";
const SESSION_HEADER: &str = "mcp-session-id";

/// How a server is reached.
#[derive(Debug, Clone)]
pub enum Reach {
    Program {
        command: Vec<String>,
        env: BTreeMap<String, String>,
        cwd: Option<PathBuf>,
        most_bytes: u64,
    },
    Http(Client),
}

#[derive(Debug)]
enum Line {
    Program(Box<Process>),
    Http {
        client: Client,
        session: Option<String>,
        version: String,
    },
}

#[derive(Debug)]
pub struct Link {
    line: Line,
    last_id: u64,
    /// Nothing is under way on it, and nothing broke.
    is_whole: bool,
}

impl Link {
    /// Starts or reaches the server, and introduces us.
    pub async fn open(reach: &Reach) -> Result<Self, String> {
        let line = match reach {
            Reach::Program {
                command,
                env,
                cwd,
                most_bytes,
            } => {
                let mut program = Command::new(&command[0]);
                program.args(&command[1..]).envs(env);
                if let Some(cwd) = cwd {
                    program.current_dir(cwd);
                }
                let process = Process::start(&mut program, "MCP server", *most_bytes)
                    .map_err(|error| format!("cannot start {}: {error}", command[0]))?;
                Line::Program(Box::new(process))
            }
            Reach::Http(client) => Line::Http {
                client: client.clone(),
                session: None,
                version: VERSION.to_owned(),
            },
        };
        let mut link = Self {
            line,
            last_id: 0,
            is_whole: true,
        };
        let introduction = json!({
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": {"name": "lathe", "version": env!("CARGO_PKG_VERSION")},
        });
        let server = link.request("initialize", &introduction).await?;
        if let (Line::Http { version, .. }, Some(spoken)) =
            (&mut link.line, server["protocolVersion"].as_str())
        {
            spoken.clone_into(version);
        }
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        match &mut link.line {
            Line::Program(process) => process.send(&ready).await?,
            Line::Http { .. } => {
                link.post(&ready, None).await?;
            }
        }
        Ok(link)
    }

    /// It may be used again.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The result of a request; a server's error is one in its words.
    pub async fn request(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        self.last_id += 1;
        let id = self.last_id;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        // Cancelled, it stays so.
        self.is_whole = false;
        let answer = match &mut self.line {
            Line::Program(process) => {
                process.send(&request).await?;
                answer(process, id).await?
            }
            Line::Http { .. } => self
                .post(&request, Some(id))
                .await?
                .ok_or_else(|| format!("it did not answer {method}"))?,
        };
        self.is_whole = true;
        if let Some(error) = answer.get("error") {
            let words = error["message"].as_str().map(str::to_owned);
            return Err(words.unwrap_or_else(|| error.to_string()));
        }
        Ok(answer["result"].clone())
    }

    /// Sends a message; the answer to it, where it wants one.
    async fn post(&mut self, message: &Value, id: Option<u64>) -> Result<Option<Value>, String> {
        let Line::Http {
            client,
            session,
            version,
        } = &mut self.line
        else {
            return Err("no HTTP".to_owned());
        };
        let mut headers = vec![
            (
                "accept".to_owned(),
                "application/json, text/event-stream".to_owned(),
            ),
            ("mcp-protocol-version".to_owned(), version.clone()),
        ];
        if let Some(session) = session {
            headers.push((SESSION_HEADER.to_owned(), session.clone()));
        }
        let is_wanted = move |message: &Value| is_answer(message, id);
        let reply = client.messages(message, headers, is_wanted).await?;
        if let Some(begun) = reply.header(SESSION_HEADER) {
            *session = Some(begun);
        }
        Ok(reply.wanted)
    }
}

/// To request `id`, which not every server gives back as the number that it was.
fn is_answer(message: &Value, id: Option<u64>) -> bool {
    let Some(id) = id else { return false };
    let is_same = message["id"].as_u64() == Some(id)
        || message["id"].as_str().and_then(|text| text.parse().ok()) == Some(id);
    is_same && message.get("method").is_none()
}

/// Reads up to the answer. What a server asks in between is answered, what it tells is left.
async fn answer(process: &mut Process, id: u64) -> Result<Value, String> {
    loop {
        let message = process.line().await?;
        if is_answer(&message, Some(id)) {
            return Ok(message);
        }
        let (Some(method), Some(asked)) = (message["method"].as_str(), message.get("id")) else {
            continue;
        };
        let reply = match method {
            "ping" => json!({"jsonrpc": "2.0", "id": asked, "result": {}}),
            _ => json!({"jsonrpc": "2.0", "id": asked,
                "error": {"code": -32601, "message": "this client has no such method"}}),
        };
        process.send(&reply).await?;
    }
}

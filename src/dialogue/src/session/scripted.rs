//! An engine without a model, for tests: canned turns with latencies in tokio's time, and a strict eye on its callers.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

use super::Renderer;
use crate::generate::{
    BoxFuture, GenerateError, Generator, SessionId, Turn, TurnFinish, TurnRequest,
};
use crate::message::Message;

/// Specials of [`CharRenderer`], above every character.
pub const START: u32 = 0x20_0000;
pub const END: u32 = 0x20_0001;

/// A token is a character; messages look like Qwen's: `START role \n text END \n`.
#[derive(Debug, Clone, Copy, Default)]
pub struct CharRenderer;

pub fn ids(text: &str) -> Vec<u32> {
    text.chars().map(u32::from).collect()
}

impl CharRenderer {
    fn message(role: &str, text: &str) -> Vec<u32> {
        let mut out = vec![START];
        out.extend(ids(&format!("{role}\n{text}")));
        out.extend([END, u32::from('\n')]);
        out
    }

    pub fn generation_prompt() -> Vec<u32> {
        let mut out = vec![START];
        out.extend(ids("assistant\n"));
        out
    }

    /// What follows a turn that ended in its end token.
    pub fn delta(results: &[&str]) -> Vec<u32> {
        let mut out = vec![u32::from('\n')];
        for result in results {
            out.extend(Self::message("tool", result));
        }
        out.extend(Self::generation_prompt());
        out
    }
}

impl Renderer for CharRenderer {
    fn prompt_ids(&self, messages: &[Message], tools: &[Value]) -> Result<Vec<u32>, String> {
        let mut out = Vec::new();
        for tool in tools {
            out.extend(Self::message("tools", &tool.to_string()));
        }
        for message in messages {
            if message.text() == "unrenderable" {
                return Err("no".to_owned());
            }
            assert_ne!(message.text(), "panic", "the renderer was asked to panic");
            out.extend(Self::message(&message.role, &message.text()));
        }
        out.extend(Self::generation_prompt());
        Ok(out)
    }

    fn turn_delta_ids(
        &self,
        last_id: Option<u32>,
        new: &[Message],
        _tools: &[Value],
    ) -> Result<Vec<u32>, String> {
        let texts: Vec<String> = new.iter().map(Message::text).collect();
        assert!(!texts.iter().any(|text| text == "poison"), "poisoned");
        if texts.iter().any(|text| text == "unrenderable") {
            return Err("no".to_owned());
        }
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut out = if last_id == Some(END) {
            vec![]
        } else {
            vec![END]
        };
        out.extend(Self::delta(&texts));
        Ok(out)
    }

    fn decode(&self, ids: &[u32]) -> Result<String, String> {
        ids.iter()
            .filter(|id| !matches!(**id, START | END))
            .map(|id| char::from_u32(*id).ok_or_else(|| format!("{id} is no character")))
            .collect()
    }
}

/// What the model says.
#[derive(Debug, Clone)]
pub struct Reply {
    pub ids: Vec<u32>,
    pub after: Duration,
    pub version: u64,
    /// Returned as is, even where the lists do not fit.
    pub logprobs: Option<Vec<f32>>,
    /// Instead of a turn.
    pub error: Option<GenerateError>,
}

/// A turn that ends with its end token.
pub fn says(text: &str) -> Reply {
    let mut reply = stops(text);
    reply.ids.push(END);
    reply
}

/// A turn that ends without one, by a stop string.
pub fn stops(text: &str) -> Reply {
    Reply {
        ids: ids(text),
        after: Duration::ZERO,
        version: 0,
        logprobs: None,
        error: None,
    }
}

pub fn calls(tool: &str, arguments: &Value) -> Reply {
    says(&call_text(tool, arguments))
}

pub fn call_text(tool: &str, arguments: &Value) -> String {
    let call = serde_json::json!({"name": tool, "arguments": arguments});
    format!("<tool_call>\n{call}\n</tool_call>")
}

impl Reply {
    pub fn after(mut self, seconds: u64) -> Self {
        self.after = Duration::from_secs(seconds);
        self
    }

    pub fn version(mut self, version: u64) -> Self {
        self.version = version;
        self
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Opened(SessionId),
    Asked(SessionId),
    Answered(SessionId),
    Released(SessionId),
}

struct Open {
    /// The last context with what was drawn on it.
    context: Vec<u32>,
    turns: u32,
    abort: Arc<Notify>,
}

#[derive(Default)]
struct State {
    events: Vec<Event>,
    open: BTreeMap<SessionId, Open>,
    requests: Vec<TurnRequest>,
    waiting: HashMap<SessionId, oneshot::Sender<()>>,
    /// Sessions of each lockstep round.
    rounds: Vec<usize>,
}

impl State {
    /// Lockstep: starts a round when every open session waits.
    fn start_round(&mut self) {
        if !self.waiting.is_empty() && self.waiting.len() == self.open.len() {
            self.rounds.push(self.waiting.len());
            for (_, start) in self.waiting.drain() {
                let _ = start.send(());
            }
        }
    }
}

type Script = Box<dyn Fn(&TurnRequest, u32) -> Reply + Send + Sync>;

pub struct Scripted {
    script: Script,
    state: Mutex<State>,
    pub lockstep: bool,
    pub can_abort: bool,
}

impl Scripted {
    /// `script` is given the request and the session's turn, counted from 0.
    pub fn new(script: impl Fn(&TurnRequest, u32) -> Reply + Send + Sync + 'static) -> Self {
        Self {
            script: Box::new(script),
            state: Mutex::default(),
            lockstep: false,
            can_abort: false,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn events(&self) -> Vec<Event> {
        self.state().events.clone()
    }

    pub fn requests(&self) -> Vec<TurnRequest> {
        self.state().requests.clone()
    }

    pub fn rounds(&self) -> Vec<usize> {
        self.state().rounds.clone()
    }

    pub fn open_sessions(&self) -> usize {
        self.state().open.len()
    }

    /// Enters a request; the context must go on exactly where this session's last turn ended.
    fn enter(&self, request: &TurnRequest) -> (u32, Arc<Notify>) {
        let mut state = self.state();
        state.events.push(Event::Asked(request.session));
        state.requests.push(request.clone());
        let open = state
            .open
            .get_mut(&request.session)
            .expect("a session is open before its first turn");
        assert!(
            request.context_ids.starts_with(&open.context),
            "the context changed under the session"
        );
        open.turns += 1;
        (open.turns - 1, open.abort.clone())
    }
}

impl Generator for Scripted {
    fn open(&self, session: SessionId) {
        let mut state = self.state();
        state.events.push(Event::Opened(session));
        let open = Open {
            context: Vec::new(),
            turns: 0,
            abort: Arc::default(),
        };
        assert!(state.open.insert(session, open).is_none(), "opened twice");
    }

    fn generate(&self, request: TurnRequest) -> BoxFuture<'_, Result<Turn, GenerateError>> {
        Box::pin(async move {
            let (turn, abort) = self.enter(&request);
            if self.lockstep {
                let (start, started) = oneshot::channel();
                {
                    let mut state = self.state();
                    state.waiting.insert(request.session, start);
                    state.start_round();
                }
                started.await.expect("the round starts");
            }
            let reply = (self.script)(&request, turn);
            if let Some(error) = reply.error {
                return Err(error);
            }
            let mut drawn = reply.ids;
            let mut finish = TurnFinish::Stop;
            if drawn.len() > request.max_new_tokens as usize {
                drawn.truncate(request.max_new_tokens as usize);
                finish = TurnFinish::Length;
            }
            tokio::select! {
                biased;
                () = sleep(reply.after) => {}
                () = abort.notified() => {
                    drawn.truncate(drawn.len() / 2);
                    finish = TurnFinish::Aborted;
                }
            }
            let mut state = self.state();
            state.events.push(Event::Answered(request.session));
            if let Some(open) = state.open.get_mut(&request.session) {
                open.context = request.context_ids;
                open.context.extend(&drawn);
            }
            Ok(Turn {
                logprobs: reply
                    .logprobs
                    .unwrap_or_else(|| (0..drawn.len()).map(|at| -0.5 - at as f32).collect()),
                policy_versions: vec![reply.version; drawn.len()],
                token_ids: drawn,
                finish,
            })
        })
    }

    fn abort(&self, session: SessionId) -> bool {
        let state = self.state();
        if let (true, Some(open)) = (self.can_abort, state.open.get(&session)) {
            open.abort.notify_one();
        }
        self.can_abort
    }

    fn release(&self, session: SessionId) {
        let mut state = self.state();
        if state.open.remove(&session).is_some() {
            state.events.push(Event::Released(session));
        }
        state.waiting.remove(&session);
        state.start_round();
    }
}

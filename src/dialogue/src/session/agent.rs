//! One dialogue: model turn, calls, tool results, next turn, until something ends it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use experiment::settings::AgentLoop;
use tokio::time::{Instant, sleep_until, timeout};

use super::prompt::Prompt;
use super::tokens::ResponseTokens;
use super::{Again, Limits, Owner, Renderer, Seeds, SessionLabel, SessionObserver, Waits};
use crate::generate::{
    GenerateError, Generator, Sampling, SessionId, Turn, TurnFinish, TurnRequest,
};
use crate::message::Message;
use crate::rollout::{Finish, Rollout, ToolRecord};
use crate::score::{ScoreError, Scorer, Transcript, score_within};
use crate::tool::{InstanceId, ToolRegistry, Toolbox, format, hermes};

/// What the sessions of a batch share.
pub(super) struct Shared {
    pub generator: Arc<dyn Generator>,
    pub renderer: Arc<dyn Renderer>,
    pub observer: Arc<dyn SessionObserver>,
    pub limits: Limits,
    pub sampling: Sampling,
    pub score_timeout: Duration,
    pub waits: Waits,
}

/// An open session of the engine; dropping it releases it.
pub(super) struct OpenSession {
    generator: Arc<dyn Generator>,
    pub id: SessionId,
}

impl OpenSession {
    pub fn new(generator: Arc<dyn Generator>, id: SessionId) -> Self {
        generator.open(id);
        Self { generator, id }
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.generator.release(self.id);
    }
}

/// One prompt, ready to be sampled.
pub(super) struct Prepared {
    pub prompt: Arc<Prompt>,
    pub prompt_ids: Arc<[u32]>,
    pub agent: AgentLoop,
    pub tools: ToolRegistry,
    pub scorer: Arc<dyn Scorer>,
}

/// Why a dialogue ends.
struct Ending {
    finish: Finish,
    error: Option<String>,
    /// The fault is the engine's.
    is_engines: bool,
}

impl From<Finish> for Ending {
    fn from(finish: Finish) -> Self {
        Self {
            finish,
            error: None,
            is_engines: false,
        }
    }
}

impl From<GenerateError> for Ending {
    fn from(error: GenerateError) -> Self {
        Self {
            is_engines: error.may_pass(),
            ..failed(error)
        }
    }
}

/// By a fault of its own: of its prompt, its template, its tokenizer.
fn failed(error: impl fmt::Display) -> Ending {
    Ending {
        finish: Finish::Error,
        error: Some(error.to_string()),
        is_engines: false,
    }
}

/// A dialogue that is over.
pub(super) struct Ended {
    pub rollout: Rollout,
    /// It came to nothing, and another attempt may come to something.
    pub again: Option<Unfinished>,
}

/// A session that was not released, so that in lockstep nobody goes on before the next attempt stands in its place.
pub(super) struct Unfinished {
    pub why: Again,
    pub session: OpenSession,
}

/// A dialogue under way.
struct Dialogue<'a> {
    shared: &'a Shared,
    prepared: &'a Prepared,
    label: &'a SessionLabel,
    seeds: Seeds,
    deadline: Option<Instant>,
    schemas: Vec<serde_json::Value>,
    tokens: ResponseTokens,
    messages: Vec<Message>,
    model_turns: Vec<String>,
    records: Vec<ToolRecord>,
    generate_time: Duration,
    tool_time: Duration,
}

/// The rollout of a dialogue that never began.
pub(super) fn unborn(label: &SessionLabel, prompt: &Prompt, error: String) -> Rollout {
    Rollout {
        uid: label.uid.clone(),
        sample: label.sample,
        data_source: prompt.data_source.clone(),
        row_index: prompt.row_index,
        prompt_ids: Vec::new(),
        response_ids: Vec::new(),
        response_mask: Vec::new(),
        behavior_logprobs: Vec::new(),
        policy_versions: Vec::new(),
        messages: prompt.messages.clone(),
        assistant_turns: 0,
        tools: Vec::new(),
        finish: Finish::Error,
        error: Some(error),
        score: None,
        score_error: None,
        score_parts: std::collections::BTreeMap::new(),
        says: None,
        generate_ms: 0.0,
        tool_ms: 0.0,
        reward_ms: 0.0,
    }
}

/// Runs one dialogue to its end and scores it. Engine and tools are released before the scorer runs, so that in lockstep
/// mode a slow scorer holds nobody up. `may_go_again`: a session that came to nothing is kept open for the next attempt.
pub(super) async fn run_session(
    shared: Arc<Shared>,
    prepared: Arc<Prepared>,
    label: SessionLabel,
    seeds: Seeds,
    session: OpenSession,
    may_go_again: bool,
) -> Ended {
    let limits = &shared.limits;
    let mut dialogue = Dialogue {
        shared: &shared,
        prepared: &prepared,
        label: &label,
        seeds,
        // A time-out beyond the end of the clock is none.
        deadline: limits
            .session_timeout
            .and_then(|limit| Instant::now().checked_add(limit)),
        schemas: prepared.tools.schemas(),
        tokens: ResponseTokens::default(),
        messages: prepared.prompt.messages.clone(),
        model_turns: Vec::new(),
        records: Vec::new(),
        generate_time: Duration::ZERO,
        tool_time: Duration::ZERO,
    };
    let mut toolbox = Toolbox::new(
        prepared.tools.clone(),
        prepared.prompt.tools_kwargs.clone(),
        InstanceId(format!("{}/{}#{}", label.uid, label.sample, session.id.0).into()),
        limits.calls.clone(),
    );
    let ending = dialogue.converse(&session, &mut toolbox).await;
    dialogue.drop_unanswered();
    let why = match ending.finish {
        Finish::Error if ending.is_engines => ending.error.clone().map(Again::Engine),
        Finish::Deadline if !dialogue.tokens.mask.contains(&true) => Some(Again::Deadline),
        _ => None,
    };
    let again = if let Some(why) = why.filter(|_| may_go_again) {
        Some(Unfinished { why, session })
    } else {
        drop(session);
        None
    };
    let tool_rewards = toolbox.rewards().await;
    drop(toolbox);
    let mut rollout = unborn(&label, &prepared.prompt, String::new());
    rollout.prompt_ids = prepared.prompt_ids.to_vec();
    rollout.finish = ending.finish;
    rollout.error = ending.error;
    rollout.assistant_turns = dialogue.model_turns.len() as u32;
    rollout.generate_ms = dialogue.generate_time.as_secs_f64() * 1e3;
    rollout.tool_ms = dialogue.tool_time.as_secs_f64() * 1e3;
    rollout.tools = dialogue.records;
    rollout.response_ids = dialogue.tokens.ids;
    rollout.response_mask = dialogue.tokens.mask;
    rollout.behavior_logprobs = dialogue.tokens.logprobs;
    rollout.policy_versions = dialogue.tokens.versions;
    rollout.messages.clone_from(&dialogue.messages);
    rollout.score_parts = tool_rewards
        .iter()
        .map(|(tool, reward)| (format!("tool_reward/{tool}"), *reward))
        .collect();
    let is_judged = !matches!(rollout.finish, Finish::Aborted | Finish::Error);
    if is_judged && !rollout.response_ids.is_empty() {
        let transcript = Transcript {
            data_source: prepared.prompt.data_source.clone(),
            ground_truth: prepared.prompt.ground_truth.clone(),
            extra_info: prepared.prompt.extra_info.clone(),
            model_turns: dialogue.model_turns,
            messages: dialogue.messages,
            prompt_messages: prepared.prompt.messages.len(),
            tool_rewards,
        };
        let start = Instant::now();
        let wait = shared.waits.enter(
            Owner::Session {
                label: label.clone(),
                row_index: prepared.prompt.row_index,
            },
            "score".to_owned(),
            start.checked_add(shared.score_timeout),
        );
        shared.observer.on_away(&label);
        let score = score_within(prepared.scorer.clone(), transcript, shared.score_timeout).await;
        shared.observer.on_back(&label);
        drop(wait);
        let end = Instant::now();
        rollout.reward_ms = (end - start).as_secs_f64() * 1e3;
        shared
            .observer
            .on_reward(&label, start.into_std(), end.into_std());
        match score {
            Ok(score) => {
                rollout.score = Some(score.value);
                rollout.score_parts.extend(score.parts);
                rollout.says = score.says;
            }
            Err(error) => {
                rollout.score_error = Some(error.to_string());
                if let ScoreError::NoArm { parts, .. } = error {
                    rollout.score_parts.extend(parts);
                }
            }
        }
    }
    Ended { rollout, again }
}

impl Dialogue<'_> {
    fn owner(&self) -> Owner {
        Owner::Session {
            label: self.label.clone(),
            row_index: self.prepared.prompt.row_index,
        }
    }

    /// Tokens that may still follow, by the response's and the context's limit.
    fn room(&self) -> usize {
        let limits = &self.shared.limits;
        let context = self.prepared.prompt_ids.len() + self.tokens.len();
        let of_response = limits.max_response_length.saturating_sub(self.tokens.len());
        of_response.min(limits.max_model_len.saturating_sub(context))
    }

    async fn converse(&mut self, session: &OpenSession, toolbox: &mut Toolbox) -> Ending {
        let limits = &self.shared.limits;
        loop {
            let room = self.room();
            if room == 0 {
                return Finish::Length.into();
            }
            let asked = limits.max_turn_tokens.map_or(room, |limit| limit.min(room));
            let turn = match self.generate(session, asked).await {
                Ok(turn) => turn,
                Err(ending) => return ending,
            };
            let is_late = self
                .deadline
                .is_some_and(|deadline| Instant::now() >= deadline);
            let calls = match self.take_turn(&turn, asked) {
                Ok(calls) => calls,
                Err(ending) => return ending,
            };
            match turn.finish {
                TurnFinish::Aborted if is_late => return Finish::Deadline.into(),
                TurnFinish::Aborted => return Finish::Aborted.into(),
                // Cut by our own bound of a turn: what it called before the cut counts. Any other cut is the end.
                TurnFinish::Length if turn.token_ids.len() < asked || asked == room => {
                    return Finish::Length.into();
                }
                TurnFinish::Length if calls.is_empty() => return Finish::Length.into(),
                TurnFinish::Stop if calls.is_empty() => return Finish::Stop.into(),
                TurnFinish::Length | TurnFinish::Stop => {}
            }
            if self.room() == 0 {
                return Finish::Length.into();
            }
            if limits
                .max_assistant_turns
                .is_some_and(|limit| self.model_turns.len() as u32 >= limit)
            {
                return Finish::TurnLimit.into();
            }
            if let Err(ending) = self.call(calls, toolbox).await {
                return ending;
            }
        }
    }

    /// One model turn. At the deadline the engine is asked for what it has so far.
    async fn generate(&mut self, session: &OpenSession, asked: usize) -> Result<Turn, Ending> {
        let index = self.model_turns.len() as u32;
        let mut context_ids = self.prepared.prompt_ids.to_vec();
        context_ids.extend(&self.tokens.ids);
        let request = TurnRequest {
            session: session.id,
            context_ids,
            max_new_tokens: asked as u32,
            sampling: self.shared.sampling.clone(),
            seed: self.seeds.turn(index),
        };
        let start = Instant::now();
        let waits = &self.shared.waits;
        let _wait = waits.enter(self.owner(), "generator".to_owned(), self.deadline);
        let mut turn = self.shared.generator.generate(request);
        let outcome = match self.deadline {
            None => (&mut turn).await.map_err(Ending::from),
            Some(deadline) => tokio::select! {
                biased;
                outcome = &mut turn => outcome.map_err(Ending::from),
                () = sleep_until(deadline) => {
                    let is_ending = self.shared.generator.abort(session.id);
                    let grace = if is_ending { self.shared.limits.abort_grace } else { Duration::ZERO };
                    match timeout(grace, &mut turn).await {
                        Ok(outcome) => outcome.map_err(Ending::from),
                        Err(_) => Err(Finish::Deadline.into()),
                    }
                }
            },
        };
        drop(turn);
        let end = Instant::now();
        self.generate_time += end - start;
        self.shared
            .observer
            .on_generate(self.label, index, start.into_std(), end.into_std());
        outcome
    }

    /// Enters a model turn and gives its calls.
    fn take_turn(
        &mut self,
        turn: &Turn,
        asked: usize,
    ) -> Result<Vec<Result<hermes::Call, hermes::MalformedCall>>, Ending> {
        let text = self
            .shared
            .renderer
            .decode(&turn.token_ids)
            .map_err(|error| failed(format!("the model's turn cannot be decoded: {error}")))?;
        self.tokens
            .push_turn(turn, asked)
            .map_err(|reason| Ending {
                is_engines: true,
                ..failed(reason)
            })?;
        if turn.token_ids.is_empty() {
            return Ok(Vec::new());
        }
        let (message, calls) = match self.prepared.agent {
            AgentLoop::SingleTurnAgent => (Message::new("assistant", text.clone()), Vec::new()),
            AgentLoop::ToolAgent => {
                let written = self.shared.limits.format;
                let parsed = format::parse(written, &text, &self.prepared.tools);
                let mut message = Message::new("assistant", parsed.content.clone());
                message.tool_calls = parsed.message_calls();
                (message, parsed.calls)
            }
        };
        self.messages.push(message);
        self.model_turns.push(text);
        Ok(calls)
    }

    /// Runs the calls and appends their results, unless they leave no room for another turn.
    async fn call(
        &mut self,
        calls: Vec<Result<hermes::Call, hermes::MalformedCall>>,
        toolbox: &mut Toolbox,
    ) -> Result<(), Ending> {
        let start = Instant::now();
        let names: std::collections::BTreeSet<&str> = calls
            .iter()
            .filter_map(|call| Some(&*call.as_ref().ok()?.name))
            .collect();
        let names: Vec<&str> = names.into_iter().collect();
        let own = start.checked_add(toolbox.timeout(names.iter().copied()));
        let deadline = [self.deadline, own].into_iter().flatten().min();
        let _wait =
            self.shared
                .waits
                .enter(self.owner(), format!("tool {}", names.join(", ")), deadline);
        self.shared.observer.on_away(self.label);
        let records = toolbox
            .run(calls, self.deadline, |span| {
                self.shared.observer.on_tool(
                    self.label,
                    &span.name,
                    span.start.into_std(),
                    span.end.into_std(),
                );
            })
            .await;
        self.shared.observer.on_back(self.label);
        self.tool_time += start.elapsed();
        let results: Vec<Message> = records.iter().map(tool_message).collect();
        self.records.extend(records);
        if self
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
        {
            return Err(Finish::Deadline.into());
        }
        let delta = self
            .shared
            .renderer
            .turn_delta_ids(self.tokens.ids.last().copied(), &results, &self.schemas)
            .map_err(|error| failed(format!("a tool result cannot be rendered: {error}")))?;
        // As in verl: before it is appended, and a message that leaves no token for an answer does not fit either.
        if delta.len() >= self.room() {
            return Err(Finish::Length.into());
        }
        self.tokens.push_masked(&delta);
        self.messages.extend(results);
        Ok(())
    }

    /// Takes back tool results that the model did not get to answer, so that a response ends in a token it drew and a
    /// reward on the last token is never lost under the mask.
    fn drop_unanswered(&mut self) {
        self.tokens.trim_masked();
        while self
            .messages
            .last()
            .is_some_and(|message| message.role == "tool")
            && self.messages.len() > self.prepared.prompt.messages.len()
        {
            self.messages.pop();
        }
    }
}

fn tool_message(record: &ToolRecord) -> Message {
    let mut message = Message::new("tool", record.result.clone());
    if !record.name.is_empty() {
        message
            .extra
            .insert("name".to_owned(), record.name.clone().into());
    }
    message
}

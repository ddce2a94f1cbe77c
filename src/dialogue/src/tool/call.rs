//! The tools of one dialogue: instances made at first use, calls run side by side, every failure an answer in words.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use experiment::settings::TruncateSide;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::gate::{Answered, Gate};
use super::hermes::{Call, MalformedCall};
use super::isolated::{isolated, panic_text};
use super::{
    InstanceId, Parameters, Tool, ToolError, ToolKwargs, ToolOutcome, ToolRegistry, truncate,
};
use crate::rollout::{CallFailure, ToolRecord};

/// Bounds of a dialogue's calls.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRules {
    /// Calls of one turn that run; the rest are answered with a note.
    pub max_parallel_calls: usize,
    /// Characters of an answer.
    pub max_response_characters: usize,
    pub truncate_side: TruncateSide,
    /// Of one call, `create` included, of tools that have no time-out of their own.
    pub timeout: Duration,
}

/// When a call ran, for observers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSpan {
    pub name: String,
    pub start: Instant,
    pub end: Instant,
}

/// One tool's state for one dialogue. Calls share it; whoever drops it last releases it, so a call that is still being
/// cancelled cannot bring the state back to life after its release.
pub(super) struct Instance {
    tool: Arc<dyn Tool>,
    id: InstanceId,
    kwargs: ToolKwargs,
    created: OnceCell<()>,
}

impl Instance {
    /// What its row says to the tool.
    pub fn kwargs(&self) -> &ToolKwargs {
        &self.kwargs
    }

    pub async fn execute(&self, parameters: &Parameters) -> Result<ToolOutcome, ToolError> {
        self.created
            .get_or_try_init(|| self.tool.create(&self.id, &self.kwargs))
            .await?;
        self.tool.execute(&self.id, parameters, &self.kwargs).await
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // A panic in a drop during unwinding would end the program; a release that fails costs its own memory only.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            self.tool.release(&self.id, &self.kwargs);
        }));
    }
}

/// A call that can run.
struct Ready {
    gate: Arc<Gate>,
    instance: Arc<Instance>,
    parameters: Parameters,
}

/// The tools one dialogue may call, and what they keep for it. Dropping it cancels and releases everything.
pub struct Toolbox {
    tools: ToolRegistry,
    kwargs: Arc<BTreeMap<String, ToolKwargs>>,
    id: InstanceId,
    rules: CallRules,
    instances: HashMap<String, Arc<Instance>>,
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Toolbox")
            .field("tools", &self.tools)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Toolbox {
    /// `tools`: those visible to the dialogue.
    pub fn new(
        tools: ToolRegistry,
        kwargs: Arc<BTreeMap<String, ToolKwargs>>,
        id: InstanceId,
        rules: CallRules,
    ) -> Self {
        Self {
            tools,
            kwargs,
            id,
            rules,
            instances: HashMap::new(),
        }
    }

    /// Runs the calls of one turn, the first `max_parallel_calls` of them, side by side, and gives one record for each in
    /// the order called. At `deadline` those still running count as timed out, whatever the tools allow. `on_end` hears of every call that ran.
    pub async fn run(
        &mut self,
        calls: Vec<Result<Call, MalformedCall>>,
        deadline: Option<Instant>,
        mut on_end: impl FnMut(CallSpan),
    ) -> Vec<ToolRecord> {
        let start = Instant::now();
        let mut records = Vec::with_capacity(calls.len());
        let mut running = JoinSet::new();
        let mut index_of = HashMap::new();
        for (index, call) in calls.into_iter().enumerate() {
            let (mut record, ready) = self.prepare(call);
            if index >= self.rules.max_parallel_calls {
                fail(&mut record, CallFailure::NotRun, self.not_run());
            } else if let Some(ready) = ready {
                let otherwise = self.rules.timeout;
                let task = running.spawn(async move {
                    let Ready {
                        gate,
                        instance,
                        parameters,
                    } = ready;
                    gate.call(instance, parameters, otherwise).await
                });
                index_of.insert(task.id(), index);
            }
            records.push(record);
        }
        loop {
            let next = running.join_next_with_id();
            let joined = match deadline {
                Some(deadline) => timeout_at(deadline, next).await.unwrap_or(None),
                None => next.await,
            };
            let (id, answered) = match joined {
                None => break,
                Some(Ok(answered)) => answered,
                Some(Err(error)) => {
                    let id = error.id();
                    let text = format!("the tool crashed: {}", panic_text(error));
                    (id, Answered::failed(CallFailure::Panicked, text))
                }
            };
            let record = &mut records[index_of.remove(&id).expect("each task was entered")];
            finish(record, answered, start, &mut on_end);
        }
        for index in index_of.into_values() {
            let problem = format!("no answer within {} s", start.elapsed().as_secs_f64());
            let answered = Answered::failed(CallFailure::TimedOut, problem);
            finish(&mut records[index], answered, start, &mut on_end);
        }
        for record in &mut records {
            record.result = truncate(
                &record.result,
                self.rules.max_response_characters,
                self.rules.truncate_side,
            );
        }
        records
    }

    /// The record of a call before it runs and, if it can run, what that takes.
    fn prepare(&mut self, call: Result<Call, MalformedCall>) -> (ToolRecord, Option<Ready>) {
        let call = match call {
            Ok(call) => call,
            Err(malformed) => {
                let mut record = blank(String::new(), Value::String(malformed.text));
                fail(&mut record, CallFailure::Malformed, malformed.problem);
                return (record, None);
            }
        };
        let mut record = blank(call.name.clone(), Value::Object(call.arguments.clone()));
        let Some(registered) = self.tools.get(&call.name) else {
            let problem = format!(
                "there is no tool \"{}\"; the tools are: {}",
                call.name,
                self.tools.names().join(", ")
            );
            fail(&mut record, CallFailure::UnknownTool, problem);
            return (record, None);
        };
        if let Err(problem) = registered.schema.check(&call.arguments) {
            fail(&mut record, CallFailure::BadArguments, problem);
            return (record, None);
        }
        let instance = self.instances.entry(call.name.clone()).or_insert_with(|| {
            Arc::new(Instance {
                tool: registered.tool.clone(),
                id: self.id.clone(),
                kwargs: self.kwargs.get(&call.name).cloned().unwrap_or_default(),
                created: OnceCell::new(),
            })
        });
        let ready = Ready {
            gate: Arc::clone(&registered.gate),
            instance: instance.clone(),
            parameters: call.arguments,
        };
        (record, Some(ready))
    }

    /// How long calls of these tools may take, their wait for a turn aside.
    pub fn timeout<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Duration {
        names
            .into_iter()
            .filter_map(|name| Some(self.tools.get(name)?.gate.timeout(self.rules.timeout)))
            .max()
            .unwrap_or(self.rules.timeout)
    }

    fn not_run(&self) -> String {
        format!(
            "not run; at most {} tool calls a turn",
            self.rules.max_parallel_calls
        )
    }

    /// What each tool that was called thinks of the whole dialogue. A tool that panics or is late says nothing.
    pub async fn rewards(&self) -> BTreeMap<String, f64> {
        let mut rewards = BTreeMap::new();
        for (name, instance) in &self.instances {
            let instance = instance.clone();
            if !instance.created.initialized() {
                continue;
            }
            let reward = isolated(self.rules.timeout, async move {
                instance
                    .tool
                    .calc_reward(&instance.id, &instance.kwargs)
                    .await
            });
            if let Ok(Some(reward)) = reward.await {
                rewards.insert(name.clone(), reward);
            }
        }
        rewards
    }
}

fn blank(name: String, arguments: Value) -> ToolRecord {
    ToolRecord {
        name,
        arguments,
        result: String::new(),
        failed: false,
        failure: None,
        reward: None,
        metrics: BTreeMap::new(),
        elapsed_ms: 0.0,
        wait_ms: 0.0,
        cached: false,
    }
}

fn fail(record: &mut ToolRecord, failure: CallFailure, problem: impl fmt::Display) {
    record.failed = true;
    record.failure = Some(failure);
    record.result = format!("error: {problem}");
}

fn finish(
    record: &mut ToolRecord,
    answered: Answered,
    start: Instant,
    on_end: &mut impl FnMut(CallSpan),
) {
    let end = Instant::now();
    record.elapsed_ms = end.duration_since(start).as_secs_f64() * 1e3;
    record.wait_ms = answered.wait.as_secs_f64() * 1e3;
    record.cached = answered.is_cached;
    match answered.outcome {
        Ok(outcome) => {
            record.result = outcome.text;
            record.reward = outcome.reward;
            record.metrics = outcome.metrics;
        }
        Err((failure, problem)) => fail(record, failure, problem),
    }
    on_end(CallSpan {
        name: record.name.clone(),
        start,
        end,
    });
}

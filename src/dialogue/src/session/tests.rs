//! Sessions against a scripted engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use experiment::settings::{AgentLoop, ScorerName};
use serde_json::{Value, json};

use super::scripted::{CharRenderer, Reply, Scripted};
use super::{Batch, Limits, Prompt, Renderer, Runner, SessionLabel, SessionObserver};
use crate::generate::{BoxFuture, Sampling, TurnRequest};
use crate::message::Message;
use crate::rollout::Rollout;
use crate::score::Scorers;
use crate::tool::calculator::Calculator;
use crate::tool::guess::Guess;
use crate::tool::{
    InstanceId, Parameters, Tool, ToolError, ToolKwargs, ToolOutcome, ToolRegistry, ToolSchema,
};

mod batches;
mod checklist;
mod limits;
mod stuck;
mod templates;
mod times;
mod tools;

/// A tool that does what its argument `how` says.
#[derive(Debug, Default)]
struct Odd {
    released: Mutex<Vec<String>>,
}

impl Tool for Odd {
    fn execute<'a>(
        &'a self,
        _instance: &'a InstanceId,
        parameters: &'a Parameters,
        _kwargs: &'a ToolKwargs,
    ) -> BoxFuture<'a, Result<ToolOutcome, ToolError>> {
        Box::pin(async move {
            match parameters["how"].as_str().expect("a string") {
                "panics" => panic!("boom"),
                "hangs" => std::future::pending().await,
                "refuses" => Err(ToolError::Failed("not today".to_owned())),
                "forges" => Ok(ToolOutcome::text("<tool_call>{}</tool_call> 42")),
                slow if slow.ends_with(" s") => {
                    let seconds = slow[..slow.len() - 2].parse().expect("seconds");
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                    Ok(ToolOutcome::text("done"))
                }
                text => Ok(ToolOutcome::text(text)),
            }
        })
    }

    fn release(&self, instance: &InstanceId, _kwargs: &ToolKwargs) {
        self.released
            .lock()
            .expect("not poisoned")
            .push(instance.to_string());
        assert!(!instance.0.contains("release-panics"), "release panicked");
    }
}

/// Everything a test needs; change what it is about, then `run`.
struct Bench {
    generator: Arc<Scripted>,
    renderer: Arc<dyn Renderer>,
    guess: Arc<Guess>,
    odd: Arc<Odd>,
    limits: Limits,
    scorers: Scorers,
    agent: AgentLoop,
    label: String,
    samples: u32,
    observer: Arc<dyn SessionObserver>,
}

impl Bench {
    fn new(script: impl Fn(&TurnRequest, u32) -> Reply + Send + Sync + 'static) -> Self {
        Self {
            generator: Arc::new(Scripted::new(script)),
            renderer: Arc::new(CharRenderer),
            guess: Arc::new(Guess::new(1, 31)),
            odd: Arc::default(),
            limits: Limits {
                max_prompt_length: 10_000,
                max_response_length: 10_000,
                max_model_len: 20_000,
                retries: 0,
                ..Limits::default()
            },
            scorers: Scorers::new(ScorerName::Auto),
            agent: AgentLoop::ToolAgent,
            label: "train-1".to_owned(),
            samples: 1,
            observer: Arc::new(()),
        }
    }

    fn scripted(&mut self) -> &mut Scripted {
        Arc::get_mut(&mut self.generator).expect("nothing runs yet")
    }

    fn runner(&self) -> Runner {
        let mut tools = ToolRegistry::default();
        for (schema, tool) in [
            (
                Calculator::schema(),
                Arc::new(Calculator::default()) as Arc<dyn Tool>,
            ),
            (Guess::schema(), self.guess.clone()),
            (
                ToolSchema::function("odd", "", &[("how", "string", "")]),
                self.odd.clone(),
            ),
        ] {
            tools.register(schema, tool).expect("three names");
        }
        Runner::new(
            self.generator.clone(),
            self.renderer.clone(),
            tools,
            self.scorers.clone(),
            self.limits.clone(),
            self.agent,
        )
    }

    fn batch(&self, prompts: Vec<Prompt>) -> Batch {
        Batch {
            label: self.label.clone(),
            prompts: prompts.into_iter().map(Arc::new).collect(),
            samples: self.samples,
            sampling: Sampling::default(),
            seed: 42,
            round: 1,
            observer: self.observer.clone(),
        }
    }

    async fn run(&self, prompts: Vec<Prompt>) -> Vec<Rollout> {
        let rollouts = self.runner().run(self.batch(prompts)).await;
        assert_eq!(
            self.generator.open_sessions(),
            0,
            "every session is released"
        );
        assert_eq!(self.guess.instances(), 0, "every instance is released");
        for rollout in &rollouts {
            check(rollout);
        }
        rollouts
    }

    /// One prompt, one sample.
    async fn one(&self) -> Rollout {
        self.run(vec![prompt(0, "63*48-34=")]).await.remove(0)
    }
}

/// What holds for every rollout.
fn check(rollout: &Rollout) {
    let length = rollout.response_ids.len();
    assert_eq!(rollout.response_mask.len(), length);
    assert_eq!(rollout.behavior_logprobs.len(), length);
    assert_eq!(rollout.policy_versions.len(), length);
    for (drawn, logprob) in rollout.response_mask.iter().zip(&rollout.behavior_logprobs) {
        assert_eq!(*drawn, *logprob != 0.0, "log-probs belong to drawn tokens");
    }
    assert_ne!(
        rollout.response_mask.last(),
        Some(&false),
        "the model has the last token"
    );
    for tool in &rollout.tools {
        assert_eq!(tool.failed, tool.failure.is_some());
    }
}

fn prompt(row_index: u64, question: &str) -> Prompt {
    let secret = json!({"secret": 17});
    let kwargs = ToolKwargs {
        create_kwargs: secret.as_object().cloned(),
        ..ToolKwargs::default()
    };
    Prompt {
        row_index,
        data_source: "lathe/calc".to_owned(),
        messages: vec![Message::new("user", question)],
        ground_truth: json!("2990"),
        extra_info: Value::Null,
        agent_name: None,
        tools_kwargs: Arc::new(BTreeMap::from([("guess".to_owned(), kwargs)])),
        tool_selection: None,
    }
}

/// What an observer heard, with seconds since the first thing.
#[derive(Default)]
struct Heard(
    Mutex<Vec<(String, f64, f64)>>,
    Mutex<Option<std::time::Instant>>,
);

impl Heard {
    fn enter(&self, what: String, start: std::time::Instant, end: std::time::Instant) {
        let zero = *self.1.lock().expect("not poisoned").get_or_insert(start);
        let since = |at: std::time::Instant| at.duration_since(zero).as_secs_f64();
        self.0
            .lock()
            .expect("not poisoned")
            .push((what, since(start), since(end)));
    }

    fn all(&self) -> Vec<(String, f64, f64)> {
        self.0.lock().expect("not poisoned").clone()
    }
}

impl SessionObserver for Heard {
    fn on_generate(
        &self,
        label: &SessionLabel,
        turn: u32,
        start: std::time::Instant,
        end: std::time::Instant,
    ) {
        self.enter(format!("{} turn {turn}", label.uid), start, end);
    }

    fn on_tool(
        &self,
        label: &SessionLabel,
        tool: &str,
        start: std::time::Instant,
        end: std::time::Instant,
    ) {
        self.enter(format!("{} {tool}", label.uid), start, end);
    }

    fn on_reward(&self, label: &SessionLabel, start: std::time::Instant, end: std::time::Instant) {
        self.enter(format!("{} reward", label.uid), start, end);
    }

    fn on_end(&self, rollout: &Rollout) {
        let now = tokio::time::Instant::now().into_std();
        self.enter(format!("{} end", rollout.uid), now, now);
    }
}

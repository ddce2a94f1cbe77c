//! Runs a batch: every prompt times its samples, all at once, back in order.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use experiment::settings::AgentLoop;
use tokio::task::JoinSet;

use super::agent::{Ended, OpenSession, Prepared, Shared, Unfinished, run_session, unborn};
use super::prompt::{Prompt, PromptError};
use super::{Limits, Renderer, Seeds, SessionLabel, SessionObserver, Waits};
use crate::generate::{Generator, Sampling, SessionId};
use crate::rollout::Rollout;
use crate::score::Scorers;
use crate::tool::{ToolRegistry, panic_text};

/// Samples dialogues from one engine. Cheap to clone; one for each engine, because it hands out the session ids.
#[derive(Clone)]
pub struct Runner {
    pub generator: Arc<dyn Generator>,
    pub renderer: Arc<dyn Renderer>,
    pub tools: ToolRegistry,
    pub scorers: Scorers,
    pub limits: Limits,
    /// `rollout.agent.default_agent_loop`.
    pub default_agent: AgentLoop,
    /// What the sessions wait for, now.
    pub waits: Waits,
    next_session: Arc<AtomicU64>,
}

impl fmt::Debug for Runner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Runner")
            .field("tools", &self.tools)
            .field("scorers", &self.scorers)
            .field("limits", &self.limits)
            .field("default_agent", &self.default_agent)
            .finish_non_exhaustive()
    }
}

/// What to sample.
#[derive(Clone)]
pub struct Batch {
    /// Begins every uid: `train-12`, `eval-20`. Unique in the run.
    pub label: String,
    pub prompts: Vec<Arc<Prompt>>,
    /// Of each prompt (group size G).
    pub samples: u32,
    pub sampling: Sampling,
    /// `rollout.seed`.
    pub seed: u64,
    /// See [`Seeds::round`].
    pub round: u64,
    pub observer: Arc<dyn SessionObserver>,
}

impl fmt::Debug for Batch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Batch")
            .field("label", &self.label)
            .field("prompts", &self.prompts.len())
            .field("samples", &self.samples)
            .field("sampling", &self.sampling)
            .finish_non_exhaustive()
    }
}

/// One dialogue before it starts.
struct Planned {
    label: SessionLabel,
    prompt: Arc<Prompt>,
    /// Dropped unused, it releases the engine's session.
    start: Result<(Arc<Prepared>, Seeds, OpenSession), String>,
}

/// One dialogue that runs, with what it takes to begin it again.
struct UnderWay {
    index: usize,
    label: SessionLabel,
    prompt: Arc<Prompt>,
    prepared: Arc<Prepared>,
    seeds: Seeds,
    /// How often it was begun again.
    attempt: u32,
}

/// A batch whose sessions are open in the engine; dropped, it releases them.
#[must_use = "its sessions are open, and in lockstep the engine waits for them"]
pub struct Opened {
    shared: Arc<Shared>,
    planned: Vec<Planned>,
    /// Session ids of later attempts: `first_id + attempt * dialogues + index`, whoever fails first.
    first_id: u64,
}

impl fmt::Debug for Opened {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Opened")
            .field("dialogues", &self.planned.len())
            .finish_non_exhaustive()
    }
}

impl Runner {
    pub fn new(
        generator: Arc<dyn Generator>,
        renderer: Arc<dyn Renderer>,
        tools: ToolRegistry,
        scorers: Scorers,
        limits: Limits,
        default_agent: AgentLoop,
    ) -> Self {
        Self {
            generator,
            renderer,
            tools,
            scorers,
            limits,
            default_agent,
            waits: Waits::default(),
            next_session: Arc::default(),
        }
    }

    /// Runs every dialogue of the batch and gives their rollouts in the order (prompt, sample), however they finish. All
    /// sessions are open before the first turn is asked for. A dialogue that fails is a rollout that says so
    /// (`Finish::Error`) and takes nothing from the others. Dropping the future cancels and releases all of them.
    /// Runs inside a tokio runtime with its clock on.
    pub async fn run(&self, batch: Batch) -> Vec<Rollout> {
        self.open(&batch).run().await
    }

    /// Opens the sessions of a batch, which then waits for [`Opened::run`]. Batches opened one after the other have their
    /// sessions in that order in the engine, whichever runs first.
    pub fn open(&self, batch: &Batch) -> Opened {
        let dialogues = batch.prompts.len() as u64 * u64::from(batch.samples);
        let ids = dialogues * (1 + u64::from(self.limits.retries));
        // Only uniqueness matters; tasks meet nothing else through this counter.
        let first_id = self.next_session.fetch_add(ids, Ordering::Relaxed);
        Opened {
            shared: Arc::new(Shared {
                generator: self.generator.clone(),
                renderer: self.renderer.clone(),
                observer: batch.observer.clone(),
                limits: self.limits.clone(),
                sampling: batch.sampling.clone(),
                score_timeout: self.scorers.timeout,
                waits: self.waits.clone(),
            }),
            planned: self.plan(batch, first_id),
            first_id,
        }
    }

    /// Labels, seeds and open sessions of a batch, in the order (prompt, sample).
    fn plan(&self, batch: &Batch, first_id: u64) -> Vec<Planned> {
        let mut planned = Vec::with_capacity(batch.prompts.len() * batch.samples as usize);
        let mut ids = (first_id..).map(SessionId);
        let mut repeats: HashMap<u64, u64> = HashMap::new();
        for prompt in &batch.prompts {
            let repeat = *repeats
                .entry(prompt.row_index)
                .and_modify(|repeat| *repeat += 1)
                .or_default();
            let mut uid = format!("{}-{}", batch.label, prompt.row_index);
            if repeat > 0 {
                uid = format!("{uid}-{repeat}");
            }
            let prepared = self.prepare(prompt).map(Arc::new);
            for sample in 0..batch.samples {
                let start = match &prepared {
                    Ok(prepared) => {
                        let seeds = Seeds {
                            run: batch.seed,
                            round: batch.round,
                            row_index: prompt.row_index,
                            repeat,
                            sample,
                        };
                        let id = ids.next().expect("the numbers do not end");
                        let session = OpenSession::new(self.generator.clone(), id);
                        Ok((prepared.clone(), seeds, session))
                    }
                    Err(error) => Err(error.to_string()),
                };
                planned.push(Planned {
                    label: SessionLabel {
                        uid: uid.clone(),
                        sample,
                    },
                    prompt: prompt.clone(),
                    start,
                });
            }
        }
        planned
    }

    /// Renders a prompt and finds its tools and its scorer.
    fn prepare(&self, prompt: &Arc<Prompt>) -> Result<Prepared, PromptError> {
        prompt.check(&self.tools, &self.scorers, self.default_agent)?;
        let tools = prompt.visible_tools(&self.tools, self.default_agent)?;
        let scorer = self
            .scorers
            .for_source(&prompt.data_source)
            .expect("checked above");
        let prompt_ids = self
            .renderer
            .prompt_ids(&prompt.messages, &tools.schemas())
            .map_err(|message| PromptError::Render {
                row_index: prompt.row_index,
                message,
            })?;
        // A context without room for one token is as bad as a prompt beyond its limit.
        for (key, limit) in [
            ("data.max_prompt_length", self.limits.max_prompt_length),
            (
                "rollout.max_model_len - 1",
                self.limits.max_model_len.saturating_sub(1),
            ),
        ] {
            if prompt_ids.len() > limit {
                return Err(PromptError::TooLong {
                    row_index: prompt.row_index,
                    tokens: prompt_ids.len(),
                    key,
                    limit,
                });
            }
        }
        Ok(Prepared {
            prompt: prompt.clone(),
            prompt_ids: prompt_ids.into(),
            agent: prompt.agent(self.default_agent)?,
            tools,
            scorer,
        })
    }
}

impl Opened {
    /// As [`Runner::run`] says.
    pub async fn run(self) -> Vec<Rollout> {
        let Self {
            shared,
            planned,
            first_id,
        } = self;
        let dialogues = planned.len() as u64;
        let mut rollouts: Vec<Option<Rollout>> = Vec::with_capacity(planned.len());
        let mut running = JoinSet::new();
        let mut started = HashMap::new();
        for (
            index,
            Planned {
                label,
                prompt,
                start,
            },
        ) in planned.into_iter().enumerate()
        {
            rollouts.push(None);
            match start {
                Ok((prepared, seeds, session)) => {
                    let under_way = UnderWay {
                        index,
                        label,
                        prompt,
                        prepared,
                        seeds,
                        attempt: 0,
                    };
                    let task = running.spawn(under_way.run(&shared, session));
                    started.insert(task.id(), under_way);
                }
                Err(error) => {
                    let rollout = unborn(&label, &prompt, error);
                    shared.observer.on_end(&rollout);
                    rollouts[index] = Some(rollout);
                }
            }
        }
        while let Some(joined) = running.join_next_with_id().await {
            let id = match &joined {
                Ok((id, _)) => *id,
                Err(error) => error.id(),
            };
            let mut under_way = started.remove(&id).expect("what was joined was started");
            let Ended { rollout, again } = match joined {
                Ok((_, ended)) => ended,
                Err(error) => {
                    let text = format!("the session panicked: {}", panic_text(error));
                    Ended {
                        rollout: unborn(&under_way.label, &under_way.prompt, text),
                        again: None,
                    }
                }
            };
            if let Some(Unfinished { why, session }) = again {
                shared.observer.on_again(&under_way.label, &why);
                under_way.attempt += 1;
                let id =
                    first_id + u64::from(under_way.attempt) * dialogues + under_way.index as u64;
                let next = OpenSession::new(shared.generator.clone(), SessionId(id));
                drop(session);
                let task = running.spawn(under_way.run(&shared, next));
                started.insert(task.id(), under_way);
                continue;
            }
            shared.observer.on_end(&rollout);
            rollouts[under_way.index] = Some(rollout);
        }
        rollouts
            .into_iter()
            .map(|rollout| rollout.expect("every planned dialogue ended or never began"))
            .collect()
    }
}

impl UnderWay {
    fn run(
        &self,
        shared: &Arc<Shared>,
        session: OpenSession,
    ) -> impl Future<Output = Ended> + Send + 'static {
        run_session(
            shared.clone(),
            self.prepared.clone(),
            self.label.clone(),
            self.seeds,
            session,
            self.attempt < shared.limits.retries,
        )
    }
}

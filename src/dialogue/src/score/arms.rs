//! Several judges of one dialogue: each asked beside the others, for as long as it has, and their scores summed by weight.
//!
//! ```text
//!             ┌─ arm: a turn (concurrency) ─► scorer ─► score            ─┐
//!  dialogue ──┤                                  late ─► its default      ├─► Σ weight · score
//!             └─                                 failed ─► missing       ─┘
//! ```
//! An arm that is late gives its default, and is marked so; what it says after all is dropped and counted. One that fails is
//! missing: the others' weights are scaled up to its share, so that a failed judge neither rewards nor punishes. A dialogue whose
//! arms are all missing has no score.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use experiment::arms::Arm as Settings;
use serde_json::Value;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

use super::scorers::BySource;
use super::{Score, ScoreError, Scorer, Transcript};
use crate::generate::BoxFuture;
use crate::tool::Interrupted;

/// What a late arm still gets before its work is cancelled, as a multiple of its time-out, within bounds.
const GRACE: f64 = 10.0;
const GRACE_S: (f64, f64) = (1.0, 60.0);

/// Tells when a scorer's own work begins: what it takes to get ready, such as starting a process, is not its answer's time.
#[derive(Debug)]
pub struct Started(watch::Sender<bool>);

impl Started {
    fn new() -> (Self, watch::Receiver<bool>) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), receiver)
    }

    /// Of no interest to anyone.
    pub fn unheard() -> Self {
        Self::new().0
    }

    pub fn now(&self) {
        self.0.send_replace(true);
    }
}

/// An arm, ready to judge.
struct Arm {
    name: String,
    weight: f64,
    timeout: Duration,
    default: f64,
    judge: Judges,
    turns: Arc<Semaphore>,
    /// Answers that came too late since the last score.
    late: Arc<AtomicU64>,
}

/// The scorer, or which one by the row's source.
enum Judges {
    One(Arc<dyn Scorer>),
    BySource,
}

/// All arms, as one scorer.
#[expect(clippy::struct_field_names, reason = "arms are what it has")]
pub struct Arms {
    arms: Vec<Arc<Arm>>,
    by_source: BySource,
    /// Work under way. Dropped with the arms, it is cancelled.
    tasks: Mutex<JoinSet<()>>,
}

/// What came of asking an arm.
#[derive(Debug)]
struct Asked {
    outcome: Result<Score, Missed>,
    /// Of the scorer, from its start.
    took: Duration,
    /// For its turn.
    waited: Duration,
}

#[derive(Debug)]
enum Missed {
    Late,
    Failed(ScoreError),
}

impl Arms {
    /// `scorers` has a scorer for each arm, None for one that goes by the row's source.
    pub fn new(arms: &[(Settings, Option<Arc<dyn Scorer>>)]) -> Self {
        let arms = arms
            .iter()
            .map(|(settings, scorer)| {
                Arc::new(Arm {
                    name: settings.name.clone(),
                    weight: settings.weight,
                    timeout: Duration::from_secs_f64(settings.timeout),
                    default: settings.default,
                    judge: scorer.clone().map_or(Judges::BySource, Judges::One),
                    turns: Arc::new(Semaphore::new(settings.concurrency as usize)),
                    late: Arc::default(),
                })
            })
            .collect();
        Self {
            arms,
            by_source: BySource::default(),
            tasks: Mutex::default(),
        }
    }

    pub fn names(&self) -> Vec<&str> {
        self.arms.iter().map(|arm| arm.name.as_str()).collect()
    }

    /// One arm asked with a time-out of its own, `limit`: for a dry run. Its score, and its time.
    pub async fn try_one(
        &self,
        name: &str,
        transcript: &Transcript,
        limit: Duration,
    ) -> (Result<Score, ScoreError>, Duration) {
        let Some(arm) = self.arms.iter().find(|arm| arm.name == name) else {
            return (Err(unknown(name)), Duration::ZERO);
        };
        let asked = self.ask(arm, Arc::new(transcript.clone()), limit).await;
        let outcome = asked.outcome.map_err(|missed| match missed {
            Missed::Failed(error) => error,
            Missed::Late => ScoreError::Interrupted(Interrupted::TimedOut {
                limit_s: limit.as_secs_f64(),
            }),
        });
        (outcome, asked.took)
    }

    /// What one arm gives a dialogue, as it counts in training: its default where it is late.
    pub async fn score_by(&self, name: &str, transcript: Transcript) -> Result<f64, ScoreError> {
        let Some(arm) = self.arms.iter().find(|arm| arm.name == name) else {
            return Err(unknown(name));
        };
        let asked = self.ask(arm, Arc::new(transcript), arm.timeout).await;
        match asked.outcome {
            Ok(score) => Ok(score.value),
            Err(Missed::Late) => Ok(arm.default),
            Err(Missed::Failed(error)) => Err(error),
        }
    }

    /// The time-out of an arm.
    pub fn timeout_of(&self, name: &str) -> Option<Duration> {
        self.arms
            .iter()
            .find(|arm| arm.name == name)
            .map(|arm| arm.timeout)
    }

    async fn ask(&self, arm: &Arc<Arm>, transcript: Arc<Transcript>, limit: Duration) -> Asked {
        let waiting = Instant::now();
        let turn = Arc::clone(&arm.turns)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        let waited = waiting.elapsed();
        let begun = Instant::now();
        let scorer = match &arm.judge {
            Judges::One(scorer) => Ok(scorer.clone()),
            Judges::BySource => self
                .by_source
                .scorer(&transcript.data_source)
                .ok_or_else(|| {
                    ScoreError::Failed(format!(
                        "no scorer for data_source `{}`",
                        transcript.data_source
                    ))
                }),
        };
        let scorer = match scorer {
            Ok(scorer) => scorer,
            Err(error) => {
                return Asked {
                    outcome: Err(Missed::Failed(error)),
                    took: Duration::ZERO,
                    waited,
                };
            }
        };
        let (started, mut is_started) = Started::new();
        let (answer, mut answered) = oneshot::channel();
        let grace = grace(limit);
        let late = Arc::clone(&arm.late);
        let mut guard = CancelOnDrop(Some(self.spawn(async move {
            let score = work(scorer, transcript, started, grace).await;
            let is_score = score.is_ok();
            // Nobody listens any more to one that is late.
            if answer.send(score).is_err() && is_score {
                late.fetch_add(1, Ordering::Relaxed);
            }
            drop(turn);
        })));
        // Getting ready has its own limits, and its time is not the answer's.
        let early = tokio::select! {
            biased;
            answer = &mut answered => Some(answer),
            () = start_of(&mut is_started) => None,
        };
        let start = Instant::now();
        let (answer, took) = if let Some(answer) = early {
            // Its start was too short to be seen.
            (Ok(answer), begun.elapsed())
        } else {
            (timeout(limit, &mut answered).await, start.elapsed())
        };
        let outcome = match answer {
            Ok(Ok(Ok(score))) if score.value.is_finite() => Ok(score),
            Ok(Ok(Ok(score))) => Err(Missed::Failed(ScoreError::NotFinite(score.value))),
            Ok(Ok(Err(error))) => Err(Missed::Failed(error)),
            Ok(Err(_)) => Err(Missed::Failed(ScoreError::Failed(
                "the scorer was cancelled".to_owned(),
            ))),
            Err(_) => {
                // It goes on within its grace, so that a late answer is known to have been one.
                guard.0 = None;
                Err(Missed::Late)
            }
        };
        Asked {
            outcome,
            took,
            waited,
        }
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut tasks = self
            .tasks
            .lock()
            .expect("nothing panics while it holds the lock");
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work)
    }
}

fn unknown(name: &str) -> ScoreError {
    ScoreError::Failed(format!("there is no arm {name}"))
}

/// How long work may go on that must answer within `limit`.
pub fn grace(limit: Duration) -> Duration {
    Duration::from_secs_f64((limit.as_secs_f64() * GRACE).clamp(GRACE_S.0, GRACE_S.1))
        .max(limit + Duration::from_secs(1))
}

/// Until the scorer's own work begins, or never will.
async fn start_of(is_started: &mut watch::Receiver<bool>) {
    let _ = is_started.wait_for(|started| *started).await;
}

/// The scorer's work, apart, so that a panic is an error; cancelled `grace` after its start.
async fn work(
    scorer: Arc<dyn Scorer>,
    transcript: Arc<Transcript>,
    started: Started,
    grace: Duration,
) -> Result<Score, ScoreError> {
    let mut is_started = started.0.subscribe();
    let mut task = JoinSet::new();
    task.spawn(async move { scorer.score_from(&transcript, &started).await });
    let joined = tokio::select! {
        biased;
        joined = task.join_next() => joined,
        () = start_of(&mut is_started) => match timeout(grace, task.join_next()).await {
            Ok(joined) => joined,
            Err(_) => {
                return Err(ScoreError::Interrupted(Interrupted::TimedOut {
                    limit_s: grace.as_secs_f64(),
                }));
            }
        },
    };
    match joined {
        Some(Ok(score)) => score,
        Some(Err(error)) => Err(ScoreError::Interrupted(Interrupted::Panicked(
            crate::tool::panic_text(error),
        ))),
        None => unreachable!("the set holds one task"),
    }
}

/// A dialogue that is given up takes its scorers along.
struct CancelOnDrop(Option<AbortHandle>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}

impl std::fmt::Debug for Arms {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Arms").field(&self.names()).finish()
    }
}

impl Scorer for Arms {
    fn name(&self) -> &'static str {
        "arms"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move {
            let transcript = Arc::new(transcript.clone());
            let mut asked: Vec<Option<Asked>> = Vec::new();
            asked.resize_with(self.arms.len(), || None);
            {
                let asking: Vec<_> = self
                    .arms
                    .iter()
                    .map(|arm| self.ask(arm, transcript.clone(), arm.timeout))
                    .collect();
                all(asking, &mut asked).await;
            }
            let mut parts = BTreeMap::new();
            let mut problems = Vec::new();
            let (mut sum, mut given, mut total) = (0.0, 0.0, 0.0);
            // What the first arm that found an answer found.
            let mut says = None;
            for (arm, asked) in self.arms.iter().zip(asked) {
                let asked = asked.expect("every arm was asked");
                let key = |what: &str| format!("arm/{}{what}", arm.name);
                parts.insert(key("/ms"), asked.took.as_secs_f64() * 1e3);
                parts.insert(key("/wait_ms"), asked.waited.as_secs_f64() * 1e3);
                let late = arm.late.swap(0, Ordering::Relaxed);
                if late > 0 {
                    parts.insert(key("/late"), late as f64);
                }
                total += arm.weight.abs();
                let value = match asked.outcome {
                    Ok(score) => {
                        for (name, part) in score.parts {
                            // One arm's numbers go by their own names, as if it were the scorer.
                            if self.arms.len() == 1 {
                                parts.insert(name.clone(), part);
                            }
                            parts.insert(key(&format!("/{name}")), part);
                        }
                        says = says.or(score.says);
                        score.value
                    }
                    Err(Missed::Late) => {
                        parts.insert(key("/timed_out"), 1.0);
                        arm.default
                    }
                    Err(Missed::Failed(error)) => {
                        parts.insert(key("/missing"), 1.0);
                        problems.push(format!("{}: {error}", arm.name));
                        continue;
                    }
                };
                parts.insert(key(""), value);
                sum += arm.weight * value;
                given += arm.weight.abs();
            }
            let is_any = given > 0.0 || (total == 0.0 && problems.len() < self.arms.len());
            if !is_any {
                return Err(ScoreError::NoArm {
                    problems: problems.join("; "),
                    parts,
                });
            }
            let scale = if given > 0.0 { total / given } else { 1.0 };
            Ok(Score {
                value: sum * scale,
                parts,
                says,
            })
        })
    }

    fn check(&self, ground_truth: &Value) -> Result<(), ScoreError> {
        self.arms.iter().try_for_each(|arm| match &arm.judge {
            Judges::One(scorer) => scorer.check(ground_truth),
            Judges::BySource => Ok(()),
        })
    }

    fn compares(&self) -> bool {
        self.arms.iter().any(|arm| match &arm.judge {
            Judges::One(scorer) => arm.weight != 0.0 && scorer.compares(),
            Judges::BySource => false,
        })
    }

    fn perfect_answers(&self, ground_truth: &Value) -> Vec<String> {
        let mut answers: Vec<String> = self
            .arms
            .iter()
            .filter_map(|arm| match &arm.judge {
                Judges::One(scorer) => Some(scorer.perfect_answers(ground_truth)),
                Judges::BySource => None,
            })
            .flatten()
            .collect();
        answers.dedup();
        answers
    }
}

/// Runs futures beside each other in one task.
async fn all<T>(futures: Vec<impl Future<Output = T>>, results: &mut [Option<T>]) {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).map(Some).collect();
    std::future::poll_fn(|context| {
        let mut is_pending = false;
        for (future, result) in futures.iter_mut().zip(results.iter_mut()) {
            if let Some(open) = future {
                match open.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => {
                        *result = Some(value);
                        *future = None;
                    }
                    std::task::Poll::Pending => is_pending = true,
                }
            }
        }
        if is_pending {
            std::task::Poll::Pending
        } else {
            std::task::Poll::Ready(())
        }
    })
    .await;
}

#[cfg(test)]
mod tests;

//! Evaluations: the val set under one version of the weights, beside whatever else is generated.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use dialogue::data::DataSet;
use dialogue::generate::Sampling;
use dialogue::rollout::{Finish, Rollout};
use dialogue::score::Scorers;
use dialogue::session::Batch;
use experiment::scorers::ScorerName;
use runlog::event::{EventKind, Lane};
use tokio::task::{JoinHandle, JoinSet};

use super::{Probing, Sampler, prompt};
use crate::choosing::Probed;
use crate::control::Held;
use crate::evaluate;
use crate::failure::Failure;
use crate::save;

/// An evaluation on its way. Dropped, its sessions are released.
pub(super) enum Evaluation {
    /// Its sessions are open, and ask for nothing yet.
    Open(Open),
    Running(JoinHandle<()>),
}

impl fmt::Debug for Evaluation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Open(_) => "Open",
            Self::Running(_) => "Running",
        })
    }
}

impl Drop for Evaluation {
    fn drop(&mut self) {
        if let Self::Running(task) = self {
            task.abort();
        }
    }
}

impl Evaluation {
    /// Lets it run.
    pub fn launch(&mut self) {
        if let Self::Open(run) = self {
            let run = std::mem::replace(run, Box::pin(async {}));
            *self = Self::Running(tokio::spawn(run));
        }
    }

    /// The end of one that may not be there: then never.
    pub async fn end_of(evaluation: &mut Option<Self>) -> Result<(), Failure> {
        match evaluation {
            Some(evaluation) => evaluation.end().await,
            None => std::future::pending().await,
        }
    }

    /// Waits for its end. Safe to give up and to ask again.
    pub async fn end(&mut self) -> Result<(), Failure> {
        self.launch();
        match self {
            Self::Running(task) => task
                .await
                .map_err(|error| Failure::Run(format!("the evaluation ended early: {error}"))),
            Self::Open(_) => unreachable!("it was launched"),
        }
    }
}

/// What is asked of a version of the weights.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked {
    /// The evaluation; a result that is not recorded is of one that was there before.
    pub val: Option<IsRecorded>,
    /// The bandit's probe.
    pub probe: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct IsRecorded(pub bool);

type Open = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Sampler {
    /// Opens what is asked of the engine's version, beside whatever else it generates.
    pub(super) fn open_evaluation(&mut self, asked: Asked) -> Result<(), Failure> {
        let mut opened: Vec<Open> = Vec::new();
        if let (Some(is_recorded), Some(val)) = (asked.val, &self.parts.dialogues.val) {
            opened.push(self.open_val(val, is_recorded)?);
            self.is_beside_evaluation = true;
        }
        if let (true, Some(probing)) = (asked.probe, &self.parts.probing) {
            opened.push(self.open_probe(probing)?);
        }
        if !opened.is_empty() {
            let run = async {
                opened.into_iter().collect::<JoinSet<()>>().join_all().await;
            };
            self.evaluation = Some(Evaluation::Open(Box::pin(run)));
        }
        Ok(())
    }

    /// The rows of a set, to be answered as evaluations are, by the engine's version.
    fn batch(&self, label: &str, rows: &DataSet) -> Result<Batch, Failure> {
        let rows = rows
            .scan()
            .map_err(Failure::run)?
            .collect::<Result<Vec<_>, _>>()
            .map_err(Failure::run)?;
        let rollout = &self.parts.experiment.actor_rollout_ref.rollout;
        Ok(Batch {
            label: format!("{label}-{}", self.held.version),
            prompts: rows.into_iter().map(|row| Arc::new(prompt(row))).collect(),
            samples: rollout.val_kwargs.n,
            sampling: Sampling::for_evaluation(rollout, &self.stop_ids),
            seed: rollout.seed,
            // A constant: every evaluation draws alike, so that only the weights differ.
            round: 0,
            observer: Arc::new(()),
        })
    }

    fn open_probe(&self, probing: &Probing) -> Result<Open, Failure> {
        let Held { version, rewinds } = self.held;
        let batch = self.batch("probe", &probing.rows)?;
        let mut runner = self.runner.clone();
        // Its answers are verified, whatever judges training.
        runner.scorers = Scorers::new(ScorerName::Auto);
        let opened = runner.open(&batch);
        let recorder = self.parts.recorder.clone();
        let probed = probing.probed.clone();
        Ok(Box::pin(async move {
            let name = format!("probe of version {version}");
            let span = recorder.span(Lane::Eval, name, Some(version));
            let rollouts = opened.run().await;
            span.end();
            let probe = Probed {
                version,
                rewinds,
                accuracy: accuracy(&rollouts),
            };
            // The learner may have ended before its last probe.
            probed.send(probe).ok();
        }))
    }

    fn open_val(&self, val: &DataSet, is_recorded: IsRecorded) -> Result<Open, Failure> {
        let version = self.held.version;
        let batch = self.batch("val", val)?;
        let mut runner = self.runner.clone();
        if let Some(name) = self.parts.experiment.reward.val_scorer {
            runner.scorers = Scorers::new(name);
        }
        let opened = runner.open(&batch);
        let recorder = self.parts.recorder.clone();
        let evaluated = self.parts.evaluated.clone();
        let answers = self.parts.answers.clone();
        Ok(Box::pin(async move {
            let span = recorder.span(Lane::Eval, format!("version {version}"), Some(version));
            let rollouts = opened.run().await;
            let elapsed_s = span.end() / 1e3;
            let cut = cut_short(&rollouts);
            if cut > 0 {
                // The mean of those that came through would be of the short ones.
                recorder.record(EventKind::Alarm {
                    name: "evaluation cut short".to_owned(),
                    step: Some(version),
                    message: format!(
                        "{cut} of {} dialogues of the evaluation at step {version} were cut short; it has no result",
                        rollouts.len()
                    ),
                });
                return;
            }
            let values = evaluate::values(&rollouts, elapsed_s);
            if !is_recorded.0 {
                return;
            }
            // Before the event: who sees it finds them.
            if let Some(path) = answers
                && let Err(error) = save::answers(&rollouts, version, &path)
            {
                recorder.record(EventKind::Alarm {
                    name: "answers not recorded".to_owned(),
                    step: Some(version),
                    message: error.to_string(),
                });
            }
            let ended = EventKind::EvalEnded {
                step: version,
                policy_version: version,
                samples: rollouts.len() as u64,
                values,
            };
            recorder.record(ended.clone());
            // The learner may have ended before its last evaluation.
            drop(evaluated.send(ended));
        }))
    }
}

fn cut_short(rollouts: &[Rollout]) -> usize {
    let cut = rollouts
        .iter()
        .filter(|rollout| rollout.finish == Finish::Aborted);
    cut.count()
}

/// Mean score of those that have one; NaN where some were cut short, or none has a score.
fn accuracy(rollouts: &[Rollout]) -> f64 {
    if cut_short(rollouts) > 0 {
        return f64::NAN;
    }
    let scores: Vec<f64> = rollouts
        .iter()
        .filter_map(|rollout| rollout.score)
        .collect();
    scores.iter().sum::<f64>() / scores.len() as f64
}

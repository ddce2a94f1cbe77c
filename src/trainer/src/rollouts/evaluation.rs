//! Evaluations: the val set under one version of the weights, beside whatever else is generated.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use dialogue::generate::Sampling;
use dialogue::rollout::Finish;
use dialogue::session::Batch;
use runlog::event::{EventKind, Lane};
use tokio::task::JoinHandle;

use super::{Sampler, prompt};
use crate::evaluate;
use crate::failure::Failure;
use crate::save;

/// An evaluation on its way. Dropped, its sessions are released.
pub(super) enum Evaluation {
    /// Its sessions are open, and ask for nothing yet.
    Open(Pin<Box<dyn Future<Output = ()> + Send>>),
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

impl Sampler {
    /// Opens an evaluation of the engine's version, beside whatever else it generates. A result that is not recorded is of one
    /// that was there before.
    pub(super) fn open_evaluation(&mut self, is_recorded: bool) -> Result<(), Failure> {
        let Some(val) = &self.parts.dialogues.val else {
            return Ok(());
        };
        let rows = val
            .scan()
            .map_err(Failure::run)?
            .collect::<Result<Vec<_>, _>>()
            .map_err(Failure::run)?;
        let rollout = &self.parts.experiment.actor_rollout_ref.rollout;
        let version = self.held.version;
        let batch = Batch {
            label: format!("val-{version}"),
            prompts: rows.into_iter().map(|row| Arc::new(prompt(row))).collect(),
            samples: rollout.val_kwargs.n,
            sampling: Sampling::for_evaluation(rollout, &self.stop_ids),
            seed: rollout.seed,
            // A constant: every evaluation draws alike, so that only the weights differ.
            round: 0,
            observer: Arc::new(()),
        };
        let opened = self.runner.open(&batch);
        let recorder = self.parts.recorder.clone();
        let evaluated = self.parts.evaluated.clone();
        let answers = self.parts.answers.clone();
        self.evaluation = Some(Evaluation::Open(Box::pin(async move {
            let span = recorder.span(Lane::Eval, format!("version {version}"), Some(version));
            let rollouts = opened.run().await;
            let elapsed_s = span.end() / 1e3;
            let cut = rollouts
                .iter()
                .filter(|rollout| rollout.finish == Finish::Aborted)
                .count();
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
            if !is_recorded {
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
        })));
        Ok(())
    }
}

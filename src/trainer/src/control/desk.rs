//! The socket thread's side of live control: what is refused at once, what waits for a boundary, and what is written of both.

use std::sync::{Arc, Mutex};

use runlog::control::{ALL_GUARDS, Applied, Board, Command, Job, Request};
use runlog::event::EventKind;
use runlog::number::Number;
use runlog::recorder::Recorder;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::{Doing, MAX_WAITING};
use crate::stop::Stop;

/// Queues commands, and passes `stop` on at once.
pub(super) struct Desk {
    pub sender: mpsc::Sender<Job>,
    pub doing: Arc<Mutex<Doing>>,
    pub board: Board,
    pub recorder: Recorder,
    pub stop: Stop,
}

impl Desk {
    /// A guard or an arm that the run does not have is refused at once; what it has is known once it is set up.
    fn names_something(&self, command: &Command) -> Result<(), String> {
        let (what, name, known): (_, _, Vec<String>) = match command {
            Command::Guard { guard, .. } if guard != ALL_GUARDS => {
                let guards = self.board.status().guards;
                let names = guards.into_iter().map(|guard| guard.name);
                ("guard", guard.as_str(), names.collect())
            }
            Command::Arm(order) => {
                let arms = self.board.status().arms;
                let names = arms.into_iter().map(|arm| arm.name);
                ("arm", order.arm().unwrap_or_default(), names.collect())
            }
            _ => return Ok(()),
        };
        if name.is_empty() || known.is_empty() || known.iter().any(|known| known == name) {
            return Ok(());
        }
        Err(format!(
            "no {what} is called `{name}`; there are {}",
            known.join(", ")
        ))
    }

    pub fn take(&mut self, job: Job) -> Result<String, (Job, String)> {
        let request = job.request().clone();
        let doing = *self.doing.lock().expect("no holder panics");
        if let (Doing::Finishing(reason), false) = (doing, request.command == Command::Stop) {
            return Err((job, reason.to_owned()));
        }
        if let Err(reason) = self.names_something(&request.command) {
            record_refused(&self.recorder, &request, self.board.status().step, &reason);
            return Err((job, reason));
        }
        // Counted before it is sent: the run takes one off for each that it applies.
        self.board.update(|status| status.waiting += 1);
        if let Err(error) = self.sender.try_send(job) {
            self.board.update(|status| status.waiting -= 1);
            return Err(match error {
                TrySendError::Full(job) => (
                    job,
                    format!("{MAX_WAITING} commands wait already; try again later"),
                ),
                TrySendError::Closed(job) => (job, "the run has ended".to_owned()),
            });
        }
        if request.command != Command::Stop {
            return Ok(doing.boundary());
        }
        let applied = Applied {
            step: self.board.status().step,
            ..Applied::default()
        };
        record_applied(&self.recorder, &request, &applied);
        self.board.update(|status| status.is_stopping = true);
        self.stop.ask();
        Ok(match doing {
            Doing::Training(step) => format!("after step {step}, with a checkpoint"),
            _ => "now, with a checkpoint".to_owned(),
        })
    }
}

pub(super) fn answer_applied(recorder: &Recorder, job: Job, applied: Applied) {
    record_applied(recorder, job.request(), &applied);
    job.applied(applied);
}

pub(super) fn answer_refused(recorder: &Recorder, job: Job, step: u64, reason: String) {
    record_refused(recorder, job.request(), step, &reason);
    job.refused(reason);
}

pub(super) fn record_refused(recorder: &Recorder, request: &Request, step: u64, reason: &str) {
    let (knob, to) = target(&request.command);
    recorder.record(EventKind::ControlRefused {
        request: request.id,
        who: request.who.clone(),
        command: request.command.name().to_owned(),
        step,
        target: request.command.target(),
        knob,
        to,
        reason: reason.to_owned(),
    });
}

pub(super) fn record_applied(recorder: &Recorder, request: &Request, applied: &Applied) {
    let (knob, _) = target(&request.command);
    recorder.record(EventKind::ControlApplied {
        request: request.id,
        who: request.who.clone(),
        command: request.command.name().to_owned(),
        step: applied.step,
        target: request.command.target(),
        before: applied.before.clone(),
        after: applied.after.clone(),
        until_step: applied.until_step,
        knob,
        from: applied.from,
        to: applied.to,
        from_step: applied.from_step,
    });
}

/// Key and value of a `set`.
fn target(command: &Command) -> (Option<String>, Option<Number>) {
    match command {
        Command::Set { knob, value } => (Some(knob.key.to_owned()), Some(Number(*value))),
        _ => (None, None),
    }
}

//! A batch on its way: begun, drawn (with `filter_groups` from several batches of prompts), not yet handed to the learner.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dialogue::data::Ticket;
use dialogue::rollout::Rollout;
use experiment::Experiment;
use runlog::recorder::SpanGuard;
use tokio::task::AbortHandle;

use super::Timing;
use super::observer::Observer;
use crate::control::{Begun, Dropped};
use crate::groups::{Gathered, OpenBatch};

/// One batch on its way. Dropped, its sessions are released.
#[derive(Debug)]
pub(super) struct Flight {
    pub begun: Begun,
    pub observer: Arc<Observer>,
    /// What its rows came from, to be marked as consumed when it is handed over.
    pub tickets: Vec<Ticket>,
    pub timing: Timing,
    /// Dialogues of all its draws.
    pub dialogues: u64,
    /// Which draw, from 0.
    pub number: u64,
    state: State,
    gathered: Option<Gathered>,
    /// What it gave, once it is drawn.
    drawn: Option<Vec<Rollout>>,
}

#[derive(Debug)]
enum State {
    /// Its sessions are open, and ask for nothing yet.
    Open(OpenBatch),
    Drawing {
        since: Instant,
        span: SpanGuard,
        task: AbortHandle,
    },
    /// Between two draws, or drawn.
    Idle,
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let State::Drawing { task, .. } = &self.state {
            task.abort();
        }
    }
}

impl Flight {
    pub fn new(
        begun: Begun,
        experiment: &Experiment,
        observer: Arc<Observer>,
        wait_learner: Duration,
    ) -> Self {
        Self {
            begun,
            observer,
            tickets: Vec::new(),
            timing: Timing {
                wait_learner_s: wait_learner.as_secs_f64(),
                ..Timing::default()
            },
            dialogues: 0,
            number: 0,
            state: State::Idle,
            gathered: Gathered::new(experiment),
            drawn: None,
        }
    }

    /// Another batch of prompts for it, whose sessions are open.
    pub fn opens(&mut self, batch: OpenBatch, ticket: Ticket, dialogues: u64) {
        self.timing.epoch = ticket.epoch;
        self.tickets.push(ticket);
        self.dialogues += dialogues;
        self.state = State::Open(batch);
    }

    /// The open batch, to be run by a task that [`Flight::draws`] is then given.
    pub fn take_open(&mut self) -> Option<OpenBatch> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Open(batch) => Some(batch),
            other => {
                self.state = other;
                None
            }
        }
    }

    pub fn draws(&mut self, span: SpanGuard, task: AbortHandle) {
        self.state = State::Drawing {
            since: Instant::now(),
            span,
            task,
        };
    }

    /// Not everything that it needs is drawn.
    pub fn is_drawing(&self) -> bool {
        self.drawn.is_none()
    }

    /// Dialogues that still run and do not wait for a tool or their score: those that the engine has, or will have soon.
    pub fn engaged(&self) -> u64 {
        let idle = self.observer.ended() + self.observer.away();
        self.dialogues.saturating_sub(idle)
    }

    /// Takes a draw in. `lane_ended`: when the draw before it ended, of whichever batch. Whether another draw is wanted; an
    /// alarm, when there are none left to want.
    pub fn takes(&mut self, rollouts: Vec<Rollout>, lane_ended: Instant) -> (bool, Option<String>) {
        if let State::Drawing { since, span, .. } = std::mem::replace(&mut self.state, State::Idle)
        {
            self.timing.generate_s += span.end() / 1e3;
            self.timing.lane_s += since.max(lane_ended).elapsed().as_secs_f64();
        }
        self.timing.reward_s += rollouts
            .iter()
            .map(|rollout| rollout.reward_ms)
            .sum::<f64>()
            / 1e3;
        let Some(gathered) = &mut self.gathered else {
            self.drawn = Some(rollouts);
            return (false, None);
        };
        if gathered.take(&rollouts) {
            self.number += 1;
            return (true, None);
        }
        let gathered = self.gathered.take().expect("it is there");
        let (rollouts, groups_per_kept, alarm) = gathered.finish();
        self.timing.groups_per_kept = Some(groups_per_kept);
        self.drawn = Some(rollouts);
        (false, alarm)
    }

    /// What it gave; None while it is drawing.
    pub fn take_drawn(&mut self) -> Option<Vec<Rollout>> {
        let drawn = self.drawn.take()?;
        self.timing.begun_again = self.observer.begun_again();
        Some(drawn)
    }

    /// What is lost when it is dropped now: all of its dialogues, and the tokens of those that had ended.
    pub fn lost(&self) -> Dropped {
        Dropped {
            rollouts: self.dialogues,
            tokens: self.observer.tokens(),
        }
    }
}

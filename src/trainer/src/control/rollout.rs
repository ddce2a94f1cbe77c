//! The knobs of the rollout side, which runs ahead of the learner: a batch takes them when it is begun and keeps them.

use std::sync::Mutex;

use dialogue::data::Cursor;
use tokio::sync::Notify;

use super::Change;
use super::admission::{Admission, Held, MAX_STALENESS};

/// What one batch is drawn under, from its first token to its last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    pub temperature: f64,
    /// Policy versions the batch may lag.
    pub staleness: u64,
}

/// A batch that was begun.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Begun {
    /// The step that trains on it.
    pub batch: u64,
    pub draw: Draw,
    /// Rewinds before it was begun.
    pub rewinds: u64,
}

/// Rollouts that are not trained on: drawn from weights that the run went back behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    pub rollouts: u64,
    /// Drawn by the model, in those that had ended.
    pub tokens: u64,
}

/// Where the data goes on after a rewind.
#[derive(Debug, Clone, PartialEq)]
pub struct Rewound {
    /// None: at its beginning.
    pub cursor: Option<Cursor>,
}

/// Written by the run at step boundaries, read by the sampler when it begins a batch.
#[derive(Debug)]
pub struct RolloutKnobs {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug)]
struct Inner {
    temperature: f64,
    /// Weights are taken in as they come, not only when a batch needs them: `trainer.mode` async.
    takes_newest: bool,
    admission: Admission,
    /// A rewind that the sampler has not followed yet.
    rewound: Option<Rewound>,
    /// Since it was last asked for.
    dropped: Dropped,
}

impl RolloutKnobs {
    pub fn new(draw: Draw, total_steps: u64) -> Self {
        Self::resumed(draw, 0, total_steps)
    }

    /// For a run that has trained `trained` steps before.
    pub fn resumed(draw: Draw, trained: u64, total_steps: u64) -> Self {
        Self {
            inner: Mutex::new(Inner {
                temperature: draw.temperature,
                takes_newest: false,
                admission: Admission::new(draw.staleness, trained, total_steps),
                rewound: None,
                dropped: Dropped::default(),
            }),
            changed: Notify::new(),
        }
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder panics")
    }

    /// What a batch begun now would be drawn under.
    pub fn draw(&self) -> Draw {
        self.inner().draw()
    }

    /// Whether `held` are the weights that are waited for: new enough for the next batch, or the last when all are begun.
    pub fn is_held(&self, held: Held) -> bool {
        self.inner().admission.is_held(held)
    }

    /// The batch to begin next; None: all are begun.
    pub fn next(&self) -> Option<u64> {
        self.inner().admission.next()
    }

    /// Begins the next batch from `held`. None: newer weights are needed (the bound was lowered meanwhile, or the learner went
    /// back), or all batches are begun.
    pub fn begin(&self, held: Held) -> Option<Begun> {
        let mut inner = self.inner();
        let draw = inner.draw();
        let ticket = inner.admission.begin(held)?;
        Some(Begun {
            batch: ticket.batch,
            draw,
            rewinds: ticket.rewinds,
        })
    }

    /// Waits for the next change, or comes back at once when there was one since the last call.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    pub fn set_temperature(&self, value: f64) -> Result<Change, String> {
        self.set(|inner| std::mem::replace(&mut inner.temperature, value))
    }

    pub fn set_staleness(&self, value: u64) -> Result<Change, String> {
        if value > MAX_STALENESS {
            return Err(format!("{value} is above {MAX_STALENESS} policy versions"));
        }
        self.set(|inner| {
            let from = inner.admission.bound();
            inner.admission.set_bound(value);
            from as f64
        })
    }

    /// Whether weights are taken in as they come, and (with partial rollouts) into batches in flight.
    pub fn takes_newest(&self) -> bool {
        self.inner().takes_newest
    }

    pub fn set_takes_newest(&self, takes_newest: bool) {
        self.inner().takes_newest = takes_newest;
        self.changed.notify_one();
    }

    fn set(&self, change: impl FnOnce(&mut Inner) -> f64) -> Result<Change, String> {
        let mut inner = self.inner();
        let Some(from_step) = inner.admission.next() else {
            return Err("every batch of this run is begun; it would change none".to_owned());
        };
        let from = change(&mut inner);
        // One waiter, and a permit for it if it does not wait yet: no change is missed.
        self.changed.notify_one();
        Ok(Change {
            from,
            from_step,
            note: None,
        })
    }

    /// The learner went back to older weights after `trained` steps; steps and versions go on counting. What is in flight or
    /// queued is dropped, and the data goes on at `cursor` (None: at its beginning). Batch `trained` + 1 begins once the learner
    /// has published the restored weights, which the run's loop does at the next boundary.
    pub fn rewind(&self, trained: u64, cursor: Option<Cursor>) {
        let mut inner = self.inner();
        inner.admission.rewind(trained);
        inner.rewound = Some(Rewound { cursor });
        self.changed.notify_one();
    }

    /// Rewinds so far. A batch that was begun after another number of them is void.
    pub fn rewinds(&self) -> u64 {
        self.inner().admission.rewinds()
    }

    /// Whether a batch that was begun after so many rewinds still counts.
    pub fn is_valid(&self, rewinds: u64) -> bool {
        self.inner().admission.is_valid(rewinds)
    }

    /// Counts what is dropped, on either side.
    pub fn dropped(&self, dropped: Dropped) {
        let sum = &mut self.inner().dropped;
        sum.rollouts += dropped.rollouts;
        sum.tokens += dropped.tokens;
    }

    /// All that was dropped since the last call.
    pub fn take_dropped(&self) -> Dropped {
        std::mem::take(&mut self.inner().dropped)
    }

    /// The last rewind, given once.
    pub fn take_rewind(&self) -> Option<Rewound> {
        self.inner().rewound.take()
    }
}

impl Inner {
    fn draw(&self) -> Draw {
        Draw {
            temperature: self.temperature,
            staleness: self.admission.bound(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs(staleness: u64, trained: u64) -> RolloutKnobs {
        let draw = Draw {
            temperature: 1.0,
            staleness,
        };
        RolloutKnobs::resumed(draw, trained, 4)
    }

    fn held(version: u64) -> Held {
        Held {
            version,
            rewinds: 0,
        }
    }

    #[test]
    fn a_change_counts_from_the_next_batch_that_is_begun() {
        let knobs = knobs(1, 0);
        let temperature = |version| {
            knobs
                .begin(held(version))
                .map(|begun| begun.draw.temperature)
        };
        assert_eq!(temperature(0), Some(1.0));
        let change = knobs.set_temperature(0.5).unwrap();
        assert_eq!(
            change,
            Change {
                from: 1.0,
                from_step: 2,
                note: None,
            }
        );
        assert_eq!(temperature(0), Some(0.5));
    }

    #[test]
    fn a_lowered_bound_holds_for_the_batch_that_is_begun_next() {
        let knobs = knobs(1, 2);
        assert_eq!(knobs.begin(held(1)).map(|begun| begun.batch), Some(3));
        knobs.set_staleness(0).unwrap();
        assert_eq!(knobs.begin(held(2)), None, "version 2 lags batch 4 by one");
        assert_eq!(
            knobs.begin(held(3)).map(|begun| begun.draw.staleness),
            Some(0)
        );
    }

    #[test]
    fn when_every_batch_is_begun_a_change_is_refused() {
        let knobs = knobs(1, 3);
        assert!(knobs.begin(held(3)).is_some());
        assert!(knobs.set_temperature(0.5).is_err());
        assert_eq!(knobs.draw().temperature, 1.0);
    }

    #[test]
    fn a_rewind_hands_the_cursor_over_once_and_voids_what_was_begun() {
        let knobs = knobs(1, 3);
        let begun = knobs.begin(held(3)).unwrap();
        knobs.rewind(3, None);
        assert_ne!(begun.rewinds, knobs.rewinds());
        assert_eq!(
            (knobs.take_rewind(), knobs.take_rewind()),
            (Some(Rewound { cursor: None }), None)
        );
        assert_eq!(knobs.next(), Some(4), "it is drawn again");
        assert_eq!(
            knobs.begin(held(3)),
            None,
            "from weights that were left behind"
        );
    }
}

//! The knobs of the rollout side, which runs ahead of the learner: a batch takes them when it is begun and keeps them.

use std::sync::Mutex;

use tokio::sync::Notify;

use super::Change;

/// What one batch is drawn under, from its first token to its last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    pub temperature: f64,
    /// Policy versions the batch may lag.
    pub staleness: u64,
}

/// Written by the run at step boundaries, read by the sampler when it begins a batch.
#[derive(Debug)]
pub struct RolloutKnobs {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug)]
struct Inner {
    draw: Draw,
    /// The last batch that was begun.
    begun: u64,
    total_steps: u64,
}

impl RolloutKnobs {
    /// `begun`: batches of an earlier part of this run, 0 for a new one.
    pub fn new(draw: Draw, begun: u64, total_steps: u64) -> Self {
        Self {
            inner: Mutex::new(Inner {
                draw,
                begun,
                total_steps,
            }),
            changed: Notify::new(),
        }
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder panics")
    }

    /// What a batch begun now would be drawn under.
    pub fn draw(&self) -> Draw {
        self.inner().draw
    }

    /// The version of the weights that batch `batch` (from 1) needs now: max(0, batch − 1 − staleness).
    pub fn wanted_version(&self, batch: u64) -> u64 {
        self.inner().wanted_version(batch)
    }

    /// Begins `batch` with the weights of `version`. None: the bound was lowered meanwhile, and newer weights are needed.
    pub fn begin(&self, batch: u64, version: u64) -> Option<Draw> {
        let mut inner = self.inner();
        if version < inner.wanted_version(batch) {
            return None;
        }
        inner.begun = batch;
        Some(inner.draw)
    }

    /// Waits for the next change, or comes back at once when there was one since the last call.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    pub fn set_temperature(&self, value: f64) -> Result<Change, String> {
        self.set(|draw| std::mem::replace(&mut draw.temperature, value))
    }

    pub fn set_staleness(&self, value: u64) -> Result<Change, String> {
        self.set(|draw| std::mem::replace(&mut draw.staleness, value) as f64)
    }

    fn set(&self, change: impl FnOnce(&mut Draw) -> f64) -> Result<Change, String> {
        let mut inner = self.inner();
        let from_step = inner.begun + 1;
        if from_step > inner.total_steps {
            return Err("every batch of this run is begun; it would change none".to_owned());
        }
        let from = change(&mut inner.draw);
        // One waiter, and a permit for it if it does not wait yet: no change is missed.
        self.changed.notify_one();
        Ok(Change { from, from_step })
    }
}

impl Inner {
    fn wanted_version(&self, batch: u64) -> u64 {
        (batch - 1).saturating_sub(self.draw.staleness)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs(staleness: u64) -> RolloutKnobs {
        let draw = Draw {
            temperature: 1.0,
            staleness,
        };
        RolloutKnobs::new(draw, 0, 4)
    }

    #[test]
    fn a_change_counts_from_the_next_batch_that_is_begun() {
        let knobs = knobs(1);
        assert_eq!(knobs.begin(1, 0).map(|draw| draw.temperature), Some(1.0));
        let change = knobs.set_temperature(0.5).unwrap();
        assert_eq!(
            change,
            Change {
                from: 1.0,
                from_step: 2
            }
        );
        assert_eq!(knobs.begin(2, 0).map(|draw| draw.temperature), Some(0.5));
    }

    #[test]
    fn a_lowered_bound_holds_for_the_batch_that_is_begun_next() {
        let knobs = knobs(1);
        assert!(knobs.begin(3, 1).is_some());
        knobs.set_staleness(0).unwrap();
        assert_eq!(knobs.begin(4, 2), None, "version 2 lags batch 4 by one");
        assert_eq!(knobs.begin(4, 3).map(|draw| draw.staleness), Some(0));
    }

    #[test]
    fn when_every_batch_is_begun_a_change_is_refused() {
        let knobs = knobs(1);
        assert!(knobs.begin(4, 3).is_some());
        assert!(knobs.set_temperature(0.5).is_err());
        assert_eq!(knobs.draw().temperature, 1.0);
    }
}

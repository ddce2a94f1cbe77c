//! What sessions wait for: every wait has a name, an owner, an age and mostly a deadline, so that "why does nothing happen"
//! has an answer while it does not happen.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::SessionLabel;

/// The waits of every session of a run, now. Cheap to clone; clones share.
#[derive(Debug, Clone, Default)]
pub struct Waits(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    next: AtomicU64,
    open: Mutex<BTreeMap<u64, Open>>,
}

#[derive(Debug, Clone)]
struct Open {
    name: String,
    owner: SessionLabel,
    row_index: u64,
    since: Instant,
    deadline: Option<Instant>,
}

/// A wait; dropped, it is over.
#[derive(Debug)]
pub struct Wait {
    waits: Waits,
    id: u64,
}

/// The sessions that wait for one thing.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// `generator`, `tool search`, `score`.
    pub name: String,
    pub sessions: u64,
    /// The session that has waited longest, the row of the data it is of, and for how long.
    pub owner: SessionLabel,
    pub row_index: u64,
    pub age: Duration,
    /// Until that one is given up; None: nothing gives it up.
    pub left: Option<Duration>,
}

impl Waits {
    pub fn enter(
        &self,
        owner: &SessionLabel,
        row_index: u64,
        name: String,
        deadline: Option<Instant>,
    ) -> Wait {
        // Only uniqueness matters.
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let wait = Open {
            name,
            owner: owner.clone(),
            row_index,
            since: Instant::now(),
            deadline,
        };
        self.open().insert(id, wait);
        Wait {
            waits: self.clone(),
            id,
        }
    }

    /// By name; the name with the oldest wait first.
    pub fn now(&self) -> Vec<Waiting> {
        let now = Instant::now();
        let mut found: BTreeMap<String, Waiting> = BTreeMap::new();
        for open in self.open().values() {
            let age = now.saturating_duration_since(open.since);
            let waiting = || Waiting {
                name: open.name.clone(),
                sessions: 0,
                owner: open.owner.clone(),
                row_index: open.row_index,
                age,
                left: open
                    .deadline
                    .map(|deadline| deadline.saturating_duration_since(now)),
            };
            let known = found.entry(open.name.clone()).or_insert_with(waiting);
            let sessions = known.sessions + 1;
            if age > known.age {
                *known = waiting();
            }
            known.sessions = sessions;
        }
        let mut found: Vec<Waiting> = found.into_values().collect();
        found.sort_by_key(|waiting| std::cmp::Reverse(waiting.age));
        found
    }

    fn open(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Open>> {
        // A panic of a holder would have to be in a map's own code.
        self.0
            .open
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.waits.open().remove(&self.id);
    }
}

//! What a run waits for: every wait has a name, an owner, an age and mostly a deadline, so that "why does nothing happen"
//! has an answer while it does not happen. Most owners are sessions; the others are parts of the run, such as its learner.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::SessionLabel;

/// The waits of a run, now. Cheap to clone; clones share.
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
    owner: Owner,
    since: Instant,
    deadline: Option<Instant>,
}

/// Who waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// A dialogue, and the row of the data it is of.
    Session { label: SessionLabel, row_index: u64 },
    /// A part of the run: `learner`, `rollouts`, `reward`.
    Part(&'static str),
}

/// A wait; dropped, it is over.
#[derive(Debug)]
pub struct Wait {
    waits: Waits,
    id: u64,
}

/// Those that wait for one thing.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// `generator`, `tool search`, `score`; of a part of the run `the rollouts of step 12`.
    pub name: String,
    /// How many sessions do: 0 where a part of the run does.
    pub sessions: u64,
    /// Who has waited longest, and for how long.
    pub owner: Owner,
    pub age: Duration,
    /// Until that one is given up; None: nothing gives it up.
    pub left: Option<Duration>,
}

impl Waits {
    pub fn enter(&self, owner: Owner, name: String, deadline: Option<Instant>) -> Wait {
        // Only uniqueness matters.
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let wait = Open {
            name,
            owner,
            since: Instant::now(),
            deadline,
        };
        self.open().insert(id, wait);
        Wait {
            waits: self.clone(),
            id,
        }
    }

    /// By name, sessions apart from parts of the run; the name with the oldest wait first.
    pub fn now(&self) -> Vec<Waiting> {
        let now = Instant::now();
        let mut found: BTreeMap<(String, Option<&'static str>), Waiting> = BTreeMap::new();
        for open in self.open().values() {
            let age = now.saturating_duration_since(open.since);
            let waiting = || Waiting {
                name: open.name.clone(),
                sessions: 0,
                owner: open.owner.clone(),
                age,
                left: open
                    .deadline
                    .map(|deadline| deadline.saturating_duration_since(now)),
            };
            let part = match &open.owner {
                Owner::Session { .. } => None,
                Owner::Part(part) => Some(*part),
            };
            let known = found
                .entry((open.name.clone(), part))
                .or_insert_with(waiting);
            let sessions = known.sessions + u64::from(part.is_none());
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

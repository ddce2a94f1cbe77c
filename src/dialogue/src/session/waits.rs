//! What a run waits for: every wait has a name, an owner, an age and a deadline, so that "why does nothing happen" has an
//! answer while it does not happen. Most owners are sessions, which are given up at their deadline; the others are parts of
//! the run, such as its learner, which nothing gives up: theirs is when an alarm says so.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::SessionLabel;

/// How often it is looked whether alarms are due where there are none.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);

/// The waits of a run, now. Cheap to clone; clones share.
#[derive(Debug, Clone, Default)]
pub struct Waits(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    next: AtomicU64,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    open: BTreeMap<u64, Open>,
    /// Of a part of the run, until an alarm says so; None: there is none.
    patience: Option<Duration>,
}

#[derive(Debug, Clone)]
struct Open {
    name: String,
    owner: Owner,
    since: Instant,
    until: Until,
}

#[derive(Debug, Clone, Copy)]
enum Until {
    GivenUp(Instant),
    Alarm(Instant),
    Endless,
}

impl Until {
    fn given_up(deadline: Option<Instant>) -> Self {
        deadline.map_or(Self::Endless, Self::GivenUp)
    }

    fn alarm(since: Instant, patience: Option<Duration>) -> Self {
        patience
            .and_then(|patience| since.checked_add(patience))
            .map_or(Self::Endless, Self::Alarm)
    }
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
    /// Until an alarm says that it waits, where nothing gives it up.
    pub alarm: Option<Duration>,
}

impl Waits {
    /// How long a part of the run waits before an alarm says so, of the waits that begin from now on; None: no alarm.
    pub fn alarm_after(&self, patience: Option<Duration>) {
        self.book().patience = patience;
    }

    /// What is given up at `deadline`; None: never.
    pub fn enter(&self, owner: Owner, name: String, deadline: Option<Instant>) -> Wait {
        let mut book = self.book();
        self.open(&mut book, owner, name, Until::given_up(deadline))
    }

    /// A part of the run waits, and nothing gives that up.
    pub fn enter_part(&self, part: &'static str, name: String) -> Wait {
        let mut book = self.book();
        let until = Until::alarm(Instant::now(), book.patience);
        self.open(&mut book, Owner::Part(part), name, until)
    }

    fn open(&self, book: &mut Book, owner: Owner, name: String, until: Until) -> Wait {
        // Only uniqueness matters.
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        let open = Open {
            name,
            owner,
            since,
            until,
        };
        book.open.insert(id, open);
        Wait {
            waits: self.clone(),
            id,
        }
    }

    /// Comes back when alarms are due, with the waits that they are of; each is due again after as long a time. Safe to give up.
    pub async fn overdue(&self) -> Vec<Waiting> {
        loop {
            let (overdue, next) = self.take_overdue();
            if !overdue.is_empty() {
                return overdue;
            }
            tokio::time::sleep_until(next).await;
        }
    }

    /// Also when to look again: no alarm is due before.
    fn take_overdue(&self) -> (Vec<Waiting>, Instant) {
        let now = Instant::now();
        let mut book = self.book();
        let patience = book.patience.unwrap_or(LOOK_AGAIN);
        let mut next = now.checked_add(patience).unwrap_or(now + LOOK_AGAIN);
        let mut overdue = Vec::new();
        for open in book.open.values_mut() {
            let Until::Alarm(at) = open.until else {
                continue;
            };
            if at <= now {
                overdue.push(open.waiting(now));
                open.until = Until::alarm(now, Some(patience));
            } else {
                next = next.min(at);
            }
        }
        (overdue, next)
    }

    /// By name, sessions apart from parts of the run; the name with the oldest wait first.
    pub fn now(&self) -> Vec<Waiting> {
        let now = Instant::now();
        let mut found: BTreeMap<(String, Option<&'static str>), Waiting> = BTreeMap::new();
        for open in self.book().open.values() {
            let waiting = || open.waiting(now);
            let part = match &open.owner {
                Owner::Session { .. } => None,
                Owner::Part(part) => Some(*part),
            };
            let known = found
                .entry((open.name.clone(), part))
                .or_insert_with(waiting);
            let sessions = known.sessions + u64::from(part.is_none());
            if waiting().age > known.age {
                *known = waiting();
            }
            known.sessions = sessions;
        }
        let mut found: Vec<Waiting> = found.into_values().collect();
        found.sort_by_key(|waiting| std::cmp::Reverse(waiting.age));
        found
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        // A panic of a holder would have to be in a map's own code.
        self.0
            .book
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Open {
    fn waiting(&self, now: Instant) -> Waiting {
        let left = |until: Instant| Some(until.saturating_duration_since(now));
        let (left, alarm) = match self.until {
            Until::GivenUp(at) => (left(at), None),
            Until::Alarm(at) => (None, left(at)),
            Until::Endless => (None, None),
        };
        Waiting {
            name: self.name.clone(),
            sessions: 0,
            owner: self.owner.clone(),
            age: now.saturating_duration_since(self.since),
            left,
            alarm,
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.waits.book().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn a_part_that_waits_long_is_told_and_told_again() {
        let waits = Waits::default();
        waits.alarm_after(Some(HOUR));
        let told = tokio::spawn({
            let waits = waits.clone();
            async move {
                let mut told = Vec::new();
                for _ in 0..3 {
                    told.extend(waits.overdue().await);
                }
                told
            }
        });
        // Over before it is due; then one that begins later than the look does.
        tokio::time::sleep(HOUR / 4).await;
        drop(waits.enter_part("learner", "the rollouts of step 1".to_owned()));
        let _swap = waits.enter_part("rollouts", "weights 2 to be swapped in".to_owned());
        tokio::time::sleep(HOUR / 4).await;
        let _wait = waits.enter_part("learner", "the rollouts of step 2".to_owned());
        let told = told.await.expect("it only waits");
        let told: Vec<(&str, u64)> = told
            .iter()
            .map(|told| (&*told.name, told.age.as_secs() / 60))
            .collect();
        assert_eq!(
            told,
            [
                ("weights 2 to be swapped in", 60),
                ("the rollouts of step 2", 60),
                ("weights 2 to be swapped in", 120),
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_and_what_is_given_up_give_no_alarm() {
        let waits = Waits::default();
        let owner = Owner::Session {
            label: SessionLabel {
                uid: "train-1-0".to_owned(),
                sample: 0,
            },
            row_index: 0,
        };
        let _endless = waits.enter(owner, "generator".to_owned(), None);
        let tried = Instant::now().checked_add(HOUR / 60);
        let _tried = waits.enter(Owner::Part("reward"), "arm rule".to_owned(), tried);
        let _before = waits.enter_part("learner", "the rollouts of step 1".to_owned());
        waits.alarm_after(Some(HOUR));
        let _after = waits.enter_part("learner", "the rollouts of step 2".to_owned());
        let told = waits.overdue().await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].name, "the rollouts of step 2");
    }
}

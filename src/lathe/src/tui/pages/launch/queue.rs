//! Runs that were ordered, in order, and how many of them go at a time. Pure; belongs to this process: what has not started
//! ends with it.

use crate::launch::Order;
use crate::tui::shared::{RunKey, RunList};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    Waiting,
    /// The job that starts it has not answered.
    Starting,
    Running(RunKey),
    /// With the word for how it ended.
    Ended(RunKey, &'static str),
    Failed(String),
}

#[derive(Debug)]
pub struct Item {
    pub id: u64,
    pub name: String,
    pub order: Order,
    pub stage: Stage,
    /// It is the only one of its launch.
    pub is_alone: bool,
    /// Shown on page Live when it has started.
    pub is_shown: bool,
}

#[derive(Debug, Default)]
pub struct Queue {
    items: Vec<Item>,
    next_id: u64,
}

impl Queue {
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    pub fn push(&mut self, name: String, order: Order, is_alone: bool, is_shown: bool) {
        self.items.push(Item {
            id: self.next_id,
            name,
            order,
            stage: Stage::Waiting,
            is_alone,
            is_shown,
        });
        self.next_id += 1;
    }

    pub fn waiting(&self) -> usize {
        self.count(|stage| *stage == Stage::Waiting)
    }

    pub fn going(&self) -> usize {
        self.count(|stage| matches!(stage, Stage::Starting | Stage::Running(_)))
    }

    fn count(&self, fits: impl Fn(&Stage) -> bool) -> usize {
        self.items.iter().filter(|item| fits(&item.stage)).count()
    }

    /// What may start now, marked as starting.
    pub fn due(&mut self, at_once: usize) -> Vec<(u64, Order)> {
        let mut room = at_once.saturating_sub(self.going());
        let mut due = Vec::new();
        for item in &mut self.items {
            if room == 0 {
                break;
            }
            if item.stage == Stage::Waiting {
                item.stage = Stage::Starting;
                due.push((item.id, item.order.clone()));
                room -= 1;
            }
        }
        due
    }

    /// Whatever waits and fits, however many are going, marked as starting.
    pub fn all_due(&mut self, is_wanted: &dyn Fn(&Order) -> bool) -> Vec<(u64, Order)> {
        let mut due = Vec::new();
        for item in &mut self.items {
            if item.stage == Stage::Waiting && is_wanted(&item.order) {
                item.stage = Stage::Starting;
                due.push((item.id, item.order.clone()));
            }
        }
        due
    }

    /// The answer of the job that started it.
    pub fn started(&mut self, id: u64, outcome: Result<RunKey, String>) -> Option<&Item> {
        let item = self.items.iter_mut().find(|item| item.id == id)?;
        item.stage = match outcome {
            Ok(key) => Stage::Running(key),
            Err(reason) => Stage::Failed(reason),
        };
        Some(item)
    }

    /// Learns from the list of runs what has ended; true: something did.
    pub fn look(&mut self, runs: &RunList) -> bool {
        let mut is_changed = false;
        for item in &mut self.items {
            let Stage::Running(key) = &item.stage else {
                continue;
            };
            // Not in the list yet: it has only just been made.
            if let Some(entry) = runs.find(key)
                && !entry.is_running()
            {
                item.stage = Stage::Ended(key.clone(), entry.state_word());
                is_changed = true;
            }
        }
        is_changed
    }

    /// Takes a waiting one out; a started one stays.
    pub fn cancel(&mut self, at: usize) -> bool {
        let is_waiting = self
            .items
            .get(at)
            .is_some_and(|item| item.stage == Stage::Waiting);
        if is_waiting {
            self.items.remove(at);
        }
        is_waiting
    }

    /// Takes out what has ended or failed.
    pub fn clear_done(&mut self) {
        self.items
            .retain(|item| !matches!(item.stage, Stage::Ended(..) | Stage::Failed(_)));
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::launch::Job;

    fn order() -> Order {
        Order {
            target: None,
            job: Job::Run,
            experiment: PathBuf::from("a.yaml"),
            overrides: Vec::new(),
            name: None,
            runs_root: PathBuf::from("runs"),
            parent: None,
            command: Vec::new(),
        }
    }

    fn queue(count: usize) -> Queue {
        let mut queue = Queue::default();
        for index in 0..count {
            queue.push(format!("run {index}"), order(), false, false);
        }
        queue
    }

    fn ids(due: &[(u64, Order)]) -> Vec<u64> {
        due.iter().map(|(id, _)| *id).collect()
    }

    #[test]
    fn no_more_go_at_once_than_allowed_and_a_failure_makes_room() {
        let mut queue = queue(4);
        assert_eq!(ids(&queue.due(2)), [0, 1]);
        assert!(queue.due(2).is_empty());
        let key = RunKey::new(Path::new("runs/a"));
        queue.started(0, Ok(key.clone()));
        assert!(queue.due(2).is_empty());
        queue.started(1, Err("no model".to_owned()));
        assert_eq!(ids(&queue.due(2)), [2]);
        assert_eq!((queue.going(), queue.waiting()), (2, 1));
        assert!(!queue.look(&RunList::default()), "not in the list yet");
        assert_eq!(queue.items()[0].stage, Stage::Running(key));
    }

    #[test]
    fn only_what_waits_can_be_taken_out() {
        let mut queue = queue(2);
        queue.due(1);
        assert!(!queue.cancel(0));
        assert!(queue.cancel(1));
        assert!(!queue.cancel(1));
        queue.started(0, Err("no".to_owned()));
        queue.clear_done();
        assert!(queue.items().is_empty());
    }
}

//! Workers that wait for work. There is one for each call at once, and the arm bounds those.

use std::sync::Mutex;

use experiment::arms::Python as Settings;

use super::super::ScoreError;
use super::worker::Worker;

#[derive(Debug)]
pub struct Pool {
    settings: Settings,
    idle: Mutex<Vec<Worker>>,
}

impl Pool {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            idle: Mutex::new(Vec::new()),
        }
    }

    /// A worker that is ready, started if none is.
    pub async fn take(&self) -> Result<Worker, ScoreError> {
        loop {
            let waiting = self.idle().pop();
            match waiting {
                // It may have died in its sleep.
                Some(mut worker) => {
                    if worker.is_alive() {
                        return Ok(worker);
                    }
                }
                None => break,
            }
        }
        Worker::start(&self.settings)
            .await
            .map_err(ScoreError::Failed)
    }

    pub fn give_back(&self, worker: Worker) {
        if self.settings.calls.is_none_or(|most| worker.calls() < most) {
            self.idle().push(worker);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Worker>> {
        self.idle
            .lock()
            .expect("nothing panics while it holds the lock")
    }
}

//! Processes that wait for work. There is one for each call at once, and who asks bounds those.

use std::fmt;
use std::sync::{Mutex, MutexGuard};

use super::Process;
use crate::generate::BoxFuture;

/// Starts a process and waits until it is ready; the error says why there is none.
pub(crate) type StartProcess =
    Box<dyn Fn() -> BoxFuture<'static, Result<Process, String>> + Send + Sync>;

pub(crate) struct Pool {
    start: StartProcess,
    /// Calls after which a process is replaced.
    most_calls: Option<u64>,
    idle: Mutex<Vec<Process>>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Pool")
            .field("idle", &self.idle().len())
            .finish_non_exhaustive()
    }
}

impl Pool {
    pub fn new(start: StartProcess, most_calls: Option<u64>) -> Self {
        Self {
            start,
            most_calls,
            idle: Mutex::default(),
        }
    }

    /// A process that is ready, started if none is.
    pub async fn take(&self) -> Result<Process, String> {
        loop {
            let waiting = self.idle().pop();
            match waiting {
                // It may have died in its sleep.
                Some(mut process) => {
                    if process.is_alive() {
                        return Ok(process);
                    }
                }
                None => return (self.start)().await,
            }
        }
    }

    /// For the next call, unless it has had its share.
    pub fn give_back(&self, process: Process) {
        if self.most_calls.is_none_or(|most| process.calls() < most) {
            self.idle().push(process);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Process>> {
        self.idle
            .lock()
            .expect("nothing panics while it holds the lock")
    }
}

//! Runs someone else's code so that its panic or its endless wait costs that call only.

use std::future::Future;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

/// Why isolated work gave no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Interrupted {
    #[error("gave no answer within {limit_s} s")]
    TimedOut { limit_s: f64 },
    #[error("panicked: {0}")]
    Panicked(String),
}

/// Runs `work` as a task of its own for at most `limit`. Dropping this future, or running out of time, cancels the task
/// at its next await; code that never awaits keeps its thread but no longer the caller.
pub async fn isolated<T: Send + 'static>(
    limit: Duration,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Interrupted> {
    // A set of one: its drop aborts the task.
    let mut task = JoinSet::new();
    task.spawn(work);
    match timeout(limit, task.join_next()).await {
        Ok(Some(Ok(result))) => Ok(result),
        Ok(Some(Err(error))) => Err(Interrupted::Panicked(panic_text(error))),
        Ok(None) => unreachable!("the set holds one task"),
        Err(_) => Err(Interrupted::TimedOut {
            limit_s: limit.as_secs_f64(),
        }),
    }
}

/// The message a task panicked with.
pub(crate) fn panic_text(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(payload) => payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned()),
        Err(error) => error.to_string(),
    }
}

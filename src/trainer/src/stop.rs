//! Stopping on request: the first SIGINT or SIGTERM asks the run to end after its step with a checkpoint, the second ends it now.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use tokio::sync::Notify;

/// Shared by whoever may ask and whoever must answer.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    asked: AtomicBool,
    notify: Notify,
}

impl Stop {
    /// Asks for an end after the step in progress.
    pub fn ask(&self) {
        self.inner.asked.store(true, Ordering::SeqCst);
        self.inner.notify.notify_waiters();
    }

    pub fn is_asked(&self) -> bool {
        self.inner.asked.load(Ordering::SeqCst)
    }

    /// Waits until somebody asks.
    pub async fn asked(&self) {
        loop {
            let notified = self.inner.notify.notified();
            if self.is_asked() {
                return;
            }
            notified.await;
        }
    }

    /// Listens for signals on a thread of its own; the second one exits at once with code 130.
    pub fn listen(&self) -> std::io::Result<()> {
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
        let stop = self.clone();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for _ in signals.forever() {
                    if stop.is_asked() {
                        // What is recorded so far is in the file within 0.1 s of its event; nothing else may wait here.
                        std::process::exit(runlog::exit_code::STOPPED);
                    }
                    stop.ask();
                }
            })?;
        Ok(())
    }
}

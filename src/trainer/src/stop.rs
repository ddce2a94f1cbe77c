//! Stopping on request: the first SIGINT or SIGTERM asks the run to end after its step with a checkpoint, the second ends it now.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use runlog::control::ONE_SIGNAL;
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
    /// Steps trained so far, for the last words.
    trained: AtomicU64,
    notify: Notify,
    /// The first that was given.
    reason: OnceLock<String>,
}

impl Stop {
    /// Asks for an end after the step in progress.
    pub fn ask(&self) {
        self.inner.asked.store(true, Ordering::SeqCst);
        self.inner.notify.notify_waiters();
    }

    /// Asks for an end, and says why; the first reason stands in the run's last words.
    pub fn ask_because(&self, reason: String) {
        if !self.is_asked() {
            // Somebody else's reason, given meanwhile, is as good.
            drop(self.inner.reason.set(reason));
        }
        self.ask();
    }

    /// Why it was asked for; None: a person or a signal did.
    pub fn reason(&self) -> Option<&str> {
        self.inner.reason.get().map(String::as_str)
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

    /// Notes how far the run has come.
    pub fn trained(&self, steps: u64) {
        self.inner.trained.store(steps, Ordering::Relaxed);
    }

    /// Listens for signals on a thread of its own; the second one says `last_words` (given the steps trained) and exits at
    /// once with code 130. Where [`ONE_SIGNAL`] is set, all of them are one: a scheduler signals every process of a job, and what
    /// watches over the run hands its own on; who wants an end at once kills.
    pub fn listen(&self, last_words: impl FnOnce(u64) + Send + 'static) -> std::io::Result<()> {
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
        let stop = self.clone();
        let all_are_one = std::env::var_os(ONE_SIGNAL).is_some();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for _ in signals.forever() {
                    if stop.is_asked() && !all_are_one {
                        break;
                    }
                    stop.ask();
                }
                last_words(stop.inner.trained.load(Ordering::Relaxed));
                // Not `std::process::exit`: it would take libtorch down under the threads that still use it.
                signal_hook::low_level::exit(runlog::exit_code::STOPPED);
            })?;
        Ok(())
    }
}

//! Where data comes from: threads that follow runs, replay them and list them, each handing messages to the driver.
//!
//! The channel to the driver is bounded: when the screen is slow, the threads wait and the log files are the buffer.

mod follow;
mod listing;
mod replay;

pub use listing::list_now;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, SyncSender};
use std::thread::JoinHandle;

use super::action::{Message, ReplayCommand};
use super::driver::Wake;
use super::shared::RunKey;

/// How messages reach the driver.
#[derive(Debug, Clone)]
pub struct Outbox(pub SyncSender<Wake>);

impl Outbox {
    /// False: the workbench is closing.
    pub fn send(&self, message: Message) -> bool {
        self.0.send(Wake::Message(message)).is_ok()
    }
}

/// Every thread that brings data. Dropping it ends them.
#[derive(Debug)]
pub struct Sources {
    outbox: Outbox,
    followed: BTreeMap<RunKey, follow::Follower>,
    replayed: Option<replay::Replayer>,
    listing: listing::Listing,
}

impl Sources {
    pub fn start(outbox: Outbox, roots: Vec<PathBuf>) -> Self {
        Self {
            listing: listing::Listing::start(outbox.clone(), roots),
            outbox,
            followed: BTreeMap::new(),
            replayed: None,
        }
    }

    pub fn open(&mut self, key: &RunKey) {
        if self
            .replayed
            .as_ref()
            .is_some_and(|replay| replay.key() == key)
        {
            self.replayed = None;
        }
        self.followed
            .entry(key.clone())
            .or_insert_with(|| follow::Follower::start(self.outbox.clone(), key.clone()));
    }

    /// A replay takes the place of the following of the same run, and of any other replay.
    pub fn open_replay(&mut self, key: &RunKey, at_ms: f64) {
        self.followed.remove(key);
        self.replayed = Some(replay::Replayer::start(
            self.outbox.clone(),
            key.clone(),
            at_ms,
        ));
    }

    pub fn replay(&self, command: ReplayCommand) {
        if let Some(replay) = &self.replayed {
            replay.tell(command);
        }
    }

    pub fn close(&mut self, key: &RunKey) {
        self.followed.remove(key);
        if self
            .replayed
            .as_ref()
            .is_some_and(|replay| replay.key() == key)
        {
            self.replayed = None;
        }
    }

    pub fn refresh_list(&self) {
        self.listing.refresh();
    }

    pub fn ask_targets(&self) {
        self.listing.ask_targets();
    }
}

/// A thread that ends when its sender is dropped. It is not joined: it may be in a read of a dead network mount.
#[derive(Debug)]
struct Worker<T> {
    /// Small and rare commands; unbounded so that a key press never waits.
    commands: Sender<T>,
    _thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Worker<T> {
    fn start(name: &str, work: impl FnOnce(std::sync::mpsc::Receiver<T>) + Send + 'static) -> Self {
        let (commands, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(receiver))
            .ok();
        Self {
            commands,
            _thread: thread,
        }
    }

    fn tell(&self, command: T) {
        // A thread that has ended has told why.
        let _ = self.commands.send(command);
    }
}

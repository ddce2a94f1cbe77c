//! Follows one run: what is there at once as a state, then event by event as the trainer writes them.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use runlog::open::{Opened, open};
use runlog::run_dir::RunDir;
use runlog::tail::Limits;

use super::{Outbox, Worker};
use crate::launch;
use crate::tui::action::Message;
use crate::tui::shared::{Problem, RunKey};

/// Between two looks when nothing is heard of a change: for file systems that do not tell.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two looks when changes cannot be watched at all.
const POLL_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug)]
enum Poke {
    Changed,
}

#[derive(Debug)]
pub(super) struct Follower {
    _worker: Worker<Poke>,
    /// Ends with the follower, and its sender with it.
    _watcher: Option<RecommendedWatcher>,
}

impl Follower {
    pub fn start(outbox: Outbox, key: RunKey) -> Self {
        let path = key.path().to_owned();
        // Unbounded, since the watcher must never wait; the follower takes all that waits at once.
        let (sender, receiver) = std::sync::mpsc::channel();
        let watcher = watch(&path, sender);
        let wait = if watcher.is_some() {
            LOOK_EVERY
        } else {
            POLL_EVERY
        };
        let worker = Worker::start("follow", move |stop: Receiver<Poke>| {
            follow(&outbox, &key, &receiver, &stop, wait);
        });
        Self {
            _worker: worker,
            _watcher: watcher,
        }
    }
}

/// Pokes at each change in the run's directory. None where that cannot be had (too many watches, no inotify).
fn watch(directory: &Path, poke: Sender<Poke>) -> Option<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            let _ = poke.send(Poke::Changed);
        }
    })
    .ok()?;
    watcher.watch(directory, RecursiveMode::NonRecursive).ok()?;
    Some(watcher)
}

fn follow(
    outbox: &Outbox,
    key: &RunKey,
    changes: &Receiver<Poke>,
    stop: &Receiver<Poke>,
    wait: Duration,
) {
    let opened = RunDir::open(key.path())
        .map_err(|error| error.to_string())
        .and_then(|run_dir| open(&run_dir).map_err(|error| error.to_string()));
    let Opened {
        state,
        mut tail,
        sealed_bad_lines,
        ..
    } = match opened {
        Ok(opened) => opened,
        Err(reason) => {
            outbox.send(broken(key, &reason));
            return;
        }
    };
    // The tail counts those that it read while the run was opened.
    let mut bad_before = sealed_bad_lines;
    let mut bad_told = 0;
    // A run of another machine that lies outside of the list's roots; else the list has the lock already, and this one waits.
    let _keeper = RunDir::open(key.path())
        .ok()
        .and_then(|run_dir| launch::keep_copy(&run_dir).ok().flatten());
    let mut is_going = outbox.send(Message::RunOpened {
        key: key.clone(),
        state: Box::new(state),
    }) && outbox.send(Message::CaughtUp { key: key.clone() });
    loop {
        // Dropped by the owner: closed.
        let is_closed = matches!(stop.try_recv(), Err(TryRecvError::Disconnected));
        if is_closed || !is_going {
            return;
        }
        let batch = match tail.read(Limits::LIVE) {
            Ok(batch) => batch,
            Err(error) => {
                outbox.send(broken(key, &error.to_string()));
                return;
            }
        };
        if !key.path().exists() {
            let reason = "its directory is gone: it was deleted or moved";
            outbox.send(broken(key, reason));
            return;
        }
        if batch.restarted {
            bad_before = 0;
            is_going &= outbox.send(Message::RunRestarted { key: key.clone() });
        }
        if !batch.events.is_empty() {
            is_going &= outbox.send(Message::Events {
                key: key.clone(),
                events: batch.events,
            });
        }
        let bad = bad_before + tail.bad_lines();
        if bad != bad_told {
            bad_told = bad;
            is_going &= outbox.send(Message::BadLines {
                key: key.clone(),
                count: bad,
            });
        }
        if !batch.has_more {
            match changes.recv_timeout(wait) {
                // All that has changed by now is one change.
                Ok(Poke::Changed) => while changes.try_recv().is_ok() {},
                Err(RecvTimeoutError::Timeout) => {}
                // No watcher: the time-out is the clock.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(wait),
            }
        }
    }
}

fn broken(key: &RunKey, reason: &str) -> Message {
    Message::RunBroken {
        key: key.clone(),
        problem: Problem::new(
            format!("{} cannot be read", key.name()),
            reason,
            "1 goes to the list of runs",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::tui::driver::Wake;
    use crate::tui::testing::sample_run;

    #[test]
    fn each_corrupt_line_is_counted_once() {
        let (folder, _) = sample_run(3);
        let path = folder.path().join("events.jsonl");
        let mut log = std::fs::File::options().append(true).open(path).unwrap();
        log.write_all(b"no event\n").unwrap();
        let (sender, wakes) = sync_channel(64);
        let follower = Follower::start(Outbox(sender), RunKey::new(folder.path()));
        let count_of_next = || loop {
            let wake = wakes.recv_timeout(Duration::from_secs(20)).unwrap();
            if let Wake::Message(Message::BadLines { count, .. }) = wake {
                return count;
            }
        };
        assert_eq!(count_of_next(), 1);
        log.write_all(b"nor this\n").unwrap();
        assert_eq!(count_of_next(), 2);
        drop(follower);
    }
}

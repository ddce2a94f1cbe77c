//! Replays a run: the same events into the same fold, by a clock that can be set, stopped and multiplied.
//!
//! The log is read once for its length and marks. Going on sends the events in between; going back folds from the start, on
//! this thread, and sends the state.

use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use runlog::event::EventKind;
use runlog::tail::{Limits, Tail};
use runlog::{Event, RunState};

use super::{Outbox, Worker};
use crate::tui::action::{Message, ReplayCommand};
use crate::tui::shared::{Problem, RunKey};

/// Between two moves of the clock while it plays.
const MOVE_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Replayer {
    key: RunKey,
    worker: Worker<ReplayCommand>,
}

impl Replayer {
    pub fn start(outbox: Outbox, key: RunKey, at_ms: f64) -> Self {
        let thread_key = key.clone();
        Self {
            key,
            worker: Worker::start("replay", move |commands| {
                let mut replay = Replay::new(thread_key);
                if let Err(error) = replay.run(&outbox, at_ms, &commands) {
                    outbox.send(Message::RunBroken {
                        key: replay.key.clone(),
                        problem: Problem::new(
                            format!("{} cannot be replayed", replay.key.name()),
                            error.to_string(),
                            "1 goes to the list of runs",
                        ),
                    });
                }
            }),
        }
    }

    pub fn key(&self) -> &RunKey {
        &self.key
    }

    pub fn tell(&self, command: ReplayCommand) {
        self.worker.tell(command);
    }
}

struct Replay {
    key: RunKey,
    tail: Tail,
    /// Read but not yet due, in order.
    ahead: std::collections::VecDeque<Event>,
    at_ms: f64,
    length_ms: f64,
}

impl Replay {
    fn new(key: RunKey) -> Self {
        let tail = Tail::new(key.path().join("events.jsonl"));
        Self {
            key,
            tail,
            ahead: std::collections::VecDeque::new(),
            at_ms: 0.0,
            length_ms: 0.0,
        }
    }

    fn run(
        &mut self,
        outbox: &Outbox,
        at_ms: f64,
        commands: &Receiver<ReplayCommand>,
    ) -> std::io::Result<()> {
        if !self.survey(outbox)? {
            return Ok(());
        }
        self.fold_from_start(outbox, at_ms)?;
        let mut playing: Option<(f64, Instant)> = None;
        loop {
            let command = if playing.is_some() {
                match commands.recv_timeout(MOVE_EVERY) {
                    Ok(command) => Some(command),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
            } else {
                match commands.recv() {
                    Ok(command) => Some(command),
                    Err(_) => return Ok(()),
                }
            };
            // Only the last seek of those that wait matters.
            let mut command = command;
            while let Some(ReplayCommand::Seek { .. }) = command {
                match commands.try_recv() {
                    Ok(next @ ReplayCommand::Seek { .. }) => command = Some(next),
                    Ok(other) => {
                        self.seek(outbox, command.take())?;
                        command = Some(other);
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
            match command {
                Some(ReplayCommand::Play { speed }) => playing = Some((speed, Instant::now())),
                Some(ReplayCommand::Pause) => playing = None,
                Some(seek @ ReplayCommand::Seek { .. }) => {
                    self.seek(outbox, Some(seek))?;
                    if let Some((_, since)) = &mut playing {
                        *since = Instant::now();
                    }
                }
                None => {
                    if let Some((speed, since)) = &mut playing {
                        let passed_ms = since.elapsed().as_secs_f64() * 1e3;
                        *since = Instant::now();
                        let to_ms = self.at_ms + passed_ms * *speed;
                        if !self.go_on(outbox, to_ms)? {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    fn seek(&mut self, outbox: &Outbox, command: Option<ReplayCommand>) -> std::io::Result<()> {
        let Some(ReplayCommand::Seek { at_ms }) = command else {
            return Ok(());
        };
        if at_ms >= self.at_ms {
            self.go_on(outbox, at_ms)?;
            Ok(())
        } else {
            self.fold_from_start(outbox, at_ms)
        }
    }

    /// Reads the whole log for its length, steps and marks. False: the workbench is closing.
    fn survey(&mut self, outbox: &Outbox) -> std::io::Result<bool> {
        let mut marks_ms = Vec::new();
        let mut steps_ms = Vec::new();
        loop {
            let batch = self.tail.read(Limits::OPENING)?;
            for event in &batch.events {
                self.length_ms = self.length_ms.max(event.elapsed_ms);
                match &event.kind {
                    EventKind::Alarm { .. }
                    | EventKind::ControlApplied { .. }
                    | EventKind::GuardTripped { .. }
                    | EventKind::RunResumed { .. }
                    | EventKind::CheckpointSaved { .. }
                    | EventKind::RunEnded { .. } => marks_ms.push(event.elapsed_ms),
                    EventKind::StepEnded { step, .. } => steps_ms.push((*step, event.elapsed_ms)),
                    _ => {}
                }
            }
            if !batch.has_more {
                break;
            }
        }
        Ok(outbox.send(Message::ReplayReady {
            key: self.key.clone(),
            length_ms: self.length_ms,
            marks_ms,
            steps_ms,
        }))
    }

    fn fold_from_start(&mut self, outbox: &Outbox, at_ms: f64) -> std::io::Result<()> {
        self.tail = Tail::new(self.tail.path().to_owned());
        self.ahead.clear();
        let mut state = Box::new(RunState::default());
        let at_ms = at_ms.clamp(0.0, self.length_ms.max(0.0));
        self.take_until(at_ms, |event| state.apply(&event))?;
        self.at_ms = at_ms;
        outbox.send(Message::RunOpened {
            key: self.key.clone(),
            state,
        });
        outbox.send(Message::CaughtUp {
            key: self.key.clone(),
        });
        self.tell_place(outbox);
        Ok(())
    }

    /// False: the workbench is closing.
    fn go_on(&mut self, outbox: &Outbox, to_ms: f64) -> std::io::Result<bool> {
        let mut events = Vec::new();
        self.take_until(to_ms, |event| events.push(event))?;
        // A live run may have grown past the length that was surveyed.
        if let Some(last) = events.last() {
            self.length_ms = self.length_ms.max(last.elapsed_ms);
        }
        self.at_ms = to_ms.min(self.length_ms);
        if !events.is_empty()
            && !outbox.send(Message::Events {
                key: self.key.clone(),
                events,
            })
        {
            return Ok(false);
        }
        Ok(self.tell_place(outbox))
    }

    fn tell_place(&self, outbox: &Outbox) -> bool {
        outbox.send(Message::ReplayAt {
            key: self.key.clone(),
            at_ms: self.at_ms,
            is_at_end: self.at_ms >= self.length_ms,
        })
    }

    /// Gives every event up to the first that is later than `at_ms`, in the order of the log.
    fn take_until(&mut self, at_ms: f64, mut give: impl FnMut(Event)) -> std::io::Result<()> {
        loop {
            while let Some(event) = self.ahead.pop_front() {
                if event.elapsed_ms > at_ms {
                    self.ahead.push_front(event);
                    return Ok(());
                }
                give(event);
            }
            let batch = self.tail.read(Limits::LIVE)?;
            if batch.events.is_empty() && !batch.has_more {
                return Ok(());
            }
            self.ahead.extend(batch.events);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::tui::driver::Wake;
    use crate::tui::testing::sample_run;

    /// Messages until the replay has told its place.
    fn until_told(wakes: &Receiver<Wake>) -> (Vec<Message>, f64, bool) {
        let mut messages = Vec::new();
        loop {
            let Wake::Message(message) = wakes
                .recv_timeout(Duration::from_secs(20))
                .expect("the replay answers")
            else {
                continue;
            };
            if let Message::ReplayAt {
                at_ms, is_at_end, ..
            } = message
            {
                return (messages, at_ms, is_at_end);
            }
            messages.push(message);
        }
    }

    fn fold(state: &mut RunState, messages: Vec<Message>) {
        for message in messages {
            match message {
                Message::RunOpened { state: opened, .. } => *state = *opened,
                Message::Events { events, .. } => {
                    for event in &events {
                        state.apply(event);
                    }
                }
                _ => {}
            }
        }
    }

    #[test]
    fn wherever_the_cursor_goes_the_state_is_that_of_the_events_before_it() {
        let (folder, events) = sample_run(40);
        let key = RunKey::new(folder.path());
        let (sender, wakes) = sync_channel(64);
        let replay = Replayer::start(Outbox(sender), key, 0.0);
        let mut state = RunState::default();
        let (messages, ..) = until_told(&wakes);
        fold(&mut state, messages);
        let length = events.last().unwrap().elapsed_ms;
        for share in [0.5, 0.25, 0.9, 0.1, 1.0, 0.0] {
            let at_ms = length * share;
            replay.tell(ReplayCommand::Seek { at_ms });
            let (messages, told_ms, is_at_end) = until_told(&wakes);
            fold(&mut state, messages);
            let before: Vec<&Event> = events
                .iter()
                .take_while(|event| event.elapsed_ms <= at_ms)
                .collect();
            assert_eq!(told_ms, at_ms);
            assert_eq!(is_at_end, share == 1.0);
            assert_eq!(state, RunState::fold(before), "at {share}");
        }
    }

    #[test]
    fn playing_reaches_the_end_and_says_so() {
        let (folder, events) = sample_run(10);
        let (sender, wakes) = sync_channel(64);
        let replay = Replayer::start(Outbox(sender), RunKey::new(folder.path()), 0.0);
        let mut state = RunState::default();
        fold(&mut state, until_told(&wakes).0);
        replay.tell(ReplayCommand::Play { speed: 1000.0 });
        loop {
            let (messages, _, is_at_end) = until_told(&wakes);
            fold(&mut state, messages);
            if is_at_end {
                break;
            }
        }
        assert_eq!(state, RunState::fold(&events));
    }
}

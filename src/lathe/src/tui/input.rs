//! What a person and the system send: the threads that read the terminal and wait for signals, into the driver's one channel.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event as TerminalEvent, KeyCode, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};

use super::driver::Wake;

/// How long to ask for more events after some input has come. Without any patience crossterm does not look at all; and below a
/// millisecond it does not wait but asks again and again, which cost a key as much as drawing its frame.
const DRAIN_PATIENCE: Duration = Duration::from_micros(50);

/// When to look once more: a thread that is held up for longer than [`DRAIN_PATIENCE`] may have left an event behind that the
/// terminal does not announce again.
const LOOK_AGAIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// How long an answer may take to arrive once it has begun: it is one packet, and a person's keys come much later.
const ANSWER_PATIENCE: Duration = Duration::from_millis(100);

/// Tells the terminal's late answers (`ESC ] 11 ; rgb:… ESC \`) from keys: over a slow line the answer about the background
/// may come after its question was given up, and its colon would open the palette.
#[derive(Debug, Default)]
struct LateAnswers {
    began: Option<Instant>,
}

impl LateAnswers {
    fn is_part(&mut self, event: &TerminalEvent) -> bool {
        let TerminalEvent::Key(key) = event else {
            return false;
        };
        let alt = |c| key.code == KeyCode::Char(c) && key.modifiers.contains(KeyModifiers::ALT);
        if alt(']') {
            self.began = Some(Instant::now());
            return true;
        }
        if self
            .began
            .is_none_or(|began| began.elapsed() > ANSWER_PATIENCE)
        {
            self.began = None;
            return false;
        }
        let is_bell =
            key.code == KeyCode::Char('g') && key.modifiers.contains(KeyModifiers::CONTROL);
        if alt('\\') || is_bell {
            self.began = None;
        }
        true
    }
}

/// Reads the terminal; can be made to leave it to another program.
#[derive(Debug)]
pub struct InputThread {
    /// One byte makes the thread let go and wait for `resume`.
    poke: std::os::fd::OwnedFd,
    is_let_go: Receiver<()>,
    resume: SyncSender<()>,
}

impl InputThread {
    pub fn start(sender: SyncSender<Wake>) -> io::Result<Self> {
        let (poked, poke) = rustix::pipe::pipe()?;
        let (let_go, is_let_go) = sync_channel(1);
        let (resume, resumed) = sync_channel(1);
        std::thread::Builder::new()
            .name("input".to_owned())
            .spawn(move || {
                let stdin = io::stdin();
                let mut answers = LateAnswers::default();
                // Nothing is left behind of what came last.
                let mut is_settled = true;
                loop {
                    let mut waits = [
                        PollFd::new(&stdin, PollFlags::IN),
                        PollFd::new(&poked, PollFlags::IN),
                    ];
                    let patience = (!is_settled).then_some(&LOOK_AGAIN);
                    match poll(&mut waits, patience) {
                        Ok(_) => {}
                        Err(rustix::io::Errno::INTR) => continue,
                        Err(_) => return,
                    }
                    let is_poked = !waits[1].revents().is_empty();
                    let is_gone = waits[0]
                        .revents()
                        .intersects(PollFlags::HUP | PollFlags::ERR);
                    let has_input = waits[0].revents().contains(PollFlags::IN);
                    if is_poked {
                        let mut byte = [0];
                        if !matches!(rustix::io::read(&poked, &mut byte), Ok(1)) {
                            return;
                        }
                        if let_go.send(()).is_err() || resumed.recv().is_err() {
                            return;
                        }
                        continue;
                    }
                    let mut was_read = false;
                    if has_input || !is_settled {
                        while matches!(event::poll(DRAIN_PATIENCE), Ok(true)) {
                            match event::read() {
                                Ok(event) => {
                                    was_read = true;
                                    if answers.is_part(&event) {
                                        continue;
                                    }
                                    if sender.send(Wake::Input(event)).is_err() {
                                        return;
                                    }
                                }
                                Err(_) => break,
                            }
                        }
                    }
                    is_settled = !was_read && !has_input;
                    if is_gone && !was_read {
                        // The terminal was closed. No signal says so where it controls no session of ours; and it may go on
                        // saying that there is something to read.
                        let _ = sender.send(Wake::Signal(SIGHUP));
                        return;
                    }
                }
            })?;
        Ok(Self {
            poke,
            is_let_go,
            resume,
        })
    }

    /// Returns when the thread no longer reads.
    pub fn pause(&self) {
        if rustix::io::write(&self.poke, &[1]).is_ok() {
            let _ = self.is_let_go.recv();
        }
    }

    pub fn go_on(&self) {
        let _ = self.resume.send(());
    }
}

/// Signals become wakes: the terminal is then given back in order.
#[derive(Debug)]
pub struct SignalThread(signal_hook::iterator::Handle);

impl SignalThread {
    pub fn start(sender: SyncSender<Wake>) -> io::Result<Self> {
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGWINCH])?;
        let handle = signals.handle();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for signal in signals.forever() {
                    let wake = if signal == SIGWINCH {
                        Wake::Resized
                    } else {
                        Wake::Signal(signal)
                    };
                    if sender.send(wake).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self(handle))
    }

    /// No more signals are waited for.
    pub fn close(&self) {
        self.0.close();
    }
}

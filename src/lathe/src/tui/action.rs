//! What can happen to the workbench (`Action`), what a key may mean (`Command`), and what it wants done (`Effect`).

use std::fmt;
use std::path::PathBuf;

use crossterm::event::{KeyEvent, MouseEvent};
use jiff::Timestamp;
use runlog::{Event, RunState};

use super::pages::{self, PageId};
use super::shared::{Problem, RunKey, RunList};

/// Something that happened, in order. The only input of [`super::app::App::update`].
#[derive(Debug)]
pub enum Action {
    Key(KeyEvent),
    Mouse(MouseEvent),
    /// Bracketed paste: text, never keys.
    Paste(String),
    Resize {
        columns: u16,
        rows: u16,
    },
    /// Wall-clock time, given before other actions whenever it may matter.
    Clock(Timestamp),
    /// A binding's meaning, also from the palette, the mouse and tests.
    Command(Command),
    Message(Message),
}

/// What a binding does: a global command or one of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Global(Global),
    Runs(pages::runs::Command),
    Live(pages::live::Command),
    Timeline(pages::timeline::Command),
    Rollouts(pages::rollouts::Command),
    Config(pages::config::Command),
    Launch(pages::launch::Command),
    Compare(pages::compare::Command),
    Logs(pages::logs::Command),
    Bandit(pages::bandit::Command),
}

/// Commands that hold on every page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Global {
    Help,
    Palette,
    Quit,
    /// After the question whether to lose what is not saved.
    QuitNow,
    Back,
    Suspend,
    Redraw,
    Go(PageId),
    NextPage,
    PreviousPage,
    NextTheme,
    Freeze,
    Copy,
    Export,
    /// What the chooser of `Export` asks about.
    ExportAs(super::export::Kind),
    NextRun,
    PreviousRun,
    /// Between the live end of the run and its replay.
    Replay,
    PlayPause,
    ReplayStep(i8),
    ReplaySlower,
    ReplayFaster,
    ReplayMark(i8),
}

/// What workers tell.
#[derive(Debug)]
pub enum Message {
    RunsListed(RunList),
    /// The state of a run as far as it was read, before its events follow one by one.
    RunOpened {
        key: RunKey,
        state: Box<RunState>,
    },
    /// More events of a run, in order.
    Events {
        key: RunKey,
        events: Vec<Event>,
    },
    /// The source has given everything there is now.
    CaughtUp {
        key: RunKey,
    },
    /// The log became shorter or was replaced: it is read again from its start.
    RunRestarted {
        key: RunKey,
    },
    /// The run cannot be read any more.
    RunBroken {
        key: RunKey,
        problem: Problem,
    },
    /// Bytes of the log that are no events.
    BadLines {
        key: RunKey,
        count: u64,
    },
    /// Replay: the moments of the run that the time bar shows, known once the log was read.
    ReplayReady {
        key: RunKey,
        length_ms: f64,
        /// Alarms, guards, checkpoints, control changes, resumes, the end.
        marks_ms: Vec<f64>,
        /// When each step ended.
        steps_ms: Vec<(u64, f64)>,
    },
    /// Replay: what was folded so far ends here.
    ReplayAt {
        key: RunKey,
        at_ms: f64,
        is_at_end: bool,
    },
    /// A file that is watched was changed by somebody.
    FileChanged(PathBuf),
    /// A line for the status bar.
    Notice(super::shared::Notice),
    Problem(Problem),
    Page(PageMessage),
}

/// The answer to a page's own job.
#[derive(Debug)]
pub enum PageMessage {
    Runs(pages::runs::Message),
    Live(pages::live::Message),
    Timeline(pages::timeline::Message),
    Rollouts(pages::rollouts::Message),
    Config(pages::config::Message),
    Launch(pages::launch::Message),
    Compare(pages::compare::Message),
    Logs(pages::logs::Message),
    Bandit(pages::bandit::Message),
}

/// What `update` wants done. The driver does it, in order; nothing here blocks the screen.
pub enum Effect {
    Quit,
    Suspend,
    /// Forget what the terminal shows and draw everything.
    Redraw,
    /// Follow a run from its start: `RunOpened`, `Events`…
    OpenRun(RunKey),
    /// Replay a run: events up to `at_ms`, then as told.
    OpenReplay {
        key: RunKey,
        at_ms: f64,
    },
    CloseRun(RunKey),
    /// Replay clock.
    Replay(ReplayCommand),
    /// Read the list of runs again, now.
    RefreshRuns,
    /// Ask every target for its runs, now and from now on.
    AskTargets,
    /// Work on another thread; its message comes back. Short jobs only: at most a few run at once.
    Job {
        /// Names it in tests and logs.
        name: String,
        work: Box<dyn FnOnce() -> Message + Send>,
    },
    /// Tell when these files change, and no others that this owner named before. Open runs are followed anyway.
    WatchFiles {
        owner: &'static str,
        files: Vec<PathBuf>,
    },
    /// Run a program in the foreground with the terminal given back to it; then the message.
    Foreground {
        program: std::process::Command,
        then: Box<dyn FnOnce(std::io::Result<std::process::ExitStatus>) -> Message + Send>,
    },
    /// Copy by OSC 52, and to a file, since no terminal says whether it took it; then say so of `what` was copied.
    Copy {
        text: String,
        what: String,
    },
    /// Keep the layout and the like for the next time.
    SaveState,
    SetTheme(String),
}

/// What a running replay is told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReplayCommand {
    Seek { at_ms: f64 },
    Play { speed: f64 },
    Pause,
}

impl Effect {
    pub fn job(name: impl Into<String>, work: impl FnOnce() -> Message + Send + 'static) -> Self {
        Self::Job {
            name: name.into(),
            work: Box::new(work),
        }
    }
}

impl fmt::Debug for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quit => f.write_str("Quit"),
            Self::Suspend => f.write_str("Suspend"),
            Self::Redraw => f.write_str("Redraw"),
            Self::OpenRun(key) => write!(f, "OpenRun({key})"),
            Self::OpenReplay { key, at_ms } => write!(f, "OpenReplay({key}, {at_ms})"),
            Self::CloseRun(key) => write!(f, "CloseRun({key})"),
            Self::Replay(command) => write!(f, "Replay({command:?})"),
            Self::RefreshRuns => f.write_str("RefreshRuns"),
            Self::AskTargets => f.write_str("AskTargets"),
            Self::Job { name, .. } => write!(f, "Job({name})"),
            Self::WatchFiles { owner, files } => write!(f, "WatchFiles({owner}, {files:?})"),
            Self::Foreground { program, .. } => write!(f, "Foreground({program:?})"),
            Self::Copy { text, what } => write!(f, "Copy({what}: {} bytes)", text.len()),
            Self::SaveState => f.write_str("SaveState"),
            Self::SetTheme(name) => write!(f, "SetTheme({name})"),
        }
    }
}

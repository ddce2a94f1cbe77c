//! The loop that owns the terminal: input, messages and signals in; effects out; at most one frame a batch.
//!
//! ```text
//!  tty ─► input thread ─┐
//!  signals ─────────────┼─► one bounded channel ─► batch ─► App::update… ─► effects ─► one frame
//!  sources, jobs ───────┘
//! ```
//! Everything that waits is taken before a frame is drawn. A key is shown at once; what happens by itself is shown a few
//! times a second.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crossterm::event::Event as TerminalEvent;
use jiff::Timestamp;
use rustix::process::{Signal, kill_current_process_group};

use super::action::{Action, Effect, Message};
use super::app::App;
use super::greeting::{Answers, Questions};
use super::input::{InputThread, SignalThread};
use super::keymap::Keymap;
use super::pages::PageId;
use super::screen::Screen;
use super::settings::{PageState, Places, Repeats, Settings};
use super::shared::{Glyphs, Notice, PlotMarks, Problem, Project, RunKey, RunList, Shared};
use super::sources::{Outbox, Sources};
use super::theme::{self, Depth, Theme, ThemeError};
use super::watching::Watching;
use crate::cli::Failure;
use crate::export::{ExportError, write_whole};
use crate::terminal::Terminal;

/// Frames a second for what happens by itself: a curve that grows needs no more, and each costs bytes over SSH.
const FRAMES_PER_SECOND: f64 = 4.0;
/// Actions taken before a frame is drawn, so that a flood cannot keep the screen still.
const MOST_ACTIONS_A_FRAME: usize = 512;

/// What reaches the loop.
#[derive(Debug)]
pub enum Wake {
    Input(TerminalEvent),
    Resized,
    Signal(i32),
    Message(Message),
}

/// How the workbench is opened.
#[derive(Debug, Default)]
pub struct Options {
    /// The runs directory, and further roots.
    pub runs_roots: Vec<PathBuf>,
    /// Show this run at once, on this page.
    pub run: Option<PathBuf>,
    pub page: Option<PageId>,
    /// Replay it: from this step, this many times as fast.
    pub replay: Option<(Option<u64>, f64)>,
    pub theme: Option<String>,
    pub is_read_only: bool,
}

/// Opens the workbench and stays until it is left; gives the exit code.
pub fn open(options: Options, terminal: Terminal) -> Result<i32, Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::usage(
            "the workbench needs a terminal for its keys and its screen; `lathe --plain` prints the same facts",
        ));
    }
    let places = Places::find();
    let directory = std::env::current_dir()
        .map_err(|error| Failure::unexpected(format!("where are we? {error}")))?;
    let mut notices = Vec::new();
    let settings = places
        .as_ref()
        .map_or_else(
            || Ok(Settings::default()),
            |places| Settings::load(&places.settings_file()),
        )
        .unwrap_or_else(|reason| {
            notices.push(reason);
            Settings::default()
        });
    let keymap = Keymap::new(&settings.keys).unwrap_or_else(|reason| {
        notices.push(reason);
        Keymap::default()
    });
    let state_file = places.as_ref().map(|places| places.state_file(&directory));
    let kept = state_file
        .as_deref()
        .map(PageState::load)
        .unwrap_or_default();
    let depth = Depth::detect(|name| std::env::var(name).ok());
    let theme_directories: Vec<PathBuf> = [
        Some(directory.join("themes")),
        places.as_ref().map(Places::themes),
    ]
    .into_iter()
    .flatten()
    .collect();
    let chosen = options
        .theme
        .clone()
        .or_else(|| kept.get("theme"))
        .or_else(|| settings.theme.clone());
    let glyphs = Glyphs {
        unicode: terminal.unicode,
        plot: match settings.marks {
            _ if !terminal.unicode => PlotMarks::Ascii,
            Some(marks) => marks,
            None if std::env::var("TERM").is_ok_and(|term| term == "linux") => PlotMarks::Ascii,
            None => PlotMarks::Braille,
        },
    };
    let mut runs_roots = options.runs_roots.clone();
    runs_roots.extend(settings.runs.iter().cloned());
    let experiments = directory.join("experiments");
    let has_mouse = settings.mouse.unwrap_or(true);
    let frame_gap = Duration::from_secs_f64(
        1.0 / settings
            .frames_per_second
            .filter(|rate| *rate > 0.0)
            .unwrap_or(FRAMES_PER_SECOND)
            .clamp(0.2, 60.0),
    );
    // Full: sources wait, and their log files are the buffer; the input thread waits, and the terminal is.
    let (sender, wakes) = sync_channel(256);
    // From here on, so that a signal never leaves the terminal in our hands.
    let signals = SignalThread::start(sender.clone()).map_err(terminal_failure)?;
    let mut screen = Screen::enter(settings.sync_output, has_mouse)
        .map_err(|error| Failure::unexpected(format!("cannot take the terminal: {error}")))?;
    let (columns, rows) = screen.size().map_err(terminal_failure)?;
    let questions = questions(&settings, chosen.is_none() && depth != Depth::Mono, glyphs);
    let answers = questions.ask().map_err(terminal_failure)?;
    screen.set_repeats(match settings.repeats {
        Repeats::Auto => answers.repeats,
        Repeats::On => true,
        Repeats::Off => false,
    });
    let wanted = chosen.unwrap_or_else(|| background_theme(depth, &answers).to_owned());
    let theme = ready_theme(&wanted, &theme_directories, depth).unwrap_or_else(|error| {
        notices.push(error.to_string());
        ready_theme("dark", &[], depth).expect("the shipped theme loads")
    });
    let shared = Shared {
        project: Project {
            directory,
            runs_roots: runs_roots.clone(),
            experiments,
        },
        theme,
        glyphs,
        keymap,
        kept,
        columns,
        rows,
        front: PageId::Runs,
        now: Timestamp::now(),
        runs: RunList::default(),
        open: std::collections::BTreeMap::new(),
        current: None,
        marked: Vec::new(),
        step: None,
        replay: None,
        is_frozen: false,
        is_read_only: options.is_read_only,
        notice: notices.into_iter().next().map(Notice::bad),
        wish: None,
    };
    let outbox = Outbox(sender.clone());
    for key in answers.typed {
        // More than the channel holds nobody types in that time.
        let _ = sender.try_send(Wake::Input(TerminalEvent::Key(key)));
    }
    let input = InputThread::start(sender).map_err(terminal_failure)?;
    let mut driver = Driver {
        app: App::new(shared),
        sources: Sources::start(outbox.clone(), runs_roots),
        watching: Watching::new(outbox.clone()),
        outbox,
        input,
        state_file,
        copied_file: places.as_ref().map(Places::copied_file),
        theme_directories,
        depth,
        wakes,
        frame_gap,
        drawn_at: None,
        exit_code: None,
    };
    driver.watch_theme();
    let outcome = driver
        .start(options, &mut screen)
        .and_then(|()| driver.run(&mut screen));
    drop(screen);
    signals.close();
    outcome.map_err(terminal_failure)?;
    Ok(driver.exit_code.unwrap_or(runlog::exit_code::OK))
}

#[expect(clippy::needless_pass_by_value, reason = "the form that map_err takes")]
fn terminal_failure(error: io::Error) -> Failure {
    Failure::unexpected(format!("the terminal failed: {error}"))
}

fn ready_theme(name: &str, directories: &[PathBuf], depth: Depth) -> Result<Theme, ThemeError> {
    Ok(theme::load(name, directories)?.at_depth(depth))
}

/// What the terminal is asked; a dumb one nothing.
fn questions(settings: &Settings, asks_colors: bool, glyphs: Glyphs) -> Questions {
    let term = std::env::var("TERM").unwrap_or_default();
    let is_dumb = term.is_empty() || term == "dumb";
    // GNU screen hands a question about colours on, and the answer comes after all others.
    let keeps_order = term != "screen" && !term.starts_with("screen.");
    let asks_repeats = settings.repeats == Repeats::Auto && !is_dumb;
    let border = if glyphs.unicode { '─' } else { '-' };
    Questions {
        colors: asks_colors && !is_dumb && keeps_order,
        repeats: asks_repeats.then_some(border),
    }
}

/// `light` when the terminal says that its background is.
fn background_theme(depth: Depth, answers: &Answers) -> &'static str {
    match answers.is_light {
        _ if depth == Depth::Mono => "mono",
        Some(true) => "light",
        _ => "dark",
    }
}

struct Driver {
    app: App,
    sources: Sources,
    outbox: Outbox,
    input: InputThread,
    watching: Watching,
    state_file: Option<PathBuf>,
    copied_file: Option<PathBuf>,
    theme_directories: Vec<PathBuf>,
    depth: Depth,
    wakes: Receiver<Wake>,
    frame_gap: Duration,
    drawn_at: Option<Instant>,
    exit_code: Option<i32>,
}

impl Driver {
    /// The first frame, before any file is read; then what was asked for on the command line.
    fn start(&mut self, options: Options, screen: &mut Screen) -> io::Result<()> {
        if let Some(path) = options.run {
            let key = RunKey::new(&path);
            self.app.page = options.page.unwrap_or(PageId::Live);
            let effects = match options.replay {
                Some((from_step, speed)) => {
                    let at_ms = from_step.map_or(0.0, |step| step_start_ms(&path, step));
                    self.app.start_replay(key, at_ms, speed)
                }
                None => self.app.show_run(key),
            };
            self.draw(screen)?;
            self.perform(effects, screen)?;
        } else if let Some(page) = options.page {
            self.app.page = page;
        }
        self.draw(screen)
    }

    fn run(&mut self, screen: &mut Screen) -> io::Result<()> {
        while self.exit_code.is_none() {
            let has_input = self.take_batch(screen)?;
            if self.exit_code.is_some() {
                break;
            }
            let is_due = self
                .drawn_at
                .is_none_or(|at| at.elapsed() >= self.frame_gap);
            if (has_input || is_due) && self.app.take_dirty() {
                self.draw(screen)?;
            }
        }
        Ok(())
    }

    fn draw(&mut self, screen: &mut Screen) -> io::Result<()> {
        self.app.take_dirty();
        screen.draw(|frame| self.app.draw(frame))?;
        self.drawn_at = Some(Instant::now());
        Ok(())
    }

    /// Waits for something, takes all that is there, and settles. True: a person did something.
    fn take_batch(&mut self, screen: &mut Screen) -> io::Result<bool> {
        let first = match self.patience() {
            Some(patience) => match self.wakes.recv_timeout(patience) {
                Ok(wake) => Some(wake),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    self.exit_code = Some(runlog::exit_code::UNEXPECTED);
                    return Ok(false);
                }
            },
            None => {
                if let Ok(wake) = self.wakes.recv() {
                    Some(wake)
                } else {
                    self.exit_code = Some(runlog::exit_code::UNEXPECTED);
                    return Ok(false);
                }
            }
        };
        let mut effects = self.app.update(Action::Clock(Timestamp::now()));
        let mut has_input = false;
        let mut next = first;
        let mut taken = 0;
        while let Some(wake) = next {
            has_input |= !matches!(wake, Wake::Message(_));
            let action = match wake {
                Wake::Input(TerminalEvent::Key(key)) => Some(Action::Key(key)),
                Wake::Input(TerminalEvent::Mouse(mouse)) => Some(Action::Mouse(mouse)),
                Wake::Input(TerminalEvent::Paste(pasted)) => Some(Action::Paste(pasted)),
                Wake::Input(TerminalEvent::Resize(columns, rows)) => {
                    Some(Action::Resize { columns, rows })
                }
                Wake::Input(TerminalEvent::FocusGained | TerminalEvent::FocusLost) => None,
                Wake::Resized => {
                    let (columns, rows) = screen.size()?;
                    Some(Action::Resize { columns, rows })
                }
                Wake::Signal(signal) => {
                    self.save_state();
                    self.exit_code = Some(128 + signal);
                    return Ok(true);
                }
                Wake::Message(Message::FileChanged(path)) if self.is_theme(&path) => {
                    let name = self.app.shared.theme.name.clone();
                    self.set_theme(&name);
                    None
                }
                Wake::Message(message) => Some(Action::Message(message)),
            };
            if let Some(action) = action {
                effects.extend(self.app.update(action));
            }
            // Effects change what the next action means (a page that was opened, a quit).
            self.perform(std::mem::take(&mut effects), screen)?;
            taken += 1;
            next = if taken < MOST_ACTIONS_A_FRAME && self.exit_code.is_none() {
                self.wakes.try_recv().ok()
            } else {
                None
            };
        }
        effects.extend(self.app.settle());
        self.perform(effects, screen)?;
        Ok(has_input)
    }

    /// How long nothing needs to be done: until the next frame that is due, or the next second of a clock on the screen.
    fn patience(&self) -> Option<Duration> {
        let frame = self.app.is_dirty().then(|| {
            self.drawn_at.map_or(Duration::ZERO, |at| {
                self.frame_gap.saturating_sub(at.elapsed())
            })
        });
        match (frame, self.app.wake_after()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn perform(&mut self, effects: Vec<Effect>, screen: &mut Screen) -> io::Result<()> {
        for effect in effects {
            match effect {
                Effect::Quit => self.exit_code = Some(runlog::exit_code::OK),
                Effect::Suspend => self.suspend(screen)?,
                Effect::Redraw => screen.invalidate()?,
                Effect::OpenRun(key) => self.sources.open(&key),
                Effect::OpenReplay { key, at_ms } => self.sources.open_replay(&key, at_ms),
                Effect::CloseRun(key) => self.sources.close(&key),
                Effect::Replay(command) => self.sources.replay(command),
                Effect::RefreshRuns => self.sources.refresh_list(),
                Effect::AskTargets => self.sources.ask_targets(),
                Effect::Job { name, work } => self.start_job(&name, work),
                Effect::WatchFiles { owner, files } => self.watching.set(owner, &files),
                Effect::Foreground { mut program, then } => {
                    self.input.pause();
                    let outcome = screen.outside(|| program.status());
                    self.input.go_on();
                    let message = then(outcome?);
                    let effects = self.app.update(Action::Message(message));
                    let (columns, rows) = screen.size()?;
                    self.app.update(Action::Resize { columns, rows });
                    self.perform(effects, screen)?;
                }
                Effect::Copy { text, what } => {
                    screen.write(&osc52(&text))?;
                    self.write_copied(&text, &what);
                }
                Effect::SaveState => self.save_state(),
                Effect::SetTheme(name) => {
                    self.set_theme(&name);
                    self.app.shared.kept.set("theme", &name);
                    self.watch_theme();
                }
            }
        }
        Ok(())
    }

    fn start_job(&self, name: &str, work: Box<dyn FnOnce() -> Message + Send>) {
        let outbox = self.outbox.clone();
        let title = name.to_owned();
        let started = std::thread::Builder::new()
            .name(format!("job {name}"))
            .spawn(move || {
                let message = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))
                    .unwrap_or_else(|panic| {
                        let reason = panic
                            .downcast_ref::<String>()
                            .cloned()
                            .or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()))
                            .unwrap_or_default();
                        Message::Problem(Problem::new(
                            format!("{title} failed unexpectedly"),
                            reason,
                            "this is a bug of lathe; the run is not touched",
                        ))
                    });
                outbox.send(message);
            });
        if let Err(error) = started {
            let message = Message::Problem(Problem::new(
                format!("{name} could not start"),
                error.to_string(),
                "",
            ));
            self.outbox.send(message);
        }
    }

    /// Ctrl-Z: the terminal is given back, the whole job stops until the shell continues it. SIGSTOP and not SIGTSTP: the
    /// kernel drops that one where no shell would notice, and the screen would be gone for nothing.
    fn suspend(&mut self, screen: &mut Screen) -> io::Result<()> {
        self.input.pause();
        let outcome = screen.outside(|| kill_current_process_group(Signal::STOP));
        self.input.go_on();
        if let Err(error) = outcome? {
            self.app
                .shared
                .say(Notice::bad(format!("cannot suspend: {error}")));
        }
        let (columns, rows) = screen.size()?;
        self.app.update(Action::Resize { columns, rows });
        Ok(())
    }

    fn save_state(&mut self) {
        let Some(path) = &self.state_file else {
            return;
        };
        let outcome = path
            .parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| {
                let aside = path.with_extension("json.tmp");
                std::fs::write(&aside, self.app.shared.kept.to_json())?;
                std::fs::rename(&aside, path)
            });
        if let Err(error) = outcome {
            let text = format!("the layout is not kept: {}: {error}", path.display());
            self.app.shared.say(Notice::caution(text));
        }
    }

    /// Writes what was sent to the clipboard to a file that holds the newest copy alone, and says where.
    fn write_copied(&mut self, text: &str, what: &str) {
        let sent = format!("sent to the terminal's clipboard (OSC 52): {what}");
        let notice = match &self.copied_file {
            _ if self.app.shared.is_read_only => {
                Notice::good(format!("{sent}; to no file: read-only"))
            }
            None => Notice::good(format!("{sent}; to no file: there is no home directory")),
            Some(path) => match copy_to(path, text) {
                Ok(()) => {
                    let path = from_home(path);
                    Notice::good(format!("{path}: written there and {sent}"))
                }
                Err(error) => Notice::caution(format!("{sent}; to no file: {error}")),
            },
        };
        self.app.shared.say(notice);
    }

    fn set_theme(&mut self, name: &str) {
        match ready_theme(name, &self.theme_directories, self.depth) {
            Ok(theme) => self.app.shared.theme = theme,
            Err(error) => self.app.shared.say(Notice::bad(error.to_string())),
        }
        self.app.mark_dirty();
    }

    fn is_theme(&self, path: &Path) -> bool {
        path.parent()
            .is_some_and(|parent| self.theme_directories.iter().any(|known| known == parent))
    }

    fn watch_theme(&mut self) {
        let files: Vec<PathBuf> = self
            .theme_directories
            .iter()
            .map(|directory| directory.join(format!("{}.yaml", self.app.shared.theme.name)))
            .filter(|path| path.exists())
            .collect();
        self.watching.set("theme", &files);
    }
}

/// `~/.local/state/lathe/copied.txt`
fn from_home(path: &Path) -> String {
    let inside =
        std::env::home_dir().and_then(|home| path.strip_prefix(home).ok().map(PathBuf::from));
    inside.map_or_else(
        || path.display().to_string(),
        |inside| format!("~/{}", inside.display()),
    )
}

/// Readable by its owner alone: dialogues may be private.
fn copy_to(path: &Path, text: &str) -> Result<(), ExportError> {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(ExportError::Write)?;
    }
    write_whole(path, |file| {
        file.set_permissions(std::fs::Permissions::from_mode(0o600))
            .and_then(|()| file.write_all(text.as_bytes()))
            .map_err(ExportError::Write)
    })
}

/// Copy to the terminal's clipboard; wrapped for tmux, which else keeps it.
fn osc52(copied: &str) -> Vec<u8> {
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(copied);
    if std::env::var_os("TMUX").is_some() {
        format!("\x1bPtmux;\x1b\x1b]52;c;{encoded}\x07\x1b\\").into_bytes()
    } else {
        format!("\x1b]52;c;{encoded}\x07").into_bytes()
    }
}

/// When a step began in a run, ms; 0 when the run has no such step.
fn step_start_ms(run: &Path, step: u64) -> f64 {
    let mut tail = runlog::Tail::new(run.join("events.jsonl"));
    let mut before_ms = 0.0;
    while let Ok(batch) = tail.read(runlog::tail::Limits::OPENING) {
        for event in &batch.events {
            if let runlog::EventKind::StepEnded { step: ended, .. } = &event.kind {
                if *ended >= step {
                    return before_ms;
                }
                before_ms = event.elapsed_ms;
            }
        }
        if !batch.has_more {
            break;
        }
    }
    before_ms
}

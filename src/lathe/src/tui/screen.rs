//! The terminal taken and given back: raw mode, alternate screen, mouse, bracketed paste; also on panic and on suspend.

use std::io::{self, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

use crossterm::cursor::Show;
use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui::Terminal;
use ratatui::backend::{ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};

use super::settings::SyncOutput;

/// Frames of at least this many bytes are bracketed by `SyncOutput::Auto`: smaller ones cannot be seen half drawn.
const LARGE_FRAME_BYTES: usize = 1024;

/// The terminal holds our screen. Kept outside of the screen, for the panic hook.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);

/// Collects a frame and writes it in one piece.
#[derive(Debug)]
pub struct FrameWriter {
    buffer: Vec<u8>,
    stdout: Stdout,
    is_bracketing: Bracketing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bracketing {
    Never,
    Large,
    Always,
}

impl FrameWriter {
    fn new(sync: SyncOutput) -> Self {
        // tmux redraws its whole pane at the end of each bracket.
        let is_inside_tmux = std::env::var_os("TMUX").is_some();
        Self {
            buffer: Vec::with_capacity(1 << 14),
            stdout: io::stdout(),
            is_bracketing: match sync {
                SyncOutput::On => Bracketing::Always,
                SyncOutput::Auto if !is_inside_tmux => Bracketing::Large,
                SyncOutput::Auto | SyncOutput::Off => Bracketing::Never,
            },
        }
    }
}

impl Write for FrameWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let is_bracketed = match self.is_bracketing {
            Bracketing::Never => false,
            Bracketing::Large => self.buffer.len() >= LARGE_FRAME_BYTES,
            Bracketing::Always => true,
        };
        if is_bracketed {
            self.buffer.splice(0..0, *b"\x1b[?2026h");
            self.buffer.extend_from_slice(b"\x1b[?2026l");
        }
        self.stdout.write_all(&self.buffer)?;
        self.buffer.clear();
        self.stdout.flush()
    }
}

/// Crossterm's, except that it never asks the terminal where its cursor is: ratatui asks at each resize, the answer would
/// come among the keys, and a terminal that does not answer would be a failure. The cursor is placed anew with every frame.
struct Backend(CrosstermBackend<FrameWriter>);

impl ratatui::backend::Backend for Backend {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        self.0.draw(content)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.0.hide_cursor()
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.0.show_cursor()
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.0.set_cursor_position(position)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.0.clear()
    }

    fn clear_region(&mut self, clear_type: ClearType) -> io::Result<()> {
        self.0.clear_region(clear_type)
    }

    fn size(&self) -> io::Result<Size> {
        self.0.size()
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        self.0.window_size()
    }

    fn flush(&mut self) -> io::Result<()> {
        ratatui::backend::Backend::flush(&mut self.0)
    }
}

/// The terminal while the workbench has it. Dropping it gives the terminal back.
pub struct Screen {
    terminal: Terminal<Backend>,
    has_mouse: bool,
}

impl Screen {
    pub fn enter(sync: SyncOutput, has_mouse: bool) -> io::Result<Self> {
        install_panic_hook();
        take(has_mouse)?;
        let terminal = Terminal::new(Backend(CrosstermBackend::new(FrameWriter::new(sync))))
            .inspect_err(|_| give_back())?;
        Ok(Self {
            terminal,
            has_mouse,
        })
    }

    pub fn draw(&mut self, draw: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw)?;
        Ok(())
    }

    /// Forgets what the terminal shows, so that the next frame draws every cell.
    pub fn invalidate(&mut self) -> io::Result<()> {
        self.terminal.clear()
    }

    pub fn size(&self) -> io::Result<(u16, u16)> {
        let size = self.terminal.size()?;
        Ok((size.width, size.height))
    }

    /// Writes raw bytes, such as OSC 52, between two frames.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let writer = &mut self.terminal.backend_mut().0;
        writer.write_all(bytes)?;
        Write::flush(writer)
    }

    /// Gives the terminal back while `work` runs, then takes it again and draws everything.
    pub fn outside<T>(&mut self, work: impl FnOnce() -> T) -> io::Result<T> {
        give_back();
        let outcome = work();
        take(self.has_mouse)?;
        self.invalidate()?;
        Ok(outcome)
    }
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen").finish_non_exhaustive()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take(has_mouse: bool) -> io::Result<()> {
    enable_raw_mode()?;
    IS_ENTERED.store(true, Ordering::SeqCst);
    let mut out = io::stdout();
    queue!(out, EnterAlternateScreen, EnableBracketedPaste)?;
    if has_mouse {
        queue!(out, EnableMouseCapture)?;
    }
    out.flush().inspect_err(|_| give_back())
}

/// Also called where nothing more can be done about an error.
fn give_back() {
    if IS_ENTERED.swap(false, Ordering::SeqCst) {
        let _ = execute!(
            io::stdout(),
            DisableMouseCapture,
            DisableBracketedPaste,
            LeaveAlternateScreen,
            Show
        );
        let _ = disable_raw_mode();
    }
}

/// A panic of the drawing thread gives the terminal back before its message; one of a worker prints nothing, since its job
/// tells it on the screen.
fn install_panic_hook() {
    static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
    if IS_INSTALLED.swap(true, Ordering::SeqCst) {
        return;
    }
    let drawing: ThreadId = std::thread::current().id();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() == drawing {
            give_back();
            before(info);
        } else if !IS_ENTERED.load(Ordering::SeqCst) {
            before(info);
        }
    }));
}

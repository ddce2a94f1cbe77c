//! The terminal taken and given back: raw mode, alternate screen, mouse, bracketed paste; also on panic and on suspend.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste};
use crossterm::style::Print;
use crossterm::terminal::{
    Clear, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui::Terminal;
use ratatui::backend::{ClearType, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};

use super::paint::Painter;
use super::settings::SyncOutput;

/// Frames of at least this many bytes are bracketed by `SyncOutput::Auto`: smaller ones cannot be seen half drawn.
const LARGE_FRAME_BYTES: usize = 1024;

/// Buttons, wheel and drags, in SGR coordinates. Not crossterm's own request: that also has every motion reported, bytes and
/// wake-ups over a slow line for nothing.
const BUTTONS_AND_DRAGS: &str = "\x1b[?1000h\x1b[?1002h\x1b[?1006h";

/// The terminal holds our screen. Kept outside of the screen, for the panic hook.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);

/// Collects a frame and writes it in one piece.
#[derive(Debug)]
pub struct FrameWriter {
    buffer: Vec<u8>,
    /// Not `Stdout`, which would cut a frame at its last line feed.
    terminal: File,
    is_bracketing: Bracketing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bracketing {
    Never,
    Large,
    Always,
}

impl FrameWriter {
    fn new(sync: SyncOutput) -> io::Result<Self> {
        // tmux redraws its whole pane at the end of each bracket.
        let is_inside_tmux = std::env::var_os("TMUX").is_some();
        Ok(Self {
            buffer: Vec::with_capacity(1 << 14),
            terminal: io::stdout().as_fd().try_clone_to_owned()?.into(),
            is_bracketing: match sync {
                SyncOutput::On => Bracketing::Always,
                SyncOutput::Auto if !is_inside_tmux => Bracketing::Large,
                SyncOutput::Auto | SyncOutput::Off => Bracketing::Never,
            },
        })
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
        self.terminal.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// Draws through a [`Painter`], and never asks the terminal where its cursor is: ratatui asks at each resize, the answer would
/// come among the keys, and a terminal that does not answer would be a failure. The cursor is placed anew with every frame.
struct Backend {
    writer: FrameWriter,
    painter: Painter,
    /// None: not known.
    is_cursor_shown: Option<bool>,
}

impl Backend {
    fn show_cursor_if(&mut self, is_shown: bool) -> io::Result<()> {
        if self.is_cursor_shown != Some(is_shown) {
            self.is_cursor_shown = Some(is_shown);
            if is_shown {
                queue!(self.writer, Show)?;
            } else {
                queue!(self.writer, Hide)?;
            }
        }
        Ok(())
    }
}

impl ratatui::backend::Backend for Backend {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let size = self.size()?;
        self.painter.paint(size, content, &mut self.writer.buffer);
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.show_cursor_if(false)
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.show_cursor_if(true)
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        queue!(self.writer, MoveTo(x, y))
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    /// The whole screen, whatever is asked for: the workbench has all of it.
    fn clear_region(&mut self, _: ClearType) -> io::Result<()> {
        self.painter.clear();
        self.is_cursor_shown = None;
        queue!(self.writer, Clear(crossterm::terminal::ClearType::All))
    }

    fn size(&self) -> io::Result<Size> {
        let (width, height) = crossterm::terminal::size()?;
        Ok(Size { width, height })
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize {
            columns_rows: self.size()?,
            pixels: Size::ZERO,
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
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
        let terminal = FrameWriter::new(sync)
            .and_then(|writer| {
                Terminal::new(Backend {
                    writer,
                    painter: Painter::default(),
                    is_cursor_shown: None,
                })
            })
            .inspect_err(|_| give_back())?;
        Ok(Self {
            terminal,
            has_mouse,
        })
    }

    /// Whether the terminal repeats its last character on request.
    pub fn set_repeats(&mut self, repeats: bool) {
        self.terminal.backend_mut().painter.set_repeats(repeats);
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
        let writer = &mut self.terminal.backend_mut().writer;
        writer.write_all(bytes)?;
        writer.flush()
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
        queue!(out, Print(BUTTONS_AND_DRAGS))?;
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

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use portable_pty::{CommandBuilder, PtySize, native_pty_system};

    use super::*;

    const CHILD: &str = "LATHE_TEST_OF_PANIC";

    #[test]
    fn a_panic_gives_the_terminal_back_and_then_says_its_message() {
        if std::env::var_os(CHILD).is_some() {
            let _screen = Screen::enter(SyncOutput::Off, true).unwrap();
            panic!("what went wrong");
        }
        let pair = native_pty_system().openpty(PtySize::default()).unwrap();
        let mut command = CommandBuilder::new(std::env::current_exe().unwrap());
        let name = "tui::screen::tests::a_panic_gives_the_terminal_back_and_then_says_its_message";
        command.args(["--exact", name, "--nocapture"]);
        command.env(CHILD, "1");
        command.env("TERM", "xterm-256color");
        command.env("RUST_BACKTRACE", "0");
        let mut child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let mut seen = Vec::new();
        let mut reader = pair.master.try_clone_reader().unwrap();
        let mut bytes = [0; 4096];
        // A pty gives EIO when its last writer is gone.
        while let Ok(count @ 1..) = reader.read(&mut bytes) {
            seen.extend_from_slice(&bytes[..count]);
        }
        assert!(!child.wait().unwrap().success());
        let seen = String::from_utf8_lossy(&seen);
        let at = |what: &str| {
            seen.find(what)
                .unwrap_or_else(|| panic!("no {what:?}: {seen:?}"))
        };
        assert!(at("\x1b[?1049h") < at("\x1b[?1049l"), "{seen:?}");
        for given_back in ["\x1b[?1049l", "\x1b[?1000l", "\x1b[?2004l", "\x1b[?25h"] {
            assert!(at(given_back) < at("what went wrong"), "{seen:?}");
        }
        // Out of raw mode: a new line goes back to the first column.
        assert!(seen[at("what went wrong")..].contains("\r\n"), "{seen:?}");
    }
}

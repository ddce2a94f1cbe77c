//! The live view on a real pseudo-terminal, read back through a terminal emulator.

use std::io::Read;
use std::sync::{Arc, Mutex};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use runlog::event::RunStatus;

use super::fake_trainer::{
    Act, alarm, ended, eval, learning, phase, rollout, started, step, sync, wait_until,
};
use super::harness::Bench;
use super::repeats::Repeats;

pub struct Screen {
    parser: Arc<Mutex<vt100::Parser>>,
    /// Everything that was written to the terminal.
    written: Arc<Mutex<Vec<u8>>>,
    child: Box<dyn portable_pty::Child + Send + Sync>,
    writer: Arc<Mutex<Box<dyn std::io::Write + Send>>>,
    reader: Option<std::thread::JoinHandle<()>>,
    master: Box<dyn portable_pty::MasterPty + Send>,
}

impl Screen {
    pub fn start(
        bench: &Bench,
        arguments: &[&str],
        columns: u16,
        environment: &[(&str, &str)],
    ) -> Self {
        Self::start_answering(bench, arguments, columns, environment, None)
    }

    /// A terminal that says this when it is asked who it is; None: nothing.
    pub fn start_answering(
        bench: &Bench,
        arguments: &[&str],
        columns: u16,
        environment: &[(&str, &str)],
        answer: Option<&'static str>,
    ) -> Self {
        let size = PtySize {
            rows: 30,
            cols: columns,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_lathe"));
        command.args(arguments);
        command.cwd(bench.path("."));
        command.env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("LANG", "C.UTF-8");
        command.env("TERM", "xterm-256color");
        command.env("LATHE_TRAINER", bench.path("trainer"));
        for (name, value) in environment {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let parser = Arc::new(Mutex::new(vt100::Parser::new(30, columns, 1000)));
        let mut source = pair.master.try_clone_reader().unwrap();
        let writer = Arc::new(Mutex::new(pair.master.take_writer().unwrap()));
        let written = Arc::new(Mutex::new(Vec::new()));
        let (sink, all, back) = (
            Arc::clone(&parser),
            Arc::clone(&written),
            Arc::clone(&writer),
        );
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            let mut repeats = Repeats::default();
            let mut answer = answer;
            // A pty gives EIO when its last writer is gone.
            while let Ok(count @ 1..) = source.read(&mut bytes) {
                let written = repeats.written_out(&bytes[..count]);
                sink.lock().unwrap().process(&written);
                let mut all = all.lock().unwrap();
                all.extend_from_slice(&bytes[..count]);
                if all.windows(3).any(|part| part == b"\x1b[c")
                    && let Some(answer) = answer.take()
                {
                    back.lock().unwrap().write_all(answer.as_bytes()).unwrap();
                }
            }
        });
        Self {
            parser,
            written,
            child,
            writer,
            reader: Some(reader),
            master: pair.master,
        }
    }

    pub fn text(&self) -> String {
        self.parser.lock().unwrap().screen().contents()
    }

    pub fn shows(&self, text: &str) {
        let shown = || self.text().contains(text);
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until(&format!("{text:?} on the screen"), shown);
        }));
        assert!(
            seen.is_ok(),
            "{text:?} is not on the screen:\n{}",
            self.text()
        );
    }

    /// A run of one character came as the character and a count, after the terminal was asked whether it does that.
    pub fn was_counted(&self) -> bool {
        let written = self.written.lock().unwrap();
        let question = b"\x1b[6n";
        let mut places = written.windows(question.len());
        let asked = places.position(|part| part == question);
        let after = &written[asked.map_or(0, |at| at + question.len())..];
        Repeats::default().written_out(after) != after
    }

    /// Types keys, as the terminal sends them.
    pub fn type_keys(&mut self, keys: &str) {
        let mut writer = self.writer.lock().unwrap();
        writer.write_all(keys.as_bytes()).unwrap();
        writer.flush().unwrap();
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        self.parser
            .lock()
            .unwrap()
            .screen_mut()
            .set_size(rows, columns);
        self.master
            .resize(PtySize {
                rows,
                cols: columns,
                pixel_width: 0,
                pixel_height: 0,
            })
            .unwrap();
    }

    pub fn pid(&self) -> rustix::process::Pid {
        let id = self.child.process_id().unwrap();
        rustix::process::Pid::from_raw(id.cast_signed()).unwrap()
    }

    /// The full-screen mode is on: the shell's screen is put aside.
    pub fn has_alternate_screen(&self) -> bool {
        self.parser.lock().unwrap().screen().alternate_screen()
    }

    /// The text when the program has ended, and its exit code.
    pub fn end(mut self) -> (String, u32) {
        let code = self.child.wait().unwrap().exit_code();
        self.reader.take().unwrap().join().unwrap();
        (self.text(), code)
    }
}

fn half_way(bench: &Bench) -> Vec<Act> {
    let mut acts = vec![
        started(4),
        phase(runlog::event::Phase::Train),
        eval(0, 0.41),
    ];
    for index in 1..=2 {
        acts.extend([step(index, 0.2 * index as f64), sync(index, true)]);
    }
    acts.extend([
        rollout(3, 0, 1.0),
        rollout(3, 1, 0.0),
        rollout(3, 2, 1.0),
        alarm(2, "every reward in 1 of 2 groups is equal"),
        Act::WaitFor(bench.path("go")),
        ended(RunStatus::Completed, 0, "", 2),
    ]);
    acts
}

#[test]
fn a_terminal_that_vanishes_without_a_signal_ends_the_viewer() {
    let bench = Bench::new();
    let size = PtySize {
        rows: 30,
        cols: 100,
        pixel_width: 0,
        pixel_height: 0,
    };
    let pair = native_pty_system().openpty(size).unwrap();
    let name = pair.master.tty_name().unwrap();
    // In a session that the terminal does not control: closing it sends no SIGHUP.
    let terminal = || {
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
        rustix::fs::open(&name, flags, rustix::fs::Mode::empty()).unwrap()
    };
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_lathe"))
        .current_dir(bench.path("."))
        .env("TERM", "xterm-256color")
        .env("LANG", "C.UTF-8")
        .stdin(terminal())
        .stdout(terminal())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    drop(pair.slave);
    let mut screen = pair.master.try_clone_reader().unwrap();
    let (mut seen, mut bytes) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&seen).contains("No runs yet in") {
        let count = screen.read(&mut bytes).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&bytes[..count]);
    }
    drop(screen);
    drop(pair.master);
    let code = std::cell::Cell::new(None);
    let child = std::cell::RefCell::new(&mut child);
    wait_until("the viewer's end", || {
        code.set(child.borrow_mut().try_wait().unwrap());
        code.get().is_some()
    });
    assert_eq!(code.get().and_then(|status| status.code()), Some(129));
}

#[test]
fn progress_shows_steps_rollouts_and_values_and_gives_way_to_the_summary() {
    let bench = Bench::new();
    bench.trainer(&half_way(&bench));
    let screen = Screen::start(&bench, &["run", "toy.yaml"], 100, &[]);
    for text in [
        "2/4 steps",
        "step 3",
        "3/4 rollouts",
        "reward 0.400 ▁█",
        "sync 2.00 ms",
    ] {
        screen.shows(text);
    }
    screen.shows("✓ eval at step 0: val reward 0.410 over 64 samples");
    screen.shows("▲ alarm equal_rewards at step 2: every reward in 1 of 2 groups is equal");
    std::fs::write(bench.path("go"), "").unwrap();
    let (text, code) = screen.end();
    assert_eq!(code, 0, "{text}");
    assert!(!text.contains("3/4 rollouts"), "the bars are gone: {text}");
    assert!(text.contains("toy  finished  2 of 4 steps"), "{text}");
}

#[test]
fn in_an_ascii_locale_nothing_but_ascii_is_drawn() {
    let bench = Bench::new();
    bench.trainer(&half_way(&bench));
    let screen = Screen::start(&bench, &["run", "toy.yaml"], 80, &[("LC_ALL", "C")]);
    screen.shows("3/4 rollouts");
    let live = screen.text();
    std::fs::write(bench.path("go"), "").unwrap();
    let (summary, _) = screen.end();
    for text in [live, summary] {
        assert!(text.is_ascii(), "{text}");
    }
}

#[test]
fn a_dumb_terminal_gets_plain_lines_and_no_escape() {
    let bench = Bench::new();
    bench.trainer(&learning());
    let screen = Screen::start(&bench, &["run", "toy.yaml"], 80, &[("TERM", "dumb")]);
    let (text, code) = screen.end();
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("eval at step 4: val reward 0.930 over 64 samples"),
        "{text}"
    );
}

#[test]
fn no_color_takes_every_colour_away_and_no_word() {
    let bench = Bench::new();
    bench.trainer(&learning());
    let colored = |environment: &[(&str, &str)]| {
        let screen = Screen::start(&bench, &["run", "toy.yaml"], 100, environment);
        let parser = Arc::clone(&screen.parser);
        let (text, _) = screen.end();
        let parser = parser.lock().unwrap();
        let any = (0..30)
            .flat_map(|row| (0..100).map(move |column| (row, column)))
            .filter_map(|(row, column)| parser.screen().cell(row, column).cloned())
            .any(|cell| cell.fgcolor() != vt100::Color::Default);
        (any, text.contains("finished"))
    };
    assert_eq!(colored(&[]), (true, true));
    assert_eq!(colored(&[("NO_COLOR", "1")]), (false, true));
}

#[test]
fn ctrl_c_on_the_terminal_reaches_lathe_and_not_the_trainer() {
    let bench = Bench::new();
    bench.trainer(&[
        started(4),
        step(1, 0.1),
        Act::WaitForInterrupt,
        Act::WaitFor(bench.path("go")),
        ended(RunStatus::Stopped, 130, "stopped on request", 1),
        Act::Exit(130),
    ]);
    let mut screen = Screen::start(&bench, &["run", "toy.yaml"], 100, &[]);
    screen.shows("1/4 steps");
    screen.type_keys("\x03");
    screen.shows("stopping after this step, saving a checkpoint");
    std::fs::write(bench.path("go"), "").unwrap();
    let (text, code) = screen.end();
    assert_eq!(code, 130, "{text}");
    assert!(text.contains("toy  stopped  1 of 4 steps"), "{text}");
    assert!(!text.contains("1/4 steps"), "no bar is left behind: {text}");
}

//! `just bench workbench [WORD…]`: the real program in a pseudo-terminal: CPU seconds, peak memory, bytes to the terminal.
//!
//! A run is opened, every kind of key is pressed, a growing run is followed, and nothing is done for a while. Beside the
//! opening stands what a plain read of the same bytes costs. WORDs narrow it down: `20k 200k follow`; `80x24` is a screen of
//! that size instead of 120 by 40 and 160 by 48, one after the other, and `norep` a terminal that does not repeat characters on
//! request.
//! Settled means: under 4 % of a core and under 200 bytes in 1.5 s, as the same measurement of other programs was made.

#[path = "../../runlog/benches/open/make.rs"]
mod make;
#[path = "terminal/repeats.rs"]
mod repeats;

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use make::Size;
use portable_pty::{CommandBuilder, PtySize, native_pty_system};

const SETTLED_S: f64 = 1.5;

/// What the workbench is shown on.
#[derive(Debug, Clone, Copy)]
struct Terminal {
    columns: u16,
    rows: u16,
    repeats: bool,
}

fn main() -> anyhow::Result<()> {
    let mut sizes = Vec::new();
    let mut repeats = true;
    let mut words = Vec::new();
    for word in std::env::args().skip(1) {
        let size = word.split_once('x');
        let size =
            size.and_then(|(columns, rows)| Some((columns.parse().ok()?, rows.parse().ok()?)));
        match (word.as_str(), size) {
            ("--bench" | "workbench", _) => {}
            ("norep", _) => repeats = false,
            (_, Some(size)) => sizes.push(size),
            _ => words.push(word),
        }
    }
    if sizes.is_empty() {
        sizes = vec![(120, 40), (160, 48)];
    }
    let terminals: Vec<Terminal> = sizes
        .into_iter()
        .map(|(columns, rows)| Terminal {
            columns,
            rows,
            repeats,
        })
        .collect();
    let wants = |word: &str| words.is_empty() || words.iter().any(|wanted| wanted == word);
    let folder = tempfile::tempdir()?;
    for (word, steps) in [("20k", 20_000), ("200k", 200_000)] {
        if wants(word) {
            let size = Size { series: 50, steps };
            let run = make::run(folder.path(), word, size)?;
            for terminal in &terminals {
                open_and_press(word, run.path(), *terminal)?;
            }
        }
    }
    if wants("follow") {
        for terminal in &terminals {
            follow(folder.path(), *terminal)?;
        }
    }
    Ok(())
}

/// Opens a run, presses keys, then does nothing for ten seconds.
fn open_and_press(word: &str, run: &Path, terminal: Terminal) -> anyhow::Result<()> {
    let word = format!("{word} {}x{}", terminal.columns, terminal.rows);
    let mut bytes = 0;
    for entry in fs::read_dir(run)? {
        let path = entry?.path();
        if path.is_file() {
            bytes += fs::read(&path)?.len();
        }
    }
    let before = own_cpu_s()?;
    for entry in fs::read_dir(run)? {
        let path = entry?.path();
        if path.is_file() {
            std::hint::black_box(fs::read(&path)?);
        }
    }
    let read_s = own_cpu_s()? - before;
    let viewer = Viewer::start(&["watch", run.to_str().context("a UTF-8 path")?], terminal)?;
    viewer.first_bytes()?;
    let first_ms = viewer.cpu_s()? * 1e3;
    viewer.settle()?;
    println!(
        "workbench {word}: first frame {first_ms:.0} ms CPU; open {:.2} CPU s ({:.1} times a plain read of its {:.0} MB), peak {:.0} MB, {} bytes",
        viewer.cpu_s()?,
        viewer.cpu_s()? / read_s.max(1e-3),
        bytes as f64 / 1e6,
        viewer.peak_mb()?,
        viewer.bytes(),
    );
    let keys = [
        ("crosshair on", "c"),
        ("crosshair back", "h"),
        ("crosshair far", "H"),
        ("zoom in", "+"),
        ("pan", ","),
        ("zoom out", "-"),
        ("whole run", "0"),
        ("smooth", "s"),
        ("smooth more", "s"),
        ("log y", "Y"),
        ("log x", "X"),
        ("x axis", "x"),
        ("next panel", "\t"),
        ("expand", "e"),
        ("all panels", "e"),
        ("alarms", "a"),
        ("help", "?"),
        ("close help", "\x1b"),
        ("page Runs", "1"),
        ("page Timeline", "3"),
        ("page Compare", "7"),
        ("page Live", "2"),
    ];
    let mut worst = (0.0_f64, 0_u64);
    for (name, key) in keys {
        let before = viewer.screen();
        let (cpu, bytes) = (viewer.cpu_s()?, viewer.bytes());
        viewer.press(key)?;
        viewer.settle()?;
        let cpu_ms = (viewer.cpu_s()? - cpu) * 1e3;
        let bytes = viewer.bytes() - bytes;
        worst = (worst.0.max(cpu_ms), worst.1.max(bytes));
        let least = changed_glyph_bytes(&before, &viewer.screen());
        println!(
            "workbench {word}: key {name:<16} {cpu_ms:>6.1} ms CPU  {bytes:>6} bytes, {:.1} times the {least} of the glyphs that changed",
            bytes as f64 / least.max(1) as f64,
        );
    }
    println!(
        "workbench {word}: worst key {:.1} ms CPU, {} bytes",
        worst.0, worst.1
    );
    let (cpu, bytes) = (viewer.cpu_s()?, viewer.bytes());
    std::thread::sleep(Duration::from_secs(10));
    println!(
        "workbench {word}: idle for 10 s: {:.2} % of a core, {} bytes; peak {:.0} MB",
        (viewer.cpu_s()? - cpu) * 10.0,
        viewer.bytes() - bytes,
        viewer.peak_mb()?,
    );
    viewer.leave()
}

/// Bytes of the glyphs of all cells that look different now: without colours and cursor moves, what no frame can be below.
fn changed_glyph_bytes(before: &vt100::Screen, after: &vt100::Screen) -> usize {
    let (rows, columns) = after.size();
    let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    cells
        .filter(|&(row, column)| before.cell(row, column) != after.cell(row, column))
        .filter_map(|(row, column)| Some(after.cell(row, column)?.contents().len().max(1)))
        .sum()
}

/// A run that grows by 50 series ten times a second.
fn follow(folder: &Path, terminal: Terminal) -> anyhow::Result<()> {
    let size = Size {
        series: 50,
        steps: 1000,
    };
    let run = make::run(folder, "follow", size)?;
    // The end goes away: the run goes on.
    let events = fs::read_to_string(run.events_path())?;
    let lines: Vec<&str> = events
        .lines()
        .filter(|line| !line.contains("\"run_ended\""))
        .collect();
    let half = lines.len() / 2;
    fs::write(run.events_path(), lines[..half].join("\n") + "\n")?;
    let _ = fs::remove_dir_all(run.metrics_dir());
    let viewer = Viewer::start(
        &["watch", run.path().to_str().context("a UTF-8 path")?],
        terminal,
    )?;
    viewer.settle()?;
    let (cpu, bytes, began) = (viewer.cpu_s()?, viewer.bytes(), Instant::now());
    let mut log = fs::OpenOptions::new()
        .append(true)
        .open(run.events_path())?;
    let mut next = half;
    let per_step = (lines.len() / 1000).max(1);
    for tick in 0..200_u32 {
        let end = (next + per_step).min(lines.len());
        for line in &lines[next..end] {
            writeln!(log, "{line}")?;
        }
        next = end;
        let due = began + Duration::from_millis(100) * (tick + 1);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    let passed_s = began.elapsed().as_secs_f64();
    println!(
        "workbench follow {}x{}: 50 series at 10 Hz for {passed_s:.0} s: {:.1} % of a core, {:.2} KB/s",
        terminal.columns,
        terminal.rows,
        (viewer.cpu_s()? - cpu) / passed_s * 100.0,
        (viewer.bytes() - bytes) as f64 / passed_s / 1e3,
    );
    viewer.leave()
}

/// `lathe` in a pseudo-terminal that answers what programs ask of terminals.
struct Viewer {
    child: Box<dyn portable_pty::Child + Send + Sync>,
    writer: Arc<Mutex<Box<dyn Write + Send>>>,
    bytes: Arc<AtomicU64>,
    /// What a terminal shows by now.
    screen: Arc<Mutex<vt100::Parser>>,
    is_open: Arc<AtomicBool>,
    /// Its settings and what it remembers: none, so that two measurements see the same panels.
    _home: tempfile::TempDir,
    _master: Box<dyn portable_pty::MasterPty + Send>,
}

impl Viewer {
    fn start(arguments: &[&str], terminal: Terminal) -> anyhow::Result<Self> {
        let pair = native_pty_system().openpty(PtySize {
            rows: terminal.rows,
            cols: terminal.columns,
            pixel_width: 0,
            pixel_height: 0,
        })?;
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_lathe"));
        command.args(arguments);
        command.env("TERM", "xterm-256color");
        command.env("COLORTERM", "truecolor");
        command.env("LANG", "C.UTF-8");
        command.env_remove("NO_COLOR");
        command.env_remove("TMUX");
        let home = tempfile::tempdir()?;
        command.env("XDG_CONFIG_HOME", home.path());
        command.env("XDG_STATE_HOME", home.path());
        let child = pair.slave.spawn_command(command)?;
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader()?;
        let writer = Arc::new(Mutex::new(pair.master.take_writer()?));
        let bytes = Arc::new(AtomicU64::new(0));
        let is_open = Arc::new(AtomicBool::new(true));
        let screen = Arc::new(Mutex::new(vt100::Parser::new(
            terminal.rows,
            terminal.columns,
            0,
        )));
        let shown = Arc::clone(&screen);
        let (count, open, answers) = (
            Arc::clone(&bytes),
            Arc::clone(&is_open),
            Arc::clone(&writer),
        );
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            let mut repeated = repeats::Repeats::default();
            while let Ok(got @ 1..) = reader.read(&mut buffer) {
                if let Ok(mut shown) = shown.lock() {
                    shown.process(&repeated.written_out(&buffer[..got]));
                }
                count.fetch_add(got as u64, Ordering::SeqCst);
                let text = String::from_utf8_lossy(&buffer[..got]);
                let answer = |bytes: &[u8]| {
                    if let Ok(mut writer) = answers.lock() {
                        let _ = writer.write_all(bytes);
                    }
                };
                if text.contains("\x1b[6n") {
                    let column = if terminal.repeats { 5 } else { 2 };
                    answer(format!("\x1b[1;{column}R").as_bytes());
                }
                if text.contains("\x1b]11;?") {
                    answer(b"\x1b]11;rgb:0000/0000/0000\x1b\\");
                }
                if text.contains("\x1b[c") {
                    answer(b"\x1b[?62;22c");
                }
            }
            open.store(false, Ordering::SeqCst);
        });
        Ok(Self {
            child,
            writer,
            bytes,
            screen,
            is_open,
            _home: home,
            _master: pair.master,
        })
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }

    fn screen(&self) -> vt100::Screen {
        let parser = self.screen.lock().expect("the parser takes any bytes");
        parser.screen().clone()
    }

    fn press(&self, keys: &str) -> anyhow::Result<()> {
        let mut writer = self
            .writer
            .lock()
            .expect("no thread panics with the writer");
        writer.write_all(keys.as_bytes())?;
        writer.flush()?;
        Ok(())
    }

    /// Until a whole screen was written.
    fn first_bytes(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        while self.bytes() < 500 {
            anyhow::ensure!(
                began.elapsed() < Duration::from_secs(20),
                "no screen in 20 s"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn settle(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut seen = vec![(Instant::now(), self.cpu_s()?, self.bytes())];
        loop {
            std::thread::sleep(Duration::from_millis(50));
            anyhow::ensure!(self.is_open.load(Ordering::SeqCst), "lathe has ended");
            anyhow::ensure!(began.elapsed() < Duration::from_secs(120), "never settled");
            let now = (Instant::now(), self.cpu_s()?, self.bytes());
            seen.push(now);
            let before = seen
                .iter()
                .rev()
                .find(|(at, ..)| at.elapsed().as_secs_f64() >= SETTLED_S);
            if let Some((_, cpu, bytes)) = before
                && now.1 - cpu < 0.04 * SETTLED_S + 0.011
                && now.2 - bytes < 200
            {
                return Ok(());
            }
        }
    }

    fn cpu_s(&self) -> anyhow::Result<f64> {
        cpu_s(self.child.process_id().context("it was started")?)
    }

    fn peak_mb(&self) -> anyhow::Result<f64> {
        let pid = self.child.process_id().context("it was started")?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .context("the kernel says the peak")?;
        let kb: f64 = line.trim().trim_end_matches(" kB").trim().parse()?;
        Ok(kb / 1024.0)
    }

    fn leave(mut self) -> anyhow::Result<()> {
        self.press("q")?;
        let status = self.child.wait()?;
        anyhow::ensure!(status.success(), "lathe ended with {status:?}");
        Ok(())
    }
}

fn own_cpu_s() -> anyhow::Result<f64> {
    cpu_s(std::process::id())
}

/// Time that all living threads of a process have run, exact to the nanosecond: the usual clock of 10 ms counts a short burst as
/// a whole tick or not at all.
fn cpu_s(pid: u32) -> anyhow::Result<f64> {
    let mut total_ns = 0_u64;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that ends in between takes its time with it: jobs are counted while they run.
        let Ok(line) = fs::read_to_string(task?.path().join("schedstat")) else {
            continue;
        };
        let first = line.split_ascii_whitespace().next().unwrap_or("0");
        total_ns += first.parse::<u64>()?;
    }
    Ok(total_ns as f64 / 1e9)
}

//! How a trainer process ended, in words: by an exit code, by a signal, or because it never loaded.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use runlog::exit_code;

use super::NOT_STARTED;

/// Of `log.txt` no more than this is read to explain an ending.
const LOG_TAIL_BYTES: u64 = 16 * 1024;
const LOG_TAIL_LINES: usize = 12;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// Of the process; None when a signal ended it.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The end of `log.txt` without the metrics of steps, oldest first.
    pub log_lines: Vec<String>,
}

impl Ending {
    pub fn new(status: ExitStatus, log_path: &Path) -> Self {
        Self {
            code: status.code(),
            signal: status.signal(),
            // Without the log the rest can still be told.
            log_lines: last_lines(log_path, LOG_TAIL_LINES).unwrap_or_default(),
        }
    }

    /// The library that the dynamic linker did not find, if that is why the trainer never started.
    pub fn missing_library(&self) -> Option<&str> {
        if self.code != Some(NOT_STARTED) {
            return None;
        }
        self.log_lines.iter().find_map(|line| {
            let (_, rest) = line.split_once("error while loading shared libraries: ")?;
            rest.split_once(':').map(|(library, _)| library.trim())
        })
    }

    /// Exit code that `lathe` gives when the run has no end of its own.
    pub fn exit_code(&self) -> i32 {
        match self.code {
            Some(NOT_STARTED) => exit_code::INPUT,
            Some(
                code @ (exit_code::USAGE
                | exit_code::INPUT
                | exit_code::BUSY
                | exit_code::NOTHING_LEFT),
            ) => code,
            _ => exit_code::RUN_FAILED,
        }
    }

    /// What happened and what to do, one sentence or two.
    pub fn explanation(&self) -> String {
        if let Some(library) = self.missing_library() {
            return format!(
                "lathe-trainer cannot load {library}; fetch libtorch with `just libtorch` and build again, \
                 or set LIBTORCH and LD_LIBRARY_PATH to yours"
            );
        }
        match (self.code, self.signal) {
            (Some(NOT_STARTED), _) => "lathe-trainer could not be started".to_owned(),
            (_, Some(9)) => "the trainer was killed (SIGKILL); when nobody did that, the machine ran out of memory \
                             (`dmesg` says so): make the batch or the model smaller"
                .to_owned(),
            (_, Some(signal)) => format!("the trainer was ended by {}", signal_name(signal)),
            (Some(code), _) => {
                format!("the trainer ended with exit code {code} without recording the run's end")
            }
            (None, None) => "the trainer ended".to_owned(),
        }
    }
}

fn signal_name(signal: i32) -> String {
    match signal {
        1 => "SIGHUP".to_owned(),
        2 => "SIGINT".to_owned(),
        4 => "SIGILL (a libtorch built for a newer processor?)".to_owned(),
        6 => "SIGABRT".to_owned(),
        7 => "SIGBUS (a full /dev/shm or disk?)".to_owned(),
        11 => "SIGSEGV".to_owned(),
        15 => "SIGTERM".to_owned(),
        other => format!("signal {other}"),
    }
}

/// The last `count` lines of a file that may be huge or hold any bytes, without those of the console logger: a thousand
/// characters of metrics a step, which the summary tells better.
pub fn last_lines(path: &Path, count: usize) -> io::Result<Vec<String>> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let from = size.saturating_sub(LOG_TAIL_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // A first line that began before the window is cut, so it is left out.
    let lines: Vec<&str> = text
        .lines()
        .skip(usize::from(from > 0))
        .filter(|line| !is_step_line(line))
        .collect();
    let shown = &lines[lines.len().saturating_sub(count)..];
    Ok(shown.iter().map(|line| printable(line)).collect())
}

/// `step:12 - actor/entropy:…`
fn is_step_line(line: &str) -> bool {
    line.strip_prefix("step:")
        .and_then(|rest| rest.split_once(" - "))
        .is_some_and(|(step, _)| step.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Control characters (colours, cursor moves) of a library must not reach the terminal.
fn printable(line: &str) -> String {
    line.chars()
        .map(|c| {
            if c.is_control() && c != '\t' {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(code: Option<i32>, signal: Option<i32>, log: &[&str]) -> Ending {
        Ending {
            code,
            signal,
            log_lines: log.iter().map(|line| (*line).to_owned()).collect(),
        }
    }

    #[test]
    fn a_library_that_the_linker_misses_is_named_with_what_to_do() {
        let ending = ending(
            Some(127),
            None,
            &[
                "lathe-trainer: error while loading shared libraries: libtorch_cpu.so: cannot open shared object file: No such file or directory",
            ],
        );
        assert_eq!(ending.missing_library(), Some("libtorch_cpu.so"));
        assert_eq!(ending.exit_code(), exit_code::INPUT);
        assert!(ending.explanation().contains("just libtorch"));
    }

    #[test]
    fn the_trainers_own_refusals_keep_their_exit_code_and_all_else_is_a_failed_run() {
        let codes = [Some(2), Some(3), Some(5), Some(1), Some(0), Some(101), None];
        let given = codes.map(|code| ending(code, code.is_none().then_some(9), &[]).exit_code());
        assert_eq!(given, [2, 3, 5, 4, 4, 4, 4]);
    }

    #[test]
    fn the_last_lines_of_a_huge_log_come_without_reading_it_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.txt");
        let lines: Vec<String> = (0..5000).map(|index| format!("line {index}")).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        assert_eq!(last_lines(&path, 2).unwrap(), ["line 4998", "line 4999"]);
        std::fs::write(&path, b"\x1b[31mred\xff\n").unwrap();
        assert_eq!(last_lines(&path, 5).unwrap(), ["\u{fffd}[31mred\u{fffd}"]);
        assert!(last_lines(&folder.path().join("none"), 2).is_err());
    }

    #[test]
    fn metrics_of_steps_do_not_push_the_reason_out_of_the_excerpt() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.txt");
        let steps = "step:12 - actor/entropy:0.5\n".repeat(50);
        std::fs::write(&path, format!("bad allocation\n{steps}step: odd - one\n")).unwrap();
        assert_eq!(
            last_lines(&path, 5).unwrap(),
            ["bad allocation", "step: odd - one"]
        );
    }
}

//! A scheduler's own programs, each within a bounded time: one whose controller is down may try for minutes.

use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// A controller under load answers within seconds.
const PATIENCE: Duration = Duration::from_secs(25);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Why a program gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// It is not there.
    Missing,
    Silent,
    /// It said no: its words.
    Said(String),
}

impl Failed {
    /// Word by word, and what to do where it is not in the words.
    pub fn told(&self, program: &str) -> String {
        match self {
            Self::Missing => format!(
                "there is no {program} here: Slurm's commands are wanted on this machine (is it the login node? does `module load \
                 slurm` bring them? name that host as `host` in targets.yaml)"
            ),
            Self::Silent => format!(
                "{program} has not answered for {} s: Slurm's controller is down or overloaded; try again, or ask who runs it \
                 (scontrol ping)",
                PATIENCE.as_secs()
            ),
            Self::Said(words) => format!("{program} says: {words}"),
        }
    }
}

/// What it printed. `input`: for its standard input.
pub fn output(mut command: Command, input: &str) -> Result<String, Failed> {
    let spawned = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Failed::Missing),
        Err(error) => return Err(Failed::Said(error.to_string())),
    };
    if let Some(mut stdin) = child.stdin.take() {
        // A script fits into the pipe; who does not read it says why by its exit code.
        let _ = stdin.write_all(input.as_bytes());
    }
    let printed = gathered(child.stdout.take());
    let said = gathered(child.stderr.take());
    let start = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if start.elapsed() < PATIENCE => std::thread::sleep(LOOK_EVERY),
            Ok(None) => {
                end(&mut child);
                return Err(Failed::Silent);
            }
            Err(error) => return Err(Failed::Said(error.to_string())),
        }
    };
    // A child of its own may hold the pipes open: what came by then is what there is.
    let text = |from: &Receiver<String>| {
        from.recv_timeout(Duration::from_secs(1))
            .unwrap_or_default()
    };
    let (printed, said) = (text(&printed), text(&said));
    if status.success() {
        return Ok(printed);
    }
    let words = if said.trim().is_empty() {
        printed
    } else {
        said
    };
    Err(Failed::Said(one_line(&words)))
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// All that comes out of a pipe, read on a thread that ends with it. Room for the one text.
fn gathered(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = sync_channel(1);
    if let Some(mut pipe) = pipe {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
        });
    }
    receiver
}

/// Lines behind each other, without what is said twice.
fn one_line(words: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    for line in words.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    if lines.is_empty() {
        return "nothing".to_owned();
    }
    let text: String = lines.join("; ").chars().take(600).collect();
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str, input: &str) -> Result<String, Failed> {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        output(command, input)
    }

    #[test]
    fn words_of_a_program_come_through_and_a_missing_one_is_named() {
        assert_eq!(shell("cat; echo x", "in\n"), Ok("in\nx\n".to_owned()));
        let said = shell(
            "echo 'sbatch: error: a' >&2; echo 'sbatch: error: b' >&2; exit 1",
            "",
        );
        let failed = said.unwrap_err();
        assert_eq!(
            failed.told("sbatch"),
            "sbatch says: sbatch: error: a; sbatch: error: b"
        );
        let missing = output(Command::new("no-such-program-of-slurm"), "").unwrap_err();
        assert_eq!(missing, Failed::Missing);
        assert!(missing.told("sbatch").contains("login node"));
    }

    #[test]
    fn more_than_a_pipe_holds_is_no_dead_end() {
        let text = shell("yes | head -c 300000", "").unwrap();
        assert_eq!(text.len(), 300_000);
    }
}

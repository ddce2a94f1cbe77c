//! A line that becomes a run's control socket: bytes in, bytes out, and nothing else on it.
//!
//! A socket is reached only on its own machine. Of a run on another node Slurm starts a process there that joins the two.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdout};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use runlog::run_dir::{Standing, host_name};

use super::cluster::{Scheduled, slurm};
use super::{Supervisor, standing};
use crate::scheduler::Scheduler;

/// What a process on another node says first.
const JOINED: &str = "joined";
/// How long Slurm may take to start it there.
const STEP_PATIENCE: Duration = Duration::from_secs(30);

/// What leads to a run's socket.
#[derive(Debug)]
pub(super) enum Channel {
    Socket(UnixStream),
    /// A process of Slurm's, with what it says.
    Step(Child, BufReader<ChildStdout>),
}

pub(super) fn connect(run: &Path) -> Result<Channel, String> {
    match standing(run) {
        Standing::Running => {}
        Standing::Queued { why } => return Err(format!("it has not started yet: it waits {why}")),
        Standing::Ended => return Err("it has ended".to_owned()),
        Standing::Lost { reason } => return Err(reason),
    }
    let known = Supervisor::read(run);
    if let Some(known) = &known
        && let Some(scheduled) = Scheduled::read(run)
        && !known.process.lives()
        && known.host != host_name()
    {
        return match (&scheduled.scheduler, &known.job) {
            (Scheduler::Slurm(_), Some(job)) => step(job, run),
            _ => Err(format!(
                "it runs on {}, and its socket is reached from that machine alone; `lathe stop` works from here, through the folder \
                 that both share",
                known.host
            )),
        };
    }
    connect_here(run).map(Channel::Socket)
}

fn connect_here(run: &Path) -> Result<UnixStream, String> {
    runlog::control::connect_now(&run.join("control.sock")).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            "it has no control socket: it is just starting or ending, or its trainer could not make one (its log says so)"
                .to_owned()
        }
        _ => format!("its control socket does not answer: {error}"),
    })
}

/// Through a process in the job, on its node.
fn step(job: &str, run: &Path) -> Result<Channel, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = slurm::join(job, &program, run)?;
    let output = child.stdout.take().ok_or("srun has no output")?;
    // Room for the one word; the thread ends with it or with the process.
    let (sender, first) = sync_channel(1);
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = String::new();
        let read = output.read_line(&mut line);
        let _ = sender.send((read.map(|_| line), output));
    });
    match first.recv_timeout(STEP_PATIENCE) {
        Ok((Ok(line), output)) if line.trim() == JOINED => Ok(Channel::Step(child, output)),
        Ok(_) => {
            let _ = child.kill();
            let mut said = String::new();
            if let Some(mut stderr) = child.stderr.take() {
                let _ = stderr.read_to_string(&mut said);
            }
            let _ = child.wait();
            let told = said.lines().find(|line| !line.trim().is_empty());
            Err(told
                .unwrap_or("srun ended without a word")
                .trim()
                .trim_start_matches("lathe: ")
                .to_owned())
        }
        Err(_) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(format!(
                "Slurm has not started a process on the run's node for {} s (srun --overlap --jobid={job}); `lathe stop` needs none",
                STEP_PATIENCE.as_secs()
            ))
        }
    }
}

/// `lathe __join RUN`, on the run's own machine.
pub fn join_here(run: &Path) -> Result<(), String> {
    let socket = connect_here(run)?;
    let told = |error: io::Error| error.to_string();
    let mut output = io::stdout();
    writeln!(output, "{JOINED}")
        .and_then(|()| output.flush())
        .map_err(told)?;
    Channel::Socket(socket)
        .join(BufReader::new(io::stdin()))
        .map_err(told)
}

impl Channel {
    /// Until either side closes.
    pub fn join(self, input: BufReader<io::Stdin>) -> io::Result<()> {
        match self {
            Self::Socket(socket) => {
                let to_run = socket.try_clone()?;
                hand_over(input, to_run, |to_run| {
                    // The run answers what it still owes and closes then.
                    let _ = to_run.shutdown(Shutdown::Write);
                })?;
                hand_back(socket)
            }
            Self::Step(mut child, output) => {
                let to_step = child
                    .stdin
                    .take()
                    .ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
                hand_over(input, to_step, drop)?;
                // Nobody reads it, and it must not fill up.
                drop(child.stderr.take());
                let result = hand_back(output);
                let _ = child.kill();
                let _ = child.wait();
                result
            }
        }
    }
}

/// What comes in, on a thread that ends with the process, which ends when the run closes: there is nothing to join.
fn hand_over<W: Write + Send + 'static>(
    mut input: BufReader<io::Stdin>,
    mut to_run: W,
    at_end: impl FnOnce(W) + Send + 'static,
) -> io::Result<()> {
    std::thread::Builder::new()
        .name("to run".to_owned())
        .spawn(move || {
            let mut chunk = [0; 16 << 10];
            while let Ok(count @ 1..) = input.read(&mut chunk) {
                let sent = to_run
                    .write_all(&chunk[..count])
                    .and_then(|()| to_run.flush());
                if sent.is_err() {
                    break;
                }
            }
            at_end(to_run);
        })
        .map(drop)
}

fn hand_back(mut from_run: impl Read) -> io::Result<()> {
    let mut output = io::stdout();
    let mut chunk = [0; 16 << 10];
    loop {
        match from_run.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                output.write_all(&chunk[..count])?;
                output.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

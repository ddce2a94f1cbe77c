//! The other side: find a running run's socket, ask, wait for the answers; every wait has an end.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime};

use super::protocol::{Answer, Command, MAX_LINE_BYTES, Request, Status};
use super::socket;
use crate::run_dir::{Origin, RunDir, host_name};
use crate::state::{Liveness, glance};

/// How long the server's own thread may take for a first answer. It waits for nothing, so this is long.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It has ended, or died.
    #[error("{run} is not running: {reason}")]
    NotRunning { run: String, reason: String },
    #[error("{run} runs on {host}; control it there")]
    OtherHost { run: String, host: String },
    /// Its process lives and has no socket.
    #[error(
        "{run} runs (process {pid}) without a control socket: it is just starting, or its trainer could not make one (its log says so), or is older than live control; signals work: kill -INT {pid} stops it"
    )]
    NoSocket { run: String, pid: u32 },
    #[error("{run} belongs to another user, who alone may control it ({source})")]
    NotAllowed { run: String, source: io::Error },
    #[error(
        "{run} does not answer (after {} s); its process {pid} may be suspended", waited.as_secs()
    )]
    Silent {
        run: String,
        pid: u32,
        waited: Duration,
    },
    /// The run ended, or closed the connection, while we waited.
    #[error("{run} closed the connection: {reason}")]
    Closed { run: String, reason: String },
    /// The machine it runs on cannot be reached, or says why it cannot be asked.
    #[error("{run} cannot be asked: {reason}")]
    Far { run: String, reason: String },
    #[error("cannot reach the control socket of {run}: {source}")]
    Io { run: String, source: io::Error },
}

/// A connection to one running run. Blocking; a TUI keeps it on a thread of its own.
///
/// ```no_run
/// # use std::time::Duration;
/// # use runlog::control::{Answer, Client, Command};
/// # fn demo(run_dir: &runlog::RunDir) -> Result<(), Box<dyn std::error::Error>> {
/// let mut client = Client::connect(run_dir, "ana@laptop via lathe")?;
/// println!("{}", client.status()?.doing);
/// let (id, first) = client.ask(Command::Pause)?; // Accepted, or Refused with the reason
/// if !first.is_last() {
///     let last = client.wait(id, Duration::from_secs(600))?; // Applied at the end of the step in progress
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Client {
    run: String,
    pid: u32,
    who: String,
    stream: UnixStream,
    input: Vec<u8>,
    /// Answers to other requests than the one waited for.
    early: Vec<Answer>,
    next_id: u64,
}

impl Client {
    /// `who` stands in the run's log beside every command; see [`Client::name`].
    pub fn connect(run_dir: &RunDir, who: &str) -> Result<Self, ClientError> {
        let run = run_dir.name().to_owned();
        let info = run_dir.info();
        is_running(run_dir)?;
        if let Some(Origin::Target { target, .. }) = run_dir.origin() {
            let host = target.clone();
            return Err(ClientError::OtherHost { run, host });
        }
        if info.host != host_name() {
            return Err(ClientError::OtherHost {
                run,
                host: info.host.clone(),
            });
        }
        let stream = socket::connect_now(&run_dir.control_path()).map_err(|source| {
            // It may have ended since it was looked at.
            if let Err(ended) = is_running(run_dir) {
                return ended;
            }
            let (run, pid) = (run.clone(), info.pid);
            match source.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    ClientError::NoSocket { run, pid }
                }
                io::ErrorKind::PermissionDenied => ClientError::NotAllowed { run, source },
                io::ErrorKind::WouldBlock => ClientError::Silent {
                    run,
                    pid,
                    waited: Duration::ZERO,
                },
                _ => ClientError::Io { run, source },
            }
        })?;
        Ok(Self::over(stream, run_dir, who))
    }

    /// Over a connection that leads to the run's socket, such as one through another machine.
    pub fn over(stream: UnixStream, run_dir: &RunDir, who: &str) -> Self {
        Self {
            run: run_dir.name().to_owned(),
            pid: run_dir.info().pid,
            who: who.to_owned(),
            stream,
            input: Vec::new(),
            early: Vec::new(),
            next_id: 1,
        }
    }

    /// A name for [`Client::connect`]: `ana@laptop via lathe ctl`.
    pub fn name(via: &str) -> String {
        let user = std::env::var("USER")
            .or_else(|_| std::env::var("LOGNAME"))
            .unwrap_or_else(|_| format!("uid {}", rustix::process::getuid().as_raw()));
        format!("{user}@{} via {via}", host_name())
    }

    /// Sends a command and gives its number with the first answer: `Accepted`, `Refused` or (of `status`) `Status`.
    pub fn ask(&mut self, command: Command) -> Result<(u64, Answer), ClientError> {
        let id = self.next_id;
        self.next_id += 1;
        let request = Request {
            id,
            who: self.who.clone(),
            command,
        };
        self.stream
            .set_write_timeout(Some(FIRST_ANSWER))
            .and_then(|()| self.stream.write_all(&request.line()))
            .map_err(|source| self.failed(source, FIRST_ANSWER))?;
        let answer = self.next(Some(id), FIRST_ANSWER)?;
        Ok((id, answer))
    }

    /// How the run stands; also in the middle of a step.
    pub fn status(&mut self) -> Result<Status, ClientError> {
        match self.ask(Command::Status)? {
            (_, Answer::Status { status, .. }) => Ok(status),
            (_, other) => Err(ClientError::Closed {
                run: self.run.clone(),
                reason: format!("it answered {other:?} to status"),
            }),
        }
    }

    /// Waits for the last answer to request `id`: `Applied` or `Refused`.
    pub fn wait(&mut self, id: u64, patience: Duration) -> Result<Answer, ClientError> {
        let start = Instant::now();
        loop {
            let answer = self.next(Some(id), patience.saturating_sub(start.elapsed()))?;
            if answer.is_last() {
                return Ok(answer);
            }
        }
    }

    fn next(&mut self, id: Option<u64>, patience: Duration) -> Result<Answer, ClientError> {
        // A refusal without an id is about the connection itself, and so is everybody's.
        let fits = |answer: &Answer| {
            answer.id() == id || matches!(answer, Answer::Refused { id: None, .. })
        };
        if let Some(at) = self.early.iter().position(fits) {
            return Ok(self.early.remove(at));
        }
        let deadline = Instant::now() + patience;
        loop {
            let line = self.line(deadline, patience)?;
            let answer: Answer =
                serde_json::from_slice(&line).map_err(|error| ClientError::Closed {
                    run: self.run.clone(),
                    reason: format!("what it said is no answer ({error})"),
                })?;
            if fits(&answer) {
                return Ok(answer);
            }
            self.early.push(answer);
        }
    }

    fn line(&mut self, deadline: Instant, patience: Duration) -> Result<Vec<u8>, ClientError> {
        let mut chunk = [0; 4096];
        loop {
            if let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
                return Ok(self.input.drain(..=end).collect());
            }
            // A status of every knob has some kilobytes; what never ends is no line.
            if self.input.len() > MAX_LINE_BYTES {
                return Err(self.failed(io::ErrorKind::InvalidData.into(), patience));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            // A time-out of zero would mean none.
            let left = left.max(Duration::from_millis(1));
            let read = self
                .stream
                .set_read_timeout(Some(left))
                .and_then(|()| self.stream.read(&mut chunk));
            match read {
                Ok(0) => return Err(self.failed(io::ErrorKind::UnexpectedEof.into(), patience)),
                Ok(count) => self.input.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error, patience)),
            }
        }
    }

    fn failed(&self, source: io::Error, waited: Duration) -> ClientError {
        let run = self.run.clone();
        match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::Silent {
                run,
                pid: self.pid,
                waited,
            },
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => ClientError::Closed {
                run,
                reason: "it has ended, or its trainer was killed".to_owned(),
            },
            _ => ClientError::Io { run, source },
        }
    }
}

/// Its end, or its death, as an error.
pub fn is_running(run_dir: &RunDir) -> Result<(), ClientError> {
    let not_running = |reason: String| ClientError::NotRunning {
        run: run_dir.name().to_owned(),
        reason,
    };
    let glance = glance(run_dir, SystemTime::now()).map_err(|source| ClientError::Io {
        run: run_dir.name().to_owned(),
        source,
    })?;
    match glance.liveness {
        Liveness::Running => Ok(()),
        Liveness::Finished => Err(not_running("it has finished".to_owned())),
        Liveness::Stopped => Err(not_running("it was stopped".to_owned())),
        Liveness::Failed { reason } => Err(not_running(format!("it failed: {reason}"))),
        Liveness::PresumedDead { reason } | Liveness::Silent { reason } => Err(not_running(reason)),
    }
}

//! One conversation with the `lathe` of another machine: requests out, answers in, every wait bounded.

use std::collections::VecDeque;
use std::io::{self, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::ssh::{Kind, Ssh, SshFailure, quoted};
use crate::targets::Target;
use crate::wire::{self, Ask, FAR_COMMAND, PROTOCOL, Say};

/// Beyond ssh's own time to connect: a loaded machine, a jump, a slow home directory.
const GREETING_PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks, while a connection is made, at whether that is in vain.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A network that comes up changes several times within a second or two: each attempt gets as long.
const LEAST_ATTEMPT: Duration = Duration::from_secs(1);
/// An answer to a simple question.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Of ssh's words, the last are kept.
const STDERR_BYTES: usize = 8 << 10;
/// Frames that wait unread, each of at most a chunk's size: then ssh's own window stops the other side.
const WAITING_FRAMES: usize = 8;

/// Why there is no conversation (any more).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error(transparent)]
    Ssh(SshFailure),
    #[error("{host} has not answered for {} s", waited.as_secs())]
    Silent { host: String, waited: Duration },
    /// The program there says no.
    #[error("{host}: {reason}")]
    Refused { host: String, reason: String },
    #[error(
        "the lathe on {host} (version {version}) speaks another protocol than this one; put the same there: lathe target setup {host}"
    )]
    OtherVersion { host: String, version: String },
    #[error("what {host} said cannot be understood: {reason}")]
    Garbled { host: String, reason: String },
    #[error("cannot start ssh: {reason}; is OpenSSH installed?")]
    NoSsh { reason: String },
}

impl LinkError {
    /// Trying again may help: the line is at fault, and not what stands behind it.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Ssh(failure) => matches!(
                failure.kind,
                Kind::Unreachable | Kind::LineCut | Kind::Other
            ),
            Self::Silent { .. } | Self::Garbled { .. } => true,
            Self::Refused { .. } | Self::OtherVersion { .. } | Self::NoSsh { .. } => false,
        }
    }
}

type Frame = io::Result<Option<(Say, Vec<u8>)>>;

/// A conversation. Dropping it ends the one `ssh` process that carries it.
#[derive(Debug)]
pub struct Link {
    host: String,
    child: Child,
    input: Option<ChildStdin>,
    frames: Receiver<Frame>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    /// Its lathe's.
    pub version: String,
    /// What the other machine calls itself.
    pub far_host: String,
    /// It takes pieces of files that are compressed.
    pub(crate) packs: bool,
}

/// The whole command line over there. Nothing that varies stands in it but the program's path.
pub(crate) fn far_command(target: &Target) -> Result<String, LinkError> {
    let program = quoted(&target.program()).ok_or_else(|| LinkError::Refused {
        host: target.name.clone(),
        reason: "its program's path holds a line break".to_owned(),
    })?;
    // `exec`: the shell in between would hear signals instead.
    Ok(format!("exec {program} {FAR_COMMAND}"))
}

/// The process that carries a conversation: ssh, or of a scheduler that is spoken to from here this very program.
pub(crate) fn carrier(target: &Target, ssh: &Ssh) -> Result<Command, LinkError> {
    if !target.is_here() {
        return Ok(ssh.command(&far_command(target)?));
    }
    let program = match &target.program {
        Some(program) => {
            let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
            home.join(program)
        }
        None => std::env::current_exe().map_err(|error| LinkError::NoSsh {
            reason: error.to_string(),
        })?,
    };
    let mut command = Command::new(program);
    // Ctrl-C at this terminal is not the conversation's end.
    command.arg(FAR_COMMAND).process_group(0);
    Ok(command)
}

impl Link {
    /// Connects and opens the folder there. Nothing is asked on the terminal.
    pub fn open(target: &Target) -> Result<Self, LinkError> {
        Self::open_unless(target, || false)
    }

    /// The same; an attempt that has had its second is given up as soon as `is_vain` says so.
    pub(crate) fn open_unless(
        target: &Target,
        is_vain: impl Fn() -> bool,
    ) -> Result<Self, LinkError> {
        let ssh = target.ssh();
        let command = carrier(target, &ssh)?;
        let mut link = Self::start(&target.name, command)?;
        link.greeted(ssh.connect_timeout + GREETING_PATIENCE, is_vain)?;
        link.begin(target)?;
        Ok(link)
    }

    pub(crate) fn start(host: &str, mut command: Command) -> Result<Self, LinkError> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| LinkError::NoSsh {
                reason: error.to_string(),
            })?;
        let input = child.stdin.take();
        let output = child.stdout.take().expect("it is piped");
        let errors = child.stderr.take().expect("it is piped");
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        let (sender, frames) = sync_channel(WAITING_FRAMES);
        let threads = listen(output, sender).and_then(|()| keep(errors, Arc::clone(&stderr)));
        threads.map_err(|error| LinkError::NoSsh {
            reason: error.to_string(),
        })?;
        Ok(Self {
            host: host.to_owned(),
            child,
            input,
            frames,
            stderr,
            version: String::new(),
            far_host: String::new(),
            packs: false,
        })
    }

    fn greeted(&mut self, patience: Duration, is_vain: impl Fn() -> bool) -> Result<(), LinkError> {
        let start = Instant::now();
        // The first frame is the greeting, made one by the listener.
        let greeting = loop {
            match self.next(LOOK_EVERY) {
                Err(LinkError::Silent { host, .. }) => {
                    let waited = start.elapsed();
                    if waited >= patience || (waited >= LEAST_ATTEMPT && is_vain()) {
                        return Err(LinkError::Silent { host, waited });
                    }
                }
                heard => break heard?,
            }
        };
        match greeting {
            (Say::Opened { version, host, .. }, _) => {
                self.version.clone_from(&version);
                if host == PROTOCOL.to_string() {
                    return Ok(());
                }
                Err(LinkError::OtherVersion {
                    host: self.host.clone(),
                    version,
                })
            }
            (other, _) => Err(self.garbled(&format!("{other:?} instead of a greeting"))),
        }
    }

    fn begin(&mut self, target: &Target) -> Result<(), LinkError> {
        let open = Ask::Open {
            protocol: PROTOCOL,
            folder: target.folder.clone(),
            token: target.token(),
        };
        match self.ask(&open)? {
            Say::Opened { host, packs, .. } => {
                self.far_host = host;
                // On one machine nothing is gained.
                self.packs = packs && !target.is_here();
                Ok(())
            }
            other => Err(self.garbled(&format!("{other:?}"))),
        }
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn garbled(&self, reason: &str) -> LinkError {
        LinkError::Garbled {
            host: self.host.clone(),
            reason: reason.chars().take(200).collect(),
        }
    }

    /// Sends a request, or a part of one.
    pub fn tell(&mut self, ask: &Ask) -> Result<(), LinkError> {
        self.send(ask, b"")
    }

    pub(crate) fn send(
        &mut self,
        head: &impl serde::Serialize,
        body: &[u8],
    ) -> Result<(), LinkError> {
        let sent = match &mut self.input {
            Some(input) => wire::send(input, head, body),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        sent.map_err(|_| self.ended())
    }

    /// Asks and gives the answer; a refusal is an error.
    pub fn ask(&mut self, ask: &Ask) -> Result<Say, LinkError> {
        self.ask_within(ask, PATIENCE)
    }

    pub fn ask_within(&mut self, ask: &Ask, patience: Duration) -> Result<Say, LinkError> {
        self.tell(ask)?;
        self.next(patience).map(|(say, _)| say)
    }

    /// The next that is said; a refusal is an error.
    pub fn next(&mut self, patience: Duration) -> Result<(Say, Vec<u8>), LinkError> {
        match self.frames.recv_timeout(patience) {
            Ok(Ok(Some((Say::No { reason }, _)))) => Err(LinkError::Refused {
                host: self.host.clone(),
                reason,
            }),
            Ok(Ok(Some(frame))) => Ok(frame),
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                Err(self.garbled(&error.to_string()))
            }
            Ok(Ok(None) | Err(_)) | Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
            Err(RecvTimeoutError::Timeout) => Err(LinkError::Silent {
                host: self.host.clone(),
                waited: patience,
            }),
        }
    }

    /// The line is closed: why, by ssh's words.
    fn ended(&mut self) -> LinkError {
        self.input = None;
        // It may have said why before it closed.
        while let Ok(Ok(Some((say, _)))) = self.frames.recv_timeout(Duration::from_millis(500)) {
            if let Say::No { reason } = say {
                let host = self.host.clone();
                return LinkError::Refused { host, reason };
            }
        }
        // It has closed its output, so it ends soon; a stuck one is not waited for.
        let patience = Instant::now() + Duration::from_secs(5);
        let mut code = None;
        while Instant::now() < patience {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    code = status.code();
                    break;
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(_) => break,
            }
        }
        // Its last words may still be on their way through the pipe.
        std::thread::sleep(Duration::from_millis(20));
        let words: Vec<u8> = self
            .stderr
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .iter()
            .copied()
            .collect();
        let words = String::from_utf8_lossy(&words);
        let is_greeted = !self.version.is_empty();
        LinkError::Ssh(SshFailure::new(&self.host, code, &words, is_greeted))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the greeting, then frames, on a thread that ends with the pipe or when nobody takes them.
fn listen(output: ChildStdout, sender: SyncSender<Frame>) -> io::Result<()> {
    std::thread::Builder::new()
        .name("link".to_owned())
        .spawn(move || {
            let mut output = BufReader::with_capacity(64 << 10, output);
            let greeting = wire::await_greeting(&mut output).map(|(protocol, version)| {
                let host = protocol.to_string();
                let packs = false;
                Some((
                    Say::Opened {
                        version,
                        host,
                        packs,
                    },
                    Vec::new(),
                ))
            });
            let mut is_going = greeting.is_ok() && sender.send(greeting).is_ok();
            while is_going {
                let frame = wire::receive::<Say>(&mut output);
                is_going = matches!(frame, Ok(Some(_)));
                is_going &= sender.send(frame).is_ok();
            }
        })?;
    Ok(())
}

/// Keeps ssh's last words, and so never lets it wait for a reader.
fn keep(mut errors: ChildStderr, words: Arc<Mutex<VecDeque<u8>>>) -> io::Result<()> {
    std::thread::Builder::new()
        .name("ssh's words".to_owned())
        .spawn(move || {
            let mut chunk = [0; 1024];
            while let Ok(count @ 1..) = errors.read(&mut chunk) {
                let mut words = words
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                words.extend(&chunk[..count]);
                let excess = words.len().saturating_sub(STDERR_BYTES);
                words.drain(..excess);
            }
        })?;
    Ok(())
}

/// The greeting and one answer, read without taking a byte more: what follows belongs to somebody else.
pub(crate) fn await_joined(input: &mut impl Read) -> io::Result<()> {
    let mut input = BufReader::with_capacity(1, input);
    for _ in 0..2 {
        match wire::receive::<Say>(&mut input)? {
            Some((Say::Opened { .. }, _)) => {}
            Some((Say::Joined, _)) => return Ok(()),
            Some((Say::No { reason }, _)) => return Err(io::Error::other(reason)),
            _ => break,
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// As [`wire::await_greeting`], without taking a byte more.
pub(crate) fn await_greeting(input: &mut impl Read) -> io::Result<(u32, String)> {
    wire::await_greeting(&mut BufReader::with_capacity(1, input))
}

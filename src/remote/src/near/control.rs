//! The control socket of a run elsewhere, as if it lay here: over a channel of its own, which no log holds up.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use runlog::control::{Client, ClientError, is_running};
use runlog::run_dir::{Origin, RunDir};

use super::link::{self, LinkError};
use crate::ssh::SshFailure;
use crate::targets::{Target, Targets};
use crate::wire::{self, Ask, PROTOCOL};

/// Beyond ssh's own time to connect.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client of the run's control socket, wherever the run goes on. For runs of this machine as [`Client::connect`].
pub fn connect(run_dir: &RunDir, who: &str, targets: &Targets) -> Result<Client, ClientError> {
    let Some(Origin::Target { target, path }) = run_dir.origin() else {
        return Client::connect(run_dir, who);
    };
    is_running(run_dir)?;
    let far = |reason: String| ClientError::Far {
        run: run_dir.name().to_owned(),
        reason,
    };
    let target = targets
        .find(target)
        .map_err(|error| far(error.to_string()))?;
    let name = Path::new(path)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let stream = join(&target, name).map_err(|error| far(error.to_string()))?;
    Ok(Client::over(stream, run_dir, who))
}

/// A stream that leads to the run's socket. The ssh that carries it ends when it is closed.
fn join(target: &Target, run: String) -> Result<UnixStream, LinkError> {
    let no_ssh = |error: io::Error| LinkError::NoSsh {
        reason: error.to_string(),
    };
    let ssh = target.ssh();
    let mut command = link::carrier(target, &ssh)?;
    let (mut ours, theirs) = UnixStream::pair().map_err(no_ssh)?;
    let output = theirs.try_clone().map_err(no_ssh)?;
    let mut child = command
        .stdin(OwnedFd::from(theirs))
        .stdout(OwnedFd::from(output))
        .stderr(Stdio::piped())
        .spawn()
        .map_err(no_ssh)?;
    // It holds the other ends, and the stream would never end.
    drop(command);
    let opened = open(&mut ours, target, run, ssh.connect_timeout + PATIENCE);
    if let Err(error) = opened {
        let is_refusal = error.kind() == io::ErrorKind::Other;
        let host = target.name.clone();
        let _ = ours.shutdown(std::net::Shutdown::Both);
        if is_refusal
            || matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            )
        {
            let _ = child.kill();
        }
        let failure = last_words(&mut child, &host);
        return Err(match error.kind() {
            io::ErrorKind::Other => LinkError::Refused {
                host,
                reason: error.to_string(),
            },
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => LinkError::Silent {
                host,
                waited: ssh.connect_timeout + PATIENCE,
            },
            io::ErrorKind::InvalidData => LinkError::Garbled {
                host,
                reason: error.to_string(),
            },
            _ => LinkError::Ssh(failure),
        });
    }
    // Collected when it ends, which it does with the stream; there is nobody to join it.
    let _ = std::thread::Builder::new()
        .name("control ssh".to_owned())
        .spawn(move || {
            drop(child.stderr.take());
            child.wait()
        });
    Ok(ours)
}

fn open(
    stream: &mut UnixStream,
    target: &Target,
    run: String,
    patience: Duration,
) -> io::Result<()> {
    stream.set_read_timeout(Some(patience))?;
    let (protocol, version) = link::await_greeting(stream)?;
    if protocol != PROTOCOL {
        return Err(io::Error::other(format!(
            "its lathe ({version}) speaks another protocol; put the same there: lathe target setup {}",
            target.name
        )));
    }
    let opened = Ask::Open {
        protocol,
        folder: target.folder.clone(),
        token: target.token(),
    };
    wire::send(stream, &opened, b"")?;
    wire::send(stream, &Ask::Control { run }, b"")?;
    link::await_joined(stream)?;
    stream.set_read_timeout(None)
}

/// Why ssh ended.
fn last_words(child: &mut Child, host: &str) -> SshFailure {
    let code = child.wait().ok().and_then(|status| status.code());
    let mut words = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        // A master left behind may hold it open: what is there is enough.
        let mut chunk = [0; 4096];
        let mut stderr = stderr;
        if let Ok(count) = stderr.read(&mut chunk) {
            words.extend_from_slice(&chunk[..count]);
        }
    }
    SshFailure::new(host, code, &String::from_utf8_lossy(&words), false)
}

//! The system's `ssh`, so that aliases, jumps, agents, keys, known hosts and certificates are as the user's own.
//!
//! One master connection a host, shared by all conversations and kept for a while after the last. Nothing here ever asks: with
//! `BatchMode` a host that wants a password fails at once, and the failure says how to log in by hand first.

mod failure;
mod quote;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

pub use failure::{Kind, SshFailure};
pub use quote::quoted;

/// A socket's address has room for 108 bytes; ssh appends a hash of 40 and, while it makes it, 17 more.
const LONGEST_CONTROL_DIR: usize = 108 - 1 - 40 - 17 - 1;
/// How long the master stays after its last conversation: through a reconnection, and between two commands of a person.
const PERSIST: Duration = Duration::from_secs(120);
/// A line that says nothing for as long is cut by ssh itself: twice five seconds.
const ALIVE_EVERY_S: u32 = 5;
const ALIVE_COUNT: u32 = 2;

/// How to reach one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ssh {
    /// As `ssh` takes it: an alias of the user's configuration, or `user@name`.
    pub host: String,
    /// Instead of `~/.ssh/config`.
    pub config: Option<PathBuf>,
    pub connect_timeout: Duration,
    /// Halves to tenths what metrics cost on the line.
    pub is_compressed: bool,
}

impl Ssh {
    pub fn new(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            config: std::env::var_os(CONFIG_VARIABLE)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from),
            connect_timeout: Duration::from_secs(10),
            is_compressed: true,
        }
    }

    /// `ssh … HOST COMMAND`, in a process group of its own, so that Ctrl-C at this terminal is not the connection's end.
    /// `command`: the whole line for the shell there; use [`quoted`] for anything that is not a constant. It begins in `$HOME`, which need
    /// not be the password file's, where ssh itself begins: what lies below the home folder is one and the same for all commands.
    pub fn command(&self, command: &str) -> Command {
        let mut ssh = self.base();
        ssh.args(["-T", "-o", "BatchMode=yes"])
            .args(self.master_options())
            .arg("--")
            .arg(&self.host)
            .arg(format!("cd && {command}"))
            .process_group(0);
        // Whatever asks all the same must not pop up a window.
        ssh.env_remove("DISPLAY").env_remove("SSH_ASKPASS");
        ssh
    }

    /// Logs in by hand: asks on this terminal whatever there is to ask, and leaves the master for everything that follows.
    pub fn login(&self) -> Command {
        let mut ssh = self.base();
        ssh.args(self.master_options())
            .args(["-o", "ControlPersist=8h"])
            .arg("--")
            .arg(&self.host)
            .arg("true");
        ssh
    }

    /// Ends the master, which may hang on a dead line, where a new conversation would hang too.
    pub fn drop_master(&self) {
        let mut ssh = self.base();
        ssh.args(self.master_options())
            .args(["-O", "exit", "--"])
            .arg(&self.host)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        // It speaks to a local socket only. No master: nothing to do.
        let _ = ssh.status();
    }

    fn base(&self) -> Command {
        let mut ssh = Command::new("ssh");
        if let Some(config) = &self.config {
            ssh.arg("-F").arg(config);
        }
        let seconds = self.connect_timeout.as_secs().max(1);
        ssh.arg("-o").arg(format!("ConnectTimeout={seconds}"));
        ssh.arg("-o")
            .arg(format!("ServerAliveInterval={ALIVE_EVERY_S}"));
        ssh.arg("-o")
            .arg(format!("ServerAliveCountMax={ALIVE_COUNT}"));
        // Nothing of this machine is to be reachable from there.
        ssh.args(["-a", "-x", "-o", "ClearAllForwardings=yes"]);
        if self.is_compressed {
            ssh.arg("-C");
        }
        ssh
    }

    /// None of ours where the user has a master of their own, or where no private folder can be had.
    fn master_options(&self) -> Vec<OsString> {
        if self.has_own_master() {
            return Vec::new();
        }
        let Ok(directory) = control_dir() else {
            return ["-o", "ControlPath=none"].map(OsString::from).into();
        };
        let mut path = OsString::from("ControlPath=");
        path.push(directory.join("%C"));
        let persist = format!("ControlPersist={}", PERSIST.as_secs());
        let auto = OsString::from("ControlMaster=auto");
        let option = || OsString::from("-o");
        vec![option(), auto, option(), path, option(), persist.into()]
    }

    /// Whether the user's configuration shares connections to this host already.
    fn has_own_master(&self) -> bool {
        let mut ssh = Command::new("ssh");
        if let Some(config) = &self.config {
            ssh.arg("-F").arg(config);
        }
        let output = ssh
            .arg("-G")
            .arg("--")
            .arg(&self.host)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        output.is_ok_and(|output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let value = |key: &str| {
                text.lines()
                    .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
                    .map(str::to_owned)
            };
            value("controlpath").is_some_and(|path| path != "none")
                && value("controlmaster").is_some_and(|auto| auto != "false" && auto != "no")
        })
    }
}

/// Names another file than `~/.ssh/config`, for every host.
pub const CONFIG_VARIABLE: &str = "LATHE_SSH_CONFIG";

/// The private folder of the masters' sockets.
fn control_dir() -> io::Result<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
    let uid = rustix::process::getuid().as_raw();
    let in_runtime = runtime.map(|folder| PathBuf::from(folder).join("lathe-ssh"));
    let in_tmp = Some(PathBuf::from(format!("/tmp/lathe-ssh-{uid}")));
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for directory in [in_runtime, in_tmp].into_iter().flatten() {
        if directory.as_os_str().len() > LONGEST_CONTROL_DIR {
            continue;
        }
        match private_dir(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Makes a folder that only this user can enter; refuses one that another made, or a link.
pub fn private_dir(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let found = fs::symlink_metadata(path)?;
    let is_ours = found.is_dir() && found.uid() == rustix::process::getuid().as_raw();
    if !is_ours {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} belongs to another user", path.display()),
        ));
    }
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_for_sockets_is_private_and_a_link_in_its_place_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("masters");
        private_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        private_dir(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(
            private_dir(&link).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
    }

    #[test]
    fn a_host_that_looks_like_an_option_is_a_host() {
        let command = Ssh::new("-oProxyCommand=touch /tmp/x").command("true");
        let arguments: Vec<_> = command.get_args().collect();
        let host = arguments.len() - 2;
        assert_eq!(arguments[host - 1], "--");
        assert_eq!(arguments[host], "-oProxyCommand=touch /tmp/x");
    }
}

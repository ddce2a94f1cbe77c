//! Why `ssh` gave up, told from its words: its exit code is 255 for everything, also for a command killed over there.

use std::fmt;

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The host's key is another than the known one.
    HostKeyChanged,
    /// The host is not known yet, and nobody can be asked.
    HostKeyUnknown,
    /// It wants a password or a code, or no key fits.
    LoginRefused,
    /// No such name, no route, nobody listens, or no answer.
    Unreachable,
    /// It was connected, and the line was cut.
    LineCut,
    /// The shell there does not find lathe.
    NoProgram,
    Other,
}

/// `ssh` did not bring us there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshFailure {
    pub host: String,
    pub kind: Kind,
    /// The line of ssh's that tells most.
    pub said: String,
}

impl SshFailure {
    /// `code`: the exit code of ssh, None when it was ended by a signal. `stderr`: what it said, possibly only the end of it.
    /// `is_greeted`: the program there had spoken before.
    pub fn new(host: &str, code: Option<i32>, stderr: &str, is_greeted: bool) -> Self {
        let text = stderr.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        let kind = if has(&[
            "host identification has changed",
            "host key for",
            "revoked host key",
        ]) && has(&["has changed", "revoked"])
        {
            Kind::HostKeyChanged
        } else if has(&["host key verification failed", "host key is known for"]) {
            Kind::HostKeyUnknown
        } else if has(&[
            "permission denied (",
            "too many authentication failures",
            "no more authentication methods",
        ]) {
            Kind::LoginRefused
        } else if !is_greeted
            && has(&[
                "could not resolve",
                "connection refused",
                "connection timed out",
                "operation timed out",
                "no route to host",
                "network is unreachable",
                "connection closed by",
                "connection reset",
                "banner exchange",
                "kex_exchange_identification",
            ])
        {
            Kind::Unreachable
        } else if is_greeted {
            Kind::LineCut
        } else if matches!(code, Some(126 | 127)) {
            Kind::NoProgram
        } else {
            Kind::Other
        };
        Self {
            host: host.to_owned(),
            kind,
            said: telling_line(stderr),
        }
    }
}

/// The last line that is no frame of `@` and no advice.
fn telling_line(stderr: &str) -> String {
    let is_telling = |line: &&str| {
        !line.trim().is_empty()
            && !line.contains("@@@@")
            && !line.starts_with("Warning: Permanently added")
            && !line.starts_with("mux_client")
            && !line.starts_with("ControlSocket")
    };
    let line = stderr.lines().rfind(is_telling).unwrap_or("").trim();
    let printable: String = line
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(300)
        .collect();
    printable.trim().to_owned()
}

impl fmt::Display for SshFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, said) = (&self.host, &self.said);
        match self.kind {
            Kind::HostKeyChanged => write!(
                f,
                "the host key of {host} is not the known one: either the host was set up anew, or somebody sits in between; ask who \
                 runs it, and only then remove the old key (ssh-keygen -R) and run `ssh {host}` once"
            ),
            Kind::HostKeyUnknown => write!(
                f,
                "{host} is not known yet ({said}); run `ssh {host}` once and compare its fingerprint"
            ),
            Kind::LoginRefused => write!(
                f,
                "{host} lets nobody in without asking ({said}); put your key there, load it into ssh-agent, or log in once by hand \
                 with `lathe target login {host}`, which stays open for what follows"
            ),
            Kind::Unreachable => write!(f, "{host} cannot be reached: {said}"),
            Kind::LineCut => {
                write!(f, "the connection to {host} was cut")?;
                if said.is_empty() {
                    Ok(())
                } else {
                    write!(f, ": {said}")
                }
            }
            Kind::NoProgram => write!(
                f,
                "there is no lathe on {host} ({said}); put it there with `lathe target setup {host}`"
            ),
            Kind::Other if said.is_empty() => write!(f, "ssh to {host} ended without a word"),
            Kind::Other => write!(f, "ssh to {host} failed: {said}"),
        }
    }
}

impl std::error::Error for SshFailure {}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(stderr: &str) -> Kind {
        SshFailure::new("gpu1", Some(255), stderr, false).kind
    }

    #[test]
    fn openssh_s_words_are_understood() {
        let changed = "@@@@@@@@@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n@@@@@@@@@@@\nHost key for gpu1 has changed and you have requested strict checking.\nHost key verification failed.\n";
        assert_eq!(kind(changed), Kind::HostKeyChanged);
        assert_eq!(
            kind(
                "No ED25519 host key is known for gpu1 and you have requested strict checking.\r\nHost key verification failed.\r\n"
            ),
            Kind::HostKeyUnknown
        );
        assert_eq!(
            kind("ana@gpu1: Permission denied (publickey,password)."),
            Kind::LoginRefused
        );
        for words in [
            "ssh: Could not resolve hostname gpu1: Name or service not known",
            "ssh: connect to host gpu1 port 22: Connection refused",
            "ssh: connect to host gpu1 port 22: Connection timed out",
            "kex_exchange_identification: Connection closed by remote host",
        ] {
            assert_eq!(kind(words), Kind::Unreachable, "{words}");
        }
        let missing = SshFailure::new(
            "gpu1",
            Some(127),
            "sh: 1: .lathe/current/lathe: not found\n",
            false,
        );
        assert_eq!(missing.kind, Kind::NoProgram);
        assert!(
            missing.to_string().contains("lathe target setup gpu1"),
            "{missing}"
        );
        assert_eq!(
            SshFailure::new(
                "gpu1",
                Some(255),
                "Timeout, server gpu1 not responding.",
                true
            )
            .kind,
            Kind::LineCut
        );
    }

    #[test]
    fn what_a_host_prints_cannot_move_the_cursor() {
        let failure = SshFailure::new("gpu1", Some(1), "\x1b[2Jboom\n", false);
        assert_eq!(failure.said, "[2Jboom");
    }
}

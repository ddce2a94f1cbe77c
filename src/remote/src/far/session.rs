//! How a run outlives the session that starts it: as a unit of its user's systemd where that stays when they have logged out, else
//! in a session of its own. Where logind ends all that a user leaves behind, only the first is left.
//!
//! A unit gets nothing from us but words that anybody may read: systemd keeps a file of it. So the environment goes in through
//! the supervisor's input, from memory to memory, in either case.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::wire::SUPERVISE_COMMAND;

/// `systemd-run --pipe`, which hands our files on to the unit, is of 235; `--collect` of 236.
const OLDEST_SYSTEMD: u32 = 236;
/// Older ones leave a unit alone when the kernel kills one of its processes, and know no word for it.
const FIRST_WITH_OOM_POLICY: u32 = 243;

/// How processes of this user outlive their session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeping {
    /// Their manager of units stays. The version is systemd's.
    Unit { systemd: u32 },
    /// By a session of their own.
    Session,
    /// Not at all.
    None,
}

/// What holds here.
pub(super) fn keeping() -> Keeping {
    if let Some(systemd) = lingering_systemd() {
        return Keeping::Unit { systemd };
    }
    if ends_with_the_session() {
        return Keeping::None;
    }
    Keeping::Session
}

/// What is left running in this session ends with it. Who has no session of logind's is not ended by it.
fn ends_with_the_session() -> bool {
    std::env::var_os("XDG_SESSION_ID").is_some() && ends_at_logout()
}

/// Why a run that this machine's user starts by hand would not outlive their session, and what to do.
pub(super) fn local_problem() -> Option<String> {
    ends_with_the_session().then(|| {
        format!(
            "what you leave running ends when you log out (KillUserProcesses=yes in logind.conf): run `loginctl enable-linger{}` once, and \
             start runs with `systemd-run --user --scope lathe run …`, or have who runs the machine change that",
            user().map(|user| format!(" {user}")).unwrap_or_default()
        )
    })
}

/// What to do where runs would end with the session that starts them.
pub(super) fn advice() -> String {
    format!(
        "what you leave running ends when you log out (KillUserProcesses=yes in logind.conf): run `loginctl enable-linger{}` there \
         once, or have who runs the machine do it",
        user().map(|user| format!(" {user}")).unwrap_or_default()
    )
}

fn user() -> Option<String> {
    std::env::var("USER").ok().filter(|name| !name.is_empty())
}

/// A user's manager that lives on when the last session ends: only then may a run be given to it.
fn lingering_systemd() -> Option<u32> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")?;
    if !Path::new(&runtime).join("systemd/private").exists() {
        return None;
    }
    let user = user()?;
    let lingers = said(
        "loginctl",
        &["show-user", "--property=Linger", "--value", "--", &user],
    )?;
    if lingers.trim() != "yes" {
        return None;
    }
    version_in(&said("systemd-run", &["--version"])?).filter(|version| *version >= OLDEST_SYSTEMD)
}

fn ends_at_logout() -> bool {
    let asked = said(
        "busctl",
        &[
            "--no-pager",
            "get-property",
            "org.freedesktop.login1",
            "/org/freedesktop/login1",
            "org.freedesktop.login1.Manager",
            "KillUserProcesses",
            "KillOnlyUsers",
            "KillExcludeUsers",
        ],
    );
    asked.is_some_and(|text| ends_user(&text, &user().unwrap_or_default()))
}

/// From the three properties, a line each: `b true`, `as 0`, `as 1 "root"`.
fn ends_user(text: &str, user: &str) -> bool {
    let mut lines = text.lines();
    let is_on = lines.next() == Some("b true");
    let mut names = || -> Vec<&str> {
        let line = lines.next().unwrap_or_default();
        line.split_ascii_whitespace()
            .skip(2)
            .map(|name| name.trim_matches('"'))
            .collect()
    };
    let (only, excluded) = (names(), names());
    is_on && (only.is_empty() || only.contains(&user)) && !excluded.contains(&user)
}

/// `systemd 252 (252.39-1~deb12u2)`, the first line.
fn version_in(text: &str) -> Option<u32> {
    let rest = text.strip_prefix("systemd ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command that starts the supervisor of a run. Its files are the caller's to set; `systemd-run` hands them on.
pub(super) fn supervisor(keeping: Keeping, program: &Path, run: &Path) -> Command {
    let Keeping::Unit { systemd } = keeping else {
        let mut command = Command::new(program);
        command.arg(SUPERVISE_COMMAND).arg(run);
        return command;
    };
    let name = run.file_name().unwrap_or_default();
    let mut unit = OsString::from("--unit=lathe-");
    unit.push(name);
    let mut command = Command::new("systemd-run");
    command.args([
        "--user",
        "--quiet",
        "--collect",
        "--pipe",
        "-p",
        "KillMode=mixed",
    ]);
    if systemd >= FIRST_WITH_OOM_POLICY {
        command.args(["-p", "OOMPolicy=continue"]);
    }
    command.arg(unit);
    // For what the supervisor itself starts, such as nvidia-smi.
    if let Some(path) = std::env::var_os("PATH") {
        let mut set = OsString::from("--setenv=PATH=");
        set.push(path);
        command.arg(set);
    }
    command
        .arg("--")
        .arg(program)
        .arg(SUPERVISE_COMMAND)
        .arg(literal(run));
    command
}

/// As an argument of a unit's program, in which systemd looks for variables.
fn literal(path: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut bytes = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        bytes.extend(std::iter::repeat_n(
            *byte,
            if *byte == b'$' { 2 } else { 1 },
        ));
    }
    OsString::from_vec(bytes)
}

/// What the trainer is to find in its environment, as the supervisor's input.
pub(super) fn given(keeping: Keeping, environment: &BTreeMap<String, String>) -> io::Result<Stdio> {
    let mut all = BTreeMap::new();
    // The manager of units has an environment of its own, which knows nothing of what a login sets.
    if matches!(keeping, Keeping::Unit { .. }) {
        let inherited = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        all.extend(inherited.filter(|(name, _)| !is_of_the_session(name)));
    }
    all.extend(environment.clone());
    let text = serde_json::to_vec(&all).expect("only strings");
    let mut memory = File::from(memfd_create("environment", MemfdFlags::CLOEXEC)?);
    memory.write_all(&text)?;
    memory.seek(SeekFrom::Start(0))?;
    Ok(memory.into())
}

fn is_of_the_session(name: &str) -> bool {
    name.starts_with("SSH_")
        || name.starts_with("XDG_SESSION_")
        || ["PWD", "OLDPWD", "SHLVL", "_", "TERM"].contains(&name)
}

/// The other end of [`given`].
pub(super) fn taken(input: &mut impl Read) -> Result<BTreeMap<String, String>, String> {
    let told = |reason: String| format!("cannot read the trainer's environment: {reason}");
    let mut text = Vec::new();
    input
        .read_to_end(&mut text)
        .map_err(|error| told(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| told(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> Vec<String> {
        std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_string_lossy().into_owned())
            .filter(|word| !word.starts_with("--setenv=PATH="))
            .collect()
    }

    #[test]
    fn a_unit_is_named_after_its_run_and_an_older_systemd_hears_no_word_it_does_not_know() {
        let run = Path::new("/home/$ana/.lathe/runs/toy-1");
        let lathe = Path::new("/opt/lathe");
        let unit = |systemd| words(&supervisor(Keeping::Unit { systemd }, lathe, run)).join(" ");
        assert_eq!(
            unit(252),
            "systemd-run --user --quiet --collect --pipe -p KillMode=mixed -p OOMPolicy=continue --unit=lathe-toy-1 -- /opt/lathe \
             __supervise /home/$$ana/.lathe/runs/toy-1"
        );
        assert!(!unit(239).contains("OOMPolicy"));
        assert_eq!(
            words(&supervisor(Keeping::Session, lathe, run)),
            ["/opt/lathe", "__supervise", "/home/$ana/.lathe/runs/toy-1"]
        );
    }

    #[test]
    fn who_is_ended_at_logout_is_read_from_logind() {
        let on = "b true\nas 0\nas 1 \"root\"\n";
        assert!(ends_user(on, "ana"));
        assert!(!ends_user(on, "root"));
        assert!(!ends_user("b false\nas 0\nas 0\n", "ana"));
        let only = "b true\nas 2 \"bo\" \"cy\"\nas 0\n";
        assert!(ends_user(only, "cy") && !ends_user(only, "ana"));
        assert!(!ends_user("", "ana"));
    }

    #[test]
    fn the_version_of_systemd_is_read_from_what_it_says() {
        assert_eq!(
            version_in("systemd 252 (252.39-1~deb12u2)\n+PAM"),
            Some(252)
        );
        assert_eq!(version_in("systemd 257.5\n"), Some(257));
        assert_eq!(version_in("elogind 1"), None);
    }

    #[test]
    fn what_is_given_is_taken_whole_and_of_the_session_nothing_but_what_is_meant_for_the_trainer() {
        let wanted = BTreeMap::from([("TOKEN".to_owned(), "a\n\"b\"".repeat(20_000))]);
        let program = |keeping| {
            let output = Command::new("cat")
                .stdin(given(keeping, &wanted).unwrap())
                .output()
                .unwrap();
            taken(&mut output.stdout.as_slice()).unwrap()
        };
        assert_eq!(program(Keeping::Session), wanted);
        let all = program(Keeping::Unit { systemd: 252 });
        assert_eq!(all["TOKEN"], wanted["TOKEN"]);
        assert_eq!(all.get("PATH"), std::env::var("PATH").ok().as_ref());
        assert!(is_of_the_session("SSH_CONNECTION") && !is_of_the_session("HF_HOME"));
        assert!(taken(&mut "".as_bytes()).is_err());
    }
}

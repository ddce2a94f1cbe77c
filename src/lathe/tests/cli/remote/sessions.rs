//! What becomes of a run when its user has logged out there, with logind and systemd played.

use std::fs;
use std::path::Path;

use super::far::{Far, program_there};
use crate::fake_trainer::learning;

/// As after a login by PAM, which the tests' sshd knows nothing of.
fn log_in(far: &Far, lingers: bool) {
    let private = far.bench.path("xdg-there/systemd");
    fs::create_dir_all(&private).unwrap();
    fs::write(private.join("private"), "").unwrap();
    let wrapper = far.bench.path("far-lathe");
    let text = fs::read_to_string(&wrapper).unwrap();
    let exports = format!(
        "export XDG_RUNTIME_DIR='{}' XDG_SESSION_ID=7 HF_HOME=/data/hf USER=ana\nexec ",
        far.bench.path("xdg-there").display()
    );
    fs::write(&wrapper, text.replacen("exec ", &exports, 1)).unwrap();
    let word = if lingers { "yes" } else { "no" };
    program_there(far, "loginctl", &format!("echo {word}"));
}

/// Starts a unit as the real one does: in an environment of the manager's own, its files handed on only where that is asked for.
fn play_systemd_run(far: &Far) {
    let asked = far.bench.path("asked");
    program_there(
        far,
        "systemd-run",
        &format!(
            r#"if [ "$1" = --version ]; then echo 'systemd 252 (252.39-1~deb12u2)'; exit; fi
printf '%s\n' "$@" > '{}'
exec 3</dev/null 4>/dev/null
while [ "$1" != -- ]; do
  case "$1" in
    --setenv=PATH=*) path="${{1#--setenv=PATH=}}" ;;
    --pipe) exec 3<&0 4>&2 ;;
  esac
  shift
done
shift
env -i HOME="$HOME" USER="$USER" PATH="$path" setsid "$@" <&3 >&4 2>&4 3<&- 4>&- &
wait $!"#,
            asked.display()
        ),
    );
}

fn log_env_of_the_trainer(far: &Far, to: &Path) {
    let play = far.bench.trainer(&learning());
    fs::rename(&play, far.bench.path("player")).unwrap();
    far.bench.program(
        "trainer",
        &format!(
            "echo \"$TOKEN_OF_OURS $HF_HOME $XDG_SESSION_ID\" >'{}'; exec '{}' \"$@\"",
            to.display(),
            far.bench.path("player").display()
        ),
    );
}

#[test]
fn a_run_of_a_user_who_lingers_is_a_unit_of_their_systemd_with_the_login_s_environment_and_no_secret_in_its_words()
 {
    let Some(far) = Far::new() else { return };
    log_in(&far, true);
    play_systemd_run(&far);
    far.write_targets("  pass: [TOKEN_OF_OURS]\n");
    let got = far.bench.path("got");
    log_env_of_the_trainer(&far, &got);
    let mut command = far.lathe(&["run", "toy.yaml", "--on", "loop", "--json"]);
    let output = command.env("TOKEN_OF_OURS", "hunter2-0451").output();
    let ran = crate::harness::finished(output.unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        fs::read_to_string(&got).unwrap(),
        "hunter2-0451 /data/hf \n"
    );
    let asked = fs::read_to_string(far.bench.path("asked")).unwrap();
    let name = far.bench.run_dir();
    let unit = format!(
        "--unit=lathe-{}",
        name.file_name().unwrap().to_str().unwrap()
    );
    for word in ["--user", "--collect", "OOMPolicy=continue", &unit] {
        assert!(asked.lines().any(|line| line == word), "{word}: {asked}");
    }
    assert!(!asked.contains("hunter2"), "{asked}");
    far.assert_same();
}

#[test]
fn what_systemd_says_when_it_starts_no_unit_is_what_the_launch_fails_with() {
    let Some(far) = Far::new() else { return };
    log_in(&far, true);
    program_there(
        &far,
        "systemd-run",
        "if [ \"$1\" = --version ]; then echo 'systemd 252'; exit; fi\n\
         echo 'Failed to connect to bus: No medium found' >&2; exit 1",
    );
    far.bench.trainer(&learning());
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--detach"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stderr
            .contains("Failed to connect to bus: No medium found"),
        "{ran:?}"
    );
}

#[test]
fn a_machine_that_ends_all_that_a_user_leaves_behind_begins_no_run_and_says_what_to_do() {
    let Some(far) = Far::new() else { return };
    log_in(&far, false);
    program_there(&far, "busctl", "printf 'b true\\nas 0\\nas 1 \"root\"\\n'");
    far.bench.trainer(&learning());
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--detach"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("KillUserProcesses=yes"), "{ran:?}");
    assert!(ran.stderr.contains("loginctl enable-linger ana"), "{ran:?}");
    let report = far.run(&["doctor", "loop", "--json"]).last_json();
    let findings = report["findings"].as_array().unwrap();
    let session = findings
        .iter()
        .find(|finding| finding["about"] == "session");
    assert_eq!(session.unwrap()["grade"], "bad", "{report:#}");
    // As soon as they linger, it does.
    log_in(&far, true);
    play_systemd_run(&far);
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

//! Getting there: what a machine is found to be like, and every way in which it cannot be reached.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::far::{Far, program_there};
use crate::fake_trainer::learning;

fn told(far: &Far) -> (Option<i32>, Value) {
    let ran = far.run(&["doctor", "loop", "--json"]);
    (ran.code, ran.last_json())
}

fn finding<'a>(told: &'a Value, about: &str) -> &'a Value {
    let findings = told["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["about"] == about);
    found.unwrap_or_else(|| panic!("nothing about {about}: {told:#}"))
}

#[test]
fn a_machine_is_described_with_who_uses_its_gpus_and_what_to_do_about_a_trainer_that_does_not_start()
 {
    let Some(far) = Far::new() else { return };
    far.bench.trainer(&learning());
    program_there(
        &far,
        "nvidia-smi",
        "case \"$*\" in\n*compute-apps*) echo 'GPU-a1, 1, 70000, /usr/bin/python3' ;;\n\
         *) echo '0, GPU-a1, NVIDIA H100, 81559, 70211, 98'; echo '1, GPU-b2, NVIDIA H100, 81559, 4, 0' ;;\nesac",
    );
    far.bench.program(
        "trainer",
        "echo 'x: error while loading shared libraries: libtorch_cpu.so' >&2; exit 127",
    );
    let (code, report) = told(&far);
    assert_eq!(code, Some(3), "{report:#}");
    assert_eq!(finding(&report, "line")["grade"], "good");
    assert_eq!(finding(&report, "version")["grade"], "good");
    let trainer = finding(&report, "trainer");
    assert!(
        trainer["what"]
            .as_str()
            .unwrap()
            .contains("libtorch_cpu.so"),
        "{trainer}"
    );
    assert!(
        trainer["to_do"]
            .as_str()
            .unwrap()
            .contains("lathe target setup loop"),
        "{trainer}"
    );
    let gpus = report["facts"]["gpus"].as_array().unwrap();
    assert_eq!(gpus.len(), 2);
    assert_eq!(gpus[0]["processes"][0]["name"], "/usr/bin/python3");
    assert!(report["facts"]["free_bytes"].as_u64().unwrap() > 0);

    far.bench.program("trainer", "echo lathe-trainer 0.1.0");
    let (code, report) = told(&far);
    assert_eq!(code, Some(0), "{report:#}");
    let text = far.run(&["doctor", "loop"]).stdout;
    assert!(
        text.contains("GPU 0 NVIDIA H100: 70211 of 81559 MiB used, by root"),
        "{text}"
    );
}

#[test]
fn a_login_script_that_prints_does_not_garble_the_line() {
    let Some(far) = Far::new() else { return };
    far.bench.trainer(&learning());
    let text = std::fs::read_to_string(far.bench.path("far-lathe")).unwrap();
    let noisy = text.replacen(
        "#!/bin/sh\n",
        "#!/bin/sh\necho Welcome; printf 'no newline'\n",
        1,
    );
    std::fs::write(far.bench.path("far-lathe"), noisy).unwrap();
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn a_changed_host_key_is_refused_with_the_reason() {
    let Some(far) = Far::new() else { return };
    far.knows("otherkey.pub");
    let ran = far.run(&["doctor", "loop"]);
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert!(
        ran.stdout
            .contains("the host key of loop is not the known one"),
        "{ran:?}"
    );
    let ran = far.run(&["run", "toy.yaml", "--on", "loop"]);
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert!(ran.stderr.contains("ssh-keygen -R"), "{ran:?}");
    assert!(!far.bench.path("runs").exists(), "nothing is left of it");
}

#[test]
fn a_host_that_is_not_known_is_not_trusted() {
    let Some(far) = Far::new() else { return };
    std::fs::write(far.bench.path("known"), "").unwrap();
    let ran = far.run(&["doctor", "loop"]);
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert!(ran.stdout.contains("loop is not known yet"), "{ran:?}");
}

#[test]
fn a_host_that_wants_a_password_never_hangs_and_says_how_to_log_in() {
    let Some(mut far) = Far::new() else { return };
    far.stop_sshd();
    std::fs::write(far.bench.path("authorized"), "").unwrap();
    far.start_sshd("PasswordAuthentication yes\nKbdInteractiveAuthentication yes");
    let start = Instant::now();
    let ran = far.run(&["run", "toy.yaml", "--on", "loop"]);
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert!(ran.stderr.contains("lathe target login loop"), "{ran:?}");
    // Far less than the minute that anything here waits for.
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_host_that_does_not_listen_is_told_as_such() {
    let Some(mut far) = Far::new() else { return };
    far.stop_sshd();
    let ran = far.run(&["doctor", "loop"]);
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert!(ran.stdout.contains("loop cannot be reached"), "{ran:?}");
    assert!(ran.stdout.contains("Connection refused"), "{ran:?}");
}

#[test]
fn a_host_without_lathe_is_told_how_it_gets_there() {
    let Some(far) = Far::new() else { return };
    std::fs::remove_file(far.bench.path("far-lathe")).unwrap();
    let ran = far.run(&["doctor", "loop"]);
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert!(ran.stdout.contains("lathe target setup loop"), "{ran:?}");
}

#[test]
fn targets_are_listed_and_what_is_wrong_with_one_is_told_with_its_line() {
    let Some(far) = Far::new() else { return };
    far.write_targets("  gpus: 2\nother:\n  gups: 1\n");
    let ran = far.run(&["targets", "--json"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert_eq!(ran.json_lines().len(), 1);
    assert_eq!(ran.last_json()["gpus"], "2 free");
    assert!(
        ran.stderr
            .contains("targets.yaml:8: a target has no key gups; did you mean gpus?"),
        "{ran:?}"
    );
    let ran = far.run(&["doctor", "other"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
}

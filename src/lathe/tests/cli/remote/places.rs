//! Whose turn it is there, which GPUs a run gets, and setting a machine up.

use std::fs;

use super::far::{Far, program_there};
use crate::fake_trainer::{Act, ended, started, wait_until};
use crate::harness::Ran;
use runlog::event::RunStatus;

fn gated(far: &Far, gate: &str) {
    far.bench.trainer(&[
        started(1),
        Act::WaitFor(far.bench.path(gate)),
        ended(RunStatus::Completed, 0, "", 1),
    ]);
}

fn detached(far: &Far, name: &str) -> Ran {
    let ran = far.run(&[
        "run", "toy.yaml", "--on", "loop", "--detach", "--json", "--name", name,
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran
}

fn standing(ran: &Ran) -> String {
    ran.last_json()["standing"].as_str().unwrap().to_owned()
}

#[test]
fn a_run_for_which_there_is_no_place_waits_for_its_turn_and_can_be_taken_out_of_the_line() {
    let Some(far) = Far::new() else { return };
    far.write_targets("  at_once: 1\n");
    gated(&far, "gate");
    assert_eq!(standing(&detached(&far, "first")), "it runs");
    let second = standing(&detached(&far, "second"));
    assert_eq!(second, "it waits for a place: 1 at once, all taken");
    let third = standing(&detached(&far, "third"));
    assert!(
        third.starts_with("it waits in line: 1 before it"),
        "{third}"
    );
    let ran = far.run(&["ctl", "second", "status"]);
    assert!(ran.stderr.contains("it has not started yet"), "{ran:?}");
    let ran = far.run(&["stop", "second"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = far.run(&["follow", "second", "--json"]);
    let reason = ran.last_json()["reason"].to_string();
    assert!(reason.contains("taken out of the line"), "{reason}");
    fs::write(far.bench.path("gate"), "").unwrap();
    for name in ["first", "third"] {
        let ran = far.run(&["follow", name, "--json"]);
        assert_eq!(ran.code, Some(0), "{name}: {ran:?}");
    }
}

#[test]
fn each_run_gets_a_gpu_of_its_own_and_one_too_many_waits() {
    let Some(far) = Far::new() else { return };
    program_there(
        &far,
        "nvidia-smi",
        "case \"$*\" in\n*compute-apps*) echo 'GPU-a, 1, 70000, python3' ;;\n\
         *) echo '0, GPU-a, H100, 80000, 70000, 98'; echo '1, GPU-b, H100, 80000, 4, 0'; echo '2, GPU-c, H100, 80000, 4, 0' ;;\nesac",
    );
    gated(&far, "gate");
    let player = far.bench.path("player");
    fs::rename(far.bench.path("trainer"), &player).unwrap();
    far.bench.program(
        "trainer",
        &format!(
            "echo \"gpus $CUDA_VISIBLE_DEVICES\" >&2; exec '{}' \"$@\"",
            player.display()
        ),
    );
    assert_eq!(standing(&detached(&far, "first")), "it runs");
    assert_eq!(standing(&detached(&far, "second")), "it runs");
    let third = standing(&detached(&far, "third"));
    assert_eq!(third, "it waits for 1 free GPU: 0 of 3 are free");
    let report = far.run(&["doctor", "loop", "--json"]).last_json();
    let held = |index: usize| report["facts"]["gpus"][index]["held_by"].to_string();
    assert!(
        held(1).contains("first") && held(2).contains("second"),
        "{report:#}"
    );
    fs::write(far.bench.path("gate"), "").unwrap();
    for (name, gpu) in [
        ("first", "gpus 1"),
        ("second", "gpus 2"),
        ("third", "gpus 1"),
    ] {
        let ran = far.run(&["follow", name, "--json"]);
        assert_eq!(ran.code, Some(0), "{name}: {ran:?}");
        let folder = ran.last_json()["run_dir"].as_str().unwrap().to_owned();
        let log = || fs::read_to_string(format!("{folder}/log.txt")).unwrap_or_default();
        wait_until(gpu, || log().contains("gpus "));
        // The third takes whichever is free first.
        assert!(log().contains(gpu) || name == "third", "{name}: {}", log());
    }
}

#[test]
fn a_session_whose_home_is_not_the_password_file_s_has_one_folder_for_all() {
    let Some(mut far) = Far::new() else { return };
    let home = far.bench.path("another home");
    fs::create_dir(&home).unwrap();
    far.stop_sshd();
    far.start_sshd(&format!("SetEnv \"HOME={}\"", home.display()));
    // Below the home folder, as by default.
    let text = "loop:\n  folder: lathe-of-a-test\n  connect_timeout: 5s\n";
    fs::write(far.bench.path("targets.yaml"), text).unwrap();
    far.bench.program("trainer", "echo lathe-trainer 0.1.0");
    let ran = far.run(&["target", "setup", "loop"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(home.join("lathe-of-a-test/current/lathe").exists());
    let report = far.run(&["doctor", "loop", "--json"]).last_json();
    let folder = home.join("lathe-of-a-test").canonicalize().unwrap();
    let folder = folder.to_str().unwrap();
    assert!(report.to_string().contains(folder), "{report:#}");
    let ran = far.run(&["target", "runs", "loop"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--detach"]);
    assert_eq!(
        ran.code,
        Some(4),
        "its trainer only says its version: {ran:?}"
    );
    assert_eq!(
        fs::read_dir(home.join("lathe-of-a-test/runs"))
            .unwrap()
            .count(),
        1
    );
}

#[test]
fn a_machine_without_lathe_is_set_up_over_ssh_alone_and_once() {
    let Some(far) = Far::new() else { return };
    let folder = far.bench.path("far");
    let text = format!(
        "loop:\n  folder: {}\n  connect_timeout: 5s\n",
        folder.display()
    );
    fs::write(far.bench.path("targets.yaml"), text).unwrap();
    assert_eq!(far.run(&["doctor", "loop"]).code, Some(7));
    far.bench.program("trainer", "echo lathe-trainer 0.1.0");
    let ran = far.run(&["target", "setup", "loop"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report = far.run(&["doctor", "loop", "--json"]).last_json();
    let grade = |about: &str| {
        let findings = report["findings"].as_array().unwrap();
        let found = findings.iter().find(|finding| finding["about"] == about);
        found.map(|finding| finding["grade"].clone())
    };
    assert_eq!(grade("version"), Some("good".into()), "{report:#}");
    assert_eq!(grade("trainer"), Some("good".into()), "{report:#}");
    let ran = far.run(&["target", "setup", "loop"]);
    assert!(
        !ran.stderr.contains("sending"),
        "nothing goes twice: {ran:?}"
    );

    // A first try that was cut in the middle: only the rest goes.
    let program = fs::canonicalize(folder.join("current/lathe")).unwrap();
    let whole = fs::read(&program).unwrap();
    let part = program.with_file_name("lathe.part");
    fs::remove_file(&program).unwrap();
    fs::write(&part, &whole[..whole.len() - 1_000_000]).unwrap();
    let ran = far.run(&["target", "setup", "loop"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("sending lathe (1.00 MB)"), "{ran:?}");
    assert!(fs::read(&program).unwrap() == whole);
    assert_eq!(
        far.run(&["run", "toy.yaml", "--on", "loop", "--detach"])
            .code,
        Some(4)
    );
}

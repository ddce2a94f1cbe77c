//! A machine that the programs built here do not run on: the source is sent and built there, here by a recipe that plays the build.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::SystemTime;

use super::far::{Far, program_there};
use crate::fake_trainer::{learning, wait_until};
use crate::harness::Ran;

/// As on a machine of another kind.
fn other_machine() -> Option<Far> {
    let mut far = Far::new()?;
    program_there(
        &far,
        "uname",
        "case \"$1\" in -s) echo Linux ;; *) echo riscv64 ;; esac",
    );
    // Where the machine of the tests has none in its path.
    program_there(&far, "cargo", "echo 'cargo 1.90.0 (x)'");
    far.stop_sshd();
    let path = format!(
        "SetEnv PATH={}:/usr/local/bin:/usr/bin:/bin OF_THE_LOGIN='here too'",
        far.bench.path("bin").display()
    );
    far.start_sshd(&path);
    let folder = far.bench.path("far");
    fs::write(
        far.bench.path("targets.yaml"),
        format!(
            "loop:\n  folder: {}\n  connect_timeout: 5s\n",
            folder.display()
        ),
    )
    .unwrap();
    Some(far)
}

/// A source whose recipe does `build` and puts the tests' own programs in the place of what it built.
fn source(far: &Far, build: &str) {
    far.bench.trainer(&learning());
    let write = |name: &str, text: &str| {
        let path = far.bench.path("tree").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        "Cargo.toml",
        "[workspace.package]\nrust-version = \"1.90\"\n",
    );
    write("src/lathe/Cargo.toml", "[package]\nname = \"lathe\"\n");
    write("src/a b.rs", "one");
    write("old.rs", "");
    write(
        "dev",
        &format!(
            "#!/bin/sh\nset -e\necho \"recipe $1 with $(cat 'src/a b.rs')\"\n{build}\nmkdir -p \"$CARGO_TARGET_DIR/release\"\n\
             cp '{}' \"$CARGO_TARGET_DIR/release/lathe\"\ncp '{}' \"$CARGO_TARGET_DIR/release/lathe-trainer\"\n",
            env!("CARGO_BIN_EXE_lathe"),
            far.bench.path("trainer").display(),
        ),
    );
    let dev = far.bench.path("tree/dev");
    fs::set_permissions(dev, fs::Permissions::from_mode(0o755)).unwrap();
    git(far, &["init", "-q"]);
    git(far, &["add", "-A"]);
    write("notes.txt", "tracked by nobody");
}

fn git(far: &Far, arguments: &[&str]) {
    let mut git = Command::new("git");
    git.arg("-C").arg(far.bench.path("tree")).args(arguments);
    assert!(git.status().unwrap().success());
}

const BUILD: [&str; 6] = ["target", "setup", "loop", "--build", "--source", "tree"];

fn built(far: &Far) -> Ran {
    let ran = far.run(&BUILD);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran
}

#[test]
fn what_does_not_run_there_is_built_there_from_what_is_tracked_and_only_what_changed_is_sent_again()
{
    let Some(far) = other_machine() else {
        return;
    };
    // Told as cargo tells it: by the time of the last change.
    source(
        &far,
        "mkdir -p \"$CARGO_TARGET_DIR\"; stamp=\"$CARGO_TARGET_DIR/stamp\"\n\
         ! test -e \"$stamp\" || echo \"compiling $(find src -newer \"$stamp\" -type f)\"\n: >\"$stamp\"",
    );
    let ran = far.run(&["target", "setup", "loop"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("loop is Linux riscv64"), "{ran:?}");
    assert!(
        ran.stderr.contains("lathe target setup loop --source DIR"),
        "{ran:?}"
    );
    // With the source at hand it is built there without being asked for.
    let ran = far.run(&["target", "setup", "loop", "--source", "tree"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for words in [
        "loop is Linux riscv64, and these programs are built for ",
        "; it is built there from the source",
        "sending 5 files of the source",
    ] {
        assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    }
    assert!(ran.stderr.contains("recipe build with one"), "{ran:?}");
    let there = far.bench.path("far/build/source");
    assert!(!there.join("notes.txt").exists());
    let report = far.run(&["doctor", "loop", "--json"]).last_json();
    let findings = report["findings"].as_array().unwrap();
    let version = findings
        .iter()
        .find(|finding| finding["about"] == "version");
    let words = version.unwrap()["what"].as_str().unwrap();
    assert!(words.ends_with("on both sides, built there"), "{words}");
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");

    let ran = built(&far);
    assert!(
        !ran.stderr.contains("sending"),
        "nothing goes twice: {ran:?}"
    );
    // Changed here before it was built there, as while a build goes on.
    let changed = far.bench.path("tree/src/a b.rs");
    fs::write(&changed, "two").unwrap();
    let file = fs::File::options().write(true).open(&changed).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    fs::remove_file(far.bench.path("tree/old.rs")).unwrap();
    let ran = built(&far);
    assert!(
        ran.stderr.contains("sending 1 file of the source (3 B)"),
        "{ran:?}"
    );
    assert!(
        ran.stderr
            .contains("recipe build with two\ncompiling src/a b.rs"),
        "{ran:?}"
    );
    assert!(!there.join("old.rs").exists());
}

#[test]
fn a_build_outlives_who_asked_for_it_and_the_next_who_asks_comes_back_to_it() {
    let Some(far) = other_machine() else {
        return;
    };
    let (gate, count) = (far.bench.path("gate"), far.bench.path("count"));
    source(
        &far,
        &format!(
            "echo began >>'{}'; until test -e '{}'; do sleep 0.05; done; echo went on",
            count.display(),
            gate.display()
        ),
    );
    let mut first = far.lathe(&BUILD).spawn().unwrap();
    wait_until("the build begins", || count.exists());
    first.kill().unwrap();
    first.wait().unwrap();
    let words = far.bench.path("words");
    let mut second = far
        .lathe(&BUILD)
        .stderr(fs::File::create(&words).unwrap())
        .spawn()
        .unwrap();
    let said = |what: &str| fs::read_to_string(&words).unwrap().contains(what);
    wait_until("the second finds the build", || {
        said("a build goes on there already")
    });
    fs::write(&gate, "").unwrap();
    assert!(second.wait().unwrap().success());
    assert!(said("went on"));
    let begun = fs::read_to_string(&count).unwrap();
    assert_eq!(begun, "began\n", "it was of this very source");
    let report = far.run(&["doctor", "loop", "--json"]).last_json();
    assert_eq!(report["facts"]["is_built_there"], true, "{report:#}");
}

#[test]
fn who_lingers_has_it_built_in_a_unit_with_the_environment_of_their_login() {
    let Some(far) = other_machine() else {
        return;
    };
    source(&far, "echo \"it is $OF_THE_LOGIN\"");
    program_there(&far, "loginctl", "echo yes");
    let asked = far.bench.path("asked");
    program_there(
        &far,
        "systemd-run",
        &format!(
            "echo \"$*\" >'{}'; while test \"$1\" != sh; do shift; done; env -i setsid \"$@\" &",
            asked.display()
        ),
    );
    let ran = built(&far);
    assert!(ran.stderr.contains("it is here too"), "{ran:?}");
    let asked = fs::read_to_string(asked).unwrap();
    assert!(
        asked.contains("--user --quiet --collect --unit=lathe-build"),
        "{asked}"
    );
    let left = far.bench.path("far/build/environment");
    assert!(!left.exists(), "it may hold secrets");
}

#[test]
fn what_a_build_needs_and_how_it_failed_are_told() {
    let Some(far) = other_machine() else {
        return;
    };
    source(&far, "echo 'error: no such thing'; exit 101");
    let manifest = far.bench.path("tree/Cargo.toml");
    fs::write(&manifest, "[workspace.package]\nrust-version = \"999.1\"\n").unwrap();
    let ran = far.run(&BUILD);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stderr
            .contains("is too old (Rust 999.1 or newer: https://rustup.rs)"),
        "{ran:?}"
    );
    fs::write(&manifest, "[workspace]\n").unwrap();
    let ran = far.run(&BUILD);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("error: no such thing"), "{ran:?}");
    assert!(
        ran.stderr
            .contains("the build on loop failed (exit code 101)"),
        "{ran:?}"
    );
    assert!(!far.bench.path("far/current").exists());
    let ran = far.run(&["target", "setup", "loop", "--build"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("is not Lathe's source"), "{ran:?}");
}

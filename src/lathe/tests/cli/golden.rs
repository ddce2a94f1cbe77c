//! Help and errors word for word: they are what a user meets first.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::harness::Bench;

#[test]
fn help_says_what_there_is() {
    let bench = Bench::new();
    insta::assert_snapshot!(bench.run(["--help"]).stdout);
    insta::assert_snapshot!(bench.run(["run", "--help"]).stdout);
    insta::assert_snapshot!(bench.run(["ctl", "--help"]).stdout);
}

#[test]
fn wrong_usage_says_what_is_wrong_and_exits_with_2() {
    let bench = Bench::new();
    for arguments in [
        "train",
        "run",
        "run none.yaml",
        "run toy.yaml --jsn",
        "runs show",
    ] {
        let ran = bench.run(arguments.split(' '));
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (Some(2), ""),
            "{arguments}: {ran:?}"
        );
        insta::assert_snapshot!(arguments.replace(' ', "_"), ran.stderr);
    }
}

#[test]
fn arguments_that_are_not_utf8_are_refused_or_used_and_never_a_panic() {
    let bench = Bench::new();
    let bytes = OsStr::from_bytes(b"ab\xff.yaml");
    for arguments in [
        [OsStr::new("run"), bytes],
        [OsStr::new("stop"), bytes],
        [OsStr::new("keys"), bytes],
        [bytes, bytes],
    ] {
        let ran = bench.lathe(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(
            matches!(ran.status.code(), Some(2 | 3)),
            "{arguments:?}: {stderr}"
        );
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn version_names_the_trainer_that_would_be_used() {
    let bench = Bench::new();
    let without = bench.run(["--version"]).stdout;
    assert!(without.starts_with("lathe 0."), "{without}");
    assert!(
        without.contains("not found (LATHE_TRAINER names"),
        "{without}"
    );
    bench.program("trainer", "exit 0");
    let with = bench.run(["--version"]).stdout;
    assert!(
        with.contains(bench.path("trainer").to_str().unwrap()),
        "{with}"
    );
}

#[test]
fn keys_are_found_by_path_and_by_meaning() {
    let bench = Bench::new();
    let all = bench.run(["keys"]).stdout;
    assert!(all.contains("algorithm.adv_estimator"), "{all}");
    let lines = bench.run(["keys", "clip_ratio_c", "--json"]).json_lines();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["default"], 3.0);
    let ran = bench.run(["keys", "nonesuch"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.starts_with("error: no key has `nonesuch`"),
        "{}",
        ran.stderr
    );
}

#[test]
fn metrics_are_found_by_pattern_by_concrete_name_and_by_meaning() {
    let bench = Bench::new();
    let lines = bench
        .run(["metrics", "critic/score/mean", "--json"])
        .json_lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["name"], "critic/score/{stat}");
    assert!(
        bench
            .run(["metrics", "--markdown"])
            .stdout
            .contains("| `actor/ppo_kl` | nats |")
    );
    assert!(bench.run(["metrics", "k3"]).stdout.contains("nats"));
    let ran = bench.run(["metrics", "nonesuch"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.starts_with("error: no metric has `nonesuch`"),
        "{}",
        ran.stderr
    );
}

#[test]
fn the_readme_lists_the_keys_as_they_are() {
    let readme =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let bench = Bench::new();
    let table = bench.run(["bindings", "--markdown"]).stdout;
    assert!(
        readme.contains(table.trim_end()),
        "README.md has another table of keys; put this in its place:\n{table}"
    );
}

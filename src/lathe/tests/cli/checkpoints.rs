//! `lathe checkpoints RUN`, its `prune`, and `lathe run EXPERIMENT --from CHECKPOINT`.

use std::fs;
use std::path::{Path, PathBuf};

use runlog::checkpoints;
use serde_json::Value;

use super::fake_trainer::learning;
use super::harness::Bench;

/// A run of four steps with a checkpoint of each; that of step 2 is broken.
fn bench() -> (Bench, PathBuf) {
    let bench = Bench::new();
    bench.trainer(&learning());
    assert_eq!(bench.run(["run", "toy.yaml"]).code, Some(0));
    let run_dir = bench.run_dir();
    let place = run_dir.join("checkpoints");
    for step in 1..=4 {
        let fill = |directory: &Path| fs::write(directory.join("model.safetensors"), [7; 2000]);
        checkpoints::write(&place, step, fill, || Ok(())).unwrap();
    }
    fs::write(place.join("step-000002/model.safetensors"), "short").unwrap();
    (bench, run_dir)
}

fn steps(run_dir: &Path) -> Vec<u64> {
    checkpoints::list(&run_dir.join("checkpoints"))
        .unwrap()
        .iter()
        .map(|found| found.step)
        .collect()
}

#[test]
fn checkpoints_are_listed_with_size_value_and_why_they_are_kept() {
    let (bench, _) = bench();
    let ran = bench.run(["checkpoints", "latest", "--keep", "1", "--every", "3"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines: Vec<Vec<&str>> = ran
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0], ["STEP", "SIZE", "VALUE", "KEPT"]);
    assert_eq!(lines[1][0], "1");
    assert!(
        lines[1].ends_with(&["no", "rule", "keeps", "it"]),
        "{ran:?}"
    );
    assert_eq!(lines[2][..2], ["2", "broken"]);
    assert!(lines[2].contains(&"model.safetensors"), "{ran:?}");
    assert!(lines[3].ends_with(&["every", "3", "steps"]), "{ran:?}");
    assert_eq!(lines[4].last(), Some(&"newest"));
    assert!(lines[4].contains(&"0.930"), "{ran:?}");
    let ran = bench.run(["checkpoints", "latest", "--json", "--verify"]);
    let rows = ran.json_lines();
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[0]["is_whole"], true);
    assert_eq!(rows[0]["bytes"], 2000);
    assert_eq!(rows[0]["kept"][0], "all are kept");
    assert_eq!(rows[1]["is_whole"], false);
    assert_eq!(rows[3]["value"], 0.93);
}

#[test]
fn prune_removes_what_no_rule_keeps_and_a_dry_run_removes_nothing() {
    let (bench, run_dir) = bench();
    let refused = bench.run(["checkpoints", "latest", "prune"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("--keep N"), "{refused:?}");
    let prune = [
        "checkpoints",
        "latest",
        "prune",
        "--keep",
        "1",
        "--best",
        "1",
        "--metric",
        "actor/entropy",
    ];
    let dry = bench.run(prune.iter().chain(&["--dry-run"]));
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert!(dry.stdout.contains("would remove step 3"), "{dry:?}");
    assert_eq!(steps(&run_dir), [1, 2, 3, 4]);
    let read_only = bench.run(prune.iter().chain(&["--read-only"]));
    assert_eq!(read_only.code, Some(2), "{read_only:?}");
    // Step 1 has the highest entropy, and what is broken is left to be looked at.
    let pruned = bench.run(prune);
    assert_eq!(pruned.code, Some(0), "{pruned:?}");
    assert!(pruned.stdout.contains("removed step 3 (2"), "{pruned:?}");
    assert!(pruned.stdout.contains("1 broken left"), "{pruned:?}");
    assert_eq!(steps(&run_dir), [1, 2, 4]);
}

#[test]
fn a_run_from_a_checkpoint_names_it_in_its_experiment_and_its_parent_in_run_json() {
    let (bench, parent) = bench();
    let from = |argument: &str| {
        let ran = bench.run(["run", "toy.yaml", "--from", argument, "--name", "fork"]);
        let forks: Vec<PathBuf> = fs::read_dir(bench.path("runs"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| *path != parent)
            .collect();
        (ran, forks)
    };
    for (argument, said) in [
        ("latest:2", "model.safetensors"),
        ("latest:9", "no checkpoint of step 9"),
        ("toy.yaml", "no run matches"),
        ("model", "manifest.json"),
    ] {
        let (ran, forks) = from(argument);
        assert!(matches!(ran.code, Some(2 | 3)), "{ran:?}");
        assert!(ran.stderr.contains(said), "{argument}: {ran:?}");
        assert!(forks.is_empty(), "nothing is left of a refused start");
    }
    let (ran, forks) = from("latest:3");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let yaml = fs::read_to_string(forks[0].join("experiment.yaml")).unwrap();
    let checkpoint = fs::canonicalize(parent.join("checkpoints/step-000003")).unwrap();
    assert!(yaml.contains("resume_mode: resume_path"), "{yaml}");
    let named = yaml
        .lines()
        .find_map(|line| line.trim().strip_prefix("resume_from_path: "))
        .unwrap();
    let named = named.trim_matches(['"', '\'']);
    assert_eq!(fs::canonicalize(named).unwrap(), checkpoint);
    let info: Value =
        serde_json::from_slice(&fs::read(forks[0].join("run.json")).unwrap()).unwrap();
    assert!(
        parent
            .to_str()
            .unwrap()
            .ends_with(info["parent"].as_str().unwrap()),
        "{info}"
    );
}

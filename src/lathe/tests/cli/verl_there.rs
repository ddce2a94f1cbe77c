//! `launch.engine: verl` on other machines: over ssh, and as a job of Slurm's, played.

use std::fs;

use serde_json::Value;

use crate::cluster::queue::Cluster;
use crate::fake_trainer::wait_until;
use crate::harness::{Bench, Ran};
use crate::remote::far::Far;
use crate::verl::{install, told};

/// An experiment whose reward function imports a module beside it, which imports one of a package.
fn with_a_reward(bench: &Bench) {
    install(
        bench,
        "reward:\n  custom_reward_function:\n    path: scores/reward.py\n",
    );
    fs::create_dir_all(bench.path("scores/parts")).unwrap();
    let path = "import os, sys\nsys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))\n";
    let files = [
        ("reward.py", format!("{path}from helper import score\n\ndef compute_score(data_source, solution_str, ground_truth, extra_info):\n    return score(solution_str, ground_truth)\n")),
        ("helper.py", "from parts.same import same\n\ndef score(one, other):\n    return 0.5 if same(one, other) else 0.0\n".to_owned()),
        ("parts/__init__.py", String::new()),
        ("parts/same.py", "def same(one, other):\n    return one == other\n".to_owned()),
        ("unused.py", String::new()),
    ];
    for (name, text) in files {
        fs::write(bench.path("scores").join(name), text).unwrap();
    }
}

fn assert_followed(bench: &Bench, there: &std::path::Path, ran: &Ran) {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let summary = ran.last_json();
    assert_eq!(
        (
            summary["status"].as_str(),
            summary["summary"]["steps"].as_u64()
        ),
        (Some("finished"), Some(4)),
        "{summary}"
    );
    let events = fs::read_to_string(bench.run_dir().join("events.jsonl")).unwrap();
    assert!(events.contains("\"reward/own\":0.5"), "{events}");
    let log = fs::read_to_string(bench.run_dir().join("log.txt")).unwrap();
    assert!(log.contains("step:4 - critic/score/mean:0.4"), "{log}");
    let told = told(there);
    let project = fs::canonicalize(there.join("project")).unwrap();
    assert_eq!(told[1].as_str(), project.to_str());
    for sent in [
        "train.parquet",
        "scores/reward.py",
        "scores/helper.py",
        "scores/parts/__init__.py",
        "scores/parts/same.py",
    ] {
        assert!(project.join(sent).is_file(), "{sent}");
    }
    assert!(!project.join("scores/unused.py").exists());
}

#[test]
fn a_run_of_verl_on_another_machine_is_followed_to_its_end_and_its_reward_goes_along() {
    let Some(far) = Far::new() else { return };
    with_a_reward(&far.bench);
    let ran = far.run(&["run", "verl.yaml", "--on", "loop", "--json"]);
    assert_followed(&far.bench, &far.run_there(), &ran);
    far.assert_same();
}

#[test]
fn a_run_of_verl_on_another_machine_is_stopped_by_name() {
    let Some(far) = Far::new() else { return };
    install(&far.bench, "");
    fs::write(far.bench.path("wait"), "").unwrap();
    let ran = far.run(&["run", "verl.yaml", "--on", "loop", "--detach"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let events = far.run_there().join("events.jsonl");
    wait_until("four steps", || crate::remote::far::has_step(&events, 4));
    let ran = far.run(&["stop", "latest"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = far.run(&["follow", "latest", "--json"]);
    assert_eq!(ran.last_json()["status"], "stopped", "{ran:?}");
    far.assert_same();
}

#[test]
fn verl_that_is_not_there_ends_the_run_with_what_to_do() {
    let Some(far) = Far::new() else { return };
    install(&far.bench, "");
    far.write_targets("  python: /nowhere/python\n");
    let ran = far.run(&["run", "verl.yaml", "--on", "loop", "--json"]);
    let summary = ran.last_json();
    assert_eq!(summary["status"], "failed", "{ran:?}");
    let reason = summary["reason"].to_string();
    assert!(
        reason.contains("cannot start /nowhere/python") && reason.contains("launch.verl.python"),
        "{reason}"
    );
}

#[test]
fn a_run_of_verl_is_a_job_of_slurm_s_and_its_end_is_told() {
    let cluster = Cluster::played();
    with_a_reward(&cluster.bench);
    let ran = cluster.run(&["run", "verl.yaml", "--on", "lab", "--json"]);
    assert_followed(&cluster.bench, &cluster.run_there(), &ran);
    cluster.assert_same();
    assert_eq!(cluster.exit()["code"], 0);
    let script = fs::read_to_string(cluster.run_there().join("job.sh")).unwrap();
    assert!(script.contains("#SBATCH --no-requeue"), "{script}");
}

#[test]
fn verl_that_fails_in_a_job_is_a_failed_run() {
    let cluster = Cluster::played();
    install(&cluster.bench, "");
    fs::write(cluster.bench.path("fail"), "").unwrap();
    let ran = cluster.run(&["run", "verl.yaml", "--on", "lab", "--json"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert_eq!(
        ran.last_json()["reason"],
        "verl ended with exit code 1: ValueError: a tensor of the wrong shape"
    );
    assert_eq!(cluster.exit()["code"], 4);
}

#[test]
fn a_job_of_verl_is_stopped_with_all_that_it_started() {
    let cluster = Cluster::played();
    install(&cluster.bench, "");
    for flag in ["wait", "workers"] {
        fs::write(cluster.bench.path(flag), "").unwrap();
    }
    let ran = cluster.run(&["run", "verl.yaml", "--on", "lab", "--detach", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let worker = cluster.run_there().join("metrics.jsonl.worker");
    wait_until("verl has its worker", || {
        fs::read_to_string(&worker).is_ok_and(|text| !text.is_empty())
    });
    let ran = cluster.run(&["stop", "latest"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = cluster.run(&["follow", "latest", "--json"]);
    assert_eq!(ran.last_json()["status"], "stopped", "{ran:?}");
    let pid = fs::read_to_string(&worker).unwrap();
    wait_until("the worker is gone", || {
        !std::path::Path::new("/proc").join(pid.trim()).exists()
    });
}

#[test]
fn a_dry_run_tells_the_command_there_and_what_would_go_along() {
    let cluster = Cluster::played();
    with_a_reward(&cluster.bench);
    cluster.write_targets("lab", "  kind: slurm\n  python: /opt/verl/bin/python\n");
    let ran = cluster.run(&["run", "verl.yaml", "--on", "lab", "--dry-run"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout
            .contains(" /opt/verl/bin/python -m verl.trainer.main_ppo "),
        "{ran:?}"
    );
    assert!(
        ran.stderr.contains("goes along: scores/parts/same.py"),
        "{ran:?}"
    );
    assert!(!cluster.bench.path("runs").exists());
    let ran = cluster.run(&[
        "run",
        "verl.yaml",
        "data.train_files=[nowhere.parquet]",
        "--on",
        "lab",
        "--json",
    ]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let error: Value = ran.last_json()["error"].clone();
    assert!(
        error
            .to_string()
            .contains("data.train_files names nowhere.parquet, which is not on this machine"),
        "{error}"
    );
}

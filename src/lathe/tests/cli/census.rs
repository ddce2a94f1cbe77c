//! Runs on targets that were begun from another machine: listed here too, and fetched when somebody wants to see them.

use std::fs;

use runlog::event::RunStatus;
use serde_json::Value;

use super::cluster::queue::Cluster;
use super::fake_trainer::{Act, checkpoint, ended, started, step, wait_until};
use super::screen::Screen;

/// A run on target `lab` that was begun from elsewhere, and waits for the file `gate` after two of four steps.
fn begun_elsewhere() -> Cluster {
    let cluster = Cluster::played();
    let mut acts = vec![started(4), step(1, 0.25), step(2, 0.5)];
    acts.push(Act::WaitFor(cluster.bench.path("gate")));
    acts.extend([step(3, 0.75), step(4, 1.0), checkpoint(4)]);
    acts.push(ended(RunStatus::Completed, 0, "", 4));
    cluster.bench.trainer(&acts);
    let ran = cluster.run(&[
        "run",
        "toy.yaml",
        "--on",
        "lab",
        "--detach",
        "--name",
        "theirs",
        "--runs",
        "elsewhere",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    cluster
}

fn rows(cluster: &Cluster, arguments: &[&str]) -> Vec<Value> {
    let ran = cluster.run(arguments);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.json_lines()
}

#[test]
fn a_run_begun_elsewhere_is_listed_with_how_it_stands_and_its_log_comes_when_it_is_followed() {
    let cluster = begun_elsewhere();
    assert_eq!(rows(&cluster, &["runs", "--json"]), Vec::<Value>::new());
    let listed = || rows(&cluster, &["runs", "--targets", "--json"]);
    wait_until("its second step is heard of", || {
        listed().first().is_some_and(|row| row["step"] == 2)
    });
    let row = listed().remove(0);
    assert_eq!(
        (
            &row["status"],
            &row["total_steps"],
            &row["origin"]["target"]
        ),
        (&"running".into(), &4.into(), &"lab".into()),
        "{row:#}"
    );
    let folder = row["run_dir"].as_str().unwrap().to_owned();
    assert!(!fs::exists(format!("{folder}/events.jsonl")).unwrap());
    assert!(
        !cluster.bench.path("runs").exists(),
        "the project stays as it is"
    );
    let table = cluster.run(&["runs", "--targets"]).stdout;
    assert!(table.contains("2/4") && table.contains("theirs"), "{table}");

    fs::write(cluster.bench.path("gate"), "").unwrap();
    let ran = cluster.run(&["follow", "theirs", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.last_json()["status"], "finished");
    let name = row["run"].as_str().unwrap();
    for file in ["events.jsonl", "log.txt"] {
        let there = cluster.bench.path("far/runs").join(name).join(file);
        let here = fs::read(format!("{folder}/{file}")).unwrap();
        assert!(here == fs::read(there).unwrap(), "{file}");
    }
    let ran = cluster.run(&["checkpoints", "theirs"]);
    assert!(ran.stderr.contains("on lab it saved at step 4"), "{ran:?}");
    // Where it was begun from there is its copy: one run is one row.
    for arguments in [
        &["runs", "--targets", "--json"][..],
        &["runs", "--targets", "--json", "--runs", "elsewhere"],
    ] {
        let rows = rows(&cluster, arguments);
        assert_eq!(rows.len(), 1, "{rows:#?}");
        assert_eq!(rows[0]["status"], "finished");
    }
}

#[test]
fn a_run_begun_elsewhere_is_adopted_by_its_name_and_once() {
    let cluster = begun_elsewhere();
    fs::write(cluster.bench.path("gate"), "").unwrap();
    let ran = cluster.run(&["target", "adopt", "lab", "theirs"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = cluster.run(&["follow", "theirs", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let folder = ran.last_json()["run_dir"].as_str().unwrap().to_owned();
    assert!(
        folder.starts_with(cluster.bench.path("runs").to_str().unwrap()),
        "{folder}"
    );
    let ran = cluster.run(&["target", "adopt", "lab", "theirs"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("is here already"), "{ran:?}");
}

#[test]
fn a_run_that_is_deleted_there_is_listed_no_more_and_a_target_may_be_left_out() {
    let cluster = begun_elsewhere();
    fs::write(cluster.bench.path("gate"), "").unwrap();
    let listed = || rows(&cluster, &["runs", "--targets", "--json"]);
    wait_until("it is over", || {
        listed()
            .first()
            .is_some_and(|row| row["status"] == "finished")
    });
    cluster.write_targets("lab", "  kind: slurm\n  partition: gpu\n  listed: false\n");
    assert_eq!(listed(), Vec::<Value>::new());
    cluster.write_targets("lab", "  kind: slurm\n  partition: gpu\n");
    assert_eq!(listed().len(), 1);
    // What watched over it may still write its last word.
    wait_until("they are deleted", || {
        fs::remove_dir_all(cluster.bench.path("far/runs")).is_ok()
    });
    assert_eq!(listed(), Vec::<Value>::new());
}

#[test]
fn page_runs_lists_it_too_opens_it_and_says_which_target_cannot_be_asked() {
    let cluster = begun_elsewhere();
    let targets = cluster.bench.path("targets.yaml");
    let text = fs::read_to_string(&targets).unwrap();
    fs::write(
        &targets,
        format!("{text}gone:\n  host: nowhere.invalid\n  connect_timeout: 5s\n"),
    )
    .unwrap();
    let path = format!(
        "{}:{}",
        cluster.bench.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let home = cluster.bench.path("").display().to_string();
    let none = cluster.bench.path("none.yaml").display().to_string();
    let mut screen = Screen::start(
        &cluster.bench,
        &[],
        120,
        &[
            ("HOME", &home),
            ("NO_COLOR", "1"),
            ("PATH", &path),
            ("LATHE_TARGETS", &none),
        ],
    );
    screen.shows("theirs");
    screen.shows("2/4");
    screen.shows("unreachable: gone");
    screen.type_keys("d");
    screen.shows("Nothing of it is here");
    screen.type_keys("\x1b");
    // Both at once would be one key.
    wait_until("the words are gone", || {
        !screen.text().contains("Nothing of it is here")
    });
    screen.type_keys("\r");
    screen.shows("step 2/4");
    fs::write(cluster.bench.path("gate"), "").unwrap();
    screen.shows("4/4");

    // Its rollouts are there, and come when they are asked for; these are none that can be read, which is said of them.
    let there = fs::read_dir(cluster.bench.path("far/runs")).unwrap();
    let run = there.map(|entry| entry.unwrap().path()).next().unwrap();
    fs::create_dir_all(run.join("rollouts")).unwrap();
    fs::write(run.join("rollouts/step-000004.parquet"), "no parquet").unwrap();
    screen.type_keys("4");
    screen.shows("The rollouts of this run lie on lab");
    screen.type_keys("p");
    screen.shows("fetched 10 B");
    screen.shows("step-000004.parquet");
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
}

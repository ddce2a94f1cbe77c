//! Page Launch of the real program with a target that has a queue, in a real terminal.

use std::fs;

use super::queue::Cluster;
use crate::fake_trainer::{learning, wait_until};
use crate::harness::EXPERIMENT;
use crate::screen::Screen;

fn open(cluster: &Cluster) -> Screen {
    fs::create_dir(cluster.bench.path("experiments")).unwrap();
    fs::write(cluster.bench.path("experiments/toy.yaml"), EXPERIMENT).unwrap();
    let path = |name: &str| cluster.bench.path(name).display().to_string();
    let programs = format!(
        "{}:{}",
        path("bin"),
        std::env::var("PATH").unwrap_or_default()
    );
    let environment = [
        ("HOME", path("home")),
        ("NO_COLOR", "1".to_owned()),
        ("PATH", programs),
        ("LATHE_TARGETS", path("none.yaml")),
    ];
    let environment = environment
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    let mut screen = Screen::start(&cluster.bench, &[], 100, &environment);
    screen.shows("Runs");
    screen.type_keys("6o");
    screen.shows("toy.yaml");
    screen.type_keys("\r");
    screen.shows("s starts toy");
    screen.type_keys("gjj");
    screen.shows("> target");
    screen.type_keys("\r");
    screen
}

#[test]
fn a_sweep_for_slurm_goes_into_its_queue_as_one_array_and_outlives_the_workbench() {
    let cluster = Cluster::played();
    cluster.bench.trainer(&learning());
    cluster.hold();
    let mut screen = open(&cluster);
    screen.shows("lab (enter: the next)");
    screen.type_keys("adata.seed={1,2,3}\r");
    screen.shows("s queues 3 runs");
    screen.type_keys("s");
    screen.shows("Start 3 runs?");
    screen.shows("go into the queue of lab together");
    screen.type_keys("y");
    wait_until("the array", || cluster.state("1_2") == "PENDING");
    wait_until("the copies", || {
        let runs = fs::read_dir(cluster.bench.path("runs"));
        runs.map_or(0, |runs| {
            runs.flatten()
                .filter(|run| run.path().join("run.json").is_file())
                .count()
        }) == 3
    });
    screen.type_keys("1");
    screen.shows("toy-seed-3");
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
    assert_eq!(cluster.asked().lines().count(), 1, "{}", cluster.asked());
    let runs = fs::read_dir(cluster.bench.path("far/runs")).unwrap();
    for run in runs.flatten() {
        let script = fs::read_to_string(run.path().join("job.sh")).unwrap();
        assert!(script.contains("#SBATCH --array=0-2"), "{script}");
    }
    for (task, seed) in [("1_0", 1), ("1_1", 2), ("1_2", 3)] {
        cluster.release(task);
        let name = format!("toy-seed-{seed}");
        let ran = cluster.run(&["follow", &name, "--json"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(ran.last_json()["status"], "finished");
    }
}

#[test]
fn a_target_that_does_not_answer_is_told_on_the_screen_and_leaves_no_run() {
    let cluster = Cluster::bare();
    cluster.bench.trainer(&learning());
    cluster.write_targets("head", "  kind: ray\n  address: http://127.0.0.1:9\n");
    let mut screen = open(&cluster);
    screen.shows("head (enter: the next)");
    screen.type_keys("s");
    screen.shows("toy did not start");
    screen.shows("Ray does not answer at");
    screen.type_keys(" ");
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
    for folder in ["runs", "far/runs"] {
        let left = fs::read_dir(cluster.bench.path(folder))
            .into_iter()
            .flatten();
        let left = left
            .flatten()
            .filter(|run| run.path().join("run.json").is_file());
        assert_eq!(left.count(), 0, "{folder}");
    }
}

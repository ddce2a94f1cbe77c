//! `lathe run --resume` of the copy of a run there: it goes on there, in its own directory, and here as one run.

use std::fs;
use std::path::Path;

use runlog::event::RunStatus;
use serde_json::Value;

use super::far::{Far, has_step};
use crate::fake_trainer::{
    Act, checkpoint, ended, going_on, save_checkpoint, started, step, wait_until,
};
use crate::harness::finished;

/// Two steps, a checkpoint, and a death.
fn dying() -> Vec<Act> {
    vec![
        started(4),
        step(1, 0.5),
        step(2, 0.6),
        checkpoint(2),
        Act::Die,
    ]
}

/// A run that was killed there, with its checkpoint.
fn killed(far: &Far) {
    far.bench.trainer(&dying());
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--json"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    save_checkpoint(&far.run_there(), 2);
}

fn exit(run: &Path, name: &str) -> Value {
    serde_json::from_slice(&fs::read(run.join(name)).unwrap()).unwrap()
}

fn steps(events: &Path) -> usize {
    let text = fs::read_to_string(events).unwrap();
    text.matches("\"event\":\"step_ended\"").count()
}

#[test]
fn a_run_that_was_killed_there_goes_on_in_its_own_directory_and_here_as_one_run() {
    let Some(far) = Far::new() else { return };
    killed(&far);
    far.bench.trainer(&going_on(2, 4));
    let ran = far.run(&["run", "--resume", "latest", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let told = ran.json_lines();
    assert_eq!(told[0]["event"], "run_resumed", "only what is new is told");
    assert_eq!(ran.last_json()["status"], "finished");
    far.assert_same();
    assert_eq!(steps(&far.bench.run_dir().join("events.jsonl")), 4);
    assert_eq!(fs::read_dir(far.bench.path("far/runs")).unwrap().count(), 1);
    for run in [far.run_there(), far.bench.run_dir()] {
        assert_eq!(exit(&run, "exit.json")["code"], 0);
        assert_eq!(exit(&run, "exit.before.json")["signal"], 9);
    }
    let ran = far.run(&["runs", "--json"]);
    assert_eq!(ran.last_json()["status"], "finished", "{ran:?}");
}

#[test]
fn page_runs_has_it_go_on_there() {
    let Some(far) = Far::new() else { return };
    killed(&far);
    far.bench.trainer(&going_on(2, 4));
    let mut screen = far.screen(&[]);
    screen.shows("dead");
    screen.type_keys("r");
    screen.shows("In its own directory on loop");
    screen.type_keys("y");
    screen.shows("goes on, also without the workbench");
    screen.shows("finished");
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
    far.assert_same();
    assert_eq!(steps(&far.bench.run_dir().join("events.jsonl")), 4);
}

#[test]
fn a_run_that_is_left_while_it_goes_on_is_running_here_and_its_earlier_end_is_none() {
    let Some(far) = Far::new() else { return };
    far.bench.trainer(&[
        started(4),
        step(1, 0.5),
        checkpoint(1),
        ended(RunStatus::Failed, 4, "the disk was full", 1),
        Act::Exit(4),
    ]);
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--json"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    save_checkpoint(&far.run_there(), 1);
    let gate = far.bench.path("gate");
    let mut acts = going_on(1, 4);
    acts.insert(0, Act::WaitFor(gate.clone()));
    far.bench.trainer(&acts);
    let resumed = far
        .lathe(&["run", "--resume", "latest", "--detach", "--json"])
        .spawn()
        .unwrap();
    wait_until("it is running there", || {
        far.run(&["target", "runs", "loop"])
            .stdout
            .starts_with("running ")
    });
    wait_until("its earlier end is put aside", || {
        far.bench.run_dir().join("exit.before.json").exists()
    });
    let ran = far.run(&["runs", "--json"]);
    assert_eq!(ran.last_json()["status"], "running", "{ran:?}");
    let follower = far.lathe(&["follow", "latest", "--json"]).spawn().unwrap();
    fs::write(&gate, "").unwrap();
    let ran = finished(resumed.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.last_json()["standing"], "it runs");
    let ran = finished(follower.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.last_json()["status"], "finished");
    far.assert_same();
}

#[test]
fn of_two_that_resume_a_run_at_once_one_is_refused() {
    let Some(far) = Far::new() else { return };
    killed(&far);
    let gate = far.bench.path("gate");
    let mut acts = going_on(2, 4);
    acts.insert(3, Act::WaitFor(gate.clone()));
    far.bench.trainer(&acts);
    let resume = ["run", "--resume", "latest", "--detach"];
    let both = [(); 2].map(|()| far.lathe(&resume).spawn().unwrap());
    let both = both.map(|child| finished(child.wait_with_output().unwrap()));
    let mut codes = both.each_ref().map(|ran| ran.code);
    codes.sort_unstable();
    assert_eq!(codes, [Some(0), Some(5)], "{both:?}");
    let events = far.run_there().join("events.jsonl");
    wait_until("its third step", || has_step(&events, 3));
    let third = far.run(&resume);
    assert_eq!(third.code, Some(5), "{third:?}");
    assert!(
        third.stderr.contains("is running (process ") && third.stderr.contains("lathe follow"),
        "{third:?}"
    );
    fs::write(&gate, "").unwrap();
    let ran = far.run(&["follow", "latest", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    far.assert_same();
    assert_eq!(steps(&events), 4);
}

#[test]
fn overrides_of_a_resume_are_its_experiment_from_there_on_and_reach_the_trainer_once() {
    let Some(far) = Far::new() else { return };
    killed(&far);
    let play = far.bench.trainer(&going_on(2, 4));
    fs::rename(&play, far.bench.path("player")).unwrap();
    let got = far.bench.path("got");
    far.bench.program(
        "trainer",
        &format!(
            "echo \"$@\" >'{}'; exec '{}' \"$@\"",
            got.display(),
            far.bench.path("player").display()
        ),
    );
    let ran = far.run(&[
        "run",
        "--resume",
        "latest",
        "data.train_files=other.parquet",
    ]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("data.train_files names other files"),
        "{ran:?}"
    );
    let ran = far.run(&[
        "run",
        "--resume",
        "latest",
        "actor_rollout_ref.actor.optim.lr=3e-7",
        "--json",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for run in [far.run_there(), far.bench.run_dir()] {
        let text = fs::read_to_string(run.join("experiment.yaml")).unwrap();
        assert!(text.contains("lr: 3e-7"), "{text}");
    }
    let got = fs::read_to_string(got).unwrap();
    assert!(
        got.trim_end()
            .ends_with("--given=actor_rollout_ref.actor.optim.lr"),
        "{got}"
    );
    let job = fs::read_to_string(far.run_there().join("job.json")).unwrap();
    assert!(!job.contains("given"), "{job}");
}

#[test]
fn what_does_not_go_on_says_why_and_is_as_it_was() {
    let Some(mut far) = Far::new() else { return };
    far.bench.trainer(&dying());
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--json"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let there = far.run_there();
    let resume = |far: &Far, code: i32, words: &str| {
        let ran = far.run(&["run", "--resume", "latest", "--detach"]);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains(words), "{words}: {ran:?}");
        let ran = far.run(&["runs", "--json"]);
        assert_eq!(ran.last_json()["status"], "dead", "{ran:?}");
    };
    resume(&far, 3, "has no whole checkpoint there to go on from");
    let whole = save_checkpoint(&there, 2);
    fs::write(whole.join("state.json"), "{\"longer\":1}").unwrap();
    resume(&far, 3, "is not a whole checkpoint");
    save_checkpoint(&there, 4);
    resume(&far, 8, "the newest checkpoint has 4 of 4 steps");
    assert_eq!(exit(&there, "exit.json")["signal"], 9);
    let ran = far.run(&["run", "--resume", "latest", "--on", "loop"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    far.stop_sshd();
    resume(&far, 7, "loop cannot be reached");
    far.start_sshd("");
    fs::remove_dir_all(&there).unwrap();
    resume(&far, 3, "there is no run");
}

#[test]
fn a_trainer_that_cannot_be_started_again_is_told_and_leaves_the_run_over() {
    let Some(far) = Far::new() else { return };
    killed(&far);
    far.bench.program(
        "trainer",
        "echo 'lathe-trainer: error while loading shared libraries: libtorch_cpu.so: cannot open' >&2; exit 127",
    );
    let ran = far.run(&["run", "--resume", "latest", "--detach"]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(
        ran.stderr.contains("cannot load libtorch_cpu.so"),
        "{ran:?}"
    );
    // And it can be tried again.
    far.bench.trainer(&going_on(2, 4));
    let ran = far.run(&["run", "--resume", "latest", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    far.assert_same();
}

//! A line of 200 ms there and back on which one packet of a hundred is lost: all goes on as on a good one, and the workbench, which
//! shows the copy, answers keys at once.

use std::fs;

use runlog::event::RunStatus;
use serde_json::Value;

use super::far::{Far, has_step, two_parts};
use super::net::LOST_ONE_OF;
use crate::fake_trainer::{Act, ended, started, step, wait_until};
use crate::harness::finished;

/// Enough, where nothing is compressed, that packets are lost each way.
const STEPS: u64 = 1200;

#[test]
fn over_a_slow_line_that_loses_packets_a_run_is_followed_controlled_and_stopped_with_each_event_once()
 {
    let Some(far) = Far::with_slow_link() else {
        return;
    };
    far.write_targets("  compression: false\n");
    let mut acts = vec![started(STEPS)];
    acts.extend((1..=STEPS / 2).map(|index| step(index, 0.1)));
    acts.push(Act::ObeyUntilStop);
    acts.extend((STEPS / 2 + 1..=STEPS).map(|index| step(index, 0.2)));
    acts.push(ended(RunStatus::Stopped, 130, "stopped on request", STEPS));
    acts.push(Act::Exit(130));
    far.bench.trainer(&acts);
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--detach"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let viewer = far.lathe(&["follow", "latest", "--json"]).spawn().unwrap();
    let told = std::thread::spawn(move || finished(viewer.wait_with_output().unwrap()));
    let events = far.bench.run_dir().join("events.jsonl");
    wait_until("the first half is here", || has_step(&events, STEPS / 2));
    let ran = far.run(&["ctl", "latest", "pause", "--wait"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let status = far.run(&["ctl", "latest", "status", "--json"]).last_json();
    assert_eq!(status["is_paused"], true, "{status}");
    let ran = far.run(&["ctl", "latest", "resume", "--wait"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = far.run(&["stop", "latest"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = told.join().unwrap();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    let steps = |lines: &[Value]| -> Vec<Value> {
        let lines = lines.iter().filter(|line| line["event"] == "step_ended");
        lines.map(|line| line["step"].clone()).collect()
    };
    let all: Vec<u64> = (1..=STEPS).collect();
    assert_eq!(steps(&ran.json_lines()), all, "each is told once");
    let text = fs::read_to_string(&events).unwrap();
    let copied: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(steps(&copied), all);
    let commands: Vec<&Value> = copied
        .iter()
        .filter(|line| line["event"] == "control_applied")
        .map(|line| &line["command"])
        .collect();
    assert_eq!(commands, ["pause", "resume", "stop"]);
    far.assert_same();
    wait_until("packets were lost both ways", || {
        let text = fs::read(far.bench.path("line.json")).unwrap();
        let counts: Value = serde_json::from_slice(&text).unwrap();
        ["there", "back"].iter().all(|way| {
            let count = |of: &str| counts[way][of].as_u64().unwrap();
            count("lost") > 0 && count("lost") <= count("frames") / LOST_ONE_OF + 1
        })
    });
}

#[test]
fn keys_of_the_workbench_are_answered_from_the_copy_while_the_line_is_slow_and_while_it_is_cut() {
    let Some(far) = Far::with_slow_link() else {
        return;
    };
    let gate = far.bench.path("gate");
    far.bench.trainer(&two_parts(&gate, 60));
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--detach"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let mut screen = far.screen(&["watch", "latest"]);
    screen.shows("step 30/60");
    screen.shows("s behind");
    screen.type_keys("8");
    screen.shows("starts: 60 steps");
    // From here on nothing comes and nothing goes, and each page is drawn all the same.
    far.cut();
    screen.type_keys("2");
    screen.shows("Reward");
    screen.type_keys("8");
    screen.shows("starts: 60 steps");
    screen.shows("disconnected");
    fs::write(&gate, "").unwrap();
    let there = far.run_there().join("events.jsonl");
    wait_until("the run goes on there", || has_step(&there, 60));
    screen.type_keys("2");
    screen.shows("Reward");
    assert!(!screen.text().contains("step 60/60"), "{}", screen.text());
    far.heal();
    screen.shows("step 60/60");
    screen.type_keys("8\t");
    screen.shows("all of it");
    screen.type_keys("q");
    assert_eq!(screen.end().1, 0);
    assert_eq!(far.run(&["follow", "latest", "--json"]).code, Some(0));
    far.assert_same();
}

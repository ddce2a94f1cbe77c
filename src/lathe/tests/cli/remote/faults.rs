//! What goes wrong on the way: cuts, restarts, kills, a full disk. Nothing may be missing after it, and nothing be there twice.

use std::fs;
use std::path::Path;
use std::process::Child;

use runlog::event::RunStatus;
use rustix::process::Signal;

use super::far::{Far, has_step, two_parts};
use crate::fake_trainer::{Act, ended, started, step, wait_until};
use crate::harness::{Ran, finished, signal};

const STEPS: u64 = 60;

/// Starts a run whose second half waits for the gate, and a viewer of it that has seen the first.
fn half_seen(far: &Far, gate: &Path) -> Child {
    far.bench.trainer(&two_parts(gate, STEPS));
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--detach"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let viewer = far.lathe(&["follow", "latest", "--plain"]).spawn().unwrap();
    let events = far.bench.run_dir().join("events.jsonl");
    wait_until("the first half is here", || has_step(&events, STEPS / 2));
    viewer
}

fn whole_there(far: &Far) {
    let events = far.run_there().join("events.jsonl");
    wait_until("the run ends there", || {
        fs::read_to_string(&events).is_ok_and(|text| text.contains("\"run_ended\""))
    });
}

#[test]
fn a_link_that_is_cut_in_mid_run_loses_no_event_and_doubles_none() {
    let Some(far) = Far::with_link() else { return };
    let gate = far.bench.path("gate");
    let viewer = half_seen(&far, &gate);
    wait_until("it is live", || far.link_is("live"));
    far.cut();
    fs::write(&gate, "").unwrap();
    whole_there(&far);
    wait_until("the cut is noticed", || far.link_is("disconnected"));
    assert!(!has_step(&far.bench.run_dir().join("events.jsonl"), STEPS));
    far.heal();
    let ran = finished(viewer.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("disconnected, retrying"), "{ran:?}");
    assert!(ran.stderr.contains("connected again"), "{ran:?}");
    far.assert_same();
}

#[test]
fn a_command_that_is_given_while_the_link_is_cut_fails_in_words_and_not_by_hanging() {
    let Some(far) = Far::with_link() else { return };
    let gate = far.bench.path("gate");
    let viewer = half_seen(&far, &gate);
    far.cut();
    wait_until("the cut is noticed", || far.link_is("disconnected"));
    let ran = far.run(&["ctl", "latest", "pause"]);
    assert_eq!(ran.code, Some(7), "{ran:?}");
    assert!(ran.stderr.contains("cannot be asked"), "{ran:?}");
    let ran = far.run(&["runs"]);
    assert!(ran.stdout.contains("disconnected "), "{ran:?}");
    let row = far.run(&["runs", "--json"]).last_json();
    assert!(
        row["disconnected"]
            .as_str()
            .is_some_and(|words| words.contains("retrying")),
        "{row:#}"
    );
    far.heal();
    fs::write(&gate, "").unwrap();
    let ran = finished(viewer.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    far.assert_same();
}

#[test]
fn an_sshd_that_is_restarted_is_found_again() {
    let Some(mut far) = Far::new() else { return };
    let gate = far.bench.path("gate");
    let viewer = half_seen(&far, &gate);
    far.stop_sshd();
    wait_until("the end is noticed", || far.link_is("disconnected"));
    fs::write(&gate, "").unwrap();
    whole_there(&far);
    far.start_sshd("");
    let ran = finished(viewer.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    far.assert_same();
}

#[test]
fn a_viewer_that_is_killed_is_replaced_by_the_next_which_goes_on_where_it_was() {
    let Some(far) = Far::new() else { return };
    let gate = far.bench.path("gate");
    let mut keeper = half_seen(&far, &gate);
    // It waits for the lock, and takes over.
    let other = far.lathe(&["follow", "latest", "--json"]).spawn().unwrap();
    signal(&keeper, Signal::KILL);
    keeper.wait().unwrap();
    fs::write(&gate, "").unwrap();
    let ran = finished(other.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let steps = ran
        .json_lines()
        .iter()
        .filter(|line| line["event"] == "step_ended")
        .count();
    assert_eq!(steps as u64, STEPS, "each is told once");
    far.assert_same();
}

#[test]
fn a_copy_that_is_torn_or_longer_than_the_run_is_put_right() {
    let Some(far) = Far::new() else { return };
    let gate = far.bench.path("gate");
    let mut viewer = half_seen(&far, &gate);
    signal(&viewer, Signal::KILL);
    viewer.wait().unwrap();
    let events = far.bench.run_dir().join("events.jsonl");
    let whole = fs::read(&events).unwrap();
    fs::write(&gate, "").unwrap();
    whole_there(&far);
    // Cut in the middle of a line, as a machine that lost its power may have it.
    fs::write(&events, &whole[..whole.len() - 17]).unwrap();
    assert_eq!(far.run(&["follow", "latest", "--json"]).code, Some(0));
    far.assert_same();
    // Something else than what is there: the copy is begun anew.
    fs::write(&events, vec![b'x'; whole.len()]).unwrap();
    for name in ["mirror.json", "exit.json"] {
        fs::remove_file(far.bench.run_dir().join(name)).unwrap();
    }
    assert_eq!(far.run(&["follow", "latest", "--json"]).code, Some(0));
    far.assert_same();
}

#[test]
fn a_supervisor_that_is_killed_leaves_a_running_run_and_then_a_lost_one() {
    let Some(far) = Far::new() else { return };
    let gate = far.bench.path("gate");
    let viewer = half_seen(&far, &gate);
    let text = fs::read(far.run_there().join("supervisor.json")).unwrap();
    let known: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let pid = |of: &str| known[of]["pid"].as_u64().unwrap() as u32;
    super::far::kill(pid("process"), "KILL");
    let ran = far.run(&["target", "runs", "loop"]);
    assert!(
        ran.stdout.starts_with("running "),
        "its trainer lives: {ran:?}"
    );
    super::far::kill(pid("trainer"), "KILL");
    let ran = finished(viewer.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(
        ran.stdout.contains("what watched over it was killed"),
        "{ran:?}"
    );
    far.assert_same();
}

#[test]
fn a_run_that_its_machine_tells_to_end_says_so() {
    let Some(far) = Far::new() else { return };
    let gate = far.bench.path("gate");
    let viewer = half_seen(&far, &gate);
    let text = fs::read(far.run_there().join("supervisor.json")).unwrap();
    let known: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let supervisor = known["process"]["pid"].as_u64().unwrap() as u32;
    // As systemd does to all that runs when the machine shuts down.
    super::far::kill(supervisor, "TERM");
    let ran = finished(viewer.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(
        ran.stdout
            .contains("it was told to end (SIGTERM): its machine shuts down"),
        "{ran:?}"
    );
    far.assert_same();
}

/// A small disk in the place of lathe's folder there, as long as it lives.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn new(path: &'a Path) -> Option<Self> {
        let is_mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=96m", "tmpfs"])
            .arg(path)
            .status()
            .is_ok_and(|status| status.success());
        if !is_mounted {
            eprintln!("skipped: no right to mount a small disk here");
            return None;
        }
        Some(Self(path))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(self.0)
            .status();
    }
}

#[test]
fn a_full_disk_there_is_told_here_and_nothing_is_lost_when_there_is_room_again() {
    let Some(far) = Far::new() else { return };
    let folder = far.bench.path("far");
    let Some(_disk) = SmallDisk::new(&folder) else {
        return;
    };
    let gate = far.bench.path("gate");
    let mut acts = two_parts(&gate, STEPS);
    // It goes on when there is room: the recorder keeps what it cannot write.
    let room = far.bench.path("room");
    acts.insert(acts.len() - 1, Act::WaitFor(room.clone()));
    far.bench.trainer(&acts);
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--detach"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let viewer = far.lathe(&["follow", "latest", "--plain"]).spawn().unwrap();
    wait_until("it is live", || far.link_is("live"));
    let filler = folder.join("filler");
    fill(&filler);
    fs::write(&gate, "").unwrap();
    wait_until("the full disk is told", || {
        far.status().is_some_and(|status| {
            status["warning"]
                .to_string()
                .contains("the disk there is full")
        })
    });
    fs::remove_file(&filler).unwrap();
    fs::write(&room, "").unwrap();
    let ran = finished(viewer.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("the disk there is full"), "{ran:?}");
    far.assert_same();
    assert!(has_step(&far.bench.run_dir().join("events.jsonl"), STEPS));
}

#[test]
fn a_run_that_ends_on_a_full_disk_there_says_how_in_the_room_that_was_kept_for_it() {
    let Some(far) = Far::new() else { return };
    let folder = far.bench.path("far");
    let Some(_disk) = SmallDisk::new(&folder) else {
        return;
    };
    let gate = far.bench.path("gate");
    let why = "step 9 is trained, and its weights are lost: no space left";
    let mut acts = vec![started(STEPS)];
    acts.extend((1..=8).map(|at| step(at, 0.1)));
    acts.push(Act::WaitFor(gate.clone()));
    acts.push(step(9, 0.1));
    acts.push(ended(RunStatus::Failed, 4, why, 9));
    acts.push(Act::Exit(4));
    far.bench.trainer(&acts);
    let ran = far.run(&["run", "toy.yaml", "--on", "loop", "--detach"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let viewer = far.lathe(&["follow", "latest", "--plain"]).spawn().unwrap();
    let here = far.bench.run_dir().join("events.jsonl");
    wait_until("its first steps are here", || has_step(&here, 8));
    let filler = folder.join("filler");
    fill(&filler);
    fs::write(&gate, "").unwrap();
    let ran = finished(viewer.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(filler.exists() && has_step(&here, 9));
    let ran = far.run(&["runs"]);
    assert!(
        ran.stdout.contains("failed") && ran.stdout.contains(why),
        "{ran:?}"
    );
    // Its supervisor's word comes when there is room.
    fs::remove_file(&filler).unwrap();
    let exit = far.run_there().join("exit.json");
    wait_until("the word of its supervisor", || exit.exists());
}

#[test]
fn a_full_disk_here_is_told_by_whoever_reads_the_copy_and_nothing_is_missed_when_there_is_room() {
    let Some(far) = Far::new() else { return };
    let runs = far.bench.path("runs");
    fs::create_dir_all(&runs).unwrap();
    let Some(_disk) = SmallDisk::new(&runs) else {
        return;
    };
    let gate = far.bench.path("gate");
    let viewer = half_seen(&far, &gate);
    wait_until("it is live", || far.link_is("live"));
    let filler = far.bench.run_dir().join("filler");
    fill(&filler);
    fs::write(&gate, "").unwrap();
    whole_there(&far);
    let name = far.bench.run_dir().file_name().unwrap().to_owned();
    let words = format!("the disk of runs/{} is full", name.display());
    let told =
        |ran: &Ran| ran.stdout.contains("not written here for ") && ran.stdout.contains(&words);
    wait_until("the list tells it", || told(&far.run(&["runs"])));
    let row = far.run(&["runs", "--json"]).last_json();
    assert_eq!(row["status"], "running", "{row:#}");
    assert!(
        row["disconnected"].as_str().unwrap().contains(&words),
        "{row:#}"
    );
    // What is fetched says so too, and leaves nothing half behind.
    let rollouts = "rollouts/step-000001.parquet";
    fs::create_dir_all(far.run_there().join("rollouts")).unwrap();
    fs::write(far.run_there().join(rollouts), vec![7; 300_000]).unwrap();
    let ran = far.run(&["pull", "latest"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stderr.contains("No space left") && ran.stderr.contains(name.to_str().unwrap()),
        "{ran:?}"
    );
    assert!(!far.bench.run_dir().join(rollouts).exists());
    fs::remove_file(&filler).unwrap();
    let ran = finished(viewer.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for words in ["the copy here is not written, retrying", "is written again"] {
        assert!(ran.stderr.contains(words), "{words}: {ran:?}");
    }
    far.assert_same();
}

/// Writes zeros until the disk is full.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = fs::File::create(path).unwrap();
    let chunk = vec![0; 1 << 20];
    while file.write_all(&chunk).is_ok() {}
}

//! Live control of the real program: what a client asks is done between two steps, stands in the log, and shows in the numbers.

mod live;
mod tiny;

use std::fs;

use live::{Live, PATIENCE, endless, wait_until};
use runlog::RunState;
use runlog::control::{Answer, Client, Command, find_knob};
use runlog::event::{EventKind, Lane};
use runlog::number::Number;
use runlog::run_dir::RunDir;
use runlog::state::Outcome;
use runlog::tail;
use tiny::{experiment, fixture};

#[test]
fn a_run_is_paused_stepped_changed_saved_resumed_and_stopped_and_its_log_says_so() {
    let (root, data) = fixture();
    let mut live = Live::start(root.path(), "run", endless(&data, "  mode: one_step_off\n"));
    let paused = live.apply(Command::Pause).step;
    let status = live.client.status().expect("a status");
    assert!(status.is_paused);
    assert_eq!(status.doing, format!("paused after step {paused}"));

    // It is alive, and says so each second, while it trains nothing.
    let samples = |live: &Live| {
        let is_sample = |kind: &&EventKind| matches!(kind, EventKind::HostSampled { .. });
        live.kinds().iter().filter(is_sample).count()
    };
    let before = samples(&live);
    wait_until("another host sample", || samples(&live) > before);
    assert_eq!(live.client.status().expect("a status").step, paused);

    assert_eq!(live.apply(Command::Step).step, paused + 1);

    let lr = live.set("actor.optim.lr", 5e-4);
    assert_eq!((lr.from, lr.to), (Some(Number(1e-3)), Some(Number(5e-4))));
    assert_eq!(lr.from_step, Some(paused + 2));
    live.set("critic.optim.lr", 2e-5);
    live.set("actor.clip_ratio_high", 0.3);
    live.set("entropy_coeff", 0.02);
    let temperature = live.set("temperature", 0.7);
    let warm_from = temperature.from_step.expect("a set has a first step");
    assert!(
        (paused + 2..=paused + 4).contains(&warm_from),
        "one step off, at most two batches are begun: {warm_from} after {paused}"
    );
    let reason = live.refused(Command::set("actor.kl_loss_coef", 0.1).expect("a knob"));
    assert!(reason.contains("use_kl_loss is false"), "{reason}");

    // Another client at the same time.
    let mut other = Client::connect(&live.run_dir, "bo@desk").expect("two may talk");
    let (id, _) = other.ask(Command::Checkpoint).expect("an answer");
    let Answer::Applied { applied, .. } = other.wait(id, PATIENCE).expect("a last answer") else {
        panic!("a checkpoint is written")
    };
    let saved = live.run_dir.path().join(applied.note.expect("its path"));
    assert_eq!(saved, live.run_dir.checkpoint_path(paused + 1));
    trainer::checkpoint::verify(&saved).expect("a whole checkpoint");
    let counters: trainer::save::RunCounters =
        serde_json::from_slice(&fs::read(saved.join("state.json")).expect("a state"))
            .expect("a state that reads back");
    assert_eq!(counters.step, paused + 1);
    let knob = |name: &str| counters.knobs[find_knob(name).expect("a knob").key];
    assert_eq!(knob("actor.optim.lr"), 5e-4);
    assert_eq!(knob("rollout.temperature"), 0.7);
    assert_eq!(counters.knobs.len(), 5);

    live.step_to(warm_from);
    live.apply(Command::Resume);
    wait_until("two more steps", || {
        live.client.status().expect("a status").step > warm_from + 1
    });
    assert_eq!(live.stop(), Some(130));

    for (step, name, value) in [
        (paused + 1, "actor/lr", 1e-3),
        (paused + 2, "actor/lr", 5e-4),
        (paused + 2, "critic/lr", 2e-5),
        (paused + 2, "actor/clip_ratio_high", 0.3),
        (paused + 2, "actor/entropy_coeff", 0.02),
        (warm_from, "rollout/temperature", 0.7),
    ] {
        assert_eq!(
            live.values(step).get(name),
            Some(&Number(value)),
            "{name} of step {step}"
        );
    }
    if warm_from > paused + 2 {
        let colder = live.values(warm_from - 1);
        assert_eq!(colder["rollout/temperature"], Number(1.0));
    }
    assert!(!live.values(paused + 1).contains_key("actor/entropy_coeff"));

    let (events, _) = tail::read_all(&live.run_dir.events_path()).expect("a log");
    let state = RunState::fold(&events);
    assert!(!state.is_paused);
    assert!(state.lanes[&Lane::Paused].total_ms > 0.0);
    let commands: Vec<&str> = state
        .controls
        .iter()
        .map(|record| record.command.as_str())
        .collect();
    let steps = commands
        .iter()
        .filter(|command| **command == "step")
        .count();
    assert_eq!(commands.len(), 1 + steps + 6 + 1 + 1 + 1, "{commands:?}");
    assert_eq!(commands[..3], ["pause", "step", "set"]);
    assert_eq!(commands[commands.len() - 2..], ["resume", "stop"]);
    let checkpoint = state
        .controls
        .iter()
        .find(|record| record.command == "checkpoint")
        .expect("it is in the log");
    assert_eq!(checkpoint.who, "bo@desk");
    let refusals = state
        .controls
        .iter()
        .filter(|record| matches!(record.outcome, Outcome::Refused { .. }));
    assert_eq!(refusals.count(), 1);
}

#[test]
fn the_staleness_bound_is_raised_and_lowered_while_the_run_runs() {
    let (root, data) = fixture();
    let mut live = Live::start(root.path(), "run", endless(&data, "  mode: sync\n"));
    let paused = live.apply(Command::Pause).step;
    // Then the learner waits for nothing, and the sampler for newer weights.
    wait_until("the batch that sync mode allows", || {
        live.kinds()
            .iter()
            .any(|kind| matches!(kind, EventKind::RolloutEnded { step, .. } if *step == paused + 1))
    });
    let raised = live.set("trainer.max_staleness", 1.0);
    assert_eq!(raised.from, Some(Number(0.0)));
    let raised = raised.from_step.expect("a first step");
    live.step_to(raised + 3);
    let lowered = live.set("trainer.max_staleness", 0.0).from_step;
    let lowered = lowered.expect("a first step");
    live.step_to(lowered + 3);
    assert_eq!(live.stop(), Some(130));
    let mut seen = 0;
    for kind in live.kinds() {
        let EventKind::RolloutEnded {
            step,
            policy_version_min,
            policy_version_max,
            response_tokens,
            ..
        } = kind
        else {
            continue;
        };
        if response_tokens == 0 {
            // The stop came before its first token: no weights drew anything.
            continue;
        }
        let lag = u64::from((raised..lowered).contains(&step)).min(step - 1);
        assert_eq!(
            (policy_version_min, policy_version_max),
            (step - 1 - lag, step - 1 - lag),
            "batch {step}; raised from {raised}, lowered from {lowered}"
        );
        seen = seen.max(step);
    }
    assert!(seen > lowered);
    assert_eq!(live.values(raised)["async/max_staleness"], Number(1.0));
    assert_eq!(live.values(lowered)["async/max_staleness"], Number(0.0));
}

#[test]
fn what_is_given_anew_with_a_resume_wins_over_what_was_set_live_which_wins_over_the_file() {
    let (root, data) = fixture();
    let mut live = Live::start(root.path(), "run", endless(&data, "  mode: one_step_off\n"));
    live.apply(Command::Pause);
    live.step_to(2);
    live.set("actor.optim.lr", 5e-4);
    live.set("actor.clip_ratio_high", 0.4);
    live.set("temperature", 0.7);
    live.apply(Command::mode("sync", None).expect("a mode"));
    live.apply(Command::Checkpoint);
    live.child.kill().expect("our child");
    live.child.wait().expect("our child");
    let run_dir = live.run_dir.clone();
    drop(live);

    let path = run_dir.experiment_path();
    let yaml = fs::read_to_string(&path).expect("its experiment");
    fs::write(&path, yaml.replace("lr: 1e-3", "lr: 2e-4")).expect("writable");
    let mut live = Live::resumed(
        run_dir,
        &["actor_rollout_ref.actor.optim.lr", "trainer.mode"],
    );
    live.apply(Command::Pause);
    let status = live.client.status().expect("a status");
    let value = |name: &str| {
        let key = find_knob(name).expect("a knob").key;
        let state = status.knobs.iter().find(|state| state.key == key);
        state.and_then(|state| state.value).expect("it has one").0
    };
    assert_eq!(value("actor.optim.lr"), 2e-4, "given anew");
    assert_eq!(value("actor.clip_ratio_high"), 0.4, "set live");
    assert_eq!(value("temperature"), 0.7, "set live");
    assert_eq!(
        (status.mode.as_str(), value("trainer.max_staleness")),
        ("one_step_off", 1.0),
        "given anew, with its bound"
    );
    let told = || -> Vec<String> {
        live.kinds()
            .into_iter()
            .filter_map(|kind| match kind {
                EventKind::ControlApplied {
                    who,
                    command,
                    target,
                    knob,
                    from: Some(from),
                    to: Some(to),
                    ..
                } if who == "lathe run --resume" && target.is_none() => {
                    Some(format!("{command} {knob:?} {} -> {}", from.0, to.0))
                }
                EventKind::ControlApplied {
                    who,
                    command,
                    before: Some(before),
                    after: Some(after),
                    ..
                } if who == "lathe run --resume" => Some(format!("{command} {before} -> {after}")),
                _ => None,
            })
            .collect()
    };
    wait_until("both changes in the log", || told().len() == 2);
    assert_eq!(
        told(),
        [
            "mode sync -> one_step_off",
            "set Some(\"actor_rollout_ref.actor.optim.lr\") 0.0005 -> 0.0002",
        ]
    );
    assert_eq!(live.stop(), Some(130));
}

#[test]
fn a_status_tells_what_sessions_and_parts_of_the_run_wait_for_while_they_wait() {
    let (root, data) = fixture();
    let yaml = endless(&data, "  mode: sync\n").replace("n: 2", "n: 2\n    session_timeout_s: 600");
    let mut live = Live::start(root.path(), "run", yaml);
    let mut found = None;
    wait_until("a session that waits for the engine", || {
        let waits = live.client.status().expect("a status").waits;
        found = waits.into_iter().find(|wait| wait.name == "generator");
        found.is_some()
    });
    let wait = found.expect("waited for");
    assert!((1..=8 + 16).contains(&wait.sessions), "{wait:?}");
    assert!(wait.row < 16 && wait.sample < 2, "{wait:?}");
    let is_named = ["train-", "val-"].iter().any(|start| {
        let rest = wait.dialogue.strip_prefix(start);
        rest.is_some_and(|rest| rest.ends_with(&format!("-{}", wait.row)))
    });
    assert!(is_named, "{wait:?}");
    let left_s = wait.left_s.expect("sessions have a time-out");
    assert!(
        (0.0..=600.0).contains(&(wait.age_s + left_s)) && wait.age_s < 600.0,
        "the deadline is the session's, which began before the wait: {wait:?}"
    );
    live.apply(Command::Pause);
    // The rollout side still draws what it may, then waits for weights too.
    let parts = |live: &mut Live| {
        let waits = live.client.status().expect("a status").waits;
        let is_parts = waits
            .iter()
            .all(|wait| wait.sessions == 0 && !wait.owner.is_empty());
        let named = waits.into_iter().map(|wait| (wait.owner, wait.name));
        is_parts.then(|| named.collect::<Vec<_>>())
    };
    let named = |owner: &str, name: &str| (owner.to_owned(), name.to_owned());
    wait_until(
        "the learner waits for a person, the rollouts for it",
        || {
            parts(&mut live).is_some_and(|parts| {
                parts.contains(&named("learner", "a command to resume"))
                    && parts.contains(&named("rollouts", "newer weights"))
            })
        },
    );
    assert_eq!(live.stop(), Some(130));
}

#[test]
fn what_waits_longer_than_the_experiment_says_gives_an_alarm_with_what_is_behind_it() {
    let (root, data) = fixture();
    let trainer = "  mode: sync\n  wait_alarm_s: 1ms\n";
    let mut live = Live::start(root.path(), "run", endless(&data, trainer));
    let told = |live: &Live| {
        live.kinds().into_iter().find_map(|kind| match kind {
            EventKind::Alarm { name, message, .. } if name == "overdue wait" => Some(message),
            _ => None,
        })
    };
    wait_until("a first step", || {
        live.client.status().expect("a status").step > 0
    });
    wait_until("an alarm of a wait", || told(&live).is_some());
    let message = told(&live).expect("waited for");
    let who = [": learner for ", ": rollouts for "];
    assert!(who.iter().any(|who| message.contains(who)), "{message}");
    assert!(
        message.contains(", never given up; "),
        "behind it is what a session waits for, or that none does: {message}"
    );
    assert_eq!(live.stop(), Some(130));
}

#[test]
fn the_time_of_a_pause_is_no_step_s_time() {
    let (root, data) = fixture();
    let mut live = Live::start(root.path(), "run", endless(&data, "  mode: sync\n"));
    live.apply(Command::Pause);
    live.step_to(3);
    let paused = live.client.status().expect("a status").step;
    let step_ms = |live: &Live, step| 1e3 * live.values(step)["timing_s/step"].0;
    let usual_ms = step_ms(&live, paused);
    let start = std::time::Instant::now();
    // Its host is sampled each second meanwhile.
    wait_until("a pause of many steps' length", || {
        start.elapsed().as_secs_f64() * 1e3 > (8.0 * usual_ms).max(2000.0)
    });
    live.apply(Command::Step);
    let after_ms = step_ms(&live, paused + 1);
    let (events, _) = tail::read_all(&live.run_dir.events_path()).expect("a log");
    let paused_ms = RunState::fold(&events).lanes[&Lane::Paused].total_ms;
    assert!(
        after_ms < paused_ms / 2.0,
        "{after_ms} ms of the step after a pause of {paused_ms} ms"
    );
    let waited_s = live.values(paused + 1)["async/wait_rollouts_s"].0;
    assert!(waited_s * 1e3 < paused_ms / 2.0, "{waited_s} s");
    assert_eq!(live.stop(), Some(130));
}

#[test]
fn a_supervised_run_is_controlled_too() {
    let (root, data) = fixture();
    let demonstrations = root.path().join("demonstrations.jsonl");
    let rows: String = (0..8)
        .map(|row| {
            serde_json::json!({"messages": [
                {"role": "user", "content": format!("{row}+{row}=")},
                {"role": "assistant", "content": format!("{}", 2 * row)},
            ]})
            .to_string()
                + "\n"
        })
        .collect();
    fs::write(&demonstrations, rows).expect("a writable folder");
    let yaml = format!(
        "{}sft:\n  train_files: {}\n  batch_size: 2\n  total_training_steps: 100000\n",
        endless(&data, ""),
        demonstrations.display()
    );
    let mut live = Live::start(root.path(), "sft", yaml);
    let paused = live.apply(Command::Pause).step;
    let lr = live.set("sft.optim.lr", 5e-4);
    assert_eq!(lr.from_step, Some(paused + 1));
    assert!(
        live.refused(Command::Checkpoint)
            .contains("saves its model when it ends")
    );
    let reason = live.refused(Command::set("temperature", 0.5).expect("a knob"));
    assert_eq!(reason, "this is a supervised run");
    assert_eq!(live.apply(Command::Step).step, paused + 1);
    assert_eq!(live.stop(), Some(130));
    assert_eq!(live.values(paused + 1)["train/lr"], Number(5e-4));
}

#[test]
fn a_checkpoint_asked_of_a_run_that_trains_is_whole_when_it_is_answered_and_holds_no_step_up() {
    let (root, data) = fixture();
    let mut live = Live::start(root.path(), "run", endless(&data, ""));
    wait_until("a step", || {
        live.client.status().expect("a status").step > 0
    });
    let saved = live.apply(Command::Checkpoint);
    let path = live.run_dir.path().join(saved.note.expect("its path"));
    assert_eq!(path, live.run_dir.checkpoint_path(saved.step));
    trainer::checkpoint::verify(&path).expect("a whole checkpoint");
    let status = live.client.status().expect("a status");
    let mut listed = status.checkpoints.iter();
    assert!(listed.any(|held| held.step == saved.step), "{status:?}");
    assert_eq!(live.stop(), Some(130));
    let (blocked_ms, save_ms) = live
        .kinds()
        .into_iter()
        .find_map(|kind| match kind {
            EventKind::CheckpointSaved {
                step,
                blocked_ms,
                save_ms,
                ..
            } if step == saved.step => Some((blocked_ms, save_ms)),
            _ => None,
        })
        .expect("it is in the log");
    // One that is waited for says that all of it was.
    assert!(blocked_ms < save_ms, "{blocked_ms} of {save_ms}");
}

#[test]
fn a_killed_run_in_a_deep_directory_was_under_control_and_is_then_gone() {
    let (root, data) = fixture();
    let deep = root.path().join("a-folder-with-a-long-name/".repeat(8));
    let mut live = Live::start(&deep, "run", endless(&data, ""));
    assert!(live.run_dir.control_path().as_os_str().len() > 200);
    live.apply(Command::Pause);
    live.child.kill().expect("our child");
    live.child.wait().expect("our child");
    assert!(live.client.status().is_err());
    assert!(live.run_dir.control_path().exists(), "nobody tidied up");
    // As a client does that comes later: the process is the one in run.json.
    let found = RunDir::open(live.run_dir.path()).expect("a run");
    let error = Client::connect(&found, "ana").expect_err("it is dead");
    assert!(error.to_string().contains("is gone"), "{error}");
}

#[test]
fn commands_that_come_while_a_run_only_evaluates_are_refused_and_stop_ends_it() {
    let (root, data) = fixture();
    let mut live = Live::start(
        root.path(),
        "run",
        experiment(&data, "  val_only: true\n")
            .replace("n: 2", "n: 2\n    val_kwargs: {n: 500, temperature: 1.0}"),
    );
    let reason = live.refused(Command::Pause);
    assert_eq!(reason, "this run only evaluates (trainer.val_only)");
    assert_eq!(live.stop(), Some(130));
}

/// A small disk, as long as it lives. None: no right to mount one.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(path: std::path::PathBuf) -> Option<Self> {
        fs::create_dir_all(&path).expect("writable");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"])
            .arg(&path)
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(Self(path))
    }

    /// Until nothing fits any more.
    fn fill(&self) -> std::path::PathBuf {
        use std::io::Write as _;
        let path = self.0.join("filler");
        let mut file = fs::File::create(&path).expect("writable");
        let zeros = vec![0; 64 << 10];
        while file.write_all(&zeros).is_ok() {}
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmount = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
        drop(unmount);
    }
}

/// A paused run that has trained some steps, and its disk, which is full by now.
struct OnAFullDisk {
    live: Live,
    trained: u64,
    filler: std::path::PathBuf,
    _disk: SmallDisk,
    _root: tempfile::TempDir,
}

impl OnAFullDisk {
    /// None: skipped, and said why.
    fn start(run: impl Fn(&std::path::Path, String) -> Live) -> Option<Self> {
        let (root, data) = fixture();
        let Some(disk) = SmallDisk::mount(root.path().join("small")) else {
            eprintln!("skipped: no right to mount a small disk here");
            return None;
        };
        let mut live = run(&disk.0, endless(&data, "  mode: sync\n"));
        live.apply(Command::Pause);
        live.step_to(2);
        Some(Self {
            trained: live.client.status().expect("a status").step,
            filler: disk.fill(),
            live,
            _disk: disk,
            _root: root,
        })
    }

    fn signal(&self, name: &str) {
        let pid = self.live.child.id().to_string();
        let sent = std::process::Command::new("kill")
            .args([&format!("-{name}"), &pid])
            .status();
        assert!(sent.expect("kill").success());
    }

    fn waits_for_room(&self) {
        let wanted = format!(
            "room on the disk for the checkpoint of step {}",
            self.trained
        );
        let mut asking = Client::connect(&self.live.run_dir, "bo@desk").expect("another client");
        wait_until("the wait for room", || {
            let status = asking.status().expect("a status");
            status.waits.iter().any(|wait| wait.name == wanted)
        });
        assert!(!self.has_checkpoint());
    }

    fn has_checkpoint(&self) -> bool {
        self.live.run_dir.checkpoint_path(self.trained).exists()
    }

    /// Its exit code, and its last words with the steps that they tell of.
    fn ended(&mut self) -> (Option<i32>, String, u64) {
        let code = self.live.child.wait().expect("our child").code();
        let ended = self
            .live
            .kinds()
            .into_iter()
            .rev()
            .find_map(|kind| match kind {
                EventKind::RunEnded { reason, steps, .. } => Some((reason, steps)),
                _ => None,
            });
        let (reason, steps) = ended.expect("the run's end, in the room that was kept for it");
        (code, reason, steps)
    }
}

#[test]
fn a_run_that_is_stopped_on_a_full_disk_waits_for_room_and_loses_no_step() {
    let run = |root: &std::path::Path, yaml| Live::start(root, "run", yaml);
    let Some(mut full) = OnAFullDisk::start(run) else {
        return;
    };
    let (_, answer) = full.live.client.ask(Command::Stop).expect("an answer");
    assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    full.waits_for_room();
    fs::remove_file(&full.filler).expect("removable");
    let reason = format!("stopped on request after step {}", full.trained);
    assert_eq!(full.ended(), (Some(130), reason, full.trained));
    assert!(full.has_checkpoint());
    assert!(!full.live.run_dir.reserve_path().exists());
}

#[test]
fn in_a_job_all_signals_are_one_and_no_step_is_lost() {
    let Some(mut full) = OnAFullDisk::start(Live::in_a_job) else {
        return;
    };
    // The scheduler's, which every process of the job gets, and what the run's watcher makes of its own.
    full.signal("TERM");
    full.waits_for_room();
    full.signal("TERM");
    full.signal("INT");
    full.waits_for_room();
    fs::remove_file(&full.filler).expect("removable");
    assert_eq!(full.ended().0, Some(130));
    assert!(full.has_checkpoint());
}

#[test]
fn a_second_signal_ends_the_wait_for_room_and_the_log_has_the_run_s_end() {
    let run = |root: &std::path::Path, yaml| Live::start(root, "run", yaml);
    let Some(mut full) = OnAFullDisk::start(run) else {
        return;
    };
    full.signal("INT");
    full.waits_for_room();
    full.signal("INT");
    let (code, reason, steps) = full.ended();
    assert_eq!((code, steps), (Some(130), full.trained));
    assert!(
        reason.starts_with("ended at once by a second signal"),
        "{reason}"
    );
    assert!(!full.has_checkpoint());
}

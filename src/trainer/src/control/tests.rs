//! Commands of real clients against a run that only counts.

use std::time::Duration;

use dialogue::session::Owner;
use runlog::control::{Answer, Applied, Client, Command};
use runlog::event::EventKind;
use runlog::recorder::Options;
use runlog::run_dir::NewRun;
use runlog::tail;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

struct Counting {
    trained: u64,
    lr: f64,
    /// Of its one arm.
    is_frozen: bool,
    /// Whether it writes checkpoints beside its steps; those that wait to hear of theirs.
    writes_beside: bool,
    waiting: Vec<Told>,
}

impl Controlled for Counting {
    fn step(&self) -> u64 {
        self.trained
    }

    fn checkpoint(&mut self) -> Result<String, String> {
        Ok(format!("checkpoints/step-{:06}", self.trained))
    }

    fn begin_checkpoint(&mut self, told: Told) {
        if self.writes_beside {
            self.waiting.push(told);
        } else {
            told.tell(self.checkpoint());
        }
    }

    fn knob(&mut self, knob: &'static Knob) -> Result<f64, String> {
        if knob.name == "actor.optim.lr" {
            Ok(self.lr)
        } else {
            Err("it only counts".to_owned())
        }
    }

    fn said(&self, knob: &'static Knob) -> Option<f64> {
        (knob.name == "actor.optim.lr").then_some(1e-3)
    }

    fn arm(&mut self, order: ArmOrder) -> Result<Done, String> {
        let before = self.standing().arms[0].words().to_owned();
        match order.arm() {
            Some("rule") | None => {}
            Some(arm) => return Err(format!("no arm is called `{arm}`; there are rule")),
        }
        self.is_frozen = matches!(order, ArmOrder::Freeze(_));
        Ok(Done {
            before,
            after: self.standing().arms[0].words().to_owned(),
            from_step: Some(self.trained + 1),
            ..Done::default()
        })
    }

    fn standing(&mut self) -> Standing {
        let rule = ArmState {
            name: "rule".to_owned(),
            is_frozen: self.is_frozen,
            ..ArmState::default()
        };
        Standing {
            arms: vec![rule],
            ..Standing::default()
        }
    }

    fn set(&mut self, knob: &'static Knob, value: f64) -> Result<Change, String> {
        let from = self.knob(knob)?;
        self.lr = value;
        Ok(Change {
            from,
            from_step: self.trained + 1,
            note: None,
        })
    }
}

struct Bench {
    _root: tempfile::TempDir,
    run_dir: RunDir,
    recorder: Recorder,
    stop: Stop,
    control: Option<Control>,
    run: Counting,
    runtime: tokio::runtime::Runtime,
}

impl Bench {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary directory");
        let mut run_dir = RunDir::create(root.path(), &NewRun::default()).expect("a run directory");
        let recorder = Recorder::start(&mut run_dir, Options::default()).expect("a recorder");
        let stop = Stop::default();
        let control = Control::start(&run_dir, &recorder, &stop);
        let mut run = Counting {
            trained: 0,
            lr: 1e-3,
            is_frozen: false,
            writes_beside: false,
            waiting: Vec::new(),
        };
        control.ready(&mut run, 100);
        Self {
            _root: root,
            run_dir,
            recorder,
            stop,
            control: Some(control),
            run,
            runtime: tokio::runtime::Builder::new_current_thread()
                .build()
                .expect("a runtime"),
        }
    }

    fn client(&self) -> Client {
        Client::connect(&self.run_dir, "ana@laptop").expect("the run listens")
    }

    fn control(&mut self) -> &mut Control {
        self.control.as_mut().expect("not ended")
    }

    /// One step boundary and, unless the run was asked to stop, one step.
    fn step(&mut self) {
        let control = self.control.as_mut().expect("not ended");
        self.runtime.block_on(control.boundary(&mut self.run));
        if !self.stop.is_asked() {
            self.run.trained += 1;
            control.trained(self.run.trained);
        }
    }

    /// Ends the run and gives its control events, in short.
    fn events(mut self) -> Vec<String> {
        drop(self.control.take());
        self.recorder.close().expect("a writable disk");
        // No file: nothing was ever recorded.
        let (events, _) = tail::read_all(&self.run_dir.events_path()).unwrap_or_default();
        events
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::ControlApplied {
                    who,
                    command,
                    step,
                    from_step,
                    ..
                } => Some(format!("{command}@{step}/{from_step:?} {who}")),
                EventKind::ControlRefused {
                    command, reason, ..
                } => Some(format!("{command}: {reason}")),
                _ => None,
            })
            .collect()
    }
}

/// Sends a command and gives its number.
fn ask(client: &mut Client, command: Command) -> u64 {
    let (id, first) = client.ask(command).expect("an answer");
    assert!(matches!(first, Answer::Accepted { .. }), "{first:?}");
    id
}

fn applied(client: &mut Client, id: u64) -> Applied {
    match client.wait(id, PATIENCE).expect("an answer") {
        Answer::Applied { applied, .. } => applied,
        other => panic!("{other:?}"),
    }
}

fn refused(client: &mut Client, id: u64) -> String {
    match client.wait(id, PATIENCE).expect("an answer") {
        Answer::Refused { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_paused_run_trains_a_step_for_each_that_is_asked_for_and_goes_on_when_told() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    bench.step();
    let pause = ask(&mut client, Command::Pause);
    let step = ask(&mut client, Command::Step);
    bench.step();
    assert_eq!(applied(&mut client, pause).step, 1);
    assert_eq!(applied(&mut client, step).step, 2);
    assert!(client.status().expect("a status").is_paused);
    // Paused again: only another command gets it further.
    let resumer = std::thread::spawn(move || {
        let resume = ask(&mut client, Command::Resume);
        assert_eq!(applied(&mut client, resume).step, 2);
        client
    });
    bench.step();
    let mut client = resumer.join().expect("it was answered");
    bench.step();
    let status = client.status().expect("a status");
    assert!(!status.is_paused);
    assert_eq!((status.step, status.waiting), (4, 0));
    assert_eq!(
        bench.events(),
        [
            "pause@1/None ana@laptop",
            "step@2/None ana@laptop",
            "resume@2/None ana@laptop"
        ]
    );
}

#[test]
fn a_step_asked_of_a_running_run_leaves_it_paused_and_pausing_takes_it_back() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let step = ask(&mut client, Command::Step);
    bench.step();
    assert_eq!(applied(&mut client, step).step, 1);
    let step = ask(&mut client, Command::Step);
    let pause = ask(&mut client, Command::Pause);
    let resume = ask(&mut client, Command::Resume);
    bench.step();
    assert_eq!(
        refused(&mut client, step),
        "the run was paused before this step"
    );
    applied(&mut client, pause);
    applied(&mut client, resume);
}

#[test]
fn what_changes_nothing_is_answered_and_leaves_no_event() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let resume = ask(&mut client, Command::Resume);
    bench.step();
    let note = applied(&mut client, resume).note;
    assert_eq!(note.as_deref(), Some("it was not paused"));
    assert!(bench.events().is_empty());
}

#[test]
fn a_knob_that_is_set_has_its_old_and_new_value_in_the_answer_the_status_and_the_log() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    bench.step();
    let set = ask(
        &mut client,
        Command::set("actor.optim.lr", 1e-5).expect("a knob"),
    );
    let other = ask(
        &mut client,
        Command::set("actor.entropy_coeff", 0.1).expect("a knob"),
    );
    bench.step();
    let answer = applied(&mut client, set);
    assert_eq!(
        (answer.from, answer.to, answer.from_step),
        (Some(Number(1e-3)), Some(Number(1e-5)), Some(2))
    );
    assert_eq!(refused(&mut client, other), "it only counts");
    assert_eq!(bench.run.lr, 1e-5);
    let status = client.status().expect("a status");
    let lr = &status.knobs[0];
    assert_eq!(
        (lr.value, lr.started_with),
        (Some(Number(1e-5)), Some(Number(1e-3)))
    );
    assert_eq!(status.knobs.len(), KNOBS.len());
    assert_eq!(status.knobs[1].why_not.as_deref(), Some("it only counts"));
    assert_eq!(
        bench.events(),
        ["set@1/Some(2) ana@laptop", "set: it only counts"]
    );
}

#[test]
fn a_resumed_run_tells_what_was_set_before() {
    let mut bench = Bench::new();
    bench.run.lr = 5e-3;
    let control = bench.control.as_mut().expect("control");
    control.ready(&mut bench.run, 10);
    let status = bench.client().status().expect("a status");
    let lr = status
        .knobs
        .iter()
        .find(|knob| knob.key.ends_with("actor.optim.lr"));
    let lr = lr.expect("a knob");
    assert_eq!(
        (lr.value, lr.started_with),
        (Some(Number(5e-3)), Some(Number(1e-3)))
    );
}

#[test]
fn an_order_for_an_arm_is_answered_with_what_became_of_it_and_its_arms_are_in_the_status() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let freeze = |arm: &str| Command::arm("freeze", Some(arm)).expect("an order");
    let known = ask(&mut client, freeze("rule"));
    let (_, unknown) = client.ask(freeze("nobody")).expect("an answer");
    bench.step();
    let answer = applied(&mut client, known);
    assert_eq!(
        (answer.before.as_deref(), answer.after.as_deref()),
        (Some("free"), Some("frozen"))
    );
    // Not only at the next boundary: what arms there are is known.
    let Answer::Refused { reason, .. } = unknown else {
        panic!("{unknown:?}");
    };
    assert_eq!(reason, "no arm is called `nobody`; there are rule");
    let arms = client.status().expect("a status").arms;
    assert_eq!((&*arms[0].name, arms[0].words()), ("rule", "frozen"));
    assert_eq!(
        bench.events(),
        [
            "arm_freeze: no arm is called `nobody`; there are rule",
            "arm_freeze@0/Some(1) ana@laptop"
        ]
    );
}

#[test]
fn stop_ends_a_pause_and_is_answered_when_the_run_has_ended() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    ask(&mut client, Command::Pause);
    let stop = ask(&mut client, Command::Stop);
    bench.step();
    assert_eq!(bench.run.trained, 0, "no step after the stop");
    assert!(client.status().expect("a status").is_stopping);
    bench.control().finish(0, "the run is stopping");
    let (_, late) = client.ask(Command::Checkpoint).expect("an answer");
    let reason = "the run is stopping".to_owned();
    assert!(
        matches!(&late, Answer::Refused { reason: told, .. } if *told == reason),
        "{late:?}"
    );
    bench.control().ended(0);
    assert_eq!(applied(&mut client, stop).step, 0);
}

#[test]
fn what_the_learner_waits_for_is_in_the_status_while_it_waits() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let mut waits = move || client.status().expect("a status").waits;
    assert_eq!(waits(), []);
    for (wait, name) in [
        (bench.control().waits_for(7), "the rollouts of step 7"),
        (
            bench.control().waits_for_probe(7),
            "the bandit's probe before step 7",
        ),
        (
            bench.control().waits_to_publish(7),
            "a buffer for weights 7",
        ),
    ] {
        let found = waits();
        assert!(
            found.iter().any(|found| found.name == name
                && found.owner == "learner"
                && found.left_s.is_none()),
            "{found:?}"
        );
        drop(wait);
    }
    let tried = bench.control().waits().enter(
        Owner::Part("reward"),
        "arm judge, which is tried".to_owned(),
        Some(tokio::time::Instant::now() + PATIENCE),
    );
    let [found] = &waits()[..] else {
        panic!("one wait");
    };
    assert_eq!((&*found.owner, found.sessions), ("reward", 0));
    assert!(
        found
            .left_s
            .is_some_and(|left| left > 0.0 && left <= PATIENCE.as_secs_f64())
    );
    drop(tried);
    assert_eq!(waits(), []);
}

#[test]
fn when_the_run_fails_whoever_waits_is_told() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    let checkpoint = ask(&mut client, Command::Checkpoint);
    let stop = ask(&mut client, Command::Stop);
    bench.control().finish(0, "the run has failed");
    assert_eq!(refused(&mut client, checkpoint), "the run has failed");
    // Never ended in good order.
    drop(bench.control.take());
    assert_eq!(
        refused(&mut client, stop),
        "the run ended before this was applied"
    );
}

#[test]
fn a_checkpoint_beside_the_steps_is_answered_when_it_is_known_and_at_once_of_a_run_that_rests() {
    let mut bench = Bench::new();
    bench.run.writes_beside = true;
    let mut client = bench.client();
    let (good, bad) = (
        ask(&mut client, Command::Checkpoint),
        ask(&mut client, Command::Checkpoint),
    );
    bench.step();
    assert_eq!(bench.run.trained, 1, "the step waits for no checkpoint");
    let mut waiting = std::mem::take(&mut bench.run.waiting).into_iter();
    let mut next = || waiting.next().expect("both were begun");
    let (first, second) = (next(), next());
    // By another thread, in whatever order.
    std::thread::spawn(move || {
        second.tell(Err("the disk is full".to_owned()));
        first.tell(Ok("checkpoints/step-000000".to_owned()));
    });
    assert_eq!(refused(&mut client, bad), "the disk is full");
    let saved = applied(&mut client, good);
    assert_eq!(saved.note.as_deref(), Some("checkpoints/step-000000"));
    assert_eq!(saved.step, 0, "of the steps trained when it was asked");

    ask(&mut client, Command::Pause);
    let step = ask(&mut client, Command::Step);
    bench.step();
    applied(&mut client, step);
    let paused = ask(&mut client, Command::Checkpoint);
    ask(&mut client, Command::Step);
    bench.step();
    assert!(bench.run.waiting.is_empty(), "nothing goes on beside it");
    let note = applied(&mut client, paused).note;
    assert_eq!(note.as_deref(), Some("checkpoints/step-000002"));
    assert_eq!(
        bench
            .events()
            .iter()
            .filter(|event| event.starts_with("checkpoint"))
            .count(),
        3
    );
}

#[test]
fn more_commands_than_may_wait_are_refused_at_once() {
    let mut bench = Bench::new();
    let mut client = bench.client();
    for _ in 0..MAX_WAITING {
        ask(&mut client, Command::Checkpoint);
    }
    let (_, answer) = client.ask(Command::Checkpoint).expect("an answer");
    assert!(
        matches!(&answer, Answer::Refused { reason, .. } if reason.contains("64 commands wait")),
        "{answer:?}"
    );
    assert_eq!(client.status().expect("a status").waiting, 64);
    bench.step();
    assert_eq!(client.status().expect("a status").waiting, 0);
}

//! A trainer that plays a script: records events, prints, waits, ends well or badly. Started by `lathe`, not by the tests.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{TrySendError, sync_channel};
use std::time::{Duration, Instant};

use runlog::control::{Applied, Board, Command, Server, Status};
use runlog::event::{EventKind, Lane, Phase, RunStatus};
use runlog::number::{Number, Values};
use runlog::recorder::Options;
use runlog::{Recorder, RunDir};
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

pub const SCRIPT_VARIABLE: &str = "LATHE_TEST_SCRIPT";
pub const RUN_DIR_VARIABLE: &str = "LATHE_TEST_RUN_DIR";
pub const JOB_VARIABLE: &str = "LATHE_TEST_JOB";

/// Nothing a test waits for takes longer, unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One line of a script.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Act {
    Record(EventKind),
    /// To standard error, as libtorch would.
    Print(String),
    /// Appended to events.jsonl behind the recorder's back.
    Raw(String),
    Touch(PathBuf),
    /// Until somebody makes the file.
    WaitFor(PathBuf),
    /// Until the first SIGINT.
    WaitForInterrupt,
    /// Until the first SIGTERM.
    WaitForTerminate,
    /// Does as it is told over its control socket, until it is told to stop.
    ObeyUntilStop,
    /// By SIGKILL from itself, as the kernel does when memory runs out.
    Die,
    Exit(u8),
}

pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
#[ignore = "this is the fake trainer's program; `lathe` starts it in the other tests"]
fn plays_its_script() -> ExitCode {
    let script = std::env::var_os(SCRIPT_VARIABLE).expect("started by lathe in a test");
    let run_dir = std::env::var_os(RUN_DIR_VARIABLE).expect("started by lathe in a test");
    let acts: Vec<Act> = serde_json::from_slice(&std::fs::read(script).unwrap()).unwrap();
    let code = play(&acts, Path::new(&run_dir));
    // Not returned: the test harness would make 101 of any failure.
    std::process::exit(i32::from(code))
}

fn play(acts: &[Act], path: &Path) -> u8 {
    let interrupted = Arc::new(AtomicBool::new(false));
    let terminated = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&interrupted)).unwrap();
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&terminated)).unwrap();
    let mut run_dir = RunDir::open(path).unwrap();
    let recorder = Recorder::start(&mut run_dir, Options::default()).unwrap();
    let written = || wait_until("writing", || recorder.health().waiting_events == 0);
    for act in acts {
        match act {
            Act::Record(kind) => {
                recorder.record(kind.clone()).unwrap();
            }
            Act::Print(text) => eprintln!("{text}"),
            Act::Raw(text) => {
                written();
                let mut file = std::fs::File::options()
                    .append(true)
                    .open(run_dir.events_path())
                    .unwrap();
                file.write_all(text.as_bytes()).unwrap();
            }
            Act::Touch(path) => {
                written();
                std::fs::write(path, b"").unwrap();
            }
            Act::WaitFor(path) => wait_until("the file", || path.exists()),
            Act::WaitForInterrupt => wait_until("SIGINT", || interrupted.load(Ordering::Relaxed)),
            Act::WaitForTerminate => wait_until("SIGTERM", || terminated.load(Ordering::Relaxed)),
            Act::ObeyUntilStop => obey(&run_dir, &recorder),
            Act::Die => {
                written();
                kill_process(getpid(), Signal::KILL).unwrap();
            }
            Act::Exit(code) => {
                recorder.close().unwrap();
                return *code;
            }
        }
    }
    recorder.close().unwrap();
    0
}

fn obey(run_dir: &RunDir, recorder: &Recorder) {
    let board = Board::new(Status {
        run: run_dir.name().to_owned(),
        doing: "playing".to_owned(),
        ..Status::default()
    });
    let (sender, jobs) = sync_channel(8);
    let _server = Server::start(run_dir, board.clone(), move |job| {
        sender
            .try_send(job)
            .map(|()| "at once".to_owned())
            .map_err(|error| match error {
                TrySendError::Full(job) | TrySendError::Disconnected(job) => {
                    (job, "too many wait".to_owned())
                }
            })
    })
    .unwrap();
    loop {
        let job = jobs
            .recv_timeout(PATIENCE)
            .expect("somebody tells it to stop");
        let command = job.command().clone();
        board.update(|status| status.is_paused = command == Command::Pause);
        recorder
            .record(EventKind::ControlApplied {
                request: job.request().id,
                who: job.request().who.clone(),
                command: command.name().to_owned(),
                step: 0,
                target: None,
                before: None,
                after: None,
                until_step: None,
                knob: None,
                from: None,
                to: None,
                from_step: None,
            })
            .unwrap();
        job.applied(Applied::default());
        if command == Command::Stop {
            return;
        }
    }
}

pub fn started(total_steps: u64) -> Act {
    Act::Record(EventKind::RunStarted {
        experiment_name: "toy".to_owned(),
        mode: "one_step_off".to_owned(),
        total_steps,
        parameters: 812_345,
        pid: 1,
        host: "here".to_owned(),
        seed: 42,
    })
}

pub fn phase(phase: Phase) -> Act {
    Act::Record(EventKind::PhaseChanged { phase })
}

pub fn rollout(step: u64, sample: u32, score: f64) -> Act {
    Act::Record(EventKind::RolloutEnded {
        step,
        uid: format!("{step}-{}", sample / 2),
        sample,
        policy_version_min: step - 1,
        policy_version_max: step - 1,
        turns: 3,
        tool_calls: 2,
        response_tokens: 40,
        score: Some(Number(score)),
        finish: "stop".to_owned(),
    })
}

pub fn step(step: u64, reward: f64) -> Act {
    Act::Record(EventKind::StepEnded {
        step,
        policy_version: step,
        values: Values::from([
            ("critic/score/mean".to_owned(), Number(reward)),
            ("actor/ppo_kl".to_owned(), Number(0.001 * step as f64)),
            ("actor/entropy".to_owned(), Number(1.5 / step as f64)),
            ("response_length/mean".to_owned(), Number(40.0)),
        ]),
    })
}

pub fn sync(version: u64, verified: bool) -> Act {
    Act::Record(EventKind::WeightsSynced {
        version,
        bytes: 3_249_380,
        blocked_ms: 0.25,
        transfer_ms: 2.0,
        total_ms: 3.0,
        sent_fingerprint: "a1".to_owned(),
        received_fingerprint: if verified { "a1" } else { "b2" }.to_owned(),
        canary_max_diff_nats: Number(0.0),
        verified,
    })
}

pub fn span(lane: Lane, start_ms: f64, end_ms: f64) -> Act {
    Act::Record(EventKind::Span {
        lane,
        name: lane.name().to_owned(),
        step: Some(1),
        start_ms,
        end_ms,
    })
}

pub fn eval(step: u64, reward: f64) -> Act {
    Act::Record(EventKind::EvalEnded {
        step,
        policy_version: step,
        samples: 64,
        values: Values::from([("val-core/toy/reward/mean@1".to_owned(), Number(reward))]),
    })
}

pub fn alarm(step: u64, message: &str) -> Act {
    Act::Record(EventKind::Alarm {
        name: "equal_rewards".to_owned(),
        step: Some(step),
        message: message.to_owned(),
    })
}

pub fn checkpoint(step: u64) -> Act {
    Act::Record(EventKind::CheckpointSaved {
        step,
        path: format!("checkpoints/step-{step:06}"),
        bytes: 9_800_000,
        save_ms: 12.0,
        blocked_ms: 0.5,
    })
}

pub fn ended(status: RunStatus, exit_code: i32, reason: &str, steps: u64) -> Act {
    Act::Record(EventKind::RunEnded {
        status,
        exit_code,
        reason: reason.to_owned(),
        steps,
    })
}

/// Four steps that learn, with everything a run records.
pub fn learning() -> Vec<Act> {
    let mut acts = vec![
        phase(Phase::Setup),
        started(4),
        phase(Phase::Train),
        eval(0, 0.41),
        span(Lane::Generate, 0.0, 600.0),
        span(Lane::ActorUpdate, 400.0, 900.0),
    ];
    for index in 1..=4 {
        acts.extend((0..4).map(|sample| rollout(index, sample, 0.5)));
        acts.push(step(index, 0.2 * index as f64));
        acts.push(sync(index, true));
    }
    acts.extend([
        alarm(2, "every reward in 3 of 4 groups is equal"),
        eval(4, 0.93),
        checkpoint(4),
        phase(Phase::Finish),
        ended(RunStatus::Completed, 0, "", 4),
    ]);
    acts
}

/// What a trainer does that goes on in its directory behind step `from`, to the end.
pub fn going_on(from: u64, total: u64) -> Vec<Act> {
    let mut acts = vec![
        Act::Record(EventKind::RunResumed {
            from_step: from,
            checkpoint: Some(format!("checkpoints/step-{from:06}")),
            lost_steps: 0,
            passed_over: Vec::new(),
        }),
        started(total),
    ];
    acts.extend((from + 1..=total).map(|index| step(index, 0.5)));
    acts.push(ended(RunStatus::Completed, 0, "", total));
    acts
}

/// A whole checkpoint in a run's directory.
pub fn save_checkpoint(run_dir: &Path, step: u64) -> PathBuf {
    let written = runlog::checkpoints::write(
        &run_dir.join("checkpoints"),
        step,
        |folder| std::fs::write(folder.join("state.json"), "{}"),
        || Ok(()),
    );
    written.unwrap().path
}

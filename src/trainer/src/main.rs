//! The program `lathe-trainer`: runs one experiment in one run directory, headless, and writes what happens there.
//!
//! `lathe run` makes the directory and starts this program; it may also be started by hand on a directory made before.

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Parser, Subcommand};
use experiment::Experiment;
use runlog::event::{EventKind, RunStatus};
use runlog::exit_code;
use runlog::loggers;
use runlog::recorder::{Options, Recorder};
use runlog::run_dir::{RunDir, RunDirError};
use trainer::control::Control;
use trainer::failure::Failure;
use trainer::host::HostSampler;
use trainer::run::{self, Ended, panic_text};
use trainer::stop::Stop;
use trainer::{checkpoint, resume, reward, sft, torch_ext};

#[derive(Parser)]
#[command(
    name = "lathe-trainer",
    version,
    about = "Runs one experiment in a run directory (started by `lathe run`)"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Reinforcement learning: rollouts, learner, weight sync
    Run {
        /// A run directory that holds experiment.yaml
        #[arg(long)]
        run_dir: PathBuf,
        /// A key of experiment.yaml that is new since the run was interrupted: it wins over a knob that was set live
        #[arg(long = "given", value_name = "KEY")]
        given: Vec<String>,
    },
    /// Supervised warm-up on demonstrations
    Sft {
        /// A run directory that holds experiment.yaml
        #[arg(long)]
        run_dir: PathBuf,
    },
    /// Learns a reward model from preferences or scores
    RewardTrain {
        /// A run directory that holds experiment.yaml
        #[arg(long)]
        run_dir: PathBuf,
    },
    /// Computes stored cases of a reference (FUNCTION.json with .safetensors), for anyone to compare
    Oracle {
        /// The cases; src/trainer/tests/oracles/ holds some
        cases: PathBuf,
        /// Where our outputs, gradients and numbers go, in the layout of the cases
        out: PathBuf,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = torch_ext::ensure_passive_openmp() {
        tell(format_args!("OpenMP's idle threads will spin: {error}"));
    }
    torch_ext::load_cuda_if_present();
    let ended = match &arguments.command {
        Command::Run { run_dir, given } => start(run_dir, Work::Run, given),
        Command::Sft { run_dir } => start(run_dir, Work::Sft, &[]),
        Command::RewardTrain { run_dir } => start(run_dir, Work::Reward, &[]),
        Command::Oracle { cases, out } => answer_oracle(cases, out),
    };
    let code = match ended {
        Ok(code) => code,
        Err(failure) => {
            tell(format_args!("{failure}"));
            failure.exit_code()
        }
    };
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// A line in log.txt. Its disk may be full, and that is no reason to panic.
fn tell(line: fmt::Arguments<'_>) {
    // In one piece: whatever else writes there writes lines too.
    let line = format!("lathe-trainer: {line}\n");
    drop(std::io::stderr().write_all(line.as_bytes()));
}

/// Not everything computed is an input that cannot be used; what could be is written all the same.
fn answer_oracle(cases: &Path, out: &Path) -> Result<i32, Failure> {
    let mut say = |line: &str| println!("{line}");
    let is_whole = trainer::oracle::answer_all(cases, out, &mut say).map_err(Failure::input)?;
    Ok(if is_whole {
        exit_code::OK
    } else {
        exit_code::INPUT
    })
}

/// What is done in a run directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Run,
    Sft,
    Reward,
}

/// Takes the run directory, runs, and writes the end of the run whatever it is.
fn start(path: &Path, work: Work, given: &[String]) -> Result<i32, Failure> {
    let mut run_dir = RunDir::open(path).map_err(Failure::input)?;
    let loaded = experiment::load(&run_dir.experiment_path(), &[]).map_err(Failure::input)?;
    let experiment = Arc::new(loaded.experiment);
    // Before anything is written: a run with nothing left to do stays as it is.
    let mut resume = match work {
        Work::Run => resume::plan(&run_dir, &experiment)?,
        Work::Sft | Work::Reward => None,
    };
    let recorder =
        Recorder::start(&mut run_dir, Options::default()).map_err(|error| match error {
            RunDirError::Busy { .. } => Failure::Busy(error.to_string()),
            other => Failure::run(other),
        })?;
    let cannot_go_on = work != Work::Run || experiment.trainer.val_only;
    if cannot_go_on && std::fs::metadata(run_dir.events_path()).is_ok_and(|log| log.len() > 0) {
        return Err(Failure::Busy(format!(
            "{} holds a run already, and a directory holds one; `lathe run {}` starts another from the same experiment",
            path.display(),
            run_dir.experiment_path().display()
        )));
    }
    // What a killed trainer left half-written.
    checkpoint::tidy(&run_dir.checkpoints_dir()).map_err(Failure::run)?;
    if let Some(resume) = &mut resume {
        resume.adopt(&run_dir)?;
        resume.given = given.to_vec();
    }
    let resumed_from = resume.as_ref().map(|resume| resume.from_step);
    let loggers = open_loggers(&run_dir, &experiment, &recorder, resumed_from)?;
    let sealing = runlog::store::follow(&run_dir).map_err(Failure::run)?;
    let stop = Stop::default();
    let has_ended = Arc::new(AtomicBool::new(false));
    stop.listen({
        let (recorder, has_ended) = (recorder.clone(), Arc::clone(&has_ended));
        move |steps| {
            if !has_ended.swap(true, Ordering::SeqCst) {
                recorder.record(EventKind::RunEnded {
                    status: RunStatus::Stopped,
                    exit_code: exit_code::STOPPED,
                    reason: format!(
                        "ended at once by a second signal after step {steps}; what was trained since the last checkpoint is lost"
                    ),
                    steps,
                });
            }
            // The exit code is decided; whoever waits for the disk does so in vain.
            drop(recorder.close());
        }
    })
    .map_err(Failure::run)?;
    let mut control = Control::start(&run_dir, &recorder, &stop);
    let host = {
        let recorder = recorder.clone();
        HostSampler::start(move |kind| {
            recorder.record(kind);
        })
    };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match work {
        Work::Sft => sft::run(&experiment, &run_dir, &recorder, &stop, &mut control),
        Work::Reward => reward::train::run(&experiment, &run_dir, &recorder, &stop, &mut control),
        Work::Run => run::run(
            &experiment,
            &run_dir,
            &recorder,
            &stop,
            &mut control,
            resume.as_ref(),
        ),
    }))
    .unwrap_or_else(|panic| {
        Err(Failure::Run(format!(
            "the trainer panicked: {}",
            panic_text(&*panic)
        )))
    });
    drop(host);
    let (status, mut code, reason, steps) = match &result {
        Ok(Ended::Completed { steps }) => (
            RunStatus::Completed,
            exit_code::OK,
            "every step was trained".to_owned(),
            *steps,
        ),
        Ok(Ended::Evaluated) => (
            RunStatus::Completed,
            exit_code::OK,
            "the starting weights were evaluated; trainer.val_only trains no step".to_owned(),
            0,
        ),
        Ok(Ended::Stopped { steps }) => (
            RunStatus::Stopped,
            exit_code::STOPPED,
            match stop.reason() {
                Some(reason) => format!("stopped after step {steps} by {reason}"),
                None => format!("stopped on request after step {steps}"),
            },
            *steps,
        ),
        Err(failure) => (
            RunStatus::Failed,
            failure.exit_code(),
            failure.to_string(),
            0,
        ),
    };
    if !has_ended.swap(true, Ordering::SeqCst) {
        recorder.record(EventKind::RunEnded {
            status,
            exit_code: code,
            reason: reason.clone(),
            steps,
        });
    }
    // Before the run is given free: the next writer's socket has the same name.
    drop(control);
    if let Err(error) = recorder.close() {
        tell(format_args!("{error}"));
        code = code.max(exit_code::RUN_FAILED);
    }
    loggers.finish();
    if let Err(error) = sealing.finish() {
        tell(format_args!("metrics/ can be rebuilt later: {error}"));
    }
    if result.is_err() {
        tell(format_args!("{reason}"));
    }
    Ok(code)
}

/// Starts what `trainer.logger` names. One that cannot be opened ends the run before it starts; one that fails later is an
/// alarm.
fn open_loggers(
    run_dir: &RunDir,
    experiment: &Experiment,
    recorder: &Recorder,
    resumed_from: Option<u64>,
) -> Result<loggers::Following, Failure> {
    let config = serde_json::to_value(experiment).map_err(Failure::run)?;
    let context = loggers::Context {
        resumed_from,
        ..loggers::Context::new(run_dir, config)
    };
    let opened = experiment
        .trainer
        .logger
        .iter()
        .map(|name| {
            let name = serde_json::to_value(name).map_err(Failure::run)?;
            loggers::open(name.as_str().unwrap_or_default(), &context, &|key| {
                std::env::var(key).ok()
            })
            .map_err(Failure::run)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let alarms = recorder.clone();
    loggers::follow(
        run_dir,
        opened,
        Box::new(move |name, error| {
            let message = match error {
                Some(error) => format!("the {name} logger fails: {error}; it will try again"),
                None => format!("the {name} logger works again"),
            };
            alarms.record(EventKind::Alarm {
                name: format!("logger {name}"),
                step: None,
                message,
            });
        }),
    )
    .map_err(Failure::run)
}

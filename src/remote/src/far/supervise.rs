//! Watches over one run: waits for its turn, starts the trainer, and writes how it ended, however it ended.
//!
//! A process of its own in a session of its own. SIGINT asks the trainer to stop after its step, SIGTERM ends it now and its whole
//! group soon after; a run that still waits is taken out of the line by either.
//!
//! In a job of a scheduler's it has its machine already. Slurm's warning (SIGUSR1) before the end of its time, and SIGTERM, have
//! the trainer save a checkpoint and stop; a job that is put into the queue again finds the run's directory as it left it, and
//! goes on. No word is written then: the run is not over.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use runlog::control::ONE_SIGNAL;
use runlog::disk;
use runlog::run_dir::{Exit, ProcessIdentity, host_name};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use super::begin::{Job, Under};
use super::cluster::STOP_FILE;
use super::cluster::slurm::{self, Shown};
use super::turn::{self, Turn};
use super::{Folder, Here, Supervisor, facts, kernel, session};
use crate::scheduler::Requeue;

/// Between two looks at the trainer, or at the line.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_millis(500);
/// A trainer told to end now gets this long to close its files.
const GRACE: Duration = Duration::from_secs(10);
/// Ray kills what it has told to end after three seconds, and would leave the trainer behind.
const GRACE_OF_RAY: Duration = Duration::from_secs(2);
/// Between two looks for the file that asks for an end.
const STOP_EVERY: Duration = Duration::from_secs(1);
/// Between two tries to write the last word on a full disk.
const RETRY_EVERY: Duration = Duration::from_secs(2);

/// Watches over a run until it is over, and gives the exit code that its scheduler is to see, if it has one. `Err`: it could not
/// even begin; the last word is written all the same where it can be.
pub fn supervise(here: Here, run: &Path) -> Result<i32, String> {
    let mut job = Job::read(run)?;
    // A scheduler has an environment for it.
    let environment = match job.under {
        None => session::taken(&mut std::io::stdin())?,
        Some(_) => BTreeMap::new(),
    };
    if job.under.is_none() {
        // Fails for a group's leader, which a just started child is not, and systemd's child may be: it has its own session then. A
        // scheduler finds its processes by their group.
        let _ = rustix::process::setsid();
    }
    let signals = signals()?;
    let folder = Folder::of_run(run).ok_or("the run does not lie in a folder of lathe's")?;
    let mut known = Supervisor {
        process: ProcessIdentity::of(std::process::id()),
        trainer: None,
        waits: Some("to begin".to_owned()),
        gpus: Vec::new(),
        host: host_name(),
        job: None,
    };
    if job.under.is_some() && !may_begin(run, &mut known)? {
        return Ok(0);
    }
    known.write(run)?;
    let turn = if job.under.is_some() {
        turn::of_a_scheduler(&job.gpus)
    } else {
        match wait_for_turn(&folder, run, &job, &mut known, &signals) {
            Ok(Some(turn)) => turn,
            Ok(None) => {
                let reason = "it was taken out of the line before it began";
                write_exit(run, &plain_exit(130, reason.to_owned()));
                return Ok(0);
            }
            Err(reason) => {
                write_exit(run, &plain_exit(3, format!("it could not begin: {reason}")));
                return Ok(0);
            }
        }
    };
    known.gpus.clone_from(&turn.gpus.indices);
    let kills_before = kernel::memory_kills();
    let mut child = match start(here, run, &job, &turn, &environment) {
        Ok(child) => child,
        Err(reason) => {
            write_exit(run, &plain_exit(127, reason));
            return Ok(if job.under.is_some() { 127 } else { 0 });
        }
    };
    if !job.given.is_empty() {
        // Said once: what is set from here on counts when the job goes on by itself.
        job.given.clear();
        let _ = job.write(run);
    }
    known.trainer = Some(ProcessIdentity::of(child.id()));
    known.waits = None;
    // On a disk that is full by now the run goes on; whoever asks sees that its supervisor lives.
    let _ = known.write(run);
    let mut heard = Heard::default();
    let status = watch(&mut child, &signals, job.under, run, &mut heard)?;
    let is_out_of_memory = status.signal() == Some(9)
        && (kernel::memory_kills() > kills_before || kernel::log_says_out_of_memory(child.id()));
    let mut exit = exit(here, run, status, is_out_of_memory);
    if job.under.is_none() && heard.is_terminated && !status.success() && !is_out_of_memory {
        "it was told to end (SIGTERM): its machine shuts down, or somebody ended it there"
            .clone_into(&mut exit.reason);
    }
    if let Some(Under::Slurm { requeue }) = job.under
        && (heard.is_warned || heard.is_terminated)
        && !status.success()
    {
        match after_slurm(heard, requeue, known.job.as_deref()) {
            After::Again(words) => {
                note(run, &words);
                return Ok(0);
            }
            After::Over(Some(reason)) => exit.reason = reason,
            After::Over(None) => {}
        }
    }
    write_exit(run, &exit);
    Ok(match (job.under, exit.code, exit.signal) {
        // Stopped on request is no failure.
        (None, ..) | (_, Some(130), _) => 0,
        (_, Some(code), _) => code,
        (_, None, signal) => 128 + signal.unwrap_or(0),
    })
}

/// In a job: takes in what an earlier start of it left. False: there is nothing (more) to do.
fn may_begin(run: &Path, known: &mut Supervisor) -> Result<bool, String> {
    let job = std::env::var("SLURM_JOB_ID").ok();
    known.job = job.filter(|text| !text.is_empty());
    if let Some(exit) = Exit::read(run) {
        if exit.code == Some(0) {
            return Ok(false);
        }
        let path = run.join(Exit::FILE);
        std::fs::remove_file(&path)
            .map_err(|error| format!("cannot remove {}: {error}", path.display()))?;
    }
    if run.join(STOP_FILE).exists() {
        let reason = "it was stopped before its job began";
        write_exit(run, &plain_exit(130, reason.to_owned()));
        return Ok(false);
    }
    if restarts() > 0 {
        let job = known.job.as_deref().unwrap_or("?");
        note(
            run,
            &format!(
                "Slurm has started job {job} again (restart {}) on {}; the run goes on from its newest checkpoint",
                restarts(),
                known.host
            ),
        );
    }
    Ok(true)
}

/// How often Slurm has started this job before.
fn restarts() -> u32 {
    std::env::var("SLURM_RESTART_COUNT")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// A line in the run's log. On a full disk it is missing.
fn note(run: &Path, words: &str) {
    use std::io::Write as _;
    let log = File::options()
        .append(true)
        .create(true)
        .open(run.join("log.txt"));
    // In one piece: the trainer writes there too.
    let line = format!("lathe: {words}\n");
    let _ = log.and_then(|mut log| log.write_all(line.as_bytes()));
}

/// What reached the supervisor while the trainer ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Heard {
    /// Somebody asked for an end after the step.
    is_stopped: bool,
    /// The end of its time is near, or another job is to take its place.
    is_warned: bool,
    is_terminated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum After {
    /// It goes on in another job: what the log says.
    Again(String),
    /// It is over, and why, where that is known better than by the trainer's end.
    Over(Option<String>),
}

/// After a trainer that Slurm had stopped.
fn after_slurm(heard: Heard, requeue: Requeue, job: Option<&str>) -> After {
    let Some(job) = job else {
        return After::Over(None);
    };
    let shown = slurm::show(job).ok().flatten();
    match decide(heard, requeue, shown.as_ref(), restarts()) {
        Decision::StartsAgain => After::Again(format!(
            "Slurm puts job {job} into the queue again; the run goes on from there"
        )),
        Decision::Requeue(why) => match slurm::requeue(job) {
            Ok(()) => After::Again(format!(
                "{why}: job {job} goes into the queue again, and the run goes on from there"
            )),
            Err(said) => After::Over(Some(format!(
                "{why}, and its job {job} could not be put into the queue again: {said}; start from its newest checkpoint: lathe run \
                 EXPERIMENT --from RUN --on TARGET"
            ))),
        },
        Decision::Over(reason) => After::Over(reason),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Decision {
    /// Slurm does that itself.
    StartsAgain,
    Requeue(String),
    Over(Option<String>),
}

fn decide(heard: Heard, requeue: Requeue, shown: Option<&Shown>, restarts: u32) -> Decision {
    if shown.is_some_and(|shown| shown.restarts > restarts) {
        return Decision::StartsAgain;
    }
    if heard.is_stopped {
        // Somebody wanted it to end: that is why it ends, whatever came after.
        return Decision::Over(None);
    }
    let is_preempted = shown.is_some_and(|shown| shown.is_preempted);
    let limit = shown
        .and_then(|shown| shown.time_limit.as_ref())
        .map_or_else(String::new, |limit| format!(" of {limit}"));
    let go_on = "start from its newest checkpoint: lathe run EXPERIMENT --from RUN --on TARGET";
    if is_preempted {
        let why = "another job takes its place (PREEMPTED)".to_owned();
        return match requeue {
            Requeue::Never => Decision::Over(Some(format!(
                "{why}, and `requeue: never` stands in targets.yaml; {go_on}"
            ))),
            Requeue::Preempted | Requeue::Always => Decision::Requeue(why),
        };
    }
    if heard.is_warned {
        let why = format!("its job's time limit{limit} is reached (TIMEOUT)");
        return match requeue {
            Requeue::Always => Decision::Requeue(why),
            Requeue::Preempted | Requeue::Never => Decision::Over(Some(format!(
                "{why}: it stopped with what its last checkpoint holds; give it more with `time` in targets.yaml, or have it go on in \
                 another job with `requeue: always`; or {go_on}"
            ))),
        };
    }
    Decision::Over(Some(format!(
        "its job was cancelled (scancel, or who runs the cluster ended it); {go_on}"
    )))
}

fn signals() -> Result<Receiver<i32>, String> {
    let mut source = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1])
        .map_err(|error| format!("cannot listen to signals: {error}"))?;
    // More than 16 that wait say nothing new.
    let (sender, receiver) = sync_channel(16);
    // Ends with the process.
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in source.forever() {
                let _ = sender.try_send(signal);
            }
        })
        .map_err(|error| format!("cannot listen to signals: {error}"))?;
    Ok(receiver)
}

/// None: it was told not to.
fn wait_for_turn(
    folder: &Folder,
    run: &Path,
    job: &Job,
    known: &mut Supervisor,
    signals: &Receiver<i32>,
) -> Result<Option<Turn>, String> {
    let name = run.file_name().unwrap_or_default().to_string_lossy();
    let now_ns = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    let ticket = turn::line_up(folder, &name, now_ns)?;
    loop {
        match ticket.try_turn(folder, job.at_once, &job.gpus)? {
            Ok(turn) => return Ok(Some(turn)),
            Err(why) => {
                if known.waits.as_ref() != Some(&why) {
                    known.waits = Some(why);
                    known.write(run)?;
                }
            }
        }
        match signals.recv_timeout(LINE_EVERY) {
            Ok(SIGINT | SIGTERM) => return Ok(None),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LINE_EVERY),
        }
    }
}

fn start(
    here: Here,
    run: &Path,
    job: &Job,
    turn: &Turn,
    environment: &BTreeMap<String, String>,
) -> Result<Child, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let log_path = run.join("log.txt");
    let log = File::options()
        .append(true)
        .create(true)
        .open(&log_path)
        .map_err(|error| format!("cannot write {}: {error}", log_path.display()))?;
    let mut command = Command::new(program);
    command
        .arg(here.exec_command)
        .arg(&job.trainer)
        .arg(&job.verb)
        .arg("--run-dir")
        .arg(run)
        .args(job.given.iter().map(|key| format!("--given={key}")))
        .current_dir(&job.project)
        .stdin(Stdio::null())
        .envs(environment);
    if job.under.is_some() {
        command.env(ONE_SIGNAL, "1");
    }
    if let Some(libraries) = &job.libraries {
        let before = environment
            .get(facts::LIBRARY_PATH)
            .map(OsString::from)
            .or_else(|| std::env::var_os(facts::LIBRARY_PATH));
        let path = facts::library_path(Path::new(libraries), before);
        command.env(facts::LIBRARY_PATH, path);
    }
    if let Some(visible) = &turn.gpus.visible {
        command.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
        command.env("CUDA_VISIBLE_DEVICES", visible);
    }
    let output = log.try_clone().map_err(|error| error.to_string())?;
    command
        .stdout(output)
        .stderr(log)
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", job.trainer))
}

/// Hands signals on until the trainer is gone.
fn watch(
    child: &mut Child,
    signals: &Receiver<i32>,
    under: Option<Under>,
    run: &Path,
    heard: &mut Heard,
) -> Result<ExitStatus, String> {
    let pid = Pid::from_raw(child.id().cast_signed());
    let mut kill_at: Option<Instant> = None;
    let mut looked_at = Instant::now();
    // The trainer ends at once at its second signal: in a job several of them mean one thing.
    let mut has_asked = false;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(status);
        }
        if kill_at.is_some_and(|at| Instant::now() >= at)
            && let Some(pid) = pid
        {
            // Not reaped yet, so the number cannot be another's.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = kill_process(pid, Signal::KILL);
            kill_at = None;
        }
        let mut signal = match signals.recv_timeout(LOOK_EVERY) {
            Ok(signal @ (SIGINT | SIGTERM | SIGUSR1)) => Some(signal),
            // The line that started us is gone: that is what we are for.
            Ok(_) | Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(LOOK_EVERY);
                None
            }
        };
        if under.is_some() && !has_asked && signal.is_none() && looked_at.elapsed() >= STOP_EVERY {
            looked_at = Instant::now();
            signal = run.join(STOP_FILE).exists().then_some(SIGINT);
        }
        let (Some(signal), Some(pid)) = (signal, pid) else {
            continue;
        };
        match (signal, under) {
            (SIGUSR1, None | Some(Under::Ray)) => {}
            (SIGTERM, None) => {
                heard.is_terminated = true;
                let _ = kill_process(pid, Signal::TERM);
                kill_at.get_or_insert_with(|| Instant::now() + GRACE);
            }
            (_, None) => {
                let _ = kill_process(pid, Signal::INT);
            }
            (signal, Some(under)) => {
                match signal {
                    SIGUSR1 => heard.is_warned = true,
                    SIGTERM => heard.is_terminated = true,
                    _ => heard.is_stopped |= !heard.is_warned && !heard.is_terminated,
                }
                if !has_asked {
                    has_asked = true;
                    // To the trainer the first of either is the same, and Ray starts its jobs with SIGINT blocked.
                    let is_term = signal == SIGTERM || under == Under::Ray;
                    let _ = kill_process(pid, if is_term { Signal::TERM } else { Signal::INT });
                }
                // Slurm kills all of a job itself, when its patience is over.
                if signal == SIGTERM && under == Under::Ray {
                    kill_at.get_or_insert_with(|| Instant::now() + GRACE_OF_RAY);
                }
            }
        }
    }
}

fn plain_exit(code: i32, reason: String) -> Exit {
    Exit {
        code: Some(code),
        signal: None,
        is_out_of_memory: false,
        reason,
        last_words: Vec::new(),
        ended_at: Timestamp::now(),
        host: host_name(),
    }
}

fn exit(here: Here, run: &Path, status: ExitStatus, is_out_of_memory: bool) -> Exit {
    let (code, signal) = (status.code(), status.signal());
    let (explained, last_words) = (here.explain)(code, signal, &run.join("log.txt"));
    let host = host_name();
    let reason = if is_out_of_memory {
        format!(
            "{host} ran out of memory and its kernel killed the trainer (SIGKILL): make the batch or the model smaller, or give the \
             job more memory"
        )
    } else if let Some(free) = disk::full(run).filter(|_| !status.success()) {
        // Its own last words may have had no room.
        format!(
            "{explained}; the disk of {host} is full ({} KB left): free some space, then have it go on: lathe run --resume RUN",
            free >> 10
        )
    } else {
        explained
    };
    Exit {
        code,
        signal,
        is_out_of_memory,
        reason,
        last_words,
        ended_at: Timestamp::now(),
        host,
    }
}

/// Until it is written: without it nobody could tell how the run ended.
fn write_exit(run: &Path, exit: &Exit) {
    while exit.write(run).is_err() {
        if !run.is_dir() {
            // Deleted: nobody is left to tell.
            return;
        }
        std::thread::sleep(RETRY_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(restarts: u32, is_preempted: bool) -> Shown {
        Shown {
            state: "COMPLETING".to_owned(),
            restarts,
            is_preempted,
            time_limit: Some("00:10:00".to_owned()),
            ..Shown::default()
        }
    }

    fn heard(is_warned: bool, is_terminated: bool) -> Heard {
        Heard {
            is_stopped: false,
            is_warned,
            is_terminated,
        }
    }

    #[test]
    fn a_job_that_slurm_puts_into_the_queue_again_is_not_over() {
        let after = decide(
            heard(false, true),
            Requeue::Preempted,
            Some(&shown(1, false)),
            0,
        );
        assert_eq!(after, Decision::StartsAgain);
        // It has been started again already, and this is another end.
        let after = decide(
            heard(false, true),
            Requeue::Preempted,
            Some(&shown(1, false)),
            1,
        );
        assert!(matches!(after, Decision::Over(Some(reason)) if reason.contains("cancelled")));
    }

    #[test]
    fn a_job_whose_place_another_takes_is_put_into_the_queue_again_unless_that_is_not_wanted() {
        for requeue in [Requeue::Preempted, Requeue::Always] {
            let after = decide(heard(true, false), requeue, Some(&shown(0, true)), 0);
            assert!(matches!(after, Decision::Requeue(_)), "{requeue:?}");
        }
        let after = decide(heard(true, false), Requeue::Never, Some(&shown(0, true)), 0);
        assert!(matches!(after, Decision::Over(Some(reason)) if reason.contains("PREEMPTED")));
    }

    #[test]
    fn the_end_of_its_time_ends_a_run_unless_it_is_always_to_go_on() {
        let warned = heard(true, false);
        let after = decide(warned, Requeue::Always, Some(&shown(0, false)), 0);
        assert!(matches!(after, Decision::Requeue(_)));
        let Decision::Over(Some(reason)) =
            decide(warned, Requeue::Preempted, Some(&shown(0, false)), 0)
        else {
            panic!("it is over");
        };
        assert!(
            reason.contains("time limit of 00:10:00 is reached (TIMEOUT)"),
            "{reason}"
        );
        assert!(reason.contains("`requeue: always`"), "{reason}");
    }

    #[test]
    fn a_run_that_somebody_stopped_stays_stopped() {
        let stopped = Heard {
            is_stopped: true,
            is_warned: true,
            is_terminated: true,
        };
        assert_eq!(
            decide(stopped, Requeue::Always, Some(&shown(0, true)), 0),
            Decision::Over(None)
        );
        assert_eq!(
            decide(stopped, Requeue::Always, None, 0),
            Decision::Over(None)
        );
    }
}

//! Watches over one run: waits for its turn, starts the trainer, and writes how it ended, however it ended.
//!
//! A process of its own in a session of its own. SIGINT asks the trainer to stop after its step, SIGTERM ends it now and its whole
//! group soon after; a run that still waits is taken out of the line by either.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use runlog::run_dir::{Exit, ProcessIdentity, host_name};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::begin::Job;
use super::turn::{self, Turn};
use super::{Folder, Here, Supervisor, facts, kernel};

/// Between two looks at the trainer, or at the line.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_millis(500);
/// A trainer told to end now gets this long to close its files.
const GRACE: Duration = Duration::from_secs(10);
/// Between two tries to write the last word on a full disk.
const RETRY_EVERY: Duration = Duration::from_secs(2);

/// Watches over a run until it is over. `Err`: it could not even begin; the last word is written all the same where it can be.
pub fn supervise(here: Here, run: &Path) -> Result<(), String> {
    // Fails for a group's leader, which a just started child is not, and systemd's child may be: it has its own session then.
    let _ = rustix::process::setsid();
    let signals = signals()?;
    let job = Job::read(run)?;
    let folder = Folder::of_run(run).ok_or("the run does not lie in a folder of lathe's")?;
    let mut known = Supervisor {
        process: ProcessIdentity::of(std::process::id()),
        trainer: None,
        waits: Some("to begin".to_owned()),
        gpus: Vec::new(),
    };
    known.write(run)?;
    let turn = match wait_for_turn(&folder, run, &job, &mut known, &signals) {
        Ok(Some(turn)) => turn,
        Ok(None) => {
            let reason = "it was taken out of the line before it began";
            write_exit(run, &plain_exit(130, reason.to_owned()));
            return Ok(());
        }
        Err(reason) => {
            write_exit(run, &plain_exit(3, format!("it could not begin: {reason}")));
            return Ok(());
        }
    };
    known.gpus.clone_from(&turn.gpus.indices);
    let kills_before = kernel::memory_kills();
    let mut child = match start(here, run, &job, &turn) {
        Ok(child) => child,
        Err(reason) => {
            write_exit(run, &plain_exit(127, reason));
            return Ok(());
        }
    };
    known.trainer = Some(ProcessIdentity::of(child.id()));
    known.waits = None;
    // On a disk that is full by now the run goes on; whoever asks sees that its supervisor lives.
    let _ = known.write(run);
    let status = watch(&mut child, &signals)?;
    let is_out_of_memory = status.signal() == Some(9)
        && (kernel::memory_kills() > kills_before || kernel::log_says_out_of_memory(child.id()));
    write_exit(run, &exit(here, run, status, is_out_of_memory));
    Ok(())
}

fn signals() -> Result<Receiver<i32>, String> {
    let mut source = Signals::new([SIGINT, SIGTERM, SIGHUP])
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

fn start(here: Here, run: &Path, job: &Job, turn: &Turn) -> Result<Child, String> {
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
        .current_dir(&job.project)
        .stdin(Stdio::null());
    if let Some(libraries) = &job.libraries {
        command.env("LD_LIBRARY_PATH", facts::library_path(Path::new(libraries)));
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
fn watch(child: &mut Child, signals: &Receiver<i32>) -> Result<ExitStatus, String> {
    let pid = Pid::from_raw(child.id().cast_signed());
    let mut kill_at: Option<Instant> = None;
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
        let signal = match signals.recv_timeout(LOOK_EVERY) {
            Ok(signal @ (SIGINT | SIGTERM)) => signal,
            // The line that started us is gone: that is what we are for.
            Ok(_) | Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(LOOK_EVERY);
                continue;
            }
        };
        if let Some(pid) = pid {
            if signal == SIGTERM {
                let _ = kill_process(pid, Signal::TERM);
                kill_at.get_or_insert_with(|| Instant::now() + GRACE);
            } else {
                let _ = kill_process(pid, Signal::INT);
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
    while let Err(error) = exit.write(run) {
        if !run.is_dir() {
            // Deleted: nobody is left to tell.
            return;
        }
        eprintln!("{error}; tried again until there is room");
        std::thread::sleep(RETRY_EVERY);
    }
}

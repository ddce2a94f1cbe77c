//! Runs that a scheduler gives their machine: put into its queue, asked after, ended.
//!
//! The run's directory lies where the job's node sees it too, and what watches over the run in the job writes `exit.json`: that is
//! what counts. The scheduler is asked only while the run is not seen to live here, ever more seldom, and for why it waits. A job
//! that is over and left no word gets one by the scheduler's: its memory forgets within minutes.

mod command;
pub(super) mod ray;
pub(super) mod slurm;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use runlog::run_dir::{Exit, Standing, host_name};
use serde::{Deserialize, Serialize};

use super::begin::{self, Under};
use super::{Folder, Here, Supervisor, standing_here};
use crate::scheduler::{ClusterFacts, Requeue, Scheduler};
use crate::wire::{Again, Begin, Say};

/// Made in a run's directory to have it end after its step: a shared folder reaches where a signal does not.
pub(super) const STOP_FILE: &str = "stop-asked";
/// Between two questions to the scheduler while its answers are news, and later.
const ASK_EVERY: [(u32, Duration); 3] = [
    (10, Duration::from_secs(1)),
    (40, Duration::from_secs(4)),
    (u32::MAX, Duration::from_secs(15)),
];
/// How long a word of a job that is over may take to be seen here: a network folder shows late what another machine wrote.
const LATE_WORD: Duration = Duration::from_secs(5);
/// Of a log, for the last words.
const LAST_BYTES: u64 = 8 << 10;
const LAST_LINES: usize = 12;

/// `scheduled.json`: who gives the run its machine, and what it calls the job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Scheduled {
    pub scheduler: Scheduler,
    pub job: String,
}

impl Scheduled {
    pub const FILE: &str = "scheduled.json";

    /// None: nobody but lathe does.
    pub fn read(run: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(run.join(Self::FILE)).ok()?).ok()
    }

    fn write(&self, run: &Path) -> Result<(), String> {
        let text = serde_json::to_vec_pretty(self).expect("only string keys");
        runlog::run_dir::write_renamed(&run.join(Self::FILE), &text)
            .map_err(|error| error.to_string())
    }
}

/// How a job stands, by its scheduler's word.
#[derive(Debug, Clone, PartialEq, Eq)]
enum JobState {
    Waits {
        why: String,
    },
    Runs,
    Ended(JobEnd),
    /// The scheduler knows none of that name (any more).
    Forgotten,
    /// It cannot be asked now.
    Unknown {
        reason: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct JobEnd {
    reason: String,
    code: Option<i32>,
    signal: Option<i32>,
    is_out_of_memory: bool,
}

fn ask(run: &Path, scheduled: &Scheduled) -> JobState {
    match &scheduled.scheduler {
        Scheduler::Slurm(_) => slurm::state(&scheduled.job),
        Scheduler::Ray(asked) => match ray::state(asked, &scheduled.job) {
            // Its word of a job that has just begun comes late, and none of its jobs waits again.
            JobState::Waits { .. } if run.join(Supervisor::FILE).is_file() => JobState::Runs,
            state => state,
        },
    }
}

/// Looks at how a run stands, as often as somebody likes: what costs another program's time is remembered.
#[derive(Debug)]
pub(super) struct Look {
    run: PathBuf,
    scheduled: Option<Scheduled>,
    /// Writes the last word of a run that left none; else only says it.
    is_writer: bool,
    asked_at: Option<Instant>,
    asks: u32,
    state: Option<JobState>,
    over_since: Option<Instant>,
}

impl Look {
    /// For whoever follows a run.
    pub fn new(run: &Path) -> Self {
        Self {
            run: run.to_owned(),
            scheduled: Scheduled::read(run),
            is_writer: true,
            asked_at: None,
            asks: 0,
            state: None,
            over_since: None,
        }
    }

    /// For whoever only wants to know, and changes nothing.
    pub fn from_aside(run: &Path) -> Self {
        Self {
            is_writer: false,
            ..Self::new(run)
        }
    }

    /// One look, which changes nothing.
    pub fn once(run: &Path) -> Standing {
        Self::from_aside(run).standing()
    }

    /// Whether the next look costs a scheduler's time.
    pub fn has_to_ask(&self) -> bool {
        self.scheduled.is_some()
            && Exit::read(&self.run).is_none()
            && Supervisor::read(&self.run).is_none_or(|known| !known.process.lives())
            && self
                .asked_at
                .is_none_or(|at| at.elapsed() >= self.ask_every())
    }

    /// When the scheduler was last asked about it.
    pub fn asked_at(&self) -> Option<Instant> {
        self.asked_at
    }

    fn ask_every(&self) -> Duration {
        ASK_EVERY
            .iter()
            .find(|(asks, _)| self.asks < *asks)
            .map_or(LATE_WORD, |(_, every)| *every)
    }

    pub fn standing(&mut self) -> Standing {
        let Some(scheduled) = self.scheduled.clone() else {
            return standing_here(&self.run);
        };
        if let Some(exit) = Exit::read(&self.run) {
            return self.after_its_word(&scheduled, exit);
        }
        if Supervisor::read(&self.run).is_some_and(|known| known.process.lives()) {
            self.over_since = None;
            return Standing::Running;
        }
        let has_begun = self.run.join(Supervisor::FILE).is_file();
        match self.ask(&scheduled) {
            JobState::Waits { why } => {
                self.over_since = None;
                Standing::Queued { why }
            }
            JobState::Runs => {
                self.over_since = None;
                Standing::Running
            }
            // The run is not lost because somebody does not answer.
            JobState::Unknown { .. } if has_begun => {
                self.over_since = None;
                Standing::Running
            }
            JobState::Unknown { reason } => Standing::Queued {
                why: format!("in {}'s queue as job {}: {reason}", scheduled.scheduler.name(), scheduled.job),
            },
            JobState::Ended(end) => self.over(end),
            JobState::Forgotten => self.over(JobEnd {
                reason: format!(
                    "{} knows its job {} no more, and the run left no word; supervisor.log and log.txt beside it hold what there is",
                    scheduled.scheduler.name(),
                    scheduled.job
                ),
                code: None,
                signal: None,
                is_out_of_memory: false,
            }),
        }
    }

    /// Of a job that is over without a word of the run.
    fn over(&mut self, end: JobEnd) -> Standing {
        let since = *self.over_since.get_or_insert_with(Instant::now);
        if !self.is_writer {
            return Standing::Lost { reason: end.reason };
        }
        if since.elapsed() < LATE_WORD {
            return Standing::Running;
        }
        if Exit::read(&self.run).is_some() {
            return Standing::Ended;
        }
        let reason = end.reason.clone();
        let exit = Exit {
            code: end.code,
            signal: end.signal,
            is_out_of_memory: end.is_out_of_memory,
            reason: end.reason,
            last_words: last_words(&self.run),
            ended_at: Timestamp::now(),
            host: host_name(),
        };
        match exit.write(&self.run) {
            Ok(()) => Standing::Ended,
            // A full disk: it is at least said.
            Err(_) => Standing::Lost { reason },
        }
    }

    /// The run's own word counts; only why it was killed may be known better by who killed it.
    fn after_its_word(&mut self, scheduled: &Scheduled, mut exit: Exit) -> Standing {
        let is_open = self.is_writer
            && exit.signal == Some(9)
            && !exit.is_out_of_memory
            && matches!(scheduled.scheduler, Scheduler::Slurm(_));
        if !is_open {
            return Standing::Ended;
        }
        let since = *self.over_since.get_or_insert_with(Instant::now);
        match self.ask(scheduled) {
            JobState::Ended(end) if end.is_out_of_memory => {
                exit.reason = end.reason;
                exit.is_out_of_memory = true;
                // If it cannot be written, the run's own word is as true as before.
                let _ = exit.write(&self.run);
                Standing::Ended
            }
            // Its job is just ending.
            JobState::Runs if since.elapsed() < LATE_WORD => Standing::Running,
            _ => Standing::Ended,
        }
    }

    fn ask(&mut self, scheduled: &Scheduled) -> JobState {
        if let (Some(state), Some(at)) = (&self.state, self.asked_at)
            && at.elapsed() < self.ask_every()
        {
            return state.clone();
        }
        let state = ask(&self.run, scheduled);
        if self
            .state
            .as_ref()
            .is_some_and(|before| !is_alike(before, &state))
        {
            // Something happens: more may.
            self.asks = 0;
        }
        self.asks = self.asks.saturating_add(1);
        self.asked_at = Some(Instant::now());
        self.state = Some(state.clone());
        state
    }
}

fn is_alike(one: &JobState, other: &JobState) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

/// The last lines of what the run printed, else of what watched over it.
fn last_words(run: &Path) -> Vec<String> {
    ["log.txt", "supervisor.log"]
        .iter()
        .map(|name| last_lines(&run.join(name)))
        .find(|lines| !lines.is_empty())
        .unwrap_or_default()
}

fn last_lines(path: &Path) -> Vec<String> {
    let read = || {
        use std::os::unix::fs::FileExt;
        let file = fs::File::open(path).ok()?;
        let size = file.metadata().ok()?.len();
        let offset = size.saturating_sub(LAST_BYTES);
        let mut bytes = vec![0; (size - offset) as usize];
        file.read_exact_at(&mut bytes, offset).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<String> = text
        .lines()
        .map(str::to_owned)
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].to_vec()
}

/// Makes the directories of runs and puts them into the queue, all or none.
pub(super) fn submit(
    folder: &Folder,
    here: Here,
    begins: &[Begin],
    scheduler: &Scheduler,
) -> Result<Say, String> {
    let mut runs: Vec<PathBuf> = Vec::new();
    let submitted = make_all(folder, here, begins, scheduler, &mut runs)
        .and_then(|()| submit_all(&runs, begins, scheduler));
    let jobs = match submitted {
        Ok(jobs) => jobs,
        Err(reason) => {
            for run in &runs {
                // Nothing runs in it, and its name is needed for the next try.
                let _ = fs::remove_dir_all(run);
            }
            return Err(reason);
        }
    };
    for (run, job) in runs.iter().zip(&jobs) {
        let scheduled = Scheduled {
            scheduler: scheduler.clone(),
            job: job.clone(),
        };
        if let Err(reason) = scheduled.write(run) {
            for job in &jobs {
                let _ = cancel(scheduler, job);
            }
            return Err(format!(
                "{reason}; its jobs were taken out of the queue again"
            ));
        }
    }
    Ok(Say::Submitted {
        paths: runs.iter().map(|run| run.display().to_string()).collect(),
        jobs,
    })
}

fn make_all(
    folder: &Folder,
    here: Here,
    begins: &[Begin],
    scheduler: &Scheduler,
    runs: &mut Vec<PathBuf>,
) -> Result<(), String> {
    for begin in begins {
        let under = under(scheduler, &begin.verb);
        runs.push(begin::make_run(folder, here, begin, Some(under))?);
    }
    Ok(())
}

/// A warm-up does not go on from where it was.
fn can_go_on(verb: &str) -> bool {
    verb == "run"
}

/// What a run's supervisor is to know of who starts it.
pub(super) fn under(scheduler: &Scheduler, verb: &str) -> Under {
    match scheduler {
        Scheduler::Slurm(asked) => Under::Slurm {
            requeue: if can_go_on(verb) {
                asked.requeue
            } else {
                Requeue::Never
            },
        },
        Scheduler::Ray(_) => Under::Ray,
    }
}

/// Has a run that is over go on in another job. Gives the job.
pub(super) fn submit_again(
    run: &Path,
    asked: &Again,
    scheduler: &Scheduler,
) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let job = match scheduler {
        Scheduler::Slurm(wanted) => slurm::submit(&slurm::Submission {
            asked: wanted,
            program: &program,
            runs: &[run],
            gpus: &asked.means.gpus,
            at_once: 0,
            can_go_on: true,
            name: &asked.run,
            environment: &asked.means.environment,
        })?
        .into_iter()
        .next()
        .ok_or("sbatch gave no job")?,
        Scheduler::Ray(wanted) => {
            let before = Scheduled::read(run).map_or_else(String::new, |before| before.job);
            let name = name_after(&asked.run, &before);
            ray::submit(wanted, &program, run, &name, &asked.means)?
        }
    };
    let scheduled = Scheduled {
        scheduler: scheduler.clone(),
        job: job.clone(),
    };
    scheduled.write(run).map_err(|reason| {
        let _ = cancel(scheduler, &job);
        format!("{reason}; its job was taken out of the queue again")
    })?;
    Ok(job)
}

/// Ray knows the job before by its name, and takes the same name for the same job: `run`, `run-again-2`, `run-again-3`.
fn name_after(run: &str, before: &str) -> String {
    let count = before
        .strip_prefix(run)
        .and_then(|rest| rest.strip_prefix("-again-"))
        .and_then(|count| count.parse().ok())
        .unwrap_or(1_u32);
    format!("{run}-again-{}", count.saturating_add(1))
}

fn submit_all(
    runs: &[PathBuf],
    begins: &[Begin],
    scheduler: &Scheduler,
) -> Result<Vec<String>, String> {
    let [first, ..] = begins else {
        return Err("no run is given".to_owned());
    };
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let paths: Vec<&Path> = runs.iter().map(PathBuf::as_path).collect();
    match scheduler {
        Scheduler::Slurm(asked) => slurm::submit(&slurm::Submission {
            asked,
            program: &program,
            runs: &paths,
            gpus: &first.means.gpus,
            at_once: first.means.at_once,
            can_go_on: begins.iter().all(|begin| can_go_on(&begin.verb)),
            name: &first.name,
            environment: &first.means.environment,
        }),
        Scheduler::Ray(asked) => {
            let mut jobs = Vec::new();
            for (run, begin) in paths.iter().zip(begins) {
                let job = ray::submit(asked, &program, run, &begin.name, &begin.means);
                match job {
                    Ok(job) => jobs.push(job),
                    Err(reason) => {
                        for job in &jobs {
                            let _ = ray::stop(asked, job);
                        }
                        return Err(reason);
                    }
                }
            }
            Ok(jobs)
        }
    }
}

fn cancel(scheduler: &Scheduler, job: &str) -> Result<(), String> {
    match scheduler {
        Scheduler::Slurm(_) => slurm::cancel(job),
        Scheduler::Ray(asked) => ray::stop(asked, job),
    }
}

/// Ends a run: one that waits leaves the queue, one that runs stops after its step, or at once by force.
pub(super) fn end(run: &Path, scheduled: &Scheduled, is_forced: bool) -> Result<Say, String> {
    let stop = run.join(STOP_FILE);
    fs::write(&stop, b"").map_err(|error| format!("cannot write {}: {error}", stop.display()))?;
    let job = &scheduled.job;
    let ending = Ok(Say::Ending { pid: 0 });
    match ask(run, scheduled) {
        JobState::Waits { .. } => {
            let cancelled = cancel(&scheduled.scheduler, job);
            // Ray may start it all the same: then it finds that it is not to begin.
            if matches!(scheduled.scheduler, Scheduler::Slurm(_)) {
                cancelled?;
            }
            leave_the_queue(run, scheduled)?;
            ending
        }
        JobState::Runs | JobState::Unknown { .. } if is_forced => {
            cancel(&scheduled.scheduler, job).and(ending)
        }
        JobState::Runs => match &scheduled.scheduler {
            Scheduler::Slurm(_) => slurm::interrupt(job).and(ending),
            // The file alone: Ray kills what it stops after three seconds.
            Scheduler::Ray(_) => ending,
        },
        // The file may reach it all the same.
        JobState::Unknown { reason } if matches!(scheduled.scheduler, Scheduler::Slurm(_)) => {
            Err(reason)
        }
        JobState::Unknown { .. } => ending,
        JobState::Ended(_) | JobState::Forgotten => Err("it has ended".to_owned()),
    }
}

fn leave_the_queue(run: &Path, scheduled: &Scheduled) -> Result<(), String> {
    let when = if run.join("events.jsonl").is_file() {
        "while it waited to go on"
    } else {
        "before it began"
    };
    let exit = Exit {
        code: Some(130),
        signal: None,
        is_out_of_memory: false,
        reason: format!(
            "it was taken out of {}'s queue {when}",
            scheduled.scheduler.name()
        ),
        last_words: Vec::new(),
        ended_at: Timestamp::now(),
        host: host_name(),
    };
    exit.write(run).map_err(|error| error.to_string())
}

/// What there is of a scheduler.
pub(super) fn facts(scheduler: &Scheduler) -> ClusterFacts {
    match scheduler {
        Scheduler::Slurm(_) => slurm::facts(),
        Scheduler::Ray(asked) => ray::facts(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::Ray;

    /// Nobody answers there: every question is Unknown.
    fn scheduled(run: &Path) -> Scheduled {
        let scheduled = Scheduled {
            scheduler: Scheduler::Ray(Ray {
                address: "http://127.0.0.1:9".to_owned(),
                ..Ray::default()
            }),
            job: "r".to_owned(),
        };
        scheduled.write(run).unwrap();
        scheduled
    }

    #[test]
    fn a_run_is_not_lost_because_its_scheduler_does_not_answer() {
        let run = tempfile::tempdir().unwrap();
        scheduled(run.path());
        let Standing::Queued { why } = Look::once(run.path()) else {
            panic!("it waits");
        };
        assert!(
            why.starts_with("in Ray's queue as job r: Ray does not answer at"),
            "{why}"
        );
        fs::write(run.path().join(Supervisor::FILE), "{}").unwrap();
        assert_eq!(Look::once(run.path()), Standing::Running);
    }

    #[test]
    fn a_job_that_left_no_word_gets_one_after_a_while_and_only_from_who_follows_it() {
        let run = tempfile::tempdir().unwrap();
        scheduled(run.path());
        fs::write(
            run.path().join("supervisor.log"),
            "one\n\nlathe: not there\n",
        )
        .unwrap();
        let end = || JobEnd {
            reason: "its node failed".to_owned(),
            code: None,
            signal: None,
            is_out_of_memory: false,
        };
        let mut look = Look::new(run.path());
        assert_eq!(look.over(end()), Standing::Running);
        look.over_since = Instant::now().checked_sub(LATE_WORD);
        look.is_writer = false;
        assert!(matches!(look.over(end()), Standing::Lost { .. }));
        assert_eq!(Exit::read(run.path()), None);
        look.is_writer = true;
        assert_eq!(look.over(end()), Standing::Ended);
        let exit = Exit::read(run.path()).unwrap();
        assert_eq!(exit.reason, "its node failed");
        assert_eq!(exit.last_words, ["one", "lathe: not there"]);
    }

    #[test]
    fn each_job_of_one_run_has_its_own_name() {
        assert_eq!(name_after("r-1", "r-1"), "r-1-again-2");
        assert_eq!(name_after("r-1", "r-1-again-2"), "r-1-again-3");
        assert_eq!(name_after("r-1", ""), "r-1-again-2");
    }

    #[test]
    fn one_that_leaves_the_queue_has_its_word() {
        let run = tempfile::tempdir().unwrap();
        let scheduled = scheduled(run.path());
        leave_the_queue(run.path(), &scheduled).unwrap();
        let exit = Exit::read(run.path()).unwrap();
        assert_eq!(
            exit.reason,
            "it was taken out of Ray's queue before it began"
        );
        assert_eq!(Look::once(run.path()), Standing::Ended);
    }
}

//! The loop that follows one run to its end, and what Ctrl-C and the other signals mean while it does.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use runlog::event::RunStatus;
use runlog::run_dir::{Exit, Mirror, MirrorLink, Origin, RunDir, Standing, host_name};
use runlog::state::{Ended, Liveness, RunState, disk_words, liveness};
use runlog::tail::{Limits, Tail};
use runlog::{disk, exit_code};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use super::View;
use crate::cli::Failure;
use crate::launch::{Ending, Trainer};

/// Between two looks at the log when nothing happens: a person sees no delay, the machine no load.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Between two looks at whether a run that is not our child still lives.
const LIVENESS_EVERY: Duration = Duration::from_secs(2);
/// How long a trainer told to end at once may take before it is killed: time to close its files, not to train.
const GRACE: Duration = Duration::from_secs(3);
/// How long a trainer that has recorded its end may take to exit.
const EXIT_PATIENCE: Duration = Duration::from_secs(20);
/// How long the word may take that a run elsewhere which was stopped is over, or waits to go on: a scheduler thinks about it.
const WORD_PATIENCE: Duration = Duration::from_secs(30);

/// How the watching ended.
#[derive(Debug)]
pub enum End {
    /// The run recorded its end.
    Recorded(Ended),
    /// The trainer, our child, is gone without recording an end.
    Died(Ending),
    /// A run that is not our child is gone without recording an end.
    Gone { reason: String },
    /// Ended by us at the second Ctrl-C.
    Killed,
    /// The watcher was told to leave; the run goes on. The signal's number.
    Left(i32),
}

/// What was seen, and how it ended.
#[derive(Debug)]
pub struct Followed {
    pub state: RunState,
    pub end: End,
    /// Lines of the log that are no events.
    pub bad_lines: u64,
    /// Ctrl-C was pressed, so an end is what was asked for.
    pub is_interrupted: bool,
}

impl Followed {
    /// Why the run ended, when it was ended by us and its log does not say so.
    pub fn missing_end(&self) -> Option<&'static str> {
        match &self.end {
            End::Killed => Some(
                "ended at once by a second Ctrl-C; what was trained since the last checkpoint is lost",
            ),
            End::Died(ending) if self.is_interrupted && ending.signal.is_some() => {
                Some("stopped on request before it was set up")
            }
            _ => None,
        }
    }

    pub fn exit_code(&self) -> i32 {
        match &self.end {
            End::Recorded(ended) => ended.exit_code,
            End::Died(ending) if self.is_interrupted && ending.signal.is_some() => {
                exit_code::STOPPED
            }
            End::Died(ending) => ending.exit_code(),
            End::Gone { .. } => exit_code::RUN_FAILED,
            End::Killed => exit_code::STOPPED,
            End::Left(SIGINT) => exit_code::OK,
            End::Left(signal) => 128 + signal,
        }
    }
}

/// Follows a run. Made before the trainer starts, so that no signal is missed in between.
#[derive(Debug)]
pub struct Follow {
    signals: Receiver<i32>,
    handle: Handle,
    tail: Tail,
    state: RunState,
    interrupts: u32,
    /// Lines that are no events in what was not read as a log.
    sealed_bad_lines: u64,
}

impl Follow {
    /// Takes over SIGINT, SIGTERM and SIGHUP of this process.
    pub fn new(events_path: &Path) -> io::Result<Self> {
        // 16 signals wait at most; more are dropped, and the user has lost patience long before.
        let (sender, signals) = sync_channel(16);
        let mut source = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let handle = source.handle();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || forward(&mut source, &sender))?;
        Ok(Self {
            signals,
            handle,
            tail: Tail::new(events_path),
            state: RunState::default(),
            interrupts: 0,
            sealed_bad_lines: 0,
        })
    }

    /// The same for a run that has a log already, and is about to go on: what is in the log is told no more, and its end counts
    /// no more.
    pub fn after(run_dir: &RunDir) -> io::Result<Self> {
        let mut follow = Self::new(&run_dir.events_path())?;
        follow.take_what_is_there(run_dir)?;
        follow.state.ended = None;
        Ok(follow)
    }

    fn take_what_is_there(&mut self, run_dir: &RunDir) -> io::Result<()> {
        let opened = runlog::open::open(run_dir)?;
        self.sealed_bad_lines = opened.sealed_bad_lines;
        self.state = opened.state;
        self.tail = opened.tail;
        Ok(())
    }

    /// Follows our own trainer until it is gone, or until we are told to leave.
    pub fn trainer(
        mut self,
        trainer: &mut Trainer,
        view: &mut dyn View,
    ) -> Result<Followed, Failure> {
        let end = self.watch_trainer(trainer, view)?;
        Ok(self.finish(end, view))
    }

    /// Follows a run elsewhere that was told to go on, from where [`Follow::after`] left its log.
    pub fn resumed(mut self, run_dir: &RunDir, view: &mut dyn View) -> Result<Followed, Failure> {
        let end = self.watch_other(run_dir, view)?;
        Ok(self.finish(end, view))
    }

    /// Follows a run of another process.
    pub fn other(mut self, run_dir: &RunDir, view: &mut dyn View) -> Result<Followed, Failure> {
        if !view.wants_history() {
            self.take_what_is_there(run_dir).map_err(|error| {
                Failure::unexpected(format!(
                    "cannot read {}: {error}",
                    self.tail.path().display()
                ))
            })?;
        }
        let end = self.watch_other(run_dir, view)?;
        Ok(self.finish(end, view))
    }

    fn finish(self, end: End, view: &mut dyn View) -> Followed {
        self.handle.close();
        view.close();
        Followed {
            state: self.state,
            end,
            bad_lines: self.sealed_bad_lines + self.tail.bad_lines(),
            is_interrupted: self.interrupts > 0,
        }
    }

    fn watch_trainer(
        &mut self,
        trainer: &mut Trainer,
        view: &mut dyn View,
    ) -> Result<End, Failure> {
        let mut kill_at: Option<Instant> = None;
        let mut disk_watch = DiskWatch::default();
        let mut ended_at: Option<Instant> = None;
        loop {
            // Asked before the read: what the trainer wrote before it ended is then read for sure.
            let ending = trainer.ending().map_err(|error| {
                Failure::unexpected(format!("cannot wait for the trainer: {error}"))
            })?;
            self.read(view)?;
            if let Some(ending) = ending {
                self.read_all(view)?;
                return Ok(match (&self.state.ended, self.interrupts) {
                    (Some(ended), _) => End::Recorded(ended.clone()),
                    (None, 2..) => End::Killed,
                    (None, _) => End::Died(ending),
                });
            }
            if let Some(ended) = &self.state.ended {
                let since = *ended_at.get_or_insert_with(Instant::now);
                if since.elapsed() > EXIT_PATIENCE {
                    view.notice(&format!(
                        "the run has ended, but its process {} has not; see its log",
                        trainer.pid()
                    ));
                    return Ok(End::Recorded(ended.clone()));
                }
            } else {
                // A checkpoint may be resumed in place: an end that is followed by a new start is none.
                ended_at = None;
            }
            if kill_at.is_some_and(|at| Instant::now() >= at) {
                trainer.kill();
                kill_at = None;
            }
            let run = self.tail.path().parent().unwrap_or(self.tail.path());
            if let Some(words) = disk_watch.look(run, disk::free_bytes) {
                view.notice(&words);
            }
            view.tick(&self.state);
            match self.next_signal() {
                None => {}
                Some(SIGINT) => {
                    self.interrupts += 1;
                    match self.interrupts {
                        1 => {
                            trainer.interrupt();
                            view.notice(
                                "stopping after this step, saving a checkpoint; Ctrl-C again to exit at once",
                            );
                        }
                        2 => {
                            trainer.terminate();
                            kill_at = Some(Instant::now() + GRACE);
                            view.notice("ending the run at once");
                        }
                        _ => trainer.kill(),
                    }
                }
                Some(signal) => return Ok(End::Left(signal)),
            }
        }
    }

    fn watch_other(&mut self, run_dir: &RunDir, view: &mut dyn View) -> Result<End, Failure> {
        let mut looked_at: Option<Instant> = None;
        let mut line = LineWatch::default();
        let mut disk_watch = DiskWatch::default();
        let mut ended_at: Option<Instant> = None;
        loop {
            if run_dir.origin().is_some()
                && line.is_due()
                && let Some(mirror) = Mirror::read(run_dir)
            {
                view.link(&mirror.link.words(Timestamp::now()));
                for words in line.look(&mirror) {
                    view.link_notice(&words);
                }
            }
            if run_dir.origin().is_none()
                && run_dir.info().host == host_name()
                && let Some(words) = disk_watch.look(run_dir.path(), disk::free_bytes)
            {
                view.notice(&words);
            }
            let is_due = looked_at.is_none_or(|at| at.elapsed() >= LIVENESS_EVERY);
            let liveness = is_due.then(|| {
                looked_at = Some(Instant::now());
                // Opened anew: the process that writes may have changed since.
                let now = RunDir::open(run_dir.path());
                liveness(now.as_ref().unwrap_or(run_dir), None, SystemTime::now())
            });
            self.read_all(view)?;
            if self.state.ended.is_some() && Mirror::is_before_going_on(run_dir) {
                // Somebody has it go on: that was an earlier end.
                self.state.ended = None;
            }
            if let Some(ended) = &self.state.ended
                && !may_go_on(
                    run_dir,
                    ended.status,
                    *ended_at.get_or_insert_with(Instant::now),
                )
            {
                for words in line.over() {
                    view.link_notice(words);
                }
                return Ok(End::Recorded(ended.clone()));
            }
            if self.state.ended.is_none() {
                ended_at = None;
            }
            if self.state.ended.is_none()
                && let Some(Liveness::PresumedDead { reason } | Liveness::Silent { reason }) =
                    liveness
            {
                return Ok(End::Gone { reason });
            }
            view.tick(&self.state);
            if let Some(signal) = self.next_signal() {
                return Ok(End::Left(signal));
            }
        }
    }

    fn next_signal(&self) -> Option<i32> {
        match self.signals.recv_timeout(LOOK_EVERY) {
            Ok(signal) => Some(signal),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                // Without its signals thread the loop must still not spin.
                std::thread::sleep(LOOK_EVERY);
                None
            }
        }
    }

    fn read_all(&mut self, view: &mut dyn View) -> Result<(), Failure> {
        while self.read(view)? {}
        Ok(())
    }

    /// True when there is more to read right now.
    fn read(&mut self, view: &mut dyn View) -> Result<bool, Failure> {
        let batch = self.tail.read(Limits::LIVE).map_err(|error| {
            Failure::unexpected(format!(
                "cannot read {}: {error}",
                self.tail.path().display()
            ))
        })?;
        if batch.restarted {
            self.state = RunState::default();
        }
        for event in &batch.events {
            self.state.apply(event);
            view.event(event, &self.state)?;
        }
        Ok(batch.has_more)
    }
}

/// Says when the line to a run of another machine is cut, and when it is back; what the other machine warns of, once.
#[derive(Debug, Default)]
struct LineWatch {
    looked_at: Option<Instant>,
    cut: Option<String>,
    is_unwritten: bool,
    warning: Option<String>,
    why_queued: Option<String>,
}

const BACK: &str = "connected again; nothing was missed";
const WRITTEN: &str = "the copy here is written again; nothing was missed";
/// Between two looks at how the copy stands.
const LINE_EVERY: Duration = Duration::from_millis(500);

impl LineWatch {
    fn is_due(&mut self) -> bool {
        let is_due = self.looked_at.is_none_or(|at| at.elapsed() >= LINE_EVERY);
        if is_due {
            self.looked_at = Some(Instant::now());
        }
        is_due
    }

    /// What was told to be wrong, and is so no more.
    fn over(&mut self) -> impl Iterator<Item = &'static str> + use<> {
        let back = self.cut.take().map(|_| BACK);
        let written = std::mem::take(&mut self.is_unwritten).then_some(WRITTEN);
        back.into_iter().chain(written)
    }

    fn look(&mut self, mirror: &Mirror) -> Vec<String> {
        let mut told = Vec::new();
        match &mirror.link {
            MirrorLink::Disconnected {
                reason, attempts, ..
            } if *attempts > 0 => {
                if self.cut.as_ref() != Some(reason) {
                    told.push(format!("disconnected, retrying: {reason}"));
                    self.cut = Some(reason.clone());
                }
            }
            MirrorLink::Unwritten { reason, .. } => {
                if !self.is_unwritten {
                    told.push(format!("the copy here is not written, retrying: {reason}"));
                    self.is_unwritten = true;
                }
            }
            MirrorLink::Live { .. } | MirrorLink::Complete => {
                told.extend(self.over().map(str::to_owned));
            }
            MirrorLink::Connecting | MirrorLink::Listed | MirrorLink::Disconnected { .. } => {}
        }
        if mirror.warning != self.warning {
            told.extend(mirror.warning.clone());
            self.warning.clone_from(&mirror.warning);
        }
        let why = match &mirror.standing {
            Standing::Queued { why } if why != "to begin" => Some(why.clone()),
            _ => None,
        };
        if why != self.why_queued {
            told.extend(why.as_ref().map(|why| format!("it waits {why}")));
            self.why_queued = why;
        }
        told
    }
}

/// Whether a run elsewhere that was stopped is put into a queue again there: by the other machine's word, which comes a moment after
/// the log's.
fn may_go_on(run_dir: &RunDir, status: RunStatus, ended_at: Instant) -> bool {
    if status != RunStatus::Stopped || run_dir.origin().and_then(Origin::target).is_none() {
        return false;
    }
    if Exit::read(run_dir.path()).is_some() {
        return false;
    }
    match Mirror::read(run_dir) {
        Some(mirror)
            if matches!(
                mirror.link,
                MirrorLink::Complete
                    | MirrorLink::Disconnected { .. }
                    | MirrorLink::Unwritten { .. }
            ) =>
        {
            false
        }
        Some(mirror) => match mirror.standing {
            Standing::Queued { .. } => true,
            Standing::Running => ended_at.elapsed() < WORD_PATIENCE,
            Standing::Ended | Standing::Lost { .. } => false,
        },
        None => false,
    }
}

/// Says once that the run's disk is full, and again when it has filled up anew: the trainer's own alarm cannot be written then.
#[derive(Debug, Default)]
struct DiskWatch {
    looked_at: Option<Instant>,
    is_full: bool,
}

impl DiskWatch {
    /// `free` gives the bytes left on the file system of a path, if it can be asked.
    fn look(&mut self, run: &Path, free: impl Fn(&Path) -> Option<u64>) -> Option<String> {
        let is_due = self
            .looked_at
            .is_none_or(|at| at.elapsed() >= LIVENESS_EVERY);
        if !is_due {
            return None;
        }
        self.looked_at = Some(Instant::now());
        let words = disk_words(run, free(run));
        let was_full = std::mem::replace(&mut self.is_full, words.is_some());
        words.filter(|_| !was_full)
    }
}

fn forward(source: &mut Signals, sender: &SyncSender<i32>) {
    for signal in source.forever() {
        // Full: see `Follow::new`. Closed: the follower is gone, and `Handle::close` ends this loop.
        let _ = sender.try_send(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_fills_up_is_told_once_and_again_after_there_was_room() {
        let mut disk = DiskWatch::default();
        let mut look = |free: u64| {
            disk.looked_at = None;
            disk.look(Path::new("runs/x"), |_| Some(free))
        };
        assert_eq!(look(1 << 30), None);
        let told = look(0).expect("it is full");
        assert!(told.contains("the disk of runs/x is full"), "{told}");
        assert_eq!(look(0), None);
        assert_eq!(look(1 << 30), None);
        assert!(look(4096).is_some());
    }

    #[test]
    fn a_cut_line_is_told_once_with_its_reason_and_so_is_its_return() {
        let mut line = LineWatch::default();
        let mut mirror = Mirror {
            keeper: runlog::run_dir::ProcessIdentity::of(std::process::id()),
            link: MirrorLink::Live { behind_ms: 3 },
            standing: Standing::Running,
            heard_at: None,
            warning: None,
            received_bytes: 0,
            resumed_after: None,
        };
        assert_eq!(line.look(&mirror), Vec::<String>::new());
        mirror.link = MirrorLink::Disconnected {
            since: Timestamp::now(),
            attempts: 1,
            reason: "gpu1 cannot be reached".to_owned(),
        };
        assert_eq!(
            line.look(&mirror),
            ["disconnected, retrying: gpu1 cannot be reached"]
        );
        assert_eq!(line.look(&mirror), Vec::<String>::new());
        mirror.link = MirrorLink::Live { behind_ms: 3 };
        mirror.warning = Some("the disk there is full".to_owned());
        assert_eq!(
            line.look(&mirror),
            [
                "connected again; nothing was missed",
                "the disk there is full"
            ]
        );
        mirror.standing = Standing::Queued {
            why: "in line: 1 before it".to_owned(),
        };
        assert_eq!(line.look(&mirror), ["it waits in line: 1 before it"]);
    }
}

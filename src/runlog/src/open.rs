//! Opens a run at once, however long: the sealed series and state as they lie on disk, then the log from there on.
//!
//! The result equals the fold of the whole log. A projection is never needed: without one, or with one that is torn,
//! missing a file or made by another version, the log is folded from its start, and [`Opened::problem`] says why.

use std::io;

use crate::run_dir::RunDir;
use crate::state::RunState;
use crate::store::{SealedSeries, StoreError, open_sealed};
use crate::tail::{BadLine, Limits, Tail};

/// A run, folded as far as its log went.
#[derive(Debug)]
pub struct Opened {
    pub state: RunState,
    /// Where the log goes on: read it for what comes.
    pub tail: Tail,
    /// Lines that are no events, of what was read as a log.
    pub bad_lines: Vec<BadLine>,
    /// How many more are in the part that was sealed.
    pub sealed_bad_lines: u64,
    /// Why the sealed segments could not be used, when there are some.
    pub problem: Option<StoreError>,
}

/// Opens a run: `RunState` of everything in its log, and the place to follow it from.
pub fn open(run_dir: &RunDir) -> io::Result<Opened> {
    let mut opening = Opening::start(run_dir);
    while opening.advance()? {}
    Ok(opening.finish())
}

/// The same in stages of some milliseconds, for a first frame before the last.
///
/// After [`Opening::start`] the state has all but its series, as they were at the last sealing: name, phase, step, syncs,
/// lanes, alarms. Each [`Opening::advance`] adds a segment of the series, oldest first, or up to 8 MiB of log.
#[derive(Debug)]
pub struct Opening {
    run_dir: RunDir,
    sealed: Option<SealedSeries>,
    opened: Opened,
}

impl Opening {
    pub fn start(run_dir: &RunDir) -> Self {
        // Once more after an error: a live run may have been sealed between two of the reads.
        let found = open_sealed(run_dir).or_else(|_| open_sealed(run_dir));
        let (sealed, problem) = match found {
            Ok(sealed) => (sealed, None),
            Err(error) => (None, Some(error)),
        };
        let mut opened = Opened {
            state: RunState::default(),
            tail: Tail::new(run_dir.events_path()),
            bad_lines: Vec::new(),
            sealed_bad_lines: 0,
            problem,
        };
        let sealed = sealed.map(|sealed| {
            opened.state = sealed.state;
            opened.tail = Tail::from_offset(run_dir.events_path(), sealed.events_offset);
            opened.sealed_bad_lines = sealed.bad_lines;
            sealed.series
        });
        Self {
            sealed,
            opened,
            run_dir: run_dir.clone(),
        }
    }

    /// What is known so far.
    pub fn state(&self) -> &RunState {
        &self.opened.state
    }

    /// Takes one more stage; false when all is there.
    pub fn advance(&mut self) -> io::Result<bool> {
        if let Some(sealed) = &mut self.sealed {
            match sealed.read_next(&mut self.opened.state.series) {
                Ok(true) => return Ok(true),
                Ok(false) => self.sealed = None,
                Err(error) => {
                    self.sealed = None;
                    self.opened.state = RunState::default();
                    self.opened.tail = Tail::new(self.run_dir.events_path());
                    self.opened.sealed_bad_lines = 0;
                    self.opened.problem = Some(error);
                }
            }
        }
        let batch = self.opened.tail.read(Limits::OPENING)?;
        if batch.restarted {
            self.opened.state = RunState::default();
            self.opened.bad_lines.clear();
            self.opened.sealed_bad_lines = 0;
        }
        for event in &batch.events {
            self.opened.state.apply(event);
        }
        self.opened.bad_lines.extend(batch.bad_lines);
        Ok(batch.has_more)
    }

    /// The run as far as it was read.
    pub fn finish(self) -> Opened {
        self.opened
    }
}

//! The steps that were read, the jobs that read them, and what became of those. Files are read in jobs only.
//!
//! A recorded step never changes, except when a run goes back to a checkpoint: then its file has another stamp in the next
//! listing, and what was read of it is forgotten.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use dialogue::tokenizer::Tokenizer;
use runlog::run_dir::RunDir;
use runlog::store;

use super::data::Batch;
use crate::launch;
use crate::tui::action::{self, Effect, PageMessage};
use crate::tui::shared::{Problem, RunKey};

/// Steps kept in memory: those before and after, and some of other runs.
const KEPT: usize = 8;
/// Steps read at once.
const MOST_READING: usize = 3;
/// Steps that one job looks through for a prompt, each a read of two columns: what was found meanwhile is on the screen within
/// a second, and a search that is given up costs no more than this.
const LOOKED_THROUGH_AT_ONCE: usize = 64;

/// Answers to this page's jobs; each says what it answers.
#[derive(Debug)]
pub enum Message {
    Listed {
        run: RunKey,
        listing: Listing,
    },
    Read {
        run: RunKey,
        step: u64,
        batch: Result<Arc<Batch>, Problem>,
    },
    Vocabulary {
        run: RunKey,
        tokenizer: Result<Arc<Tokenizer>, String>,
    },
    /// Rollouts came from another machine: bytes, or why not.
    Pulled {
        run: RunKey,
        result: Result<u64, String>,
    },
    /// Where else a prompt was trained on, among the steps that one job looked through.
    Found {
        request: u64,
        places: Vec<(RunKey, u64)>,
        /// The steps that are still to be looked through.
        left: Vec<(RunKey, u64)>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
}

/// The recorded steps of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listing {
    steps: BTreeMap<u64, Stamp>,
    /// The directory cannot be read.
    pub problem: Option<Problem>,
    /// `trainer.record_rollouts` is false; looked up only when nothing is recorded.
    pub is_off: bool,
}

impl Listing {
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub fn has(&self, step: u64) -> bool {
        self.steps.contains_key(&step)
    }

    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// The newest recorded step not after `limit`.
    pub fn newest(&self, limit: u64) -> Option<u64> {
        self.steps
            .range(..=limit)
            .next_back()
            .map(|(step, _)| *step)
    }

    /// The recorded step before or after.
    pub fn next(&self, step: u64, is_forward: bool, limit: u64) -> Option<u64> {
        if is_forward {
            self.steps
                .range(step.saturating_add(1)..)
                .next()
                .map(|(step, _)| *step)
                .filter(|step| *step <= limit)
        } else {
            self.steps.range(..step).next_back().map(|(step, _)| *step)
        }
    }
}

#[derive(Debug, Clone)]
struct Book {
    run: RunKey,
    step: u64,
    batch: Result<Arc<Batch>, Problem>,
}

/// What there is of a step.
#[derive(Debug)]
pub enum Shelf<'a> {
    Ready(&'a Arc<Batch>),
    Broken(&'a Problem),
    Absent,
}

#[derive(Debug, Default)]
pub struct Library {
    listings: BTreeMap<RunKey, Listing>,
    /// Latest first.
    books: VecDeque<Book>,
    listing: Vec<RunKey>,
    reading: Vec<(RunKey, u64)>,
    vocabularies: BTreeMap<RunKey, Result<Arc<Tokenizer>, String>>,
    loading: Vec<RunKey>,
}

impl Library {
    pub fn listing(&self, run: &RunKey) -> Option<&Listing> {
        self.listings.get(run)
    }

    pub fn get(&self, run: &RunKey, step: u64) -> Shelf<'_> {
        let book = self
            .books
            .iter()
            .find(|book| book.run == *run && book.step == step);
        match book.map(|book| &book.batch) {
            Some(Ok(batch)) => Shelf::Ready(batch),
            Some(Err(problem)) => Shelf::Broken(problem),
            None => Shelf::Absent,
        }
    }

    /// None: not asked for, or not answered yet.
    pub fn vocabulary(&self, run: &RunKey) -> Option<&Result<Arc<Tokenizer>, String>> {
        self.vocabularies.get(run)
    }

    /// Reads anew which steps are recorded.
    pub fn list(&mut self, run: &RunKey) -> Option<Effect> {
        if self.listing.contains(run) {
            return None;
        }
        self.listing.push(run.clone());
        let run = run.clone();
        Some(Effect::job("list rollouts", move || {
            let listing = list(run.path());
            answer(Message::Listed { run, listing })
        }))
    }

    /// Reads a step, unless it is there, or being read.
    pub fn want(&mut self, run: &RunKey, step: u64) -> Option<Effect> {
        let is_asked = self
            .reading
            .iter()
            .any(|(other, at)| other == run && *at == step);
        if is_asked {
            return None;
        }
        let place = self
            .books
            .iter()
            .position(|book| book.run == *run && book.step == step);
        if let Some(at) = place {
            // Used last, forgotten last.
            let book = self.books.remove(at).expect("its place was just found");
            self.books.push_front(book);
            return None;
        }
        // A replay passes steps faster than they can be read: what is still wanted when an answer comes is asked for then.
        if self.reading.len() >= MOST_READING {
            return None;
        }
        self.reading.push((run.clone(), step));
        let run = run.clone();
        Some(Effect::job(
            format!("read rollouts of step {step}"),
            move || {
                let batch = read(run.path(), step);
                answer(Message::Read { run, step, batch })
            },
        ))
    }

    /// Loads the tokenizer that the run's model was trained with.
    pub fn want_vocabulary(&mut self, run: &RunKey, project: &Path) -> Option<Effect> {
        if self.vocabularies.contains_key(run) || self.loading.contains(run) {
            return None;
        }
        self.loading.push(run.clone());
        let (run, project) = (run.clone(), project.to_owned());
        Some(Effect::job("load tokenizer", move || {
            let tokenizer = tokenizer(run.path(), &project).map(Arc::new);
            answer(Message::Vocabulary { run, tokenizer })
        }))
    }

    pub fn take_listing(&mut self, run: RunKey, listing: Listing) {
        self.listing.retain(|other| *other != run);
        if let Some(before) = self.listings.get(&run) {
            // Written anew, or broken when it was read: read again.
            self.books.retain(|book| {
                book.run != run || before.steps.get(&book.step) == listing.steps.get(&book.step)
            });
        }
        self.listings.insert(run, listing);
    }

    pub fn take_batch(&mut self, run: RunKey, step: u64, batch: Result<Arc<Batch>, Problem>) {
        self.reading
            .retain(|(other, at)| !(*other == run && *at == step));
        self.books
            .retain(|book| !(book.run == run && book.step == step));
        self.books.push_front(Book { run, step, batch });
        self.books.truncate(KEPT);
    }

    pub fn take_vocabulary(&mut self, run: RunKey, tokenizer: Result<Arc<Tokenizer>, String>) {
        self.loading.retain(|other| *other != run);
        self.vocabularies.insert(run, tokenizer);
    }

    /// Forgets everything of runs that are no longer shown, so that nothing grows with the runs visited.
    pub fn keep_only(&mut self, runs: &[RunKey]) {
        self.listings.retain(|run, _| runs.contains(run));
        self.vocabularies.retain(|run, _| runs.contains(run));
        self.books.retain(|book| runs.contains(&book.run));
    }

    /// Forgets a run, so that all of it is read again.
    pub fn forget(&mut self, run: &RunKey) {
        self.listings.remove(run);
        self.vocabularies.remove(run);
        self.books.retain(|book| book.run != *run);
        // Answers that never came (a job that failed) must not block new questions.
        self.listing.retain(|other| other != run);
        self.reading.retain(|(other, _)| other != run);
        self.loading.retain(|other| other != run);
    }
}

pub fn answer(message: Message) -> action::Message {
    action::Message::Page(PageMessage::Rollouts(message))
}

fn list(run: &Path) -> Listing {
    let directory = run.join("rollouts");
    let mut listing = Listing::default();
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && run.exists() => {
            listing.is_off = is_recording_off(run);
            return listing;
        }
        Err(error) => {
            listing.problem = Some(Problem::new(
                "The rollouts of this run cannot be listed",
                format!("{}: {error}", directory.display()),
                "r tries again; 1 goes to the list of runs",
            ));
            return listing;
        }
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(step) = name.to_str().and_then(|name| {
            name.strip_prefix("step-")?
                .strip_suffix(".parquet")?
                .parse()
                .ok()
        }) else {
            continue;
        };
        if let Ok(metadata) = entry.metadata() {
            let stamp = Stamp {
                bytes: metadata.len(),
                modified: metadata.modified().ok(),
            };
            listing.steps.insert(step, stamp);
        }
    }
    if listing.is_empty() {
        listing.is_off = is_recording_off(run);
    }
    listing
}

fn is_recording_off(run: &Path) -> bool {
    let loaded = experiment::inspect(&run.join("experiment.yaml"), &[]);
    !loaded.source.is_empty() && !loaded.experiment.trainer.record_rollouts
}

fn path_of(run: &Path, step: u64) -> PathBuf {
    run.join("rollouts")
        .join(format!("{}.parquet", runlog::run_dir::step_name(step)))
}

fn read(run: &Path, step: u64) -> Result<Arc<Batch>, Problem> {
    let path = path_of(run, step);
    // The Parquet reader may panic on bytes that are not what they say.
    let rows = std::panic::catch_unwind(|| store::read_rollouts(&path))
        .map_err(|_| format!("{}: the file is damaged", path.display()))
        .and_then(|rows| rows.map_err(|error| error.to_string()));
    match rows {
        Ok(rows) => Ok(Arc::new(Batch::new(step, rows))),
        Err(reason) => Err(Problem::new(
            format!("The rollouts of step {step} cannot be read"),
            reason,
            "the file is torn or of another program; r tries again, , and . go to other steps",
        )),
    }
}

/// From the newest checkpoint, else from the experiment's model, as its path is seen from the project or from the run.
fn tokenizer(run: &Path, project: &Path) -> Result<Tokenizer, String> {
    let mut checkpoints: Vec<PathBuf> = std::fs::read_dir(run.join("checkpoints"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("tokenizer.json").exists())
        .collect();
    checkpoints.sort();
    let model = experiment::inspect(&run.join("experiment.yaml"), &[])
        .experiment
        .actor_rollout_ref
        .model;
    let named = PathBuf::from(model.tokenizer_path.unwrap_or(model.path));
    let places = checkpoints
        .pop()
        .into_iter()
        .chain([project.join(&named)])
        .chain(
            run.ancestors()
                .skip(1)
                .take(3)
                .map(|root| root.join(&named)),
        );
    let mut reason = "neither a checkpoint nor actor_rollout_ref.model.path has one".to_owned();
    for place in places {
        if !place.join("tokenizer.json").exists() {
            continue;
        }
        match Tokenizer::load(&place) {
            Ok(tokenizer) => return Ok(tokenizer),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(reason)
}

/// Looks for a prompt in the recorded steps of `runs`: those at `step` first, then nearer ones before farther ones. The answer
/// has what the first of them gave, and the others, for [`look_further`].
pub fn find_prompt(
    request: u64,
    sample: Arc<Batch>,
    index: usize,
    here: (RunKey, u64),
    runs: Vec<RunKey>,
) -> Effect {
    Effect::job("find prompt", move || {
        let mut candidates: Vec<(u64, RunKey, u64)> = Vec::new();
        for run in runs {
            for step in list(run.path()).steps.into_keys() {
                if (&run, step) != (&here.0, here.1) {
                    candidates.push((step.abs_diff(here.1), run.clone(), step));
                }
            }
        }
        // Stable: runs stay in the order in which they are marked.
        candidates.sort_by_key(|(distance, _, step)| (*distance, *step));
        let candidates = candidates
            .into_iter()
            .map(|(_, run, step)| (run, step))
            .collect();
        look_through(request, &sample, index, candidates)
    })
}

/// Fetches the rollouts of a run of another machine.
pub fn pull(run: RunKey) -> Effect {
    Effect::job("fetch rollouts", move || {
        let result = RunDir::open(run.path())
            .map_err(|error| error.to_string())
            .and_then(|run_dir| launch::pull_rollouts(&run_dir))
            .map(|pulled| pulled.bytes);
        answer(Message::Pulled { run, result })
    })
}

/// Goes on with the steps that [`Message::Found`] left.
pub fn look_further(
    request: u64,
    sample: Arc<Batch>,
    index: usize,
    left: Vec<(RunKey, u64)>,
) -> Effect {
    Effect::job("find prompt", move || {
        look_through(request, &sample, index, left)
    })
}

fn look_through(
    request: u64,
    sample: &Batch,
    index: usize,
    mut candidates: Vec<(RunKey, u64)>,
) -> action::Message {
    let sample = &sample.samples[index];
    let left = candidates.split_off(candidates.len().min(LOOKED_THROUGH_AT_ONCE));
    let places = candidates
        .into_iter()
        .filter(|(run, step)| {
            store::any_rollout_group(&path_of(run.path(), *step), |messages| {
                super::data::has_prompt(messages, sample)
            })
            .unwrap_or(false)
        })
        .collect();
    answer(Message::Found {
        request,
        places,
        left,
    })
}

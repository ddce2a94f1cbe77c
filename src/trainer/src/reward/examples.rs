//! What a reward model learns from, as token ids.

use std::path::Path;

use dialogue::message::Message;
use dialogue::preferences::{self, Labels, Preference, Rated};
use dialogue::score::{Scorers, Transcript, score_within};

use super::Reader;
use super::beside::{Row, transcript};
use crate::failure::Failure;

/// One held-out prompt of so many.
const HELD_OUT: u64 = 10;

/// Two answers to one prompt; the tokens that both begin with stand once.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    pub prompt: Vec<u32>,
    /// Never empty, as `rejected`.
    pub chosen: Vec<u32>,
    pub rejected: Vec<u32>,
    pub margin: f64,
    /// Characters of the answers.
    pub lengths: [usize; 2],
    /// Pairs of one prompt have the same.
    pub prompt_number: u64,
    /// What each scorer beside the model says of them.
    pub scores: [Vec<f64>; 2],
    /// How much better those make the chosen one, weighted.
    pub beside: f64,
}

impl Pair {
    /// By each scorer, of the chosen answer less that of the rejected one.
    pub fn score_deltas(&self) -> impl Iterator<Item = f64> + '_ {
        let [chosen, rejected] = &self.scores;
        chosen.iter().zip(rejected).map(|(one, other)| one - other)
    }
}

/// An answer and its score.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    pub ids: Vec<u32>,
    pub score: f64,
    pub prompt_number: u64,
    /// What each scorer beside the model says of it, and what they add.
    pub scores: Vec<f64>,
    pub beside: f64,
}

/// All of one kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Examples {
    Pairs(Vec<Pair>),
    Scored(Vec<Scored>),
}

impl Examples {
    pub fn len(&self) -> usize {
        match self {
            Self::Pairs(pairs) => pairs.len(),
            Self::Scored(scored) => scored.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a tenth of the prompts out, chosen by their words alone: the same ones whatever else is in the files.
    #[must_use]
    pub fn hold_out(&mut self) -> Self {
        let is_held_out = |prompt: u64| prompt.is_multiple_of(HELD_OUT);
        match self {
            Self::Pairs(all) => Self::Pairs(
                all.extract_if(.., |pair| is_held_out(pair.prompt_number))
                    .collect(),
            ),
            Self::Scored(all) => Self::Scored(
                all.extract_if(.., |one| is_held_out(one.prompt_number))
                    .collect(),
            ),
        }
    }
}

/// Where rows without a score get one.
pub(super) type Teacher<'a> = &'a dyn Fn(&[Rated]) -> Result<Vec<Option<f64>>, Failure>;

/// What makes examples of rows.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a> {
    pub reader: &'a Reader,
    pub teacher: Teacher<'a>,
    /// What the scorers beside the model say of an answer.
    pub scores: &'a dyn Fn(&Transcript) -> Result<Vec<f64>, String>,
}

/// Reads files, all of one kind. Rows longer than the reader takes are an error that names them.
pub(super) fn load(files: &[String], sources: Sources<'_>) -> Result<Examples, Failure> {
    let mut all: Option<Examples> = None;
    for file in files {
        let path = Path::new(file);
        let found = match preferences::read_labels(path).map_err(Failure::input)? {
            Labels::Preferences(rows) => Examples::Pairs(pairs(path, &rows, sources)?),
            Labels::Rated(rows) => Examples::Scored(scored(path, &rows, sources)?),
        };
        match (&mut all, found) {
            (None, found) => all = Some(found),
            (Some(Examples::Pairs(all)), Examples::Pairs(more)) => all.extend(more),
            (Some(Examples::Scored(all)), Examples::Scored(more)) => all.extend(more),
            _ => {
                return Err(Failure::Input(format!(
                    "{file}: some files hold preferences (chosen, rejected) and others scores (response, score); learn from one kind at a time"
                )));
            }
        }
    }
    match all {
        Some(all) if !all.is_empty() => Ok(all),
        _ => Err(Failure::Input(format!(
            "there is nothing to learn from: {} {} no rows",
            files.join(", "),
            if files.len() == 1 { "has" } else { "have" }
        ))),
    }
}

fn pairs(path: &Path, rows: &[Preference], sources: Sources<'_>) -> Result<Vec<Pair>, Failure> {
    rows.iter()
        .enumerate()
        .map(|(at, row)| {
            let place = |problem: String| {
                Failure::Input(format!("{}: row {at}: {problem}", path.display()))
            };
            if row.chosen == row.rejected {
                return Err(place(
                    "chosen and rejected are the same answer, so that nothing can be learned; leave such rows out".to_owned(),
                ));
            }
            let ids = |answer: &str| {
                sources
                    .reader
                    .ids(&row.prompt, answer)
                    .map_err(|error| place(error.to_string()))
            };
            let scores = |answer: &str| {
                let row_of = Row {
                    data_source: &row.data_source,
                    ground_truth: &row.ground_truth,
                    extra_info: &row.extra_info,
                };
                (sources.scores)(&transcript(&row.prompt, answer, row_of)).map_err(place)
            };
            let (chosen, rejected) = (ids(&row.chosen)?, ids(&row.rejected)?);
            let common = chosen
                .iter()
                .zip(&rejected)
                .take_while(|(one, other)| one == other)
                .count()
                // Each has its own last token, where its number is read.
                .min(chosen.len() - 1)
                .min(rejected.len() - 1);
            Ok(Pair {
                prompt: chosen[..common].to_vec(),
                chosen: chosen[common..].to_vec(),
                rejected: rejected[common..].to_vec(),
                margin: row.margin.unwrap_or(0.0),
                lengths: [row.chosen.chars().count(), row.rejected.chars().count()],
                prompt_number: prompt_number(&row.prompt),
                scores: [scores(&row.chosen)?, scores(&row.rejected)?],
                beside: 0.0,
            })
        })
        .collect()
}

fn scored(path: &Path, rows: &[Rated], sources: Sources<'_>) -> Result<Vec<Scored>, Failure> {
    let is_missing = |row: &&Rated| row.score.is_none();
    let without: Vec<Rated> = rows.iter().filter(is_missing).cloned().collect();
    let mut taught = if without.is_empty() {
        Vec::new()
    } else {
        (sources.teacher)(&without)?
    }
    .into_iter();
    let mut all = Vec::with_capacity(rows.len());
    for (at, row) in rows.iter().enumerate() {
        let score = match row.score {
            Some(score) => Some(score),
            None => taught.next().flatten(),
        };
        // What the teacher could not judge is left out; that it judged none is an error of its own.
        let Some(score) = score else { continue };
        let place =
            |problem: String| Failure::Input(format!("{}: row {at}: {problem}", path.display()));
        let ids = (sources.reader.ids(&row.prompt, &row.response))
            .map_err(|error| place(error.to_string()))?;
        all.push(Scored {
            ids,
            score,
            prompt_number: prompt_number(&row.prompt),
            scores: (sources.scores)(&rated(row)).map_err(place)?,
            beside: 0.0,
        });
    }
    Ok(all)
}

/// Scores by the experiment's own reward: what a reward model is distilled from.
pub fn taught(scorers: &Scorers, rows: &[Rated]) -> Result<Vec<Option<f64>>, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(Failure::run)?;
    let mut scores = Vec::with_capacity(rows.len());
    let mut problem = None;
    for row in rows {
        let scorer = scorers.for_source(&row.data_source).map_err(|error| {
            Failure::Input(format!(
                "rows without a score are scored by the experiment's reward: {error}"
            ))
        })?;
        match runtime.block_on(score_within(scorer, rated(row), scorers.timeout)) {
            Ok(score) => scores.push(Some(score.value)),
            Err(error) => {
                scores.push(None);
                problem = Some(error);
            }
        }
    }
    match problem {
        Some(problem) if scores.iter().all(Option::is_none) => Err(Failure::Input(format!(
            "the experiment's reward gave none of the {} rows without a score one: {problem}",
            rows.len()
        ))),
        _ => Ok(scores),
    }
}

fn rated(row: &Rated) -> Transcript {
    let row_of = Row {
        data_source: &row.data_source,
        ground_truth: &row.ground_truth,
        extra_info: &row.extra_info,
    };
    transcript(&row.prompt, &row.response, row_of)
}

/// FNV-1a of the prompt's words, the same on every machine.
fn prompt_number(prompt: &[Message]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut eat = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for message in prompt {
        eat(message.role.as_bytes());
        eat(&[0]);
        eat(message.text().as_bytes());
        eat(&[0]);
    }
    // The low bits of FNV are the weakest.
    hash ^ (hash >> 32)
}

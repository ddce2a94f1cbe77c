//! Preferences between the answers of two runs of `lathe eval`, by their scores or by a judge.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use dialogue::data::{DataSet, Need, Options as DataOptions, Row};
use dialogue::message::Message;
use dialogue::score::{REFERENCE, Score, Scorers, Sees, Transcript};
use evaluation::preferences::Preference;
use experiment::arms::Judge as Options;
use runlog::run_dir::RunDir;
use runlog::store::{self, RolloutRow};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Preferences;
use crate::cli::arguments::WinrateArguments;
use crate::cli::{Failure, runs};

/// Answers that are judged at once; an arm's own `concurrency` is what holds back.
const AT_ONCE: usize = 64;

/// An answer, and what it is worth.
struct Answer {
    messages: Vec<Message>,
    score: Option<f64>,
}

impl Answer {
    /// Characters that the model wrote after the prompt.
    fn length(&self, prompt_messages: usize) -> f64 {
        let turns = model_turns(&self.messages, prompt_messages);
        turns.iter().map(|turn| turn.chars().count()).sum::<usize>() as f64
    }
}

fn model_turns(messages: &[Message], prompt_messages: usize) -> Vec<String> {
    let after = messages.get(prompt_messages..).unwrap_or_default();
    after
        .iter()
        .filter(|message| message.role == "assistant")
        .map(Message::text)
        .collect()
}

/// Answers by row and sample.
type Answers = BTreeMap<(u64, u32), Answer>;

pub(super) fn compared(
    arguments: &WinrateArguments,
    against: &OsStr,
) -> Result<Preferences, Failure> {
    let model = runs::find(&arguments.place, &arguments.what)?;
    let reference = runs::find(&arguments.place, against)?;
    let (mut ours, mut theirs) = (answers(&model)?, answers(&reference)?);
    let rows = prompts(&model, ours.keys().map(|(row, _)| *row))?;
    same_prompts(&rows, &theirs, &model, &reference)?;
    let mut told = BTreeMap::new();
    let judge = match &arguments.judge {
        Some(experiment) => {
            let judge = Judge::load(experiment)?;
            match judge.compares {
                Some(weight) => told = judge.pairs(weight, &rows, &ours, &theirs)?,
                None => judge.score(&rows, [&mut ours, &mut theirs])?,
            }
            experiment.display().to_string()
        }
        None => "the runs' own scores".to_owned(),
    };
    let is_told = !told.is_empty();
    let mut found = Vec::new();
    let mut missing = 0;
    for (row, prompt) in &rows {
        let of_row = |answers: &Answers| -> Vec<Met> {
            answers
                .range((*row, 0)..=(*row, u32::MAX))
                .map(|((_, sample), answer)| Met {
                    sample: *sample,
                    score: answer.score,
                    length: answer.length(prompt.prompt.len()),
                })
                .collect()
        };
        let wins = |our: &Met, their: &Met| {
            if is_told {
                told.get(&(*row, our.sample, their.sample)).copied()
            } else {
                Some(win(our.score?, their.score?))
            }
        };
        match of_prompt(&of_row(&ours), &of_row(&theirs), wins) {
            Some(preference) => found.push(preference),
            None => missing += 1,
        }
    }
    Ok(Preferences {
        model: model.name().to_owned(),
        reference: reference.name().to_owned(),
        judge,
        found,
        missing,
    })
}

/// An answer that meets others.
#[derive(Debug, Clone, Copy)]
struct Met {
    sample: u32,
    score: Option<f64>,
    length: f64,
}

/// 1, 0, or half a win of each.
fn win(our: f64, their: f64) -> f64 {
    match our.total_cmp(&their) {
        std::cmp::Ordering::Greater => 1.0,
        std::cmp::Ordering::Equal => 0.5,
        std::cmp::Ordering::Less => 0.0,
    }
}

/// Each answer of one against each of the other, so that no number depends on which sample meets which. `wins`: how much of a
/// pair is won, None where nobody could tell.
fn of_prompt(
    ours: &[Met],
    theirs: &[Met],
    wins: impl Fn(&Met, &Met) -> Option<f64>,
) -> Option<Preference> {
    let pairs = ours
        .iter()
        .flat_map(|our| theirs.iter().map(move |their| (our, their)));
    let told: Vec<(f64, &Met, &Met)> = pairs
        .filter_map(|(our, their)| Some((wins(our, their)?, our, their)))
        .collect();
    if told.is_empty() {
        return None;
    }
    let mean = |of: &dyn Fn(&(f64, &Met, &Met)) -> f64| {
        told.iter().map(of).sum::<f64>() / told.len() as f64
    };
    Some(Preference {
        model_wins: mean(&|(wins, _, _)| *wins),
        model_length: mean(&|(_, our, _)| our.length),
        reference_length: mean(&|(_, _, their)| their.length),
        difficulty: None,
    })
}

/// What an evaluation kept.
fn answers(run_dir: &RunDir) -> Result<Answers, Failure> {
    let path = store::rollouts_path(run_dir, 0);
    if !path.is_file() {
        return Err(Failure::input(format!(
            "{} holds no answers of an evaluation; `lathe eval` keeps them, unless trainer.record_rollouts is false",
            run_dir.path().display()
        )));
    }
    let rows = store::read_rollouts(&path).map_err(|error| Failure::input(error.to_string()))?;
    rows.into_iter()
        .map(|row: RolloutRow| {
            let messages = serde_json::from_str(&row.messages).map_err(|error| {
                Failure::input(format!(
                    "{}: its dialogues cannot be read: {error}",
                    path.display()
                ))
            })?;
            let answer = Answer {
                messages,
                score: row.score,
            };
            Ok(((row.row_index, row.sample), answer))
        })
        .collect()
}

/// The rows of the data that an evaluation was of, by number.
fn prompts(
    run_dir: &RunDir,
    wanted: impl Iterator<Item = u64>,
) -> Result<BTreeMap<u64, Row>, Failure> {
    let mut indices: Vec<u64> = wanted.collect();
    indices.dedup();
    let loaded = experiment::inspect(&run_dir.experiment_path(), &[]);
    let data = &loaded.experiment.data;
    let options = DataOptions {
        prompt_key: data.prompt_key.clone(),
        need: Need::Prompts,
        max_samples: None,
        shuffle: false,
        seed: data.seed,
    };
    let told = |error: dialogue::data::DataError| {
        Failure::input(format!("the data of {}: {error}", run_dir.name()))
    };
    let set = DataSet::open(&data.val_files, &options).map_err(told)?;
    let rows = set.read(&indices).map_err(told)?;
    Ok(indices.into_iter().zip(rows).collect())
}

/// Two evaluations compare only over the same prompts.
fn same_prompts(
    rows: &BTreeMap<u64, Row>,
    theirs: &Answers,
    model: &RunDir,
    reference: &RunDir,
) -> Result<(), Failure> {
    for ((row, _), answer) in theirs {
        let Some(prompt) = rows.get(row).map(|row| &row.prompt) else {
            continue;
        };
        let is_same = answer.messages.get(..prompt.len()).is_some_and(|begins| {
            begins
                .iter()
                .map(Message::text)
                .eq(prompt.iter().map(Message::text))
        });
        if !is_same {
            return Err(Failure::input(format!(
                "{} and {} were not asked the same: row {row} differs; evaluate both with the same --data",
                model.name(),
                reference.name()
            )));
        }
    }
    if !theirs.keys().any(|(row, _)| rows.contains_key(row)) {
        return Err(Failure::input(format!(
            "{} and {} have no prompt in common",
            model.name(),
            reference.name()
        )));
    }
    Ok(())
}

/// The `reward` of an experiment, asked about answers.
struct Judge {
    scorers: Scorers,
    runtime: tokio::runtime::Runtime,
    /// The weight of its one arm, where that compares two answers instead of scoring one.
    compares: Option<f64>,
}

/// What a judge made of what it was asked; None: it was late, or failed.
type Told<K> = BTreeMap<K, Option<f64>>;

impl Judge {
    fn load(experiment: &Path) -> Result<Self, Failure> {
        let loaded = experiment::inspect(experiment, &[]);
        if let Some(error) = loaded
            .complaints
            .iter()
            .find(|complaint| complaint.severity == experiment::Severity::Error)
        {
            return Err(Failure::usage(error.to_string()));
        }
        let reward = &loaded.experiment.reward;
        let counted: Vec<_> = reward.arms.iter().filter(|arm| arm.weight != 0.0).collect();
        let is_comparing = counted
            .iter()
            .any(|arm| matches!(arm.judge(), Ok(Options::Judge(judge)) if judge.compares()));
        let compares = match (is_comparing, &counted[..]) {
            (false, _) => None,
            (true, [only]) => Some(only.weight),
            (true, _) => {
                return Err(Failure::usage(format!(
                    "{}: a judge that compares answers ({{{{reference}}}} in its template) must be the only arm that counts",
                    experiment.display()
                )));
            }
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| Failure::unexpected(format!("cannot judge: {error}")))?;
        Ok(Self {
            scorers: Scorers::of(reward).map_err(Failure::input)?,
            runtime,
            compares,
        })
    }

    /// Scores all answers anew.
    fn score(&self, rows: &BTreeMap<u64, Row>, both: [&mut Answers; 2]) -> Result<(), Failure> {
        for answers in both {
            let asked = answers.iter().filter_map(|(key, answer)| {
                let row = rows.get(&key.0)?;
                Some((*key, transcript(row, &answer.messages)))
            });
            for (key, score) in self.ask(asked)? {
                answers.get_mut(&key).expect("it was asked about").score = score;
            }
        }
        Ok(())
    }

    /// How much of each pair (row, our sample, their sample) we win. Each is asked about twice, either answer once in the first
    /// place: a judge's liking for one of the places is nobody's win.
    fn pairs(
        &self,
        weight: f64,
        rows: &BTreeMap<u64, Row>,
        ours: &Answers,
        theirs: &Answers,
    ) -> Result<BTreeMap<(u64, u32, u32), f64>, Failure> {
        let mut asked = Vec::new();
        for ((row_index, our_sample), our) in ours {
            let Some(row) = rows.get(row_index) else {
                continue;
            };
            let of_row = theirs.range((*row_index, 0)..=(*row_index, u32::MAX));
            for ((_, their_sample), their) in of_row {
                let key = (*row_index, *our_sample, *their_sample);
                asked.push(((key, false), beside(row, our, their)));
                asked.push(((key, true), beside(row, their, our)));
            }
        }
        let told = self.ask(asked.into_iter())?;
        let both = |key: &((u64, u32, u32), bool), ahead: &Option<f64>| {
            let behind = (*told.get(&(key.0, true))?)?;
            let wins = f64::midpoint((*ahead)? / weight, 1.0 - behind / weight);
            Some((key.0, wins.clamp(0.0, 1.0)))
        };
        Ok(told
            .iter()
            .filter(|(key, _)| !key.1)
            .filter_map(|(key, ahead)| both(key, ahead))
            .collect())
    }

    fn ask<K: Ord + Send + 'static>(
        &self,
        all: impl Iterator<Item = (K, Transcript)>,
    ) -> Result<Told<K>, Failure> {
        let mut asked = JoinSet::new();
        let room = Arc::new(Semaphore::new(AT_ONCE));
        for (key, transcript) in all {
            let scorer = self
                .scorers
                .for_source(&transcript.data_source)
                .map_err(|error| Failure::input(error.to_string()))?;
            let room = Arc::clone(&room);
            asked.spawn_on(
                async move {
                    let _place = room.acquire_owned().await;
                    (key, scorer.score(&transcript).await)
                },
                self.runtime.handle(),
            );
        }
        let mut told = Told::new();
        let mut first_problem = None;
        while let Some(joined) = self.runtime.block_on(asked.join_next()) {
            let (key, score) = joined
                .map_err(|error| Failure::unexpected(format!("the judge panicked: {error}")))?;
            let score = match score {
                // An arm that was late gave its default, which is no judgement.
                Ok(score) => (!is_late(&score)).then_some(score.value),
                Err(error) => {
                    first_problem.get_or_insert(error);
                    None
                }
            };
            told.insert(key, score);
        }
        match first_problem {
            Some(problem) if told.values().all(Option::is_none) => Err(Failure::input(format!(
                "the judge gave no score: {problem}"
            ))),
            _ => Ok(told),
        }
    }
}

/// An answer with another one beside it, to be compared.
fn beside(row: &Row, answer: &Answer, other: &Answer) -> Transcript {
    let other = transcript(row, &other.messages).text(Sees::ModelText);
    let mut seen = transcript(row, &answer.messages);
    match &mut seen.extra_info {
        serde_json::Value::Object(extra) => {
            extra.insert(REFERENCE.to_owned(), other.into());
        }
        extra => *extra = serde_json::json!({REFERENCE: other}),
    }
    seen
}

fn is_late(score: &Score) -> bool {
    let mut parts = score.parts.iter();
    parts.any(|(name, value)| name.ends_with("/timed_out") && *value > 0.0)
}

fn transcript(row: &Row, messages: &[Message]) -> Transcript {
    Transcript {
        data_source: row.data_source.clone(),
        ground_truth: row
            .reward_model
            .as_ref()
            .map(|model| model.ground_truth.clone())
            .unwrap_or_default(),
        extra_info: serde_json::Value::Object(row.extra_info.clone()),
        model_turns: model_turns(messages, row.prompt.len()),
        messages: messages.to_vec(),
        prompt_messages: row.prompt.len(),
        tool_rewards: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(sample: u32, score: f64, length: f64) -> Met {
        Met {
            sample,
            score: Some(score),
            length,
        }
    }

    #[test]
    fn every_sample_of_one_meets_every_sample_of_the_other() {
        let (ours, theirs) = (
            [met(0, 1.0, 10.0), met(1, 0.0, 20.0)],
            [met(0, 0.0, 5.0), met(1, 1.0, 7.0)],
        );
        let by_score = |our: &Met, their: &Met| Some(win(our.score?, their.score?));
        let preference = of_prompt(&ours, &theirs, by_score).expect("four pairs");
        // One win, one loss, two draws.
        assert_eq!(preference.model_wins, 0.5);
        assert_eq!(
            (preference.model_length, preference.reference_length),
            (15.0, 6.0)
        );
        assert_eq!(of_prompt(&[], &theirs, by_score), None);
        // Pairs of which nobody could tell do not count.
        let told = |our: &Met, their: &Met| (our.sample == 0 && their.sample == 1).then_some(0.75);
        let preference = of_prompt(&ours, &theirs, told).expect("one pair");
        assert_eq!(
            (
                preference.model_wins,
                preference.model_length,
                preference.reference_length
            ),
            (0.75, 10.0, 7.0)
        );
    }
}

//! Preferences between the answers of two runs of `lathe eval`, by their scores or by a judge.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use dialogue::data::{DataSet, Need, Options, Row};
use dialogue::message::Message;
use dialogue::score::{Score, Scorers, Transcript};
use evaluation::preferences::Preference;
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
    let judge = match &arguments.judge {
        Some(experiment) => {
            judge(experiment, &rows, [&mut ours, &mut theirs])?;
            experiment.display().to_string()
        }
        None => "the runs' own scores".to_owned(),
    };
    let mut found = Vec::new();
    let mut missing = 0;
    for (row, prompt) in &rows {
        let of_row = |answers: &Answers| -> Vec<(f64, f64)> {
            answers
                .range((*row, 0)..=(*row, u32::MAX))
                .filter_map(|(_, answer)| Some((answer.score?, answer.length(prompt.prompt.len()))))
                .collect()
        };
        match of_prompt(&of_row(&ours), &of_row(&theirs)) {
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

/// Each answer of one against each of the other, so that no number depends on which sample meets which. Each: score, length.
fn of_prompt(ours: &[(f64, f64)], theirs: &[(f64, f64)]) -> Option<Preference> {
    let pairs = (ours.len() * theirs.len()) as f64;
    if pairs == 0.0 {
        return None;
    }
    let wins: f64 = ours
        .iter()
        .flat_map(|(our, _)| theirs.iter().map(move |(their, _)| (our, their)))
        .map(|(our, their)| match our.total_cmp(their) {
            std::cmp::Ordering::Greater => 1.0,
            std::cmp::Ordering::Equal => 0.5,
            std::cmp::Ordering::Less => 0.0,
        })
        .sum();
    let length = |answers: &[(f64, f64)]| {
        answers.iter().map(|(_, length)| length).sum::<f64>() / answers.len() as f64
    };
    Some(Preference {
        model_wins: wins / pairs,
        model_length: length(ours),
        reference_length: length(theirs),
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
    let options = Options {
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

/// Scores all answers anew, as `reward` of an experiment says.
fn judge(
    experiment: &Path,
    rows: &BTreeMap<u64, Row>,
    both: [&mut Answers; 2],
) -> Result<(), Failure> {
    let loaded = experiment::inspect(experiment, &[]);
    if let Some(error) = loaded
        .complaints
        .iter()
        .find(|complaint| complaint.severity == experiment::Severity::Error)
    {
        return Err(Failure::usage(error.to_string()));
    }
    let scorers = Scorers::of(&loaded.experiment.reward).map_err(Failure::input)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::unexpected(format!("cannot judge: {error}")))?;
    for answers in both {
        let mut asked = JoinSet::new();
        let room = Arc::new(Semaphore::new(AT_ONCE));
        for (key, answer) in answers.iter() {
            let Some(row) = rows.get(&key.0) else {
                continue;
            };
            let scorer = scorers
                .for_source(&row.data_source)
                .map_err(|error| Failure::input(error.to_string()))?;
            let transcript = transcript(row, &answer.messages);
            let (room, key) = (Arc::clone(&room), *key);
            asked.spawn_on(
                async move {
                    let _place = room.acquire_owned().await;
                    (key, scorer.score(&transcript).await)
                },
                runtime.handle(),
            );
        }
        let mut first_problem = None;
        while let Some(joined) = runtime.block_on(asked.join_next()) {
            let (key, score) = joined
                .map_err(|error| Failure::unexpected(format!("the judge panicked: {error}")))?;
            let answer = answers.get_mut(&key).expect("it was asked about");
            answer.score = match score {
                // An arm that was late gave its default, which is no judgement.
                Ok(score) => (!is_late(&score)).then_some(score.value),
                Err(error) => {
                    first_problem.get_or_insert(error);
                    None
                }
            };
        }
        if let Some(problem) = first_problem
            && answers.values().all(|answer| answer.score.is_none())
        {
            return Err(Failure::input(format!(
                "the judge gave no score: {problem}"
            )));
        }
    }
    Ok(())
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

    #[test]
    fn every_sample_of_one_meets_every_sample_of_the_other() {
        let preference = of_prompt(&[(1.0, 10.0), (0.0, 20.0)], &[(0.0, 5.0), (1.0, 7.0)]);
        let preference = preference.expect("four pairs");
        // One win, one loss, two draws.
        assert_eq!(preference.model_wins, 0.5);
        assert_eq!(
            (preference.model_length, preference.reference_length),
            (15.0, 6.0)
        );
        assert_eq!(of_prompt(&[], &[(0.0, 5.0)]), None);
    }
}

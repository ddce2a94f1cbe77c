//! The first rows of each data file: schema, prompt lengths against the limit, tools of the row, scorer on real truths.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dialogue::chat::Chat;
use dialogue::data::{Need, Row, Table};
use dialogue::message::Message;
use dialogue::preferences::{self, Labels};
use dialogue::score::{ScoreError, Scorers, Transcript, Tried, judge, score_within};
use dialogue::session::Waits;
use dialogue::tool::ToolRegistry;
use experiment::estimators::Need as Needs;
use experiment::scorers::ScorerName;
use experiment::settings::Algorithm;
use experiment::{Experiment, Severity};
use serde::Serialize;
use serde_json::Value;

use super::places::{
    Place, data_files, label_files, labels_of_arms, missing_data, probe_files, wrong_reward_models,
};
use super::{DryRun, Finding, Options};

/// Rows with the same complaint that are named one by one.
const NAMED_ROWS: usize = 3;
/// Rows that each arm of the reward is tried on before all are scored, as a run does.
const TRIED_ROWS: usize = 4;
/// No truth of any data set.
const GARBAGE: &str = "I would rather not say.";

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileFacts {
    pub path: PathBuf,
    pub rows: u64,
    /// From the start of the file.
    pub rows_tried: u64,
    /// Of the rows tried, with tools and generation prompt; None without a tokenizer and for demonstrations.
    pub prompt_tokens_min: Option<usize>,
    pub prompt_tokens_max: Option<usize>,
    /// Rows tried that are longer than `data.max_prompt_length`.
    pub rows_too_long: u64,
}

/// How long somebody looks at nothing before they wonder.
const TOLD_AFTER: Duration = Duration::from_secs(2);

/// How a scorer did on real rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScorerFacts {
    pub data_source: String,
    pub scorer: String,
    pub rows: u64,
    /// Mean score when the answer is the ground truth; 1 is expected.
    pub truth_score: f64,
    /// Mean score of an answer that is none; 0 is expected.
    pub garbage_score: f64,
}

/// Tries every file; what is missing is as bad as the options say.
pub fn try_files(
    experiment: &Experiment,
    experiment_file: &Path,
    chat: Option<&Chat>,
    tools: Option<&ToolRegistry>,
    options: Options,
    run: &mut DryRun,
) {
    let (rows, absent) = (options.rows, options.absent());
    let files = data_files(experiment, experiment_file);
    if experiment.data.train_files.is_empty() {
        let message = "data.train_files is not set; name one or more Parquet files";
        run.findings.push(Finding::error("data", message));
    }
    let mut tried: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for (key, place) in files {
        if let Some(message) = missing_data(key, &place) {
            run.findings.push(Finding {
                severity: absent,
                area: "data",
                message,
            });
            continue;
        }
        match read(&place, &experiment.data.prompt_key, rows, Need::Prompts) {
            Ok((total, rows)) => {
                prompts(experiment, &place, total, &rows, chat, tools, run);
                for row in rows {
                    tried.entry(row.data_source.clone()).or_default().push(row);
                }
            }
            Err(message) => run.findings.push(Finding::error("data", message)),
        }
    }
    for message in wrong_reward_models(experiment, experiment_file) {
        run.findings.push(Finding {
            severity: absent,
            area: "scorer",
            message,
        });
    }
    score(experiment, &tried, options.tell, run);
    for (arm, place) in labels_of_arms(experiment, experiment_file) {
        if !place.path.exists() {
            let message = format!(
                "reward.arms: {arm}: its labels are {}, which does not exist yet: it gives its default until labels come",
                place.written
            );
            run.findings.push(Finding::warning("scorer", message));
        }
    }
    for (key, place) in label_files(experiment, experiment_file) {
        if place.path.exists() {
            try_labels(key, &place, run);
        } else {
            let message = format!(
                "{key} names {}, which does not exist yet: it has no labels until it does, and is read from then on",
                place.written
            );
            run.findings.push(Finding::warning("data", message));
        }
    }
    for (key, place) in probe_files(experiment, experiment_file) {
        try_dialogues(experiment, key, &place, rows, absent, run);
    }
}

/// Tries a file of dialogues with a turn to imitate or to judge by.
fn try_dialogues(
    experiment: &Experiment,
    key: &str,
    place: &Place,
    rows: u64,
    absent: Severity,
    run: &mut DryRun,
) {
    if let Some(message) = missing_data(key, place) {
        run.findings.push(Finding {
            severity: absent,
            area: "data",
            message,
        });
        return;
    }
    let read = read(
        place,
        &experiment.data.prompt_key,
        rows,
        Need::Demonstrations,
    );
    match read {
        Ok((total, rows)) => run.files.push(FileFacts {
            path: place.path.clone(),
            rows: total,
            rows_tried: rows.len() as u64,
            prompt_tokens_min: None,
            prompt_tokens_max: None,
            rows_too_long: 0,
        }),
        Err(message) => run
            .findings
            .push(Finding::error("data", format!("{key}: {message}"))),
    }
}

/// Tries the files of a supervised warm-up: each row is a dialogue with a turn to imitate.
pub fn try_demonstrations(
    experiment: &Experiment,
    experiment_file: &Path,
    rows: u64,
    absent: Severity,
    run: &mut DryRun,
) {
    let sft = &experiment.sft;
    for (key, files) in [
        ("sft.train_files", &sft.train_files),
        ("sft.val_files", &sft.val_files),
    ] {
        for file in files {
            let place = Place::of(file, experiment_file);
            if is_labels(&place.path) {
                try_labels(key, &place, run);
            } else {
                try_dialogues(experiment, key, &place, rows, absent, run);
            }
        }
    }
}

/// Does its first row have answers to choose between, or to score, for `lathe reward train`?
fn is_labels(path: &Path) -> bool {
    let Ok(table) = Table::open_whole(path) else {
        return false;
    };
    let first = table.scan_json().ok().and_then(|mut rows| rows.next());
    first.is_some_and(|row| {
        row.is_ok_and(|(_, fields)| {
            ["chosen", "rejected", "response"]
                .iter()
                .any(|column| fields.contains_key(*column))
        })
    })
}

/// Tries every row of such a file.
fn try_labels(key: &str, place: &Place, run: &mut DryRun) {
    let rows = match preferences::read_labels(&place.path) {
        Ok(Labels::Preferences(rows)) => rows.len(),
        Ok(Labels::Rated(rows)) => rows.len(),
        Err(error) => {
            run.findings
                .push(Finding::error("data", format!("{key}: {error}")));
            return;
        }
    };
    run.files.push(FileFacts {
        path: place.path.clone(),
        rows: rows as u64,
        rows_tried: rows as u64,
        prompt_tokens_min: None,
        prompt_tokens_max: None,
        rows_too_long: 0,
    });
}

fn read(place: &Place, prompt_key: &str, rows: u64, need: Need) -> Result<(u64, Vec<Row>), String> {
    let table = Table::open(&place.path, prompt_key).map_err(|error| error.to_string())?;
    if table.rows() == 0 {
        return Err(format!("{}: has no rows", place.path.display()));
    }
    let wanted: Vec<u64> = (0..table.rows().min(rows)).collect();
    let rows = table
        .read(&wanted, need)
        .map_err(|error| error.to_string())?;
    Ok((table.rows(), rows))
}

fn prompts(
    experiment: &Experiment,
    place: &Place,
    total: u64,
    rows: &[Row],
    chat: Option<&Chat>,
    tools: Option<&ToolRegistry>,
    run: &mut DryRun,
) {
    let limit = experiment.data.max_prompt_length as usize;
    let path = &place.path;
    let mut complaints = Vec::new();
    let mut lengths = Vec::new();
    for row in rows {
        // Without its tools a prompt has another length, and every row would complain.
        let Some(tools) = tools else { break };
        let name = format!("{}: row {}", path.display(), row.place.row);
        let visible = match tools.select(row.tool_selection.as_deref(), &name) {
            Ok(visible) => visible.schemas(),
            Err(error) => {
                complaints.push(error.to_string());
                continue;
            }
        };
        for tool in row
            .tools_kwargs
            .keys()
            .filter(|tool| !tools.names().contains(&tool.as_str()))
        {
            complaints.push(format!(
                "{name}: extra_info.tools_kwargs is for {tool}, which is no tool of this experiment; \
                 see actor_rollout_ref.rollout.multi_turn.tool_config_path"
            ));
        }
        let Some(chat) = chat else { continue };
        let schemas = if row.tools.is_empty() {
            visible
        } else {
            row.tools.clone()
        };
        match chat.prompt_ids(&row.prompt, &schemas, true) {
            Ok(ids) => lengths.push((row.place.row, ids.len())),
            Err(error) => complaints.push(format!("{name}: {error}")),
        }
        if run.sample_prompt.is_none() {
            run.sample_prompt = chat.render(&row.prompt, &schemas, true).ok();
        }
    }
    let too_long: Vec<&(u64, usize)> = lengths
        .iter()
        .filter(|(_, length)| *length > limit)
        .collect();
    if let Some((row, length)) = too_long.first() {
        let message = format!(
            "{}: row {row}: the prompt has {length} tokens with its tools; data.max_prompt_length is {limit}",
            path.display()
        );
        run.findings.push(if experiment.data.filter_overlong_prompts {
            Finding::warning("data", format!("{message}; it and {} more will be left out", too_long.len() - 1))
        } else {
            Finding::error(
                "data",
                format!("{message}. Raise it, or set data.filter_overlong_prompts=true to leave such rows out"),
            )
        });
    }
    run.findings.extend(
        few(complaints)
            .into_iter()
            .map(|message| Finding::error("data", message)),
    );
    run.files.push(FileFacts {
        path: path.clone(),
        rows: total,
        rows_tried: rows.len() as u64,
        prompt_tokens_min: lengths.iter().map(|(_, length)| *length).min(),
        prompt_tokens_max: lengths.iter().map(|(_, length)| *length).max(),
        rows_too_long: too_long.len() as u64,
    });
}

/// A row as an arm is tried on it.
fn as_tried(row: &Row) -> Tried {
    Tried {
        data_source: row.data_source.clone(),
        ground_truth: (row.reward_model.as_ref())
            .map(|model| model.ground_truth.clone())
            .unwrap_or_default(),
        extra_info: Value::Object(row.extra_info.clone()),
        messages: row.prompt.clone(),
    }
}

/// Tells what is waited for, once that lasts.
async fn told_while<T>(waits: &Waits, tell: fn(&str), work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let mut last = String::new();
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep(TOLD_AFTER) => {}
        }
        for waiting in waits.now() {
            if waiting.name != last {
                let left = waiting.left.unwrap_or_default().as_secs_f64().ceil();
                tell(&format!(
                    "waiting for {}, {left} s more at most",
                    waiting.name
                ));
                last = waiting.name;
            }
        }
    }
}

fn score(
    experiment: &Experiment,
    tried: &BTreeMap<String, Vec<Row>>,
    tell: fn(&str),
    run: &mut DryRun,
) {
    // One thread is enough: scorers are quick, or wait for a process or a server.
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            run.findings.push(Finding::error(
                "scorer",
                format!("cannot start a runtime for scorers: {error}"),
            ));
            return;
        }
    };
    // Models need libtorch, which is the trainer's.
    let mut reward = experiment.reward.clone();
    reward.arms.retain(|arm| arm.scorer != ScorerName::Model);
    for arm in &experiment.reward.arms {
        if arm.scorer == ScorerName::Model {
            let message = format!(
                "reward.arms: {}: lathe-trainer loads the reward model and tries it when the run starts; it is not tried here",
                arm.name
            );
            run.findings.push(Finding::warning("scorer", message));
        }
    }
    if reward.arms.is_empty() && !experiment.reward.arms.is_empty() {
        return;
    }
    let scorers = match Scorers::of(&reward) {
        Ok(scorers) => scorers,
        Err(problem) => {
            run.findings.push(Finding::error("scorer", problem));
            return;
        }
    };
    let first = tried.values().flatten().take(TRIED_ROWS).map(as_tried);
    let first: Vec<Tried> = first.collect();
    let waits = Waits::default();
    let rehearsed = runtime.block_on(told_while(&waits, tell, scorers.rehearse(&first, &waits)));
    match judge(&rehearsed) {
        Ok(warnings) => {
            let warnings = warnings.into_iter();
            run.findings
                .extend(warnings.map(|message| Finding::warning("scorer", message)));
        }
        Err(problem) => {
            // The rows would say the same again and again.
            run.findings.push(Finding::error("scorer", problem));
            return;
        }
    }
    // Of any answer to any row: what a score is made of.
    let mut parts = BTreeSet::new();
    for (data_source, rows) in tried {
        let scorer = match scorers.for_source(data_source) {
            Ok(scorer) => scorer,
            Err(error) => {
                run.findings
                    .push(Finding::error("scorer", error.to_string()));
                continue;
            }
        };
        let mut complaints = Vec::new();
        let (mut truth_sum, mut garbage_sum, mut count) = (0.0, 0.0, 0_u64);
        for row in rows {
            let name = format!("{}: row {}", row.place.path.display(), row.place.row);
            let Some(truth) = row.reward_model.as_ref().map(|model| &model.ground_truth) else {
                complaints.push(format!("{name}: reward_model.ground_truth is missing"));
                continue;
            };
            let mut score = |answer: &str| -> Result<f64, ScoreError> {
                let scored = score_within(
                    scorer.clone(),
                    transcript(row, truth, answer),
                    scorers.timeout,
                );
                let score = runtime.block_on(scored)?;
                parts.extend(score.parts.into_keys());
                Ok(score.value)
            };
            let mut has_perfect = false;
            let result = scorer.check(truth).and_then(|()| {
                let mut answers = scorer.perfect_answers(truth);
                has_perfect |= !answers.is_empty();
                answers.push(plain(truth));
                let best = answers
                    .iter()
                    .map(|answer| score(answer))
                    .collect::<Result<Vec<_>, _>>()?;
                Ok((
                    best.into_iter().fold(f64::NEG_INFINITY, f64::max),
                    score(GARBAGE)?,
                ))
            });
            match result {
                Ok((truth_score, garbage_score)) => {
                    count += 1;
                    truth_sum += truth_score;
                    garbage_sum += garbage_score;
                    if has_perfect && truth_score <= garbage_score {
                        complaints.push(format!(
                            "{name}: the ground truth {truth} itself scores {truth_score}, and nonsense {garbage_score}; \
                             is reward.scorer right for this data?"
                        ));
                    }
                }
                Err(error @ ScoreError::GroundTruth { .. }) => {
                    complaints.push(format!("{name}: reward_model.ground_truth: {error}"));
                }
                Err(error) => complaints.push(format!("{name}: {error}")),
            }
        }
        run.findings.extend(
            few(complaints)
                .into_iter()
                .map(|message| Finding::error("scorer", message)),
        );
        if count > 0 {
            run.scorers.push(ScorerFacts {
                data_source: data_source.clone(),
                scorer: scorer.name().to_owned(),
                rows: count,
                truth_score: truth_sum / count as f64,
                garbage_score: garbage_sum / count as f64,
            });
        }
    }
    if !run.scorers.is_empty() && reward.arms.len() == experiment.reward.arms.len() {
        let unknown = unknown_parts(&experiment.algorithm, &parts).into_iter();
        run.findings
            .extend(unknown.map(|message| Finding::warning("scorer", message)));
    }
}

/// What to say of keys that name a part of the score which no answer had.
fn unknown_parts(algorithm: &Algorithm, parts: &BTreeSet<String>) -> Vec<String> {
    let filter = &algorithm.filter_groups;
    let mut named = Vec::new();
    if filter.enable {
        named.push(("algorithm.filter_groups.metric", &*filter.metric, "reward"));
    }
    if algorithm.adv_estimator.needs(Needs::Components) {
        let keys = algorithm.gdpo_reward_keys.iter();
        named.extend(keys.map(|key| ("algorithm.gdpo_reward_keys", &**key, "score")));
    }
    // Beside an arm's score there is how it was asked.
    let is_part = |part: &&str| {
        part.strip_prefix("arm/")
            .is_none_or(|arm| !arm.contains('/'))
    };
    let known: Vec<&str> = parts.iter().map(String::as_str).filter(is_part).collect();
    // A tool's reward and DAPO's penalty are no scorer's.
    let is_others = |name: &str| name.starts_with("tool_reward/") || name == "overlong_penalty";
    let unknown = named
        .into_iter()
        .filter(|(_, name, whole)| name != whole && !parts.contains(*name) && !is_others(name));
    unknown
        .map(|(key, name, whole)| {
            format!(
                "{key} names {name}, which no row's score has; there are {}",
                std::iter::once(whole)
                    .chain(known.iter().copied())
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        })
        .collect()
}

/// The text of a truth; of a list of acceptable ones, the first.
fn plain(truth: &Value) -> String {
    match truth {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.first().map(plain).unwrap_or_default(),
        other => other.to_string(),
    }
}

fn transcript(row: &Row, truth: &Value, answer: &str) -> Transcript {
    let mut messages = row.prompt.clone();
    messages.push(Message::new("assistant", answer));
    Transcript {
        data_source: row.data_source.clone(),
        ground_truth: truth.clone(),
        extra_info: Value::Object(row.extra_info.clone()),
        model_turns: vec![answer.to_owned()],
        messages,
        prompt_messages: row.prompt.len(),
        tool_rewards: BTreeMap::new(),
    }
}

/// The first few, and how many more.
fn few(mut complaints: Vec<String>) -> Vec<String> {
    let more = complaints.len().saturating_sub(NAMED_ROWS);
    complaints.truncate(NAMED_ROWS);
    if more > 0
        && let Some(last) = complaints.last_mut()
    {
        *last = format!("{last} (and {more} more like it)");
    }
    complaints
}

//! Labels of people (or of another judge): of two answers to one prompt, which is better, or what one answer is worth. From
//! Parquet or JSON Lines, read whole or as the file grows.
//!
//! A prompt is text or a list of messages; an answer too. Answers that are whole dialogues share their prompt: it is what both
//! begin with. The last line of a JSON file counts once it is whole, so that whoever writes it need not be stopped.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::data::{DataError, Place, Reader, Table, brief, without_padding};
use crate::message::Message;
use crate::score::Transcript;

/// Of two answers to one prompt, `chosen` is the better one.
#[derive(Debug, Clone, PartialEq)]
pub struct Preference {
    pub prompt: Vec<Message>,
    pub chosen: String,
    pub rejected: String,
    /// By how much at least, in the reward's own units.
    pub margin: Option<f64>,
    /// Empty when absent.
    pub data_source: String,
    /// `reward_model.ground_truth`, else `ground_truth`; null when absent.
    pub ground_truth: Value,
    /// Null when absent.
    pub extra_info: Value,
}

/// An answer and what it is worth.
#[derive(Debug, Clone, PartialEq)]
pub struct Rated {
    pub prompt: Vec<Message>,
    pub response: String,
    /// None: the file has no such column, or no number there.
    pub score: Option<f64>,
    pub data_source: String,
    pub ground_truth: Value,
    pub extra_info: Value,
}

impl Preference {
    /// One of its answers, as a scorer sees it: one turn behind the prompt.
    pub fn seen(&self, answer: &str) -> Transcript {
        seen(
            &self.prompt,
            answer,
            &self.data_source,
            [&self.ground_truth, &self.extra_info],
        )
    }
}

impl Rated {
    /// Its answer, as a scorer sees it.
    pub fn seen(&self) -> Transcript {
        let truth_and_extra = [&self.ground_truth, &self.extra_info];
        seen(
            &self.prompt,
            &self.response,
            &self.data_source,
            truth_and_extra,
        )
    }
}

fn seen(
    prompt: &[Message],
    answer: &str,
    data_source: &str,
    [ground_truth, extra_info]: [&Value; 2],
) -> Transcript {
    Transcript {
        data_source: data_source.to_owned(),
        ground_truth: ground_truth.clone(),
        extra_info: extra_info.clone(),
        model_turns: vec![answer.to_owned()],
        prompt_messages: prompt.len(),
        messages: [prompt, &[Message::new("assistant", answer)]].concat(),
        tool_rewards: BTreeMap::new(),
    }
}

/// Every preference of a file; the error names file, row (counted from 0) and column.
pub fn read(path: &Path) -> Result<Vec<Preference>, DataError> {
    rows(path)?
        .into_iter()
        .map(|row| row.and_then(|(place, fields)| preference(&place, fields)))
        .collect()
}

/// Every rated answer of a file: columns `prompt`, `response` and, for most uses, `score`.
pub fn read_rated(path: &Path) -> Result<Vec<Rated>, DataError> {
    rows(path)?
        .into_iter()
        .map(|row| row.and_then(|(place, fields)| rated(&place, fields)))
        .collect()
}

/// A file of the one kind or of the other.
#[derive(Debug, Clone, PartialEq)]
pub enum Labels {
    Preferences(Vec<Preference>),
    Rated(Vec<Rated>),
}

/// The same of either kind: the first row says which. Each row of the file is one of the list, in its order.
pub fn read_labels(path: &Path) -> Result<Labels, DataError> {
    let rows = rows(path)?.into_iter().collect::<Result<Vec<_>, _>>()?;
    let has = |column: &str| {
        rows.first()
            .is_some_and(|(_, fields)| fields.get(column).is_some_and(|value| !value.is_null()))
    };
    if has("response") && !has("chosen") {
        return rows
            .into_iter()
            .map(|(place, fields)| rated(&place, fields))
            .collect::<Result<_, _>>()
            .map(Labels::Rated);
    }
    rows.into_iter()
        .map(|(place, fields)| preference(&place, fields))
        .collect::<Result<_, _>>()
        .map(Labels::Preferences)
}

/// A file of preferences that may grow, or not be there yet.
#[derive(Debug)]
pub struct Growing {
    path: PathBuf,
    /// Of JSON Lines: up to here it was read.
    read_bytes: u64,
    read_rows: u64,
    /// Of Parquet, which is written anew: its length when it was read.
    length: u64,
}

impl Growing {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            read_bytes: 0,
            read_rows: 0,
            length: 0,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What came since the last call; a row that cannot be read is an error of its own and is passed over from then on. Nothing
    /// where there is no file yet. A file that became shorter is another one, and read from its beginning.
    pub fn news(&mut self) -> Result<Vec<Result<Preference, DataError>>, DataError> {
        let length = match std::fs::metadata(&self.path) {
            Ok(facts) => facts.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => {
                return Err(DataError::Open {
                    path: self.path.clone(),
                    source,
                });
            }
        };
        if length < self.read_bytes.max(self.length) {
            *self = Self::new(std::mem::take(&mut self.path));
        }
        let found = if is_lines(&self.path) {
            self.new_lines()?
        } else if length == self.length {
            Vec::new()
        } else {
            let all = rows(&self.path)?;
            self.length = length;
            let known = self.read_rows.min(all.len() as u64) as usize;
            self.read_rows = all.len() as u64;
            all.into_iter().skip(known).collect()
        };
        Ok(found
            .into_iter()
            .map(|row| row.and_then(|(place, fields)| preference(&place, fields)))
            .collect())
    }

    fn new_lines(&mut self) -> Result<Vec<RowOf>, DataError> {
        let (found, read_bytes) = lines(&self.path, self.read_bytes, self.read_rows, false)?;
        self.read_bytes = read_bytes;
        self.read_rows += found.len() as u64;
        Ok(found)
    }
}

type RowOf = Result<(Place, Map<String, Value>), DataError>;

fn is_lines(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "jsonl" || extension == "json")
}

fn rows(path: &Path) -> Result<Vec<RowOf>, DataError> {
    if is_lines(path) {
        return Ok(lines(path, 0, 0, true)?.0);
    }
    let table = Table::open_whole(path)?;
    let path: Arc<Path> = path.into();
    Ok(table
        .scan_json()?
        .map(|row| {
            row.map(|(row, fields)| {
                let path = Arc::clone(&path);
                (Place { path, row }, fields)
            })
        })
        .collect())
}

/// The whole lines from byte `start` on, as rows from `first`, and where the next one begins. A last line without its end counts
/// where it is whole all the same, if `to_end`.
fn lines(
    path: &Path,
    start: u64,
    first: u64,
    to_end: bool,
) -> Result<(Vec<RowOf>, u64), DataError> {
    let mut text = Vec::new();
    File::open(path)
        .and_then(|mut file| {
            file.seek(SeekFrom::Start(start))?;
            file.read_to_end(&mut text)
        })
        .map_err(|source| DataError::Open {
            path: path.to_owned(),
            source,
        })?;
    let whole = text.iter().rposition(|byte| *byte == b'\n');
    let mut whole = whole.map_or(0, |end| end + 1);
    if to_end && serde_json::from_slice::<Map<String, Value>>(&text[whole..]).is_ok() {
        whole = text.len();
    }
    let path: Arc<Path> = path.into();
    let found = text[..whole]
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.trim_ascii().is_empty())
        .zip(first..)
        .map(|(line, row)| {
            let failed = |reason| DataError::Line {
                path: path.to_path_buf(),
                row,
                reason,
            };
            match serde_json::from_slice(line) {
                Ok(Value::Object(fields)) => {
                    let path = Arc::clone(&path);
                    Ok((Place { path, row }, fields))
                }
                Ok(other) => Err(failed(format!("it is {}", brief(&other)))),
                Err(error) => Err(failed(error.to_string())),
            }
        })
        .collect();
    Ok((found, start + whole as u64))
}

const EXPECTED_ANSWER: &str = "an answer, as text or as a list of messages {role, content}";
const EXPECTED_PROMPT: &str = "text or a list of messages {role, content}";

fn preference(place: &Place, mut fields: Map<String, Value>) -> Result<Preference, DataError> {
    let reader = Reader { place };
    let mut take = |column: &str| fields.remove(column).and_then(without_padding);
    let prompt = take("prompt");
    let (chosen, rejected) = (take("chosen"), take("rejected"));
    let given = |column: &str, answer: Option<Value>| {
        answer.ok_or_else(|| reader.wrong(column, "missing", EXPECTED_ANSWER))
    };
    let (chosen, rejected) = (given("chosen", chosen)?, given("rejected", rejected)?);
    let prompt = match prompt {
        Some(value) => prompt_of(&reader, value)?,
        None => common_beginning(&reader, &chosen, &rejected)?,
    };
    let margin = number(&reader, "margin", take("margin"))?;
    let known = Known::take(&reader, &mut take)?;
    Ok(Preference {
        chosen: answer_of(&reader, "chosen", chosen, &prompt)?,
        rejected: answer_of(&reader, "rejected", rejected, &prompt)?,
        prompt,
        margin,
        data_source: known.data_source,
        ground_truth: known.ground_truth,
        extra_info: known.extra_info,
    })
}

fn rated(place: &Place, mut fields: Map<String, Value>) -> Result<Rated, DataError> {
    let reader = Reader { place };
    let mut take = |column: &str| fields.remove(column).and_then(without_padding);
    let prompt =
        take("prompt").ok_or_else(|| reader.wrong("prompt", "missing", EXPECTED_PROMPT))?;
    let prompt = prompt_of(&reader, prompt)?;
    let response =
        take("response").ok_or_else(|| reader.wrong("response", "missing", EXPECTED_ANSWER))?;
    let score = number(&reader, "score", take("score"))?;
    let known = Known::take(&reader, &mut take)?;
    Ok(Rated {
        response: answer_of(&reader, "response", response, &prompt)?,
        prompt,
        score,
        data_source: known.data_source,
        ground_truth: known.ground_truth,
        extra_info: known.extra_info,
    })
}

/// What a scorer may need to know of a row.
struct Known {
    data_source: String,
    ground_truth: Value,
    extra_info: Value,
}

impl Known {
    fn take(
        reader: &Reader<'_>,
        take: &mut impl FnMut(&str) -> Option<Value>,
    ) -> Result<Self, DataError> {
        let data_source = take("data_source")
            .map(|value| reader.text("data_source", value))
            .transpose()?
            .unwrap_or_default();
        let of_model = match take("reward_model") {
            Some(Value::Object(mut fields)) => fields.remove("ground_truth"),
            _ => None,
        };
        Ok(Self {
            data_source,
            ground_truth: of_model
                .or_else(|| take("ground_truth"))
                .unwrap_or_default(),
            extra_info: take("extra_info").unwrap_or_default(),
        })
    }
}

fn number(
    reader: &Reader<'_>,
    column: &str,
    value: Option<Value>,
) -> Result<Option<f64>, DataError> {
    match value {
        None => Ok(None),
        Some(value) => match value.as_f64().filter(|number| number.is_finite()) {
            Some(number) => Ok(Some(number)),
            None => Err(reader.wrong(column, brief(&value), "a finite number")),
        },
    }
}

fn prompt_of(reader: &Reader<'_>, value: Value) -> Result<Vec<Message>, DataError> {
    match value {
        Value::String(text) => Ok(vec![Message::new("user", text)]),
        value @ Value::Array(_) => reader.messages("prompt", value),
        other => Err(reader.wrong("prompt", brief(&other), EXPECTED_PROMPT)),
    }
}

/// The messages that both answers begin with, which is the prompt where none is given on its own.
fn common_beginning(
    reader: &Reader<'_>,
    chosen: &Value,
    rejected: &Value,
) -> Result<Vec<Message>, DataError> {
    let (Value::Array(_), Value::Array(_)) = (chosen, rejected) else {
        return Err(reader.wrong("prompt", "missing", EXPECTED_PROMPT));
    };
    let chosen = reader.messages("chosen", chosen.clone())?;
    let rejected = reader.messages("rejected", rejected.clone())?;
    let common = chosen
        .iter()
        .zip(&rejected)
        .take_while(|(one, other)| one == other)
        .count();
    // Two equal answers are no prompt.
    let last_asked = chosen[..common]
        .iter()
        .rposition(|message| message.role != "assistant");
    match last_asked {
        Some(last) => Ok(chosen[..=last].to_vec()),
        None => Err(reader.wrong("prompt", "missing", EXPECTED_PROMPT)),
    }
}

/// What the model says in an answer: its messages' texts by line, without the prompt that it may repeat.
fn answer_of(
    reader: &Reader<'_>,
    column: &str,
    value: Value,
    prompt: &[Message],
) -> Result<String, DataError> {
    let messages = match value {
        Value::String(text) => return Ok(text),
        value @ Value::Array(_) => reader.messages(column, value)?,
        other => return Err(reader.wrong(column, brief(&other), EXPECTED_ANSWER)),
    };
    let own = messages.strip_prefix(prompt).unwrap_or(&messages);
    let texts: Vec<String> = own
        .iter()
        .filter(|message| message.role == "assistant")
        .map(Message::text)
        .collect();
    if texts.is_empty() {
        return Err(reader.wrong(
            column,
            "messages of which none is the assistant's",
            EXPECTED_ANSWER,
        ));
    }
    Ok(texts.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use serde_json::json;

    use super::*;

    fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        (folder, path)
    }

    fn question() -> Vec<Message> {
        vec![Message::new("user", "2+2?")]
    }

    #[test]
    fn every_usual_form_of_a_pair_gives_the_same_preference() {
        let user = json!({"role": "user", "content": "2+2?"});
        let says = |text: &str| json!({"role": "assistant", "content": text});
        for row in [
            json!({"prompt": "2+2?", "chosen": "4", "rejected": "5"}),
            json!({"prompt": [user], "chosen": "4", "rejected": "5"}),
            json!({"prompt": [user], "chosen": [says("4")], "rejected": [says("5")]}),
            // The prompt repeated in each answer, or standing only there.
            json!({"prompt": "2+2?", "chosen": [user, says("4")], "rejected": [user, says("5")]}),
            json!({"chosen": [user, says("4")], "rejected": [user, says("5")]}),
        ] {
            let (_folder, path) = file("a.jsonl", &format!("{row}\n"));
            let read = read(&path).expect("a preference");
            assert_eq!(read.len(), 1, "{row}");
            assert_eq!(read[0].prompt, question(), "{row}");
            assert_eq!((&*read[0].chosen, &*read[0].rejected), ("4", "5"), "{row}");
            assert_eq!(read[0].ground_truth, Value::Null);
        }
        let row = json!({
            "prompt": "2+2?", "chosen": "4", "rejected": "5", "margin": 0.5, "data_source": "a",
            "reward_model": {"style": "rule", "ground_truth": "4"}, "extra_info": {"index": 3},
        });
        let (_folder, path) = file("a.jsonl", &row.to_string());
        let read = read(&path).expect("a preference").remove(0);
        assert_eq!((read.margin, &*read.data_source), (Some(0.5), "a"));
        assert_eq!(read.ground_truth, json!("4"));
        assert_eq!(read.extra_info, json!({"index": 3}));
    }

    #[test]
    fn what_cannot_be_read_is_named_by_file_row_and_column() {
        for (row, message) in [
            (
                json!({"chosen": "a", "rejected": "b"}),
                "row 1: column prompt is missing; expected text or a list",
            ),
            (
                json!({"prompt": "q", "chosen": "a"}),
                "row 1: column rejected is missing; expected an answer",
            ),
            (
                json!({"prompt": 3, "chosen": "a", "rejected": "b"}),
                "row 1: column prompt is 3; expected text",
            ),
            (
                json!({"prompt": "q", "chosen": 4, "rejected": "b"}),
                "row 1: column chosen is 4; expected an answer",
            ),
            (
                json!({"prompt": "q", "chosen": "a", "rejected": "b", "margin": "x"}),
                "row 1: column margin is \"x\"; expected a finite number",
            ),
            (
                json!({"prompt": "q", "chosen": [{"role": "user", "content": "x"}], "rejected": "b"}),
                "row 1: column chosen is messages of which none is the assistant's",
            ),
            (json!([1]), "row 1 is not a JSON object: it is [1]"),
        ] {
            let good = json!({"prompt": "q", "chosen": "a", "rejected": "b"});
            let (_folder, path) = file("a.jsonl", &format!("{good}\n{row}\n"));
            let error = read(&path).expect_err("no preference").to_string();
            assert!(error.starts_with(&path.display().to_string()), "{error}");
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn a_growing_file_gives_each_row_once_and_a_torn_line_when_it_is_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("labels.jsonl");
        let mut labels = Growing::new(&path);
        assert!(labels.news().expect("no file is no error").is_empty());
        let row =
            |chosen: &str| json!({"prompt": "q", "chosen": chosen, "rejected": "b"}).to_string();
        let append = |text: &str| {
            let mut options = std::fs::OpenOptions::new();
            let mut file = options
                .append(true)
                .create(true)
                .open(&path)
                .expect("a file");
            file.write_all(text.as_bytes()).expect("written");
        };
        let chosen = |news: Vec<Result<Preference, DataError>>| -> Vec<String> {
            news.into_iter()
                .map(|row| row.map_or_else(|error| error.to_string(), |row| row.chosen))
                .collect()
        };
        let torn = row("two");
        append(&format!("{}\n{}", row("one"), &torn[..10]));
        assert_eq!(read(&path).expect("the whole rows").len(), 1);
        assert_eq!(chosen(labels.news().expect("rows")), ["one"]);
        assert!(labels.news().expect("rows").is_empty());
        append(&torn[10..]);
        // Whole but for its end: to a reader of the whole file it counts.
        assert_eq!(read(&path).expect("the whole rows").len(), 2);
        assert!(labels.news().expect("rows").is_empty());
        append("\nnonsense\n");
        let news = chosen(labels.news().expect("rows"));
        assert_eq!(news[0], "two");
        assert!(news[1].contains("row 2 is not a JSON object"), "{news:?}");
        // What could not be read is passed over from then on.
        append(&format!("{}\n", row("three")));
        assert_eq!(chosen(labels.news().expect("rows")), ["three"]);
        std::fs::write(&path, format!("{}\n", row("anew"))).expect("written");
        assert_eq!(chosen(labels.news().expect("rows")), ["anew"]);
    }

    #[test]
    fn parquet_gives_the_same_rows_and_new_ones_once() {
        let rows = [
            json!({"prompt": "q", "chosen": "a", "rejected": "b", "margin": 1.5}),
            json!({"prompt": "r", "chosen": "c", "rejected": "d", "margin": null}),
        ];
        let (folder, path) = file("a.jsonl", &format!("{}\n{}\n", rows[0], rows[1]));
        let table = folder.path().join("a.parquet");
        let objects = rows.map(|row| row.as_object().expect("an object").clone());
        crate::data::write_parquet(&objects, &table).expect("written");
        let rows = read(&path).expect("lines");
        assert_eq!(read(&table).expect("a table"), rows);
        let mut growing = Growing::new(&table);
        assert_eq!(growing.news().expect("rows").len(), 2);
        assert!(growing.news().expect("rows").is_empty());
    }

    #[test]
    fn a_rated_answer_has_its_score_where_there_is_one() {
        let (_folder, path) = file(
            "a.jsonl",
            "{\"prompt\": \"q\", \"response\": \"a\", \"score\": 0.25}\n{\"prompt\": \"q\", \"response\": \"b\"}\n",
        );
        let scores: Vec<Option<f64>> = read_rated(&path)
            .expect("rows")
            .iter()
            .map(|row| row.score)
            .collect();
        assert_eq!(scores, [Some(0.25), None]);
        assert!(matches!(read_labels(&path), Ok(Labels::Rated(rows)) if rows.len() == 2));
    }
}

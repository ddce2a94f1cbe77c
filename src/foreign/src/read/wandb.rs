//! An offline run of W&B: `run-<id>.wandb`, a log of protobuf records in blocks. Field numbers are those of
//! `wandb_internal.proto`.

use std::fs::File;
use std::path::{Path, PathBuf};

use runlog::event::{Level, RunStatus};
use runlog::wire::proto::{Fields, NotAMessage, Value};
use runlog::wire::{Taken, blocks};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::notes::Said;
use super::{Reader, place_value, wandb_stats};
use crate::item::{Batch, Item, Moment, Row};
use crate::lines::read_at;
use crate::{ForeignError, number, yaml};

const CHUNK_BYTES: u64 = 1 << 20;
const MOST_BYTES_A_READ: u64 = 16 << 20;

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Place {
    /// Of the next record; 0: the head was not read yet.
    offset: u64,
    said: Said,
}

#[derive(Debug)]
pub struct Wandb {
    path: PathBuf,
    place: Place,
}

/// What the record `run` says.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct About {
    pub id: String,
    pub project: String,
    pub name: String,
    pub host: String,
    pub commit: String,
    pub started_s: Option<f64>,
    pub config: Map<String, Json>,
}

impl Wandb {
    pub fn new(path: PathBuf, place: Place) -> Self {
        Self { path, place }
    }

    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn record(&mut self, data: &[u8], items: &mut Vec<Item>) -> Result<(), NotAMessage> {
        for field in Fields::new(data) {
            let (field, value) = field?;
            match field {
                2 => self.history(bytes(value)?, items)?,
                5 => items.push(Item::Config(config(bytes(value)?)?)),
                7 => self.stats(bytes(value)?, items)?,
                10 => items.push(alert(bytes(value)?)?),
                4 | 13 => output(bytes(value)?, items)?,
                17 => {
                    let about = about(bytes(value)?)?;
                    items.push(Item::About {
                        host: Some(about.host).filter(|host| !host.is_empty()),
                        commit: Some(about.commit).filter(|commit| !commit.is_empty()),
                        command: Vec::new(),
                    });
                    if !about.config.is_empty() {
                        items.push(Item::Config(about.config));
                    }
                }
                18 => items.push(exit(bytes(value)?)?),
                _ => {}
            }
        }
        Ok(())
    }

    /// `HistoryRecord { item = 1, step = 2 { num = 1 } }`
    fn history(&mut self, data: &[u8], items: &mut Vec<Item>) -> Result<(), NotAMessage> {
        let mut row = Row::default();
        let mut has_step = false;
        for field in Fields::new(data) {
            match field? {
                (1, value) => {
                    let (key, json) = item(bytes(value)?)?;
                    match (key.as_str(), number::parse(&json)) {
                        ("_step", Some(step)) if !has_step => row.step = step.max(0.0) as u64,
                        ("_timestamp", Some(wall_s)) => row.at = Some(Moment::Wall(wall_s)),
                        (key, _) if key.starts_with('_') => {}
                        (_, Some(number)) => row.values.push((key, number)),
                        (_, None) => self.place.said.once_left_out(&key, &json, items),
                    }
                }
                (2, value) => {
                    has_step = true;
                    row.step = 0;
                    for field in Fields::new(bytes(value)?) {
                        if let (1, value) = field? {
                            row.step = value.integer().ok_or(NotAMessage)?.max(0) as u64;
                        }
                    }
                }
                _ => {}
            }
        }
        if !row.values.is_empty() {
            items.push(Item::Row(row));
        }
        Ok(())
    }

    /// `StatsRecord { timestamp = 2, item = 3 }`
    fn stats(&mut self, data: &[u8], items: &mut Vec<Item>) -> Result<(), NotAMessage> {
        let mut at = None;
        let mut numbers = Vec::new();
        for field in Fields::new(data) {
            match field? {
                (2, value) => at = Some(Moment::Wall(timestamp(bytes(value)?)?)),
                (3, value) => {
                    let (key, json) = item(bytes(value)?)?;
                    numbers.extend(number::parse(&json).map(|number| (key, number)));
                }
                _ => {}
            }
        }
        let (sample, has_others) = wandb_stats::sample(&numbers);
        if has_others {
            self.place.said.once("stats", items, || {
                "system metrics other than processor, memory and GPUs (disk, network, …) are left out".to_owned()
            });
        }
        if !sample.is_empty() {
            items.push(Item::Host { at, sample });
        }
        Ok(())
    }
}

impl Said {
    fn once_left_out(&mut self, key: &str, json: &str, items: &mut Vec<Item>) {
        let what = match json.as_bytes().first() {
            Some(b'"') => "it is text",
            Some(b't' | b'f') => "it is true or false",
            _ => "it is no number",
        };
        self.once(key, items, || format!("{key} is left out: {what}"));
    }
}

fn bytes(value: Value<'_>) -> Result<&[u8], NotAMessage> {
    value.bytes().ok_or(NotAMessage)
}

fn text(value: Value) -> Result<String, NotAMessage> {
    Ok(String::from_utf8_lossy(bytes(value)?).into_owned())
}

/// `{ key = 1, nested_key = 2, value_json = 16 }`; stats have their value in 16 too.
fn item(data: &[u8]) -> Result<(String, String), NotAMessage> {
    let (mut key, mut nested, mut json) = (String::new(), Vec::new(), String::new());
    for field in Fields::new(data) {
        match field? {
            (1, value) => key = text(value)?,
            (2, value) => nested.push(text(value)?),
            (16, value) => json = text(value)?,
            _ => {}
        }
    }
    if !nested.is_empty() {
        // As W&B itself names them.
        key = nested.join(".");
    }
    Ok((key, json))
}

/// `google.protobuf.Timestamp`, seconds since 1970.
fn timestamp(data: &[u8]) -> Result<f64, NotAMessage> {
    let mut seconds = 0.0;
    for field in Fields::new(data) {
        match field? {
            (1, value) => seconds += value.integer().ok_or(NotAMessage)? as f64,
            (2, value) => seconds += value.integer().ok_or(NotAMessage)? as f64 / 1e9,
            _ => {}
        }
    }
    Ok(seconds)
}

/// `ConfigRecord { update = 1 }`
fn config(data: &[u8]) -> Result<Map<String, Json>, NotAMessage> {
    let mut settings = Map::new();
    for field in Fields::new(data) {
        let (1, value) = field? else { continue };
        let (key, json) = item(bytes(value)?)?;
        // Its own book-keeping.
        if key == "_wandb" || key.starts_with("_wandb.") {
            continue;
        }
        let value = number::lenient_json(json.as_bytes()).unwrap_or(Json::String(json));
        let parts = key.split('.').rev();
        let nested = parts.fold(value, |value, part| {
            Json::Object([(part.to_owned(), value)].into_iter().collect())
        });
        if let Json::Object(update) = nested {
            yaml::merge(&mut settings, update);
        }
    }
    Ok(settings)
}

/// `RunRecord { run_id = 1, project = 3, config = 4, display_name = 8, host = 13, start_time = 17, git = 21 { commit = 2 } }`
fn about(data: &[u8]) -> Result<About, NotAMessage> {
    let mut about = About::default();
    for field in Fields::new(data) {
        match field? {
            (1, value) => about.id = text(value)?,
            (3, value) => about.project = text(value)?,
            (4, value) => about.config = config(bytes(value)?)?,
            (8, value) => about.name = text(value)?,
            (13, value) => about.host = text(value)?,
            (17, value) => about.started_s = Some(timestamp(bytes(value)?)?),
            (21, value) => {
                for field in Fields::new(bytes(value)?) {
                    if let (2, value) = field? {
                        about.commit = text(value)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(about)
}

/// `OutputRecord` and `OutputRawRecord { output_type = 1, timestamp = 2, line = 3 }`
fn output(data: &[u8], items: &mut Vec<Item>) -> Result<(), NotAMessage> {
    for field in Fields::new(data) {
        if let (3, value) = field? {
            items.push(Item::Output { text: text(value)? });
        }
    }
    Ok(())
}

/// `AlertRecord { title = 1, text = 2, level = 3 }`
fn alert(data: &[u8]) -> Result<Item, NotAMessage> {
    let (mut title, mut message, mut level) = (String::new(), String::new(), Level::Info);
    for field in Fields::new(data) {
        match field? {
            (1, value) => title = text(value)?,
            (2, value) => message = text(value)?,
            (3, value) => level = super::trackio::level(&text(value)?),
            _ => {}
        }
    }
    Ok(Item::Alert {
        at: None,
        title,
        text: message,
        level,
        step: None,
    })
}

/// `RunExitRecord { exit_code = 1, runtime = 2 }`
fn exit(data: &[u8]) -> Result<Item, NotAMessage> {
    let mut exit_code = 0;
    for field in Fields::new(data) {
        if let (1, value) = field? {
            exit_code = value.integer().ok_or(NotAMessage)? as i32;
        }
    }
    Ok(Item::Ended {
        at: None,
        status: if exit_code == 0 {
            RunStatus::Completed
        } else {
            RunStatus::Failed
        },
        exit_code,
        reason: format!("its process ended with exit code {exit_code}"),
    })
}

/// What the first records say; None: not there yet.
pub fn first_about(path: &Path) -> Option<About> {
    // Most settings are short; lists of runs ask this of each.
    [16 << 10, 64 << 10, CHUNK_BYTES]
        .into_iter()
        .find_map(|length| first_about_in(path, length))
}

fn first_about_in(path: &Path, length: u64) -> Option<About> {
    let bytes = read_at(&File::open(path).ok()?, 0, length).ok()?;
    let mut at = blocks::HEAD.len() as u64;
    if !bytes.starts_with(&blocks::HEAD) {
        return None;
    }
    for _ in 0..32 {
        match blocks::take(bytes.get(at as usize..)?, at) {
            Taken::Record { data, bytes } => {
                at += bytes;
                let run = Fields::new(&data).flatten().find(|(field, _)| *field == 17);
                if let Some((_, value)) = run {
                    return about(value.bytes()?).ok();
                }
            }
            Taken::Bad {
                bytes: Some(bytes), ..
            } => at += bytes,
            _ => return None,
        }
    }
    None
}

impl Reader for Wandb {
    fn read(&mut self, is_last: bool) -> Result<Batch, ForeignError> {
        let mut items = Vec::new();
        let io = |path: &Path| ForeignError::io("read", path);
        let file = File::open(&self.path).map_err(io(&self.path))?;
        let size = file.metadata().map_err(io(&self.path))?.len();
        // What follows a damaged block may not be written yet.
        if size + blocks::BLOCK < self.place.offset {
            self.place.offset = 0;
            items.push(Item::Note(format!(
                "{} became shorter: it is read from its start again",
                self.path.display()
            )));
        }
        if self.place.offset == 0 {
            let head = read_at(&file, 0, blocks::HEAD.len() as u64).map_err(io(&self.path))?;
            if !blocks::HEAD.starts_with(&head) {
                return Err(ForeignError::Content {
                    path: self.path.clone(),
                    reason: "it does not begin as a .wandb file does".to_owned(),
                });
            }
            if head.len() < blocks::HEAD.len() {
                return Ok(Batch::default());
            }
            self.place.offset = blocks::HEAD.len() as u64;
        }
        let end = self.place.offset + MOST_BYTES_A_READ;
        let mut want = CHUNK_BYTES;
        let mut has_more = true;
        while has_more && self.place.offset < end {
            let start = self.place.offset;
            let bytes = read_at(&file, start, want.min(size.saturating_sub(start)))
                .map_err(io(&self.path))?;
            want = CHUNK_BYTES;
            let mut at = 0_u64;
            loop {
                let rest = bytes.get(at as usize..).unwrap_or_default();
                match blocks::take(rest, start + at) {
                    Taken::Record { data, bytes } => {
                        if let Err(error) = self.record(&data, &mut items) {
                            items.push(Item::Note(format!(
                                "{}: byte {}: {error}",
                                self.name(),
                                start + at
                            )));
                        }
                        at += bytes;
                    }
                    Taken::Torn { needs } => {
                        has_more = start + at + needs <= size;
                        want = want.max(needs);
                        break;
                    }
                    Taken::Bad { reason, bytes } => {
                        let bytes = bytes.unwrap_or(1);
                        items.push(Item::Note(format!(
                            "{}: byte {}: {reason}; {bytes} bytes are left out",
                            self.name(),
                            start + at
                        )));
                        at += bytes;
                    }
                }
            }
            self.place.offset = start + at;
        }
        if is_last && !has_more && size > self.place.offset {
            items.push(Item::Note(format!(
                "{}: the last {} bytes are no whole record yet and are left out",
                self.name(),
                size - self.place.offset
            )));
        }
        Ok(Batch { items, has_more })
    }

    fn place(&self) -> Json {
        place_value(&self.place)
    }
}

//! A `TensorBoard` run: a directory's event files, merged by time as they grow.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use runlog::wire::Taken;
use runlog::wire::records;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::notes::Said;
use super::tensorboard_value::{Content, Event, TagValue, hparams};
use super::{Reader, place_value};
use crate::ForeignError;
use crate::item::{Batch, Item, Moment, Row};
use crate::lines::read_at;

const CHUNK_BYTES: u64 = 1 << 20;
/// Events given in one read.
const MOST_EVENTS: usize = 10_000;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct FilePlace {
    offset: u64,
    /// Nothing after this can be found.
    #[serde(default)]
    is_broken: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Place {
    files: BTreeMap<String, FilePlace>,
    /// The plugin of each tag that named one.
    plugins: BTreeMap<String, String>,
    said: Said,
}

#[derive(Debug)]
pub struct TensorBoard {
    /// A directory, or one file.
    path: PathBuf,
    place: Place,
    /// Read and not yet given, with the offset after each.
    ahead: BTreeMap<String, VecDeque<(Event, u64)>>,
}

impl TensorBoard {
    pub fn new(path: PathBuf, place: Place) -> Self {
        Self {
            path,
            place,
            ahead: BTreeMap::new(),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        if self.path.is_dir() {
            self.path.join(name)
        } else {
            self.path.clone()
        }
    }

    /// Reads a piece of a file where none of it waits.
    fn fill(&mut self, name: &str, items: &mut Vec<Item>) -> Result<(), ForeignError> {
        let path = self.file(name);
        let place = self.place.files.entry(name.to_owned()).or_default();
        let ahead = self.ahead.entry(name.to_owned()).or_default();
        if !ahead.is_empty() || place.is_broken {
            return Ok(());
        }
        let io = || ForeignError::io("read", &path);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(io()(error)),
        };
        let size = file.metadata().map_err(io())?.len();
        let mut want = CHUNK_BYTES;
        loop {
            let start = place.offset;
            let bytes = read_at(&file, start, want.min(size.saturating_sub(start))).map_err(io())?;
            let mut at = 0_u64;
            loop {
                match records::take(&bytes[at as usize..]) {
                    Taken::Record { data, bytes } => {
                        at += bytes;
                        match Event::parse(data) {
                            Ok(event) => ahead.push_back((event, start + at)),
                            Err(error) => {
                                items.push(Item::Note(format!(
                                    "{name}: byte {}: {error}",
                                    start + at - bytes
                                )));
                            }
                        }
                    }
                    Taken::Torn { needs } => {
                        let is_there = start + at + needs <= size;
                        if ahead.is_empty() {
                            // Nothing but notes before it.
                            place.offset = start + at;
                            if is_there {
                                want = needs.max(CHUNK_BYTES);
                                break;
                            }
                        }
                        return Ok(());
                    }
                    Taken::Bad { reason, bytes } => {
                        let left = if let Some(bytes) = bytes {
                            at += bytes;
                            format!("{bytes} bytes are left out")
                        } else {
                            place.is_broken = true;
                            format!("the {} bytes from there are left out", size - start - at)
                        };
                        let broken_at = start + at - bytes.unwrap_or(0);
                        items.push(Item::Note(format!(
                            "{name}: byte {broken_at}: {reason}; {left}"
                        )));
                        if bytes.is_none() {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    fn give(&mut self, event: Event, items: &mut Vec<Item>) {
        let Ok(step) = u64::try_from(event.step) else {
            self.place.said.once("negative steps", items, || {
                format!(
                    "values at step {} are left out: steps count from 0",
                    event.step
                )
            });
            return;
        };
        if event.is_restart {
            items.push(Item::Restart { at_step: step });
        }
        let at = Some(Moment::Wall(event.wall_s))
            .filter(|_| event.wall_s.is_finite() && event.wall_s > 0.0);
        let mut row = Row {
            step,
            at,
            values: Vec::new(),
        };
        for value in event.values {
            self.value(value, step, &mut row, items);
        }
        if !row.values.is_empty() {
            items.push(Item::Row(row));
        }
    }

    fn value(&mut self, value: TagValue, step: u64, row: &mut Row, items: &mut Vec<Item>) {
        let TagValue {
            tag,
            content,
            plugin,
            plugin_content,
        } = value;
        if let Some(plugin) = &plugin {
            let known = self.place.plugins.entry(tag.clone()).or_default();
            known.clone_from(plugin);
        }
        let plugin = self.place.plugins.get(&tag).map_or("", String::as_str);
        match content {
            Content::Scalar(number) => row.values.push((tag, number)),
            Content::Tensor(number) if plugin == "scalars" => row.values.push((tag, number)),
            Content::Text(texts) if plugin == "text" => {
                let tag = tag.strip_suffix("/text_summary").unwrap_or(&tag);
                items.push(Item::Output {
                    text: format!("{tag} (step {step}): {}\n", texts.join("\n")),
                });
            }
            _ if plugin == "hparams" => {
                if tag == "_hparams_/session_start_info" {
                    match hparams(&plugin_content) {
                        Ok(settings) => items.push(Item::Config(settings)),
                        Err(error) => items.push(Item::Note(format!("{tag}: left out: {error}"))),
                    }
                }
            }
            Content::Nothing => {}
            content => self.place.said.once(&tag, items, || {
                let what = match (&content, plugin) {
                    (Content::Other(what), "") => *what,
                    (Content::Text(_), "") => "text that no plugin claims",
                    (_, "") => "a tensor that no plugin claims",
                    (_, plugin) => plugin,
                };
                format!("tag {tag} is left out: it is no scalar ({what})")
            }),
        }
    }
}

/// Names of a run's event files, oldest first: they begin with their time.
pub fn event_files(path: &Path) -> std::io::Result<Vec<String>> {
    if !path.is_dir() {
        let name = path.file_name().unwrap_or_default();
        return Ok(vec![name.to_string_lossy().into_owned()]);
    }
    let mut names: Vec<String> = std::fs::read_dir(path)?
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_event_file(name))
        .collect();
    names.sort_unstable();
    Ok(names)
}

pub fn is_event_file(name: &str) -> bool {
    // The profiler's files hold no scalars.
    name.contains("tfevents") && !name.ends_with(".profile-empty")
}

/// Wall time of the first event, seconds since 1970.
pub fn started_s(path: &Path) -> Option<f64> {
    let first = event_files(path).ok()?.into_iter().next()?;
    let path = if path.is_dir() {
        path.join(first)
    } else {
        path.to_owned()
    };
    let bytes = read_at(&File::open(path).ok()?, 0, 4096).ok()?;
    match records::take(&bytes) {
        Taken::Record { data, .. } => {
            let wall_s = Event::parse(data).ok()?.wall_s;
            (wall_s > 0.0 && wall_s.is_finite()).then_some(wall_s)
        }
        _ => None,
    }
}

impl Reader for TensorBoard {
    fn read(&mut self, is_last: bool) -> Result<Batch, ForeignError> {
        let mut items = Vec::new();
        let names = event_files(&self.path).map_err(ForeignError::io("list", &self.path))?;
        for given in 0.. {
            for name in &names {
                self.fill(name, &mut items)?;
            }
            let heads = self.ahead.iter().filter_map(|(name, events)| {
                let (event, _) = events.front()?;
                Some((event.wall_s, name))
            });
            // The oldest; of equals the first file's.
            let next = heads
                .min_by(|a, b| a.0.total_cmp(&b.0))
                .map(|(_, name)| name.clone());
            let Some(name) = next else {
                break;
            };
            if given == MOST_EVENTS {
                return Ok(Batch {
                    items,
                    has_more: true,
                });
            }
            let Some((event, offset)) = self.ahead.get_mut(&name).and_then(VecDeque::pop_front)
            else {
                break;
            };
            if let Some(place) = self.place.files.get_mut(&name) {
                place.offset = offset;
            }
            self.give(event, &mut items);
        }
        if is_last {
            for (name, place) in &self.place.files {
                let size = self
                    .file(name)
                    .metadata()
                    .map_or(0, |metadata| metadata.len());
                if !place.is_broken && size > place.offset {
                    items.push(Item::Note(format!(
                        "{name}: the last {} bytes are no whole record yet and are left out",
                        size - place.offset
                    )));
                }
            }
        }
        Ok(Batch {
            items,
            has_more: false,
        })
    }

    fn place(&self) -> Value {
        place_value(&self.place)
    }
}

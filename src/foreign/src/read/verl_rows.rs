//! Rows of verl's `file` logger: `{"step": 12, "data": {"actor/pg_loss": 0.01, …}}`, NaN as `null` (or `"NaN"`, as Lathe writes it).
//!
//! verl writes the file anew at each start. What was read before stays, and the rows of steps that are trained again win.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::notes::Said;
use super::{Reader, place_value};
use crate::ForeignError;
use crate::item::{Batch, Item, Row};
use crate::lines::{LineFile, LinePlace};
use crate::number;

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Place {
    lines: LinePlace,
    said: Said,
}

#[derive(Debug)]
pub struct VerlRows {
    file: LineFile,
    said: Said,
}

impl VerlRows {
    pub fn new(path: PathBuf, place: Place) -> Self {
        Self {
            file: LineFile::new(path, place.lines),
            said: place.said,
        }
    }
}

/// Step and values of a line; the values may be no numbers.
pub fn parse(line: &[u8]) -> Result<(u64, serde_json::Map<String, Value>), String> {
    let value = number::lenient_json(line).map_err(|error| format!("no JSON: {error}"))?;
    let Value::Object(mut row) = value else {
        return Err("no object".to_owned());
    };
    let step = row
        .get("step")
        .and_then(as_step)
        .ok_or("no step that counts from 0")?;
    match row.remove("data") {
        Some(Value::Object(data)) => Ok((step, data)),
        _ => Err("no data".to_owned()),
    }
}

/// A step: a whole number that is not negative, also where it is written `12.0`.
pub fn as_step(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let float = value.as_f64()?;
        (float >= 0.0 && float.fract() == 0.0 && float < 9e15).then_some(float as u64)
    })
}

impl Reader for VerlRows {
    fn read(&mut self, is_last: bool) -> Result<Batch, ForeignError> {
        let lines = self.file.read(is_last)?;
        let mut items = Vec::new();
        if lines.is_new_file {
            items.push(Item::Note(format!(
                "{} was written anew, as verl does at each start: its first rows follow",
                self.file.path().display()
            )));
        }
        for (number, line) in &lines.numbered {
            if line.trim_ascii().is_empty() {
                continue;
            }
            match parse(line) {
                Ok((step, data)) => {
                    let mut row = Row {
                        step,
                        ..Row::default()
                    };
                    for (name, value) in data {
                        // orjson has no NaN: verl's null is one.
                        let found = match &value {
                            Value::Null => Some(f64::NAN),
                            value => number::of_json(value),
                        };
                        match found {
                            Some(found) => row.values.push((name, found)),
                            None => self.said.once(&name, &mut items, || {
                                format!(
                                    "{}: {name} is left out: it is no number",
                                    self.file.name_of_line(*number)
                                )
                            }),
                        }
                    }
                    items.push(Item::Row(row));
                }
                Err(reason) => items.push(Item::Note(format!(
                    "{}: left out: {reason}",
                    self.file.name_of_line(*number)
                ))),
            }
        }
        Ok(self.file.batch(items, &lines, is_last))
    }

    fn place(&self) -> Value {
        place_value(&Place {
            lines: self.file.place.clone(),
            said: self.said.clone(),
        })
    }
}

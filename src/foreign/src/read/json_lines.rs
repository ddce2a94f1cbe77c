//! JSON lines in general: an object a row. Numbers within objects are named by their path, `a/b`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::notes::Said;
use super::verl_rows::as_step;
use super::{Reader, place_value};
use crate::item::{Batch, Item, Moment, Row};
use crate::lines::{LineFile, LinePlace};
use crate::{ForeignError, Options, number};

/// Names under which steps go, the surest first.
pub const STEP_NAMES: [&str; 12] = [
    "step",
    "_step",
    "global_step",
    "training/global_step",
    "trainer/global_step",
    "train/global_step",
    "steps",
    "iteration",
    "iter",
    "update",
    "episode",
    "epoch",
];
/// Names under which times go.
pub const TIME_NAMES: [&str; 11] = [
    "_timestamp",
    "timestamp",
    "wall_time",
    "wall time",
    "walltime",
    "time",
    "ts",
    "datetime",
    "date",
    "elapsed_s",
    "_runtime",
];

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Place {
    lines: LinePlace,
    said: Said,
    rows: u64,
}

#[derive(Debug)]
pub struct JsonLines {
    file: LineFile,
    said: Said,
    rows: u64,
    step_column: Option<String>,
    time_column: Option<String>,
}

impl JsonLines {
    pub fn new(path: PathBuf, options: &Options, place: Place) -> Self {
        Self {
            file: LineFile::new(path, place.lines),
            said: place.said,
            rows: place.rows,
            step_column: options.step_column.clone(),
            time_column: options.time_column.clone(),
        }
    }

    fn row(&mut self, line: u64, object: Map<String, Value>, items: &mut Vec<Item>) {
        let mut leaves = Vec::new();
        flatten("", object, &mut leaves);
        let step = place_among(&leaves, self.step_column.as_deref(), &STEP_NAMES);
        let time = place_among(&leaves, self.time_column.as_deref(), &TIME_NAMES);
        let mut row = Row {
            step: self.rows,
            ..Row::default()
        };
        self.rows += 1;
        match step.map(|step| (&leaves[step], as_step(&leaves[step].1))) {
            Some((_, Some(step))) => row.step = step,
            Some(((name, value), None)) => {
                items.push(Item::Note(format!(
                    "{}: left out: {name} is {value}, which is no step",
                    self.file.name_of_line(line)
                )));
                return;
            }
            None => self.said.once("no step", items, || {
                let asked = match &self.step_column {
                    Some(name) => format!("there is no {name}"),
                    None => {
                        "no column is called as steps are; name one with --step-column".to_owned()
                    }
                };
                format!(
                    "{}: {asked}: rows are counted instead",
                    self.file.name_of_line(line)
                )
            }),
        }
        if let Some(time) = time {
            row.at = moment(&leaves[time].1);
        }
        for (place, (name, value)) in leaves.into_iter().enumerate() {
            if Some(place) == step || Some(place) == time {
                continue;
            }
            match number::of_json(&value) {
                Some(number) => row.values.push((name, number)),
                // A value that is missing is no value.
                None if value.is_null() => {}
                None => self.said.once(&name, items, || {
                    format!(
                        "{}: {name} is left out: it is no number",
                        self.file.name_of_line(line)
                    )
                }),
            }
        }
        items.push(Item::Row(row));
    }
}

/// The column that is asked for, else the first of the known names.
fn place_among(leaves: &[(String, Value)], wanted: Option<&str>, known: &[&str]) -> Option<usize> {
    let find = |wanted: &str| {
        leaves
            .iter()
            .position(|(name, _)| name.eq_ignore_ascii_case(wanted))
    };
    match wanted {
        Some(wanted) => find(wanted),
        None => known.iter().find_map(|name| find(name)),
    }
}

fn moment(value: &Value) -> Option<Moment> {
    match value {
        Value::Number(number) => number::moment_of_number(number.as_f64()?),
        Value::String(text) => number::moment(text),
        _ => None,
    }
}

/// `{"a": {"b": 1}}` as `a/b`. Lists stay as they are, and are no numbers.
pub fn flatten(prefix: &str, object: Map<String, Value>, leaves: &mut Vec<(String, Value)>) {
    for (key, value) in object {
        let name = if prefix.is_empty() {
            key
        } else {
            format!("{prefix}/{key}")
        };
        match value {
            Value::Object(inner) => flatten(&name, inner, leaves),
            value => leaves.push((name, value)),
        }
    }
}

impl Reader for JsonLines {
    fn read(&mut self, is_last: bool) -> Result<Batch, ForeignError> {
        let lines = self.file.read(is_last)?;
        let mut items = Vec::new();
        if lines.is_new_file {
            self.rows = 0;
            items.push(Item::Note(format!(
                "{} was written anew: its first rows follow",
                self.file.path().display()
            )));
        }
        for &(number, ref line) in &lines.numbered {
            if line.trim_ascii().is_empty() {
                continue;
            }
            match number::lenient_json(line) {
                Ok(Value::Object(object)) => self.row(number, object, &mut items),
                Ok(_) => items.push(Item::Note(format!(
                    "{}: left out: no object",
                    self.file.name_of_line(number)
                ))),
                Err(error) => items.push(Item::Note(format!(
                    "{}: left out: no JSON: {error}",
                    self.file.name_of_line(number)
                ))),
            }
        }
        Ok(self.file.batch(items, &lines, is_last))
    }

    fn place(&self) -> Value {
        place_value(&Place {
            lines: self.file.place.clone(),
            said: self.said.clone(),
            rows: self.rows,
        })
    }
}

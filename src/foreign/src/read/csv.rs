//! Comma-, semicolon- or tab-separated values with a header: a column a metric, or the columns name and value.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json_lines::{STEP_NAMES, TIME_NAMES};
use super::notes::Said;
use super::{Reader, place_value};
use crate::item::{Batch, Item, Row};
use crate::lines::{LineFile, LinePlace, Lines};
use crate::{ForeignError, Options, number};

/// Columns that name the metric of a row, in tables of one value a row.
const NAME_NAMES: [&str; 5] = ["metric", "name", "tag", "key", "series"];

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    separator: char,
    columns: Vec<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Place {
    lines: LinePlace,
    said: Said,
    rows: u64,
    header: Option<Header>,
}

#[derive(Debug)]
pub struct Csv {
    file: LineFile,
    said: Said,
    rows: u64,
    header: Option<Header>,
    step_column: Option<String>,
    time_column: Option<String>,
}

/// Which column is what.
#[derive(Debug, Clone, Copy)]
struct Columns {
    step: Option<usize>,
    time: Option<usize>,
    /// Of a table of one value a row: (name, value).
    long: Option<(usize, usize)>,
}

impl Csv {
    pub fn new(path: PathBuf, options: &Options, place: Place) -> Self {
        Self {
            file: LineFile::new(path, place.lines),
            said: place.said,
            rows: place.rows,
            header: place.header,
            step_column: options.step_column.clone(),
            time_column: options.time_column.clone(),
        }
    }

    fn columns(&self, header: &Header) -> Result<Columns, ForeignError> {
        let find = |wanted: &str| {
            let fits = |name: &String| name.eq_ignore_ascii_case(wanted);
            header.columns.iter().position(fits)
        };
        let among = |asked: Option<&String>, known: &[&str]| {
            let Some(asked) = asked else {
                return Ok(known.iter().find_map(|name| find(name)));
            };
            let column = find(asked).ok_or_else(|| ForeignError::NoColumn {
                path: self.file.path().to_owned(),
                wanted: asked.clone(),
                count: header.columns.len(),
                columns: header.columns.clone(),
            })?;
            Ok::<_, ForeignError>(Some(column))
        };
        let name = NAME_NAMES.iter().find_map(|name| find(name));
        Ok(Columns {
            step: among(self.step_column.as_ref(), &STEP_NAMES)?,
            time: among(self.time_column.as_ref(), &TIME_NAMES)?,
            long: name.zip(find("value")),
        })
    }

    fn row(
        &mut self,
        line: u64,
        cells: &[String],
        header: &Header,
        columns: Columns,
        items: &mut Vec<Item>,
    ) {
        let place = self.file.name_of_line(line);
        if cells.len() != header.columns.len() {
            items.push(Item::Note(format!(
                "{place}: left out: {} cells where the header has {}",
                cells.len(),
                header.columns.len()
            )));
            return;
        }
        let mut row = Row {
            step: self.rows,
            ..Row::default()
        };
        self.rows += 1;
        match columns.step {
            None => self.said.once("no step", items, || {
                format!("{place}: no column is called as steps are, so rows are counted; name one with --step-column")
            }),
            Some(column) => {
                let Some(step) = step(&cells[column]) else {
                    items.push(Item::Note(format!(
                        "{place}: left out: {} is `{}`, which is no step",
                        header.columns[column], cells[column]
                    )));
                    return;
                };
                row.step = step;
            }
        }
        row.at = columns
            .time
            .and_then(|column| number::moment(&cells[column]));
        let mut put = |name: &str, cell: &str| match number::parse(cell) {
            Some(number) => row.values.push((name.to_owned(), number)),
            None if cell.trim().is_empty() => {}
            None => self.said.once(name, items, || {
                format!("{place}: {name} is left out: `{cell}` is no number")
            }),
        };
        if let Some((name, value)) = columns.long {
            put(&cells[name], &cells[value]);
        } else {
            for (column, cell) in cells.iter().enumerate() {
                if Some(column) != columns.step && Some(column) != columns.time {
                    put(&header.columns[column], cell);
                }
            }
        }
        items.push(Item::Row(row));
    }

    fn rows(&mut self, lines: Lines, items: &mut Vec<Item>) -> Result<(), ForeignError> {
        if lines.is_new_file {
            self.rows = 0;
            self.header = None;
            items.push(Item::Note(format!(
                "{} was written anew: its first rows follow",
                self.file.path().display()
            )));
        }
        let mut columns = None;
        for (number, line) in lines.numbered {
            let text = String::from_utf8_lossy(&line);
            if text.trim().is_empty() {
                continue;
            }
            let Some(header) = self.header.clone() else {
                self.header = Some(header_of(text.trim_start_matches('\u{feff}')));
                continue;
            };
            let columns = match columns {
                Some(columns) => columns,
                None => *columns.insert(self.columns(&header)?),
            };
            match cells(&text, header.separator) {
                Some(cells) => self.row(number, &cells, &header, columns, items),
                None => items.push(Item::Note(format!(
                    "{}: left out: a quote does not end on its line",
                    self.file.name_of_line(number)
                ))),
            }
        }
        Ok(())
    }
}

fn step(cell: &str) -> Option<u64> {
    let cell = cell.trim();
    cell.parse().ok().or_else(|| {
        let float: f64 = cell.parse().ok()?;
        (float >= 0.0 && float.fract() == 0.0 && float < 9e15).then_some(float as u64)
    })
}

/// The separator that cuts a header into the most names.
fn header_of(line: &str) -> Header {
    let mut best = Header {
        separator: ',',
        columns: Vec::new(),
    };
    for separator in [',', '\t', ';'] {
        let columns = cells(line, separator).unwrap_or_default();
        if columns.len() > best.columns.len() {
            best = Header { separator, columns };
        }
    }
    for column in &mut best.columns {
        *column = column.trim().to_owned();
    }
    best
}

/// The cells of a line, quotes taken off; None: a quote does not end.
fn cells(line: &str, separator: char) -> Option<Vec<String>> {
    let mut cells = vec![String::new()];
    let mut chars = line.chars().peekable();
    let mut is_quoted = false;
    while let Some(c) = chars.next() {
        let cell = cells.last_mut().expect("there is always a last cell");
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' if is_quoted => is_quoted = false,
            '"' if cell.trim().is_empty() => is_quoted = true,
            c if c == separator && !is_quoted => cells.push(String::new()),
            c => cell.push(c),
        }
    }
    (!is_quoted).then_some(cells)
}

/// True: the first lines of a file look like a table of numbers.
pub fn looks_like(first_lines: &[&str]) -> bool {
    let Some((first, rest)) = first_lines.split_first() else {
        return false;
    };
    let header = header_of(first.trim_start_matches('\u{feff}'));
    let names = header
        .columns
        .iter()
        .all(|name| !name.is_empty() && number::parse(name).is_none());
    let has_numbers = |line: &&str| {
        cells(line, header.separator).is_some_and(|cells| {
            cells.len() == header.columns.len()
                && cells.iter().any(|cell| number::parse(cell).is_some())
        })
    };
    header.columns.len() > 1 && names && rest.first().is_none_or(has_numbers)
}

/// True: the name says so.
pub fn is_named(path: &Path) -> bool {
    path.extension().is_some_and(|extension| {
        extension.eq_ignore_ascii_case("csv") || extension.eq_ignore_ascii_case("tsv")
    })
}

impl Reader for Csv {
    fn read(&mut self, is_last: bool) -> Result<Batch, ForeignError> {
        let lines = self.file.read(is_last)?;
        let (has_more, has_torn) = (lines.has_more, lines.has_torn);
        let mut items = Vec::new();
        self.rows(lines, &mut items)?;
        if is_last && has_torn {
            items.push(Item::Note(format!(
                "{}: left out: the line has no end yet, so its last number may be cut; add a line end, or import again in a minute",
                self.file.name_of_line(self.file.place.line + 1)
            )));
        }
        Ok(Batch { items, has_more })
    }

    fn place(&self) -> Value {
        place_value(&Place {
            lines: self.file.place.clone(),
            said: self.said.clone(),
            rows: self.rows,
            header: self.header.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_cut_as_spreadsheets_cut_them() {
        assert_eq!(
            cells(r#"1,"a, ""b""",,x"#, ',').unwrap(),
            ["1", "a, \"b\"", "", "x"]
        );
        assert_eq!(cells("\"open", ','), None);
        assert_eq!(header_of("a;b,c;d").separator, ';');
    }

    #[test]
    fn a_table_is_known_by_its_header_and_numbers() {
        assert!(looks_like(&["step,loss", "1,0.5"]));
        assert!(looks_like(&["step\tloss"]));
        assert!(!looks_like(&["1,2", "3,4"]));
        assert!(!looks_like(&["Dear sir, hello", "how are you, sir"]));
        assert!(!looks_like(&["one column", "1"]));
    }
}

//! What verl prints: `step:12 - actor/pg_loss:0.01 - …` once a step, among all else that its processes say.
//!
//! Ray puts `(TaskRunner pid=77)` before lines of its workers, progress bars share a line with them, and `NumPy`'s numbers are
//! printed as `np.float64(0.5)`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Reader, place_value};
use crate::ForeignError;
use crate::item::{Batch, Item, Row};
use crate::lines::{LineFile, LinePlace};
use crate::number;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Place(LinePlace);

#[derive(Debug)]
pub struct VerlConsole {
    file: LineFile,
}

impl VerlConsole {
    pub fn new(path: PathBuf, place: Place) -> Self {
        Self {
            file: LineFile::new(path, place.0),
        }
    }
}

/// Step, values, and the parts that are neither.
pub type StepLine = (u64, Vec<(String, f64)>, Vec<String>);

/// What a line of metrics says, and the parts of it that cannot be read. None: another line.
pub fn step_line(line: &str) -> Option<StepLine> {
    line.rmatch_indices("step:")
        .find_map(|(start, _)| step_line_at(line, start))
}

fn step_line_at(line: &str, start: usize) -> Option<StepLine> {
    // Not the end of a metric's name: global_step:12.
    if line[..start].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '/' | '-' | '.'))
    {
        return None;
    }
    let mut parts = line[start..].trim_end().split(" - ");
    let step = parts.next()?.strip_prefix("step:")?.parse().ok()?;
    let mut values: Vec<(String, f64)> = Vec::new();
    let mut odd = Vec::new();
    for part in parts {
        let read = part
            .rsplit_once(':')
            .filter(|(name, _)| !name.is_empty() && !name.contains(char::is_whitespace))
            .and_then(|(name, value)| Some((name.to_owned(), number::parse(value)?)));
        match read {
            Some(read) => values.push(read),
            None => odd.push(part.to_owned()),
        }
    }
    // A sentence may begin with step:3 too.
    (!values.is_empty()).then_some((step, values, odd))
}

/// Without escape sequences of terminals.
fn without_escapes(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            out.push(c);
            continue;
        }
        // CSI: up to its final byte; other sequences are of one character.
        if chars.next() == Some('[') {
            chars.find(|c| ('@'..='~').contains(c));
        }
    }
    out
}

impl Reader for VerlConsole {
    fn read(&mut self, is_last: bool) -> Result<Batch, ForeignError> {
        let lines = self.file.read(is_last)?;
        let mut items = Vec::new();
        for (number, line) in &lines.numbered {
            let text = String::from_utf8_lossy(line);
            if let Some((step, values, odd)) = step_line(&without_escapes(&text)) {
                items.push(Item::Row(Row {
                    step,
                    at: None,
                    values,
                }));
                for part in odd {
                    items.push(Item::Note(format!(
                        "{}: left out: `{}` is no metric with a number",
                        self.file.name_of_line(*number),
                        part.chars().take(80).collect::<String>()
                    )));
                }
            }
            items.push(Item::Output {
                text: format!("{text}\n"),
            });
        }
        Ok(self.file.batch(items, &lines, is_last))
    }

    fn place(&self) -> Value {
        place_value(&Place(self.file.place.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_metrics_are_known_among_others() {
        let of = |line: &str| step_line(&without_escapes(line));
        let (step, values, odd) =
            of("\u{1b}[36m(TaskRunner pid=77)\u{1b}[0m step:12 - actor/pg_loss:-1e-05 - a/b:np.float64(0.5)").unwrap();
        assert_eq!((step, odd.len()), (12, 0));
        assert_eq!(
            values,
            [("actor/pg_loss".to_owned(), -1e-5), ("a/b".to_owned(), 0.5)]
        );
        let (step, values, _) =
            of("Training Progress:   1%|▏| 5/435 [00:00<?, ?it/s]step:5 - training/global_step:5 - x:nan").unwrap();
        assert_eq!((step, values.len()), (5, 2));
        let (_, values, odd) =
            of("step:3 - actor/lr:1e-6 - actor/entr(WorkerDict pid=3) hello").unwrap();
        assert_eq!((values.len(), odd.len()), (1, 1));
        for other in [
            "step:3",
            "step: 3 - a:1",
            "training/global_step:3 - a:1",
            "step:x - a:1",
            "step:3 - of many",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}

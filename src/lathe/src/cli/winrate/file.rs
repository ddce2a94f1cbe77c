//! Preferences from a file: one row a prompt, of one model or of several.

use std::path::Path;

use dialogue::data::Table;
use evaluation::preferences::Preference;
use serde_json::{Map, Value};

use super::Preferences;
use crate::cli::Failure;

type Fields = Map<String, Value>;

/// The preferences of each model in the file, in the order in which they come.
pub(super) fn read(path: &Path) -> Result<Vec<Preferences>, Failure> {
    let told = |error: &dyn std::fmt::Display| Failure::input(error.to_string());
    let table = Table::open_whole(path).map_err(|error| told(&error))?;
    let mut rows: Vec<(u64, Fields)> = Vec::new();
    for row in table.scan_json().map_err(|error| told(&error))? {
        rows.push(row.map_err(|error| told(&error))?);
    }
    // AlpacaEval writes 1 (the reference is better) to 2 (the model is); 0 stands for a draw there.
    let is_alpaca = rows
        .iter()
        .any(|(_, row)| row.get("preference").and_then(Value::as_f64) > Some(1.0));
    let mut all: Vec<Preferences> = Vec::new();
    for (at, row) in &rows {
        let name =
            text(row, &["model", "generator_2"]).unwrap_or_else(|| path.display().to_string());
        let known = all.iter().position(|one| one.model == name);
        let known = known.unwrap_or_else(|| {
            all.push(Preferences {
                model: name,
                reference: text(row, &["reference", "generator_1"]).unwrap_or_default(),
                judge: text(row, &["annotator", "judge"])
                    .unwrap_or_else(|| path.display().to_string()),
                found: Vec::new(),
                missing: 0,
            });
            all.len() - 1
        });
        match preference(row, is_alpaca) {
            Ok(Some(found)) => all[known].found.push(found),
            Ok(None) => all[known].missing += 1,
            Err(problem) => {
                return Err(Failure::input(format!(
                    "{}: row {at}: {problem}",
                    path.display()
                )));
            }
        }
    }
    if all.is_empty() {
        return Err(Failure::input(format!(
            "{}: it has no rows",
            path.display()
        )));
    }
    Ok(all)
}

fn text(row: &Fields, names: &[&str]) -> Option<String> {
    let found = names.iter().find_map(|name| row.get(*name)?.as_str());
    found.map(str::to_owned)
}

/// None: the judge gave none.
fn preference(row: &Fields, is_alpaca: bool) -> Result<Option<Preference>, String> {
    let raw = match row.get("preference") {
        None | Some(Value::Null) => return Ok(None),
        Some(raw) => raw.as_f64().ok_or_else(|| {
            format!("preference is {raw}; expected a number, 1 where the model's answer is better")
        })?,
    };
    let (low, high) = if is_alpaca { (1.0, 2.0) } else { (0.0, 1.0) };
    let model_wins = if is_alpaca && raw == 0.0 {
        0.5
    } else if (low..=high).contains(&raw) {
        raw - low
    } else {
        return Err(format!(
            "preference is {raw}; expected {low} to {high}, as the other rows have it"
        ));
    };
    let length = |number: &str, answer: &str| {
        row.get(number)
            .and_then(Value::as_f64)
            .or_else(|| Some(row.get(answer)?.as_str()?.chars().count() as f64))
            .filter(|length| length.is_finite() && *length >= 0.0)
            .ok_or_else(|| format!("it has no {number} (a length), and no {answer} (the answer)"))
    };
    Ok(Some(Preference {
        model_wins,
        model_length: length("len_model", "output_2")?,
        reference_length: length("len_reference", "output_1")?,
        difficulty: ["difficulty", "instruction_difficulty"]
            .iter()
            .find_map(|name| row.get(*name)?.as_f64()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(rows: &[&str]) -> (tempfile::TempDir, std::path::PathBuf) {
        let root = tempfile::tempdir().expect("a temporary directory");
        let path = root.path().join("preferences.jsonl");
        std::fs::write(&path, rows.join("\n")).expect("writable");
        (root, path)
    }

    #[test]
    fn both_scales_are_read_by_model_and_what_has_no_preference_is_counted() {
        let (_root, path) = written(&[
            r#"{"model":"a","preference":1.25,"len_model":10,"len_reference":20}"#,
            r#"{"model":"b","preference":2,"output_2":"abc","output_1":"é"}"#,
            r#"{"model":"a","preference":0,"len_model":10,"len_reference":20}"#,
            r#"{"model":"a","preference":null,"len_model":10,"len_reference":20}"#,
        ]);
        let all = read(&path).expect("preferences");
        let found = |at: usize| {
            all[at]
                .found
                .iter()
                .map(|one| one.model_wins)
                .collect::<Vec<_>>()
        };
        assert_eq!((all.len(), all[0].missing, all[1].missing), (2, 1, 0));
        assert_eq!((found(0), found(1)), (vec![0.25, 0.5], vec![1.0]));
        assert_eq!(all[1].found[0].model_length, 3.0);
        assert_eq!(
            all[1].found[0].reference_length, 1.0,
            "characters, not bytes"
        );
        let (_root, path) = written(&[r#"{"preference":0.25,"len_model":1,"len_reference":1}"#]);
        assert_eq!(
            read(&path).expect("preferences")[0].found[0].model_wins,
            0.25
        );
    }

    #[test]
    fn a_parquet_file_reads_as_its_json_lines_do() {
        let (root, path) = written(&[
            r#"{"model":"a","preference":1.25,"len_model":10,"len_reference":20,"difficulty":0.5}"#,
            r#"{"model":"a","preference":2.0,"len_model":30,"len_reference":25,"difficulty":-1.0}"#,
        ]);
        let text = std::fs::read_to_string(&path).expect("readable");
        let rows: Vec<Fields> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("an object"))
            .collect();
        let parquet = root.path().join("preferences.parquet");
        dialogue::data::write_parquet(&rows, &parquet).expect("writable");
        let (lines, columns) = (
            read(&path).expect("lines"),
            read(&parquet).expect("columns"),
        );
        assert_eq!(lines[0].found, columns[0].found);
        assert_eq!(columns[0].found[1].difficulty, Some(-1.0));
    }

    #[test]
    fn a_row_that_cannot_be_read_is_named() {
        let problem = |row: &str| {
            let (_root, path) = written(&[row]);
            read(&path).err().expect("refused").to_string()
        };
        let length = problem(r#"{"preference":1}"#);
        assert!(length.contains("row 0: it has no len_model"), "{length}");
        let text = problem(r#"{"preference":"yes","len_model":1,"len_reference":1}"#);
        assert!(text.contains("preference is \"yes\""), "{text}");
        let high = problem(r#"{"preference":7,"len_model":1,"len_reference":1}"#);
        assert!(high.contains("preference is 7"), "{high}");
        let (_root, path) = written(&[]);
        assert!(read(&path).is_err());
    }
}

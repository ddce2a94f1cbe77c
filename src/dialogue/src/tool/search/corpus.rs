//! Passages from files, and what finds them.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::bm25::Index;
use crate::data::Table;

#[derive(Debug)]
pub struct Corpus {
    passages: Vec<String>,
    index: Index,
}

impl Corpus {
    /// `text` and `title`: columns. The error names file, row and column.
    pub fn load(
        files: &[PathBuf],
        text: &str,
        title: Option<&str>,
        k1: f64,
        b: f64,
    ) -> Result<Self, String> {
        let mut passages = Vec::new();
        for file in files {
            read(file, text, title, &mut passages)?;
        }
        if passages.is_empty() {
            return Err("the corpus has no passage".to_owned());
        }
        let index = Index::new(passages.iter().map(String::as_str), k1 as f32, b as f32);
        Ok(Self { passages, index })
    }

    /// For `lathe check`.
    pub fn describe(&self) -> String {
        format!(
            "{} passages, {} words in the index",
            self.passages.len(),
            self.index.words()
        )
    }

    /// The best passages, the best first; none where no word fits.
    pub fn find(&self, query: &str, most: usize) -> Vec<String> {
        let found = self.index.find(query, most);
        found
            .into_iter()
            .map(|(passage, _)| self.passages[passage as usize].clone())
            .collect()
    }
}

fn read(
    file: &Path,
    text: &str,
    title: Option<&str>,
    passages: &mut Vec<String>,
) -> Result<(), String> {
    let table = Table::open_whole(file).map_err(|error| error.to_string())?;
    for row in table.scan_json().map_err(|error| error.to_string())? {
        let (row, fields) = row.map_err(|error| error.to_string())?;
        let column = |name: &str| of_column(&fields, name, file, row);
        let body = column(text)?;
        passages.push(match title {
            Some(title) => format!("{}\n{body}", column(title)?),
            None => body.to_owned(),
        });
        if passages.len() > u32::MAX as usize {
            return Err("the corpus has more than 4 billion passages".to_owned());
        }
    }
    Ok(())
}

fn of_column<'a>(
    fields: &'a Map<String, Value>,
    name: &str,
    file: &Path,
    row: u64,
) -> Result<&'a str, String> {
    fields.get(name).and_then(Value::as_str).ok_or_else(|| {
        format!(
            "{}: row {row}: column {name} holds no text; `config.text` and `config.title` name the columns",
            file.display()
        )
    })
}

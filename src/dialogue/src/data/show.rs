//! What a data file holds: schema, counts, lengths, and a few rows as the model would see them.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::DataError;
use super::row::{Need, Row};
use super::table::Table;
use crate::chat::Chat;

/// Bars of a histogram.
const BINS: usize = 10;

/// Lengths in equal bins from the smallest to the largest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Histogram {
    pub count: u64,
    pub min: usize,
    pub median: usize,
    pub p95: usize,
    pub max: usize,
    /// First length of each bin, and how many are in it.
    pub bins: Vec<(usize, u64)>,
}

impl Histogram {
    /// None of no lengths.
    pub fn of(mut lengths: Vec<usize>) -> Option<Self> {
        lengths.sort_unstable();
        let (min, max) = (*lengths.first()?, *lengths.last()?);
        let width = (max - min + 1).div_ceil(BINS);
        let mut bins: Vec<(usize, u64)> = (0..(max - min + 1).div_ceil(width))
            .map(|bin| (min + bin * width, 0))
            .collect();
        for length in &lengths {
            bins[(length - min) / width].1 += 1;
        }
        // Nearest rank: the smallest length that at least this share of the rows do not exceed.
        let rank = |percent: usize| lengths[(lengths.len() * percent).div_ceil(100).max(1) - 1];
        Some(Self {
            count: lengths.len() as u64,
            min,
            median: rank(50),
            p95: rank(95),
            max,
            bins,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sample {
    pub row: u64,
    /// The prompt (with the generation prompt) or the demonstration as rendered text; without a template, role by role.
    pub text: String,
    pub ground_truth: Option<Value>,
    pub chosen: Option<String>,
    pub rejected: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shown {
    pub path: PathBuf,
    pub rows: u64,
    /// Column and type, of Parquet files.
    pub schema: Vec<(String, String)>,
    /// Rows per `data_source`.
    pub data_sources: std::collections::BTreeMap<String, u64>,
    /// Characters of the prompt's messages, or of the demonstration's.
    pub characters: Option<Histogram>,
    /// Tokens with template and tools, when a tokenizer was given.
    pub tokens: Option<Histogram>,
    pub samples: Vec<Sample>,
}

/// Reads the whole file once; the first `samples` rows are rendered. `registry` are tool schemas for rows without their own.
pub fn show(
    path: &Path,
    prompt_key: &str,
    chat: Option<&Chat>,
    registry: &[Value],
    samples: usize,
) -> Result<Shown, DataError> {
    let table = Table::open(path, prompt_key)?;
    let mut shown = Shown {
        path: path.to_owned(),
        rows: table.rows(),
        schema: table.schema(),
        data_sources: std::collections::BTreeMap::new(),
        characters: None,
        tokens: None,
        samples: Vec::new(),
    };
    let mut characters = Vec::new();
    let mut tokens = Vec::new();
    for row in table.scan(Need::Anything)? {
        let row = row?;
        *shown
            .data_sources
            .entry(row.data_source.clone())
            .or_default() += 1;
        let demonstration = row.prompt.is_empty();
        let messages = if demonstration {
            &row.messages
        } else {
            &row.prompt
        };
        characters.push(
            messages
                .iter()
                .map(|message| message.text().chars().count())
                .sum(),
        );
        let schemas = row.tool_schemas(registry);
        let in_row = |source| DataError::Chat {
            path: path.to_owned(),
            row: row.place.row,
            source,
        };
        if let Some(chat) = chat {
            let ids = chat
                .prompt_ids(messages, &schemas, !demonstration)
                .map_err(in_row)?;
            tokens.push(ids.len());
        }
        if shown.samples.len() < samples {
            let text = match chat {
                Some(chat) => chat
                    .render(messages, &schemas, !demonstration)
                    .map_err(in_row)?,
                None => messages
                    .iter()
                    .map(|message| format!("{}: {}", message.role, plain(message)))
                    .collect::<Vec<_>>()
                    .join("\n"),
            };
            shown.samples.push(sample(&row, text));
        }
    }
    shown.characters = Histogram::of(characters);
    shown.tokens = Histogram::of(tokens);
    Ok(shown)
}

/// Words and calls of a message.
fn plain(message: &crate::message::Message) -> String {
    let calls = message.tool_calls.iter().map(|call| &call.function);
    let calls = calls.map(|call| format!("[{} {}]", call.name, call.arguments));
    std::iter::once(message.text()).chain(calls).collect()
}

fn sample(row: &Row, text: String) -> Sample {
    let words = |messages: &Option<Vec<crate::message::Message>>| {
        let messages = messages.as_ref()?;
        Some(messages.iter().map(plain).collect::<Vec<_>>().join("\n"))
    };
    Sample {
        row: row.place.row,
        text,
        ground_truth: row
            .reward_model
            .as_ref()
            .map(|model| model.ground_truth.clone()),
        chosen: words(&row.chosen),
        rejected: words(&row.rejected),
    }
}

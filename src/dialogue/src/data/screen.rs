//! One pass over all prompts before a run: every row is read and checked, and its prompt counted in tokens through the
//! same path that rollouts take, tool schemas included.

use serde_json::Value;

use super::DataError;
use super::set::DataSet;
use crate::chat::Chat;

/// What to do with a prompt that is longer than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlong {
    /// `data.filter_overlong_prompts=true`: leave the row out.
    Drop,
    /// The filter is off: stop before the run starts, naming file, row and length. Nothing is ever cut silently.
    Refuse,
}

/// What the pass found. Lengths are in tokens, of the rows that stay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Screened {
    pub kept: u64,
    pub dropped: u64,
    pub shortest: usize,
    pub longest: usize,
    pub total_tokens: u64,
}

/// Checks every row in use and leaves out, or refuses, prompts longer than `max_prompt_length` tokens. `registry` are the
/// experiment's tool schemas.
pub fn screen_prompts(
    data: &mut DataSet,
    chat: &Chat,
    registry: &[Value],
    max_prompt_length: usize,
    overlong: Overlong,
) -> Result<Screened, DataError> {
    let mut screened = Screened {
        shortest: usize::MAX,
        ..Screened::default()
    };
    let mut shortest_dropped = usize::MAX;
    let mut kept = Vec::new();
    for row in data.scan()? {
        let row = row?;
        let tokens = chat
            .prompt_ids(&row.prompt, &row.tool_schemas(registry), true)
            .map_err(|source| DataError::Chat {
                path: row.place.path.to_path_buf(),
                row: row.place.row,
                source,
            })?
            .len();
        if tokens > max_prompt_length {
            if overlong == Overlong::Refuse {
                return Err(DataError::PromptTooLong {
                    path: row.place.path.to_path_buf(),
                    row: row.place.row,
                    tokens,
                    limit: max_prompt_length,
                });
            }
            screened.dropped += 1;
            shortest_dropped = shortest_dropped.min(tokens);
            continue;
        }
        kept.push(row.index);
        screened.shortest = screened.shortest.min(tokens);
        screened.longest = screened.longest.max(tokens);
        screened.total_tokens += tokens as u64;
    }
    screened.kept = kept.len() as u64;
    if kept.is_empty() {
        return Err(DataError::AllTooLong {
            files: data.file_names(),
            rows: screened.dropped,
            limit: max_prompt_length,
            shortest: shortest_dropped,
        });
    }
    if screened.dropped > 0 {
        data.keep(kept.into_iter().collect());
    }
    Ok(screened)
}

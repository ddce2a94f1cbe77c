//! `sort`: put six digits in order, in one turn.

use std::collections::HashSet;

use serde_json::json;

use super::draw::Draw;
use super::{JsonRow, PromptRow, Split, object, said};

const SOURCE: &str = "lathe/sort";

/// Six digits, and the same in ascending order.
fn problems(draw: &mut Draw, count: usize, split: Split) -> Vec<(String, String)> {
    let mut seen = HashSet::new();
    let mut problems = Vec::with_capacity(count);
    while problems.len() < count {
        let mut digits: Vec<u8> = (0..6).map(|_| b'0' + draw.whole(0, 9) as u8).collect();
        let text = String::from_utf8_lossy(&digits).into_owned();
        digits.sort_unstable();
        let sorted = String::from_utf8_lossy(&digits).into_owned();
        if Split::of(&text) == split && seen.insert(text.clone()) {
            problems.push((text, sorted));
        }
    }
    problems
}

pub(super) fn prompts(count: usize, seed: u64, split: Split) -> Vec<JsonRow> {
    problems(&mut Draw::new("sort", seed), count, split)
        .iter()
        .enumerate()
        .map(|(index, (digits, sorted))| {
            PromptRow {
                source: SOURCE,
                system: None,
                question: &format!("sort {digits}"),
                ability: "sort",
                agent: "single_turn_agent",
                answer: sorted,
                split,
                index,
                tools_kwargs: None,
                extra: json!({}),
            }
            .json()
        })
        .collect()
}

/// Right answers; the warm-up is kept short instead, so that learning has something left to do.
pub(super) fn demonstrations(count: usize, seed: u64, split: Split) -> Vec<JsonRow> {
    problems(&mut Draw::new("sort-demos", seed), count, split)
        .iter()
        .enumerate()
        .map(|(index, (digits, sorted))| {
            object(json!({
                "data_source": SOURCE,
                "messages": [said("user", format!("sort {digits}")), said("assistant", sorted)],
                "extra_info": {"split": split.name(), "index": index},
            }))
        })
        .collect()
}

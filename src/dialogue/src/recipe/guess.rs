//! `guess`: find a secret from 1 to 31. Four questions to the tool, then the answer: halving always gets there.

use std::cmp::Ordering;

use serde_json::json;

use super::draw::Draw;
use super::{JsonRow, PromptRow, Split, call, object, said};

const SOURCE: &str = "lathe/guess";
const QUESTION: &str = "1-31";
const HIGHEST: i64 = 31;
/// Calls before the answer; 2^4 - 1 numbers are found by then and one interval of one is left for each other.
const CALLS: usize = 4;

pub(super) fn prompts(count: usize, seed: u64, split: Split) -> Vec<JsonRow> {
    let mut draw = Draw::new(
        if split == Split::Test {
            "guess-test"
        } else {
            "guess"
        },
        seed,
    );
    (0..count)
        .map(|index| {
            let secret = draw.whole(1, HIGHEST);
            PromptRow {
                source: SOURCE,
                system: None,
                question: QUESTION,
                ability: "tool",
                agent: "tool_agent",
                answer: &secret.to_string(),
                split,
                index,
                tools_kwargs: Some(json!({"guess": {"create_kwargs": {"secret": secret}}})),
                extra: json!({}),
            }
            .json()
        })
        .collect()
}

/// Each guess is drawn at random from what is still possible, where halving would be best.
pub(super) fn demonstrations(count: usize, seed: u64, split: Split) -> Vec<JsonRow> {
    let mut draw = Draw::new("guess-demos", seed);
    (0..count)
        .map(|index| {
            let secret = draw.whole(1, HIGHEST);
            let (mut low, mut high) = (1, HIGHEST);
            let mut messages = vec![said("user", QUESTION)];
            for _ in 0..CALLS {
                let number = draw.whole(low, high);
                messages.push(call("guess", &json!({ "number": number })));
                let hint = match secret.cmp(&number) {
                    Ordering::Equal => "correct",
                    Ordering::Greater => "higher",
                    Ordering::Less => "lower",
                };
                messages.push(said("tool", hint));
                match secret.cmp(&number) {
                    Ordering::Equal => (low, high) = (number, number),
                    Ordering::Greater => low = number + 1,
                    Ordering::Less => high = number - 1,
                }
                if hint == "correct" {
                    break;
                }
            }
            messages.push(said("assistant", draw.whole(low, high).to_string()));
            object(json!({
                "data_source": SOURCE,
                "messages": messages,
                "extra_info": {"split": split.name(), "index": index},
            }))
        })
        .collect()
}

//! `gsm8k-form`: word problems of two or three steps in the form of GSM8K's tool rows, from our own templates.

use std::collections::HashSet;

use serde_json::json;

use super::draw::Draw;
use super::{JsonRow, PromptRow, Split};

const SYSTEM: &str = "You are a math assistant. Work step by step. You may call the `calculator` tool with one arithmetic \
                      expression at a time. Put the final answer in the form `#### <answer>`.";
const NAMES: [&str; 12] = [
    "Aino", "Bayo", "Chen", "Dalia", "Emre", "Farida", "Goran", "Hana", "Ivo", "Juno", "Kofi",
    "Lena",
];
const THINGS: [&str; 8] = [
    "apples",
    "stickers",
    "marbles",
    "pencils",
    "buttons",
    "postcards",
    "shells",
    "candles",
];

/// Question, expressions to work out in order, answer.
type Problem = (String, Vec<String>, i64);

fn draw_problem(draw: &mut Draw) -> Problem {
    let (name, other) = (draw.pick(&NAMES), draw.pick(&NAMES));
    let thing = draw.pick(&THINGS);
    match draw.whole(0, 4) {
        0 => {
            let (boxes, each, given) = (draw.whole(3, 24), draw.whole(6, 48), draw.whole(5, 17));
            let total = boxes * each;
            (
                format!(
                    "{name} fills {boxes} boxes with {each} {thing} each and gives {given} {thing} away. How many {thing} are left?"
                ),
                vec![format!("{boxes}*{each}"), format!("{total}-{given}")],
                total - given,
            )
        }
        1 => {
            let (price, count, paid) = (draw.whole(2, 9), draw.whole(3, 12), draw.whole(0, 40));
            let cost = price * count;
            let note = cost + paid;
            (
                format!(
                    "A jar of {thing} costs {price} coins. {name} buys {count} jars and pays with {note} coins. How many coins does {name} get back?"
                ),
                vec![format!("{price}*{count}"), format!("{note}-{cost}")],
                paid,
            )
        }
        2 => {
            let (start, more, days) = (draw.whole(12, 80), draw.whole(3, 15), draw.whole(4, 30));
            let added = more * days;
            (
                format!(
                    "{name} has {start} {thing} and finds {more} more every day. How many {thing} does {name} have after {days} days?"
                ),
                vec![format!("{more}*{days}"), format!("{start}+{added}")],
                start + added,
            )
        }
        3 => {
            let (people, each, left) = (draw.whole(3, 9), draw.whole(4, 25), draw.whole(0, 2));
            let total = people * each + left;
            (
                format!(
                    "{name} shares {total} {thing} equally among {people} friends and keeps the {left} that are over. How many {thing} does each friend get?"
                ),
                vec![
                    format!("{total}-{left}"),
                    format!("{}/{people}", total - left),
                ],
                each,
            )
        }
        _ => {
            let (first, times, more) = (draw.whole(11, 60), draw.whole(2, 6), draw.whole(4, 40));
            let (second, other) = (
                first * times,
                if name == other { "A neighbour" } else { other },
            );
            let third = second + more;
            (
                format!(
                    "{name} collects {first} {thing}. {other} collects {times} times as many, and {more} more lie on the shelf. How many {thing} are there without {name}'s?"
                ),
                vec![format!("{first}*{times}"), format!("{second}+{more}")],
                third,
            )
        }
    }
}

pub(super) fn prompts(count: usize, seed: u64, split: Split) -> Vec<JsonRow> {
    let mut draw = Draw::new("gsm8k-form", seed);
    let mut seen = HashSet::new();
    let mut rows = Vec::with_capacity(count);
    while rows.len() < count {
        let (question, calls, answer) = draw_problem(&mut draw);
        if Split::of(&question) != split || !seen.insert(question.clone()) {
            continue;
        }
        let answer = answer.to_string();
        rows.push(
            PromptRow {
                source: "openai/gsm8k",
                system: Some(SYSTEM),
                question: &question,
                ability: "math",
                agent: "tool_agent",
                answer: &answer,
                split,
                index: rows.len(),
                tools_kwargs: Some(
                    json!({"calculator": {"create_kwargs": {"ground_truth": answer}}}),
                ),
                extra: json!({"calls": calls}),
            }
            .json(),
        );
    }
    rows
}

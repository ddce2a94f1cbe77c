//! `calc`: two-step arithmetic of two-digit numbers. The calculator takes one operation at a time in the demonstrations.

use std::collections::HashSet;

use serde_json::json;

use super::draw::Draw;
use super::{JsonRow, PromptRow, Split, call, object, said};

const SOURCE: &str = "lathe/calc";

/// `first` is done, then `operator` and `number`.
struct Problem {
    first: String,
    first_value: i64,
    operator: char,
    number: i64,
    value: i64,
}

impl Problem {
    fn draw(draw: &mut Draw) -> Self {
        let (a, b) = (draw.whole(11, 99), draw.whole(11, 99));
        let (first, first_value) = match draw.whole(0, 3) {
            0 => (format!("{a}+{b}"), a + b),
            1 => (format!("{}-{}", a.max(b), a.min(b)), a.max(b) - a.min(b)),
            // Products twice as often: nobody does those in the head.
            _ => (format!("{a}*{b}"), a * b),
        };
        let number = draw.whole(11, 99);
        // Nothing goes below zero.
        let operator = if first_value >= number {
            draw.pick(&['+', '-'])
        } else {
            '+'
        };
        let value = if operator == '+' {
            first_value + number
        } else {
            first_value - number
        };
        Self {
            first,
            first_value,
            operator,
            number,
            value,
        }
    }

    fn question(&self) -> String {
        format!("{}{}{}=", self.first, self.operator, self.number)
    }

    fn second(&self) -> String {
        format!("{}{}{}", self.first_value, self.operator, self.number)
    }
}

/// Different problems of one split.
fn problems(draw: &mut Draw, count: usize, split: Split) -> Vec<Problem> {
    let mut seen = HashSet::new();
    let mut problems = Vec::with_capacity(count);
    while problems.len() < count {
        let problem = Problem::draw(draw);
        let question = problem.question();
        if Split::of(&question) == split && seen.insert(question) {
            problems.push(problem);
        }
    }
    problems
}

pub(super) fn prompts(count: usize, seed: u64, split: Split) -> Vec<JsonRow> {
    problems(&mut Draw::new("calc", seed), count, split)
        .iter()
        .enumerate()
        .map(|(index, problem)| {
            let answer = problem.value.to_string();
            PromptRow {
                source: SOURCE,
                system: None,
                question: &problem.question(),
                ability: "tool",
                agent: "tool_agent",
                answer: &answer,
                split,
                index,
                tools_kwargs: Some(
                    json!({"calculator": {"create_kwargs": {"ground_truth": answer}}}),
                ),
                extra: json!({"calls": [problem.first, problem.second()]}),
            }
            .json()
        })
        .collect()
}

/// A number of the right size whose first digit is right and whose others are guessed: what one writes without working it
/// out.
fn estimate(draw: &mut Draw, value: i64) -> String {
    value
        .to_string()
        .chars()
        .enumerate()
        .map(|(at, digit)| {
            if at == 0 {
                digit
            } else {
                char::from(b'0' + draw.whole(0, 9) as u8)
            }
        })
        .collect()
}

/// Poor on purpose, so that learning has something to do: 45 % work both steps out with the tool, 10 % only the first and
/// estimate the rest, 45 % estimate at once. One call an episode on average; a student of these is right about 4 times in
/// 10, and every group of samples holds both habits.
pub(super) fn demonstrations(count: usize, seed: u64, split: Split) -> Vec<JsonRow> {
    let mut draw = Draw::new("calc-demos", seed);
    problems(&mut draw, count, split)
        .iter()
        .enumerate()
        .map(|(index, problem)| {
            let habit = draw.whole(0, 99);
            let calls = if habit < 45 {
                2
            } else {
                usize::from(habit < 55)
            };
            let steps = [
                (problem.first.clone(), problem.first_value),
                (problem.second(), problem.value),
            ];
            let mut messages = vec![said("user", problem.question())];
            for (expression, result) in steps.iter().take(calls) {
                messages.push(call("calculator", &json!({ "expression": expression })));
                messages.push(said("tool", result.to_string()));
            }
            let answer = match calls {
                2 => problem.value.to_string(),
                _ => estimate(&mut draw, problem.value),
            };
            messages.push(said("assistant", answer));
            object(json!({
                "data_source": SOURCE,
                "messages": messages,
                "extra_info": {"split": split.name(), "index": index, "calls": calls},
            }))
        })
        .collect()
}

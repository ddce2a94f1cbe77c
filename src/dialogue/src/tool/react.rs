//! Calls in plain words, as `ReAct` has them (<https://arxiv.org/abs/2210.03629>):
//!
//! ```text
//!  Thought: I have to multiply first.
//!  Action: calculator
//!  Action Input: {"expression": "63*48"}
//!  Observation: 3024                        ← the answer, which the model does not write
//! ```
//! The input is a JSON object, or, of a tool with one parameter, that parameter as it is. What a model writes as an
//! observation itself is cut off. `chat` shows the tools and writes their answers in this form.

use serde_json::Value;

use super::Parameters;
use super::hermes::{Call, MalformedCall, ParsedTurn};

/// Where the model has to stop: what follows is the tool's.
pub const STOP: &str = "Observation:";
const ACTION: &str = "Action:";
const INPUT: &str = "Action Input:";
/// Lines that end an input.
const OTHERS: [&str; 4] = ["Thought:", ACTION, INPUT, "Final Answer:"];

/// Takes a model turn apart. `only_parameter`: of a tool that has one.
pub fn parse(text: &str, only_parameter: impl Fn(&str) -> Option<String>) -> ParsedTurn {
    let lines: Vec<&str> = text.lines().collect();
    let end = lines
        .iter()
        .position(|line| starts(line, STOP))
        .unwrap_or(lines.len());
    let lines = &lines[..end];
    let mut calls = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if !starts(line, ACTION) {
            continue;
        }
        let name = after(line, ACTION).trim_matches(['`', '"', '\'', '[', ']', ' ']);
        let next = lines[index + 1..]
            .iter()
            .position(|line| !line.trim().is_empty())
            .map(|at| index + 1 + at);
        let Some(at) = next.filter(|at| starts(lines[*at], INPUT)) else {
            calls.push(Err(MalformedCall {
                text: (*line).to_owned(),
                problem: format!("the action has no line \"{INPUT}\" after it"),
            }));
            continue;
        };
        let mut input = after(lines[at], INPUT).to_owned();
        for more in lines[at + 1..]
            .iter()
            .take_while(|line| !OTHERS.iter().any(|other| starts(line, other)))
        {
            input.push('\n');
            input.push_str(more);
        }
        calls.push(call(name, &input, only_parameter(name)));
    }
    ParsedTurn {
        content: lines.join("\n").trim().to_owned(),
        calls,
    }
}

fn starts(line: &str, word: &str) -> bool {
    line.trim_start().starts_with(word)
}

fn after<'a>(line: &'a str, word: &str) -> &'a str {
    line.trim_start()
        .strip_prefix(word)
        .unwrap_or_default()
        .trim()
}

fn call(name: &str, input: &str, only: Option<String>) -> Result<Call, MalformedCall> {
    let malformed = |problem: String| MalformedCall {
        text: input.trim().to_owned(),
        problem,
    };
    if name.is_empty() {
        return Err(malformed("the action names no tool".to_owned()));
    }
    let input = unfenced(input);
    let arguments = match (serde_json::from_str(input), only) {
        (Ok(Value::Object(arguments)), _) => arguments,
        (Err(_), None) if input.is_empty() => Parameters::new(),
        (Ok(value), Some(parameter)) => Parameters::from_iter([(parameter, value)]),
        (Err(_), Some(parameter)) => Parameters::from_iter([(parameter, input.into())]),
        (Ok(_), None) => {
            return Err(malformed("the action's input is no JSON object".to_owned()));
        }
        (Err(error), None) => {
            return Err(malformed(format!(
                "the action's input is not valid JSON: {error}"
            )));
        }
    };
    Ok(Call {
        name: name.to_owned(),
        arguments,
    })
}

/// Without the fence of a code block.
fn unfenced(input: &str) -> &str {
    let input = input.trim();
    let Some(inside) = input
        .strip_prefix("```")
        .and_then(|rest| rest.strip_suffix("```"))
    else {
        return input;
    };
    // The first line names a language.
    inside
        .split_once('\n')
        .map_or(inside, |(_, body)| body)
        .trim()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn turn(text: &str) -> ParsedTurn {
        parse(text, |name| {
            (name == "calculator").then(|| "expression".to_owned())
        })
    }

    fn call(name: &str, arguments: &Value) -> Call {
        Call {
            name: name.to_owned(),
            arguments: arguments.as_object().expect("an object").clone(),
        }
    }

    #[test]
    fn an_action_with_its_input_is_a_call() {
        let expected = Ok(call("calculator", &json!({"expression": "63*48"})));
        for input in [
            "{\"expression\": \"63*48\"}",
            "63*48",
            "\"63*48\"",
            "```json\n{\"expression\":\n \"63*48\"}\n```",
            "```\n63*48\n```",
        ] {
            let text = format!("Thought: so\nAction: `calculator`\nAction Input: {input}\n");
            let turn = turn(&text);
            assert_eq!(turn.calls, std::slice::from_ref(&expected), "{input}");
            assert_eq!(turn.content, text.trim());
        }
    }

    #[test]
    fn several_actions_keep_their_order_and_an_observation_of_its_own_is_cut() {
        let turn = turn(
            "Action: calculator\nAction Input: 1\nAction: look\n\nAction Input: {\"a\": [1,\n2]}\nThought: now\n\
             Observation: 42\nAction: calculator\nAction Input: 2",
        );
        assert_eq!(
            turn.calls,
            [
                Ok(call("calculator", &json!({"expression": 1}))),
                Ok(call("look", &json!({"a": [1, 2]})))
            ]
        );
        assert!(turn.content.ends_with("Thought: now"), "{}", turn.content);
    }

    #[test]
    fn what_is_no_action_is_said() {
        let answer = "Thought: I know.\nFinal Answer: 2990, an action: none";
        assert_eq!(
            turn(answer),
            ParsedTurn {
                content: answer.to_owned(),
                calls: Vec::new()
            }
        );
    }

    #[test]
    fn what_is_wrong_with_an_action_is_told() {
        for (text, expected) in [
            (
                "Action: look",
                "the action has no line \"Action Input:\" after it",
            ),
            (
                "Action: look\nThought: x\nAction Input: {}",
                "the action has no line \"Action Input:\" after it",
            ),
            ("Action:\nAction Input: {}", "the action names no tool"),
            (
                "Action: look\nAction Input: [1]",
                "the action's input is no JSON object",
            ),
            (
                "Action: look\nAction Input: here",
                "the action's input is not valid JSON",
            ),
        ] {
            let turn = turn(text);
            let problem = &turn.calls[0].as_ref().expect_err("malformed").problem;
            assert!(problem.starts_with(expected), "{text}: {problem}");
        }
        assert_eq!(
            turn("Action: look\nAction Input:").calls,
            [Ok(call("look", &json!({})))]
        );
    }

    proptest! {
        #[test]
        fn any_text_is_taken_apart_without_a_crash(pieces in prop::collection::vec(
            prop_oneof![Just("Action:".to_owned()), Just("\nAction Input:".to_owned()), Just("\n".to_owned()), Just("```".to_owned()), ".{0,6}"], 0..12,
        )) {
            let _ = turn(&pieces.concat());
        }
    }
}

//! The Hermes form of tool calls: `<tool_call>\n{"name": …, "arguments": {…}}\n</tool_call>`, any number in a turn.
//!
//! A call is read as one JSON value, so a brace or even a closing tag inside a string does no harm. What is not a call
//! (bad JSON, no closing tag, no name) comes back as an error in its place: the model is told, nothing is lost.

use serde_json::Value;

use super::Parameters;
use crate::message::{FunctionCall, ToolCall};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// A call the model made.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub name: String,
    pub arguments: Parameters,
}

/// Text in call tags that is no call. `problem` is written for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct MalformedCall {
    /// The text after the opening tag.
    pub text: String,
    pub problem: String,
}

/// A model turn, taken apart.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ParsedTurn {
    /// The text outside of well-formed calls, trimmed; malformed ones stay in it as they were written.
    pub content: String,
    /// In the order written.
    pub calls: Vec<Result<Call, MalformedCall>>,
}

impl ParsedTurn {
    /// The well-formed calls as messages hold them.
    pub fn message_calls(&self) -> Vec<ToolCall> {
        self.calls
            .iter()
            .flatten()
            .map(|call| ToolCall {
                id: None,
                kind: "function".to_owned(),
                function: FunctionCall {
                    name: call.name.clone(),
                    arguments: Value::Object(call.arguments.clone()),
                },
            })
            .collect()
    }
}

/// Takes a model turn apart.
pub fn parse(text: &str) -> ParsedTurn {
    let mut content = String::new();
    let mut calls = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(OPEN) {
        content.push_str(&rest[..start]);
        let body = &rest[start + OPEN.len()..];
        let (call, used) = parse_call(body);
        if call.is_err() {
            content.push_str(&rest[start..start + OPEN.len() + used]);
        }
        calls.push(call);
        rest = &body[used..];
    }
    content.push_str(rest);
    ParsedTurn {
        content: content.trim().to_owned(),
        calls,
    }
}

/// Reads the call at the start of `body` (the text after an opening tag) and says how many bytes of it were used.
fn parse_call(body: &str) -> (Result<Call, MalformedCall>, usize) {
    let mut values = serde_json::Deserializer::from_str(body).into_iter::<Value>();
    let (value, end) = match values.next() {
        Some(Ok(value)) => (Ok(value), values.byte_offset()),
        Some(Err(error)) => (Err(format!("the tool call is not valid JSON: {error}")), 0),
        None => (Err("the tool call is empty".to_owned()), 0),
    };
    let after = &body[end..];
    let malformed = |problem: String, used: usize| {
        let text = body[..used].trim_end_matches(CLOSE).trim().to_owned();
        (Err(MalformedCall { text, problem }), used)
    };
    // Up to the closing tag; without one, up to the next call or the end of the turn.
    let Some(close) = after.find(CLOSE).map(|at| end + at) else {
        let used = after.find(OPEN).map_or(body.len(), |at| end + at);
        return malformed(
            value
                .err()
                .unwrap_or_else(|| format!("the tool call has no {CLOSE}")),
            used,
        );
    };
    let reopened = after.find(OPEN).map(|at| end + at);
    if let Some(reopened) = reopened.filter(|at| *at < close) {
        return malformed(
            value
                .err()
                .unwrap_or_else(|| format!("the tool call has no {CLOSE}")),
            reopened,
        );
    }
    let used = close + CLOSE.len();
    let value = match value {
        Ok(value) => value,
        Err(problem) => return malformed(problem, used),
    };
    if !body[end..close].trim().is_empty() {
        return malformed("the tool call has text after its JSON".to_owned(), used);
    }
    match call_of(value) {
        Ok(call) => (Ok(call), used),
        Err(problem) => malformed(problem, used),
    }
}

/// A call in JSON.
pub(super) fn call_of(value: Value) -> Result<Call, String> {
    let Value::Object(mut object) = value else {
        return Err("the tool call is not a JSON object".to_owned());
    };
    let name = match object.remove("name") {
        Some(Value::String(name)) if !name.is_empty() => name,
        _ => return Err("the tool call has no \"name\"".to_owned()),
    };
    let arguments = match object.remove("arguments") {
        None | Some(Value::Null) => Parameters::new(),
        Some(Value::Object(arguments)) => arguments,
        // Some models write the arguments as JSON text, as OpenAI's API does.
        Some(Value::String(text)) => match serde_json::from_str(&text) {
            Ok(Value::Object(arguments)) => arguments,
            _ => return Err("\"arguments\" is a string that holds no JSON object".to_owned()),
        },
        Some(_) => return Err("\"arguments\" is not a JSON object".to_owned()),
    };
    Ok(Call { name, arguments })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn call(name: &str, arguments: Value) -> Call {
        let Value::Object(arguments) = arguments else {
            panic!("arguments are an object")
        };
        Call {
            name: name.to_owned(),
            arguments,
        }
    }

    fn problem(turn: &ParsedTurn, index: usize) -> &str {
        &turn.calls[index].as_ref().expect_err("malformed").problem
    }

    #[test]
    fn a_call_with_text_around_it_is_read() {
        let turn = parse(
            "Let me see.\n<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"1+1\"}}\n</tool_call>\nDone.",
        );
        assert_eq!(
            turn.calls,
            [Ok(call("calculator", json!({"expression": "1+1"})))]
        );
        assert_eq!(turn.content, "Let me see.\n\nDone.");
    }

    #[test]
    fn several_calls_keep_their_order() {
        let turn = parse(
            "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call><tool_call>{\"name\":\"b\"}</tool_call>",
        );
        assert_eq!(
            turn.calls,
            [Ok(call("a", json!({}))), Ok(call("b", json!({})))]
        );
        assert_eq!(turn.content, "");
    }

    #[test]
    fn arguments_may_be_json_text() {
        let turn =
            parse("<tool_call>{\"name\":\"a\",\"arguments\":\"{\\\"x\\\": 1}\"}</tool_call>");
        assert_eq!(turn.calls, [Ok(call("a", json!({"x": 1})))]);
    }

    #[test]
    fn braces_and_tags_inside_strings_do_no_harm() {
        let turn = parse(
            "<tool_call>{\"name\":\"a\",\"arguments\":{\"x\":{\"y\":[{\"z\":\"}</tool_call>{<tool_call>\"}]}}}</tool_call>",
        );
        assert_eq!(
            turn.calls,
            [Ok(call(
                "a",
                json!({"x": {"y": [{"z": "}</tool_call>{<tool_call>"}]}})
            ))]
        );
    }

    #[test]
    fn bad_json_is_an_error_in_its_place_and_the_next_call_is_read() {
        let turn = parse(
            "<tool_call>{\"name\": </tool_call><tool_call>{\"name\":\"b\",\"arguments\":{}}</tool_call>",
        );
        assert!(problem(&turn, 0).starts_with("the tool call is not valid JSON"));
        assert_eq!(turn.calls[1], Ok(call("b", json!({}))));
        assert_eq!(turn.content, "<tool_call>{\"name\": </tool_call>");
    }

    #[test]
    fn a_missing_closing_tag_is_an_error() {
        let turn = parse("<tool_call>{\"name\":\"a\",\"arguments\":{}}");
        assert_eq!(problem(&turn, 0), "the tool call has no </tool_call>");
        let turn = parse(
            "<tool_call>{\"name\":\"a\"}\n<tool_call>{\"name\":\"b\",\"arguments\":{}}</tool_call>",
        );
        assert_eq!(problem(&turn, 0), "the tool call has no </tool_call>");
        assert_eq!(turn.calls[1], Ok(call("b", json!({}))));
        let turn = parse("text <tool_call>");
        assert_eq!(turn.calls.len(), 1);
        assert_eq!(problem(&turn, 0), "the tool call is empty");
    }

    #[test]
    fn what_is_json_but_no_call_is_an_error() {
        for (body, expected) in [
            ("[1]", "the tool call is not a JSON object"),
            ("{\"arguments\":{}}", "the tool call has no \"name\""),
            ("{\"name\":7}", "the tool call has no \"name\""),
            (
                "{\"name\":\"a\",\"arguments\":[1]}",
                "\"arguments\" is not a JSON object",
            ),
            (
                "{\"name\":\"a\",\"arguments\":\"x\"}",
                "\"arguments\" is a string that holds no JSON object",
            ),
            (
                "{\"name\":\"a\"} and more",
                "the tool call has text after its JSON",
            ),
        ] {
            let turn = parse(&format!("<tool_call>{body}</tool_call>"));
            assert_eq!(problem(&turn, 0), expected, "{body}");
        }
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_a_stack_overflow() {
        let deep = "[".repeat(200_000);
        let turn = parse(&format!(
            "<tool_call>{{\"name\":\"a\",\"arguments\":{{\"x\":{deep}"
        ));
        assert!(turn.calls[0].is_err());
    }

    #[test]
    fn text_without_calls_is_all_content() {
        let turn = parse(" 2990 ");
        assert_eq!(turn.content, "2990");
        assert!(turn.calls.is_empty());
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
            Just(Value::from("</tool_call>")),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".*", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_written_call_is_read_back(
            calls in prop::collection::vec(("[a-z_]{1,8}", prop::collection::btree_map(".*", json_value(), 0..4)), 0..5),
            words in "[a-z ]{0,12}",
        ) {
            let mut text = words.clone();
            let mut expected = Vec::new();
            for (name, arguments) in calls {
                let arguments: Parameters = arguments.into_iter().collect();
                let object = json!({"name": name, "arguments": arguments});
                text.extend(["\n<tool_call>\n", &object.to_string(), "\n</tool_call>"]);
                expected.push(Ok(Call { name, arguments }));
            }
            let turn = parse(&text);
            prop_assert_eq!(turn.calls, expected);
            prop_assert_eq!(turn.content, words.trim());
        }

        #[test]
        fn any_text_is_taken_apart_without_a_crash(pieces in prop::collection::vec(
            prop_oneof![Just("<tool_call>".to_owned()), Just("</tool_call>".to_owned()), Just("{\"name\":".to_owned()), ".{0,6}"], 0..12,
        )) {
            let text = pieces.concat();
            let turn = parse(&text);
            prop_assert_eq!(turn.calls.is_empty(), !text.contains(OPEN));
        }
    }
}

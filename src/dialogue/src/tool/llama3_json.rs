//! Calls as Llama 3.1 and later write them: a turn that is nothing but JSON, `{"name": …, "parameters": {…}}`, or several of
//! these with `;` between them. A turn that begins otherwise, or JSON without a `name`, is what the model says.

use serde_json::Value;

use super::hermes::{Call, MalformedCall, ParsedTurn, call_of};

/// Some models write it before a call; where it is a special token it is no part of the text.
const PYTHON_TAG: &str = "<|python_tag|>";

/// Takes a model turn apart.
pub fn parse(text: &str) -> ParsedTurn {
    let whole = text.trim();
    let body = whole.strip_prefix(PYTHON_TAG).unwrap_or(whole).trim();
    let said = || ParsedTurn {
        content: whole.to_owned(),
        calls: Vec::new(),
    };
    if !body.starts_with('{') {
        return said();
    }
    let mut calls: Vec<Result<Call, MalformedCall>> = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let problem = match values.next() {
            Some(Ok(value)) => {
                let end = values.byte_offset();
                // An answer in JSON.
                if calls.is_empty() && value.get("name").is_none() {
                    return said();
                }
                let text = rest[..end].to_owned();
                calls.push(
                    call_of(renamed(value)).map_err(|problem| MalformedCall { text, problem }),
                );
                let after = rest[end..].trim_start();
                match after.strip_prefix(';') {
                    Some(next) => {
                        rest = next.trim_start();
                        continue;
                    }
                    None if after.is_empty() || after.starts_with('{') => {
                        rest = after;
                        continue;
                    }
                    None => {
                        rest = after;
                        "the tool call has text after its JSON".to_owned()
                    }
                }
            }
            Some(Err(error)) => format!("the tool call is not valid JSON: {error}"),
            None => break,
        };
        calls.push(Err(MalformedCall {
            text: rest.to_owned(),
            problem,
        }));
        break;
    }
    let content = if calls.iter().all(Result::is_ok) {
        String::new()
    } else {
        whole.to_owned()
    };
    ParsedTurn { content, calls }
}

/// Llama's `parameters` are `arguments`.
fn renamed(mut value: Value) -> Value {
    if let Some(object) = value.as_object_mut()
        && !object.contains_key("arguments")
        && let Some(parameters) = object.remove("parameters")
    {
        object.insert("arguments".to_owned(), parameters);
    }
    value
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn call(name: &str, arguments: &Value) -> Call {
        Call {
            name: name.to_owned(),
            arguments: arguments.as_object().expect("an object").clone(),
        }
    }

    #[test]
    fn calls_are_read_alone_or_one_after_the_other() {
        let one = Ok(call("f", &json!({"x": "}; {"})));
        for text in [
            "{\"name\": \"f\", \"parameters\": {\"x\": \"}; {\"}}",
            " <|python_tag|>{\"name\": \"f\", \"arguments\": {\"x\": \"}; {\"}} ",
            "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"x\": \"}; {\"}};",
        ] {
            assert_eq!(parse(text).calls, std::slice::from_ref(&one), "{text}");
            assert_eq!(parse(text).content, "");
        }
        for between in ["; ", "\n", ";"] {
            let text = format!(
                "{{\"name\": \"f\", \"parameters\": {{\"x\": \"}}; {{\"}}}}{between}{{\"name\": \"g\"}}"
            );
            assert_eq!(
                parse(&text).calls,
                [one.clone(), Ok(call("g", &json!({})))],
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_call_is_said() {
        for text in [
            "2990",
            "{\"answer\": 2990}",
            "Let me see {\"name\": \"f\"}",
            "",
        ] {
            let turn = parse(text);
            assert!(turn.calls.is_empty(), "{text}");
            assert_eq!(turn.content, text);
        }
    }

    #[test]
    fn what_is_wrong_with_a_call_is_told() {
        for (text, expected) in [
            ("{\"name\": ", "the tool call is not valid JSON"),
            (
                "{\"name\": \"f\"} and so on",
                "the tool call has text after its JSON",
            ),
            (
                "{\"name\": \"f\", \"parameters\": [1]}",
                "\"arguments\" is not a JSON object",
            ),
            ("{\"name\": 7}", "the tool call has no \"name\""),
        ] {
            let turn = parse(text);
            let problem = turn.calls.iter().find_map(|call| call.as_ref().err());
            let problem = &problem.expect("malformed").problem;
            assert!(problem.starts_with(expected), "{text}: {problem}");
            assert_eq!(turn.content, text.trim());
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken_apart_without_a_crash(pieces in prop::collection::vec(
            prop_oneof![Just("{\"name\": \"f\"}".to_owned()), Just(";".to_owned()), Just("{".to_owned()), ".{0,6}"], 0..8,
        )) {
            let text = pieces.concat();
            let turn = parse(&text);
            prop_assert!(!turn.calls.is_empty() || turn.content == text.trim());
        }
    }
}

//! What a row's ground truth asks of a program.

use serde_json::{Map, Value};

pub const EXPECTED: &str = "{inputs: [...], outputs: [...]} of a program, the same with fn_name of a function (as a mapping or JSON text), or assertions in Python as text or a list of texts";

/// Never empty.
#[derive(Debug, Clone, PartialEq)]
pub enum Tests {
    /// Programs that read their input and print.
    Programs(Vec<Printed>),
    /// A function that is called.
    Calls {
        function: String,
        cases: Vec<Called>,
    },
    /// Python that fails where something is not so.
    Assertions(Vec<String>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Printed {
    pub input: String,
    pub output: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Called {
    /// A list.
    pub arguments: Value,
    pub result: Value,
}

impl Tests {
    pub fn len(&self) -> usize {
        match self {
            Self::Programs(cases) => cases.len(),
            Self::Calls { cases, .. } => cases.len(),
            Self::Assertions(all) => all.len(),
        }
    }

    /// From a row's ground truth; None: it is nothing of these.
    pub fn read(ground_truth: &Value) -> Option<Self> {
        let parsed;
        let value = match ground_truth {
            Value::String(text) => match serde_json::from_str(text) {
                Ok(value @ (Value::Object(_) | Value::Array(_))) => {
                    parsed = value;
                    &parsed
                }
                _ => ground_truth,
            },
            value => value,
        };
        match value {
            Value::Object(fields) => Self::of_cases(fields),
            Value::String(text) if text.contains("assert") => {
                Some(Self::Assertions(vec![text.clone()]))
            }
            Value::Array(items) if !items.is_empty() => items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .map(|item| item.filter(|text| text.contains("assert")))
                .collect::<Option<_>>()
                .map(Self::Assertions),
            _ => None,
        }
    }

    fn of_cases(fields: &Map<String, Value>) -> Option<Self> {
        let list = |name: &str| fields.get(name)?.as_array();
        let (inputs, outputs) = (list("inputs")?, list("outputs")?);
        if inputs.is_empty() || inputs.len() != outputs.len() {
            return None;
        }
        let pairs = inputs.iter().zip(outputs);
        match fields.get("fn_name").and_then(Value::as_str) {
            None => pairs
                .map(|(input, output)| {
                    Some(Printed {
                        input: lines(input)?,
                        output: lines(output)?,
                    })
                })
                .collect::<Option<_>>()
                .map(Self::Programs),
            Some(function) => pairs
                .map(|(input, output)| {
                    Some(Called {
                        arguments: arguments(input)?,
                        result: match output {
                            Value::String(text) => {
                                serde_json::from_str(text).unwrap_or_else(|_| output.clone())
                            }
                            output => output.clone(),
                        },
                    })
                })
                .collect::<Option<_>>()
                .map(|cases| Self::Calls {
                    function: function.to_owned(),
                    cases,
                }),
        }
    }
}

/// A text, or the lines of one.
fn lines(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => {
            let lines: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            lines.map(|lines| lines.join("\n"))
        }
        _ => None,
    }
}

/// A list, or a text with one argument as JSON a line.
fn arguments(value: &Value) -> Option<Value> {
    match value {
        Value::Array(_) => Some(value.clone()),
        Value::String(text) => text
            .split('\n')
            .map(|line| serde_json::from_str(line).ok())
            .collect::<Option<Vec<Value>>>()
            .map(Value::Array),
        _ => None,
    }
}

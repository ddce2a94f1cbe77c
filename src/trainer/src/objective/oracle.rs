//! This module's functions on a reference's stored cases: `<function>.json` says what was asked and which plain numbers came
//! out, `<function>.safetensors` holds `<case>.in.*`, `.out.*`, `.grad.*` and the same from a float64 run (`.out64.*`, …).
//!
//! [`run`] compares, [`answer`] writes what ours give in the same layout, so that anyone can judge them on other cases.

mod advantages;
mod bypass;
mod compare;
mod functions;
mod losses;
mod trl;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tch::Tensor;

use compare::{compare_lists, number, numbers};
pub use functions::{FUNCTIONS, Function};
pub use write::{Answered, answer, json_number};

#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    #[error("{path}: cannot read the oracle: {source}")]
    File {
        path: PathBuf,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("{path}: cannot write: {source}")]
    Write {
        path: PathBuf,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("this build has no function {0}; it has {known}", known = names())]
    Unknown(String),
}

fn names() -> String {
    let names: Vec<_> = FUNCTIONS.iter().map(|function| function.name).collect();
    names.join(", ")
}

/// How one case came out.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseResult {
    pub id: String,
    pub note: String,
    /// Empty when all is right; else what, where, ours and theirs.
    pub mismatches: Vec<String>,
}

/// Runs all cases of `function` whose files lie in `directory`, and compares.
pub fn run(directory: &Path, function: &str) -> Result<Vec<CaseResult>, OracleError> {
    let function = find(function)?;
    Ok(load(directory, function.name)?
        .iter()
        .map(|case| CaseResult {
            id: case.id.clone(),
            note: case.note.clone(),
            mismatches: case.check(function),
        })
        .collect())
}

fn find(name: &str) -> Result<&'static Function, OracleError> {
    FUNCTIONS
        .iter()
        .find(|function| function.name == name)
        .ok_or_else(|| OracleError::Unknown(name.to_owned()))
}

/// Input of one case and what the reference gave.
#[derive(Debug)]
pub struct Case {
    pub id: String,
    pub note: String,
    params: Map<String, Value>,
    expected: Stored,
    tensors: HashMap<String, Tensor>,
}

/// What our function gives for one case; names as in the reference.
#[derive(Debug, Default)]
pub struct Outcome {
    pub outputs: BTreeMap<String, Tensor>,
    pub numbers: BTreeMap<String, f64>,
    /// Compared with the lists of the same name among the parameters.
    pub series: BTreeMap<String, Vec<f64>>,
}

#[derive(Debug, Deserialize)]
struct File {
    cases: Vec<Stored>,
}

/// Only what is asked must be there; a file without answers can be answered.
#[derive(Debug, Clone, Deserialize)]
struct Stored {
    id: String,
    #[serde(default)]
    note: String,
    #[serde(default)]
    params: Map<String, Value>,
    #[serde(default)]
    inputs: Vec<String>,
    #[serde(default)]
    outputs: Vec<String>,
    #[serde(default)]
    grads: Vec<String>,
    #[serde(default)]
    numbers: Map<String, Value>,
    #[serde(default)]
    numbers64: Map<String, Value>,
    #[serde(default)]
    raises: Option<Value>,
}

fn load(directory: &Path, function: &str) -> Result<Vec<Case>, OracleError> {
    let path = |extension| directory.join(format!("{function}.{extension}"));
    let file_error = |path: PathBuf, source| OracleError::File { path, source };
    let json = path("json");
    let text = std::fs::read_to_string(&json).map_err(|e| file_error(json.clone(), e.into()))?;
    let file: File = serde_json::from_str(&text).map_err(|e| file_error(json, e.into()))?;
    let safetensors = path("safetensors");
    let tensors =
        Tensor::read_safetensors(&safetensors).map_err(|e| file_error(safetensors, e.into()))?;
    Ok(file
        .cases
        .into_iter()
        .map(|stored| Case {
            id: stored.id.clone(),
            note: stored.note.clone(),
            params: stored.params.clone(),
            tensors: tensors
                .iter()
                .filter_map(|(name, tensor)| {
                    let rest = name.strip_prefix(&stored.id)?.strip_prefix('.')?;
                    Some((rest.to_owned(), tensor.shallow_clone()))
                })
                .collect(),
            expected: stored,
        })
        .collect())
}

impl Case {
    /// An input tensor; a leaf that requires gradients where the function has some.
    pub fn input(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(&format!("in.{name}"))
    }

    /// In the order of the file.
    fn input_names(&self) -> impl Iterator<Item = &str> {
        self.expected.inputs.iter().map(String::as_str)
    }

    /// A parameter; None when it is absent or null. An error when the type does not take the value: a refusal.
    pub fn param<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, serde_json::Error> {
        match self.params.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value.clone()).map(Some),
        }
    }

    /// Computes with gradients: where the function has a loss, the inputs that it has gradients to hold them afterwards.
    fn compute(&self, function: &Function) -> Result<Outcome, functions::Refusal> {
        for name in function.gradients {
            if let Some(input) = self.input(name) {
                let _ = input.set_requires_grad(true);
            }
        }
        let outcome = (function.compute)(self)?;
        if let Some(loss) = outcome.outputs.get("loss")
            && loss.requires_grad()
        {
            loss.backward();
        }
        Ok(outcome)
    }

    /// The gradient to an input; zeros where nothing flows to it.
    fn gradient(&self, name: &str) -> Option<Tensor> {
        let input = self.input(name)?;
        let gradient = input.grad();
        Some(if gradient.defined() {
            gradient
        } else {
            input.detach().zeros_like()
        })
    }

    fn check(&self, function: &Function) -> Vec<String> {
        match (self.compute(function), &self.expected.raises) {
            (Err(_), Some(_)) => Vec::new(),
            (Ok(_), Some(raises)) => vec![format!("the reference refuses this: {raises}")],
            (Err(error), None) => vec![format!("refused, but the reference does not: {error}")],
            (Ok(outcome), None) => self.compare(&outcome),
        }
    }

    fn compare(&self, outcome: &Outcome) -> Vec<String> {
        let mut mismatches = Vec::new();
        for name in &self.expected.outputs {
            let found = outcome.outputs.get(name);
            self.compare_tensor(&format!("out.{name}"), found, &mut mismatches);
        }
        for name in &self.expected.grads {
            let found = self.gradient(name);
            self.compare_tensor(&format!("grad.{name}"), found.as_ref(), &mut mismatches);
        }
        for (name, expected) in &self.expected.numbers {
            let expected = number(expected);
            let wide = self.expected.numbers64.get(name).map_or(expected, number);
            match outcome.numbers.get(name) {
                None => mismatches.push(format!("{name} was not computed")),
                Some(found) => {
                    compare_lists(name, &[*found], &[expected], &[wide], &mut mismatches);
                }
            }
        }
        for (name, found) in &outcome.series {
            let expected: Vec<_> = self.params[name]
                .as_array()
                .map(|list| list.iter().map(number).collect())
                .unwrap_or_default();
            compare_lists(name, found, &expected, &expected, &mut mismatches);
        }
        mismatches
    }

    fn compare_tensor(&self, name: &str, found: Option<&Tensor>, mismatches: &mut Vec<String>) {
        let (kind, rest) = name.split_once('.').expect("kind.name");
        let Some(expected) = self.tensors.get(name) else {
            return mismatches.push(format!("the oracle lacks {name}"));
        };
        let Some(found) = found.filter(|tensor| tensor.defined()) else {
            return mismatches.push(format!("{name} was not computed"));
        };
        if found.size() != expected.size() {
            return mismatches.push(format!(
                "{name} has shape {:?}, not {:?}",
                found.size(),
                expected.size()
            ));
        }
        let wide = self.tensors.get(&format!("{kind}64.{rest}"));
        compare_lists(
            name,
            &numbers(found),
            &numbers(expected),
            &numbers(wide.unwrap_or(expected)),
            mismatches,
        );
    }
}

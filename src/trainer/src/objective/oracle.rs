//! Compares this module with a reference's stored numbers: `<function>.json` says what was asked and which plain numbers came
//! out, `<function>.safetensors` holds `<case>.in.*`, `.out.*`, `.grad.*` and the same from a float64 run (`.out64.*`, …).
//!
//! A value is right when `|ours − out| <= 1e-6·max(1, max|out|) + 1e-4·|out| + 4·|out64 − out|`, NaN and infinities where the
//! reference has them; a case the reference refuses must be refused.

mod functions;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tch::{Kind, Tensor};

pub use functions::{FUNCTIONS, Function};

#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    #[error("{path}: cannot read the oracle: {source}")]
    File {
        path: PathBuf,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("there is no oracle for {0}; there is one for each of {known}", known = names())]
    Unknown(String),
}

fn names() -> String {
    let names: Vec<_> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
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

/// Runs all cases of `function` whose files lie in `directory`.
pub fn run(directory: &Path, function: &str) -> Result<Vec<CaseResult>, OracleError> {
    let (_, compute) = FUNCTIONS
        .iter()
        .find(|(name, _)| *name == function)
        .ok_or_else(|| OracleError::Unknown(function.to_owned()))?;
    Ok(load(directory, function)?
        .iter()
        .map(|case| CaseResult {
            id: case.id.clone(),
            note: case.note.clone(),
            mismatches: case.check(*compute),
        })
        .collect())
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

#[derive(Debug, Clone, Deserialize)]
struct Stored {
    id: String,
    note: String,
    params: Map<String, Value>,
    outputs: Vec<String>,
    grads: Vec<String>,
    numbers: Map<String, Value>,
    #[serde(default)]
    numbers64: Map<String, Value>,
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
    /// An input tensor; a leaf that requires gradients where the reference has its gradient.
    pub fn input(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(&format!("in.{name}"))
    }

    /// A parameter; None when it is absent or null. An error when the type does not take the value: a refusal.
    pub fn param<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, serde_json::Error> {
        match self.params.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value.clone()).map(Some),
        }
    }

    fn check(&self, compute: Function) -> Vec<String> {
        for name in &self.expected.grads {
            if let Some(input) = self.input(name) {
                let _ = input.set_requires_grad(true);
            }
        }
        match (compute(self), &self.expected.raises) {
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
        if !self.expected.grads.is_empty() {
            if let Some(loss) = outcome.outputs.get("loss") {
                loss.backward();
            }
            for name in &self.expected.grads {
                let gradient = self.input(name).map(Tensor::grad);
                self.compare_tensor(&format!("grad.{name}"), gradient.as_ref(), &mut mismatches);
            }
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

/// Reports the worst element.
fn compare_lists(
    name: &str,
    found: &[f64],
    expected: &[f64],
    wide: &[f64],
    mismatches: &mut Vec<String>,
) {
    if found.len() != expected.len() {
        return mismatches.push(format!(
            "{name} has {} numbers, not {}",
            found.len(),
            expected.len()
        ));
    }
    let largest = expected
        .iter()
        .filter(|number| number.is_finite())
        .fold(1.0_f64, |largest, number| largest.max(number.abs()));
    let worst = (0..found.len())
        .map(|index| {
            let (ours, theirs) = (found[index], expected[index]);
            let excess = if ours.is_nan() && theirs.is_nan() || ours == theirs {
                0.0
            } else if ours.is_finite() && theirs.is_finite() {
                let tolerance =
                    1e-6 * largest + 1e-4 * theirs.abs() + 4.0 * (wide[index] - theirs).abs();
                // A NaN in the float64 run forgives nothing.
                if tolerance.is_nan() {
                    f64::INFINITY
                } else {
                    (ours - theirs).abs() / tolerance
                }
            } else {
                f64::INFINITY
            };
            (excess, index)
        })
        .max_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((excess, index)) = worst.filter(|(excess, _)| *excess > 1.0) {
        mismatches.push(format!(
            "{name}[{index}] is {}, not {}: {excess:.3} times the tolerance",
            found[index], expected[index]
        ));
    }
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    Vec::try_from(tensor.detach().to_kind(Kind::Double).reshape([-1]))
        .expect("a flat float64 tensor")
}

/// JSON has no NaN: the oracle writes such numbers as strings.
fn number(value: &Value) -> f64 {
    match value {
        Value::String(text) => match text.as_str() {
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            _ => f64::NAN,
        },
        other => other.as_f64().unwrap_or(f64::NAN),
    }
}

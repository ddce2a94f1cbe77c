//! What our functions give for stored cases, in the layout of the cases: `<id>.out.<name>`, `<id>.grad.<name>` in
//! `<function>.safetensors`, numbers and refusals in `<function>.json`.

use std::path::Path;

use serde_json::{Map, Value, json};
use tch::Tensor;

use super::{Case, Function, OracleError, find, load};

/// How many cases of one function were computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    pub cases: usize,
    /// Computed, or refused as the function refuses such input.
    pub computed: usize,
    /// Of those, refused.
    pub refused: usize,
    /// What could not be asked of this build, a line a case.
    pub problems: Vec<String>,
}

/// Reads the cases of `function` in `directory` and writes ours for them into `out`.
pub fn answer(directory: &Path, function: &str, out: &Path) -> Result<Answered, OracleError> {
    let function = find(function)?;
    let cases = load(directory, function.name)?;
    let mut answered = Answered {
        cases: cases.len(),
        computed: 0,
        refused: 0,
        problems: Vec::new(),
    };
    let mut tensors: Vec<(String, Tensor)> = Vec::new();
    let mut written = Vec::new();
    for case in &cases {
        if let Some(unknown) = unknown_parameter(case, function) {
            answered.problems.push(format!(
                "{}: this build's {} does not know the parameter {unknown}; it knows {}",
                case.id,
                function.name,
                function.parameters.join(", ")
            ));
            continue;
        }
        answered.computed += 1;
        written.push(case_answer(case, function, &mut tensors, &mut answered));
    }
    let path = |extension| out.join(format!("{}.{extension}", function.name));
    let write_error = |path, source| OracleError::Write { path, source };
    let safetensors = path("safetensors");
    Tensor::write_safetensors(&tensors, &safetensors)
        .map_err(|error| write_error(safetensors, error.into()))?;
    let document = json!({
        "function": function.name,
        "program": concat!("lathe-trainer ", env!("CARGO_PKG_VERSION")),
        "cases": written,
    });
    let json_path = path("json");
    std::fs::write(&json_path, format!("{document:#}\n"))
        .map_err(|error| write_error(json_path, error.into()))?;
    Ok(answered)
}

fn unknown_parameter<'a>(case: &'a Case, function: &Function) -> Option<&'a str> {
    case.params
        .keys()
        .map(String::as_str)
        .find(|name| !function.parameters.contains(name))
}

fn case_answer(
    case: &Case,
    function: &Function,
    tensors: &mut Vec<(String, Tensor)>,
    answered: &mut Answered,
) -> Value {
    let mut params = case.params.clone();
    let mut answer = Map::new();
    answer.insert("id".to_owned(), case.id.clone().into());
    answer.insert("note".to_owned(), case.note.clone().into());
    let (mut outputs, mut gradients) = (Vec::new(), Vec::new());
    let (mut numbers, mut raises) = (Map::new(), Value::Null);
    match case.compute(function) {
        Err(error) => {
            answered.refused += 1;
            raises = json!({"type": "refused", "message": error.to_string()});
        }
        Ok(outcome) => {
            for (name, tensor) in &outcome.outputs {
                tensors.push((format!("{}.out.{name}", case.id), plain(tensor)));
                outputs.push(name.clone());
            }
            if outcome.outputs.contains_key("loss") {
                for name in function.gradients {
                    if let Some(gradient) = case.gradient(name) {
                        tensors.push((format!("{}.grad.{name}", case.id), plain(&gradient)));
                        gradients.push((*name).to_owned());
                    }
                }
            }
            for (name, number) in &outcome.numbers {
                numbers.insert(name.clone(), json_number(*number));
            }
            // The reference keeps such lists among the parameters.
            for (name, list) in &outcome.series {
                let list: Vec<Value> = list.iter().map(|number| json_number(*number)).collect();
                params.insert(name.clone(), list.into());
            }
        }
    }
    answer.insert("params".to_owned(), params.into());
    answer.insert("outputs".to_owned(), outputs.into());
    answer.insert("grads".to_owned(), gradients.into());
    answer.insert("numbers".to_owned(), numbers.into());
    answer.insert("raises".to_owned(), raises);
    answer.into()
}

/// Its own contiguous memory, as safetensors wants it; a mask as 0 and 1.
fn plain(tensor: &Tensor) -> Tensor {
    let tensor = tensor.detach();
    let tensor = if tensor.kind() == tch::Kind::Bool {
        tensor.to_kind(tch::Kind::Uint8)
    } else {
        tensor
    };
    tensor.contiguous().copy()
}

/// JSON has no NaN.
pub fn json_number(number: f64) -> Value {
    if number.is_nan() {
        "NaN".into()
    } else if number.is_infinite() {
        if number > 0.0 {
            "Infinity".into()
        } else {
            "-Infinity".into()
        }
    } else {
        number.into()
    }
}

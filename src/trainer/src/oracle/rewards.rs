//! `reward_scores.json`: answer strings, and what the scorers give them.

use std::path::Path;
use std::sync::Arc;

use dialogue::score::{Gsm8k, Gsm8kMethod, Scorer, Scorers, Transcript};
use experiment::settings::ScorerName;
use serde_json::{Map, Value, json};

use crate::objective::oracle::{Answered, OracleError, json_number};

/// Writes the same file with our scores.
pub fn answer(directory: &Path, out: &Path) -> Result<Answered, OracleError> {
    let path = directory.join("reward_scores.json");
    let read = |source| OracleError::File {
        path: path.clone(),
        source,
    };
    let text = std::fs::read_to_string(&path).map_err(|error| read(error.into()))?;
    let document: Value = serde_json::from_str(&text).map_err(|error| read(error.into()))?;
    let cases = document["cases"].as_array().cloned().unwrap_or_default();
    let mut answered = Answered {
        cases: cases.len(),
        computed: 0,
        refused: 0,
        problems: Vec::new(),
    };
    let mut lacking: Vec<(String, usize)> = Vec::new();
    let mut written = Vec::new();
    for case in &cases {
        let scorer = case["scorer"].as_str().unwrap_or_default();
        let ours = match scorer {
            "gsm8k" => gsm8k(case),
            "default" => by_source(case),
            _ => {
                match lacking.iter_mut().find(|(name, _)| name == scorer) {
                    Some((_, count)) => *count += 1,
                    None => lacking.push((scorer.to_owned(), 1)),
                }
                continue;
            }
        };
        answered.computed += 1;
        written.push(ours);
    }
    for (scorer, count) in lacking {
        answered.problems.push(format!(
            "{count} cases: this build has no scorer {scorer}; it has gsm8k"
        ));
    }
    let document = json!({
        "function": "reward_scores",
        "program": concat!("lathe-trainer ", env!("CARGO_PKG_VERSION")),
        "cases": written,
    });
    let path = out.join("reward_scores.json");
    std::fs::write(&path, format!("{document:#}\n")).map_err(|error| OracleError::Write {
        path,
        source: error.into(),
    })?;
    Ok(answered)
}

fn value(value: impl Into<Value>) -> Value {
    json!({"value": value.into(), "raises": null})
}

fn gsm8k(case: &Value) -> Value {
    let solution = case["solution"].as_str().unwrap_or_default();
    let mut ours = Map::new();
    for key in ["scorer", "solution", "ground_truth"] {
        ours.insert(key.to_owned(), case[key].clone());
    }
    let scorer = |method, format_score| Gsm8k {
        method,
        format_score,
        ..Gsm8k::default()
    };
    for (key, method, format_score) in [
        ("strict", Gsm8kMethod::Strict, 0.0),
        ("flexible", Gsm8kMethod::Flexible, 0.0),
        ("strict_format_0_1", Gsm8kMethod::Strict, 0.1),
    ] {
        let scored = score(
            &scorer(method, format_score),
            solution,
            &case["ground_truth"],
        );
        ours.insert(key.to_owned(), scored);
    }
    for (key, method) in [
        ("extracted_strict", Gsm8kMethod::Strict),
        ("extracted_flexible", Gsm8kMethod::Flexible),
    ] {
        let extracted = scorer(method, 0.0).extract(solution);
        ours.insert(key.to_owned(), value(extracted));
    }
    let by_source = Scorers::new(ScorerName::Auto)
        .for_source("openai/gsm8k")
        .map_or_else(
            |error| json!({"value": null, "raises": error.to_string()}),
            |scorer| score(&*scorer, solution, &case["ground_truth"]),
        );
    ours.insert("default_openai_gsm8k".to_owned(), by_source);
    ours.into()
}

fn by_source(case: &Value) -> Value {
    let mut ours = case.clone();
    let source = case["data_source"].as_str().unwrap_or_default();
    ours["value"] = match Scorers::new(ScorerName::Auto).for_source(source) {
        Ok(scorer) => score(
            &*scorer,
            case["solution"].as_str().unwrap_or_default(),
            &case["ground_truth"],
        ),
        Err(error) => json!({"value": null, "raises": error.to_string()}),
    };
    ours
}

fn score(scorer: &dyn Scorer, solution: &str, ground_truth: &Value) -> Value {
    let transcript = Transcript {
        data_source: String::new(),
        ground_truth: ground_truth.clone(),
        extra_info: Value::Null,
        model_turns: vec![solution.to_owned()],
        messages: Vec::new(),
        prompt_messages: 0,
        tool_rewards: std::collections::BTreeMap::new(),
    };
    match block_on(scorer.score(&transcript)) {
        Ok(score) => value(json_number(score.value)),
        Err(error) => json!({"value": null, "raises": error.to_string()}),
    }
}

/// For futures that never wait, as those of text scorers.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unparks(std::thread::Thread);
    impl std::task::Wake for Unparks {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unparks(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

//! `reward_scores.json`: answer strings, and what the scorers give them.

use std::path::Path;
use std::sync::Arc;

use dialogue::score::{
    Gsm8k, Gsm8kMethod, Math, MathDapo, Scorer, Scorers, SearchEm, Transcript, Verdict,
};
use experiment::scorers::{SCORERS, ScorerName};
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
            "math" => math(case),
            "search_em" => search_em(case),
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
        let names: Vec<&str> = SCORERS.iter().map(|row| row.name).collect();
        answered.problems.push(format!(
            "{count} cases: this build has no scorer {scorer}; it has {}",
            names.join(", ")
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

/// What a case says itself.
fn given(case: &Value) -> Map<String, Value> {
    ["scorer", "solution", "ground_truth"]
        .into_iter()
        .map(|key| (key.to_owned(), case[key].clone()))
        .collect()
}

fn gsm8k(case: &Value) -> Value {
    let solution = case["solution"].as_str().unwrap_or_default();
    let mut ours = given(case);
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
    ours.insert(
        "default_openai_gsm8k".to_owned(),
        of_source("openai/gsm8k", case),
    );
    ours.into()
}

fn math(case: &Value) -> Value {
    let solution = case["solution"].as_str().unwrap_or_default();
    let truth = case["ground_truth"].as_str().unwrap_or_default();
    let mut ours = given(case);
    ours.insert(
        "math_reward".to_owned(),
        score(&Math::default(), solution, &case["ground_truth"]),
    );
    ours.insert("last_boxed".to_owned(), value(Math::last_boxed(solution)));
    for (key, strict_box) in [
        ("math_dapo", false),
        ("math_dapo_strict_box", true),
        ("default_aime", false),
    ] {
        let scorer = MathDapo {
            strict_box,
            ..MathDapo::default()
        };
        let Verdict { is_right, answer } = scorer.judge(solution, truth);
        let reward = if is_right { 1.0 } else { -1.0 };
        ours.insert(
            key.to_owned(),
            value(json!({"score": reward, "acc": is_right, "pred": answer})),
        );
    }
    ours.insert(
        "default_lighteval_MATH".to_owned(),
        of_source("lighteval/MATH", case),
    );
    ours.into()
}

fn search_em(case: &Value) -> Value {
    let solution = case["solution"].as_str().unwrap_or_default();
    let mut ours = given(case);
    ours.insert(
        "em".to_owned(),
        score(&SearchEm::default(), solution, &case["ground_truth"]),
    );
    ours.into()
}

/// What `reward.scorer: auto` gives the case as a row of this `data_source`.
fn of_source(data_source: &str, case: &Value) -> Value {
    match Scorers::new(ScorerName::Auto).for_source(data_source) {
        Ok(scorer) => score(
            &*scorer,
            case["solution"].as_str().unwrap_or_default(),
            &case["ground_truth"],
        ),
        Err(error) => json!({"value": null, "raises": error.to_string()}),
    }
}

fn by_source(case: &Value) -> Value {
    let mut ours = case.clone();
    let source = case["data_source"].as_str().unwrap_or_default();
    ours["value"] = of_source(source, case);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every case that verl 0.9.1 gave, in its own layout.
    const CASES: &str = include_str!("../../tests/oracles/reward_scores.json");

    fn same(ours: &Value, theirs: &Value) -> bool {
        match (ours, theirs) {
            (Value::Number(ours), Value::Number(theirs)) => ours.as_f64() == theirs.as_f64(),
            (Value::Object(ours), Value::Object(theirs)) => {
                // That the reference refuses a case is all that counts, not its words.
                let is_refusal = |value: &Value| value.is_string();
                ours.len() == theirs.len()
                    && ours.iter().all(|(key, value)| match theirs.get(key) {
                        Some(theirs) if key == "raises" => is_refusal(value) == is_refusal(theirs),
                        Some(theirs) => same(value, theirs),
                        None => false,
                    })
            }
            (ours, theirs) => ours == theirs,
        }
    }

    #[test]
    fn every_stored_score_is_the_references() {
        let directory = tempfile::tempdir().expect("a directory");
        let source = directory.path().join("reward_scores.json");
        std::fs::write(&source, CASES).expect("written");
        let out = directory.path().join("out");
        std::fs::create_dir(&out).expect("a directory");
        let answered = answer(directory.path(), &out).expect("answered");
        assert_eq!((answered.cases, answered.computed), (114, 114));
        assert!(answered.problems.is_empty(), "{:?}", answered.problems);
        let read = |text: &str| -> Value { serde_json::from_str(text).expect("valid JSON") };
        let ours = std::fs::read_to_string(out.join("reward_scores.json")).expect("an answer");
        let (ours, theirs) = (read(&ours), read(CASES));
        let pairs = ours["cases"].as_array().expect("cases").iter();
        for (ours, theirs) in pairs.zip(theirs["cases"].as_array().expect("cases")) {
            assert!(same(ours, theirs), "ours {ours}\ntheirs {theirs}");
        }
    }
}

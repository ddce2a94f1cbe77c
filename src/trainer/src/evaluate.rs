//! The numbers of one evaluation, by verl's names: `val-core/<data source>/reward/mean@N` and its companions.

use std::collections::{BTreeMap, BTreeSet};

use dialogue::rollout::Rollout;
use evaluation::Estimate;
use evaluation::answers::{self, Answer};
use runlog::number::{Number, Values};

use crate::arms::{is_score, quantile};

/// From this score on an answer is right, for pass@k.
const RIGHT: f64 = 1.0;

/// Over all rollouts, per data source. A missing score is left out of the means and counted; for pass@k and votes it is wrong.
pub fn values(rollouts: &[Rollout], elapsed_s: f64) -> Values {
    let mut values = Values::new();
    let mut by_source: BTreeMap<&str, Vec<&Rollout>> = BTreeMap::new();
    for rollout in rollouts {
        by_source
            .entry(&rollout.data_source)
            .or_default()
            .push(rollout);
    }
    for (source, rollouts) in by_source {
        of_source(&mut values, source, &rollouts);
    }
    let tokens: usize = rollouts.iter().map(Rollout::model_tokens).sum();
    if elapsed_s > 0.0 {
        let per_second = tokens as f64 / elapsed_s;
        values.insert("val-aux/tokens_per_s".to_owned(), Number(per_second));
    }
    values.insert("timing_s/testing".to_owned(), Number(elapsed_s));
    values
}

fn of_source(values: &mut Values, source: &str, rollouts: &[&Rollout]) {
    let samples = rollouts
        .iter()
        .map(|rollout| rollout.sample + 1)
        .max()
        .unwrap_or(1);
    let mut by_prompt: BTreeMap<&str, Vec<&Rollout>> = BTreeMap::new();
    for rollout in rollouts {
        by_prompt.entry(&rollout.uid).or_default().push(rollout);
    }
    let prompts: Vec<Vec<&Rollout>> = by_prompt.into_values().collect();
    let scores: Vec<Vec<f64>> = prompts
        .iter()
        .map(|prompt| prompt.iter().filter_map(|one| one.score).collect())
        .collect();
    let reward = |name: &str| format!("val-core/{source}/reward/{name}");
    let aside = |name: &str| format!("val-aux/{source}/{name}");
    let mut estimated = |name: &str, estimate: Option<Estimate>| {
        // NaN of nothing: an evaluation in which every score is missing has no mean.
        let mean = estimate.map_or(f64::NAN, |estimate| estimate.mean);
        values.insert(reward(name), Number(mean));
        if let Some(error) = estimate.and_then(|estimate| estimate.standard_error) {
            let name = aside(&format!("reward/{name}/standard_error"));
            values.insert(name, Number(error));
        }
    };
    estimated(&format!("mean@{samples}"), answers::mean(&scores));
    if samples > 1 {
        estimated(&format!("best@{samples}/mean"), answers::best(&scores));
        let votes: Vec<Vec<Answer>> = prompts.iter().map(|prompt| answered(prompt)).collect();
        if votes.iter().flatten().any(|answer| answer.says.is_some()) {
            let voted = answers::majority_of(&votes);
            estimated(&format!("maj@{samples}/mean"), voted);
        }
        let tries: Vec<(u64, u64)> = prompts.iter().map(|prompt| right(prompt)).collect();
        // 1, 2, 4, … and all of them.
        let powers = std::iter::successors(Some(1_u32), |k| k.checked_mul(2));
        for k in powers.take_while(|k| *k < samples).chain([samples]) {
            if let Some(passed) = answers::pass_at_k_of(&tries, k.into()) {
                estimated(&format!("pass@{k}"), Some(passed));
            }
        }
    }
    let scored: usize = scores.iter().map(Vec::len).sum();
    let missing = (rollouts.len() - scored) as f64 / rollouts.len() as f64;
    values.insert(aside("reward/missing_frac"), Number(missing));
    let of = |number: &dyn Fn(&Rollout) -> f64| -> Vec<f64> {
        rollouts.iter().map(|rollout| number(rollout)).collect()
    };
    for (name, numbers) in [
        ("num_turns/mean", of(&|one| f64::from(one.assistant_turns))),
        ("tool_call_counts/mean", of(&|one| one.tools.len() as f64)),
        (
            "response_length/mean",
            of(&|one| one.response_ids.len() as f64),
        ),
    ] {
        let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
        values.insert(aside(name), Number(mean));
    }
    let arms: BTreeSet<&String> = rollouts
        .iter()
        .flat_map(|rollout| rollout.score_parts.keys())
        .filter(|part| is_score(part))
        .collect();
    for arm in arms {
        let given = rollouts
            .iter()
            .filter_map(|rollout| rollout.score_parts.get(arm));
        let given: Vec<f64> = given.copied().collect();
        let mean = given.iter().sum::<f64>() / given.len() as f64;
        values.insert(aside(&format!("{arm}/mean")), Number(mean));
    }
    let mut seconds = of(&|one| (one.generate_ms + one.tool_ms + one.reward_ms) / 1e3);
    seconds.sort_by(f64::total_cmp);
    for (name, share) in [("p50", 0.5), ("p95", 0.95), ("max", 1.0)] {
        let value = quantile(&seconds, share);
        values.insert(aside(&format!("latency_s/{name}")), Number(value));
    }
}

fn answered(prompt: &[&Rollout]) -> Vec<Answer> {
    prompt
        .iter()
        .map(|rollout| Answer {
            score: rollout.score.unwrap_or(0.0),
            says: rollout.says.clone(),
        })
        .collect()
}

/// Answers, and right ones among them.
fn right(prompt: &[&Rollout]) -> (u64, u64) {
    let right = prompt
        .iter()
        .filter(|rollout| rollout.score.is_some_and(|score| score >= RIGHT))
        .count();
    (prompt.len() as u64, right as u64)
}

#[cfg(test)]
mod tests {
    use dialogue::rollout::Finish;

    use super::*;

    fn answer(uid: &str, sample: u32, says: Option<&str>, score: Option<f64>) -> Rollout {
        Rollout {
            uid: uid.to_owned(),
            sample,
            data_source: "lathe/calc".to_owned(),
            row_index: 0,
            prompt_ids: vec![1],
            response_ids: vec![2, 3],
            response_mask: vec![true, false],
            behavior_logprobs: vec![0.0; 2],
            policy_versions: vec![0; 2],
            messages: Vec::new(),
            assistant_turns: 1,
            tools: Vec::new(),
            finish: Finish::Stop,
            error: None,
            score,
            score_error: None,
            score_parts: BTreeMap::new(),
            says: says.map(str::to_owned),
            generate_ms: 1000.0 * f64::from(sample + 1),
            tool_ms: 0.0,
            reward_ms: 0.0,
        }
    }

    #[test]
    fn four_answers_a_prompt_give_their_mean_best_vote_and_pass_at_k_with_errors() {
        let rollouts: Vec<Rollout> = [
            ("a", Some("7"), Some(1.0)),
            ("a", Some("7"), Some(1.0)),
            ("a", Some("8"), Some(0.0)),
            ("a", None, None),
            ("b", Some("1"), Some(0.0)),
            ("b", Some("1"), Some(0.0)),
            ("b", Some("2"), Some(1.0)),
            ("b", Some("3"), Some(0.0)),
        ]
        .into_iter()
        .zip(0..)
        .map(|((uid, says, score), at)| answer(uid, at % 4, says, score))
        .collect();
        let values = values(&rollouts, 2.0);
        let close = |name: &str, expected: f64| {
            let found = values.get(name).unwrap_or_else(|| panic!("no {name}"));
            assert!((found.0 - expected).abs() < 1e-12, "{name}: {}", found.0);
        };
        // 2/3 of the three that have a score, and 1/4.
        close(
            "val-core/lathe/calc/reward/mean@4",
            f64::midpoint(2.0 / 3.0, 0.25),
        );
        close("val-core/lathe/calc/reward/best@4/mean", 1.0);
        close("val-core/lathe/calc/reward/maj@4/mean", 0.5);
        close(
            "val-core/lathe/calc/reward/pass@1",
            f64::midpoint(0.5, 0.25),
        );
        // 1 − C(2,2)/C(4,2) and 1 − C(3,2)/C(4,2).
        close(
            "val-core/lathe/calc/reward/pass@2",
            f64::midpoint(5.0 / 6.0, 0.5),
        );
        close("val-core/lathe/calc/reward/pass@4", 1.0);
        close("val-aux/lathe/calc/reward/maj@4/mean/standard_error", 0.5);
        close("val-aux/lathe/calc/reward/missing_frac", 0.125);
        close("val-aux/lathe/calc/latency_s/p50", 2.0);
        close("val-aux/lathe/calc/latency_s/max", 4.0);
        close("val-aux/tokens_per_s", 4.0);
    }

    #[test]
    fn one_answer_a_prompt_has_no_vote_and_no_tries_and_no_score_at_all_is_no_number() {
        let one = values(&[answer("a", 0, Some("7"), None)], 0.0);
        assert!(one["val-core/lathe/calc/reward/mean@1"].0.is_nan());
        let is_of_many = |name: &str| {
            ["maj@", "pass@", "best@"]
                .iter()
                .any(|of| name.contains(of))
        };
        assert!(!one.keys().any(|name| is_of_many(name)), "{one:?}");
    }
}

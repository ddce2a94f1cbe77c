//! Several answers to each prompt: what the model reaches on average, with k tries, and by a vote.

use std::collections::BTreeMap;

use crate::Estimate;

/// One answer of a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    pub score: f64,
    /// What it was found to say, for a vote; None: nothing could be read, and it has no vote.
    pub says: Option<String>,
}

/// Mean score, first over the answers of a prompt, then over prompts: prompts are what is drawn independently, so the error is
/// that of their means. None of no prompt; one without answers counts for nothing.
pub fn mean(prompts: &[Vec<f64>]) -> Option<Estimate> {
    let means: Vec<f64> = prompts
        .iter()
        .filter_map(|scores| Estimate::of(scores))
        .map(|estimate| estimate.mean)
        .collect();
    Estimate::of(&means)
}

/// The chance that at least one of `k` answers, drawn without replacement from `n` of which `right` are right, is right:
/// 1 − C(n−right, k) / C(n, k), the unbiased estimator of pass@k (Chen et al. 2021, <https://arxiv.org/abs/2107.03374>, section
/// 2.1). None where there are fewer than `k` answers, or `k` is 0.
pub fn pass_at_k(n: u64, right: u64, k: u64) -> Option<f64> {
    if k == 0 || k > n || right > n {
        return None;
    }
    if n - right < k {
        return Some(1.0);
    }
    // Π (1 − k/i) over i = n−right+1..n: no binomial that could overflow.
    let none: f64 = (n - right + 1..=n)
        .map(|i| 1.0 - k as f64 / i as f64)
        .product();
    Some(1.0 - none)
}

/// Mean of [`pass_at_k`] over prompts, each as (answers, right ones), with its error. None where a prompt has fewer than `k`.
pub fn pass_at_k_of(prompts: &[(u64, u64)], k: u64) -> Option<Estimate> {
    let chances: Option<Vec<f64>> = prompts
        .iter()
        .map(|(n, right)| pass_at_k(*n, *right, k))
        .collect();
    Estimate::of(&chances?)
}

/// The mean best score of a prompt's answers; None of no answers.
pub fn best(prompts: &[Vec<f64>]) -> Option<Estimate> {
    let best: Vec<f64> = prompts
        .iter()
        .filter_map(|scores| scores.iter().copied().reduce(f64::max))
        .collect();
    Estimate::of(&best)
}

/// The score of what most answers say (self-consistency, Wang et al. 2022, <https://arxiv.org/abs/2203.11171>). Answers that say the
/// same may score differently (a format term): their mean counts. Of several that are said equally often each is as likely, so
/// their mean counts too: no number depends on an order. 0 where nothing can be read in any answer; None of no answers.
pub fn majority(answers: &[Answer]) -> Option<f64> {
    if answers.is_empty() {
        return None;
    }
    let mut said: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for answer in answers {
        if let Some(says) = &answer.says {
            said.entry(says).or_default().push(answer.score);
        }
    }
    let most = said.values().map(Vec::len).max().unwrap_or(0);
    let leading: Vec<f64> = said
        .values()
        .filter(|scores| scores.len() == most)
        .filter_map(|scores| Estimate::of(scores))
        .map(|estimate| estimate.mean)
        .collect();
    Some(Estimate::of(&leading).map_or(0.0, |estimate| estimate.mean))
}

/// Mean of [`majority`] over prompts, with its error.
pub fn majority_of(prompts: &[Vec<Answer>]) -> Option<Estimate> {
    let votes: Vec<f64> = prompts
        .iter()
        .filter_map(|answers| majority(answers))
        .collect();
    Estimate::of(&votes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(says: Option<&str>, score: f64) -> Answer {
        Answer {
            score,
            says: says.map(str::to_owned),
        }
    }

    proptest! {
        /// Every way to draw k of n answers, counted.
        #[test]
        fn pass_at_k_is_the_share_of_draws_with_a_right_answer(n in 1_u32..12, right in 0_u32..12, k in 1_u32..12) {
            let (right, k) = (right.min(n), k.min(n));
            let draws = (0_u32..1 << n).filter(|draw| draw.count_ones() == k);
            let (all, passed) = draws.fold((0_u32, 0_u32), |(all, passed), draw| {
                // The first `right` answers are the right ones.
                (all + 1, passed + u32::from(draw & ((1 << right) - 1) != 0))
            });
            let found = pass_at_k(n.into(), right.into(), k.into()).expect("k of n");
            prop_assert!((found - f64::from(passed) / f64::from(all)).abs() < 1e-12);
        }

        #[test]
        fn a_vote_depends_on_no_order(
            mut answers in prop::collection::vec((prop::option::of(0_u8..4), 0_u8..3), 1..9), seed: u64,
        ) {
            let vote = |answers: &[(Option<u8>, u8)]| {
                let answers: Vec<Answer> = answers.iter()
                    .map(|(says, score)| answer(says.map(|says| says.to_string()).as_deref(), f64::from(*score)))
                    .collect();
                majority(&answers).expect("there are some")
            };
            let before = vote(&answers);
            let length = answers.len();
            answers.rotate_left((seed % length as u64) as usize);
            answers.reverse();
            prop_assert!((vote(&answers) - before).abs() < 1e-12);
        }
    }

    #[test]
    fn pass_at_k_has_the_values_of_the_paper_s_formula() {
        let close =
            |found: Option<f64>, expected: f64| (found.expect("k of n") - expected).abs() < 1e-12;
        assert!(close(pass_at_k(5, 2, 1), 0.4));
        assert!(close(pass_at_k(5, 2, 2), 0.7));
        assert!(close(pass_at_k(5, 2, 4), 1.0));
        assert!(close(pass_at_k(200, 0, 100), 0.0));
        // C(199, 100) / C(200, 100) = 1/2; either overflows any integer.
        assert!(close(pass_at_k(200, 1, 100), 0.5));
        assert_eq!(pass_at_k(3, 1, 4), None);
        assert_eq!(pass_at_k(3, 1, 0), None);
        let mean = pass_at_k_of(&[(4, 4), (4, 0)], 2).expect("two prompts");
        assert!(close(Some(mean.mean), 0.5));
        assert_eq!(
            pass_at_k_of(&[(4, 4), (1, 0)], 2),
            None,
            "one prompt has too few"
        );
    }

    #[test]
    fn what_most_answers_say_is_the_vote_and_a_tie_is_shared() {
        let vote = |answers: &[Answer]| majority(answers).expect("there are some");
        let seven = answer(Some("7"), 1.0);
        let eight = answer(Some("8"), 0.0);
        let none = answer(None, 0.0);
        assert_eq!(vote(&[seven.clone(), eight.clone(), seven.clone()]), 1.0);
        assert_eq!(vote(&[seven.clone(), eight.clone(), eight.clone()]), 0.0);
        assert_eq!(vote(&[seven.clone(), eight.clone()]), 0.5);
        // Three that say nothing outvote nobody.
        assert_eq!(
            vote(&[none.clone(), none.clone(), none.clone(), seven.clone()]),
            1.0
        );
        assert_eq!(vote(&[none.clone(), none]), 0.0);
        assert_eq!(majority(&[]), None);
        assert_eq!(
            vote(&[answer(Some("7"), 1.0), answer(Some("7"), 0.5), eight]),
            0.75
        );
    }

    #[test]
    fn prompts_count_alike_however_many_answers_they_have() {
        let prompts = [vec![1.0, 1.0, 1.0], vec![0.0]];
        let estimate = mean(&prompts).expect("two prompts");
        assert_eq!(estimate.mean, 0.5);
        // Two prompts, not four answers: s = √½, over √2.
        assert!((estimate.standard_error.expect("two prompts") - 0.5).abs() < 1e-15);
        assert_eq!(
            best(&[vec![0.0, 1.0], vec![0.25, 0.0]]).map(|best| best.mean),
            Some(0.625)
        );
        assert_eq!(mean(&[Vec::new()]), None);
    }
}

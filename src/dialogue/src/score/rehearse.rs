//! Every arm asked for real before the first step: what cannot work is found now and not hours later.

use std::time::Duration;

use serde_json::Value;

use super::{ScoreError, Scorers, Transcript};
use crate::message::Message;
use crate::session::{Owner, Waits};
use crate::tool::Interrupted;

/// What an arm may take when it is tried, if its time-out is not longer: the first answer also warms things up.
const LEAST_PATIENCE: Duration = Duration::from_secs(30);

/// How an arm did.
#[derive(Debug, Clone, PartialEq)]
pub struct Rehearsed {
    pub arm: String,
    pub asked: u32,
    pub failed: u32,
    /// The last failure's.
    pub error: Option<String>,
    /// The quickest answer: the first also warms things up.
    pub quickest: Option<Duration>,
    pub timeout: Duration,
}

impl Rehearsed {
    /// It never gave a score.
    pub fn is_broken(&self) -> bool {
        self.failed == self.asked
    }

    /// Even its quickest answer would have come too late.
    pub fn is_too_slow(&self) -> bool {
        self.quickest
            .is_some_and(|quickest| quickest > self.timeout)
    }
}

/// A prompt, for an arm to be tried on.
#[derive(Debug, Clone)]
pub struct Tried {
    pub data_source: String,
    pub ground_truth: Value,
    pub extra_info: Value,
    pub messages: Vec<Message>,
}

impl Scorers {
    /// Asks every arm about every prompt, with an answer that should be right where that is known, else with the truth. Empty
    /// where there are no arms. Which arm is being waited for, and how long it will be, is in `waits`.
    pub async fn rehearse(&self, prompts: &[Tried], waits: &Waits) -> Vec<Rehearsed> {
        let Some(arms) = self.arms() else {
            return Vec::new();
        };
        let mut all: Vec<Rehearsed> = arms
            .names()
            .into_iter()
            .map(|name| Rehearsed {
                arm: name.to_owned(),
                asked: 0,
                failed: 0,
                error: None,
                quickest: None,
                timeout: arms.timeout_of(name).unwrap_or_default(),
            })
            .collect();
        for arm in &mut all {
            let limit = arm.timeout.max(LEAST_PATIENCE);
            for prompt in prompts {
                let _wait = waits.enter(
                    Owner::Part("reward"),
                    format!("arm {}, which is tried", arm.arm),
                    tokio::time::Instant::now().checked_add(limit),
                );
                let (outcome, took) = arms.try_one(&arm.arm, &transcript(prompt), limit).await;
                arm.asked += 1;
                match outcome {
                    Ok(_) => arm.quickest = Some(arm.quickest.map_or(took, |best| best.min(took))),
                    Err(error) => {
                        arm.failed += 1;
                        arm.error = Some(error.to_string());
                        // One that hangs would hang again.
                        if matches!(error, ScoreError::Interrupted(Interrupted::TimedOut { .. })) {
                            break;
                        }
                    }
                }
            }
        }
        all
    }
}

fn transcript(prompt: &Tried) -> Transcript {
    let answer = super::alternatives(&prompt.ground_truth)
        .and_then(|truths| truths.into_iter().next())
        .unwrap_or_else(|| prompt.ground_truth.to_string());
    let answer = format!("The answer is \\boxed{{{answer}}}\n#### {answer}");
    let mut messages = prompt.messages.clone();
    messages.push(Message::new("assistant", answer.clone()));
    Transcript {
        data_source: prompt.data_source.clone(),
        ground_truth: prompt.ground_truth.clone(),
        extra_info: prompt.extra_info.clone(),
        model_turns: vec![answer],
        prompt_messages: prompt.messages.len(),
        messages,
        tool_rewards: std::collections::BTreeMap::new(),
    }
}

/// An arm that gave no score for any row is an error, which ends a run; the warnings are of those that will always be late, or failed now and then.
pub fn judge(rehearsed: &[Rehearsed]) -> Result<Vec<String>, String> {
    let mut warnings = Vec::new();
    for arm in rehearsed {
        let error = arm.error.as_deref().unwrap_or_default();
        if arm.asked > 0 && arm.is_broken() {
            return Err(format!(
                "reward.arms: {} gave no score for any of the {} rows it was tried on: {error}",
                arm.arm, arm.asked
            ));
        }
        if arm.failed > 0 {
            warnings.push(format!(
                "reward.arms: {} gave no score for {} of the {} rows it was tried on: {error}",
                arm.arm, arm.failed, arm.asked
            ));
        }
        if let (true, Some(quickest)) = (arm.is_too_slow(), arm.quickest) {
            warnings.push(format!(
                "reward.arms: {} took {:.0} ms when it was tried, and its timeout is {:.0} ms: nearly every dialogue will get its default",
                arm.arm,
                quickest.as_secs_f64() * 1e3,
                arm.timeout.as_secs_f64() * 1e3
            ));
        }
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_that_never_scored_ends_the_run_and_a_slow_one_is_named() {
        let mut arm = Rehearsed {
            arm: "judge".to_owned(),
            asked: 4,
            failed: 1,
            error: Some("no".to_owned()),
            quickest: Some(Duration::from_millis(800)),
            timeout: Duration::from_millis(50),
        };
        assert_eq!(
            judge(&[arm.clone()]).expect("warnings"),
            [
                "reward.arms: judge gave no score for 1 of the 4 rows it was tried on: no",
                "reward.arms: judge took 800 ms when it was tried, and its timeout is 50 ms: nearly every dialogue will get its default",
            ]
        );
        arm.failed = 4;
        let error = judge(&[arm]).expect_err("broken");
        assert_eq!(
            error,
            "reward.arms: judge gave no score for any of the 4 rows it was tried on: no"
        );
    }
}

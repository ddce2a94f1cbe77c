//! DAPO's soft overlong punishment (<https://arxiv.org/abs/2503.14476>; verl's dapo reward manager): what a dialogue loses as
//! it nears the longest that is allowed.

use dialogue::rollout::Rollout;
use experiment::Experiment;

/// Under this name a rollout's `score_parts` hold what its score lost.
pub const OVERLONG_PENALTY: &str = "overlong_penalty";

/// 0 up to `most` − `buffer` tokens, then falling by `factor` over the buffer: −(length − (most − buffer)) / buffer · factor.
pub fn penalty(length_tokens: u64, most_tokens: u64, buffer_tokens: u64, factor: f64) -> f64 {
    let beyond = length_tokens as f64 - (most_tokens as f64 - buffer_tokens as f64);
    (-beyond / buffer_tokens as f64 * factor).min(0.0)
}

/// Takes the penalty off every score, where the experiment asks for it. The length is that of the whole dialogue after the
/// prompt, tool text too. A missing score stays missing.
pub fn apply(rollouts: &mut [Rollout], experiment: &Experiment) {
    let settings = &experiment.reward.reward_kwargs;
    let buffer = &settings.overlong_buffer_cfg;
    if !buffer.enable {
        return;
    }
    let most = settings
        .max_resp_len
        .unwrap_or(experiment.data.max_response_length);
    for rollout in rollouts {
        if let Some(score) = &mut rollout.score {
            let lost = penalty(
                rollout.response_ids.len() as u64,
                most.into(),
                buffer.len.into(),
                buffer.penalty_factor,
            );
            *score += lost;
            rollout
                .score_parts
                .insert(OVERLONG_PENALTY.to_owned(), lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_penalty_begins_with_the_buffer_and_reaches_the_factor_at_the_limit() {
        assert_eq!(penalty(10, 100, 20, 1.0), 0.0);
        assert_eq!(penalty(80, 100, 20, 1.0), 0.0);
        assert_eq!(penalty(90, 100, 20, 1.0), -0.5);
        assert_eq!(penalty(100, 100, 20, 2.0), -2.0);
    }
}

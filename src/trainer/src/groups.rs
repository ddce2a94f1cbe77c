//! The groups of one training batch as the estimator wants them: the samples of each prompt and, for remax, one greedy answer
//! beside them, scored and never trained on. Knows sessions, not weights or files.

use std::sync::Arc;

use dialogue::generate::Sampling;
use dialogue::rollout::Rollout;
use dialogue::session::{Batch, Runner};
use experiment::estimators::Need;
use experiment::settings::Algorithm;

use crate::learner::GREEDY_BASELINE;

/// Runs the batch; rollouts in the order (prompt, sample).
pub async fn sample(runner: &Runner, algorithm: &Algorithm, batch: Batch) -> Vec<Rollout> {
    if !algorithm.adv_estimator.needs(Need::GreedyBaseline) {
        return runner.run(batch).await;
    }
    let samples = batch.samples as usize;
    let greedy = greedy(&batch);
    let (mut rollouts, answers) = tokio::join!(runner.run(batch), runner.run(greedy));
    for (group, answer) in rollouts.chunks_mut(samples.max(1)).zip(answers) {
        // A prompt whose greedy answer has no score has no baseline, which is not the same as 0.
        if let Some(score) = answer.score {
            for rollout in group {
                rollout
                    .score_parts
                    .insert(GREEDY_BASELINE.to_owned(), score);
            }
        }
    }
    rollouts
}

/// The likeliest answer to each prompt of `batch`.
fn greedy(batch: &Batch) -> Batch {
    Batch {
        label: format!("greedy-{}", batch.label),
        samples: 1,
        sampling: Sampling {
            temperature: 0.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            ..batch.sampling.clone()
        },
        // The run's log counts what is trained on.
        observer: Arc::new(()),
        ..batch.clone()
    }
}

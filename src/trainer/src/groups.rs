//! The groups of one training batch as the estimator wants them: the samples of each prompt and, for remax, one greedy answer
//! beside them, scored and never trained on. Knows sessions, not weights or files.

use std::sync::Arc;

use dialogue::generate::Sampling;
use dialogue::rollout::Rollout;
use dialogue::session::{Batch, Opened, Runner};
use experiment::Experiment;
use experiment::estimators::Need;
use experiment::settings::FilterGroups;

use crate::arms;
use crate::learner::GREEDY_BASELINE;
use crate::overlong;

/// Most batches drawn for one step where the experiment sets no bound.
const MOST_BATCHES: u32 = 10;

/// A batch whose sessions are open, greedy answers included.
#[derive(Debug)]
pub struct OpenBatch {
    sampled: Opened,
    greedy: Option<Opened>,
    samples: usize,
}

/// Opens the sessions of a batch.
pub fn open(runner: &Runner, experiment: &Experiment, batch: &Batch) -> OpenBatch {
    let needs_greedy = experiment
        .algorithm
        .adv_estimator
        .needs(Need::GreedyBaseline);
    OpenBatch {
        sampled: runner.open(batch),
        greedy: needs_greedy.then(|| runner.open(&greedy(batch))),
        samples: batch.samples as usize,
    }
}

impl OpenBatch {
    /// Runs the batch; rollouts in the order (prompt, sample), their scores shaped as the experiment says.
    pub async fn run(self, experiment: &Experiment) -> Vec<Rollout> {
        let mut rollouts = match self.greedy {
            None => self.sampled.run().await,
            Some(greedy) => {
                let (mut rollouts, answers) = tokio::join!(self.sampled.run(), greedy.run());
                let groups = rollouts.chunks_mut(self.samples.max(1));
                for (group, answer) in groups.zip(answers) {
                    // A prompt whose greedy answer has no score has no baseline, which is not the same as 0.
                    let Some(score) = answer.score else {
                        continue;
                    };
                    // Each arm's own beside it, for an arm that is chosen later.
                    let of_arms: Vec<(String, f64)> = (answer.score_parts.iter())
                        .filter(|(part, _)| arms::is_score(part))
                        .map(|(part, score)| (format!("{GREEDY_BASELINE}/{part}"), *score))
                        .collect();
                    for rollout in group {
                        let parts = &mut rollout.score_parts;
                        parts.insert(GREEDY_BASELINE.to_owned(), score);
                        parts.extend(of_arms.iter().cloned());
                    }
                }
                rollouts
            }
        };
        overlong::apply(&mut rollouts, experiment);
        rollouts
    }
}

/// DAPO's dynamic sampling: groups that teach something, gathered over the batches drawn for one step.
#[derive(Debug)]
pub struct Gathered {
    filter: FilterGroups,
    /// Groups wanted, and samples a group.
    groups: usize,
    samples: usize,
    kept: Vec<Rollout>,
    /// What the last batch held; trained on when nothing at all was kept.
    last: Vec<Rollout>,
    batches: u32,
    seen: usize,
}

impl Gathered {
    /// None where the experiment does not filter.
    pub fn new(experiment: &Experiment) -> Option<Self> {
        let filter = &experiment.algorithm.filter_groups;
        filter.enable.then(|| Self {
            filter: filter.clone(),
            groups: experiment.data.train_batch_size as usize,
            samples: experiment.actor_rollout_ref.rollout.n as usize,
            kept: Vec::new(),
            last: Vec::new(),
            batches: 0,
            seen: 0,
        })
    }

    /// Takes a batch in, in the order (prompt, sample). Whether another is wanted.
    pub fn take(&mut self, rollouts: &[Rollout]) -> bool {
        self.batches += 1;
        self.last.clear();
        for group in rollouts.chunks(self.samples) {
            self.seen += 1;
            if teaches(group, &self.filter.metric) && self.kept.len() < self.groups * self.samples {
                self.kept.extend_from_slice(group);
            } else {
                self.last.extend_from_slice(group);
            }
        }
        let most = match self.filter.max_num_gen_batches {
            0 => MOST_BATCHES,
            most => most,
        };
        self.kept.len() < self.groups * self.samples && self.batches < most
    }

    /// The step's rollouts; how many groups were drawn for each one kept; and what to say when they are too few.
    pub fn finish(self) -> (Vec<Rollout>, f64, Option<String>) {
        let kept = self.kept.len() / self.samples.max(1);
        let alarm = (kept < self.groups).then(|| {
            format!(
                "{} batches ({} prompts) gave {kept} groups whose samples differ in {}, of {} wanted; the step trains on {}",
                self.batches,
                self.seen,
                self.filter.metric,
                self.groups,
                if kept == 0 { "the last batch as it is" } else { "these" }
            )
        });
        let drawn = self.seen as f64 / kept.max(1) as f64;
        let rollouts = if kept == 0 { self.last } else { self.kept };
        (rollouts, drawn, alarm)
    }
}

/// Whether two samples of a group differ in `metric`. One that was not scored differs from none.
fn teaches(group: &[Rollout], metric: &str) -> bool {
    let mut numbers = group.iter().filter_map(|rollout| match metric {
        "reward" => rollout.score,
        name => rollout.score_parts.get(name).copied(),
    });
    let first = numbers.next();
    first.is_some_and(|first| numbers.any(|number| number != first))
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

#[cfg(test)]
pub(crate) mod tests {
    use dialogue::rollout::Finish;

    use super::*;

    pub(crate) fn group(uid: &str, scores: [Option<f64>; 2]) -> Vec<Rollout> {
        (0..)
            .zip(scores)
            .map(|(sample, score)| Rollout {
                uid: uid.to_owned(),
                sample,
                data_source: String::new(),
                row_index: 0,
                prompt_ids: vec![1],
                response_ids: vec![2],
                response_mask: vec![true],
                behavior_logprobs: vec![0.0],
                policy_versions: vec![0],
                messages: Vec::new(),
                assistant_turns: 1,
                tools: Vec::new(),
                finish: Finish::Stop,
                error: None,
                score,
                score_error: None,
                score_parts: [("acc".to_owned(), f64::from(sample))].into(),
                says: None,
                generate_ms: 0.0,
                tool_ms: 0.0,
                reward_ms: 0.0,
            })
            .collect()
    }

    fn gathered(metric: &str, most: u32) -> Gathered {
        let mut experiment = Experiment::default();
        experiment.data.train_batch_size = 2;
        experiment.actor_rollout_ref.rollout.n = 2;
        experiment.algorithm.filter_groups = FilterGroups {
            enable: true,
            metric: metric.to_owned(),
            max_num_gen_batches: most,
        };
        Gathered::new(&experiment).expect("it filters")
    }

    fn uids(rollouts: &[Rollout]) -> Vec<&str> {
        rollouts
            .iter()
            .map(|rollout| rollout.uid.as_str())
            .collect()
    }

    #[test]
    fn groups_of_equal_scores_are_refilled_from_further_batches_and_a_surplus_is_left() {
        let mut gathered = gathered("reward", 0);
        let first = [
            group("a", [Some(1.0), Some(1.0)]),
            group("b", [Some(0.0), Some(1.0)]),
        ];
        assert!(gathered.take(&first.concat()), "one group is missing");
        let second = [
            group("c", [Some(0.5), None]),
            group("d", [Some(2.0), Some(1.0)]),
            group("e", [Some(2.0), Some(1.0)]),
        ];
        assert!(!gathered.take(&second.concat()));
        let (rollouts, drawn, alarm) = gathered.finish();
        assert_eq!(uids(&rollouts), ["b", "b", "d", "d"]);
        assert_eq!((drawn, alarm), (2.5, None));
    }

    #[test]
    fn at_the_bound_it_trains_on_what_it_has_and_says_so() {
        let mut few = gathered("reward", 2);
        let equal = || [group("a", [Some(1.0), Some(1.0)]), group("b", [None, None])].concat();
        assert!(few.take(&[group("c", [Some(1.0), Some(0.0)]), equal()].concat()));
        assert!(!few.take(&equal()), "two batches are the most");
        let (rollouts, _, alarm) = few.finish();
        assert_eq!(uids(&rollouts), ["c", "c"]);
        assert!(alarm.expect("it says so").contains("gave 1 groups"));

        let mut none = gathered("reward", 1);
        assert!(!none.take(&equal()));
        let (rollouts, _, alarm) = none.finish();
        assert_eq!(uids(&rollouts), ["a", "a", "b", "b"], "better than no step");
        assert!(
            alarm
                .expect("it says so")
                .contains("the last batch as it is")
        );
    }

    #[test]
    fn another_number_of_the_scorer_may_be_what_is_compared() {
        let mut gathered = gathered("acc", 0);
        let equal = [
            group("a", [Some(1.0), Some(1.0)]),
            group("b", [Some(1.0), Some(1.0)]),
        ];
        assert!(!gathered.take(&equal.concat()));
    }
}

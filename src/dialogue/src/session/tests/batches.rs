//! Many dialogues together: order, seeds, duplicates, one's failure beside the others.

use std::collections::HashSet;

use serde_json::json;

use super::super::Counts;
use super::super::scripted::{calls, says};
use super::*;
use crate::rollout::Finish;
use crate::score::{Score, ScoreError, Scorer, Transcript};

#[tokio::test]
async fn one_failing_dialogue_never_loses_the_others() {
    let bench = Bench::new(|request, turn| match (request.session.0, turn) {
        (2, 0) => calls("odd", &json!({"how": "poison"})),
        _ => says("2990"),
    });
    let mut rows: Vec<Prompt> = (0..6).map(|row| prompt(row, "q")).collect();
    rows[0].data_source = "my/data".to_owned();
    rows[1].agent_name = Some("my_agent".to_owned());
    rows[3].messages[0] = Message::new("user", "unrenderable");
    rows[4].ground_truth = json!("many");
    // Rows 2, 5 and 6 begin, as sessions 0, 1 and 2; the other four cannot and open none.
    rows.push(prompt(6, "q"));
    let rollouts = bench.run(rows).await;
    let errors: Vec<&str> = rollouts
        .iter()
        .map(|rollout| rollout.error.as_deref().unwrap_or(""))
        .collect();
    assert!(errors[0].starts_with("row 0: no scorer for data_source `my/data`"));
    assert_eq!(
        errors[1],
        "row 1: agent_name is `my_agent`; expected single_turn_agent or tool_agent"
    );
    assert_eq!(errors[3], "row 3: the prompt cannot be rendered: no");
    assert!(errors[4].starts_with("row 4: reward_model.ground_truth: the ground truth \"many\""));
    assert_eq!(errors[6], "the session panicked: poisoned");
    for good in [2, 5] {
        assert_eq!(rollouts[good].score, Some(1.0));
    }
    let counts = Counts::of(&rollouts);
    assert_eq!(counts.finished[&Finish::Error], 5);
    assert_eq!(counts.finished[&Finish::Stop], 2);
}

#[tokio::test]
async fn samples_differ_in_their_seeds_and_a_rerun_has_the_same_ones() {
    let seeds = |round: u64| async move {
        let mut bench = Bench::new(|_, turn| match turn {
            0 => calls("calculator", &json!({"expression": "1"})),
            _ => says("2990"),
        });
        bench.samples = 8;
        let mut batch = bench.batch(vec![prompt(7, "q"), prompt(8, "q"), prompt(7, "q")]);
        batch.round = round;
        let rollouts = bench.runner().run(batch).await;
        let uids: HashSet<String> = rollouts.into_iter().map(|rollout| rollout.uid).collect();
        assert_eq!(uids.len(), 3, "a row that comes twice makes two groups");
        let mut seeds: Vec<u64> = bench
            .generator
            .requests()
            .iter()
            .map(|request| request.seed)
            .collect();
        seeds.sort_unstable();
        seeds
    };
    let first = seeds(1).await;
    assert_eq!(first.iter().collect::<HashSet<_>>().len(), 3 * 8 * 2);
    assert_eq!(first, seeds(1).await);
    assert_ne!(first, seeds(2).await);
}

#[tokio::test]
async fn equal_samples_of_a_group_are_counted() {
    let mut bench =
        Bench::new(|request, _| says(if request.session.0 % 4 == 0 { "1" } else { "2" }));
    bench.samples = 4;
    let rollouts = bench.run(vec![prompt(0, "a"), prompt(1, "a")]).await;
    // In each group: 1, 2, 2, 2.
    assert_eq!(Counts::of(&rollouts).duplicates, 4);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_dialogues_run_at_once_and_come_back_in_order() {
    let mut bench = Bench::new(|request, turn| {
        // Finishes in an order of its own.
        let seconds = (request.session.0 * 7919) % 100;
        match turn {
            0 => calls("calculator", &json!({"expression": "1+1"})).after(seconds),
            _ => says("2990").after(seconds),
        }
    });
    bench.samples = 8;
    let start = tokio::time::Instant::now();
    let rollouts = bench
        .run((0..125).map(|row| prompt(row, "q")).collect())
        .await;
    assert_eq!(rollouts.len(), 1000);
    for (index, rollout) in rollouts.iter().enumerate() {
        assert_eq!(rollout.row_index, index as u64 / 8);
        assert_eq!(u64::from(rollout.sample), index as u64 % 8);
        assert_eq!(rollout.score, Some(1.0));
    }
    // The slowest takes 198 s of the engine's time; in a row they would take 99,000.
    assert_eq!(start.elapsed().as_secs(), 198);
}

struct Fails;

impl Scorer for Fails {
    fn name(&self) -> &'static str {
        "fails"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move {
            match transcript.model_turns[0].as_str() {
                "panic" => panic!("boom"),
                "hang" => std::future::pending().await,
                _ => Ok(Score::new(0.0)),
            }
        })
    }

    fn check(&self, _: &Value) -> Result<(), ScoreError> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_score_is_missing_and_counted_and_not_0() {
    let mut bench =
        Bench::new(|request, _| says(["panic", "hang", "wrong"][request.session.0 as usize]));
    bench.scorers.register("lathe/calc", Arc::new(Fails));
    bench.samples = 3;
    let rollouts = bench.run(vec![prompt(0, "q")]).await;
    let scores: Vec<Option<f64>> = rollouts.iter().map(|rollout| rollout.score).collect();
    assert_eq!(scores, [None, None, Some(0.0)]);
    assert_eq!(
        rollouts[0].score_error.as_deref(),
        Some("the scorer panicked: boom")
    );
    assert_eq!(rollouts[1].reward_ms.round(), 60_000.0);
    assert_eq!(Counts::of(&rollouts).missing_scores, 2);
}

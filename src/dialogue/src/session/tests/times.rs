//! Overlap, deadlines, cancellation, lockstep: in tokio's own time.

use serde_json::json;

use super::super::scripted::{Event, Reply, calls, ids, says};
use super::*;
use crate::rollout::{CallFailure, Finish};
use crate::score::{Score, ScoreError, Scorer, Transcript};

/// Row 0's tool takes 100 s; every model turn takes 1 s.
fn one_slow_tool(request: &TurnRequest, turn: u32) -> Reply {
    match (request.session.0, turn) {
        (0, 0) => calls("odd", &json!({"how": "50 s"})).after(1),
        (_, 0) => calls("odd", &json!({"how": "2 s"})).after(1),
        _ => says("2990").after(1),
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_tool_holds_up_its_own_dialogue_only() {
    let heard = Arc::new(Heard::default());
    let mut bench = Bench::new(one_slow_tool);
    bench.observer = heard.clone();
    let rollouts = bench
        .run((0..4).map(|row| prompt(row, "q")).collect())
        .await;
    let ends: BTreeMap<String, f64> = heard
        .all()
        .into_iter()
        .filter(|(what, ..)| what.ends_with(" end"))
        .map(|(what, _, end)| (what, end.round()))
        .collect();
    assert_eq!(
        ends.into_values().collect::<Vec<_>>(),
        [52.0, 4.0, 4.0, 4.0]
    );
    assert_eq!(rollouts[0].tool_ms.round(), 50_000.0);
    assert_eq!(rollouts[0].generate_ms.round(), 2000.0);
    assert_eq!(rollouts[1].tool_ms.round(), 2000.0);
}

#[tokio::test(start_paused = true)]
async fn sessions_are_opened_before_the_first_turn_and_released_before_they_are_scored() {
    struct Watch(Arc<Scripted>);
    impl Scorer for Watch {
        fn name(&self) -> &'static str {
            "watch"
        }
        fn score<'a>(&'a self, _: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
            Box::pin(async { Ok(Score::new(self.0.open_sessions() as f64)) })
        }
        fn check(&self, _: &Value) -> Result<(), ScoreError> {
            Ok(())
        }
    }
    let mut bench = Bench::new(|request, _| says("2990").after(1 + request.session.0));
    bench
        .scorers
        .register("lathe/calc", Arc::new(Watch(bench.generator.clone())));
    bench.samples = 2;
    let rollouts = bench
        .run((0..3).map(|row| prompt(row, "q")).collect())
        .await;
    let events = bench.generator.events();
    assert!(
        events[..6]
            .iter()
            .all(|event| matches!(event, Event::Opened(_)))
    );
    let released = events
        .iter()
        .filter(|event| matches!(event, Event::Released(_)));
    assert_eq!(released.count(), 6);
    let still_open: Vec<Option<f64>> = rollouts.iter().map(|rollout| rollout.score).collect();
    assert_eq!(still_open, [5.0, 4.0, 3.0, 2.0, 1.0, 0.0].map(Some));
}

#[tokio::test(start_paused = true)]
async fn a_lockstep_engine_never_waits_for_a_session_that_is_over() {
    let mut bench = Bench::new(|request, turn| {
        if u64::from(turn) < request.session.0 {
            calls("odd", &json!({"how": "1 s"}))
        } else {
            says("2990")
        }
    });
    bench.scripted().lockstep = true;
    let mut rows: Vec<Prompt> = (0..4).map(|row| prompt(row, "q")).collect();
    rows[2].data_source = "unknown".to_owned();
    let rollouts = bench.run(rows).await;
    assert_eq!(bench.generator.rounds(), [3, 2, 1]);
    assert_eq!(rollouts[2].finish, Finish::Error);
    assert_eq!(
        rollouts
            .iter()
            .filter(|rollout| rollout.score == Some(1.0))
            .count(),
        3
    );
}

#[tokio::test(start_paused = true)]
async fn at_its_deadline_a_dialogue_keeps_what_the_engine_has_drawn_so_far() {
    let mut bench = Bench::new(|_, _| says("2990 is my answer").after(100));
    bench.scripted().can_abort = true;
    bench.limits.session_timeout = Some(Duration::from_secs(10));
    let rollout = bench.one().await;
    assert_eq!(rollout.finish, Finish::Deadline);
    assert_eq!(rollout.response_ids, ids("2990 is m"));
    assert_eq!(rollout.score, Some(1.0));
    assert_eq!(rollout.generate_ms.round(), 10_000.0);
}

#[tokio::test(start_paused = true)]
async fn at_its_deadline_a_dialogue_in_a_tool_keeps_its_turns() {
    let mut bench = Bench::new(one_slow_tool);
    bench.limits.session_timeout = Some(Duration::from_secs(10));
    let rollout = bench.one().await;
    assert_eq!(rollout.finish, Finish::Deadline);
    assert_eq!(rollout.assistant_turns, 1);
    assert_eq!(rollout.tools[0].failure, Some(CallFailure::TimedOut));
    assert_eq!(rollout.tool_ms.round(), 9000.0);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_batch_releases_engine_and_tools() {
    let bench = Bench::new(|_, turn| match turn {
        0 => calls("guess", &json!({"number": 3})),
        1 => calls("odd", &json!({"how": "hangs"})),
        _ => says("2990"),
    });
    let runner = bench.runner();
    let batch = bench.batch((0..5).map(|row| prompt(row, "q")).collect());
    let task = tokio::spawn(async move { runner.run(batch).await });
    // All five hold a secret and wait in the second tool.
    until(|| bench.guess.instances() == 5 && bench.generator.events().len() == 5 * 5).await;
    task.abort();
    until(|| bench.guess.instances() == 0 && bench.generator.open_sessions() == 0).await;
    until(|| bench.odd.released.lock().expect("not poisoned").len() == 5).await;
}

/// Lets other tasks run until `holds`.
async fn until(holds: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if holds() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("this never came to pass");
}

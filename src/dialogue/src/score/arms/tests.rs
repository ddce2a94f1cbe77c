use std::sync::atomic::AtomicUsize;

use experiment::arms::Arm as Settings;
use experiment::scorers::ScorerName;
use serde_json::json;
use tokio::sync::Notify;

use super::super::scorers::sample;
use super::super::{Numeric, by_name};
use super::*;

/// Scores a constant, in the way it is told.
struct Told {
    how: &'static str,
    value: f64,
    /// Lets go of one that waits.
    release: Arc<Notify>,
    at_once: Arc<(AtomicUsize, AtomicUsize)>,
}

impl Told {
    fn new(how: &'static str, value: f64) -> Arc<Self> {
        Arc::new(Self {
            how,
            value,
            release: Arc::default(),
            at_once: Arc::default(),
        })
    }
}

impl Scorer for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn score<'a>(&'a self, _: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(async move {
            match self.how {
                "fails" => Err(ScoreError::Failed("no".to_owned())),
                "panics" => panic!("boom"),
                "nan" => Ok(Score::new(f64::NAN)),
                "hangs" => std::future::pending().await,
                "waits" => {
                    self.release.notified().await;
                    Ok(Score::new(self.value))
                }
                "counts" => {
                    let (now, most) = &*self.at_once;
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    tokio::task::yield_now().await;
                    now.fetch_sub(1, Ordering::SeqCst);
                    Ok(Score::new(self.value))
                }
                _ => Ok(Score {
                    value: self.value,
                    parts: BTreeMap::from([("acc".to_owned(), self.value)]),
                    says: None,
                }),
            }
        })
    }

    fn check(&self, _: &Value) -> Result<(), ScoreError> {
        Ok(())
    }
}

fn settings(name: &str, weight: f64) -> Settings {
    Settings {
        weight,
        ..Settings::new(name, ScorerName::Exact)
    }
}

fn arms(list: &[(&str, f64, Arc<Told>)]) -> Arms {
    let arms: Vec<(Settings, Option<Arc<dyn Scorer>>)> = list
        .iter()
        .map(|(name, weight, scorer)| {
            (
                settings(name, *weight),
                Some(Arc::clone(scorer) as Arc<dyn Scorer>),
            )
        })
        .collect();
    Arms::new(&arms)
}

#[tokio::test]
async fn the_reward_is_the_weighted_sum_of_the_arms() {
    let arms = arms(&[
        ("a", 2.0, Told::new("", 0.5)),
        ("b", -1.0, Told::new("", 0.25)),
        ("watch", 0.0, Told::new("", 9.0)),
    ]);
    let score = arms.score(&sample("x", json!("x"))).await.expect("a score");
    assert_eq!(score.value, 0.75);
    assert_eq!(score.parts["arm/a"], 0.5);
    assert_eq!(score.parts["arm/watch"], 9.0);
    assert_eq!(score.parts["arm/b/acc"], 0.25);
    assert!(score.parts.contains_key("arm/a/ms") && !score.parts.contains_key("acc"));
}

#[tokio::test]
async fn a_failed_arm_is_missing_and_the_others_take_its_share() {
    for how in ["fails", "panics", "nan"] {
        let arms = arms(&[
            ("good", 1.0, Told::new("", 0.5)),
            ("bad", 3.0, Told::new(how, 1.0)),
        ]);
        let score = arms.score(&sample("x", json!("x"))).await.expect("a score");
        assert_eq!(score.value, 2.0, "{how}");
        assert_eq!(score.parts["arm/bad/missing"], 1.0);
        assert!(!score.parts.contains_key("arm/bad"));
    }
    let none = arms(&[
        ("bad", 1.0, Told::new("fails", 1.0)),
        ("watch", 0.0, Told::new("", 1.0)),
    ]);
    let error = none
        .score(&sample("x", json!("x")))
        .await
        .expect_err("no score");
    assert_eq!(error.to_string(), "no arm gave a score: bad: no");
    let ScoreError::NoArm { parts, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(parts["arm/bad/missing"], 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_late_arm_gives_its_default_and_what_it_says_after_all_is_counted() {
    let slow = Told::new("waits", 1.0);
    let mut late = settings("slow", 1.0);
    late.default = 0.25;
    let arms = Arms::new(&[(late, Some(slow.clone() as Arc<dyn Scorer>))]);
    let transcript = sample("x", json!("x"));
    let score = arms.score(&transcript).await.expect("the default");
    assert_eq!(score.value, 0.25);
    assert_eq!(score.parts["arm/slow/timed_out"], 1.0);
    assert_eq!(score.parts["arm/slow/ms"], 50.0);
    slow.release.notify_one();
    // Until its task has ended.
    while arms.arms[0].late.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    slow.release.notify_one();
    let score = arms.score(&transcript).await.expect("a score");
    assert_eq!((score.value, score.parts["arm/slow/late"]), (1.0, 1.0));
    assert!(!score.parts.contains_key("arm/slow/timed_out"));
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_is_cancelled_after_its_grace_and_its_turn_is_free_again() {
    let mut alone = settings("slow", 1.0);
    alone.concurrency = 1;
    let arms = Arms::new(&[(alone, Some(Told::new("hangs", 1.0) as Arc<dyn Scorer>))]);
    let transcript = sample("x", json!("x"));
    let start = Instant::now();
    arms.score(&transcript).await.expect("the default");
    let score = arms.score(&transcript).await.expect("the default");
    // The second waited until the first was cancelled, and that wait is no part of its time.
    assert!(
        score.parts["arm/slow/wait_ms"] >= 900.0,
        "{:?}",
        score.parts
    );
    assert_eq!(score.parts["arm/slow/ms"], 50.0);
    assert!(start.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn an_arm_judges_no_more_dialogues_at_once_than_it_may() {
    let counting = Told::new("counts", 1.0);
    let mut two = settings("two", 1.0);
    two.concurrency = 2;
    two.timeout = 60.0;
    let arms = Arms::new(&[(two, Some(counting.clone() as Arc<dyn Scorer>))]);
    let transcript = sample("x", json!("x"));
    let mut results: Vec<Option<_>> = (0..20).map(|_| None).collect();
    all(
        (0..20).map(|_| arms.score(&transcript)).collect(),
        &mut results,
    )
    .await;
    assert!(
        results
            .into_iter()
            .all(|result| result.expect("asked").is_ok())
    );
    assert_eq!(counting.at_once.1.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_dialogue_that_is_given_up_takes_its_scorers_along() {
    let mut patient = settings("slow", 1.0);
    patient.timeout = 3600.0;
    let slow = Told::new("waits", 1.0);
    let arms = Arms::new(&[(patient, Some(slow.clone() as Arc<dyn Scorer>))]);
    let transcript = sample("x", json!("x"));
    {
        let mut asking = arms.score(&transcript);
        std::future::poll_fn(|context| {
            let _ = asking.as_mut().poll(context);
            std::task::Poll::Ready(())
        })
        .await;
    }
    // Only the work held a second one.
    while Arc::strong_count(&slow) > 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(arms.arms[0].late.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_arm_may_go_by_the_rows_source() {
    let by_source = settings("rule", 1.0);
    let arms = Arms::new(&[(by_source, None)]);
    let mut transcript = sample("so 12", json!("12"));
    transcript.data_source = "lathe/calc".to_owned();
    let score = arms.score(&transcript).await.expect("a score");
    assert_eq!((score.value, score.parts["format"]), (1.0, 1.0));
    transcript.data_source = "no/such".to_owned();
    let error = arms.score(&transcript).await.expect_err("no score");
    assert_eq!(
        error.to_string(),
        "no arm gave a score: rule: no scorer for data_source `no/such`"
    );
    assert!(by_name(ScorerName::Numeric).is_some());
    assert!(arms.check(&json!(null)).is_ok());
    let strict = Arms::new(&[(
        settings("n", 1.0),
        Some(Arc::new(Numeric::default()) as Arc<dyn Scorer>),
    )]);
    assert!(strict.check(&json!("twelve")).is_err());
}

use std::sync::atomic::{AtomicU32, Ordering};

use super::super::Waiting;
use super::super::scripted::{Reply, calls, says};
use super::*;
use crate::rollout::Finish;

/// Counts sessions that are begun again.
#[derive(Debug, Default)]
struct Again(Mutex<Vec<String>>);

impl SessionObserver for Again {
    fn on_again(&self, label: &SessionLabel, reason: &str) {
        let line = format!("{}/{}: {reason}", label.uid, label.sample);
        self.0.lock().expect("not poisoned").push(line);
    }
}

/// An engine whose first `bad` turns are bad, and whose later ones are answers.
fn bench(bad: u32, reply: fn() -> Reply) -> (Bench, Arc<Again>) {
    let asked = AtomicU32::new(0);
    let mut bench = Bench::new(move |_, _| {
        if asked.fetch_add(1, Ordering::SeqCst) < bad {
            reply()
        } else {
            says("2990")
        }
    });
    let again = Arc::new(Again::default());
    bench.observer = again.clone();
    bench.limits.retries = 1;
    bench.limits.session_timeout = Some(Duration::from_secs(60));
    (bench, again)
}

fn never() -> Reply {
    says("2990").after(1_000_000)
}

/// Its log-probs do not fit its tokens.
fn broken() -> Reply {
    Reply {
        logprobs: Some(Vec::new()),
        ..says("2990")
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_stuck_is_begun_again_and_ends_as_if_nothing_had_been() {
    for (reply, reason) in [(never as fn() -> Reply, "deadline"), (broken, "log-probs")] {
        let (bench, again) = bench(1, reply);
        let rollouts = bench.run(vec![prompt(0, "q")]).await;
        assert_eq!(rollouts.len(), 1);
        assert_eq!(
            (rollouts[0].finish, rollouts[0].score),
            (Finish::Stop, Some(1.0)),
            "{:?}",
            rollouts[0].error
        );
        let told = again.0.lock().expect("not poisoned").clone();
        assert!(
            matches!(&told[..], [line] if line.contains(reason)),
            "{told:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_stuck_again_is_given_up() {
    let (bench, again) = bench(9, broken);
    let rollouts = bench.run(vec![prompt(0, "q")]).await;
    assert_eq!(rollouts[0].finish, Finish::Error);
    assert_eq!(again.0.lock().expect("not poisoned").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn every_wait_has_a_name_an_owner_an_age_and_a_deadline() {
    let mut bench = Bench::new(|_, turn| match turn {
        0 => calls("odd", &json!({"how": "20 s"})),
        _ => says("2990"),
    });
    bench.limits.calls.timeout = Duration::from_secs(30);
    let runner = bench.runner();
    let waits = runner.waits.clone();
    let batch = bench.batch(vec![prompt(0, "q")]);
    let running = tokio::spawn(async move { runner.run(batch).await });
    let found = loop {
        let found = waits.now();
        let is_old = |waiting: &Waiting| waiting.age >= Duration::from_secs(5);
        if found.first().is_some_and(is_old) {
            break found;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    let [waiting] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((&*waiting.name, waiting.sessions), ("tool odd", 1));
    assert_eq!(waiting.owner.uid, "train-1-0");
    let left = waiting.left.expect("a tool has a time-out");
    assert_eq!(waiting.age + left, Duration::from_secs(30));
    running.await.expect("the batch ends");
    assert_eq!(waits.now(), []);
}

use std::sync::atomic::{AtomicU32, Ordering};

use super::super::scripted::{Event, Reply, calls, says};
use super::super::{Again, Owner, Waiting};
use super::*;
use crate::generate::{GenerateError, SessionId};
use crate::rollout::Finish;

/// Sessions that are begun again.
#[derive(Debug, Default)]
struct Retried(Mutex<Vec<(String, Again)>>);

impl Retried {
    fn all(&self) -> Vec<(String, Again)> {
        self.0.lock().expect("not poisoned").clone()
    }
}

impl SessionObserver for Retried {
    fn on_again(&self, label: &SessionLabel, why: &Again) {
        let session = format!("{}/{}", label.uid, label.sample);
        let mut all = self.0.lock().expect("not poisoned");
        all.push((session, why.clone()));
    }
}

/// An engine whose first `bad` turns are bad, and whose later ones are answers.
fn bench(bad: u32, reply: fn() -> Reply) -> (Bench, Arc<Retried>) {
    let asked = AtomicU32::new(0);
    let mut bench = Bench::new(move |_, _| {
        if asked.fetch_add(1, Ordering::SeqCst) < bad {
            reply()
        } else {
            says("2990")
        }
    });
    let again = Arc::new(Retried::default());
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

/// This turn fails, others would not.
fn fails() -> Reply {
    Reply {
        error: Some(GenerateError::Failed {
            reason: "a hiccup".to_owned(),
        }),
        ..says("")
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_stuck_is_begun_again_and_ends_as_if_nothing_had_been() {
    let hiccup = Again::Engine("generation failed: a hiccup".to_owned());
    let lists = "the generation engine returned 5 ids, 0 log-probs and 5 policy versions";
    for (reply, why) in [
        (never as fn() -> Reply, Again::Deadline),
        (broken, Again::Engine(lists.to_owned())),
        (fails, hiccup),
    ] {
        let (bench, again) = bench(1, reply);
        let rollouts = bench.run(vec![prompt(0, "q")]).await;
        assert_eq!(rollouts.len(), 1);
        assert_eq!(
            (rollouts[0].finish, rollouts[0].score),
            (Finish::Stop, Some(1.0)),
            "{:?}",
            rollouts[0].error
        );
        assert_eq!(again.all(), [("train-1-0/0".to_owned(), why)]);
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_stuck_again_is_given_up() {
    for reply in [broken as fn() -> Reply, fails] {
        let (bench, again) = bench(9, reply);
        let rollouts = bench.run(vec![prompt(0, "q")]).await;
        assert_eq!(rollouts[0].finish, Finish::Error);
        assert_eq!(again.all().len(), 1);
    }
}

/// A request that no engine could answer.
fn refused() -> Reply {
    Reply {
        error: Some(GenerateError::ContextTooLong {
            context: 9,
            limit: 8,
        }),
        ..says("")
    }
}

/// What it draws is no text.
fn undecodable() -> Reply {
    Reply {
        ids: vec![0x11_0000],
        ..says("")
    }
}

/// Its tool answers with something that makes the renderer panic.
fn poisoned() -> Reply {
    calls("odd", &json!({"how": "poison"}))
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_the_dialogue_s_own_is_not_tried_again() {
    for reply in [refused as fn() -> Reply, undecodable, poisoned] {
        let (bench, again) = bench(9, reply);
        let rollouts = bench.run(vec![prompt(0, "q")]).await;
        assert_eq!(rollouts[0].finish, Finish::Error);
        let error = rollouts[0].error.as_deref().expect("a reason");
        assert_eq!(again.all(), [], "{error}");
    }
    // Of the template, before anything was drawn, and after.
    let (bench, again) = bench(9, || calls("odd", &json!({"how": "unrenderable"})));
    let rollouts = bench
        .run(vec![prompt(0, "unrenderable"), prompt(1, "q")])
        .await;
    for (rollout, reason) in rollouts.iter().zip([
        "row 0: the prompt cannot be rendered: no",
        "a tool result cannot be rendered: no",
    ]) {
        assert_eq!(rollout.error.as_deref(), Some(reason));
    }
    assert_eq!(again.all(), []);
}

/// Sessions of each round, the order in which they were opened and released, what was drawn.
async fn lockstep_run() -> (Vec<usize>, Vec<Event>, Vec<Vec<u32>>) {
    // The second and third of four fail in their first turn, at the same step.
    let mut bench = Bench::new(|request, turn| match (request.session.0, turn) {
        (1 | 2, 0) => fails(),
        (_, 0) => calls("calculator", &json!({"expression": "1"})),
        _ => says(&request.seed.to_string()),
    });
    bench.scripted().lockstep = true;
    bench.limits.retries = 1;
    bench.samples = 4;
    let rollouts = bench.run(vec![prompt(0, "q")]).await;
    let is_kept = |event: &Event| matches!(event, Event::Opened(_) | Event::Released(_));
    let mut events: Vec<Event> = bench.generator.events();
    events.retain(is_kept);
    let drawn = rollouts
        .into_iter()
        .map(|rollout| rollout.response_ids)
        .collect();
    (bench.generator.rounds(), events, drawn)
}

#[tokio::test]
async fn in_lockstep_the_next_attempt_stands_in_its_place_before_anybody_goes_on() {
    let (rounds, events, drawn) = lockstep_run().await;
    assert_eq!(
        rounds,
        [4, 4, 2],
        "nobody drew a second turn beside fewer than four"
    );
    let opened: Vec<u64> = events
        .iter()
        .filter_map(|event| match event {
            Event::Opened(SessionId(id)) => Some(*id),
            _ => None,
        })
        .collect();
    let mut sorted = opened.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 2, 3, 5, 6], "the same ids, whoever is first");
    for _ in 0..20 {
        let again = lockstep_run().await;
        assert_eq!(
            (&again.0, &again.2),
            (&rounds, &drawn),
            "the same each time"
        );
    }
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
    let Owner::Session { label, row_index } = &waiting.owner else {
        panic!("{waiting:?}");
    };
    assert_eq!((&*label.uid, *row_index), ("train-1-0", 0));
    let left = waiting.left.expect("a tool has a time-out");
    assert_eq!(waiting.age + left, Duration::from_secs(30));
    running.await.expect("the batch ends");
    assert_eq!(waits.now(), []);
}

//! What people prefer, as a small model that is learned from their labels while they come.
//!
//! ```text
//!  labels.jsonl, which grows ─► each `every` labels ─► learn (apart from any answer) ─► weights ─► score = w · φ(answer)
//! ```
//! φ has the words of an answer (hashed), its length, and the scores of other scorers that are named. Before a label is learned it is
//! foretold: the share of those that came true is how far the model can be trusted. Until the first labels are learned the score is
//! the arm's default.

mod proxy;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};

use experiment::arms::Human as Settings;
use serde_json::Value;
use tokio::task::JoinSet;

use self::proxy::{Features, Proxy};
use super::{Score, ScoreError, Scorer, Sees, Transcript};
use crate::data::DataError;
use crate::generate::BoxFuture;
use crate::message::Message;
use crate::preferences::{Growing, Preference};

/// Where the features begin that are no words.
const LENGTH: u32 = u32::MAX;
const FIRST_SCORER: u32 = 1 << 31;

/// The scorer.
#[derive(Debug)]
pub struct Human {
    sees: Sees,
    default: f64,
    reads: Arc<Reads>,
    learned: Arc<RwLock<Arc<Proxy>>>,
    labels: Arc<tokio::sync::Mutex<Labels>>,
    /// Learning under way; cancelled with the scorer.
    learning: Mutex<JoinSet<()>>,
}

/// The labels' file and those of it that are not learned yet.
#[derive(Debug)]
struct Labels {
    file: Growing,
    waiting: Vec<Preference>,
    every: usize,
    /// Rows that could not be read.
    bad: u64,
}

/// Turns answers into numbers.
#[derive(Debug)]
struct Reads {
    /// Places of hashed words; 0: none.
    words: u32,
    scorers: Vec<Arc<dyn Scorer>>,
}

impl Human {
    /// `scorers` as `settings.scorers` names them. `default`: the score before anything is learned.
    pub fn new(
        settings: &Settings,
        sees: Sees,
        default: f64,
        scorers: Vec<Arc<dyn Scorer>>,
    ) -> Self {
        Self {
            sees,
            default,
            reads: Arc::new(Reads {
                words: settings.words,
                scorers,
            }),
            learned: Arc::default(),
            labels: Arc::new(tokio::sync::Mutex::new(Labels {
                file: Growing::new(PathBuf::from(&settings.labels)),
                waiting: Vec::new(),
                every: settings.every as usize,
                bad: 0,
            })),
            learning: Mutex::default(),
        }
    }

    /// Looks for new labels, unless somebody is at it, apart from whoever asks for a score.
    fn look(&self) {
        let Ok(labels) = Arc::clone(&self.labels).try_lock_owned() else {
            return;
        };
        let (learned, reads) = (Arc::clone(&self.learned), Arc::clone(&self.reads));
        let mut learning = self
            .learning
            .lock()
            .expect("nothing panics while it holds the lock");
        while learning.try_join_next().is_some() {}
        learning.spawn(async move {
            // That the file cannot be read now is no reason to forget what was learned; it is tried again.
            let _ = learn(labels, &learned, &reads).await;
        });
    }

    async fn ask(&self, transcript: &Transcript) -> Result<Score, ScoreError> {
        self.look();
        let learned = Arc::clone(
            &self
                .learned
                .read()
                .expect("nothing panics while it holds the lock"),
        );
        let mut score = Score::default();
        score
            .parts
            .insert("labels".to_owned(), learned.labels() as f64);
        if learned.labels() == 0 {
            score.value = self.default;
            return Ok(score);
        }
        let prompt = &transcript.messages[..transcript.prompt_messages];
        let answer = transcript.text(self.sees);
        let seen = seen(transcript, prompt, &answer);
        let features = self.reads.features(&answer, &seen).await?;
        score.value = learned.score(&features);
        if let Some(agreement) = learned.agreement() {
            score.parts.insert("agreement".to_owned(), agreement);
        }
        Ok(score)
    }
}

/// The dialogue as the named scorers see it: this answer as one turn.
fn seen(transcript: &Transcript, prompt: &[Message], answer: &str) -> Transcript {
    let mut messages = prompt.to_vec();
    messages.push(Message::new("assistant", answer));
    Transcript {
        model_turns: vec![answer.to_owned()],
        prompt_messages: prompt.len(),
        messages,
        ..transcript.clone()
    }
}

/// Takes in what came since the last look, and learns it once there is enough.
async fn learn(
    mut labels: tokio::sync::OwnedMutexGuard<Labels>,
    learned: &RwLock<Arc<Proxy>>,
    reads: &Reads,
) -> Result<(), DataError> {
    for row in labels.file.news()? {
        match row {
            Ok(label) => labels.waiting.push(label),
            Err(_) => labels.bad += 1,
        }
    }
    let whole = labels.waiting.len() / labels.every * labels.every;
    if whole == 0 {
        return Ok(());
    }
    let taken: Vec<Preference> = labels.waiting.drain(..whole).collect();
    let mut proxy = Proxy::clone(
        &learned
            .read()
            .expect("nothing panics while it holds the lock"),
    );
    for some in taken.chunks(labels.every) {
        let mut read = Vec::new();
        for label in some {
            let chosen = reads.of_label(label, &label.chosen).await;
            let rejected = reads.of_label(label, &label.rejected).await;
            // One that a scorer cannot read says nothing.
            if let (Ok(chosen), Ok(rejected)) = (chosen, rejected) {
                read.push((chosen, rejected));
            }
        }
        let work = tokio::task::spawn_blocking(move || {
            proxy.learn(read);
            proxy
        });
        proxy = work.await.expect("learning does not panic");
    }
    *learned
        .write()
        .expect("nothing panics while it holds the lock") = Arc::new(proxy);
    Ok(())
}

impl Reads {
    async fn of_label(&self, label: &Preference, answer: &str) -> Result<Features, ScoreError> {
        let empty = Transcript {
            data_source: label.data_source.clone(),
            ground_truth: label.ground_truth.clone(),
            extra_info: label.extra_info.clone(),
            model_turns: Vec::new(),
            messages: Vec::new(),
            prompt_messages: 0,
            tool_rewards: std::collections::BTreeMap::new(),
        };
        self.features(answer, &seen(&empty, &label.prompt, answer))
            .await
    }

    async fn features(&self, answer: &str, seen: &Transcript) -> Result<Features, ScoreError> {
        let mut features = Features::new();
        let words: Vec<String> = answer
            .split(|c: char| !c.is_alphabetic())
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        features.insert(LENGTH, (words.len() as f64).ln_1p());
        if self.words > 0 {
            // Of unit length together, so that a long answer is no louder than a short one.
            let unit = 1.0 / (words.len().max(1) as f64).sqrt();
            for word in &words {
                let hash = xxhash_rust::xxh3::xxh3_64(word.as_bytes());
                let place = (hash % u64::from(self.words)) as u32;
                *features.entry(place).or_default() += unit;
            }
        }
        for (place, scorer) in (FIRST_SCORER..).zip(&self.scorers) {
            features.insert(place, scorer.score(seen).await?.value);
        }
        Ok(features)
    }
}

impl Scorer for Human {
    fn name(&self) -> &'static str {
        "human"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(self.ask(transcript))
    }

    fn check(&self, ground_truth: &Value) -> Result<(), ScoreError> {
        self.reads
            .scorers
            .iter()
            .try_for_each(|scorer| scorer.check(ground_truth))
    }

    fn perfect_answers(&self, _: &Value) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::path::Path;

    use serde_json::json;

    use super::super::scorers::sample;
    use super::*;

    fn append(path: &Path, rows: &[Value]) {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .expect("a file");
        for row in rows {
            writeln!(file, "{row}").expect("written");
        }
    }

    fn human(path: &Path, every: u32, scorers: Vec<Arc<dyn Scorer>>) -> Human {
        let settings = Settings {
            labels: path.display().to_string(),
            every,
            ..Settings::default()
        };
        Human::new(&settings, Sees::default(), -1.0, scorers)
    }

    /// As a look does, here and now.
    async fn learn_now(human: &Human) {
        let labels = Arc::clone(&human.labels).lock_owned().await;
        learn(labels, &human.learned, &human.reads)
            .await
            .expect("a file that reads");
    }

    #[tokio::test]
    async fn it_gives_its_default_until_labels_come_and_then_follows_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("labels.jsonl");
        let human = human(&path, 2, Vec::new());
        let value = async |answer: &str| {
            human
                .ask(&sample(answer, Value::Null))
                .await
                .expect("a score")
        };
        let before = value("please do").await;
        assert_eq!((before.value, before.parts["labels"]), (-1.0, 0.0));
        let kind = |at: u32| json!({"prompt": "?", "chosen": format!("please {at}"), "rejected": format!("never {at}")});
        append(&path, &[kind(1)]);
        learn_now(&human).await;
        assert_eq!(value("please do").await.parts["labels"], 0.0, "one of two");
        append(&path, &(2..21).map(kind).collect::<Vec<_>>());
        learn_now(&human).await;
        let (liked, disliked) = (value("please do").await, value("never do").await);
        assert!(
            liked.value > disliked.value,
            "{} {}",
            liked.value,
            disliked.value
        );
        assert_eq!(liked.parts["labels"], 20.0);
        // The first two were ties, every later one was foretold.
        assert_eq!(liked.parts["agreement"], 0.95);
        // The mind of the rater changes, and with it what is learned, while the scorer is in use.
        append(&path, &(0..200).map(|at| json!({"prompt": "?", "chosen": format!("never {at}"), "rejected": format!("please {at}")})).collect::<Vec<_>>());
        learn_now(&human).await;
        assert!(value("never do").await.value > value("please do").await.value);
    }

    #[tokio::test]
    async fn asking_for_scores_is_enough_to_have_new_labels_learned() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("labels.jsonl");
        let human = human(&path, 1, Vec::new());
        append(
            &path,
            &[json!({"prompt": "?", "chosen": "a", "rejected": "b"})],
        );
        while human
            .ask(&sample("a", Value::Null))
            .await
            .expect("a score")
            .parts["labels"]
            == 0.0
        {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn another_scorer_s_score_is_something_to_go_by() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("labels.jsonl");
        let numeric =
            super::super::by_name(experiment::scorers::ScorerName::Numeric).expect("a scorer");
        let human = human(&path, 10, vec![numeric]);
        // The words say nothing here; whether the sum is right says all.
        let rows: Vec<Value> = (0..200)
            .map(|at| json!({"prompt": "?", "chosen": format!("{}", at * 7), "rejected": format!("{}", at * 7 + 1), "ground_truth": at * 7}))
            .collect();
        append(&path, &rows);
        learn_now(&human).await;
        let right = human
            .ask(&sample("90001", json!(90_001)))
            .await
            .expect("a score");
        let wrong = human
            .ask(&sample("90001", json!(90_002)))
            .await
            .expect("a score");
        assert!(
            right.value > wrong.value + 1.0,
            "{} {}",
            right.value,
            wrong.value
        );
        assert!(
            right.parts["agreement"] > 0.9,
            "{}",
            right.parts["agreement"]
        );
        assert!(human.check(&json!("no number")).is_err());
    }

    /// A simulated rater of sums, whose taste is known: 2 for a right one, 0.8 for politeness, −0.6 for hedging, −0.015 a character,
    /// and a coin that is thrown by the difference. Whoever knew all this would agree with as many held-out labels as `best`.
    #[tokio::test]
    async fn of_a_rater_who_is_known_it_learns_to_within_two_points_of_what_can_be_learned() {
        let shipped = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../datasets/sums-preferences.parquet"
        );
        let table = crate::data::Table::open_whole(Path::new(shipped)).expect("it is shipped");
        let rows: Vec<Value> = table
            .scan_json()
            .expect("rows")
            .map(|row| Value::Object(row.expect("a row").1))
            .collect();
        let (known, held_out) = rows.split_at(1500);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("labels.jsonl");
        append(&path, known);
        let numeric =
            super::super::by_name(experiment::scorers::ScorerName::Numeric).expect("a scorer");
        let human = human(&path, 16, vec![numeric]);
        learn_now(&human).await;
        let half = |difference: f64| match difference.total_cmp(&0.0) {
            std::cmp::Ordering::Greater => 1.0,
            std::cmp::Ordering::Equal => 0.5,
            std::cmp::Ordering::Less => 0.0,
        };
        let (mut agreed, mut best) = (0.0, 0.0);
        for row in held_out {
            let score = async |column: &str| {
                let answer = row[column].as_str().expect("text");
                human
                    .ask(&sample(answer, row["ground_truth"].clone()))
                    .await
                    .expect("a score")
                    .value
            };
            agreed += half(score("chosen").await - score("rejected").await);
            best += half(
                row["worth_chosen_less_rejected"]
                    .as_f64()
                    .expect("a number")
                    + 0.0,
            );
        }
        let count = held_out.len() as f64;
        println!(
            "agrees with {:.4} of {count} held-out labels; best {:.4}",
            agreed / count,
            best / count
        );
        assert!(best / count > 0.7, "{best}");
        assert!(agreed / count > best / count - 0.02, "{agreed} {best}");
    }

    #[tokio::test]
    async fn a_row_that_cannot_be_read_is_passed_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("labels.jsonl");
        let human = human(&path, 1, Vec::new());
        append(
            &path,
            &[
                json!({"prompt": "?", "chosen": "a"}),
                json!({"prompt": "?", "chosen": "a", "rejected": "b"}),
            ],
        );
        learn_now(&human).await;
        let score = human.ask(&sample("a", Value::Null)).await.expect("a score");
        assert_eq!(score.parts["labels"], 1.0);
        assert_eq!(human.labels.lock().await.bad, 1);
    }
}

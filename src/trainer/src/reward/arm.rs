//! The scorer `model`: a reward model on a thread of its own, asked for as many dialogues at once as are waiting.
//!
//! ```text
//!  dialogue ─► ids ─► channel ─► thread: one forward pass for all that wait ─► a number each
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use dialogue::generate::BoxFuture;
use dialogue::score::{ModelScorers, Score, ScoreError, Scorer, Sees, Transcript};
use experiment::arms::Model as Settings;
use serde_json::Value;
use tch::{Device, Kind};
use tokio::sync::{mpsc, oneshot};

use super::beside::{Beside, Row, transcript as as_learned};
use super::{Reader, RewardModel};
use crate::learner::kind_of;

/// Dialogues that may wait; who asks more waits in turn. An arm's `concurrency` is what bounds them in fact.
const WAITING: usize = 4096;

/// A dialogue to judge.
struct Asked {
    ids: Vec<u32>,
    answer: oneshot::Sender<Judged>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Judged {
    score: f64,
    /// Dialogues of the same forward pass.
    together: usize,
}

/// Makes the scorers `model` of an experiment.
#[derive(Debug, Clone, Copy)]
pub struct Models {
    pub device: Device,
}

impl ModelScorers for Models {
    fn scorer(&self, settings: &Settings, sees: Sees) -> Result<Arc<dyn Scorer>, String> {
        let kind = match (settings.dtype, self.device) {
            (Some(dtype), _) => kind_of(dtype),
            // Of no use to a processor.
            (None, Device::Cpu) => Kind::Float,
            (None, _) => Kind::BFloat16,
        };
        let path = PathBuf::from(&settings.path);
        let arm = Arm::load(&path, settings, sees, kind, self.device)?;
        Ok(Arc::new(arm))
    }
}

/// The scorer.
#[derive(Debug)]
pub struct Arm {
    sees: Sees,
    reader: Reader,
    beside: Beside,
    /// None only while it is dropped.
    asking: Option<mpsc::Sender<Asked>>,
    thread: Option<JoinHandle<()>>,
}

impl Arm {
    /// Loads the model and starts its thread.
    pub fn load(
        path: &Path,
        settings: &Settings,
        sees: Sees,
        kind: Kind,
        device: Device,
    ) -> Result<Self, String> {
        let max_tokens = settings.max_tokens.map(|limit| limit as usize);
        let model =
            RewardModel::load(path, max_tokens, kind, device).map_err(|error| error.to_string())?;
        let reader = model.reader();
        let arms = Beside::arms_of(path).map_err(|error| error.to_string())?;
        let beside = Beside::new(&arms, &Models { device }).map_err(|error| error.to_string())?;
        let (asking, asked) = mpsc::channel(WAITING);
        let (batch, threads) = (settings.batch as usize, settings.threads);
        let thread = std::thread::Builder::new()
            .name("reward model".to_owned())
            .spawn(move || {
                tch::set_num_threads(threads as i32);
                serve(&model, asked, batch);
            })
            .map_err(|error| format!("cannot start a thread for the reward model: {error}"))?;
        Ok(Self {
            sees,
            reader,
            beside,
            asking: Some(asking),
            thread: Some(thread),
        })
    }

    async fn ask(&self, transcript: &Transcript) -> Result<Score, ScoreError> {
        let gone = || ScoreError::Failed("the reward model's thread has ended".to_owned());
        let prompt = &transcript.messages[..transcript.prompt_messages];
        let ids = self
            .reader
            .ids(prompt, &transcript.text(self.sees))
            .map_err(|error| ScoreError::Failed(error.to_string()))?;
        let (answer, judged) = oneshot::channel();
        let asking = self.asking.as_ref().ok_or_else(gone)?;
        asking
            .send(Asked { ids, answer })
            .await
            .map_err(|_| gone())?;
        let judged = judged.await.map_err(|_| gone())?;
        // As they were learned: of the same text as one turn.
        let beside = if self.beside.is_empty() {
            0.0
        } else {
            let row = Row {
                data_source: &transcript.data_source,
                ground_truth: &transcript.ground_truth,
                extra_info: &transcript.extra_info,
            };
            let seen = as_learned(prompt, &transcript.text(self.sees), row);
            let scores = self.beside.scores(&seen).await;
            self.beside.sum(&scores.map_err(|(_, error)| error)?)
        };
        let mut score = Score::new(judged.score + beside);
        score
            .parts
            .insert("together".to_owned(), judged.together as f64);
        Ok(score)
    }
}

/// Until nobody can ask any more.
fn serve(model: &RewardModel, mut asked: mpsc::Receiver<Asked>, most: usize) {
    while let Some(first) = asked.blocking_recv() {
        let mut all = vec![first];
        while all.len() < most
            && let Ok(next) = asked.try_recv()
        {
            all.push(next);
        }
        // Who has given up needs no answer.
        all.retain(|one| !one.answer.is_closed());
        let ids: Vec<&[u32]> = all.iter().map(|one| one.ids.as_slice()).collect();
        let scores = model.scores(&ids);
        let together = all.len();
        for (one, score) in all.into_iter().zip(scores) {
            // It may have given up meanwhile.
            let _ = one.answer.send(Judged { score, together });
        }
    }
}

impl Drop for Arm {
    fn drop(&mut self) {
        self.asking = None;
        if let Some(thread) = self.thread.take() {
            // It ends after the pass that it is at; a panic there was told by the answers that never came.
            let _ = thread.join();
        }
    }
}

impl Scorer for Arm {
    fn name(&self) -> &'static str {
        "model"
    }

    fn score<'a>(&'a self, transcript: &'a Transcript) -> BoxFuture<'a, Result<Score, ScoreError>> {
        Box::pin(self.ask(transcript))
    }

    fn check(&self, _: &Value) -> Result<(), ScoreError> {
        Ok(())
    }

    fn perfect_answers(&self, _: &Value) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_judged_in_one_pass_and_each_gets_its_own_number() {
        let directory = crate::reward::tests::tiny_reward_model();
        let model = RewardModel::load(directory.path(), None, Kind::Float, Device::Cpu)
            .expect("a reward model");
        let dialogues: Vec<Vec<u32>> = (1..=7).map(|at| vec![at; at as usize]).collect();
        let (asking, asked) = mpsc::channel(WAITING);
        let mut answers: Vec<_> = dialogues
            .iter()
            .map(|ids| {
                let (answer, judged) = oneshot::channel();
                let ids = ids.clone();
                asking.try_send(Asked { ids, answer }).expect("room");
                judged
            })
            .collect();
        // One has given up before its turn.
        drop(answers.remove(2));
        drop(asking);
        serve(&model, asked, 5);
        let judged: Vec<Judged> = answers
            .into_iter()
            .map(|answer| answer.blocking_recv().expect("an answer"))
            .collect();
        let together: Vec<usize> = judged.iter().map(|one| one.together).collect();
        assert_eq!(together, [4, 4, 4, 4, 2, 2]);
        for (at, judged) in [0, 1, 3, 4, 5, 6].into_iter().zip(judged) {
            // Alone or among others, up to the order of f32 sums.
            let alone = model.scores(&dialogues[at..=at])[0];
            assert!((judged.score - alone).abs() < 1e-5, "{judged:?} {alone}");
        }
    }
}

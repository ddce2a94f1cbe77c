//! Scorers beside a reward model: what a text cannot tell by its sound, such as whether a sum is right, a rule says.
//!
//! ```text
//!  answer ─┬─► scorers ─► s ─► w·s ─┐
//!          └─► model   ───────► r ──┴─► r + w·s
//! ```
//! The weights w are learned first, of pairs by Bradley and Terry's model on the differences of s; the model then learns what
//! they leave: −ln σ(Δr + w·Δs − margin). They lie beside the model, and whoever loads it asks the same scorers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dialogue::message::Message;
use dialogue::score::{ModelScorers, ScoreError, Scorer, Transcript, scorer_of};
use experiment::arms::Arm;
use serde_json::Value;
use tch::Tensor;

use super::examples::{Examples, Pair};
use super::linear::{PENALTIES, Problem};

/// In a reward model's directory: the scorers as arms, whose weights were learned.
pub const FILE: &str = "scorers.json";

#[derive(Debug, thiserror::Error)]
pub enum BesideError {
    #[error("{}: {problem}", path.display())]
    File { path: PathBuf, problem: String },
    #[error("the scorer {name} beside the reward model: {problem}")]
    Scorer { name: String, problem: String },
}

/// The scorers, with their weights; without any it adds nothing.
#[derive(Debug, Clone, Default)]
pub struct Beside {
    scorers: Vec<(Arm, Arc<dyn Scorer>)>,
}

impl Beside {
    pub fn new(arms: &[Arm], models: &dyn ModelScorers) -> Result<Self, BesideError> {
        let scorers = arms.iter().map(|arm| {
            let made = arm.beside_a_model().and_then(|()| {
                scorer_of(arm, models)?.ok_or_else(|| "auto cannot be one".to_owned())
            });
            made.map(|scorer| (arm.clone(), scorer))
                .map_err(|problem| BesideError::Scorer {
                    name: arm.name.clone(),
                    problem,
                })
        });
        Ok(Self {
            scorers: scorers.collect::<Result<_, _>>()?,
        })
    }

    /// Those that lie beside the model in a directory: none where it has none.
    pub fn arms_of(directory: &Path) -> Result<Vec<Arm>, BesideError> {
        let path = directory.join(FILE);
        let problem = |problem: String| BesideError::File {
            path: path.clone(),
            problem,
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| problem(error.to_string())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(problem(error.to_string())),
        }
    }

    /// Puts them beside the model in a directory, in place of what lies there.
    pub fn save(&self, directory: &Path) -> std::io::Result<()> {
        let path = directory.join(FILE);
        if self.scorers.is_empty() {
            return match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let arms: Vec<&Arm> = self.scorers.iter().map(|(arm, _)| arm).collect();
        std::fs::write(path, serde_json::to_string_pretty(&arms)? + "\n")
    }

    pub fn is_empty(&self) -> bool {
        self.scorers.is_empty()
    }

    /// By name.
    pub fn weights(&self) -> BTreeMap<String, f64> {
        let weight = |(arm, _): &(Arm, _)| (arm.name.clone(), arm.weight);
        self.scorers.iter().map(weight).collect()
    }

    /// What each says of a dialogue; the error names the one that cannot.
    pub async fn scores(&self, transcript: &Transcript) -> Result<Vec<f64>, (String, ScoreError)> {
        let mut scores = Vec::with_capacity(self.scorers.len());
        for (arm, scorer) in &self.scorers {
            let score = scorer.score(transcript).await;
            scores.push(score.map_err(|error| (arm.name.clone(), error))?.value);
        }
        Ok(scores)
    }

    /// Of what they say, weighted.
    pub fn sum(&self, scores: &[f64]) -> f64 {
        let weighted = self.scorers.iter().zip(scores);
        weighted.map(|((arm, _), score)| arm.weight * score).sum()
    }

    /// Learns the weights, with the penalty that does best in cross-validation.
    pub fn learn(&mut self, train: &Examples) {
        if self.is_empty() || train.is_empty() {
            return;
        }
        let width = self.scorers.len() as i64;
        let table = |rows: Vec<f64>| Tensor::from_slice(&rows).view([-1, width]);
        let (problem, groups): (Problem, Vec<u64>) = match train {
            Examples::Pairs(pairs) => {
                let deltas = pairs.iter().flat_map(Pair::score_deltas);
                let margins: Vec<f64> = pairs.iter().map(|pair| pair.margin).collect();
                let problem = Problem::Pairs {
                    deltas: table(deltas.collect()),
                    margins: Tensor::from_slice(&margins),
                };
                let groups = pairs.iter().map(|pair| pair.prompt_number).collect();
                (problem, groups)
            }
            Examples::Scored(scored) => {
                let said = scored.iter().flat_map(|one| one.scores.iter().copied());
                let scores: Vec<f64> = scored.iter().map(|one| one.score).collect();
                let problem = Problem::Scores {
                    embeddings: table(said.collect()),
                    scores: Tensor::from_slice(&scores),
                };
                let groups = scored.iter().map(|one| one.prompt_number).collect();
                (problem, groups)
            }
        };
        let unseen = |penalty: f64| {
            let tried = problem.cross_validated(&groups, penalty);
            // Too few prompts to hold any out: the strongest penalty is the safest.
            tried.map_or(f64::INFINITY, |tried| tried.loss)
        };
        let mut best = (PENALTIES[0], f64::INFINITY);
        for penalty in PENALTIES {
            let loss = unseen(penalty);
            if loss < best.1 {
                best = (penalty, loss);
            }
        }
        let head = problem.fit(best.0);
        for ((arm, _), weight) in self.scorers.iter_mut().zip(head.weights) {
            arm.weight = weight;
        }
    }

    /// Writes into each example what they add to it.
    pub fn weigh(&self, examples: &mut Examples) {
        match examples {
            Examples::Pairs(pairs) => {
                for pair in pairs {
                    pair.beside = self.sum(&pair.scores[0]) - self.sum(&pair.scores[1]);
                }
            }
            Examples::Scored(scored) => {
                for one in scored {
                    one.beside = self.sum(&one.scores);
                }
            }
        }
    }
}

/// One answer to a prompt, as a scorer sees it; the rest is of the row.
pub fn transcript(prompt: &[Message], answer: &str, row: Row<'_>) -> Transcript {
    let mut messages = prompt.to_vec();
    messages.push(Message::new("assistant", answer));
    Transcript {
        data_source: row.data_source.to_owned(),
        ground_truth: row.ground_truth.clone(),
        extra_info: row.extra_info.clone(),
        model_turns: vec![answer.to_owned()],
        prompt_messages: prompt.len(),
        messages,
        tool_rewards: BTreeMap::new(),
    }
}

/// What a row says beside prompt and answer.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    pub data_source: &'a str,
    pub ground_truth: &'a Value,
    pub extra_info: &'a Value,
}

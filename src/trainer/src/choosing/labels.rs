//! How far an arm agrees with people: whether it orders answers as they did.

use std::collections::VecDeque;

use dialogue::data::DataError;
use dialogue::preferences::{Growing, Preference};
use dialogue::score::Scorers;
use tokio::task::JoinSet;

/// Pairs that people ordered, from files that may grow while the run runs; the newest are asked about.
#[derive(Debug)]
pub struct Labels {
    files: Vec<Growing>,
    most: usize,
    newest: VecDeque<Preference>,
    /// What was wrong with rows and was not told yet.
    bad: Vec<DataError>,
    scorers: Scorers,
}

impl Labels {
    /// Reads what there is. A file that is not there yet is one without labels; a row that cannot be read is passed over and told
    /// by the first [`Labels::read`], as later: what a run lived with must not keep it from going on.
    pub fn open(files: &[String], most: u32, scorers: Scorers) -> Result<Self, DataError> {
        let mut labels = Self {
            files: files.iter().map(Growing::new).collect(),
            most: most as usize,
            newest: VecDeque::new(),
            bad: Vec::new(),
            scorers,
        };
        labels.bad = labels.read()?;
        Ok(labels)
    }

    /// Takes in what came since; gives what is wrong with rows among it, which are passed over.
    pub fn read(&mut self) -> Result<Vec<DataError>, DataError> {
        let mut bad = std::mem::take(&mut self.bad);
        for file in &mut self.files {
            for row in file.news()? {
                match row {
                    Ok(preference) => self.newest.push_back(preference),
                    Err(error) => bad.push(error),
                }
            }
        }
        let beyond = self.newest.len().saturating_sub(self.most);
        self.newest.drain(..beyond);
        Ok(bad)
    }

    pub fn len(&self) -> usize {
        self.newest.len()
    }

    pub fn is_empty(&self) -> bool {
        self.newest.is_empty()
    }

    /// The share of the newest pairs that the arm orders as people did, a tie counting half; a penalty (`weight` below 0) orders
    /// the other way round. A pair without both scores is left out; NaN where none is left.
    pub async fn agreement(&self, arm: &str, weight: f64) -> f64 {
        let mut asked = JoinSet::new();
        // All at once: how many an arm judges together is its own `concurrency`.
        for pair in &self.newest {
            let (scorers, arm) = (self.scorers.clone(), arm.to_owned());
            let chosen = pair.seen(&pair.chosen);
            let rejected = pair.seen(&pair.rejected);
            asked.spawn(async move {
                let arms = scorers.arms()?;
                let (chosen, rejected) =
                    tokio::join!(arms.score_by(&arm, chosen), arms.score_by(&arm, rejected));
                Some(chosen.ok()? - rejected.ok()?)
            });
        }
        let (mut agreed, mut pairs) = (0.0, 0.0);
        while let Some(ahead) = asked.join_next().await {
            // One whose scorer panicked has no scores.
            let Ok(Some(ahead)) = ahead else { continue };
            let ahead = weight * ahead;
            pairs += 1.0;
            agreed += if ahead > 0.0 {
                1.0
            } else if ahead < 0.0 {
                0.0
            } else {
                0.5
            };
        }
        agreed / pairs
    }
}

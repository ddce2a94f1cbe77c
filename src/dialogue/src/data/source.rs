//! Seeded batches of prompts, and the cursor that resumes them exactly.
//!
//! The cursor is the set of *consumed* rows, not of rows handed out: batches that were generated but not yet trained on
//! when a run stopped are handed out again. Each epoch has an order of its own, drawn from (seed, epoch); a rest smaller
//! than a batch is left out of that epoch, as in verl.

use std::collections::{BTreeMap, HashSet};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::DataError;
use super::row::Row;
use super::set::DataSet;

/// A set of row numbers as ascending ranges `[first, one past the last]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RowRanges(Vec<(u64, u64)>);

impl RowRanges {
    pub fn len(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, row: u64) -> bool {
        let after = self.0.partition_point(|(start, _)| *start <= row);
        after > 0 && row < self.0[after - 1].1
    }

    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().flat_map(|(start, end)| *start..*end)
    }

    pub fn insert(&mut self, row: u64) {
        let at = self.0.partition_point(|(start, _)| *start <= row);
        let joins_left = at > 0 && self.0[at - 1].1 >= row;
        if joins_left && self.0[at - 1].1 > row {
            return;
        }
        let joins_right = self.0.get(at).is_some_and(|(start, _)| *start == row + 1);
        match (joins_left, joins_right) {
            (true, true) => {
                self.0[at - 1].1 = self.0[at].1;
                self.0.remove(at);
            }
            (true, false) => self.0[at - 1].1 = row + 1,
            (false, true) => self.0[at].0 = row,
            (false, false) => self.0.insert(at, (row, row + 1)),
        }
    }
}

impl FromIterator<u64> for RowRanges {
    fn from_iter<I: IntoIterator<Item = u64>>(rows: I) -> Self {
        let mut rows: Vec<u64> = rows.into_iter().collect();
        rows.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for row in rows {
            match ranges.last_mut() {
                Some((_, end)) if *end >= row => *end = row + 1,
                _ => ranges.push((row, row + 1)),
            }
        }
        Self(ranges)
    }
}

/// The numbers 0..rows in the order of one epoch: Fisher-Yates with `ChaCha8` seeded by (seed, epoch), the same on every
/// machine and in every version.
pub(super) fn permutation(rows: u64, seed: u64, epoch: u64) -> Vec<u64> {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&epoch.to_le_bytes());
    let mut rng = ChaCha8Rng::from_seed(key);
    let mut order: Vec<u64> = (0..rows).collect();
    for last in (1..order.len()).rev() {
        // The high half of a 128-bit product maps a draw onto 0..=last; its bias is below 2^-32 for any real data set.
        let at = ((u128::from(rng.next_u64()) * (last as u128 + 1)) >> 64) as usize;
        order.swap(last, at);
    }
    order
}

/// What was consumed; save it in the checkpoint as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Rows of the data set in use and the shuffle's seed, to refuse another data set's cursor.
    pub rows: u64,
    pub seed: u64,
    /// Epochs before this one are over.
    pub epoch: u64,
    /// Consumed rows per epoch that is not over.
    pub consumed: BTreeMap<u64, RowRanges>,
}

#[derive(Debug, Clone)]
pub struct SourceOptions {
    /// Rows a batch (`data.train_batch_size`).
    pub batch: usize,
    pub shuffle: bool,
    pub seed: u64,
    /// None: no end.
    pub epochs: Option<u64>,
}

/// Says which rows a batch was made of, for [`PromptSource::consumed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    pub epoch: u64,
    pub indices: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    pub ticket: Ticket,
    pub rows: Vec<Row>,
}

/// Hands out batches of prompts.
#[derive(Debug)]
pub struct PromptSource {
    data: DataSet,
    options: SourceOptions,
    cursor: Cursor,
    /// The epoch being handed out, its rows still to hand out (last first), and how many batches are out per epoch.
    epoch: u64,
    left: Vec<u64>,
    out: BTreeMap<u64, u64>,
}

impl PromptSource {
    pub fn new(data: DataSet, options: SourceOptions) -> Result<Self, DataError> {
        let cursor = Cursor {
            rows: data.rows(),
            seed: options.seed,
            epoch: 0,
            consumed: BTreeMap::new(),
        };
        Self::resume(data, options, cursor)
    }

    /// Continues where a saved cursor stands: the next batches are those that an uninterrupted run would have trained on.
    pub fn resume(
        data: DataSet,
        options: SourceOptions,
        cursor: Cursor,
    ) -> Result<Self, DataError> {
        let (rows, batch) = (data.rows(), options.batch.max(1) as u64);
        if rows < batch {
            return Err(DataError::FewerThanABatch { rows, batch });
        }
        let mut source = Self {
            epoch: cursor.epoch,
            left: Vec::new(),
            out: BTreeMap::new(),
            data,
            options,
            cursor: cursor.clone(),
        };
        source.rewind(cursor)?;
        Ok(source)
    }

    /// Goes (back) to a cursor: what was handed out since is handed out again. A cursor of other data changes nothing.
    pub fn rewind(&mut self, cursor: Cursor) -> Result<(), DataError> {
        let rows = self.data.rows();
        if cursor.rows != rows || cursor.seed != self.options.seed {
            return Err(DataError::OtherCursor {
                saved: cursor.rows,
                saved_seed: cursor.seed,
                rows,
                seed: self.options.seed,
            });
        }
        self.epoch = cursor.epoch;
        self.out.clear();
        self.cursor = cursor;
        self.begin_epoch();
        self.close_epochs();
        Ok(())
    }

    /// The same source where a saved cursor stands.
    pub fn at(self, cursor: Cursor) -> Result<Self, DataError> {
        Self::resume(self.data, self.options, cursor)
    }

    pub fn data(&self) -> &DataSet {
        &self.data
    }

    /// Batches in one epoch.
    pub fn batches_per_epoch(&self) -> u64 {
        self.data.rows() / self.options.batch.max(1) as u64
    }

    /// What has been consumed so far.
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// The next batch; None after the last epoch.
    pub fn next_batch(&mut self) -> Result<Option<Batch>, DataError> {
        let batch = self.options.batch.max(1);
        if self.left.len() < batch {
            self.epoch += 1;
            self.begin_epoch();
        }
        if self
            .options
            .epochs
            .is_some_and(|epochs| self.epoch >= epochs)
        {
            return Ok(None);
        }
        let rest = self.left.len() - batch;
        let indices: Vec<u64> = self.left[rest..].iter().rev().copied().collect();
        // Read before taking: a batch that fails is not lost.
        let rows = self.data.read(&indices)?;
        self.left.truncate(rest);
        *self.out.entry(self.epoch).or_default() += 1;
        Ok(Some(Batch {
            ticket: Ticket {
                epoch: self.epoch,
                indices,
            },
            rows,
        }))
    }

    /// Marks a batch as trained on. Batches may be consumed in any order.
    pub fn consumed(&mut self, ticket: &Ticket) {
        if ticket.epoch >= self.cursor.epoch {
            let consumed = self.cursor.consumed.entry(ticket.epoch).or_default();
            for row in &ticket.indices {
                consumed.insert(*row);
            }
        }
        if let Some(out) = self.out.get_mut(&ticket.epoch) {
            *out = out.saturating_sub(1);
        }
        self.close_epochs();
    }

    /// Fills `left` with what this epoch has not consumed, in its order, last first.
    fn begin_epoch(&mut self) {
        let usable = self.data.indices();
        let done: HashSet<u64> = self
            .cursor
            .consumed
            .get(&self.epoch)
            .map(|rows| rows.iter().collect())
            .unwrap_or_default();
        let order = if self.options.shuffle {
            permutation(usable.len() as u64, self.options.seed, self.epoch)
        } else {
            (0..usable.len() as u64).collect()
        };
        self.left = order
            .into_iter()
            .rev()
            .map(|at| usable[at as usize])
            .filter(|row| !done.contains(row))
            .collect();
    }

    /// Forgets epochs of which every batch was consumed.
    fn close_epochs(&mut self) {
        loop {
            let epoch = self.cursor.epoch;
            let waiting = self.out.get(&epoch).is_some_and(|out| *out > 0);
            let to_hand_out = epoch == self.epoch && self.left.len() >= self.options.batch.max(1);
            let begun = self.cursor.consumed.contains_key(&epoch);
            if waiting || to_hand_out || !begun {
                return;
            }
            self.cursor.consumed.remove(&epoch);
            self.out.remove(&epoch);
            self.cursor.epoch += 1;
        }
    }
}

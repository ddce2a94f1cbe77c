//! One column of values and its pyramid: exact minimum and maximum, and the mean, of any range in logarithmic time.

/// Values under one block of the lowest level, and blocks under one of the next. 64 values are scanned in about 20 ns, and
/// the pyramid then costs two thirds of a byte a value.
const FAN: usize = 64;

/// Extremes of some values. NaN and infinities are left out of all but their count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    pub min: f64,
    pub max: f64,
    /// Smallest value above zero: where a logarithmic y axis begins. None: nothing is above zero.
    pub min_positive: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Block {
    /// +inf when no value is finite.
    pub(super) min: f64,
    /// -inf when no value is finite.
    pub(super) max: f64,
    /// +inf when no finite value is above zero.
    min_positive: f64,
    /// Of the finite values; infinite where they are huge.
    sum: f64,
    pub(super) non_finite: u64,
}

impl Block {
    pub(super) const EMPTY: Self = Self {
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        min_positive: f64::INFINITY,
        sum: 0.0,
        non_finite: 0,
    };

    fn of(values: &[f64]) -> Self {
        let mut block = Self::EMPTY;
        for value in values {
            // Selections instead of branches: the loop vectorises.
            let is_finite = value.is_finite();
            let low = if is_finite { *value } else { f64::INFINITY };
            let high = if is_finite { *value } else { f64::NEG_INFINITY };
            let positive = if low > 0.0 { low } else { f64::INFINITY };
            block.min = if low < block.min { low } else { block.min };
            block.max = if high > block.max { high } else { block.max };
            block.min_positive = if positive < block.min_positive {
                positive
            } else {
                block.min_positive
            };
            block.non_finite += u64::from(!is_finite);
        }
        block.sum = sum(values);
        block
    }

    pub(super) fn join(&mut self, other: &Self) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.min_positive = self.min_positive.min(other.min_positive);
        self.sum += other.sum;
        self.non_finite += other.non_finite;
    }

    pub(super) fn bounds(&self) -> Option<Bounds> {
        (self.min <= self.max).then(|| Bounds {
            min: self.min,
            max: self.max,
            min_positive: self.min_positive.is_finite().then_some(self.min_positive),
        })
    }
}

/// Values in order, and over them whole blocks only: the last, partly filled block of each level is scanned.
#[derive(Debug, Clone, Default)]
pub(super) struct Column {
    values: Vec<f64>,
    /// `levels[k][i]` covers `FAN^(k+1)` values from `i·FAN^(k+1)`.
    levels: Vec<Vec<Block>>,
    non_finite: u64,
}

impl Column {
    pub(super) fn values(&self) -> &[f64] {
        &self.values
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn non_finite(&self) -> u64 {
        self.non_finite
    }

    pub(super) fn reserve(&mut self, more: usize) {
        self.values.reserve(more);
    }

    /// Keeps the first `count` values.
    pub(super) fn truncate(&mut self, count: usize) {
        if count >= self.values.len() {
            return;
        }
        let gone = &self.values[count..];
        self.non_finite -= gone.iter().filter(|value| !value.is_finite()).count() as u64;
        self.values.truncate(count);
        let mut whole = count;
        for blocks in &mut self.levels {
            whole /= FAN;
            blocks.truncate(whole);
        }
        self.levels.retain(|blocks| !blocks.is_empty());
    }

    /// Amortised constant: one value in 64 closes a block.
    pub(super) fn push(&mut self, value: f64) {
        self.values.push(value);
        self.non_finite += u64::from(!value.is_finite());
        if self.values.len().is_multiple_of(FAN) {
            self.close_blocks();
        }
    }

    pub(super) fn extend(&mut self, values: &[f64]) {
        self.values.extend_from_slice(values);
        self.non_finite += values.iter().filter(|value| !value.is_finite()).count() as u64;
        self.close_blocks();
    }

    /// Adds every whole block that is missing, from the lowest level up.
    fn close_blocks(&mut self) {
        let mut level = 0;
        loop {
            let below = match level {
                0 => self.values.len(),
                _ => self.levels[level - 1].len(),
            };
            let whole = below / FAN;
            if whole == 0 {
                return;
            }
            if self.levels.len() == level {
                self.levels.push(Vec::new());
            }
            for index in self.levels[level].len()..whole {
                let part = index * FAN..(index + 1) * FAN;
                let block = match level {
                    0 => Block::of(&self.values[part]),
                    _ => joined(&self.levels[level - 1][part]),
                };
                self.levels[level].push(block);
            }
            level += 1;
        }
    }

    /// Extremes and count of non-finite values of `start..end`.
    pub(super) fn block(&self, start: usize, end: usize) -> Block {
        let mut all = Block::EMPTY;
        let (mut start, mut end) = (start, end.min(self.values.len()));
        if start >= end {
            return all;
        }
        // From the bottom up: the ragged edges at each level, then the blocks between them one level higher.
        let mut level = 0;
        loop {
            let has_next = self
                .levels
                .get(level)
                .is_some_and(|blocks| !blocks.is_empty());
            let first = start.div_ceil(FAN);
            let last = match self.levels.get(level) {
                Some(blocks) => (end / FAN).min(blocks.len()),
                None => 0,
            };
            if !has_next || first >= last {
                all.join(&self.scan(level, start, end));
                return all;
            }
            all.join(&self.scan(level, start, first * FAN));
            all.join(&self.scan(level, last * FAN, end));
            (start, end) = (first, last);
            level += 1;
        }
    }

    /// Mean of the finite values of `start..end`, and how many they are; NaN of none.
    pub(super) fn mean(&self, start: usize, end: usize) -> (f64, usize) {
        let (start, end) = (start.min(end), end.min(self.values.len()));
        let block = self.block(start, end);
        let count = (end - start) - block.non_finite as usize;
        if count == 0 {
            return (f64::NAN, 0);
        }
        let mut mean = block.sum / count as f64;
        if !mean.is_finite() {
            let values = self.values[start..end].iter();
            let finite = values.filter(|value| value.is_finite());
            mean = finite.map(|value| value / count as f64).sum();
        }
        // Rounding never leads out of the values, and equal ones have themselves as mean.
        (mean.clamp(block.min, block.max), count)
    }

    /// Joins `start..end` of the values (level 0) or of the blocks of a level below `level`.
    fn scan(&self, level: usize, start: usize, end: usize) -> Block {
        match level {
            0 => Block::of(&self.values[start..end]),
            _ => joined(&self.levels[level - 1][start..end]),
        }
    }
}

/// Of the finite values. Several sums beside each other, since each addition waits for the one before it.
fn sum(values: &[f64]) -> f64 {
    const LANES: usize = 8;
    let finite = |value: &f64| if value.is_finite() { *value } else { 0.0 };
    let mut sums = [0.0; LANES];
    let parts = values.chunks_exact(LANES);
    let rest: f64 = parts.remainder().iter().map(finite).sum();
    for part in parts {
        for (sum, value) in sums.iter_mut().zip(part) {
            *sum += finite(value);
        }
    }
    sums.iter().sum::<f64>() + rest
}

fn joined(blocks: &[Block]) -> Block {
    let mut all = Block::EMPTY;
    for block in blocks {
        all.join(block);
    }
    all
}

//! Keys and values of every token the engine remembers: one tensor for all layers, rows 0..A of it in use by who is generating.
//! It starts small and grows by doubling, so its size follows what the rollouts need, not the largest they might.

use tch::{Device, Kind, Tensor};

use crate::model::config::ModelConfig;
use crate::model::transformer::rotary_tables;

/// Positions are given out in blocks of this many, so that a growing dialogue does not move the cache at each token.
const LENGTH_BLOCK: i64 = 64;

#[derive(Debug)]
pub(super) struct KvCache {
    config: ModelConfig,
    kind: Kind,
    device: Device,
    /// \[layers, 2, rows, kv heads, length, D\]; entry 0 of the second axis holds keys, 1 values. Always finite: attention
    /// multiplies masked values by 0.
    store: Tensor,
    rows: i64,
    length: i64,
    /// Cosine and sine of each position, \[length, 1, D/2\] in the cache's dtype.
    rotary: (Tensor, Tensor),
}

impl KvCache {
    pub fn new(config: &ModelConfig, kind: Kind, device: Device) -> Self {
        let mut cache = Self {
            config: config.clone(),
            kind,
            device,
            store: Tensor::new(),
            rows: 0,
            length: 0,
            rotary: (Tensor::new(), Tensor::new()),
        };
        cache.clear();
        cache
    }

    /// Forgets everything and gives the memory back.
    pub fn clear(&mut self) {
        (self.rows, self.length) = (0, 0);
        self.store = self.zeros(0, 0);
    }

    /// Makes room for `rows` sequences of `length` tokens, keeping what is there.
    pub fn ensure(&mut self, rows: i64, length: i64) {
        if rows <= self.rows && length <= self.length {
            return;
        }
        let rows = if rows > self.rows {
            rows.max(2 * self.rows)
        } else {
            self.rows
        };
        let length = if length > self.length {
            let grown = length.max(self.length + self.length / 2);
            (grown + LENGTH_BLOCK - 1) / LENGTH_BLOCK * LENGTH_BLOCK
        } else {
            self.length
        };
        let grown = self.zeros(rows, length);
        if self.rows > 0 {
            grown
                .narrow(2, 0, self.rows)
                .narrow(4, 0, self.length)
                .copy_(&self.store);
        }
        if length > self.length {
            let positions = Tensor::arange(length, (Kind::Int64, self.device));
            let (cosine, sine) = rotary_tables(&self.config, &positions);
            let table = |angles: Tensor| angles.to_kind(self.kind).unsqueeze(1);
            self.rotary = (table(cosine), table(sine));
        }
        (self.store, self.rows, self.length) = (grown, rows, length);
    }

    fn zeros(&self, rows: i64, length: i64) -> Tensor {
        Tensor::zeros(
            [
                self.config.num_layers,
                2,
                rows,
                self.config.num_kv_heads,
                length,
                self.config.head_dim,
            ],
            (self.kind, self.device),
        )
    }

    /// Cosine and sine for the given positions \[N\], each \[N, 1, D/2\].
    pub fn rotary(&self, positions: &Tensor) -> (Tensor, Tensor) {
        (
            self.rotary.0.index_select(0, positions),
            self.rotary.1.index_select(0, positions),
        )
    }

    /// One layer's keys and values, \[rows, kv heads, length, D\] each.
    pub fn layer(&self, layer: i64) -> (Tensor, Tensor) {
        let layer = self.store.get(layer);
        (layer.get(0), layer.get(1))
    }

    /// A row's first `length` tokens, \[layers, 2, kv heads, length, D\], as a view.
    fn row(&self, row: usize, length: usize) -> Tensor {
        self.store.select(2, row as i64).narrow(3, 0, length as i64)
    }

    /// A copy of a row's first `length` tokens, to be set aside.
    pub fn take_out(&self, row: usize, length: usize) -> Tensor {
        self.row(row, length).copy()
    }

    /// Brings the first `length` tokens of what [`KvCache::take_out`] gave back into a row.
    pub fn put_back(&mut self, row: usize, kept: &Tensor, length: usize) {
        self.row(row, length)
            .copy_(&kept.narrow(3, 0, length as i64));
    }

    /// Copies the first `length` tokens of one row over another's.
    pub fn copy_row(&mut self, from: usize, to: usize, length: usize) {
        self.row(to, length).copy_(&self.row(from, length));
    }
}

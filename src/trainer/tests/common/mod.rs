//! What the integration tests share: the three small models and the numbers transformers gives for them.

#![allow(dead_code, reason = "each test program uses a part of this")]

pub mod engine;

use std::collections::HashMap;
use std::path::PathBuf;

use tch::{Device, Kind, Tensor};
use trainer::model::packed::PackedBatch;
use trainer::model::parameters::Parameters;

pub const MODELS: [&str; 3] = ["tiny-qwen2-tied", "tiny-llama-rope3", "tiny-qwen3"];

pub fn directory(model: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(model)
}

pub fn load(model: &str, kind: Kind) -> Parameters {
    Parameters::load(&directory(model), kind, Device::Cpu).expect("the test model loads")
}

/// Numbers of transformers for one model.
pub struct Oracle(HashMap<String, Tensor>);

impl Oracle {
    pub fn of(model: &str) -> Self {
        let path = directory(model).join("oracle.safetensors");
        Self(
            Tensor::read_safetensors(path)
                .expect("the oracle reads")
                .into_iter()
                .collect(),
        )
    }

    pub fn get(&self, name: &str) -> &Tensor {
        &self.0[name]
    }

    pub fn find(&self, name: &str) -> Option<&Tensor> {
        self.0.get(name)
    }

    pub fn rows<T: tch::kind::Element + Clone + Default>(
        &self,
        name: &str,
        kind: Kind,
    ) -> Vec<Vec<T>> {
        let tensor = self.get(name).to_kind(kind).contiguous();
        let (rows, columns) = tensor.size2().expect("a matrix");
        let mut flat = vec![T::default(); (rows * columns) as usize];
        let count = flat.len();
        tensor.copy_data(&mut flat, count);
        flat.chunks(columns as usize).map(<[T]>::to_vec).collect()
    }

    pub fn ids(&self, name: &str) -> Vec<Vec<u32>> {
        self.rows::<i64>(name, Kind::Int64)
            .into_iter()
            .map(|row| row.into_iter().map(|id| id as u32).collect())
            .collect()
    }

    /// The four prompts without their left padding, and where each starts in the padded row.
    pub fn prompts(&self) -> Vec<(usize, Vec<u32>)> {
        let mask = self.rows::<i64>("attention_mask", Kind::Int64);
        self.ids("input_ids")
            .into_iter()
            .zip(mask)
            .map(|(ids, mask)| {
                let start = mask
                    .iter()
                    .position(|kept| *kept == 1)
                    .expect("no empty row");
                (start, ids[start..].to_vec())
            })
            .collect()
    }
}

/// Each sequence as a group of its own.
pub fn pack(sequences: &[Vec<u32>]) -> PackedBatch {
    let mut batch = PackedBatch::default();
    for sequence in sequences {
        batch.push_group(sequence, &[]);
    }
    batch
}

pub fn max_abs(tensor: &Tensor) -> f64 {
    tensor.abs().max().double_value(&[])
}

pub fn max_diff(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.size(), b.size());
    max_abs(&(a.to_kind(Kind::Float) - b.to_kind(Kind::Float)))
}

//! The optimizer's state in a safetensors file: `<parameter>.{exp_avg, exp_avg_sq, step, master}`.

use std::collections::HashMap;
use std::path::Path;

use tch::Tensor;

use super::{AdamW, Error, Slot};
use crate::stored::StoredTensor;

impl Slot {
    fn state(&self) -> impl Iterator<Item = (String, &Tensor)> {
        let named = |part: &str| format!("{}.{part}", self.name);
        [
            (named("exp_avg"), &self.exp_avg),
            (named("exp_avg_sq"), &self.exp_avg_sq),
            (named("step"), &self.step),
        ]
        .into_iter()
        .chain(self.master.as_ref().map(|master| (named("master"), master)))
    }
}

impl AdamW {
    /// Writes the state to `path`. On the CPU nothing is copied.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        write_state(&self.state(), path)
    }

    /// Every tensor of the state under its name; they share their storage with the optimizer.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        self.slots
            .iter()
            .flat_map(Slot::state)
            .map(|(name, tensor)| (name, tensor.shallow_clone()))
            .collect()
    }

    /// Takes over the state in `path`, which must be of the same parameters and shapes; on an error nothing is changed.
    /// Float32 masters, where there are any, are also rounded into the parameters.
    pub fn load(&mut self, path: &Path) -> Result<(), Error> {
        let staged = self.stage(path)?;
        self.take(staged);
        Ok(())
    }

    /// Reads the state in `path` and checks that it fits, without changing anything.
    pub fn stage(&self, path: &Path) -> Result<StagedState, Error> {
        let mut saved: HashMap<String, Tensor> = Tensor::read_safetensors(path)
            .map_err(|error| Error::File {
                path: path.to_owned(),
                what: "load",
                source: error.into(),
            })?
            .into_iter()
            .collect();
        let mut pairs = Vec::new();
        for (name, tensor) in self.slots.iter().flat_map(Slot::state) {
            let found = saved
                .remove(&name)
                .ok_or_else(|| Error::Missing { name: name.clone() })?;
            if found.size() != tensor.size() {
                return Err(Error::Shape {
                    name,
                    found: found.size(),
                    expected: tensor.size(),
                });
            }
            pairs.push((tensor.shallow_clone(), found));
        }
        if let Some(name) = saved.into_keys().min() {
            return Err(Error::Unexpected { name });
        }
        Ok(StagedState(pairs))
    }

    /// Takes over what [`AdamW::stage`] of this optimizer gave. Cannot fail.
    pub fn take(&mut self, staged: StagedState) {
        let _no_grad = tch::no_grad_guard();
        for (mut tensor, found) in staged.0 {
            tensor.copy_(&found);
        }
        for slot in &self.slots {
            if let Some(master) = &slot.master {
                slot.parameter.shallow_clone().copy_(master);
            }
        }
    }
}

/// Writes what [`AdamW::state`] gave, or a copy of it.
pub fn write_state(state: &[(String, Tensor)], path: &Path) -> Result<(), Error> {
    let tensors: Vec<_> = state
        .iter()
        .map(|(name, tensor)| (name, StoredTensor::new(tensor)))
        .collect();
    safetensors::serialize_to_file(tensors, None, path).map_err(|error| Error::File {
        path: path.to_owned(),
        what: "save",
        source: error.into(),
    })
}

/// A saved state that was read and fits: each tensor of an optimizer with what it is to hold.
#[derive(Debug)]
pub struct StagedState(Vec<(Tensor, Tensor)>);

//! What a learner holds at one moment, lent to the thread that writes it down.
//!
//! A capture shares its storage with the learner and copies nothing; until a model's [`Gate`] opens, the learner may read its
//! weights (generate, publish, forward and backward passes) but not change them. So the copy in memory is made beside the
//! learner's other work, and what is left of it when the learner comes to its next optimizer step is copied by both.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tch::{Device, Tensor};

use super::gate::{Gate, Pair};
use crate::model::parameters::Parameters;
use crate::optimizer;

/// The weights and the optimizer's state of one model.
#[derive(Debug)]
pub struct Model {
    pub parameters: Parameters,
    /// As [`optimizer::write_state`] takes it.
    pub optimizer: Vec<(String, Tensor)>,
}

/// Everything that a learner trains.
#[derive(Debug)]
pub struct Models {
    pub actor: Model,
    pub critic: Option<Model>,
}

/// One for each model: the one that is stepped first need not wait for the other.
#[derive(Debug, Clone)]
pub struct Gates {
    pub actor: Arc<Gate>,
    pub critic: Option<Arc<Gate>>,
}

impl Gates {
    /// As they are stepped, and therefore copied.
    fn in_order(&self) -> impl Iterator<Item = &Arc<Gate>> {
        self.critic.iter().chain([&self.actor])
    }

    /// How long the learner stood before them; final once they are open.
    pub fn waited(&self) -> Duration {
        self.in_order().map(|gate| gate.waited()).sum()
    }
}

/// Lent by a learner until it is dropped, or copied.
#[derive(Debug)]
pub struct Capture {
    models: Models,
    gates: Gates,
}

impl Capture {
    /// `models` share the storage of what is trained.
    pub fn new(models: Models) -> Self {
        Self {
            gates: Gates {
                actor: Arc::default(),
                critic: models.critic.as_ref().map(|_| Arc::default()),
            },
            models,
        }
    }

    /// They open when this capture is copied or dropped, whatever became of it.
    pub fn gates(&self) -> Gates {
        self.gates.clone()
    }

    pub fn models(&self) -> &Models {
        &self.models
    }

    /// A copy in the CPU's memory, after which the learner is free. `reused` is an earlier copy that nobody needs any more: its
    /// memory is taken where it fits, which saves the kernel from clearing as many new pages.
    pub fn copied(self, reused: Option<Models>) -> Result<Models, String> {
        let (actor, critic) = reused.map_or((None, None), |held| (Some(held.actor), held.critic));
        let critic = self.models.critic.as_ref().map(|model| host(model, critic));
        let actor = host(&self.models.actor, actor);
        let hand_out = |gate: &Gate, from: &Model, to: &Model| {
            let pairs = from.tensors().into_iter().zip(to.tensors());
            let pair = |(from, to): (&Tensor, &Tensor)| Pair {
                from: from.detach(),
                to: to.shallow_clone(),
            };
            gate.hand_out(pairs.map(pair).collect());
        };
        if let (Some(gate), Some(from), Some(to)) =
            (&self.gates.critic, &self.models.critic, &critic)
        {
            hand_out(gate, from, to);
        }
        hand_out(&self.gates.actor, &self.models.actor, &actor);
        for gate in self.gates.in_order() {
            gate.finish()?;
        }
        Ok(Models { actor, critic })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.gates.in_order().for_each(|gate| gate.open());
    }
}

/// Memory for a copy of `model`: that of `reused` where it is of the same shape.
fn host(model: &Model, reused: Option<Model>) -> Model {
    let tensors = model.tensors();
    let fits = |held: &Model| {
        let held = held.tensors();
        let is_alike = |(held, tensor): (&&Tensor, &&Tensor)| {
            held.kind() == tensor.kind() && held.size() == tensor.size()
        };
        held.len() == tensors.len() && held.iter().zip(&tensors).all(is_alike)
    };
    // One that does not fit goes before the new one comes.
    let reused = reused.filter(fits);
    let places: Vec<Tensor> = match &reused {
        Some(held) => held
            .tensors()
            .into_iter()
            .map(Tensor::shallow_clone)
            .collect(),
        None => tensors
            .iter()
            .map(|tensor| Tensor::empty(tensor.size(), (tensor.kind(), Device::Cpu)))
            .collect(),
    };
    let names = model.parameters.iter().map(|(name, _)| name.to_owned());
    let mut weights: Vec<(String, Tensor)> = names
        .chain(model.optimizer.iter().map(|(name, _)| name.clone()))
        .zip(places)
        .collect();
    let optimizer = weights.split_off(model.parameters.len());
    Model {
        parameters: Parameters::from_entries(Arc::clone(model.parameters.config()), weights),
        optimizer,
    }
}

impl Model {
    /// Weights, then the optimizer's state.
    fn tensors(&self) -> Vec<&Tensor> {
        let weights = self.parameters.iter().map(|(_, tensor)| tensor);
        let state = self.optimizer.iter().map(|(_, tensor)| tensor);
        weights.chain(state).collect()
    }
}

impl Models {
    /// Writes models in the Hugging Face layout, with the tokenizer files of `source`, and optimizers beside them.
    pub fn write(&self, directory: &Path, source: &Path) -> io::Result<()> {
        let write = |model: &Model, place: &Path, optimizer: &str| {
            model
                .parameters
                .save_pretrained(place, Some(source))
                .map_err(io::Error::other)?;
            optimizer::write_state(&model.optimizer, &directory.join(optimizer))
                .map_err(io::Error::other)
        };
        write(&self.actor, directory, "actor_optimizer.safetensors")?;
        if let Some(critic) = &self.critic {
            write(
                critic,
                &directory.join("critic"),
                "critic_optimizer.safetensors",
            )?;
        }
        Ok(())
    }
}

//! What a learner holds at one moment, lent to the thread that writes it down.
//!
//! A capture shares its storage with the learner and copies nothing; until its [`Gate`] opens, the learner may read its weights
//! (generate, publish, forward and backward passes) but not change them. So the copy in memory is made beside the learner's
//! other work, and it waits for no more than what is left of that when it comes to its next optimizer step.

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tch::{Device, Tensor};

use crate::model::parameters::Parameters;
use crate::optimizer;
use crate::torch_ext;

/// Shut while a capture is being copied.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<GateState>,
    opened: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    is_open: bool,
    waits_since: Option<Instant>,
    waited: Duration,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().expect("no holder panics")
    }

    /// Waits until it is open: what the learner does before it changes a weight.
    pub fn pass(&self) {
        let mut state = self.state();
        while !state.is_open {
            state.waits_since.get_or_insert_with(Instant::now);
            state = self.opened.wait(state).expect("no holder panics");
        }
    }

    fn open(&self) {
        let mut state = self.state();
        if !state.is_open {
            state.is_open = true;
            state.waited = state
                .waits_since
                .map_or(Duration::ZERO, |since| since.elapsed());
        }
        drop(state);
        self.opened.notify_all();
    }

    /// Somebody stands before it.
    pub fn is_waited_at(&self) -> bool {
        let state = self.state();
        !state.is_open && state.waits_since.is_some()
    }

    /// How long somebody stood before it; final once it is open.
    pub fn waited(&self) -> Duration {
        self.state().waited
    }
}

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

/// Lent by a learner until it is dropped.
#[derive(Debug)]
pub struct Capture {
    models: Models,
    gate: Arc<Gate>,
}

impl Capture {
    /// `models` share the storage of what is trained.
    pub fn new(models: Models) -> Self {
        Self {
            models,
            gate: Arc::default(),
        }
    }

    /// Opens when this capture is dropped, whatever became of it.
    pub fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.gate)
    }

    pub fn models(&self) -> &Models {
        &self.models
    }

    /// A copy in the CPU's memory.
    pub fn copied(&self) -> Models {
        let copy = |model: &Model| {
            let parameters = &model.parameters;
            let weights = parameters
                .iter()
                .map(|(name, tensor)| (name.to_owned(), host_copy(tensor)))
                .collect();
            Model {
                parameters: Parameters::from_entries(Arc::clone(parameters.config()), weights),
                optimizer: model
                    .optimizer
                    .iter()
                    .map(|(name, tensor)| (name.clone(), host_copy(tensor)))
                    .collect(),
            }
        };
        Models {
            actor: copy(&self.models.actor),
            critic: self.models.critic.as_ref().map(copy),
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.gate.open();
    }
}

fn host_copy(tensor: &Tensor) -> Tensor {
    let tensor = tensor.detach();
    let mut copy = Tensor::empty(tensor.size(), (tensor.kind(), Device::Cpu));
    if !torch_ext::copy_bytes(&copy, &tensor) {
        copy.copy_(&tensor);
    }
    copy
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

//! What stands between a learner and the weights that are being copied: shut until each tensor has its copy.
//!
//! Whoever waits before it takes part in the copying, so nobody stands idle while tensors are left that nobody has begun.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tch::Tensor;

use crate::torch_ext;

/// Shut while one model is lent and not copied yet.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    /// Tensors came to be copied, or it opened.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_open: bool,
    /// Whether `left` was ever filled: before that nothing is left and nothing is copied.
    is_begun: bool,
    /// What nobody has begun to copy, the next one last.
    left: Vec<Pair>,
    /// Begun and not ended.
    under_way: usize,
    /// Why a copy could not be made.
    problem: Option<String>,
    waits_since: Option<Instant>,
    waited: Duration,
}

/// A tensor, and where its copy is to lie: of one shape and kind.
#[derive(Debug)]
pub(super) struct Pair {
    pub from: Tensor,
    pub to: Tensor,
}

impl Pair {
    fn bytes(&self) -> usize {
        self.from.numel() * self.from.kind().elt_size_in_bytes()
    }

    /// From a GPU: in the default stream, where the kernels of every thread of this process lie too. So it comes after those that
    /// were enqueued before, and since the memory is not pinned it has ended when this comes back.
    fn copy(&self) -> Result<(), String> {
        if torch_ext::copy_bytes(&self.to, &self.from) {
            return Ok(());
        }
        let mut to = self.to.shallow_clone();
        to.f_copy_(&self.from)
            .map(drop)
            .map_err(|error| format!("a tensor could not be copied: {error}"))
    }
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Waits until it is open, and copies meanwhile: what the learner does before it changes a weight.
    pub fn pass(&self) {
        let mut state = self.state();
        while !state.is_open {
            state.waits_since.get_or_insert_with(Instant::now);
            state = self.help(state);
        }
    }

    /// What is to be copied before it opens.
    pub(super) fn hand_out(&self, mut pairs: Vec<Pair>) {
        // The largest first: at the end nobody waits long for the other's last one.
        pairs.sort_by_key(Pair::bytes);
        let mut state = self.state();
        state.left = pairs;
        state.is_begun = true;
        self.settle(&mut state);
        drop(state);
        self.changed.notify_all();
    }

    /// Copies until nothing is left, and waits for what others copy. It is open then.
    pub(super) fn finish(&self) -> Result<(), String> {
        let mut state = self.state();
        while !state.is_open {
            state = self.help(state);
        }
        state.problem.take().map_or(Ok(()), Err)
    }

    /// Opens it, whatever was copied.
    pub(super) fn open(&self) {
        self.set_open(&mut self.state());
    }

    /// Copies one tensor; where none is left, waits for a change.
    fn help<'g>(&'g self, mut state: MutexGuard<'g, State>) -> MutexGuard<'g, State> {
        let Some(pair) = state.left.pop() else {
            return self.changed.wait(state).expect("no holder panics");
        };
        state.under_way += 1;
        drop(state);
        let copied = pair.copy();
        let mut state = self.state();
        state.under_way -= 1;
        if let Err(problem) = copied {
            state.problem = Some(problem);
            state.left.clear();
        }
        self.settle(&mut state);
        state
    }

    fn settle(&self, state: &mut State) {
        if state.is_begun && state.left.is_empty() && state.under_way == 0 {
            self.set_open(state);
        }
    }

    fn set_open(&self, state: &mut State) {
        if !state.is_open {
            state.is_open = true;
            state.waited = state
                .waits_since
                .map_or(Duration::ZERO, |since| since.elapsed());
        }
        self.changed.notify_all();
    }

    /// Somebody stands before it.
    pub fn is_waited_at(&self) -> bool {
        let state = self.state();
        !state.is_open && state.waits_since.is_some()
    }

    /// How long somebody stood before it, copying or not; final once it is open.
    pub fn waited(&self) -> Duration {
        self.state().waited
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tch::{Device, Kind};

    use super::*;

    fn pairs(count: i64) -> Vec<Pair> {
        (0..count)
            .map(|at| Pair {
                from: Tensor::full([1 + at], at as f64, (Kind::Float, Device::Cpu)),
                to: Tensor::zeros([1 + at], (Kind::Float, Device::Cpu)),
            })
            .collect()
    }

    #[test]
    fn whoever_waits_copies_too_and_every_tensor_has_its_copy_when_it_opens() {
        let pairs = pairs(2000);
        let held: Vec<(Tensor, Tensor)> = pairs
            .iter()
            .map(|pair| (pair.from.shallow_clone(), pair.to.shallow_clone()))
            .collect();
        let gate = Arc::new(Gate::default());
        let waiter = std::thread::spawn({
            let gate = Arc::clone(&gate);
            move || gate.pass()
        });
        while !gate.is_waited_at() {
            std::thread::yield_now();
        }
        gate.hand_out(pairs);
        // Nobody else copies: the one who waits has to do it all.
        waiter.join().expect("it is let through");
        assert!(held.iter().all(|(from, to)| from.equal(to)));
        assert!(!gate.waited().is_zero());
        gate.finish().expect("all are copied");
    }

    #[test]
    fn a_copy_that_cannot_be_made_is_told_and_shuts_nobody_out() {
        let gate = Gate::default();
        let mut pairs = pairs(3);
        pairs[1].to = Tensor::zeros([3, 3], (Kind::Float, Device::Cpu));
        gate.hand_out(pairs);
        let problem = gate.finish().expect_err("of another shape");
        assert!(problem.contains("could not be copied"), "{problem}");
        gate.pass();
    }

    #[test]
    fn a_model_without_tensors_keeps_nobody_waiting() {
        let gate = Gate::default();
        gate.hand_out(Vec::new());
        gate.pass();
        assert!(gate.waited().is_zero());
        gate.finish().expect("there was nothing to do");
    }
}

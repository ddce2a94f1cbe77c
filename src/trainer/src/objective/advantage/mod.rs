//! From token rewards to advantages. Small loops over numbers, in float64, on the CPU: B·T additions are nothing beside one
//! layer of the model, and each sequence walks backwards in its own way.
//!
//! `group`: the samples of a prompt are compared by their scores. `token`: each token has a return of its own. Which
//! estimator needs what is in `experiment::estimators`.

mod group;
mod token;

use tch::{Device, Kind, Tensor};

pub use group::{
    Alone, Scale, gdpo, gpg, grpo, grpo_passk, opo, reinforce_plus_plus_baseline, rloo,
};
pub use token::{
    TokenBaselineInputs, gae, optimal_token_baseline, reinforce_plus_plus, remax,
    tir_optimal_token_baseline,
};

/// Both \[B, T\], float32, on the device of the rewards. Outside the mask they mean nothing.
#[derive(Debug)]
pub struct Advantages {
    pub advantages: Tensor,
    /// The critic's target.
    pub returns: Tensor,
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    let flat = tensor
        .detach()
        .to_device(Device::Cpu)
        .to_kind(Kind::Double)
        .reshape([-1]);
    Vec::try_from(flat).expect("a flat float64 tensor on the CPU")
}

fn float32_on(tensor: &Tensor, device: Device) -> Tensor {
    tensor.to_kind(Kind::Float).to_device(device)
}

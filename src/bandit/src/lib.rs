//! WHICH JUDGE: a choice among reward sources (arms), learned from how well each served.
//!
//! ```text
//!  Settings, arms, seed ─► Bandit ── choose(context) ─► Pull ─► (somebody scores the rollout) ─► learn(pull, Outcome)
//!                            │  ▲                                                                    │
//!                            ▼  └── statistics change once every `update_every` outcomes ◄──────────┘
//!                          State (serde, exact)          beliefs · chances · regret · disagreement
//! ```
//! No clock, no file, no hidden randomness: what is chosen is a function of settings, state and seed, so that a checkpoint
//! goes on as if it had never stopped. Knows nothing of models, rollouts, events or screens. `simulate` plays policies
//! against environments whose truth is known.

mod arm;
mod disagreement;
mod draws;
mod error;
mod linear;
mod machine;
mod moments;
mod outcome;
mod policy;
mod quantiles;
mod regret;
mod settings;
pub mod simulate;
mod state;
pub mod table;

pub use arm::ArmState;
pub use disagreement::{Disagreement, kendall_tau_b};
pub use draws::{Draws, Uniforms, seed};
pub use error::BanditError;
pub use linear::{Context, LinearModel};
pub use machine::Bandit;
pub use moments::Moments;
pub use outcome::{Choice, Learned, Outcome, Pull, Why};
pub use policy::Belief;
pub use quantiles::Quantiles;
pub use regret::{RegretEstimate, estimate as estimate_regret};
pub use settings::{PolicyName, Posterior, Settings};
pub use state::State;

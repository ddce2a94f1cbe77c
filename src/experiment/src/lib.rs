//! WHAT TO DO: an experiment as YAML in verl's vocabulary, typed, defaulted, checked, with complaints that name file and line.
//!
//! ```text
//!  experiment.yaml ─► yaml (tree + places) ─► given (shorthand, overrides) ─► interpolate ─► convert (type, range)
//!                                                                   keys (the table) ──────────┘     │
//!                                              Complaint[] ◄── rules (keys together) ◄── Experiment ◄┘
//! ```
//! `load` for use, `inspect` for everything there is to say, `keys` for help and documentation, `yaml::set_value` to
//! edit. Knows nothing of files other than the YAML itself, of data, models or runs.

pub mod arms;
pub mod bandit;
mod complaint;
mod convert;
pub mod correction;
mod effective;
pub mod estimators;
mod given;
pub mod guards;
mod interpolate;
mod keep;
pub mod keys;
pub mod losses;
pub mod overrides;
mod resolve;
mod rules;
pub mod scorers;
pub mod settings;
pub mod verl;
pub mod yaml;

pub use complaint::{Complaint, Complaints, Severity};
pub use convert::{check_value, seconds};
pub use keep::{GuardsKeep, Keep};
pub use keys::{glob, help, markdown};
pub use resolve::{Loaded, from_text, inspect, load};
pub use settings::Experiment;

//! WHAT TO DO: an experiment as YAML in verl's vocabulary, typed, defaulted, checked, with complaints that name file and line.
//!
//! ```text
//!  experiment.yaml ─► yaml (tree + key spans) ─► aliases, overrides, ${interpolation} ─► keys table (type, range, help)
//!                                                                     └─► Complaint[]  └─► Experiment (typed)
//! ```
//! Knows nothing of files other than the YAML itself, of data, models or runs.

pub mod settings;

pub use settings::Experiment;

//! Pieces of screen that several pages use.

pub mod chart;
pub mod empty;
pub mod envelopes;
pub mod field;
pub mod frame;
pub mod list;
pub mod text;
pub mod viewport;

//! Policies against environments whose truth is known: what each loses against always choosing the best arm.
//!
//! `environment`: the file's form and what is wrong with it. `play`: one run. `report`: many runs, as curves with errors.
//! Every policy meets the same contexts and values (run, step and arm decide them), so that differences are the policies'.

mod environment;
mod faults;
mod play;
mod report;

pub use environment::{Arm, Change, Entry, Environment, Gives};
pub use faults::{Fault, Segment};
pub use report::{Point, Report, simulate};

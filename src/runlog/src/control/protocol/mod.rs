//! What goes over the socket: requests one way, answers the other, each one JSON object on one line.
//!
//! ```text
//!  {"id":7,"who":"ana@laptop via lathe","command":"set","knob":"actor.optim.lr","value":1e-5}
//!  {"answer":"accepted","id":7,"when":"before step 13"}
//!  {"answer":"applied","id":7,"step":12,"from_step":13,"from":1e-6,"to":1e-5}
//!  {"id":8,"who":"ana@laptop via lathe","command":"mute","guard":"kl","steps":20}
//!  {"answer":"applied","id":8,"step":12,"before":"armed","after":"muted until step 32"}
//!  {"id":9,"who":"ana@laptop via lathe","command":"arm_force","arm":"rule"}
//!  {"answer":"applied","id":9,"step":12,"from_step":13,"before":"free","after":"forced"}
//! ```

mod answer;
mod command;
mod request;

use serde::Serialize;

pub use answer::{Answer, Applied, KnobState, Status};
pub use command::{Command, MAX_STALENESS};
pub use request::{Malformed, Request};

/// Longest line either side reads, its newline included.
pub const MAX_LINE_BYTES: usize = 64 << 10;

fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("only string keys, and numbers that JSON has");
    line.push(b'\n');
    line
}

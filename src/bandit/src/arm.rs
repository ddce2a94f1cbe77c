//! What is known of one arm.

use serde::{Deserialize, Serialize};

use crate::linear::LinearModel;
use crate::moments::Moments;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmState {
    pub name: String,
    /// Times it was chosen, whatever came of it.
    pub chosen: u64,
    /// Outcomes in the statistics; time-outs count, missing ones do not.
    pub counted: u64,
    pub timed_out: u64,
    /// Those of the counted ones whose pull somebody forced.
    #[serde(default, skip_serializing_if = "is_none")]
    pub forced: u64,
    pub missing: u64,
    /// Values outside `value_range` that were moved to its end.
    pub clamped: u64,
    /// All counted values as they came, undiscounted: for [`estimate_regret`](crate::estimate_regret) and screens.
    pub all: Moments,
    /// What the policy reads: discounted, and scaled to 0..1 where the policy wants that.
    pub recent: Moments,
    /// Never chosen while another arm is free; its statistics stay.
    pub is_frozen: bool,
    /// `linucb` only, from the first context on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linear: Option<LinearModel>,
}

impl ArmState {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            chosen: 0,
            counted: 0,
            timed_out: 0,
            forced: 0,
            missing: 0,
            clamped: 0,
            all: Moments::default(),
            recent: Moments::default(),
            is_frozen: false,
            linear: None,
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde takes"
)]
fn is_none(count: &u64) -> bool {
    *count == 0
}

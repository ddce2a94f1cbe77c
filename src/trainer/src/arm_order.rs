//! What people do with the bandit's arms while the run runs: at a step boundary, answered with what stood before and what stands
//! now; and how the arms stand.

use runlog::control::{ArmOrder, ArmState};

use crate::control::Done;
use crate::training::Training;

impl Training<'_> {
    /// Carries an order out.
    #[expect(clippy::unused_self, reason = "no bandit chooses in training yet")]
    pub(crate) fn arm_order(&mut self, _order: ArmOrder) -> Result<Done, String> {
        Err("this run has no bandit: its reward.bandit.policy is null or does not learn".to_owned())
    }

    /// Every arm, in the bandit's order; empty: there is none.
    #[expect(clippy::unused_self, reason = "no bandit chooses in training yet")]
    pub(crate) fn arm_states(&self) -> Vec<ArmState> {
        Vec::new()
    }
}

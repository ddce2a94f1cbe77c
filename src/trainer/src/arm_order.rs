//! What people do with the bandit's arms while the run runs: at a step boundary, answered with what stood before and what stands
//! now; and how the arms stand.

use runlog::control::{ArmOrder, ArmState, arm_words};

use crate::choosing::Choosing;
use crate::control::Done;
use crate::training::Training;

impl Training<'_> {
    /// Carries an order out. A pull under way keeps its arm.
    pub(crate) fn arm_order(&mut self, order: &ArmOrder) -> Result<Done, String> {
        let trained = self.trained;
        let Some(choosing) = &mut self.choosing else {
            return Err(
                "this run has no bandit: its reward.bandit.policy is null or does not learn"
                    .to_owned(),
            );
        };
        // A release is about the arm that is forced.
        let about = order.arm().or(choosing.forced()).map(str::to_owned);
        let is_named = order.arm().is_some();
        let words = |choosing: &Choosing| words_of(choosing, about.as_deref(), is_named);
        let before = words(choosing);
        let done = match order {
            ArmOrder::Force(arm) => choosing.force(arm),
            ArmOrder::Freeze(arm) => choosing.freeze(arm, true),
            ArmOrder::Unfreeze(arm) => choosing.freeze(arm, false),
            ArmOrder::Release => {
                choosing.release();
                Ok(())
            }
        };
        done.map_err(|error| error.to_string())?;
        Ok(Done {
            before,
            after: words(choosing),
            from_step: Some(choosing.next_choice(trained)),
            ..Done::default()
        })
    }

    /// Every arm, in the bandit's order; empty: there is none.
    pub(crate) fn arm_states(&self) -> Vec<ArmState> {
        self.choosing
            .as_ref()
            .map(Choosing::states)
            .unwrap_or_default()
    }
}

/// How an arm stands, with its name where the order has none. None: no arm is forced.
fn words_of(choosing: &Choosing, arm: Option<&str>, is_named: bool) -> String {
    let Some(name) = arm else {
        return "no arm forced".to_owned();
    };
    let state = choosing.states().into_iter().find(|arm| arm.name == name);
    let words = state.map_or("free", |arm| arm_words(arm.is_forced, arm.is_frozen));
    if is_named {
        words.to_owned()
    } else {
        format!("{name} {words}")
    }
}

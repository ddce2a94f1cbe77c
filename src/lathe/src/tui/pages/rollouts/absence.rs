//! Page Rollouts where there are no samples to show: why, and what helps.

use ratatui::Frame;
use ratatui::layout::Rect;

use super::library::Shelf;
use super::{Rollouts, limit, turns};
use crate::tui::shared::{OpenRun, Shared};
use crate::tui::widgets::empty;

impl Rollouts {
    /// The helpful screen where there are no samples. False: there are.
    pub(super) fn draw_absence(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) -> bool {
        let (Some(run), Some(open)) = (&shared.current, shared.current_run()) else {
            empty::no_run(shared, frame, area);
            return true;
        };
        let mut say = |what: &str, help: &str| empty::draw(shared, frame, area, what, help);
        let Some(listing) = self.library.listing(run) else {
            say("Looking for the recorded steps of this run", "");
            return true;
        };
        if let Some(problem) = &listing.problem {
            empty::problem(shared, frame, area, problem);
            return true;
        }
        if listing.is_empty() {
            if self.pulling.as_ref() == Some(run) {
                say("Fetching the rollouts of this run", "");
                return true;
            }
            if let Some(target) = lies_on(shared).filter(|_| !listing.is_off) {
                let id = open.info.as_ref().map_or("latest", |info| info.id.as_str());
                let help = format!("p fetches those that are there; in a shell: lathe pull {id}");
                say(&format!("The rollouts of this run lie on {target}"), &help);
                return true;
            }
            let (what, help) = why_nothing(open, listing.is_off);
            say(what, &help);
            return true;
        }
        let Some((run, step)) = self.target(shared) else {
            say(
                "No recorded step has ended at this moment of the replay",
                "> goes on by one step",
            );
            return true;
        };
        if step > limit(shared) {
            say(
                &format!("Step {step} has not ended at this moment of the replay"),
                "L shows the newest step that has; > goes on by one step",
            );
            return true;
        }
        if !listing.has(step) {
            let last = listing.newest(u64::MAX).unwrap_or_default();
            let help = if step > last && open.state.ended.is_none() {
                "it is written when the step ends; L shows the newest recorded one"
            } else {
                ", and . go to the recorded steps around it, L to the newest"
            };
            say(&format!("Step {step} is not recorded"), help);
            return true;
        }
        match self.library.get(&run, step) {
            Shelf::Broken(problem) => {
                empty::problem(shared, frame, area, problem);
                true
            }
            // Until it was read, what was shown before stays.
            Shelf::Absent if self.batch().is_some() => false,
            Shelf::Absent => {
                say(&format!("Reading step {step}"), "");
                true
            }
            Shelf::Ready(batch) if batch.samples.is_empty() => {
                say(
                    &format!("Step {step} was recorded without samples"),
                    ", and . go to other steps",
                );
                true
            }
            Shelf::Ready(_) => false,
        }
    }
}

/// The machine that the current run is on, where that is another one.
pub(super) fn lies_on(shared: &Shared) -> Option<&str> {
    let info = shared.current_run()?.info.as_ref()?;
    info.origin.as_ref()?.target()
}

/// Why no step is recorded, and what helps.
fn why_nothing(open: &OpenRun, is_off: bool) -> (&'static str, String) {
    let is_sft = open
        .state
        .started
        .as_ref()
        .is_some_and(|started| matches!(started.mode.as_str(), "sft" | "reward"));
    if is_sft {
        return (
            "A supervised run has no rollouts",
            "its dialogues are those of data.train_files".to_owned(),
        );
    }
    if is_off {
        return (
            "This run does not record its rollouts",
            "trainer.record_rollouts is false; set it to true on page Config and launch again"
                .to_owned(),
        );
    }
    if open.state.ended.is_some() {
        return (
            "This run has no recorded rollouts",
            format!(
                "it ended after {}; rollouts are written at the end of each step",
                turns::counted(open.state.step as usize, "step")
            ),
        );
    }
    (
        "No step is recorded yet",
        "the rollouts of a step are written when it ends".to_owned(),
    )
}

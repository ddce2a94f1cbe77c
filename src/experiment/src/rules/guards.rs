//! Guards and what they need: evaluations, a probe, checkpoints to go back to.

use super::Rules;
use crate::guards::{Action, Guard, Target, Watch};

const GUARDS: &str = "trainer.guards";
const PROBE: &str = "trainer.guard_probe_files";
const SAVE: &str = "trainer.save_freq";

/// Steps between checkpoints where guards need some and nothing else says how often.
const SAVE_EVERY: i64 = 10;

impl Rules<'_> {
    pub(super) fn guards(&mut self) {
        let guards = self.experiment.trainer.guards.clone();
        let watches = |guard: &Guard, prefix: &str| match &guard.watch {
            Watch::Metric { metrics, .. } => {
                metrics.iter().all(|metric| metric.starts_with(prefix))
            }
            Watch::Alarm(_) => false,
        };
        let names = |prefix: &str| -> Vec<String> {
            let watching = guards.iter().filter(|guard| watches(guard, prefix));
            watching.map(|guard| guard.name.clone()).collect()
        };
        let probing = names("probe/");
        if self.experiment.trainer.guard_probe_files.is_empty() {
            if !probing.is_empty() {
                let message = format!(
                    "guard {} never acts: there is no probe; name dialogues in {PROBE}",
                    probing.join(", ")
                );
                // The preset brings one along: nobody asked for it by name.
                let preset = crate::guards::online();
                let asked = |guard: &&Guard| watches(guard, "probe/") && !preset.contains(guard);
                if guards.iter().any(|guard| asked(&guard)) {
                    self.warn(&[GUARDS], message);
                } else {
                    self.note(&[GUARDS], message);
                }
            }
        } else if probing.is_empty() {
            self.note(
                &[PROBE],
                format!("no guard watches probe/perplexity; {PROBE} only records it"),
            );
        }
        let trainer = &self.experiment.trainer;
        let evaluates = trainer.test_freq > 0 && !self.experiment.data.val_files.is_empty();
        let evaluated = names("val-");
        if !evaluates && !evaluated.is_empty() {
            self.warn(
                &[GUARDS],
                format!(
                    "guard {} never acts: it watches evaluations, and there are none after the start; set trainer.test_freq",
                    evaluated.join(", ")
                ),
            );
        }
        if !evaluates && guards.iter().any(goes_to_best) {
            self.warn(
                &[GUARDS],
                "roll_back best goes to the newest checkpoint from before the trouble: without trainer.test_freq none is known to be best".to_owned(),
            );
        }
        let trainer = &mut self.experiment.trainer;
        if trainer.save_freq <= 0 && guards.iter().any(Guard::may_roll_back) {
            let every = if evaluates {
                trainer.test_freq
            } else {
                SAVE_EVERY
            };
            trainer.save_freq = every;
            self.note(
                &[SAVE, GUARDS],
                format!("{SAVE} is {every}: guards may roll back, and need checkpoints for it"),
            );
        }
    }
}

fn goes_to_best(guard: &Guard) -> bool {
    guard
        .ladder
        .iter()
        .any(|rung| rung.0.contains(&Action::RollBack { to: Target::Best }))
}

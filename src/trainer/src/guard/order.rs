//! What people do with guards while the run runs, and the run's mode: at a step boundary, answered with what stood before and
//! what stands now.

use experiment::settings::{AUTO_STALENESS, Mode};
pub use runlog::control::ALL_GUARDS as ALL;
use runlog::control::{GuardOrder, MAX_STALENESS, RunMode};

use super::back::mode_name;
use crate::control::Done;
use crate::training::{STALENESS, Training};

impl Training<'_> {
    /// Carries an order out, on one guard or (where it means something) on all.
    pub(crate) fn guard_order(
        &mut self,
        name: &str,
        order: GuardOrder,
        who: &str,
    ) -> Result<Done, String> {
        let names: Vec<String> = self
            .guards
            .guards
            .names()
            .into_iter()
            .map(str::to_owned)
            .collect();
        if names.is_empty() {
            return Err("this run has no guards: its trainer.guards is empty".to_owned());
        }
        if names.iter().any(|known| known == name) {
            return self.order_one(name, order, who);
        }
        if name != ALL {
            return Err(format!(
                "no guard is called `{name}`; there are {}",
                names.join(", ")
            ));
        }
        if order == GuardOrder::Trip {
            return Err(format!(
                "guards are tripped one by one; there are {}",
                names.join(", ")
            ));
        }
        let mut all = Done::default();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for name in names {
            let done = self.order_one(&name, order, who)?;
            before.push(format!("{name} {}", done.before));
            after.push(format!("{name} {}", done.after));
            all.until_step = done.until_step;
        }
        all.before = before.join(", ");
        all.after = after.join(", ");
        Ok(all)
    }

    fn order_one(&mut self, name: &str, order: GuardOrder, who: &str) -> Result<Done, String> {
        let step = self.trained;
        let mut done = Done {
            before: self.guard_words(name),
            ..Done::default()
        };
        let watcher = self
            .guards
            .guards
            .find(name)
            .ok_or_else(|| format!("no guard is called `{name}`"))?;
        match order {
            GuardOrder::Mute { steps } => {
                done.until_step = steps.map(|steps| step.saturating_add(steps));
                watcher.mute(done.until_step);
            }
            GuardOrder::Unmute => watcher.unmute(),
            GuardOrder::Clear => {
                watcher.clear();
                let is_its_own = |under_way: &super::act::Synchronous| under_way.guard == name;
                if self.guards.synchronous.as_ref().is_some_and(is_its_own)
                    && let Some(bound) = self.end_synchronous()
                {
                    done.note = Some(format!(
                        "its synchronous steps end: staleness {bound} again"
                    ));
                }
            }
            GuardOrder::Trip => {
                let trip = watcher.trip_by_hand(step, who);
                let actions = self.carry_out(trip);
                let words = |of: fn(&runlog::event::GuardDone) -> &String| -> String {
                    let words: Vec<&str> = actions.iter().map(|done| of(done).as_str()).collect();
                    words.join(", ")
                };
                if actions.iter().all(|action| !action.is_done) {
                    return Err(words(|done| &done.after));
                }
                done.before = words(|done| &done.before);
                done.after = words(|done| &done.after);
                return Ok(done);
            }
        }
        done.after = self.guard_words(name);
        if done.before == done.after && done.note.is_none() {
            done.note = Some(format!("{name} was {} already", done.after));
        }
        Ok(done)
    }

    fn guard_words(&self, name: &str) -> String {
        let states = self.guard_states();
        let found = states.iter().find(|state| state.name == name);
        found.map_or_else(String::new, |state| {
            let relapses = match state.relapses {
                0 => String::new(),
                _ => format!(", next is rung {}: {}", state.rung(), state.next),
            };
            format!("{}{relapses}", state.words())
        })
    }

    /// Every guard as it stands now.
    pub(crate) fn guard_states(&self) -> Vec<runlog::control::GuardState> {
        let under_way = self.guards.synchronous.as_ref();
        self.guards.guards.states(
            self.trained,
            under_way.map(|under_way| (under_way.guard.as_str(), u64::from(under_way.rounds))),
        )
    }

    /// A bound of staleness that somebody sets wins over a guard's synchronous rounds, which end; says so.
    pub(crate) fn end_synchronous_for(&mut self, what: &str) -> Option<String> {
        let under_way = self.guards.synchronous.take()?;
        Some(format!(
            "{what} ends the synchronous steps of guard {}: {} of them were left",
            under_way.guard, under_way.rounds
        ))
    }

    /// Another `trainer.mode`, from the next batch that is begun.
    pub(crate) fn change_mode(
        &mut self,
        mode: RunMode,
        staleness: Option<u64>,
    ) -> Result<Done, String> {
        let rollout = &self.experiment.actor_rollout_ref.rollout;
        let takes_newest = matches!(mode, RunMode::Async | RunMode::Auto);
        if takes_newest && rollout.full_determinism {
            return Err(format!(
                "rollout.full_determinism is true, and in mode {} the weights of a batch depend on timing; sync and one_step_off are possible",
                mode.name()
            ));
        }
        let settings = &self.experiment.trainer;
        let written = settings
            .max_staleness
            .map(u64::from)
            .filter(|_| matches!(settings.mode, Mode::Async | Mode::Auto));
        let bound = match (mode, staleness) {
            (RunMode::Sync, _) => 0,
            (RunMode::OneStepOff | RunMode::Async, Some(staleness)) => staleness.min(MAX_STALENESS),
            (RunMode::OneStepOff, None) => 1,
            (RunMode::Async, None) => written.unwrap_or(1),
            // The advisor begins where the run is.
            (RunMode::Auto, _) => {
                let deepest = written.unwrap_or(AUTO_STALENESS.into());
                self.rollouts.draw().staleness.min(deepest)
            }
        };
        let words = |mode: &str, bound: u64| format!("{mode}, staleness {bound}");
        let before = words(mode_name(self.mode), self.rollouts.draw().staleness);
        let change = self.rollouts.set_staleness(bound)?;
        self.changed.insert(STALENESS.to_owned(), bound as f64);
        self.rollouts.set_takes_newest(takes_newest);
        self.mode = match mode {
            RunMode::Sync => Mode::Sync,
            RunMode::OneStepOff => Mode::OneStepOff,
            RunMode::Async => Mode::Async,
            RunMode::Auto => Mode::Auto,
        };
        Ok(Done {
            before,
            after: words(mode.name(), bound),
            from_step: Some(change.from_step),
            note: self.end_synchronous_for("a mode that is set"),
            ..Done::default()
        })
    }
}

//! What is given anew with a resume wins over what was set while the run ran, which wins over what its experiment said.

use experiment::Experiment;
use experiment::settings::Mode;
use runlog::control::{KNOBS, Knob};
use runlog::event::EventKind;
use runlog::number::Number;

use crate::guard::mode_name;
use crate::learner::Learner;
use crate::save::RunCounters;
use crate::training::{STALENESS, TEMPERATURE, said};

/// Who changed it, for the log.
const WHO: &str = "lathe run --resume";
const MODE: &str = "trainer.mode";

/// Takes the keys of `given` out of what `counters` brought along, in the learner too. The events tell each value that is another
/// one now.
pub(super) fn wins(
    experiment: &Experiment,
    given: &[String],
    learner: &mut Learner,
    counters: &mut RunCounters,
) -> Vec<EventKind> {
    let step = counters.step;
    // Also as part of a block: `actor.optim={lr: 1e-5}`.
    let is_given = |key: &str| {
        let starts = |given: &String| key.strip_prefix(given.as_str());
        let mut rests = given.iter().filter_map(starts);
        rests.any(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let live_mode = counters.mode.unwrap_or(experiment.trainer.mode);
    let mut events = Vec::new();
    if is_given(MODE) {
        if let Some(before) = counters.mode.take() {
            events.push(mode_changed(step, before, experiment.trainer.mode));
        }
        // Its bound came with it.
        if !is_given(STALENESS) {
            counters.knobs.remove(STALENESS);
        }
    }
    if is_given(MODE) || is_given(STALENESS) {
        counters.guards.end_synchronous();
    }
    let is_steered = |block: &str| {
        let mut inside = given.iter().filter_map(|key| key.strip_prefix(block));
        inside.any(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    learner.steer_kl_anew(
        is_steered("algorithm.kl_ctrl"),
        is_steered("actor_rollout_ref.actor.kl_loss_ctrl"),
    );
    for knob in KNOBS.iter().filter(|knob| is_given(knob.key)) {
        let set = counters.knobs.remove(knob.key);
        let Some(mut said) = said(experiment, knob.key) else {
            continue;
        };
        let before = if matches!(knob.key, TEMPERATURE | STALENESS) {
            if knob.key == STALENESS && live_mode != experiment.trainer.mode && !is_given(MODE) {
                // The bound of a mode that was set live, which stays.
                let most = match live_mode {
                    Mode::Sync => 0.0,
                    Mode::OneStepOff => 1.0,
                    Mode::Async | Mode::Auto => f64::INFINITY,
                };
                let bound = experiment.trainer.max_staleness.map_or(said, f64::from);
                said = bound.min(most);
                counters.knobs.insert(STALENESS.to_owned(), said);
            }
            set
        } else {
            // A controller brings its coefficient along though nobody set it.
            let held = learner.knob(knob.key).ok();
            held.map(|held| std::mem::replace(held, said))
        };
        if let Some(before) = before.filter(|before| *before != said) {
            events.push(knob_changed(step, knob, before, said));
        }
    }
    events
}

fn knob_changed(step: u64, knob: &Knob, from: f64, to: f64) -> EventKind {
    EventKind::ControlApplied {
        request: 0,
        who: WHO.to_owned(),
        command: "set".to_owned(),
        step,
        target: None,
        before: None,
        after: None,
        until_step: None,
        knob: Some(knob.key.to_owned()),
        from: Some(Number(from)),
        to: Some(Number(to)),
        from_step: Some(step + 1),
    }
}

fn mode_changed(step: u64, before: Mode, after: Mode) -> EventKind {
    EventKind::ControlApplied {
        request: 0,
        who: WHO.to_owned(),
        command: "mode".to_owned(),
        step,
        target: Some(mode_name(after).to_owned()),
        before: Some(mode_name(before).to_owned()),
        after: Some(mode_name(after).to_owned()),
        until_step: None,
        knob: None,
        from: None,
        to: None,
        from_step: Some(step + 1),
    }
}

//! What the learner waits for, told while it does; and the alarm of whatever waits too long.

use std::sync::Arc;

use dialogue::session::{Owner, Wait, Waiting, Waits};
use runlog::control::WaitState;
use runlog::event::EventKind;

use super::{Control, Doing};

/// Who waits, in a status.
pub(crate) const LEARNER: &str = "learner";

/// The alarm of a part of the run that waits too long.
const OVERDUE_ALARM: &str = "overdue wait";

impl Control {
    /// Until it is dropped, a status says that the learner waits for this. Commands and a stop end such a wait at once.
    fn learner_waits(&self, what: String) -> Wait {
        self.waits.enter_part(LEARNER, what)
    }

    /// A paused run: it is no trouble, however long that takes.
    pub(super) fn waits_for_person(&self) -> Wait {
        let owner = Owner::Part(LEARNER);
        (self.waits).enter(owner, "a command to resume".to_owned(), None)
    }

    /// Gives an alarm for each part of the run that waits longer than `trainer.wait_alarm_s`, and again after as long. A person
    /// who pauses a run knows why it waits.
    pub fn alarms_of_waits(&self) -> impl Future<Output = ()> + Send + 'static {
        let (waits, recorder) = (self.waits.clone(), self.recorder.clone());
        let doing = Arc::clone(&self.doing);
        async move {
            loop {
                let overdue = waits.overdue().await;
                let now = *doing.lock().expect("no holder panics");
                if matches!(now, Doing::Paused(_)) {
                    continue;
                }
                for waiting in overdue {
                    recorder.record(EventKind::Alarm {
                        name: OVERDUE_ALARM.to_owned(),
                        step: now.step(),
                        message: overdue_words(waiting, &waits),
                    });
                }
            }
        }
    }

    /// The learner waits for the rollouts of `step`, until what this gives is dropped.
    pub fn waits_for(&self, step: u64) -> Wait {
        self.now(Doing::Waiting(step));
        self.learner_waits(format!("the rollouts of step {step}"))
    }

    /// The learner waits for a probe of the bandit, which chooses for `step`, until what this gives is dropped.
    pub fn waits_for_probe(&self, step: u64) -> Wait {
        self.now(Doing::Waiting(step));
        self.learner_waits(format!("the bandit's probe before step {step}"))
    }

    /// The learner waits for a buffer that takes its weights to the rollout side, until what this gives is dropped.
    pub fn waits_to_publish(&self, version: u64) -> Wait {
        self.learner_waits(format!("a buffer for weights {version}"))
    }
}

pub(super) fn wait_state(waiting: Waiting) -> WaitState {
    let state = WaitState {
        name: waiting.name,
        sessions: waiting.sessions,
        age_s: waiting.age.as_secs_f64(),
        left_s: waiting.left.map(|left| left.as_secs_f64()),
        alarm_s: waiting.alarm.map(|alarm| alarm.as_secs_f64()),
        ..WaitState::default()
    };
    match waiting.owner {
        Owner::Session { label, row_index } => WaitState {
            dialogue: label.uid,
            sample: label.sample,
            row: row_index,
            ..state
        },
        Owner::Part(part) => WaitState {
            owner: part.to_owned(),
            ..state
        },
    }
}

/// `the rollouts of step 12: learner for 60 min; behind it tool search: 12 sessions, …`: of the sessions those that wait longest.
fn overdue_words(waiting: Waiting, waits: &Waits) -> String {
    let behind = waits
        .now()
        .into_iter()
        .find(|waiting| matches!(waiting.owner, Owner::Session { .. }));
    let told = wait_state(Waiting {
        alarm: None,
        ..waiting
    })
    .words();
    match behind {
        Some(behind) => format!("{told}; behind it {}", wait_state(behind).words()),
        None => format!("{told}; no session waits for anything"),
    }
}

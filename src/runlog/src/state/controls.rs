//! What people changed while the run ran: marks for curves and lines for logs, and whether it is paused.

use serde::{Deserialize, Serialize};

use super::RunState;
use crate::event::EventKind;
use crate::number::Number;

/// One command, with what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ControlRecord {
    pub elapsed_ms: f64,
    /// The client's own number of the request.
    pub request: u64,
    pub who: String,
    /// `pause`, `resume`, `step`, `checkpoint`, `stop`, `set`, `mode`, `trip`, `clear`, `mute`, `unmute`, `roll_back`,
    /// `arm_force`, `arm_release`, `arm_freeze`, `arm_unfreeze`
    pub command: String,
    /// Steps trained at that moment.
    pub step: u64,
    /// The guard, the arm, the checkpoint or the mode that it is about.
    pub target: Option<String>,
    /// `set`: the experiment's key.
    pub knob: Option<String>,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    Applied {
        /// `set`: the value before, and now.
        from: Option<Number>,
        to: Option<Number>,
        /// `set`, `mode`: the first step that is trained with it.
        from_step: Option<u64>,
        /// `mode`, `roll_back` and what is done with a guard or an arm: what stood before, and what stands now.
        before: Option<String>,
        after: Option<String>,
        /// `mute` for a number of steps: the last of them.
        until_step: Option<u64>,
    },
    Refused {
        /// `set`: the value that was asked for.
        to: Option<Number>,
        reason: String,
    },
}

impl ControlRecord {
    /// Whether it was applied and what is trained is not the same as without it.
    pub fn changes_training(&self) -> bool {
        let is_about_time = matches!(
            self.command.as_str(),
            "pause" | "resume" | "step" | "checkpoint" | "stop"
        );
        self.mark().is_some() && !is_about_time
    }

    /// Where a curve shows it: the first step that it touches. None: nothing changed.
    pub fn mark(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Applied { from_step, .. } => Some(from_step.unwrap_or(self.step)),
            Outcome::Refused { .. } => None,
        }
    }
}

impl RunState {
    /// Takes a `ControlApplied` or `ControlRefused`; anything else changes nothing.
    pub(super) fn apply_control(&mut self, elapsed_ms: f64, kind: &EventKind) {
        let record = match kind {
            EventKind::ControlApplied {
                request,
                who,
                command,
                step,
                knob,
                from,
                to,
                from_step,
                target,
                before,
                after,
                until_step,
            } => ControlRecord {
                elapsed_ms,
                request: *request,
                who: who.clone(),
                command: command.clone(),
                step: *step,
                target: target.clone(),
                knob: knob.clone(),
                outcome: Outcome::Applied {
                    from: *from,
                    to: *to,
                    from_step: *from_step,
                    before: before.clone(),
                    after: after.clone(),
                    until_step: *until_step,
                },
            },
            EventKind::ControlRefused {
                request,
                who,
                command,
                step,
                knob,
                to,
                reason,
                target,
            } => ControlRecord {
                elapsed_ms,
                request: *request,
                who: who.clone(),
                command: command.clone(),
                step: *step,
                target: target.clone(),
                knob: knob.clone(),
                outcome: Outcome::Refused {
                    to: *to,
                    reason: reason.clone(),
                },
            },
            _ => return,
        };
        if record.mark().is_some() {
            match record.command.as_str() {
                "pause" | "step" => self.is_paused = true,
                "resume" => self.is_paused = false,
                "mode" => {
                    if let (Some(started), Some(mode)) = (&mut self.started, &record.target) {
                        started.mode.clone_from(mode);
                    }
                }
                "arm_force" | "arm_release" | "arm_freeze" | "arm_unfreeze" => {
                    self.control_arm(&record.command, record.target.as_deref());
                }
                _ => self.guards.control(&record),
            }
        }
        self.controls.push(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, RunStatus};

    fn applied(command: &str, from_step: Option<u64>) -> EventKind {
        EventKind::ControlApplied {
            request: 1,
            who: "ana".to_owned(),
            command: command.to_owned(),
            step: 12,
            target: None,
            before: None,
            after: None,
            until_step: None,
            knob: None,
            from: None,
            to: None,
            from_step,
        }
    }

    fn refused(command: &str) -> EventKind {
        EventKind::ControlRefused {
            request: 1,
            who: "ana".to_owned(),
            command: command.to_owned(),
            step: 12,
            target: None,
            knob: None,
            to: None,
            reason: "no".to_owned(),
        }
    }

    fn ended() -> EventKind {
        EventKind::RunEnded {
            status: RunStatus::Stopped,
            exit_code: 130,
            reason: String::new(),
            steps: 12,
        }
    }

    #[test]
    fn a_run_is_paused_from_pause_or_step_to_resume_or_its_end() {
        let mut state = RunState::default();
        for (seq, (kind, is_paused)) in [
            (applied("pause", None), true),
            (refused("resume"), true),
            (applied("set", Some(14)), true),
            (applied("step", None), true),
            (applied("resume", None), false),
            (refused("pause"), false),
            (applied("step", None), true),
            (ended(), false),
        ]
        .into_iter()
        .enumerate()
        {
            let what = format!("{kind:?}");
            state.apply(&Event {
                seq: seq as u64,
                elapsed_ms: seq as f64,
                kind,
            });
            assert_eq!(state.is_paused, is_paused, "after {what}");
        }
        let marks: Vec<_> = state.controls.iter().map(ControlRecord::mark).collect();
        assert_eq!(
            marks,
            [Some(12), None, Some(14), Some(12), Some(12), None, Some(12)]
        );
    }
}

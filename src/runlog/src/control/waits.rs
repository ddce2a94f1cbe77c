//! What a running run waits for, as its trainer says it: its sessions, and parts of it such as the learner.

use serde::{Deserialize, Serialize};

/// Those that wait for one thing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitState {
    /// `generator`, `tool search`, `score`; of a part of the run `the rollouts of step 12`.
    pub name: String,
    /// The part of the run that waits: `learner`, `rollouts`, `reward`; empty: sessions do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub owner: String,
    pub sessions: u64,
    /// The dialogue that has waited longest, `train-12-7`, with its sample and the row of the data it is of.
    pub dialogue: String,
    pub sample: u32,
    pub row: u64,
    pub age_s: f64,
    /// Until that one is given up; None: nothing gives it up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_s: Option<f64>,
    /// Until an alarm says that it waits, where nothing gives it up; None: no alarm either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alarm_s: Option<f64>,
}

impl WaitState {
    /// `tool search: 12 sessions, the oldest for 12.3 s (train-12-7/0, row 7), given up in 47.7 s`
    ///
    /// Of a part of the run: `the rollouts of step 12: learner for 12.3 s, an alarm in 60 min`.
    pub fn words(&self) -> String {
        let sessions = match self.sessions {
            1 => "1 session".to_owned(),
            count => format!("{count} sessions"),
        };
        let left = match (self.left_s, self.alarm_s) {
            (Some(left), _) => format!("given up in {}", span(left)),
            (None, Some(alarm)) => format!("an alarm in {}", span(alarm)),
            (None, None) => "never given up".to_owned(),
        };
        let age = span(self.age_s);
        if !self.owner.is_empty() {
            return format!("{}: {} for {age}, {left}", self.name, self.owner);
        }
        format!(
            "{}: {sessions}, the oldest for {age} ({}/{}, row {}), {left}",
            self.name, self.dialogue, self.sample, self.row
        )
    }
}

/// `12.3 s`, `35 min`, `3.5 h`
fn span(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.1} s"),
        ..7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_said_with_who_waits_how_long_and_until_when() {
        let wait = WaitState {
            name: "tool search".to_owned(),
            owner: String::new(),
            sessions: 12,
            dialogue: "train-12-7".to_owned(),
            sample: 3,
            row: 7,
            age_s: 12.31,
            left_s: Some(47.69),
            alarm_s: None,
        };
        assert_eq!(
            wait.words(),
            "tool search: 12 sessions, the oldest for 12.3 s (train-12-7/3, row 7), given up in 47.7 s"
        );
        let endless = WaitState {
            sessions: 1,
            left_s: None,
            ..wait
        };
        assert!(endless.words().contains(": 1 session, "));
        assert!(endless.words().ends_with("never given up"));
        let part = WaitState {
            name: "the rollouts of step 12".to_owned(),
            owner: "learner".to_owned(),
            age_s: 3.21,
            alarm_s: Some(3596.79),
            ..WaitState::default()
        };
        assert_eq!(
            part.words(),
            "the rollouts of step 12: learner for 3.2 s, an alarm in 60 min"
        );
        let long = WaitState {
            age_s: 9000.0,
            ..part
        };
        assert!(long.words().contains("learner for 2.5 h, "));
    }
}

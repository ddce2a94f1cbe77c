//! A replay's controls: start and leave, play and pause, speed, and jumps to a moment, a step or a mark.

use runlog::RunState;
use runlog::state::{Glance, Liveness};

use super::App;
use crate::tui::action::{Effect, ReplayCommand};
use crate::tui::shared::{Notice, Replay, RunKey};

/// How many times as fast as it happened a replay can go.
const SPEEDS: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];

impl App {
    /// Starts the replay of the current run at a moment; the pages show what was known then.
    pub fn start_replay(&mut self, key: RunKey, at_ms: f64, speed: f64) -> Vec<Effect> {
        let mut effects = self.make_current(key.clone());
        effects.retain(|effect| !matches!(effect, Effect::OpenRun(opened) if *opened == key));
        if let Some(run) = self.shared.open.get_mut(&key) {
            run.state = RunState::default();
            run.is_caught_up = false;
        }
        self.shared.step = None;
        self.shared.replay = Some(Replay {
            key: key.clone(),
            at_ms,
            length_ms: 0.0,
            speed,
            is_playing: true,
            marks_ms: Vec::new(),
            steps_ms: Vec::new(),
        });
        self.is_data_new = true;
        effects.push(Effect::OpenReplay { key, at_ms });
        effects.push(Effect::Replay(ReplayCommand::Play { speed }));
        effects
    }

    pub(super) fn leave_replay(&mut self) -> Vec<Effect> {
        let Some(replay) = self.shared.replay.take() else {
            return Vec::new();
        };
        if let Some(run) = self.shared.open.get_mut(&replay.key) {
            run.is_caught_up = false;
        }
        self.is_data_new = true;
        // Following starts anew and sends the whole state; the list tells the run's end again.
        vec![
            Effect::CloseRun(replay.key.clone()),
            Effect::OpenRun(replay.key),
            Effect::RefreshRuns,
        ]
    }

    /// In the list of runs the replayed one stands as it stood at the moment that is shown.
    pub(super) fn replay_in_the_list(&mut self) {
        let shared = &mut self.shared;
        let Some(replay) = &shared.replay else {
            return;
        };
        let (Some(run), Some(entry)) = (
            shared.open.get(&replay.key),
            shared
                .runs
                .entries
                .iter_mut()
                .find(|entry| entry.key == replay.key),
        ) else {
            return;
        };
        let state = &run.state;
        let last = state.series.iter();
        let glance = Glance {
            mode: state
                .started
                .as_ref()
                .map_or_else(String::new, |started| started.mode.clone()),
            total_steps: state.total_steps().unwrap_or(0),
            step: state.step,
            elapsed_ms: replay.at_ms,
            end: None,
            // What may be done with its process is no matter of the replay.
            liveness: entry
                .glance
                .as_ref()
                .map_or(Liveness::Running, |glance| glance.liveness.clone()),
            is_paused: state.is_paused,
            last: last
                .filter_map(|(name, series)| Some((name.to_owned(), series.last()?.value)))
                .collect(),
        };
        entry.is_replayed = true;
        entry.glance = Some(glance);
        shared.runs.version += 1;
    }

    pub(super) fn toggle_replay(&mut self) -> Vec<Effect> {
        if self.shared.replay.is_some() {
            self.shared.say(Notice::good("back to the end of the run"));
            return self.leave_replay();
        }
        let Some(key) = self.shared.current.clone() else {
            self.shared
                .say(Notice::caution("choose a run first: page 1, enter"));
            return Vec::new();
        };
        self.start_replay(key, 0.0, 10.0)
    }

    fn with_replay(&mut self, change: impl FnOnce(&mut Replay) -> Vec<Effect>) -> Vec<Effect> {
        if let Some(replay) = &mut self.shared.replay {
            change(replay)
        } else {
            self.shared
                .say(Notice::caution("this is no replay; P starts one"));
            Vec::new()
        }
    }

    pub(super) fn seek(&mut self, at_ms: f64) -> Vec<Effect> {
        self.with_replay(|replay| {
            let at_ms = at_ms.clamp(0.0, replay.length_ms.max(0.0));
            replay.at_ms = at_ms;
            vec![Effect::Replay(ReplayCommand::Seek { at_ms })]
        })
    }

    pub(super) fn play_pause(&mut self) -> Vec<Effect> {
        self.with_replay(|replay| {
            replay.is_playing = !replay.is_playing;
            if !replay.is_playing {
                return vec![Effect::Replay(ReplayCommand::Pause)];
            }
            let mut effects = Vec::new();
            if replay.at_ms >= replay.length_ms {
                replay.at_ms = 0.0;
                effects.push(Effect::Replay(ReplayCommand::Seek { at_ms: 0.0 }));
            }
            effects.push(Effect::Replay(ReplayCommand::Play {
                speed: replay.speed,
            }));
            effects
        })
    }

    pub(super) fn replay_speed(&mut self, is_faster: bool) -> Vec<Effect> {
        self.with_replay(|replay| {
            let next = if is_faster {
                SPEEDS.iter().find(|speed| **speed > replay.speed)
            } else {
                SPEEDS.iter().rev().find(|speed| **speed < replay.speed)
            };
            if let Some(speed) = next {
                replay.speed = *speed;
            }
            if replay.is_playing {
                vec![Effect::Replay(ReplayCommand::Play {
                    speed: replay.speed,
                })]
            } else {
                Vec::new()
            }
        })
    }

    /// To the end of the next step, or of the one before.
    pub(super) fn replay_step(&mut self, by: i8) -> Vec<Effect> {
        let target = self.shared.replay.as_ref().and_then(|replay| {
            let ends = replay.steps_ms.iter().map(|(_, at_ms)| *at_ms);
            next_after(ends, replay.at_ms, by)
        });
        self.jump(target, "no step there")
    }

    pub(super) fn replay_mark(&mut self, by: i8) -> Vec<Effect> {
        let target = self
            .shared
            .replay
            .as_ref()
            .and_then(|replay| next_after(replay.marks_ms.iter().copied(), replay.at_ms, by));
        let mut effects = self.jump(target, "no mark there");
        // At high speed it would be past the mark before it is seen.
        if let Some(replay) = self
            .shared
            .replay
            .as_mut()
            .filter(|replay| replay.is_playing)
            && target.is_some()
        {
            replay.is_playing = false;
            effects.push(Effect::Replay(ReplayCommand::Pause));
        }
        effects
    }

    fn jump(&mut self, target: Option<f64>, otherwise: &str) -> Vec<Effect> {
        if self.shared.replay.is_none() {
            return self.with_replay(|_| Vec::new());
        }
        if let Some(at_ms) = target {
            self.seek(at_ms)
        } else {
            self.shared.say(Notice::caution(otherwise.to_owned()));
            Vec::new()
        }
    }
}

/// The nearest of `times` after `now` (or before it when `by` is negative); a tenth of a millisecond is no distance.
fn next_after(times: impl Iterator<Item = f64>, now: f64, by: i8) -> Option<f64> {
    if by > 0 {
        times
            .filter(|time| *time > now + 0.1)
            .min_by(f64::total_cmp)
    } else {
        times
            .filter(|time| *time < now - 0.1)
            .max_by(f64::total_cmp)
    }
}

//! What happens in the sessions of one batch, for the run's log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dialogue::rollout::Rollout;
use dialogue::session::{Again, SessionLabel, SessionObserver};
use runlog::event::{EventKind, Lane, Level};
use runlog::number::Number;
use runlog::recorder::Recorder;
use tokio::sync::Notify;

use crate::save::finish_name;

/// Tool calls shorter than this are counted in their rollout and get no span: a calculator would fill the log.
const SHORTEST_TOOL_SPAN_MS: f64 = 5.0;

/// Of a dialogue begun again for the clock's sake in a run that promises the same bits.
const NOT_THE_SAME_BITS: &str = "not the same bits";

/// Writes what happens in the sessions of one step's batches to the run's log, and counts it.
#[derive(Debug)]
pub(super) struct Observer {
    recorder: Recorder,
    step: u64,
    /// `rollout.full_determinism`
    is_exact: bool,
    /// Told of every dialogue that ends or leaves the engine for a while: another may begin.
    room: Arc<Notify>,
    /// Dialogues that wait for a tool or their score.
    away: AtomicU64,
    begun_again: AtomicU64,
    ended: AtomicU64,
    /// Drawn by the model, in the dialogues that ended.
    tokens: AtomicU64,
}

impl Observer {
    pub fn new(recorder: Recorder, step: u64, is_exact: bool, room: Arc<Notify>) -> Self {
        Self {
            recorder,
            step,
            is_exact,
            room,
            away: AtomicU64::new(0),
            begun_again: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
        }
    }

    /// Sessions that came to nothing and were begun again.
    pub fn begun_again(&self) -> u64 {
        self.begun_again.load(Ordering::Relaxed)
    }

    /// Dialogues that ended.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// Dialogues that have not ended and need no engine now.
    pub fn away(&self) -> u64 {
        self.away.load(Ordering::Acquire)
    }

    pub fn tokens(&self) -> u64 {
        self.tokens.load(Ordering::Relaxed)
    }

    fn span(&self, lane: Lane, name: String, start: Instant, end: Instant) {
        let now_ms = self.recorder.elapsed_ms();
        let now = Instant::now();
        let at =
            |instant: Instant| now_ms - now.saturating_duration_since(instant).as_secs_f64() * 1e3;
        self.recorder.record(EventKind::Span {
            lane,
            name,
            step: Some(self.step),
            start_ms: at(start),
            end_ms: at(end),
        });
    }
}

impl SessionObserver for Observer {
    fn on_tool(&self, label: &SessionLabel, tool: &str, start: Instant, end: Instant) {
        if (end - start).as_secs_f64() * 1e3 >= SHORTEST_TOOL_SPAN_MS {
            self.span(
                Lane::Tool,
                format!("{tool} {}/{}", label.uid, label.sample),
                start,
                end,
            );
        }
    }

    fn on_away(&self, _: &SessionLabel) {
        self.away.fetch_add(1, Ordering::Release);
        self.room.notify_one();
    }

    fn on_back(&self, _: &SessionLabel) {
        self.away.fetch_sub(1, Ordering::Release);
    }

    fn on_again(&self, label: &SessionLabel, why: &Again) {
        self.begun_again.fetch_add(1, Ordering::Relaxed);
        let message = format!(
            "step {}: dialogue {}/{} is begun again: {why}",
            self.step, label.uid, label.sample
        );
        if self.is_exact && *why == Again::Deadline {
            // A clock decided; what the engine does in lockstep, its faults too, repeats itself.
            self.recorder.record(EventKind::Alarm {
                name: NOT_THE_SAME_BITS.to_owned(),
                step: Some(self.step),
                message: format!(
                    "{message}; rollout.full_determinism is true, and from here the run need not repeat itself"
                ),
            });
            return;
        }
        self.recorder.record(EventKind::LogLine {
            level: Level::Warning,
            target: "rollouts".to_owned(),
            message,
        });
    }

    fn on_end(&self, rollout: &Rollout) {
        let (oldest, newest) = rollout.version_range().unwrap_or_default();
        self.recorder.record(EventKind::RolloutEnded {
            step: self.step,
            uid: rollout.uid.clone(),
            sample: rollout.sample,
            policy_version_min: oldest,
            policy_version_max: newest,
            turns: rollout.assistant_turns,
            tool_calls: rollout.tools.len() as u32,
            response_tokens: rollout.response_ids.len() as u32,
            score: rollout.score.map(Number),
            finish: finish_name(rollout.finish),
        });
        let tokens = rollout.model_tokens() as u64;
        self.tokens.fetch_add(tokens, Ordering::Relaxed);
        self.ended.fetch_add(1, Ordering::Release);
        self.room.notify_one();
    }
}

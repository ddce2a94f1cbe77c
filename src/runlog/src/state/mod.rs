//! What a run looks like after the events so far: THE fold. Screens, headless, replay and tests all show this.
//!
//! [`RunState::apply`] is pure: no clock, no file. Folding a log in one go or a line at a time gives the same state.
//! Memory is bounded by steps and seconds, not by rollouts or spans: series and syncs are kept whole, spans as totals
//! and merged intervals a lane plus the latest [`RECENT_SPANS`].

mod alarm_group;
mod bandit;
mod controls;
mod glance;
mod guards;
mod intervals;
mod liveness;
pub mod steps;
mod summary;
mod trouble;
mod turns;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

pub use alarm_group::AlarmGroup;
pub use bandit::{
    BanditChoice, BanditPoint, BanditState, BanditSummary, RECENT_BANDIT_CHOICES,
    RECENT_BANDIT_UPDATES,
};
pub use controls::{ControlRecord, Outcome};
pub use glance::{Glance, Sight, glance};
pub use guards::{GuardRecord, Guards, Muted, TripRecord};
pub use intervals::Intervals;
pub use liveness::{Liveness, SILENCE, liveness, word};
pub use steps::{Stall, StepTimes, Steps};
pub use summary::{LaneTime, Percentiles, Summary, val_reward};
pub use trouble::{Trouble, disk_words, trouble};
pub use turns::Resume;

use serde::{Deserialize, Serialize};

use crate::event::{Event, EventKind, GpuSample, Lane, Level, Phase, RunStatus};
use crate::number::{Number, Values};
pub use crate::series::{Point, Series, SeriesSet};
use crate::series::{RowHead, Source};

/// Spans kept one by one, over all lanes; older ones live on in their lane's totals.
pub const RECENT_SPANS: usize = 8192;
/// Log lines kept; the log itself has all of them.
pub const RECENT_LOG_LINES: usize = 2000;
/// Alarms kept one by one; `alarm_count` counts all.
pub const RECENT_ALARMS: usize = 1000;

/// What `RunStarted` said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Started {
    pub experiment_name: String,
    pub mode: String,
    pub total_steps: u64,
    pub parameters: u64,
    pub pid: u32,
    pub host: String,
    pub seed: u64,
}

/// What `RunEnded` said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    pub status: RunStatus,
    pub exit_code: i32,
    pub reason: String,
    pub steps: u64,
    pub elapsed_ms: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Span {
    pub lane: Lane,
    pub name: String,
    pub step: Option<u64>,
    pub start_ms: f64,
    pub end_ms: f64,
}

/// All time spent in one lane.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LaneState {
    pub spans: u64,
    /// Sum of span lengths; parallel spans count each.
    pub total_ms: f64,
    /// When at least one span was open.
    pub busy: Intervals,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sync {
    pub elapsed_ms: f64,
    pub version: u64,
    pub bytes: u64,
    pub blocked_ms: f64,
    pub transfer_ms: f64,
    pub total_ms: f64,
    pub canary_max_diff_nats: Number,
    pub is_verified: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    pub elapsed_ms: f64,
    pub step: u64,
    pub policy_version: u64,
    pub samples: u64,
    pub values: Values,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlarmRecord {
    pub elapsed_ms: f64,
    pub name: String,
    pub step: Option<u64>,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogRecord {
    pub elapsed_ms: f64,
    pub level: Level,
    pub target: String,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub elapsed_ms: f64,
    pub step: u64,
    pub path: String,
    pub bytes: u64,
    pub save_ms: f64,
    /// How long the learner stood still for it.
    pub blocked_ms: f64,
}

/// The last host sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    pub elapsed_ms: f64,
    pub cpu_percent: f64,
    pub memory_used_bytes: u64,
    pub memory_total_bytes: u64,
    pub process_memory_bytes: u64,
    pub process_cpu_percent: f64,
    pub gpus: Vec<GpuSample>,
}

/// Rollouts so far, counted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Rollouts {
    pub ended: u64,
    pub turns: u64,
    pub tool_calls: u64,
    pub response_tokens: u64,
    /// Rollouts whose scorer failed.
    pub missing_scores: u64,
    /// Finite scores only, so that one NaN does not hide the rest.
    pub score_sum: f64,
    pub scored: u64,
    /// Finish reason to count.
    pub finishes: BTreeMap<String, u64>,
    /// Of the batch that is being gathered: its step, and how many have ended.
    pub current_step: u64,
    pub current_ended: u64,
}

/// When a phase began.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PhaseRecord {
    pub elapsed_ms: f64,
    pub phase: Phase,
}

/// Serializable without its series, for [`store`](crate::store): those lie in files of their own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunState {
    pub started: Option<Started>,
    pub ended: Option<Ended>,
    pub phase: Option<Phase>,
    /// Every phase so far, in order; a resumed run has some twice.
    pub phases: Vec<PhaseRecord>,
    /// When the run was continued in its own directory, and from where.
    pub resumes: Vec<Resume>,
    /// Steps that were trained again, over all resumes: the log has them, the series do not.
    pub superseded_steps: u64,
    /// Where tokens and rollouts stood when each step ended: (step, tokens, rollouts).
    progress: Vec<(u64, f64, u64)>,
    /// Rollouts of superseded steps: they ended, and count for no x axis.
    superseded_rollouts: u64,
    /// Last step that ended.
    pub step: u64,
    pub policy_version: u64,
    /// Of the latest event, whatever its order.
    pub elapsed_ms: f64,
    /// Metric name to every value it had: of steps, evaluations, syncs (`weight_sync/*`) and host samples.
    #[serde(skip)]
    pub series: SeriesSet,
    /// Of all batches so far: what [`XAxis::Tokens`](crate::series::XAxis) counts.
    pub total_tokens: f64,
    pub evals: Vec<Evaluation>,
    pub lanes: BTreeMap<Lane, LaneState>,
    pub recent_spans: VecDeque<Span>,
    /// When each step ended, and who waited for what.
    pub steps: Steps,
    pub syncs: Vec<Sync>,
    pub alarms: VecDeque<AlarmRecord>,
    pub alarm_count: u64,
    pub log_lines: VecDeque<LogRecord>,
    pub rollouts: Rollouts,
    pub checkpoints: Vec<Checkpoint>,
    pub host: Option<HostSample>,
    pub events: u64,
    /// Sequence numbers that never came: lines that were corrupt or lost.
    pub missing_events: u64,
    /// What people changed while it ran, in order; see [`crate::control`].
    pub controls: Vec<ControlRecord>,
    /// What watches the run, how often each has tripped and what it then did.
    pub guards: Guards,
    /// None: the run has no bandit.
    pub bandit: Option<BanditState>,
    /// Told to train no further step. A step that `step` asked for is trained all the same.
    pub is_paused: bool,
    /// Events of a newer version.
    pub unknown_events: u64,
    next_seq: u64,
}

impl RunState {
    /// Raised whenever [`RunState::apply`] does something else with some event, or a field is added, removed or moved:
    /// states that an earlier fold left on disk are then made again. A test holds it to the fields.
    pub(crate) const FOLD_VERSION: u32 = 11;

    /// The state after all of `events`.
    pub fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut state = Self::default();
        for event in events {
            state.apply(event);
        }
        state
    }

    /// Takes one more event, in the order of the log.
    pub fn apply(&mut self, event: &Event) {
        let elapsed_ms = event.elapsed_ms;
        self.events += 1;
        self.missing_events += event.seq.saturating_sub(self.next_seq);
        self.next_seq = self.next_seq.max(event.seq + 1);
        if elapsed_ms > self.elapsed_ms {
            self.elapsed_ms = elapsed_ms;
        }
        match &event.kind {
            EventKind::RunStarted {
                experiment_name,
                mode,
                total_steps,
                parameters,
                pid,
                host,
                seed,
            } => {
                if self.started.is_some() {
                    self.resumes.push(Resume::at(elapsed_ms, self.step));
                }
                self.started = Some(Started {
                    experiment_name: experiment_name.clone(),
                    mode: mode.clone(),
                    total_steps: *total_steps,
                    parameters: *parameters,
                    pid: *pid,
                    host: host.clone(),
                    seed: *seed,
                });
                // A run that goes on in its own directory is running again.
                self.ended = None;
                self.is_paused = false;
            }
            EventKind::RunResumed {
                from_step,
                lost_steps,
                ..
            } => {
                self.rewind(*from_step, *lost_steps);
                self.note_resume(elapsed_ms, *from_step, *lost_steps);
            }
            EventKind::PhaseChanged { phase } => {
                if *phase == Phase::Setup {
                    // The first word of a process that goes on with a run that had ended: loading may take minutes.
                    self.ended = None;
                }
                self.phase = Some(*phase);
                self.phases.push(PhaseRecord {
                    elapsed_ms,
                    phase: *phase,
                });
            }
            EventKind::RolloutEnded {
                step,
                turns,
                tool_calls,
                response_tokens,
                score,
                finish,
                ..
            } => self
                .rollouts
                .count(*step, *turns, *tool_calls, *response_tokens, *score, finish),
            EventKind::StepEnded {
                step,
                policy_version,
                values,
            } => {
                self.step = *step;
                self.policy_version = *policy_version;
                self.total_tokens += batch_tokens(values);
                self.progress
                    .push((*step, self.total_tokens, self.current_samples()));
                self.push_values(Source::Steps, values, *step, elapsed_ms);
            }
            EventKind::Span {
                lane,
                name,
                step,
                start_ms,
                end_ms,
            } => {
                let totals = self.lanes.entry(*lane).or_default();
                totals.spans += 1;
                let length = end_ms - start_ms;
                if length.is_finite() && length > 0.0 {
                    totals.total_ms += length;
                }
                totals.busy.insert(*start_ms, *end_ms);
                push_bounded(
                    &mut self.recent_spans,
                    RECENT_SPANS,
                    Span {
                        lane: *lane,
                        name: name.clone(),
                        step: *step,
                        start_ms: *start_ms,
                        end_ms: *end_ms,
                    },
                );
            }
            EventKind::WeightsSynced {
                version,
                bytes,
                blocked_ms,
                transfer_ms,
                total_ms,
                canary_max_diff_nats,
                verified,
                ..
            } => {
                self.syncs.push(Sync {
                    elapsed_ms,
                    version: *version,
                    bytes: *bytes,
                    blocked_ms: *blocked_ms,
                    transfer_ms: *transfer_ms,
                    total_ms: *total_ms,
                    canary_max_diff_nats: *canary_max_diff_nats,
                    is_verified: *verified,
                });
            }
            EventKind::EvalEnded {
                step,
                policy_version,
                samples,
                values,
            } => {
                self.push_values(Source::Evals, values, *step, elapsed_ms);
                self.evals.push(Evaluation {
                    elapsed_ms,
                    step: *step,
                    policy_version: *policy_version,
                    samples: *samples,
                    values: values.clone(),
                });
            }
            EventKind::CheckpointSaved {
                step,
                path,
                bytes,
                save_ms,
                blocked_ms,
            } => self.checkpoints.push(Checkpoint {
                elapsed_ms,
                step: *step,
                path: path.clone(),
                bytes: *bytes,
                save_ms: *save_ms,
                blocked_ms: *blocked_ms,
            }),
            EventKind::HostSampled {
                cpu_percent,
                memory_used_bytes,
                memory_total_bytes,
                process_memory_bytes,
                process_cpu_percent,
                gpus,
            } => {
                self.host = Some(HostSample {
                    elapsed_ms,
                    cpu_percent: *cpu_percent,
                    memory_used_bytes: *memory_used_bytes,
                    memory_total_bytes: *memory_total_bytes,
                    process_memory_bytes: *process_memory_bytes,
                    process_cpu_percent: *process_cpu_percent,
                    gpus: gpus.clone(),
                });
            }
            EventKind::Alarm {
                name,
                step,
                message,
            } => {
                self.alarm_count += 1;
                push_bounded(
                    &mut self.alarms,
                    RECENT_ALARMS,
                    AlarmRecord {
                        elapsed_ms,
                        name: name.clone(),
                        step: *step,
                        message: message.clone(),
                    },
                );
            }
            EventKind::LogLine {
                level,
                target,
                message,
            } => push_bounded(
                &mut self.log_lines,
                RECENT_LOG_LINES,
                LogRecord {
                    elapsed_ms,
                    level: *level,
                    target: target.clone(),
                    message: message.clone(),
                },
            ),
            EventKind::ControlApplied { .. } | EventKind::ControlRefused { .. } => {
                self.apply_control(elapsed_ms, &event.kind);
            }
            EventKind::RunEnded {
                status,
                exit_code,
                reason,
                steps,
            } => {
                self.is_paused = false;
                self.ended = Some(Ended {
                    status: *status,
                    exit_code: *exit_code,
                    reason: reason.clone(),
                    steps: *steps,
                    elapsed_ms,
                });
            }
            EventKind::GuardsArmed { .. } | EventKind::GuardTripped { .. } => {
                self.guards.apply(elapsed_ms, &event.kind);
            }
            EventKind::BanditChose { .. } | EventKind::BanditUpdated { .. } => {
                self.apply_bandit(elapsed_ms, &event.kind);
            }
            EventKind::Unknown => self.unknown_events += 1,
        }
        self.steps.apply(event, &self.recent_spans);
        let source = match &event.kind {
            EventKind::WeightsSynced { .. } => Source::Syncs,
            EventKind::HostSampled { .. } => Source::Host,
            _ => return,
        };
        let head = self.row_head(self.step, elapsed_ms);
        let derived = derived_values(&event.kind);
        let values = derived.iter().map(|(name, value)| (&**name, *value));
        self.series.push_row(source, head, values);
    }

    /// Back to the end of `step`: what is known of later ones leaves series, evaluations, step times and checkpoints. Spans,
    /// syncs, alarms and commands stay, since they happened.
    fn rewind(&mut self, step: u64, lost_steps: u64) {
        self.superseded_steps = self.superseded_steps.saturating_add(lost_steps);
        self.step = step;
        self.policy_version = step;
        self.series.rewind(step);
        self.evals.retain(|evaluation| evaluation.step <= step);
        self.steps.times.retain(|times| times.step <= step);
        self.checkpoints
            .retain(|checkpoint| checkpoint.step <= step);
        if let Some(bandit) = &mut self.bandit {
            bandit.rewind(step);
        }
        self.progress.retain(|(trained, _, _)| *trained <= step);
        let (_, tokens, samples) = self.progress.last().copied().unwrap_or_default();
        self.total_tokens = tokens;
        self.superseded_rollouts = self.rollouts.ended - samples;
    }

    /// Rollouts that ended and are not superseded.
    fn current_samples(&self) -> u64 {
        self.rollouts.ended - self.superseded_rollouts
    }

    fn row_head(&self, step: u64, elapsed_ms: f64) -> RowHead {
        RowHead {
            step,
            elapsed_ms,
            tokens: self.total_tokens,
            samples: self.current_samples() as f64,
        }
    }

    fn push_values(&mut self, source: Source, values: &Values, step: u64, elapsed_ms: f64) {
        let head = self.row_head(step, elapsed_ms);
        let values = values.iter().map(|(name, value)| (&**name, value.0));
        self.series.push_row(source, head, values);
    }

    /// Steps the run is to make; None before `RunStarted`.
    pub fn total_steps(&self) -> Option<u64> {
        Some(self.started.as_ref()?.total_steps)
    }

    /// Share of generation time during which the learner also worked, 0..1; None while nothing was generated.
    ///
    /// `|G ∩ L| / |G|`, where G is the union of all `generate` spans and L the union of all `old_log_prob`, `ref`,
    /// `value`, `actor_update` and `critic_update` spans, as sets of moments, and `|·|` is their length. Parallel
    /// generate spans count once. Evaluation, tools, scoring and waiting are in neither. Synchronous training gives 0.
    pub fn overlap_frac(&self) -> Option<f64> {
        let generation = &self.lanes.get(&Lane::Generate)?.busy;
        if generation.is_empty() {
            return None;
        }
        let learner = self
            .lanes
            .iter()
            .filter(|(lane, _)| lane.is_learner_work())
            .fold(Intervals::default(), |all, (_, state)| {
                all.union(&state.busy)
            });
        Some(generation.shared_length(&learner) / generation.length())
    }

    /// The last value of a metric.
    pub fn last(&self, name: &str) -> Option<f64> {
        Some(self.series.get(name)?.last()?.value.0)
    }
}

/// Tokens of a step's batch; 0 when it logged none that can be added up.
fn batch_tokens(values: &Values) -> f64 {
    ["perf/total_num_tokens", "train/tokens"]
        .into_iter()
        .find_map(|name| values.get(name))
        .map(|tokens| tokens.0)
        .filter(|tokens| tokens.is_finite() && *tokens > 0.0)
        .unwrap_or(0.0)
}

/// Metrics that events carry as fields of their own, under the names of the metric table.
pub fn derived_values(kind: &EventKind) -> Vec<(String, f64)> {
    match kind {
        EventKind::WeightsSynced {
            bytes,
            blocked_ms,
            transfer_ms,
            total_ms,
            canary_max_diff_nats,
            ..
        } => vec![
            ("weight_sync/blocked_ms".to_owned(), *blocked_ms),
            ("weight_sync/transfer_ms".to_owned(), *transfer_ms),
            ("weight_sync/total_ms".to_owned(), *total_ms),
            ("weight_sync/bytes".to_owned(), *bytes as f64),
            (
                "weight_sync/canary_max_diff_nats".to_owned(),
                canary_max_diff_nats.0,
            ),
        ],
        EventKind::HostSampled {
            cpu_percent,
            memory_used_bytes,
            memory_total_bytes,
            process_memory_bytes,
            process_cpu_percent,
            gpus,
        } => {
            // Other trackers know some of it: of nothing none is used, and no process has none.
            let of = |used: u64, total: u64| if total == 0 { f64::NAN } else { used as f64 };
            let own = *process_memory_bytes;
            let mut values = vec![
                ("host/cpu_percent".to_owned(), *cpu_percent),
                (
                    "host/memory_used_bytes".to_owned(),
                    of(*memory_used_bytes, *memory_total_bytes),
                ),
                ("host/process_memory_bytes".to_owned(), of(own, own)),
                ("host/process_cpu_percent".to_owned(), *process_cpu_percent),
            ];
            for gpu in gpus {
                let index = gpu.index;
                values.push((
                    format!("gpu/{index}/utilization_percent"),
                    gpu.utilization_percent,
                ));
                values.push((
                    format!("gpu/{index}/memory_used_bytes"),
                    of(gpu.memory_used_bytes, gpu.memory_total_bytes),
                ));
                values.push((format!("gpu/{index}/power_watts"), gpu.power_watts));
            }
            // A sample is no computation: what is not a number was not measured.
            values.retain(|(_, value)| !value.is_nan());
            values
        }
        _ => Vec::new(),
    }
}

impl Rollouts {
    fn count(
        &mut self,
        step: u64,
        turns: u32,
        tool_calls: u32,
        response_tokens: u32,
        score: Option<Number>,
        finish: &str,
    ) {
        self.ended += 1;
        self.turns += u64::from(turns);
        self.tool_calls += u64::from(tool_calls);
        self.response_tokens += u64::from(response_tokens);
        match score {
            None => self.missing_scores += 1,
            Some(Number(score)) if score.is_finite() => {
                self.scored += 1;
                self.score_sum += score;
            }
            Some(_) => {}
        }
        *self.finishes.entry(finish.to_owned()).or_default() += 1;
        if step > self.current_step {
            self.current_step = step;
            self.current_ended = 0;
        }
        if step == self.current_step {
            self.current_ended += 1;
        }
    }

    /// Mean of the finite scores so far.
    pub fn mean_score(&self) -> Option<f64> {
        (self.scored > 0).then(|| self.score_sum / self.scored as f64)
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, most: usize, item: T) {
    if queue.len() == most {
        queue.pop_front();
    }
    queue.push_back(item);
}

//! What several tests need: every kind of event with every kind of number.

use proptest::prelude::*;

use crate::event::{
    BanditArm, Event, EventKind, GpuSample, GuardArmed, GuardDone, Lane, Level, Phase, RunStatus,
};
use crate::number::{Number, Values};

pub fn any_f64() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => prop::num::f64::ANY.prop_map(|value| if value.is_nan() { f64::NAN } else { value }),
        2 => (-1000_i32..1000).prop_map(f64::from),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => Just(f64::NEG_INFINITY),
    ]
}

fn any_values() -> impl Strategy<Value = Values> {
    prop::collection::btree_map(
        "[a-z]{1,5}/[a-z@0-9]{1,6}",
        any_f64().prop_map(Number),
        0..4,
    )
}

fn any_gpu() -> impl Strategy<Value = GpuSample> {
    (
        any::<u32>(),
        ".{0,8}",
        any_f64(),
        any::<u64>(),
        any::<u64>(),
        any_f64(),
    )
        .prop_map(
            |(
                index,
                name,
                utilization_percent,
                memory_used_bytes,
                memory_total_bytes,
                power_watts,
            )| GpuSample {
                index,
                name,
                utilization_percent,
                memory_used_bytes,
                memory_total_bytes,
                power_watts,
            },
        )
}

fn any_lane() -> impl Strategy<Value = Lane> {
    prop_oneof![prop::sample::select(&Lane::ALL[..]), Just(Lane::Other)]
}

pub fn any_kind() -> BoxedStrategy<EventKind> {
    use prop::sample::select;
    let run_started = (
        ".{0,8}",
        "[a-z_]{0,8}",
        any::<u64>(),
        any::<u64>(),
        any::<u32>(),
        ".{0,8}",
        any::<u64>(),
    )
        .prop_map(
            |(experiment_name, mode, total_steps, parameters, pid, host, seed)| {
                EventKind::RunStarted {
                    experiment_name,
                    mode,
                    total_steps,
                    parameters,
                    pid,
                    host,
                    seed,
                }
            },
        );
    let resumed = (
        prop_oneof![any::<u64>(), 0_u64..50],
        prop::option::of(".{0,8}"),
        any::<u64>(),
        prop::collection::vec(".{0,8}", 0..2),
    )
        .prop_map(
            |(from_step, checkpoint, lost_steps, passed_over)| EventKind::RunResumed {
                from_step,
                checkpoint,
                lost_steps,
                passed_over,
            },
        );
    let phase = select(vec![
        Phase::Setup,
        Phase::Sft,
        Phase::Train,
        Phase::Finish,
        Phase::Other,
    ])
    .prop_map(|phase| EventKind::PhaseChanged { phase });
    let rollout = (
        0_u64..50,
        ".{0,8}",
        any::<(u32, u64, u64, u32, u32, u32)>(),
        prop::option::of(any_f64().prop_map(Number)),
        "[a-z]{0,6}",
    )
        .prop_map(
            |(step, uid, numbers, score, finish)| EventKind::RolloutEnded {
                step,
                uid,
                sample: numbers.0,
                policy_version_min: numbers.1,
                policy_version_max: numbers.2,
                turns: numbers.3,
                tool_calls: numbers.4,
                response_tokens: numbers.5,
                score,
                finish,
            },
        );
    let step =
        (any::<u64>(), any::<u64>(), any_values()).prop_map(|(step, policy_version, values)| {
            EventKind::StepEnded {
                step,
                policy_version,
                values,
            }
        });
    let span = (
        any_lane(),
        ".{0,8}",
        prop::option::of(any::<u64>()),
        any_f64(),
        any_f64(),
    )
        .prop_map(|(lane, name, step, start_ms, end_ms)| EventKind::Span {
            lane,
            name,
            step,
            start_ms,
            end_ms,
        });
    let sync = (
        any::<(u64, u64, bool)>(),
        any_f64(),
        any_f64(),
        any_f64(),
        "[0-9a-f]{16}",
        any_f64(),
    )
        .prop_map(
            |((version, bytes, verified), blocked_ms, transfer_ms, total_ms, fingerprint, diff)| {
                EventKind::WeightsSynced {
                    version,
                    bytes,
                    blocked_ms,
                    transfer_ms,
                    total_ms,
                    sent_fingerprint: fingerprint.clone(),
                    received_fingerprint: fingerprint,
                    canary_max_diff_nats: Number(diff),
                    verified,
                }
            },
        );
    let eval = (any::<(u64, u64, u64)>(), any_values()).prop_map(
        |((step, policy_version, samples), values)| EventKind::EvalEnded {
            step,
            policy_version,
            samples,
            values,
        },
    );
    let checkpoint = (any::<(u64, u64)>(), ".{0,8}", (any_f64(), any_f64())).prop_map(
        |((step, bytes), path, (save_ms, blocked_ms))| EventKind::CheckpointSaved {
            step,
            path,
            bytes,
            save_ms,
            blocked_ms,
        },
    );
    let host = (
        any_f64(),
        any::<(u64, u64, u64)>(),
        any_f64(),
        prop::collection::vec(any_gpu(), 0..3),
    )
        .prop_map(
            |(cpu_percent, bytes, process_cpu_percent, gpus)| EventKind::HostSampled {
                cpu_percent,
                memory_used_bytes: bytes.0,
                memory_total_bytes: bytes.1,
                process_memory_bytes: bytes.2,
                process_cpu_percent,
                gpus,
            },
        );
    let alarm =
        (".{0,8}", prop::option::of(any::<u64>()), ".{0,8}").prop_map(|(name, step, message)| {
            EventKind::Alarm {
                name,
                step,
                message,
            }
        });
    let log = (
        select(vec![
            Level::Debug,
            Level::Info,
            Level::Warning,
            Level::Error,
            Level::Other,
        ]),
        ".{0,8}",
        ".{0,8}",
    )
        .prop_map(|(level, target, message)| EventKind::LogLine {
            level,
            target,
            message,
        });
    let knob = || {
        (
            prop::option::of("[a-z.]{1,8}"),
            prop::option::of(any_f64().prop_map(Number)),
        )
    };
    let applied = (
        any::<(u64, u64, Option<u64>)>(),
        ".{0,8}",
        "[a-z]{1,8}",
        knob(),
        prop::option::of(any_f64().prop_map(Number)),
    )
        .prop_map(
            |((request, step, from_step), who, command, (knob, to), from)| {
                EventKind::ControlApplied {
                    request,
                    who,
                    target: knob.clone(),
                    before: knob.clone(),
                    after: Some(command.clone()),
                    until_step: from_step,
                    command,
                    step,
                    knob,
                    from,
                    to,
                    from_step,
                }
            },
        );
    let refused = (
        any::<(u64, u64)>(),
        ".{0,8}",
        "[a-z]{1,8}",
        knob(),
        ".{0,8}",
    )
        .prop_map(|((request, step), who, command, (knob, to), reason)| {
            EventKind::ControlRefused {
                request,
                who,
                target: knob.clone(),
                command,
                step,
                knob,
                to,
                reason,
            }
        });
    let ended = (
        select(vec![
            RunStatus::Completed,
            RunStatus::Stopped,
            RunStatus::Failed,
            RunStatus::Other,
        ]),
        any::<i32>(),
        ".{0,8}",
        any::<u64>(),
    )
        .prop_map(|(status, exit_code, reason, steps)| EventKind::RunEnded {
            status,
            exit_code,
            reason,
            steps,
        });
    prop_oneof![
        run_started,
        resumed,
        phase,
        rollout,
        step,
        span,
        sync,
        eval,
        checkpoint,
        host,
        alarm,
        log,
        applied,
        refused,
        ended,
        (".{0,8}", any::<u64>(), any_f64(), any_f64(), any::<bool>()).prop_map(
            |(words, step, value, limit, is_done)| EventKind::GuardTripped {
                guard: words.clone(),
                watched: words.clone(),
                step,
                since_step: step,
                value: Number(value),
                limit: Number(limit),
                reason: words.clone(),
                relapse: step,
                done: vec![GuardDone {
                    action: words.clone(),
                    before: words.clone(),
                    after: words.clone(),
                    is_done,
                }],
                cools_until: is_done.then_some(step),
                by: is_done.then_some(words),
            }
        ),
        prop::collection::vec(".{0,8}", 0..3).prop_map(|names| EventKind::GuardsArmed {
            guards: names
                .into_iter()
                .map(|name| GuardArmed {
                    watches: name.clone(),
                    condition: name.clone(),
                    ladder: vec![name.clone()],
                    is_muted: name.is_empty(),
                    muted_until: (!name.is_empty()).then_some(7),
                    cools_until: name.is_empty().then_some(7),
                    name,
                })
                .collect(),
        }),
        (
            ".{0,8}",
            any::<u64>(),
            any_f64(),
            prop::option::of(any_f64().prop_map(Number))
        )
            .prop_map(|(words, pull, score, propensity)| EventKind::BanditChose {
                pull,
                step: pull,
                uid: words.clone(),
                sample: 0,
                arm: (!words.is_empty()).then(|| words.clone()),
                why: words,
                propensity,
                scores: vec![Number(score)],
            }),
        (
            ".{0,8}",
            any::<u64>(),
            prop::option::of(any_f64().prop_map(Number)),
            any::<bool>()
        )
            .prop_map(|(words, update, number, flag)| EventKind::BanditUpdated {
                update,
                step: update,
                policy: words.clone(),
                arms: vec![BanditArm {
                    name: words,
                    counted: update,
                    timed_out: 0,
                    missing: 0,
                    mean: number,
                    sd: number,
                    chance: None,
                    is_frozen: flag,
                    is_forced: !flag,
                }],
                epsilon: number,
                regret: number,
                disagreement: None,
            }),
        Just(EventKind::Unknown),
    ]
    .boxed()
}

/// A log: `seq` counts from 0.
pub fn any_events(most: usize) -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec((any_f64(), any_kind()), 0..most).prop_map(|pairs| {
        pairs
            .into_iter()
            .enumerate()
            .map(|(seq, (elapsed_ms, kind))| Event {
                seq: seq as u64,
                elapsed_ms,
                kind,
            })
            .collect()
    })
}

pub fn line(event: &Event) -> Vec<u8> {
    let mut line = serde_json::to_vec(event).unwrap();
    line.push(b'\n');
    line
}

pub fn lines(events: &[Event]) -> Vec<u8> {
    events.iter().flat_map(line).collect()
}

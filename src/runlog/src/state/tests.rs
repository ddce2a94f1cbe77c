use proptest::prelude::*;

use super::*;
use crate::tail::{Limits, Tail};
use crate::testing::{any_events, lines};

fn event(seq: u64, kind: EventKind) -> Event {
    Event {
        seq,
        elapsed_ms: seq as f64,
        kind,
    }
}

fn span(lane: Lane, start_ms: f64, end_ms: f64) -> EventKind {
    EventKind::Span {
        lane,
        name: String::new(),
        step: None,
        start_ms,
        end_ms,
    }
}

fn fold(kinds: Vec<EventKind>) -> RunState {
    let events: Vec<Event> = kinds
        .into_iter()
        .enumerate()
        .map(|(seq, kind)| event(seq as u64, kind))
        .collect();
    RunState::fold(&events)
}

fn values(pairs: &[(&str, f64)]) -> Values {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Number(*value)))
        .collect()
}

fn eval(step: u64, pairs: &[(&str, f64)]) -> EventKind {
    EventKind::EvalEnded {
        step,
        policy_version: step,
        samples: 4,
        values: values(pairs),
    }
}

/// Debug text, since a NaN time is unequal to itself.
fn text(state: &RunState) -> String {
    format!("{state:?}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn folding_a_stream_cut_anywhere_equals_folding_the_whole(
        events in any_events(12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        limit in 1_usize..5,
    ) {
        let whole = RunState::fold(&events);
        let bytes = lines(&events);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.push(bytes.len());
        cuts.sort_unstable();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.jsonl");
        let mut tail = Tail::new(&path);
        let mut state = RunState::default();
        for cut in cuts {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            loop {
                let batch = tail.read(Limits { events: limit, bytes: 64 }).unwrap();
                prop_assert!(batch.bad_lines.is_empty() && !batch.restarted);
                for event in &batch.events {
                    state.apply(event);
                }
                if !batch.has_more {
                    break;
                }
            }
        }
        prop_assert_eq!(text(&state), text(&whole));
    }
}

#[test]
fn overlap_is_the_share_of_generation_time_in_which_the_learner_worked() {
    // Generation covers 0..100 once, though two spans lie over each other. The learner covers 40..60 and 90..120; the
    // reference and the update share 50..60, which counts once.
    let state = fold(vec![
        span(Lane::Generate, 0.0, 70.0),
        span(Lane::Generate, 30.0, 100.0),
        span(Lane::Ref, 40.0, 60.0),
        span(Lane::ActorUpdate, 50.0, 60.0),
        span(Lane::CriticUpdate, 90.0, 120.0),
        span(Lane::Eval, 0.0, 100.0),
        span(Lane::WaitRollouts, 0.0, 100.0),
    ]);
    assert_eq!(state.overlap_frac(), Some(0.3));
    assert_eq!(state.lanes[&Lane::Generate].total_ms, 140.0);
    assert_eq!(state.lanes[&Lane::Generate].busy.length(), 100.0);
}

#[test]
fn overlap_is_nothing_without_generation_and_zero_in_turns() {
    assert_eq!(
        fold(vec![span(Lane::ActorUpdate, 0.0, 1.0)]).overlap_frac(),
        None
    );
    let turns = fold(vec![
        span(Lane::Generate, 0.0, 10.0),
        span(Lane::ActorUpdate, 10.0, 20.0),
    ]);
    assert_eq!(turns.overlap_frac(), Some(0.0));
}

#[test]
fn val_reward_is_the_mean_over_sources_and_prefers_reward_to_acc() {
    let state = fold(vec![
        eval(
            0,
            &[
                ("val-core/a/reward/mean@1", 0.25),
                ("val-core/b/reward/mean@1", 0.75),
                ("val-core/b/acc/mean@1", 1.0),
            ],
        ),
        eval(5, &[("val-aux/a/reward/std@4", 9.0)]),
        eval(
            10,
            &[
                ("val-core/a/acc/mean@4", 0.9),
                ("val-core/a/acc/best@4/mean", 1.0),
            ],
        ),
    ]);
    let summary = state.summary();
    assert_eq!(summary.val_reward_first, Some(Number(0.5)));
    assert_eq!(summary.val_reward_last, Some(Number(0.9)));
    assert_eq!(state.val_rewards().count(), 2);
}

#[test]
fn non_finite_values_stay_in_their_series() {
    let step = |step, value| EventKind::StepEnded {
        step,
        policy_version: step,
        values: values(&[("actor/pg_loss", value)]),
    };
    let state = fold(vec![
        step(1, 0.5),
        step(2, f64::NAN),
        step(3, f64::INFINITY),
    ]);
    let series = state.series.get("actor/pg_loss").unwrap();
    assert_eq!(series.len(), 3);
    assert_eq!(series.non_finite(), 2);
    assert!(series.value(1).is_nan());
    let json = serde_json::to_string(&state.summary()).unwrap();
    assert!(json.contains(r#""actor/pg_loss":"inf""#), "{json}");
    let back: Summary = serde_json::from_str(&json).unwrap();
    assert_eq!(back, state.summary());
}

#[test]
fn percentiles_are_by_nearest_rank_and_skip_non_finite_values() {
    let values = (1..=100).map(f64::from).chain([f64::NAN, f64::INFINITY]);
    let percentiles = Percentiles::of(values).unwrap();
    assert_eq!(
        (percentiles.p50, percentiles.p95, percentiles.max),
        (50.0, 95.0, 100.0)
    );
    assert_eq!(Percentiles::of([7.0]).unwrap().p95, 7.0);
    assert_eq!(Percentiles::of([f64::NAN]), None);
}

#[test]
fn missing_sequence_numbers_are_counted() {
    let line = |seq| {
        event(
            seq,
            EventKind::PhaseChanged {
                phase: Phase::Train,
            },
        )
    };
    let state = RunState::fold(&[line(0), line(1), line(4), line(5)]);
    assert_eq!(state.missing_events, 2);
}

#[test]
fn missing_scores_are_counted_apart_from_zero() {
    let rollout = |step, score: Option<f64>| EventKind::RolloutEnded {
        step,
        uid: "u".to_owned(),
        sample: 0,
        policy_version_min: 0,
        policy_version_max: 0,
        turns: 2,
        tool_calls: 1,
        response_tokens: 10,
        score: score.map(Number),
        finish: "stop".to_owned(),
    };
    let state = fold(vec![
        rollout(1, Some(0.0)),
        rollout(1, None),
        rollout(2, Some(1.0)),
        rollout(2, Some(f64::NAN)),
        rollout(1, Some(0.5)),
    ]);
    let rollouts = &state.rollouts;
    assert_eq!(
        (rollouts.ended, rollouts.missing_scores, rollouts.scored),
        (5, 1, 3)
    );
    assert_eq!(rollouts.mean_score(), Some(0.5));
    assert_eq!((rollouts.current_step, rollouts.current_ended), (2, 2));
}

#[test]
fn a_resume_says_from_where_and_a_guard_what_it_did() {
    let started = || EventKind::RunStarted {
        experiment_name: "x".to_owned(),
        mode: "sync".to_owned(),
        total_steps: 9,
        parameters: 1,
        pid: 1,
        host: "h".to_owned(),
        seed: 1,
    };
    let step = |step| EventKind::StepEnded {
        step,
        policy_version: step,
        values: values(&[("actor/pg_loss", 1.0)]),
    };
    let state = fold(vec![
        started(),
        step(1),
        step(2),
        started(),
        EventKind::RunResumed {
            from_step: 1,
            checkpoint: None,
            lost_steps: 1,
            passed_over: Vec::new(),
        },
        EventKind::GuardTripped {
            guard: "kl".to_owned(),
            watched: "actor/ppo_kl".to_owned(),
            step: 1,
            since_step: 1,
            value: Number(0.5),
            limit: Number(0.25),
            reason: "too far".to_owned(),
            relapse: 0,
            done: Vec::new(),
            cools_until: None,
            by: None,
        },
    ]);
    assert_eq!(
        state.resumes,
        [Resume {
            elapsed_ms: 3.0,
            from_step: 1,
            lost_steps: 1
        }]
    );
    assert_eq!(
        (state.guards.trips.len(), state.guards.trip_count()),
        (1, 1)
    );
    let trip = &state.guards.trips[0];
    assert_eq!((trip.step, trip.limit), (1, Number(0.25)));
    let alarm = |name: &str| AlarmRecord {
        elapsed_ms: 0.0,
        name: name.to_owned(),
        step: Some(1),
        message: String::new(),
    };
    assert!(trip.is_told_by(&alarm("guard kl")));
    assert!(!trip.is_told_by(&alarm("non-finite")));
}

mod alive {
    use std::time::{Duration, SystemTime};

    use proptest::prelude::*;

    use super::super::*;
    use crate::run_dir::{NewRun, RunDir};
    use crate::testing::lines;

    const REWARD: &str = "val-core/x/reward/mean@1";

    /// What a glance sees of a living run with these events.
    fn glanced(kinds: Vec<EventKind>) -> Glance {
        let (_root, run_dir) = edited(|_| {});
        let events: Vec<Event> = kinds
            .into_iter()
            .enumerate()
            .map(|(seq, kind)| super::event(seq as u64, kind))
            .collect();
        std::fs::write(run_dir.events_path(), lines(&events)).unwrap();
        let glance = glance(&run_dir, SystemTime::now()).unwrap();
        assert_eq!(glance.is_paused, RunState::fold(&events).is_paused);
        glance
    }

    #[test]
    fn a_run_that_went_on_for_longer_shows_its_new_end_however_long_its_log_is() {
        let (_root, run_dir) = edited(|_| {});
        let started = EventKind::RunStarted {
            experiment_name: "toy".to_owned(),
            mode: "sync".to_owned(),
            total_steps: 400,
            parameters: 1,
            pid: 1,
            host: "gpu1".to_owned(),
            seed: 1,
        };
        let step = |step| EventKind::StepEnded {
            step,
            policy_version: step,
            values: super::values(&[("actor/pg_loss", 1.0)]),
        };
        let kinds = std::iter::once(started).chain((1..=407).map(step));
        let events: Vec<Event> = kinds
            .enumerate()
            .map(|(seq, kind)| super::event(seq as u64, kind))
            .collect();
        std::fs::write(run_dir.events_path(), lines(&events)).unwrap();
        let seen = |run_dir: &RunDir| {
            let glance = glance(run_dir, SystemTime::now()).unwrap();
            (glance.step, glance.total_steps)
        };
        assert_eq!(seen(&run_dir), (407, 400));
        run_dir.note_total_steps(420).unwrap();
        let run_dir = RunDir::open(run_dir.path()).unwrap();
        assert_eq!(seen(&run_dir), (407, 420));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A log that grows between looks, with hundreds of kilobytes of spans behind an evaluation.
        #[test]
        fn the_newest_evaluation_is_in_sight_however_much_was_written_since(
            looks in prop::collection::vec(
                prop::collection::vec((any::<bool>(), 0_usize..600), 0..4),
                1..6,
            ),
            torn in 0_usize..40,
        ) {
            let (_root, run_dir) = edited(|_| {});
            let mut sight = Sight::default();
            let (mut events, mut newest) = (Vec::new(), None);
            for kinds in looks {
                for (evaluates, spans) in kinds {
                    let seq = events.len() as u64;
                    if evaluates {
                        newest = Some(Number(seq as f64));
                        events.push(super::event(seq, super::eval(seq, &[(REWARD, seq as f64)])));
                    }
                    events.push(super::event(seq + 1, EventKind::StepEnded {
                        step: seq,
                        policy_version: seq,
                        values: super::values(&[("actor/pg_loss", 1.0)]),
                    }));
                    let more = (0..spans as u64)
                        .map(|at| super::event(seq + 2 + at, super::span(Lane::Generate, 0.0, 1.0)));
                    events.extend(more);
                }
                let mut text = lines(&events);
                // The last line may be looked at while it is written.
                text.truncate(text.len().saturating_sub(torn));
                std::fs::write(run_dir.events_path(), &text).unwrap();
                let (seen, _) = crate::tail::read_all(&run_dir.events_path()).unwrap();
                let whole = seen.iter().rev().find_map(|event| match &event.kind {
                    EventKind::EvalEnded { values, .. } => values.values().next().copied(),
                    _ => None,
                });
                prop_assert!(torn > 0 || whole == newest);
                let glance = sight.glance(&run_dir, SystemTime::now()).unwrap();
                prop_assert_eq!(glance.last.get(REWARD).copied(), whole);
            }
            // Another run's log in its place.
            std::fs::write(run_dir.events_path(), "").unwrap();
            let glance = sight.glance(&run_dir, SystemTime::now()).unwrap();
            prop_assert!(glance.last.is_empty());
        }
    }

    #[test]
    fn a_run_that_goes_on_has_not_ended_from_the_first_word_of_its_new_process() {
        let ended = |steps| EventKind::RunEnded {
            status: RunStatus::Stopped,
            exit_code: 130,
            reason: "stopped on request".to_owned(),
            steps,
        };
        let step = |step| EventKind::StepEnded {
            step,
            policy_version: step,
            values: super::values(&[("actor/pg_loss", 1.0)]),
        };
        let phase = |phase| EventKind::PhaseChanged { phase };
        let mut kinds = vec![
            phase(Phase::Setup),
            step(1),
            step(2),
            phase(Phase::Finish),
            ended(2),
        ];
        let seen = |kinds: &[EventKind]| {
            let glance = glanced(kinds.to_vec());
            let events: Vec<Event> = (kinds.iter().enumerate())
                .map(|(seq, kind)| super::event(seq as u64, kind.clone()))
                .collect();
            assert_eq!(
                RunState::fold(&events).ended.is_some(),
                glance.end.is_some()
            );
            (glance.word(), glance.step)
        };
        assert_eq!(seen(&kinds), ("stopped", 2));
        kinds.push(phase(Phase::Setup));
        assert_eq!(seen(&kinds), ("running", 2));
        kinds.push(step(3));
        assert_eq!(seen(&kinds), ("running", 3));
        kinds.push(ended(3));
        assert_eq!(seen(&kinds), ("stopped", 3));
    }

    #[test]
    fn a_glance_knows_that_a_run_is_paused() {
        let step = |step| EventKind::StepEnded {
            step,
            policy_version: step,
            values: super::values(&[("actor/pg_loss", 1.0)]),
        };
        let control = |command: &str| EventKind::ControlApplied {
            request: 1,
            who: "ana".to_owned(),
            command: command.to_owned(),
            step: 1,
            target: None,
            before: None,
            after: None,
            until_step: None,
            knob: None,
            from: None,
            to: None,
            from_step: None,
        };
        let host = || super::span(Lane::Generate, 0.0, 1.0);
        let paused = glanced(vec![step(1), control("pause"), host()]);
        assert_eq!((paused.word(), paused.step), ("paused", 1));
        let stepped = glanced(vec![
            step(1),
            control("pause"),
            control("step"),
            host(),
            step(2),
        ]);
        assert_eq!(stepped.word(), "paused");
        for goes_on in [
            vec![step(1), step(2)],
            vec![step(1), control("pause"), control("resume"), step(2)],
            vec![step(1), control("pause"), control("resume")],
            vec![control("set"), step(1)],
            vec![],
        ] {
            assert_eq!(glanced(goes_on).word(), "running");
        }
        // However long it has been paused: the end of the log is all that is read, and more of it then.
        let mut long = vec![step(1), control("pause")];
        long.extend((0..2000).map(|_| host()));
        assert_eq!(glanced(long).word(), "paused");
    }

    fn edited(edit: impl Fn(&mut serde_json::Value)) -> (tempfile::TempDir, RunDir) {
        let root = tempfile::tempdir().unwrap();
        let run_dir = RunDir::create(root.path(), &NewRun::default()).unwrap();
        let path = run_dir.path().join("run.json");
        let mut info = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        edit(&mut info);
        std::fs::write(&path, serde_json::to_vec(&info).unwrap()).unwrap();
        let run_dir = RunDir::open(run_dir.path()).unwrap();
        (root, run_dir)
    }

    #[test]
    fn a_run_of_a_living_process_is_running() {
        let (_root, run_dir) = edited(|_| {});
        assert_eq!(
            liveness(&run_dir, None, SystemTime::now()),
            Liveness::Running
        );
    }

    #[test]
    fn a_run_whose_process_is_gone_is_presumed_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let (_root, run_dir) = edited(|info| info["pid"] = pid.into());
        let Liveness::PresumedDead { reason } = liveness(&run_dir, None, SystemTime::now()) else {
            panic!("not dead");
        };
        assert_eq!(
            reason,
            format!("process {pid} is gone and left no end event")
        );
    }

    #[test]
    fn a_later_process_with_the_same_pid_does_not_keep_a_run_alive() {
        let (_root, run_dir) = edited(|info| info["process_start_ticks"] = 1.into());
        assert!(matches!(
            liveness(&run_dir, None, SystemTime::now()),
            Liveness::PresumedDead { .. }
        ));
    }

    #[test]
    fn a_run_on_another_host_is_dead_after_ten_silent_minutes() {
        let (_root, run_dir) = edited(|info| info["host"] = "elsewhere".into());
        std::fs::write(run_dir.events_path(), "").unwrap();
        let now = SystemTime::now();
        assert_eq!(liveness(&run_dir, None, now), Liveness::Running);
        let later = liveness(&run_dir, None, now + Duration::from_secs(660));
        assert_eq!(
            later.reason(),
            Some("elsewhere has written nothing for 11 min")
        );
    }

    #[test]
    fn an_end_event_decides() {
        let (_root, run_dir) = edited(|info| info["pid"] = 0.into());
        let at = |status| liveness(&run_dir, Some((status, "out of memory")), SystemTime::now());
        assert_eq!(at(RunStatus::Completed), Liveness::Finished);
        assert_eq!(at(RunStatus::Stopped), Liveness::Stopped);
        assert_eq!(at(RunStatus::Failed).reason(), Some("out of memory"));
    }
}

#[test]
fn what_a_sample_of_a_host_does_not_know_is_no_value() {
    let names = |kind: &EventKind| -> Vec<String> {
        let values = derived_values(kind).into_iter();
        values.map(|(name, _)| name).collect()
    };
    let gpu = GpuSample {
        index: 0,
        name: String::new(),
        utilization_percent: 50.0,
        memory_used_bytes: 0,
        memory_total_bytes: 0,
        power_watts: f64::NAN,
    };
    let mut sample = EventKind::HostSampled {
        cpu_percent: f64::NAN,
        memory_used_bytes: 0,
        memory_total_bytes: 0,
        process_memory_bytes: 0,
        process_cpu_percent: f64::NAN,
        gpus: vec![gpu],
    };
    assert_eq!(names(&sample), ["gpu/0/utilization_percent"]);
    if let EventKind::HostSampled { gpus, .. } = &mut sample {
        // None of it is used, and that is known.
        gpus[0].memory_total_bytes = 80 << 30;
    }
    assert_eq!(
        names(&sample),
        ["gpu/0/utilization_percent", "gpu/0/memory_used_bytes"]
    );
}

use super::*;
use crate::event::{Event, EventKind, Lane, Phase, RunStatus};
use crate::number::{Number, Values};
use crate::recorder::LOST_ALARM;

/// A run that is written a step at a time, with the metrics that a healthy one has.
struct Run {
    state: RunState,
    alarms: Alarms,
    seq: u64,
    elapsed_ms: f64,
    step: u64,
}

impl Run {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let mut run = Self {
            state: RunState::default(),
            alarms: Alarms::new(limits),
            seq: 0,
            elapsed_ms: 0.0,
            step: 0,
        };
        run.event(EventKind::PhaseChanged {
            phase: Phase::Train,
        });
        run
    }

    fn event(&mut self, kind: EventKind) {
        let event = Event {
            seq: self.seq,
            elapsed_ms: self.elapsed_ms,
            kind,
        };
        self.seq += 1;
        self.state.apply(&event);
        self.alarms.follow(&self.state);
    }

    /// One step of a second, as the shipped quickstart looks at it, with some values changed.
    fn step(&mut self, changed: &[(&str, f64)]) {
        self.step += 1;
        self.elapsed_ms += 1000.0;
        let step = self.step as f64;
        let solved = 1.0 - (-step / 12.0).exp();
        // Noise that is the same in each run: a third of the level, of both signs.
        let noise = (step * 12.9898).sin();
        let mut values: Values = [
            ("critic/score/mean", 0.45 + 0.53 * solved + 0.02 * noise),
            ("critic/score/min", 0.0),
            ("critic/score/max", 1.0),
            ("actor/ppo_kl", 1e-4 * noise),
            ("actor/kl_loss", 0.02 * solved * (1.0 + 0.3 * noise)),
            ("actor/entropy", 0.27 - 0.26 * solved),
            ("actor/pg_clipfrac", 0.01 * (1.0 - solved)),
            ("actor/grad_norm", 0.5 + 0.4 * noise),
            ("response_length/mean", 20.0 + 19.0 * solved + noise),
            (
                "reward/all_equal_group_frac",
                (0.92 * solved + 0.05 * noise).clamp(0.0, 1.0),
            ),
            ("timing_s/step", 1.0),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Number(value)))
        .collect();
        for (name, value) in changed {
            values.insert((*name).to_owned(), Number(*value));
        }
        let step = self.step;
        self.event(EventKind::StepEnded {
            step,
            policy_version: step,
            values,
        });
        self.span(Lane::ActorUpdate, self.elapsed_ms);
        // Every tenth sync waits for an evaluation.
        self.sync(if step.is_multiple_of(10) {
            600.0
        } else {
            15.0 + 4.0 * noise
        });
    }

    fn steps(&mut self, count: u64, changed: &[(&str, f64)]) {
        for _ in 0..count {
            self.step(changed);
        }
    }

    fn sync(&mut self, total_ms: f64) {
        self.event(EventKind::WeightsSynced {
            version: self.step,
            bytes: 1,
            blocked_ms: 1.0,
            transfer_ms: 1.0,
            total_ms,
            sent_fingerprint: String::new(),
            received_fingerprint: String::new(),
            canary_max_diff_nats: Number(0.0),
            verified: true,
        });
    }

    fn span(&mut self, lane: Lane, end_ms: f64) {
        let step = Some(self.step);
        self.event(EventKind::Span {
            lane,
            name: lane.name().to_owned(),
            step,
            start_ms: end_ms - 10.0,
            end_ms,
        });
    }

    fn active(&self) -> Vec<(&'static str, &str, u64)> {
        self.alarms
            .active()
            .iter()
            .map(|found| (found.name, found.subject.as_str(), found.since_step))
            .collect()
    }

    fn message(&self) -> &str {
        &self.alarms.active()[0].message
    }
}

#[test]
fn a_run_that_learns_raises_nothing() {
    let mut run = Run::new();
    run.steps(400, &[]);
    assert_eq!((run.alarms.active(), run.alarms.past()), (&[][..], &[][..]));
}

/// A real one, with the noise of batches of 128 and of a busy machine, and evaluations beside some syncs.
#[test]
fn the_shipped_quickstart_raises_nothing_at_any_moment() {
    let log = include_str!("../../tests/golden/quickstart-events.jsonl");
    let mut state = RunState::default();
    let mut alarms = Alarms::new(Limits::default());
    for line in log.lines() {
        state.apply(&serde_json::from_str(line).unwrap());
        alarms.follow(&state);
        assert_eq!(alarms.active(), [], "at step {}", state.step);
    }
    assert_eq!((state.step, state.alarm_count), (80, 6));
}

#[test]
fn kl_that_jumps_is_an_alarm_until_it_is_back() {
    let mut run = Run::new();
    run.steps(60, &[]);
    run.event(EventKind::CheckpointSaved {
        step: 60,
        path: "checkpoints/step-000060".to_owned(),
        bytes: 1,
        save_ms: 1.0,
        blocked_ms: 0.5,
    });
    run.step(&[("actor/kl_loss", 0.4)]);
    run.step(&[]);
    assert_eq!(run.active(), [], "one odd batch");
    run.steps(4, &[("actor/kl_loss", 0.3)]);
    assert_eq!(run.active(), [("kl_blow_up", "actor/kl_loss", 63)]);
    assert!(
        run.message().starts_with("actor/kl_loss is 0.300 nats, 1"),
        "{}",
        run.message()
    );
    let changes: Vec<&str> = run.alarms.active()[0]
        .what_changed
        .iter()
        .map(|change| change.what.as_str())
        .collect();
    assert_eq!(changes, ["checkpoint of step 60", "phase train began"]);
    // Half way down is neither: it stays.
    run.steps(10, &[("actor/kl_loss", 0.06)]);
    assert_eq!(run.active().len(), 1);
    run.steps(5, &[]);
    assert_eq!(run.active(), []);
    let past = &run.alarms.past()[0];
    assert_eq!((past.since_step, past.until_ms), (63, Some(81_000.0)));
}

#[test]
fn kl_at_a_guards_limit_is_an_alarm_at_once() {
    let mut run = Run::with(Limits {
        kl_nats: Some(0.08),
    });
    run.steps(3, &[]);
    run.step(&[("actor/kl_loss", 0.09)]);
    assert_eq!(
        run.message(),
        "actor/kl_loss is 0.0900 nats; the guard's limit is 0.0800"
    );
}

#[test]
fn entropy_that_goes_without_reward_is_a_collapse_and_with_reward_is_learning() {
    let stuck = [("critic/score/mean", 0.3), ("actor/entropy", 0.01)];
    let mut run = Run::new();
    run.steps(12, &[("critic/score/mean", 0.3)]);
    run.steps(5, &stuck);
    assert_eq!(run.active(), [("entropy_collapse", "actor/entropy", 13)]);
    let mut learned = Run::new();
    learned.steps(80, &[]);
    assert!(learned.state.last("actor/entropy").unwrap() < 0.02);
    assert_eq!(learned.active(), []);
}

#[test]
fn length_that_runs_away_while_the_reward_rises_is_an_alarm_and_settled_length_is_none() {
    let mut run = Run::new();
    run.steps(100, &[]);
    let mut length = 39.0;
    for _ in 0..40 {
        length *= 1.02;
        run.step(&[("response_length/mean", length)]);
    }
    let active = run.active();
    assert_eq!((active.len(), active[0].0), (1, "length_runaway"));
    run.steps(80, &[("response_length/mean", length)]);
    assert_eq!(run.active(), [], "it stays where it is now");
}

#[test]
fn quality_that_falls_far_below_its_best_is_an_alarm_and_one_odd_evaluation_is_none() {
    const QUALITY: &str = "val-core/math/reward/mean@1";
    let mut run = Run::new();
    let evaluate = |run: &mut Run, values: &[f64]| {
        for value in values {
            run.step(&[]);
            run.event(EventKind::EvalEnded {
                step: run.step,
                policy_version: run.step,
                samples: 64,
                values: [(QUALITY.to_owned(), Number(*value))].into(),
            });
        }
    };
    // Noise, then one evaluation that went wrong, and one that went too well.
    evaluate(
        &mut run,
        &[0.45, 0.5, 0.41, 0.52, 0.6, 0.05, 0.58, 0.95, 0.55],
    );
    assert_eq!(run.active(), []);
    evaluate(&mut run, &[0.3, 0.1, 0.05, 0.02]);
    assert_eq!(run.active(), [("quality_fall", QUALITY, 11)]);
    assert_eq!(
        run.message(),
        "val-core/math/reward/mean@1 fell from 0.580 (step 7) to 0.0500, medians of 3 evaluations"
    );
    // Back at a good checkpoint.
    evaluate(&mut run, &[0.55, 0.6, 0.57]);
    assert_eq!(run.active(), []);
}

#[test]
fn equal_groups_are_an_alarm_unless_the_task_is_solved() {
    let mut run = Run::new();
    run.steps(20, &[("critic/score/mean", 0.1)]);
    run.steps(
        12,
        &[
            ("critic/score/mean", 0.1),
            ("reward/all_equal_group_frac", 1.0),
        ],
    );
    assert_eq!(run.active()[0].0, "all_equal_groups");
    assert!(
        run.message().starts_with("in 100 % of the groups"),
        "{}",
        run.message()
    );
    let mut solved = Run::new();
    solved.steps(60, &[]);
    solved.steps(
        20,
        &[
            ("critic/score/mean", 0.99),
            ("reward/all_equal_group_frac", 1.0),
        ],
    );
    assert_eq!(solved.active(), []);
}

#[test]
fn clipping_does_not_flap_between_its_thresholds() {
    let mut run = Run::new();
    run.steps(4, &[("actor/pg_clipfrac", 0.4)]);
    run.step(&[("actor/pg_clipfrac", 0.25)]);
    run.steps(4, &[("actor/pg_clipfrac", 0.4)]);
    assert_eq!(run.active(), [], "no five in a row");
    run.step(&[("actor/pg_clipfrac", 0.4)]);
    assert_eq!(run.active(), [("clip_saturation", "actor/pg_clipfrac", 6)]);
    for i in 0..50 {
        run.step(&[("actor/pg_clipfrac", if i % 2 == 0 { 0.25 } else { 0.15 })]);
    }
    assert_eq!(run.alarms.past().len(), 0);
    assert_eq!(run.active().len(), 1);
}

#[test]
fn a_value_that_is_no_number_is_an_alarm_for_ten_steps() {
    let mut run = Run::new();
    run.steps(5, &[]);
    run.step(&[("actor/grad_norm", f64::NAN)]);
    assert_eq!(run.active(), [("non_finite", "actor/grad_norm", 6)]);
    assert_eq!(run.alarms.active()[0].severity, Severity::Critical);
    assert_eq!(
        run.message(),
        "actor/grad_norm was NaN; 1 of 6 values so far are not finite"
    );
    run.steps(9, &[]);
    assert_eq!(run.active().len(), 1);
    run.step(&[]);
    assert_eq!(run.active(), []);
}

#[test]
fn syncs_that_become_slow_are_an_alarm_and_those_beside_an_evaluation_are_not() {
    let mut run = Run::new();
    run.steps(40, &[]);
    assert_eq!(run.active(), []);
    for _ in 0..8 {
        run.sync(90.0);
    }
    assert_eq!(run.active()[0].0, "sync_latency_drift");
    assert_eq!(
        run.message().split(';').next(),
        Some("a weight sync takes 90.0 ms")
    );
}

#[test]
fn a_wait_that_does_not_end_is_a_stall_and_ends_with_the_next_span() {
    let mut run = Run::new();
    run.steps(10, &[]);
    let host = |run: &mut Run, after_ms: f64| {
        run.elapsed_ms += after_ms;
        run.event(EventKind::HostSampled {
            cpu_percent: 1.0,
            memory_used_bytes: 1,
            memory_total_bytes: 1,
            process_memory_bytes: 1,
            process_cpu_percent: 1.0,
            gpus: Vec::new(),
        });
    };
    host(&mut run, 29_000.0);
    assert_eq!(run.active(), [], "a slow tool");
    host(&mut run, 2_000.0);
    assert_eq!(run.active(), [("stalled_lane", "actor_update", 10)]);
    assert_eq!(
        run.message(),
        "nothing has ended for 31.0 s, and the longest of the last steps took 1.00 s; the last thing to end was \
         actor_update of step 10"
    );
    run.span(Lane::Tool, run.elapsed_ms);
    assert_eq!(run.active(), []);
    host(&mut run, 60_000.0);
    run.event(EventKind::RunEnded {
        status: RunStatus::Stopped,
        exit_code: 3,
        reason: String::new(),
        steps: 10,
    });
    assert_eq!(run.active(), [], "an ended run waits for nothing");
}

#[test]
fn what_the_recorder_and_the_loggers_report_is_carried_for_five_minutes_or_until_it_works() {
    let mut run = Run::new();
    run.steps(3, &[]);
    let alarm = |name: &str, message: &str| EventKind::Alarm {
        name: name.to_owned(),
        step: None,
        message: message.to_owned(),
    };
    run.event(alarm("all groups equal", "in step 3"));
    run.event(alarm(
        "logger wandb",
        "the wandb logger fails: no space; it will try again",
    ));
    run.event(alarm(LOST_ALARM, "7 events were lost"));
    let names: Vec<&str> = run.active().iter().map(|found| found.1).collect();
    assert_eq!(names, [LOST_ALARM, "logger wandb"], "the worse first");
    run.event(alarm("logger wandb", "the wandb logger works again"));
    assert_eq!(run.active().len(), 1);
    run.steps(301, &[]);
    assert_eq!(run.active(), []);
}

#[test]
fn looking_once_at_the_end_finds_what_looking_after_each_event_found() {
    let mut run = Run::new();
    run.steps(50, &[]);
    run.steps(9, &[("actor/kl_loss", 0.4), ("actor/pg_clipfrac", 0.5)]);
    run.step(&[("actor/pg_loss", f64::INFINITY)]);
    let mut once = Alarms::new(Limits::default());
    assert!(once.follow(&run.state));
    assert!(!once.follow(&run.state), "nothing is new");
    assert_eq!(once.active(), run.alarms.active());
    assert_eq!(once.active().len(), 3);
}

#[test]
fn a_state_that_was_wound_back_is_looked_at_anew() {
    let mut run = Run::new();
    run.steps(10, &[("actor/pg_clipfrac", 0.5)]);
    let (mut alarms, early) = (Alarms::new(Limits::default()), Run::new());
    alarms.follow(&run.state);
    assert_eq!(alarms.active().len(), 1);
    assert!(alarms.follow(&early.state));
    assert_eq!((alarms.active().len(), alarms.past().len()), (0, 0));
}

#[test]
fn every_threshold_has_a_reason_and_declared_metrics() {
    for threshold in &THRESHOLDS {
        assert!(threshold.reason.len() > 40, "{}", threshold.name);
        for metric in threshold.metrics {
            assert!(crate::metrics::lookup(metric).is_some(), "{metric}");
        }
    }
}

#[test]
fn numbers_have_three_digits() {
    for (value, text) in [
        (0.0, "0"),
        (0.0312, "0.0312"),
        (1.0, "1.00"),
        (12.34, "12.3"),
        (1234.5, "1234"),
        (1e-7, "1.00e-7"),
        (f64::NAN, "NaN"),
    ] {
        assert_eq!(short(value), text);
    }
}

#[test]
fn kl_that_no_policy_survives_is_told_before_its_level_is_known() {
    let mut run = Run::new();
    for _ in 0..12 {
        run.step(&[]);
    }
    assert!(run.alarms.active().is_empty());
    for kl in [6.5, 7.0, 8.0] {
        run.step(&[("actor/ppo_kl", kl)]);
    }
    let found = run
        .alarms
        .active()
        .iter()
        .find(|finding| finding.name == "kl_blow_up");
    let found = found.unwrap_or_else(|| panic!("{:?}", run.alarms.active()));
    assert_eq!(found.since_step, 13);
    assert!(
        found.message.contains("actor/ppo_kl is 8.00 nats"),
        "{}",
        found.message
    );
}

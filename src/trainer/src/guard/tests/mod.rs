use super::*;
use experiment::guards::Action;
use runlog::event::Event;
use runlog::number::Number;

fn guards(yaml: &str, warmup_steps: u64) -> Guards {
    let text = format!("data: {{train_files: a.parquet}}\ntrainer:\n  guards: {yaml}\n");
    let loaded = experiment::from_text("guards.yaml", &text, &[]);
    let wrong: Vec<_> = loaded
        .complaints
        .iter()
        .filter(|complaint| complaint.key == "trainer.guards")
        .filter(|complaint| complaint.severity == experiment::Severity::Error)
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    Guards::new(&loaded.experiment.trainer.guards, warmup_steps)
}

fn step(step: u64, name: &str, value: f64) -> EventKind {
    EventKind::StepEnded {
        step,
        policy_version: step,
        values: [(name.to_owned(), Number(value))].into(),
    }
}

/// Feeds values from step 1 on; gives the steps at which it tripped with the rung.
fn trips(guards: &mut Guards, name: &str, values: &[f64]) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let number = index as u64 + 1;
        for trip in guards.observe(0.0, &step(number, name, *value)) {
            assert_eq!(trip.step, number);
            found.push((number, trip.rung.to_string()));
        }
    }
    found
}

#[test]
fn the_first_step_after_the_warm_up_is_not_judged_and_the_second_is() {
    let yaml = "[{metric: kl, above: 0.02, action: sync}]";
    assert_eq!(
        trips(&mut guards(yaml, 0), "kl", &[9.0, 0.01]),
        [],
        "only the first step is bad"
    );
    assert_eq!(
        trips(&mut guards(yaml, 0), "kl", &[9.0, 9.0]),
        [(2, "sync 1".to_owned())]
    );
    assert_eq!(
        trips(&mut guards(yaml, 3), "kl", &[9.0, 9.0, 9.0, 9.0, 9.0]),
        [(5, "sync 1".to_owned())]
    );
    let told = "[{metric: kl, above: 0.02, after: 0, action: sync}]";
    assert_eq!(trips(&mut guards(told, 0), "kl", &[9.0])[0].0, 1);
}

#[test]
fn the_same_cause_again_climbs_the_ladder_and_a_calm_goes_back_to_its_foot() {
    let yaml = "[{metric: kl, above: 1, cooldown: 1, calm: 3, action: [sync, lower_lr 0.5]}]";
    let values = [0.0, 2.0, 2.0, 2.0, 0.0, 2.0, 0.0, 0.0, 0.0, 2.0];
    assert_eq!(
        trips(&mut guards(yaml, 0), "kl", &values),
        [
            (2, "sync 1".to_owned()),
            (4, "lower_lr 0.5".to_owned()),
            (6, "roll_back last".to_owned()),
            (10, "sync 1".to_owned()),
        ]
    );
}

#[test]
fn accuracy_must_be_down_for_five_rounds_in_a_row_to_go_back_to_the_best() {
    let mut guards = guards("online", 0);
    let mut round = |step: u64, accuracy: f64| {
        guards.observe(
            0.0,
            &EventKind::EvalEnded {
                step,
                policy_version: step,
                samples: 8,
                values: [("val-core/calc/reward/mean@1".to_owned(), Number(accuracy))].into(),
            },
        )
    };
    let mut tripped = Vec::new();
    let accuracies = [
        0.5, 0.9, 0.84, 0.84, 0.84, 0.84, 0.88, 0.84, 0.84, 0.84, 0.84, 0.84,
    ];
    for (index, accuracy) in accuracies.into_iter().enumerate() {
        tripped.extend(round(index as u64 * 10, accuracy));
    }
    assert_eq!(tripped.len(), 1, "{tripped:?}");
    assert_eq!((tripped[0].step, tripped[0].since_step), (110, 70));
    assert_eq!(tripped[0].rung.to_string(), "roll_back best");
    assert!(
        tripped[0]
            .reason
            .contains("more than 0.05 below its best (0.9000)"),
        "{}",
        tripped[0].reason
    );
}

#[test]
fn a_probe_is_judged_by_its_value_before_the_first_step() {
    let mut guards = guards("online", 0);
    let start = EventKind::EvalEnded {
        step: 0,
        policy_version: 0,
        samples: 0,
        values: [("probe/perplexity".to_owned(), Number(2.0))].into(),
    };
    assert_eq!(guards.observe(0.0, &start), []);
    assert_eq!(guards.observe(0.0, &step(1, "probe/perplexity", 9.0)), []);
    assert_eq!(guards.observe(0.0, &step(2, "probe/perplexity", 2.9)), []);
    let tripped = guards.observe(0.0, &step(3, "probe/perplexity", 3.1));
    assert_eq!(tripped.len(), 1);
    assert_eq!(tripped[0].limit, 3.0);
    assert!(matches!(tripped[0].rung.0[..], [Action::RollBack { .. }]));
}

#[test]
fn what_is_not_finite_is_beyond_every_limit_and_a_missing_metric_beyond_none() {
    let yaml = "[{metric: kl, above: 1, action: stop}, {metric: ess, below: 0.1, action: stop}]";
    let mut guards = guards(yaml, 0);
    assert_eq!(guards.observe(0.0, &step(2, "other", f64::NAN)), []);
    assert_eq!(guards.observe(0.0, &step(3, "kl", f64::NAN)).len(), 1);
    assert_eq!(guards.observe(0.0, &step(4, "ess", f64::INFINITY)).len(), 1);
}

#[test]
fn after_a_roll_back_a_streak_begins_anew() {
    let mut guards = guards(
        "[{metric: kl, above: 1, for: 3, cooldown: 0, action: roll_back}]",
        0,
    );
    assert_eq!(trips(&mut guards, "kl", &[0.0, 2.0, 2.0]), []);
    guards.rolled_back(3);
    assert_eq!(guards.observe(0.0, &step(4, "kl", 2.0)), []);
    assert_eq!(guards.observe(0.0, &step(5, "kl", 2.0)), []);
    assert_eq!(guards.observe(0.0, &step(6, "kl", 2.0)).len(), 1);
}

#[test]
fn every_alarm_that_a_guard_may_watch_is_one_that_the_alarm_table_has() {
    for name in experiment::guards::ALARMS {
        assert!(
            runlog::alarms::THRESHOLDS
                .iter()
                .any(|row| row.name == name),
            "{name}"
        );
    }
}

#[test]
fn a_muted_guard_sees_and_does_not_trip_and_acts_at_once_when_it_is_unmuted() {
    let mut guards = guards("[{metric: kl, above: 1, for: 2, action: stop}]", 0);
    let kl =
        |guards: &mut Guards, number, value| guards.observe(0.0, &step(number, "kl", value)).len();
    guards.find("kl").expect("it is there").mute(Some(4));
    assert_eq!(guards.states(1, None)[0].words(), "muted until step 4");
    for number in 2..=4 {
        assert_eq!(kl(&mut guards, number, 9.0), 0, "step {number}");
    }
    assert_eq!(kl(&mut guards, 5, 9.0), 1, "four bad values in a row");
    guards.find("kl").expect("it is there").clear();
    guards.find("kl").expect("it is there").mute(None);
    assert_eq!(guards.states(5, None)[0].words(), "muted");
    assert_eq!(
        (6..90)
            .map(|number| kl(&mut guards, number, 9.0))
            .sum::<usize>(),
        0
    );
    guards.find("kl").expect("it is there").unmute();
    assert_eq!(kl(&mut guards, 90, 9.0), 1);
}

#[test]
fn a_cleared_guard_begins_at_the_foot_of_its_ladder_and_does_not_cool_down() {
    let yaml = "[{metric: kl, above: 1, cooldown: 9, action: [sync, lower_lr 0.5]}]";
    let mut guards = guards(yaml, 0);
    assert_eq!(trips(&mut guards, "kl", &[0.0, 2.0, 2.0]).len(), 1);
    assert_eq!(
        guards.states(3, None)[0].words(),
        "cooling down until step 11"
    );
    guards.find("kl").expect("it is there").clear();
    assert_eq!(guards.trouble(), None);
    let again = guards.observe(0.0, &step(4, "kl", 2.0));
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].rung.to_string(), "sync 1");
    assert_eq!(
        guards.states(4, None)[0].trips,
        2,
        "what happened has happened"
    );
}

#[test]
fn a_guard_tripped_by_hand_does_its_next_rung_and_says_by_whom() {
    let yaml = "[{metric: kl, above: 1, action: [sync, lower_lr 0.5]}]";
    let mut guards = guards(yaml, 0);
    assert_eq!(trips(&mut guards, "kl", &[0.0, 0.25]), []);
    let kl = guards.find("kl").expect("it is there");
    let first = kl.trip_by_hand(2, "ana@laptop");
    assert_eq!(
        (first.rung.to_string(), first.relapse),
        ("sync 1".to_owned(), 0)
    );
    assert_eq!(
        first.reason,
        "tripped by ana@laptop; kl is 0.2500 and its limit 1.0000"
    );
    assert_eq!(first.by.as_deref(), Some("ana@laptop"));
    let second = kl.trip_by_hand(2, "ana@laptop");
    assert_eq!(second.rung.to_string(), "lower_lr 0.5");
}

#[test]
fn the_trouble_of_a_roll_back_began_at_its_first_bad_value_also_when_it_tripped_before() {
    let yaml = "[{metric: kl, above: 1, cooldown: 2, action: [sync, roll_back]}]";
    let mut guards = guards(yaml, 0);
    let mut seen = Vec::new();
    for (number, value) in (1..).zip([0.0, 0.0, 2.0, 2.0, 2.0, 2.0]) {
        for trip in guards.observe(0.0, &step(number, "kl", value)) {
            seen.push((trip.step, trip.since_step, trip.rung.to_string()));
        }
    }
    assert_eq!(
        seen,
        [
            (3, 3, "sync 1".to_owned()),
            (6, 3, "roll_back last".to_owned())
        ],
        "checkpoints of steps 3 to 5 are of the same trouble"
    );
    assert_eq!(guards.trouble(), Some(3));
    guards.rolled_back(2);
    assert_eq!(guards.trouble(), None);
}

#[test]
fn only_a_watched_drop_remembers_what_it_is_measured_from() {
    let yaml = "[{name: a, metric: kl, above: 1, action: stop}, {name: b, metric: kl, drop_points: 1, action: stop}]";
    let mut guards = guards(yaml, 0);
    trips(&mut guards, "kl", &[0.0, 0.5, 0.25]);
    let json = serde_json::to_value(guards.remembered()).expect("plain values");
    assert_eq!(json["a"]["seen"]["best"], serde_json::Value::Null);
    assert_eq!(json["b"]["seen"]["best"], 0.5);
    assert_eq!(json["b"]["seen"]["previous"], serde_json::Value::Null);
}

#[test]
fn a_guard_that_watches_something_else_now_begins_anew() {
    let mut before = guards("[{name: g, metric: kl, above: 1, action: stop}]", 0);
    assert_eq!(trips(&mut before, "kl", &[0.0, 2.0]).len(), 1);
    let saved = before.remembered();
    let trips_of = |yaml: &str| {
        let mut after = guards(yaml, 0);
        after.recall(&saved);
        after.states(2, None)[0].trips
    };
    assert_eq!(
        trips_of("[{name: g, metric: kl, above: 1, action: alert}]"),
        1
    );
    assert_eq!(
        trips_of("[{name: g, metric: kl, above: 2, action: stop}]"),
        0
    );
    assert_eq!(
        trips_of("[{name: g, metric: ess, above: 1, action: stop}]"),
        0
    );
}

mod alarms;
mod model;

//! A guard on an alarm: it sees what the alarm table sees, keeps no more of the run than that, and finds it again after a resume.

use runlog::number::Values;

use super::*;

/// A policy that repeats itself from step 21 on: entropy gone, nothing gained; with a hundred other metrics beside it.
fn collapsing(number: u64) -> EventKind {
    let entropy = if number > 20 { 0.001 } else { 0.3 };
    let mut values: Values = [
        ("actor/entropy".to_owned(), Number(entropy)),
        ("critic/score/mean".to_owned(), Number(0.4)),
        ("critic/score/min".to_owned(), Number(0.0)),
        ("critic/score/max".to_owned(), Number(1.0)),
    ]
    .into();
    for other in 0..100 {
        values.insert(format!("other/{other}"), Number(number as f64));
    }
    EventKind::StepEnded {
        step: number,
        policy_version: number,
        values,
    }
}

const YAML: &str = "[{name: entropy, alarm: entropy_collapse, for: 2, action: alert}]";

fn first_trip(guards: &mut Guards, from: u64) -> u64 {
    (from..60)
        .find(|number| {
            !guards
                .observe(*number as f64, &collapsing(*number))
                .is_empty()
        })
        .expect("the collapse is seen")
}

#[test]
fn a_guard_on_an_alarm_trips_when_it_is_raised_and_keeps_only_what_it_reads() {
    let mut guards = guards(YAML, 0);
    let tripped = first_trip(&mut guards, 1);
    assert!((22..40).contains(&tripped), "{tripped}");
    let alarms = guards.alarms.as_ref().expect("one is watched");
    let kept: Vec<&str> = alarms.kept();
    assert_eq!(
        kept,
        [
            "actor/entropy",
            "critic/score/max",
            "critic/score/mean",
            "critic/score/min"
        ]
    );
}

#[test]
fn an_alarm_goes_on_from_the_run_s_log_after_a_resume() {
    let uninterrupted = first_trip(&mut guards(YAML, 0), 1);
    let events: Vec<Event> = (1..=23)
        .map(|number| Event {
            seq: number - 1,
            elapsed_ms: number as f64,
            kind: collapsing(number),
        })
        .collect();
    let log = RunState::fold(&events);
    let mut resumed = guards(YAML, 0);
    for number in 1..=21 {
        resumed.observe(number as f64, &collapsing(number));
    }
    let saved = resumed.remembered();
    let mut resumed = guards(YAML, 0);
    resumed.recall(&saved);
    // The log went to step 23, the checkpoint is of step 21.
    resumed.recall_alarms(&log, 21);
    assert_eq!(first_trip(&mut resumed, 22), uninterrupted);
}

#[test]
fn after_a_roll_back_an_alarm_no_longer_sees_what_was_left_behind() {
    let mut guards = guards(YAML, 0);
    let tripped = first_trip(&mut guards, 1);
    let raised = |guards: &Guards| {
        let alarms = guards.alarms.as_ref().expect("one is watched");
        alarms.is_raised("entropy_collapse")
    };
    assert!(raised(&guards), "at step {tripped}");
    guards.rolled_back(15);
    assert!(!raised(&guards));
}

//! Any guard under any values: trips are spaced, earned and counted; the same cause escalates until the run stops; and an
//! interruption changes nothing.

use experiment::guards::Action;
use proptest::prelude::*;

use super::*;

fn any_guard() -> impl Strategy<Value = String> {
    let condition = prop::sample::select(vec![
        "above: 1",
        "below: 1",
        "above_baseline: 1.5, baseline: 3",
        "below_baseline: 0.5, baseline: 2",
        "drop_points: 0.5",
        "drop_relative: 0.3, against: previous",
    ]);
    let rung = prop::sample::select(vec![
        "alert",
        "shrink_staleness",
        "sync 2",
        "lower_lr 0.5",
        "roll_back last",
        "roll_back best + lower_lr 0.5",
        "stop",
    ]);
    (
        condition,
        prop::collection::vec(rung, 1..4),
        1..4_u32,
        1..4_u32,
        0..4_u64,
        0..3_u64,
        1..6_u32,
    )
        .prop_map(|(condition, ladder, consecutive, window, cooldown, after, calm)| {
            format!(
                "[{{name: g, metric: m, {condition}, for: {consecutive}, window: {window}, cooldown: {cooldown}, after: {after}, calm: {calm}, action: [{}]}}]",
                ladder.join(", ")
            )
        })
}

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 0.0..3.0_f64,
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
    ]
}

fn goes_back(trip: &Trip) -> bool {
    trip.rung
        .0
        .iter()
        .any(|action| matches!(action, Action::RollBack { .. }))
}

/// As the run does it: after a trip that goes back, what was seen is forgotten.
fn see(guards: &mut Guards, number: u64, value: f64) -> Option<Trip> {
    let mut trips = guards.observe(number as f64, &step(number, "m", value));
    assert!(trips.len() <= 1);
    let trip = trips.pop();
    if trip.as_ref().is_some_and(goes_back) {
        guards.rolled_back(number.saturating_sub(3));
    }
    trip
}

proptest! {
    #[test]
    fn trips_are_spaced_earned_and_counted(yaml in any_guard(), values in prop::collection::vec(any_value(), 1..80)) {
        let mut guards = guards(&yaml, 0);
        let guard = guards.watchers[0].guard.clone();
        let mut last: Option<Trip> = None;
        // Values since the last trip, and the longest run of good ones among them, as the guard's own streak tells.
        let (mut since, mut good, mut most_good) = (0_u64, 0_u32, 0_u32);
        for (number, value) in (1_u64..).zip(values) {
            let trip = see(&mut guards, number, value);
            if number > guard.after {
                since += 1;
                let is_good = trip.is_none() && guards.trouble().is_none();
                good = if is_good { good + 1 } else { 0 };
                most_good = most_good.max(good);
            }
            let Some(trip) = trip else { continue };
            prop_assert!(number > guard.after, "{yaml}: step {number} is not judged");
            prop_assert!(since >= u64::from(guard.consecutive), "{yaml}: {trip:?} after {since} values");
            prop_assert!(trip.since_step <= number);
            prop_assert_eq!(&trip.rung, &guard.rung(trip.relapse));
            if let Some(last) = &last {
                prop_assert!(trip.step > last.step + guard.cooldown, "{yaml}: {} after {}", trip.step, last.step);
                if trip.relapse == 0 {
                    prop_assert!(most_good >= guard.calm, "{yaml}: a first trip again after {most_good} good values");
                } else {
                    prop_assert_eq!(trip.relapse, last.relapse + 1, "{}", yaml);
                }
            } else {
                prop_assert_eq!(trip.relapse, 0);
            }
            last = Some(trip);
            (since, good, most_good) = (0, 0, 0);
        }
    }

    #[test]
    fn a_cause_that_stays_stops_the_run_within_its_ladder_and_six_trips(yaml in any_guard()) {
        let mut guards = guards(&yaml, 0);
        let guard = guards.watchers[0].guard.clone();
        let only_tells = guard.ladder.iter().all(|rung| rung.0 == [Action::Alert]);
        let most_trips = guard.ladder.len() + 6;
        // What is not finite is beyond every limit, and stays so.
        let a_trip_takes = guard.cooldown + u64::from(guard.consecutive) + 1;
        let most = guard.after + a_trip_takes * (most_trips as u64 + 1);
        let mut count = 0;
        let stopped = (1..=most).find(|number| {
            let trip = see(&mut guards, *number, f64::NAN);
            count += usize::from(trip.is_some());
            trip.is_some_and(|trip| trip.rung.0.contains(&Action::Stop))
        });
        if only_tells {
            prop_assert_eq!(stopped, None, "{}", yaml);
            prop_assert!(count > guard.ladder.len(), "it goes on telling");
        } else if guard.rung(most_trips).0 != [Action::Alert] {
            prop_assert!(stopped.is_some(), "{yaml}: {count} trips in {most} steps");
            prop_assert!(count <= most_trips, "{yaml}: {count} trips");
        }
    }

    #[test]
    fn an_interruption_at_any_step_changes_no_trip(
        yaml in any_guard(), values in prop::collection::vec(any_value(), 2..60), at in 0.0..1.0_f64,
    ) {
        let mut whole = guards(&yaml, 0);
        let mut part = guards(&yaml, 0);
        let cut = (values.len() as f64 * at) as u64;
        for (number, value) in (1_u64..).zip(values) {
            if number == cut {
                let json = serde_json::to_string(&part.remembered()).expect("plain values");
                part = guards(&yaml, 0);
                part.recall(&serde_json::from_str(&json).expect("what was written"));
            }
            let (left, right) = (see(&mut whole, number, value), see(&mut part, number, value));
            prop_assert_eq!(format!("{left:?}"), format!("{right:?}"), "{}", yaml);
        }
    }
}

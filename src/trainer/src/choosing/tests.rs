use ::bandit::{PolicyName, Posterior};
use experiment::arms::Arm;
use experiment::scorers::ScorerName;
use proptest::prelude::*;

use super::*;
use crate::groups::tests::group;

const ARMS: [&str; 3] = ["good", "bad", "judge"];

/// Two arms to choose between, and a held-out judge.
fn experiment(rewarded_by: RewardedBy, steps_per_pull: u32) -> Experiment {
    let mut experiment = Experiment::default();
    experiment.data.train_batch_size = 2;
    experiment.actor_rollout_ref.rollout.n = 2;
    let reward = &mut experiment.reward;
    reward.arms = ARMS
        .iter()
        .map(|name| Arm::new(*name, ScorerName::Exact))
        .collect();
    reward.arms[1].weight = 2.0;
    reward.arms[2].weight = 0.0;
    let bandit = &mut reward.bandit;
    bandit.policy = Some(PolicyName::Thompson);
    bandit.rewarded_by = rewarded_by;
    bandit.steps_per_pull = steps_per_pull;
    bandit.update_every = 1;
    bandit.posterior = Posterior::Gaussian;
    bandit.prior_mean = 0.0;
    bandit.prior_sd = 0.05;
    experiment
}

fn choosing(rewarded_by: RewardedBy, steps_per_pull: u32, total_steps: u64) -> Choosing {
    Choosing::new(&experiment(rewarded_by, steps_per_pull), total_steps)
        .expect("the settings are right")
        .expect("the policy learns")
}

fn batch() -> Vec<Rollout> {
    let mut rollouts = [
        group("a", [Some(9.0), Some(9.0)]),
        group("b", [Some(9.0), Some(9.0)]),
    ]
    .concat();
    for (rollout, score) in rollouts.iter_mut().zip([0.0, 1.0, 2.0, 3.0]) {
        for (arm, sign) in ARMS.iter().zip([1.0, -1.0, 5.0]) {
            rollout.score_parts.insert(part(arm), sign * score);
        }
    }
    rollouts
}

fn arm_of(event: Option<EventKind>) -> Option<String> {
    match event? {
        EventKind::BanditChose { arm, .. } => arm,
        other => panic!("{other:?}"),
    }
}

fn probed(version: u64, accuracy: f64) -> Probed {
    Probed {
        version,
        rewinds: 0,
        accuracy,
    }
}

/// A step of a run whose batches lag `lag` versions: what is due is learned, the arm chosen, the step trained.
fn step(choosing: &mut Choosing, step: u64, lag: u64) -> (Vec<EventKind>, Option<String>) {
    let limit = (step - 1).saturating_sub(lag);
    assert!(!choosing.awaits(step, limit), "step {step}");
    let events = choosing.learn(limit, step - 1).expect("it learns");
    let event = choosing
        .choose(step, &mut batch(), None)
        .expect("it chooses");
    choosing.trained(step, Some(0.5));
    (events, arm_of(event))
}

fn counted(choosing: &Choosing) -> u64 {
    choosing.standing().iter().map(|arm| arm.counted).sum()
}

#[test]
fn the_chosen_arms_score_times_its_weight_is_the_rollouts_and_a_held_out_judge_is_never_chosen() {
    let mut choosing = choosing(RewardedBy::NegativeLoss, 1, 200);
    for at in 1..=200 {
        choosing.learn(at - 1, at - 1).expect("it learns");
        let mut rollouts = batch();
        let event = choosing
            .choose(at, &mut rollouts, None)
            .expect("it chooses");
        let scores: Vec<f64> = rollouts
            .iter()
            .filter_map(|rollout| rollout.score)
            .collect();
        match arm_of(event).as_deref() {
            Some("good") => assert_eq!(scores, [0.0, 1.0, 2.0, 3.0]),
            Some("bad") => assert_eq!(scores, [0.0, -2.0, -4.0, -6.0]),
            other => panic!("{other:?}"),
        }
        choosing.trained(at, Some(0.0));
    }
}

#[test]
fn what_length_costs_stays_a_greedy_baseline_is_the_arms_own_and_a_missing_score_is_none() {
    let arm = Candidate {
        name: "good".to_owned(),
        weight: 2.0,
    };
    let mut rollouts = batch();
    let parts = &mut rollouts[1].score_parts;
    parts.insert(OVERLONG_PENALTY.to_owned(), -0.25);
    parts.insert(GREEDY_BASELINE.to_owned(), 7.0);
    parts.insert(format!("{GREEDY_BASELINE}/arm/good"), 0.5);
    score_by(&mut rollouts[1], &arm);
    assert_eq!(rollouts[1].score, Some(2.0 - 0.25));
    assert_eq!(rollouts[1].score_parts[GREEDY_BASELINE], 1.0);

    rollouts[2].score_parts.remove("arm/good");
    rollouts[2]
        .score_parts
        .insert(GREEDY_BASELINE.to_owned(), 7.0);
    score_by(&mut rollouts[2], &arm);
    assert_eq!(rollouts[2].score, None);
    assert!(!rollouts[2].score_parts.contains_key(GREEDY_BASELINE));
    assert_eq!(
        rollouts[2].score_error.as_deref(),
        Some("the arm that was chosen, good, gave no score")
    );
}

#[test]
fn a_pull_brings_what_the_probe_gained_over_its_steps_and_nothing_before_its_probes_are_there() {
    let mut choosing = choosing(RewardedBy::ProbeGain, 2, 100);
    choosing.take(probed(0, 0.5), 0);
    let (_, first) = step(&mut choosing, 1, 0);
    assert!(first.is_some());
    let (_, second) = step(&mut choosing, 2, 0);
    assert_eq!(second, None, "the pull goes on");
    assert!(
        choosing.awaits(3, 2),
        "version 2 ends it, and is not probed yet"
    );
    assert!(!choosing.awaits(3, 1));
    assert_eq!(choosing.learn(2, 2).expect("it learns"), []);

    choosing.take(probed(2, 0.75), 0);
    assert!(!choosing.awaits(3, 2));
    let events = choosing.learn(2, 2).expect("it learns");
    let [
        EventKind::BanditUpdated {
            update: 1, arms, ..
        },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    let arm = arms.iter().find(|arm| Some(&arm.name) == first.as_ref());
    assert_eq!(arm.map(|arm| arm.counted), Some(1));
    assert_eq!(
        choosing
            .bandit
            .arms()
            .iter()
            .map(|arm| arm.all.sum)
            .sum::<f64>(),
        0.25
    );
    let mut values = StepValues::default();
    choosing.rows(&mut values);
    assert_eq!(values.0["bandit/value"], Number(0.25));
    assert_eq!(values.0["bandit/probe/accuracy"], Number(0.75));
}

#[test]
fn a_pull_does_not_begin_before_it_is_known_how_good_the_policy_is_then() {
    let mut choosing = choosing(RewardedBy::ProbeGain, 2, 100);
    assert!(
        choosing.awaits(1, 0),
        "else a checkpoint would have a pull without its beginning"
    );
    assert!(choosing.begins_with(0));
    choosing.take(probed(0, 0.5), 0);
    assert!(!choosing.awaits(1, 0) && !choosing.begins_with(0));
    step(&mut choosing, 1, 0);
    // In mid-pull another process has the beginning in what was saved.
    let mut resumed = self::choosing(RewardedBy::ProbeGain, 2, 100);
    resumed
        .resume(choosing.save(), 1)
        .expect("the same experiment");
    assert!(!resumed.begins_with(1) && !resumed.awaits(2, 1));
    // Between two pulls it is where one ended, and where the next begins.
    step(&mut resumed, 2, 0);
    assert!(resumed.begins_with(2) && resumed.awaits(3, 2));
    resumed.take(probed(2, 0.6), 0);
    assert!(!resumed.awaits(3, 2));
}

#[test]
fn where_batches_lag_a_choice_waits_for_no_newer_probe_than_the_lag_allows() {
    let mut choosing = choosing(RewardedBy::ProbeGain, 1, 100);
    choosing.take(probed(0, 0.5), 0);
    step(&mut choosing, 1, 1);
    // Version 1 ends the first pull; its probe is not needed, and not looked at, before step 3.
    choosing.take(probed(1, 0.6), 0);
    let (events, _) = step(&mut choosing, 2, 1);
    assert_eq!(events, []);
    let (events, _) = step(&mut choosing, 3, 1);
    assert_eq!(events.len(), 1);
}

#[test]
fn the_last_step_ends_a_pull_and_one_whose_probe_was_cut_short_counts_for_nothing() {
    let mut choosing = choosing(RewardedBy::ProbeGain, 10, 3);
    choosing.take(probed(0, 0.5), 0);
    for at in 1..=3 {
        step(&mut choosing, at, 0);
    }
    choosing.take(probed(3, f64::NAN), 0);
    assert!(!choosing.awaits(4, 3));
    choosing.learn(3, 3).expect("it learns");
    assert_eq!(counted(&choosing), 0);
    assert_eq!(
        choosing
            .standing()
            .iter()
            .map(|arm| arm.missing)
            .sum::<u64>(),
        1
    );
}

#[test]
fn a_pull_most_of_whose_answers_were_late_counts_and_is_marked() {
    let mut choosing = choosing(RewardedBy::NegativeLoss, 1, 100);
    let mut late = batch();
    for rollout in late.iter_mut().take(3) {
        for arm in ARMS {
            rollout
                .score_parts
                .insert(format!("{}/timed_out", part(arm)), 1.0);
        }
    }
    choosing.choose(1, &mut late, None).expect("it chooses");
    choosing.trained(1, Some(0.25));
    choosing.learn(1, 1).expect("it learns");
    let arms = choosing.standing();
    assert_eq!(
        arms.iter()
            .map(|arm| (arm.counted, arm.timed_out))
            .fold((0, 0), |(a, b), (c, d)| (a + c, b + d)),
        (1, 1)
    );
}

#[test]
fn an_arm_that_gave_no_score_at_all_brings_nothing() {
    let mut choosing = choosing(RewardedBy::NegativeLoss, 1, 100);
    let mut silent = batch();
    for rollout in &mut silent {
        for arm in ARMS {
            rollout.score_parts.remove(&part(arm));
            rollout
                .score_parts
                .insert(format!("{}/missing", part(arm)), 1.0);
        }
    }
    choosing.choose(1, &mut silent, None).expect("it chooses");
    choosing.trained(1, None);
    choosing.learn(1, 1).expect("it learns");
    assert_eq!(
        choosing
            .standing()
            .iter()
            .map(|arm| arm.missing)
            .sum::<u64>(),
        1
    );
}

#[test]
fn after_a_rewind_pulls_count_on_what_was_believed_then_is_believed_and_left_versions_count_nothing()
 {
    let mut choosing = choosing(RewardedBy::ProbeGain, 1, 100);
    choosing.take(probed(0, 0.5), 0);
    step(&mut choosing, 1, 0);
    choosing.take(probed(1, 0.6), 0);
    step(&mut choosing, 2, 0);
    let saved = choosing.save();
    choosing.take(probed(2, 0.1), 0);
    step(&mut choosing, 3, 0);
    choosing.freeze("bad", true).expect("another is free");
    assert_eq!(counted(&choosing), 2);

    choosing.rewind(Some(saved), 3).expect("it goes back");
    assert_eq!(counted(&choosing), 1);
    assert_eq!(choosing.bandit.state().pulls, 3);
    assert!(choosing.standing()[1].is_frozen);
    choosing.take(probed(3, 0.9), 0);
    choosing.take(
        Probed {
            rewinds: 1,
            ..probed(3, 0.55)
        },
        1,
    );
    let (_, arm) = step(&mut choosing, 4, 0);
    assert_eq!(arm.as_deref(), Some("good"), "the other is frozen");
    choosing.take(
        Probed {
            rewinds: 1,
            ..probed(4, 0.65)
        },
        1,
    );
    choosing.learn(4, 4).expect("it learns");
    let mut values = StepValues::default();
    choosing.rows(&mut values);
    assert!((values.0["bandit/value"].0 - 0.1).abs() < 1e-12);
}

#[test]
fn what_somebody_forces_or_freezes_holds_from_the_next_pull_and_one_arm_always_stays_free() {
    let mut choosing = choosing(RewardedBy::NegativeLoss, 2, 100);
    let (_, first) = step(&mut choosing, 1, 0);
    let other = ARMS[..2].iter().find(|arm| Some(**arm) != first.as_deref());
    let other = *other.expect("there are two");
    choosing.force(other).expect("it is an arm");
    assert_eq!(
        (choosing.next_choice(1), choosing.forced()),
        (3, Some(other))
    );
    assert_eq!(step(&mut choosing, 2, 0).1, None, "the pull keeps its arm");
    assert_eq!(choosing.next_choice(2), 3);
    assert_eq!(step(&mut choosing, 3, 0).1.as_deref(), Some(other));
    choosing.release();
    choosing.freeze(other, true).expect("another is free");
    step(&mut choosing, 4, 0);
    for at in [5, 7, 9] {
        assert_eq!(step(&mut choosing, at, 0).1, first);
        step(&mut choosing, at + 1, 0);
    }
    let last = first.expect("it was chosen");
    let error = choosing
        .freeze(&last, true)
        .expect_err("none would be left");
    assert!(error.to_string().contains(&last), "{error}");
    assert!(
        choosing.force("judge").is_err(),
        "a held-out judge is no arm of the bandit"
    );
}

#[test]
fn a_run_without_a_policy_that_learns_has_nothing_to_choose() {
    for policy in [None, Some(PolicyName::Fixed), Some(PolicyName::Ensemble)] {
        let mut experiment = experiment(RewardedBy::ProbeGain, 1);
        experiment.reward.bandit.policy = policy;
        experiment.reward.bandit.fixed_arm = Some("good".to_owned());
        assert!(Choosing::new(&experiment, 10).expect("right").is_none());
    }
}

#[test]
fn as_many_rollouts_as_an_update_wants_make_one_and_fewer_wait_for_the_next_pull() {
    let mut experiment = experiment(RewardedBy::NegativeLoss, 1);
    // A pull is 4 rollouts.
    for (update_every, pulls_an_update) in [(1, 1), (4, 1), (5, 2), (10, 3)] {
        experiment.reward.bandit.update_every = update_every;
        let choosing = Choosing::new(&experiment, 10)
            .expect("right")
            .expect("it learns");
        assert_eq!(choosing.bandit.settings().update_every, pulls_an_update);
    }
}

/// The probe of a policy that arm "good" teaches and "bad" spoils, with an error of its own.
fn accuracy(history: &[bool], noise: f64) -> f64 {
    let skill: i32 = history.iter().map(|good| if *good { 1 } else { -1 }).sum();
    0.5 + 0.02 * f64::from(skill) + 0.02 * noise
}

#[test]
fn the_arm_under_which_the_probe_gains_is_chosen_more_and_more() {
    let mut choosing = choosing(RewardedBy::ProbeGain, 1, 60);
    let mut history = Vec::new();
    choosing.take(probed(0, 0.5), 0);
    for at in 1..=60 {
        let (_, arm) = step(&mut choosing, at, 0);
        history.push(arm.as_deref() == Some("good"));
        let noise = (at as f64 * 2.399).sin();
        choosing.take(probed(at, accuracy(&history, noise)), 0);
    }
    let late = history[30..].iter().filter(|good| **good).count();
    assert!(late >= 27, "{late} of the last 30: {history:?}");
}

proptest! {
    #[test]
    fn a_run_that_was_cut_anywhere_chooses_as_if_it_had_not_been(
        cut in 1_u64..40,
        steps_per_pull in 1_u32..5,
        noise in prop::collection::vec(-1.0_f64..1.0, 41),
    ) {
        let run = |cut: Option<u64>| {
            let mut choosing = choosing(RewardedBy::ProbeGain, steps_per_pull, 40);
            let mut history = Vec::new();
            let mut arm = None;
            let is_probed = |version: u64| version.is_multiple_of(u64::from(steps_per_pull));
            choosing.take(probed(0, accuracy(&history, noise[0])), 0);
            for at in 1..=40 {
                arm = step(&mut choosing, at, 0).1.or(arm);
                history.push(arm.as_deref() == Some("good"));
                if cut == Some(at) {
                    // The checkpoint of step `at` is written before its version is probed.
                    let saved = serde_json::to_string(&choosing.save()).expect("it is plain data");
                    choosing = self::choosing(RewardedBy::ProbeGain, steps_per_pull, 40);
                    let saved = serde_json::from_str(&saved).expect("it reads what it wrote");
                    choosing.resume(saved, at).expect("the same experiment");
                }
                if is_probed(at) || cut == Some(at) {
                    choosing.take(probed(at, accuracy(&history, noise[at as usize])), 0);
                }
            }
            choosing.learn(40, 40).expect("it learns");
            (history, choosing.bandit)
        };
        let (whole, resumed) = (run(None), run(Some(cut)));
        prop_assert_eq!(whole.0, resumed.0);
        prop_assert_eq!(whole.1.state(), resumed.1.state());
    }
}

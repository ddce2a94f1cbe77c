//! What holds for any settings and any outcomes.

use bandit::{
    Bandit, BanditError, Choice, Context, Learned, Outcome, PolicyName, Posterior, Settings, State,
    Why,
};
use proptest::prelude::*;

const DIMENSIONS: usize = 3;

fn names(count: usize) -> Vec<String> {
    (0..count).map(|arm| format!("judge-{arm}")).collect()
}

fn settings() -> impl Strategy<Value = Settings> {
    let policy = prop::sample::select(vec![
        PolicyName::Thompson,
        PolicyName::Ucb1,
        PolicyName::KlUcb,
        PolicyName::EpsilonGreedy,
        PolicyName::Linucb,
        PolicyName::Fixed,
        PolicyName::Ensemble,
    ]);
    (
        policy,
        1_u32..8,
        prop::sample::select(vec![1.0, 0.99, 0.5]),
        any::<bool>(),
        (0.0..=1.0_f64, 0.5..=1.0_f64, 0.0..=1.0_f64),
        prop::sample::select(vec![None, Some([0.2, 0.8]), Some([0.0, 1.0])]),
    )
        .prop_map(
            |(
                policy,
                update_every,
                discount,
                is_gaussian,
                (epsilon, epsilon_decay, floor),
                quantiles,
            )| Settings {
                policy,
                update_every,
                discount,
                posterior: if is_gaussian {
                    Posterior::Gaussian
                } else {
                    Posterior::Beta
                },
                epsilon,
                epsilon_decay,
                epsilon_floor: floor * epsilon,
                quantiles,
                fixed_arm: Some("judge-1".to_owned()),
                ..Settings::default()
            },
        )
}

/// Values that scorers really give, and some that they should not.
fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        6 => prop::sample::select(vec![0.0, 1.0, 0.5, 1e-300, -3.0, 7.5, 1e12]).prop_map(Outcome::Value),
        6 => (0.0..=1.0_f64).prop_map(Outcome::Value),
        1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY]).prop_map(Outcome::Value),
        1 => Just(Outcome::TimedOut { default: 0.25 }),
        1 => Just(Outcome::Missing),
    ]
}

fn context(step: u64) -> Context {
    let values = (0..DIMENSIONS as u64)
        .map(|i| ((step * 7 + i * 13) as f64).sin())
        .collect();
    Context::unit(values).unwrap()
}

/// Plays the outcomes and gives the choices; `late` pulls get theirs only after that many more.
fn play(bandit: &mut Bandit, outcomes: &[Outcome], late: usize) -> Vec<Choice> {
    let mut open = Vec::new();
    let mut choices = Vec::new();
    for (step, outcome) in outcomes.iter().enumerate() {
        let pull = bandit.choose(Some(&context(step as u64))).unwrap();
        choices.push(pull.choice);
        open.push((pull.number, *outcome));
        if open.len() > late {
            let (number, outcome) = open.remove(0);
            bandit.learn(number, outcome).unwrap();
        }
    }
    choices
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn every_choice_is_a_legal_arm_and_no_number_is_a_nan(
        settings in settings(), count in 2_usize..6, seed: u64,
        outcomes in prop::collection::vec(outcome(), 1..80), frozen in prop::option::of(0_usize..6),
    ) {
        let names = names(count);
        let mut bandit = Bandit::new(settings.clone(), &names, seed).unwrap();
        let frozen = frozen.filter(|arm| *arm < count);
        if let Some(arm) = frozen {
            bandit.freeze(&names[arm], true).unwrap();
        }
        for (step, outcome) in outcomes.iter().enumerate() {
            let context = context(step as u64);
            let pull = bandit.choose(Some(&context)).unwrap();
            match &pull.choice {
                Choice::One(arm) => {
                    prop_assert!(*arm < count);
                    prop_assert!(Some(*arm) != frozen || settings.policy == PolicyName::Fixed);
                }
                Choice::Blend(weights) => {
                    prop_assert_eq!(weights.len(), count);
                    prop_assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
                }
            }
            prop_assert!(pull.scores.iter().all(|score| !score.is_nan()), "{:?}", pull);
            prop_assert!(pull.propensity.is_none_or(|p| p > 0.0 && p <= 1.0), "{:?}", pull);
            bandit.learn(pull.number, *outcome).unwrap();
            for belief in bandit.beliefs(Some(&context)) {
                prop_assert!(belief.mean.is_none_or(f64::is_finite), "{:?}", belief);
                prop_assert!(belief.sd.is_none_or(|sd| sd.is_finite() && sd >= 0.0), "{:?}", belief);
            }
            prop_assert!(bandit.epsilon() >= settings.epsilon_floor);
            prop_assert!(bandit.regret().is_none_or(|regret| regret.total >= 0.0 && regret.total.is_finite()));
        }
        if let Some(chances) = bandit.chances() {
            prop_assert!((chances.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{:?}", chances);
            prop_assert!(chances.iter().all(|chance| (0.0..=1.0).contains(chance)), "{:?}", chances);
        }
    }

    #[test]
    fn a_state_survives_being_written_and_goes_on_as_if_nothing_had_happened(
        settings in settings(), seed: u64, late in 0_usize..6,
        before in prop::collection::vec(outcome(), 0..50), after in prop::collection::vec(outcome(), 1..50),
    ) {
        let names = names(3);
        let mut bandit = Bandit::new(settings.clone(), &names, seed).unwrap();
        play(&mut bandit, &before, late);
        let text = serde_json::to_string(bandit.state()).unwrap();
        let state: State = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&state, bandit.state());
        let mut resumed = Bandit::resume(settings, &names, state).unwrap();
        prop_assert_eq!(&resumed, &bandit);
        prop_assert_eq!(play(&mut resumed, &after, late), play(&mut bandit, &after, late));
        prop_assert_eq!(resumed.state(), bandit.state());
    }

    #[test]
    fn the_same_seed_chooses_the_same_and_a_discount_of_1_forgets_nothing(
        settings in settings(), seed: u64, outcomes in prop::collection::vec(outcome(), 1..60),
    ) {
        let settings = Settings { discount: 1.0, ..settings };
        let mut bandit = Bandit::new(settings.clone(), &names(3), seed).unwrap();
        let choices = play(&mut bandit, &outcomes, 0);
        let mut again = Bandit::new(settings, &names(3), seed).unwrap();
        prop_assert_eq!(play(&mut again, &outcomes, 0), choices);
        for arm in bandit.arms() {
            prop_assert_eq!(arm.recent.weight, arm.counted as f64);
            prop_assert_eq!(arm.all.weight, arm.counted as f64);
        }
    }

    /// Values without ties, and each arm seen before it is compared: the order of the arms decides nothing then.
    #[test]
    fn arms_in_another_order_are_chosen_in_that_order(
        is_gaussian: bool, policy in prop::sample::select(vec![PolicyName::Thompson, PolicyName::Ucb1, PolicyName::KlUcb, PolicyName::Linucb]),
        seed: u64, values in prop::collection::vec(0.0..0.9_f64, 40), order in Just(vec![0_usize, 1, 2, 3]).prop_shuffle(),
    ) {
        let settings = Settings {
            update_every: 1,
            posterior: if is_gaussian { Posterior::Gaussian } else { Posterior::Beta },
            ..Settings::of(policy)
        };
        let names = names(4);
        let shuffled: Vec<String> = order.iter().map(|arm| names[*arm].clone()).collect();
        let run = |names: &[String]| {
            let mut bandit = Bandit::new(settings.clone(), names, seed).unwrap();
            let mut chosen = Vec::new();
            for (step, value) in values.iter().enumerate() {
                // The first pulls by name, so that both orders know the same of each arm.
                if step < 4 {
                    bandit.force(&format!("judge-{step}")).unwrap();
                } else {
                    bandit.release();
                }
                let pull = bandit.choose(Some(&context(step as u64))).unwrap();
                let arm = pull.choice.arm().unwrap();
                chosen.push(names[arm].clone());
                // What an arm gives depends on its name, not on its place.
                let own: f64 = names[arm].bytes().last().map_or(0.0, |digit| f64::from(digit - b'0') * 0.013);
                bandit.learn(pull.number, Outcome::Value(value + own)).unwrap();
            }
            chosen
        };
        prop_assert_eq!(run(&names), run(&shuffled));
    }

    #[test]
    fn the_chances_of_thompson_are_how_often_it_draws_each_arm(
        is_gaussian: bool, values in prop::collection::vec((0_usize..3, 0.0..=1.0_f64), 0..40),
    ) {
        let settings = Settings {
            update_every: 1,
            posterior: if is_gaussian { Posterior::Gaussian } else { Posterior::Beta },
            ..Settings::default()
        };
        let mut bandit = Bandit::new(settings, &names(3), 9).unwrap();
        for (arm, value) in values {
            bandit.force(&format!("judge-{arm}")).unwrap();
            let pull = bandit.choose(None).unwrap();
            bandit.learn(pull.number, Outcome::Value(value)).unwrap();
        }
        bandit.release();
        let chances = bandit.chances().unwrap();
        let mut counts = [0.0; 3];
        for _ in 0..2000 {
            counts[bandit.choose(None).unwrap().choice.arm().unwrap()] += 1.0;
        }
        for (chance, count) in chances.iter().zip(counts) {
            // Five standard errors of a share over 2,000 draws, and the trapezoids' own 0.3 %.
            let error = (chance * (1.0 - chance) / 2000.0_f64).sqrt();
            prop_assert!((chance - count / 2000.0).abs() < 5.0 * error + 3e-3, "{:?} {:?}", chances, counts);
        }
    }
}

fn bandit(settings: Settings) -> Bandit {
    Bandit::new(settings, &names(3), 1).unwrap()
}

#[test]
fn a_timed_out_pull_counts_with_the_default_and_is_marked_and_a_missing_one_does_not_count() {
    let mut bandit = bandit(Settings {
        update_every: 2,
        ..Settings::of(PolicyName::Ucb1)
    });
    let mut give = |outcome| {
        let pull = bandit.choose(None).unwrap();
        bandit.learn(pull.number, outcome).unwrap()
    };
    assert_eq!(
        give(Outcome::TimedOut { default: 0.25 }),
        Learned::Waiting { outcomes_left: 1 }
    );
    assert_eq!(give(Outcome::Missing), Learned::Missing);
    assert_eq!(give(Outcome::Value(f64::NAN)), Learned::Missing);
    assert_eq!(give(Outcome::Value(1.0)), Learned::Updated { updates: 1 });
    let arms = bandit.arms();
    assert_eq!((arms[0].counted, arms[0].timed_out), (2, 1));
    assert_eq!(arms[0].all.mean(), Some(0.625));
    assert_eq!((arms[1].counted, arms[1].missing), (0, 1));
    assert_eq!((arms[2].counted, arms[2].missing), (0, 1));
}

#[test]
fn a_late_answer_is_dropped_and_counted_and_a_pull_that_never_was_is_an_error() {
    let mut bandit = bandit(Settings::default());
    let pull = bandit.choose(None).unwrap();
    bandit.learn(pull.number, Outcome::Missing).unwrap();
    assert_eq!(
        bandit.learn(pull.number, Outcome::Value(1.0)),
        Ok(Learned::Late)
    );
    assert_eq!(bandit.state().late, 1);
    assert_eq!(
        bandit.learn(7, Outcome::Value(1.0)),
        Err(BanditError::UnknownPull { pull: 7, next: 1 })
    );
}

#[test]
fn a_forced_arm_is_always_chosen_and_learns_and_a_frozen_one_never_is() {
    let mut bandit = bandit(Settings {
        update_every: 1,
        ..Settings::default()
    });
    bandit.force("judge-2").unwrap();
    for _ in 0..5 {
        let pull = bandit.choose(None).unwrap();
        assert_eq!((pull.choice, pull.why), (Choice::One(2), Why::Forced));
        bandit.learn(pull.number, Outcome::Value(1.0)).unwrap();
    }
    bandit.release();
    bandit.freeze("judge-2", true).unwrap();
    for _ in 0..50 {
        assert_ne!(bandit.choose(None).unwrap().choice, Choice::One(2));
    }
    assert_eq!(bandit.arms()[2].counted, 5);
    bandit.freeze("judge-1", true).unwrap();
    assert_eq!(bandit.choose(None).unwrap().why, Why::OnlyOne);
    let last = bandit.freeze("judge-0", true).unwrap_err();
    assert_eq!(
        last.to_string(),
        "\"judge-0\" is the last arm that is not frozen; free another one first"
    );
    assert_eq!(
        bandit.force("nobody").unwrap_err().to_string(),
        "there is no arm \"nobody\"; the arms are judge-0, judge-1, judge-2"
    );
    bandit.freeze("judge-2", false).unwrap();
    assert!((0..50).any(|_| bandit.choose(None).unwrap().choice == Choice::One(2)));
}

#[test]
fn a_discount_follows_an_arm_that_changes_and_no_discount_takes_far_longer() {
    let settled = |discount| {
        let mut bandit = bandit(Settings {
            discount,
            update_every: 1,
            ..Settings::default()
        });
        for step in 0..2300 {
            let pull = bandit.choose(None).unwrap();
            let best = if step < 2000 { 0 } else { 2 };
            let value = if pull.choice == Choice::One(best) {
                0.9
            } else {
                0.4
            };
            bandit.learn(pull.number, Outcome::Value(value)).unwrap();
        }
        (0..500)
            .filter(|_| bandit.choose(None).unwrap().choice == Choice::One(2))
            .count()
    };
    let (with, without) = (settled(0.98), settled(1.0));
    assert!(with > 400 && without < 100, "{with} {without}");
}

#[test]
fn linucb_wants_a_context_and_always_as_long_a_one() {
    let mut bandit = bandit(Settings::of(PolicyName::Linucb));
    assert_eq!(bandit.choose(None), Err(BanditError::NoContext));
    bandit.choose(Some(&context(0))).unwrap();
    let longer = Context::new(vec![0.0; 5]).unwrap();
    assert_eq!(
        bandit.choose(Some(&longer)).unwrap_err().to_string(),
        "the context has 5 dimensions; expected 3, as the first one had"
    );
    assert_eq!(bandit.state().pulls, 1);
}

#[test]
fn equal_values_leave_linucb_unharmed() {
    // Where the authors' own class divides by zero, and then plays the first arm for ever.
    let mut bandit = bandit(Settings {
        update_every: 1,
        alpha: 1.0,
        ..Settings::of(PolicyName::Linucb)
    });
    // All on one side of a plane, so that a linear model can say of an arm that it is good everywhere.
    let slanted = |step: u64| {
        Context::unit(vec![
            1.0,
            0.3 * (step as f64).sin(),
            0.3 * (step as f64).cos(),
        ])
        .unwrap()
    };
    for step in 0..20 {
        let pull = bandit.choose(Some(&slanted(step))).unwrap();
        bandit.learn(pull.number, Outcome::Value(0.5)).unwrap();
    }
    let played: Vec<usize> = (20..60)
        .map(|step| {
            let pull = bandit.choose(Some(&slanted(step))).unwrap();
            let arm = pull.choice.arm().unwrap();
            bandit
                .learn(
                    pull.number,
                    Outcome::Value(if arm == 2 { 0.9 } else { 0.1 }),
                )
                .unwrap();
            arm
        })
        .collect();
    assert!(played[20..].iter().all(|arm| *arm == 2), "{played:?}");
}

#[test]
fn settings_and_states_that_do_not_fit_are_refused_in_words() {
    let refused = |settings: Settings| Bandit::new(settings, &names(3), 0).unwrap_err().to_string();
    let base = Settings::default();
    assert_eq!(
        refused(Settings {
            update_every: 0,
            ..base.clone()
        }),
        "update_every is 0; expected a whole number from 1 on"
    );
    assert_eq!(
        refused(Settings {
            discount: 0.0,
            ..base.clone()
        }),
        "discount is 0; expected 0 < discount <= 1"
    );
    assert_eq!(
        refused(Settings {
            value_range: [1.0, 1.0],
            ..base.clone()
        }),
        "value_range is [1, 1]; expected two numbers, the first below the second"
    );
    assert_eq!(
        refused(Settings {
            epsilon_floor: 0.5,
            ..Settings::of(PolicyName::EpsilonGreedy)
        }),
        "epsilon_floor is 0.5; expected at most epsilon, which is 0.2"
    );
    assert_eq!(
        refused(Settings {
            fixed_arm: Some("x".to_owned()),
            ..Settings::of(PolicyName::Fixed)
        }),
        "fixed_arm is \"x\"; expected one of judge-0, judge-1, judge-2"
    );
    assert_eq!(
        refused(Settings {
            weights: vec![1.0],
            ..Settings::of(PolicyName::Ensemble)
        }),
        "weights are 1; expected one an arm, which is 3"
    );
    let twice = ["a".to_owned(), "a".to_owned()];
    assert_eq!(
        Bandit::new(base.clone(), &twice, 0)
            .unwrap_err()
            .to_string(),
        "two arms are called a; give one another name"
    );
    let state = bandit(base).state().clone();
    let other =
        Bandit::resume(Settings::of(PolicyName::Ucb1), &names(3), state.clone()).unwrap_err();
    assert_eq!(
        other.to_string(),
        "this state of a bandit does not fit: it belongs to policy thompson, and the settings say ucb1"
    );
    let newer = State {
        version: 2,
        ..state.clone()
    };
    assert!(Bandit::resume(Settings::default(), &names(3), newer).is_err());
    assert!(Bandit::resume(Settings::default(), &names(2), state.clone()).is_err());
    let torn = State {
        forced: Some(3),
        ..state
    };
    assert!(Bandit::resume(Settings::default(), &names(3), torn).is_err());
}

#[test]
fn an_ensemble_blends_by_its_weights_and_a_frozen_arm_has_none() {
    let mut bandit = bandit(Settings {
        weights: vec![1.0, 2.0, 1.0],
        ..Settings::of(PolicyName::Ensemble)
    });
    assert_eq!(
        bandit.choose(None).unwrap().choice,
        Choice::Blend(vec![0.25, 0.5, 0.25])
    );
    bandit.freeze("judge-1", true).unwrap();
    assert_eq!(
        bandit.choose(None).unwrap().choice,
        Choice::Blend(vec![0.5, 0.0, 0.5])
    );
}

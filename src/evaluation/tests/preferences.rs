//! Win rates against those of the package `alpaca_eval`; tests/data/preferences.py says how they were made.

use evaluation::preferences::{LengthControlled, Preference, WinRate, length_controlled};
use serde_json::Value;

const CASES: &str = include_str!("data/preferences.json");

fn numbers(case: &Value, key: &str) -> Vec<f64> {
    let list = case[key].as_array().expect("a list");
    list.iter()
        .map(|one| one.as_f64().expect("a number"))
        .collect()
}

fn number(case: &Value) -> f64 {
    case.as_f64().expect("a number")
}

fn preferences(case: &Value, with_difficulty: bool) -> Vec<Preference> {
    let (model, reference) = (numbers(case, "len_model"), numbers(case, "len_reference"));
    let difficulty = numbers(case, "difficulty");
    numbers(case, "preference")
        .into_iter()
        .enumerate()
        .map(|(at, model_wins)| Preference {
            model_wins,
            model_length: model[at],
            reference_length: reference[at],
            difficulty: with_difficulty.then(|| difficulty[at]),
        })
        .collect()
}

fn each(check: impl Fn(&str, &Value)) {
    let cases: Vec<Value> = serde_json::from_str(CASES).expect("cases");
    assert_eq!(cases.len(), 3);
    for case in &cases {
        check(case["name"].as_str().expect("a name"), case);
    }
}

#[test]
fn win_rates_and_their_errors_are_those_of_alpaca_eval() {
    each(|name, case| {
        let found = WinRate::of(&preferences(case, false)).expect("preferences");
        let close = |found: f64, key: &str| {
            let expected = number(&case[key]);
            assert!(
                (found - expected).abs() < 1e-12,
                "{name} {key}: {found} is not {expected}"
            );
        };
        close(found.win_rate, "win_rate");
        close(
            found.standard_error.expect("more than one"),
            "standard_error",
        );
        close(found.discrete_win_rate, "discrete_win_rate");
        assert_eq!(found.draws, 4, "{name}");
        assert_eq!(found.wins + found.losses + found.draws, 160, "{name}");
    });
}

#[test]
fn length_controlled_win_rates_are_those_of_alpaca_eval_without_its_penalty() {
    each(|name, case| {
        for (kind, with_difficulty) in [("minimal", false), ("noreg", true)] {
            let found = length_controlled(&preferences(case, with_difficulty)).expect("a fit");
            // liblinear's own stopping rule; its penalty of 1e-8 is nothing.
            for (found, key) in [
                (found.win_rate, "win_rate"),
                (found.length_effect, "length_effect"),
            ] {
                let expected = number(&case[kind][key]);
                assert!(
                    (found - expected).abs() < 1e-3,
                    "{name} {kind} {key}: {found} is not {expected}"
                );
            }
        }
    });
}

/// The preferences of a model that is drawn anew: each prompt as often as it comes.
fn drawn_anew(all: &[Preference], state: &mut u64) -> Vec<Preference> {
    (0..all.len())
        .map(|_| {
            // Knuth's MMIX: good enough to draw rows.
            *state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            all[((*state >> 33) % all.len() as u64) as usize]
        })
        .collect()
}

#[test]
fn the_errors_are_those_that_prompts_drawn_anew_show() {
    each(|name, case| {
        for with_difficulty in [false, true] {
            let all = preferences(case, with_difficulty);
            let LengthControlled { standard_error, .. } = length_controlled(&all).expect("a fit");
            let mut state = 11;
            let again: Vec<f64> = (0..400)
                .map(|_| {
                    length_controlled(&drawn_anew(&all, &mut state))
                        .expect("a fit")
                        .win_rate
                })
                .collect();
            let mean = again.iter().sum::<f64>() / 400.0;
            let squares: f64 = again.iter().map(|one| (one - mean).powi(2)).sum();
            let bootstrap = (squares / 399.0).sqrt();
            // A standard deviation of 400 draws is known to 3.5 %; the rest is the delta method's.
            let ratio = standard_error / bootstrap;
            assert!(
                (0.8..1.25).contains(&ratio),
                "{name}: {standard_error} against {bootstrap}"
            );
        }
    });
}

#[test]
fn what_cannot_be_fitted_has_no_length_controlled_win_rate_and_equal_lengths_change_nothing() {
    let one = Preference {
        model_wins: 0.75,
        model_length: 10.0,
        reference_length: 20.0,
        difficulty: None,
    };
    assert_eq!(length_controlled(&[]), None);
    assert_eq!(length_controlled(&[one]), None);
    let hard = Preference {
        difficulty: Some(1.0),
        ..one
    };
    assert_eq!(
        length_controlled(&[one, hard]),
        None,
        "a difficulty for one of two"
    );
    let other = Preference {
        model_wins: 0.25,
        ..one
    };
    let found = length_controlled(&[one, other, one, other]).expect("a fit");
    assert!((found.win_rate - 0.5).abs() < 1e-9);
    assert_eq!(found.length_effect, 0.0);
    assert_eq!(WinRate::of(&[]), None);
}

use super::*;
use crate::from_text;

fn guards(text: &str) -> Result<Vec<Guard>, String> {
    let parsed = crate::yaml::parse(text);
    assert!(parsed.faults.is_empty(), "{:?}", parsed.faults);
    read(&parsed.root.expect("the text is not empty"))
}

fn refusal(text: &str) -> String {
    guards(text).expect_err(text)
}

#[test]
fn the_preset_has_the_limits_that_were_asked_for() {
    let online = guards("online").unwrap();
    let of = |name: &str| {
        let guard = online.iter().find(|guard| guard.name == name);
        guard.unwrap_or_else(|| panic!("no guard {name}"))
    };
    let Watch::Metric { condition, .. } = &of("kl").watch else {
        panic!("kl is a metric");
    };
    assert_eq!(*condition, Condition::Above(0.02));
    assert_eq!(of("kl").rung(0).0, [Action::Sync { rounds: 1 }]);
    assert_eq!(
        of("perplexity").rung(0).0,
        [Action::RollBack { to: Target::Last }]
    );
    let accuracy = of("accuracy");
    assert_eq!(accuracy.consecutive, 5);
    assert_eq!(accuracy.rung(0).0, [Action::RollBack { to: Target::Best }]);
    assert!(online.iter().all(|guard| guard.after >= 1));
}

#[test]
fn a_guard_survives_the_way_through_json_and_yaml() {
    let before = guards(
        "[online, {metric: [a, b], drop_relative: 0.1, against: previous, for: 2, action: \"sync 2 + lower_lr 0.25\"}]",
    )
    .unwrap();
    let json = serde_json::to_value(&before).unwrap();
    let back: Vec<Guard> = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(back, before);
    assert_eq!(guards(&crate::yaml::flow(&json)).unwrap(), before);
}

#[test]
fn a_guard_of_ones_own_replaces_that_of_the_preset() {
    let guards =
        guards("[online, {name: kl, metric: actor/ppo_kl, above: 0.5, action: stop}]").unwrap();
    let kl: Vec<&Guard> = guards.iter().filter(|guard| guard.name == "kl").collect();
    assert_eq!(kl.len(), 1);
    assert_eq!(kl[0].ladder, [Rung(vec![Action::Stop])]);
}

#[test]
fn past_its_ladder_a_guard_that_acts_gets_harder_and_one_that_tells_goes_on_telling() {
    let guards = guards(
        "[{name: a, metric: x, above: 1, action: sync 2}, {name: b, metric: x, above: 1, action: alert}]",
    )
    .unwrap();
    let words = |guard: &Guard, relapse| guard.rung(relapse).to_string();
    let harder: Vec<String> = (0..7).map(|relapse| words(&guards[0], relapse)).collect();
    assert_eq!(
        harder,
        [
            "sync 2",
            "lower_lr 0.5",
            "roll_back last",
            "roll_back best",
            "stop",
            "stop",
            "stop"
        ]
    );
    assert_eq!(words(&guards[1], 9), "alert");
}

#[test]
fn a_guard_says_in_words_what_it_watches_and_when_that_is_bad() {
    let words = |text: &str| -> Vec<String> {
        let guards = guards(text).unwrap();
        guards
            .iter()
            .map(|guard| format!("{}: {}", guard.watches(), guard.condition()))
            .collect()
    };
    assert_eq!(
        words("[{metric: [a, b], above: 0.02, action: stop}, {alarm: non_finite, action: stop}]"),
        ["a or b: above 0.02", "alarm non_finite: raised"]
    );
    assert_eq!(
        words("[{metric: a, drop_points: 0.05, for: 5, window: 3, action: stop}]"),
        ["a: mean of 3 more than 0.05 below its best, for 5 values in a row"]
    );
    assert_eq!(
        words(
            "[{metric: a, above_baseline: 1.5, action: stop}, {metric: b, drop_relative: 0.1, against: previous, action: stop}]"
        ),
        [
            "a: above 1.5 times its start",
            "b: more than 10 % below the value before"
        ]
    );
}

#[test]
fn nothing_off_and_none_are_no_guards() {
    for text in ["[]", "off", "none", "null", "false"] {
        assert_eq!(guards(text).unwrap(), [], "{text}");
    }
}

#[test]
fn a_wrong_guard_is_refused_with_its_place_and_what_is_expected() {
    let cases = [
        (
            "{metric: a, above_: 1, action: stop}",
            "did you mean above?",
        ),
        ("{metric: a, action: stop}", "it has no condition"),
        ("{metric: a, above: 1}", "it has no action"),
        ("{above: 1, action: stop}", "it watches nothing"),
        (
            "{metric: a, above: 1, below: 0, action: stop}",
            "two conditions, above and below",
        ),
        (
            "{alarm: kl, action: stop}",
            "expected non_finite, kl_blow_up",
        ),
        (
            "{alarm: non_finite, above: 1, action: stop}",
            "drop the condition",
        ),
        (
            "{metric: a, above: high, action: stop}",
            "above is \"high\"; expected a number",
        ),
        (
            "{metric: a, drop_relative: 5, action: stop}",
            "give drop_points",
        ),
        (
            "{metric: a, above: 1, for: 0, action: stop}",
            "for is 0; expected a whole number from 1 on",
        ),
        (
            "{metric: a, above: 1, action: panic}",
            "action \"panic\" is unknown; expected alert",
        ),
        (
            "{metric: a, above: 1, action: lower_lr 2}",
            "a factor between 0 and 1",
        ),
        (
            "{metric: a, above: 1, action: stop + stop}",
            "the same thing twice",
        ),
        (
            "{metric: a, above: 1, against: best, action: stop}",
            "against has no effect",
        ),
        ("offline", "the preset online"),
    ];
    for (text, expected) in cases {
        let message = refusal(&format!("[{text}]"));
        assert!(
            message.starts_with("guard 1 (line 1): "),
            "{text}: {message}"
        );
        assert!(message.contains(expected), "{text}: {message}");
    }
    let two = refusal(
        "[{name: a, metric: a, above: 1, action: stop}, {name: a, metric: b, above: 1, action: stop}]",
    );
    assert!(two.contains("two guards called a"), "{two}");
}

#[test]
fn a_complaint_about_a_guard_names_file_line_and_key() {
    let text = "data:\n  train_files: x.parquet\ntrainer:\n  guards:\n    - online\n    - {metric: a, above: 1}\n";
    let loaded = from_text("x.yaml", text, &[]);
    let complaint = loaded
        .complaints
        .iter()
        .find(|complaint| complaint.key == "trainer.guards")
        .expect("there is one");
    assert!(
        complaint
            .message
            .contains("trainer.guards: guard 2 (line 6): it has no action"),
        "{}",
        complaint.message
    );
}

#[test]
fn the_documentation_shows_the_preset_as_it_is() {
    let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guards.md");
    let text = std::fs::read_to_string(place).unwrap();
    assert!(
        text.contains(ONLINE.trim()),
        "docs/guards.md, its last section"
    );
}

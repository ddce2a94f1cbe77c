//! What holds for any text and any override.

use experiment::{Severity, from_text, keys, overrides, yaml};
use proptest::prelude::*;

const BASE: &str = "data: {train_files: t, val_files: v, train_batch_size: 32}  # rows\nmodel:\n  path: m # weights\nactor:\n  ppo_mini_batch_size: 16\nalgorithm:\n  adv_estimator: grpo\nrollout:\n  n: 4\n";

/// A line of an experiment: real names in odd places, odd values.
fn line() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        prop::sample::select(vec![
            "data",
            "actor",
            "rollout",
            "actor_rollout_ref",
            "critic",
            "trainer",
            "algorithm",
            "optim",
            "lr",
            "seed",
            "n",
            "logger",
            "kl_ctrl",
            "train_files",
            "model",
            "path",
            "clip_ratio",
            "clip_ratio_low",
            "multi_turn",
            "enable",
            "reward",
            "sft",
            "name",
        ]),
        Just("x"),
    ];
    let value = prop_oneof![
        Just(String::new()),
        prop::sample::select(vec![
            "1",
            "-1",
            "0.5",
            "abc",
            "[a, b]",
            "{a: 1}",
            "null",
            "true",
            "\"q\"",
            "${data.seed}",
            "${.lr}",
            "1e-6",
            "&a 1",
            "*a",
            "# c",
            "|",
            "${actor.optim.lr}"
        ])
        .prop_map(str::to_owned),
        "\\PC{0,8}",
    ];
    (0..3_usize, name, value)
        .prop_map(|(depth, name, value)| format!("{}{name}: {value}\n", "  ".repeat(depth)))
}

fn override_text() -> impl Strategy<Value = String> {
    let path = prop::sample::select(
        keys::live()
            .iter()
            .map(|key| key.path.clone())
            .collect::<Vec<_>>(),
    );
    let value = prop_oneof![
        prop::sample::select(vec![
            "1",
            "2",
            "0.5",
            "null",
            "true",
            "false",
            "[a,b]",
            "{a: 1}",
            "'q u'",
            "abc",
            "1e-3",
            "[]",
            "${data.seed}",
            "sync",
            "grpo",
            "90s"
        ])
        .prop_map(str::to_owned),
        "\\PC{0,8}",
    ];
    let sigil = prop::sample::select(vec!["", "", "", "+", "++"]);
    prop_oneof![
        8 => (sigil, path.clone(), value).prop_map(|(sigil, path, value)| format!("{sigil}{path}={value}")),
        1 => path.prop_map(|path| format!("~{path}")),
        1 => "\\PC{0,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_text_and_no_override_make_loading_panic(text in "\\PC{0,40}|[a-z:\\- \n\\[\\]{},$.\"'#]{0,80}", over in prop::collection::vec("\\PC{0,20}", 0..3)) {
        let loaded = from_text("e.yaml", &text, &over);
        prop_assert!(!loaded.complaints.is_empty());
    }

    #[test]
    fn every_complaint_about_odd_files_has_a_place_in_them(lines in prop::collection::vec(line(), 0..14), over in prop::collection::vec(override_text(), 0..4)) {
        let text = lines.concat();
        let loaded = from_text("e.yaml", &text, &over);
        for complaint in &loaded.complaints {
            prop_assert!(complaint.line.is_none_or(|line| line >= 1 && line as usize <= text.lines().count() + 1));
            prop_assert!(!complaint.message.is_empty() && !complaint.message.contains('\n'), "{:?}", complaint);
        }
        let _ = loaded.effective_yaml();
    }

    #[test]
    fn the_resolved_file_gives_the_same_experiment(over in prop::collection::vec(override_text(), 0..6)) {
        // Overrides that are refused are left out: the rest must survive being written down.
        let mut good: Vec<String> = Vec::new();
        for text in over {
            good.push(text);
            if from_text("e.yaml", BASE, &good).has_errors() {
                good.pop();
            }
        }
        let loaded = from_text("e.yaml", BASE, &good);
        let again = from_text("e.yaml", &loaded.resolved, &[]);
        prop_assert_eq!(&again.experiment, &loaded.experiment, "{}", loaded.resolved);
        prop_assert!(!again.has_errors());
        if !good.iter().any(|text| text.contains("path") || text.contains('~')) {
            prop_assert!(again.resolved.contains("path: m # weights"));
        }
    }

    #[test]
    fn an_override_with_its_own_effective_value_changes_nothing(over in prop::collection::vec(override_text(), 0..4), pick in any::<prop::sample::Index>()) {
        let mut good: Vec<String> = Vec::new();
        for text in over {
            good.push(text);
            if from_text("e.yaml", BASE, &good).has_errors() {
                good.pop();
            }
        }
        let loaded = from_text("e.yaml", BASE, &good);
        let printed = loaded.effective_yaml();
        let key = &keys::live()[pick.index(keys::live().len())];
        let pointer = format!("/{}", key.path.replace('.', "/"));
        let value = loaded.effective().pointer(&pointer).unwrap().clone();
        let over = format!("++{}={}", key.path, in_hydra(&value));
        let again = from_text("e.yaml", &printed, std::slice::from_ref(&over));
        prop_assert_eq!(&again.experiment, &loaded.experiment, "{}", over);
        prop_assert_eq!(again.effective_yaml(), printed);
    }

    #[test]
    fn an_override_means_the_same_as_the_yaml_of_its_value(value in prop_oneof![
        any::<i64>().prop_map(serde_json::Value::from), (-1e9..1e9_f64).prop_map(serde_json::Value::from),
        any::<bool>().prop_map(serde_json::Value::from), "[ -~]{0,12}".prop_map(serde_json::Value::from), Just(serde_json::Value::Null),
        prop::collection::vec("[ -~]{0,6}", 0..4).prop_map(serde_json::Value::from),
    ]) {
        let parsed = overrides::parse(&format!("a.b={}", in_hydra(&value))).unwrap();
        let overrides::Action::Set(node) = parsed.action else { panic!("a set") };
        prop_assert_eq!(node.to_json(), value.clone());
        let yaml = yaml::parse(&yaml::flow(&value)).root.unwrap();
        prop_assert_eq!(yaml.to_json(), value);
    }
}

/// A value in the override grammar.
fn in_hydra(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => {
            format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
        }
        serde_json::Value::Array(items) => format!(
            "[{}]",
            items.iter().map(in_hydra).collect::<Vec<_>>().join(",")
        ),
        serde_json::Value::Object(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("'{key}': {}", in_hydra(value)))
                .collect();
            format!("{{{}}}", entries.join(","))
        }
        other => other.to_string(),
    }
}

#[test]
fn a_note_is_never_an_error() {
    let loaded = from_text("e.yaml", BASE, &[]);
    assert!(
        loaded
            .complaints
            .iter()
            .all(|complaint| complaint.severity == Severity::Note),
        "{:#?}",
        loaded.complaints
    );
}

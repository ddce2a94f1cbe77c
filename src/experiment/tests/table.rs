//! The key table against the typed experiment and against verl's keys.

use std::collections::BTreeMap;

use experiment::Experiment;
use experiment::keys::{self, Status, canonical};
use serde_json::Value as Json;

fn leaves(value: &Json, prefix: &str, into: &mut BTreeMap<String, Json>) {
    match value {
        Json::Object(entries) if !entries.is_empty() => {
            for (key, value) in entries {
                let path = if prefix.is_empty() {
                    key.clone()
                } else {
                    format!("{prefix}.{key}")
                };
                leaves(value, &path, into);
            }
        }
        _ => {
            into.insert(prefix.to_owned(), value.clone());
        }
    }
}

#[test]
fn the_table_and_the_typed_experiment_have_the_same_keys_and_defaults() {
    let mut typed = BTreeMap::new();
    leaves(
        &serde_json::to_value(Experiment::default()).unwrap(),
        "",
        &mut typed,
    );
    let table: BTreeMap<String, Json> = keys::live()
        .iter()
        .map(|key| (key.path.clone(), serde_json::from_str(key.default).unwrap()))
        .collect();
    assert_eq!(
        table.len(),
        keys::live().len(),
        "a key is in the table twice"
    );
    let missing: Vec<_> = typed
        .keys()
        .filter(|key| !table.contains_key(*key))
        .collect();
    let extra: Vec<_> = table
        .keys()
        .filter(|key| !typed.contains_key(*key))
        .collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "not in the table: {missing:?}; only in the table: {extra:?}"
    );
    for (key, value) in &typed {
        let same = match (value, &table[key]) {
            (Json::Number(left), Json::Number(right)) => left.as_f64() == right.as_f64(),
            (left, right) => left == right,
        };
        assert!(
            same,
            "{key}: the type's default is {value}, the table's is {}",
            table[key]
        );
    }
}

#[test]
fn every_key_of_verl_is_live_or_an_alias_or_has_a_reason() {
    let unexplained: Vec<&str> = keys::verl_keys()
        .iter()
        .filter(|key| {
            matches!(
                keys::status(&canonical(key.path).path),
                Status::Unknown | Status::Planned(_)
            )
        })
        .map(|key| key.path)
        .collect();
    assert!(unexplained.is_empty(), "{unexplained:#?}");
    assert_eq!(keys::verl_keys().len(), 898);
}

/// Where our default is not verl's, and why.
const DIFFERS: &[(&str, &str)] = &[
    ("data.train_files", "verl's is a path in its author's home"),
    ("data.val_files", "verl's is a path in its author's home"),
    ("data.train_max_samples", "null says what -1 means"),
    ("data.val_max_samples", "null says what -1 means"),
    ("data.seed", "null would not be reproducible"),
    (
        "actor_rollout_ref.model.path",
        "verl's is a path in its author's home",
    ),
    (
        "actor_rollout_ref.model.enable_gradient_checkpointing",
        "small models first: time before memory",
    ),
    (
        "actor_rollout_ref.actor.calculate_entropy",
        "it is cheap here and every run wants it",
    ),
    (
        "actor_rollout_ref.actor.fsdp_config.dtype",
        "null: one precision unless two are asked for",
    ),
    ("actor_rollout_ref.rollout.name", "verl has none"),
    (
        "actor_rollout_ref.rollout.dtype",
        "null: the engine computes as the learner does",
    ),
    ("critic.model.path", "null: a copy of the actor"),
    ("trainer.project_name", "verl's names its example"),
    ("trainer.experiment_name", "verl's names its example"),
    ("trainer.logger", "wandb wants an account"),
    ("trainer.device", "auto takes CUDA when there is one"),
];

#[test]
fn defaults_are_verls_unless_listed_with_a_reason() {
    for key in keys::verl_keys() {
        let Status::Live(live) = keys::status(key.path) else {
            continue;
        };
        // A mirror: our null or default follows the same key, which `rules` does.
        if key.default.contains("${") {
            continue;
        }
        let (ours, verls): (Json, Json) = (
            serde_json::from_str(live.default).unwrap(),
            serde_json::from_str(key.default).unwrap(),
        );
        let same = ours == verls || (ours.is_number() && ours.as_f64() == verls.as_f64());
        let listed = DIFFERS.iter().any(|(path, _)| *path == key.path);
        assert_eq!(!same, listed, "{}: ours {ours}, verl's {verls}", key.path);
    }
}

#[test]
fn every_choice_of_the_table_is_read_by_the_typed_experiment() {
    for key in keys::live() {
        let (choices, is_list) = match key.kind {
            keys::Kind::Choice(choices) => (choices, false),
            keys::Kind::List(keys::Kind::Choice(choices)) => (*choices, true),
            _ => continue,
        };
        for name in choices.now.iter().chain(choices.also) {
            let mut tree = serde_json::to_value(Experiment::default()).unwrap();
            let pointer = format!("/{}", key.path.replace('.', "/"));
            let value = if is_list {
                serde_json::json!([name])
            } else {
                serde_json::json!(name)
            };
            *tree.pointer_mut(&pointer).unwrap() = value.clone();
            let read: Experiment = serde_json::from_value(tree)
                .unwrap_or_else(|error| panic!("{} = {name}: {error}", key.path));
            let written = serde_json::to_value(read)
                .unwrap()
                .pointer(&pointer)
                .unwrap()
                .clone();
            if choices.now.contains(name) {
                assert_eq!(written, value, "{}", key.path);
            }
        }
    }
}

#[test]
fn every_live_key_has_help_that_is_a_sentence() {
    for key in keys::live() {
        assert!(
            key.help.ends_with('.') && key.help.len() > 8,
            "{}: {:?}",
            key.path,
            key.help
        );
        let help = experiment::help(&key.path).unwrap();
        assert!(
            help.contains(key.help) && help.contains("default:"),
            "{help}"
        );
    }
    assert!(
        experiment::help("rollout.n_gpus")
            .unwrap()
            .contains("another name")
    );
    assert_eq!(experiment::help("no.such.key"), None);
}

#[test]
fn the_documentation_lists_every_live_key() {
    let text = experiment::markdown();
    for key in keys::live() {
        let name = key.path.rsplit('.').next().unwrap();
        assert!(text.contains(&format!("| `{name}` |")), "{}", key.path);
    }
    let blocks = text.lines().filter(|line| line.starts_with("## ")).count();
    let distinct: std::collections::BTreeSet<&str> = text
        .lines()
        .filter(|line| line.starts_with("## "))
        .collect();
    assert_eq!(blocks, distinct.len(), "a block is split in two");
}

#[test]
fn the_page_of_estimators_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/estimators.md");
    let page = std::fs::read_to_string(path).unwrap_or_default();
    let table = experiment::estimators::markdown();
    assert!(
        page == table,
        "docs/estimators.md has another table; put this in its place:\n{table}"
    );
}

#[test]
fn the_page_of_the_bandit_is_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bandit.md");
    let page = std::fs::read_to_string(path).unwrap_or_default();
    let table = experiment::bandit::markdown();
    assert!(
        page == table,
        "docs/bandit.md has another table; put this in its place:\n{table}"
    );
}

#[test]
fn the_page_of_the_rewards_is_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rewards.md");
    let page = std::fs::read_to_string(path).unwrap_or_default();
    let table = experiment::scorers::markdown();
    assert!(
        page == table,
        "docs/rewards.md has another table; put this in its place:\n{table}"
    );
}

#[test]
fn the_block_of_the_bandit_has_every_setting_of_the_bandit_with_its_default() {
    use experiment::settings::Experiment;
    let block = serde_json::to_value(Experiment::default().reward.bandit).unwrap();
    let settings = serde_json::to_value(bandit::Settings::default()).unwrap();
    for (name, value) in settings.as_object().unwrap() {
        // What is null there goes by what arms are rewarded by.
        if name != "policy" && name != "value_range" {
            assert_eq!(&block[name], value, "{name}");
        }
    }
    // And hands every one of them over.
    let mut other = bandit::Settings::of(bandit::PolicyName::Linucb);
    other.epsilon = 0.5;
    other.weights = vec![2.0];
    other.quantiles = None;
    other.fixed_arm = Some("x".to_owned());
    let mut json = serde_json::to_value(&other).unwrap();
    for (name, value) in json.as_object_mut().unwrap() {
        // Every number different from its default.
        if let Some(number) = value.as_f64().filter(|_| name != "epsilon") {
            *value = serde_json::json!(number + 1.0);
            if value.as_f64() == Some((number + 1.0).trunc())
                && ["update_every", "quantile_window"].contains(&name.as_str())
            {
                *value = serde_json::json!(number as u32 + 1);
            }
        }
    }
    let typed: experiment::bandit::Bandit = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(
        serde_json::to_value(typed.settings().unwrap()).unwrap(),
        json
    );
}

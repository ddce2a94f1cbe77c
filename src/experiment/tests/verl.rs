//! What verl is told, against what verl 0.9.1's own Hydra made of it.
//!
//! `data/verl/kinds.json` holds the overrides made of `kinds.yaml` and, for each key among them, the value in the configuration that
//! verl composed. The ignored test composes anew, and every experiment that is shipped too:
//! ```text
//! python3 -m venv verl && verl/bin/pip install --no-deps verl==0.9.1 && verl/bin/pip install hydra-core
//! LATHE_VERL=$PWD/verl/bin/python cargo test -p experiment --test verl -- --ignored      (LATHE_VERL_RECORD=1 writes the file)
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;

use experiment::Loaded;
use experiment::verl::told;
use serde_json::{Map, Value, json};

/// As `python -m verl.trainer.main_ppo --cfg job --resolve`, without what its import needs.
const COMPOSE: &str = r#"
import hydra, importlib.util, json, os, sys
from omegaconf import OmegaConf
verl = importlib.util.find_spec("verl").submodule_search_locations[0]
with hydra.initialize_config_dir(os.path.join(verl, "trainer", "config"), version_base=None):
    print(json.dumps(OmegaConf.to_container(hydra.compose("ppo_trainer", overrides=sys.argv[1:]), resolve=True)))
"#;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/verl")
        .join(name)
}

fn loaded(path: &Path, more: &[&str]) -> Loaded {
    let more: Vec<String> = more.iter().map(|&text| text.to_owned()).collect();
    experiment::inspect(path, &more)
}

fn at<'t>(tree: &'t Value, path: &str) -> Option<&'t Value> {
    path.split('.').try_fold(tree, |tree, name| tree.get(name))
}

fn key(text: &str) -> &str {
    let (key, _) = text.split_once('=').unwrap();
    key.trim_start_matches('+')
}

/// Equal as numbers too, and a list of one as what is in it.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| same(left, right))
        }
        (Value::Array(left), right) if left.len() == 1 => same(&left[0], right),
        (left, Value::Array(right)) if right.len() == 1 => same(left, &right[0]),
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && (left.iter())
                    .all(|(key, value)| right.get(key).is_some_and(|other| same(value, other)))
        }
        _ => left == right,
    }
}

/// Every key that somebody gave and that verl is told has in `composed` the value that was given.
fn assert_says_the_same(loaded: &Loaded, overrides: &[String], composed: impl Fn(&str) -> Value) {
    let mut compared = 0;
    for (given, value) in &loaded.given_values {
        if !overrides.iter().any(|text| key(text) == given) || given == "trainer.logger" {
            continue;
        }
        let verls = composed(given);
        assert!(
            same(value, &verls),
            "{given}: {value} was given, and verl has {verls}"
        );
        compared += 1;
    }
    assert!(compared > 10, "only {compared} keys were compared");
}

#[test]
fn verl_composes_what_the_experiment_says() {
    let loaded = loaded(&data("kinds.yaml"), &[]);
    assert!(!loaded.has_errors(), "{:?}", loaded.complaints);
    let recorded: Value =
        serde_json::from_slice(&std::fs::read(data("kinds.json")).unwrap()).unwrap();
    let overrides = told(&loaded).overrides;
    assert_eq!(json!(overrides), recorded["overrides"]);
    assert_says_the_same(&loaded, &overrides, |key| recorded["composed"][key].clone());
    let name = &recorded["composed"]["trainer.experiment_name"];
    assert_eq!(*name, json!(loaded.experiment.trainer.experiment_name));
}

#[test]
fn what_verl_refuses_to_start_without_is_said() {
    let file = data("kinds.yaml");
    let has = |more: &[&str], wanted: &str| {
        let overrides = told(&loaded(&file, more)).overrides;
        overrides.iter().any(|text| text == wanted)
    };
    assert!(has(&[], "actor_rollout_ref.rollout.name=vllm"));
    let sglang = ["actor_rollout_ref.rollout.name=sglang"];
    assert!(has(&sglang, "actor_rollout_ref.rollout.name=sglang"));
    assert!(!has(&sglang, "actor_rollout_ref.rollout.name=vllm"));
    for key in [
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
        "critic.ppo_micro_batch_size_per_gpu",
    ] {
        assert!(has(&[], &format!("{key}=4")), "{key}");
    }
    let packed = "actor_rollout_ref.actor.use_dynamic_bsz=true";
    assert!(has(
        &["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=null"],
        packed
    ));
    assert!(!has(&[], packed));
    let overlong = ["reward.reward_kwargs.overlong_buffer_cfg={enable: true, len: 64}"];
    for wanted in [
        "++reward.reward_kwargs.overlong_buffer_cfg.enable=true",
        "++reward.reward_kwargs.overlong_buffer_cfg.len=64",
        "++reward.reward_kwargs.max_resp_len=512",
        "reward.reward_manager.name=dapo",
    ] {
        assert!(has(&overlong, wanted), "{wanted}");
    }
    let none = ["data.val_files=[]", "data.train_files=[a.parquet]"];
    assert!(has(&none, "data.val_files=[a.parquet]"));
    assert!(has(&none, "trainer.val_before_train=false"));
}

#[test]
#[ignore = "needs verl 0.9.1 and Hydra: LATHE_VERL names their Python"]
fn real_verl_composes_what_every_shipped_experiment_says() {
    let python = std::env::var("LATHE_VERL").expect("LATHE_VERL names a Python that has verl");
    let compose = |overrides: &[String]| -> Value {
        let out = Command::new(&python)
            .args(["-c", COMPOSE])
            .args(overrides)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{overrides:#?}\n{said}");
        serde_json::from_slice(&out.stdout).unwrap()
    };
    let kinds = loaded(&data("kinds.yaml"), &[]);
    let overrides = told(&kinds).overrides;
    let tree = compose(&overrides);
    let composed: Map<String, Value> = overrides
        .iter()
        .map(|text| {
            let key = key(text);
            (key.to_owned(), at(&tree, key).cloned().unwrap())
        })
        .collect();
    let now = json!({
        "origin": "verl 0.9.1, its trainer/config/ppo_trainer.yaml composed by Hydra 1.3",
        "overrides": overrides, "composed": composed,
    });
    if std::env::var_os("LATHE_VERL_RECORD").is_some() {
        let text = serde_json::to_string_pretty(&now).unwrap();
        std::fs::write(data("kinds.json"), text + "\n").unwrap();
    }
    let recorded: Value =
        serde_json::from_slice(&std::fs::read(data("kinds.json")).unwrap()).unwrap();
    assert_eq!(now, recorded);

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut tried = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "yaml") {
            continue;
        }
        // Their own scorers are Lathe's: verl would choose by data_source.
        let loaded = loaded(&path, &["launch.engine=verl", "reward.scorer=auto"]);
        if loaded.has_errors() || loaded.experiment.data.train_files.is_empty() {
            continue;
        }
        let overrides = told(&loaded).overrides;
        let tree = compose(&overrides);
        assert_says_the_same(&loaded, &overrides, |key| {
            at(&tree, key)
                .cloned()
                .unwrap_or_else(|| panic!("verl lacks {key}"))
        });
        tried.push(path);
    }
    assert!(tried.len() >= 8, "{tried:?}");
}

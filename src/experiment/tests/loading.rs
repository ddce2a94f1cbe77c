//! What a file and overrides give when they are right.

use std::path::Path;

use experiment::settings::{
    AdvEstimator, AgentLoop, EngineName, KlCtrlType, LoggerName, LrScheduler,
};
use experiment::{Experiment, Loaded, from_text, inspect, load};

const BASE: &str = "data: {train_files: t.parquet}\nmodel: {path: m}\n";

fn read(text: &str, overrides: &[&str]) -> Loaded {
    let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
    let loaded = from_text("e.yaml", text, &overrides);
    let errors: Vec<String> = loaded
        .complaints
        .iter()
        .filter(|complaint| complaint.severity == experiment::Severity::Error)
        .map(ToString::to_string)
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
    loaded
}

fn with(overrides: &[&str]) -> Experiment {
    read(BASE, overrides).experiment
}

#[test]
fn the_seeds_settings_have_the_meaning_their_writer_expects() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/qwen2.5-3b-8gpu.yaml");
    let experiment = load(&path, &[]).unwrap().experiment;
    assert!(!experiment.actor_rollout_ref.hybrid_engine);
    let rollout = &experiment.actor_rollout_ref.rollout;
    assert_eq!(
        (rollout.nnodes, rollout.n_gpus_per_node, rollout.name),
        (1, 4, EngineName::Vllm)
    );
    assert_eq!(
        (
            experiment.trainer.nnodes,
            experiment.trainer.n_gpus_per_node
        ),
        (1, 4)
    );
    assert_eq!(rollout.gpu_memory_utilization, 0.6);
    assert_eq!(experiment.actor_rollout_ref.actor.ppo_mini_batch_size, 64);
    assert_eq!(experiment.critic.ppo_mini_batch_size, Some(64));
    assert_eq!(experiment.critic.enable, Some(true));
    assert_eq!(experiment.algorithm.adv_estimator, AdvEstimator::Gae);
    assert_eq!(experiment.algorithm.kl_ctrl.kind, KlCtrlType::Adaptive);
    assert!(experiment.data.filter_overlong_prompts);
    assert_eq!(
        experiment.trainer.logger,
        [
            LoggerName::Console,
            LoggerName::Tensorboard,
            LoggerName::Wandb
        ]
    );
}

#[test]
fn shorthand_blocks_and_full_paths_give_the_same_experiment() {
    let short = read(
        "data: {train_files: t}\nmodel: {path: m}\nactor: {ppo_epochs: 2}\nrollout: {n: 4}\nref: {log_prob_micro_batch_size_per_gpu: 3}\n",
        &[],
    );
    let full = read(
        "data: {train_files: t}\nactor_rollout_ref:\n  model: {path: m}\n  actor: {ppo_epochs: 2}\n  rollout: {n: 4}\n  ref: {log_prob_micro_batch_size_per_gpu: 3}\n",
        &[],
    );
    assert_eq!(short.experiment, full.experiment);
}

#[test]
fn mirrors_follow_the_key_they_mirror_until_they_are_given() {
    let experiment = with(&[
        "data.train_batch_size=64",
        "actor.ppo_mini_batch_size=16",
        "actor.ppo_epochs=3",
        "trainer.n_gpus_per_node=2",
    ]);
    assert_eq!(experiment.critic.ppo_mini_batch_size, Some(16));
    assert_eq!(experiment.critic.ppo_epochs, Some(3));
    assert_eq!(experiment.actor_rollout_ref.rollout.n_gpus_per_node, 2);
    let experiment = with(&[
        "data.train_batch_size=64",
        "actor.ppo_mini_batch_size=16",
        "critic.ppo_mini_batch_size=32",
    ]);
    assert_eq!(experiment.critic.ppo_mini_batch_size, Some(32));
    let experiment = with(&["rollout.prompt_length=99", "rollout.response_length=77"]);
    assert_eq!(
        (
            experiment.data.max_prompt_length,
            experiment.data.max_response_length
        ),
        (99, 77)
    );
}

#[test]
fn what_is_left_open_is_chosen() {
    let experiment = with(&[
        "data.train_batch_size=32",
        "rollout.multi_turn={enable: true, tool_config_path: t.yaml}",
    ]);
    assert_eq!(experiment.actor_rollout_ref.actor.ppo_mini_batch_size, 32);
    assert!(experiment.actor_rollout_ref.actor.use_dynamic_bsz);
    assert_eq!(
        experiment
            .actor_rollout_ref
            .rollout
            .agent
            .default_agent_loop,
        AgentLoop::ToolAgent
    );
    assert_eq!(experiment.trainer.max_staleness, Some(1));
    assert_eq!(experiment.trainer.experiment_name, "e");
    assert_eq!(with(&["trainer.mode=sync"]).trainer.max_staleness, Some(0));
    assert_eq!(
        with(&["algorithm.adv_estimator=grpo"]).critic.enable,
        Some(false)
    );
}

#[test]
fn overrides_take_every_kind_of_value() {
    let experiment = with(&[
        "actor.optim.lr=1e-6",
        "+trainer.seed=18446744073709551615",
        "++trainer.project_name='a b, c'",
        "trainer.logger=[console,wandb]",
        "rollout.stop=[\"</s>\", '\\n']",
        "rollout.max_model_len=null",
        "actor.shuffle=True",
        "critic.optim={lr: 3e-5, betas: [0.8, 0.9], lr_scheduler_type: cosine}",
        "rollout.session_timeout_s=2m",
        "data.apply_chat_template_kwargs.enable_thinking=false",
        "data.val_files=v.parquet",
        "trainer.experiment_name=1e3",
        "data.train_max_samples=-1",
        "rollout.multi_turn.tool_timeout_s=250ms",
        "data.max_prompt_length=1e3",
    ]);
    assert_eq!(experiment.actor_rollout_ref.actor.optim.lr, 1e-6);
    assert_eq!(experiment.trainer.seed, u64::MAX);
    assert_eq!(experiment.trainer.project_name, "a b, c");
    assert_eq!(
        experiment.trainer.logger,
        [LoggerName::Console, LoggerName::Wandb]
    );
    assert_eq!(experiment.actor_rollout_ref.rollout.stop, ["</s>", "\\n"]);
    assert_eq!(experiment.actor_rollout_ref.rollout.max_model_len, None);
    assert!(experiment.actor_rollout_ref.actor.shuffle);
    assert_eq!(experiment.critic.optim.betas, [0.8, 0.9]);
    assert_eq!(
        experiment.critic.optim.lr_scheduler_type,
        LrScheduler::Cosine
    );
    assert_eq!(
        experiment.actor_rollout_ref.rollout.session_timeout_s,
        Some(120.0)
    );
    assert_eq!(
        experiment.data.apply_chat_template_kwargs["enable_thinking"],
        false
    );
    assert_eq!(experiment.data.val_files, ["v.parquet"]);
    assert_eq!(experiment.trainer.experiment_name, "1e3");
    assert_eq!(experiment.data.train_max_samples, None);
    assert_eq!(
        experiment
            .actor_rollout_ref
            .rollout
            .multi_turn
            .tool_timeout_s,
        0.25
    );
    assert_eq!(experiment.data.max_prompt_length, 1000);
}

#[test]
fn interpolations_see_the_file_the_overrides_and_the_defaults() {
    let experiment = with(&[
        "trainer.seed=7",
        "data.seed=${trainer.seed}",
        "rollout.seed=${data.seed}",
        "actor.data_loader_seed=${oc.select:no.such.key,11}",
        "trainer.experiment_name='${trainer.project_name}-lr${actor.optim.lr}-n${rollout.n}'",
        "critic.optim.lr=${.weight_decay}",
        "critic.ppo_epochs=${..actor_rollout_ref.actor.ppo_epochs}",
        "trainer.project_name=${oc.env:LATHE_NO_SUCH_VARIABLE,fallback}",
    ]);
    assert_eq!(
        (
            experiment.data.seed,
            experiment.actor_rollout_ref.rollout.seed
        ),
        (7, 7)
    );
    assert_eq!(experiment.actor_rollout_ref.actor.data_loader_seed, 11);
    assert_eq!(experiment.critic.optim.lr, 0.01);
    assert_eq!(experiment.trainer.experiment_name, "fallback-lr1e-6-n1");
    assert_eq!(experiment.critic.ppo_epochs, Some(1));
}

#[test]
fn verls_own_defaults_written_out_change_nothing_and_warn_of_nothing() {
    let keys: Vec<String> = experiment::keys::verl_keys()
        .iter()
        .filter(|key| !key.default.contains("???") && !key.path.contains("trainer_mode"))
        .filter(|key| {
            matches!(
                experiment::keys::status(&experiment::keys::canonical(key.path).path),
                experiment::keys::Status::Inert(_)
            )
        })
        .map(|key| format!("++{}={}", key.path, as_override(key.default)))
        .collect();
    assert!(keys.len() > 600, "{}", keys.len());
    // In parts: each override is written into the file and proved, which takes a while for 700 of them.
    let said: Vec<String> = keys
        .chunks(60)
        .flat_map(|keys| from_text("e.yaml", BASE, keys).complaints)
        .filter(|complaint| {
            complaint.override_text.is_some() && !complaint.key.ends_with(".clip_ratio")
        })
        .map(|complaint| complaint.to_string())
        .collect();
    assert!(said.is_empty(), "{said:#?}");
}

/// JSON to the override grammar: only texts differ, which lose their quotes when they interpolate.
fn as_override(json: &str) -> String {
    match serde_json::from_str::<serde_json::Value>(json).unwrap() {
        serde_json::Value::String(text) if text.contains("${") => text,
        serde_json::Value::String(text) => format!("'{text}'"),
        other => other.to_string(),
    }
}

#[test]
fn the_file_of_the_run_keeps_comments_and_gives_the_same_experiment_without_overrides() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/quickstart.yaml");
    let overrides: Vec<String> = [
        "actor.optim.lr=1e-4",
        "algorithm.adv_estimator=gae",
        "trainer.experiment_name=2026",
        "trainer.logger=[console, file]",
        "rollout.n=8",
        "+rollout.top_p=0.95",
        "reward.scorer=numeric",
        "~trainer.test_freq",
        "critic.model.path=c",
        "data.apply_chat_template_kwargs.enable_thinking=false",
        "rollout.engine_kwargs.vllm={swap_space: 4}",
    ]
    .map(str::to_owned)
    .to_vec();
    let loaded = load(&path, &overrides).unwrap();
    let again = from_text(&path.display().to_string(), &loaded.resolved, &[]);
    assert_eq!(again.experiment, loaded.experiment);
    insta::assert_snapshot!(loaded.resolved);
}

#[test]
fn the_effective_experiment_names_every_key_and_loads_to_itself() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/quickstart.yaml");
    let loaded = load(&path, &[]).unwrap();
    let text = loaded.effective_yaml();
    let again = from_text("quickstart.yaml", &text, &[]);
    assert_eq!(again.experiment, loaded.experiment);
    assert_eq!(again.given.len(), experiment::keys::live().len());
    assert_eq!(again.effective_yaml(), text);
    insta::assert_snapshot!(text);
}

#[test]
fn a_file_that_cannot_be_read_is_one_complaint() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no.yaml");
    let error = load(&missing, &[]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no.yaml: cannot read the experiment: No such file"),
        "{error}"
    );
    let binary = folder.path().join("b.yaml");
    std::fs::write(&binary, b"data:\n  x: \xff\n").unwrap();
    let error = load(&binary, &[]).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("b.yaml: not UTF-8 text: byte 12 cannot be read; save the file as UTF-8"),
        "{error}"
    );
    assert_eq!(inspect(folder.path(), &[]).complaints.len(), 1);
}

#[test]
fn complaints_are_data_for_programs_too() {
    let loaded = from_text(
        "e.yaml",
        "data: {train_files: t}\nmodel: {path: m}\nactor:\n  ppo_epochs: 0\n",
        &["rollout.n=0".to_owned()],
    );
    let json = serde_json::to_value(&loaded.complaints).unwrap();
    assert_eq!(
        json[0],
        serde_json::json!({
            "severity": "error", "file": "e.yaml", "line": 4, "column": 3, "override": null,
            "key": "actor_rollout_ref.actor.ppo_epochs", "message": "actor.ppo_epochs is 0; expected >= 1",
        })
    );
    let last = json.as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["override"], &last["line"]),
        (&"rollout.n=0".into(), &serde_json::Value::Null)
    );
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_no_obstacle() {
    let text = "\u{feff}data:\r\n  train_files: t # c\r\nmodel:\r\n  path: m\r\n";
    let loaded = read(text, &["trainer.seed=3", "model.path=n", "data.seed=4"]);
    assert_eq!(loaded.experiment.trainer.seed, 3);
    assert_eq!(
        loaded.resolved,
        "\u{feff}data:\r\n  train_files: t # c\r\n  seed: 4\r\nmodel:\r\n  path: n\r\ntrainer:\r\n  seed: 3\r\n"
    );
}

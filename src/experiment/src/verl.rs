//! An experiment as verl itself is told it: overrides in Hydra's grammar, and what verl cannot be told.
//!
//! Sent is what somebody gave, and what Lathe does otherwise than verl by default, so that both train the same. verl's own keys that
//! do nothing in Lathe are sent too: there they do something. What verl refuses to start without, and Lathe works out itself, is said.
//! Keys that are Lathe's alone are named, each with what that means.

use serde_json::Value as Json;

use crate::keys;
use crate::resolve::Loaded;
use crate::settings::{Engine, EngineName, Experiment};

/// Keys of Lathe without which verl would train something else.
const CHANGE_WHAT_IS_LEARNED: [(&str, &str); 3] = [
    (
        "reward.scorer",
        "verl chooses its scorer by data_source; give reward.custom_reward_function for another",
    ),
    (
        "reward.arms",
        "verl has one reward; give reward.custom_reward_function",
    ),
    ("reward.bandit", "verl cannot choose among rewards"),
];
/// Keys of Lathe that only its own trainer reads, by their start.
const WITHOUT_EFFECT: [(&str, &str); 9] = [
    (
        "trainer.guards",
        "nothing watches a run of verl: its guards do not act",
    ),
    (
        "trainer.guard_probe",
        "nothing watches a run of verl: its guards do not act",
    ),
    (
        "trainer.mode",
        "verl.trainer.main_ppo is synchronous; name another entry in launch.verl.entry",
    ),
    (
        "trainer.max_staleness",
        "verl.trainer.main_ppo is synchronous",
    ),
    ("trainer.seed", "verl has no seed for the whole run"),
    ("trainer.threads", "it is of libtorch in Lathe"),
    (
        "trainer.ckpt_",
        "verl keeps checkpoints by max_actor_ckpt_to_keep alone",
    ),
    (
        "trainer.record_rollouts",
        "verl records rollouts with trainer.rollout_data_dir",
    ),
    ("sft.", "the warm-up is Lathe's"),
];
/// Keys that Lathe says itself.
const OWN: [&str; 3] = ["trainer.logger", "trainer.experiment_name", "launch."];
/// Values of these are Lathe's own where verl has other names or none; sent only when they are verl's.
const LATHE_ONLY_VALUES: [(&str, &str); 2] = [
    ("actor_rollout_ref.rollout.name", "embedded"),
    ("trainer.device", "auto"),
];
const LATHE_ONLY_WHY: &str =
    "its value is Lathe's alone: verl's default holds, and vllm generates where verl has none";
/// Generates in verl where the experiment names none of verl's own: verl has no default.
const ENGINE: &str = "vllm";
/// The loggers through which Lathe follows.
const FOLLOWED: [&str; 2] = ["console", "file"];

/// A key that verl is not told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotSent {
    pub key: String,
    /// What that means.
    pub why: String,
    /// verl would train something else: the run is refused.
    pub is_error: bool,
}

/// What verl is told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// `a.b=value`, as one argument each; no shell reads them.
    pub overrides: Vec<String>,
    pub not_sent: Vec<NotSent>,
}

/// The experiment for verl. Whether it asks for verl is not looked at.
pub fn told(loaded: &Loaded) -> Told {
    let mut told = Told::default();
    let effective = loaded.effective();
    for (key, value) in &loaded.given_values {
        given(&mut told, key, value);
    }
    for key in keys::live() {
        if loaded.given.contains(&key.path) || is_own(&key.path) {
            continue;
        }
        let Some(verl) = keys::verl_key(&key.path) else {
            continue;
        };
        let (Some(ours), Ok(theirs)) = (
            at(&effective, &key.path),
            serde_json::from_str::<Json>(verl.default),
        ) else {
            continue;
        };
        // An interpolation gives what its other key was told.
        let is_interpolated = theirs.as_str().is_some_and(|text| text.contains("${"));
        let is_same = same(ours, &theirs) || ours.is_null();
        if !is_interpolated && !is_same && !is_lathe_only(&key.path, ours) {
            told.overrides.push(assigned(&key.path, ours));
        }
    }
    told.overrides.extend(needed(&loaded.experiment));
    let trainer = &loaded.experiment.trainer;
    told.overrides.push(format!(
        "trainer.experiment_name={}",
        hydra(&Json::from(trainer.experiment_name.as_str()))
    ));
    told.overrides
        .push(format!("trainer.logger={}", hydra(&loggers(loaded))));
    told.overrides.extend(
        loaded
            .experiment
            .launch
            .verl
            .extra_overrides
            .iter()
            .cloned(),
    );
    told
}

/// Into a mapping, which verl leaves empty, Hydra puts new keys only with `++`.
fn assigned(key: &str, value: &Json) -> String {
    let sign = if value.is_object() { "++" } else { "" };
    format!("{sign}{key}={}", hydra(value))
}

/// What verl wants said before it starts. Of the same key the last one holds.
fn needed(experiment: &Experiment) -> Vec<String> {
    let settings = &experiment.actor_rollout_ref;
    let mut needed = Vec::new();
    if settings.rollout.name == EngineName::Embedded {
        needed.push(format!("actor_rollout_ref.rollout.name={ENGINE}"));
    }
    let actor = &settings.actor;
    match actor.ppo_micro_batch_size_per_gpu {
        _ if actor.use_dynamic_bsz => {}
        // Packed by tokens, which is what null means in Lathe.
        None => needed.push("actor_rollout_ref.actor.use_dynamic_bsz=true".to_owned()),
        // As the actor's, which is what null means in Lathe; it changes no gradient.
        Some(size) => {
            let others = [
                (
                    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu",
                    settings.rollout.log_prob_micro_batch_size_per_gpu,
                ),
                (
                    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
                    settings.r#ref.log_prob_micro_batch_size_per_gpu,
                ),
                (
                    "critic.ppo_micro_batch_size_per_gpu",
                    experiment.critic.ppo_micro_batch_size_per_gpu,
                ),
            ];
            let missing = others.into_iter().filter(|(_, said)| said.is_none());
            needed.extend(missing.map(|(key, _)| format!("{key}={size}")));
        }
    }
    let overlong = &experiment.reward.reward_kwargs;
    if overlong.overlong_buffer_cfg.enable {
        // Only this reward manager of verl's knows it; it wants every key of it.
        let block = "++reward.reward_kwargs";
        let longest = (overlong.max_resp_len).unwrap_or(experiment.data.max_response_length);
        let buffer = &overlong.overlong_buffer_cfg;
        needed.push("reward.reward_manager.name=dapo".to_owned());
        needed.push(format!("{block}.max_resp_len={longest}"));
        for (key, value) in [
            ("len", Json::from(buffer.len)),
            ("penalty_factor", Json::from(buffer.penalty_factor)),
            ("log", Json::from(false)),
        ] {
            let value = hydra(&value);
            needed.push(format!("{block}.overlong_buffer_cfg.{key}={value}"));
        }
    }
    let data = &experiment.data;
    if data.val_files.is_empty() {
        // It reads a file of them even when it evaluates nothing.
        let files = Json::from(data.train_files.clone());
        needed.push(format!("data.val_files={}", hydra(&files)));
        needed.push("trainer.val_before_train=false".to_owned());
        needed.push("trainer.test_freq=-1".to_owned());
    }
    needed
}

fn given(told: &mut Told, key: &str, value: &Json) {
    if is_own(key) {
        return;
    }
    if let Some(not_sent) = not_sent(key, value) {
        told.not_sent.push(not_sent);
    } else if keys::verl_key(key).is_some() {
        told.overrides.push(assigned(key, value));
    } else if keys::is_known_to_verl(key) {
        // Hydra adds what its tree lacks.
        told.overrides.push(format!("++{key}={}", hydra(value)));
    }
}

/// Why verl is not told a key that somebody gave; None: it is, or Lathe says it itself.
pub fn not_sent(key: &str, value: &Json) -> Option<NotSent> {
    let starts = |block: &str| key == block || key.starts_with(block);
    let told = |why: &str, is_error: bool| {
        Some(NotSent {
            key: key.to_owned(),
            why: why.to_owned(),
            is_error,
        })
    };
    if is_own(key) {
        return None;
    }
    if let Some((_, why)) = CHANGE_WHAT_IS_LEARNED
        .iter()
        .find(|(block, _)| starts(block))
    {
        // What verl does anyway.
        let is_default = keys::find(key)
            .and_then(|live| serde_json::from_str::<Json>(live.default).ok())
            .is_some_and(|default| same(&default, value));
        return if is_default { None } else { told(why, true) };
    }
    if keys::verl_key(key).is_some() {
        return if is_lathe_only(key, value) {
            told(LATHE_ONLY_WHY, false)
        } else {
            None
        };
    }
    if let Some((_, why)) = WITHOUT_EFFECT.iter().find(|(block, _)| starts(block)) {
        return told(why, false);
    }
    if keys::is_known_to_verl(key) {
        return None;
    }
    told("verl has no such key", false)
}

fn is_own(key: &str) -> bool {
    OWN.iter()
        .any(|own| key == *own || own.ends_with('.') && key.starts_with(own))
}

fn is_lathe_only(key: &str, value: &Json) -> bool {
    LATHE_ONLY_VALUES
        .iter()
        .any(|(known, only)| key == *known && value.as_str() == Some(only))
}

/// Those that were asked for, and those that are followed.
fn loggers(loaded: &Loaded) -> Json {
    let mut names: Vec<String> = FOLLOWED.map(str::to_owned).to_vec();
    let asked = loaded
        .given_values
        .iter()
        .find(|(key, _)| key == "trainer.logger");
    let asked = match asked.map(|(_, value)| value) {
        Some(Json::Array(asked)) => asked.clone(),
        Some(one) => vec![one.clone()],
        None => Vec::new(),
    };
    for name in asked.iter().filter_map(Json::as_str) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    Json::from(names)
}

fn at<'t>(tree: &'t Json, path: &str) -> Option<&'t Json> {
    path.split('.').try_fold(tree, |tree, name| tree.get(name))
}

/// Equal as numbers too: verl writes 0 where we read 0.0.
fn same(left: &Json, right: &Json) -> bool {
    match (left, right) {
        (Json::Number(left), Json::Number(right)) => left.as_f64() == right.as_f64(),
        // One stands for a list of one.
        (Json::Array(left), right) if left.len() == 1 && !right.is_array() => same(&left[0], right),
        _ => left == right,
    }
}

/// A value in Hydra's override grammar: never taken for another type, an interpolation or a sweep.
pub fn hydra(value: &Json) -> String {
    match value {
        Json::Null => "null".to_owned(),
        Json::Bool(_) | Json::Number(_) => value.to_string(),
        Json::String(text) => quoted(text),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(hydra).collect();
            format!("[{}]", items.join(","))
        }
        Json::Object(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{}:{}", quoted(key), hydra(value)))
                .collect();
            format!("{{{}}}", entries.join(","))
        }
    }
}

/// Plain where it can be nothing but text, else in double quotes.
fn quoted(text: &str) -> String {
    let first_is_letter =
        text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '_'));
    let is_plain = first_is_letter
        && text.bytes().all(|byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'/' | b'.' | b'-' | b'@')
        })
        && ![
            "true", "false", "null", "none", "nan", "inf", "yes", "no", "on", "off",
        ]
        .contains(&text.to_ascii_lowercase().as_str());
    if is_plain {
        return text.to_owned();
    }
    // In quotes only a quote, and backslashes before one, are escaped; OmegaConf then looks for `${`.
    let mut out = String::from('"');
    let mut backslashes = 0;
    for (place, c) in text.char_indices() {
        if c == '\\' {
            backslashes += 1;
            out.push(c);
            continue;
        }
        let is_interpolation = c == '$' && text[place..].starts_with("${");
        if c == '"' || is_interpolation {
            out.extend(std::iter::repeat_n('\\', backslashes + 1));
        }
        backslashes = 0;
        out.push(c);
    }
    out.extend(std::iter::repeat_n('\\', backslashes));
    out.push('"');
    out
}

/// True: the experiment asks for verl.
pub fn is_asked_for(experiment: &Experiment) -> bool {
    experiment.launch.engine == Engine::Verl
}

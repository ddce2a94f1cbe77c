//! One table of every key an experiment may have: what it holds, its default, its range, what it does here.
//!
//! `live`: the keys of `settings`. `alias`: other names for them. `inert`: verl's other keys, with the reason why they
//! do nothing here. A key in none of the three is unknown, and `nearest` says what was probably meant.

mod alias;
mod inert;
mod kind;
mod live;
mod nearest;
mod verl;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::OnceLock;

pub use alias::{Canonical, canonical};
pub use inert::matches as glob;
pub use inert::planned;
pub use kind::{Bound, Choices, Kind, or_list};
pub use live::Live;
pub use nearest::{nearest, nearest_of};
pub use verl::{VerlKey, verl_keys};

/// What a key path is.
#[derive(Debug, Clone, Copy)]
pub enum Status {
    Live(&'static Live),
    /// Known to verl; why it does nothing here.
    Inert(&'static str),
    /// A block of ours that does not exist yet.
    Planned(&'static str),
    Unknown,
}

/// The live keys in the order of the documentation.
pub fn live() -> &'static [Live] {
    static TABLE: OnceLock<Vec<Live>> = OnceLock::new();
    TABLE.get_or_init(live::table)
}

pub fn find(path: &str) -> Option<&'static Live> {
    static INDEX: OnceLock<HashMap<&'static str, &'static Live>> = OnceLock::new();
    INDEX
        .get_or_init(|| live().iter().map(|key| (key.path.as_str(), key)).collect())
        .get(path)
        .copied()
}

/// What a full key path is (shorthand already expanded).
pub fn status(path: &str) -> Status {
    if let Some(key) = find(path) {
        Status::Live(key)
    } else if let Some(what) = planned(path) {
        Status::Planned(what)
    } else if let Some(reason) = known_to_verl(path).then(|| inert::reason(path)).flatten() {
        Status::Inert(reason)
    } else {
        Status::Unknown
    }
}

/// Keys and blocks of verl that its main tree lacks: engines, recipes, what its code reads by name, what it once had.
const OUTSIDE_THE_TREE: &[&str] = &[
    "actor_rollout_ref.actor.megatron",
    "actor_rollout_ref.ref.megatron",
    "critic.megatron",
    "actor_rollout_ref.actor.router_replay",
    "actor_rollout_ref.actor.use_rollout_log_probs",
    "actor_rollout_ref.rollout.total_rollout_steps",
    "actor_rollout_ref.rollout.test_freq",
    "actor_rollout_ref.rollout.standalone_gpu_memory_utilization",
    "actor_rollout_ref.rollout.limit_images",
    "actor_rollout_ref.rollout.multi_turn.interaction_config_path",
    "async_training",
    "data.sampler",
    "data.cache_dir",
    "data.chat_template_func",
    "data.need_tools_kwargs",
    "data.filter_prompts",
    "reward_model.reward_kwargs",
    "reward.reward_kwargs",
    "reward.timeout",
    "reward.max_concurrent",
    "reward.max_rpm",
    "reward.max_tpm",
    "reward.estimated_tokens_per_request",
    "trainer.remove_previous_ckpt_in_save",
    "model_engine",
    "ray_init",
    "hydra",
    "defaults",
];

/// Has an effect in Lathe and in verl, whose tree lacks it.
const IN_BOTH: &str = "reward.custom_reward_function.reward_kwargs";

/// Whether verl has the key, perhaps outside of its main tree.
pub fn is_known_to_verl(path: &str) -> bool {
    known_to_verl(path) || path == IN_BOTH
}

/// Whether verl has the key, or it lies in a block of verl that is free-form or not of its main tree.
fn known_to_verl(path: &str) -> bool {
    let under = |block: &str| {
        path == block
            || path
                .strip_prefix(block)
                .is_some_and(|rest| rest.starts_with('.'))
    };
    verl::find(path).is_some()
        || verl::is_under_free_form(path)
        || OUTSIDE_THE_TREE.iter().any(|block| under(block))
}

/// Whether the path is a block: some live or verl key lies under it.
pub fn is_block(path: &str) -> bool {
    static BLOCKS: OnceLock<HashSet<&'static str>> = OnceLock::new();
    BLOCKS
        .get_or_init(|| {
            let paths = live().iter().map(|key| key.path.as_str());
            paths
                .chain(verl_keys().iter().map(|key| key.path))
                .flat_map(|path| path.match_indices('.').map(|(at, _)| &path[..at]))
                .collect()
        })
        .contains(path)
}

/// verl's key of this path.
pub fn verl_key(path: &str) -> Option<&'static VerlKey> {
    verl::find(path)
}

/// Two lines and more on a key, for `lathe help KEY` and the editor's pane. Shorthand is understood.
pub fn help(path: &str) -> Option<String> {
    let full = canonical(path);
    match status(&full.path) {
        Status::Live(key) => {
            let name = key.path.rsplit('.').next().unwrap_or(&key.path);
            let mut text = format!("{}: {}\n{}", key.path, key.kind.noun(), key.help);
            let range = key.kind.range(name);
            if !range.is_empty() {
                let _ = write!(text, "\nallowed: {range}");
            }
            if key.nullable {
                text.push_str("\nmay be null");
            }
            if key.path == "algorithm.adv_estimator" {
                text.push_str(&crate::estimators::help());
            }
            if key.path == "reward.scorer" {
                text.push_str(&crate::scorers::help());
            }
            if key.path == "reward.bandit.policy" {
                text.push_str(&::bandit::table::help());
            }
            if key.path == "actor_rollout_ref.actor.policy_loss.loss_mode" {
                text.push_str(&crate::losses::help());
            }
            let _ = write!(text, "\ndefault: {}", key.default);
            if !key.unit.is_empty() {
                let _ = write!(text, " ({})", key.unit);
            }
            if let Some(verl) = verl::find(&key.path).filter(|verl| verl.default != key.default) {
                let _ = write!(text, "\nverl's default: {}", verl.default);
            }
            if full.path != path {
                let _ = write!(text, "\n{path} is another name of this key");
            }
            Some(text)
        }
        Status::Inert(reason) => Some(format!(
            "{}: a key of verl without effect here\n{reason}",
            full.path
        )),
        Status::Planned(what) => Some(format!("{}: {what}", full.path)),
        Status::Unknown => None,
    }
}

/// The live keys as a Markdown document, one table a block.
pub fn markdown() -> String {
    let mut text = String::new();
    let mut block = "";
    for key in live() {
        let (path, name) = key.path.rsplit_once('.').unwrap_or(("", &key.path));
        if path != block {
            block = path;
            let _ = write!(
                text,
                "\n## {block}\n\n| key | holds | default | unit | what it does |\n|---|---|---|---|---|\n"
            );
        }
        let range = key.kind.range(name);
        let holds = match (range.is_empty(), key.nullable) {
            (true, false) => key.kind.noun(),
            (true, true) => format!("{} or null", key.kind.noun()),
            (false, false) => format!("{}, {range}", key.kind.noun()),
            (false, true) => format!("{}, {range}, or null", key.kind.noun()),
        };
        let _ = writeln!(
            text,
            "| `{name}` | {} | `{}` | {} | {} |",
            holds.replace('|', "\\|"),
            key.default,
            key.unit,
            key.help.replace('|', "\\|")
        );
    }
    text.trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{OUTSIDE_THE_TREE, Status, status};

    #[test]
    fn every_key_outside_verls_tree_has_a_reason() {
        for key in OUTSIDE_THE_TREE {
            assert!(matches!(status(key), Status::Inert(_)), "{key}");
        }
    }
}

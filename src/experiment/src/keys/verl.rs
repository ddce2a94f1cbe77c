//! verl's own keys, from the table beside this file.

use std::collections::HashMap;
use std::sync::OnceLock;

/// A leaf of verl 0.9.1's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerlKey {
    pub path: &'static str,
    /// As JSON; may hold an interpolation.
    pub default: &'static str,
    /// L live, C only in a mode, D dead, X deprecated, G legacy alias; `target` and `profiler` by their block.
    pub status: &'static str,
}

const TABLE: &str = include_str!("verl.tsv");

pub fn verl_keys() -> &'static [VerlKey] {
    static KEYS: OnceLock<Vec<VerlKey>> = OnceLock::new();
    KEYS.get_or_init(|| {
        TABLE
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| {
                let mut fields = line.split('\t');
                Some(VerlKey {
                    path: fields.next()?,
                    default: fields.next()?,
                    status: fields.next()?,
                })
            })
            .collect()
    })
}

pub fn find(path: &str) -> Option<&'static VerlKey> {
    static INDEX: OnceLock<HashMap<&'static str, &'static VerlKey>> = OnceLock::new();
    INDEX
        .get_or_init(|| verl_keys().iter().map(|key| (key.path, key)).collect())
        .get(path)
        .copied()
}

/// Whether an ancestor is a mapping that verl leaves to the user (`{}` by default).
pub fn is_under_free_form(path: &str) -> bool {
    let mut path = path;
    while let Some((parent, _)) = path.rsplit_once('.') {
        if find(parent).is_some_and(|key| key.default == "{}") {
            return true;
        }
        path = parent;
    }
    false
}

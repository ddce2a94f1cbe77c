//! What a reader leaves out, said once of each thing.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::item::Item;

/// Kinds of things that a log has too many of to name each.
const MOST: usize = 200;

/// What was said already; part of a reader's place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Said(BTreeSet<String>);

impl Said {
    /// A note of `what`, unless it was said before.
    pub fn once(&mut self, what: &str, items: &mut Vec<Item>, say: impl FnOnce() -> String) {
        if self.0.len() < MOST && self.0.insert(what.to_owned()) {
            items.push(Item::Note(say()));
        }
    }
}

//! The valid key that an unknown one was probably meant to be.

use std::collections::BTreeSet;

use super::{alias, live, verl_keys};

/// The nearest valid key path to `written` (in full), or `None` when nothing is near.
///
/// First each name on the way by spelling, then the key's siblings, then the same name elsewhere in the tree, then similar names elsewhere.
pub fn nearest(written: &str) -> Option<String> {
    let (parent, name) = written.rsplit_once('.').unwrap_or(("", written));
    let all: Vec<&str> = live()
        .iter()
        .map(|key| key.path.as_str())
        .chain(alias::names())
        .chain(verl_keys().iter().map(|key| key.path))
        .collect();
    if let Some(mended) = mended(&all, written) {
        return Some(mended);
    }
    let siblings: BTreeSet<&str> = all.iter().filter_map(|path| child(path, parent)).collect();
    if let Some(sibling) = best(siblings.iter().copied(), name) {
        return Some(if parent.is_empty() {
            sibling.to_owned()
        } else {
            format!("{parent}.{sibling}")
        });
    }
    // `actor.lr` for `actor.optim.lr`: the same last name, closest to where it was written; live keys first.
    let elsewhere = |paths: &mut dyn Iterator<Item = &str>| {
        paths
            .filter(|path| path.rsplit('.').next() == Some(name))
            .max_by_key(|path| (shared_prefix(path, parent), std::cmp::Reverse(path.len())))
            .map(str::to_owned)
    };
    elsewhere(&mut live().iter().map(|key| key.path.as_str()))
        .or_else(|| elsewhere(&mut alias::names()))
        .or_else(|| {
            let leaves: BTreeSet<&str> = live()
                .iter()
                .filter_map(|key| key.path.rsplit('.').next())
                .collect();
            let leaf = best(leaves.into_iter(), name)?;
            live()
                .iter()
                .map(|key| key.path.as_str())
                .filter(|path| path.rsplit('.').next() == Some(leaf))
                .max_by_key(|path| shared_prefix(path, parent))
                .map(str::to_owned)
        })
}

/// The path with each misspelt name on the way put right, if that makes a key of it.
fn mended(all: &[&str], written: &str) -> Option<String> {
    let mut path = String::new();
    for name in written.split('.') {
        let children: BTreeSet<&str> = all.iter().filter_map(|known| child(known, &path)).collect();
        let name = if children.contains(name) {
            name
        } else {
            best(children.into_iter(), name)?
        };
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
        path = alias::canonical(&path).path;
    }
    Some(path)
}

/// The first key of `path` below `parent`.
fn child<'p>(path: &'p str, parent: &str) -> Option<&'p str> {
    let rest = if parent.is_empty() {
        path
    } else {
        path.strip_prefix(parent)?.strip_prefix('.')?
    };
    rest.split('.').next()
}

fn best<'n>(names: impl Iterator<Item = &'n str>, wanted: &str) -> Option<&'n str> {
    // A third of the letters may differ: `temprature` is near, `temp` is not.
    let allowed = (wanted.chars().count() / 3).max(1);
    names
        .filter(|name| *name != wanted)
        .map(|name| (strsim::osa_distance(name, wanted), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, name)| name)
}

/// The nearest of some names, where one is near.
pub fn nearest_of<'n>(wanted: &str, names: &[&'n str]) -> Option<&'n str> {
    best(names.iter().copied(), wanted)
}

fn shared_prefix(path: &str, parent: &str) -> usize {
    path.split('.')
        .zip(parent.split('.'))
        .take_while(|(left, right)| left == right)
        .count()
}

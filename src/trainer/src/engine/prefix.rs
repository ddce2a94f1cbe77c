//! Which session already holds the keys and values of a context's beginning. Hashes of every 16-token prefix and of the whole
//! context lead to the last session that registered them; the finder compares the ids themselves before it believes a hash.

use std::collections::HashMap;

use dialogue::generate::SessionId;

/// Prefixes are remembered at multiples of this many tokens.
const BLOCK: usize = 16;

#[derive(Debug, Default)]
pub(super) struct PrefixIndex {
    by_hash: HashMap<u64, SessionId>,
    of_session: HashMap<SessionId, Vec<u64>>,
}

/// Hashes of the prefixes of `ids`, shortest first.
fn hashes(ids: &[u32]) -> Vec<u64> {
    let mut hash = 0;
    ids.chunks(BLOCK)
        .map(|block| {
            let bytes: Vec<u8> = block.iter().flat_map(|id| id.to_le_bytes()).collect();
            hash = xxhash_rust::xxh3::xxh3_64_with_seed(&bytes, hash);
            hash
        })
        .collect()
}

impl PrefixIndex {
    pub fn register(&mut self, session: SessionId, ids: &[u32]) {
        let hashes = hashes(ids);
        for hash in &hashes {
            self.by_hash.insert(*hash, session);
        }
        self.of_session.entry(session).or_default().extend(hashes);
    }

    /// Sessions that may start like `ids`, the longest prefix first.
    pub fn candidates(&self, ids: &[u32]) -> impl Iterator<Item = SessionId> {
        hashes(ids)
            .into_iter()
            .rev()
            .filter_map(|hash| self.by_hash.get(&hash).copied())
    }

    pub fn forget(&mut self, session: SessionId) {
        for hash in self.of_session.remove(&session).unwrap_or_default() {
            if self.by_hash.get(&hash) == Some(&session) {
                self.by_hash.remove(&hash);
            }
        }
    }

    pub fn clear(&mut self) {
        self.by_hash.clear();
        self.of_session.clear();
    }
}

/// Tokens that both start with.
pub(super) fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_finds_who_shares_its_longest_registered_prefix_until_that_one_is_forgotten() {
        let ids: Vec<u32> = (0..50).collect();
        let (long, short) = (SessionId(1), SessionId(2));
        let mut index = PrefixIndex::default();
        index.register(long, &ids);
        index.register(short, &ids[..20]);
        let first = |index: &PrefixIndex, ids: &[u32]| index.candidates(ids).next();
        assert_eq!(first(&index, &ids), Some(long));
        assert_eq!(first(&index, &ids[..20]), Some(short));
        assert_eq!(first(&index, &[&ids[..33], &[7, 7]].concat()), Some(long));
        assert_eq!(first(&index, &[9; 40]), None);
        index.forget(long);
        assert_eq!(first(&index, &ids), Some(short));
        index.forget(short);
        assert_eq!(first(&index, &ids), None);
        assert!(index.by_hash.is_empty() && index.of_session.is_empty());
    }
}

//! A set of moments as disjoint intervals: what "busy" and "overlap" are computed from.

use serde::{Deserialize, Serialize};

/// Disjoint half-open intervals in order, milliseconds. Touching ones are joined, so its size is the number of gaps.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Intervals {
    parts: Vec<(f64, f64)>,
}

impl Intervals {
    /// Adds `start..end`. Empty, backward and non-finite intervals add nothing.
    pub fn insert(&mut self, start: f64, end: f64) {
        if !(start.is_finite() && end.is_finite() && start < end) {
            return;
        }
        // Spans come nearly in order of their end, so the place is near the back.
        let last = self.parts.partition_point(|part| part.0 <= end);
        let first = self.parts[..last].partition_point(|part| part.1 < start);
        let (mut start, mut end) = (start, end);
        if first < last {
            start = start.min(self.parts[first].0);
            end = end.max(self.parts[last - 1].1);
        }
        self.parts.splice(first..last, [(start, end)]);
    }

    /// Total length, ms.
    pub fn length(&self) -> f64 {
        self.parts.iter().map(|(start, end)| end - start).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub fn parts(&self) -> &[(f64, f64)] {
        &self.parts
    }

    /// Moments in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        for (start, end) in &other.parts {
            all.insert(*start, *end);
        }
        all
    }

    /// Length of what both share, ms.
    pub fn shared_length(&self, other: &Self) -> f64 {
        let (mut mine, mut theirs) = (self.parts.iter().peekable(), other.parts.iter().peekable());
        let mut shared = 0.0;
        while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
            shared += (a.1.min(b.1) - a.0.max(b.0)).max(0.0);
            if a.1 <= b.1 {
                mine.next();
            } else {
                theirs.next();
            }
        }
        shared
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Milliseconds 0..200 as claims, the slow and obvious way.
    fn moments(spans: &[(u16, u16)]) -> Vec<bool> {
        let mut covered = vec![false; 200];
        for (start, end) in spans {
            for moment in *start..*end {
                covered[usize::from(moment)] = true;
            }
        }
        covered
    }

    fn intervals(spans: &[(u16, u16)]) -> Intervals {
        let mut set = Intervals::default();
        for (start, end) in spans {
            set.insert(f64::from(*start), f64::from(*end));
        }
        set
    }

    proptest! {
        #[test]
        fn lengths_equal_those_counted_moment_by_moment(
            a in prop::collection::vec((0_u16..200, 0_u16..200), 0..20),
            b in prop::collection::vec((0_u16..200, 0_u16..200), 0..20),
        ) {
            let (set_a, set_b) = (intervals(&a), intervals(&b));
            let (slow_a, slow_b) = (moments(&a), moments(&b));
            let count = |claims: &mut dyn Iterator<Item = bool>| claims.filter(|is_in| *is_in).count() as f64;
            prop_assert_eq!(set_a.length(), count(&mut slow_a.iter().copied()));
            prop_assert_eq!(set_a.union(&set_b).length(), count(&mut slow_a.iter().zip(&slow_b).map(|(x, y)| *x || *y)));
            prop_assert_eq!(set_a.shared_length(&set_b), count(&mut slow_a.iter().zip(&slow_b).map(|(x, y)| *x && *y)));
            for pair in set_a.parts().windows(2) {
                prop_assert!(pair[0].1 < pair[1].0, "touching parts are joined: {:?}", set_a);
            }
        }
    }
}

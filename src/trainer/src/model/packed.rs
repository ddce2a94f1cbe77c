//! Token sequences laid end to end, without padding. A group shares its prompt: the prompt's rows are computed once and every
//! sample of the group attends to them (n samples of one prompt cost one prompt, not n).
//!
//! ```text
//!  row    0 1 2 3 │ 4 5 6 │ 7 8 │ 9 10 11 12 │ …
//!         prompt    branch  branch   prompt
//!  position 0 1 2 3 4 5 6   4 5      0 1 2 3
//! ```

use std::ops::Range;

/// One prompt and the samples that follow it, as row ranges of a [`PackedBatch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedGroup {
    pub prompt: Range<usize>,
    /// Each attends to the prompt and, causally, to itself.
    pub branches: Vec<Range<usize>>,
}

/// N tokens of whole groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackedBatch {
    /// \[N\]
    pub token_ids: Vec<i64>,
    /// \[N\], counting from 0 at each prompt's start.
    pub positions: Vec<i64>,
    pub groups: Vec<PackedGroup>,
}

impl PackedBatch {
    /// Appends one group and returns where its rows are. A prompt must not be empty; a branch may be.
    pub fn push_group(&mut self, prompt: &[u32], branches: &[&[u32]]) -> &PackedGroup {
        let prompt_rows = self.push(prompt, 0);
        let branch_rows = branches
            .iter()
            .map(|branch| self.push(branch, prompt.len()))
            .collect();
        self.groups.push(PackedGroup {
            prompt: prompt_rows,
            branches: branch_rows,
        });
        self.groups.last().expect("just pushed")
    }

    /// Number of tokens N.
    pub fn len(&self) -> usize {
        self.token_ids.len()
    }

    pub fn is_empty(&self) -> bool {
        self.token_ids.is_empty()
    }

    fn push(&mut self, ids: &[u32], first_position: usize) -> Range<usize> {
        let start = self.len();
        self.token_ids.extend(ids.iter().map(|id| i64::from(*id)));
        self.positions
            .extend((0..ids.len()).map(|index| (first_position + index) as i64));
        start..self.len()
    }
}

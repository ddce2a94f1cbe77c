//! The same prompt elsewhere: at other steps, in marked runs, or by the other samples of its group.

use std::sync::Arc;

use super::data::Batch;
use crate::tui::shared::RunKey;

/// What stands in the second column.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    /// Which question the places answer; older answers are ignored.
    pub request: u64,
    /// The prompt that is looked for: its batch and sample.
    pub of: (Arc<Batch>, usize),
    /// Where the prompt was found, nearest first; when all was looked through, the group's own step is the last.
    places: Vec<(RunKey, u64)>,
    /// Steps that are still to be looked through; None: they were not counted yet.
    left: Option<usize>,
    pub place: usize,
    /// Which sample of the group there.
    pub sample: usize,
    pub scroll: usize,
}

impl Beside {
    pub fn new(request: u64, of: (Arc<Batch>, usize)) -> Self {
        Self {
            request,
            of,
            places: Vec::new(),
            left: None,
            place: 0,
            sample: 0,
            scroll: 0,
        }
    }

    /// Takes what some more steps gave. `here`: the group's own step, which comes last.
    pub fn take(&mut self, places: Vec<(RunKey, u64)>, left: usize, here: Option<(RunKey, u64)>) {
        self.places.extend(places);
        self.left = Some(left);
        if left == 0 {
            self.places.extend(here);
        }
    }

    /// None: nothing was found yet.
    pub fn place(&self) -> Option<&(RunKey, u64)> {
        self.places.get(self.place)
    }

    #[cfg(test)]
    pub fn places(&self) -> &[(RunKey, u64)] {
        &self.places
    }

    pub fn count(&self) -> usize {
        self.places.len()
    }

    pub fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    /// `12+` while more may be found.
    pub fn counted(&self) -> String {
        let more = if self.is_done() { "" } else { "+" };
        format!("{}{more}", self.count())
    }

    /// How the search goes, while it does.
    pub fn progress(&self) -> String {
        match self.left {
            Some(0) => String::new(),
            Some(left) => format!("{left} steps are still looked through"),
            None => "looking through every recorded step".to_owned(),
        }
    }

    pub fn next_place(&mut self) {
        self.place = (self.place + 1) % self.count().max(1);
        self.sample = 0;
        self.scroll = 0;
    }
}

//! The same prompt elsewhere: at other steps, in marked runs, or by the other samples of its group.

use crate::tui::shared::RunKey;

/// What stands in the second column.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    /// Which question the places answer; older answers are ignored.
    pub request: u64,
    /// Where the prompt is found, nearest first; the group's own step is the last. None: being looked for.
    pub places: Option<Vec<(RunKey, u64)>>,
    pub place: usize,
    /// Which sample of the group there.
    pub sample: usize,
    /// Steps that were not looked at.
    pub left: usize,
    pub scroll: usize,
}

impl Beside {
    pub fn new(request: u64) -> Self {
        Self {
            request,
            places: None,
            place: 0,
            sample: 0,
            left: 0,
            scroll: 0,
        }
    }

    pub fn place(&self) -> Option<&(RunKey, u64)> {
        self.places.as_ref()?.get(self.place)
    }

    pub fn next_place(&mut self) {
        let count = self.places.as_ref().map_or(0, Vec::len);
        self.place = (self.place + 1) % count.max(1);
        self.sample = 0;
        self.scroll = 0;
    }
}

//! Which panels there are, in which order, and how that is changed and remembered.

use super::panels::{self, Panel};
use super::sizes::Side;
use super::{Live, draw, view};
use crate::tui::action::Effect;
use crate::tui::shared::{Notice, Shared};

impl Live {
    pub(super) fn find_order(&self, shared: &Shared) -> Vec<usize> {
        let runs = shared.shown_runs();
        let with_data: Vec<usize> = (0..self.panels.len() + self.others.len())
            .filter(|index| {
                runs.iter()
                    .any(|(_, run)| !self.panel(*index).names(&run.state).is_empty())
            })
            .collect();
        let mut order = if with_data.is_empty() {
            (0..self.panels.len()).collect()
        } else {
            with_data
        };
        order.sort_by_key(|index| !self.panel(*index).is_pinned);
        order
    }

    /// Takes a panel into the layout, so that it can be changed; gives its index there.
    pub(super) fn adopt(&mut self, index: usize) -> usize {
        if index < self.panels.len() {
            return index;
        }
        let panel = self.others.remove(index - self.panels.len());
        self.panels.push(Panel {
            is_adopted: true,
            ..panel
        });
        self.panels.len() - 1
    }

    pub(super) fn move_panel(&mut self, by: isize, shared: &mut Shared) -> Vec<Effect> {
        let visible = self.visible();
        let Some(&from) = visible.get(self.focus) else {
            return Vec::new();
        };
        let Some(&to) = self
            .focus
            .checked_add_signed(by)
            .and_then(|place| visible.get(place))
        else {
            return Vec::new();
        };
        // The earlier one first: taking a panel in moves only those before it.
        let first = self.adopt(from.min(to));
        let second = self.adopt(from.max(to));
        self.panels.swap(first, second);
        self.follow_panel(if from < to { second } else { first }, shared);
        self.keep(shared)
    }

    /// Keeps the focus on a panel after the order changed.
    pub(super) fn follow_panel(&mut self, index: usize, shared: &Shared) {
        self.order = self.find_order(shared);
        if let Some(place) = self.visible().iter().position(|&other| other == index) {
            self.focus = place;
        }
    }

    /// Makes the column or row of the focused panel larger or smaller.
    pub(super) fn resize(&mut self, side: Side, by: i16, shared: &mut Shared) -> Vec<Effect> {
        let area = shared.page_area();
        let Some(grid) = draw::grid(self, shared, area) else {
            shared.say(Notice::caution(
                "this panel has the page to itself (e: all panels)",
            ));
            return Vec::new();
        };
        let across = grid.columns.len();
        let first = draw::places(self, shared, area)
            .first()
            .map_or(0, |(place, _)| *place);
        let at = match side {
            Side::Width => self.focus % across,
            Side::Height => self.focus.saturating_sub(first) / across,
        };
        if self.sizes.grow(side, at, by, &grid) {
            return self.keep(shared);
        }
        shared.say(Notice::caution(
            "the panels beside it have no room to give or take",
        ));
        Vec::new()
    }

    pub(super) fn keep(&self, shared: &mut Shared) -> Vec<Effect> {
        shared.kept.set("live.panels", &self.panels);
        shared.kept.set("live.sizes", &self.sizes);
        vec![Effect::SaveState]
    }

    pub(super) fn find_others(&mut self, shared: &Shared) {
        self.others = shared
            .current_run()
            .map(|run| panels::others(&self.panels, &run.state))
            .unwrap_or_default();
        self.order = self.find_order(shared);
    }

    pub(super) fn apply_choice(
        &mut self,
        panel: Option<usize>,
        metrics: Vec<String>,
        shared: &mut Shared,
    ) -> Vec<Effect> {
        if metrics.is_empty() {
            shared.say(Notice::caution("a panel needs at least one metric"));
            return Vec::new();
        }
        if let Some(panel) = panel.and_then(|index| self.panels.get_mut(index)) {
            // A panel of one metric goes by its name.
            if panel.metrics.len() == 1 && panel.metrics[0] == panel.title {
                view::short_name(&metrics[0]).clone_into(&mut panel.title);
            }
            panel.metrics = metrics;
        } else {
            let title = view::short_name(&metrics[0]).to_owned();
            self.panels.push(Panel {
                title,
                metrics,
                ..Panel::default()
            });
            let added = self.panels.len() - 1;
            self.follow_panel(added, shared);
        }
        self.find_others(shared);
        self.smooth(shared);
        self.keep(shared)
    }
}

//! The mouse on page Live: focus and crosshair, zoom by the wheel, and borders that are dragged.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use super::{Live, draw, view};
use crate::tui::action::Effect;
use crate::tui::shared::Shared;
use crate::tui::widgets::chart;

impl Live {
    pub(super) fn mouse(
        &mut self,
        event: MouseEvent,
        area: Rect,
        shared: &mut Shared,
    ) -> Vec<Effect> {
        let at = Position::new(event.column, event.row);
        let grid = draw::grid(self, shared, area);
        if let (Some(border), Some(grid)) = (self.held, &grid) {
            match event.kind {
                MouseEventKind::Drag(MouseButton::Left) => {
                    self.sizes.drag(border, at, grid);
                    return Vec::new();
                }
                MouseEventKind::Up(MouseButton::Left) => {
                    self.held = None;
                    return self.keep(shared);
                }
                // The button was let go outside of the page.
                _ => self.held = None,
            }
        }
        let places = draw::places(self, shared, area);
        let Some((place, rect)) = places.iter().find(|(_, rect)| rect.contains(at)).copied() else {
            return Vec::new();
        };
        match event.kind {
            MouseEventKind::Down(MouseButton::Left) | MouseEventKind::Drag(MouseButton::Left) => {
                self.focus = place;
                if event.kind == MouseEventKind::Down(MouseButton::Left) {
                    self.held = grid.and_then(|grid| grid.border_at(at));
                }
                let inner = draw::inner(rect);
                if inner.contains(at)
                    && let Some(share) = chart::share_at(inner, at.x)
                    && let Some(window) = view::window(self, shared)
                {
                    self.set_crosshair(window.at(share), shared);
                }
            }
            MouseEventKind::ScrollUp => self.zoom_by(0.8, shared),
            MouseEventKind::ScrollDown => self.zoom_by(1.25, shared),
            _ => {}
        }
        Vec::new()
    }
}

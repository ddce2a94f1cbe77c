//! Two small lists over the table: by which column to sort, and which metrics have columns.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use runlog::metrics::Direction;

use super::Kept;
use super::columns::{Column, direction};
use crate::tui::modal::{boxed, middle};
use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::field::{Field, Outcome};
use crate::tui::widgets::list::{ListState, Move};
use crate::tui::widgets::text;

/// Rows of the metric list on screen at most.
const PICKER_ROWS: u16 = 16;
/// Letters that choose a column at once; without those that move.
const LETTERS: &str = "asdfgqwertyuiopzxcvbnm";

/// What a key did to one of the lists.
#[derive(Debug)]
pub enum Picked {
    Stay,
    Close,
    Take(Kept),
}

#[derive(Debug)]
pub struct SortMenu {
    columns: Vec<Column>,
    list: ListState,
}

impl SortMenu {
    pub fn new(kept: &Kept) -> Self {
        let mut columns = Column::all(&kept.metrics);
        columns.retain(|column| match column {
            Column::Best(metric) => direction(metric) != Direction::Neither,
            _ => true,
        });
        let mut list = ListState::default();
        if let Some(at) = columns.iter().position(|column| *column == kept.sort) {
            list.select(at);
        }
        Self { columns, list }
    }

    pub fn key(&mut self, key: KeyEvent, kept: &Kept) -> Picked {
        let rows = self.columns.len();
        let take = |column: &Column| {
            Picked::Take(Kept {
                sort: column.clone(),
                is_descending: if *column == kept.sort {
                    !kept.is_descending
                } else {
                    column.starts_descending()
                },
                ..kept.clone()
            })
        };
        match key.code {
            KeyCode::Enter => return take(&self.columns[self.list.selected(rows)]),
            // g is a column's letter here.
            KeyCode::Char('j' | 'k') => {
                if let Some(by) = Move::of_menu(key) {
                    self.list.go(by, rows, rows);
                }
            }
            KeyCode::Char(letter) if !key.modifiers.contains(KeyModifiers::CONTROL) => {
                match LETTERS.chars().position(|known| known == letter) {
                    Some(at) if at < rows => return take(&self.columns[at]),
                    _ => return Picked::Close,
                }
            }
            _ => match Move::of_typed(key) {
                Some(by) => self.list.go(by, rows, rows),
                None => return Picked::Close,
            },
        }
        Picked::Stay
    }

    pub fn draw(&self, kept: &Kept, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.columns.len();
        let place = middle(area, 34, rows as u16 + 2);
        let inner = boxed(shared, frame, place, " Sort by ", Role::Focus);
        let visible = usize::from(inner.height);
        let selected = self.list.selected(rows);
        let lines: Vec<Line<'_>> = self
            .list
            .window(rows, visible)
            .map(|row| {
                let column = &self.columns[row];
                let letter = LETTERS.chars().nth(row).unwrap_or(' ');
                let arrow = if *column == kept.sort {
                    sort_arrow(kept.is_descending, shared)
                } else {
                    ""
                };
                let pointer = if row == selected { ">" } else { " " };
                let line = Line::from(vec![
                    Span::raw(pointer),
                    Span::styled(format!(" {letter}  "), shared.style(Role::Accent)),
                    Span::raw(format!("{} {arrow}", text::printable(&column.title()))),
                ]);
                if row == selected {
                    line.style(shared.style(Role::Selection))
                } else {
                    line
                }
            })
            .collect();
        frame.render_widget(Paragraph::new(lines), inner);
    }
}

pub fn sort_arrow(is_descending: bool, shared: &Shared) -> &'static str {
    if is_descending {
        shared.glyphs.pick("↓", "v")
    } else {
        shared.glyphs.pick("↑", "^")
    }
}

/// Every metric that a run has, searched; enter gives one a column or takes it away.
#[derive(Debug)]
pub struct MetricPicker {
    field: Field,
    names: Vec<String>,
    list: ListState,
}

impl MetricPicker {
    /// Words first, as they fit runs whose test sets have other names; then the names that runs have.
    pub fn new(chosen: &[String], shared: &Shared) -> Self {
        let mut names: Vec<String> = chosen.to_vec();
        let words = runlog::filter::ALIASES.iter().map(|(word, _)| *word);
        let mut found: Vec<&str> = shared
            .runs
            .entries
            .iter()
            .filter_map(|entry| entry.glance.as_ref())
            .flat_map(|glance| glance.last.keys().map(String::as_str))
            .collect();
        found.sort_unstable();
        found.dedup();
        for name in words.chain(found) {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        Self {
            field: Field::default(),
            names,
            list: ListState::default(),
        }
    }

    fn matches(&self) -> Vec<&str> {
        if self.field.is_empty() {
            return self.names.iter().map(String::as_str).collect();
        }
        let mut matcher = Matcher::new(Config::DEFAULT);
        let pattern = Pattern::parse(self.field.text(), CaseMatching::Smart, Normalization::Smart);
        let mut buffer = Vec::new();
        let mut found: Vec<(&str, u32)> = self
            .names
            .iter()
            .filter_map(|name| {
                let haystack = nucleo_matcher::Utf32Str::new(name, &mut buffer);
                Some((name.as_str(), pattern.score(haystack, &mut matcher)?))
            })
            .collect();
        found.sort_by_key(|(_, score)| std::cmp::Reverse(*score));
        found.into_iter().map(|(name, _)| name).collect()
    }

    pub fn key(&mut self, key: KeyEvent, kept: &Kept) -> Picked {
        let rows = self.matches().len();
        if let Some(by) = Move::of_typed(key) {
            self.list.go(by, rows, usize::from(PICKER_ROWS));
            return Picked::Stay;
        }
        match self.field.key(key) {
            Outcome::Cancelled => return Picked::Close,
            Outcome::Changed => self.list.select(0),
            Outcome::Accepted => {
                let found = self.matches();
                let Some(name) = found.get(self.list.selected(rows)) else {
                    return Picked::Stay;
                };
                let mut metrics = kept.metrics.clone();
                match metrics.iter().position(|known| known == name) {
                    Some(at) => {
                        metrics.remove(at);
                    }
                    None => metrics.push((*name).to_owned()),
                }
                let is_sorted_by_it = matches!(&kept.sort, Column::Last(metric) | Column::Best(metric) if !metrics.contains(metric));
                let base = if is_sorted_by_it {
                    Kept::default()
                } else {
                    kept.clone()
                };
                return Picked::Take(Kept { metrics, ..base });
            }
            Outcome::Kept | Outcome::Unused => {}
        }
        Picked::Stay
    }

    pub fn paste(&mut self, pasted: &str) {
        self.field.paste(pasted);
        self.list.select(0);
    }

    pub fn draw(&self, kept: &Kept, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        let found = self.matches();
        let place = middle(area, 64, PICKER_ROWS + 3);
        let title = " Metrics with columns (enter: add or remove, esc: done) ";
        let inner = boxed(shared, frame, place, title, Role::Focus);
        let [line, rest] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(inner);
        let styles = (shared.style(Role::Accent), shared.style(Role::Text));
        self.field.draw(frame, line, "search: ", styles, true);
        let selected = self.list.selected(found.len());
        let lines: Vec<Line<'_>> = self
            .list
            .window(found.len(), usize::from(rest.height))
            .map(|row| {
                let name = found[row];
                let place = kept.metrics.iter().position(|known| known == name);
                let pointer = if row == selected { ">" } else { " " };
                let mark = if place.is_some() { "[x]" } else { "[ ]" };
                let what = runlog::metrics::lookup(name).map_or_else(
                    || {
                        runlog::filter::ALIASES
                            .iter()
                            .find(|(word, _)| *word == name)
                            .map_or_else(String::new, |(_, patterns)| patterns.join(", "))
                    },
                    |metric| metric.formula.to_owned(),
                );
                let unicode = shared.glyphs.unicode;
                let room = usize::from(rest.width).saturating_sub(32);
                let line = Line::from(vec![
                    Span::raw(format!("{pointer} {mark} ")),
                    Span::raw(text::pad(&text::printable(name), 25, unicode)),
                    Span::styled(
                        text::fit(&format!(" {what}"), room, unicode),
                        shared.style(Role::Muted),
                    ),
                ]);
                if row == selected {
                    line.style(shared.style(Role::Selection))
                } else {
                    line
                }
            })
            .collect();
        frame.render_widget(Paragraph::new(lines), rest);
    }
}

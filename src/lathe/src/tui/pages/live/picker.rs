//! Choosing the metrics of a panel: every metric of the run, searched while typing, marked with tab.

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use runlog::{RunState, metrics};

use super::panels::{Panel, fits};
use crate::tui::modal::{boxed, middle};
use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::field::{self, Field};
use crate::tui::widgets::list::{ListState, Move};
use crate::tui::widgets::text;

#[derive(Debug)]
pub struct Picker {
    /// None: a new panel.
    panel: Option<usize>,
    names: Vec<String>,
    chosen: Vec<String>,
    field: Field,
    list: ListState,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Open,
    Cancelled,
    Done {
        panel: Option<usize>,
        metrics: Vec<String>,
    },
}

impl Picker {
    pub fn of_panel(index: usize, panel: &Panel, state: &RunState) -> Self {
        let mut picker = Self::of_new(state);
        picker.panel = Some(index);
        picker.chosen.clone_from(&panel.metrics);
        picker
    }

    pub fn of_new(state: &RunState) -> Self {
        Self {
            panel: None,
            names: state.series.names().map(str::to_owned).collect(),
            chosen: Vec::new(),
            field: Field::default(),
            list: ListState::default(),
        }
    }

    fn is_chosen(&self, name: &str) -> bool {
        self.chosen.iter().any(|pattern| fits(pattern, name))
    }

    fn shown(&self) -> Vec<&str> {
        let words: Vec<String> = self
            .field
            .text()
            .split_whitespace()
            .map(str::to_lowercase)
            .collect();
        self.names
            .iter()
            .map(String::as_str)
            .filter(|name| {
                let name = name.to_lowercase();
                words.iter().all(|word| name.contains(word))
            })
            .collect()
    }

    pub fn key(&mut self, key: KeyEvent) -> Outcome {
        if let Some(by) = Move::of_typed(key) {
            let count = self.shown().len();
            self.list.go(by, count, 10);
            return Outcome::Open;
        }
        match key.code {
            KeyCode::Tab => self.toggle(),
            _ => match self.field.key(key) {
                field::Outcome::Cancelled => return Outcome::Cancelled,
                field::Outcome::Accepted => {
                    if self.chosen.is_empty() {
                        self.toggle();
                    }
                    return Outcome::Done {
                        panel: self.panel,
                        metrics: std::mem::take(&mut self.chosen),
                    };
                }
                field::Outcome::Changed => self.list.select(0),
                field::Outcome::Kept | field::Outcome::Unused => {}
            },
        }
        Outcome::Open
    }

    pub fn paste(&mut self, pasted: &str) {
        self.field.paste(pasted);
        self.list.select(0);
    }

    /// Marks or unmarks the selected metric. A pattern that covers it goes away whole.
    fn toggle(&mut self) {
        let shown = self.shown();
        let Some(&name) = shown.get(self.list.selected(shown.len())) else {
            return;
        };
        let name = name.to_owned();
        if self.is_chosen(&name) {
            let others: Vec<String> = self
                .names
                .iter()
                .filter(|other| **other != name && self.is_chosen(other))
                .cloned()
                .collect();
            let dropped: Vec<String> = self
                .chosen
                .iter()
                .filter(|pattern| fits(pattern, &name))
                .cloned()
                .collect();
            self.chosen.retain(|pattern| !fits(pattern, &name));
            // What else the dropped pattern stood for stays.
            for other in others {
                if dropped.iter().any(|pattern| fits(pattern, &other)) && !self.is_chosen(&other) {
                    self.chosen.push(other);
                }
            }
        } else {
            self.chosen.push(name);
        }
    }

    pub fn draw(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        let title = " Metrics (type to search, tab marks, enter takes them) ";
        let inner = boxed(shared, frame, middle(area, 84, 20), title, Role::Focus);
        if inner.height < 3 {
            return;
        }
        let [line, rest, help] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(2),
        ])
        .areas(inner);
        self.field.draw(
            frame,
            line,
            "/ ",
            (shared.style(Role::Accent), shared.style(Role::Text)),
            true,
        );
        let shown = self.shown();
        let selected = self.list.selected(shown.len());
        let lines: Vec<Line<'_>> = self
            .list
            .window(shown.len(), usize::from(rest.height))
            .map(|row| {
                let name = shown[row];
                let mark = if self.is_chosen(name) { "[x] " } else { "[ ] " };
                let line = Line::from(vec![Span::raw(mark), Span::raw(text::printable(name))]);
                if row == selected {
                    line.style(shared.style(Role::Selection))
                } else if self.is_chosen(name) {
                    line.style(shared.style(Role::Marked))
                } else {
                    line
                }
            })
            .collect();
        if lines.is_empty() {
            frame.render_widget(
                Line::styled(
                    "no metric of this run has that in its name",
                    shared.style(Role::Muted),
                ),
                rest,
            );
        } else {
            frame.render_widget(Paragraph::new(lines), rest);
        }
        if let Some(metric) = shown.get(selected).and_then(|name| metrics::lookup(name)) {
            let about = format!("{} [{}]", metric.formula, metric.unit);
            frame.render_widget(
                Paragraph::new(about)
                    .style(shared.style(Role::Muted))
                    .wrap(ratatui::widgets::Wrap { trim: true }),
                help,
            );
        }
    }
}

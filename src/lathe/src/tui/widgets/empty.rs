//! A helpful screen where there is nothing to show.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Flex, Layout, Rect};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Wrap};

use crate::tui::shared::{Problem, Shared};
use crate::tui::theme::Role;

/// What is missing, and what to do about it, in the middle of `area`.
pub fn draw(shared: &Shared, frame: &mut Frame<'_>, area: Rect, what: &str, help: &str) {
    let mut text = Text::default();
    text.push_line(Line::styled(what.to_owned(), shared.style(Role::Title)));
    if !help.is_empty() {
        text.push_line(Line::default());
        for line in help.lines() {
            text.push_line(Line::styled(line.to_owned(), shared.style(Role::Muted)));
        }
    }
    centered(frame, area, text);
}

/// What a page of one run shows where none is chosen.
pub fn no_run(shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let help = if shared.runs.entries.is_empty() && shared.runs.is_read {
        "There are no runs yet.\nStart one: page 6 (Launch), or `lathe run experiments/quickstart.yaml`"
    } else {
        "Press 1 for the list of runs, and enter on one of them; ] and [ go from run to run."
    };
    draw(shared, frame, area, "No run is chosen", help);
}

/// A problem that fills a pane.
pub fn problem(shared: &Shared, frame: &mut Frame<'_>, area: Rect, problem: &Problem) {
    let mut text = Text::default();
    text.push_line(Line::styled(problem.title.clone(), shared.style(Role::Bad)));
    text.push_line(Line::default());
    for line in problem.detail.lines() {
        text.push_line(Line::raw(line.to_owned()));
    }
    if !problem.help.is_empty() {
        text.push_line(Line::default());
        text.push_line(Line::styled(
            problem.help.clone(),
            shared.style(Role::Muted),
        ));
    }
    centered(frame, area, text);
}

fn centered(frame: &mut Frame<'_>, area: Rect, text: Text<'static>) {
    let width = area.width.saturating_sub(2).min(76);
    let rows: usize = text
        .lines
        .iter()
        .map(|line| line.width().div_ceil(usize::from(width.max(1))).max(1))
        .sum();
    let [row] = Layout::vertical([Constraint::Length(rows.min(usize::from(area.height)) as u16)])
        .flex(Flex::Center)
        .areas(area);
    let [cell] = Layout::horizontal([Constraint::Length(width)])
        .flex(Flex::Center)
        .areas(row);
    frame.render_widget(
        Paragraph::new(text)
            .alignment(Alignment::Center)
            .wrap(Wrap { trim: true }),
        cell,
    );
}

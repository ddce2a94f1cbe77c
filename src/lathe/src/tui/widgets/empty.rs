//! A helpful screen where there is nothing to show.

use ratatui::Frame;
use ratatui::layout::{Constraint, Flex, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::text;
use crate::tui::shared::{Problem, Shared};
use crate::tui::theme::Role;

/// Columns of its lines at most.
const WIDTH: u16 = 76;

/// What is missing, and what to do about it, in the middle of `area`.
pub fn draw(shared: &Shared, frame: &mut Frame<'_>, area: Rect, what: &str, help: &str) {
    Words {
        title: (what, shared.style(Role::Title)),
        middle: ("", Style::default()),
        help: (help, shared.style(Role::Muted)),
    }
    .draw(shared, frame, area);
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
    of_problem(shared, problem).draw(shared, frame, area);
}

/// Rows that [`problem`] needs in `columns` columns to leave nothing out.
pub fn problem_rows(shared: &Shared, problem: &Problem, columns: u16) -> u16 {
    let lines = of_problem(shared, problem).lines(columns, usize::MAX, "");
    u16::try_from(lines.len()).unwrap_or(u16::MAX)
}

fn of_problem<'a>(shared: &Shared, problem: &'a Problem) -> Words<'a> {
    Words {
        title: (&problem.title, shared.style(Role::Bad)),
        middle: (&problem.detail, Style::default()),
        help: (&problem.help, shared.style(Role::Muted)),
    }
}

/// Three parts with an empty line between those that have words. Title and help are there however long the middle is.
struct Words<'a> {
    title: (&'a str, Style),
    middle: (&'a str, Style),
    help: (&'a str, Style),
}

impl Words<'_> {
    fn draw(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        let gap = shared.glyphs.pick("…", "...");
        let lines = self.lines(area.width, usize::from(area.height), gap);
        let width = columns(area.width);
        let rows = u16::try_from(lines.len()).unwrap_or(u16::MAX);
        let [row] = Layout::vertical([Constraint::Length(rows.min(area.height))])
            .flex(Flex::Center)
            .areas(area);
        let [cell] = Layout::horizontal([Constraint::Length(width)])
            .flex(Flex::Center)
            .areas(row);
        frame.render_widget(Paragraph::new(lines).centered(), cell);
    }

    /// In `room` rows, for which the middle is cut where it has to be: a log's first line and its last ones tell most.
    fn lines(&self, width: u16, room: usize, gap: &str) -> Vec<Line<'static>> {
        let wrapped = |words: &str| text::wrap(words, usize::from(columns(width)));
        let (title, middle, help) = (
            wrapped(self.title.0),
            wrapped(self.middle.0),
            wrapped(self.help.0),
        );
        let with_gap = |lines: &[String]| lines.len() + usize::from(!lines.is_empty());
        let left = room.saturating_sub(title.len() + with_gap(&help) + 1);
        let middle = text::cut_middle(middle, left, gap);
        let mut lines: Vec<Line<'static>> = Vec::new();
        for (part, style) in [
            (title, self.title.1),
            (middle, self.middle.1),
            (help, self.help.1),
        ] {
            if !part.is_empty() && !lines.is_empty() {
                lines.push(Line::default());
            }
            lines.extend(part.into_iter().map(|line| Line::styled(line, style)));
        }
        lines
    }
}

fn columns(width: u16) -> u16 {
    width.saturating_sub(2).min(WIDTH)
}

//! Page Logs on the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line as Row, Span};
use ratatui::widgets::Paragraph;

use super::line::{Line, Severity};
use super::{Logs, Source};
use crate::headless::format;
use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::{empty, text};

struct Parts {
    head: Rect,
    lines: Rect,
    /// The selected line, whole.
    whole: Rect,
    search: Rect,
}

impl Logs {
    fn parts(&self, area: Rect) -> Parts {
        let whole = if self.is_expanded {
            (area.height / 3).max(2)
        } else {
            0
        };
        let [head, lines, whole, search] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(whole),
            Constraint::Length(u16::from(self.typing.is_some())),
        ])
        .areas(area);
        Parts {
            head,
            lines,
            whole,
            search,
        }
    }

    pub(super) fn visible_rows(&self, shared: &Shared) -> usize {
        usize::from(self.parts(shared.page_area()).lines.height).max(1)
    }

    pub(super) fn draw_page(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        let Some(open) = shared.current_run() else {
            empty::no_run(shared, frame, area);
            return;
        };
        let parts = self.parts(area);
        self.draw_head(shared, frame, parts.head);
        if let Some(field) = &self.typing {
            let styles = (shared.style(Role::Accent), shared.style(Role::Text));
            field.draw(frame, parts.search, "/", styles, true);
        }
        if self.count() == 0 {
            let filtered = self.least > Severity::Debug;
            let (what, help) = match (self.source, &self.file.problem) {
                (Source::File, Some(problem)) => (
                    "log.txt cannot be shown",
                    format!("{problem}\ntab goes to the run's events, r tries again"),
                ),
                (Source::File, None) if !self.file.is_read => ("Reading log.txt", String::new()),
                _ if filtered => (
                    "No line is serious enough",
                    format!("{} are shown; f shows more", self.least.filter_words()),
                ),
                (Source::File, None) => (
                    "log.txt is empty",
                    "libraries and tools print into it".to_owned(),
                ),
                (Source::Events, _) if !open.is_caught_up => ("Reading the run", String::new()),
                (Source::Events, _) => match shared.how_it_ended() {
                    Some(ended) => (
                        "The run ended without a word",
                        format!("{ended}\ntab shows log.txt"),
                    ),
                    None => (
                        "The run has said nothing yet",
                        "tab shows log.txt".to_owned(),
                    ),
                },
            };
            empty::draw(shared, frame, parts.lines, what, &help);
            return;
        }
        let count = self.count();
        let visible = usize::from(parts.lines.height);
        let selected = self.selected();
        let started = open.info.as_ref().map(|info| info.started_at);
        let rows: Vec<Row<'_>> = self
            .list
            .window(count, visible)
            .filter_map(|row| Some((row, self.line(row)?)))
            .map(|(row, line)| {
                let width = usize::from(parts.lines.width);
                self.row(line, row == selected, started, width, shared)
            })
            .collect();
        frame.render_widget(Paragraph::new(rows), parts.lines);
        self.draw_whole(shared, frame, parts.whole);
    }

    fn draw_head(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        let tab = |source: Source, name: &str| {
            let (mark, style) = if self.source == source {
                (shared.glyphs.pick("▸", ">"), shared.style(Role::Title))
            } else {
                (" ", shared.style(Role::Muted))
            };
            Span::styled(format!("{mark}{name} "), style)
        };
        let mut spans = vec![
            tab(Source::Events, "events"),
            tab(Source::File, "log.txt"),
            Span::styled(
                format!(" {}", self.least.filter_words()),
                shared.style(if self.least == Severity::Debug {
                    Role::Muted
                } else {
                    Role::Caution
                }),
            ),
        ];
        if self.source == Source::File && shared.replay.is_some() {
            let words = ", whole: its lines have no time to replay";
            spans.push(Span::styled(words, shared.style(Role::Caution)));
        }
        if self.is_following {
            spans.push(Span::styled(", following", shared.style(Role::Good)));
        }
        if !self.pattern.is_empty() {
            spans.push(Span::styled(
                format!(", /{}", text::printable(&self.pattern)),
                shared.style(Role::Accent),
            ));
        }
        if self.source == Source::Events && self.is_cut {
            spans.push(Span::styled(
                if self.older_asked.is_some() {
                    ", reading the older lines"
                } else {
                    ", older lines: g g reads them"
                }
                .to_owned(),
                shared.style(Role::Muted),
            ));
        }
        if let Some(dropped) = self
            .older
            .as_ref()
            .map(|older| older.dropped)
            .filter(|dropped| *dropped > 0 && self.source == Source::Events)
        {
            spans.push(Span::styled(
                format!(", {dropped} still older ones are in events.jsonl"),
                shared.style(Role::Muted),
            ));
        }
        let place = match self.source {
            Source::Events => {
                format!(
                    "{} of {}",
                    (self.selected() + 1).min(self.count()),
                    self.count()
                )
            }
            Source::File => match self.line(self.selected()) {
                Some(line) if self.file.size > 0 => format!(
                    "{:.0}% of {}",
                    line.id as f64 * 100.0 / self.file.size as f64,
                    format::bytes(self.file.size)
                ),
                _ => String::new(),
            },
        };
        let width = (text::width(&place) as u16).min(area.width);
        let right = Rect::new(area.right() - width, area.y, width, area.height.min(1));
        let left = Rect {
            width: area.width - width,
            ..area
        };
        let room = usize::from(left.width).saturating_sub(1);
        let mut used = 0;
        for span in &mut spans {
            let fitted = text::fit(
                &span.content,
                room.saturating_sub(used),
                shared.glyphs.unicode,
            );
            used += text::width(&fitted);
            span.content = fitted.into();
        }
        frame.render_widget(Row::from(spans), left);
        frame.render_widget(Row::styled(place, shared.style(Role::Muted)), right);
    }

    fn time(&self, line: &Line, started: Option<jiff::Timestamp>) -> String {
        let Some(elapsed_ms) = line.elapsed_ms else {
            return String::new();
        };
        let at_day = started.filter(|_| self.has_day_time).and_then(|started| {
            let span = jiff::SignedDuration::from_millis(elapsed_ms as i64);
            started.checked_add(span).ok()
        });
        match at_day {
            Some(at) => at
                .to_zoned_datetime(jiff::tz::TimeZone::system())
                .strftime("%H:%M:%S")
                .to_string(),
            None => text::clock(elapsed_ms),
        }
    }

    fn row(
        &self,
        line: &Line,
        is_selected: bool,
        started: Option<jiff::Timestamp>,
        width: usize,
        shared: &Shared,
    ) -> Row<'static> {
        let unicode = shared.glyphs.unicode;
        let is_marked = self.marked.contains_key(&line.id) || self.anchor == Some(line.id);
        let mark = match (is_selected, is_marked) {
            (_, true) => "*",
            (true, false) => ">",
            (false, false) => " ",
        };
        let style = match line.severity {
            Severity::Error => shared.style(Role::Bad),
            Severity::Warning => shared.style(Role::Caution),
            Severity::Info => shared.style(Role::Text),
            Severity::Debug => shared.style(Role::Muted),
        };
        let mut spans = vec![Span::styled(mark, shared.style(Role::Accent))];
        let mut used = 1;
        let mut push = |text: String, style| {
            used += text::width(&text);
            spans.push(Span::styled(text, style));
        };
        if self.source == Source::Events {
            let time = self.time(line, started);
            push(text::pad_left(&time, 8, unicode), shared.style(Role::Muted));
            push(
                format!(" {} ", text::pad(line.severity.word(), 5, unicode)),
                style,
            );
            if width >= 60 {
                push(
                    format!("{} ", text::pad(&line.source, 11, unicode)),
                    shared.style(Role::Muted),
                );
            } else {
                push(
                    format!("{} ", text::fit(&line.source, 11, unicode)),
                    shared.style(Role::Muted),
                );
            }
        }
        let rest = width.saturating_sub(used);
        let said = text::fit(text::skip_columns(&line.text, self.left), rest, unicode);
        let mut at = 0;
        for found in text::matches(&said, &self.pattern) {
            spans.push(Span::styled(said[at..found.start].to_owned(), style));
            spans.push(Span::styled(
                said[found.clone()].to_owned(),
                shared.style(Role::Match),
            ));
            at = found.end;
        }
        spans.push(Span::styled(said[at..].to_owned(), style));
        let row = Row::from(spans);
        if is_selected {
            row.style(shared.style(Role::Selection))
        } else if is_marked {
            row.style(shared.style(Role::Marked))
        } else {
            row
        }
    }

    fn draw_whole(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        let Some(line) = self.line(self.selected()).filter(|_| area.height > 0) else {
            return;
        };
        let rule = shared.glyphs.pick("─", "-");
        let title = format!("{rule}{rule} the whole line ");
        let rest = usize::from(area.width).saturating_sub(text::width(&title));
        let mut rows = vec![Row::styled(
            title + &rule.repeat(rest),
            shared.style(Role::Border),
        )];
        let room = usize::from(area.height).saturating_sub(1);
        let mut wrapped = text::wrap(&line.text, usize::from(area.width).max(1));
        let more = wrapped.len().saturating_sub(room);
        if more > 0 && room > 0 {
            wrapped.truncate(room);
            wrapped[room - 1] = format!("and {} more lines; y copies it", more + 1);
        }
        rows.extend(
            wrapped
                .into_iter()
                .map(|text| Row::styled(text, shared.style(Role::Text))),
        );
        frame.render_widget(Paragraph::new(rows), area);
    }
}

//! What stands around the page: tabs and the run's standing above, the replay's bar and the keys' hints below.
//!
//! ```text
//!  Runs 1  Live 2 …                    quickstart-ab12 · running · step 41/80     header
//!  ┌ the page ────────────────────────────────────────────────────────────┐
//!  └──────────────────────────────────────────────────────────────────────┘
//!  ▶ 10x  1:07 of 2:40 ━━━━━━━━━━━╸────────                                        replay bar, in a replay
//!  a notice, or: ? help  : actions  …                                              footer
//! ```

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Block;

use super::App;
use crate::headless::format;
use crate::tui::bindings::{self, Context};
use crate::tui::pages::PageId;
use crate::tui::paint::fill_halves;
use crate::tui::shared::{Glyphs, OpenRun};
use crate::tui::theme::Role;
use crate::tui::widgets::{empty, text};

/// Columns of the run's standing that tabs leave it: `running  step 41/80`.
const STANDING: usize = 19;

/// Columns of the replay bar's text.
const REPLAY_LABEL: u16 = 26;

/// Where each part of the screen is.
pub(super) struct Parts {
    pub(super) header: Rect,
    pub(super) page: Rect,
    pub(super) replay: Rect,
    pub(super) footer: Rect,
}

impl App {
    pub(super) fn layout(&self, area: Rect) -> Parts {
        let replay_rows = u16::from(self.shared.replay.is_some() && area.height > 6);
        // Pages know their room from `Shared::page_area`, which says the same.
        let [header, page, replay, footer] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(replay_rows),
            Constraint::Length(u16::from(area.height > 3)),
        ])
        .areas(area);
        Parts {
            header,
            page,
            replay,
            footer,
        }
    }

    pub fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        if area.width < 12 || area.height < 3 {
            frame.render_widget("too small", area);
            return;
        }
        frame.render_widget(Block::new().style(self.shared.style(Role::Text)), area);
        let parts = self.layout(area);
        self.draw_header(frame, parts.header);
        match self
            .shared
            .current_run()
            .and_then(|run| run.problem.as_ref())
        {
            Some(problem)
                if !matches!(
                    self.page,
                    PageId::Runs | PageId::Config | PageId::Launch | PageId::Compare
                ) =>
            {
                empty::problem(&self.shared, frame, parts.page, problem);
            }
            _ => self
                .pages
                .get(self.page)
                .draw(&self.shared, frame, parts.page),
        }
        if parts.replay.height > 0 {
            self.draw_replay(frame, parts.replay);
        }
        if parts.footer.height > 0 {
            self.draw_footer(frame, parts.footer);
        }
        if let Some(modal) = &self.modal {
            modal.draw(&self.shared, self.page, frame, area);
        }
        if !self.shared.glyphs.unicode {
            in_ascii(frame.buffer_mut());
        }
        fill_halves(frame.buffer_mut());
    }

    /// The tabs' texts: every name where the run's standing fits beside them, else four letters of each, else numbers and
    /// the current one's name.
    fn tabs(&self, width: u16) -> Vec<(PageId, String)> {
        let standing: usize = self.standing(Terse::No).iter().map(Span::width).sum();
        let listed: Vec<PageId> = PageId::ALL
            .into_iter()
            .filter(|page| page.is_listed(&self.shared, self.page))
            .collect();
        let taken = |title: fn(PageId) -> &'static str, around: usize| -> usize {
            let widths = listed.iter().map(|page| title(*page).len() + around);
            widths.sum()
        };
        let is_wide = taken(PageId::title, 4) + standing < usize::from(width);
        let needed = |around: usize| taken(PageId::short_title, around) + STANDING.min(standing);
        let is_middling = needed(3) < usize::from(width);
        // One space between two tabs, and two around that of the page on the screen.
        let is_tight = !is_middling && needed(2) + 1 < usize::from(width);
        let is_marked_by_color = self.shared.theme.style(Role::Selection).bg.is_some();
        listed
            .into_iter()
            .map(|page| {
                let number = page as usize + 1;
                let label = if is_wide {
                    format!("{number} {}", page.title())
                } else if is_middling || is_tight {
                    format!("{number}{}", page.short_title())
                } else if page == self.page {
                    format!("{number} {}", page.title())
                } else {
                    number.to_string()
                };
                let label = if page == self.page && !is_marked_by_color {
                    format!("[{label}]")
                } else if is_tight && page != self.page {
                    format!(" {label}")
                } else {
                    format!(" {label} ")
                };
                (page, label)
            })
            .collect()
    }

    pub(super) fn tab_at(&self, header: Rect, column: u16) -> Option<PageId> {
        let mut at = header.x;
        for (page, label) in self.tabs(header.width) {
            let end = at + text::width(&label) as u16;
            if (at..end).contains(&column) {
                return Some(page);
            }
            at = end;
        }
        None
    }

    fn draw_header(&self, frame: &mut Frame<'_>, area: Rect) {
        let shared = &self.shared;
        let mut spans: Vec<Span<'_>> = Vec::new();
        let mut used = 0;
        for (page, label) in self.tabs(area.width) {
            used += text::width(&label);
            let style = if page == self.page {
                shared
                    .style(Role::Accent)
                    .patch(shared.style(Role::Selection))
            } else {
                shared.style(Role::Muted)
            };
            spans.push(Span::styled(label, style));
        }
        let room = usize::from(area.width).saturating_sub(used + 1);
        let width_of = |spans: &[Span<'_>]| spans.iter().map(Span::width).sum::<usize>();
        let all = [Terse::No, Terse::Marks, Terse::Name];
        let right = all.into_iter().map(|terse| self.standing(terse));
        let right = right.reduce(|longer, shorter| {
            if width_of(&longer) <= room {
                longer
            } else {
                shorter
            }
        });
        let right = right.expect("there are three");
        let width = width_of(&right);
        if width <= room {
            spans.push(Span::raw(" ".repeat(room - width + 1)));
            spans.extend(right);
        } else {
            let whole: String = right.iter().map(|span| span.content.as_ref()).collect();
            spans.push(Span::raw(" "));
            spans.push(Span::raw(text::fit(&whole, room, shared.glyphs.unicode)));
        }
        frame.render_widget(Line::from(spans), area);
    }

    /// The current run in a few words, of which its name is the last to go.
    fn standing(&self, terse: Terse) -> Vec<Span<'static>> {
        let shared = &self.shared;
        let mut spans = Vec::new();
        if shared.is_frozen {
            spans.push(Span::styled("frozen  ", shared.style(Role::Caution)));
        }
        if shared.is_read_only && terse == Terse::No {
            spans.push(Span::styled("read-only  ", shared.style(Role::Muted)));
        }
        let Some(run) = shared.current_run() else {
            return spans;
        };
        let name = run.info.as_ref().map_or_else(
            || run.key.name(),
            |info| format!("{}-{}", info.experiment_name, info.id),
        );
        let (word, role) = self.state_of(run);
        let word = match terse {
            Terse::No => word,
            Terse::Marks | Terse::Name => state_mark(word, shared.glyphs),
        };
        spans.push(Span::styled(word, shared.style(role)));
        if let Some(total) = run.state.total_steps() {
            let steps = format::steps(run.state.step, total);
            match terse {
                Terse::No => spans.push(Span::raw(format!("  step {steps}"))),
                Terse::Marks => spans.push(Span::raw(format!(" {steps}"))),
                Terse::Name => {}
            }
        }
        if let Some(words) = self.link_words(run, terse) {
            spans.push(words);
        }
        if let Some(mark) = self.trouble(run) {
            let gap = if terse == Terse::No { "  " } else { " " };
            spans.push(Span::styled(
                format!("{gap}{mark}"),
                shared.style(Role::Bad),
            ));
        }
        if run.bad_lines > 0 && terse == Terse::No {
            spans.push(Span::styled(
                match run.bad_lines {
                    1 => "  1 corrupt line".to_owned(),
                    count => format!("  {count} corrupt lines"),
                },
                shared.style(Role::Caution),
            ));
        }
        spans.push(Span::raw(if terse == Terse::No { "  " } else { " " }));
        spans.push(Span::styled(name, shared.style(Role::Title)));
        spans
    }

    /// How fresh the copy of a run of another machine is. That the line is cut is said however little room there is.
    fn link_words(&self, run: &OpenRun, terse: Terse) -> Option<Span<'static>> {
        let shared = &self.shared;
        let entry = shared.runs.find(&run.key)?;
        if shared.replay.is_some() {
            return None;
        }
        let is_cut_off = entry.is_cut_off();
        let words = match terse {
            Terse::No => entry
                .link_words(shared.now)
                .map(|words| format!("  {words}")),
            Terse::Marks => entry.link_mark(shared.now).map(|mark| format!(" {mark}")),
            Terse::Name => entry
                .link_mark(shared.now)
                .filter(|_| is_cut_off)
                .map(|mark| format!(" {mark}")),
        };
        let role = if is_cut_off { Role::Bad } else { Role::Muted };
        words.map(|words| Span::styled(words, shared.style(role)))
    }

    /// What keeps the run from being written down, however little room there is to say so.
    fn trouble(&self, run: &OpenRun) -> Option<&'static str> {
        let shared = &self.shared;
        let entry = shared.runs.find(&run.key)?;
        let trouble = entry.trouble.as_ref()?;
        shared.replay.is_none().then_some(trouble.mark)
    }

    fn state_of(&self, run: &OpenRun) -> (&'static str, Role) {
        let word = self.shared.state_word(run);
        let role = match word {
            "running" => Role::Accent,
            "finished" => Role::Good,
            "failed" | "dead" => Role::Bad,
            "opening" => Role::Muted,
            _ => Role::Caution,
        };
        (word, role)
    }

    fn draw_replay(&self, frame: &mut Frame<'_>, area: Rect) {
        let Some(replay) = &self.shared.replay else {
            return;
        };
        let glyphs = self.shared.glyphs;
        let mark = if replay.is_playing {
            glyphs.pick("▶", ">")
        } else {
            glyphs.pick("⏸", "||")
        };
        let left = format!(
            "{mark} {}x  {} of {} ",
            text::number(replay.speed),
            text::clock(replay.at_ms),
            text::clock(replay.length_ms)
        );
        let left = text::pad(
            &left,
            usize::from(REPLAY_LABEL.min(area.width)),
            glyphs.unicode,
        );
        let room = area.width.saturating_sub(REPLAY_LABEL);
        let column_of = |ms: f64| {
            let share = if replay.length_ms > 0.0 {
                (ms / replay.length_ms).clamp(0.0, 1.0)
            } else {
                0.0
            };
            (share * f64::from(room.saturating_sub(1))).round() as u16
        };
        let mut cells: Vec<(&str, Role)> = (0..room)
            .map(|column| {
                if column <= column_of(replay.at_ms) {
                    (glyphs.pick("━", "="), Role::Accent)
                } else {
                    (glyphs.pick("─", "-"), Role::Muted)
                }
            })
            .collect();
        for mark_ms in &replay.marks_ms {
            if let Some(cell) = cells.get_mut(usize::from(column_of(*mark_ms))) {
                *cell = (glyphs.pick("◆", "+"), Role::Caution);
            }
        }
        let mut spans = vec![Span::styled(left, self.shared.style(Role::Title))];
        spans.extend(
            cells
                .into_iter()
                .map(|(symbol, role)| Span::styled(symbol, self.shared.style(role))),
        );
        frame.render_widget(Line::from(spans), area);
    }

    /// Keys with a hint, each as `(key, hint)`.
    fn hints(&self, context: Context) -> Vec<(String, &'static str)> {
        bindings::all()
            .iter()
            .filter(|binding| binding.context == context && !binding.hint.is_empty())
            .filter_map(|binding| {
                let key = self.shared.keymap.keys_of(binding).first()?;
                Some((key.clone(), binding.hint))
            })
            .collect()
    }

    fn draw_footer(&self, frame: &mut Frame<'_>, area: Rect) {
        let shared = &self.shared;
        let unicode = shared.glyphs.unicode;
        if let Some(notice) = &shared.notice {
            let shown = text::fit(&notice.text, usize::from(area.width), unicode);
            frame.render_widget(Line::styled(shown, shared.style(notice.role)), area);
            return;
        }
        if !self.pressed.is_empty() {
            let keys: Vec<String> = self.pressed.iter().map(ToString::to_string).collect();
            let shown = format!("{} …", keys.join(" "));
            frame.render_widget(Line::styled(shown, shared.style(Role::Accent)), area);
            return;
        }
        let is_typing = self.pages.get(self.page).is_typing();
        let status = self.pages.get(self.page).status(shared);
        let mut spans: Vec<Span<'_>> = Vec::new();
        let mut room = usize::from(area.width).saturating_sub(text::width(&status) + 1);
        let (of_page, of_all) = if is_typing {
            let enter = ("enter".to_owned(), "accept");
            (vec![enter, ("esc".to_owned(), "give up")], Vec::new())
        } else {
            (
                self.hints(Context::Page(self.page)),
                self.hints(Context::Global),
            )
        };
        // How to get help and out is always said; the page's own hints have what is left.
        let always: Vec<(String, &str)> = fitting(of_all, &mut room);
        for (key, hint) in fitting(of_page, &mut room).into_iter().chain(always) {
            spans.push(Span::styled(key, shared.style(Role::Accent)));
            spans.push(Span::styled(
                format!(" {hint}  "),
                shared.style(Role::Muted),
            ));
        }
        frame.render_widget(Line::from(spans), area);
        if !status.is_empty() {
            let width = (text::width(&status) as u16).min(area.width);
            let right = Rect::new(area.right() - width, area.y, width, 1);
            frame.render_widget(Line::styled(status, shared.style(Role::Muted)), right);
        }
    }
}

/// Those of the hints that have room, in their order.
fn fitting(hints: Vec<(String, &'static str)>, room: &mut usize) -> Vec<(String, &'static str)> {
    hints
        .into_iter()
        .filter(|(key, hint)| {
            let width = text::width(key) + text::width(hint) + 3;
            let fits = width <= *room;
            *room -= if fits { width } else { 0 };
            fits
        })
        .collect()
}

/// What data brought along (names, dialogues, logs) and the terminal cannot show: a `?` for each column that it takes.
fn in_ascii(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() {
            let columns = text::width(cell.symbol()).max(1);
            cell.set_symbol(&"?".repeat(columns));
        }
    }
}

/// The share of the run that a column of the replay bar stands for.
pub(super) fn replay_share(bar: Rect, column: u16) -> f64 {
    let room = bar.width.saturating_sub(REPLAY_LABEL).max(2);
    let at = column.saturating_sub(bar.x + REPLAY_LABEL);
    (f64::from(at) / f64::from(room - 1)).clamp(0.0, 1.0)
}

/// How little room the header has for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Terse {
    No,
    /// Its state as a mark, its steps without a word.
    Marks,
    Name,
}

/// As page Runs marks it.
fn state_mark(word: &str, glyphs: Glyphs) -> &'static str {
    match word {
        "running" => glyphs.pick("▶", ">"),
        "finished" => glyphs.pick("✓", "+"),
        "stopped" => glyphs.pick("■", "#"),
        "failed" => glyphs.pick("✗", "x"),
        "dead" => glyphs.pick("†", "!"),
        "replay" => glyphs.pick("◆", "@"),
        "paused" => glyphs.pick("‖", "="),
        "opening" => glyphs.pick("…", "~"),
        _ => "",
    }
}

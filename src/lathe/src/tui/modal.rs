//! What stands over the page and takes the keys: help, palette, confirmation, one line of input, a problem.

use std::collections::BTreeMap;

use crossterm::event::{KeyCode, KeyEvent};
use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher};
use ratatui::Frame;
use ratatui::layout::{Constraint, Flex, Layout, Margin, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::action::Command;
use super::bindings::{self, Binding, Context};
use super::export::Chooser;
use super::pages::PageId;
use super::shared::{Problem, Shared};
use super::theme::Role;
use super::widgets::field::{Field, Outcome};
use super::widgets::list::{ListState, Move};
use super::widgets::{empty, text};

#[derive(Debug)]
pub enum Modal {
    Help(Help),
    Palette(Palette),
    Confirm(Confirm),
    Export(Chooser),
    Problem(Problem),
}

/// What a key did to the modal.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Stay,
    Close,
    /// Close, then do this.
    Run(Command),
    /// Close, remember that the action of this id was picked, then do it.
    Pick(&'static str, Command),
}

/// A question whose yes is a key of its own, never the one that asked; everything else cancels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirm {
    /// `Delete 2 runs?`
    pub title: String,
    /// The objects by name, and what cannot be undone.
    pub body: String,
    /// The key that says yes.
    pub yes: char,
    /// `delete them`
    pub yes_label: String,
    pub command: Command,
}

/// Columns of the help with its frame.
const HELP_WIDTH: u16 = 86;
/// Its rows at most: with more of them it would hide more than it tells, and be as much to send as a page.
const HELP_HEIGHT: u16 = 32;
/// Columns of the keys in it.
const HELP_KEYS: usize = 24;
/// Columns of a problem with its frame.
const PROBLEM_WIDTH: u16 = 70;

#[derive(Debug, Default)]
pub struct Help {
    page: Option<PageId>,
    scroll: usize,
}

impl Help {
    pub fn new(page: PageId) -> Self {
        Self {
            page: Some(page),
            scroll: 0,
        }
    }

    /// This page's bindings, then the global ones: `None` is a heading.
    fn rows(&self) -> Vec<(Context, Option<&'static Binding>)> {
        let contexts = self
            .page
            .map(Context::Page)
            .into_iter()
            .chain([Context::Global]);
        contexts
            .flat_map(|context| {
                let rows = bindings::all()
                    .iter()
                    .filter(move |binding| binding.context == context)
                    .map(move |binding| (context, Some(binding)));
                std::iter::once((context, None)).chain(rows)
            })
            .collect()
    }
}

/// Every action, searched fuzzily.
#[derive(Debug, Default)]
pub struct Palette {
    field: Field,
    list: ListState,
    used: Used,
}

/// How often each action was picked in this project, by id.
pub type Used = BTreeMap<String, u64>;

/// What being of this page, or of no page, counts for beside how well the words match: about one letter and a half of them.
const HERE_SCORE: u32 = 24;
const ANYWHERE_SCORE: u32 = 12;
/// And what having been picked before does, each time, up to a few.
const USED_SCORE: u32 = 4;
const USED_MOST: u64 = 6;

impl Palette {
    pub fn new(used: Used) -> Self {
        Self {
            used,
            ..Self::default()
        }
    }

    /// What the person most likely means comes first: this page's actions, then those of every page; in each of these what was
    /// picked most often, then what the footer shows. With words typed the best match, for which all that counts a little.
    pub fn matches(&self, page: PageId) -> Vec<&'static Binding> {
        let here = |binding: &Binding| -> usize {
            match binding.context {
                Context::Page(of) if of == page => 0,
                Context::Global => 1,
                Context::Page(_) => 2,
            }
        };
        let mut found: Vec<(&Binding, u32)> = if self.field.is_empty() {
            bindings::all().iter().map(|binding| (binding, 0)).collect()
        } else {
            let mut matcher = Matcher::new(Config::DEFAULT);
            let pattern =
                Pattern::parse(self.field.text(), CaseMatching::Smart, Normalization::Smart);
            let mut buffer = Vec::new();
            bindings::all()
                .iter()
                .filter_map(|binding| {
                    let text = format!("{} {}", binding.help, binding.id);
                    let haystack = nucleo_matcher::Utf32Str::new(&text, &mut buffer);
                    Some((binding, pattern.score(haystack, &mut matcher)?))
                })
                .collect()
        };
        let used = |binding: &Binding| self.used.get(binding.id).copied().unwrap_or(0);
        if self.field.is_empty() {
            found.sort_by_key(|(binding, _)| {
                (
                    here(binding),
                    std::cmp::Reverse(used(binding)),
                    binding.hint.is_empty(),
                )
            });
        } else {
            found.sort_by_cached_key(|(binding, score)| {
                let of_place = [HERE_SCORE, ANYWHERE_SCORE, 0][here(binding)];
                let of_use = used(binding).min(USED_MOST) as u32 * USED_SCORE;
                std::cmp::Reverse(score + of_place + of_use)
            });
        }
        found.into_iter().map(|(binding, _)| binding).collect()
    }
}

impl Modal {
    pub fn key(&mut self, key: KeyEvent, page: PageId, shared: &Shared) -> Answer {
        match self {
            Self::Help(help) => {
                let room = help_room(Rect::new(0, 0, shared.columns, shared.rows));
                let lines = help_lines(help, shared, usize::from(room.width)).len();
                let most = lines.saturating_sub(usize::from(room.height));
                // The window may have grown since the last key.
                help.scroll = help.scroll.min(most);
                match key.code {
                    KeyCode::Char('j') | KeyCode::Down => help.scroll = (help.scroll + 1).min(most),
                    KeyCode::Char('k') | KeyCode::Up => {
                        help.scroll = help.scroll.saturating_sub(1);
                    }
                    KeyCode::PageDown | KeyCode::Char(' ' | 'd') => {
                        help.scroll = (help.scroll + 10).min(most);
                    }
                    KeyCode::PageUp | KeyCode::Char('u') => {
                        help.scroll = help.scroll.saturating_sub(10);
                    }
                    KeyCode::Home | KeyCode::Char('g') => help.scroll = 0,
                    KeyCode::End | KeyCode::Char('G') => help.scroll = most,
                    _ => return Answer::Close,
                }
                Answer::Stay
            }
            Self::Palette(palette) => {
                if let Some(by) = Move::of_typed(key) {
                    let length = palette.matches(page).len();
                    palette.list.go(by, length, 10);
                    return Answer::Stay;
                }
                match palette.field.key(key) {
                    Outcome::Cancelled => return Answer::Close,
                    Outcome::Accepted => {
                        let found = palette.matches(page);
                        return match found.get(palette.list.selected(found.len())) {
                            Some(binding) => Answer::Pick(binding.id, binding.command),
                            None => Answer::Close,
                        };
                    }
                    Outcome::Changed => palette.list.select(0),
                    Outcome::Kept | Outcome::Unused => {}
                }
                Answer::Stay
            }
            Self::Confirm(confirm) => {
                if key.code == KeyCode::Char(confirm.yes) && key.modifiers.is_empty() {
                    Answer::Run(confirm.command)
                } else {
                    Answer::Close
                }
            }
            Self::Export(chooser) => chooser.key(key),
            Self::Problem(_) => Answer::Close,
        }
    }

    pub fn paste(&mut self, pasted: &str) {
        if let Self::Palette(palette) = self {
            palette.field.paste(pasted);
            palette.list.select(0);
        }
    }

    pub fn draw(&self, shared: &Shared, page: PageId, frame: &mut Frame<'_>, area: Rect) {
        match self {
            Self::Help(help) => draw_help(help, shared, frame, area),
            Self::Palette(palette) => draw_palette(palette, shared, page, frame, area),
            Self::Confirm(confirm) => {
                let hint = format!(
                    "{} {}    any other key: cancel",
                    confirm.yes, confirm.yes_label
                );
                draw_question(confirm, &hint, shared, frame, area);
            }
            Self::Export(chooser) => chooser.draw(shared, frame, area),
            Self::Problem(problem) => {
                let rows = empty::problem_rows(shared, problem, PROBLEM_WIDTH - 2);
                let place = middle(area, PROBLEM_WIDTH, rows.saturating_add(2).max(12));
                let inner = boxed(shared, frame, place, " Problem ", Role::Bad);
                empty::problem(shared, frame, inner, problem);
            }
        }
    }
}

fn draw_help(help: &Help, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let inner = boxed(
        shared,
        frame,
        middle(area, HELP_WIDTH, HELP_HEIGHT),
        " Keys (j k to scroll, any other key closes) ",
        Role::Focus,
    );
    let lines = help_lines(help, shared, usize::from(inner.width));
    let top = help
        .scroll
        .min(lines.len().saturating_sub(usize::from(inner.height)));
    let shown: Vec<Line<'_>> = lines.into_iter().skip(top).collect();
    frame.render_widget(Paragraph::new(shown), inner);
}

/// The room for the help's lines on a screen.
fn help_room(screen: Rect) -> Rect {
    middle(screen, HELP_WIDTH, HELP_HEIGHT).inner(Margin::new(1, 1))
}

/// Each binding: its keys, and beside them what it does, on as many lines as that takes.
fn help_lines(help: &Help, shared: &Shared, width: usize) -> Vec<Line<'static>> {
    let unicode = shared.glyphs.unicode;
    let keys_width = HELP_KEYS.min(width / 3);
    let mut lines = Vec::new();
    for (context, row) in help.rows() {
        let Some(binding) = row else {
            lines.push(Line::styled(context.title(), shared.style(Role::Title)));
            continue;
        };
        let keys = format!("  {}", shared.keymap.keys_of(binding).join(" or "));
        let words = text::wrap(binding.help, width.saturating_sub(keys_width));
        for (at, words) in words.into_iter().enumerate() {
            let keys = if at == 0 { keys.as_str() } else { "" };
            lines.push(Line::from(vec![
                Span::styled(
                    text::pad(keys, keys_width, unicode),
                    shared.style(Role::Accent),
                ),
                Span::raw(words),
            ]));
        }
    }
    lines
}

fn draw_palette(
    palette: &Palette,
    shared: &Shared,
    page: PageId,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let height = area.height.saturating_sub(2).min(18);
    let inner = boxed(
        shared,
        frame,
        middle(area, 78, height),
        " Actions (type to search, enter does it) ",
        Role::Focus,
    );
    if inner.height < 2 {
        return;
    }
    let [line, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(inner);
    palette.field.draw(
        frame,
        line,
        ": ",
        (shared.style(Role::Accent), shared.style(Role::Text)),
        true,
    );
    let found = palette.matches(page);
    if found.is_empty() {
        empty::draw(shared, frame, rest, "No such action", "");
        return;
    }
    let visible = usize::from(rest.height);
    let selected = palette.list.selected(found.len());
    let unicode = shared.glyphs.unicode;
    let keys_width = 12;
    let lines: Vec<Line<'_>> = palette
        .list
        .window(found.len(), visible)
        .map(|row| {
            let binding = found[row];
            let keys = shared
                .keymap
                .keys_of(binding)
                .first()
                .cloned()
                .unwrap_or_default();
            let mark = if row == selected { "> " } else { "  " };
            let help_width = usize::from(rest.width).saturating_sub(keys_width + 12);
            let line = Line::from(vec![
                Span::raw(mark),
                Span::raw(text::pad(binding.help, help_width, unicode)),
                Span::styled(
                    text::pad(binding.context.title(), 10, unicode),
                    shared.style(Role::Muted),
                ),
                Span::styled(
                    text::pad_left(&keys, keys_width, unicode),
                    shared.style(Role::Accent),
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

/// A rectangle in the middle, at most as large as asked.
pub fn middle(area: Rect, width: u16, height: u16) -> Rect {
    let [row] = Layout::vertical([Constraint::Length(height.min(area.height))])
        .flex(Flex::Center)
        .areas(area);
    let [cell] = Layout::horizontal([Constraint::Length(width.min(area.width))])
        .flex(Flex::Center)
        .areas(row);
    cell
}

/// Clears `area`, draws a frame with a title, gives the room inside.
pub fn boxed(
    shared: &Shared,
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    border: Role,
) -> Rect {
    frame.render_widget(Clear, area);
    let block = super::widgets::frame::block(shared, title, border);
    let inner = block.inner(area);
    frame.render_widget(block.style(shared.style(Role::Text)), area);
    inner
}

/// The keys that answer are there however little room the rest has.
fn draw_question(
    confirm: &Confirm,
    hint: &str,
    shared: &Shared,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let width = area.width.saturating_sub(2).min(70);
    let columns = usize::from(width.saturating_sub(4).max(1));
    let answers = text::wrap(hint, columns);
    let room = usize::from(area.height).saturating_sub(answers.len() + 3);
    let gap = shared.glyphs.pick("…", "...");
    let mut lines = text::cut_middle(text::wrap(&confirm.body, columns), room, gap);
    lines.push(String::new());
    lines.extend(answers);
    let rows = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let place = middle(area, width, rows.saturating_add(2));
    let title = format!(" {} ", confirm.title);
    let inner = boxed(shared, frame, place, &title, Role::Caution);
    let padded = Block::default()
        .padding(ratatui::widgets::Padding::horizontal(1))
        .inner(inner);
    frame.render_widget(Paragraph::new(lines.join("\n")), padded);
}

//! Page Bandit on the screen.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::facts::{Facts, Row};
use super::posterior::{self, Axis};
use super::{Bandit, choices, history};
use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::{empty, text};

/// Least columns of a belief's strip, and the most that say more than fewer.
const STRIP_COLUMNS: std::ops::RangeInclusive<usize> = 10..=48;

/// What a run without a bandit is told.
const HOW: &str = "\
An experiment whose reward has several arms may choose among them while it trains:
reward.arms: [{name: rule, ...}, {name: judge, ...}]
reward.bandit.policy: thompson
docs/bandit.md has the policies; 5 shows and edits the experiment";

/// Where each part of the page is; a part without room has no height.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parts {
    pub facts: Rect,
    pub head: Rect,
    pub rows: Rect,
    pub strip: Rect,
    pub stack: Rect,
    pub curves: Rect,
    pub choices: Rect,
}

pub fn parts(facts: &Facts<'_>, area: Rect) -> Parts {
    let mut left = area.height;
    let mut take = |wanted: u16| {
        let height = wanted.min(left);
        left -= height;
        height
    };
    let (words, head) = (take(1), take(1));
    let arms = facts.rows.len().max(1) as u16;
    // Below them: the strip and a choice.
    let rows = take(arms.min(area.height.saturating_sub(4).max(1)));
    let strip = take(u16::from(facts.is_choosing));
    let mut rest = left;
    let mut take = |wanted: u16, least: u16| {
        let height = if rest >= least { wanted.min(rest) } else { 0 };
        rest -= height;
        height
    };
    if !facts.is_choosing {
        // The scores have all that is left.
        let curves = rest;
        let mut y = area.y;
        let mut next = |height: u16| {
            let place = Rect { y, height, ..area };
            y += height;
            place
        };
        return Parts {
            facts: next(words),
            head: next(head),
            rows: next(rows),
            curves: next(curves),
            ..Parts::default()
        };
    }
    let mut choices = take(3, 1);
    let mut curves = if facts.bandit.history.is_empty() {
        0
    } else {
        take(7, 6)
    };
    let mut stack = take(5, 4);
    // What is left: to the curves most, then to the reasons.
    let more = rest;
    if curves > 0 {
        let to_curves = more / 2;
        let to_stack = if stack > 0 { (more / 6).min(5) } else { 0 };
        curves += to_curves;
        stack += to_stack;
        choices += more - to_curves - to_stack;
    } else {
        choices += more;
    }
    let mut y = area.y;
    let mut next = |height: u16| {
        let place = Rect { y, height, ..area };
        y += height;
        place
    };
    Parts {
        facts: next(words),
        head: next(head),
        rows: next(rows),
        strip: next(strip),
        stack: next(stack),
        curves: next(curves),
        choices: next(choices),
    }
}

pub fn page(page: &Bandit, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let Some(open) = shared.current_run() else {
        empty::no_run(shared, frame, area);
        return;
    };
    let Some(facts) = page.facts(shared) else {
        let (what, help) = if !open.is_caught_up {
            ("Reading the run", "")
        } else if shared.replay.is_some() {
            ("No arm was chosen up to this moment", HOW)
        } else if open.state.ended.is_none() && open.state.step == 0 {
            ("No arm was chosen yet", HOW)
        } else {
            ("This run has no bandit", HOW)
        };
        empty::draw(shared, frame, area, what, help);
        return;
    };
    let unicode = shared.glyphs.unicode;
    let parts = parts(&facts, area);
    let words = facts.words(shared.glyphs.pick("ε", "epsilon")).join("  ");
    let words = text::fit(&words, usize::from(area.width), unicode);
    frame.render_widget(Line::styled(words, shared.style(Role::Title)), parts.facts);
    table(page, &facts, shared, frame, parts);
    if parts.strip.height > 0 {
        let strip = choices::strip(&facts, shared, usize::from(area.width));
        frame.render_widget(strip, parts.strip);
    }
    if !facts.is_choosing {
        history::draw_scores(&facts, shared, frame, parts.curves);
        return;
    }
    choices::stack(&facts, shared, frame, parts.stack);
    history::draw(&facts, shared, frame, parts.curves);
    choices::list(&facts, shared, frame, parts.choices);
}

/// What a column says something of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Any,
    /// Arms that are chosen among.
    Choosing,
    /// Arms that are summed.
    Sum,
}

/// A column of the table: heading, cell, and what it says less than others do when there is no room.
struct Column {
    head: &'static str,
    of: Of,
    /// The higher, the sooner it is left out.
    rank: u8,
    is_number: bool,
    cell: fn(&Row, &str) -> String,
}

fn or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), text::number)
}

static COLUMNS: [Column; 10] = [
    Column {
        head: "state",
        of: Of::Any,
        rank: 0,
        is_number: false,
        cell: |row, _| row.state().to_owned(),
    },
    Column {
        head: "weight",
        of: Of::Sum,
        rank: 1,
        is_number: true,
        cell: |row, _| or_dash(row.weight),
    },
    Column {
        head: "pulls",
        of: Of::Choosing,
        rank: 1,
        is_number: true,
        cell: |row, _| {
            if row.is_held_out {
                "-".to_owned()
            } else {
                row.pulls.to_string()
            }
        },
    },
    Column {
        head: "share",
        of: Of::Choosing,
        rank: 3,
        is_number: true,
        cell: |row, _| {
            if row.is_held_out {
                "-".to_owned()
            } else {
                format!("{:.0} %", row.share * 100.0)
            }
        },
    },
    Column {
        head: "mean",
        of: Of::Choosing,
        rank: 0,
        is_number: false,
        cell: |row, sign| row.value(sign),
    },
    Column {
        head: "chance",
        of: Of::Choosing,
        rank: 2,
        is_number: true,
        cell: |row, _| or_dash(row.chance),
    },
    Column {
        head: "score",
        of: Of::Any,
        rank: 4,
        is_number: true,
        cell: |row, _| or_dash(row.score),
    },
    Column {
        head: "late",
        of: Of::Any,
        rank: 5,
        is_number: true,
        cell: |row, _| row.timed_out.words(),
    },
    Column {
        head: "missing",
        of: Of::Any,
        rank: 6,
        is_number: true,
        cell: |row, _| row.missing.words(),
    },
    Column {
        head: "p50/p99 ms",
        of: Of::Any,
        rank: 7,
        is_number: true,
        cell: |row, _| {
            row.latency_ms.map_or_else(
                || "-".to_owned(),
                |(p50, p99)| format!("{}/{}", text::number(p50), text::number(p99)),
            )
        },
    },
];

/// The column after which the strip of beliefs stands: they are of the mean.
const STRIP_AFTER: &str = "mean";

fn table(page: &Bandit, facts: &Facts<'_>, shared: &Shared, frame: &mut Frame<'_>, parts: Parts) {
    let unicode = shared.glyphs.unicode;
    let sign = shared.glyphs.pick("±", "+-");
    let names = facts.rows.iter().map(|row| text::width(&row.name));
    let name_columns = names.max().unwrap_or(0).clamp(4, 18);
    let width = usize::from(parts.head.width);
    // Cursor, mark, name.
    let used = 4 + name_columns;
    let cells: Vec<Vec<String>> = COLUMNS
        .iter()
        .map(|column| {
            let cell = |row: &Row| text::printable(&(column.cell)(row, sign));
            facts.rows.iter().map(cell).collect()
        })
        .collect();
    let widths: Vec<usize> = COLUMNS
        .iter()
        .zip(&cells)
        .map(|(column, cells)| {
            let widest = cells.iter().map(|cell| text::width(cell)).max();
            widest.unwrap_or(0).max(text::width(column.head))
        })
        .collect();
    let axis = Axis::around(facts.arms());
    let of = if facts.is_choosing {
        Of::Choosing
    } else {
        Of::Sum
    };
    let fits = |column: &Column| [Of::Any, of].contains(&column.of);
    let shown = (0..COLUMNS.len())
        .filter(|at| fits(&COLUMNS[*at]))
        .collect();
    let room = width.saturating_sub(used);
    let (shown, strip) = fitting(shown, &widths, room, axis.is_some());
    let join = |cells: &mut dyn FnMut(usize) -> String, strip: &str| {
        let mut line = String::new();
        for at in &shown {
            let cell = cells(*at);
            line.push(' ');
            line += &if COLUMNS[*at].is_number {
                text::pad_left(&cell, widths[*at], unicode)
            } else {
                text::pad(&cell, widths[*at], unicode)
            };
            if COLUMNS[*at].head == STRIP_AFTER && !strip.is_empty() {
                line.push(' ');
                line += strip;
            }
        }
        line
    };
    // Between marks of their own, or the number at an end would be one of the column beside it.
    let ends = axis.filter(|_| strip > 0).map_or_else(String::new, |axis| {
        let (left, right) = if unicode {
            ("├ ", " ┤")
        } else {
            ("| ", " |")
        };
        let low = format!("{left}{}", text::number(axis.low));
        let high = format!("{}{right}", text::number(axis.high));
        let gap = strip.saturating_sub(text::width(&low) + text::width(&high));
        text::fit(&format!("{low}{}{high}", " ".repeat(gap)), strip, unicode)
    });
    let head = format!(
        "    {}{}",
        text::pad("arm", name_columns, unicode),
        join(&mut |at| COLUMNS[at].head.to_owned(), &ends)
    );
    frame.render_widget(Line::styled(head, shared.style(Role::Title)), parts.head);
    let visible = usize::from(parts.rows.height);
    let selected = page.list.selected(facts.rows.len());
    for (line, at) in page.list.window(facts.rows.len(), visible).enumerate() {
        let row = &facts.rows[at];
        let is_selected = at == selected;
        let look = facts.look(&row.name, &shared.theme);
        let belief = match (axis, row.mean) {
            (Some(axis), Some(mean)) if strip > 0 => {
                posterior::strip(axis, mean, row.sd.unwrap_or(0.0), strip, unicode)
            }
            _ => " ".repeat(strip),
        };
        let style = if is_selected {
            shared.style(Role::Selection)
        } else if row.is_held_out || row.is_frozen {
            shared.style(Role::Muted)
        } else {
            shared.style(Role::Text)
        };
        let cursor = if is_selected { "> " } else { "  " };
        let name = text::pad(&text::printable(&row.name), name_columns, unicode);
        let mut spans = vec![
            Span::raw(cursor),
            Span::styled(look.mark.to_string(), look.style),
            Span::raw(format!(" {name}")),
        ];
        // The strip has the arm's colour, so the line is cut around it.
        let whole = join(
            &mut |column| cells[column][at].clone(),
            &"\u{1}".repeat(strip),
        );
        match (whole.find('\u{1}'), whole.rfind('\u{1}')) {
            (Some(from), Some(to)) => {
                spans.push(Span::raw(whole[..from].to_owned()));
                spans.push(Span::styled(belief, look.style));
                spans.push(Span::raw(whole[to + 1..].to_owned()));
            }
            _ => spans.push(Span::raw(whole)),
        }
        let place = Rect {
            y: parts.rows.y + line as u16,
            height: 1,
            ..parts.rows
        };
        frame.render_widget(Line::from(spans).style(style), place);
    }
}

/// Which columns fit into this width, and how wide the strip of beliefs is beside them; those of the highest rank go first.
fn fitting(
    mut shown: Vec<usize>,
    widths: &[usize],
    room: usize,
    has_strip: bool,
) -> (Vec<usize>, usize) {
    let taken = |shown: &[usize]| shown.iter().map(|at| widths[*at] + 1).sum::<usize>();
    let least = if has_strip {
        STRIP_COLUMNS.start() + 1
    } else {
        0
    };
    // The strip is worth more than what is of the score and the time of judges, and less than the chance.
    while let Some(last) = (0..shown.len()).max_by_key(|at| COLUMNS[shown[*at]].rank) {
        let rank = COLUMNS[shown[last]].rank;
        let wanted = if rank > 2 { least } else { 0 };
        if rank == 0 || taken(&shown) + wanted <= room {
            break;
        }
        shown.remove(last);
    }
    let left = room.saturating_sub(taken(&shown) + 1);
    let strip = if has_strip && left >= *STRIP_COLUMNS.start() {
        left.min(*STRIP_COLUMNS.end())
    } else {
        0
    };
    (shown, strip)
}

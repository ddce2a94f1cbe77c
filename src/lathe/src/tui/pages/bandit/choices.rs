//! The bandit's choices: the latest one by one, their shares over time, and the last ones with their reasons.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::facts::Facts;
use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::text;

/// A mark a choice, the newest at the right end.
pub fn strip(facts: &Facts<'_>, shared: &Shared, columns: usize) -> Line<'static> {
    let recent = &facts.bandit.recent;
    let label = "latest ";
    let room = columns.saturating_sub(label.len());
    let shown = recent.iter().skip(recent.len().saturating_sub(room));
    let mut spans = vec![Span::styled(label, shared.style(Role::Muted))];
    spans.extend(shown.map(|choice| mark(facts, shared, &choice.arm)));
    Line::from(spans)
}

fn mark(facts: &Facts<'_>, shared: &Shared, arm: &str) -> Span<'static> {
    let look = facts.look(arm, &shared.theme);
    Span::styled(look.mark.to_string(), look.style)
}

/// Choices cut into parts of as many each (the last may have fewer), a bar a part; each arm has its share of a bar's rows.
pub fn stack(facts: &Facts<'_>, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    let recent = &facts.bandit.recent;
    if area.height < 2 || area.width < 2 || recent.is_empty() {
        return;
    }
    let (rows, width) = (usize::from(area.height - 1), usize::from(area.width));
    // Shares of fewer choices than rows would say no more than the choices themselves.
    let each = recent.len().div_ceil(width).max(rows + 1);
    let bars = recent.len().div_ceil(each);
    let (bar, gap) = match width / bars {
        0 | 1 => (1, 0),
        columns => (columns.min(8) - 1, 1),
    };
    let first = recent.front().map_or(0, |choice| choice.step);
    let last = recent.back().map_or(0, |choice| choice.step);
    let title = format!("shares of the choices of steps {first} to {last}, {each} a bar");
    let title = text::fit(&title, width, shared.glyphs.unicode);
    frame.render_widget(
        Line::styled(title, shared.style(Role::Title)),
        Rect { height: 1, ..area },
    );
    let arms: Vec<&str> = recent.iter().map(|choice| choice.arm.as_str()).collect();
    // A blend of all arms is none of them, and comes last.
    let names: Vec<&str> = (facts.rows.iter().map(|row| row.name.as_str()))
        .chain([""])
        .collect();
    for (at, part) in arms.chunks(each).enumerate() {
        let count = |name: &&str| part.iter().filter(|arm| *arm == name).count();
        let counts: Vec<usize> = names.iter().map(count).collect();
        let left = area.x + (at * (bar + gap)) as u16;
        let mut y = area.bottom();
        for (name, height) in names.iter().zip(apportioned(&counts, rows)) {
            let look = facts.look(name, &shared.theme);
            for _ in 0..height {
                y -= 1;
                for x in left..(left + bar as u16).min(area.right()) {
                    frame.buffer_mut()[(x, y)]
                        .set_char(look.mark)
                        .set_style(look.style);
                }
            }
        }
    }
}

/// `rows` shared out by counts; what was counted at all has a row where there is one for each.
fn apportioned(counts: &[usize], rows: usize) -> Vec<usize> {
    let all: usize = counts.iter().sum();
    let counted: Vec<usize> = (0..counts.len()).filter(|at| counts[*at] > 0).collect();
    let mut heights = vec![0; counts.len()];
    if counted.is_empty() {
        return heights;
    }
    if counted.len() <= rows {
        for at in &counted {
            heights[*at] = 1;
        }
    }
    for _ in heights.iter().sum::<usize>()..rows {
        let missing = |at: usize| counts[at] as f64 * rows as f64 / all as f64 - heights[at] as f64;
        let most = counted
            .iter()
            .copied()
            .max_by(|a, b| missing(*a).total_cmp(&missing(*b)));
        if let Some(at) = most {
            heights[at] += 1;
        }
    }
    heights
}

/// Why an arm was chosen, in words.
fn reason(why: &str) -> &str {
    match why {
        "first_round" => "each arm is tried once",
        "bound" => "the highest upper bound",
        "sampled" => "the highest draw",
        "best" => "the highest mean",
        "explored" => "any arm, to explore",
        "fixed" => "as the experiment says",
        "forced" => "somebody forced it",
        "only_one" => "the only arm left",
        other => other,
    }
}

/// What arms were compared by.
fn compared_by(why: &str) -> &'static str {
    match why {
        "bound" | "first_round" => "bounds",
        "sampled" => "draws",
        _ => "means",
    }
}

/// The last choices with their reasons, the newest first.
pub fn list(facts: &Facts<'_>, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    if area.height == 0 {
        return;
    }
    let mut area = area;
    if area.height >= 3 {
        let title = Line::styled("last choices", shared.style(Role::Title));
        frame.render_widget(title, Rect { height: 1, ..area });
        area.y += 1;
        area.height -= 1;
    }
    let unicode = shared.glyphs.unicode;
    let names = facts.rows.iter().map(|row| text::width(&row.name));
    let widest = names.max().unwrap_or(0).clamp(3, 16);
    let shown = facts.bandit.recent.iter().rev();
    for (line, choice) in shown.take(usize::from(area.height)).enumerate() {
        let name: &str = if choice.arm.is_empty() {
            "all"
        } else {
            &choice.arm
        };
        let name = text::pad(&text::printable(name), widest, unicode);
        let mut spans = vec![
            Span::styled(
                format!("step {:<5}", choice.step),
                shared.style(Role::Muted),
            ),
            mark(facts, shared, &choice.arm),
            Span::raw(format!(" {name}  {}", text::printable(reason(&choice.why)))),
        ];
        if let Some(chance) = choice.propensity {
            spans.push(Span::styled(
                format!("  chance {}", text::number(chance.0)),
                shared.style(Role::Muted),
            ));
        }
        if !choice.scores.is_empty() {
            let by = compared_by(&choice.why);
            spans.push(Span::styled(format!("  {by}"), shared.style(Role::Muted)));
            for (score, row) in choice.scores.iter().zip(facts.arms()) {
                spans.push(Span::raw(" "));
                spans.push(mark(facts, shared, &row.name));
                spans.push(Span::raw(format!(" {}", text::number(score.0))));
            }
        }
        let place = Rect {
            y: area.y + line as u16,
            height: 1,
            ..area
        };
        frame.render_widget(Line::from(spans), place);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn all_rows_are_shared_out_among_what_was_counted(
            counts in prop::collection::vec(0_usize..50, 1..6), rows in 1_usize..12,
        ) {
            let heights = apportioned(&counts, rows);
            let all: usize = counts.iter().sum();
            prop_assert_eq!(heights.iter().sum::<usize>(), if all == 0 { 0 } else { rows });
            for (count, height) in counts.iter().zip(&heights) {
                prop_assert!(*count > 0 || *height == 0);
            }
        }
    }

    #[test]
    fn an_arm_that_was_chosen_at_all_is_seen_where_there_is_room() {
        assert_eq!(apportioned(&[98, 1, 1], 4), [2, 1, 1]);
        assert_eq!(apportioned(&[1, 0, 0], 4), [4, 0, 0]);
        assert_eq!(apportioned(&[1, 1], 4), [2, 2]);
    }
}

//! What the bandit believed after each update, as curves: means of the arms, regret, disagreement.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use runlog::series::{Cell, Scale, Series, XAxis, envelope};
use runlog::state::BanditPoint;

use super::facts::Facts;
use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::chart::{self, Chart, Curve, Look, YAxis};
use crate::tui::widgets::text;

/// Panes side by side in this width: means, then regret, then disagreement.
fn panes(width: u16) -> u16 {
    match width {
        0..60 => 1,
        60..110 => 2,
        _ => 3,
    }
}

/// What is drawn of an update.
type Value<'a> = dyn Fn(&BanditPoint) -> Option<f64> + 'a;

/// One value of each update, by update.
struct Values<'a> {
    look: Look,
    of: Box<Value<'a>>,
}

pub fn draw(facts: &Facts<'_>, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    if area.height < 4 || facts.bandit.history.is_empty() {
        return;
    }
    let count = panes(area.width);
    // The arms' means have the room of two where three panes are.
    let parts = if count == 1 { 1 } else { count + 1 };
    let part = area.width / parts;
    let main = area.width - part * (count - 1);
    let arms: Vec<Values<'_>> = facts
        .arms()
        .enumerate()
        .map(|(place, row)| Values {
            look: facts.look(&row.name, &shared.theme),
            of: Box::new(move |point| Some(point.means.get(place).copied().flatten()?.0)),
        })
        .collect();
    let pane = Rect {
        width: main - u16::from(count > 1),
        ..area
    };
    let mut legend = vec![Span::styled("mean of", shared.style(Role::Title))];
    for row in facts.arms() {
        let look = facts.look(&row.name, &shared.theme);
        legend.push(Span::styled(
            format!("  {} ", look.sample(shared.glyphs)),
            look.style,
        ));
        legend.push(Span::raw(text::printable(&row.name)));
    }
    curves(facts, shared, frame, pane, Line::from(legend), arms);
    let look = || Look::of_metric(0, &shared.theme);
    let single = |of: fn(&BanditPoint) -> Option<f64>| {
        vec![Values {
            look: look(),
            of: Box::new(of),
        }]
    };
    let sides: [(&str, Vec<Values<'_>>); 2] = [
        (
            "estimated regret",
            single(|point| point.regret.map(|regret| regret.0)),
        ),
        (
            "disagreement",
            single(|point| point.disagreement.map(|value| value.0)),
        ),
    ];
    for (index, (title, values)) in sides.into_iter().take(usize::from(count - 1)).enumerate() {
        let left = area.x + main + part * index as u16;
        let pane = Rect {
            x: left,
            width: part - u16::from(index as u16 + 2 < count),
            ..area
        };
        let title = Line::styled(title, shared.style(Role::Title));
        curves(facts, shared, frame, pane, title, values);
    }
}

/// Of arms that are summed: the mean score of each in every step.
pub fn draw_scores(facts: &Facts<'_>, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
    if area.height < 4 {
        return;
    }
    let series: Vec<(&str, Series<'_>)> = facts
        .rows
        .iter()
        .filter_map(|row| {
            let metric = format!("reward/arm/{}/score/mean", row.name);
            Some((row.name.as_str(), facts.state.series.get(&metric)?))
        })
        .collect();
    let bounds = series
        .iter()
        .filter_map(|(_, series)| series.x_bounds(XAxis::Step));
    let bounds = bounds.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    let Some((first, last)) = bounds else {
        let nothing = Line::styled("no step has ended yet", shared.style(Role::Muted));
        frame.render_widget(nothing, Rect { height: 1, ..area });
        return;
    };
    let plot = Rect {
        y: area.y + 1,
        height: area.height - 1,
        ..area
    };
    let columns = chart::dot_columns(plot.width, shared.glyphs.plot);
    let end = if last > first { last } else { first + 1.0 };
    let mut legend = vec![Span::styled("mean score of", shared.style(Role::Title))];
    let mut curves = Vec::new();
    for (name, series) in series {
        let look = facts.look(name, &shared.theme);
        legend.push(Span::styled(
            format!("  {} ", look.sample(shared.glyphs)),
            look.style,
        ));
        legend.push(Span::raw(text::printable(name)));
        curves.push(Curve {
            cells: envelope(series, XAxis::Step, first, end, columns, Scale::Linear),
            look,
            is_faint: false,
        });
    }
    frame.render_widget(Line::from(legend), Rect { height: 1, ..area });
    let chart = Chart {
        y: YAxis::around(&curves, &[], false),
        curves,
        limits: Vec::new(),
        x_labels: (format!("step {first}"), last.to_string()),
        x_ticks: Vec::new(),
        events: Vec::new(),
        crosshair: None,
    };
    chart::draw(&chart, shared, frame.buffer_mut(), plot);
}

fn curves(
    facts: &Facts<'_>,
    shared: &Shared,
    frame: &mut Frame<'_>,
    area: Rect,
    title: Line<'_>,
    values: Vec<Values<'_>>,
) {
    let history = &facts.bandit.history;
    let (Some(first), Some(last)) = (history.front(), history.back()) else {
        return;
    };
    frame.render_widget(title, Rect { height: 1, ..area });
    let plot = Rect {
        y: area.y + 1,
        height: area.height - 1,
        ..area
    };
    let columns = chart::dot_columns(plot.width, shared.glyphs.plot);
    let bounds = (first.update as f64, last.update as f64);
    let curves: Vec<Curve> = values
        .into_iter()
        .map(|values| Curve {
            cells: cells(
                history.iter().map(|point| {
                    let value = (values.of)(point);
                    (point.update as f64, value)
                }),
                bounds,
                columns,
            ),
            look: values.look,
            is_faint: false,
        })
        .collect();
    if curves
        .iter()
        .all(|curve| curve.cells.iter().all(Cell::is_gap))
    {
        let nothing = Line::styled("  not known", shared.style(Role::Muted));
        frame.render_widget(nothing, Rect { height: 1, ..plot });
        return;
    }
    let chart = Chart {
        y: YAxis::around(&curves, &[], false),
        curves,
        limits: Vec::new(),
        x_labels: (format!("update {}", first.update), last.update.to_string()),
        x_ticks: Vec::new(),
        events: Vec::new(),
        crosshair: None,
    };
    chart::draw(&chart, shared, frame.buffer_mut(), plot);
}

/// Points cut into columns; a value that is not known leaves a gap.
fn cells(
    points: impl Iterator<Item = (f64, Option<f64>)>,
    (from, to): (f64, f64),
    columns: usize,
) -> Vec<Cell> {
    let mut cells = vec![Cell::EMPTY; columns];
    for (x, value) in points {
        let Some(value) = value else {
            continue;
        };
        let share = if to > from {
            (x - from) / (to - from)
        } else {
            0.0
        };
        let column = ((share * columns as f64) as usize).min(columns.saturating_sub(1));
        let Some(cell) = cells.get_mut(column) else {
            continue;
        };
        cell.count += 1;
        if !value.is_finite() {
            cell.non_finite += 1;
            continue;
        }
        // Of a NaN and a number `min` and `max` give the number.
        cell.min = cell.min.min(value);
        cell.max = cell.max.max(value);
        if cell.first.is_nan() {
            cell.first = value;
        }
        cell.last = value;
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_extreme_of_a_column_survives_and_what_is_unknown_is_a_gap() {
        let points = [
            (1.0, None),
            (2.0, Some(0.5)),
            (3.0, Some(0.9)),
            (4.0, Some(f64::NAN)),
            (5.0, Some(0.1)),
        ];
        let cells = cells(points.into_iter(), (1.0, 5.0), 2);
        assert_eq!((cells[0].count, cells[0].first), (1, 0.5));
        assert_eq!((cells[1].min, cells[1].max, cells[1].last), (0.1, 0.9, 0.1));
        assert_eq!((cells[1].count, cells[1].non_finite), (3, 1));
        let one = super::cells([(7.0, Some(0.3))].into_iter(), (7.0, 7.0), 4);
        assert_eq!(one[0].last, 0.3);
        assert!(one[1..].iter().all(Cell::is_gap));
    }
}

//! Curves in a pane: decimated to the screen's dots with every extreme kept, with axes, limits, marks and a crosshair.
//!
//! ```text
//!   0.98 ┤            ⢀⡠⠤⠒⠊⠉          y labels ┤ plot
//!             ⢀⡠⠒⠉                     · limit · · · · ·
//!   0.41 ┤⣀⠔⠁                      ×  NaN: a mark at the upper edge, and a gap
//!        1           40          80
//! ```
//! Draws what it is given and reads no run.

mod curves;
mod look;

use std::collections::BTreeMap;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::text;
use crate::tui::shared::{PlotMarks, Shared};
use crate::tui::theme::Role;

pub use self::curves::Curve;
pub use self::look::Look;

/// The vertical axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct YAxis {
    pub low: f64,
    pub high: f64,
    pub is_log: bool,
}

impl YAxis {
    /// Round bounds around all finite values of the curves and the limits near them. On a log axis values at or below zero
    /// have no place; without any other it is linear.
    pub fn around(curves: &[Curve], limits: &[Limit], is_log: bool) -> Self {
        let mut low = f64::INFINITY;
        let mut high = f64::NEG_INFINITY;
        let mut take = |value: f64| {
            if value.is_finite() && !(is_log && value <= 0.0) {
                low = low.min(value);
                high = high.max(value);
            }
        };
        for cell in curves.iter().flat_map(|curve| &curve.cells) {
            take(cell.min);
            take(cell.max);
        }
        // A limit far away would flatten the curve: it is then only named.
        for limit in limits {
            if low <= high && (limit.value - high).abs() <= 2.0 * (high - low).max(high.abs() * 0.5)
            {
                low = low.min(limit.value);
                high = high.max(limit.value);
            }
        }
        if low > high {
            return Self {
                low: 0.0,
                high: 1.0,
                is_log: false,
            };
        }
        if is_log {
            let low = 10_f64.powf(low.log10().floor());
            return Self {
                low,
                high: 10_f64.powf((high.log10() - 1e-9).ceil()).max(low * 10.0),
                is_log: true,
            };
        }
        if low == high {
            let pad = if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
            low -= pad;
            high += pad;
        }
        let step = nice_step((high - low) / 4.0);
        Self {
            low: (low / step).floor() * step,
            high: (high / step).ceil() * step,
            is_log: false,
        }
    }

    /// 0 at the bottom, 1 at the top; None without a place.
    fn share(self, value: f64) -> Option<f64> {
        if !value.is_finite() || (self.is_log && value <= 0.0) {
            return None;
        }
        let share = if self.is_log {
            (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.is_finite().then_some(share)
    }

    /// Into how many parts labels cut the axis, at most `most`, so that each part has two digits: 0.25 and not 0.333.
    fn intervals(self, most: u16) -> u16 {
        if self.is_log {
            let decades = (self.high / self.low).log10().round() as u16;
            let fitting = (1..=most)
                .rev()
                .find(|count| decades.is_multiple_of(*count));
            return fitting.unwrap_or(1);
        }
        let is_round = |count: u16| {
            let part = (self.high - self.low) / f64::from(count);
            let digits = part / 10_f64.powf(part.log10().floor() - 1.0);
            (digits - digits.round()).abs() < 1e-6
        };
        (1..=most).rev().find(|count| is_round(*count)).unwrap_or(1)
    }

    fn at(self, share: f64) -> f64 {
        if self.is_log {
            (self.low.ln() + share * (self.high.ln() - self.low.ln())).exp()
        } else {
            self.low + share * (self.high - self.low)
        }
    }
}

/// The next of 1, 2, 2.5, 5 times a power of ten that is not smaller.
pub fn nice_step(wanted: f64) -> f64 {
    if !(wanted.is_finite() && wanted > 0.0) {
        return 1.0;
    }
    let power = 10_f64.powf(wanted.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= wanted * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

/// A horizontal line that means something.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    pub value: f64,
    pub name: String,
}

/// Everything a plot shows.
#[derive(Debug, Clone)]
pub struct Chart {
    pub curves: Vec<Curve>,
    pub y: YAxis,
    pub limits: Vec<Limit>,
    /// Labels below the left and right end; both empty: they have no row.
    pub x_labels: (String, String),
    /// More of them in between: shares (0..1) of the width.
    pub x_ticks: Vec<(f64, String)>,
    /// Shares (0..1) of the width at which something happened, with a letter.
    pub events: Vec<(f64, char)>,
    /// The crosshair's share of the width.
    pub crosshair: Option<f64>,
}

/// Columns taken by the y labels of a pane of this width.
pub fn label_columns(width: u16) -> u16 {
    if width < 24 { 0 } else { 7 }
}

/// Characters of the plot in a pane of this width.
pub fn plot_columns(width: u16) -> u16 {
    width.saturating_sub(label_columns(width))
}

/// Columns of dots that a pane of this width has: curves are cut into as many cells.
pub fn dot_columns(width: u16, marks: PlotMarks) -> usize {
    usize::from(plot_columns(width)) * usize::from(dots(marks).0)
}

/// Columns of dots in a character.
pub fn dots_across(marks: PlotMarks) -> usize {
    usize::from(dots(marks).0)
}

/// The share of the width, 0 to 1, at which a column of the screen lies in a plot with its labels. None: left of the curves.
pub fn share_at(area: Rect, x: u16) -> Option<f64> {
    let label = label_columns(area.width);
    let at = x.checked_sub(area.x + label)?;
    Some(f64::from(at) / f64::from(area.width.saturating_sub(label)).max(1.0))
}

/// Dots a character: across, down.
fn dots(marks: PlotMarks) -> (u16, u16) {
    match marks {
        PlotMarks::Braille | PlotMarks::Octant => (2, 4),
        PlotMarks::Block => (2, 2),
        PlotMarks::Dot | PlotMarks::Ascii => (1, 1),
    }
}

/// Draws a chart; the last row holds the x labels, if there are any and at least four rows.
pub fn draw(chart: &Chart, shared: &Shared, buffer: &mut Buffer, area: Rect) {
    let label_width = label_columns(area.width);
    let (left, right) = &chart.x_labels;
    let has_x_labels = area.height >= 4 && !(left.is_empty() && right.is_empty());
    let rows = area.height - u16::from(has_x_labels);
    let columns = area.width.saturating_sub(label_width);
    if rows == 0 || columns == 0 {
        return;
    }
    let plot = Rect::new(area.x + label_width, area.y, columns, rows);
    let glyphs = shared.glyphs;
    draw_limit_lines(chart, shared, buffer, plot);
    if let Some(share) = chart.crosshair {
        let x = plot.x + column_at(share, columns);
        for y in plot.top()..plot.bottom() {
            buffer[(x, y)]
                .set_symbol(glyphs.pick("│", "|"))
                .set_style(shared.style(Role::Crosshair));
        }
    }
    curves::draw(chart, shared, buffer, plot);
    draw_events(chart, shared, buffer, plot);
    draw_limit_names(chart, shared, buffer, plot);
    draw_y_labels(chart, shared, buffer, area, rows, label_width);
    if has_x_labels {
        draw_x_labels(chart, shared, buffer, area, label_width);
    }
}

fn column_at(share: f64, columns: u16) -> u16 {
    ((share.clamp(0.0, 1.0) * f64::from(columns)) as u16).min(columns - 1)
}

/// Each limit, where it lies (0 at the foot of the plot, 1 at its top, beyond where it is out of view), and its row.
fn limits_of(
    chart: &Chart,
    plot: Rect,
    marks: PlotMarks,
) -> impl Iterator<Item = (&Limit, f64, u16)> {
    chart.limits.iter().filter_map(move |limit| {
        let share = chart.y.share(limit.value)?;
        let row = row_at(share.clamp(0.0, 1.0), plot.height, marks);
        Some((limit, share, plot.y + row))
    })
}

fn limit_mark(shared: &Shared) -> &'static str {
    shared.glyphs.pick("╌", "-")
}

fn draw_limit_lines(chart: &Chart, shared: &Shared, buffer: &mut Buffer, plot: Rect) {
    for (_, share, y) in limits_of(chart, plot, shared.glyphs.plot) {
        if (0.0..=1.0).contains(&share) {
            for x in (plot.left()..plot.right()).step_by(2) {
                buffer[(x, y)]
                    .set_symbol(limit_mark(shared))
                    .set_style(shared.style(Role::Caution));
            }
        }
    }
}

/// The names lie over the curves, or they could not be read, and where they hide least of them.
fn draw_limit_names(chart: &Chart, shared: &Shared, buffer: &mut Buffer, plot: Rect) {
    for (limit, share, y) in limits_of(chart, plot, shared.glyphs.plot) {
        let is_in_view = (0.0..=1.0).contains(&share);
        // One that is far away is only named, at the edge beyond which it lies.
        let arrow = match share {
            _ if is_in_view => "",
            share if share > 1.0 => shared.glyphs.pick(" ↑", " ^"),
            _ => shared.glyphs.pick(" ↓", " v"),
        };
        let name = format!("{}{arrow}", limit.name);
        let name = text::fit(&name, usize::from(plot.width), shared.glyphs.unicode);
        let room = plot.width - (text::width(&name) as u16).min(plot.width);
        let hidden = |(from, y): &(u16, u16)| {
            (plot.x + from..plot.right() - (room - from))
                .filter(|x| ![" ", limit_mark(shared)].contains(&buffer[(*x, *y)].symbol()))
                .count()
        };
        // On the line, at an end of it or not; else right above or below it.
        let on_line = [room, 0, room / 2, room / 4, room - room / 4];
        let on_line = on_line.into_iter().chain(0..=room).map(|from| (from, y));
        let beside = [y.saturating_sub(1), y + 1].into_iter();
        let beside =
            beside.filter(|beside| *beside != y && plot.rows().any(|row| row.y == *beside));
        let beside = beside.flat_map(|beside| (0..=room).rev().map(move |from| (from, beside)));
        let place = on_line.chain(beside).min_by_key(hidden);
        let (from, y) = place.unwrap_or((room, y));
        let at = plot.x + from;
        buffer.set_string(at, y, &name, shared.style(Role::Caution));
    }
}

/// The row in which a curve's dot at this share of the height lies.
fn row_at(share: f64, rows: u16, marks: PlotMarks) -> u16 {
    let down = f64::from(dots(marks).1);
    let dot = ((1.0 - share) * (f64::from(rows) * down - 1.0)).round();
    ((dot / down) as u16).min(rows - 1)
}

/// Rows in which a letter may stand: higher up it would be taken for a part of a curve.
const EVENT_ROWS: usize = 2;

/// Letters at the foot of the plot, or above a curve that is there; a later one lies over an earlier. One that has no place is
/// left out, as the data come first.
fn draw_events(chart: &Chart, shared: &Shared, buffer: &mut Buffer, plot: Rect) {
    let overdrawn = [" ", limit_mark(shared), shared.glyphs.pick("│", "|")];
    let mut rows: BTreeMap<u16, Option<u16>> = BTreeMap::new();
    for (share, letter) in &chart.events {
        if !(0.0..=1.0).contains(share) {
            continue;
        }
        let x = plot.x + column_at(*share, plot.width);
        let row = rows.entry(x).or_insert_with(|| {
            let is_free = |y: &u16| overdrawn.contains(&buffer[(x, *y)].symbol());
            let mut lowest = (plot.top()..plot.bottom()).rev().take(EVENT_ROWS);
            lowest.find(is_free)
        });
        if let Some(y) = *row {
            buffer[(x, y)]
                .set_char(*letter)
                .set_style(shared.style(Role::Caution));
        }
    }
}

fn draw_y_labels(
    chart: &Chart,
    shared: &Shared,
    buffer: &mut Buffer,
    area: Rect,
    rows: u16,
    label_width: u16,
) {
    if label_width == 0 {
        return;
    }
    let tick = shared.glyphs.pick("┤", "+");
    // As many labels as have three rows of room, at round values where the axis has such.
    let count = chart.y.intervals((rows / 3).clamp(1, 5));
    for label in 0..=count {
        let share = f64::from(label) / f64::from(count);
        let row = (((1.0 - share) * f64::from(rows - 1)).round() as u16).min(rows - 1);
        let shown = text::number_within(chart.y.at(share), usize::from(label_width - 1));
        let shown = text::pad_left(&shown, usize::from(label_width - 1), shared.glyphs.unicode);
        let shown = format!("{shown}{tick}");
        buffer.set_string(area.x, area.y + row, shown, shared.style(Role::Muted));
        if rows == 1 {
            break;
        }
    }
}

fn draw_x_labels(
    chart: &Chart,
    shared: &Shared,
    buffer: &mut Buffer,
    area: Rect,
    label_width: u16,
) {
    let style = shared.style(Role::Muted);
    let y = area.bottom() - 1;
    let room = usize::from(area.width - label_width);
    let (left, right) = &chart.x_labels;
    let left = text::fit(left, room, shared.glyphs.unicode);
    buffer.set_string(area.x + label_width, y, &left, style);
    let width = text::width(right);
    let mut free = text::width(&left) + 1;
    let mut end = room;
    if free + width <= room {
        buffer.set_string(area.right() - width as u16, y, right, style);
        end = room - width;
    }
    // Each below its place, and none without a space on both sides.
    for (share, label) in &chart.x_ticks {
        let width = text::width(label);
        let middle = (share * room as f64) as usize;
        let from = middle.saturating_sub(width / 2);
        if from > free && from + width < end {
            buffer.set_string(area.x + label_width + from as u16, y, label, style);
            free = from + width + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use runlog::series::Cell;

    use super::*;
    use crate::tui::shared::Glyphs;
    use crate::tui::testing::shared;

    fn look() -> Look {
        Look::of_metric(0, &shared().theme)
    }

    fn cell(value: f64) -> Cell {
        Cell {
            min: value,
            max: value,
            first: value,
            last: value,
            count: 1,
            non_finite: u64::from(!value.is_finite()),
        }
    }

    fn draw_text(values: &[f64], plain: bool) -> Vec<String> {
        draw_with(values, Vec::new(), 27, plain)
    }

    /// The lines of a plot of 6 rows, of which the labels take 7 columns.
    fn draw_with(values: &[f64], limits: Vec<Limit>, columns: u16, plain: bool) -> Vec<String> {
        draw_chart(values, limits, Vec::new(), columns, plain)
    }

    fn draw_chart(
        values: &[f64],
        limits: Vec<Limit>,
        events: Vec<(f64, char)>,
        columns: u16,
        plain: bool,
    ) -> Vec<String> {
        let mut shared = shared();
        if plain {
            shared.glyphs = Glyphs {
                unicode: false,
                plot: PlotMarks::Ascii,
            };
        }
        let area = Rect::new(0, 0, columns, 6);
        let mut buffer = Buffer::empty(area);
        let curves = vec![Curve {
            cells: values.iter().map(|value| cell(*value)).collect(),
            look: look(),
            is_faint: false,
        }];
        let chart = Chart {
            y: YAxis::around(&curves, &limits, false),
            curves,
            limits,
            x_labels: ("1".to_owned(), "20".to_owned()),
            x_ticks: vec![(0.5, "10".to_owned())],
            events,
            crosshair: None,
        };
        draw(&chart, &shared, &mut buffer, area);
        (0..area.height)
            .map(|y| {
                let line: String = (0..area.width).map(|x| buffer[(x, y)].symbol()).collect();
                line.trim_end().to_owned()
            })
            .collect()
    }

    #[test]
    fn bounds_are_round_and_hold_every_value() {
        let curves = [Curve {
            cells: vec![cell(0.413), cell(0.977), cell(f64::NAN)],
            look: look(),
            is_faint: false,
        }];
        let y = YAxis::around(&curves, &[], false);
        assert_eq!((y.low, y.high), (0.4, 1.0));
        let log = YAxis::around(&curves, &[], true);
        assert_eq!((log.low, log.high), (0.1, 1.0));
        let none = YAxis::around(&[], &[], true);
        assert!(!none.is_log && none.low < none.high);
    }

    #[test]
    fn labels_of_the_y_axis_stand_at_round_values() {
        let axis = |low, high, is_log| YAxis { low, high, is_log };
        assert_eq!(axis(0.0, 8.0, false).intervals(3), 2, "not 2.67");
        assert_eq!(axis(0.0, 0.015, false).intervals(4), 3, "not 0.00375");
        assert_eq!(axis(0.4, 1.0, false).intervals(3), 3);
        assert_eq!(axis(0.0, 100.0, false).intervals(3), 2);
        assert_eq!(axis(0.01, 100.0, true).intervals(5), 4, "a decade each");
        assert_eq!(axis(0.0, 0.7, false).intervals(1), 1);
    }

    #[test]
    fn a_spike_in_one_column_reaches_its_height() {
        let mut values = vec![0.0; 20];
        values[9] = 1.0;
        let lines = draw_text(&values, true);
        assert_eq!(lines[0].chars().nth(7 + 9), Some('*'), "{lines:#?}");
        assert_eq!(lines[4].chars().nth(7 + 15), Some('*'), "{lines:#?}");
    }

    #[test]
    fn what_is_no_number_is_marked_and_leaves_a_gap() {
        let mut values = vec![0.5; 20];
        values[4] = f64::NAN;
        values[0] = 0.0;
        values[19] = 1.0;
        let lines = draw_text(&values, true);
        assert_eq!(lines[0].chars().nth(7 + 4), Some('!'), "{lines:#?}");
        for line in &lines[1..5] {
            assert_ne!(line.chars().nth(7 + 4), Some('*'), "{lines:#?}");
        }
    }

    #[test]
    fn the_name_of_a_limit_is_whole_and_hides_the_least_of_the_curves() {
        // A curve that rises at the right, up to the limit.
        let values: Vec<f64> = (0..60).map(|x| if x < 40 { 0.0 } else { 0.5 }).collect();
        let limit = Limit {
            value: 0.5,
            name: "guard kl > 0.5".to_owned(),
        };
        let lines = draw_with(&values, vec![limit], 67, true);
        let named = lines.iter().find_map(|line| line.find("guard kl > 0.5"));
        assert!(named.is_some_and(|at| at < 7 + 40 - 14), "{lines:#?}");
        let reached = lines[..4].iter().filter(|line| line.ends_with("****"));
        assert_eq!(reached.count(), 1, "{lines:#?}");
    }

    #[test]
    fn the_name_of_a_limit_that_a_curve_runs_along_stands_beside_the_line() {
        // A curve that goes about the limit from end to end.
        let values: Vec<f64> = (0..60).map(|x| if x == 3 { 0.0 } else { 0.5 }).collect();
        let limit = Limit {
            value: 0.5,
            name: "guard kl > 0.5".to_owned(),
        };
        let without = draw_with(&values, Vec::new(), 67, true);
        let lines = draw_with(&values, vec![limit], 67, true);
        assert!(lines.concat().contains("guard kl > 0.5"), "{lines:#?}");
        let marks = |lines: &[String]| lines.concat().matches('*').count();
        assert_eq!(marks(&lines), marks(&without), "{lines:#?}");
    }

    #[test]
    fn a_letter_stands_above_a_curve_that_is_at_the_foot_and_hides_none_of_it() {
        // At the foot on the left, at the top on the right.
        let values: Vec<f64> = (0..20).map(|x| if x < 10 { 0.0 } else { 1.0 }).collect();
        let lines = |events: Vec<(f64, char)>| draw_chart(&values, Vec::new(), events, 27, true);
        let with = lines(vec![(0.1, 'c'), (0.9, 'a'), (0.9, 'g')]);
        let column = |line: &str, x: usize| line.chars().nth(7 + x);
        assert_eq!(column(&with[4], 2), Some('*'), "{with:#?}");
        assert_eq!(column(&with[3], 2), Some('c'), "{with:#?}");
        assert_eq!(column(&with[4], 18), Some('g'), "{with:#?}");
        let marks = |lines: &[String]| lines.concat().matches('*').count();
        assert_eq!(marks(&with), marks(&lines(Vec::new())));
    }

    #[test]
    fn a_pane_of_any_size_is_drawn_without_a_panic() {
        let shared = shared();
        for width in 0..40 {
            for height in 0..8 {
                let area = Rect::new(0, 0, width, height);
                let mut buffer = Buffer::empty(area);
                let curves = vec![Curve {
                    cells: vec![cell(1.0); dot_columns(width, PlotMarks::Braille)],
                    look: look(),
                    is_faint: false,
                }];
                let chart = Chart {
                    y: YAxis::around(&curves, &[], false),
                    curves,
                    limits: vec![Limit {
                        value: 1.0,
                        name: "limit".to_owned(),
                    }],
                    x_labels: ("a".to_owned(), "b".to_owned()),
                    x_ticks: vec![(0.0, "c".to_owned()), (1.0, "d".to_owned())],
                    events: vec![(0.5, 'c')],
                    crosshair: Some(1.0),
                };
                draw(&chart, &shared, &mut buffer, area);
            }
        }
    }
}

//! A sheet of panels drawn: axes with round numbers, the raw line faint behind the smoothed one, a mark for each value that
//! is not finite. Drawn once on a `Canvas`, of which there are two: SVG text, and pixels.

mod axis;
mod pixels;
mod png_file;
mod svg;

use ratatui::style::Color;
use runlog::series::XAxis;

use super::ExportError;
use super::curves::{Curve, Panel, Sheet};
use crate::tui::theme::{Appearance, Role, Theme, rgb_of};
use axis::Axis;
pub use svg::{FONTS, escaped, short};

/// Red, green, blue.
pub type Rgb = [u8; 3];

/// Pixels of a panel at least; as many columns as fit.
const PANEL_WIDTH: f64 = 380.0;
const PANEL_HEIGHT: f64 = 240.0;
const GAP: f64 = 16.0;
const TITLE_HEIGHT: f64 = 40.0;
/// Room of a panel for its title, and for the numbers at its axes.
const ABOVE: f64 = 26.0;
const BELOW: f64 = 36.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 12.0;
/// Letters.
const TEXT: f64 = 11.0;
const TITLE: f64 = 13.0;
/// Columns of a small letter, at most.
const LETTER: f64 = 7.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Anchor {
    Start,
    Middle,
    End,
}

#[derive(Debug, Clone, Copy)]
struct Pen {
    color: Rgb,
    width: f64,
    opacity: f64,
    dash: Dash,
}

/// What is drawn of a line and what is left out, in turn, pixels; empty: all is drawn.
type Dash = &'static [f64];

/// The second metric of a run is dashed, the third dotted, the fourth both.
const DASHES: [Dash; 4] = [&[], &[6.0, 3.0], &[1.5, 3.0], &[8.0, 3.0, 1.5, 3.0]];

/// Letters of one size and colour; `y` is the base line.
#[derive(Debug, Clone, Copy)]
struct Letters {
    color: Rgb,
    size: f64,
    is_bold: bool,
    anchor: Anchor,
}

/// Something that can be drawn on; the unit is a CSS pixel.
trait Canvas {
    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, color: Rgb);
    /// An open line.
    fn line(&mut self, points: &[(f64, f64)], pen: Pen);
    fn text(&mut self, x: f64, y: f64, text: &str, letters: Letters);
}

/// Colours of a theme on a page that has to have a background.
#[derive(Debug, Clone, Copy)]
pub struct Colors {
    pub background: Rgb,
    pub text: Rgb,
    pub muted: Rgb,
    pub grid: Rgb,
    pub bad: Rgb,
}

impl Colors {
    pub fn of(theme: &Theme) -> Self {
        // What a terminal would fill in by itself.
        let (background, text) = match theme.appearance {
            Appearance::Dark => ([0x16, 0x18, 0x1d], [0xd8, 0xd8, 0xd8]),
            Appearance::Light => ([0xff, 0xff, 0xff], [0x26, 0x26, 0x26]),
        };
        let role =
            |role: Role, otherwise: Rgb| theme.style(role).fg.and_then(rgb_of).unwrap_or(otherwise);
        let between = |share: f64| -> Rgb {
            std::array::from_fn(|i| {
                let (a, b) = (f64::from(background[i]), f64::from(text[i]));
                (a + (b - a) * share).round() as u8
            })
        };
        let own = theme.style(Role::Text);
        Self {
            background: own.bg.and_then(rgb_of).unwrap_or(background),
            text: own.fg.and_then(rgb_of).unwrap_or(text),
            muted: role(Role::Muted, between(0.6)),
            grid: between(0.15),
            bad: role(Role::Bad, text),
        }
    }
}

/// A curve's colour; a theme without colours has one for all.
fn series_color(theme: &Theme, index: usize, colors: &Colors) -> Rgb {
    theme
        .series(index)
        .fg
        .and_then(rgb_of)
        .unwrap_or(colors.text)
}

/// `#rrggbb`.
pub fn hex([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// For those that need a colour in place of the terminal's own.
pub fn color_or(color: Option<Color>, otherwise: Rgb) -> Rgb {
    color.and_then(rgb_of).unwrap_or(otherwise)
}

/// The sheet as SVG, `width` pixels wide.
pub fn svg(sheet: &Sheet, theme: &Theme, width: u32) -> String {
    let (width, height) = size(sheet, width);
    let mut canvas = svg::Svg::new(width, height);
    draw(sheet, theme, width, height, &mut canvas);
    canvas.finish()
}

/// The sheet as PNG, at two pixels a CSS pixel.
pub fn png(sheet: &Sheet, theme: &Theme, width: u32) -> Result<Vec<u8>, ExportError> {
    let (width, height) = size(sheet, width);
    let mut canvas = pixels::Pixels::new(width, height)?;
    draw(sheet, theme, width, height, &mut canvas);
    Ok(canvas.finish())
}

fn columns(sheet: &Sheet, width: f64) -> usize {
    let fit = ((width - GAP) / (PANEL_WIDTH + GAP)).floor() as usize;
    fit.clamp(1, sheet.panels.len().max(1))
}

/// Every run of the sheet with its colour, once; of one run alone there is nothing to say.
fn legend(sheet: &Sheet) -> Vec<(&str, usize)> {
    let mut names: Vec<(&str, usize)> = Vec::new();
    for curve in sheet.panels.iter().flat_map(|panel| &panel.curves) {
        if !names.iter().any(|(name, _)| *name == curve.run) {
            names.push((&curve.run, curve.color));
        }
    }
    names.retain({
        let is_alone = names.len() < 2;
        move |_| !is_alone
    });
    names
}

fn legend_height(sheet: &Sheet) -> f64 {
    match legend(sheet).len() {
        0 => 0.0,
        runs => 6.0 + 16.0 * runs as f64,
    }
}

/// The metrics of a panel, each with how its line is drawn in the first run that has it; none where there is but one.
fn metrics(panel: &Panel) -> Vec<&Curve> {
    let mut found: Vec<&Curve> = Vec::new();
    for curve in &panel.curves {
        if !found.iter().any(|known| known.metric == curve.metric) {
            found.push(curve);
        }
    }
    if found.len() < 2 { Vec::new() } else { found }
}

fn size(sheet: &Sheet, width: u32) -> (f64, f64) {
    let width = f64::from(width.clamp(320, 8000));
    let rows = sheet.panels.len().div_ceil(columns(sheet, width));
    let height = TITLE_HEIGHT + legend_height(sheet) + rows as f64 * (PANEL_HEIGHT + GAP);
    (width, height)
}

fn draw(sheet: &Sheet, theme: &Theme, width: f64, height: f64, canvas: &mut dyn Canvas) {
    let colors = Colors::of(theme);
    canvas.rect(0.0, 0.0, width, height, colors.background);
    let title = Letters {
        color: colors.text,
        size: 15.0,
        is_bold: true,
        anchor: Anchor::Start,
    };
    canvas.text(GAP, 26.0, &sheet.title, title);
    let mut top = TITLE_HEIGHT;
    for (row, (name, color)) in legend(sheet).into_iter().enumerate() {
        let y = top + 16.0 * row as f64 + 6.0;
        let pen = Pen {
            color: series_color(theme, color, &colors),
            width: 2.5,
            opacity: 1.0,
            dash: DASHES[0],
        };
        canvas.line(&[(GAP, y), (GAP + 22.0, y)], pen);
        let letters = Letters {
            color: colors.text,
            size: TEXT,
            is_bold: false,
            anchor: Anchor::Start,
        };
        canvas.text(GAP + 30.0, y + 4.0, name, letters);
    }
    top += legend_height(sheet);
    let columns = columns(sheet, width);
    let panel_width = (width - GAP * (columns as f64 + 1.0)) / columns as f64;
    for (index, panel) in sheet.panels.iter().enumerate() {
        let x = GAP + (index % columns) as f64 * (panel_width + GAP);
        let y = top + (index / columns) as f64 * (PANEL_HEIGHT + GAP);
        draw_panel(panel, theme, &colors, (x, y, panel_width), canvas);
    }
}

/// The place of the lines in a panel, and the scales on it.
struct Plot {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    x: Axis,
    y: Axis,
}

impl Plot {
    fn at(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        let (x, y) = (self.x.share(x)?, self.y.share(y)?);
        Some((
            self.left + x * self.width,
            self.top + (1.0 - y) * self.height,
        ))
    }
}

fn draw_panel(
    panel: &Panel,
    theme: &Theme,
    colors: &Colors,
    (x, y, width): (f64, f64, f64),
    canvas: &mut dyn Canvas,
) {
    let letters = |color: Rgb, size: f64, anchor: Anchor| Letters {
        color,
        size,
        is_bold: false,
        anchor,
    };
    let title = Letters {
        is_bold: true,
        ..letters(colors.text, TITLE, Anchor::Start)
    };
    canvas.text(x + LEFT, y + 16.0, &panel.title, title);
    let (unit, divisor) = unit_of(panel);
    let scale = if panel.is_log_y { " log" } else { "" };
    canvas.text(
        x + width - RIGHT,
        y + 16.0,
        &format!("{unit}{scale}"),
        letters(colors.muted, TEXT, Anchor::End),
    );
    let mut at = x + LEFT;
    let is_of_one_run = panel
        .curves
        .iter()
        .all(|curve| curve.run == panel.curves[0].run);
    for curve in metrics(panel) {
        let pen = Pen {
            // Colours are the runs' own where there are several.
            color: if is_of_one_run {
                series_color(theme, curve.color, colors)
            } else {
                colors.text
            },
            width: 2.0,
            opacity: 1.0,
            dash: dash_of(curve),
        };
        canvas.line(&[(at, y + 26.0), (at + 16.0, y + 26.0)], pen);
        let label = letters(colors.text, TEXT, Anchor::Start);
        canvas.text(at + 21.0, y + 30.0, &curve.label, label);
        at += 35.0 + LETTER * curve.label.chars().count() as f64;
    }
    let above = ABOVE + if metrics(panel).is_empty() { 0.0 } else { 14.0 };
    let plot = Plot {
        left: x + LEFT,
        top: y + above,
        width: width - LEFT - RIGHT,
        height: PANEL_HEIGHT - above - BELOW,
        x: x_axis(panel),
        y: y_axis(panel).shown_in(divisor),
    };
    let grid = Pen {
        color: colors.grid,
        width: 1.0,
        opacity: 1.0,
        dash: DASHES[0],
    };
    for (value, label) in plot.y.ticks(5) {
        let Some((_, at)) = plot.at((plot.x.low, value)) else {
            continue;
        };
        canvas.line(&[(plot.left, at), (plot.left + plot.width, at)], grid);
        let letters = letters(colors.muted, TEXT, Anchor::End);
        canvas.text(plot.left - 6.0, at + 4.0, &label, letters);
    }
    let floor = plot.top + plot.height;
    for (value, label) in plot.x.ticks((plot.width / 70.0) as usize) {
        let Some((at, _)) = plot.at((value, plot.y.low)) else {
            continue;
        };
        canvas.line(&[(at, floor), (at, floor + 4.0)], grid);
        let letters = letters(colors.muted, TEXT, Anchor::Middle);
        canvas.text(at, floor + 16.0, &label, letters);
    }
    let axis = Pen {
        color: colors.muted,
        width: 1.0,
        opacity: 1.0,
        dash: DASHES[0],
    };
    canvas.line(&[(plot.left, floor), (plot.left + plot.width, floor)], axis);
    let name = match panel.axis {
        XAxis::Time => "minutes",
        axis => axis.name(),
    };
    canvas.text(
        plot.left + plot.width,
        floor + 30.0,
        name,
        letters(colors.muted, TEXT, Anchor::End),
    );
    // Every raw line first, so that no smoothed one is hidden.
    for curve in &panel.curves {
        let is_behind = !curve.smoothed.is_empty();
        let pen = Pen {
            color: series_color(theme, curve.color, colors),
            width: if is_behind { 1.0 } else { 1.5 },
            opacity: if is_behind { 0.35 } else { 1.0 },
            dash: if is_behind { DASHES[0] } else { dash_of(curve) },
        };
        draw_line(&curve.points, &plot, pen, canvas);
    }
    for curve in &panel.curves {
        let pen = Pen {
            color: series_color(theme, curve.color, colors),
            width: 2.0,
            opacity: 1.0,
            dash: dash_of(curve),
        };
        draw_line(&curve.smoothed, &plot, pen, canvas);
        draw_non_finite(curve, &plot, colors, canvas);
    }
}

fn dash_of(curve: &Curve) -> Dash {
    DASHES[curve.dash % DASHES.len()]
}

/// `[ms]`, or nothing; and what values are divided by on the axis: bytes are counted in larger units.
fn unit_of(panel: &Panel) -> (String, f64) {
    match panel.unit.as_str() {
        "" | "1" => (String::new(), 1.0),
        "bytes" => {
            let most = panel.curves.iter().flat_map(|curve| &curve.points);
            let most = most.map(|(_, y)| *y).filter(|y| y.is_finite());
            let most = most.fold(0.0, f64::max);
            let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
            let fitting = units
                .into_iter()
                .map(|(name, bits)| (name, f64::from(1_u32 << bits)))
                .find(|(_, size)| most >= *size);
            let (name, size) = fitting.unwrap_or(("bytes", 1.0));
            (format!("[{name}]"), size)
        }
        unit => (format!("[{unit}]"), 1.0),
    }
}

fn x_axis(panel: &Panel) -> Axis {
    let minutes = if panel.axis == XAxis::Time { 6e4 } else { 1.0 };
    let bounds = panel.x_range.unwrap_or_else(|| {
        let x = panel
            .curves
            .iter()
            .flat_map(|curve| curve.points.iter().map(|(x, _)| *x))
            .filter(|x| x.is_finite() && (!panel.is_log_x || *x > 0.0));
        bounds(x)
    });
    Axis::new(bounds, panel.is_log_x, 0.0).shown_in(minutes)
}

fn y_axis(panel: &Panel) -> Axis {
    let y = panel
        .curves
        .iter()
        .flat_map(|curve| curve.points.iter().map(|(_, y)| *y))
        .filter(|y| y.is_finite() && (!panel.is_log_y || *y > 0.0));
    Axis::new(bounds(y), panel.is_log_y, 0.05)
}

/// Least and most; 0 to 1 when there is nothing.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low > high { (0.0, 1.0) } else { (low, high) }
}

/// The line through `points`, broken where a value is not finite or x goes back; where points are denser than pixels, each
/// pixel column has its first, least, most and last, so that no extreme is lost.
fn draw_line(points: &[(f64, f64)], plot: &Plot, pen: Pen, canvas: &mut dyn Canvas) {
    let mut piece: Vec<(f64, f64)> = Vec::new();
    let mut column: Vec<(f64, f64)> = Vec::new();
    let mut last_x = f64::NEG_INFINITY;
    let mut end_piece = |piece: &mut Vec<(f64, f64)>, column: &mut Vec<(f64, f64)>| {
        close_column(piece, column);
        match piece.as_slice() {
            [] => {}
            // A point alone is a short line: it must be seen too.
            [(x, y)] => canvas.line(&[(x - 1.0, *y), (x + 1.0, *y)], pen),
            _ => canvas.line(piece, pen),
        }
        piece.clear();
    };
    for point in points {
        let placed = if point.1.is_finite() {
            plot.at(*point)
        } else {
            None
        };
        let Some((x, y)) = placed else {
            end_piece(&mut piece, &mut column);
            last_x = f64::NEG_INFINITY;
            continue;
        };
        if x < last_x {
            end_piece(&mut piece, &mut column);
        } else if column
            .first()
            .is_some_and(|(first, _)| first.floor() != x.floor())
        {
            close_column(&mut piece, &mut column);
        }
        column.push((x, y));
        last_x = x;
    }
    end_piece(&mut piece, &mut column);
}

/// Moves what a pixel column holds to the line, at most four of its points, in their order.
fn close_column(piece: &mut Vec<(f64, f64)>, column: &mut Vec<(f64, f64)>) {
    if column.len() <= 4 {
        piece.append(column);
        return;
    }
    let least = index_of(column, |a, b| a < b);
    let most = index_of(column, |a, b| a > b);
    let mut kept = [0, least, most, column.len() - 1];
    kept.sort_unstable();
    let mut last = usize::MAX;
    for index in kept {
        if index != last {
            piece.push(column[index]);
        }
        last = index;
    }
    column.clear();
}

fn index_of(column: &[(f64, f64)], is_better: impl Fn(f64, f64) -> bool) -> usize {
    let mut found = 0;
    for (index, (_, y)) in column.iter().enumerate() {
        if is_better(*y, column[found].1) {
            found = index;
        }
    }
    found
}

/// A cross at the upper edge for each NaN or infinity; at most one in three pixels.
fn draw_non_finite(curve: &Curve, plot: &Plot, colors: &Colors, canvas: &mut dyn Canvas) {
    let pen = Pen {
        color: colors.bad,
        width: 1.5,
        opacity: 1.0,
        dash: DASHES[0],
    };
    let mut last = f64::NEG_INFINITY;
    for (x, y) in &curve.points {
        if y.is_finite() {
            continue;
        }
        let Some(share) = plot.x.share(*x) else {
            continue;
        };
        let at = plot.left + share * plot.width;
        if at - last < 3.0 {
            continue;
        }
        last = at;
        let top = plot.top + 5.0;
        canvas.line(&[(at - 3.0, top - 3.0), (at + 3.0, top + 3.0)], pen);
        canvas.line(&[(at - 3.0, top + 3.0), (at + 3.0, top - 3.0)], pen);
    }
}

//! A terminal's screen as SVG. Lines, blocks and braille dots are drawn as shapes, since fonts differ in them or lack them;
//! letters are stretched onto the grid.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::Modifier;

use super::picture::{Colors, FONTS, Rgb, color_or, escaped, hex, short};
use crate::tui::theme::Theme;
use crate::tui::widgets::text;

/// A cell in CSS pixels, and the size of its letters.
const WIDTH: f64 = 8.4;
const HEIGHT: f64 = 18.0;
const SIZE: f64 = 14.0;
/// The base line below a cell's top.
const BASE: f64 = 13.5;
/// Air around the screen.
const MARGIN: f64 = 10.0;
/// Of letters that are dim.
const DIM: f64 = 0.6;

/// How a run of letters looks.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Look {
    color: Rgb,
    is_bold: bool,
    is_dim: bool,
    is_italic: bool,
    is_underlined: bool,
}

/// Shapes of one colour, joined into one path each.
#[derive(Debug, Default)]
struct Shapes {
    dots: String,
    thin: String,
    heavy: String,
    filled: String,
}

/// The screen in the theme's colours.
pub fn svg(buffer: &Buffer, theme: &Theme) -> String {
    let colors = Colors::of(theme);
    let (columns, rows) = (buffer.area.width, buffer.area.height);
    let width = f64::from(columns) * WIDTH + 2.0 * MARGIN;
    let height = f64::from(rows) * HEIGHT + 2.0 * MARGIN;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" font-family=\"{FONTS}\" font-size=\"{SIZE}\">\n<rect width=\"{w}\" height=\"{h}\" rx=\"6\" fill=\"{}\"/>",
        hex(colors.background),
        w = short(width),
        h = short(height),
    );
    let mut shapes: BTreeMap<Rgb, Shapes> = BTreeMap::new();
    for row in 0..rows {
        backgrounds(buffer, row, &colors, &mut out);
    }
    for row in 0..rows {
        letters(buffer, row, &colors, &mut out, &mut shapes);
    }
    for (color, shapes) in &shapes {
        let color = hex(*color);
        for (path, style) in [
            (&shapes.filled, format!("fill=\"{color}\"")),
            (
                &shapes.thin,
                format!("fill=\"none\" stroke=\"{color}\" stroke-width=\"1\""),
            ),
            (
                &shapes.heavy,
                format!("fill=\"none\" stroke=\"{color}\" stroke-width=\"2.4\""),
            ),
            (
                &shapes.dots,
                format!(
                    "fill=\"none\" stroke=\"{color}\" stroke-width=\"2.2\" stroke-linecap=\"round\""
                ),
            ),
        ] {
            if !path.is_empty() {
                let _ = writeln!(out, "<path d=\"{path}\" {style}/>");
            }
        }
    }
    out.push_str("</svg>\n");
    out
}

fn paint(cell: &Cell, colors: &Colors) -> (Rgb, Rgb) {
    let (front, back) = (
        color_or(Some(cell.fg), colors.text),
        color_or(Some(cell.bg), colors.background),
    );
    if cell.modifier.contains(Modifier::REVERSED) {
        (back, front)
    } else {
        (front, back)
    }
}

fn left(column: u16) -> f64 {
    MARGIN + f64::from(column) * WIDTH
}

fn top(row: u16) -> f64 {
    MARGIN + f64::from(row) * HEIGHT
}

fn backgrounds(buffer: &Buffer, row: u16, colors: &Colors, out: &mut String) {
    let columns = buffer.area.width;
    let mut start = 0;
    while start < columns {
        let (_, back) = paint(&buffer[(start, row)], colors);
        let mut end = start + 1;
        while end < columns && paint(&buffer[(end, row)], colors).1 == back {
            end += 1;
        }
        if back != colors.background {
            let _ = writeln!(
                out,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{HEIGHT}\" fill=\"{}\"/>",
                short(left(start)),
                short(top(row)),
                short(f64::from(end - start) * WIDTH),
                hex(back)
            );
        }
        start = end;
    }
}

fn letters(
    buffer: &Buffer,
    row: u16,
    colors: &Colors,
    out: &mut String,
    shapes: &mut BTreeMap<Rgb, Shapes>,
) {
    let columns = buffer.area.width;
    // Where the run began, its look and its text.
    let mut run: Option<(u16, Look, String)> = None;
    let mut column = 0;
    while column < columns {
        let cell = &buffer[(column, row)];
        let symbol = cell.symbol();
        let wide = text::width(symbol).max(1) as u16;
        let (color, _) = paint(cell, colors);
        let has = |modifier| cell.modifier.contains(modifier);
        let look = Look {
            color,
            is_bold: has(Modifier::BOLD),
            is_dim: has(Modifier::DIM),
            is_italic: has(Modifier::ITALIC),
            is_underlined: has(Modifier::UNDERLINED),
        };
        let is_shape = symbol.chars().next().is_some_and(|c| {
            let at = (left(column), top(row));
            symbol.chars().count() == 1 && shape(c, at, shapes.entry(color).or_default())
        });
        let is_space = symbol.trim().is_empty() && !look.is_underlined;
        if is_shape {
            flush(run.take(), row, out);
        } else if let Some((_, known, text)) = &mut run
            && (*known == look || is_space)
        {
            text.push_str(symbol);
        } else {
            flush(run.take(), row, out);
            if !is_space {
                run = Some((column, look, symbol.to_owned()));
            }
        }
        column += wide;
    }
    flush(run, row, out);
}

fn flush(run: Option<(u16, Look, String)>, row: u16, out: &mut String) {
    let Some((start, look, text)) = run else {
        return;
    };
    let shown = text.trim_end();
    let columns = text::width(shown);
    if columns == 0 {
        return;
    }
    let mut style = String::new();
    if look.is_bold {
        style.push_str(" font-weight=\"bold\"");
    }
    if look.is_italic {
        style.push_str(" font-style=\"italic\"");
    }
    if look.is_underlined {
        style.push_str(" text-decoration=\"underline\"");
    }
    if look.is_dim {
        let _ = write!(style, " opacity=\"{DIM}\"");
    }
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" fill=\"{}\"{style} textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\" xml:space=\"preserve\">{}</text>",
        short(left(start)),
        short(top(row) + BASE),
        hex(look.color),
        short(columns as f64 * WIDTH),
        escaped(shown)
    );
}

/// Draws a character that is a shape; false: it is a letter.
fn shape(c: char, (x, y): (f64, f64), shapes: &mut Shapes) -> bool {
    if braille(c, (x, y), shapes) || block(c, (x, y), shapes) {
        return true;
    }
    // Left, right, up, down.
    let (arms, is_heavy) = match c {
        '─' => ([true, true, false, false], false),
        '│' => ([false, false, true, true], false),
        '┌' | '╭' => ([false, true, false, true], false),
        '┐' | '╮' => ([true, false, false, true], false),
        '└' | '╰' => ([false, true, true, false], false),
        '┘' | '╯' => ([true, false, true, false], false),
        '├' => ([false, true, true, true], false),
        '┤' => ([true, false, true, true], false),
        '┬' => ([true, true, false, true], false),
        '┴' => ([true, true, true, false], false),
        '┼' => ([true, true, true, true], false),
        '━' => ([true, true, false, false], true),
        '┃' => ([false, false, true, true], true),
        '╸' => ([true, false, false, false], true),
        '╺' => ([false, true, false, false], true),
        _ => return false,
    };
    let path = if is_heavy {
        &mut shapes.heavy
    } else {
        &mut shapes.thin
    };
    let (middle, half) = (x + WIDTH / 2.0, y + HEIGHT / 2.0);
    let ends = [
        (x, half),
        (x + WIDTH, half),
        (middle, y),
        (middle, y + HEIGHT),
    ];
    for (has_arm, (to_x, to_y)) in arms.into_iter().zip(ends) {
        if has_arm {
            let _ = write!(
                path,
                "M{} {}L{} {}",
                short(middle),
                short(half),
                short(to_x),
                short(to_y)
            );
        }
    }
    true
}

fn braille(c: char, (x, y): (f64, f64), shapes: &mut Shapes) -> bool {
    /// Column and row of each bit's dot.
    const DOTS: [(f64, f64); 8] = [
        (0.0, 0.0),
        (0.0, 1.0),
        (0.0, 2.0),
        (1.0, 0.0),
        (1.0, 1.0),
        (1.0, 2.0),
        (0.0, 3.0),
        (1.0, 3.0),
    ];
    let Some(bits @ 0..=0xff) = (c as u32).checked_sub(0x2800) else {
        return false;
    };
    for (bit, (column, row)) in DOTS.iter().enumerate() {
        if bits >> bit & 1 == 1 {
            let _ = write!(
                shapes.dots,
                "M{} {}h0",
                short(x + WIDTH * (0.25 + 0.5 * column)),
                short(y + HEIGHT * (0.125 + 0.25 * row))
            );
        }
    }
    true
}

fn block(c: char, (x, y): (f64, f64), shapes: &mut Shapes) -> bool {
    let code = c as u32;
    // As shares of the cell: left, top, width, height.
    let (from_x, from_y, width, height) = match code {
        0x2580 => (0.0, 0.0, 1.0, 0.5),
        0x2581..=0x2588 => {
            let share = f64::from(code - 0x2580) / 8.0;
            (0.0, 1.0 - share, 1.0, share)
        }
        0x2589..=0x258f => (0.0, 0.0, f64::from(0x2590 - code) / 8.0, 1.0),
        0x2590 => (0.5, 0.0, 0.5, 1.0),
        _ => return false,
    };
    let _ = write!(
        shapes.filled,
        "M{} {}h{}v{}h-{}z",
        short(x + from_x * WIDTH),
        short(y + from_y * HEIGHT),
        short(width * WIDTH),
        short(height * HEIGHT),
        short(width * WIDTH)
    );
    true
}

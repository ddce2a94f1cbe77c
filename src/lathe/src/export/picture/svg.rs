//! The canvas that is text. Letters stay letters, in whatever monospaced font the viewer has.

use std::fmt::Write as _;

use super::{Anchor, Canvas, Letters, Pen, Rgb, hex};

/// Fonts of a viewer, the likely ones first.
pub const FONTS: &str = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace";

#[derive(Debug)]
pub struct Svg {
    text: String,
}

impl Svg {
    pub fn new(width: f64, height: f64) -> Self {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" font-family=\"{FONTS}\">",
            w = short(width),
            h = short(height)
        );
        Self { text }
    }

    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

impl Canvas for Svg {
    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, color: Rgb) {
        let _ = writeln!(
            self.text,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>",
            short(x),
            short(y),
            short(width),
            short(height),
            hex(color)
        );
    }

    fn line(&mut self, points: &[(f64, f64)], pen: Pen) {
        let mut path = String::with_capacity(points.len() * 12);
        for (index, (x, y)) in points.iter().enumerate() {
            let command = match index {
                0 => "M",
                1 => "L",
                _ => " ",
            };
            let _ = write!(path, "{command}{} {}", short(*x), short(*y));
        }
        let opacity = if pen.opacity < 1.0 {
            format!(" stroke-opacity=\"{}\"", pen.opacity)
        } else {
            String::new()
        };
        let dash = if pen.dash.is_empty() {
            String::new()
        } else {
            let lengths: Vec<String> = pen.dash.iter().map(|length| short(*length)).collect();
            format!(" stroke-dasharray=\"{}\"", lengths.join(" "))
        };
        let _ = writeln!(
            self.text,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\"{opacity}{dash}/>",
            hex(pen.color),
            pen.width
        );
    }

    fn text(&mut self, x: f64, y: f64, text: &str, letters: Letters) {
        if text.is_empty() {
            return;
        }
        let anchor = match letters.anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let weight = if letters.is_bold {
            " font-weight=\"bold\""
        } else {
            ""
        };
        let _ = writeln!(
            self.text,
            "<text x=\"{}\" y=\"{}\" font-size=\"{}\" fill=\"{}\"{anchor}{weight}>{}</text>",
            short(x),
            short(y),
            letters.size,
            hex(letters.color),
            escaped(text)
        );
    }
}

/// A tenth of a pixel is enough, and `12` is shorter than `12.0`.
pub fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Text for XML and HTML, in content and in attributes; characters that XML forbids become U+FFFD.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('\u{fffd}');
            }
            c => escaped.push(c),
        }
    }
    escaped
}

//! What is painted, read back through a terminal emulator and compared cell by cell.

use proptest::prelude::*;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::look::{color, palette_place};
use super::*;
use crate::tui::pages::PageId;
use crate::tui::testing::{Bench, STATES};

#[path = "../../../benches/terminal/repeats.rs"]
mod repeats;
use self::repeats::Repeats;

const WIDTH: u16 = 24;
const HEIGHT: u16 = 6;

fn style() -> impl Strategy<Value = Style> {
    let color = prop_oneof![
        3 => Just(Color::Reset),
        1 => Just(Color::Rgb(0x5f, 0xaf, 0xd7)),
        1 => Just(Color::Rgb(1, 2, 3)),
        1 => Just(Color::Indexed(9)),
    ];
    let modifier = prop_oneof![
        4 => Just(Modifier::empty()),
        1 => Just(Modifier::BOLD),
        1 => Just(Modifier::REVERSED),
        1 => Just(Modifier::UNDERLINED | Modifier::ITALIC),
    ];
    let ground = prop_oneof![4 => Just(Color::Reset), 1 => Just(Color::Rgb(8, 8, 8))];
    (color, ground, modifier)
        .prop_map(|(fg, bg, modifier)| Style::new().fg(fg).bg(bg).add_modifier(modifier))
}

/// Texts at places: blanks, dots, words, and symbols of two columns.
fn writing() -> impl Strategy<Value = Vec<(u16, u16, String, Style)>> {
    let text = prop_oneof![
        Just(" ".repeat(12)),
        Just("   ".to_owned()),
        Just("⣿⡇⠁".to_owned()),
        Just("│".to_owned()),
        Just("loss 0.5".to_owned()),
        Just("日本".to_owned()),
    ];
    prop::collection::vec((0..WIDTH, 0..HEIGHT, text, style()), 0..14)
}

fn frame(before: &Buffer, writing: &[(u16, u16, String, Style)]) -> Buffer {
    let mut buffer = before.clone();
    let is_wide = |text: &str| text.starts_with('日');
    for (x, y, text, style) in writing.iter().filter(|(_, _, text, _)| !is_wide(text)) {
        // Half of a symbol of two columns has no meaning: one that is written over is gone.
        if *x > 0 && super::is_wide(buffer[(x - 1, *y)].symbol()) {
            buffer[(x - 1, *y)].reset();
        }
        buffer.set_string(*x, *y, text, *style);
    }
    for (x, y, text, style) in writing.iter().filter(|(_, _, text, _)| is_wide(text)) {
        buffer.set_string(x / 4 * 4, *y, text, *style);
    }
    fill_halves(&mut buffer);
    buffer
}

fn color_of(color: Color) -> vt100::Color {
    match color {
        Color::Rgb(r, g, b) => match palette_place(r, g, b) {
            Some(place) => vt100::Color::Idx(place),
            None => vt100::Color::Rgb(r, g, b),
        },
        Color::Indexed(place) => vt100::Color::Idx(place),
        _ => vt100::Color::Default,
    }
}

fn assert_shows(screen: &vt100::Screen, buffer: &Buffer) {
    for y in 0..buffer.area.height {
        let mut x = 0;
        while x < buffer.area.width {
            let wanted = &buffer[(x, y)];
            let cell = screen.cell(y, x).unwrap();
            let shown = if cell.contents().is_empty() {
                " "
            } else {
                cell.contents()
            };
            assert_eq!(shown, wanted.symbol(), "column {x}, row {y}");
            assert_eq!(cell.bgcolor(), color_of(wanted.bg), "column {x}, row {y}");
            let look = Look::of(wanted);
            if wanted.symbol() != " " {
                assert_eq!(cell.fgcolor(), color_of(look.fg), "column {x}, row {y}");
                assert_eq!(cell.bold(), look.modifier.contains(Modifier::BOLD));
                assert_eq!(cell.italic(), look.modifier.contains(Modifier::ITALIC));
            }
            assert_eq!(cell.inverse(), look.modifier.contains(Modifier::REVERSED));
            assert_eq!(
                cell.underline(),
                look.modifier.contains(Modifier::UNDERLINED)
            );
            x += if cell.is_wide() { 2 } else { 1 };
        }
    }
}

/// A painter and the terminal it writes to.
struct Pair {
    painter: Painter,
    terminal: vt100::Parser,
    repeats: Repeats,
    before: Buffer,
}

impl Pair {
    fn new(area: Rect, repeats: bool) -> Self {
        let mut painter = Painter::default();
        painter.set_repeats(repeats);
        Self {
            painter,
            terminal: vt100::Parser::new(area.height, area.width, 0),
            repeats: Repeats::default(),
            before: Buffer::empty(area),
        }
    }

    /// Paints a frame, compares, and gives the bytes.
    fn show(&mut self, next: &Buffer) -> Vec<u8> {
        let mut bytes = Vec::new();
        let changed = self.before.diff(next);
        let size = next.area.as_size();
        self.painter.paint(size, changed.into_iter(), &mut bytes);
        let written = self.repeats.written_out(&bytes);
        let is_counted = self.painter.repeats;
        assert!(is_counted || written == bytes, "counted unasked");
        self.terminal.process(&written);
        assert_shows(self.terminal.screen(), next);
        self.before = next.clone();
        bytes
    }
}

proptest! {
    #[test]
    fn a_terminal_shows_every_frame_cell_by_cell(
        frames in prop::collection::vec(writing(), 1..5),
        repeats in any::<bool>(),
    ) {
        let area = Rect::new(0, 0, WIDTH, HEIGHT);
        let mut pair = Pair::new(area, repeats);
        for writing in &frames {
            // Each frame is drawn anew, as ratatui does, over the half of the one before.
            let mut next = pair.before.clone();
            for y in 0..HEIGHT / 2 {
                for x in 0..WIDTH {
                    next[(x, y)] = Cell::EMPTY;
                }
            }
            let next = frame(&next, writing);
            pair.show(&next);
        }
    }
}

#[test]
fn a_terminal_shows_every_page_in_every_state_cell_by_cell() {
    for (columns, rows) in [(120, 40), (80, 24), (200, 60)] {
        for repeats in [true, false] {
            let mut pair = Pair::new(Rect::new(0, 0, columns, rows), repeats);
            for make in STATES {
                let mut bench = make();
                for page in PageId::ALL {
                    for keys in ["", "j", "?", "esc", ":", "esc"] {
                        let page = (page as usize + 1).to_string();
                        bench.press(if keys.is_empty() { &page } else { keys });
                        pair.show(&bench.buffer(columns, rows));
                    }
                }
            }
        }
    }
}

#[test]
fn a_terminal_shows_curves_that_are_zoomed_smoothed_and_read_out_cell_by_cell() {
    for repeats in [true, false] {
        let mut pair = Pair::new(Rect::new(0, 0, 160, 48), repeats);
        let mut bench = Bench::with_run(60);
        for keys in "2 c h H + , - 0 s s Y X x x tab e c e a ? esc 1 3 7 2".split(' ') {
            bench.press(keys);
            pair.show(&bench.buffer(160, 48));
        }
    }
}

#[test]
fn a_run_of_one_character_is_counted_where_the_terminal_does_that() {
    let area = Rect::new(0, 0, 80, 1);
    let mut line = Buffer::empty(area);
    line.set_string(1, 0, "─".repeat(60), Style::new());
    let counted = Pair::new(area, true).show(&line);
    assert_eq!(counted, "\x1b[1;2H─\x1b[59b".as_bytes());
    let written = Pair::new(area, false).show(&line);
    assert_eq!(written.len(), 6 + 60 * 3);
    // Not up to the last column, and not where it is no shorter.
    let mut edge = Buffer::empty(area);
    edge.set_string(0, 0, "─".repeat(80), Style::new());
    edge.set_string(10, 0, "──│", Style::new());
    let bytes = Pair::new(area, true).show(&edge);
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.matches('b').count(), 1, "{text:?}");
}

#[test]
fn a_screen_that_changes_for_the_most_part_is_cleared_first() {
    let area = Rect::new(0, 0, 80, 24);
    let mut dotted = Buffer::empty(area);
    let mut words = Buffer::empty(area);
    for y in 0..24 {
        dotted.set_string(0, y, "·     ".repeat(13), Style::new());
        words.set_string(70, y, "a word", Style::new());
    }
    let mut pair = Pair::new(area, false);
    pair.show(&dotted);
    assert!(pair.show(&words).starts_with(b"\x1b[2J"));
    // And not where a few cells do.
    words.set_string(70, 0, "no", Style::new());
    assert!(pair.show(&words).len() < 20);
}

#[test]
fn nothing_changed_costs_no_byte() {
    let mut bytes = Vec::new();
    Painter::default().paint(Size::new(80, 24), std::iter::empty(), &mut bytes);
    assert!(bytes.is_empty());
}

#[test]
fn a_colour_of_the_palette_goes_by_its_number_and_others_by_their_parts() {
    assert_eq!(color(Color::Rgb(0x5f, 0xaf, 0xd7), 38), "38;5;74");
    assert_eq!(color(Color::Rgb(0x8a, 0x8a, 0x8a), 48), "48;5;245");
    assert_eq!(color(Color::Rgb(0x30, 0x3a, 0x46), 48), "48;2;48;58;70");
    assert_eq!(color(Color::Reset, 48), "49");
}

#[test]
fn the_dashboard_costs_less_than_twice_its_glyphs_and_than_its_glyphs_where_they_are_counted() {
    let mut bench = Bench::with_run(60);
    bench.press("2");
    let next = bench.buffer(160, 48);
    let before = Buffer::empty(next.area);
    let changed = before.diff(&next);
    let glyphs: usize = changed.iter().map(|(_, _, cell)| cell.symbol().len()).sum();
    let [written, counted] = [false, true].map(|repeats| Pair::new(next.area, repeats).show(&next));
    assert!(written.len() < 2 * glyphs, "{} of {glyphs}", written.len());
    assert!(counted.len() < glyphs, "{} of {glyphs}", counted.len());
}

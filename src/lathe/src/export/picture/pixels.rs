//! The canvas of pixels. Its letters are a bitmap font that is part of the program: servers have no fonts, and the same run
//! gives the same picture everywhere.

use embedded_graphics::Drawable;
use embedded_graphics::geometry::{OriginDimensions, Point, Size};
use embedded_graphics::mono_font::{MonoFont, MonoTextStyle, iso_8859_1};
use embedded_graphics::pixelcolor::BinaryColor;
use embedded_graphics::prelude::{DrawTarget, Pixel};
use embedded_graphics::text::{Baseline, Text};
use zeno::{Cap, Command, Join, Mask, Stroke, Vector};

use super::{Anchor, Canvas, Letters, Pen, Rgb, png_file};
use crate::export::ExportError;

/// Pixels to a CSS pixel: sharp on today's screens and in print.
const SCALE: f64 = 2.0;
/// Above this a picture is a mistake, and would need gigabytes.
const MOST_PIXELS: u64 = 200_000_000;

#[derive(Debug)]
pub struct Pixels {
    width: usize,
    height: usize,
    /// Three bytes a pixel, row by row.
    rgb: Vec<u8>,
}

impl Pixels {
    pub fn new(width: f64, height: f64) -> Result<Self, ExportError> {
        let (width, height) = ((width * SCALE) as u32, (height * SCALE) as u32);
        let pixels = u64::from(width) * u64::from(height);
        if pixels > MOST_PIXELS {
            return Err(ExportError::TooLarge { width, height });
        }
        Ok(Self {
            width: width as usize,
            height: height as usize,
            rgb: vec![0xff; 3 * pixels as usize],
        })
    }

    pub fn finish(self) -> Vec<u8> {
        png_file::encode(self.width as u32, self.height as u32, &self.rgb)
    }

    /// Lays a colour over a pixel; `share` 0..=1 of it.
    fn blend(&mut self, x: i32, y: i32, color: Rgb, share: f32) {
        let is_inside = (0..self.width as i32).contains(&x) && (0..self.height as i32).contains(&y);
        if !is_inside {
            return;
        }
        let at = 3 * (y as usize * self.width + x as usize);
        for (under, over) in self.rgb[at..at + 3].iter_mut().zip(color) {
            let (below, above) = (f32::from(*under), f32::from(over));
            *under = (below + (above - below) * share).round() as u8;
        }
    }
}

impl Canvas for Pixels {
    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, color: Rgb) {
        let end = |from: f64, length: f64| ((from + length) * SCALE).round() as i32;
        for row in end(y, 0.0)..end(y, height) {
            for column in end(x, 0.0)..end(x, width) {
                self.blend(column, row, color, 1.0);
            }
        }
    }

    fn line(&mut self, points: &[(f64, f64)], pen: Pen) {
        let place = |(x, y): &(f64, f64)| Vector::new((x * SCALE) as f32, (y * SCALE) as f32);
        let path: Vec<Command> = points
            .iter()
            .enumerate()
            .map(|(index, point)| match index {
                0 => Command::MoveTo(place(point)),
                _ => Command::LineTo(place(point)),
            })
            .collect();
        let mut stroke = Stroke::new((pen.width * SCALE) as f32);
        let dash: Vec<f32> = pen
            .dash
            .iter()
            .map(|length| (length * SCALE) as f32)
            .collect();
        stroke.cap(Cap::Butt).join(Join::Round).dash(&dash, 0.0);
        let (coverage, placed) = Mask::new(&path).style(stroke).render();
        for (index, covered) in coverage.iter().enumerate() {
            if *covered == 0 {
                continue;
            }
            let (row, column) = (
                index as u32 / placed.width.max(1),
                index as u32 % placed.width.max(1),
            );
            let share = f32::from(*covered) / 255.0 * pen.opacity as f32;
            self.blend(
                placed.left + column as i32,
                placed.top + row as i32,
                pen.color,
                share,
            );
        }
    }

    fn text(&mut self, x: f64, y: f64, text: &str, letters: Letters) {
        let font: &MonoFont<'_> = if letters.size >= 12.0 {
            &iso_8859_1::FONT_10X20
        } else {
            &iso_8859_1::FONT_9X18
        };
        let width = text.chars().count() as f64 * f64::from(font.character_size.width);
        let left = x * SCALE
            - match letters.anchor {
                Anchor::Start => 0.0,
                Anchor::Middle => width / 2.0,
                Anchor::End => width,
            };
        let style = MonoTextStyle::new(font, BinaryColor::On);
        let base = (y * SCALE).round() as i32;
        // Twice, a pixel apart: as bold as a bitmap can be.
        for shift in 0..=i32::from(letters.is_bold) {
            let at = Point::new(left.round() as i32 + shift, base);
            let text = Text::with_baseline(text, at, style, Baseline::Alphabetic);
            let mut ink = Ink {
                pixels: self,
                color: letters.color,
            };
            let Ok(_) = text.draw(&mut ink);
        }
    }
}

/// Sets the pixels of letters.
struct Ink<'a> {
    pixels: &'a mut Pixels,
    color: Rgb,
}

impl OriginDimensions for Ink<'_> {
    fn size(&self) -> Size {
        Size::new(self.pixels.width as u32, self.pixels.height as u32)
    }
}

impl DrawTarget for Ink<'_> {
    type Color = BinaryColor;
    type Error = std::convert::Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<BinaryColor>>>(
        &mut self,
        pixels: I,
    ) -> Result<(), Self::Error> {
        for Pixel(at, value) in pixels {
            if value.is_on() {
                self.pixels.blend(at.x, at.y, self.color, 1.0);
            }
        }
        Ok(())
    }
}

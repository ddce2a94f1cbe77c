//! How many colours the terminal has, and the nearest of them to a wanted one.

use ratatui::style::Color;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// No colour at all.
    Mono,
    Sixteen,
    Indexed,
    TrueColor,
}

impl Depth {
    /// From `NO_COLOR`, `COLORTERM` and `TERM`. `LATHE_COLOR` (`none`, `16`, `256`, `true`) wins over all of them.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        match set("LATHE_COLOR").as_deref() {
            Some("none") => return Self::Mono,
            Some("16") => return Self::Sixteen,
            Some("256") => return Self::Indexed,
            Some("true") => return Self::TrueColor,
            _ => {}
        }
        let term = set("TERM").unwrap_or_default();
        if set("NO_COLOR").is_some() || term == "dumb" || term.starts_with("vt") {
            return Self::Mono;
        }
        if set("COLORTERM").is_some_and(|value| value == "truecolor" || value == "24bit")
            || term.ends_with("-direct")
        {
            return Self::TrueColor;
        }
        if term.contains("256") {
            return Self::Indexed;
        }
        Self::Sixteen
    }

    /// The nearest colour this terminal has.
    pub fn reduce(self, color: Color) -> Color {
        let rgb = match color {
            Color::Rgb(r, g, b) => [r, g, b],
            Color::Indexed(index) if self == Self::Sixteen && index >= 16 => cube_rgb(index),
            other => return other,
        };
        match self {
            Self::TrueColor | Self::Mono => color,
            Self::Indexed => Color::Indexed(nearest(rgb, 16..=255, cube_rgb)),
            Self::Sixteen => Color::Indexed(nearest(rgb, 0..=15, sixteen_rgb)),
        }
    }
}

/// What a colour looks like; None: the terminal's own.
pub fn rgb_of(color: Color) -> Option<[u8; 3]> {
    let index = match color {
        Color::Reset => return None,
        Color::Rgb(r, g, b) => return Some([r, g, b]),
        Color::Indexed(index) => index,
        Color::Black => 0,
        Color::Red => 1,
        Color::Green => 2,
        Color::Yellow => 3,
        Color::Blue => 4,
        Color::Magenta => 5,
        Color::Cyan => 6,
        Color::Gray => 7,
        Color::DarkGray => 8,
        Color::LightRed => 9,
        Color::LightGreen => 10,
        Color::LightYellow => 11,
        Color::LightBlue => 12,
        Color::LightMagenta => 13,
        Color::LightCyan => 14,
        Color::White => 15,
    };
    Some(if index < 16 {
        sixteen_rgb(index)
    } else {
        cube_rgb(index)
    })
}

fn nearest(
    wanted: [u8; 3],
    among: std::ops::RangeInclusive<u8>,
    rgb: impl Fn(u8) -> [u8; 3],
) -> u8 {
    among
        .min_by_key(|index| distance(wanted, rgb(*index)))
        .expect("the range is not empty")
}

/// Squared distance with the eye's unequal weights (the usual 2:4:3).
fn distance(a: [u8; 3], b: [u8; 3]) -> u32 {
    a.iter()
        .zip(b)
        .zip([2, 4, 3])
        .map(|((x, y), weight)| weight * u32::from(x.abs_diff(y)).pow(2))
        .sum()
}

/// xterm's 6×6×6 cube and grey ramp, 16..=255.
fn cube_rgb(index: u8) -> [u8; 3] {
    const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    if index >= 232 {
        let grey = 8 + 10 * (index - 232);
        return [grey; 3];
    }
    let cube = usize::from(index.saturating_sub(16));
    [LEVELS[cube / 36], LEVELS[cube / 6 % 6], LEVELS[cube % 6]]
}

/// xterm's defaults of the sixteen.
fn sixteen_rgb(index: u8) -> [u8; 3] {
    const TABLE: [[u8; 3]; 16] = [
        [0, 0, 0],
        [205, 0, 0],
        [0, 205, 0],
        [205, 205, 0],
        [0, 0, 238],
        [205, 0, 205],
        [0, 205, 205],
        [229, 229, 229],
        [127, 127, 127],
        [255, 0, 0],
        [0, 255, 0],
        [255, 255, 0],
        [92, 92, 255],
        [255, 0, 255],
        [0, 255, 255],
        [255, 255, 255],
    ];
    TABLE[usize::from(index.min(15))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(variables: &[(&str, &str)]) -> Depth {
        Depth::detect(|name| {
            variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_says_how_many_colors_there_are() {
        assert_eq!(depth(&[("TERM", "xterm-256color")]), Depth::Indexed);
        assert_eq!(
            depth(&[("TERM", "xterm"), ("COLORTERM", "truecolor")]),
            Depth::TrueColor
        );
        assert_eq!(depth(&[("TERM", "linux")]), Depth::Sixteen);
        assert_eq!(depth(&[("TERM", "dumb")]), Depth::Mono);
        let no_color = [("TERM", "xterm-256color"), ("NO_COLOR", "1")];
        assert_eq!(depth(&no_color), Depth::Mono);
        let asked = [("NO_COLOR", "1"), ("LATHE_COLOR", "256")];
        assert_eq!(depth(&asked), Depth::Indexed);
    }

    #[test]
    fn a_color_of_the_palette_is_its_own_nearest() {
        for index in 16..=255 {
            let [r, g, b] = cube_rgb(index);
            let Color::Indexed(found) = Depth::Indexed.reduce(Color::Rgb(r, g, b)) else {
                panic!("reduced to an index");
            };
            assert_eq!(cube_rgb(found), [r, g, b]);
        }
        assert_eq!(
            Depth::Sixteen.reduce(Color::Rgb(255, 0, 0)),
            Color::Indexed(9)
        );
    }
}

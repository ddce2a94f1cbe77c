//! How a cursor gets from one place to another in the fewest bytes.

use super::put;

/// A place on the screen: column and row, from 0.
pub type Place = (u16, u16);

/// The ways that every terminal knows; each is the shortest for some pair of places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Stay,
    /// `CSI row ; column H`
    Address(Place),
    /// Rows down, or up where negative; then columns right, or left.
    Steps {
        down: i32,
        right: i32,
    },
    /// To the first column, then steps.
    Return {
        down: i32,
        right: i32,
    },
    /// Rows, then `CSI column G`.
    Column {
        down: i32,
        column: u16,
    },
}

impl Way {
    /// From None, where the place is not known, only by the address.
    pub fn shortest(from: Option<Place>, to: Place) -> Self {
        let address = Self::Address(to);
        let Some(from) = from else {
            return address;
        };
        if from == to {
            return Self::Stay;
        }
        let down = i32::from(to.1) - i32::from(from.1);
        let ways = [
            Self::Steps {
                down,
                right: i32::from(to.0) - i32::from(from.0),
            },
            Self::Return {
                down,
                right: i32::from(to.0),
            },
            Self::Column { down, column: to.0 },
        ];
        let best = ways.into_iter().min_by_key(|way| way.bytes());
        best.filter(|way| way.bytes() <= address.bytes())
            .unwrap_or(address)
    }

    /// How many bytes [`Way::write`] appends.
    pub fn bytes(self) -> usize {
        match self {
            Self::Stay => 0,
            Self::Address((0, 0)) => 3,
            Self::Address((0, y)) => 3 + digits(y + 1),
            Self::Address((x, y)) => 4 + digits(y + 1) + digits(x + 1),
            Self::Steps { down, right } => rows(down) + columns(right),
            Self::Return { down, right } => 1 + rows(down) + columns(right),
            Self::Column { down, column } => rows(down) + 3 + digits(column + 1),
        }
    }

    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Stay => {}
            Self::Address((0, 0)) => out.extend_from_slice(b"\x1b[H"),
            Self::Address((0, y)) => put(out, format_args!("\x1b[{}H", y + 1)),
            Self::Address((x, y)) => put(out, format_args!("\x1b[{};{}H", y + 1, x + 1)),
            Self::Steps { down, right } => {
                write_rows(down, out);
                write_columns(right, out);
            }
            Self::Return { down, right } => {
                out.push(b'\r');
                write_rows(down, out);
                write_columns(right, out);
            }
            Self::Column { down, column } => {
                write_rows(down, out);
                put(out, format_args!("\x1b[{}G", column + 1));
            }
        }
    }
}

/// Digits of a number in decimal.
pub fn digits(number: u16) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Of a sequence with one number, which is left out where it is 1.
fn counted(number: u16) -> usize {
    if number == 1 { 3 } else { 3 + digits(number) }
}

fn write_counted(number: u16, last: char, out: &mut Vec<u8>) {
    if number == 1 {
        put(out, format_args!("\x1b[{last}"));
    } else {
        put(out, format_args!("\x1b[{number}{last}"));
    }
}

/// Line feeds, which keep the column in raw mode, and reverse line feeds: none of them leaves the screen, so nothing scrolls.
fn rows(down: i32) -> usize {
    let count = down.unsigned_abs() as u16;
    let one_by_one = usize::from(count) * if down < 0 { 2 } else { 1 };
    match count {
        0 => 0,
        count => one_by_one.min(counted(count)),
    }
}

fn write_rows(down: i32, out: &mut Vec<u8>) {
    let count = down.unsigned_abs() as u16;
    let (step, last): (&[u8], char) = if down < 0 {
        (b"\x1bM", 'A')
    } else {
        (b"\n", 'B')
    };
    if usize::from(count) * step.len() <= counted(count) {
        (0..count).for_each(|_| out.extend_from_slice(step));
    } else {
        write_counted(count, last, out);
    }
}

fn columns(right: i32) -> usize {
    let count = right.unsigned_abs() as u16;
    match count {
        0 => 0,
        count if right < 0 => usize::from(count).min(counted(count)),
        count => counted(count),
    }
}

fn write_columns(right: i32, out: &mut Vec<u8>) {
    let count = right.unsigned_abs() as u16;
    if count == 0 {
        return;
    }
    if right > 0 {
        write_counted(count, 'C', out);
    } else if usize::from(count) <= counted(count) {
        (0..count).for_each(|_| out.push(b'\x08'));
    } else {
        write_counted(count, 'D', out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_leads_to_its_place_in_as_many_bytes_as_it_says() {
        let (columns, rows) = (130_u16, 14_u16);
        let places: Vec<Place> = (0..rows)
            .flat_map(|y| [0, 1, 5, 9, 10, 60, 99, 100, 129].map(|x| (x, y)))
            .collect();
        for from in &places {
            for to in &places {
                let mut terminal = vt100::Parser::new(rows, columns, 0);
                let mut bytes = Vec::new();
                Way::Address(*from).write(&mut bytes);
                terminal.process(&bytes);
                let way = Way::shortest(Some(*from), *to);
                let mut bytes = Vec::new();
                way.write(&mut bytes);
                assert_eq!(bytes.len(), way.bytes(), "{way:?}");
                terminal.process(&bytes);
                let at = terminal.screen().cursor_position();
                assert_eq!(at, (to.1, to.0), "from {from:?} by {way:?}");
            }
        }
    }

    #[test]
    fn a_near_place_costs_a_byte_or_two() {
        let bytes = |from, to| Way::shortest(Some(from), to).bytes();
        assert_eq!(bytes((6, 3), (5, 4)), 2, "down a border");
        assert_eq!(bytes((6, 3), (6, 2)), 2, "up");
        assert_eq!(bytes((90, 3), (0, 4)), 2, "the next line");
        assert_eq!(bytes((5, 3), (47, 3)), 5);
        assert_eq!(Way::shortest(None, (0, 0)).bytes(), 3);
    }
}

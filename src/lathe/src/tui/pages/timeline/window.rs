//! The part of the run that is on the screen, in milliseconds of the run. Pure arithmetic.

/// Shorter than any span that is recorded.
const SHORTEST_MS: f64 = 1.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    pub start_ms: f64,
    pub end_ms: f64,
}

impl Window {
    pub fn length(self) -> f64 {
        self.end_ms - self.start_ms
    }

    /// `factor` times as long, with the moment `around` staying where it is on the screen; within `0..=most_ms`.
    #[must_use]
    pub fn zoomed(self, factor: f64, around: f64, most_ms: f64) -> Self {
        let most = most_ms.max(SHORTEST_MS);
        let length = (self.length() * factor).clamp(SHORTEST_MS, most);
        let share = ((around - self.start_ms) / self.length().max(SHORTEST_MS)).clamp(0.0, 1.0);
        Self::at(around - share * length, length, most)
    }

    #[must_use]
    pub fn moved(self, by_ms: f64, most_ms: f64) -> Self {
        Self::at(self.start_ms + by_ms, self.length(), most_ms)
    }

    /// Moved just as far as it takes to show a moment.
    #[must_use]
    pub fn showing(self, ms: f64, most_ms: f64) -> Self {
        if ms < self.start_ms {
            Self::at(ms - self.length() * 0.1, self.length(), most_ms)
        } else if ms > self.end_ms {
            Self::at(ms - self.length() * 0.9, self.length(), most_ms)
        } else {
            self
        }
    }

    /// Of a length, as near to a start as `0..=most_ms` allows.
    pub fn at(start_ms: f64, length: f64, most_ms: f64) -> Self {
        let most = most_ms.max(SHORTEST_MS);
        let length = length.clamp(SHORTEST_MS, most);
        let last_start = most - length;
        if start_ms >= last_start {
            // Not by a sum: rounded, it may end before the run's last moment.
            return Self {
                start_ms: last_start,
                end_ms: most,
            };
        }
        let start_ms = start_ms.max(0.0);
        Self {
            start_ms,
            end_ms: start_ms + length,
        }
    }

    /// The moments of one of `columns` columns.
    pub fn column(self, column: usize, columns: usize) -> (f64, f64) {
        let width = self.length() / columns.max(1) as f64;
        let start = self.start_ms + column as f64 * width;
        (start, start + width)
    }

    /// The column that shows a moment; None outside.
    pub fn column_of(self, ms: f64, columns: usize) -> Option<usize> {
        if !(self.start_ms..=self.end_ms).contains(&ms) || columns == 0 {
            return None;
        }
        let share = (ms - self.start_ms) / self.length().max(f64::MIN_POSITIVE);
        Some(((share * columns as f64) as usize).min(columns - 1))
    }
}

/// Distance of the axis's ticks: 1, 2 or 5 times a power of ten up to a minute, then whole minutes and hours.
pub fn tick_ms(length_ms: f64, most_ticks: usize) -> f64 {
    let wanted = length_ms / most_ticks.max(1) as f64;
    let minutes = [
        60e3, 120e3, 300e3, 600e3, 1200e3, 1800e3, 3600e3, 7200e3, 14400e3, 21600e3, 43200e3,
        86400e3,
    ];
    let decimal = (0..5).flat_map(|power| [1.0, 2.0, 5.0].map(|by| by * 10_f64.powi(power)));
    decimal
        .filter(|tick| *tick < 60e3)
        .chain(minutes)
        .chain((2..).map(|days| f64::from(days) * 86400e3).take(1000))
        .find(|tick| *tick >= wanted)
        .unwrap_or(length_ms.max(1.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_window_stays_within_the_run_whatever_is_done(
            length in 0.0_f64..1e7,
            moves in prop::collection::vec((0_u8..3, -1e6_f64..1e6, 0.01_f64..100.0), 0..30)
        ) {
            let mut window = Window::at(0.0, length, length);
            for (which, by, factor) in moves {
                window = match which {
                    0 => window.zoomed(factor, by, length),
                    1 => window.moved(by, length),
                    _ => window.showing(by.abs().min(length), length),
                };
                prop_assert!(window.start_ms >= 0.0);
                prop_assert!(window.end_ms <= length.max(1.0) + 1e-6);
                prop_assert!(window.length() >= 0.999);
                if which == 2 {
                    prop_assert!(window.column_of(by.abs().min(length), 80).is_some());
                }
            }
        }

        #[test]
        fn zooming_keeps_the_moment_under_the_mouse(start in 1e4_f64..2e4, share in 0.0_f64..1.0, factor in 0.2_f64..1.0) {
            let window = Window::at(start, 1e4, 1e6);
            let around = window.start_ms + share * window.length();
            let zoomed = window.zoomed(factor, around, 1e6);
            let after = (around - zoomed.start_ms) / zoomed.length();
            prop_assert!((after - share).abs() < 1e-6);
        }

        #[test]
        fn ticks_are_as_few_as_wanted(length in 1.0_f64..1e9, most in 1_usize..20) {
            let tick = tick_ms(length, most);
            prop_assert!(length / tick <= most as f64 + 1e-9);
            prop_assert!(length / tick >= most as f64 / 2.6 || tick <= 1.0, "{length} {tick}");
        }
    }

    #[test]
    fn the_last_moment_is_shown_though_lengths_are_rounded() {
        let length = 21_047.398_047_710_22;
        let window = Window::at(0.0, length, length).zoomed(0.203_026_014_210_128_7, 0.0, length);
        let shown = window.showing(length, length);
        assert_eq!(shown.column_of(length, 80), Some(79));
    }

    #[test]
    fn a_column_shows_its_own_moments() {
        let window = Window::at(1000.0, 800.0, 1e5);
        for column in 0..80 {
            let (start, end) = window.column(column, 80);
            assert_eq!(
                window.column_of(f64::midpoint(start, end), 80),
                Some(column)
            );
        }
        assert_eq!(window.column_of(999.0, 80), None);
    }
}

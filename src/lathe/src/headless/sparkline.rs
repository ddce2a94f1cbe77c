//! A row of blocks that shows a series. A non-finite point is a mark of its own, never a gap that could be overlooked.

use crate::terminal::Terminal;

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 5] = ['_', '.', '-', '=', '#'];

/// At most `columns` characters; longer series are cut into equal runs of points, each shown by its mean.
pub fn sparkline(values: &[f64], columns: usize, terminal: Terminal) -> String {
    let (levels, non_finite): (&[char], char) = if terminal.unicode {
        (&BLOCKS, '×')
    } else {
        (&ASCII, '!')
    };
    let means = means(values, columns);
    let finite = || means.iter().copied().filter(|value| value.is_finite());
    let low = finite().fold(f64::INFINITY, f64::min);
    let high = finite().fold(f64::NEG_INFINITY, f64::max);
    means
        .iter()
        .map(|value| {
            if !value.is_finite() {
                return non_finite;
            }
            // A constant series lies in the middle: neither low nor high.
            let height = if high > low {
                (value - low) / (high - low)
            } else {
                0.5
            };
            levels[(height * (levels.len() - 1) as f64).round() as usize]
        })
        .collect()
}

/// Mean of each column's points; a column that holds a non-finite point is non-finite.
fn means(values: &[f64], columns: usize) -> Vec<f64> {
    let columns = columns.min(values.len());
    (0..columns)
        .map(|column| {
            let from = column * values.len() / columns;
            let to = (column + 1) * values.len() / columns;
            values[from..to].iter().sum::<f64>() / (to - from) as f64
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNICODE: Terminal = Terminal {
        to_screen: true,
        errors_to_screen: true,
        unicode: true,
        color: false,
        color_stderr: false,
        plain: false,
    };
    const PLAIN: Terminal = Terminal {
        unicode: false,
        ..UNICODE
    };

    #[test]
    fn lowest_and_highest_points_take_the_lowest_and_highest_blocks() {
        assert_eq!(sparkline(&[0.0, 0.5, 1.0], 10, UNICODE), "▁▅█");
        assert_eq!(sparkline(&[0.0, 0.5, 1.0], 10, PLAIN), "_-#");
    }

    #[test]
    fn a_non_finite_point_is_marked_and_does_not_stretch_the_scale() {
        assert_eq!(sparkline(&[0.0, f64::NAN, 1.0], 10, UNICODE), "▁×█");
        assert_eq!(sparkline(&[0.0, f64::INFINITY, 1.0], 10, PLAIN), "_!#");
        assert_eq!(sparkline(&[f64::NAN], 10, PLAIN), "!");
    }

    #[test]
    fn a_long_series_is_shown_by_the_means_of_equal_runs() {
        assert_eq!(means(&[1.0, 3.0, 5.0, 7.0], 2), [2.0, 6.0]);
        assert!(means(&[1.0, f64::NAN, 5.0, 7.0], 2)[0].is_nan());
    }

    #[test]
    fn constant_and_empty_series_have_a_line_too() {
        assert_eq!(sparkline(&[2.0, 2.0], 10, UNICODE), "▅▅");
        assert_eq!(sparkline(&[], 10, UNICODE), "");
    }
}

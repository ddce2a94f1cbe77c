use proptest::prelude::*;

use super::envelope::Columns;
use super::*;
use crate::testing::any_f64;

fn head(step: u64) -> RowHead {
    RowHead {
        step,
        elapsed_ms: step as f64 * 10.0,
        tokens: step as f64 * 100.0,
        samples: step as f64 * 8.0,
    }
}

/// One series `m` of the given values at steps 0, 1, 2…
fn of(values: &[f64]) -> SeriesSet {
    let mut set = SeriesSet::default();
    for (step, value) in values.iter().enumerate() {
        set.push_row(Source::Steps, head(step as u64), [("m", *value)]);
    }
    set
}

fn series(set: &SeriesSet) -> Series<'_> {
    set.get("m").unwrap()
}

/// Steps that mostly rise and sometimes go back, as after a resume.
fn any_steps(most: usize) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec((0_u64..4, prop::bool::weighted(0.03), 0_u64..300), 1..most).prop_map(
        |moves| {
            let mut step = 0;
            moves
                .into_iter()
                .map(|(forward, is_back, to)| {
                    step = if is_back {
                        to.min(step)
                    } else {
                        step + forward
                    };
                    step
                })
                .collect()
        },
    )
}

fn any_axis() -> impl Strategy<Value = XAxis> {
    prop::sample::select(&XAxis::ALL[..])
}

/// Rows of steps as given, each with the metric or (about a fifth of them) without it.
fn sparse(steps: &[u64], values: &[f64], is_missing: &[bool]) -> SeriesSet {
    let mut set = SeriesSet::default();
    let mut tokens = 0.0;
    for (i, step) in steps.iter().enumerate() {
        tokens += (i % 7) as f64;
        let head = RowHead {
            step: *step,
            elapsed_ms: i as f64 * 3.5,
            tokens,
            samples: (i / 5) as f64,
        };
        let other = [("other", 1.0)].into_iter();
        let value = values[i % values.len()];
        let is_there = !is_missing[i % is_missing.len()];
        set.push_row(
            Source::Steps,
            head,
            is_there.then_some(("m", value)).into_iter().chain(other),
        );
    }
    set
}

/// The envelope point by point.
fn naive(
    series: Series<'_>,
    axis: XAxis,
    x0: f64,
    x1: f64,
    columns: usize,
    scale: Scale,
) -> Vec<Cell> {
    let mut cells = vec![Cell::EMPTY; columns];
    let Some(chart) = Columns::new(x0, x1, columns, scale) else {
        return cells;
    };
    for i in 0..series.len() {
        let Some(column) = chart.of(series.x(i, axis)) else {
            continue;
        };
        let (cell, value) = (&mut cells[column], series.value(i));
        cell.count += 1;
        if !value.is_finite() {
            cell.non_finite += 1;
            continue;
        }
        if cell.first.is_nan() {
            (cell.min, cell.max, cell.first) = (value, value, value);
        }
        (cell.min, cell.max, cell.last) = (cell.min.min(value), cell.max.max(value), value);
    }
    cells
}

/// Debug text: NaN equals NaN.
fn text(cells: &[Cell]) -> Vec<String> {
    cells
        .iter()
        .map(|cell| format!("{cell:?}").replace("-0.0", "0.0"))
        .collect()
}

/// Mostly ordinary values; some that are none, and in every `huge`-th seed some so huge that their difference overflows.
fn awkward(i: usize, seed: u32, huge: u32) -> f64 {
    let draw = (i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed);
    let is_huge = huge > 0 && seed.is_multiple_of(huge);
    match draw.rotate_left(13) % 97 {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 if is_huge => f64::MAX,
        3 if is_huge => f64::MIN,
        _ => f64::from(draw % 1000) - 500.0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn every_extreme_of_every_column_survives_decimation(
        steps in any_steps(1500),
        values in prop::collection::vec(any_f64(), 1..1500),
        is_missing in prop::collection::vec(prop::bool::weighted(0.2), 1..40),
        axis in any_axis(),
        range in (-50.0_f64..900.0, 0.0_f64..2000.0),
        columns in 1_usize..300,
        is_log in any::<bool>(),
    ) {
        let set = sparse(&steps, &values, &is_missing);
        prop_assume!(set.contains("m"));
        let series = series(&set);
        let scale = if is_log { Scale::Log } else { Scale::Linear };
        let (x0, x1) = (range.0, range.0 + range.1);
        let found = envelope(series, axis, x0, x1, columns, scale);
        prop_assert_eq!(text(&found), text(&naive(series, axis, x0, x1, columns, scale)));
        // A chart of all of it holds every point once.
        let (low, high) = series.x_bounds(axis).unwrap();
        let whole = envelope(series, axis, low, high, columns, Scale::Linear);
        prop_assert_eq!(whole.iter().map(|cell| cell.count).sum::<u64>(), series.len() as u64);
        prop_assert_eq!(whole.iter().map(|cell| cell.non_finite).sum::<u64>(), series.non_finite());
    }

    #[test]
    fn bounds_of_any_range_are_those_of_its_finite_values(
        values in prop::collection::vec(any_f64(), 1..9000),
        ends in any::<(prop::sample::Index, prop::sample::Index)>(),
        is_bulk in any::<bool>(),
    ) {
        let set = of(&values);
        let mut column = column::Column::default();
        if is_bulk {
            for part in values.chunks(1000) {
                column.extend(part);
            }
        }
        let places = set::Places::Dense { first_row: 0 };
        let series = if is_bulk { series(&set).with(&places, &column) } else { series(&set) };
        let (a, b) = (ends.0.index(values.len() + 1), ends.1.index(values.len() + 1));
        let range = a.min(b)..a.max(b);
        let finite = || values[range.clone()].iter().copied().filter(|value| value.is_finite());
        let found = series.bounds(range.clone());
        prop_assert_eq!(found.map(|bounds| bounds.min), finite().reduce(f64::min));
        prop_assert_eq!(found.map(|bounds| bounds.max), finite().reduce(f64::max));
        prop_assert_eq!(
            found.and_then(|bounds| bounds.min_positive),
            finite().filter(|value| *value > 0.0).reduce(f64::min)
        );
        let all = values[range.clone()].len() - finite().count();
        let count = finite().count();
        let (mean, counted) = series.column().mean(range.start, range.end);
        prop_assert_eq!(counted, count);
        let expected: f64 = finite().map(|value| value / count as f64).sum();
        let size: f64 = finite().map(|value| value.abs() / count as f64).sum();
        prop_assert!(
            (count == 0 && mean.is_nan()) || (mean - expected).abs() <= 1e-11 * size + f64::MIN_POSITIVE,
            "{mean} is not {expected}"
        );
        prop_assert_eq!(series.non_finite_in(range), all as u64);
        prop_assert_eq!(
            series.non_finite(),
            values.iter().filter(|value| !value.is_finite()).count() as u64
        );
    }

    #[test]
    fn the_point_at_an_x_is_the_nearest_logged_one(
        steps in any_steps(400),
        is_missing in prop::collection::vec(prop::bool::weighted(0.2), 1..40),
        axis in any_axis(),
        x in -20.0_f64..1500.0,
    ) {
        let set = sparse(&steps, &[0.5], &is_missing);
        prop_assume!(set.contains("m"));
        let series = series(&set);
        let found = series.index_at(x, axis).unwrap();
        let distance = |i: usize| (series.x(i, axis) - x).abs();
        for i in 0..series.len() {
            prop_assert!(distance(found) <= distance(i), "{found} is farther than {i}");
            let is_newer = i > found && series.x(i, axis) == series.x(found, axis);
            prop_assert!(!is_newer, "{i} is newer than {found} at the same x");
        }
    }

    #[test]
    fn a_range_is_the_shortest_that_has_every_point_between_two_x(
        steps in any_steps(400),
        is_missing in prop::collection::vec(prop::bool::weighted(0.2), 1..40),
        axis in any_axis(),
        ends in (-20.0_f64..1500.0, 0.0_f64..1000.0),
    ) {
        let set = sparse(&steps, &[0.5], &is_missing);
        prop_assume!(set.contains("m"));
        let series = series(&set);
        let (x0, x1) = (ends.0, ends.0 + ends.1);
        let inside: Vec<usize> = (0..series.len())
            .filter(|i| (x0..=x1).contains(&series.x(*i, axis)))
            .collect();
        let expected = match (inside.first(), inside.last()) {
            (Some(first), Some(last)) => *first..last + 1,
            _ => 0..0,
        };
        prop_assert_eq!(series.range(x0, x1, axis), expected);
    }

    #[test]
    fn smoothing_is_tensorboards_and_does_not_depend_on_how_the_points_came(
        values in prop::collection::vec(
            prop_oneof![9 => -100.0_f64..100.0, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY)], 1..300),
        weight in 0.0_f64..0.999,
        cut in any::<prop::sample::Index>(),
    ) {
        let (whole, part) = (of(&values), of(&values[..=cut.index(values.len())]));
        let mut smoothed = Smoothed::new(weight);
        smoothed.follow(series(&part));
        smoothed.follow(series(&whole));
        let curve = smoothed.over(series(&whole));
        let (mut last, mut finite) = (0.0, 0);
        for (i, value) in values.iter().enumerate() {
            prop_assert_eq!(curve.step(i), i as u64);
            if !value.is_finite() {
                prop_assert!(!curve.value(i).is_finite(), "a gap stays a gap");
                continue;
            }
            last = last * weight + (1.0 - weight) * value;
            finite += 1;
            let expected = last / (1.0 - weight.powi(finite));
            // TensorBoard divides a rounded sum by a rounded 1 − wᵏ: at w = 0.999 about 3 digits of 16 go.
            prop_assert!((curve.value(i) - expected).abs() < 1e-9, "{} is not {expected}", curve.value(i));
        }
    }

    #[test]
    fn a_long_run_is_smoothed_over_the_means_of_its_parts(
        seed in any::<u32>(),
        count in 1_usize..6000,
        cut in 0.0_f64..1.0,
        weight in 0.0_f64..0.999,
    ) {
        let values: Vec<f64> = (0..count).map(|i| awkward(i, seed, 0)).collect();
        let mut smoothed = Smoothed::new(weight);
        let part = (count as f64 * cut) as usize;
        if part > 0 {
            smoothed.follow(series(&of(&values[..part])));
        }
        let set = of(&values);
        smoothed.follow(series(&set));
        let curve = smoothed.over(series(&set));
        let width = smoothed.width();
        prop_assert!(width.is_power_of_two() && curve.len() == count.div_ceil(width));
        prop_assert!(curve.len() <= MOST_PARTS && (width == 1 || curve.len() > MOST_PARTS / 2));
        // TensorBoard's sums over the means; a part of which half is finite counts as half a point.
        let (mut sum, mut weights) = (0.0, 0.0);
        for ((part, values), end) in values.chunks(width).enumerate().zip(smoothed.ends()) {
            prop_assert_eq!(end, (part * width + values.len()) - 1);
            prop_assert_eq!(curve.step(part), end as u64);
            let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
            if finite.is_empty() {
                prop_assert!(!curve.value(part).is_finite(), "a gap stays a gap");
                continue;
            }
            let kept = weight.powf(finite.len() as f64 / width as f64);
            let mean = finite.iter().sum::<f64>() / finite.len() as f64;
            (sum, weights) = (sum * kept + (1.0 - kept) * mean, weights * kept + (1.0 - kept));
            let expected = sum / weights;
            prop_assert!((curve.value(part) - expected).abs() < 1e-7, "{} is not {expected}", curve.value(part));
        }
    }

    #[test]
    fn the_smoothed_curves_of_a_run_are_each_as_if_made_anew(
        seeds in prop::collection::vec((0_usize..3000, any::<u32>()), 1..6),
        weights in prop::sample::subsequence(vec![0.0, 0.3, 0.9, 0.99, 0.9999], 2),
        cut in 0.0_f64..1.0,
    ) {
        let names: Vec<String> = (0..seeds.len()).map(|i| format!("m{i}")).collect();
        let set_of = |share: f64| {
            let mut set = SeriesSet::default();
            let longest = seeds.iter().map(|(count, _)| *count).max().unwrap_or(0);
            for i in 0..(longest as f64 * share) as usize {
                let row = names
                    .iter()
                    .zip(&seeds)
                    .filter(|(_, (count, _))| i < *count)
                    .map(|(name, (_, seed))| (name.as_str(), awkward(i, *seed, 3)));
                set.push_row(Source::Steps, head(i as u64), row);
            }
            set
        };
        let (part, whole) = (set_of(cut), set_of(1.0));
        let mut smoothing = Smoothing::new(weights[0]);
        smoothing.follow(&part, names.iter().map(String::as_str));
        for weight in weights {
            smoothing.set_weight(weight);
            smoothing.follow(&whole, names.iter().map(String::as_str));
            for name in &names {
                let Some(series) = whole.get(name) else { continue };
                let mut alone = Smoothed::new(weight);
                alone.follow(series);
                let bits = |series: Series<'_>| series.values().iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(smoothing.get(&whole, name).unwrap()), bits(alone.over(series)));
            }
        }
    }

    #[test]
    fn a_constant_series_stays_exactly_constant(value in any_f64(), count in 1_usize..5000, weight in 0.0_f64..1.0) {
        prop_assume!(value.is_finite());
        let set = of(&vec![value; count]);
        let mut smoothed = Smoothed::new(weight);
        smoothed.follow(series(&set));
        prop_assert!(smoothed.over(series(&set)).values().iter().all(|smooth| *smooth == value));
    }

    #[test]
    fn a_smoothed_curve_stays_within_the_values(
        values in prop::collection::vec(any_f64(), 1..3000),
        weight in 0.0_f64..1.0,
    ) {
        let set = of(&values);
        let mut smoothed = Smoothed::new(weight);
        smoothed.follow(series(&set));
        let curve = smoothed.over(series(&set));
        if let (Some(raw), Some(smooth)) = (series(&set).bounds(0..values.len()), curve.bounds(0..values.len())) {
            // One rounding of a value each step.
            let slack = 1e-12 * raw.max.abs().max(raw.min.abs());
            prop_assert!(smooth.min >= raw.min - slack && smooth.max <= raw.max + slack, "{smooth:?} {raw:?}");
        }
    }
}

#[test]
fn a_series_that_starts_late_and_misses_rows_keeps_each_point_at_its_step() {
    let mut set = SeriesSet::default();
    for step in 0..100_u64 {
        let late = (step >= 40).then_some(("late", step as f64));
        let rare = (step % 9 == 4).then_some(("rare", step as f64));
        let every = Some(("every", step as f64));
        set.push_row(
            Source::Steps,
            head(step),
            [late, every, rare].into_iter().flatten(),
        );
    }
    for (name, points) in [("late", 60), ("rare", 11), ("every", 100)] {
        let series = set.get(name).unwrap();
        assert_eq!(series.len(), points, "{name}");
        for point in series.iter() {
            assert_eq!(point.value.0, point.step as f64, "{name}");
            assert_eq!(point.elapsed_ms, point.step as f64 * 10.0);
        }
    }
    assert_eq!(set.points(), 171);
    assert_eq!(set.names().collect::<Vec<_>>(), ["every", "late", "rare"]);
}

#[test]
fn a_metric_of_two_sources_keeps_its_points_in_the_order_of_the_log() {
    let mut set = SeriesSet::default();
    set.push_row(Source::Steps, head(1), [("a", 0.1), ("b", 1.0)]);
    set.push_row(Source::Steps, head(2), [("a", 0.2), ("b", 2.0)]);
    set.push_row(Source::Evals, head(2), [("a", 9.0)]);
    set.push_row(Source::Steps, head(3), [("a", 0.3), ("b", 3.0)]);
    set.push_row(Source::Evals, head(3), [("a", 8.0)]);
    let points: Vec<(u64, f64)> = set
        .get("a")
        .unwrap()
        .iter()
        .map(|at| (at.step, at.value.0))
        .collect();
    assert_eq!(points, [(1, 0.1), (2, 0.2), (2, 9.0), (3, 0.3), (3, 8.0)]);
    assert_eq!(set.get("b").unwrap().values(), [1.0, 2.0, 3.0]);
}

#[test]
fn after_going_back_to_an_older_step_both_legs_are_kept_and_the_newer_is_read() {
    let mut set = SeriesSet::default();
    for (i, step) in [1, 2, 3, 4, 3, 4, 5].into_iter().enumerate() {
        let mut at = head(step);
        at.elapsed_ms = i as f64;
        set.push_row(Source::Steps, at, [("m", i as f64)]);
    }
    let series = series(&set);
    assert_eq!(series.index_at(4.2, XAxis::Step), Some(5));
    assert_eq!(series.index_at(1.9, XAxis::Step), Some(1));
    assert_eq!(series.range(3.0, 4.0, XAxis::Step), 2..6);
    let cells = envelope(series, XAxis::Step, 1.0, 5.0, 5, Scale::Linear);
    let counts: Vec<u64> = cells.iter().map(|cell| cell.count).collect();
    assert_eq!(counts, [1, 1, 2, 2, 1]);
    assert_eq!((cells[2].min, cells[2].max, cells[2].last), (2.0, 4.0, 4.0));
}

#[test]
fn a_column_cut_short_is_as_if_it_had_never_been_longer() {
    let values: Vec<f64> = (0..9000).map(|i| awkward(i, 5, 1)).collect();
    for kept in [0, 1, 63, 64, 65, 4095, 4096, 4097, 8999, 9000, 9001] {
        let mut cut = column::Column::default();
        cut.extend(&values);
        cut.truncate(kept);
        let mut never = column::Column::default();
        never.extend(&values[..kept.min(9000)]);
        for column in [&mut cut, &mut never] {
            for value in &values[..200] {
                column.push(*value);
            }
        }
        assert_eq!(format!("{cut:?}"), format!("{never:?}"), "{kept}");
    }
}

#[test]
fn a_smoothed_curve_of_a_run_that_went_back_is_none_until_it_is_followed_again() {
    let mut set = SeriesSet::default();
    let push = |set: &mut SeriesSet, steps: std::ops::Range<u64>| {
        for step in steps {
            // The metric is in every second row; the same value throughout, so that values alone tell nothing.
            let rare = (step % 2 == 1).then_some(("m", 1.0));
            set.push_row(Source::Steps, head(step), rare);
        }
    };
    push(&mut set, 0..100);
    let mut smoothing = Smoothing::new(0.9);
    smoothing.follow(&set, ["m"]);
    set.rewind(60);
    assert!(smoothing.get(&set, "m").is_none());
    for step in 61..81 {
        set.push_row(Source::Steps, head(step), Some(("m", 1.0)));
    }
    assert_eq!(series(&set).len(), 50);
    assert!(smoothing.get(&set, "m").is_none());
    smoothing.follow(&set, ["m"]);
    let steps: Vec<u64> = smoothing
        .get(&set, "m")
        .unwrap()
        .iter()
        .map(|point| point.step)
        .collect();
    assert_eq!(
        steps,
        series(&set)
            .iter()
            .map(|point| point.step)
            .collect::<Vec<_>>()
    );
}

#[test]
fn a_smoothed_curve_starts_again_when_its_series_is_another_one() {
    let (long, short, other) = (of(&[1.0, 2.0, 3.0]), of(&[5.0]), of(&[7.0, 7.0]));
    let mut smoothed = Smoothed::new(0.9);
    for set in [&long, &short, &other] {
        smoothed.follow(series(set));
        let mut fresh = Smoothed::new(0.9);
        fresh.follow(series(set));
        assert_eq!(smoothed.over(series(set)), fresh.over(series(set)));
    }
    let mut smoothing = Smoothing::new(0.5);
    smoothing.follow(&long, ["m", "not there"]);
    assert_eq!(smoothing.get(&long, "m").unwrap().len(), 3);
    assert!(smoothing.get(&long, "not there").is_none());
}

#[test]
fn a_chart_that_cannot_be_has_empty_cells() {
    let set = of(&[1.0, 2.0]);
    for (x0, x1, scale) in [
        (2.0, 1.0, Scale::Linear),
        (f64::NAN, 1.0, Scale::Linear),
        (0.0, f64::INFINITY, Scale::Linear),
        (0.0, 1.0, Scale::Log),
    ] {
        let cells = envelope(series(&set), XAxis::Step, x0, x1, 3, scale);
        assert!(
            cells.iter().all(|cell| cell.count == 0 && cell.is_gap()),
            "{x0} {x1}"
        );
    }
    let one = envelope(series(&set), XAxis::Step, 1.0, 1.0, 3, Scale::Linear);
    assert_eq!((one[0].count, one[0].first), (1, 2.0));
}

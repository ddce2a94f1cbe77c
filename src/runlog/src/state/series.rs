//! One metric over a run.

use crate::number::Number;

/// One value: at which step, when, how much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub step: u64,
    pub elapsed_ms: f64,
    /// Kept when non-finite: shown as a gap.
    pub value: Number,
}

/// Every value of a metric in the order of the log.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    points: Vec<Point>,
    non_finite: u64,
}

impl Series {
    pub fn push(&mut self, point: Point) {
        self.non_finite += u64::from(!point.value.0.is_finite());
        self.points.push(point);
    }

    pub fn points(&self) -> &[Point] {
        &self.points
    }

    pub fn first(&self) -> Option<Point> {
        self.points.first().copied()
    }

    pub fn last(&self) -> Option<Point> {
        self.points.last().copied()
    }

    /// How many values are NaN or infinite.
    pub fn non_finite(&self) -> u64 {
        self.non_finite
    }
}

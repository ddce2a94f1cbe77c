//! The learning rate as a pure function of the training step, so that nothing of it needs saving.

use std::f64::consts::PI;

use experiment::settings::{LrScheduler, Optim};

/// Warm-up, then constant or cosine, as verl (`get_constant_schedule_with_warmup`, `get_cosine_schedule_with_warmup`):
///
/// ```text
/// step < warmup:  step / warmup                          (step 0 has rate 0 when there is a warm-up)
/// constant:       1
/// cosine:         max(m, (1+m)/2 + (1−m)/2 · cos(2π · cycles · (step − warmup) / (total − warmup))),  m = min_lr_ratio
/// ```
///
/// Past `total` the cosine stays at its last value: with half a cycle verl's would rise again.
#[derive(Debug, Clone, PartialEq)]
pub struct LrSchedule {
    lr: f64,
    kind: LrScheduler,
    warmup_steps: u64,
    total_steps: u64,
    min_lr_ratio: f64,
    num_cycles: f64,
}

impl LrSchedule {
    /// `total_steps`: training steps of the whole run. `lr_warmup_steps` > 0 wins over `lr_warmup_steps_ratio`.
    pub fn new(settings: &Optim, total_steps: u64) -> Self {
        let warmup_steps = if settings.lr_warmup_steps > 0 {
            settings.lr_warmup_steps as u64
        } else {
            (settings.lr_warmup_steps_ratio * total_steps as f64) as u64
        };
        Self {
            lr: settings.lr,
            kind: settings.lr_scheduler_type,
            warmup_steps,
            total_steps,
            min_lr_ratio: settings.min_lr_ratio,
            num_cycles: settings.num_cycles,
        }
    }

    /// The rate at full height, which warm-up and cosine scale. Setting it keeps the shape and the place in it.
    pub fn peak(&mut self) -> &mut f64 {
        &mut self.lr
    }

    /// Learning rate of training step `step`, counted from 0.
    pub fn lr_at(&self, step: u64) -> f64 {
        self.lr * self.factor_at(step)
    }

    fn factor_at(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            return step as f64 / self.warmup_steps as f64;
        }
        match self.kind {
            LrScheduler::Constant => 1.0,
            LrScheduler::Cosine => {
                let span = self.total_steps.saturating_sub(self.warmup_steps).max(1);
                let progress = ((step - self.warmup_steps) as f64 / span as f64).min(1.0);
                let cosine = (2.0 * PI * self.num_cycles * progress).cos();
                let (middle, half) = (
                    f64::midpoint(1.0, self.min_lr_ratio),
                    (1.0 - self.min_lr_ratio) / 2.0,
                );
                (middle + half * cosine).max(self.min_lr_ratio)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(kind: LrScheduler, warmup_steps: i64, ratio: f64, min_lr_ratio: f64) -> LrSchedule {
        LrSchedule::new(
            &Optim {
                lr: 2.0,
                lr_scheduler_type: kind,
                lr_warmup_steps: warmup_steps,
                lr_warmup_steps_ratio: ratio,
                min_lr_ratio,
                ..Optim::default()
            },
            20,
        )
    }

    #[test]
    fn warm_up_starts_at_zero_and_ends_at_the_full_rate() {
        let schedule = schedule(LrScheduler::Constant, 4, 0.9, 0.0);
        let rates: Vec<_> = (0..6).map(|step| schedule.lr_at(step)).collect();
        assert_eq!(rates, [0.0, 0.5, 1.0, 1.5, 2.0, 2.0]);
    }

    #[test]
    fn without_warm_up_the_first_step_has_the_full_rate() {
        assert_eq!(schedule(LrScheduler::Constant, -1, 0.0, 0.0).lr_at(0), 2.0);
    }

    #[test]
    fn a_new_peak_scales_the_rest_of_the_schedule() {
        let mut schedule = schedule(LrScheduler::Cosine, 4, 0.0, 0.1);
        let before: Vec<_> = (0..20).map(|step| schedule.lr_at(step)).collect();
        *schedule.peak() /= 2.0;
        let after: Vec<_> = (0..20).map(|step| 2.0 * schedule.lr_at(step)).collect();
        assert_eq!(after, before);
    }

    #[test]
    fn the_ratio_counts_when_no_number_is_given() {
        let schedule = schedule(LrScheduler::Constant, -1, 0.25, 0.0);
        assert_eq!([schedule.lr_at(4), schedule.lr_at(5)], [1.6, 2.0]);
    }

    #[test]
    fn cosine_falls_from_the_full_rate_to_its_floor_and_stays() {
        let schedule = schedule(LrScheduler::Cosine, 4, 0.0, 0.1);
        assert_eq!(schedule.lr_at(4), 2.0);
        assert!((schedule.lr_at(12) - 1.1).abs() < 1e-12);
        assert!((schedule.lr_at(20) - 0.2).abs() < 1e-12);
        assert!((schedule.lr_at(30) - 0.2).abs() < 1e-12);
    }
}

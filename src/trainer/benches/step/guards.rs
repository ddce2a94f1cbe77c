//! What guards cost a step beside the learner's work: the preset `online` over the values of a real step's size, and what a
//! status and a checkpoint take of them. The probe is a forward pass of its own and is not in it.

use std::fmt;

use runlog::event::EventKind;
use runlog::number::{Number, Values};
use serde::{Deserialize, Serialize};
use trainer::guard::Guards;

use crate::clock::cpu_s;

/// Long enough for a clock of 10 ms.
const STEPS: u64 = 20_000;
/// A step of the quickstart records about so many.
const METRICS: u64 = 80;

/// CPU seconds a step.
#[derive(Debug, Serialize, Deserialize)]
pub struct Guarding {
    pub observe_s: f64,
    /// How each stands, for `status` and a screen.
    pub state_s: f64,
    pub trips: u64,
}

pub fn measure() -> anyhow::Result<Guarding> {
    let text = "data: {train_files: a.parquet}\ntrainer: {guards: online}\n";
    let experiment = experiment::from_text("bench.yaml", text, &[]).experiment;
    let mut guards = Guards::new(&experiment.trainer.guards, 0);
    anyhow::ensure!(!guards.names().is_empty(), "the preset has guards");
    let step = |step: u64| {
        // Healthy values, none twice the same.
        let wave = (step as f64 * 0.7).sin();
        let mut values: Values = (0..METRICS)
            .map(|metric| (format!("other/metric_{metric}"), Number(wave)))
            .collect();
        for (name, value) in [
            ("rollout_corr/k3_kl", 0.005 + 0.004 * wave),
            ("rollout_corr/rollout_is_eff_sample_size", 0.9),
            ("actor/grad_norm", 1.0 + 0.5 * wave),
            ("actor/skipped_updates", 0.0),
            ("actor/entropy", 0.3 + 0.05 * wave),
            ("probe/perplexity", 2.0 + 0.1 * wave),
            ("response_length/mean", 40.0 + wave),
            ("critic/score/mean", 0.5 + 0.1 * wave),
            ("critic/score/min", 0.0),
            ("critic/score/max", 1.0),
        ] {
            values.insert(name.to_owned(), Number(value));
        }
        EventKind::StepEnded {
            step,
            policy_version: step,
            values,
        }
    };
    // Made before, so that only the guards are measured.
    let steps: Vec<EventKind> = (1..=256).map(step).collect();
    let mut trips = 0;
    let start = cpu_s();
    for number in 1..=STEPS {
        let kind = match &steps[(number % 256) as usize] {
            EventKind::StepEnded { values, .. } => EventKind::StepEnded {
                step: number,
                policy_version: number,
                values: values.clone(),
            },
            other => other.clone(),
        };
        trips += guards.observe(number as f64, &kind).len() as u64;
    }
    let observed = cpu_s();
    for number in 1..=STEPS {
        std::hint::black_box(guards.states(number, None));
    }
    let stated = cpu_s();
    Ok(Guarding {
        observe_s: (observed - start) / STEPS as f64,
        state_s: (stated - observed) / STEPS as f64,
        trips,
    })
}

impl Guarding {
    pub fn per_step_s(&self) -> f64 {
        self.observe_s + self.state_s
    }
}

impl fmt::Display for Guarding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "guards (preset online, {} metrics a step): {:.1} us a step to see them, {:.1} us to say how they stand",
            METRICS + 10,
            self.observe_s * 1e6,
            self.state_s * 1e6
        )
    }
}

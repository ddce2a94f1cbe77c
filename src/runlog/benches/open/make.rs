//! Synthetic runs, written through the recorder and the sealer as a trainer's are.
//!
//! The curves are those that the trackers' benchmarks draw: groups `train`, `rollout`, `perf`, `eval` and `sync`, each series
//! a falling exponential with noise and an offset of its own.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use runlog::event::{EventKind, Phase, RunStatus};
use runlog::number::{Number, Values};
use runlog::recorder::Options;
use runlog::run_dir::{NewRun, RunDir};
use runlog::{Recorder, store};

/// How large a run is made.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub series: usize,
    pub steps: u64,
}

/// A generator of numbers that are the same in each run of the benchmark.
struct Random(u64);

impl Random {
    /// 0..1
    fn next(&mut self) -> f64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Makes a run in `root` and seals it.
pub fn run(root: &Path, name: &str, size: Size) -> anyhow::Result<RunDir> {
    let mut run_dir = RunDir::create(
        root,
        &NewRun {
            project_name: "bench".to_owned(),
            experiment_name: name.to_owned(),
            experiment_yaml: "trainer:\n  experiment_name: bench\n".to_owned(),
            ..NewRun::default()
        },
    )?;
    let recorder = Recorder::start(&mut run_dir, Options::default())?;
    let record = |kind: EventKind| -> anyhow::Result<()> {
        // A trainer would rather lose an event than wait; a generator waits.
        while recorder.health().waiting_events > 10_000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        recorder.record(kind).context("the recorder is full")?;
        Ok(())
    };
    record(EventKind::RunStarted {
        experiment_name: name.to_owned(),
        mode: "sync".to_owned(),
        total_steps: size.steps,
        parameters: 0,
        pid: std::process::id(),
        host: "bench".to_owned(),
        seed: 1,
    })?;
    record(EventKind::PhaseChanged {
        phase: Phase::Train,
    })?;
    let names: Vec<String> = ["train", "rollout", "perf", "eval", "sync"]
        .into_iter()
        .flat_map(|group| (0..size.series.div_ceil(5)).map(move |i| format!("{group}/m{i}")))
        .take(size.series)
        .collect();
    let mut random = Random(1);
    for step in 1..=size.steps {
        let base = (-3.0 * step as f64 / size.steps as f64).exp();
        let values: Values = names
            .iter()
            .enumerate()
            .map(|(i, name)| {
                let value = base + 0.05 * random.next() + i as f64 * 0.01;
                (name.clone(), Number(value))
            })
            .collect();
        record(EventKind::StepEnded {
            step,
            policy_version: step,
            values,
        })?;
    }
    record(EventKind::RunEnded {
        status: RunStatus::Completed,
        exit_code: 0,
        reason: "every step was trained".to_owned(),
        steps: size.steps,
    })?;
    recorder.close()?;
    store::project(&run_dir, true)?;
    Ok(run_dir)
}

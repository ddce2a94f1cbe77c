//! What a checkpoint costs the learner of a run of W2 in f32: how long it stands still, beside a memcpy of its weights.

use std::fmt;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use dialogue::generate::Sampling;
use dialogue::tokenizer::Tokenizer;
use runlog::recorder::{Options, Recorder};
use runlog::run_dir::{NewRun, RunDir};
use serde::{Deserialize, Serialize};
use tch::{Device, Kind};
use trainer::checkpoint::{Request, Saver, SaverParts};
use trainer::learner::Learner;
use trainer::model::parameters::Parameters;
use trainer::save::RunCounters;
use trainer::setup::canary_ids;

use crate::clock::{median, peak_rss_mib};
use crate::training::{Algorithm, experiment, runtime, sample, start_engine};
use crate::workload::W2;

const REPETITIONS: u64 = 3;

/// Medians, wall time.
#[derive(Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    parameters: f64,
    weight_bytes: f64,
    saved_bytes: f64,
    memcpy_ms: f64,
    /// In a run: handed over, then one step, whose update waits for what is left of the copy.
    blocked_ms: f64,
    /// The first of a run, whose copy's memory is new.
    first_blocked_ms: f64,
    /// Were the weights changed at once, without a forward or backward pass: both sides copy everything.
    at_once_ms: f64,
    /// The step beside which it is copied and written, and the same step without.
    step_ms: f64,
    plain_step_ms: f64,
    written_ms: f64,
    peak_rss_mib: f64,
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_memcpy = |ms: f64| ms / self.memcpy_ms;
        write!(
            formatter,
            "checkpoint of {:.0} M parameters, f32, with AdamW's state {:.2} GB: the learner stands still {:.3} ms, {:.4} of a memcpy of its weights ({:.0} ms); for the first {:.3} ms ({:.4}), were its weights changed at once {:.0} ms ({:.2}); a step beside it takes {:.0} ms, without {:.0} ms; on disk after {:.0} ms (wall); peak {:.0} MiB",
            self.parameters / 1e6,
            self.saved_bytes / 1e9,
            self.blocked_ms,
            of_memcpy(self.blocked_ms),
            self.memcpy_ms,
            self.first_blocked_ms,
            of_memcpy(self.first_blocked_ms),
            self.at_once_ms,
            of_memcpy(self.at_once_ms),
            self.step_ms,
            self.plain_step_ms,
            self.written_ms,
            self.peak_rss_mib
        )
    }
}

pub fn measure() -> anyhow::Result<Checkpoint> {
    tch::set_num_threads(1);
    let runtime = runtime()?;
    let folder = std::env::temp_dir().join(format!("lathe-bench-{}", std::process::id()));
    let mut run_dir = RunDir::create(&folder, &NewRun::default())?;
    let recorder = Recorder::start(&mut run_dir, Options::default())?;
    let experiment = Arc::new(experiment(&W2, Kind::Float, Algorithm::Grpo));
    let config = W2.config()?;
    let actor = Parameters::random(&config, 1, Kind::Float, Device::Cpu);
    let weight_bytes = actor.bytes() as usize;
    let engine = start_engine(&actor, &experiment)?;
    let sampling = Sampling::for_training(&experiment.actor_rollout_ref.rollout, &[]);
    let mut learner = Learner::new(Arc::clone(&experiment), actor, None, 2 * REPETITIONS + 2)?;
    let tokenizer_files =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/models/calc-tiny");
    let saver = Saver::start(SaverParts {
        run_dir: run_dir.clone(),
        recorder: recorder.clone(),
        experiment: Arc::clone(&experiment),
        tokenizer: Arc::new(Tokenizer::load(&tokenizer_files)?),
        tokenizer_files,
        compute: Kind::Float,
    })?;
    let save = |learner: &mut Learner, step: u64| {
        let capture = learner.capture();
        let gate = capture.gates().actor;
        saver.save(Request {
            capture,
            counters: RunCounters::at(step),
            sample_ids: vec![canary_ids(&config)],
            is_awaited: false,
            told: None,
        });
        gate
    };
    let from = vec![1u8; weight_bytes];
    let mut to = vec![2u8; weight_bytes];
    let (mut memcpy, mut blocked, mut at_once) = (vec![], vec![], vec![]);
    let (mut beside, mut plain, mut written) = (vec![], vec![], vec![]);
    // To warm up: an optimizer's first step is not like the others.
    for step in 1..=2 * REPETITIONS + 2 {
        let prompts = W2.prompts(W2.prompts, step);
        let rollouts = runtime.block_on(sample(
            &engine.handle(),
            &prompts,
            W2.samples,
            step,
            &sampling,
        ))?;
        let is_saved = step.is_multiple_of(2);
        let started = Instant::now();
        if is_saved {
            save(&mut learner, step);
        }
        let handed_over = ms(started);
        let outcome = learner.step(step, step - 1, rollouts, &recorder)?;
        let taken = ms(started);
        if !is_saved {
            if step > 1 {
                plain.push(taken);
            }
            continue;
        }
        beside.push(taken);
        let waited_s = outcome.values.0.get("timing_s/save_checkpoint");
        blocked.push(handed_over + waited_s.map_or(0.0, |seconds| seconds.0 * 1e3));
        let path = saver.wait().context("one was written")?;
        path.map_err(anyhow::Error::msg)?;
        written.push(ms(started));

        let started = Instant::now();
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        memcpy.push(ms(started));

        let started = Instant::now();
        let gate = save(&mut learner, step + 100);
        gate.pass();
        at_once.push(ms(started));
        saver.wait();
    }
    engine.shutdown();
    drop(saver);
    recorder.close()?;
    let saved_bytes = runlog::checkpoints::verify(&run_dir.checkpoint_path(2))?;
    fs::remove_dir_all(&folder)?;
    Ok(Checkpoint {
        parameters: config.num_parameters() as f64,
        weight_bytes: weight_bytes as f64,
        saved_bytes: saved_bytes as f64,
        memcpy_ms: median(memcpy),
        first_blocked_ms: blocked[0],
        blocked_ms: median(blocked.split_off(1)),
        at_once_ms: median(at_once),
        step_ms: median(beside),
        plain_step_ms: median(plain),
        written_ms: median(written),
        peak_rss_mib: peak_rss_mib(),
    })
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

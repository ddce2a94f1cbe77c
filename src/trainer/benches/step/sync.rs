//! Weight sync of a model of 494 M parameters (the shape of Qwen2.5-0.5B) in bf16 while rollouts are under way, beside a plain
//! memcpy of as many bytes.

use std::fmt;
use std::hint::black_box;
use std::sync::mpsc;
use std::time::Instant;

use dialogue::generate::Sampling;
use serde::{Deserialize, Serialize};
use tch::{Device, Kind};
use trainer::engine::{Engine, EngineOptions, WeightBuffer};
use trainer::model::parameters::Parameters;
use trainer::model::transformer::Transformer;
use trainer::setup::canary_ids;
use trainer::sync::{Publisher, Receiver, fingerprint};

use crate::clock::{median, peak_rss_mib};
use crate::training::{runtime, sample};
use crate::workload::{Shape, Workload};

const REPETITIONS: u64 = 3;
/// Rollouts that generate while the new weights arrive.
const SESSIONS: usize = 2;

const HALF_BILLION: Workload = Workload {
    name: "sync",
    shape: Shape {
        vocab: 151_936,
        hidden: 896,
        inner: 4864,
        layers: 24,
        heads: 14,
        kv_heads: 2,
    },
    prompts: SESSIONS,
    samples: 1,
};

/// Medians, wall time.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sync {
    parameters: f64,
    bytes: f64,
    memcpy_ms: f64,
    transfer_ms: f64,
    fingerprint_ms: f64,
    total_ms: f64,
    /// The longest of all repetitions.
    blocked_ms_most: f64,
    peak_rss_mib: f64,
}

impl fmt::Display for Sync {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |ms: f64| self.bytes / ms / 1e6;
        write!(
            formatter,
            "sync of {:.0} M parameters, bf16, {:.2} GB: rollouts blocked {:.3} ms at most; copy {:.0} ms, {:.1} GB/s, {:.0} % of memcpy's {:.1} GB/s; fingerprint {:.0} ms a side; step to swapped {:.0} ms (wall); peak {:.0} MiB",
            self.parameters / 1e6,
            self.bytes / 1e9,
            self.blocked_ms_most,
            self.transfer_ms,
            rate(self.transfer_ms),
            100.0 * self.memcpy_ms / self.transfer_ms,
            rate(self.memcpy_ms),
            self.fingerprint_ms,
            self.total_ms,
            self.peak_rss_mib
        )
    }
}

pub fn measure() -> anyhow::Result<Sync> {
    tch::set_num_threads(1);
    let runtime = runtime()?;
    let config = HALF_BILLION.config()?;
    let kind = Kind::BFloat16;
    let parameters = Parameters::random(&config, 1, kind, Device::Cpu);
    let bytes = parameters.bytes() as usize;
    let engine = Engine::start(
        WeightBuffer::from_parameters(&parameters, kind, Device::Cpu),
        0,
        EngineOptions::new(&config),
    )?;
    let (spare, spare_receive) = mpsc::channel();
    spare
        .send(WeightBuffer::new(&config, kind, Device::Cpu))
        .expect("the receiver is in scope");
    let mut publisher = Publisher::new(spare_receive, canary_ids(&config));
    let receiver = Receiver::new(spare, canary_ids(&config), 1);
    let model = Transformer::new(parameters, kind, false);
    let sampling = Sampling {
        ignore_eos: true,
        ..Sampling::default()
    };
    let from = vec![1u8; bytes];
    let mut to = vec![2u8; bytes];

    let (mut memcpy, mut transfer, mut hashing, mut total) = (vec![], vec![], vec![], vec![]);
    let mut blocked_ms_most = 0.0f64;
    for version in 1..=REPETITIONS {
        let started = Instant::now();
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        memcpy.push(ms(started));

        let started = Instant::now();
        black_box(fingerprint(model.parameters().iter(), kind));
        hashing.push(ms(started));

        let delivery = publisher.publish(&model, version, Instant::now())?;
        transfer.push(delivery.transfer_ms);
        let report = runtime.block_on(async {
            let handle = engine.handle();
            let prompts = HALF_BILLION.prompts(SESSIONS, version);
            let before = handle.stats().generated_tokens;
            let generation = tokio::spawn({
                let (handle, sampling) = (handle.clone(), sampling.clone());
                async move { sample(&handle, &prompts, 1, version, &sampling).await }
            });
            while handle.stats().generated_tokens == before {
                tokio::task::yield_now().await;
            }
            let report = receiver.accept(&handle, delivery).await?;
            // The engine must be idle while the next copies are timed.
            generation.await??;
            anyhow::Ok(report)
        })?;
        blocked_ms_most = blocked_ms_most.max(report.blocked_ms);
        total.push(report.total_ms);
    }
    Ok(Sync {
        parameters: config.num_parameters() as f64,
        bytes: bytes as f64,
        memcpy_ms: median(memcpy),
        transfer_ms: median(transfer),
        fingerprint_ms: median(hashing),
        total_ms: median(total),
        blocked_ms_most,
        peak_rss_mib: peak_rss_mib(),
    })
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

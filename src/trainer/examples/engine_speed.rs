//! Tokens per CPU second of decoding and of training, on random models of the two workloads that the peers are measured with.
//!
//! `cargo run --release -p trainer --example engine_speed -- [W1|W2] [f32|bf16] [decode|train|both]`

use std::sync::Arc;
use std::time::Instant;

use dialogue::generate::{Generator, Sampling, SessionId, TurnRequest};
use tch::{Device, Kind, Tensor};
use trainer::engine::{Engine, EngineOptions, WeightBuffer};
use trainer::model::config::ModelConfig;
use trainer::model::packed::PackedBatch;
use trainer::model::parameters::Parameters;
use trainer::model::transformer::Transformer;
use trainer::torch_ext::token_logprobs;

struct Workload {
    config: serde_json::Value,
    prompts: usize,
    samples: usize,
}

fn workload(name: &str) -> Workload {
    let (vocab, hidden, inter, layers, heads, kv, prompts, samples) = match name {
        "W1" => (8192, 256, 704, 4, 4, 2, 16, 8),
        _ => (32000, 768, 2048, 12, 12, 4, 4, 4),
    };
    Workload {
        config: serde_json::json!({
            "model_type": "qwen2", "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": inter,
            "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
            "max_position_embeddings": 512, "rope_theta": 10000.0, "tie_word_embeddings": true,
            "rms_norm_eps": 1e-6
        }),
        prompts,
        samples,
    }
}

/// User and system time of this process, from /proc.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has /proc");
    let after = stat.rsplit(')').next().expect("a name in brackets");
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / 100.0
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize, default: &str| {
        arguments
            .get(at)
            .cloned()
            .unwrap_or_else(|| default.to_owned())
    };
    let (name, dtype, what) = (argument(0, "W1"), argument(1, "f32"), argument(2, "both"));
    let kind = if dtype == "bf16" {
        Kind::BFloat16
    } else {
        Kind::Float
    };
    tch::set_num_threads(1);
    let workload = workload(&name);
    let serde_json::Value::Object(json) = workload.config.clone() else {
        unreachable!("an object was written above");
    };
    let config = Arc::new(ModelConfig::from_json("workload".as_ref(), json).expect("valid"));
    let parameters = Parameters::random(&config, 1, Kind::Float, Device::Cpu);
    let prompts: Vec<Vec<u32>> = (0..workload.prompts)
        .map(|prompt| {
            let length = 32 + (prompt * 7) % 33;
            (0..length)
                .map(|at| ((prompt * 977 + at * 31) % 8000) as u32)
                .collect()
        })
        .collect();
    if what != "train" {
        decode(&workload, &parameters, kind, &prompts);
    }
    if what != "decode" {
        train(&workload, parameters, kind, &prompts);
    }
}

fn decode(workload: &Workload, parameters: &Parameters, kind: Kind, prompts: &[Vec<u32>]) {
    let buffer = WeightBuffer::from_parameters(parameters, kind, Device::Cpu);
    let options = EngineOptions::new(buffer.config());
    let engine = Engine::start(buffer, 1, options).expect("starts");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    for round in 0..4_u64 {
        let (before, started) = (engine.handle().stats(), Instant::now());
        let cpu = cpu_seconds();
        runtime.block_on(async {
            let count = (workload.prompts * workload.samples) as u64;
            let requests: Vec<_> = (0..count)
                .map(|at| {
                    let session = SessionId(round * 1000 + at);
                    let handle = engine.handle();
                    let request = TurnRequest {
                        session,
                        context_ids: prompts[at as usize / workload.samples].clone(),
                        max_new_tokens: 64,
                        sampling: Sampling {
                            ignore_eos: true,
                            ..Sampling::default()
                        },
                        seed: session.0,
                    };
                    tokio::spawn(async move { handle.generate(request).await })
                })
                .collect();
            for request in requests {
                request.await.expect("joins").expect("generates");
            }
        });
        let cpu = cpu_seconds() - cpu;
        let after = engine.handle().stats();
        let tokens = after.generated_tokens - before.generated_tokens;
        println!(
            "decode: {tokens} tokens, {} steps, {cpu:.2} CPU s, {:.2} s wall, {:.0} tokens per CPU s; prefill {} reused {} in {:.2} s",
            after.decode_steps - before.decode_steps,
            started.elapsed().as_secs_f64(),
            tokens as f64 / cpu,
            after.prefill_tokens - before.prefill_tokens,
            after.reused_tokens - before.reused_tokens,
            after.prefill.as_secs_f64() - before.prefill.as_secs_f64(),
        );
    }
}

fn train(workload: &Workload, parameters: Parameters, kind: Kind, prompts: &[Vec<u32>]) {
    let mut model = Transformer::new(parameters.set_requires_grad(true), kind, false);
    let responses: Vec<Vec<u32>> = (0..workload.samples)
        .map(|sample| {
            (0..64)
                .map(|at| ((sample * 313 + at * 17) % 8000) as u32)
                .collect()
        })
        .collect();
    let slices: Vec<&[u32]> = responses.iter().map(Vec::as_slice).collect();
    for _ in 0..3 {
        let mut batch = PackedBatch::default();
        for prompt in prompts {
            batch.push_group(prompt, &slices);
        }
        let mut rows = Vec::new();
        let mut targets = Vec::new();
        for group in &batch.groups {
            for branch in &group.branches {
                rows.push(group.prompt.end as i64 - 1);
                rows.extend((branch.start..branch.end - 1).map(|row| row as i64));
                targets.extend(branch.clone().map(|row| batch.token_ids[row]));
            }
        }
        let cpu = cpu_seconds();
        let hidden = model.hidden(&batch);
        let logits = model.logits(&hidden.rows.index_select(0, &Tensor::from_slice(&rows)));
        let (logprobs, _) =
            token_logprobs(&logits, &Tensor::from_slice(&targets), 1.0, false).expect("log-probs");
        let forward = cpu_seconds() - cpu;
        logprobs.mean(Kind::Float).backward();
        hidden.backward();
        let both = cpu_seconds() - cpu;
        model.parameters_mut().zero_grad();
        println!(
            "train: {} rows, forward {forward:.2} CPU s, backward {:.2} CPU s, {:.0} rows per CPU s",
            batch.len(),
            both - forward,
            batch.len() as f64 / both
        );
    }
}

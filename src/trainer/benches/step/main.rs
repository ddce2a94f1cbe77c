//! `just bench [WORD…]`: what one training step costs, in CPU seconds, how fast 500 M weights reach the rollouts, and how long a
//! checkpoint stops the learner.
//!
//! Every measurement runs in a process of its own (so that peak memory is its own), one after the other, one thread each for
//! engine and learner, on the path of a run: generate, `Learner::step`, `Publisher::publish`, `Receiver::accept`. Left out of ours
//! is the text side (template, tokenizer, scorer). The median of three steps after one to warm up; prompts are new in every step.
//! WORDs narrow it down: `w1 w2`, `f32 bf16`, `grpo ppo generate sync checkpoint guards overlap tools`.
//!
//! Where `LATHE_PEERS` names a Python with TRL, `trl_grpo.py`, `trl_ppo.py` and `hf_generate.py` of the folder
//! `LATHE_PEER_SCRIPTS` run in between and the ratios are printed; see [`peers`].

mod checkpoint;
mod clock;
mod guards;
mod objectives;
mod overlap;
mod peers;
mod sync;
mod tools;
mod training;
mod workload;

use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tch::Kind;

use peers::Peers;
use training::{Algorithm, Step};
use workload::{W1, W2};

/// Marks a child process: what follows says what to measure.
const MEASURE: &str = "--measure";

fn main() -> anyhow::Result<()> {
    // `cargo bench` adds `--bench`.
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    match words.split_first() {
        Some((first, what)) if first == MEASURE => measure(what),
        _ => report(&words),
    }
}

fn measure(what: &[String]) -> anyhow::Result<()> {
    fn print(result: &impl Serialize) -> anyhow::Result<()> {
        println!("{}", serde_json::to_string(result)?);
        Ok(())
    }
    let words: Vec<&str> = what.iter().map(String::as_str).collect();
    match words[..] {
        ["sync"] => print(&sync::measure()?),
        ["guards"] => print(&guards::measure()?),
        ["checkpoint"] => print(&checkpoint::measure()?),
        ["overlap"] => print(&overlap::measure()?),
        ["tools"] => print(&tools::measure()?),
        [workload, dtype, algorithm] => {
            let workload = [W1, W2]
                .into_iter()
                .find(|known| known.name == workload)
                .context("no such workload")?;
            let kind = if dtype == "bf16" {
                Kind::BFloat16
            } else {
                Kind::Float
            };
            match Algorithm::named(algorithm) {
                Some(algorithm) => print(&training::measure(&workload, kind, algorithm)?),
                None => print(&training::measure_generation(&workload, kind)?),
            }
        }
        _ => bail!("{MEASURE} {what:?}: nothing is measured under this name"),
    }
}

/// Measures in a process of its own.
fn child<T: DeserializeOwned>(what: &[&str]) -> anyhow::Result<T> {
    let output = Command::new(std::env::current_exe()?)
        .arg(MEASURE)
        .args(what)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        bail!("measuring {what:?} ended with {}", output.status);
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("what measuring {what:?} said"))
}

fn report(words: &[String]) -> anyhow::Result<()> {
    const KNOWN: [&str; 12] = [
        "w1",
        "w2",
        "f32",
        "bf16",
        "grpo",
        "ppo",
        "generate",
        "sync",
        "checkpoint",
        "guards",
        "overlap",
        "tools",
    ];
    if let Some(word) = words.iter().find(|word| !KNOWN.contains(&word.as_str())) {
        bail!("bench: {word} is none of {}", KNOWN.join(" "));
    }
    let wanted = |word: &str, kin: &[&str]| {
        words.iter().any(|given| given == word)
            || !words.iter().any(|given| kin.contains(&given.as_str()))
    };
    let peers = Peers::find()?;
    if peers.is_none() {
        println!(
            "no peers: set LATHE_PEERS to a Python with TRL and LATHE_PEER_SCRIPTS to the folder of trl_grpo.py to see ratios"
        );
    }
    println!(
        "CPU seconds (user + system), one thread; load average {}",
        clock::load_average()
    );
    let what = [
        "grpo",
        "ppo",
        "generate",
        "sync",
        "checkpoint",
        "guards",
        "overlap",
        "tools",
    ];
    // What the guards' cost is compared with.
    let mut shortest_step_s: Option<f64> = None;
    for workload in [W1, W2] {
        if !wanted(&workload.name.to_lowercase(), &["w1", "w2"])
            || what[..3].iter().all(|word| !wanted(word, &what))
        {
            continue;
        }
        println!(
            "\n{}: {:.1} M parameters, {} prompts x {} samples, {} new tokens",
            workload.name,
            workload.config()?.num_parameters() as f64 / 1e6,
            workload.prompts,
            workload.samples,
            workload::NEW_TOKENS
        );
        for dtype in ["f32", "bf16"] {
            if !wanted(dtype, &["f32", "bf16"]) {
                continue;
            }
            for algorithm in ["grpo", "ppo"] {
                if wanted(algorithm, &what) {
                    let ours: Step = child(&[workload.name, dtype, algorithm])?;
                    println!("  lathe {algorithm} {dtype}: {ours}");
                    let shortest = shortest_step_s.unwrap_or(f64::INFINITY);
                    shortest_step_s = Some(shortest.min(ours.total_s));
                    if let Some(peers) = &peers {
                        peers.compare_step(workload.name, dtype, algorithm, &ours)?;
                    }
                }
            }
            if wanted("generate", &what) {
                let ours: training::Generation = child(&[workload.name, dtype, "generate"])?;
                println!("  lathe generate {dtype}: {ours}");
                if let Some(peers) = &peers {
                    peers.compare_generation(workload.name, dtype, &ours)?;
                }
            }
        }
    }
    if wanted("sync", &what) {
        let ours: sync::Sync = child(&["sync"])?;
        println!("\n{ours}");
    }
    if wanted("checkpoint", &what) {
        let ours: checkpoint::Checkpoint = child(&["checkpoint"])?;
        println!("\n{ours}");
    }
    if wanted("overlap", &what) {
        let ours: overlap::Overlap = child(&["overlap"])?;
        println!("\n{ours}");
    }
    if wanted("tools", &what) {
        let ours: tools::Tools = child(&["tools"])?;
        println!("\n{ours}");
    }
    if wanted("guards", &what) {
        let ours: guards::Guarding = child(&["guards"])?;
        let share = shortest_step_s.map_or_else(String::new, |step_s| {
            let percent = 100.0 * ours.per_step_s() / step_s;
            format!("; {percent:.4} % of the shortest step above")
        });
        println!("\n{ours}{share}");
    }
    Ok(())
}

//! TRL and transformers beside ours, in the same session, one thread each.
//!
//! - `LATHE_PEERS`: a Python with torch, transformers and TRL.
//! - `LATHE_PEER_SCRIPTS`: the folder of `trl_grpo.py`, `trl_ppo.py`, `hf_generate.py` (each prints one JSON object).
//! - `LATHE_PEER_DATA`: where their workloads W1 and W2 lie or are written; by default `peers` in the target directory.
//! - `LATHE_PEER_TRL_PPO`: a folder with TRL 1.12, the last that has `PPOTrainer`; without it PPO has no peer.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::training::{Generation, Step};

const MEASURED: &str = "3";
const WARM_UP: &str = "1";

#[derive(Debug)]
pub struct Peers {
    python: PathBuf,
    scripts: PathBuf,
    data: PathBuf,
    trl_ppo: Option<PathBuf>,
}

impl Peers {
    /// None when the environment names none.
    pub fn find() -> anyhow::Result<Option<Self>> {
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        let Some(python) = path("LATHE_PEERS") else {
            return Ok(None);
        };
        let scripts = path("LATHE_PEER_SCRIPTS").context(
            "LATHE_PEERS is set, so LATHE_PEER_SCRIPTS must name the folder of trl_grpo.py",
        )?;
        Ok(Some(Self {
            python,
            scripts,
            data: path("LATHE_PEER_DATA")
                .unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("peers")),
            trl_ppo: path("LATHE_PEER_TRL_PPO"),
        }))
    }

    /// Runs TRL's step and prints how much more it costs.
    pub fn compare_step(
        &self,
        workload: &str,
        dtype: &str,
        algorithm: &str,
        ours: &Step,
    ) -> anyhow::Result<()> {
        let mut arguments = vec![
            "--workload",
            workload,
            "--steps",
            MEASURED,
            "--warmup",
            WARM_UP,
        ];
        let script = match (algorithm, dtype, &self.trl_ppo) {
            ("grpo", ..) => {
                arguments.extend(["--dtype", dtype]);
                "trl_grpo.py"
            }
            (_, "bf16", _) => {
                println!("    TRL's ppo script has no bf16");
                return Ok(());
            }
            (_, _, None) => {
                println!("    no TRL ppo: set LATHE_PEER_TRL_PPO to a folder with TRL 1.12");
                return Ok(());
            }
            (_, _, Some(path)) => {
                arguments.extend(["--trl-path", path.to_str().context("a path in UTF-8")?]);
                "trl_ppo.py"
            }
        };
        let said = self.run(script, &arguments)?;
        let step_s = number(&said, "cpu_s_per_step")?;
        let generated = number(&said, "generated_tokens_per_cpu_s")?;
        println!(
            "    {}: {step_s:.2} s a step, {generated:.0} tokens a second of generation, peak {:.0} MiB: lathe's step {:.2}x, generation {:.2}x as fast",
            said["what"].as_str().unwrap_or(script),
            number(&said, "peak_rss_mib")?,
            step_s / ours.total_s,
            ours.generated_per_s / generated
        );
        println!("      its parts: {}", said["cpu_parts"]);
        Ok(())
    }

    /// Runs transformers' `generate` on as many prompts and prints how much more it costs.
    pub fn compare_generation(
        &self,
        workload: &str,
        dtype: &str,
        ours: &Generation,
    ) -> anyhow::Result<()> {
        if dtype == "bf16" {
            println!("    transformers' script has no bf16");
            return Ok(());
        }
        let said = self.run(
            "hf_generate.py",
            &["--workload", workload, "--reps", MEASURED],
        )?;
        let generated = number(&said, "tokens_per_cpu_s")?;
        println!(
            "    {}: {generated:.0} tokens a second, peak {:.0} MiB: lathe {:.2}x as fast",
            said["what"].as_str().unwrap_or("transformers"),
            number(&said, "peak_rss_mib")?,
            ours.generated_per_s / generated
        );
        Ok(())
    }

    fn run(&self, script: &str, arguments: &[&str]) -> anyhow::Result<Value> {
        let output = Command::new(&self.python)
            .arg(self.scripts.join(script))
            .args(arguments)
            .args(["--threads", "1", "--root"])
            .arg(&self.data)
            .env("GOMP_SPINCOUNT", "0")
            .env("OMP_WAIT_POLICY", "PASSIVE")
            .stderr(Stdio::piped())
            .output()
            .with_context(|| format!("{} did not start", self.python.display()))?;
        if !output.status.success() {
            bail!(
                "{script} ended with {}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let last = text.lines().rfind(|line| line.starts_with('{'));
        serde_json::from_str(last.unwrap_or_default())
            .with_context(|| format!("{script} printed no JSON object: {text}"))
    }
}

fn number(said: &Value, key: &str) -> anyhow::Result<f64> {
    said[key]
        .as_f64()
        .with_context(|| format!("the peer's numbers have no {key}"))
}

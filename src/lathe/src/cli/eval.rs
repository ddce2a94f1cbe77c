//! `lathe eval MODEL`: a run that trains nothing, made from a few options, and its numbers in a table.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use runlog::number::Values;
use runlog::state::RunState;

use super::arguments::EvalArguments;
use super::run::{self, carry_out};
use super::{Failure, Output, checkpoints, report};
use crate::headless::format;
use crate::launch::{self, Job, Order};
use crate::terminal::{Role, Terminal};

/// What an evaluation is when no experiment says more.
const PLAIN: &str = "# Made by `lathe eval`: nothing is trained.
algorithm:
  adv_estimator: reinforce_plus_plus
actor_rollout_ref:
  actor:
    ppo_mini_batch_size: 1
data:
  train_batch_size: 1
trainer:
  val_only: true
";

pub fn eval(
    arguments: &EvalArguments,
    out: &mut Output,
    terminal: Terminal,
) -> Result<i32, Failure> {
    run::told(arguments.form.json, out, |out| {
        arguments.data.iter().try_for_each(|file| readable(file))?;
        let (model, parent) = model(arguments)?;
        let plain = match &arguments.experiment {
            Some(_) => None,
            None => Some(PlainFile::write()?),
        };
        let experiment = arguments
            .experiment
            .clone()
            .or_else(|| plain.as_ref().map(|plain| plain.0.clone()))
            .expect("one of the two is there");
        let name = arguments
            .name
            .clone()
            .unwrap_or_else(|| format!("eval-{}", short_name(&arguments.model)));
        let order = Order {
            target: None,
            job: Job::Run,
            experiment,
            overrides: overrides(arguments, &model),
            name: Some(name),
            runs_root: run::root(&arguments.place),
            parent,
            command: run::typed(),
        };
        let say = |followed: &crate::headless::Followed, out: &mut Output| {
            table(&followed.state, out, terminal)
        };
        carry_out(order, arguments.form, false, say, out, terminal)
    })
}

/// What the user named, before it becomes a key of an experiment that the user never saw.
fn readable(file: &Path) -> Result<(), Failure> {
    let place = file.display();
    let extension = file.extension().and_then(OsStr::to_str);
    if !file.exists() {
        return Err(Failure::input(format!(
            "--data {place}: there is no such file"
        )));
    }
    if !matches!(extension, Some("parquet" | "jsonl" | "json")) {
        return Err(Failure::input(format!(
            "--data {place}: expected a file of prompts, .parquet or .jsonl"
        )));
    }
    Ok(())
}

/// The experiment of an evaluation without one, for as long as it is read.
struct PlainFile(PathBuf);

impl PlainFile {
    fn write() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("lathe-eval-{}.yaml", std::process::id()));
        let fail = |error: std::io::Error| {
            Failure::unexpected(format!("cannot write {}: {error}", path.display()))
        };
        // Never through a link that somebody laid there.
        let mut file = std::fs::File::create_new(&path).map_err(fail)?;
        let file_written = file.write_all(PLAIN.as_bytes()).map_err(fail);
        let plain = Self(path);
        file_written.map(|()| plain)
    }
}

impl Drop for PlainFile {
    fn drop(&mut self) {
        // What stays behind is a few lines in a folder for such things.
        drop(std::fs::remove_file(&self.0));
    }
}

/// The directory of the model, and the run that it is of.
fn model(arguments: &EvalArguments) -> Result<(PathBuf, Option<String>), Failure> {
    let path = Path::new(&arguments.model);
    if path.join("config.json").is_file() {
        let run = path.parent().and_then(Path::parent);
        let parent = run.and_then(|run| runlog::run_dir::RunDir::open(run).ok());
        let parent = parent.map(|run| run.info().id.clone());
        return Ok((report::absolute(path), parent));
    }
    if path.is_dir() && !path.join("run.json").exists() {
        return Err(Failure::input(format!(
            "{} has no config.json: it is no model in the Hugging Face layout, and no run",
            path.display()
        )));
    }
    let (checkpoint, run) = checkpoints::named(&arguments.place, &arguments.model)?;
    Ok((report::absolute(&checkpoint), run))
}

/// The last part of a path, or the words for a checkpoint.
fn short_name(model: &OsStr) -> String {
    let text = Path::new(model).file_name().unwrap_or(model);
    text.to_string_lossy().replace(':', "-")
}

fn overrides(arguments: &EvalArguments, model: &Path) -> Vec<String> {
    let text = |key: &str, path: &Path| launch::text_override(key, &path.to_string_lossy());
    let list = |key: &str, paths: &[PathBuf]| {
        let quoted: Vec<String> = paths
            .iter()
            .map(|path| {
                let path = report::absolute(path);
                let quoted = path.to_string_lossy().replace('\\', "\\\\");
                format!("\"{}\"", quoted.replace('"', "\\\""))
            })
            .collect();
        format!("{key}=[{}]", quoted.join(","))
    };
    let mut overrides = vec![
        text("actor_rollout_ref.model.path", model),
        "trainer.val_only=true".to_owned(),
        "trainer.resume_mode=disable".to_owned(),
    ];
    if !arguments.data.is_empty() {
        overrides.push(list("data.val_files", &arguments.data));
        if arguments.experiment.is_none() {
            // Never drawn from, but a run names some.
            overrides.push(list("data.train_files", &arguments.data));
        }
    }
    if !arguments.perplexity.is_empty() {
        let files = list("trainer.guard_probe_files", &arguments.perplexity);
        overrides.push(files);
    }
    let kwargs = "actor_rollout_ref.rollout.val_kwargs";
    if let Some(samples) = arguments.samples {
        overrides.push(format!("{kwargs}.n={samples}"));
    }
    let warm = arguments.samples.is_some_and(|samples| samples > 1);
    let temperature = match (arguments.temperature, &arguments.experiment) {
        (Some(temperature), _) => Some(temperature),
        // The same answer several times says nothing.
        (None, _) if warm => Some(1.0),
        (None, Some(_)) => None,
        (None, None) => Some(0.0),
    };
    overrides.extend(temperature.map(|of| format!("{kwargs}.temperature={of}")));
    overrides.extend(arguments.overrides.iter().cloned());
    overrides
}

/// Every number of the evaluation, by data source.
fn table(state: &RunState, out: &mut Output, terminal: Terminal) -> Result<(), Failure> {
    let mut values = Values::new();
    let mut samples = 0;
    for evaluation in &state.evals {
        values.extend(evaluation.values.clone());
        samples = samples.max(evaluation.samples);
    }
    if values.is_empty() {
        return Ok(());
    }
    out.line("")?;
    let core: Vec<(&str, &str, f64)> = values
        .iter()
        .filter_map(|(name, value)| {
            let (source, metric) = name.strip_prefix("val-core/")?.split_once("/reward/")?;
            Some((source, metric, value.0))
        })
        .collect();
    let mut shown = None;
    for (source, metric, value) in core {
        if shown != Some(source) {
            out.line(&terminal.paint(Role::Strong, source))?;
            shown = Some(source);
            aside(source, &values, out, terminal)?;
        }
        let error = values.get(&format!("val-aux/{source}/reward/{metric}/standard_error"));
        let error = error.map_or_else(String::new, |error| {
            format!(" ± {}", format::number(error.0))
        });
        out.line(&format!("  {metric:<14} {}{error}", format::number(value)))?;
    }
    if let Some(perplexity) = values.get("probe/perplexity") {
        let text = format::number(perplexity.0);
        out.line(&format!("  {:<14} {text}", "perplexity"))?;
    }
    let speed = values
        .get("val-aux/tokens_per_s")
        .map_or_else(String::new, |speed| {
            format!(", {} tokens/s", format::number(speed.0))
        });
    let seconds = values.get("timing_s/testing").map_or(f64::NAN, |one| one.0);
    let all = format!(
        "{} in {} s{speed}",
        format::plural(samples, "answer"),
        format::number(seconds)
    );
    out.line(&format!("  {}", terminal.paint(Role::Muted, &all)))
}

/// What is no score, in one muted line.
fn aside(
    source: &str,
    values: &Values,
    out: &mut Output,
    terminal: Terminal,
) -> Result<(), Failure> {
    let words = [
        ("reward/missing_frac", "without a score"),
        ("num_turns/mean", "turns"),
        ("tool_call_counts/mean", "tool calls"),
        ("response_length/mean", "tokens"),
        ("latency_s/p50", "s at the median"),
        ("latency_s/p95", "s at 95 %"),
    ];
    let parts: Vec<String> = words
        .iter()
        .filter_map(|(name, word)| {
            let value = values.get(&format!("val-aux/{source}/{name}"))?;
            let is_nothing = value.0 == 0.0 && *name != "response_length/mean";
            (!is_nothing).then(|| format!("{} {word}", format::number(value.0)))
        })
        .collect();
    out.line(&format!(
        "  {}",
        terminal.paint(Role::Muted, &parts.join(" · "))
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_s_name_is_the_last_part_of_what_was_typed() {
        assert_eq!(short_name(OsStr::new("models/calc-tiny/")), "calc-tiny");
        assert_eq!(short_name(OsStr::new("latest:120")), "latest-120");
    }

    #[test]
    fn the_plain_experiment_has_no_error_but_that_it_names_no_model() {
        let overrides = [
            "actor_rollout_ref.model.path=\"m\"",
            "data.val_files=[\"d.jsonl\"]",
            "data.train_files=[\"d.jsonl\"]",
        ]
        .map(str::to_owned);
        let loaded = experiment::from_text("plain.yaml", PLAIN, &overrides);
        assert!(!loaded.has_errors(), "{:?}", loaded.complaints);
        assert!(loaded.experiment.trainer.val_only);
    }
}

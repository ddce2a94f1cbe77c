//! `lathe eval` and `lathe winrate`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::{Form, RunsPlace};

#[derive(Debug, Args)]
#[command(after_help = "\
An evaluation is a run of its own, which trains no step: its numbers are events, its answers lie in
rollouts/ and can be read in the workbench, and runs of several models compare there. `lathe metrics
val-` says what each number is. An interrupted evaluation has no result.

Exit code 0: it has its numbers; 2, 3, 4: as `lathe run`.

Examples:
  lathe eval experiments/models/calc-tiny --data datasets/calc-test.parquet
  lathe eval latest:120 --data test.parquet -n 8 --temperature 1 --experiment experiments/quickstart.yaml
  lathe eval models/warm --data test.jsonl --perplexity held_out.jsonl --json | tail -1")]
pub struct EvalArguments {
    /// A model in the Hugging Face layout, RUN:STEP, or a run, whose newest checkpoint is taken
    #[arg(value_name = "MODEL")]
    pub model: OsString,
    /// Prompts with their answers: .parquet or .jsonl, as for training [default: `data.val_files` of --experiment]
    #[arg(long, value_name = "FILE", num_args = 1.., required_unless_present = "experiment")]
    pub data: Vec<PathBuf>,
    /// Answers to each prompt: with more than one there are votes and pass@k
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub samples: Option<u32>,
    /// 0: always the likeliest token [default: 0; with several answers 1, or as --experiment says]
    #[arg(long, value_name = "T")]
    pub temperature: Option<f64>,
    /// Dialogues whose perplexity is told too: `messages` in .parquet or .jsonl
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub perplexity: Vec<PathBuf>,
    /// Tools, reward, templates and lengths of this experiment [default: no tools, the scorer of each row's `data_source`]
    #[arg(long, value_name = "EXPERIMENT")]
    pub experiment: Option<PathBuf>,
    /// Override of the experiment: a.b=v; may be given several times
    #[arg(long = "set", value_name = "A.B=V")]
    pub overrides: Vec<String>,
    #[arg(long, help = "Name of the run [default: eval-MODEL]")]
    pub name: Option<String>,
    #[command(flatten)]
    pub place: RunsPlace,
    #[command(flatten)]
    pub form: Form,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Two evaluations of the same prompts are compared answer by answer: by their own scores, or by the
judge that `reward` of an experiment names (rules, a judge over HTTP, a Python function): the answer
with the higher score wins. A file has preferences of any judge: columns `preference` (0 to 1 that the
model wins, or 1 to 2 as AlpacaEval writes it), `len_model`, `len_reference`, and perhaps `model` and
`difficulty`.

The error is s/√prompts. At equal length: a logistic fit, as AlpacaEval 2's (docs/evaluation.md).

Examples:
  lathe winrate eval-new --against eval-old
  lathe winrate eval-new --against eval-old --judge experiments/judges.yaml
  lathe winrate preferences.parquet --json")]
pub struct WinrateArguments {
    /// A run of `lathe eval` (a path, a name, the start of an id, or `latest`), or a file of preferences
    #[arg(value_name = "RUN|FILE")]
    pub what: OsString,
    /// The run of the reference's answers
    #[arg(long, value_name = "RUN")]
    pub against: Option<OsString>,
    /// Judge by `reward` of this experiment instead of by the scores that the runs recorded
    #[arg(long, value_name = "EXPERIMENT", requires = "against")]
    pub judge: Option<PathBuf>,
    /// JSON lines, one a model
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub place: RunsPlace,
}

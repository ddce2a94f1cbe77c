//! What an experiment names: checked, made and looked at.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct CheckArguments {
    /// The experiment's YAML file
    pub experiment: PathBuf,
    /// a.b=v, +a.b=v, ~a.b; more files are checked one by one, in brief
    pub overrides: Vec<String>,
    /// One JSON object a file
    #[arg(long)]
    pub json: bool,
    /// Rows of each file to try
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub rows: u64,
    /// Model and data that are not on this machine are errors, not warnings
    #[arg(long)]
    pub strict: bool,
}

#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Show schema, counts, lengths and rendered samples of a Parquet file
    Show {
        file: PathBuf,
        /// Samples to render
        #[arg(long, value_name = "N", default_value_t = 2)]
        rows: u64,
        /// Model directory whose tokenizer and chat template count and render
        #[arg(long, value_name = "DIR")]
        tokenizer: Option<PathBuf>,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Turn JSON lines into Parquet, checking every row
    Convert {
        /// JSON lines in verl's row form
        input: PathBuf,
        /// The Parquet file to write
        output: PathBuf,
    },
    /// Make a data set by a documented, seeded recipe
    Make {
        /// Which recipe
        name: String,
        /// Directory for the files
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Other seeds give other rows, the same seed the same bytes
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Rows of the training file; the test file has a quarter of it [default: 1000]
        #[arg(long, value_name = "N")]
        rows: Option<u64>,
    },
}

#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// Fetch a model by name, by pip, into the Hugging Face layout; without a name list them
    Fetch {
        name: Option<String>,
        /// [default: models/NAME]
        #[arg(short = 'o', long = "out", value_name = "DIR")]
        into: Option<PathBuf>,
        /// Four bytes a number instead of two (bfloat16)
        #[arg(long)]
        f32: bool,
    },
    /// Turn a GGUF file (floats, or quantised to 4, 6 or 8 bits) into a Hugging Face directory
    Convert {
        /// llama, qwen2 or qwen3
        file: PathBuf,
        /// The directory to write
        into: PathBuf,
        /// Four bytes a number instead of two (bfloat16)
        #[arg(long)]
        f32: bool,
    },
}

//! The formats, by name.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whose log it is, and in which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Rows of verl's `file` logger.
    Verl,
    /// What verl printed, with its lines of metrics.
    VerlConsole,
    /// Event files.
    TensorBoard,
    /// An offline run of Weights & Biases.
    Wandb,
    /// A run in a project's database.
    Trackio,
    /// `mlruns/`
    Mlflow,
    /// A run in `mlflow.db`.
    MlflowSqlite,
    Csv,
    /// An object a line.
    Jsonl,
}

impl Format {
    pub const ALL: [Self; 9] = [
        Self::Verl,
        Self::VerlConsole,
        Self::TensorBoard,
        Self::Wandb,
        Self::Trackio,
        Self::Mlflow,
        Self::MlflowSqlite,
        Self::Csv,
        Self::Jsonl,
    ];

    /// As in `--format` and in `run.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Verl => "verl",
            Self::VerlConsole => "verl-console",
            Self::TensorBoard => "tensorboard",
            Self::Wandb => "wandb",
            Self::Trackio => "trackio",
            Self::Mlflow => "mlflow",
            Self::MlflowSqlite => "mlflow-sqlite",
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The names, for messages.
    pub fn list() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// A file of it has lines that people can read.
    pub(crate) fn is_text(self) -> bool {
        matches!(
            self,
            Self::Verl | Self::VerlConsole | Self::Csv | Self::Jsonl
        )
    }

    /// True: values of one step come one by one, so that a step is whole only when something else comes.
    pub(crate) fn scatters_steps(self) -> bool {
        matches!(self, Self::TensorBoard | Self::Mlflow | Self::MlflowSqlite)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

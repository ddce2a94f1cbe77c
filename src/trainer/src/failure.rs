//! Why a run ends early, with the exit code that says which kind it is.

use runlog::exit_code;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Input that cannot be used: model, tokenizer, data, experiment.
    #[error("{0}")]
    Input(String),
    /// The run started and something in it failed.
    #[error("{0}")]
    Run(String),
    /// A resume of a run whose every step is trained.
    #[error("{0}")]
    NothingLeft(String),
    /// Another process writes to this run directory.
    #[error("{0}")]
    Busy(String),
}

impl Failure {
    pub fn input(error: impl std::fmt::Display) -> Self {
        Self::Input(error.to_string())
    }

    pub fn run(error: impl std::fmt::Display) -> Self {
        Self::Run(error.to_string())
    }

    pub fn nothing_left(trained: u64, total: u64) -> Self {
        Self::NothingLeft(format!(
            "nothing is left to train: the newest checkpoint has {trained} of {total} steps; give a larger trainer.total_training_steps to go on"
        ))
    }

    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Input(_) => exit_code::INPUT,
            Self::Run(_) => exit_code::RUN_FAILED,
            Self::NothingLeft(_) => exit_code::NOTHING_LEFT,
            Self::Busy(_) => exit_code::BUSY,
        }
    }
}

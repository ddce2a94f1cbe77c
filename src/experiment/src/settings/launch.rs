//! `launch`: which program trains, and how it is started.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Launch {
    pub engine: Engine,
    pub verl: LaunchVerl,
}

/// Who trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    #[default]
    Lathe,
    /// verl itself, in a Python of its own; Lathe checks, starts and follows.
    Verl,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LaunchVerl {
    /// Looked up in PATH when it is a name.
    pub python: String,
    /// Module that is run with `-m`.
    pub entry: String,
    /// None: where `lathe` was started.
    pub working_dir: Option<String>,
    /// Variables set for it; numbers and bools as text.
    pub env: Map<String, Value>,
    /// Hydra overrides as they are, after all others.
    pub extra_overrides: Vec<String>,
}

impl Default for LaunchVerl {
    fn default() -> Self {
        Self {
            python: "python3".to_owned(),
            entry: "verl.trainer.main_ppo".to_owned(),
            working_dir: None,
            env: Map::new(),
            extra_overrides: Vec::new(),
        }
    }
}

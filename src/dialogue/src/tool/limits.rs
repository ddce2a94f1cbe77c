//! What may be said of any tool in its `config`.

use std::time::Duration;

use super::Parameters;
use super::config::{take_count, take_time};

/// Bounds of one tool, over all dialogues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ToolLimits {
    /// Calls that run at once; further ones wait for their turn. None: any number.
    pub concurrency: Option<usize>,
    /// Of one call, `create` included, from when its turn has come. None: `multi_turn.tool_timeout_s`.
    pub timeout: Option<Duration>,
    /// Answers that are kept and given again for the same arguments; 0: none.
    pub cache: usize,
}

impl ToolLimits {
    /// The keys that limits have in a `config`.
    pub const KEYS: [&str; 3] = ["concurrency", "timeout", "cache"];

    /// Takes its keys out of a `config`.
    pub(super) fn take(config: &mut Parameters) -> Result<Self, String> {
        Ok(Self {
            concurrency: take_count(config, "concurrency", 1, 65_536)?.map(|count| count as usize),
            timeout: take_time(config, "timeout")?,
            cache: take_count(config, "cache", 0, 10_000_000)?.unwrap_or(0) as usize,
        })
    }
}

//! Exit codes of both programs, as README and `--help` list them.

/// Done.
pub const OK: i32 = 0;
/// Something unexpected: a bug or the machine.
pub const UNEXPECTED: i32 = 1;
/// Wrong usage or an experiment with errors.
pub const USAGE: i32 = 2;
/// Input that cannot be used: model, tokenizer, data or libtorch missing or corrupt.
pub const INPUT: i32 = 3;
/// The run started and failed.
pub const RUN_FAILED: i32 = 4;
/// Another program is writing to this run directory, or it holds a warm-up or evaluation already: those do not go on.
pub const BUSY: i32 = 5;
/// The run refused what `lathe ctl` asked of it.
pub const REFUSED: i32 = 6;
/// `lathe ctl` cannot reach the run: it has ended, runs elsewhere, or does not answer.
pub const UNREACHABLE: i32 = 7;
/// `lathe run --resume` of a run whose every step is trained.
pub const NOTHING_LEFT: i32 = 8;
/// Stopped on request: after one Ctrl-C with a checkpoint, after a second one at once and without.
pub const STOPPED: i32 = 130;

//! Which program trains, and how it is started.

use super::{Choices, Row, choice, opt, row};
use crate::keys::kind::Kind;

const ENGINES: Choices = choice(&["lathe", "verl"], &[]);
const TEXTS: Kind = Kind::List(&Kind::Text);

pub(super) const LAUNCH: &[Row] = &[
    row(
        "launch.engine",
        Kind::Choice(&ENGINES),
        "\"lathe\"",
        "",
        "Who trains: lathe, or verl itself in a Python of its own, checked, started and followed by Lathe.",
    ),
    row(
        "launch.verl.python",
        Kind::Text,
        "\"python3\"",
        "",
        "Python that has verl: a path, or a name that is looked up in PATH.",
    ),
    row(
        "launch.verl.entry",
        Kind::Text,
        "\"verl.trainer.main_ppo\"",
        "",
        "Module that is run with python -m; its overrides are made from this experiment.",
    ),
    opt(
        "launch.verl.working_dir",
        Kind::Path,
        "",
        "Directory that verl is started in; null: where lathe was started.",
    ),
    row(
        "launch.verl.env",
        Kind::Mapping,
        "{}",
        "",
        "Variables set for verl, e.g. {CUDA_VISIBLE_DEVICES: \"0,1\"}. They stand in the run's copy of the experiment: no secrets.",
    ),
    row(
        "launch.verl.extra_overrides",
        TEXTS,
        "[]",
        "",
        "Hydra overrides for verl as they are, after all others.",
    ),
];

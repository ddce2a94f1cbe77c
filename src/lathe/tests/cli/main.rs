//! Drives the real `lathe` program against a trainer that plays a script: what it prints, what it starts, how it ends.
//!
//! `harness`: a folder with an experiment, and the program in it. `fake_trainer`: this same binary, started by `lathe` as
//! its trainer, writing real events through `runlog`. `remote`: the same over a real sshd. Nothing here links libtorch or learns
//! anything.

mod bandit;
mod census;
mod check;
mod checkpoints;
mod cluster;
mod ctl;
mod export;
mod fake_trainer;
mod golden;
mod harness;
mod import;
mod interrupt;
mod launching;
mod model;
mod remote;
#[path = "../../benches/terminal/repeats.rs"]
mod repeats;
mod run;
mod runs;
mod screen;
mod verl;
mod verl_there;
mod workbench;

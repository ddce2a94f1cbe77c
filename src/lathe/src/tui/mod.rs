//! The workbench: runs, curves, dialogues, experiments and launches on one screen.
//!
//! ```text
//!  keys, mouse, signals ─┐                                  ┌─► draw(&App, frame)        only reads
//!  followed runs, jobs ──┴─► driver ─► Action ─► App::update ┴─► Effect ─► driver         carries out
//! ```
//! `update` is pure: no clock, no file, no process. All I/O is in `driver` and in the jobs that effects carry.
//! A page is one folder of `pages`; `bindings` is the one table of keys from which the key map, help, footer, palette and
//! manual are made; `theme` turns roles into colours. Live runs and replays reach the pages as the same fold, [`runlog::RunState`].

pub mod action;
pub mod app;
pub mod bindings;
pub mod driver;
pub mod export;
pub mod greeting;
pub mod input;
pub mod keymap;
pub mod modal;
pub mod pages;
pub mod paint;
pub mod screen;
pub mod settings;
pub mod shared;
pub mod sources;
pub mod still;
pub mod theme;
pub mod watching;
pub mod widgets;

#[cfg(test)]
pub mod testing;

pub use driver::{Options, open};

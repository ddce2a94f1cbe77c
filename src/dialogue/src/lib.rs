//! WHAT IS SAID: prompts from Parquet, chat templates, tokens, sessions with tools, scores.
//!
//! ```text
//!  Parquet ─► Row ─► ChatTemplate + Tokenizer ─► Session ◄─► Generator (embedded, later vLLM, SGLang)
//!                                                  │  ▲
//!                                                  ▼  │ tool call / result
//!                                                 Tool        ─► Rollout ─► Scorer
//! ```
//! Token in, token out: ids are kept from generation to loss and text is never tokenised again. No libtorch.

pub mod chat;
pub mod data;
pub mod generate;
mod http;
pub mod message;
pub mod preferences;
mod process;
pub mod recipe;
pub mod rollout;
pub mod score;
pub mod session;
pub mod tokenizer;
pub mod tool;

//! A few token ids in each checkpoint with their text and log-probs: `logprobs.json`. When it is loaded they are computed
//! again, and weights, code or a tokenizer that are not those that were saved are told before they train.

use std::fs;
use std::io;
use std::path::Path;

use dialogue::tokenizer::Tokenizer;
use runlog::number::Number;
use serde::{Deserialize, Serialize};
use tch::Kind;

use super::CheckpointError;
use crate::model::transformer::Transformer;
use crate::sync::{Agreement, canary_logprobs};

const FILE: &str = "logprobs.json";

#[derive(Debug, Serialize, Deserialize)]
struct Sequence {
    ids: Vec<u32>,
    text: String,
    /// ln p of each id but the first, at temperature 1.
    logprobs: Vec<Number>,
}

/// Computes and writes the log-probs of `sequences`, each of two ids or more.
pub(super) fn write(
    directory: &Path,
    model: &Transformer,
    tokenizer: &Tokenizer,
    sequences: &[Vec<u32>],
) -> io::Result<()> {
    let sequences: Vec<Sequence> = sequences
        .iter()
        .map(|ids| {
            Ok(Sequence {
                logprobs: logprobs(model, ids).map_err(io::Error::other)?,
                text: text_of(tokenizer, ids),
                ids: ids.clone(),
            })
        })
        .collect::<io::Result<_>>()?;
    fs::write(directory.join(FILE), serde_json::to_vec(&sequences)?)
}

/// Compares what `model`, with the weights of the checkpoint at `path`, says of the stored ids. A checkpoint without such a file
/// is of an older version, and is taken as it is.
pub fn check_model(path: &Path, model: &Transformer, compute: Kind) -> Result<(), String> {
    let _no_grad = tch::no_grad_guard();
    for sequence in read(path).map_err(|error| error.to_string())? {
        let found = canary_logprobs(model, &sequence.ids).map_err(|error| error.to_string())?;
        let stored = sequence.logprobs.iter().map(|stored| stored.0 as f32);
        // Where both have no number the weights were broken when they were saved, and are the same.
        let pairs = found.iter().copied().zip(stored);
        let known = pairs.filter(|(found, stored)| !(found.is_nan() && stored.is_nan()));
        let (known, stored): (Vec<f32>, Vec<f32>) = known.unzip();
        let is_whole = found.len() == sequence.logprobs.len();
        let agreement = Agreement::of(&known, &stored, compute).filter(|_| is_whole);
        if !agreement.is_some_and(Agreement::is_close) {
            let (difference, tolerance) =
                agreement.map_or((f64::NAN, 0.0), |of| (of.judged, of.tolerance));
            return Err(format!(
                "its stored log-probs differ from those computed now by {difference} nats (at most {tolerance} expected); the weights, their config.json or the program that computes them are others"
            ));
        }
    }
    Ok(())
}

/// Compares the text that `tokenizer` gives the stored ids.
pub fn check_tokenizer(path: &Path, tokenizer: &Tokenizer) -> Result<(), CheckpointError> {
    for sequence in read(path)? {
        let text = text_of(tokenizer, &sequence.ids);
        if text != sequence.text {
            return Err(CheckpointError::Broken {
                path: path.to_owned(),
                problem: format!(
                    "it was trained with another tokenizer: ids that were {:?} are {text:?} in {}",
                    sequence.text,
                    tokenizer.directory().display()
                ),
            });
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<Sequence>, CheckpointError> {
    let text = match fs::read(path.join(FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            return Err(CheckpointError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    serde_json::from_slice(&text).map_err(|error| CheckpointError::Broken {
        path: path.to_owned(),
        problem: format!("its {FILE} cannot be read ({error})"),
    })
}

fn logprobs(model: &Transformer, ids: &[u32]) -> Result<Vec<Number>, crate::torch_ext::Error> {
    let _no_grad = tch::no_grad_guard();
    let logprobs = canary_logprobs(model, ids)?;
    Ok(logprobs
        .into_iter()
        .map(|logprob| Number(f64::from(logprob)))
        .collect())
}

fn text_of(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    // Ids that only the model knows have no text; then there is nothing to compare.
    tokenizer.decode(ids, false).unwrap_or_default()
}

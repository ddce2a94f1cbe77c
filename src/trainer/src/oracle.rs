//! `lathe-trainer oracle DIR OUT`: what this build gives for stored cases of a reference, in the layout of the cases, for
//! anyone to judge. Functions and parameters that it does not know are named, and the rest goes on.

mod rewards;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::objective::oracle::{self, Answered};

/// The only file of cases without tensors.
const REWARDS: &str = "reward_scores";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: cannot read the directory of cases: {source}")]
    Directory {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path}: cannot make the directory for the answers: {source}")]
    Out {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{0} holds no cases; expected <function>.json files")]
    Empty(PathBuf),
}

/// Answers every `<function>.json` of `directory` into `out`; `say` gets a line a function. Whether nothing was left out.
pub fn answer_all(directory: &Path, out: &Path, say: &mut dyn FnMut(&str)) -> Result<bool, Error> {
    let functions = functions(directory)?;
    std::fs::create_dir_all(out).map_err(|source| Error::Out {
        path: out.to_owned(),
        source,
    })?;
    let mut is_whole = true;
    for function in &functions {
        let answered = if function == REWARDS {
            rewards::answer(directory, out)
        } else {
            oracle::answer(directory, function, out)
        };
        match answered {
            Ok(answered) => {
                is_whole &= answered.problems.is_empty();
                say(&line(function, &answered));
            }
            Err(error) => {
                is_whole = false;
                say(&format!("{function}: nothing computed: {error}"));
            }
        }
    }
    Ok(is_whole)
}

fn functions(directory: &Path) -> Result<Vec<String>, Error> {
    let read = |source| Error::Directory {
        path: directory.to_owned(),
        source,
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            names.extend(
                path.file_stem()
                    .map(|name| name.to_string_lossy().into_owned()),
            );
        }
    }
    if names.is_empty() {
        return Err(Error::Empty(directory.to_owned()));
    }
    names.sort();
    Ok(names)
}

fn line(function: &str, answered: &Answered) -> String {
    let Answered {
        cases,
        computed,
        refused,
        problems,
    } = answered;
    let mut line = format!("{function}: {computed} of {cases} cases computed");
    if *refused > 0 {
        let _ = write!(line, ", {refused} of them refused");
    }
    for problem in problems {
        let _ = write!(line, "\n    {problem}");
    }
    line
}

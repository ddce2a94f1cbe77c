//! `lathe export RUN`: its metrics, curves, a report, or a page of the workbench, in a file.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::SystemTime;

use runlog::exit_code;
use runlog::run_dir::RunDir;

use super::arguments::{ExportArguments, WorkbenchArguments};
use super::{Failure, Output, runs};
use crate::export::{self, ExportError, Extras, Format, Options, Target, write_whole};
use crate::headless;
use crate::tui::settings::Places;
use crate::tui::{still, theme};

/// Documents are read on white.
const THEME: &str = "light";

pub fn export(
    arguments: &ExportArguments,
    workbench: &WorkbenchArguments,
    out: &mut Output,
) -> Result<i32, Failure> {
    let run = runs::find(&arguments.place, &arguments.run)?;
    let format = arguments.format().map_err(Failure::usage)?;
    let target = match &arguments.output {
        // Into a folder: under the run's name.
        Some(path) if path.is_dir() => {
            Target::File(path.join(format!("{}.{}", run.name(), format.extension())))
        }
        Some(path) if path.as_os_str() != "-" => Target::File(path.clone()),
        _ => Target::StandardOutput,
    };
    if let Target::File(path) = &target
        && workbench.read_only
    {
        return Err(Failure::usage(format!(
            "--read-only: {} is not written",
            path.display()
        )));
    }
    if target == Target::StandardOutput && format.is_binary() && std::io::stdout().is_terminal() {
        return Err(Failure::usage(format!(
            "{} is not for the terminal; give -o FILE, or redirect",
            format.extension()
        )));
    }
    if !arguments.with.is_empty() && !matches!(format, Format::Svg | Format::Png) {
        return Err(Failure::usage(format!(
            "--with is for curves in svg and png; {} holds one run",
            format.extension()
        )));
    }
    let others: Vec<RunDir> = arguments
        .with
        .iter()
        .map(|other| runs::find(&arguments.place, other))
        .collect::<Result<_, _>>()?;
    let content = match arguments.screen {
        Some(page) => {
            let wanted = workbench.theme.as_deref().unwrap_or("dark");
            let text = still::svg(&still::Wanted {
                run: run.path().to_owned(),
                page,
                theme: load_theme(wanted)?,
                size: arguments.size,
            })
            .map_err(Failure::unexpected)?;
            Some(text.into_bytes())
        }
        None => None,
    };
    let write = |out: &mut (dyn Write + Send)| -> Result<(), ExportError> {
        if let Some(content) = &content {
            return Ok(out.write_all(content)?);
        }
        let (state, bad_lines) = headless::read(&run)?;
        let extras = Extras::read(&run, &state, bad_lines, SystemTime::now());
        let options = Options {
            metrics: arguments.metrics.clone(),
            axis: arguments.x.into(),
            smoothing: arguments.smooth,
            theme: load_theme(workbench.theme.as_deref().unwrap_or(THEME))
                .map_err(|failure| std::io::Error::other(failure.to_string()))?,
            width: arguments.width,
            beside: others
                .iter()
                .map(|other| Ok((other.name().to_owned(), headless::read(other)?.0)))
                .collect::<std::io::Result<_>>()?,
        };
        export::export(&run, &state, &extras, format, &options, out)
    };
    match target {
        Target::File(path) => {
            write_whole(&path, |file| write(file)).map_err(told)?;
            eprintln!("wrote {}", path.display());
        }
        Target::StandardOutput => {
            let mut bytes = Vec::new();
            write(&mut bytes).map_err(told)?;
            out.bytes(&bytes)?;
        }
    }
    Ok(exit_code::OK)
}

fn told(error: ExportError) -> Failure {
    match error {
        ExportError::NoMetric { .. } | ExportError::TooLarge { .. } => {
            Failure::usage(error.to_string())
        }
        ExportError::Empty => Failure::input(error.to_string()),
        ExportError::Write(error) => Failure::unexpected(format!("cannot export: {error}")),
    }
}

fn load_theme(name: &str) -> Result<theme::Theme, Failure> {
    let directories: Vec<PathBuf> = [
        Some(PathBuf::from("themes")),
        Places::find().as_ref().map(Places::themes),
    ]
    .into_iter()
    .flatten()
    .collect();
    theme::load(name, &directories).map_err(|error| Failure::usage(error.to_string()))
}

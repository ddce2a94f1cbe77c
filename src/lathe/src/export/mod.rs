//! A run, or what the workbench shows of it, in files that other programs read.
//!
//! ```text
//!  RunState ─► table   csv · json · parquet     every value of every metric, one a row
//!           ─► curves  ─► picture ─► svg · png  a grid of panels: raw line, smoothed line, axes, units
//!           ─► report  html                     one file, nothing outside it, no script
//!  the workbench's screen ─► cells              svg
//! ```
//! The same run gives the same bytes. Knows nothing of keys and pages.

pub mod cells;
pub mod curves;
mod file;
pub mod picture;
mod report;
mod table;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use runlog::filter::{Resolved, resolve};
use runlog::run_dir::RunDir;
use runlog::series::XAxis;
use runlog::state::RunState;
use wildmatch::WildMatch;

pub use file::{Target, new_file, write_whole};
pub use report::Extras;

use crate::tui::theme::Theme;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One value a line: name, step, milliseconds, value
    Csv,
    /// A list of objects with the same four; NaN and infinities as strings
    Json,
    /// The same four columns
    Parquet,
    /// Curves as a grid of panels
    Svg,
    /// The same as pixels
    Png,
    /// A report in one file: summary, configuration, curves, alarms, dialogues
    Html,
}

impl Format {
    /// The end of a file's name.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Parquet => "parquet",
            Self::Svg => "svg",
            Self::Png => "png",
            Self::Html => "html",
        }
    }

    /// Would only make a mess of a terminal.
    pub fn is_binary(self) -> bool {
        matches!(self, Self::Parquet | Self::Png)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("cannot write the export: {0}")]
    Write(#[from] io::Error),
    #[error("no metric of this run fits `{pattern}`; it has {count}, such as {examples}")]
    NoMetric {
        pattern: String,
        count: usize,
        examples: String,
    },
    #[error("this run has no metrics yet: there is nothing to draw")]
    Empty,
    #[error("the picture would be {width} x {height} pixels; give fewer metrics")]
    TooLarge { width: u32, height: u32 },
}

/// How a run is exported.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names, globs, or words of the filter (`reward`, `kl`); none: all in tables, the usual ones in pictures.
    pub metrics: Vec<String>,
    pub axis: XAxis,
    /// Weight of the smoothed line, 0 (none) to below 1.
    pub smoothing: f64,
    pub theme: Theme,
    /// Pixels of a picture.
    pub width: u32,
    /// Runs whose curves are drawn beside the run's own.
    pub beside: Vec<(String, RunState)>,
}

/// Writes `run` as `format`.
pub fn export(
    run: &RunDir,
    state: &RunState,
    extras: &Extras,
    format: Format,
    options: &Options,
    out: &mut (dyn Write + Send),
) -> Result<(), ExportError> {
    match format {
        Format::Csv => table::csv(state, &chosen(state, &options.metrics)?, out),
        Format::Json => table::json(state, &chosen(state, &options.metrics)?, out),
        Format::Parquet => table::parquet(state, &chosen(state, &options.metrics)?, out),
        Format::Svg => {
            let sheet = sheet(run, state, options)?;
            Ok(out.write_all(picture::svg(&sheet, &options.theme, options.width).as_bytes())?)
        }
        Format::Png => {
            let sheet = sheet(run, state, options)?;
            Ok(out.write_all(&picture::png(&sheet, &options.theme, options.width)?)?)
        }
        Format::Html => {
            let curves = match sheet(run, state, options) {
                Ok(sheet) => Some(picture::svg(&sheet, &options.theme, options.width)),
                Err(ExportError::Empty) => None,
                Err(error) => return Err(error),
            };
            let text = report::html(run, state, extras, curves.as_deref());
            Ok(out.write_all(text.as_bytes())?)
        }
    }
}

/// The metrics that were asked for, in that order; all when none was.
pub fn chosen(state: &RunState, patterns: &[String]) -> Result<Vec<String>, ExportError> {
    if patterns.is_empty() {
        return Ok(state.series.names().map(str::to_owned).collect());
    }
    let mut chosen: Vec<String> = Vec::new();
    for pattern in patterns {
        let is_glob = pattern.contains(['*', '?']);
        let found: Vec<&str> = if is_glob {
            let glob = WildMatch::new(pattern);
            state
                .series
                .names()
                .filter(|name| glob.matches(name))
                .collect()
        } else {
            match resolve(pattern, state.series.names()) {
                Resolved::One(name) => vec![name],
                Resolved::Many(names) => names,
                Resolved::None => Vec::new(),
            }
        };
        if found.is_empty() {
            let examples: Vec<&str> = state.series.names().take(3).collect();
            return Err(ExportError::NoMetric {
                pattern: pattern.clone(),
                count: state.series.len(),
                examples: examples.join(", "),
            });
        }
        for name in found {
            if !chosen.iter().any(|known| known == name) {
                chosen.push(name.to_owned());
            }
        }
    }
    Ok(chosen)
}

fn sheet(run: &RunDir, state: &RunState, options: &Options) -> Result<curves::Sheet, ExportError> {
    let metrics = if options.metrics.is_empty() {
        curves::usual(&[state])
    } else {
        chosen(state, &options.metrics)?
    };
    if metrics.is_empty() {
        return Err(ExportError::Empty);
    }
    let view = curves::View {
        axis: options.axis,
        smoothing: options.smoothing,
        ..curves::View::default()
    };
    let shown = [curves::Shown {
        name: run.name(),
        color: 0,
        state,
    }]
    .into_iter()
    .chain(
        (1..)
            .zip(&options.beside)
            .map(|(color, (name, state))| curves::Shown { name, color, state }),
    )
    .collect::<Vec<_>>();
    let title = match options.beside.len() {
        0 => run.name().to_owned(),
        others => format!("{} runs", others + 1),
    };
    Ok(curves::Sheet {
        title,
        panels: metrics
            .iter()
            .filter_map(|metric| curves::panel(&shown, metric, &view))
            .collect(),
    })
}

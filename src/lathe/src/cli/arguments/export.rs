//! `lathe export`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::RunsPlace;
use crate::export::Format;
use crate::tui::pages::PageId;

/// What curves are drawn against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum XAxis {
    Step,
    Time,
    Tokens,
    Samples,
}

impl From<XAxis> for runlog::series::XAxis {
    fn from(axis: XAxis) -> Self {
        match axis {
            XAxis::Step => Self::Step,
            XAxis::Time => Self::Time,
            XAxis::Tokens => Self::Tokens,
            XAxis::Samples => Self::Samples,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  lathe export latest --format csv -o run.csv
  lathe export latest --metrics reward --metrics 'actor/*' -o curves.svg
  lathe export guarded --with unguarded --metrics reward -o both.svg
  lathe export latest --format html -o report.html
  lathe export latest --screen live --size 120x36 -o screen.svg")]
pub struct ExportArguments {
    /// A path, a name, the start of an id, or `latest`
    pub run: OsString,
    /// [default: as the name after -o ends, else csv]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Where to write; a folder: RUN.FORMAT in it; `-` or nothing: standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Only these: names, globs, or words such as reward and kl [default: all; in pictures the usual ones]
    #[arg(long, value_name = "GLOB", num_args = 1)]
    pub metrics: Vec<String>,
    /// In pictures: the curves of this run beside it; may be given several times
    #[arg(long, value_name = "RUN", num_args = 1, conflicts_with = "screen")]
    pub with: Vec<OsString>,
    /// What curves are drawn against
    #[arg(long, value_enum, default_value = "step")]
    pub x: XAxis,
    /// Weight of the smoothed line over the raw one, 0 (none) to 0.999
    #[arg(long, value_name = "WEIGHT", default_value_t = 0.8, value_parser = weight)]
    pub smooth: f64,
    /// Width of a picture
    #[arg(long, value_name = "PIXELS", default_value_t = 1240, value_parser = clap::value_parser!(u32).range(320..=8000))]
    pub width: u32,
    /// A page of the workbench on this run, as SVG
    #[arg(long, value_name = "PAGE", value_parser = page, conflicts_with_all = ["format", "metrics"])]
    pub screen: Option<PageId>,
    /// Columns and rows of the screen
    #[arg(long, value_name = "COLUMNSxROWS", default_value = "120x40", value_parser = size)]
    pub size: (u16, u16),
    #[command(flatten)]
    pub place: RunsPlace,
}

impl ExportArguments {
    /// As asked, else as the file's name says; the error: its name says nothing that is known.
    pub fn format(&self) -> Result<Format, String> {
        if self.screen.is_some() {
            return Ok(Format::Svg);
        }
        let extension = self
            .output
            .as_ref()
            .and_then(|path| path.extension())
            .and_then(|extension| extension.to_str());
        let named = Format::value_variants()
            .iter()
            .copied()
            .find(|format| Some(format.extension()) == extension);
        match (self.format.or(named), extension) {
            (Some(format), _) => Ok(format),
            (None, None) => Ok(Format::Csv),
            (None, Some(other)) => {
                let known: Vec<&str> = Format::value_variants()
                    .iter()
                    .map(|format| format.extension())
                    .collect();
                Err(format!(
                    "no format is called .{other}; name the file with one of .{}, or give --format",
                    known.join(", .")
                ))
            }
        }
    }
}

fn weight(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(weight) if (0.0..=0.999).contains(&weight) => Ok(weight),
        _ => Err("expected a number from 0 to 0.999".to_owned()),
    }
}

fn page(text: &str) -> Result<PageId, String> {
    PageId::ALL
        .into_iter()
        .find(|page| page.title().eq_ignore_ascii_case(text))
        .ok_or_else(|| {
            let titles: Vec<String> = PageId::ALL
                .iter()
                .map(|page| page.title().to_lowercase())
                .collect();
            format!("expected one of {}", titles.join(", "))
        })
}

fn size(text: &str) -> Result<(u16, u16), String> {
    let parsed = text
        .split_once('x')
        .and_then(|(columns, rows)| Some((columns.parse().ok()?, rows.parse().ok()?)));
    match parsed {
        Some((columns @ 20..=400, rows @ 6..=200)) => Ok((columns, rows)),
        _ => Err("expected columns and rows such as 120x40, at most 400x200".to_owned()),
    }
}

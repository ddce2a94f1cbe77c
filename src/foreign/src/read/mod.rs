//! A reader a format: from a saved place, the next things its log says. None of them writes, locks or migrates anything.

pub(crate) mod csv;
pub(crate) mod json_lines;
pub(crate) mod mlflow;
pub(crate) mod mlflow_files;
pub(crate) mod mlflow_sqlite;
mod notes;
pub(crate) mod sqlite;
pub(crate) mod tensorboard;
pub(crate) mod tensorboard_value;
pub(crate) mod trackio;
pub(crate) mod verl_console;
pub(crate) mod verl_rows;
pub(crate) mod wandb;
pub(crate) mod wandb_stats;

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::item::Batch;
use crate::{ForeignError, Format, Found, Options};

/// Reads one run, in the order of its log.
pub trait Reader: Debug + Send {
    /// The next things, some thousands at most; none where there is nothing new. `is_last`: nobody will read again soon, so
    /// what may still be in the writing is taken where that is safe, and told where it is not.
    fn read(&mut self, is_last: bool) -> Result<Batch, ForeignError>;

    /// Where the next read goes on; also in another process.
    fn place(&self) -> Value;
}

/// A reader of a run, from its start or from a place that [`Reader::place`] gave.
pub fn open(
    found: &Found,
    place: Option<&Value>,
    options: &Options,
) -> Result<Box<dyn Reader>, ForeignError> {
    let path = found.path.clone();
    Ok(match found.format {
        Format::Verl => Box::new(verl_rows::VerlRows::new(path, place_of(place))),
        Format::VerlConsole => Box::new(verl_console::VerlConsole::new(path, place_of(place))),
        Format::TensorBoard => Box::new(tensorboard::TensorBoard::new(path, place_of(place))),
        Format::Wandb => Box::new(wandb::Wandb::new(path, place_of(place))),
        Format::Trackio => {
            let place: trackio::Place = place_of(place);
            Box::new(sqlite::Rows::new(path, &found.run, place))
        }
        Format::Mlflow => Box::new(mlflow_files::MlflowFiles::new(path, place_of(place))),
        Format::MlflowSqlite => {
            let place: mlflow_sqlite::Place = place_of(place);
            Box::new(sqlite::Rows::new(path, &found.run, place))
        }
        Format::Csv => Box::new(csv::Csv::new(path, options, place_of(place))),
        Format::Jsonl => Box::new(json_lines::JsonLines::new(path, options, place_of(place))),
    })
}

/// A place that cannot be read is the start: what was read before is then told apart by its steps.
fn place_of<T: DeserializeOwned + Default>(place: Option<&Value>) -> T {
    place
        .and_then(|place| serde_json::from_value(place.clone()).ok())
        .unwrap_or_default()
}

fn place_value<T: serde::Serialize>(place: &T) -> Value {
    serde_json::to_value(place).expect("places have text keys and no floats")
}

//! What pages ask of a running run over its control socket, and what it answers.

use std::path::Path;
use std::time::Duration;

use remote::near::control::connect;
use runlog::RunDir;
use runlog::control::{Answer, Client, ClientError, Command as Asked, Status};

use crate::launch;
use crate::tui::shared::Shared;
use crate::tui::widgets::text;

/// A command that can be applied at once is answered within this; a longer step's end is told by the run's events.
const GLANCE: Duration = Duration::from_millis(500);

/// What a person asks of the run.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    Status,
    Do(Asked),
}

/// How a request went.
#[derive(Debug)]
pub enum Told {
    Status(Box<Status>),
    /// In words: applied, or accepted and for when.
    Done(String),
    Refused(String),
    /// The run could not be asked.
    Failed(String),
}

/// Why the current run cannot be controlled now; None: it can.
pub fn why_not(shared: &Shared) -> Option<String> {
    let Some(key) = &shared.current else {
        return Some("no run is chosen: page 1, enter".to_owned());
    };
    if shared.replay.is_some() {
        return Some("this is a replay; P goes back to the run's end".to_owned());
    }
    match shared.runs.find(key) {
        Some(entry) if entry.is_running() => None,
        Some(entry) => Some(format!(
            "{} is not running: {}",
            key.name(),
            entry.state_word()
        )),
        // Outside of the roots: its own events say whether it has ended.
        None => match shared.current_run().map(|run| &run.state.ended) {
            Some(None) => None,
            _ => Some(format!("{} has ended", key.name())),
        },
    }
}

/// Carries it out; blocks, so it belongs into a job.
pub fn carry_out(run: &Path, ask: &Ask) -> Told {
    let run_dir = match RunDir::open(run) {
        Ok(run_dir) => run_dir,
        Err(error) => return Told::Failed(error.to_string()),
    };
    let asked = || -> Result<Told, ClientError> {
        let mut client = connect(&run_dir, &Client::name("lathe"), &launch::targets())?;
        let command = match ask {
            Ask::Status => return Ok(Told::Status(Box::new(client.status()?))),
            Ask::Do(command) => command,
        };
        let (id, first) = client.ask(command.clone())?;
        let last = if first.is_last() {
            first
        } else {
            match client.wait(id, GLANCE) {
                Ok(last) => last,
                // A step goes on, or the run is ending as it was told to.
                Err(ClientError::Silent { .. } | ClientError::Closed { .. }) => first,
                Err(error) => return Err(error),
            }
        };
        Ok(match last {
            Answer::Applied { applied, .. } => {
                let words = match (&applied.note, applied.from, applied.to) {
                    (Some(note), _, _) => format!("{command}: {note}"),
                    (None, Some(from), Some(to)) => format!(
                        "{command}: {} before, {} from step {}",
                        text::number(from.0),
                        text::number(to.0),
                        applied.from_step.unwrap_or(applied.step)
                    ),
                    _ => match (&applied.before, &applied.after) {
                        (Some(before), Some(after)) => {
                            format!("{command}: {before} before, {after} now")
                        }
                        _ => format!("{command}: done after step {}", applied.step),
                    },
                };
                Told::Done(words)
            }
            Answer::Accepted { when, .. } => {
                Told::Done(format!("{command}: accepted, applies {when}"))
            }
            Answer::Refused { reason, .. } => {
                Told::Refused(format!("{command} was refused: {reason}"))
            }
            Answer::Status { .. } | Answer::Unknown => {
                Told::Done(format!("{command}: answered in words of a newer version"))
            }
        })
    };
    asked().unwrap_or_else(|error| Told::Failed(error.to_string()))
}

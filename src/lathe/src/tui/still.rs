//! One page of the workbench on one run, drawn without a terminal: for pictures. The same code as on the screen; all that
//! the workbench asks for is read here and now.

use std::path::PathBuf;

use jiff::Timestamp;
use runlog::run_dir::RunDir;

use super::action::{Action, Command, Effect, Global, Message};
use super::app::App;
use super::keymap::Keymap;
use super::pages::PageId;
use super::settings::PageState;
use super::shared::{Glyphs, PlotMarks, Project, RunKey, Shared};
use super::theme::Theme;
use super::{export, sources};
use crate::export::cells;
use crate::headless;

/// What is drawn.
#[derive(Debug)]
pub struct Wanted {
    pub run: PathBuf,
    pub page: PageId,
    pub theme: Theme,
    /// Columns and rows.
    pub size: (u16, u16),
}

/// More rounds of reading than any page needs: a page that never has enough must not hang the program.
const MOST_ROUNDS: usize = 10_000;

/// The page as SVG. The reason names what could not be read.
pub fn svg(wanted: &Wanted) -> Result<String, String> {
    let theme = wanted.theme.clone();
    let app = app(wanted)?;
    Ok(cells::svg(&export::screen(&app), &theme))
}

fn app(wanted: &Wanted) -> Result<App, String> {
    let directory = std::env::current_dir().map_err(|error| format!("where are we? {error}"))?;
    let root = wanted
        .run
        .parent()
        .map_or_else(|| directory.clone(), std::path::Path::to_owned);
    let (columns, rows) = wanted.size;
    let runs_roots = vec![root];
    let shared = Shared {
        runs: sources::list_now(&runs_roots),
        project: Project {
            experiments: directory.join("experiments"),
            directory,
            runs_roots,
        },
        theme: wanted.theme.clone(),
        glyphs: Glyphs {
            unicode: true,
            plot: PlotMarks::Braille,
        },
        keymap: Keymap::default(),
        kept: PageState::default(),
        front: wanted.page,
        columns,
        rows,
        now: Timestamp::now(),
        open: std::collections::BTreeMap::new(),
        current: None,
        marked: Vec::new(),
        step: None,
        replay: None,
        is_frozen: false,
        is_read_only: true,
        notice: None,
        wish: None,
    };
    let mut app = App::new(shared);
    let mut effects = app.show_run(RunKey::new(&wanted.run));
    effects.extend(app.update(Action::Command(Command::Global(Global::Go(wanted.page)))));
    for _ in 0..MOST_ROUNDS {
        effects.extend(app.settle());
        if effects.is_empty() {
            break;
        }
        let mut more = Vec::new();
        for effect in effects {
            match effect {
                Effect::OpenRun(key) => {
                    for message in open(&key)? {
                        more.extend(app.update(Action::Message(message)));
                    }
                }
                Effect::Job { work, .. } => {
                    more.extend(app.update(Action::Message(work())));
                }
                // Nothing else changes what one picture shows.
                _ => {}
            }
        }
        effects = more;
    }
    // What was said on the way is not part of the page.
    app.shared.notice = None;
    Ok(app)
}

fn open(key: &RunKey) -> Result<[Message; 2], String> {
    let run_dir = RunDir::open(key.path()).map_err(|error| error.to_string())?;
    let (state, _) =
        headless::read(&run_dir).map_err(|error| format!("cannot read {key}: {error}"))?;
    Ok([
        Message::RunOpened {
            key: key.clone(),
            state: Box::new(state),
        },
        Message::CaughtUp { key: key.clone() },
    ])
}

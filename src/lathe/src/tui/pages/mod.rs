//! The pages, a folder each. A page keeps its own state, changes it in `update`, and draws from it and from `Shared`.
//!
//! A new page gives: its commands and their bindings, its `Page`, and one arm in each `match` of this file.

mod asking;
pub mod bandit;
pub mod compare;
pub mod config;
pub mod launch;
pub mod live;
pub mod logs;
pub mod rollouts;
pub mod runs;
pub mod timeline;
mod words;

use crossterm::event::{KeyEvent, MouseEvent};
use ratatui::Frame;
use ratatui::layout::Rect;

use super::action::{self, Effect, PageMessage};
use super::bindings::Binding;
use super::shared::Shared;
use crate::export::curves::Panel;
use crate::headless::judges;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PageId {
    Runs,
    Live,
    Timeline,
    Rollouts,
    Config,
    Launch,
    Compare,
    Logs,
    Bandit,
}

impl PageId {
    pub const ALL: [Self; 9] = [
        Self::Runs,
        Self::Live,
        Self::Timeline,
        Self::Rollouts,
        Self::Config,
        Self::Launch,
        Self::Compare,
        Self::Logs,
        Self::Bandit,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Runs => "Runs",
            Self::Live => "Live",
            Self::Timeline => "Timeline",
            Self::Rollouts => "Rollouts",
            Self::Config => "Config",
            Self::Launch => "Launch",
            Self::Compare => "Compare",
            Self::Logs => "Logs",
            Self::Bandit => "Bandit",
        }
    }

    /// The title in four letters, for tabs on a narrow screen.
    pub fn short_title(self) -> &'static str {
        match self {
            Self::Runs => "Runs",
            Self::Live => "Live",
            Self::Timeline => "Time",
            Self::Rollouts => "Roll",
            Self::Config => "Conf",
            Self::Launch => "Lnch",
            Self::Compare => "Comp",
            Self::Logs => "Logs",
            Self::Bandit => "Band",
        }
    }

    /// It shows a run and nothing without one.
    pub fn needs_run(self) -> bool {
        matches!(
            self,
            Self::Live
                | Self::Timeline
                | Self::Rollouts
                | Self::Compare
                | Self::Logs
                | Self::Bandit
        )
    }

    /// It has a tab: a run without arms has no use for page Bandit, which its key still shows.
    pub fn is_listed(self, shared: &Shared, front: Self) -> bool {
        let has_arms = || {
            let run = shared.current_run();
            run.is_some_and(|run| run.state.bandit.is_some() || judges::has_any(&run.state))
        };
        self != Self::Bandit || front == Self::Bandit || has_arms()
    }

    /// The page `by` places on, around the end.
    #[must_use]
    pub fn step(self, by: isize) -> Self {
        let count = Self::ALL.len() as isize;
        Self::ALL[(self as isize + by).rem_euclid(count) as usize]
    }
}

/// The rows that a page gives to the table of bindings.
pub fn bindings(page: PageId) -> &'static [Binding] {
    match page {
        PageId::Runs => runs::BINDINGS,
        PageId::Live => live::BINDINGS,
        PageId::Timeline => timeline::BINDINGS,
        PageId::Rollouts => rollouts::BINDINGS,
        PageId::Config => config::BINDINGS,
        PageId::Launch => launch::BINDINGS,
        PageId::Compare => compare::BINDINGS,
        PageId::Logs => logs::BINDINGS,
        PageId::Bandit => bandit::BINDINGS,
    }
}

/// What reaches a page.
#[derive(Debug)]
pub enum Input<'a> {
    /// One of its own commands.
    Command(action::Command),
    /// A key while `is_typing`: for the page's text field.
    Key(KeyEvent),
    /// Pasted text while `is_typing`.
    Paste(&'a str),
    /// A mouse event inside of `area`, where the page was drawn.
    Mouse(MouseEvent, Rect),
    /// The page comes to the front.
    Shown,
    /// The answer to one of its own jobs, or what another page asks of it.
    Message(&'a mut PageMessage),
    /// The current run or the marked ones changed, or their data did (once a batch, not once an event).
    DataChanged,
}

/// A page's behaviour. Pages that have nothing to say to a question keep the default answer.
pub trait Page {
    /// Takes one input; may change `shared`; gives what is to be done.
    fn update(&mut self, input: Input<'_>, shared: &mut Shared) -> Vec<Effect>;

    /// Draws into `area`; only reads.
    fn draw(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect);

    /// A text field has the keys: bindings do not apply, except ctrl-c and ctrl-z.
    fn is_typing(&self) -> bool {
        false
    }

    /// `esc`: gives up the innermost thing that is begun (a search, a zoom, a selection). False: there was none.
    fn back(&mut self, _shared: &mut Shared) -> bool {
        false
    }

    /// What `y` copies: the text, and what it is ("3 rows of the table").
    fn copied(&self, _shared: &Shared) -> Option<(String, String)> {
        None
    }

    /// The curves as they stand on the screen (zoomed, smoothed), for a file. None: the usual ones are taken.
    fn curves(&self, _shared: &Shared) -> Vec<Panel> {
        Vec::new()
    }

    /// What must not be lost by leaving ("experiments/a.yaml has unsaved changes"); asked before quitting.
    fn unsaved(&self) -> Option<String> {
        None
    }

    /// One line on what the page shows now, for the header: "80 of 500 runs".
    fn status(&self, _shared: &Shared) -> String {
        String::new()
    }
}

/// Every page's state.
#[derive(Debug, Default)]
pub struct Pages {
    pub runs: runs::Runs,
    pub live: live::Live,
    pub timeline: timeline::Timeline,
    pub rollouts: rollouts::Rollouts,
    pub config: config::Config,
    pub launch: launch::Launch,
    pub compare: compare::Compare,
    pub logs: logs::Logs,
    pub bandit: bandit::Bandit,
}

impl Pages {
    pub fn get(&self, page: PageId) -> &dyn Page {
        match page {
            PageId::Runs => &self.runs,
            PageId::Live => &self.live,
            PageId::Timeline => &self.timeline,
            PageId::Rollouts => &self.rollouts,
            PageId::Config => &self.config,
            PageId::Launch => &self.launch,
            PageId::Compare => &self.compare,
            PageId::Logs => &self.logs,
            PageId::Bandit => &self.bandit,
        }
    }

    pub fn get_mut(&mut self, page: PageId) -> &mut dyn Page {
        match page {
            PageId::Runs => &mut self.runs,
            PageId::Live => &mut self.live,
            PageId::Timeline => &mut self.timeline,
            PageId::Rollouts => &mut self.rollouts,
            PageId::Config => &mut self.config,
            PageId::Launch => &mut self.launch,
            PageId::Compare => &mut self.compare,
            PageId::Logs => &mut self.logs,
            PageId::Bandit => &mut self.bandit,
        }
    }
}

/// Which page a command is for; None: a global one.
pub fn page_of(command: action::Command) -> Option<PageId> {
    use action::Command;
    match command {
        Command::Global(_) => None,
        Command::Runs(_) => Some(PageId::Runs),
        Command::Live(_) => Some(PageId::Live),
        Command::Timeline(_) => Some(PageId::Timeline),
        Command::Rollouts(_) => Some(PageId::Rollouts),
        Command::Config(_) => Some(PageId::Config),
        Command::Launch(_) => Some(PageId::Launch),
        Command::Compare(_) => Some(PageId::Compare),
        Command::Logs(_) => Some(PageId::Logs),
        Command::Bandit(_) => Some(PageId::Bandit),
    }
}

/// Which page asked for the job that answers.
pub fn page_of_message(message: &PageMessage) -> PageId {
    match message {
        PageMessage::Runs(_) => PageId::Runs,
        PageMessage::Live(_) => PageId::Live,
        PageMessage::Timeline(_) => PageId::Timeline,
        PageMessage::Rollouts(_) => PageId::Rollouts,
        PageMessage::Config(_) => PageId::Config,
        PageMessage::Launch(_) => PageId::Launch,
        PageMessage::Compare(_) => PageId::Compare,
        PageMessage::Logs(_) => PageId::Logs,
        PageMessage::Bandit(_) => PageId::Bandit,
    }
}

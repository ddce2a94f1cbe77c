//! What all pages see: the runs, those that are open, the chosen step, the theme, the clock. Pages change it only in `update`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use ratatui::layout::Rect;
use ratatui::style::Style;
use runlog::RunState;
use runlog::event::RunStatus;
use runlog::notes::Notes;
use runlog::run_dir::{Mirror, MirrorLink, RunInfo, Standing};
use runlog::state::{Glance, Liveness, Trouble};

use super::keymap::Keymap;
use super::modal::Confirm;
use super::pages::PageId;
use super::settings::PageState;
use super::theme::{Role, Theme};

/// A run's identity: its directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunKey(Arc<Path>);

impl RunKey {
    pub fn new(path: &Path) -> Self {
        Self(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The directory's name.
    pub fn name(&self) -> String {
        self.0.file_name().map_or_else(
            || self.to_string(),
            |name| name.to_string_lossy().into_owned(),
        )
    }
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())
    }
}

/// A row of the list of runs.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEntry {
    pub key: RunKey,
    pub info: RunInfo,
    /// None: its log cannot be read; see `problem`.
    pub glance: Option<Glance>,
    /// Note and tags.
    pub notes: Notes,
    /// Its log or its notes cannot be read: why.
    pub problem: Option<String>,
    /// `glance` tells a moment of its replay.
    pub is_replayed: bool,
    /// Of a run of another machine: how fresh its copy is.
    pub mirror: Option<Mirror>,
    /// What keeps it from being written down where it runs.
    pub trouble: Option<Trouble>,
}

impl RunEntry {
    /// `running`, `paused`, `finished`, `stopped`, `failed`, `dead`, `replay`, or `unreadable`.
    pub fn state_word(&self) -> &'static str {
        if self.is_replayed {
            return "replay";
        }
        self.glance.as_ref().map_or("unreadable", Glance::word)
    }

    /// How fresh the copy of a run of another machine is, and what keeps it waiting there; None: it is of this machine, or all
    /// of it is here.
    pub fn link_words(&self, now: Timestamp) -> Option<String> {
        let mirror = self.mirror.as_ref()?;
        match (&mirror.link, &mirror.standing) {
            (MirrorLink::Complete, _) => None,
            (MirrorLink::Listed | MirrorLink::Live { .. }, Standing::Queued { why }) => {
                Some(format!("waits {why}"))
            }
            (link, _) => Some(link.words(now)),
        }
    }

    /// The same in a few letters: `cut 12 s`; None also where the line is in order and little is missing.
    pub fn link_mark(&self, now: Timestamp) -> Option<String> {
        let mirror = self.mirror.as_ref()?;
        match (&mirror.link, &mirror.standing) {
            (MirrorLink::Disconnected { since, .. }, _) => {
                let seconds = now.duration_since(*since).as_secs().max(0);
                Some(format!("cut {seconds} s"))
            }
            (MirrorLink::Unwritten { .. }, _) => Some("not written".to_owned()),
            (MirrorLink::Live { .. }, Standing::Queued { .. }) => Some("waits".to_owned()),
            (MirrorLink::Live { behind_ms }, _) => {
                Some(format!("{:.1} s behind", *behind_ms as f64 / 1e3))
            }
            (MirrorLink::Connecting, _) => Some("connecting".to_owned()),
            (MirrorLink::Complete | MirrorLink::Listed, _) => None,
        }
    }

    /// The line to the other machine is cut, or the copy here cannot be written: what is shown may be old.
    pub fn is_cut_off(&self) -> bool {
        self.stuck().is_some()
    }

    /// Why what is shown may be old.
    pub fn stuck(&self) -> Option<&str> {
        let (_, reason) = self.mirror.as_ref()?.link.stuck()?;
        Some(reason)
    }

    /// Of a run of another machine: only what this list shows of it is here.
    pub fn is_only_listed(&self) -> bool {
        self.mirror
            .as_ref()
            .is_some_and(|mirror| mirror.link == MirrorLink::Listed)
    }

    /// Its process lives; it may be paused.
    pub fn is_running(&self) -> bool {
        self.glance
            .as_ref()
            .is_some_and(|glance| glance.liveness == Liveness::Running)
    }
}

/// Every run found, newest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunList {
    pub entries: Vec<RunEntry>,
    /// What ought to be in the list and is not.
    pub unlisted: Vec<Unlisted>,
    /// The list itself could not be read.
    pub problem: Option<String>,
    /// It was read at least once.
    pub is_read: bool,
    /// Another number at each list that reaches the workbench.
    pub version: u64,
}

/// Something whose runs, or which as a run, cannot be shown: with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unlisted {
    /// A directory that is a run and cannot be opened.
    Run(String),
    /// A target that cannot be asked for its runs.
    Target(String),
}

impl Unlisted {
    pub fn reason(&self) -> &str {
        match self {
            Self::Run(reason) | Self::Target(reason) => reason,
        }
    }

    pub fn word(&self) -> &'static str {
        match self {
            Self::Run(_) => "unreadable",
            Self::Target(_) => "unreachable",
        }
    }

    /// As a headline.
    pub fn title(&self) -> &'static str {
        match self {
            Self::Run(_) => "This run cannot be read",
            Self::Target(_) => "The runs of this target are not known",
        }
    }
}

impl RunList {
    pub fn find(&self, key: &RunKey) -> Option<&RunEntry> {
        self.entries.iter().find(|entry| entry.key == *key)
    }
}

/// A run whose events are folded here.
#[derive(Debug)]
pub struct OpenRun {
    pub key: RunKey,
    /// None until `run.json` was read with the list, or for a run outside of it.
    pub info: Option<RunInfo>,
    pub state: RunState,
    /// All that the log held when it was opened has been folded.
    pub is_caught_up: bool,
    pub bad_lines: u64,
    /// It was deleted, or can no longer be read.
    pub problem: Option<Problem>,
}

/// The one time cursor of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    pub key: RunKey,
    pub at_ms: f64,
    /// Zero until the log was read.
    pub length_ms: f64,
    pub speed: f64,
    pub is_playing: bool,
    pub marks_ms: Vec<f64>,
    pub steps_ms: Vec<(u64, f64)>,
}

/// What cannot be done, why, and which key or command helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub title: String,
    pub detail: String,
    /// `press r to try again`; may be empty.
    pub help: String,
}

impl Problem {
    pub fn new(
        title: impl Into<String>,
        detail: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self {
            title: title.into(),
            detail: detail.into(),
            help: help.into(),
        }
    }
}

/// A line of the status bar, until the next key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub text: String,
    pub role: Role,
}

impl Notice {
    pub fn good(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            role: Role::Good,
        }
    }

    pub fn caution(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            role: Role::Caution,
        }
    }

    pub fn bad(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            role: Role::Bad,
        }
    }
}

/// How marks and lines are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glyphs {
    pub unicode: bool,
    pub plot: PlotMarks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlotMarks {
    Braille,
    Octant,
    Block,
    Dot,
    Ascii,
}

impl Glyphs {
    /// `unicode` where it can be shown, else `ascii`.
    pub fn pick(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.unicode { unicode } else { ascii }
    }
}

/// Where the project's files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Where `lathe` was started.
    pub directory: PathBuf,
    /// The runs directory first, then added roots.
    pub runs_roots: Vec<PathBuf>,
    /// `experiments/` of the project.
    pub experiments: PathBuf,
}

/// Marked runs that are followed and drawn at most: as many as a theme has colours for. More can be marked, to delete them.
pub const MOST_OPEN: usize = 8;

#[derive(Debug)]
pub struct Shared {
    pub project: Project,
    pub theme: Theme,
    pub glyphs: Glyphs,
    pub keymap: Keymap,
    /// What pages remember from one start to the next, per project.
    pub kept: PageState,
    pub columns: u16,
    pub rows: u16,
    /// The page that is on the screen: others need not read what they do not show.
    pub front: PageId,
    /// Of the last batch of actions.
    pub now: Timestamp,
    pub runs: RunList,
    pub open: BTreeMap<RunKey, OpenRun>,
    /// The run that the pages show.
    pub current: Option<RunKey>,
    /// Runs drawn with the current one, and compared; the order gives their colours. Only the first [`MOST_OPEN`] are open.
    pub marked: Vec<RunKey>,
    /// The step picked on a curve; Rollouts and Timeline show it. None: the newest.
    pub step: Option<u64>,
    pub replay: Option<Replay>,
    /// No new data is shown until it is switched off.
    pub is_frozen: bool,
    /// Nothing on disk or in a run is changed.
    pub is_read_only: bool,
    pub notice: Option<Notice>,
    /// Asked of the app by the page that is being updated; carried out right after.
    pub wish: Option<Wish>,
}

/// What a page wants of the app, beyond effects.
#[derive(Debug, Clone, PartialEq)]
pub enum Wish {
    Go(PageId),
    /// Make this the current run (and leave a replay), and go to page Live.
    Watch(RunKey),
    /// `marked` was changed: open and close runs accordingly.
    MarkedChanged,
    Confirm(Confirm),
    Problem(Problem),
    /// Edit this experiment on page Config.
    Edit(PathBuf),
    /// Show the log around this moment of the run, ms since its start (page Logs).
    LogAt(f64),
    /// Prepare this run's experiment on page Launch.
    Again(RunKey),
    /// Prepare this experiment on page Launch.
    Launch(PathBuf),
    /// Make this the current run and bring a page to the front.
    ShowOn(RunKey, PageId),
}

impl Shared {
    pub fn style(&self, role: Role) -> Style {
        self.theme.style(role)
    }

    /// Where the page on the screen is drawn: all but header, replay bar and footer. For pages whose keys depend on the room.
    pub fn page_area(&self) -> Rect {
        let replay = u16::from(self.replay.is_some() && self.rows > 6);
        let footer = u16::from(self.rows > 3);
        let height = self.rows.saturating_sub(1 + replay + footer).max(1);
        Rect::new(0, 1, self.columns, height)
    }

    /// The run that the pages show, if it is open.
    pub fn current_run(&self) -> Option<&OpenRun> {
        self.open.get(self.current.as_ref()?)
    }

    /// What an open run does now: `replay`, `opening`, `paused`, `running`, `finished`, `dead`…; empty where nothing tells.
    pub fn state_word(&self, run: &OpenRun) -> &'static str {
        let is_replayed = |replay: &Replay| replay.key == run.key;
        if self.replay.as_ref().is_some_and(is_replayed) {
            return "replay";
        }
        if !run.is_caught_up {
            return "opening";
        }
        match self.runs.find(&run.key) {
            // The fold is newer than the glance.
            Some(entry) if entry.is_running() && run.state.is_paused => "paused",
            Some(entry) if entry.is_running() => "running",
            Some(entry) => entry.state_word(),
            None => match &run.state.ended {
                Some(ended) => ended.status.word(),
                None => "",
            },
        }
    }

    /// How the current run ended, with the reason: `failed: CUDA is not there`, `dead: process 42 is gone`. None: it has
    /// not, or well.
    pub fn how_it_ended(&self) -> Option<String> {
        let run = self.current_run()?;
        if let Some(ended) = &run.state.ended {
            let is_well = ended.status == RunStatus::Completed;
            return (!is_well).then(|| format!("{}: {}", ended.status.word(), ended.reason));
        }
        let entry = self
            .runs
            .entries
            .iter()
            .find(|entry| entry.key == run.key)?;
        let glance = entry.glance.as_ref().filter(|_| !entry.is_replayed);
        let liveness = &glance?.liveness;
        Some(format!("{}: {}", liveness.word(), liveness.reason()?))
    }

    /// What pages show while no run was chosen: the newest that is running, else the newest.
    pub fn latest_run(&self) -> Option<&RunEntry> {
        let entries = &self.runs.entries;
        entries
            .iter()
            .find(|entry| entry.is_running())
            .or_else(|| entries.first())
    }

    /// The current run and the marked ones that are open, each with its colour's index; the current one is first.
    pub fn shown_runs(&self) -> Vec<(usize, &OpenRun)> {
        let mut shown: Vec<(usize, &OpenRun)> = Vec::new();
        if let Some(run) = self.current_run() {
            shown.push((self.series_index(&run.key), run));
        }
        for key in &self.marked {
            if Some(key) != self.current.as_ref()
                && let Some(run) = self.open.get(key)
            {
                shown.push((self.series_index(key), run));
            }
        }
        shown
    }

    /// The index of a run's colour: its place among the marked ones, or the first after them.
    pub fn series_index(&self, key: &RunKey) -> usize {
        self.marked
            .iter()
            .position(|marked| marked == key)
            .unwrap_or(self.marked.len())
    }

    pub fn say(&mut self, notice: Notice) {
        self.notice = Some(notice);
    }

    /// Says that something may not be changed, when that is so.
    pub fn refuse_when_read_only(&mut self, what: &str) -> bool {
        if self.is_read_only {
            self.say(Notice::caution(format!(
                "read-only: {what} is switched off (started with --read-only)"
            )));
        }
        self.is_read_only
    }
}

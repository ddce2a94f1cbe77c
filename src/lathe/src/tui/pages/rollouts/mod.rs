//! The dialogues of a step: turns, tool calls, rewards, tokens; the same prompt elsewhere.
//!
//! ```text
//!  ╭ samples, by prompt ────────╮╭ dialogue, tokens, or two dialogues ─╮
//!  │ ▾ 96*66+16=     0.62 ±0.48 ││ reward 1 · advantage +0.52 …        │
//!  │ >  0      1   +0.52     38 ││ ● assistant, turn 1 ─────────────── │
//!  ╰────────────────────────────╯╰─────────────────────────────────────╯
//! ```
//! `library` reads files in jobs; `data` is what was read; `list`, `turns`, `tokens` and `beside` make lines of it;
//! `commands` says what keys do; `draw` and, where there is nothing, `absence` put it on the screen.

mod absence;
mod beside;
mod commands;
mod data;

mod draw;
mod library;
mod list;
#[cfg(test)]
mod tests;
mod tokens;
mod turns;

use std::fmt::Write as _;
use std::sync::Arc;

use ratatui::Frame;
use ratatui::layout::Rect;

use self::beside::Beside;
use self::data::{Batch, Sample};
use self::library::{Library, Shelf};
use self::list::{Arrangement, Row};
use self::tokens::Shade;
use super::{Input, Page, PageId};
use crate::headless::format;
use crate::tui::action::{self, Effect, PageMessage};
use crate::tui::bindings::{Binding, Context, bind};
use crate::tui::shared::{Notice, Problem, RunKey, Shared, Wish};
use crate::tui::widgets::field::{Field, Outcome};
use crate::tui::widgets::list::{ListState, Move};

pub use self::library::Message;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Move(Move),
    Left,
    Right,
    /// Another sample, whichever pane has the keys.
    Sample(Move),
    NextPane,
    Open,
    Expand,
    Sort,
    Reverse,
    Flat,
    Search,
    NextMatch,
    PreviousMatch,
    StepBack,
    StepForward,
    Newest,
    Tokens,
    Shade,
    Beside,
    BesidePlace,
    BesideSample,
    Timeline,
    Reload,
    Pull,
}

const HERE: Context = Context::Page(PageId::Rollouts);

const fn of(command: Command) -> action::Command {
    action::Command::Rollouts(command)
}

#[rustfmt::skip]
pub const BINDINGS: &[Binding] = &[
    bind("rollouts.step_back", &[","], HERE, of(Command::StepBack), "the recorded step before", "step"),
    bind("rollouts.step_forward", &["."], HERE, of(Command::StepForward), "the next recorded step", "step"),
    bind("rollouts.open", &["enter"], HERE, of(Command::Open), "give the keys to the dialogue", "read"),
    bind("rollouts.tokens", &["t"], HERE, of(Command::Tokens), "token by token, or as text", "tokens"),
    bind("rollouts.shade", &["m"], HERE, of(Command::Shade), "shade tokens by log-prob, ratio, advantage or mask", ""),
    bind("rollouts.beside", &["c"], HERE, of(Command::Beside), "the same prompt beside it: other steps, marked runs, other samples", "beside"),
    bind("rollouts.beside_place", &["C"], HERE, of(Command::BesidePlace), "beside it: the next step or run with this prompt", ""),
    bind("rollouts.beside_sample", &["s"], HERE, of(Command::BesideSample), "beside it: the next sample of that step", ""),
    bind("rollouts.sort", &["o"], HERE, of(Command::Sort), "sort by prompt, reward, length, advantage or group spread", "sort"),
    bind("rollouts.reverse", &["O"], HERE, of(Command::Reverse), "sort the other way", ""),
    bind("rollouts.flat", &["f"], HERE, of(Command::Flat), "group the samples by prompt, or all in one list", ""),
    bind("rollouts.search", &["/"], HERE, of(Command::Search), "search the dialogues of this step", "search"),
    bind("rollouts.next_match", &["n"], HERE, of(Command::NextMatch), "next match", ""),
    bind("rollouts.previous_match", &["N"], HERE, of(Command::PreviousMatch), "previous match", ""),
    bind("rollouts.expand", &["e"], HERE, of(Command::Expand), "the dialogue over the whole page, or back", "expand"),
    bind("rollouts.timeline", &["w"], HERE, of(Command::Timeline), "where this step's time went (page Timeline)", ""),
    bind("rollouts.newest", &["L"], HERE, of(Command::Newest), "the newest recorded step, and follow", ""),
    bind("rollouts.next_sample", &["J"], HERE, of(Command::Sample(Move::Down)), "next sample", ""),
    bind("rollouts.previous_sample", &["K"], HERE, of(Command::Sample(Move::Up)), "previous sample", ""),
    bind("rollouts.pane", &["tab", "shift-tab"], HERE, of(Command::NextPane), "the other pane", ""),
    bind("rollouts.down", &["j", "down"], HERE, of(Command::Move(Move::Down)), "down", ""),
    bind("rollouts.up", &["k", "up"], HERE, of(Command::Move(Move::Up)), "up", ""),
    bind("rollouts.left", &["h", "left"], HERE, of(Command::Left), "to the list; in tokens: the token before", ""),
    bind("rollouts.right", &["l", "right"], HERE, of(Command::Right), "to the dialogue; in tokens: the next token", ""),
    bind("rollouts.half_down", &["ctrl-d"], HERE, of(Command::Move(Move::HalfPageDown)), "half a page down", ""),
    bind("rollouts.half_up", &["ctrl-u"], HERE, of(Command::Move(Move::HalfPageUp)), "half a page up", ""),
    bind("rollouts.page_down", &["pgdn"], HERE, of(Command::Move(Move::PageDown)), "a page down", ""),
    bind("rollouts.page_up", &["pgup"], HERE, of(Command::Move(Move::PageUp)), "a page up", ""),
    bind("rollouts.first", &["g g", "home"], HERE, of(Command::Move(Move::First)), "to the start", ""),
    bind("rollouts.last", &["G", "end"], HERE, of(Command::Move(Move::Last)), "to the end", ""),
    bind("rollouts.pull", &["p"], HERE, of(Command::Pull), "fetch the rollouts of this run from the machine that it runs on", ""),
    bind("rollouts.reload", &["r"], HERE, of(Command::Reload), "read the files of this run again", ""),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Pane {
    #[default]
    List,
    Dialogue,
}

/// The token view: what shades, where the cursor is, and the texts of the sample that is shown.
#[derive(Debug)]
struct TokenView {
    cursor: usize,
    shown: TokenTexts,
}

/// Made in `update`, since a tokenizer takes its time.
#[derive(Debug, Default)]
struct TokenTexts {
    of: Option<(RunKey, u64, usize)>,
    has_tokenizer: bool,
    texts: Vec<String>,
}

#[derive(Debug, Default)]
pub struct Rollouts {
    library: Library,
    arrangement: Arrangement,
    /// What `rows` are of.
    shown: Option<(RunKey, u64)>,
    rows: Vec<Row>,
    list: ListState,
    pane: Pane,
    is_expanded: bool,
    scroll: usize,
    tokens: Option<TokenView>,
    shade: Shade,
    beside: Option<Beside>,
    requests: u64,
    /// While it is typed.
    typing: Option<Field>,
    pattern: String,
    /// Of each sample that is shown, whether it has the pattern; looked up once.
    found: Vec<bool>,
    /// The run's last step when its files were listed.
    listed_at: Option<(RunKey, u64)>,
    /// Its rollouts are on their way from another machine.
    pulling: Option<RunKey>,
}

impl Rollouts {
    /// The run that is shown and the step: the picked one, else the newest recorded up to the replay's moment.
    fn target(&self, shared: &Shared) -> Option<(RunKey, u64)> {
        let run = shared.current.clone()?;
        if let Some(step) = shared.step {
            return Some((run, step));
        }
        let step = self.library.listing(&run)?.newest(limit(shared))?;
        Some((run, step))
    }

    fn batch(&self) -> Option<&Arc<Batch>> {
        let (run, step) = self.shown.as_ref()?;
        match self.library.get(run, *step) {
            Shelf::Ready(batch) => Some(batch),
            _ => None,
        }
    }

    fn row(&self) -> Option<Row> {
        self.rows.get(self.list.selected(self.rows.len())).copied()
    }

    /// The selected sample; of a group's heading, its first.
    fn sample(&self) -> Option<(&Arc<Batch>, usize)> {
        let batch = self.batch()?;
        let index = match self.row()? {
            Row::Sample(index) => index,
            Row::Group(_) => {
                let at = self.list.selected(self.rows.len());
                match self.rows.get(at + 1)? {
                    Row::Sample(index) => *index,
                    Row::Group(_) => return None,
                }
            }
        };
        Some((batch, index))
    }

    /// The batch and sample in the second column, once they were read.
    fn beside_sample(&self) -> Option<(&Arc<Batch>, usize)> {
        let (batch, index) = self.sample()?;
        let beside = self.beside.as_ref()?;
        let (run, step) = beside.place()?;
        let Shelf::Ready(other) = self.library.get(run, *step) else {
            return None;
        };
        let is_here = self.shown.as_ref() == Some(&(run.clone(), *step));
        let group = other.find_prompt(&batch.samples[index])?;
        // Beside itself, a sample shows the others of its group.
        let candidates: Vec<usize> = group
            .samples
            .iter()
            .copied()
            .filter(|other| !(is_here && *other == index))
            .collect();
        let at = candidates.get(beside.sample % candidates.len().max(1))?;
        Some((other, *at))
    }

    /// Asks for what is missing and takes over what has come.
    fn refresh(&mut self, shared: &Shared) -> Vec<Effect> {
        if shared.front != PageId::Rollouts {
            return Vec::new();
        }
        let mut effects = Vec::new();
        let Some(run) = shared.current.clone() else {
            self.shown = None;
            self.rows.clear();
            return effects;
        };
        let kept: Vec<RunKey> = shared.marked.iter().chain([&run]).cloned().collect();
        self.library.keep_only(&kept);
        let step_now = shared.current_run().map_or(0, |open| open.state.step);
        let is_listed = self.listed_at == Some((run.clone(), step_now))
            || (shared.replay.is_some() && self.library.listing(&run).is_some());
        if !is_listed && let Some(effect) = self.library.list(&run) {
            self.listed_at = Some((run.clone(), step_now));
            effects.push(effect);
        }
        let Some((run, step)) = self.target(shared) else {
            self.shown = None;
            self.rows.clear();
            return effects;
        };
        let is_recorded = step <= limit(shared)
            && self
                .library
                .listing(&run)
                .is_some_and(|listing| listing.has(step));
        if is_recorded {
            effects.extend(self.library.want(&run, step));
        }
        self.take_over(run, step, is_recorded);
        effects.extend(self.want_tokens(shared));
        if let Some((run, step)) = self
            .beside
            .as_ref()
            .and_then(|beside| beside.place().cloned())
        {
            effects.extend(self.library.want(&run, step));
        }
        effects
    }

    /// Makes the rows of a step that was read. While one is being read, the step before stays on the screen.
    fn take_over(&mut self, run: RunKey, step: u64, is_recorded: bool) {
        let target = Some((run, step));
        if self.shown == target && !self.rows.is_empty() && self.batch().is_some() && is_recorded {
            return;
        }
        let is_same_run = matches!((&self.shown, &target), (Some(a), Some(b)) if a.0 == b.0);
        let is_coming = is_recorded
            && target
                .as_ref()
                .is_some_and(|(run, step)| matches!(self.library.get(run, *step), Shelf::Absent));
        if is_coming && is_same_run && self.batch().is_some() && !self.rows.is_empty() {
            return;
        }
        let is_other = self.shown != target;
        self.shown = target;
        self.rows = match self.batch().filter(|_| is_recorded) {
            Some(batch) => self.arrangement.rows(batch),
            None => Vec::new(),
        };
        self.look_up();
        if is_other {
            self.scroll = 0;
            self.beside = None;
        }
    }

    fn want_tokens(&mut self, shared: &Shared) -> Vec<Effect> {
        if self.tokens.is_none() {
            return Vec::new();
        }
        let Some((run, step)) = self.shown.clone() else {
            return Vec::new();
        };
        let effect = self
            .library
            .want_vocabulary(&run, &shared.project.directory);
        let Some((batch, index)) = self.sample() else {
            return effect.into_iter().collect();
        };
        let batch = Arc::clone(batch);
        let tokenizer = match self.library.vocabulary(&run) {
            Some(Ok(tokenizer)) => Some(Arc::clone(tokenizer)),
            _ => None,
        };
        let of = Some((run, step, index));
        if let Some(view) = &mut self.tokens
            && (view.shown.of != of || view.shown.has_tokenizer != tokenizer.is_some())
        {
            let row = &batch.samples[index].row;
            if view.shown.of != of {
                // The prompt is the same for all: the first token of the response is where they part.
                view.cursor = row
                    .prompt_ids
                    .len()
                    .min(tokens::count(row).saturating_sub(1));
            }
            view.shown = TokenTexts {
                of,
                has_tokenizer: tokenizer.is_some(),
                texts: tokens::texts(row, tokenizer.as_deref()),
            };
        }
        effect.into_iter().collect()
    }

    fn message(&mut self, message: &mut Message, shared: &mut Shared) -> Option<Effect> {
        // What is moved out is replaced by an answer to nothing.
        let taken = std::mem::replace(
            message,
            Message::Found {
                request: 0,
                places: Vec::new(),
                left: Vec::new(),
            },
        );
        match taken {
            Message::Listed { run, listing } => self.library.take_listing(run, listing),
            Message::Read { run, step, batch } => {
                if self.shown == Some((run.clone(), step)) {
                    self.rows.clear();
                }
                self.library.take_batch(run, step, batch);
            }
            Message::Vocabulary { run, tokenizer } => self.library.take_vocabulary(run, tokenizer),
            Message::Pulled { run, result } => {
                self.pulling = None;
                match result {
                    Ok(bytes) if bytes > 0 => {
                        self.reload(&run);
                        shared.say(Notice::good(format!("fetched {}", format::bytes(bytes))));
                    }
                    Ok(_) => shared.say(Notice::good("all of them are here already")),
                    Err(reason) => {
                        shared.wish = Some(Wish::Problem(Problem::new(
                            "The rollouts were not fetched",
                            reason,
                            "what has come is kept; p goes on from there",
                        )));
                    }
                }
            }
            Message::Found {
                request,
                places,
                left,
            } => {
                // A search that was given up, or whose prompt is no longer the selected one, ends here.
                let beside = self
                    .beside
                    .as_mut()
                    .filter(|beside| beside.request == request && request > 0)?;
                beside.take(places, left.len(), self.shown.clone());
                if !left.is_empty() {
                    let (batch, index) = beside.of.clone();
                    return Some(library::look_further(request, batch, index, left));
                }
                if beside.count() <= 1 {
                    shared.say(Notice::caution(
                        "this prompt is nowhere else in this run or the marked ones: beside it are its own samples",
                    ));
                }
            }
        }
        None
    }
}

/// The last step that has happened at the replay's moment.
fn limit(shared: &Shared) -> u64 {
    match (&shared.replay, shared.current_run()) {
        (Some(replay), Some(open)) if replay.key == open.key => open.state.step,
        _ => u64::MAX,
    }
}

impl Page for Rollouts {
    fn update(&mut self, input: Input<'_>, shared: &mut Shared) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Command(action::Command::Rollouts(command)) => {
                effects.extend(self.command(command, shared));
            }
            Input::Key(key) => {
                if let Some(field) = &mut self.typing {
                    match field.key(key) {
                        Outcome::Accepted => self.accept_search(shared),
                        Outcome::Cancelled => self.typing = None,
                        _ => {}
                    }
                }
            }
            Input::Paste(text) => {
                if let Some(field) = &mut self.typing {
                    field.paste(text);
                }
            }
            Input::Mouse(event, area) => self.mouse(event, area, shared),
            Input::Message(PageMessage::Rollouts(message)) => {
                effects.extend(self.message(message, shared));
            }
            Input::Shown | Input::DataChanged => {}
            Input::Command(_) | Input::Message(_) => return Vec::new(),
        }
        effects.extend(self.refresh(shared));
        effects
    }

    fn draw(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        self.draw_page(shared, frame, area);
    }

    fn is_typing(&self) -> bool {
        self.typing.is_some()
    }

    fn back(&mut self, _shared: &mut Shared) -> bool {
        if self.beside.take().is_some() || self.tokens.take().is_some() {
            self.scroll = 0;
            return true;
        }
        if self.is_expanded {
            self.is_expanded = false;
            return true;
        }
        if !self.pattern.is_empty() {
            self.pattern.clear();
            self.found.clear();
            return true;
        }
        if self.pane == Pane::Dialogue {
            self.pane = Pane::List;
            return true;
        }
        false
    }

    fn copied(&self, _shared: &Shared) -> Option<(String, String)> {
        let (batch, index) = self.sample()?;
        let sample: &Sample = &batch.samples[index];
        let mut text = String::new();
        for message in &sample.messages {
            let _ = writeln!(text, "[{}]\n{}", message.role, message.text());
            for call in &message.tool_calls {
                let called = &call.function;
                let _ = writeln!(text, "> {} {}", called.name, called.arguments);
            }
            text.push('\n');
        }
        Some((
            text,
            format!("the dialogue of sample {}", sample.row.sample),
        ))
    }

    fn status(&self, shared: &Shared) -> String {
        let Some((run, step)) = self.target(shared) else {
            return String::new();
        };
        let count = self.library.listing(&run).map_or(0, library::Listing::len);
        let picked = if shared.step.is_some() {
            "picked"
        } else {
            "newest"
        };
        format!("step {step} ({picked}), {count} recorded")
    }
}

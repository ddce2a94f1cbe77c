//! The workbench's state, and how one action changes it: keys, mouse, commands and messages go in, effects come out.

mod frame;
mod replay;

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseEventKind};
use ratatui::layout::{Position, Rect};
use runlog::RunState;

use super::action::{Action, Command, Effect, Global, Message, PageMessage, ReplayCommand};
use super::bindings::Context;
use super::export::Chooser;
use super::keymap::{Chord, Lookup};
use super::modal::{Answer, Confirm, Help, Modal, Palette, Used};
use super::pages::{self, Input, PageId, Pages};
use super::shared::{MOST_OPEN, Notice, OpenRun, Replay, RunEntry, RunKey, Shared};
use super::theme;

/// Where the actions that were picked by name are remembered.
const PICKED: &str = "palette.picked";

#[derive(Debug)]
pub struct App {
    pub shared: Shared,
    pub pages: Pages,
    pub page: PageId,
    modal: Option<Modal>,
    /// Keys of a sequence that is not complete.
    pressed: Vec<Chord>,
    /// Data that came while the screen was frozen.
    held: Vec<Message>,
    /// The data that pages show changed since they were told.
    is_data_new: bool,
    is_dirty: bool,
}

impl App {
    pub fn new(shared: Shared) -> Self {
        Self {
            shared,
            pages: Pages::default(),
            page: PageId::Runs,
            modal: None,
            pressed: Vec::new(),
            held: Vec::new(),
            is_data_new: true,
            is_dirty: true,
        }
    }

    /// Whether the screen may differ from what was drawn last; asking clears the answer.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.is_dirty)
    }

    pub fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    pub fn mark_dirty(&mut self) {
        self.is_dirty = true;
    }

    /// A clock on the screen moves: the current run lives and is shown live.
    pub fn wants_clock(&self) -> bool {
        !self.shared.is_frozen
            && self.shared.replay.is_none()
            && self
                .shared
                .current_run()
                .is_some_and(|run| run.state.ended.is_none() && run.problem.is_none())
            && self
                .shared
                .current
                .as_ref()
                .and_then(|key| self.shared.runs.find(key))
                .is_some_and(RunEntry::is_running)
    }

    /// Takes one action; gives what is to be done.
    pub fn update(&mut self, action: Action) -> Vec<Effect> {
        let is_mere_motion =
            matches!(&action, Action::Mouse(event) if event.kind == MouseEventKind::Moved);
        if is_mere_motion {
            return Vec::new();
        }
        if !matches!(action, Action::Clock(_)) {
            self.is_dirty = true;
        }
        match action {
            Action::Clock(now) => {
                if self.shared.now.as_second() != now.as_second() && self.wants_clock() {
                    self.is_dirty = true;
                }
                self.shared.now = now;
                Vec::new()
            }
            Action::Resize { columns, rows } => {
                self.shared.columns = columns;
                self.shared.rows = rows;
                Vec::new()
            }
            Action::Key(key) => self.key(key),
            Action::Paste(pasted) => self.paste(&pasted),
            Action::Mouse(event) => self.mouse(event),
            Action::Command(command) => self.command(command),
            Action::Message(message) => self.message(message),
        }
    }

    /// Ends a batch of actions: pages learn once that data is new.
    pub fn settle(&mut self) -> Vec<Effect> {
        if !std::mem::take(&mut self.is_data_new) {
            return Vec::new();
        }
        let mut effects = Vec::new();
        self.shared.front = self.page;
        self.replay_in_the_list();
        for page in PageId::ALL {
            effects.extend(
                self.pages
                    .get_mut(page)
                    .update(Input::DataChanged, &mut self.shared),
            );
        }
        effects
    }

    /// Shows a run on every page; opens it when it is not open.
    pub fn show_run(&mut self, key: RunKey) -> Vec<Effect> {
        let mut effects = self.leave_replay();
        effects.extend(self.make_current(key));
        effects
    }

    fn make_current(&mut self, key: RunKey) -> Vec<Effect> {
        if self.shared.current.as_ref() != Some(&key) {
            self.shared.current = Some(key);
            self.shared.step = None;
        }
        self.open_what_is_shown()
    }

    /// Opens the current and the marked runs, closes all others.
    fn open_what_is_shown(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let wanted: Vec<RunKey> = self
            .shared
            .current
            .iter()
            .chain(self.shared.marked.iter().take(MOST_OPEN))
            .cloned()
            .collect();
        let unwanted: Vec<RunKey> = self
            .shared
            .open
            .keys()
            .filter(|key| !wanted.contains(key))
            .cloned()
            .collect();
        for key in unwanted {
            self.shared.open.remove(&key);
            effects.push(Effect::CloseRun(key));
        }
        for key in wanted {
            if !self.shared.open.contains_key(&key) {
                let run = OpenRun {
                    info: self.shared.runs.find(&key).map(|entry| entry.info.clone()),
                    key: key.clone(),
                    state: RunState::default(),
                    is_caught_up: false,
                    bad_lines: 0,
                    problem: None,
                };
                self.shared.open.insert(key.clone(), run);
                effects.push(Effect::OpenRun(key));
            }
        }
        self.is_data_new = true;
        effects
    }

    fn key(&mut self, key: KeyEvent) -> Vec<Effect> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        self.shared.notice = None;
        if let Some(modal) = &mut self.modal {
            let is_interrupt =
                key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            let answer = if is_interrupt {
                Answer::Close
            } else {
                modal.key(key, self.page, &self.shared)
            };
            return match answer {
                Answer::Stay => Vec::new(),
                Answer::Close => {
                    self.modal = None;
                    Vec::new()
                }
                Answer::Run(command) => {
                    self.modal = None;
                    self.command(command)
                }
                Answer::Pick(id, command) => {
                    self.modal = None;
                    let mut used: Used = self.shared.kept.get(PICKED).unwrap_or_default();
                    *used.entry(id.to_owned()).or_default() += 1;
                    self.shared.kept.set(PICKED, &used);
                    let mut effects = self.command(command);
                    effects.push(Effect::SaveState);
                    effects
                }
            };
        }
        let is_typing = self.pages.get(self.page).is_typing();
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let is_always_bound = is_control && matches!(key.code, KeyCode::Char('c' | 'z' | 'l'));
        if is_typing && !is_always_bound {
            self.pressed.clear();
            let effects = self
                .pages
                .get_mut(self.page)
                .update(Input::Key(key), &mut self.shared);
            return self.after_page(effects);
        }
        if is_typing && is_control && key.code == KeyCode::Char('c') {
            // As in a shell: gives up the line, does not leave.
            let escape = KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE);
            let effects = self
                .pages
                .get_mut(self.page)
                .update(Input::Key(escape), &mut self.shared);
            return self.after_page(effects);
        }
        self.pressed.push(Chord::new(key));
        let contexts = [Context::Page(self.page), Context::Global];
        match self.shared.keymap.lookup(&contexts, &self.pressed) {
            Lookup::Command(command) => {
                self.pressed.clear();
                self.command(command)
            }
            Lookup::Prefix => Vec::new(),
            Lookup::Nothing => {
                // The key that broke a sequence may begin another.
                let was_sequence = self.pressed.len() > 1;
                self.pressed.clear();
                if was_sequence {
                    return self.key(key);
                }
                Vec::new()
            }
        }
    }

    fn paste(&mut self, pasted: &str) -> Vec<Effect> {
        if let Some(modal) = &mut self.modal {
            modal.paste(pasted);
            return Vec::new();
        }
        if self.pages.get(self.page).is_typing() {
            let effects = self
                .pages
                .get_mut(self.page)
                .update(Input::Paste(pasted), &mut self.shared);
            return self.after_page(effects);
        }
        self.shared
            .say(Notice::caution("pasted text is never taken as keys"));
        Vec::new()
    }

    fn mouse(&mut self, event: crossterm::event::MouseEvent) -> Vec<Effect> {
        if self.modal.is_some() {
            if matches!(event.kind, MouseEventKind::Down(_)) {
                self.modal = None;
            }
            return Vec::new();
        }
        let area = Rect::new(0, 0, self.shared.columns, self.shared.rows);
        let layout = self.layout(area);
        let at = Position::new(event.column, event.row);
        if layout.header.contains(at) {
            if matches!(event.kind, MouseEventKind::Down(_))
                && let Some(page) = self.tab_at(layout.header, event.column)
            {
                return self.command(Command::Global(Global::Go(page)));
            }
            return Vec::new();
        }
        if layout.replay.contains(at) {
            if let (MouseEventKind::Down(_) | MouseEventKind::Drag(_), Some(replay)) =
                (event.kind, &self.shared.replay)
            {
                let share = frame::replay_share(layout.replay, event.column);
                return self.seek(replay.length_ms * share);
            }
            return Vec::new();
        }
        if layout.page.contains(at) {
            let effects = self
                .pages
                .get_mut(self.page)
                .update(Input::Mouse(event, layout.page), &mut self.shared);
            return self.after_page(effects);
        }
        Vec::new()
    }

    /// What every page's update may have changed in `shared`.
    fn after_page(&mut self, mut effects: Vec<Effect>) -> Vec<Effect> {
        if let Some(wish) = self.shared.wish.take() {
            match wish {
                super::shared::Wish::Go(page) => effects.extend(self.go(page)),
                super::shared::Wish::Watch(key) => {
                    effects.extend(self.show_run(key));
                    effects.extend(self.go(PageId::Live));
                }
                super::shared::Wish::Confirm(confirm) => {
                    self.modal = Some(Modal::Confirm(confirm));
                }
                super::shared::Wish::Problem(problem) => {
                    self.modal = Some(Modal::Problem(problem));
                }
                super::shared::Wish::MarkedChanged => effects.extend(self.open_what_is_shown()),
                super::shared::Wish::Edit(path) => {
                    effects.extend(self.go(PageId::Config));
                    let open = PageMessage::Config(pages::config::Message::Open(path));
                    effects.extend(self.message(Message::Page(open)));
                }
                super::shared::Wish::LogAt(elapsed_ms) => {
                    effects.extend(self.go(PageId::Logs));
                    let jump = PageMessage::Logs(pages::logs::Message::JumpTo { elapsed_ms });
                    effects.extend(self.message(Message::Page(jump)));
                }
                super::shared::Wish::ShowOn(key, page) => {
                    effects.extend(self.show_run(key));
                    effects.extend(self.go(page));
                }
                super::shared::Wish::Launch(path) => {
                    effects.extend(self.go(PageId::Launch));
                    let prepare = PageMessage::Launch(pages::launch::Message::Prepare(path));
                    effects.extend(self.message(Message::Page(prepare)));
                }
                super::shared::Wish::Again(key) => {
                    effects.extend(self.go(PageId::Launch));
                    let again = PageMessage::Launch(pages::launch::Message::Again(key));
                    effects.extend(self.message(Message::Page(again)));
                }
            }
        }
        effects
    }

    fn go(&mut self, page: PageId) -> Vec<Effect> {
        self.page = page;
        self.shared.front = page;
        let mut effects = self.take_latest();
        let shown = self
            .pages
            .get_mut(page)
            .update(Input::Shown, &mut self.shared);
        effects.extend(self.after_page(shown));
        effects
    }

    /// A page that needs a run shows the latest one while none was chosen, and says so.
    fn take_latest(&mut self) -> Vec<Effect> {
        if self.shared.current.is_some() || !self.page.needs_run() {
            return Vec::new();
        }
        let under_cursor = self.pages.runs.chosen_entry(&self.shared);
        let Some(entry) = under_cursor.or_else(|| self.shared.latest_run()) else {
            return Vec::new();
        };
        let what = if under_cursor.is_some() {
            "the one under the cursor"
        } else if entry.is_running() {
            "the running one"
        } else {
            "the newest"
        };
        let (key, info) = (entry.key.clone(), &entry.info);
        let said = format!(
            "no run was chosen: this is {what}, {}-{} (1 lists all)",
            info.experiment_name, info.id
        );
        self.shared.say(Notice::good(said));
        self.show_run(key)
    }

    fn command(&mut self, command: Command) -> Vec<Effect> {
        match command {
            Command::Global(global) => self.global(global),
            of_page => {
                let page = pages::page_of(of_page).expect("only global commands have no page");
                // From the palette, a command of another page brings that page to the front.
                let mut effects = if page == self.page {
                    Vec::new()
                } else {
                    self.go(page)
                };
                let more = self
                    .pages
                    .get_mut(page)
                    .update(Input::Command(of_page), &mut self.shared);
                effects.extend(self.after_page(more));
                effects
            }
        }
    }

    /// The next page that has a tab, to this side.
    fn page_beside(&self, by: isize) -> PageId {
        let mut page = self.page.step(by);
        while !page.is_listed(&self.shared, self.page) {
            page = page.step(by);
        }
        page
    }

    fn global(&mut self, global: Global) -> Vec<Effect> {
        match global {
            Global::Help => {
                self.modal = Some(Modal::Help(Help::new(self.page)));
                Vec::new()
            }
            Global::Palette => {
                let used = self.shared.kept.get(PICKED).unwrap_or_default();
                self.modal = Some(Modal::Palette(Palette::new(used)));
                Vec::new()
            }
            Global::Quit => {
                let unsaved: Vec<String> = PageId::ALL
                    .into_iter()
                    .filter_map(|page| self.pages.get(page).unsaved())
                    .collect();
                if unsaved.is_empty() {
                    vec![Effect::SaveState, Effect::Quit]
                } else {
                    self.modal = Some(Modal::Confirm(Confirm {
                        title: "Leave without saving?".to_owned(),
                        body: unsaved.join("\n"),
                        yes: 'x',
                        yes_label: "leave and lose it".to_owned(),
                        command: Command::Global(Global::QuitNow),
                    }));
                    Vec::new()
                }
            }
            Global::QuitNow => vec![Effect::SaveState, Effect::Quit],
            Global::Back => {
                self.pressed.clear();
                if !self.pages.get_mut(self.page).back(&mut self.shared) {
                    self.shared
                        .say(Notice::caution("nothing to go back from; q leaves"));
                }
                Vec::new()
            }
            Global::Suspend => vec![Effect::Suspend],
            Global::Redraw => vec![Effect::Redraw],
            Global::Go(page) => self.go(page),
            Global::NextPage => self.go(self.page_beside(1)),
            Global::PreviousPage => self.go(self.page_beside(-1)),
            Global::NextTheme => {
                let names = theme::built_in_names();
                let at = names
                    .iter()
                    .position(|&name| name == self.shared.theme.name);
                let next = names[at.map_or(0, |at| (at + 1) % names.len())];
                self.shared.say(Notice::good(format!("theme {next}")));
                vec![Effect::SetTheme(next.to_owned())]
            }
            Global::Freeze => {
                self.shared.is_frozen = !self.shared.is_frozen;
                let mut effects = Vec::new();
                if !self.shared.is_frozen {
                    for message in std::mem::take(&mut self.held) {
                        effects.extend(self.message(message));
                    }
                }
                effects
            }
            Global::Copy => {
                if let Some((text, what)) = self.pages.get(self.page).copied(&self.shared) {
                    vec![Effect::Copy { text, what }]
                } else {
                    self.shared
                        .say(Notice::caution("there is nothing to copy here"));
                    Vec::new()
                }
            }
            Global::Export => {
                self.modal = Some(Modal::Export(Chooser::default()));
                Vec::new()
            }
            Global::ExportAs(kind) => super::export::write(self, kind),
            Global::NextRun => self.other_run(1),
            Global::PreviousRun => self.other_run(-1),
            Global::Replay => self.toggle_replay(),
            Global::PlayPause => self.play_pause(),
            Global::ReplayStep(by) => self.replay_step(by),
            Global::ReplayFaster => self.replay_speed(true),
            Global::ReplaySlower => self.replay_speed(false),
            Global::ReplayMark(by) => self.replay_mark(by),
        }
    }

    fn other_run(&mut self, by: isize) -> Vec<Effect> {
        let entries = &self.shared.runs.entries;
        if entries.is_empty() {
            self.shared.say(Notice::caution("there are no runs"));
            return Vec::new();
        }
        let at = self
            .shared
            .current
            .as_ref()
            .and_then(|key| entries.iter().position(|entry| entry.key == *key));
        let next = at.map_or(0, |at| {
            (at as isize + by).rem_euclid(entries.len() as isize) as usize
        });
        let key = entries[next].key.clone();
        self.shared.say(Notice::good(key.name()));
        self.show_run(key)
    }

    fn message(&mut self, message: Message) -> Vec<Effect> {
        let is_data = matches!(
            message,
            Message::Events { .. } | Message::RunOpened { .. } | Message::RunRestarted { .. }
        );
        if is_data && self.shared.is_frozen {
            self.held.push(message);
            return Vec::new();
        }
        match message {
            Message::RunsListed(list) => {
                let version = self.shared.runs.version + 1;
                self.shared.runs = super::shared::RunList { version, ..list };
                for (key, run) in &mut self.shared.open {
                    if let Some(entry) = self.shared.runs.find(key) {
                        run.info = Some(entry.info.clone());
                    }
                }
                self.is_data_new = true;
                return self.take_latest();
            }
            Message::RunOpened { key, state } => self.change_run(&key, |run| {
                run.state = *state;
                run.problem = None;
            }),
            Message::Events { key, events } => self.change_run(&key, |run| {
                for event in &events {
                    run.state.apply(event);
                }
            }),
            Message::CaughtUp { key } => self.change_run(&key, |run| run.is_caught_up = true),
            Message::RunRestarted { key } => {
                self.change_run(&key, |run| run.state = RunState::default());
            }
            Message::RunBroken { key, problem } => {
                self.change_run(&key, |run| {
                    run.problem = Some(problem);
                    run.is_caught_up = true;
                });
            }
            Message::BadLines { key, count } => self.change_run(&key, |run| run.bad_lines = count),
            Message::ReplayReady {
                key,
                length_ms,
                marks_ms,
                steps_ms,
            } => {
                if let Some(replay) = self.replay_of(&key) {
                    replay.length_ms = length_ms;
                    replay.marks_ms = marks_ms;
                    replay.steps_ms = steps_ms;
                }
            }
            Message::ReplayAt {
                key,
                at_ms,
                is_at_end,
            } => {
                let mut effects = Vec::new();
                if let Some(replay) = self.replay_of(&key) {
                    replay.at_ms = at_ms;
                    replay.length_ms = replay.length_ms.max(at_ms);
                    if is_at_end && replay.is_playing {
                        replay.is_playing = false;
                        effects.push(Effect::Replay(ReplayCommand::Pause));
                    }
                }
                return effects;
            }
            Message::FileChanged(path) => {
                // The page that shows the file knows what to do.
                let changed = PageMessage::Config(pages::config::Message::FileChanged(path));
                return self.message(Message::Page(changed));
            }
            Message::Notice(notice) => self.shared.say(notice),
            Message::Problem(problem) => self.modal = Some(Modal::Problem(problem)),
            Message::Page(mut message) => {
                let page = pages::page_of_message(&message);
                let effects = self
                    .pages
                    .get_mut(page)
                    .update(Input::Message(&mut message), &mut self.shared);
                return self.after_page(effects);
            }
        }
        Vec::new()
    }

    fn change_run(&mut self, key: &RunKey, change: impl FnOnce(&mut OpenRun)) {
        if let Some(run) = self.shared.open.get_mut(key) {
            change(run);
            self.is_data_new = true;
        }
    }

    fn replay_of(&mut self, key: &RunKey) -> Option<&mut Replay> {
        self.shared
            .replay
            .as_mut()
            .filter(|replay| replay.key == *key)
    }

    /// How long until `update` wants the clock again.
    pub fn wake_after(&self) -> Option<Duration> {
        self.wants_clock().then_some(Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests;

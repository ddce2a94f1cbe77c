//! The workbench's state, and how one action changes it.
//!
//! ```text
//!  Runs 1  Live 2 …                    quickstart-ab12 · running · step 41/80     header
//!  ┌ the page ────────────────────────────────────────────────────────────┐
//!  └──────────────────────────────────────────────────────────────────────┘
//!  ▶ 10x  1:07 of 2:40 ━━━━━━━━━━━╸────────                                        replay bar, in a replay
//!  a notice, or: ? help  : actions  …                                              footer
//! ```

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseEventKind};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Block;
use runlog::RunState;

use super::action::{Action, Command, Effect, Global, Message, PageMessage, ReplayCommand};
use super::bindings::{self, Context};
use super::export::Chooser;
use super::keymap::{Chord, Lookup};
use super::modal::{Answer, Confirm, Help, Modal, Palette};
use super::pages::{self, Input, PageId, Pages};
use super::shared::{MOST_OPEN, Notice, OpenRun, Replay, RunKey, Shared};
use super::theme::{self, Role};
use super::widgets::{empty, text};

/// How many times as fast as it happened a replay can go.
const SPEEDS: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];

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
                .is_some_and(|entry| entry.state_word() == "running")
    }

    /// Takes one action; gives what is to be done.
    pub fn update(&mut self, action: Action) -> Vec<Effect> {
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
                modal.key(key, self.page)
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
                let share = replay_share(layout.replay, event.column);
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
        let effects = self
            .pages
            .get_mut(page)
            .update(Input::Shown, &mut self.shared);
        self.after_page(effects)
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

    fn global(&mut self, global: Global) -> Vec<Effect> {
        match global {
            Global::Help => {
                self.modal = Some(Modal::Help(Help::new(self.page)));
                Vec::new()
            }
            Global::Palette => {
                self.modal = Some(Modal::Palette(Palette::default()));
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
            Global::NextPage => self.go(self.page.step(1)),
            Global::PreviousPage => self.go(self.page.step(-1)),
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
                if let Some((copied, what)) = self.pages.get(self.page).copied(&self.shared) {
                    self.shared.say(Notice::good(format!(
                        "{what}: sent to the terminal's clipboard (OSC 52); ctrl-e writes to a file"
                    )));
                    vec![Effect::Copy(copied)]
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

    /// Starts the replay of the current run at a moment; the pages show what was known then.
    pub fn start_replay(&mut self, key: RunKey, at_ms: f64, speed: f64) -> Vec<Effect> {
        let mut effects = self.make_current(key.clone());
        effects.retain(|effect| !matches!(effect, Effect::OpenRun(opened) if *opened == key));
        if let Some(run) = self.shared.open.get_mut(&key) {
            run.state = RunState::default();
            run.is_caught_up = false;
        }
        self.shared.step = None;
        self.shared.replay = Some(Replay {
            key: key.clone(),
            at_ms,
            length_ms: 0.0,
            speed,
            is_playing: true,
            marks_ms: Vec::new(),
            steps_ms: Vec::new(),
        });
        self.is_data_new = true;
        effects.push(Effect::OpenReplay { key, at_ms });
        effects.push(Effect::Replay(ReplayCommand::Play { speed }));
        effects
    }

    fn leave_replay(&mut self) -> Vec<Effect> {
        let Some(replay) = self.shared.replay.take() else {
            return Vec::new();
        };
        if let Some(run) = self.shared.open.get_mut(&replay.key) {
            run.is_caught_up = false;
        }
        self.is_data_new = true;
        // Following starts anew and sends the whole state.
        vec![
            Effect::CloseRun(replay.key.clone()),
            Effect::OpenRun(replay.key),
        ]
    }

    fn toggle_replay(&mut self) -> Vec<Effect> {
        if self.shared.replay.is_some() {
            self.shared.say(Notice::good("back to the end of the run"));
            return self.leave_replay();
        }
        let Some(key) = self.shared.current.clone() else {
            self.shared
                .say(Notice::caution("choose a run first: page 1, enter"));
            return Vec::new();
        };
        self.start_replay(key, 0.0, 10.0)
    }

    fn with_replay(&mut self, change: impl FnOnce(&mut Replay) -> Vec<Effect>) -> Vec<Effect> {
        if let Some(replay) = &mut self.shared.replay {
            change(replay)
        } else {
            self.shared
                .say(Notice::caution("this is no replay; P starts one"));
            Vec::new()
        }
    }

    fn seek(&mut self, at_ms: f64) -> Vec<Effect> {
        self.with_replay(|replay| {
            let at_ms = at_ms.clamp(0.0, replay.length_ms.max(0.0));
            replay.at_ms = at_ms;
            vec![Effect::Replay(ReplayCommand::Seek { at_ms })]
        })
    }

    fn play_pause(&mut self) -> Vec<Effect> {
        self.with_replay(|replay| {
            replay.is_playing = !replay.is_playing;
            if !replay.is_playing {
                return vec![Effect::Replay(ReplayCommand::Pause)];
            }
            let mut effects = Vec::new();
            if replay.at_ms >= replay.length_ms {
                replay.at_ms = 0.0;
                effects.push(Effect::Replay(ReplayCommand::Seek { at_ms: 0.0 }));
            }
            effects.push(Effect::Replay(ReplayCommand::Play {
                speed: replay.speed,
            }));
            effects
        })
    }

    fn replay_speed(&mut self, is_faster: bool) -> Vec<Effect> {
        self.with_replay(|replay| {
            let next = if is_faster {
                SPEEDS.iter().find(|speed| **speed > replay.speed)
            } else {
                SPEEDS.iter().rev().find(|speed| **speed < replay.speed)
            };
            if let Some(speed) = next {
                replay.speed = *speed;
            }
            if replay.is_playing {
                vec![Effect::Replay(ReplayCommand::Play {
                    speed: replay.speed,
                })]
            } else {
                Vec::new()
            }
        })
    }

    /// To the end of the next step, or of the one before.
    fn replay_step(&mut self, by: i8) -> Vec<Effect> {
        let target = self.shared.replay.as_ref().and_then(|replay| {
            let ends = replay.steps_ms.iter().map(|(_, at_ms)| *at_ms);
            next_after(ends, replay.at_ms, by)
        });
        self.jump(target, "no step there")
    }

    fn replay_mark(&mut self, by: i8) -> Vec<Effect> {
        let target = self
            .shared
            .replay
            .as_ref()
            .and_then(|replay| next_after(replay.marks_ms.iter().copied(), replay.at_ms, by));
        self.jump(target, "no alarm, checkpoint or change there")
    }

    fn jump(&mut self, target: Option<f64>, otherwise: &str) -> Vec<Effect> {
        if self.shared.replay.is_none() {
            return self.with_replay(|_| Vec::new());
        }
        if let Some(at_ms) = target {
            self.seek(at_ms)
        } else {
            self.shared.say(Notice::caution(otherwise.to_owned()));
            Vec::new()
        }
    }

    // ---- drawing ----

    fn layout(&self, area: Rect) -> Parts {
        let replay_rows = u16::from(self.shared.replay.is_some() && area.height > 6);
        // Pages know their room from `Shared::page_area`, which says the same.
        let [header, page, replay, footer] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(replay_rows),
            Constraint::Length(u16::from(area.height > 3)),
        ])
        .areas(area);
        Parts {
            header,
            page,
            replay,
            footer,
        }
    }

    pub fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        if area.width < 12 || area.height < 3 {
            frame.render_widget("too small", area);
            return;
        }
        frame.render_widget(Block::new().style(self.shared.style(Role::Text)), area);
        let parts = self.layout(area);
        self.draw_header(frame, parts.header);
        match self
            .shared
            .current_run()
            .and_then(|run| run.problem.as_ref())
        {
            Some(problem)
                if !matches!(
                    self.page,
                    PageId::Runs | PageId::Config | PageId::Launch | PageId::Compare
                ) =>
            {
                empty::problem(&self.shared, frame, parts.page, problem);
            }
            _ => self
                .pages
                .get(self.page)
                .draw(&self.shared, frame, parts.page),
        }
        if parts.replay.height > 0 {
            self.draw_replay(frame, parts.replay);
        }
        if parts.footer.height > 0 {
            self.draw_footer(frame, parts.footer);
        }
        if let Some(modal) = &self.modal {
            modal.draw(&self.shared, self.page, frame, area);
        }
    }

    /// The tabs' texts: every name where the run's standing fits beside them, else numbers and the current one's name.
    fn tabs(&self, width: u16) -> Vec<(PageId, String)> {
        let standing: usize = self.standing().iter().map(Span::width).sum();
        let names: usize = PageId::ALL.map(|page| page.title().len() + 4).iter().sum();
        let is_wide = names + standing < usize::from(width);
        PageId::ALL
            .into_iter()
            .enumerate()
            .map(|(index, page)| {
                let number = index + 1;
                let label = if is_wide || page == self.page {
                    format!("{number} {}", page.title())
                } else {
                    number.to_string()
                };
                let is_marked_by_color = self.shared.theme.style(Role::Selection).bg.is_some();
                let label = if page == self.page && !is_marked_by_color {
                    format!("[{label}]")
                } else {
                    format!(" {label} ")
                };
                (page, label)
            })
            .collect()
    }

    fn tab_at(&self, header: Rect, column: u16) -> Option<PageId> {
        let mut at = header.x;
        for (page, label) in self.tabs(header.width) {
            let end = at + text::width(&label) as u16;
            if (at..end).contains(&column) {
                return Some(page);
            }
            at = end;
        }
        None
    }

    fn draw_header(&self, frame: &mut Frame<'_>, area: Rect) {
        let shared = &self.shared;
        let mut spans: Vec<Span<'_>> = Vec::new();
        let mut used = 0;
        for (page, label) in self.tabs(area.width) {
            used += text::width(&label);
            let style = if page == self.page {
                shared
                    .style(Role::Accent)
                    .patch(shared.style(Role::Selection))
            } else {
                shared.style(Role::Muted)
            };
            spans.push(Span::styled(label, style));
        }
        let right = self.standing();
        let room = usize::from(area.width).saturating_sub(used + 1);
        let width: usize = right.iter().map(Span::width).sum();
        if width <= room {
            spans.push(Span::raw(" ".repeat(room - width + 1)));
            spans.extend(right);
        } else {
            let whole: String = right.iter().map(|span| span.content.as_ref()).collect();
            spans.push(Span::raw(" "));
            spans.push(Span::raw(text::fit(&whole, room, shared.glyphs.unicode)));
        }
        frame.render_widget(Line::from(spans), area);
    }

    /// The current run in a few words.
    fn standing(&self) -> Vec<Span<'static>> {
        let shared = &self.shared;
        let mut spans = Vec::new();
        if shared.is_frozen {
            spans.push(Span::styled("frozen  ", shared.style(Role::Caution)));
        }
        if shared.is_read_only {
            spans.push(Span::styled("read-only  ", shared.style(Role::Muted)));
        }
        let Some(run) = shared.current_run() else {
            return spans;
        };
        let name = run.info.as_ref().map_or_else(
            || run.key.name(),
            |info| format!("{}-{}", info.experiment_name, info.id),
        );
        // The name comes last: it is what a narrow screen can spare.
        let (word, role) = self.state_of(run);
        spans.push(Span::styled(word, shared.style(role)));
        if let Some(total) = run.state.total_steps() {
            spans.push(Span::raw(format!("  step {}/{total}", run.state.step)));
        }
        if run.bad_lines > 0 {
            spans.push(Span::styled(
                format!("  {} corrupt lines", run.bad_lines),
                shared.style(Role::Caution),
            ));
        }
        spans.push(Span::raw("  "));
        spans.push(Span::styled(name, shared.style(Role::Title)));
        spans
    }

    fn state_of(&self, run: &OpenRun) -> (String, Role) {
        if self.shared.replay.is_some() {
            return ("replay".to_owned(), Role::Caution);
        }
        if !run.is_caught_up {
            return ("opening".to_owned(), Role::Muted);
        }
        let word = match self.shared.runs.find(&run.key) {
            Some(entry) if entry.state_word() == "running" && run.state.is_paused => {
                "paused".to_owned()
            }
            Some(entry) => entry.state_word().to_owned(),
            None => match &run.state.ended {
                Some(ended) => match ended.status {
                    runlog::event::RunStatus::Completed => "finished",
                    runlog::event::RunStatus::Stopped => "stopped",
                    _ => "failed",
                }
                .to_owned(),
                None => String::new(),
            },
        };
        let role = match word.as_str() {
            "running" => Role::Accent,
            "finished" => Role::Good,
            "failed" | "dead" => Role::Bad,
            _ => Role::Caution,
        };
        (word, role)
    }

    fn draw_replay(&self, frame: &mut Frame<'_>, area: Rect) {
        let Some(replay) = &self.shared.replay else {
            return;
        };
        let glyphs = self.shared.glyphs;
        let mark = if replay.is_playing {
            glyphs.pick("▶", ">")
        } else {
            glyphs.pick("⏸", "=")
        };
        let left = format!(
            "{mark} {}x  {} of {} ",
            text::number(replay.speed),
            text::clock(replay.at_ms),
            text::clock(replay.length_ms)
        );
        let left = text::pad(
            &left,
            usize::from(REPLAY_LABEL.min(area.width)),
            glyphs.unicode,
        );
        let room = area.width.saturating_sub(REPLAY_LABEL);
        let column_of = |ms: f64| {
            let share = if replay.length_ms > 0.0 {
                (ms / replay.length_ms).clamp(0.0, 1.0)
            } else {
                0.0
            };
            (share * f64::from(room.saturating_sub(1))).round() as u16
        };
        let mut cells: Vec<(&str, Role)> = (0..room)
            .map(|column| {
                if column <= column_of(replay.at_ms) {
                    (glyphs.pick("━", "="), Role::Accent)
                } else {
                    (glyphs.pick("─", "-"), Role::Muted)
                }
            })
            .collect();
        for mark_ms in &replay.marks_ms {
            if let Some(cell) = cells.get_mut(usize::from(column_of(*mark_ms))) {
                *cell = (glyphs.pick("◆", "+"), Role::Caution);
            }
        }
        let mut spans = vec![Span::styled(left, self.shared.style(Role::Title))];
        spans.extend(
            cells
                .into_iter()
                .map(|(symbol, role)| Span::styled(symbol, self.shared.style(role))),
        );
        frame.render_widget(Line::from(spans), area);
    }

    fn draw_footer(&self, frame: &mut Frame<'_>, area: Rect) {
        let shared = &self.shared;
        let unicode = shared.glyphs.unicode;
        if let Some(notice) = &shared.notice {
            let shown = text::fit(&notice.text, usize::from(area.width), unicode);
            frame.render_widget(Line::styled(shown, shared.style(notice.role)), area);
            return;
        }
        if !self.pressed.is_empty() {
            let keys: Vec<String> = self.pressed.iter().map(ToString::to_string).collect();
            let shown = format!("{} …", keys.join(" "));
            frame.render_widget(Line::styled(shown, shared.style(Role::Accent)), area);
            return;
        }
        let is_typing = self.pages.get(self.page).is_typing();
        let status = self.pages.get(self.page).status(shared);
        let mut spans: Vec<Span<'_>> = Vec::new();
        let mut room = usize::from(area.width).saturating_sub(text::width(&status) + 1);
        let hints: Vec<(String, &str)> = if is_typing {
            vec![
                ("enter".to_owned(), "accept"),
                ("esc".to_owned(), "give up"),
            ]
        } else {
            let of_page = bindings::all()
                .iter()
                .filter(|binding| binding.context == Context::Page(self.page));
            let global = bindings::all()
                .iter()
                .filter(|binding| binding.context == Context::Global);
            of_page
                .chain(global)
                .filter(|binding| !binding.hint.is_empty())
                .filter_map(|binding| {
                    let key = shared.keymap.keys_of(binding).first()?;
                    Some((key.clone(), binding.hint))
                })
                .collect()
        };
        for (key, hint) in hints {
            let width = text::width(&key) + text::width(hint) + 3;
            if width > room {
                continue;
            }
            room -= width;
            spans.push(Span::styled(key, shared.style(Role::Accent)));
            spans.push(Span::styled(
                format!(" {hint}  "),
                shared.style(Role::Muted),
            ));
        }
        frame.render_widget(Line::from(spans), area);
        if !status.is_empty() {
            let width = (text::width(&status) as u16).min(area.width);
            let right = Rect::new(area.right() - width, area.y, width, 1);
            frame.render_widget(Line::styled(status, shared.style(Role::Muted)), right);
        }
    }

    /// How long until `update` wants the clock again.
    pub fn wake_after(&self) -> Option<Duration> {
        self.wants_clock().then_some(Duration::from_secs(1))
    }
}

/// Columns of the replay bar's text.
const REPLAY_LABEL: u16 = 26;

/// The share of the run that a column of the replay bar stands for.
fn replay_share(bar: Rect, column: u16) -> f64 {
    let room = bar.width.saturating_sub(REPLAY_LABEL).max(2);
    let at = column.saturating_sub(bar.x + REPLAY_LABEL);
    (f64::from(at) / f64::from(room - 1)).clamp(0.0, 1.0)
}

/// The nearest of `times` after `now` (or before it when `by` is negative); a tenth of a millisecond is no distance.
fn next_after(times: impl Iterator<Item = f64>, now: f64, by: i8) -> Option<f64> {
    if by > 0 {
        times
            .filter(|time| *time > now + 0.1)
            .min_by(f64::total_cmp)
    } else {
        times
            .filter(|time| *time < now - 0.1)
            .max_by(f64::total_cmp)
    }
}

struct Parts {
    header: Rect,
    page: Rect,
    replay: Rect,
    footer: Rect,
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent};

    use super::*;
    use crate::tui::testing::{Bench, sample_events};

    fn has(bench: &Bench, wanted: fn(&Effect) -> bool) -> bool {
        bench.effects.iter().any(wanted)
    }

    #[test]
    fn number_keys_and_clicks_on_tabs_bring_pages_to_the_front() {
        let mut bench = Bench::with_run(5);
        for (index, page) in PageId::ALL.into_iter().enumerate() {
            bench.press(&(index + 1).to_string());
            assert_eq!(bench.app.page, page);
        }
        let screen = bench.screen(120, 40);
        let column = screen.lines().next().unwrap().find('2').unwrap() as u16;
        bench.act(Action::Mouse(MouseEvent {
            kind: MouseEventKind::Down(MouseButton::Left),
            column,
            row: 0,
            modifiers: KeyModifiers::NONE,
        }));
        assert_eq!(bench.app.page, PageId::Live);
    }

    #[test]
    fn the_palette_finds_an_action_by_its_words_and_does_it() {
        let mut bench = Bench::with_run(5);
        bench.press("ctrl-p");
        bench.type_text("page timeline");
        bench.press("enter");
        assert_eq!(bench.app.page, PageId::Timeline);
    }

    #[test]
    fn pasted_text_reaches_a_field_and_never_the_keys() {
        let mut bench = Bench::default();
        bench.act(Action::Paste("q".to_owned()));
        assert!(!has(&bench, |effect| matches!(effect, Effect::Quit)));
        bench.press("ctrl-p");
        bench.act(Action::Paste("page logs".to_owned()));
        bench.press("enter");
        assert_eq!(bench.app.page, PageId::Logs);
    }

    #[test]
    fn quitting_ends_no_run_and_keeps_the_layout() {
        let mut bench = Bench::with_run(5);
        bench.press("q");
        assert!(has(&bench, |effect| matches!(effect, Effect::Quit)));
        assert!(has(&bench, |effect| matches!(effect, Effect::SaveState)));
    }

    #[test]
    fn a_frozen_screen_loses_nothing() {
        let mut bench = Bench::with_run(5);
        let key = bench.app.shared.current.clone().unwrap();
        let before = bench.app.shared.current_run().unwrap().state.clone();
        bench.press("F");
        let mut event = sample_events(6).pop().unwrap();
        event.seq = before.events;
        bench.act(Action::Message(Message::Events {
            key,
            events: vec![event.clone()],
        }));
        assert_eq!(bench.app.shared.current_run().unwrap().state, before);
        bench.press("F");
        let mut after = before;
        after.apply(&event);
        assert_eq!(bench.app.shared.current_run().unwrap().state, after);
    }

    #[test]
    fn a_replay_goes_by_steps_and_marks_and_back_to_live() {
        let mut bench = Bench::with_run(20);
        bench.press("P");
        let key = bench.app.shared.current.clone().unwrap();
        assert!(has(&bench, |effect| matches!(
            effect,
            Effect::OpenReplay { .. }
        )));
        bench.act(Action::Message(Message::ReplayReady {
            key: key.clone(),
            length_ms: 40_000.0,
            marks_ms: vec![14_500.0, 20_500.0],
            steps_ms: (1..=20)
                .map(|step| (step, 500.0 + step as f64 * 2000.0))
                .collect(),
        }));
        bench.effects.clear();
        bench.press("> > ctrl-n <");
        let seeks: Vec<f64> = bench
            .effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Replay(ReplayCommand::Seek { at_ms }) => Some(*at_ms),
                _ => None,
            })
            .collect();
        assert_eq!(seeks, [2500.0, 4500.0, 14_500.0, 12_500.0]);
        let screen = bench.screen(80, 24);
        assert!(screen.contains("10x  0:12 of 0:40"), "{screen}");
        bench.press("P");
        assert!(bench.app.shared.replay.is_none());
        assert!(has(&bench, |effect| matches!(effect, Effect::OpenRun(_))));
    }

    #[test]
    fn ctrl_c_in_a_text_field_gives_up_the_line_and_does_not_leave() {
        let mut bench = Bench::with_run(5);
        bench.press("2 A");
        bench.type_text("kl");
        bench.act(Action::Key(KeyEvent::new(
            KeyCode::Char('c'),
            KeyModifiers::CONTROL,
        )));
        assert!(!has(&bench, |effect| matches!(effect, Effect::Quit)));
        assert!(!bench.app.pages.get(PageId::Live).is_typing());
    }

    #[test]
    fn a_confirmation_takes_its_own_key_and_nothing_else() {
        for (key, is_done) in [("y", true), ("enter", false), ("r", false), ("esc", false)] {
            let mut bench = Bench::with_run(5);
            bench.press("2 D r");
            bench.effects.clear();
            bench.press(key);
            assert_eq!(
                has(&bench, |effect| matches!(effect, Effect::SaveState)),
                is_done,
                "{key}"
            );
        }
    }
}

//! What the workbench's tests share: runs with every kind of event, and the app on a screen in memory.

use std::path::{Path, PathBuf};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use runlog::event::{GpuSample, Lane, Level, Phase, RunStatus};
use runlog::number::{Number, Values};
use runlog::run_dir::{NewRun, RunDir};
use runlog::{Event, EventKind};
use tempfile::TempDir;

use super::action::{Action, Command, Effect, Global, Message};
use super::app::App;
use super::bindings::{self, Context};
use super::keymap::{self, Keymap};
use super::pages::PageId;
use super::settings::PageState;
use super::shared::{Glyphs, PlotMarks, Problem, Project, RunKey, Shared};
use super::theme::{self, Depth};

/// The time at which every test's workbench stands.
pub const NOW: i64 = 1_796_000_000;

/// The events of a finished run of `steps` steps: two seconds a step, every lane, a wave in the reward, one NaN, two alarms.
pub fn sample_events(steps: u64) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let mut push = |elapsed_ms: f64, kind: EventKind| {
        let seq = events.len() as u64;
        events.push(Event {
            seq,
            elapsed_ms,
            kind,
        });
    };
    push(
        0.0,
        EventKind::PhaseChanged {
            phase: Phase::Setup,
        },
    );
    push(
        400.0,
        EventKind::RunStarted {
            experiment_name: "sample".to_owned(),
            mode: "one_step_off".to_owned(),
            total_steps: steps,
            parameters: 800_000,
            pid: 4_000_000,
            host: "elsewhere".to_owned(),
            seed: 1,
        },
    );
    push(
        400.0,
        EventKind::LogLine {
            level: Level::Info,
            target: "trainer".to_owned(),
            message: "loaded the model".to_owned(),
        },
    );
    push(
        500.0,
        EventKind::PhaseChanged {
            phase: Phase::Train,
        },
    );
    for step in 1..=steps {
        let start = 500.0 + (step - 1) as f64 * 2000.0;
        let x = step as f64;
        let mut span = |lane, name: &str, from: f64, to: f64| {
            push(
                start + to,
                EventKind::Span {
                    lane,
                    name: name.to_owned(),
                    step: Some(step),
                    start_ms: start + from,
                    end_ms: start + to,
                },
            );
        };
        span(Lane::Generate, "batch", 0.0, 1500.0);
        span(Lane::Tool, "calculator", 300.0, 340.0);
        span(Lane::Reward, "score", 1500.0, 1510.0);
        span(Lane::OldLogProb, "old", 1500.0, 1600.0);
        span(Lane::ActorUpdate, "actor", 1600.0, 1900.0);
        span(Lane::WeightSync, "publish", 1900.0, 1910.0);
        for sample in 0..4 {
            push(
                start + 1500.0,
                EventKind::RolloutEnded {
                    step,
                    uid: format!("{step}-0"),
                    sample,
                    policy_version_min: step - 1,
                    policy_version_max: step - 1,
                    turns: 3,
                    tool_calls: 2,
                    response_tokens: 40 + sample,
                    score: Some(Number(f64::from(sample % 2))),
                    finish: "stop".to_owned(),
                },
            );
        }
        push(
            start + 1910.0,
            EventKind::WeightsSynced {
                version: step,
                bytes: 3_200_000,
                blocked_ms: 0.002,
                transfer_ms: 3.0 + (x * 0.7).sin(),
                total_ms: 14.0,
                sent_fingerprint: "ab".to_owned(),
                received_fingerprint: "ab".to_owned(),
                canary_max_diff_nats: Number(0.0),
                verified: true,
            },
        );
        push(
            start + 1950.0,
            EventKind::HostSampled {
                cpu_percent: 80.0 + 10.0 * x.sin(),
                memory_used_bytes: 4 << 30,
                memory_total_bytes: 24 << 30,
                process_memory_bytes: 1 << 30,
                process_cpu_percent: 150.0,
                gpus: vec![GpuSample {
                    index: 0,
                    name: "sample GPU".to_owned(),
                    utilization_percent: 70.0 + 20.0 * (x * 0.3).sin(),
                    memory_used_bytes: 30 << 30,
                    memory_total_bytes: 80 << 30,
                    power_watts: 400.0,
                }],
            },
        );
        let reward = 0.4 + 0.55 * (1.0 - (-x / 12.0).exp());
        let kl = if step == 7 { f64::NAN } else { 2e-4 * x };
        let values: Values = [
            ("critic/score/mean", reward),
            ("actor/ppo_kl", kl),
            ("actor/kl_loss", 1e-3 * x),
            ("actor/pg_loss", -0.1 / x),
            ("actor/entropy", 0.3 * (-x / 20.0).exp()),
            ("actor/pg_clipfrac", 0.01),
            ("actor/grad_norm", 0.5),
            ("actor/lr", 2e-4),
            ("response_length/mean", 21.0 + x / 2.0),
            ("staleness/mean", 1.0),
            ("perf/throughput", 2500.0),
            ("perf/total_num_tokens", 5000.0),
            ("timing_s/step", 2.0),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Number(value)))
        .collect();
        push(
            start + 2000.0,
            EventKind::StepEnded {
                step,
                policy_version: step,
                values,
            },
        );
        if step % 10 == 0 {
            push(
                start + 2000.0,
                EventKind::EvalEnded {
                    step,
                    policy_version: step,
                    samples: 256,
                    values: [(
                        "val-core/calc/reward/mean@1".to_owned(),
                        Number(reward - 0.02),
                    )]
                    .into(),
                },
            );
            push(
                start + 2000.0,
                EventKind::CheckpointSaved {
                    step,
                    path: format!("checkpoints/step-{step:06}"),
                    bytes: 9_600_000,
                    save_ms: 20.0,
                    blocked_ms: 0.5,
                },
            );
        }
        if step == 7 {
            push(
                start + 2000.0,
                EventKind::Alarm {
                    name: "non-finite".to_owned(),
                    step: Some(step),
                    message: "the KL of step 7 is not a number".to_owned(),
                },
            );
        }
    }
    let end = 500.0 + steps as f64 * 2000.0;
    push(
        end + 100.0,
        EventKind::LogLine {
            level: Level::Warning,
            target: "trainer".to_owned(),
            message: "the last batch was short".to_owned(),
        },
    );
    push(
        end + 200.0,
        EventKind::RunEnded {
            status: RunStatus::Completed,
            exit_code: 0,
            reason: "every step was trained".to_owned(),
            steps,
        },
    );
    events
}

/// Writes a run into `root`; gives its directory.
pub fn sample_run_in(root: &Path, steps: u64) -> PathBuf {
    let run_dir = RunDir::create(
        root,
        &NewRun {
            project_name: "tests".to_owned(),
            experiment_name: "sample".to_owned(),
            seed: 1,
            experiment_yaml: "trainer:\n  experiment_name: sample\n".to_owned(),
            ..NewRun::default()
        },
    )
    .unwrap();
    let lines: String = sample_events(steps)
        .iter()
        .map(|event| serde_json::to_string(event).unwrap() + "\n")
        .collect();
    std::fs::write(run_dir.events_path(), lines).unwrap();
    run_dir.path().to_owned()
}

/// A run directory of its own, and its events.
pub fn sample_run(steps: u64) -> (TempDir, Vec<Event>) {
    let folder = tempfile::tempdir().unwrap();
    let run = sample_run_in(folder.path(), steps);
    for entry in std::fs::read_dir(&run).unwrap() {
        let entry = entry.unwrap();
        std::fs::rename(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    std::fs::remove_dir(run).unwrap();
    (folder, sample_events(steps))
}

/// `Shared` of an empty project: dark theme in true colour, braille, 120×40.
pub fn shared() -> Shared {
    Shared {
        project: Project {
            directory: PathBuf::from("/project"),
            runs_roots: vec![PathBuf::from("/project/runs")],
            experiments: PathBuf::from("/project/experiments"),
        },
        theme: theme::load("dark", &[]).unwrap(),
        glyphs: Glyphs {
            unicode: true,
            plot: PlotMarks::Braille,
        },
        keymap: Keymap::default(),
        kept: PageState::default(),
        columns: 120,
        rows: 40,
        front: PageId::Runs,
        now: Timestamp::from_second(NOW).unwrap(),
        runs: super::shared::RunList {
            is_read: true,
            ..super::shared::RunList::default()
        },
        open: std::collections::BTreeMap::new(),
        current: None,
        marked: Vec::new(),
        step: None,
        replay: None,
        is_frozen: false,
        is_read_only: false,
        notice: None,
        wish: None,
    }
}

/// The app, what it wanted done, and a screen in memory. No thread, no file, no clock.
pub struct Bench {
    pub app: App,
    pub effects: Vec<Effect>,
}

impl Default for Bench {
    fn default() -> Self {
        Self::new(shared())
    }
}

impl Bench {
    pub fn new(shared: Shared) -> Self {
        Self {
            app: App::new(shared),
            effects: Vec::new(),
        }
    }

    /// With one finished run of `steps` steps open and shown.
    pub fn with_run(steps: u64) -> Self {
        let mut bench = Self::default();
        bench.open_run("/project/runs/20261129-100000-sample-ab120000", steps);
        bench
    }

    pub fn open_run(&mut self, path: &str, steps: u64) -> RunKey {
        let key = RunKey::new(Path::new(path));
        self.act(Action::Message(Message::RunsListed(
            self.app.shared.runs.clone(),
        )));
        let effects = self.app.show_run(key.clone());
        self.effects.extend(effects);
        let state = Box::new(runlog::RunState::fold(&sample_events(steps)));
        self.act(Action::Message(Message::RunOpened {
            key: key.clone(),
            state,
        }));
        self.act(Action::Message(Message::CaughtUp { key: key.clone() }));
        key
    }

    pub fn act(&mut self, action: Action) {
        let effects = self.app.update(action);
        self.effects.extend(effects);
        let effects = self.app.settle();
        self.effects.extend(effects);
    }

    /// Presses keys, written as in the bindings and separated by spaces: `"2 g g ctrl-d"`.
    pub fn press(&mut self, keys: &str) {
        for chord in keymap::parse_sequence(keys).expect("keys as in the bindings") {
            self.act(Action::Key(chord.event()));
        }
    }

    /// Types text, letter by letter.
    pub fn type_text(&mut self, text: &str) {
        for c in text.chars() {
            self.act(Action::Key(KeyEvent::new(
                KeyCode::Char(c),
                KeyModifiers::NONE,
            )));
        }
    }

    /// Carries out the jobs that are asked for, here and now, until none is left; gives the other effects.
    pub fn run_jobs(&mut self) -> Vec<Effect> {
        let mut others = Vec::new();
        while !self.effects.is_empty() {
            for effect in std::mem::take(&mut self.effects) {
                match effect {
                    Effect::Job { work, .. } => {
                        let message = work();
                        self.act(Action::Message(message));
                    }
                    other => others.push(other),
                }
            }
        }
        others
    }

    /// The screen as text, one line a row, without trailing spaces.
    pub fn screen(&mut self, columns: u16, rows: u16) -> String {
        let buffer = self.buffer(columns, rows);
        let mut text = String::new();
        for row in 0..rows {
            let mut line = String::new();
            let mut skip = 0;
            for column in 0..columns {
                let symbol = buffer[(column, row)].symbol();
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                skip = super::widgets::text::width(symbol).saturating_sub(1);
                line.push_str(symbol);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// The cells of a screen of this size.
    pub fn buffer(&mut self, columns: u16, rows: u16) -> ratatui::buffer::Buffer {
        self.act(Action::Resize { columns, rows });
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| self.app.draw(frame)).unwrap();
        terminal.backend().buffer().clone()
    }

    /// Without colour, without Unicode.
    pub fn make_plain(&mut self) {
        let shared = &mut self.app.shared;
        shared.theme = shared.theme.at_depth(Depth::Mono);
        shared.glyphs = Glyphs {
            unicode: false,
            plot: PlotMarks::Ascii,
        };
    }
}

/// The states in which every page must stand: nothing, a run without events, a finished one, one that cannot be read, the first
/// moment of a replay.
pub const STATES: [fn() -> Bench; 5] = [
    Bench::default,
    || Bench::with_run(0),
    || Bench::with_run(30),
    || {
        let mut bench = Bench::with_run(5);
        let key = bench.app.shared.current.clone().expect("it was opened");
        let problem = Problem::new("gone", "its directory is gone", "");
        bench.act(Action::Message(Message::RunBroken { key, problem }));
        bench
    },
    || {
        let mut bench = Bench::with_run(5);
        let key = bench.app.shared.current.clone().expect("it was opened");
        bench.app.start_replay(key, 0.0, 1.0);
        bench
    },
];

fn bindings_of(page: PageId) -> impl Iterator<Item = &'static bindings::Binding> {
    let contexts = [Context::Global, Context::Page(page)];
    bindings::all()
        .iter()
        .filter(move |binding| contexts.contains(&binding.context))
}

/// Does everything that can be done on a page, each from a fresh state, on screens of several sizes; whatever opens is typed
/// into and left. Once without any answer of a job; once with all of them, and then nothing may be written or started.
/// Nothing may panic.
pub fn do_everything(page: PageId, make: impl Fn() -> Bench) {
    for binding in bindings_of(page) {
        for has_jobs in [false, true] {
            let mut bench = make();
            bench.app.shared.is_read_only |= has_jobs;
            bench.act(Action::Command(Command::Global(Global::Go(page))));
            for (columns, rows) in [(80, 24), (40, 10), (12, 3)] {
                bench.act(Action::Command(binding.command));
                if has_jobs {
                    bench.run_jobs();
                }
                bench.screen(columns, rows);
            }
            bench.act(Action::Paste("1e-5\ny".to_owned()));
            bench.press("j enter esc esc");
            if has_jobs {
                bench.run_jobs();
            }
            bench.screen(120, 40);
        }
    }
}

/// Does everything that is a page's own, one after another in the same workbench, with the answers of its jobs.
pub fn do_everything_in_turn(page: PageId, bench: &mut Bench) {
    for binding in bindings_of(page) {
        if binding.context == Context::Global {
            continue;
        }
        bench.act(Action::Command(binding.command));
        bench.screen(80, 24);
        bench.screen(40, 10);
        bench.run_jobs();
        bench.screen(120, 40);
        if bench.app.pages.get(page).is_typing() {
            bench.press("a enter");
        }
    }
}

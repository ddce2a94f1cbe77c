//! What the workbench shows now, written to a file of the project: the screen, or the curves as they stand on it.

use std::path::Path;
use std::time::SystemTime;

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::Frame;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use runlog::run_dir::RunDir;
use runlog::series::XAxis;

use super::action::{Command, Effect, Global, Message};
use super::app::App;
use super::modal::{Answer, boxed, middle};
use super::shared::{Notice, Problem, Shared};
use super::theme::{self, Role};
use super::widgets::list::{ListState, Move};
use crate::export::curves::{Sheet, Shown, View, panel, usual};
use crate::export::{Extras, Format, Options, cells, export, new_file, picture};
use crate::headless;

/// Pixels of a picture of curves: three panels beside each other.
const WIDTH: u32 = 1240;

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    ScreenSvg,
    ScreenText,
    CurvesSvg,
    CurvesPng,
    CurvesCsv,
    RunHtml,
    RunJson,
    RunParquet,
}

impl Kind {
    pub const ALL: [Self; 8] = [
        Self::ScreenSvg,
        Self::ScreenText,
        Self::CurvesSvg,
        Self::CurvesPng,
        Self::CurvesCsv,
        Self::RunHtml,
        Self::RunJson,
        Self::RunParquet,
    ];

    fn key(self) -> char {
        match self {
            Self::ScreenSvg => 's',
            Self::ScreenText => 't',
            Self::CurvesSvg => 'c',
            Self::CurvesPng => 'p',
            Self::CurvesCsv => 'v',
            Self::RunHtml => 'h',
            Self::RunJson => 'n',
            Self::RunParquet => 'a',
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::ScreenSvg => "the screen, as SVG",
            Self::ScreenText => "the screen, as text",
            Self::CurvesSvg => "the curves as they stand, as SVG",
            Self::CurvesPng => "the curves as they stand, as PNG",
            Self::CurvesCsv => "the values of the curves, as CSV",
            Self::RunHtml => "the whole run, a report in HTML",
            Self::RunJson => "all metrics of the run, as JSON",
            Self::RunParquet => "all metrics of the run, as Parquet",
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Self::ScreenSvg | Self::CurvesSvg => "svg",
            Self::ScreenText => "txt",
            Self::CurvesPng => "png",
            Self::CurvesCsv => "csv",
            Self::RunHtml | Self::RunJson | Self::RunParquet => {
                self.whole().map_or("", Format::extension)
            }
        }
    }

    /// Of a kind that is all of the run, whatever is on the screen.
    fn whole(self) -> Option<Format> {
        match self {
            Self::RunHtml => Some(Format::Html),
            Self::RunJson => Some(Format::Json),
            Self::RunParquet => Some(Format::Parquet),
            _ => None,
        }
    }
}

/// The question what to write.
#[derive(Debug, Default)]
pub struct Chooser {
    list: ListState,
}

impl Chooser {
    pub fn key(&mut self, key: KeyEvent) -> Answer {
        let count = Kind::ALL.len();
        let run = |kind| Answer::Run(Command::Global(Global::ExportAs(kind)));
        let kind_of = |letter| Kind::ALL.into_iter().find(|kind| kind.key() == letter);
        let is_kind = matches!(key.code, KeyCode::Char(letter) if kind_of(letter).is_some());
        if let Some(by) = Move::of_menu(key).filter(|_| !is_kind) {
            self.list.go(by, count, count);
            return Answer::Stay;
        }
        match key.code {
            KeyCode::Enter => run(Kind::ALL[self.list.selected(count)]),
            KeyCode::Char(letter) => match kind_of(letter) {
                Some(kind) => run(kind),
                None => Answer::Close,
            },
            _ => Answer::Close,
        }
    }

    pub fn draw(&self, shared: &Shared, frame: &mut Frame<'_>, area: Rect) {
        let place = middle(area, 52, Kind::ALL.len() as u16 + 4);
        let inner = boxed(shared, frame, place, " Write to a file ", Role::Focus);
        let selected = self.list.selected(Kind::ALL.len());
        let mut lines: Vec<Line<'_>> = Kind::ALL
            .into_iter()
            .enumerate()
            .map(|(row, kind)| {
                let pointer = if row == selected { ">" } else { " " };
                let line = Line::from(vec![
                    Span::raw(pointer),
                    Span::styled(format!(" {}  ", kind.key()), shared.style(Role::Accent)),
                    Span::raw(kind.label()),
                ]);
                if row == selected {
                    line.style(shared.style(Role::Selection))
                } else {
                    line
                }
            })
            .collect();
        lines.push(Line::default());
        lines.push(Line::styled(
            " other metrics, sizes, themes: lathe export RUN",
            shared.style(Role::Muted),
        ));
        frame.render_widget(Paragraph::new(lines), inner);
    }
}

/// Writes `kind` into the project's directory, in a job; says where, or why not.
pub fn write(app: &mut App, kind: Kind) -> Vec<Effect> {
    if app.shared.refuse_when_read_only("writing files") {
        return Vec::new();
    }
    let title = app.page.title().to_lowercase();
    let time = app.shared.now.strftime("%Y%m%d-%H%M%S");
    let what = match kind {
        Kind::ScreenSvg | Kind::ScreenText => title,
        Kind::CurvesSvg | Kind::CurvesPng | Kind::CurvesCsv => "curves".to_owned(),
        Kind::RunHtml | Kind::RunJson | Kind::RunParquet => "run".to_owned(),
    };
    let name = format!("lathe-{what}-{time}");
    let directory = app.shared.project.directory.clone();
    let theme = app.shared.theme.clone();
    let content: Box<dyn FnOnce() -> Result<Vec<u8>, String> + Send> = match kind {
        Kind::ScreenText => {
            let text = text(&screen(app));
            Box::new(move || Ok(text.into_bytes()))
        }
        Kind::ScreenSvg => {
            let buffer = screen(app);
            Box::new(move || Ok(cells::svg(&buffer, &theme).into_bytes()))
        }
        Kind::RunHtml | Kind::RunJson | Kind::RunParquet => {
            let Some(run) = app.shared.current_run() else {
                app.shared
                    .say(Notice::caution("there is no run: choose one first"));
                return Vec::new();
            };
            let path = run.key.path().to_owned();
            let format = kind.whole().expect("these three have one");
            Box::new(move || whole(&path, format))
        }
        Kind::CurvesSvg | Kind::CurvesPng | Kind::CurvesCsv => {
            let sheet = sheet(app);
            if sheet.panels.is_empty() {
                app.shared
                    .say(Notice::caution("there are no curves: choose a run first"));
                return Vec::new();
            }
            Box::new(move || match kind {
                Kind::CurvesCsv => Ok(sheet.csv().into_bytes()),
                Kind::CurvesPng => {
                    picture::png(&sheet, &theme, WIDTH).map_err(|error| error.to_string())
                }
                _ => Ok(picture::svg(&sheet, &theme, WIDTH).into_bytes()),
            })
        }
    };
    vec![Effect::job("export", move || {
        let written = content().and_then(|content| {
            new_file(&directory, &name, kind.extension(), &content)
                .map_err(|error| format!("{}: {error}", directory.display()))
        });
        match written {
            Ok(path) => {
                // The name first: the folder is known, and may be long.
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let folder = directory.display();
                Message::Notice(Notice::good(format!("wrote {name} in {folder}")))
            }
            Err(reason) => Message::Problem(Problem::new("It was not written", reason, "")),
        }
    })]
}

/// All of a run as its directory has it, as `lathe export` writes it.
pub fn whole(run: &Path, format: Format) -> Result<Vec<u8>, String> {
    let reason = |error: &dyn std::fmt::Display| format!("{}: {error}", run.display());
    let directory = RunDir::open(run).map_err(|error| reason(&error))?;
    let (state, bad_lines) = headless::read(&directory).map_err(|error| reason(&error))?;
    let extras = Extras::read(&directory, &state, bad_lines, SystemTime::now());
    let options = Options {
        metrics: Vec::new(),
        axis: XAxis::Step,
        smoothing: 0.0,
        // A page is read on white.
        theme: theme::load("light", &[]).expect("the shipped theme loads"),
        width: WIDTH,
        beside: Vec::new(),
    };
    let mut content = Vec::new();
    export(&directory, &state, &extras, format, &options, &mut content)
        .map_err(|error| reason(&error))?;
    Ok(content)
}

/// The curves of the page in front; of a page without any, the usual ones of the runs that are shown.
fn sheet(app: &App) -> Sheet {
    let shared = &app.shared;
    let panels = app.pages.get(app.page).curves(shared);
    let names: Vec<(usize, String, &runlog::RunState)> = shared
        .shown_runs()
        .into_iter()
        .map(|(color, run)| (color, run.key.name(), &run.state))
        .collect();
    let title: Vec<&str> = names.iter().map(|(_, name, _)| name.as_str()).collect();
    let title = title.join(", ");
    if !panels.is_empty() {
        return Sheet { title, panels };
    }
    let shown: Vec<Shown<'_>> = names
        .iter()
        .map(|(color, name, state)| Shown {
            name,
            color: *color,
            state,
        })
        .collect();
    let states: Vec<&runlog::RunState> = shown.iter().map(|run| run.state).collect();
    let panels = usual(&states)
        .iter()
        .filter_map(|metric| panel(&shown, metric, &View::default()))
        .collect();
    Sheet { title, panels }
}

/// What is on the screen, drawn once more.
pub fn screen(app: &App) -> Buffer {
    let (columns, rows) = (app.shared.columns, app.shared.rows);
    let mut terminal =
        Terminal::new(TestBackend::new(columns, rows)).expect("a screen in memory cannot fail");
    terminal
        .draw(|frame| app.draw(frame))
        .expect("a screen in memory cannot fail");
    terminal.backend().buffer().clone()
}

/// The screen's letters, without trailing spaces.
pub fn text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for row in 0..buffer.area.height {
        let mut line = String::new();
        let mut hidden = 0;
        for column in 0..buffer.area.width {
            let symbol = buffer[(column, row)].symbol();
            if hidden > 0 {
                // The second half of a wide character.
                hidden -= 1;
                continue;
            }
            hidden = super::widgets::text::width(symbol).saturating_sub(1);
            line.push_str(symbol);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::testing::Bench;

    /// With a run of 30 steps, in a project that is a folder of its own.
    fn bench(folder: &Path) -> Bench {
        let mut bench = Bench::with_run(30);
        bench.app.shared.project.directory = folder.to_owned();
        bench.effects.clear();
        bench
    }

    fn files(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn each_choice_writes_a_file_of_its_own_and_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut bench = bench(folder.path());
        bench.screen(100, 30);
        bench.press("2");
        for (key, extension) in [
            ("s", "svg"),
            ("t", "txt"),
            ("c", "svg"),
            ("p", "png"),
            ("v", "csv"),
            ("v", "csv"),
        ] {
            bench.press("ctrl-e");
            assert!(bench.screen(100, 30).contains("Write to a file"));
            let before = files(folder.path());
            bench.press(key);
            bench.run_jobs();
            let new: Vec<String> = files(folder.path())
                .into_iter()
                .filter(|name| !before.contains(name))
                .collect();
            assert_eq!(new.len(), 1, "{key}: {new:?}");
            assert!(new[0].ends_with(extension), "{key}: {new:?}");
            let notice = bench.app.shared.notice.clone().unwrap();
            assert!(notice.text.contains(&new[0]), "{notice:?}");
        }
    }

    #[test]
    fn what_is_zoomed_and_smoothed_on_page_live_is_so_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut bench = bench(folder.path());
        bench.press("2");
        let all = sheet(&bench.app).csv();
        assert!(all.contains("actor/ppo_kl,") && all.lines().count() > 100);
        bench.app.shared.project.directory = folder.path().to_owned();
        let command = |id: &str| {
            crate::tui::bindings::all()
                .iter()
                .find(|binding| binding.id == id)
                .unwrap_or_else(|| panic!("no binding {id}"))
                .command
        };
        bench.act(crate::tui::action::Action::Command(command("live.zoom_in")));
        let zoomed = sheet(&bench.app).csv();
        assert!(zoomed.lines().count() < all.lines().count());
    }

    #[test]
    fn read_only_or_without_curves_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut bench = bench(folder.path());
        bench.app.shared.is_read_only = true;
        bench.press("ctrl-e s");
        bench.run_jobs();
        let mut empty = Bench::default();
        empty.app.shared.project.directory = folder.path().to_owned();
        empty.press("ctrl-e c");
        empty.run_jobs();
        assert!(files(folder.path()).is_empty());
    }

    #[test]
    fn of_a_run_that_is_gone_nothing_is_written_and_it_is_said() {
        let folder = tempfile::tempdir().unwrap();
        for key in ["h", "n", "a"] {
            let mut bench = bench(folder.path());
            bench.press("ctrl-e");
            bench.press(key);
            bench.run_jobs();
            assert!(bench.screen(80, 24).contains("It was not written"));
        }
        assert!(files(folder.path()).is_empty());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_a_problem_on_the_screen() {
        let mut bench = bench(Path::new("/no/such/folder"));
        bench.press("ctrl-e t");
        bench.run_jobs();
        assert!(bench.screen(80, 24).contains("It was not written"));
    }
}

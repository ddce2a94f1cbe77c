//! The screen as it stands, written to a file.

use std::path::PathBuf;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::action::{Effect, Message};
use super::app::App;
use super::shared::{Notice, Problem};
use super::theme::Role;

/// Writes what is on the screen now, as text, into the project's directory.
pub fn screen(app: &App) -> Effect {
    let shared = &app.shared;
    let text = text(app);
    let name = format!(
        "lathe-{}-{}.txt",
        app.page.title().to_lowercase(),
        shared.now.strftime("%Y%m%d-%H%M%S")
    );
    let path = shared.project.directory.join(name);
    Effect::job("export screen", move || write(path, text))
}

fn write(path: PathBuf, text: String) -> Message {
    match std::fs::write(&path, text) {
        Ok(()) => Message::Notice(Notice {
            text: format!("wrote {}", path.display()),
            role: Role::Good,
        }),
        Err(error) => Message::Problem(Problem::new(
            "The screen was not written",
            format!("{}: {error}", path.display()),
            "",
        )),
    }
}

fn text(app: &App) -> String {
    let (columns, rows) = (app.shared.columns, app.shared.rows);
    let mut terminal =
        Terminal::new(TestBackend::new(columns, rows)).expect("a screen in memory cannot fail");
    terminal
        .draw(|frame| app.draw(frame))
        .expect("a screen in memory cannot fail");
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for row in 0..rows {
        let line: String = (0..columns)
            .map(|column| buffer[(column, row)].symbol())
            .collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

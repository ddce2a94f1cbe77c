//! THE table of key bindings: the key map, the help page, the footer, the palette, `lathe bindings` and README read it.
//!
//! Each page contributes the rows of its own commands from its own file; this module joins them. An action without a key is
//! reached by the palette.

use std::sync::OnceLock;

use super::action::{Command, Global};
use super::export::Kind;
use super::pages::{self, PageId};

/// Where a binding is in force. A page's come before the global ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Context {
    Global,
    Page(PageId),
}

impl Context {
    /// Its heading in the help.
    pub fn title(self) -> &'static str {
        match self {
            Self::Global => "Everywhere",
            Self::Page(page) => page.title(),
        }
    }
}

/// One action, its keys, and the words for it.
#[derive(Debug, Clone, Copy)]
pub struct Binding {
    /// `page.action`, for remapping in the settings.
    pub id: &'static str,
    /// `ctrl-d`, `g g`, `space`; the first is shown.
    pub keys: &'static [&'static str],
    pub context: Context,
    pub command: Command,
    /// What it does, lower case, for help and palette.
    pub help: &'static str,
    /// One or two words for the footer; empty: not in the footer.
    pub hint: &'static str,
}

/// A row of the table.
pub const fn bind(
    id: &'static str,
    keys: &'static [&'static str],
    context: Context,
    command: Command,
    help: &'static str,
    hint: &'static str,
) -> Binding {
    Binding {
        id,
        keys,
        context,
        command,
        help,
        hint,
    }
}

const fn global(
    id: &'static str,
    keys: &'static [&'static str],
    command: Global,
    help: &'static str,
    hint: &'static str,
) -> Binding {
    bind(
        id,
        keys,
        Context::Global,
        Command::Global(command),
        help,
        hint,
    )
}

/// A page's bindings: its own rows, then those that move in its list, which are the same on every page.
macro_rules! with_moves {
    ($page:literal, $row:ident, $go:path; $($own:expr),* $(,)?) => {
        &[
            $($own,)*
            $row(concat!($page, ".down"), &["j", "down"], $go(Move::Down), "down", ""),
            $row(concat!($page, ".up"), &["k", "up"], $go(Move::Up), "up", ""),
            $row(concat!($page, ".half_down"), &["ctrl-d"], $go(Move::HalfPageDown), "half a page down", ""),
            $row(concat!($page, ".half_up"), &["ctrl-u"], $go(Move::HalfPageUp), "half a page up", ""),
            $row(concat!($page, ".page_down"), &["pgdn"], $go(Move::PageDown), "a page down", ""),
            $row(concat!($page, ".page_up"), &["pgup"], $go(Move::PageUp), "a page up", ""),
            $row(concat!($page, ".first"), &["g g", "home"], $go(Move::First), "to the start", ""),
            $row(concat!($page, ".last"), &["G", "end"], $go(Move::Last), "to the end", ""),
        ]
    };
}
pub(super) use with_moves;

/// Where a page's bindings are in force, and how it makes a row of its own command.
macro_rules! page_rows {
    ($page:ident) => {
        pub(super) const HERE: $crate::tui::bindings::Context =
            $crate::tui::bindings::Context::Page($crate::tui::pages::PageId::$page);

        const fn row(
            id: &'static str,
            keys: &'static [&'static str],
            command: Command,
            help: &'static str,
            hint: &'static str,
        ) -> $crate::tui::bindings::Binding {
            $crate::tui::bindings::bind(
                id,
                keys,
                HERE,
                $crate::tui::action::Command::$page(command),
                help,
                hint,
            )
        }
    };
}
pub(super) use page_rows;

#[rustfmt::skip]
const GLOBAL: &[Binding] = &[
    global("app.help", &["?", "f1"], Global::Help, "keys of this page, and everywhere", "help"),
    global("app.palette", &[":", "ctrl-p"], Global::Palette, "search every action by name", "actions"),
    global("app.quit", &["q", "ctrl-c"], Global::Quit, "leave; runs go on", "quit"),
    global("app.back", &["esc"], Global::Back, "one level back; never leaves", ""),
    global("app.suspend", &["ctrl-z"], Global::Suspend, "suspend to the shell", ""),
    global("app.redraw", &["ctrl-l"], Global::Redraw, "draw the whole screen anew", ""),
    global("page.runs", &["1"], Global::Go(PageId::Runs), "page Runs: every run, filter, mark, delete", ""),
    global("page.live", &["2"], Global::Go(PageId::Live), "page Live: the curves of a run", ""),
    global("page.timeline", &["3"], Global::Go(PageId::Timeline), "page Timeline: who waits for whom", ""),
    global("page.rollouts", &["4"], Global::Go(PageId::Rollouts), "page Rollouts: the dialogues of a step", ""),
    global("page.config", &["5"], Global::Go(PageId::Config), "page Config: the experiment, edited in place", ""),
    global("page.launch", &["6"], Global::Go(PageId::Launch), "page Launch: start runs, control a running one", ""),
    global("page.compare", &["7"], Global::Go(PageId::Compare), "page Compare: runs side by side", ""),
    global("page.logs", &["8"], Global::Go(PageId::Logs), "page Logs: follow, search, filter", ""),
    global("page.bandit", &["9"], Global::Go(PageId::Bandit), "page Bandit: which arm scores, and what is believed of each", ""),
    global("page.next", &["ctrl-right", "}"], Global::NextPage, "next page", ""),
    global("page.previous", &["ctrl-left", "{"], Global::PreviousPage, "previous page", ""),
    global("app.theme", &["T"], Global::NextTheme, "next theme", ""),
    global("app.freeze", &["F"], Global::Freeze, "freeze the screen, or let it go on; nothing is lost", ""),
    global("app.copy", &["y"], Global::Copy, "copy what is selected (OSC 52) and write it to a file, whose name is told", ""),
    global("app.export", &["ctrl-e"], Global::Export, "write this page to a file: curves, table or screen", ""),
    global("export.screen_svg", &[], Global::ExportAs(Kind::ScreenSvg), "write the screen to a file, as SVG", ""),
    global("export.screen_text", &[], Global::ExportAs(Kind::ScreenText), "write the screen to a file, as text", ""),
    global("export.curves_svg", &[], Global::ExportAs(Kind::CurvesSvg), "write the curves as they stand to a file, as SVG", ""),
    global("export.curves_png", &[], Global::ExportAs(Kind::CurvesPng), "write the curves as they stand to a file, as PNG", ""),
    global("export.curves_csv", &[], Global::ExportAs(Kind::CurvesCsv), "write the values of the curves to a file, as CSV", ""),
    global("export.run_html", &[], Global::ExportAs(Kind::RunHtml), "write a report of the whole run to a file, as HTML", ""),
    global("export.run_json", &[], Global::ExportAs(Kind::RunJson), "write all metrics of the run to a file, as JSON", ""),
    global("export.run_parquet", &[], Global::ExportAs(Kind::RunParquet), "write all metrics of the run to a file, as Parquet", ""),
    global("run.next", &["]"], Global::NextRun, "show the next run of the list", ""),
    global("run.previous", &["["], Global::PreviousRun, "show the previous run of the list", ""),
    global("replay.toggle", &["P"], Global::Replay, "replay this run from its start, or back to live", ""),
    global("replay.play", &["ctrl-space", "f6"], Global::PlayPause, "replay: play or pause", ""),
    global("replay.back", &["<"], Global::ReplayStep(-1), "replay: one step back", ""),
    global("replay.forward", &[">"], Global::ReplayStep(1), "replay: one step on", ""),
    global("replay.slower", &["("], Global::ReplaySlower, "replay: slower (down to 1x)", ""),
    global("replay.faster", &[")"], Global::ReplayFaster, "replay: faster (up to 1000x)", ""),
    global("replay.next_mark", &["ctrl-n"], Global::ReplayMark(1), "replay: to the next mark: alarm, guard, checkpoint, control change, resume, end", ""),
    global("replay.previous_mark", &["ctrl-b"], Global::ReplayMark(-1), "replay: to the mark before", ""),
];

/// Every binding, global ones first, then page by page.
pub fn all() -> &'static [Binding] {
    static TABLE: OnceLock<Vec<Binding>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = GLOBAL.to_vec();
        for page in PageId::ALL {
            table.extend_from_slice(pages::bindings(page));
        }
        table
    })
}

/// The table as Markdown, a section a context, for README.
pub fn markdown() -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let contexts = std::iter::once(Context::Global).chain(PageId::ALL.map(Context::Page));
    for context in contexts {
        let rows: Vec<&Binding> = all().iter().filter(|row| row.context == context).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = write!(
            text,
            "\n### {}\n\n| keys | what it does | id |\n|---|---|---|\n",
            context.title()
        );
        for row in rows {
            let keys: Vec<String> = row
                .keys
                .iter()
                .map(|key| format!("`{}`", key.replace('|', "\\|")))
                .collect();
            let _ = writeln!(text, "| {} | {} | `{}` |", keys.join(" "), row.help, row.id);
        }
    }
    text.trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;
    use crate::tui::keymap::parse_sequence;

    #[test]
    fn every_id_is_unique_and_every_key_is_a_key() {
        let mut ids = HashSet::new();
        for binding in all() {
            assert!(ids.insert(binding.id), "{} stands twice", binding.id);
            assert!(!binding.help.is_empty(), "{} has no help", binding.id);
            for keys in binding.keys {
                assert!(parse_sequence(keys).is_some(), "{}: {keys}", binding.id);
            }
        }
    }

    #[test]
    fn no_key_means_two_things_in_one_place() {
        let mut meanings: HashMap<(Context, String), &str> = HashMap::new();
        for binding in all() {
            for keys in binding.keys {
                let place = (binding.context, (*keys).to_owned());
                if let Some(other) = meanings.insert(place, binding.id) {
                    panic!("`{keys}` is both {other} and {}", binding.id);
                }
            }
        }
    }

    #[test]
    fn no_key_is_hidden_behind_a_shorter_sequence() {
        for long in all() {
            for short in all().iter().filter(|short| short.context == long.context) {
                for (a, b) in long
                    .keys
                    .iter()
                    .flat_map(|a| short.keys.iter().map(move |b| (*a, *b)))
                {
                    let (a, b) = (parse_sequence(a).unwrap(), parse_sequence(b).unwrap());
                    assert!(
                        a == b || !a.starts_with(&b),
                        "{} hides {}",
                        short.id,
                        long.id
                    );
                }
            }
        }
    }
}

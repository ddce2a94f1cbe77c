//! Several runs over one another: one line above the panels says which colour is which run, so that the panels' titles have
//! room for values.
//!
//! ```text
//!  ━ quickstart-fbbe  ━ …-77a0  ━ calc-lr-11c2
//! ```

use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::tui::shared::{MOST_OPEN, Shared};
use crate::tui::theme::Role;
use crate::tui::widgets::chart::Look;
use crate::tui::widgets::text;

/// What stands around each name: its sample, and spaces.
const AROUND: usize = 5;

/// Rows above the panels.
pub fn rows(shared: &Shared, area: Rect) -> u16 {
    u16::from(shared.shown_runs().len() > 1 && area.height >= 7)
}

pub fn line(shared: &Shared, columns: u16) -> Line<'static> {
    let runs = shared.shown_runs();
    let names: Vec<(String, String)> = runs
        .iter()
        .map(|(_, run)| match &run.info {
            Some(info) if !info.experiment_name.is_empty() => (
                text::printable(&info.experiment_name),
                info.id.chars().take(4).collect(),
            ),
            _ => (text::printable(&run.key.name()), String::new()),
        })
        .collect();
    let undrawn = match shared.marked.len().saturating_sub(MOST_OPEN) {
        0 => String::new(),
        count => format!("+{count} marked, not drawn"),
    };
    let room =
        usize::from(columns).saturating_sub(1 + AROUND * names.len() + text::width(&undrawn));
    let unicode = shared.glyphs.unicode;
    let mut spans = vec![Span::raw(" ")];
    for ((color, _), name) in runs.iter().zip(within(&names, room, unicode)) {
        let look = Look::of_run(*color, 0, runs.len(), &shared.theme);
        spans.push(Span::styled(look.sample(shared.glyphs), look.style));
        spans.push(Span::styled(
            format!(" {name}  "),
            shared.style(Role::Title),
        ));
    }
    spans.push(Span::styled(undrawn, shared.style(Role::Caution)));
    Line::from(spans)
}

/// Names of experiment and id, together at most `columns` wide: whole; else an experiment that was named before is not named
/// again; else each is cut in its middle, since the id at the end tells it apart.
fn within(names: &[(String, String)], columns: usize, unicode: bool) -> Vec<String> {
    let dots = if unicode { "…" } else { "~" };
    let join = |experiment: &str, id: &str| match id {
        "" => experiment.to_owned(),
        id => format!("{experiment}-{id}"),
    };
    let whole: Vec<String> = names.iter().map(|(name, id)| join(name, id)).collect();
    let fits =
        |names: &[String]| names.iter().map(|name| text::width(name)).sum::<usize>() <= columns;
    if fits(&whole) {
        return whole;
    }
    let once: Vec<String> = names
        .iter()
        .enumerate()
        .map(|(at, (experiment, id))| {
            let is_repeated = names[..at].iter().any(|(before, _)| before == experiment);
            if is_repeated && !id.is_empty() {
                join(dots, id)
            } else {
                join(experiment, id)
            }
        })
        .collect();
    if fits(&once) {
        return once;
    }
    let each = columns / names.len().max(1);
    names
        .iter()
        .map(|(experiment, id)| {
            let tail = if id.is_empty() {
                String::new()
            } else {
                format!("-{id}")
            };
            let room = each.saturating_sub(text::width(&tail));
            format!("{}{tail}", text::fit(experiment, room, unicode))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(given: &[(&str, &str)], columns: usize) -> Vec<String> {
        let owned: Vec<(String, String)> = given
            .iter()
            .map(|(name, id)| ((*name).to_owned(), (*id).to_owned()))
            .collect();
        within(&owned, columns, true)
    }

    #[test]
    fn names_are_whole_then_an_experiment_is_named_once_then_its_name_is_cut_before_the_id() {
        let given = [
            ("quickstart", "fbbe"),
            ("quickstart", "77a0"),
            ("calc", "11c2"),
        ];
        assert_eq!(
            names(&given, 60),
            ["quickstart-fbbe", "quickstart-77a0", "calc-11c2"]
        );
        assert_eq!(
            names(&given, 32),
            ["quickstart-fbbe", "…-77a0", "calc-11c2"]
        );
        assert_eq!(names(&given, 27), ["qui…-fbbe", "qui…-77a0", "calc-11c2"]);
        assert_eq!(names(&[("imported", "")], 5), ["impo…"]);
    }
}

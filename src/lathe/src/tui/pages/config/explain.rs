//! The words of the pane beside the tree: what a key is, what holds, and what is wrong with it.

use experiment::keys::{self, Live, Status};
use experiment::{Complaint, Severity, yaml};
use ratatui::text::{Line, Span};

use super::document::Document;
use super::rows::{Row, alike, default_text, default_value};
use super::sheet::Sheet;
use super::value::{Form, ValueEditor};
use crate::tui::shared::Shared;
use crate::tui::theme::Role;
use crate::tui::widgets::text;

/// Of a row of the tree.
pub(super) fn row(row: &Row, document: &Document, shared: &Shared) -> Vec<Line<'static>> {
    let mut lines = complaints(document, shared, |complaint| concerns(complaint, row));
    if row.is_block {
        lines.extend(block(row, document, shared));
        return lines;
    }
    lines.extend(key(&row.key, shared));
    let written = keys::canonical(&row.path);
    if written.path != row.path && written.note.is_some() {
        lines.push(muted(shared, format!("{} is another name of it", row.path)));
    }
    let used = used_value(&row.key, document);
    if let Some(used) = used.filter(|used| *used != row.value && row.value.contains("${")) {
        lines.push(muted(shared, format!("used: {used}")));
    }
    let mut marks = Vec::new();
    if row.is_modified {
        marks.push("* changed since it was saved");
    }
    if row.is_special {
        marks.push(shared.glyphs.pick("≠ not the default", "# not the default"));
    }
    if !row.is_in_file() {
        marks.push("not in the file: the default holds; enter gives it a value");
    }
    for mark in marks {
        lines.push(muted(shared, mark.to_owned()));
    }
    lines
}

/// Of the value being edited: first what is wrong with it.
pub(super) fn edited(
    editor: &ValueEditor,
    of: Option<&Row>,
    document: &Document,
    shared: &Shared,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    match &editor.form {
        Form::Field {
            problem: Some(problem),
            ..
        } => lines.push(told(Severity::Error, problem, shared)),
        Form::Field { problem: None, .. } => {
            lines.push(Line::styled(
                "enter takes it, esc keeps the old value",
                shared.style(Role::Good),
            ));
        }
        Form::Choice { .. } => {}
    }
    if let Some(of) = of {
        lines.extend(row(of, document, shared));
    }
    lines
}

/// Of a line of the text: its complaints, then the key that stands there.
pub(super) fn line(line: u32, sheet: &Sheet, shared: &Shared) -> Vec<Line<'static>> {
    let document = &sheet.document;
    let mut lines = complaints(document, shared, |complaint| complaint.line == Some(line));
    let here = document
        .rows()
        .iter()
        .find(|row| row.line == Some(line) && !row.is_block);
    if let Some(here) = here {
        lines.push(Line::styled(here.key.clone(), shared.style(Role::Title)));
        lines.extend(key(&here.key, shared));
    } else if lines.is_empty() {
        let elsewhere = document
            .complaints()
            .iter()
            .filter(|complaint| complaint.line.is_none());
        lines.extend(elsewhere.map(|complaint| said(complaint, shared)));
    }
    lines
}

fn concerns(complaint: &Complaint, row: &Row) -> bool {
    let is_inside = complaint
        .key
        .strip_prefix(&row.key)
        .is_some_and(|rest| rest.starts_with('.'));
    complaint.key == row.key || (row.is_block && is_inside)
}

fn complaints(
    document: &Document,
    shared: &Shared,
    fits: impl Fn(&Complaint) -> bool,
) -> Vec<Line<'static>> {
    document
        .complaints()
        .iter()
        .filter(|complaint| fits(complaint))
        .map(|complaint| said(complaint, shared))
        .collect()
}

fn said(complaint: &Complaint, shared: &Shared) -> Line<'static> {
    told(complaint.severity, &complaint.message, shared)
}

fn told(severity: Severity, message: &str, shared: &Shared) -> Line<'static> {
    let (word, role) = match severity {
        Severity::Error => ("error: ", Role::Bad),
        Severity::Warning => ("warning: ", Role::Caution),
        Severity::Note => ("note: ", Role::Accent),
    };
    Line::from(vec![
        Span::styled(word, shared.style(role)),
        Span::raw(text::printable(message)),
    ])
}

fn muted(shared: &Shared, words: String) -> Line<'static> {
    Line::styled(words, shared.style(Role::Muted))
}

fn block(row: &Row, document: &Document, shared: &Shared) -> Vec<Line<'static>> {
    let at = document.rows().iter().position(|other| other == row);
    let inside = at.map_or(&[][..], |at| &document.rows()[at + 1..row.end]);
    let keys = inside.iter().filter(|row| !row.is_block);
    let given = keys.clone().filter(|row| row.is_in_file()).count();
    let all = keys.count();
    vec![muted(
        shared,
        format!(
            "a block of {all} keys; the file gives {given}, the defaults the rest (a shows them)"
        ),
    )]
}

/// What the table says of a key.
fn key(key: &str, shared: &Shared) -> Vec<Line<'static>> {
    match keys::status(key) {
        Status::Live(live) => of_live(live, shared),
        Status::Inert(reason) => vec![
            Line::styled(
                "a key of verl without effect here:",
                shared.style(Role::Caution),
            ),
            Line::raw(reason),
        ],
        Status::Planned(what) => vec![Line::raw(what)],
        Status::Unknown => vec![Line::styled(
            "neither Lathe nor verl has this key",
            shared.style(Role::Bad),
        )],
    }
}

fn of_live(live: &Live, shared: &Shared) -> Vec<Line<'static>> {
    let name = live.path.rsplit('.').next().unwrap_or(&live.path);
    let mut holds = live.kind.noun();
    let range = live.kind.range(name);
    if !range.is_empty() {
        holds = format!("{holds}, {range}");
    }
    if live.nullable {
        holds.push_str(", or null");
    }
    let mut default = format!("default {}", default_text(live));
    if !live.unit.is_empty() && live.default != "null" {
        default = format!("{default} {}", live.unit);
    }
    if let Some(verl) = keys::verl_key(&live.path)
        && let Ok(value) = serde_json::from_str(verl.default)
        && !alike(&value, &default_value(live))
    {
        default = format!("{default}; verl's default {}", yaml::flow(&value));
    }
    let mut lines = vec![
        Line::raw(live.help),
        muted(shared, holds),
        muted(shared, default),
    ];
    if let keys::Kind::Choice(choices) = live.kind
        && !choices.later.is_empty()
    {
        lines.push(muted(
            shared,
            format!("not available yet: {}", choices.later.join(", ")),
        ));
    }
    lines
}

fn used_value(key: &str, document: &Document) -> Option<String> {
    let used = key
        .split('.')
        .try_fold(document.effective(), |tree, name| tree.get(name))?;
    Some(yaml::flow(used))
}

//! What an experiment is compared with, chosen from a list.

use std::path::PathBuf;

use super::diff::{Against, DiffView};
use super::sheet::{Sheet, View};
use super::{Message, ON_DISK, answer, files};
use crate::tui::action::Effect;
use crate::tui::shared::{Notice, RunKey, Shared};
use crate::tui::widgets::field::Field;
use crate::tui::widgets::list::ListState;

/// What to compare with, searched by typing.
#[derive(Debug)]
pub struct Chooser {
    pub field: Field,
    pub list: ListState,
    choices: Vec<Choice>,
}

#[derive(Debug, Clone)]
pub struct Choice {
    pub label: String,
    target: Target,
}

#[derive(Debug, Clone)]
pub enum Target {
    Defaults,
    Disk,
    File(PathBuf),
}

impl Chooser {
    pub fn matches(&self) -> Vec<&Choice> {
        let wanted = self.field.text().to_lowercase();
        self.choices
            .iter()
            .filter(|choice| choice.label.to_lowercase().contains(&wanted))
            .collect()
    }
}

pub(super) fn chooser(sheet: &Sheet, shared: &Shared) -> Chooser {
    let mut choices = vec![
        Choice {
            label: "the defaults".to_owned(),
            target: Target::Defaults,
        },
        Choice {
            label: ON_DISK.to_owned(),
            target: Target::Disk,
        },
    ];
    let of_run = |key: &RunKey, label: String| Choice {
        label,
        target: Target::File(key.path().join("experiment.yaml")),
    };
    if let Some(key) = &shared.current {
        choices.push(of_run(key, format!("the current run: {}", key.name())));
    }
    for entry in &shared.runs.entries {
        if Some(&entry.key) != shared.current.as_ref() {
            choices.push(of_run(&entry.key, format!("run {}", entry.key.name())));
        }
    }
    // What is asked for when the file changed outside.
    let mut list = ListState::default();
    list.select(usize::from(sheet.document.outside.is_some()));
    Chooser {
        field: Field::default(),
        list,
        choices,
    }
}

pub(super) fn compare(sheet: &mut Sheet, choice: Choice, shared: &mut Shared) -> Vec<Effect> {
    let file = match choice.target {
        Target::Defaults => {
            sheet.diff = Some(DiffView::new(Against::Defaults, &sheet.document));
            sheet.view = View::Diff;
            return Vec::new();
        }
        Target::Disk => sheet.document.path().to_owned(),
        Target::File(path) => path,
    };
    shared.say(Notice::good(format!("comparing with {}", choice.label)));
    let of = sheet.document.path().to_owned();
    vec![Effect::job("read what to compare with", move || {
        let result = files::read(&file);
        answer(Message::Compared {
            of,
            name: choice.label,
            result,
        })
    })]
}

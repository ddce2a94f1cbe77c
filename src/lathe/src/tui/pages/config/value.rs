//! One value being edited in place: a text field checked while it is typed, or a choice.

use crossterm::event::{KeyCode, KeyEvent};
use experiment::keys::{Kind, Live};
use experiment::yaml::{self, Node, Value};
use serde_json::Value as Json;

use super::rows::Row;
use crate::tui::widgets::field::{Field, Outcome};
use crate::tui::widgets::list::{ListState, Move};

#[derive(Debug)]
pub struct ValueEditor {
    /// As the file writes it.
    pub path: String,
    pub key: String,
    live: Option<&'static Live>,
    before: String,
    pub form: Form,
}

#[derive(Debug)]
pub enum Form {
    Field {
        field: Field,
        /// What is wrong with the text so far.
        problem: Option<String>,
    },
    Choice {
        options: Vec<&'static str>,
        list: ListState,
    },
}

/// What a key did.
#[derive(Debug, PartialEq)]
pub enum Answer {
    Stay,
    Cancelled,
    Accepted(Json),
}

impl ValueEditor {
    /// None: a text of several lines, which one line cannot hold.
    pub fn new(row: &Row) -> Option<Self> {
        let live = row.live();
        let parsed = yaml::parse(&row.value).root;
        let mut before = row.value.clone();
        if let Some(Value::Text(text)) = parsed.as_ref().map(|node| &node.value) {
            if text.contains('\n') {
                return None;
            }
            if live.is_none_or(|live| takes_text(live.kind)) {
                before.clone_from(text);
            }
        }
        let options = live.map(options).unwrap_or_default();
        let form = if options.is_empty() {
            Form::Field {
                field: Field::new(before.clone()),
                problem: None,
            }
        } else {
            let mut list = ListState::default();
            list.select(
                options
                    .iter()
                    .position(|option| *option == before)
                    .unwrap_or(0),
            );
            Form::Choice { options, list }
        };
        Some(Self {
            path: row.path.clone(),
            key: row.key.clone(),
            live,
            before,
            form,
        })
    }

    /// Something was typed that is not in the file yet.
    pub fn is_changed(&self) -> bool {
        matches!(&self.form, Form::Field { field, .. } if field.text() != self.before)
    }

    pub fn key(&mut self, key: KeyEvent) -> Answer {
        match &mut self.form {
            Form::Field { field, problem } => match field.key(key) {
                Outcome::Cancelled => return Answer::Cancelled,
                Outcome::Accepted => match parse(self.live, field.text()) {
                    Ok(value) => return Answer::Accepted(value),
                    Err(reason) => *problem = Some(reason),
                },
                Outcome::Changed => *problem = parse(self.live, field.text()).err(),
                Outcome::Kept | Outcome::Unused => {}
            },
            Form::Choice { options, list } => match key.code {
                KeyCode::Esc => return Answer::Cancelled,
                KeyCode::Enter | KeyCode::Char(' ') => {
                    let option = options[list.selected(options.len())];
                    return Answer::Accepted(choice_value(self.live, option));
                }
                code => {
                    let by = match code {
                        KeyCode::Tab => Some(Move::Down),
                        KeyCode::BackTab => Some(Move::Up),
                        _ => Move::of_menu(key),
                    };
                    if let Some(by) = by {
                        list.go(by, options.len(), options.len());
                    }
                }
            },
        }
        Answer::Stay
    }

    pub fn paste(&mut self, pasted: &str) {
        if let Form::Field { field, problem } = &mut self.form {
            field.paste(pasted);
            *problem = parse(self.live, field.text()).err();
        }
    }
}

/// What may be chosen; empty: it is typed.
pub fn options(live: &'static Live) -> Vec<&'static str> {
    let mut options: Vec<&'static str> = match live.kind {
        Kind::Bool => vec!["true", "false"],
        Kind::Choice(choices) => choices.now.to_vec(),
        _ => return Vec::new(),
    };
    if live.nullable {
        options.push("null");
    }
    options
}

/// The choice after this one, around the end; None: the key is no choice.
pub fn next_choice(row: &Row) -> Option<Json> {
    let live = row.live()?;
    let options = options(live);
    let now = row.value.trim_matches(['"', '\'']);
    let at = options.iter().position(|option| *option == now);
    let next = options.get(at.map_or(0, |at| (at + 1) % options.len().max(1)))?;
    Some(choice_value(Some(live), next))
}

fn choice_value(live: Option<&Live>, option: &str) -> Json {
    match option {
        "null" if live.is_some_and(|live| live.nullable) => Json::Null,
        "true" if live.is_some_and(|live| live.kind == Kind::Bool) => Json::Bool(true),
        "false" if live.is_some_and(|live| live.kind == Kind::Bool) => Json::Bool(false),
        text => Json::String(text.to_owned()),
    }
}

fn takes_text(kind: Kind) -> bool {
    matches!(kind, Kind::Text | Kind::Path | Kind::Choice(_))
}

/// What was typed as the value of a key, or what is wrong with it.
pub fn parse(live: Option<&Live>, typed: &str) -> Result<Json, String> {
    let typed = typed.trim();
    if let Some(live) = live.filter(|live| takes_text(live.kind)) {
        if live.nullable && typed == "null" {
            return Ok(Json::Null);
        }
        // An interpolation is checked with the whole experiment.
        if !typed.contains("${") {
            let node = Node::placeless(Value::Text(typed.to_owned()));
            experiment::check_value(live, &node)?;
        }
        return Ok(Json::String(typed.to_owned()));
    }
    if typed.contains("${") && !typed.starts_with(['[', '{']) {
        return Ok(Json::String(typed.to_owned()));
    }
    let parsed = yaml::parse(typed);
    if let Some(fault) = parsed.faults.first() {
        return Err(fault.message.clone());
    }
    let Some(node) = parsed.root else {
        return Err("a value is missing; write null for none".to_owned());
    };
    let Some(live) = live else {
        return Ok(node.to_json());
    };
    let checked = experiment::check_value(live, &node)?;
    // As people write it (`90s`, `2e-4`), except where the key wants whole numbers and got 1e3.
    Ok(match (live.kind, &node.value) {
        (Kind::Int { .. }, Value::Float(_)) => checked,
        _ => node.to_json(),
    })
}

#[cfg(test)]
mod tests {
    use experiment::keys;
    use serde_json::json;

    use super::*;

    fn typed(key: &str, text: &str) -> Result<Json, String> {
        parse(keys::find(key), text)
    }

    #[test]
    fn what_is_typed_is_checked_by_the_table_that_checks_files() {
        let lr = "actor_rollout_ref.actor.optim.lr";
        assert_eq!(typed(lr, "2e-4"), Ok(json!(2e-4)));
        assert_eq!(typed(lr, "-1").unwrap_err(), "lr is -1; expected >= 0");
        assert!(typed(lr, "fast").unwrap_err().contains("expected a number"));
        assert_eq!(typed("data.train_batch_size", "1e3"), Ok(json!(1000)));
        assert_eq!(
            typed("data.train_files", "[a.parquet, b.parquet]"),
            Ok(json!(["a.parquet", "b.parquet"]))
        );
        assert!(typed("data.train_files", "[a.parquet").is_err());
        assert!(typed(lr, "").unwrap_err().contains("missing"));
        assert_eq!(
            typed(lr, "${critic.optim.lr}"),
            Ok(json!("${critic.optim.lr}"))
        );
    }

    #[test]
    fn a_text_key_takes_what_looks_like_a_number() {
        assert_eq!(typed("trainer.experiment_name", "007"), Ok(json!("007")));
        assert_eq!(
            typed("trainer.experiment_name", "a: b # c"),
            Ok(json!("a: b # c"))
        );
    }
}

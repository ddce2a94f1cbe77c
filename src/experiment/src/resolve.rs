//! From a file and overrides to the experiment and everything there is to say about it.

use std::path::Path;

use serde_json::Value as Json;

use crate::complaint::{Complaint, Complaints, Severity};
use crate::convert::{convert, shown};
use crate::given::{Givens, Origin};
use crate::interpolate;
use crate::keys::{self, Status};
use crate::rules;
use crate::settings::Experiment;
use crate::yaml;

/// An experiment as read. With errors among the complaints, `experiment` holds defaults where values were wrong.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// As the user named it.
    pub file: String,
    pub experiment: Experiment,
    /// In the order of the file's lines, then of the overrides.
    pub complaints: Vec<Complaint>,
    /// The file's text.
    pub source: String,
    /// The file's text with the overrides written into it, comments kept: what a run directory stores. It gives the
    /// same experiment without any override.
    pub resolved: String,
    /// The keys that somebody gave, in full, in the order of the file.
    pub given: Vec<String>,
    /// The same with their values as they were written, interpolations resolved.
    pub given_values: Vec<(String, Json)>,
}

/// Reads an experiment for use: an error anywhere refuses it.
pub fn load(path: &Path, overrides: &[String]) -> Result<Loaded, Complaints> {
    let loaded = inspect(path, overrides);
    if loaded.has_errors() {
        Err(Complaints(loaded.complaints))
    } else {
        Ok(loaded)
    }
}

/// Reads an experiment for `lathe check` and the editor: never fails, says everything.
pub fn inspect(path: &Path, overrides: &[String]) -> Loaded {
    let file = path.display().to_string();
    let problem = match std::fs::read(path) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => return from_text(&file, &text, overrides),
            Err(error) => format!(
                "not UTF-8 text: byte {} cannot be read; save the file as UTF-8",
                error.utf8_error().valid_up_to() + 1
            ),
        },
        Err(error) => format!("cannot read the experiment: {error}"),
    };
    let mut givens = Givens::new(&file);
    givens.complain(Severity::Error, &Origin::Nowhere, "", problem);
    Loaded {
        file,
        experiment: Experiment::default(),
        complaints: givens.complaints,
        source: String::new(),
        resolved: String::new(),
        given: Vec::new(),
        given_values: Vec::new(),
    }
}

/// As `inspect`, from text that may not be on disk; `file` is only named in complaints.
pub fn from_text(file: &str, text: &str, overrides: &[String]) -> Loaded {
    let mut givens = Givens::new(file);
    let parsed = yaml::parse(text);
    // Nothing to say of the keys of a file that has none.
    let broken = !parsed
        .root
        .as_ref()
        .is_some_and(|root| matches!(root.value, yaml::Value::Map(_)));
    for fault in &parsed.faults {
        let origin = Origin::File {
            line: fault.line,
            column: fault.column,
        };
        givens.complain(Severity::Error, &origin, "", fault.message.clone());
    }
    let mut resolved = text.to_owned();
    match &parsed.root {
        Some(root) => givens.read_file(root),
        None if !parsed.faults.is_empty() => {}
        None => {
            let message =
                "the file is empty; an experiment names at least its data and its model".to_owned();
            givens.complain(Severity::Error, &Origin::Nowhere, "", message);
        }
    }
    // A file that cannot be read as YAML cannot take overrides either, and one complaint says it.
    if parsed.faults.is_empty() {
        for text in overrides {
            givens.apply(text, parsed.root.as_ref(), &mut resolved);
        }
    }
    let given = givens.all.iter().map(|given| given.key.clone()).collect();
    interpolate::resolve(&mut givens);
    let given_values = (givens.all.iter())
        .map(|given| (given.key.clone(), given.node.to_json()))
        .collect();
    let mut experiment = typed(&mut givens);
    if !broken {
        rules::apply(&mut experiment, &mut givens);
    }
    let mut complaints = givens.complaints;
    complaints.sort_by_key(|complaint| {
        let place = match (&complaint.override_text, complaint.line) {
            (Some(_), _) => 2,
            (None, Some(_)) => 0,
            (None, None) => 1,
        };
        (place, complaint.line)
    });
    Loaded {
        file: file.to_owned(),
        experiment,
        complaints,
        source: text.to_owned(),
        resolved,
        given,
        given_values,
    }
}

/// Checks every given value and sets those that are right.
fn typed(givens: &mut Givens) -> Experiment {
    let mut tree =
        serde_json::to_value(Experiment::default()).expect("settings hold nothing that JSON lacks");
    let all = givens.all.clone();
    // verl does what Lathe does not.
    let is_for_verl =
        (givens.get("launch.engine")).is_some_and(|given| given.node.to_json() == "verl");
    for given in &all {
        if let Some(note) = given.note {
            let message = format!("{}: {note}", given.written);
            givens.complain(Severity::Warning, &given.origin, &given.key, message);
        }
        match keys::status(&given.key) {
            Status::Live(key) => match convert(key, &given.node) {
                Ok(converted) => {
                    for name in &converted.dropped {
                        let message = format!(
                            "{}: {name} is not available yet and is left out; available now: {}",
                            given.written,
                            key.kind.noun(),
                        );
                        givens.complain(Severity::Warning, &given.origin, &given.key, message);
                    }
                    set(&mut tree, &given.key, converted.value);
                }
                Err(wrong) if key.path == "data.seed" && given.node.to_json().is_null() => {
                    drop(wrong);
                    let message = format!(
                        "{} is null; verl's order would then change each time, {} is used",
                        given.written, key.default
                    );
                    givens.complain(Severity::Note, &given.origin, &given.key, message);
                }
                Err(wrong) => {
                    givens.complain(
                        Severity::Error,
                        &given.origin,
                        &given.key,
                        wrong.message(&given.written),
                    );
                }
            },
            Status::Inert(reason) => {
                let value = given.node.to_json();
                // Off, or what verl does anyway: nothing is lost.
                let harmless = value.is_null()
                    || interpolate::verl_default(&all, &given.key)
                        .is_some_and(|default| alike(&default, &value));
                if !harmless && !is_for_verl && given.key != rules::CLIP_RATIO {
                    let message = format!(
                        "{} = {} has no effect: {reason}",
                        given.written,
                        shown(&given.node)
                    );
                    givens.complain(Severity::Warning, &given.origin, &given.key, message);
                }
            }
            Status::Planned(_) | Status::Unknown => {}
        }
    }
    serde_json::from_value(tree).unwrap_or_else(|error| {
        // The table let through what the type refuses; a test keeps the two together, so this names our own fault.
        givens.complain(
            Severity::Error,
            &Origin::Nowhere,
            "",
            format!("the experiment does not fit its types: {error}"),
        );
        Experiment::default()
    })
}

/// Equal as numbers too: verl writes 0 where we read 0.0.
fn alike(left: &Json, right: &Json) -> bool {
    match (left, right) {
        (Json::Number(left), Json::Number(right)) => left.as_f64() == right.as_f64(),
        _ => left == right,
    }
}

/// Puts `value` at a dotted path, making the mappings on the way.
pub(crate) fn set(tree: &mut Json, path: &str, value: Json) {
    let mut slot = tree;
    for name in path.split('.') {
        if !slot.is_object() {
            *slot = Json::Object(serde_json::Map::new());
        }
        let Json::Object(entries) = slot else {
            return;
        };
        slot = entries.entry(name.to_owned()).or_insert(Json::Null);
    }
    *slot = value;
}

impl Loaded {
    pub fn has_errors(&self) -> bool {
        self.complaints
            .iter()
            .any(|complaint| complaint.severity == Severity::Error)
    }

    /// The experiment used, as a tree of every live key.
    pub fn effective(&self) -> Json {
        serde_json::to_value(&self.experiment).expect("settings hold nothing that JSON lacks")
    }

    /// Every live key with the value used, as YAML that loads to the same experiment; comments that stand behind a
    /// key in the source stay with it.
    pub fn effective_yaml(&self) -> String {
        crate::effective::yaml(self)
    }
}

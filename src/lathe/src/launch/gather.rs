//! What an experiment names, gathered for another machine: files, the Python modules these import, and models that are to be there.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use experiment::yaml::{self, Node, Value};
use remote::hash;
use remote::near::launch::{ShipError, Shipment};

use super::modules;
use crate::check::{self, Place};

#[derive(Debug)]
pub(super) struct Gathered {
    experiment_file: PathBuf,
    shipment: Shipment,
    models: Vec<String>,
    seen: BTreeSet<String>,
}

impl Gathered {
    pub fn new(experiment_file: &Path) -> Self {
        Self {
            experiment_file: experiment_file.to_owned(),
            shipment: Shipment::default(),
            models: Vec::new(),
            seen: BTreeSet::new(),
        }
    }

    /// What is sent, and the models that are to be there.
    pub fn into_parts(self) -> (Shipment, Vec<String>) {
        (self.shipment, self.models)
    }

    /// Takes what a key names along and gives the name it has there.
    pub fn take(&mut self, key: &str, written: &str) -> Result<String, ShipError> {
        let place = Place::of(written, &self.experiment_file);
        if !place.path.exists() {
            if check::names_a_model(key) && !written.is_empty() {
                self.models.push(written.to_owned());
            }
            // What is no model and not here was complained of, or is to be made by the run.
            return Ok(written.to_owned());
        }
        let name = name_there(written, &place.path);
        if self.seen.insert(name.clone()) {
            self.add(&name, &place.path)?;
            if is_yaml(&place.path)
                && let Ok(text) = std::fs::read_to_string(&place.path)
            {
                let beside = Path::new(&name).parent().unwrap_or(Path::new(""));
                self.take_texts(&yaml::parse(&text), beside)?;
            }
        }
        Ok(name)
    }

    /// Takes along every file that a text somewhere in a resolved experiment names: a script, a corpus, a module of tools. Absolute
    /// paths stay as they are: they mean something that is there.
    pub fn take_mentioned(&mut self, resolved: &str) -> Result<(), ShipError> {
        self.take_texts(&yaml::parse(resolved), Path::new(""))
    }

    /// Of a tool's configuration too, whose folder is `beside`.
    fn take_texts(&mut self, parsed: &yaml::Parsed, beside: &Path) -> Result<(), ShipError> {
        let mut texts = Vec::new();
        if let Some(root) = &parsed.root {
            collect(root, &mut texts);
        }
        for text in texts {
            for path in [PathBuf::from(text), beside.join(text)] {
                let Some(name) = inner(&path) else { continue };
                if path.is_file() && self.seen.insert(name.clone()) {
                    self.add(&name, &path)?;
                    break;
                }
            }
            for (name, path) in modules::named(text) {
                self.add_module(&name, &path)?;
            }
        }
        Ok(())
    }

    fn add_module(&mut self, name: &str, path: &Path) -> Result<(), ShipError> {
        if self.seen.insert(name.to_owned()) {
            self.add(name, path)?;
        }
        Ok(())
    }

    /// A file or a folder; of a Python file what it imports of ours, and what that imports.
    fn add(&mut self, name: &str, path: &Path) -> Result<(), ShipError> {
        self.shipment.add(name, path)?;
        if path.extension().is_some_and(|ending| ending == "py") {
            for (name, path) in modules::imported(path, name) {
                self.add_module(&name, &path)?;
            }
        }
        Ok(())
    }
}

fn is_yaml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ending == "yaml" || ending == "yml")
}

fn collect<'a>(node: &'a Node, texts: &mut Vec<&'a str>) {
    match &node.value {
        Value::Text(text) => texts.push(text),
        Value::List(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Map(entries) => entries
            .iter()
            .for_each(|entry| collect(&entry.value, texts)),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {}
    }
}

/// A relative path without `.` and `..`, as text.
fn inner(path: &Path) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// What a file is called there: as here when it lies below this folder, else by where it came from, so that no two collide.
fn name_there(written: &str, path: &Path) -> String {
    if let Some(name) = inner(Path::new(written)).filter(|_| Path::new(written).exists()) {
        return name;
    }
    if let Some(name) = inner(path) {
        return name;
    }
    let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = full.parent().unwrap_or(Path::new("/"));
    let mark = hash::of_bytes(folder.as_os_str().as_encoded_bytes());
    let name = full.file_name().unwrap_or_default().to_string_lossy();
    format!("sent/{}/{name}", &mark[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_below_this_folder_keeps_its_name_and_others_cannot_collide() {
        assert_eq!(
            name_there("./Cargo.toml", Path::new("./Cargo.toml")),
            "Cargo.toml"
        );
        let one = name_there("/data/a/train.parquet", Path::new("/data/a/train.parquet"));
        let other = name_there("/data/b/train.parquet", Path::new("/data/b/train.parquet"));
        assert!(
            one.starts_with("sent/") && one.ends_with("/train.parquet"),
            "{one}"
        );
        assert_ne!(one, other);
        assert_eq!(inner(Path::new("a/../../b")), None);
        assert_eq!(inner(Path::new("./a/b")).as_deref(), Some("a/b"));
    }
}

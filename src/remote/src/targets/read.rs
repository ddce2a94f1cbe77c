//! The file of targets as typed values; everything wrong with it is a complaint with file and line.

use std::path::{Path, PathBuf};

use experiment::yaml::{Entry, Node, Value, parse};
use experiment::{Complaint, Severity, seconds};
use std::time::Duration;

use super::{Target, TargetKind};
use crate::wire::Gpus;

/// Every key of a target, with what it says.
pub const KEYS: &[(&str, &str)] = &[
    ("kind", "local or ssh"),
    (
        "host",
        "the host as `ssh` takes it [default: the target's name]",
    ),
    (
        "folder",
        "where lathe keeps programs, files and runs there [default: .lathe, in the home directory]",
    ),
    (
        "program",
        "lathe's program there [default: what `lathe target setup` put there]",
    ),
    (
        "trainer",
        "lathe-trainer's program there [default: beside lathe]",
    ),
    (
        "libtorch",
        "the folder of libtorch's libraries there [default: beside the trainer]",
    ),
    (
        "gpus",
        "auto: one free GPU; as_is, none, a number of free ones, or a list such as [0, 1] [default: auto]",
    ),
    (
        "at_once",
        "runs at the same time there; others wait [default: no limit]",
    ),
    ("models", "a folder there in which models are looked for"),
    ("environment", "variables for the trainer, NAME: value"),
    (
        "pass",
        "names of variables that the trainer gets as they are here, such as WANDB_API_KEY",
    ),
    ("ssh_config", "a file instead of ~/.ssh/config"),
    (
        "connect_timeout",
        "how long connecting may take, such as 10s [default: 10s]",
    ),
    (
        "compression",
        "compress what goes over the line [default: true]",
    ),
];

pub(super) fn complaint(path: &Path, node: Option<(u32, &str)>, message: &str) -> Complaint {
    Complaint {
        severity: Severity::Error,
        file: path.display().to_string(),
        line: node.map(|(line, _)| line),
        column: None,
        override_text: None,
        key: node.map(|(_, key)| key.to_owned()).unwrap_or_default(),
        message: message.to_owned(),
    }
}

/// The targets that can be used, and what is wrong. `folder`: what paths in the file are relative to.
pub(super) fn read(text: &str, path: &Path, folder: &Path) -> (Vec<Target>, Vec<Complaint>) {
    let parsed = parse(text);
    let mut complaints: Vec<Complaint> = parsed
        .faults
        .iter()
        .map(|fault| complaint(path, Some((fault.line, "")), &fault.message))
        .collect();
    let mut targets = Vec::new();
    match parsed.root.map(|root| root.value) {
        None | Some(Value::Null) => {}
        Some(Value::Map(entries)) => {
            for entry in &entries {
                let mut reader = Reader {
                    path,
                    folder,
                    complaints: Vec::new(),
                };
                let target = reader.target(entry);
                if reader.complaints.is_empty() {
                    targets.push(target);
                }
                complaints.append(&mut reader.complaints);
            }
        }
        Some(_) => complaints.push(complaint(
            path,
            Some((1, "")),
            "expected targets by name, such as `gpu1: {kind: ssh}`",
        )),
    }
    (targets, complaints)
}

struct Reader<'a> {
    path: &'a Path,
    folder: &'a Path,
    complaints: Vec<Complaint>,
}

impl Reader<'_> {
    fn wrong(&mut self, line: u32, key: &str, message: &str) {
        self.complaints
            .push(complaint(self.path, Some((line, key)), message));
    }

    fn target(&mut self, entry: &Entry) -> Target {
        let name = &entry.key;
        let line = entry.key_span.line;
        let mut target = Target {
            written: Some((self.path.to_owned(), line)),
            ..Target::host(name)
        };
        let is_name = |c: char| c.is_alphanumeric() || "._-@".contains(c);
        if name.is_empty() || name.starts_with('-') || !name.chars().all(is_name) {
            self.wrong(line, name, &format!("`{name}` is no name of a target; expected letters, digits, `.`, `_`, `-` and `@`"));
        }
        let Value::Map(entries) = &entry.value.value else {
            self.wrong(
                line,
                name,
                &format!("{name} is no mapping; expected keys such as kind: ssh"),
            );
            return target;
        };
        for entry in entries {
            self.key(&mut target, entry);
        }
        if target.kind == TargetKind::Local && name != "local" && target.host != *name {
            self.wrong(
                line,
                name,
                &format!("{name}.host has no meaning with kind: local"),
            );
        }
        target
    }

    fn key(&mut self, target: &mut Target, entry: &Entry) {
        let (key, value) = (entry.key.as_str(), &entry.value);
        let full = format!("{}.{key}", target.name);
        match key {
            "kind" => match self.text(&full, value).as_deref() {
                Some("ssh") => target.kind = TargetKind::Ssh,
                Some("local") => {
                    target.kind = TargetKind::Local;
                    target.gpus = Gpus::AsIs;
                }
                Some(other) => self.wrong(
                    value.span.line,
                    &full,
                    &format!("{full} is {other}; expected local or ssh"),
                ),
                None => {}
            },
            "host" => set(&mut target.host, self.word(&full, value)),
            "folder" => set(&mut target.folder, self.word(&full, value)),
            "program" => target.program = self.word(&full, value),
            "trainer" => target.trainer = self.word(&full, value),
            "libtorch" => target.libtorch = self.word(&full, value),
            "models" => target.models = self.word(&full, value),
            "gpus" => set(&mut target.gpus, self.gpus(&full, value)),
            "at_once" => match value.value {
                Value::Int(count @ 0..=1024) => target.at_once = count as u32,
                _ => self.unfit(&full, value, "a whole number"),
            },
            "environment" => self.environment(target, &full, value),
            "pass" => match &value.value {
                Value::List(items) => {
                    target.pass = items
                        .iter()
                        .filter_map(|item| self.text(&full, item))
                        .collect();
                }
                _ => self.unfit(&full, value, "a list of names, such as [WANDB_API_KEY]"),
            },
            "ssh_config" => {
                target.ssh_config = self
                    .text(&full, value)
                    .map(|text| self.folder.join(PathBuf::from(text)));
            }
            "connect_timeout" => match duration(value) {
                Some(timeout) => target.connect_timeout = Some(timeout),
                None => self.unfit(&full, value, "a time such as 10s"),
            },
            "compression" => match value.value {
                Value::Bool(flag) => target.is_compressed = flag,
                _ => self.unfit(&full, value, "true or false"),
            },
            _ => {
                let names: Vec<&str> = KEYS.iter().map(|(name, _)| *name).collect();
                let nearest = experiment::keys::nearest_of(key, &names)
                    .map(|name| format!("; did you mean {name}?"))
                    .unwrap_or_default();
                self.wrong(
                    entry.key_span.line,
                    &full,
                    &format!("a target has no key {key}{nearest}"),
                );
            }
        }
    }

    fn unfit(&mut self, full: &str, value: &Node, expected: &str) {
        let shown = experiment::yaml::flow(&value.to_json());
        self.wrong(
            value.span.line,
            full,
            &format!("{full} is {shown}; expected {expected}"),
        );
    }

    fn text(&mut self, full: &str, value: &Node) -> Option<String> {
        match &value.value {
            Value::Text(text) => Some(text.clone()),
            // A name may look like a number.
            Value::Int(_) | Value::Float(_) if !value.raw.is_empty() => Some(value.raw.clone()),
            _ => {
                self.unfit(full, value, "a text");
                None
            }
        }
    }

    /// A text that can stand in a command line there or name a file.
    fn word(&mut self, full: &str, value: &Node) -> Option<String> {
        let text = self.text(full, value)?;
        if text.is_empty() || text.starts_with('-') || crate::ssh::quoted(&text).is_none() {
            self.unfit(
                full,
                value,
                "a name without line breaks, not starting with `-`",
            );
            return None;
        }
        // `~` would have to be read by a shell, and is where commands start anyway.
        Some(text.strip_prefix("~/").unwrap_or(&text).to_owned())
    }

    fn gpus(&mut self, full: &str, value: &Node) -> Option<Gpus> {
        match &value.value {
            Value::Text(text) if text == "auto" => return Some(Gpus::Free(1)),
            Value::Text(text) if text == "none" => return Some(Gpus::None),
            Value::Text(text) if text == "as_is" => return Some(Gpus::AsIs),
            Value::Int(count @ 1..=64) => return Some(Gpus::Free(*count as u32)),
            Value::Int(0) => return Some(Gpus::None),
            Value::List(items) => {
                let these: Option<Vec<u32>> = items
                    .iter()
                    .map(|item| match item.value {
                        Value::Int(index @ 0..=255) => Some(index as u32),
                        _ => None,
                    })
                    .collect();
                if let Some(these) = these.filter(|these| !these.is_empty()) {
                    return Some(Gpus::These(these));
                }
            }
            _ => {}
        }
        self.unfit(
            full,
            value,
            "auto, as_is, none, a number of GPUs, or a list such as [0, 1]",
        );
        None
    }

    fn environment(&mut self, target: &mut Target, full: &str, value: &Node) {
        let Value::Map(entries) = &value.value else {
            self.unfit(full, value, "variables, NAME: value");
            return;
        };
        for entry in entries {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if entry.key.is_empty() || !entry.key.chars().all(is_name) {
                let message = format!("`{}` is no name of a variable", entry.key);
                self.wrong(entry.key_span.line, full, &message);
            } else if let Some(text) = self.text(full, &entry.value) {
                target.environment.insert(entry.key.clone(), text);
            }
        }
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn duration(value: &Node) -> Option<Duration> {
    let seconds = match &value.value {
        Value::Text(text) => seconds(text)?,
        Value::Int(number) => *number as f64,
        Value::Float(number) => *number,
        _ => return None,
    };
    (seconds.is_finite() && (1.0..=3600.0).contains(&seconds))
        .then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> (Vec<Target>, Vec<String>) {
        let (targets, complaints) = read(text, Path::new("targets.yaml"), Path::new("conf"));
        (
            targets,
            complaints.iter().map(ToString::to_string).collect(),
        )
    }

    #[test]
    fn every_key_is_read() {
        let (targets, complaints) = read_text(
            "\
gpu1:  # the big one
  kind: ssh
  host: ana@gpu1.lab
  folder: ~/lathe things
  program: /opt/lathe/bin/lathe
  trainer: /opt/lathe/bin/lathe-trainer
  libtorch: /opt/torch/lib
  gpus: [0, 3]
  at_once: 2
  models: /data/models
  environment: {HF_HOME: /data/hf, PORT: 80}
  pass: [WANDB_API_KEY]
  ssh_config: ssh.conf
  connect_timeout: 3s
  compression: false
",
        );
        assert_eq!(complaints, Vec::<String>::new());
        let target = &targets[0];
        assert_eq!(target.host, "ana@gpu1.lab");
        assert_eq!(target.folder, "lathe things");
        assert_eq!(target.gpus, Gpus::These(vec![0, 3]));
        assert_eq!((target.at_once, target.is_compressed), (2, false));
        assert_eq!(target.environment["PORT"], "80");
        assert_eq!(target.pass, ["WANDB_API_KEY"]);
        assert_eq!(
            target.ssh_config.as_deref(),
            Some(Path::new("conf/ssh.conf"))
        );
        assert_eq!(target.connect_timeout, Some(Duration::from_secs(3)));
        assert_eq!(target.written, Some((PathBuf::from("targets.yaml"), 1)));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_the_other_targets_stay() {
        let (targets, complaints) = read_text(
            "good: {}\nbad:\n  kind: cloud\n  hots: x\n  gpus: many\n  program: -x\n  environment: {A B: c}\nalso: 7\n",
        );
        assert_eq!(targets.len(), 1);
        assert_eq!(targets[0].host, "good");
        assert_eq!(
            complaints,
            [
                "targets.yaml:3: bad.kind is cloud; expected local or ssh",
                "targets.yaml:4: a target has no key hots; did you mean host?",
                "targets.yaml:5: bad.gpus is many; expected auto, as_is, none, a number of GPUs, or a list such as [0, 1]",
                "targets.yaml:6: bad.program is \"-x\"; expected a name without line breaks, not starting with `-`",
                "targets.yaml:7: `A B` is no name of a variable",
                "targets.yaml:8: also is no mapping; expected keys such as kind: ssh",
            ]
        );
        assert!(read_text("").1.is_empty());
        assert_eq!(read_text("- a\n").1.len(), 1);
        assert_eq!(read_text("a: [\n").1.len(), 1);
    }
}

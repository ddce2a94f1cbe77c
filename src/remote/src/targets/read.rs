//! The file of targets as typed values; everything wrong with it is a complaint with file and line.

use std::path::{Path, PathBuf};

use experiment::yaml::{Entry, Node, Value, parse};
use experiment::{Complaint, Severity, seconds};
use std::time::Duration;

use super::keys::{KEYS, OF_KINDS, OWN_OPTIONS};
use super::{Target, TargetKind, time};
use crate::scheduler::Requeue;
use crate::wire::Gpus;

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
        let has = |name: &str| entries.iter().any(|entry| entry.key == name);
        if target.kind.has_scheduler() && !has("host") {
            target.host = String::new();
        }
        if target.kind == TargetKind::Ray && !has("gpus") {
            // Ray counts what a job says it takes, and one that asks for what is not there waits for ever.
            target.gpus = Gpus::None;
        }
        self.fit_to_kind(&target, entries);
        self.fit_in_time(&target, entries);
        if target.kind == TargetKind::Local && name != "local" && target.host != *name {
            self.wrong(
                line,
                name,
                &format!("{name}.host has no meaning with kind: local"),
            );
        }
        target
    }

    /// Keys that mean nothing to targets of this kind.
    fn fit_to_kind(&mut self, target: &Target, entries: &[Entry]) {
        let kind = target.kind;
        for entry in entries {
            let key = entry.key.as_str();
            let full = format!("{}.{key}", target.name);
            let line = entry.key_span.line;
            if OF_KINDS
                .iter()
                .any(|(name, kinds)| *name == key && !kinds.contains(&kind))
            {
                let message = format!("{full} has no meaning with kind: {}", kind.word());
                self.wrong(line, &full, &message);
            }
            if key == "gpus" && kind.has_scheduler() && matches!(target.gpus, Gpus::These(_)) {
                let message = format!(
                    "{full} is a list, and {} chooses which GPUs a run gets; expected a number",
                    kind.word()
                );
                self.wrong(line, &full, &message);
            }
            if kind == TargetKind::Ray && key == "pass" {
                let message = format!(
                    "{full} has no meaning with kind: ray, which shows what a job was given to everybody who reaches its dashboard; set \
                     the variables where Ray's nodes are started, or write under environment what may be seen"
                );
                self.wrong(line, &full, &message);
            }
            if kind == TargetKind::Ray && key == "at_once" {
                let message = format!(
                    "{full} has no meaning with kind: ray, which starts what its resources allow; expected cpus, gpus or resources"
                );
                self.wrong(line, &full, &message);
            }
        }
    }

    /// A job whose warning comes as soon as it starts would stop as soon as it starts.
    fn fit_in_time(&mut self, target: &Target, entries: &[Entry]) {
        let warning_s = target.slurm.warning_s;
        let Some((entry, text)) = entries
            .iter()
            .find(|entry| entry.key == "time")
            .zip(target.slurm.time.as_deref())
        else {
            return;
        };
        if let Some(time::Limit::Seconds(limit_s)) = time::limit(text)
            && limit_s <= u64::from(warning_s)
        {
            let name = &target.name;
            let origin = if entries.iter().any(|entry| entry.key == "warning") {
                ""
            } else {
                ", which is the default"
            };
            let message = format!(
                "{name}.time is {text} ({limit_s} s), and {name}.warning is {warning_s} s{origin}: a run would save and stop as soon as it \
                 starts; expected a time longer than the warning: raise time, or lower warning"
            );
            self.wrong(entry.value.span.line, &format!("{name}.time"), &message);
        }
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
                Some("slurm") => target.kind = TargetKind::Slurm,
                Some("ray") => target.kind = TargetKind::Ray,
                Some(other) => self.wrong(
                    value.span.line,
                    &full,
                    &format!("{full} is {other}; expected local, ssh, slurm or ray"),
                ),
                None => {}
            },
            "host" => set(&mut target.host, self.word(&full, value)),
            "folder" => set(&mut target.folder, self.word(&full, value)),
            "program" => target.program = self.word(&full, value),
            "trainer" => target.trainer = self.word(&full, value),
            "python" => target.python = self.word(&full, value),
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
            "listed" => match value.value {
                Value::Bool(flag) => target.is_listed = flag,
                _ => self.unfit(&full, value, "true or false"),
            },
            "partition" => target.slurm.partition = self.option(&full, value),
            "account" => target.slurm.account = self.option(&full, value),
            "qos" => target.slurm.qos = self.option(&full, value),
            "constraint" => target.slurm.constraint = self.option(&full, value),
            "gpu_type" => target.slurm.gpu_type = self.option(&full, value),
            "time" => match self.option(&full, value) {
                Some(text) if time::limit(&text).is_some() => target.slurm.time = Some(text),
                Some(_) => self.unfit(&full, value, "a time as sbatch takes it: minutes, 12:00:00, 2-12 or UNLIMITED"),
                None => {}
            },
            "memory" => match self.option(&full, value).map(|text| (memory_bytes(&text), text)) {
                Some((Some(bytes), text)) => {
                    target.ray.memory_bytes = Some(bytes);
                    target.slurm.memory = Some(text);
                }
                Some((None, _)) => self.unfit(&full, value, "an amount such as 64G"),
                None => {}
            },
            "cpus" => match value.value {
                Value::Int(count @ 1..=4096) => {
                    target.slurm.cpus = Some(count as u32);
                    target.ray.cpus = Some(count as u32);
                }
                _ => self.unfit(&full, value, "a number of processors"),
            },
            "requeue" => match self.text(&full, value).as_deref() {
                Some("preempted") => target.slurm.requeue = Requeue::Preempted,
                Some("always") => target.slurm.requeue = Requeue::Always,
                Some("never") => target.slurm.requeue = Requeue::Never,
                Some(_) => self.unfit(&full, value, "preempted, always or never"),
                None => {}
            },
            "warning" => match duration(value) {
                Some(warning) => target.slurm.warning_s = warning.as_secs() as u32,
                None => self.unfit(&full, value, "a time such as 120s"),
            },
            "sbatch" => self.options(target, &full, value),
            "before" => match &value.value {
                Value::List(items) => {
                    let lines = items.iter().filter_map(|item| self.text(&full, item)).collect();
                    target.slurm.before = lines;
                }
                _ => self.unfit(&full, value, "a list of lines, such as [module load cuda]"),
            },
            "address" => match self.text(&full, value) {
                Some(text) if is_address(&text) => text.trim_end_matches('/').clone_into(&mut target.ray.address),
                Some(_) => self.unfit(&full, value, "an address such as http://127.0.0.1:8265"),
                None => {}
            },
            "resources" => match &value.value {
                Value::Map(entries) => {
                    for entry in entries {
                        match entry.value.value {
                            Value::Int(count @ 0..=1_000_000) => {
                                target.ray.resources.insert(entry.key.clone(), count as u32);
                            }
                            _ => self.unfit(&full, &entry.value, "a whole number"),
                        }
                    }
                }
                _ => self.unfit(&full, value, "resources, NAME: count"),
            },
            "token" => match self.text(&full, value) {
                // Somebody may have put the token itself there: it is not shown.
                Some(text) if !is_variable(&text) => self.wrong(
                    value.span.line,
                    &full,
                    &format!("{full} is no name of a variable; expected one such as RAY_AUTH_TOKEN, which holds the token where lathe is started"),
                ),
                text => target.token = text,
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

    /// A text that is one word of an option of sbatch's.
    fn option(&mut self, full: &str, value: &Node) -> Option<String> {
        let text = self.text(full, value)?;
        let is_fit = !text.is_empty() && !text.starts_with('-') && text.chars().all(is_of_option);
        if !is_fit {
            self.unfit(full, value, "one word without quotes");
            return None;
        }
        Some(text)
    }

    fn options(&mut self, target: &mut Target, full: &str, value: &Node) {
        let Value::List(items) = &value.value else {
            self.unfit(full, value, "a list of options, such as [--nice=100]");
            return;
        };
        for item in items {
            let Some(text) = self.text(full, item) else {
                continue;
            };
            let name = text.split('=').next().unwrap_or_default();
            if !text.starts_with("--") || name.len() < 3 || !text.chars().all(is_of_option) {
                self.unfit(
                    full,
                    item,
                    "an option in full, such as --nice=100, without spaces and quotes",
                );
            } else if OWN_OPTIONS.contains(&name) {
                let message = format!("{full}: {name} is lathe's own; leave it out");
                self.wrong(item.span.line, full, &message);
            } else {
                target.slurm.options.push(text);
            }
        }
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
            if !is_variable(&entry.key) {
                let message = format!("`{}` is no name of a variable", entry.key);
                self.wrong(entry.key_span.line, full, &message);
            } else if let Some(text) = self.text(full, &entry.value) {
                target.environment.insert(entry.key.clone(), text);
            }
        }
    }
}

/// A name of a variable of the environment.
fn is_variable(text: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty() && text.chars().all(is_name)
}

/// What a line of `#SBATCH` reads as it stands.
fn is_of_option(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && !matches!(c, '\'' | '"' | '\\' | '#')
}

/// `64G` in bytes; megabytes where no unit stands, as sbatch has it.
fn memory_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "K" => 10,
        "" | "M" | "MB" => 20,
        "G" | "GB" => 30,
        "T" | "TB" => 40,
        _ => return None,
    };
    let number: u64 = digits.parse().ok().filter(|number| *number < 1 << 20)?;
    Some(number << shift)
}

fn is_address(text: &str) -> bool {
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    // No name and password: they would stand in a file and in messages.
    rest.is_some_and(|rest| {
        !rest.is_empty()
            && !rest.contains(|c: char| c.is_whitespace() || c.is_control() || "@?#".contains(c))
    })
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
mod tests;

//! The file of targets as typed values; everything wrong with it is a complaint with file and line.

use std::path::{Path, PathBuf};

use experiment::yaml::{Entry, Node, Value, parse};
use experiment::{Complaint, Severity, seconds};
use std::time::Duration;

use super::{Target, TargetKind, time};
use crate::scheduler::Requeue;
use crate::wire::Gpus;

/// Every key of a target, with what it says.
pub const KEYS: &[(&str, &str)] = &[
    ("kind", "local, ssh, slurm or ray"),
    (
        "host",
        "the host as `ssh` takes it [default: the target's name; with slurm and ray: this machine]",
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
        "python",
        "the Python there that has verl, for launch.engine: verl [default: launch.verl.python of the experiment]",
    ),
    (
        "libtorch",
        "the folder of libtorch's libraries there [default: beside the trainer]",
    ),
    (
        "gpus",
        "auto: one free GPU; as_is, none, a number of free ones, or a list such as [0, 1] [default: auto; with ray: none]",
    ),
    (
        "at_once",
        "runs at the same time there; others wait; with slurm: of one sweep [default: no limit]",
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
    (
        "listed",
        "page Runs and `lathe runs --targets` list all runs there, not only those begun here [default: true]",
    ),
    (
        "partition",
        "slurm: the partition, or several, as sbatch takes them [default: the cluster's]",
    ),
    ("account", "slurm: what the time is booked on"),
    ("qos", "slurm: the quality of service"),
    (
        "time",
        "slurm: the time limit as sbatch takes it, such as 12:00:00 or 2-12 [default: the partition's]",
    ),
    (
        "cpus",
        "slurm, ray: processors for the run [default: one; with ray: none are counted]",
    ),
    ("memory", "slurm, ray: memory for the run, such as 64G"),
    ("gpu_type", "slurm: which GPUs, such as a100"),
    (
        "constraint",
        "slurm: what the node must have, such as ib&nvme",
    ),
    (
        "requeue",
        "slurm: when the job goes into the queue again and the run goes on from its newest checkpoint: preempted (also when its node \
         failed), always (also at the end of its time), never [default: preempted]",
    ),
    (
        "warning",
        "slurm: how long before the end of its time the run saves a checkpoint and stops [default: 120s]",
    ),
    (
        "sbatch",
        "slurm: further options of sbatch, such as [--nice=100, --exclude=node3]",
    ),
    (
        "before",
        "slurm: lines of bash before the run's, such as [module load cuda]",
    ),
    (
        "address",
        "ray: its dashboard's address, as seen from this machine or from `host` [default: http://127.0.0.1:8265]",
    ),
    (
        "resources",
        "ray: its own resources for the run, NAME: count",
    ),
    (
        "token",
        "ray: the variable that holds its token [default: as Ray looks for it: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token]",
    ),
];

/// Keys that only some kinds of target have.
const OF_KINDS: &[(&str, &[TargetKind])] = &[
    (
        "python",
        &[TargetKind::Ssh, TargetKind::Slurm, TargetKind::Ray],
    ),
    ("partition", &[TargetKind::Slurm]),
    ("account", &[TargetKind::Slurm]),
    ("qos", &[TargetKind::Slurm]),
    ("time", &[TargetKind::Slurm]),
    ("cpus", &[TargetKind::Slurm, TargetKind::Ray]),
    ("memory", &[TargetKind::Slurm, TargetKind::Ray]),
    ("gpu_type", &[TargetKind::Slurm]),
    ("constraint", &[TargetKind::Slurm]),
    ("requeue", &[TargetKind::Slurm]),
    ("warning", &[TargetKind::Slurm]),
    ("sbatch", &[TargetKind::Slurm]),
    ("before", &[TargetKind::Slurm]),
    ("address", &[TargetKind::Ray]),
    ("resources", &[TargetKind::Ray]),
    ("token", &[TargetKind::Ray]),
];

/// Options of sbatch that lathe gives itself, or that would have the job be something else.
const OWN_OPTIONS: &[&str] = &[
    "--array",
    "--chdir",
    "--error",
    "--gres",
    "--input",
    "--job-name",
    "--no-requeue",
    "--nodes",
    "--ntasks",
    "--open-mode",
    "--output",
    "--parsable",
    "--requeue",
    "--signal",
    "--test-only",
    "--wait",
    "--wrap",
    "--export",
    "--export-file",
    "--het-group",
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
  listed: false
",
        );
        assert_eq!(complaints, Vec::<String>::new());
        let target = &targets[0];
        assert_eq!(target.host, "ana@gpu1.lab");
        assert_eq!(target.folder, "lathe things");
        assert_eq!(target.gpus, Gpus::These(vec![0, 3]));
        assert_eq!((target.at_once, target.is_compressed), (2, false));
        assert!(!target.is_listed && Target::host("other").is_listed);
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
                "targets.yaml:3: bad.kind is cloud; expected local, ssh, slurm or ray",
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

    #[test]
    fn a_time_no_longer_than_the_warning_before_its_end_is_refused_with_its_line() {
        let (targets, complaints) = read_text(
            "\
short:
  kind: slurm
  time: 2
shorter:
  kind: slurm
  warning: 300s
  time: 0:00:30
fits:
  kind: slurm
  time: 2
  warning: 119s
whole: {kind: slurm, time: unlimited, warning: 1h}
zero: {kind: slurm, time: 0}
",
        );
        assert_eq!(
            complaints,
            [
                "targets.yaml:3: short.time is 2 (120 s), and short.warning is 120 s, which is the default: a run would save and stop as \
                 soon as it starts; expected a time longer than the warning: raise time, or lower warning",
                "targets.yaml:7: shorter.time is 0:00:30 (60 s), and shorter.warning is 300 s: a run would save and stop as soon as it \
                 starts; expected a time longer than the warning: raise time, or lower warning",
            ]
        );
        let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        assert_eq!(names, ["fits", "whole", "zero"]);
    }

    #[test]
    fn a_cluster_is_read_with_what_its_jobs_ask_for() {
        let (targets, complaints) = read_text(
            "\
lab:
  kind: slurm
  host: login.lab
  partition: gpu,long
  account: nlp
  qos: high
  time: 2-12:00:00
  cpus: 8
  memory: 64G
  gpus: 2
  gpu_type: a100
  constraint: ib&nvme
  requeue: always
  warning: 300s
  at_once: 4
  sbatch: [--nice=100, \"--exclude=node[3-4]\"]
  before: [module load cuda/12.4]
here: {kind: slurm, time: 30}
head:
  kind: ray
  address: http://127.0.0.1:8265/
  token: OUR_TOKEN
  cpus: 2
  memory: 8G
  resources: {tpu: 4}
",
        );
        assert_eq!(complaints, Vec::<String>::new());
        let slurm = &targets[0].slurm;
        assert_eq!(targets[0].host, "login.lab");
        assert_eq!(slurm.partition.as_deref(), Some("gpu,long"));
        assert_eq!(slurm.time.as_deref(), Some("2-12:00:00"));
        assert_eq!(
            (slurm.requeue, slurm.warning_s, slurm.cpus),
            (Requeue::Always, 300, Some(8))
        );
        assert_eq!(slurm.options, ["--nice=100", "--exclude=node[3-4]"]);
        assert_eq!(slurm.before, ["module load cuda/12.4"]);
        assert_eq!(targets[0].gpus, Gpus::Free(2));
        assert!(targets[1].is_here() && targets[1].slurm.time.as_deref() == Some("30"));
        let ray = &targets[2].ray;
        assert_eq!(
            (ray.address.as_str(), ray.memory_bytes),
            ("http://127.0.0.1:8265", Some(8 << 30))
        );
        assert_eq!(
            (ray.resources["tpu"], targets[2].token.as_deref()),
            (4, Some("OUR_TOKEN"))
        );
        assert_eq!(targets[2].gpus, Gpus::None);
    }

    #[test]
    fn what_a_scheduler_cannot_take_is_told_with_its_line() {
        let (_, complaints) = read_text(
            "\
a: {kind: ssh, partition: gpu}
b: {kind: slurm, time: tomorrow}
c: {kind: slurm, sbatch: [--array=1-3]}
d: {kind: slurm, partition: \"a b\"}
e: {kind: slurm, gpus: [0, 1]}
f: {kind: ray, pass: [WANDB_API_KEY]}
g: {kind: ray, token: s3cret-value}
h: {kind: ray, address: \"http://me:pw@h:1\"}
i: {kind: slurm, memory: lots}
j: {kind: slurm, sbatch: [-p gpu]}
k: {kind: slurm, requeue: sometimes}
",
        );
        assert_eq!(
            complaints,
            [
                "targets.yaml:1: a.partition has no meaning with kind: ssh",
                "targets.yaml:2: b.time is tomorrow; expected a time as sbatch takes it: minutes, 12:00:00, 2-12 or UNLIMITED",
                "targets.yaml:3: c.sbatch: --array is lathe's own; leave it out",
                "targets.yaml:4: d.partition is \"a b\"; expected one word without quotes",
                "targets.yaml:5: e.gpus is a list, and slurm chooses which GPUs a run gets; expected a number",
                "targets.yaml:6: f.pass has no meaning with kind: ray, which shows what a job was given to everybody who reaches its \
                 dashboard; set the variables where Ray's nodes are started, or write under environment what may be seen",
                "targets.yaml:7: g.token is no name of a variable; expected one such as RAY_AUTH_TOKEN, which holds the token where \
                 lathe is started",
                "targets.yaml:8: h.address is \"http://me:pw@h:1\"; expected an address such as http://127.0.0.1:8265",
                "targets.yaml:9: i.memory is lots; expected an amount such as 64G",
                "targets.yaml:10: j.sbatch is \"-p gpu\"; expected an option in full, such as --nice=100, without spaces and quotes",
                "targets.yaml:11: k.requeue is sometimes; expected preempted, always or never",
            ]
        );
    }
}

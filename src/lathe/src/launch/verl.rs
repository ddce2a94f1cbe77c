//! verl as the trainer: its command line, and whether it can be started here.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use experiment::Loaded;
use experiment::verl::{self, NotSent};
use serde_json::Value as Json;

/// Where verl's `file` logger writes, within the run directory.
const METRICS_FILE: &str = "metrics.jsonl";
/// verl's own checkpoints, within the run directory: they are in a layout of its own.
const CHECKPOINTS: &str = "verl-checkpoints";

/// A program with its arguments, directory and variables; no shell comes near it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerlCommand {
    pub python: String,
    pub arguments: Vec<String>,
    pub working_dir: Option<PathBuf>,
    pub env: Vec<(String, String)>,
    /// What verl was not told, and what that means.
    pub not_sent: Vec<NotSent>,
}

/// How verl is started for an experiment, with a run directory that may not be there yet.
pub fn command(loaded: &Loaded, run_dir: &Path) -> VerlCommand {
    let settings = &loaded.experiment.launch.verl;
    let told = verl::told(loaded);
    let mut arguments = vec!["-m".to_owned(), settings.entry.clone()];
    arguments.extend(told.overrides);
    if !loaded
        .given
        .iter()
        .any(|key| key == "trainer.default_local_dir")
    {
        let path = run_dir.join(CHECKPOINTS).display().to_string();
        arguments.push(format!(
            "trainer.default_local_dir={}",
            verl::hydra(&Json::from(path))
        ));
    }
    let mut env: Vec<(String, String)> = settings
        .env
        .iter()
        .map(|(name, value)| {
            let text = match value {
                Json::String(text) => text.clone(),
                other => other.to_string(),
            };
            (name.clone(), text)
        })
        .collect();
    let metrics = metrics_file(run_dir).display().to_string();
    env.push(("VERL_FILE_LOGGER_PATH".to_owned(), metrics));
    // Lines come as they are printed, and not in blocks of 8 KiB.
    env.push(("PYTHONUNBUFFERED".to_owned(), "1".to_owned()));
    VerlCommand {
        python: settings.python.clone(),
        arguments,
        working_dir: settings.working_dir.as_ref().map(PathBuf::from),
        env,
        not_sent: told.not_sent,
    }
}

pub fn metrics_file(run_dir: &Path) -> PathBuf {
    run_dir.join(METRICS_FILE)
}

impl VerlCommand {
    /// Ready to be spawned, apart from where its output goes.
    pub fn process(&self) -> Command {
        let mut command = Command::new(&self.python);
        command
            .args(&self.arguments)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        if let Some(directory) = &self.working_dir {
            command.current_dir(directory);
        }
        command
    }

    /// As a person would type it in a shell; what needs quotes has them.
    pub fn words(&self) -> String {
        let mut words: Vec<String> = self
            .env
            .iter()
            .map(|(name, value)| format!("{name}={}", shell_quoted(value)))
            .collect();
        words.push(shell_quoted(&self.python));
        words.extend(self.arguments.iter().map(|word| shell_quoted(word)));
        let command = words.join(" ");
        match &self.working_dir {
            Some(directory) => format!(
                "cd {} && {command}",
                shell_quoted(&directory.display().to_string())
            ),
            None => command,
        }
    }

    /// Whether its Python is there and finds verl. The reason says what to do.
    pub fn can_start(&self) -> Result<(), String> {
        let entry = self.arguments.get(1).map_or("verl", String::as_str);
        let package = entry.split('.').next().unwrap_or(entry);
        let asked =
            "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)";
        let mut command = Command::new(&self.python);
        command
            .args(["-c", asked, package])
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(directory) = &self.working_dir {
            command.current_dir(directory);
        }
        match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(format!(
                "{} finds no module {package}; install verl there, or name the Python that has it in launch.verl.python",
                self.python
            )),
            Err(error) => Err(format!(
                "cannot start {}: {error}; name verl's Python in launch.verl.python, and its directory in launch.verl.working_dir",
                self.python
            )),
        }
    }
}

/// A word for a POSIX shell.
fn shell_quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_can_be_given_to_a_shell() {
        assert_eq!(
            shell_quoted("trainer.logger=[console,file]"),
            "'trainer.logger=[console,file]'"
        );
        assert_eq!(shell_quoted("a.b=1e-6"), "a.b=1e-6");
        assert_eq!(shell_quoted("it's"), r"'it'\''s'");
        assert_eq!(shell_quoted(""), "''");
    }
}

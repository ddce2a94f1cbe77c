//! The user's settings (`$XDG_CONFIG_HOME/lathe/config.yaml`) and what is remembered per project
//! (`$XDG_STATE_HOME/lathe/<project>.json`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::shared::PlotMarks;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// A theme's name; absent: `dark` or `light`, as the terminal's background is.
    pub theme: Option<String>,
    /// Marks of curves; absent: braille, or ASCII where the locale is not UTF-8.
    pub marks: Option<PlotMarks>,
    /// Whether frames are bracketed so that the terminal shows each at once.
    pub sync_output: SyncOutput,
    /// Whether a run of one character goes as the character and a count (REP).
    pub repeats: Repeats,
    /// `false`: the terminal keeps the mouse.
    pub mouse: Option<bool>,
    /// Frames a second at most for what happens by itself; keys are always shown at once.
    pub frames_per_second: Option<f64>,
    /// Binding id to keys; see `lathe bindings`.
    pub keys: BTreeMap<String, Vec<String>>,
    /// Further directories of runs.
    pub runs: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncOutput {
    /// Only large frames, and not inside tmux, which redraws its pane at each.
    #[default]
    Auto,
    On,
    Off,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Repeats {
    /// Where the terminal shows, when it is asked, that it does it.
    #[default]
    Auto,
    On,
    Off,
}

impl Settings {
    /// Reads the settings; a missing or empty file means all defaults. The reason names the file.
    pub fn load(path: &Path) -> Result<Self, String> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        };
        let is_empty = text
            .lines()
            .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        if is_empty {
            return Ok(Self::default());
        }
        experiment::yaml::from_text(&text).map_err(|reason| format!("{}: {reason}", path.display()))
    }
}

/// XDG places of the program's own files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    pub config: PathBuf,
    pub state: PathBuf,
}

impl Places {
    /// From XDG's variables, else below the home directory; None when there is no home.
    pub fn find() -> Option<Self> {
        let strategy = etcetera::base_strategy::Xdg::new().ok()?;
        Some(Self {
            config: strategy.config_dir().join("lathe"),
            state: strategy.state_dir()?.join("lathe"),
        })
    }

    pub fn settings_file(&self) -> PathBuf {
        self.config.join("config.yaml")
    }

    pub fn themes(&self) -> PathBuf {
        self.config.join("themes")
    }

    /// What was copied last, by any workbench.
    pub fn copied_file(&self) -> PathBuf {
        self.state.join("copied.txt")
    }

    /// The file of a project's remembered state; one file a project directory.
    pub fn state_file(&self, project: &Path) -> PathBuf {
        let name: String = project
            .to_string_lossy()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        // Long paths are told apart by a hash, and stay below the limit on names.
        let hash = xxh3_64(project.as_os_str().as_encoded_bytes());
        let tail: String = name
            .chars()
            .rev()
            .take(60)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect();
        self.state
            .join(format!("{}-{hash:016x}.json", tail.trim_matches('-')))
    }
}

/// What pages remember, by page and name; unknown entries of a newer version are kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageState(BTreeMap<String, serde_json::Value>);

impl PageState {
    /// A damaged file is no reason not to start: it counts as empty.
    pub fn load(path: &Path) -> Self {
        std::fs::read(path)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default()
    }

    pub fn get<T: serde::de::DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_value(self.0.get(name)?.clone()).ok()
    }

    pub fn set<T: Serialize>(&mut self, name: &str, value: &T) {
        if let Ok(value) = serde_json::to_value(value) {
            self.0.insert(name.to_owned(), value);
        }
    }

    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("JSON values are JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_name_the_file_and_the_place_of_a_fault() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        assert_eq!(Settings::load(&path).unwrap(), Settings::default());
        std::fs::write(&path, "# nothing yet\n").unwrap();
        assert_eq!(Settings::load(&path).unwrap(), Settings::default());
        std::fs::write(&path, "theme: light\nmarks: braile\n").unwrap();
        let error = Settings::load(&path).unwrap_err();
        assert!(
            error.contains("config.yaml") && error.contains("braile"),
            "{error}"
        );
        std::fs::write(&path, "theme: light\nkeys: {app.quit: [ctrl-q]}\n").unwrap();
        let settings = Settings::load(&path).unwrap();
        assert_eq!(settings.keys["app.quit"], ["ctrl-q"]);
    }

    #[test]
    fn two_projects_never_share_their_state() {
        let places = Places {
            config: PathBuf::new(),
            state: PathBuf::from("/s"),
        };
        let a = places.state_file(Path::new("/home/a/b-c"));
        let b = places.state_file(Path::new("/home/a/b/c"));
        assert_ne!(a, b);
    }
}

//! What this page changes on disk, each in a job: a run's note and tags, and whole runs that are deleted.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use runlog::notes::Notes;
use runlog::run_dir::{Origin, RunDir};
use runlog::state::{Liveness, glance};

use super::{Command, Message};
use crate::launch;
use crate::tui::action::{self, Effect, PageMessage};
use crate::tui::modal::Confirm;
use crate::tui::shared::{RunEntry, RunKey};

/// Names listed in a question; the rest is counted.
const NAMES_ASKED: usize = 8;

/// What of a run's notes is edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edited {
    Note,
    Tags,
}

impl Edited {
    /// As one line of text to edit.
    pub fn text(self, notes: &Notes) -> String {
        match self {
            // A line end has a mark of its own, so that a note of several lines can be edited in one.
            Self::Note => notes.note.replace('\n', "⏎"),
            Self::Tags => {
                let tags: Vec<&str> = notes.tags().iter().map(String::as_str).collect();
                tags.join(" ")
            }
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::Note => "note: ",
            Self::Tags => "tags: ",
        }
    }

    /// What is wrong with what was typed.
    pub fn check(self, text: &str) -> Result<(), String> {
        self.apply(&mut Notes::default(), text)
    }

    fn apply(self, notes: &mut Notes, text: &str) -> Result<(), String> {
        match self {
            Self::Note => text.trim().replace('⏎', "\n").clone_into(&mut notes.note),
            Self::Tags => {
                let wanted: Vec<&str> = text
                    .split([' ', ','])
                    .filter(|word| !word.is_empty())
                    .collect();
                let unwanted: Vec<String> = notes
                    .tags()
                    .iter()
                    .filter(|tag| !wanted.contains(&tag.as_str()))
                    .cloned()
                    .collect();
                for tag in unwanted {
                    notes.remove_tag(&tag);
                }
                for tag in wanted {
                    notes.add_tag(tag).map_err(|error| error.to_string())?;
                }
            }
        }
        Ok(())
    }
}

/// Writes what was typed; what somebody else wrote meanwhile beside it stays.
pub fn edit(key: RunKey, what: Edited, text: String) -> Effect {
    Effect::job("write notes", move || {
        let result = write(&key, what, &text);
        action::Message::Page(PageMessage::Runs(Message::Edited { key, result }))
    })
}

fn write(key: &RunKey, what: Edited, text: &str) -> Result<Notes, String> {
    let run_dir = RunDir::open(key.path()).map_err(|error| error.to_string())?;
    let mut notes = Notes::read(&run_dir).map_err(|error| error.to_string())?;
    what.apply(&mut notes, text)?;
    notes.write(&run_dir).map_err(|error| error.to_string())?;
    Ok(notes)
}

/// Names the runs, and asks for another key than the one that asked. `copies`: how many of them are copies of runs that lie elsewhere.
pub fn question(keys: &[RunKey], copies: usize) -> Confirm {
    let mut names: Vec<String> = keys.iter().take(NAMES_ASKED).map(RunKey::name).collect();
    if keys.len() > NAMES_ASKED {
        names.push(format!("and {} more", keys.len() - NAMES_ASKED));
    }
    let title = match keys.len() {
        1 => "Delete this run?".to_owned(),
        many => format!("Delete {many} runs?"),
    };
    let all =
        "Their events, rollouts and checkpoints are removed from the disk and cannot be had back.";
    let of_copies =
        "Of a run of another machine only the copy here is removed; the run stays there.";
    let what = match copies {
        0 => all.to_owned(),
        _ if copies == keys.len() => of_copies.to_owned(),
        _ => format!("{all} {of_copies}"),
    };
    Confirm {
        title,
        body: format!("{}\n\n{what}", names.join("\n")),
        yes: 'x',
        yes_label: if keys.len() == 1 {
            "delete it"
        } else {
            "delete them"
        }
        .to_owned(),
        command: action::Command::Runs(Command::DeleteConfirmed),
    }
}

/// Says where it stands and from where it goes on.
pub fn resume_question(entry: &RunEntry) -> Confirm {
    let place = match entry.info.origin.as_ref().and_then(Origin::target) {
        Some(target) => format!(" on {target}"),
        None => String::new(),
    };
    let stands = entry.glance.as_ref().map_or(String::new(), |glance| {
        let of = match glance.total_steps {
            0 => String::new(),
            total => format!(" of {total}"),
        };
        format!(" ({} at step {}{of})", glance.word(), glance.step)
    });
    Confirm {
        title: "Have this run go on?".to_owned(),
        body: format!(
            "{}{stands}\n\nIn its own directory{place}, with its experiment as it is, it goes on from its newest whole checkpoint. \
             Steps after that are trained anew.",
            entry.key.name()
        ),
        yes: 'y',
        yes_label: "have it go on".to_owned(),
        command: action::Command::Runs(Command::ResumeConfirmed),
    }
}

pub fn resume(key: RunKey) -> Effect {
    Effect::job("resume run", move || {
        let result = RunDir::open(key.path())
            .map_err(|error| error.to_string())
            .and_then(|run_dir| launch::resume(&run_dir).map_err(|error| error.in_full()));
        action::Message::Page(PageMessage::Runs(Message::Resumed { key, result }))
    })
}

pub fn delete(keys: Vec<RunKey>) -> Effect {
    Effect::job("delete runs", move || {
        let (mut gone, mut failures) = (Vec::new(), Vec::new());
        for key in keys {
            match remove(key.path()) {
                Ok(()) => gone.push(key),
                Err(reason) => failures.push(reason),
            }
        }
        action::Message::Page(PageMessage::Runs(Message::Deleted { gone, failures }))
    })
}

/// First renamed to a hidden name, which no list shows, so that nothing ever sees half a run; then removed.
fn remove(path: &Path) -> Result<(), String> {
    let told = |what: &str, path: &Path, error: std::io::Error| {
        format!("cannot {what} {}: {error}", path.display())
    };
    let run_dir = match RunDir::open(path) {
        Ok(run_dir) => run_dir,
        // Somebody else was quicker.
        Err(_) if !path.exists() => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    // It may have been started again since the question.
    let is_running = glance(&run_dir, SystemTime::now())
        .is_ok_and(|glance| glance.liveness == Liveness::Running);
    if is_running {
        return Err(format!("{} is running: stop it first", path.display()));
    }
    let hidden = hidden_name(path);
    std::fs::rename(path, &hidden).map_err(|error| told("delete", path, error))?;
    std::fs::remove_dir_all(&hidden).map_err(|error| told("remove all of", &hidden, error))
}

fn hidden_name(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{HIDDEN}{name}-{}", std::process::id()))
}

/// What a run that is being deleted is called first; its process comes last.
const HIDDEN: &str = ".deleted-";

/// Removes what an earlier delete hid and could not remove: its process ended, or a file was held.
pub fn clean_up(roots: Vec<PathBuf>) -> Effect {
    Effect::job("remove deleted runs", move || {
        for root in roots {
            for path in leftovers(&root) {
                // Next time, then.
                let _ = std::fs::remove_dir_all(path);
            }
        }
        action::Message::Page(PageMessage::Runs(Message::CleanedUp))
    })
}

/// Directories of a root that carry the name of a deleted run, and whose deleting process is gone or is this one.
fn leftovers(root: &Path) -> Vec<PathBuf> {
    let is_leftover = |name: &str| -> Option<bool> {
        let (_, process) = name.strip_prefix(HIDDEN)?.rsplit_once('-')?;
        let process: u32 = process.parse().ok()?;
        let is_at_it =
            process != std::process::id() && Path::new("/proc").join(process.to_string()).exists();
        Some(!is_at_it)
    };
    std::fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        // Of a link only the link would be ours.
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter(|entry| {
            let name = entry.file_name();
            name.to_str().and_then(is_leftover) == Some(true)
        })
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_delete_of_a_process_that_is_gone_has_left_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        let parent = std::os::unix::process::parent_id();
        let names = [
            format!(".deleted-20261129-100000-sample-ab12-{gone}"),
            format!(".deleted-20261129-100000-sample-cd34-{parent}"),
            ".deleted-notes".to_owned(),
            format!(".deleted-{gone}"),
            format!("20261129-100000-sample-ef56-{gone}"),
        ];
        for name in &names {
            std::fs::create_dir_all(root.path().join(name).join("rollouts")).unwrap();
        }
        let file = format!(".deleted-a-file-{gone}");
        std::fs::write(root.path().join(&file), "").unwrap();
        let Effect::Job { work, .. } = clean_up(vec![root.path().to_owned()]) else {
            panic!("it is a job")
        };
        work();
        assert!(!root.path().join(&names[0]).exists());
        for kept in names[1..].iter().chain([&file]) {
            assert!(root.path().join(kept).exists(), "{kept}");
        }
    }
}

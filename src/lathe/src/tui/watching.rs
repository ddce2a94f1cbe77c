//! Tells when single files change: the theme, the edited experiments. Each owner says all the files it cares for; what it no
//! longer names is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::action::Message;
use super::sources::Outbox;

#[derive(Debug)]
pub struct Watching {
    outbox: Outbox,
    /// None until there is something to watch, or where changes cannot be watched: they are then noticed at the next save.
    watcher: Option<RecommendedWatcher>,
    folders: BTreeMap<&'static str, BTreeSet<PathBuf>>,
}

impl Watching {
    pub fn new(outbox: Outbox) -> Self {
        Self {
            outbox,
            watcher: None,
            folders: BTreeMap::new(),
        }
    }

    /// These files of `owner`, and no others. Their folders are watched, since editors replace files by renaming.
    pub fn set(&mut self, owner: &'static str, files: &[PathBuf]) {
        let before = self.all();
        let folders = files
            .iter()
            .filter_map(|file| file.parent())
            .map(PathBuf::from)
            .collect();
        self.folders.insert(owner, folders);
        let after = self.all();
        if self.watcher.is_none() && !after.is_empty() {
            self.watcher = self.start();
        }
        if let Some(watcher) = &mut self.watcher {
            // A folder that is gone, or cannot be watched, has nothing to tell.
            for folder in before.difference(&after) {
                let _ = watcher.unwatch(folder);
            }
            for folder in after.difference(&before) {
                let _ = watcher.watch(folder, RecursiveMode::NonRecursive);
            }
        }
    }

    fn all(&self) -> BTreeSet<PathBuf> {
        self.folders.values().flatten().cloned().collect()
    }

    fn start(&self) -> Option<RecommendedWatcher> {
        let outbox = self.outbox.clone();
        notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let Ok(event) = event else { return };
            if event.kind.is_access() {
                return;
            }
            for path in event.paths {
                outbox.send(Message::FileChanged(path));
            }
        })
        .ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, sync_channel};
    use std::time::Duration;

    use super::*;
    use crate::tui::driver::Wake;

    /// The next file of which a change is told.
    fn next(wakes: &Receiver<Wake>) -> PathBuf {
        loop {
            let wake = wakes.recv_timeout(Duration::from_secs(20)).unwrap();
            if let Wake::Message(Message::FileChanged(path)) = wake {
                return path;
            }
        }
    }

    #[test]
    fn what_an_owner_no_longer_names_is_forgotten_and_what_another_names_is_kept() {
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [first, second, shared] = folders
            .each_ref()
            .map(|folder| folder.path().join("a.yaml"));
        let (sender, wakes) = sync_channel(256);
        let mut watching = Watching::new(Outbox(sender));
        watching.set("config", &[first.clone(), shared.clone()]);
        watching.set("theme", std::slice::from_ref(&shared));
        std::fs::write(&first, "1").unwrap();
        assert_eq!(next(&wakes), first);
        watching.set("config", std::slice::from_ref(&second));
        std::fs::write(&first, "2").unwrap();
        std::fs::write(&shared, "1").unwrap();
        // Events of one watcher come in order: what was written to the first would have been told before.
        loop {
            let told = next(&wakes);
            if told == shared {
                break;
            }
            // What was on its way before it was forgotten.
            assert_eq!(told, first);
        }
        std::fs::write(&first, "3").unwrap();
        std::fs::write(&second, "1").unwrap();
        loop {
            let told = next(&wakes);
            assert_ne!(told, first, "it is forgotten");
            if told == second {
                break;
            }
        }
    }
}

//! Whose turn it is: runs wait in a line, first come first served, for one of so many places and for GPUs.
//!
//! A place in the line and a place to run are locks of files. Who dies, or is killed, leaves both at once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Folder;
use super::gpus::{self, Held, Taken, try_hold};
use crate::ssh::private_dir;
use crate::wire::Gpus;

/// A place in the line.
#[derive(Debug)]
pub(super) struct Ticket {
    path: PathBuf,
    run: String,
    _held: Held,
}

/// What a run holds while it runs.
#[derive(Debug)]
pub(super) struct Turn {
    _place: Option<Held>,
    pub gpus: Taken,
}

/// In a scheduler's job, which has its place and its GPUs.
pub(super) fn of_a_scheduler(wanted: &Gpus) -> Turn {
    let visible = (*wanted == Gpus::None).then(String::new);
    Turn {
        _place: None,
        gpus: Taken {
            visible,
            indices: Vec::new(),
            locks: Vec::new(),
        },
    }
}

fn told(path: &Path) -> impl Fn(io::Error) -> String + '_ {
    move |error| format!("cannot use {}: {error}", path.display())
}

/// Lines up. `now_ns` orders the line.
pub(super) fn line_up(folder: &Folder, run: &str, now_ns: u128) -> Result<Ticket, String> {
    let line = folder.path().join("turns/line");
    private_dir(&line).map_err(told(&line))?;
    let path = line.join(format!("{now_ns:024}-{run}"));
    let held = try_hold(&path, run)
        .map_err(told(&path))?
        .ok_or_else(|| format!("{run} stands in the line already"))?;
    Ok(Ticket {
        path,
        run: run.to_owned(),
        _held: held,
    })
}

impl Ticket {
    /// Who stands before this one. Removes the tickets of those that are gone.
    fn before(&self) -> Result<Vec<String>, String> {
        let line = self.path.parent().unwrap_or(Path::new("."));
        let mut paths: Vec<PathBuf> = fs::read_dir(line)
            .map_err(told(line))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path < &self.path)
            .collect();
        paths.sort();
        let mut before = Vec::new();
        for path in paths {
            match try_hold(&path, "") {
                // Its lock is free: whoever drew it is gone. Removed while it is ours.
                Ok(Some(_held)) => drop(fs::remove_file(&path)),
                Ok(None) => before.push(gpus::holder(&path).unwrap_or_default()),
                Err(_) => {}
            }
        }
        Ok(before)
    }

    /// The turn, when it has come; else why not yet.
    pub fn try_turn(
        &self,
        folder: &Folder,
        at_once: u32,
        wanted: &Gpus,
    ) -> Result<Result<Turn, String>, String> {
        let needs_place = at_once > 0;
        let needs_gpus = matches!(wanted, Gpus::Free(_) | Gpus::These(_));
        if needs_place || needs_gpus {
            let before = self.before()?;
            if let Some(first) = before.first() {
                return Ok(Err(format!(
                    "in line: {} before it, {first} first",
                    before.len()
                )));
            }
        }
        let mut place = None;
        if needs_place {
            let places = folder.path().join("turns");
            for index in 0..at_once {
                let path = places.join(format!("place-{index}"));
                place = try_hold(&path, &self.run).map_err(told(&path))?;
                if place.is_some() {
                    break;
                }
            }
            if place.is_none() {
                return Ok(Err(format!("for a place: {at_once} at once, all taken")));
            }
        }
        Ok(gpus::take(folder, wanted, &self.run)?.map(|gpus| Turn {
            _place: place,
            gpus,
        }))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Left behind, it would be removed by the next that looks.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_in_the_order_of_the_line_and_freed_by_whoever_leaves() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path().join("l").to_str().unwrap()).unwrap();
        let turn = |ticket: &Ticket| ticket.try_turn(&folder, 1, &Gpus::AsIs).unwrap();
        let first = line_up(&folder, "a", 1).unwrap();
        let second = line_up(&folder, "b", 2).unwrap();
        let third = line_up(&folder, "c", 3).unwrap();
        assert_eq!(turn(&third).unwrap_err(), "in line: 2 before it, a first");
        let running = turn(&first).unwrap();
        drop(first);
        assert_eq!(
            turn(&second).unwrap_err(),
            "for a place: 1 at once, all taken"
        );
        // Killed while it waited: its lock is free and its ticket still lies there.
        let path = second.path.clone();
        drop(second);
        fs::write(path, "b").unwrap();
        drop(running);
        turn(&third).unwrap();
    }

    #[test]
    fn as_many_as_are_asked_for_run_where_no_limit_is_set() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path().join("l").to_str().unwrap()).unwrap();
        let tickets = ["a", "b", "c"].map(|run| line_up(&folder, run, 7).unwrap());
        let turns = tickets
            .iter()
            .map(|ticket| ticket.try_turn(&folder, 0, &Gpus::None).unwrap().unwrap());
        assert!(
            turns
                .into_iter()
                .all(|turn| turn.gpus.visible.as_deref() == Some(""))
        );
    }
}

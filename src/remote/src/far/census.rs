//! The runs of this folder for whoever lists them: what changed since the last answer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use runlog::run_dir::{Exit, Standing};
use runlog::run_list::{Entry, RunList};
use xxhash_rust::xxh3::xxh3_64;

use super::Folder;
use super::cluster::Look;
use crate::wire::{RunSeen, Say};

/// Runs of one answer; and bytes of it, about: a frame holds several times as many.
const RUNS_AN_ANSWER: usize = 64;
const BYTES_AN_ANSWER: usize = 1 << 20;
/// Questions to a scheduler for one answer, each a process or a request of its own. Those that it was longest not asked about come
/// first.
const ASKED_AT_ONCE: usize = 8;

/// What one conversation was told.
#[derive(Debug, Default)]
pub(super) struct Census {
    list: Option<RunList>,
    looks: BTreeMap<String, Look>,
    told: BTreeMap<String, Told>,
}

/// Of a run that the other side knows.
#[derive(Debug, Default)]
struct Told {
    /// Of all that was said. None: it knows it from before.
    hash: Option<u64>,
    standing: Option<Standing>,
}

impl Census {
    pub fn answer(&mut self, folder: &Folder, most: u32, known: Vec<String>) -> Say {
        for name in known {
            self.told.entry(name).or_default();
        }
        let mut list = self
            .list
            .take()
            .unwrap_or_else(|| RunList::new([folder.runs()]));
        list.refresh(SystemTime::now());
        let gone = self.forget_all_but(list.entries());
        let newest = &list.entries()[..list.entries().len().min(most as usize)];
        let may_ask = self.whose_turn(newest);
        let mut news = Vec::new();
        let (mut bytes, mut is_more) = (0, false);
        for entry in newest {
            let name = entry.run_dir.name();
            let mut seen = self.see(entry, may_ask.contains(name));
            let text = serde_json::to_vec(&seen).expect("only string keys");
            let hash = Some(xxh3_64(&text));
            let told = self.told.get(name);
            if told.is_some_and(|told| told.hash == hash) {
                continue;
            }
            if told.is_none() {
                seen.experiment_yaml =
                    std::fs::read_to_string(entry.run_dir.experiment_path()).ok();
            }
            bytes += text.len() + seen.experiment_yaml.as_ref().map_or(0, String::len);
            if news.len() == RUNS_AN_ANSWER || (bytes > BYTES_AN_ANSWER && !news.is_empty()) {
                is_more = true;
                break;
            }
            let standing = Some(seen.standing.clone());
            self.told.insert(name.to_owned(), Told { hash, standing });
            news.push(seen);
        }
        self.list = Some(list);
        Say::Census {
            news,
            gone,
            is_more,
        }
    }

    /// Names that were told and are no runs any more.
    fn forget_all_but(&mut self, entries: &[Entry]) -> Vec<String> {
        let there: BTreeSet<&str> = entries.iter().map(|entry| entry.run_dir.name()).collect();
        self.looks.retain(|name, _| there.contains(name.as_str()));
        let gone: Vec<String> = self
            .told
            .keys()
            .filter(|name| !there.contains(name.as_str()))
            .cloned()
            .collect();
        self.told.retain(|name, _| there.contains(name.as_str()));
        gone
    }

    /// The runs about which a scheduler is asked for this answer.
    fn whose_turn(&mut self, newest: &[Entry]) -> BTreeSet<String> {
        let mut open: Vec<_> = newest
            .iter()
            .filter_map(|entry| {
                let look = self.look(entry);
                look.has_to_ask()
                    .then(|| (look.asked_at(), entry.run_dir.name().to_owned()))
            })
            .collect();
        open.sort();
        open.into_iter()
            .take(ASKED_AT_ONCE)
            .map(|(_, name)| name)
            .collect()
    }

    fn look(&mut self, entry: &Entry) -> &mut Look {
        self.looks
            .entry(entry.run_dir.name().to_owned())
            .or_insert_with(|| Look::from_aside(entry.run_dir.path()))
    }

    fn see(&mut self, entry: &Entry, may_ask: bool) -> RunSeen {
        let name = entry.run_dir.name();
        let look = self.look(entry);
        let standing = if may_ask || !look.has_to_ask() {
            look.standing()
        } else {
            let before = self.told.get(name).and_then(|told| told.standing.clone());
            before.unwrap_or_else(|| Standing::Queued {
                why: "in a queue".to_owned(),
            })
        };
        RunSeen {
            name: name.to_owned(),
            info: serde_json::to_value(entry.run_dir.info()).unwrap_or_default(),
            experiment_yaml: None,
            standing,
            exit: Exit::read(entry.run_dir.path()),
            glance: entry.problem.is_none().then(|| entry.glance.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use runlog::run_dir::{NewRun, RunDir};

    use super::*;

    fn run(folder: &Folder) -> RunDir {
        let run_dir = RunDir::create(&folder.runs(), &NewRun::default()).unwrap();
        std::fs::write(run_dir.experiment_path(), "trainer: {}\n").unwrap();
        run_dir
    }

    fn folder(path: &Path) -> Folder {
        std::fs::create_dir(path.join("runs")).unwrap();
        Folder(path.to_owned())
    }

    fn answer(
        census: &mut Census,
        folder: &Folder,
        known: &[&str],
    ) -> (Vec<RunSeen>, Vec<String>, bool) {
        let known = known.iter().map(|&name| name.to_owned()).collect();
        match census.answer(folder, 200, known) {
            Say::Census {
                news,
                gone,
                is_more,
            } => (news, gone, is_more),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_run_is_told_once_and_again_when_it_is_another_and_one_that_is_gone_is_told_too() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        let (one, other) = (run(&folder), run(&folder));
        let mut census = Census::default();
        let (news, gone, is_more) = answer(&mut census, &folder, &[other.name(), "long-gone"]);
        assert_eq!((news.len(), is_more), (2, false));
        assert_eq!(gone, ["long-gone"]);
        for seen in &news {
            let is_known = seen.name == other.name();
            assert_eq!(seen.experiment_yaml.is_none(), is_known, "{seen:?}");
            assert!(matches!(seen.standing, Standing::Lost { .. }), "{seen:?}");
        }
        assert_eq!(answer(&mut census, &folder, &[]).0, []);

        let exit = Exit {
            code: Some(0),
            signal: None,
            is_out_of_memory: false,
            reason: "it ended by itself".to_owned(),
            last_words: Vec::new(),
            ended_at: jiff::Timestamp::now(),
            host: String::new(),
        };
        exit.write(one.path()).unwrap();
        std::fs::remove_dir_all(other.path()).unwrap();
        let (news, gone, _) = answer(&mut census, &folder, &[]);
        assert_eq!(news.len(), 1);
        assert_eq!(news[0].standing, Standing::Ended);
        assert_eq!(news[0].experiment_yaml, None, "it was told before");
        assert_eq!(gone, [other.name()]);
    }

    #[test]
    fn many_runs_come_in_several_answers_newest_first_and_only_as_many_as_are_asked_for() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        for _ in 0..RUNS_AN_ANSWER + 6 {
            run(&folder);
        }
        let mut census = Census::default();
        let (first, _, is_more) = answer(&mut census, &folder, &[]);
        assert_eq!((first.len(), is_more), (RUNS_AN_ANSWER, true));
        let (rest, _, is_more) = answer(&mut census, &folder, &[]);
        assert_eq!((rest.len(), is_more), (6, false));
        let Say::Census { news, .. } = Census::default().answer(&folder, 3, Vec::new()) else {
            panic!("it answers");
        };
        assert_eq!(news, first[..3]);
    }
}

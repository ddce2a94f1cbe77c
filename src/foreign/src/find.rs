//! Which runs a path holds, told by the first bytes of files and the names beside them; nothing is opened for writing.
//!
//! In a directory only files are taken that can be nothing but a tracker's: a CSV there may be a data set. Named directly, or with
//! a format that is given, any will do.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::read::{
    csv, mlflow_files, mlflow_sqlite, sqlite, tensorboard, trackio, verl_console, verl_rows, wandb,
};
use crate::{ForeignError, Format, Options, number};

/// Directories within directories that are looked into.
const MOST_DEPTH: usize = 4;
/// Entries that one search looks at: a data directory given by mistake must not hold the program.
const MOST_ENTRIES: usize = 20_000;
/// Read of a file's start and end.
const LOOK_BYTES: u64 = 256 << 10;

/// A run of another tracker.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub format: Format,
    /// The file or directory that is read.
    pub path: PathBuf,
    /// Which of the runs in there; empty where there is one.
    pub run: String,
    pub name: String,
    pub project: String,
    /// Seconds since 1970.
    pub started_s: Option<f64>,
}

impl Found {
    fn new(format: Format, path: &Path) -> Self {
        Self {
            format,
            path: path.to_owned(),
            run: String::new(),
            name: stem(path),
            project: String::new(),
            started_s: None,
        }
    }

    /// As people see it: the path, and after `#` which run in it.
    pub fn place(&self) -> String {
        if self.run.is_empty() {
            self.path.display().to_string()
        } else {
            format!("{}#{}", self.path.display(), self.run)
        }
    }
}

/// What `path` is; None: no run of another tracker, or one of ours. Costs a look at a file's first bytes or at a directory's names.
pub fn recognise(path: &Path) -> Option<Format> {
    if path.is_file() {
        return of_file(path);
    }
    let mut search = Search {
        is_first_enough: true,
        ..Search::default()
    };
    search.directory(path, 0);
    search.found.first().map(|found| found.format)
}

/// The runs in `path`, oldest first as far as that is known.
pub fn find(path: &Path, options: &Options) -> Result<Vec<Found>, ForeignError> {
    let metadata = fs::metadata(path).map_err(ForeignError::io("open", path))?;
    let path = &fs::canonicalize(path).map_err(ForeignError::io("open", path))?;
    let mut search = Search {
        wanted: options.format,
        ..Search::default()
    };
    if metadata.is_dir() {
        search.directory(path, 0);
    } else {
        let format = match options.format {
            Some(format) if format.is_text() && is_binary(path)? => {
                return Err(ForeignError::Content {
                    path: path.clone(),
                    reason: format!("it holds binary data, and {} is text", format.name()),
                });
            }
            Some(format) => format,
            None => of_file(path).ok_or_else(|| ForeignError::Unknown { path: path.clone() })?,
        };
        search.file(path, format)?;
    }
    let mut found = search.found;
    if found.is_empty() {
        return Err(match (search.failed, options.format) {
            (Some(error), _) => error,
            (None, Some(format)) => ForeignError::NoRun {
                path: path.clone(),
                format: format.name(),
            },
            (None, None) => ForeignError::Unknown { path: path.clone() },
        });
    }
    found.sort_by(|a, b| {
        let (a_s, b_s) = (a.started_s.unwrap_or(0.0), b.started_s.unwrap_or(0.0));
        a_s.total_cmp(&b_s).then_with(|| a.path.cmp(&b.path))
    });
    Ok(found)
}

#[derive(Debug, Default)]
struct Search {
    found: Vec<Found>,
    wanted: Option<Format>,
    is_first_enough: bool,
    entries: usize,
    failed: Option<ForeignError>,
}

impl Search {
    fn wants(&self, format: Format) -> bool {
        self.wanted.is_none_or(|wanted| wanted == format)
    }

    fn directory(&mut self, path: &Path, depth: usize) {
        // A run of ours is not foreign, whatever loggers left in it.
        if path.join("run.json").exists() {
            return;
        }
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                return;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            // Links to directories may lead in circles; W&B's latest-run is one to a run that is found anyway.
            match entry.file_type() {
                _ if name.starts_with('.') => {}
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push((name, entry.path())),
                _ => {}
            }
        }
        files.sort_unstable();
        directories.sort_unstable();
        let is_whole = self.files_of(path, &files);
        if is_whole || depth == MOST_DEPTH {
            return;
        }
        for directory in directories {
            if self.is_first_enough && !self.found.is_empty() {
                return;
            }
            self.directory(&directory, depth + 1);
        }
    }

    /// True: the directory is a run, and what lies below it is that run's.
    fn files_of(&mut self, path: &Path, files: &[(String, PathBuf)]) -> bool {
        if files.iter().any(|(name, _)| name == "meta.yaml") && path.join("metrics").is_dir() {
            self.take(Format::Mlflow, path);
            return true;
        }
        let mut is_whole = false;
        if files
            .iter()
            .any(|(name, _)| tensorboard::is_event_file(name))
        {
            self.take(Format::TensorBoard, path);
        }
        for (name, path) in files {
            let extension = Path::new(name)
                .extension()
                .and_then(|extension| extension.to_str());
            let format = match extension {
                Some("wandb") => {
                    is_whole = true;
                    Some(Format::Wandb)
                }
                Some("db" | "sqlite" | "sqlite3") => of_database(path),
                Some("jsonl") => of_file(path),
                _ if self.wanted.is_some() => of_file(path),
                _ => None,
            };
            let is_sure = !matches!(
                format,
                Some(Format::Csv | Format::Jsonl | Format::VerlConsole)
            );
            if let Some(format) = format
                && (is_sure || self.wanted.is_some())
            {
                self.take(format, path);
            }
        }
        is_whole
    }

    fn take(&mut self, format: Format, path: &Path) {
        if self.wants(format)
            && let Err(error) = self.file(path, format)
        {
            self.failed.get_or_insert(error);
        }
    }

    /// Takes the runs of a source whose format is known.
    fn file(&mut self, path: &Path, format: Format) -> Result<(), ForeignError> {
        if self.is_first_enough {
            self.found.push(Found::new(format, path));
            return Ok(());
        }
        let mut found = Found::new(format, path);
        match format {
            Format::Trackio => {
                found.project = stem(path);
                for run in trackio::runs(path)? {
                    self.found.push(Found {
                        run: run.run,
                        name: run.name,
                        started_s: run.started_s,
                        ..found.clone()
                    });
                }
                return Ok(());
            }
            Format::MlflowSqlite => {
                for run in mlflow_sqlite::runs(path)? {
                    self.found.push(Found {
                        run: run.run,
                        name: run.name,
                        project: run.experiment,
                        started_s: run.started_s,
                        ..found.clone()
                    });
                }
                return Ok(());
            }
            Format::Mlflow => {
                let meta = mlflow_files::Meta::read(path).unwrap_or_default();
                if meta.text("lifecycle_stage") == Some("deleted") {
                    return Ok(());
                }
                if let Some(name) = meta.text("run_name") {
                    name.clone_into(&mut found.name);
                }
                found.started_s = meta.number("start_time").map(|ms| ms / 1e3);
                let experiment = path.parent().and_then(mlflow_files::Meta::read);
                found.project = experiment
                    .and_then(|meta| meta.text("name").map(str::to_owned))
                    .unwrap_or_default();
            }
            Format::TensorBoard => found.started_s = tensorboard::started_s(path),
            Format::Wandb => {
                if let Some(about) = wandb::first_about(path) {
                    found.started_s = about.started_s;
                    found.project = about.project;
                    found.name = [about.name, about.id, found.name]
                        .into_iter()
                        .find(|name| !name.is_empty())
                        .unwrap_or_default();
                }
            }
            Format::Verl | Format::VerlConsole | Format::Csv | Format::Jsonl => {}
        }
        self.found.push(found);
        Ok(())
    }
}

/// The file's name without its ending; a directory's name.
fn stem(path: &Path) -> String {
    let name = if path.is_dir() {
        path.file_name()
    } else {
        path.file_stem()
    };
    name.map_or_else(
        || "run".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// When a file was made, as far as its file system knows; else when it was last written. Seconds since 1970.
pub fn made_s(path: &Path) -> Option<f64> {
    let metadata = fs::metadata(path).ok()?;
    let at = metadata.created().or_else(|_| metadata.modified()).ok()?;
    Some(at.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
}

/// When the source was last written: of a directory the newest of what lies directly in it.
pub fn written_at(path: &Path) -> Option<SystemTime> {
    let of = |path: &Path| {
        fs::metadata(path)
            .and_then(|metadata| metadata.modified())
            .ok()
    };
    let own = of(path);
    if !path.is_dir() {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        return own.max(of(Path::new(&log)));
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let metrics = fs::read_dir(path.join("metrics"))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .chain(metrics)
        .map(|entry| of(&entry.path()))
        .fold(own, Option::max)
}

fn of_database(path: &Path) -> Option<Format> {
    let mut head = [0; 16];
    File::open(path).ok()?.read_exact(&mut head).ok()?;
    if head != *b"SQLite format 3\0" {
        return None;
    }
    sqlite::with(path, |database| {
        if trackio::is_project(database)? {
            return Ok(Some(Format::Trackio));
        }
        Ok(mlflow_sqlite::is_store(database)?.then_some(Format::MlflowSqlite))
    })
    .ok()??
}

fn is_binary(path: &Path) -> Result<bool, ForeignError> {
    let file = File::open(path).map_err(ForeignError::io("open", path))?;
    let mut head = Vec::new();
    file.take(LOOK_BYTES)
        .read_to_end(&mut head)
        .map_err(ForeignError::io("read", path))?;
    Ok(head.contains(&0))
}

fn of_file(path: &Path) -> Option<Format> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let mut file = File::open(path).ok()?;
    let mut head = Vec::new();
    (&mut file).take(LOOK_BYTES).read_to_end(&mut head).ok()?;
    if head.starts_with(&runlog::wire::blocks::HEAD) {
        return Some(Format::Wandb);
    }
    if tensorboard::is_event_file(&name) {
        return Some(Format::TensorBoard);
    }
    if head.starts_with(b"SQLite format 3\0") {
        return of_database(path);
    }
    if head.contains(&0) {
        return None;
    }
    let text = String::from_utf8_lossy(&head);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .take(50)
        .collect();
    let first = lines.first()?;
    if first.trim_start().starts_with('{') {
        if verl_rows::parse(first.as_bytes()).is_ok() {
            return Some(Format::Verl);
        }
        if number::lenient_json(first.as_bytes()).is_ok_and(|value| value.is_object()) {
            return Some(Format::Jsonl);
        }
    }
    if csv::looks_like(&lines) || (csv::is_named(path) && lines[0].contains([',', ';', '\t'])) {
        return Some(Format::Csv);
    }
    let has_step = |text: &str| {
        text.lines()
            .any(|line| verl_console::step_line(line).is_some())
    };
    if has_step(&text) {
        return Some(Format::VerlConsole);
    }
    // A long start: its steps are further down.
    let size = file.metadata().ok()?.len();
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(size.saturating_sub(LOOK_BYTES)))
        .ok()?;
    file.take(LOOK_BYTES).read_to_end(&mut tail).ok()?;
    has_step(&String::from_utf8_lossy(&tail)).then_some(Format::VerlConsole)
}

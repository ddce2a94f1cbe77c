//! Another program's database, read without leaving a trace: no lock file, no journal, no migration.
//!
//! ```text
//!  no -wal file           opened as immutable: nothing is created beside it; read again if it changed meanwhile
//!  -wal and -shm files    opened read-only, the index in memory: their writer lives, and is not waited for
//!  -wal without -shm      its writer was killed, or it is a copy: both files are copied to a temporary place and read there
//! ```

use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use serde::Serialize;
use serde_json::Value;

use super::{Reader, place_value};
use crate::ForeignError;
use crate::item::Batch;

/// How far a run of a database was read, and how what comes after is.
pub trait Place: Clone + Serialize + std::fmt::Debug + Send {
    /// Gives what is new, and moves behind it.
    fn advance(&mut self, database: &Connection, run: &str) -> rusqlite::Result<Batch>;
}

/// Reads one run of a database.
#[derive(Debug)]
pub struct Rows<P> {
    path: PathBuf,
    run: String,
    place: P,
}

impl<P> Rows<P> {
    pub fn new(path: PathBuf, run: &str, place: P) -> Self {
        Self {
            path,
            run: run.to_owned(),
            place,
        }
    }
}

impl<P: Place> Reader for Rows<P> {
    fn read(&mut self, _is_last: bool) -> Result<Batch, ForeignError> {
        let found = with(&self.path, |database| {
            let mut place = self.place.clone();
            let batch = place.advance(database, &self.run)?;
            Ok((batch, place))
        })?;
        // None: a writer is at it.
        Ok(found.map_or_else(Batch::default, |(batch, place)| {
            self.place = place;
            batch
        }))
    }

    fn place(&self) -> Value {
        place_value(&self.place)
    }
}

/// Runs `read` on the database. None: a writer is in the middle of something; ask again.
pub fn with<T>(
    path: &Path,
    read: impl Fn(&Connection) -> rusqlite::Result<T>,
) -> Result<Option<T>, ForeignError> {
    let error = ForeignError::database(path);
    let before = stamps(path);
    if before[0].is_none() {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(ForeignError::io("open", path)(missing));
    }
    let [_, wal, shm, journal] = &before;
    if journal.is_some_and(|(bytes, _)| bytes > 0) {
        return Ok(None);
    }
    let has_wal = wal.is_some_and(|(bytes, _)| bytes > 0);
    let outcome = match (has_wal, shm.is_some()) {
        (false, _) => open(path, "mode=ro&immutable=1").and_then(|database| read(&database)),
        (true, true) => open(path, "mode=ro&readonly_shm=1").and_then(|database| read(&database)),
        (true, false) => {
            let copy = Copy::of(path)?;
            open(&copy.database(), "mode=rw").and_then(|database| read(&database))
        }
    };
    // A writer came while an immutable file was read: it was none.
    let is_torn = !has_wal && stamps(path) != before;
    match outcome {
        _ if is_torn => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(rusqlite::Error::SqliteFailure(failure, _))
            if matches!(
                failure.code,
                ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked
            ) =>
        {
            Ok(None)
        }
        Err(source) => Err(error(source)),
    }
}

type Stamp = Option<(u64, Option<SystemTime>)>;

/// Size and time of the database, its log, the log's index and a journal.
fn stamps(path: &Path) -> [Stamp; 4] {
    ["", "-wal", "-shm", "-journal"].map(|suffix| {
        let metadata = fs::metadata(beside(path, suffix)).ok()?;
        Some((metadata.len(), metadata.modified().ok()))
    })
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn open(path: &Path, how: &str) -> rusqlite::Result<Connection> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'_' | b'-' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => write!(uri, "%{byte:02X}").expect("a String takes everything"),
        }
    }
    let access = if how.starts_with("mode=ro") {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    } else {
        OpenFlags::SQLITE_OPEN_READ_WRITE
    };
    let flags = access | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(format!("{uri}?{how}"), flags)
}

/// A copy of a database and its log, removed when it is dropped.
struct Copy(PathBuf);

impl Copy {
    fn of(path: &Path) -> Result<Self, ForeignError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("lathe-database-{}-{number}", std::process::id()));
        fs::create_dir(&directory).map_err(ForeignError::io("create", &directory))?;
        let copy = Self(directory);
        for suffix in ["", "-wal"] {
            let from = beside(path, suffix);
            fs::copy(&from, beside(&copy.database(), suffix))
                .map_err(ForeignError::io("copy", &from))?;
        }
        Ok(copy)
    }

    fn database(&self) -> PathBuf {
        self.0.join("copy.db")
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // A temporary place is cleaned by others too.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The names of a table's columns; empty where there is no such table.
pub fn columns(database: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = database.prepare("SELECT name FROM pragma_table_info(?1)")?;
    let names = statement.query_map([table], |row| row.get(0))?;
    names.collect()
}

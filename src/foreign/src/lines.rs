//! A file of lines, read by byte offset while another program writes it: a torn last line waits.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::ForeignError;
use crate::item::{Batch, Item};

/// Read at once.
const CHUNK_BYTES: u64 = 4 << 20;
/// A longer line is no line of any log.
const MOST_LINE_BYTES: u64 = 256 << 20;
/// By its first bytes a file is known again.
const HEAD_BYTES: u64 = 256;
/// A last line without an end is taken for whole when nothing was written for so long: many editors end no last line.
const SETTLED: Duration = Duration::from_secs(60);

/// Where a reader of lines stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinePlace {
    /// Of the first byte that was not read.
    pub offset: u64,
    /// Lines read.
    pub line: u64,
    /// Length and hash of the file's first bytes, by which a file that was written anew is known.
    head: Option<(u64, u64)>,
}

#[derive(Debug)]
pub struct LineFile {
    path: PathBuf,
    pub place: LinePlace,
}

/// Lines without their ends; each with its number, from 1.
#[derive(Debug, Default)]
pub struct Lines {
    pub numbered: Vec<(u64, Vec<u8>)>,
    pub has_more: bool,
    /// The file is another one, or was written anew: these are its first lines.
    pub is_new_file: bool,
    /// The last line has no end yet and was left.
    pub has_torn: bool,
}

impl LineFile {
    pub fn new(path: PathBuf, place: LinePlace) -> Self {
        Self { path, place }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next lines, some megabytes at most. `is_last`: nobody will read again soon, so a last line without an end is taken
    /// where the file has settled.
    pub fn read(&mut self, is_last: bool) -> Result<Lines, ForeignError> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            // Between two writers of one file.
            Err(error) if error.kind() == ErrorKind::NotFound && self.place.offset > 0 => {
                return Ok(Lines::default());
            }
            Err(error) => return Err(ForeignError::io("open", &self.path)(error)),
        };
        let metadata = file
            .metadata()
            .map_err(ForeignError::io("read", &self.path))?;
        let size = metadata.len();
        let mut lines = Lines::default();
        if size < self.place.offset || !self.is_same(&file)? {
            self.place = LinePlace::default();
            lines.is_new_file = true;
        }
        let mut want = CHUNK_BYTES;
        let bytes = loop {
            let bytes = read_at(&file, self.place.offset, want.min(size - self.place.offset))
                .map_err(ForeignError::io("read", &self.path))?;
            let is_all = self.place.offset + bytes.len() as u64 >= size;
            if is_all || memchr::memchr(b'\n', &bytes).is_some() {
                break bytes;
            }
            if want > MOST_LINE_BYTES {
                return Err(ForeignError::Content {
                    path: self.path.clone(),
                    reason: format!(
                        "line {} is longer than {} MiB: this is no log of lines",
                        self.place.line + 1,
                        MOST_LINE_BYTES >> 20
                    ),
                });
            }
            want *= 4;
        };
        let mut rest = &bytes[..];
        while let Some(end) = memchr::memchr(b'\n', rest) {
            self.take(&mut lines, &rest[..end], end as u64 + 1);
            rest = &rest[end + 1..];
        }
        lines.has_more =
            !lines.numbered.is_empty() && self.place.offset + (rest.len() as u64) < size;
        if !rest.is_empty() && !lines.has_more {
            let age = metadata
                .modified()
                .ok()
                .and_then(|at| SystemTime::now().duration_since(at).ok());
            if is_last && age.is_some_and(|age| age > SETTLED) {
                self.take(&mut lines, rest, rest.len() as u64);
            } else {
                lines.has_torn = true;
            }
        }
        let head = self.place.offset.min(HEAD_BYTES);
        if self.place.head.is_none_or(|(length, _)| length < head) {
            let bytes = read_at(&file, 0, head).map_err(ForeignError::io("read", &self.path))?;
            self.place.head = Some((head, xxh3_64(&bytes)));
        }
        Ok(lines)
    }

    fn take(&mut self, lines: &mut Lines, line: &[u8], bytes: u64) {
        self.place.line += 1;
        self.place.offset += bytes;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        lines.numbered.push((self.place.line, line.to_vec()));
    }

    fn is_same(&self, file: &File) -> Result<bool, ForeignError> {
        let Some((length, hash)) = self.place.head else {
            return Ok(true);
        };
        let bytes = read_at(file, 0, length).map_err(ForeignError::io("read", &self.path))?;
        Ok(xxh3_64(&bytes) == hash)
    }

    /// What was made of some lines. `is_last`: nothing comes any more, so a line without its end is none.
    pub fn batch(&self, mut items: Vec<Item>, lines: &Lines, is_last: bool) -> Batch {
        if is_last && lines.has_torn {
            items.push(Item::Note(format!(
                "{}: left out: the line has no end yet",
                self.name_of_line(self.place.line + 1)
            )));
        }
        Batch {
            items,
            has_more: lines.has_more,
        }
    }

    /// `metrics.jsonl:12`
    pub fn name_of_line(&self, line: u64) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        format!("{}:{line}", name.to_string_lossy())
    }
}

/// Up to `length` bytes from `offset`; fewer where the file ends.
pub fn read_at(file: &File, offset: u64, length: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

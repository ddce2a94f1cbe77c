//! A file that only grows, by whole records, on a disk that may be full for a while.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// What may wait for a full disk; past it the newest records are given up, which the error then says.
const PENDING_BYTES: usize = 64 << 20;

#[derive(Debug)]
pub(super) struct Appender {
    file: File,
    /// Bytes of the file that are whole records.
    whole: u64,
    pending: Vec<u8>,
}

impl Appender {
    /// Opens for appending, making the file and its directories where they are missing.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(path)?;
        let whole = file.metadata()?.len();
        Ok(Self {
            file,
            whole,
            pending: Vec::new(),
        })
    }

    /// Bytes in the file once all is written.
    pub(super) fn size(&self) -> u64 {
        self.whole + self.pending.len() as u64
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Appends records, or keeps them for the next call when the disk refuses.
    pub(super) fn append(&mut self, records: &[u8]) -> io::Result<()> {
        if self.pending.len() + records.len() > PENDING_BYTES {
            self.flush()?;
        }
        if records.len() > PENDING_BYTES {
            return Err(io::Error::other(
                "a record is larger than what is kept for a full disk",
            ));
        }
        self.pending.extend_from_slice(records);
        self.flush()
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let written = self.file.write_all(&self.pending);
        if let Err(error) = written {
            // Half a record would be taken for a corrupt log. The file is ours alone, so its end is where we left it.
            self.file.set_len(self.whole)?;
            return Err(error);
        }
        self.whole += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }
}

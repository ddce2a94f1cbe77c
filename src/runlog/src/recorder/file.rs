//! The file behind the recorder, as a seam: tests put a failing one here.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::tail;

/// An append-only file of lines.
pub trait LogFile: Write + Send {
    /// Bytes in the file.
    fn size(&mut self) -> io::Result<u64>;
    /// Cuts the file to `size` bytes; the next write goes there.
    fn cut(&mut self, size: u64) -> io::Result<()>;
    /// Bytes up to and with the last newline: less than `size` when an earlier writer left its last line torn.
    fn whole_size(&mut self) -> io::Result<u64>;
    /// Has the disk hold what was written.
    fn sync(&mut self) -> io::Result<()>;
}

/// Opens the file, again after each failure.
pub type Opener = Box<dyn FnMut() -> io::Result<Box<dyn LogFile>> + Send>;

impl LogFile for File {
    fn size(&mut self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn cut(&mut self, size: u64) -> io::Result<()> {
        self.set_len(size)
    }

    fn whole_size(&mut self) -> io::Result<u64> {
        tail::whole_size(self)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

pub(super) fn opener(path: PathBuf) -> Opener {
    Box::new(move || {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)?;
        Ok(Box::new(file) as Box<dyn LogFile>)
    })
}

//! One writer a run: an flock on `lock`, freed by the kernel however the writer ends.

use std::fs::{self, File};
use std::io::{ErrorKind, Seek, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::{RunDirError, host_name};

/// Held by the run's one writer; dropping it, or dying, frees it.
#[derive(Debug)]
pub struct WriterLock {
    _file: File,
}

/// Waits until nobody writes the run of a directory: its program has let go of everything, and it may be resumed.
pub(super) fn wait_until_free(directory: &Path) -> Result<(), RunDirError> {
    let path = directory.join("lock");
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(RunDirError::io("open", &path)(error)),
    };
    loop {
        match flock(&file, FlockOperation::LockShared) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(RunDirError::io("lock", &path)(errno.into())),
        }
    }
}

impl WriterLock {
    pub(super) fn acquire(directory: &Path) -> Result<Self, RunDirError> {
        let path = directory.join("lock");
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(RunDirError::io("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let holder = fs::read_to_string(&path).unwrap_or_default();
                let (pid, host) = holder.trim().split_once(' ').unwrap_or_default();
                return Err(RunDirError::Busy {
                    path: directory.to_owned(),
                    pid: pid.parse().unwrap_or(0),
                    host: if host.is_empty() {
                        "an unknown host".to_owned()
                    } else {
                        host.to_owned()
                    },
                });
            }
            Err(errno) => return Err(RunDirError::io("lock", &path)(errno.into())),
        }
        // On a full disk the lock still holds; only the other side's message is poorer.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{} {}", std::process::id(), host_name()));
        Ok(Self { _file: file })
    }
}

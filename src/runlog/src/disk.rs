//! Room on the disk that a run lies on.

use std::path::Path;

/// With less than this the next checkpoint fails, and soon the log.
pub const LEAST_FREE_BYTES: u64 = 16 << 20;

/// Bytes left on the disk of a path; None: it cannot be asked.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// The bytes left, where that is so little that nothing can be written soon.
pub fn full(path: &Path) -> Option<u64> {
    free_bytes(path).filter(|free| *free < LEAST_FREE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_asked_by_any_path_on_it_and_one_that_is_not_there_is_not_full() {
        let directory = tempfile::tempdir().unwrap();
        assert!(free_bytes(directory.path()).is_some());
        let nowhere = directory.path().join("nowhere");
        assert_eq!((free_bytes(&nowhere), full(&nowhere)), (None, None));
    }
}

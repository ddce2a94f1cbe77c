//! What tells files apart: XXH3 of 128 bits, over whole files or their ends.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::wire::Blob;

/// Of a growing file, so much of the end is compared when a copy goes on.
pub const TAIL_BYTES: u64 = 16 << 10;

pub fn of_bytes(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3_128(bytes))
}

pub fn blob_of_bytes(bytes: &[u8]) -> Blob {
    Blob {
        hash: of_bytes(bytes),
        size: bytes.len() as u64,
    }
}

pub fn blob_of(path: &Path) -> io::Result<Blob> {
    let mut file = File::open(path)?;
    let mut hasher = Xxh3::new();
    let mut chunk = vec![0; 1 << 20];
    let mut size = 0;
    loop {
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => {
                hasher.update(&chunk[..count]);
                size += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Blob {
        hash: format!("{:032x}", hasher.digest128()),
        size,
    })
}

/// The hash of the `bytes` that end at `end`.
pub fn of_range(file: &File, end: u64, bytes: u64) -> io::Result<String> {
    let mut tail = vec![0; bytes as usize];
    file.read_exact_at(&mut tail, end - bytes)?;
    Ok(of_bytes(&tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_its_bytes_have_one_hash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let bytes: Vec<u8> = (0..3_000_000_u32)
            .map(|index| (index % 251) as u8)
            .collect();
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(blob_of(&path).unwrap(), blob_of_bytes(&bytes));
        let file = File::open(&path).unwrap();
        assert_eq!(
            of_range(&file, 1000, 10).unwrap(),
            of_bytes(&bytes[990..1000])
        );
    }
}

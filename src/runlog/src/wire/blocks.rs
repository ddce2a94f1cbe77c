//! The blocks of a `.wandb` file: a `LevelDB` log of a 7-byte head, then 32 KiB blocks of chunks `u32 crc, u16 length, u8 type,
//! data`. Unlike `LevelDB`, the crc is plain CRC-32 (IEEE) over type and data.

use super::Taken;

/// Bytes of a block: the most that damage costs.
pub const BLOCK: u64 = 32 * 1024;
const CHUNK_HEAD: usize = 7;
/// `:W&B`, the magic number 0xBEE1, version 0. It counts as part of the first block.
pub const HEAD: [u8; 7] = [b':', b'W', b'&', b'B', 0xe1, 0xbe, 0];

const FULL: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// Cuts a record into chunks, for a file that is `offset` bytes long.
pub fn chunks(record: &[u8], offset: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(record.len() + CHUNK_HEAD);
    let mut rest = record;
    let mut is_first = true;
    loop {
        let left = left_in_block(offset + out.len() as u64) as usize;
        if left < CHUNK_HEAD {
            out.resize(out.len() + left, 0);
            continue;
        }
        let (data, after) = rest.split_at(rest.len().min(left - CHUNK_HEAD));
        let kind = match (is_first, after.is_empty()) {
            (true, true) => FULL,
            (true, false) => FIRST,
            (false, false) => MIDDLE,
            (false, true) => LAST,
        };
        out.extend(crc(kind, data).to_le_bytes());
        out.extend((data.len() as u16).to_le_bytes());
        out.push(kind);
        out.extend(data);
        rest = after;
        is_first = false;
        if rest.is_empty() {
            return out;
        }
    }
}

/// The record that starts `offset` bytes into the file, where `bytes` begin. A damaged chunk costs what is left of its block,
/// and the record that it was part of.
pub fn take(bytes: &[u8], offset: u64) -> Taken<Vec<u8>> {
    let mut at = 0_usize;
    let mut record: Option<Vec<u8>> = None;
    loop {
        let left = left_in_block(offset + at as u64) as usize;
        if left < CHUNK_HEAD {
            at += left;
            continue;
        }
        let torn = |needs: usize| Taken::Torn {
            needs: needs as u64,
        };
        let Some(head) = bytes.get(at..at + CHUNK_HEAD) else {
            return torn(at + CHUNK_HEAD);
        };
        let stored = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let length = usize::from(u16::from_le_bytes([head[4], head[5]]));
        let kind = head[6];
        let end = at + CHUNK_HEAD + length;
        let bad = |reason: &str| Taken::Bad {
            reason: reason.to_owned(),
            bytes: Some((at + left) as u64),
        };
        if CHUNK_HEAD + length > left {
            return bad("a chunk is longer than its block");
        }
        let Some(data) = bytes.get(at + CHUNK_HEAD..end) else {
            return torn(end);
        };
        if crc(kind, data) != stored {
            return bad("the checksum of a chunk does not fit");
        }
        match (kind, &mut record) {
            (FULL, None) => {
                return Taken::Record {
                    data: data.to_vec(),
                    bytes: end as u64,
                };
            }
            (FIRST, None) => record = Some(data.to_vec()),
            (MIDDLE, Some(record)) => record.extend(data),
            (LAST, Some(whole)) => {
                whole.extend(data);
                return Taken::Record {
                    data: record.unwrap_or_default(),
                    bytes: end as u64,
                };
            }
            (MIDDLE | LAST, None) => {
                return Taken::Bad {
                    reason: "a part of a record whose start is lost".to_owned(),
                    bytes: Some(end as u64),
                };
            }
            (FULL | FIRST, Some(_)) => {
                return Taken::Bad {
                    reason: "a record whose end is lost".to_owned(),
                    bytes: Some(at as u64),
                };
            }
            _ => return bad("a chunk of no known kind"),
        }
        at = end;
    }
}

fn left_in_block(offset: u64) -> u64 {
    BLOCK - offset % BLOCK
}

fn crc(kind: u8, data: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&[kind]);
    crc.update(data);
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every record of a file, and how often something was wrong.
    fn all(file: &[u8]) -> (Vec<Vec<u8>>, usize) {
        let (mut records, mut bad, mut at) = (Vec::new(), 0, HEAD.len() as u64);
        loop {
            let rest = file.get(at as usize..).unwrap_or_default();
            match take(rest, at) {
                Taken::Record { data, bytes } => {
                    records.push(data);
                    at += bytes;
                }
                Taken::Torn { .. } => return (records, bad),
                Taken::Bad { bytes, .. } => {
                    bad += 1;
                    at += bytes.expect("a block can always be left");
                }
            }
        }
    }

    fn file_of(sizes: &[usize]) -> (Vec<u8>, Vec<Vec<u8>>) {
        let mut file = HEAD.to_vec();
        let records: Vec<Vec<u8>> = (sizes.iter().enumerate())
            .map(|(index, size)| vec![index as u8; *size])
            .collect();
        for record in &records {
            file.extend(chunks(record, file.len() as u64));
        }
        (file, records)
    }

    #[test]
    fn a_file_cut_at_any_byte_gives_the_records_that_are_whole() {
        let (file, records) = file_of(&[0, 10, 70_000, 32_700, 5, 32_747, 1]);
        assert_eq!(all(&file), (records.clone(), 0));
        for cut in (HEAD.len()..file.len()).step_by(7) {
            let (found, bad) = all(&file[..cut]);
            assert_eq!(bad, 0, "cut at {cut}");
            assert_eq!(found, records[..found.len()], "cut at {cut}");
        }
    }

    #[test]
    fn a_damaged_chunk_costs_its_block_and_no_more() {
        let (mut file, records) = file_of(&[100, 20_000, 20_000, 20_000, 20_000, 100]);
        file[200] ^= 1;
        let (found, bad) = all(&file);
        assert!(bad >= 1);
        // The second record is damaged; the third began in its block.
        assert_eq!(found[0], records[0]);
        assert_eq!(found[1..], records[3..]);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..4000)) {
            let mut file = HEAD.to_vec();
            file.extend(bytes);
            all(&file);
        }
    }
}

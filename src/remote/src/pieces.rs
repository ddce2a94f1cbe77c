//! Files on the line, in pieces: each compressed where that makes it smaller. ssh's own compression takes a processor for every 30 MB a
//! second; zstd at its quickest ten times as much, and leaves ssh less to do.

use std::borrow::Cow;
use std::io::{self, Read};

use zstd::bulk::Compressor;

use crate::wire::{self, Say};

/// Of a file in one frame.
pub const PIECE_BYTES: usize = 256 << 10;
const LEVEL: i32 = 1;

/// Sends a file in pieces.
pub struct Sender {
    /// None: the other side takes plain bytes only.
    compressor: Option<Compressor<'static>>,
    piece: Vec<u8>,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let packs = self.compressor.is_some();
        formatter
            .debug_struct("Sender")
            .field("packs", &packs)
            .finish_non_exhaustive()
    }
}

impl Sender {
    /// `packs`: the other side knows how to unpack.
    pub fn new(packs: bool) -> Self {
        Self {
            compressor: packs.then(|| Compressor::new(LEVEL).ok()).flatten(),
            piece: vec![0; PIECE_BYTES],
        }
    }

    /// The next piece of a file of which `left` bytes are to be sent. Gives the frame's head and body.
    ///
    /// # Errors
    /// The file is shorter than it was a moment ago: it is being written, and cannot be sent.
    pub fn next(&mut self, file: &mut impl Read, left: u64) -> io::Result<(Say, Cow<'_, [u8]>)> {
        let want = left.min(PIECE_BYTES as u64) as usize;
        let piece = &mut self.piece[..want];
        file.read_exact(piece)?;
        let left = left - want as u64;
        let packed = (self.compressor.as_mut())
            .and_then(|compressor| compressor.compress(piece).ok())
            .filter(|packed| packed.len() < want);
        if let Some(packed) = packed {
            let packed_from = Some(want as u64);
            return Ok((Say::Chunk { left, packed_from }, packed.into()));
        }
        let plain: &[u8] = piece;
        let packed_from = None;
        Ok((Say::Chunk { left, packed_from }, plain.into()))
    }
}

/// The bytes of a piece. `packed_from`: as its head says.
pub fn unpacked(body: Vec<u8>, packed_from: Option<u64>) -> io::Result<Vec<u8>> {
    let Some(size) = packed_from else {
        return Ok(body);
    };
    let garbled = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    if size > wire::MOST_BODY_BYTES as u64 {
        return Err(garbled(format!("a piece of {size} bytes")));
    }
    let plain = zstd::bulk::decompress(&body, size as usize)?;
    if plain.len() as u64 != size {
        return Err(garbled(format!(
            "a piece of {} bytes that is to have {size}",
            plain.len()
        )));
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sent and taken: the bytes, and how many were on the line.
    fn over(packs: bool, bytes: &[u8]) -> (Vec<u8>, usize) {
        let (mut sender, mut file) = (Sender::new(packs), bytes);
        let (mut came, mut on_line) = (Vec::new(), 0);
        let mut wanted = bytes.len() as u64;
        while wanted > 0 {
            let (head, body) = sender.next(&mut file, wanted).unwrap();
            let Say::Chunk { left, packed_from } = head else {
                panic!("{head:?}")
            };
            assert!(packs || packed_from.is_none());
            on_line += body.len();
            came.extend(unpacked(body.into_owned(), packed_from).unwrap());
            wanted = left;
        }
        (came, on_line)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn what_arrives_is_what_was_sent(
            bytes in prop::collection::vec(any::<u8>(), 0..2000),
            times in 1_usize..700,
            packs in any::<bool>(),
        ) {
            let bytes = bytes.repeat(times);
            let (came, on_line) = over(packs, &bytes);
            prop_assert!(came == bytes);
            prop_assert!(on_line <= bytes.len());
        }
    }

    #[test]
    fn what_can_be_made_smaller_is_and_what_cannot_is_not_made_larger() {
        let text = "step 12 reward 0.5 kl 0.001\n".repeat(50_000);
        let (_, on_line) = over(true, text.as_bytes());
        assert!(on_line * 20 < text.len(), "{on_line} of {}", text.len());
        let noise: Vec<u8> = (0..1_000_000_u64)
            .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ (at >> 3) as u8)
            .collect();
        assert!(over(true, &noise).1 <= noise.len());
    }

    #[test]
    fn a_piece_that_lies_about_its_size_is_refused_and_keeps_nothing() {
        let packed = zstd::bulk::compress(&[0; 1000], LEVEL).unwrap();
        assert!(unpacked(packed.clone(), Some(1 << 40)).is_err());
        assert!(unpacked(packed.clone(), Some(10)).is_err());
        assert!(unpacked(packed, Some(2000)).is_err());
        assert!(unpacked(b"no zstd".to_vec(), Some(7)).is_err());
    }
}

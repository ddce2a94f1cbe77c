//! Blocks of quantised numbers, and the numbers that they stand for.
//!
//! ```text
//!  Q8_0   32 numbers: scale f16, 32 x i8                      x = d q
//!  Q4_0   32: scale f16, 32 x 4 bits                           x = d (q - 8)
//!  Q4_1   32: scale f16, least f16, 32 x 4 bits                x = d q + m
//!  Q4_K   256: scale and least f16, 8 x (6 + 6) bits, 4 bits   x = d s q - m t
//!  Q6_K   256: 4 + 2 bits, 16 scales i8, scale f16             x = d s (q - 32)
//! ```
//! Layouts are those of ggml's `ggml-common.h` and `ggml-quants.c`.

use half::{bf16, f16};

/// How a tensor's numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GgmlType {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q8_0,
    Q4K,
    Q6K,
}

/// Scale, least, six-bit pairs and four-bit numbers of [`GgmlType::Q4K`].
const Q4K_BYTES: usize = 2 + 2 + 12 + 128;
const Q6K_BYTES: usize = 128 + 64 + 16 + 2;
const SUPER: usize = 256;
const SMALL: usize = 32;

impl GgmlType {
    pub const ALL: [Self; 8] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q8_0,
        Self::Q4K,
        Self::Q6K,
    ];

    /// By its number in a file; None: this program does not read it.
    pub fn of(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.id() == id)
    }

    pub fn id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q8_0 => 8,
            Self::Q4K => 12,
            Self::Q6K => 14,
            Self::Bf16 => 30,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
            Self::Q6K => "Q6_K",
        }
    }

    /// Numbers in a block, and its bytes.
    pub fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Q4_0 => (SMALL, 2 + 16),
            Self::Q4_1 => (SMALL, 4 + 16),
            Self::Q8_0 => (SMALL, 2 + 32),
            Self::Q4K => (SUPER, Q4K_BYTES),
            Self::Q6K => (SUPER, Q6K_BYTES),
        }
    }

    /// Bytes of so many numbers; None: they are no whole number of blocks, or too many to count.
    pub fn bytes(self, numbers: usize) -> Option<usize> {
        let (in_block, bytes) = self.block();
        if !numbers.is_multiple_of(in_block) {
            return None;
        }
        (numbers / in_block).checked_mul(bytes)
    }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The numbers of whole blocks, appended to `out`. What is left at the end of `bytes` and is no block is not looked at.
pub fn dequantize(kind: GgmlType, bytes: &[u8], out: &mut Vec<f32>) {
    let (_, size) = kind.block();
    let blocks = bytes.chunks_exact(size);
    match kind {
        GgmlType::F32 => out.extend(blocks.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))),
        GgmlType::F16 => out.extend(blocks.map(|b| half_at(b, 0))),
        GgmlType::Bf16 => out.extend(blocks.map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32())),
        GgmlType::Q8_0 => {
            for block in blocks {
                let d = half_at(block, 0);
                out.extend(block[2..].iter().map(|q| d * f32::from(q.cast_signed())));
            }
        }
        GgmlType::Q4_0 => {
            for block in blocks {
                let d = half_at(block, 0);
                // The low halves of all bytes come first, then the high ones.
                let low = block[2..].iter().map(|q| q & 0x0f);
                let high = block[2..].iter().map(|q| q >> 4);
                out.extend(low.chain(high).map(|q| d * (f32::from(q) - 8.0)));
            }
        }
        GgmlType::Q4_1 => {
            for block in blocks {
                let (d, m) = (half_at(block, 0), half_at(block, 2));
                let low = block[4..].iter().map(|q| q & 0x0f);
                let high = block[4..].iter().map(|q| q >> 4);
                out.extend(low.chain(high).map(|q| d * f32::from(q) + m));
            }
        }
        GgmlType::Q4K => blocks.for_each(|block| q4_k(block, out)),
        GgmlType::Q6K => blocks.for_each(|block| q6_k(block, out)),
    }
}

/// The `i`-th of eight pairs of six bits (scale, least), packed into twelve bytes.
fn six_bits(packed: &[u8], i: usize) -> (f32, f32) {
    let (scale, least) = if i < 4 {
        (packed[i] & 63, packed[i + 4] & 63)
    } else {
        (
            (packed[i + 4] & 0x0f) | ((packed[i - 4] >> 6) << 4),
            (packed[i + 4] >> 4) | ((packed[i] >> 6) << 4),
        )
    };
    (f32::from(scale), f32::from(least))
}

fn q4_k(block: &[u8], out: &mut Vec<f32>) {
    let (d, least) = (half_at(block, 0), half_at(block, 2));
    let (packed, quants) = (&block[4..16], &block[16..]);
    // 64 numbers in 32 bytes: those of the low halves have one pair, those of the high halves the next.
    for (part, bytes) in quants.chunks_exact(32).enumerate() {
        for (half, shift) in [0, 4].into_iter().enumerate() {
            let (scale, offset) = six_bits(packed, 2 * part + half);
            let (d, m) = (d * scale, least * offset);
            out.extend(
                bytes
                    .iter()
                    .map(|byte| d * f32::from((byte >> shift) & 0x0f) - m),
            );
        }
    }
}

fn q6_k(block: &[u8], out: &mut Vec<f32>) {
    let (low, rest) = block.split_at(128);
    let (high, rest) = rest.split_at(64);
    let (scales, d) = (&rest[..16], half_at(rest, 16));
    for part in 0..2 {
        let (low, high, scales) = (&low[64 * part..], &high[32 * part..], &scales[8 * part..]);
        // Four runs of 32 numbers: two in the low halves of 64 bytes, two in their high halves; two bits each from `high`.
        for run in 0..4 {
            for l in 0..32 {
                let byte = low[32 * (run % 2) + l];
                let four = if run < 2 { byte & 0x0f } else { byte >> 4 };
                let two = (high[l] >> (2 * run)) & 3;
                let q = f32::from(four | (two << 4)) - 32.0;
                let scale = f32::from(scales[2 * run + l / 16].cast_signed());
                out.push(d * scale * q);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_type_is_found_by_its_number_and_blocks_have_their_sizes() {
        for kind in GgmlType::ALL {
            assert_eq!(GgmlType::of(kind.id()), Some(kind));
            let (numbers, bytes) = kind.block();
            assert_eq!(kind.bytes(3 * numbers), Some(3 * bytes));
            if numbers > 1 {
                assert_eq!(kind.bytes(numbers + 1), None);
            }
        }
        assert_eq!(GgmlType::of(10), None, "Q2_K is not read");
        assert_eq!(GgmlType::Q4K.block(), (256, 144));
        assert_eq!(GgmlType::Q6K.block(), (256, 210));
        assert_eq!(GgmlType::F32.bytes(usize::MAX), None);
    }

    #[test]
    fn blocks_by_hand() {
        let mut out = Vec::new();
        let two = f16::from_f32(2.0).to_le_bytes();
        let mut block = two.to_vec();
        block.extend([0x80, 0x01].iter().cycle().take(16));
        dequantize(GgmlType::Q4_0, &block, &mut out);
        assert_eq!((out[0], out[1]), (-16.0, -14.0), "low halves: 0 and 1");
        assert_eq!((out[16], out[17]), (0.0, -16.0), "high halves: 8 and 0");
        out.clear();
        let mut block = two.to_vec();
        block.extend([0xff; 32]);
        dequantize(GgmlType::Q8_0, &block, &mut out);
        assert_eq!(out, [-2.0; 32]);
    }

    proptest! {
        #[test]
        fn any_bytes_give_as_many_numbers_as_they_have_blocks(
            kind in prop::sample::select(GgmlType::ALL.to_vec()),
            bytes in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let (numbers, size) = kind.block();
            let mut out = Vec::new();
            dequantize(kind, &bytes, &mut out);
            prop_assert_eq!(out.len(), bytes.len() / size * numbers);
        }
    }
}

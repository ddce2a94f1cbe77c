//! Records of `TensorBoard`'s event files: `u64 length, u32 crc(length), data, u32 crc(data)`, little-endian, masked crc32c.

use super::Taken;

const HEAD: usize = 12;
const FOOT: usize = 4;
/// Protobuf's own limit on a message. A length beyond it is damage, whatever its checksum says.
const MOST_BYTES: u64 = 1 << 31;

/// A record that holds `data`.
pub fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(data.len() + HEAD + FOOT);
    record.extend(length);
    record.extend(masked_crc(&length).to_le_bytes());
    record.extend(data);
    record.extend(masked_crc(data).to_le_bytes());
    record
}

/// The record at the start of `bytes`. After a length that is wrong nothing can be found; after data that is, the next record.
pub fn take(bytes: &[u8]) -> Taken<&[u8]> {
    let Some(head) = bytes.first_chunk::<HEAD>() else {
        return Taken::Torn { needs: HEAD as u64 };
    };
    let (length_bytes, crc) = head.split_at(8);
    let length = u64::from_le_bytes(length_bytes.try_into().expect("split at 8"));
    if masked_crc(length_bytes).to_le_bytes() != crc || length > MOST_BYTES {
        return Taken::Bad {
            reason: "the checksum of a record's length does not fit".to_owned(),
            bytes: None,
        };
    }
    let whole = HEAD as u64 + length + FOOT as u64;
    if (bytes.len() as u64) < whole {
        return Taken::Torn { needs: whole };
    }
    let (data, crc) = bytes[HEAD..whole as usize].split_at(length as usize);
    if masked_crc(data).to_le_bytes() != crc {
        return Taken::Bad {
            reason: "the checksum of a record's data does not fit".to_owned(),
            bytes: Some(whole),
        };
    }
    Taken::Record { data, bytes: whole }
}

fn masked_crc(data: &[u8]) -> u32 {
    crc32c::crc32c(data)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
}

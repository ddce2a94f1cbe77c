//! What a terminal that repeats characters on request (REP) does, for an emulator that does not know it: the workbench's
//! tests and its benchmark read its screens with one.

/// Writes each `CSI n b` out as the character before it `n` times over, however the bytes come in pieces.
#[derive(Debug, Default)]
pub struct Repeats {
    /// The bytes of the last character, as far as it has come.
    last: Vec<u8>,
    /// The beginning of a sequence that may be one.
    begun: Vec<u8>,
}

impl Repeats {
    pub fn written_out(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        for byte in bytes {
            match (self.begun.as_slice(), byte) {
                (_, 0x1b) => {
                    out.append(&mut self.begun);
                    self.begun.push(0x1b);
                }
                ([0x1b], b'[') | ([0x1b, b'[', ..], b'0'..=b'9') => self.begun.push(*byte),
                ([0x1b, b'[', digits @ ..], b'b') => {
                    let count = std::str::from_utf8(digits)
                        .ok()
                        .and_then(|digits| digits.parse().ok());
                    (0..count.unwrap_or(1)).for_each(|_| out.extend_from_slice(&self.last));
                    self.begun.clear();
                }
                _ => {
                    out.append(&mut self.begun);
                    out.push(*byte);
                    // All but the first byte of a character begin with the bits 10.
                    if byte & 0xc0 != 0x80 {
                        self.last.clear();
                    }
                    self.last.push(*byte);
                }
            }
        }
        out
    }
}

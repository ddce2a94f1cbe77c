//! The few lines of protobuf that tfevents and `.wandb` need: fields appended to a buffer, and taken from one.

/// A message under construction. Fields are written in the order of the calls.
#[derive(Debug, Clone, Default)]
pub struct Message(Vec<u8>);

impl Message {
    pub fn bytes_of(&self) -> &[u8] {
        &self.0
    }

    fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u32, wire_type: u32) {
        self.raw_varint(u64::from(field << 3 | wire_type));
    }

    /// Any integer, bool or enum field. Negative numbers go as their 64-bit two's complement.
    #[must_use]
    pub fn integer(mut self, field: u32, value: i64) -> Self {
        self.tag(field, 0);
        self.raw_varint(value as u64);
        self
    }

    #[must_use]
    pub fn double(mut self, field: u32, value: f64) -> Self {
        self.tag(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    #[must_use]
    pub fn float(mut self, field: u32, value: f32) -> Self {
        self.tag(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    #[must_use]
    pub fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.tag(field, 2);
        self.raw_varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    #[must_use]
    pub fn text(self, field: u32, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    #[must_use]
    pub fn message(self, field: u32, value: &Self) -> Self {
        self.bytes(field, &value.0)
    }
}

/// What a field holds; which of its meanings (signed, bool, float) is the reader's to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    /// Text, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Of an integer, bool or enum field.
    pub fn integer(self) -> Option<i64> {
        match self {
            Self::Varint(value) => Some(value as i64),
            _ => None,
        }
    }

    pub fn double(self) -> Option<f64> {
        match self {
            Self::Fixed64(bits) => Some(f64::from_bits(bits)),
            _ => None,
        }
    }

    pub fn float(self) -> Option<f32> {
        match self {
            Self::Fixed32(bits) => Some(f32::from_bits(bits)),
            _ => None,
        }
    }

    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// None where the bytes are no UTF-8, too.
    pub fn text(self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

/// The bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record is not the protobuf message that it should be")]
pub struct NotAMessage;

/// The fields of a message, in their order. Ends after the first that is wrong.
#[derive(Debug, Clone)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn next_field(&mut self) -> Option<(u32, Value<'a>)> {
        let tag = take_varint(&mut self.0)?;
        let field = u32::try_from(tag >> 3).ok().filter(|field| *field > 0)?;
        let value = match tag & 7 {
            0 => Value::Varint(take_varint(&mut self.0)?),
            1 => Value::Fixed64(u64::from_le_bytes(*self.take(8)?.first_chunk()?)),
            2 => {
                let length = usize::try_from(take_varint(&mut self.0)?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(*self.take(4)?.first_chunk()?)),
            _ => return None,
        };
        Some((field, value))
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), NotAMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.next_field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or(NotAMessage))
    }
}

/// A varint at the start of `bytes`, which are shortened by it. For packed numbers, too.
pub fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_back() {
        let message = Message::default()
            .integer(1, -3)
            .double(2, f64::INFINITY)
            .float(3, 0.5)
            .text(400, "grün");
        let fields: Vec<_> = Fields::new(message.bytes_of())
            .map(Result::unwrap)
            .collect();
        assert_eq!(fields[0].1.integer(), Some(-3));
        assert_eq!(fields[1].1.double(), Some(f64::INFINITY));
        assert_eq!(fields[2].1.float(), Some(0.5));
        assert_eq!((fields[3].0, fields[3].1.text()), (400, Some("grün")));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_fields_or_an_error(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let fields: Vec<_> = Fields::new(&bytes).collect();
            proptest::prop_assert!(fields.iter().rev().skip(1).all(Result::is_ok));
        }
    }
}

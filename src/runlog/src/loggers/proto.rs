//! The few lines of protobuf that tfevents and `.wandb` need: fields appended to a buffer.

/// A message under construction. Fields are written in the order of the calls.
#[derive(Debug, Clone, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn bytes_of(&self) -> &[u8] {
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
    pub(super) fn integer(mut self, field: u32, value: i64) -> Self {
        self.tag(field, 0);
        self.raw_varint(value as u64);
        self
    }

    pub(super) fn double(mut self, field: u32, value: f64) -> Self {
        self.tag(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn float(mut self, field: u32, value: f32) -> Self {
        self.tag(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.tag(field, 2);
        self.raw_varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub(super) fn text(self, field: u32, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    pub(super) fn message(self, field: u32, value: &Self) -> Self {
        self.bytes(field, &value.0)
    }
}

//! A decoder that shares nothing with the loggers: CRCs bit by bit, protobuf as a tree of fields.

use std::collections::BTreeMap;

fn crc(polynomial: u32, parts: &[&[u8]]) -> u32 {
    let mut crc = u32::MAX;
    for byte in parts.iter().flat_map(|part| part.iter()) {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ polynomial
            } else {
                crc >> 1
            };
        }
    }
    !crc
}

const IEEE: u32 = 0xedb8_8320;
const CASTAGNOLI: u32 = 0x82f6_3b78;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

impl Field {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(_) => panic!("not bytes: {self:?}"),
        }
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(self.bytes()).unwrap()
    }

    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            Self::Bytes(_) => panic!("not a number: {self:?}"),
        }
    }

    pub(super) fn message(&self) -> Fields {
        fields(self.bytes())
    }
}

/// Field number to every value it has, in order.
pub(super) type Fields = BTreeMap<u64, Vec<Field>>;

fn fields(mut bytes: &[u8]) -> Fields {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return value;
            }
        }
        panic!("varint too long");
    }
    let mut found = Fields::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let wire_type = tag % 8;
        let length = match wire_type {
            0 => 0,
            1 => 8,
            2 => varint(&mut bytes) as usize,
            5 => 4,
            other => panic!("wire type {other}"),
        };
        let field = if wire_type == 0 {
            Field::Number(varint(&mut bytes))
        } else {
            let (data, rest) = bytes.split_at(length);
            bytes = rest;
            match wire_type {
                1 => Field::Number(u64::from_le_bytes(data.try_into().unwrap())),
                5 => Field::Number(u64::from(u32::from_le_bytes(data.try_into().unwrap()))),
                _ => Field::Bytes(data.to_vec()),
            }
        };
        found.entry(tag >> 3).or_default().push(field);
    }
    found
}

/// Every protobuf `Record` of a `.wandb` file.
pub(super) fn wandb_records(file: &[u8]) -> Vec<Fields> {
    assert_eq!(&file[..7], b":W&B\xe1\xbe\0");
    let mut at = 7;
    let mut records = Vec::new();
    let mut record: Option<Vec<u8>> = None;
    while at < file.len() {
        let left = 32768 - at % 32768;
        if left < 7 {
            assert!(
                file[at..at + left].iter().all(|byte| *byte == 0),
                "padding at {at}"
            );
            at += left;
            continue;
        }
        let stored = u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        let length = usize::from(u16::from_le_bytes(file[at + 4..at + 6].try_into().unwrap()));
        let kind = file[at + 6];
        let data = &file[at + 7..at + 7 + length];
        assert!(7 + length <= left, "the chunk at {at} crosses its block");
        assert_eq!(
            stored,
            crc(IEEE, &[&[kind], data]),
            "crc of the chunk at {at}"
        );
        match (kind, &mut record) {
            (1 | 2, None) => record = Some(data.to_vec()),
            (3 | 4, Some(record)) => record.extend(data),
            other => panic!("chunk of kind {} at {at} out of place", other.0),
        }
        if kind == 1 || kind == 4 {
            records.push(fields(&record.take().unwrap()));
        }
        at += 7 + length;
    }
    assert_eq!(record, None, "the last record is whole");
    records
}

/// Bodies of the records of one kind (the field number in `Record`).
pub(super) fn bodies(records: &[Fields], kind: u64) -> Vec<Fields> {
    records
        .iter()
        .filter_map(|record| Some(record.get(&kind)?[0].message()))
        .collect()
}

/// `item {key | nested_key, value_json}` as a map.
pub(super) fn items(body: &Fields, field: u64) -> BTreeMap<String, String> {
    body.get(&field)
        .into_iter()
        .flatten()
        .map(|item| {
            let item = item.message();
            let key: Vec<&str> = item
                .get(&1)
                .or(item.get(&2))
                .unwrap()
                .iter()
                .map(Field::text)
                .collect();
            (key.join("."), item[&16][0].text().to_owned())
        })
        .collect()
}

/// (step, wall time, tag to value) of each event of a tfevents file after the first.
pub(super) fn tensorboard_events(mut file: &[u8]) -> Vec<(u64, f64, BTreeMap<String, f32>)> {
    let masked = |data: &[u8]| {
        crc(CASTAGNOLI, &[data])
            .rotate_right(15)
            .wrapping_add(0xa282_ead8)
    };
    let mut events = Vec::new();
    let mut is_first = true;
    while !file.is_empty() {
        let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        assert_eq!(
            u32::from_le_bytes(file[8..12].try_into().unwrap()),
            masked(&file[..8])
        );
        let data = &file[12..12 + length];
        assert_eq!(
            u32::from_le_bytes(file[12 + length..16 + length].try_into().unwrap()),
            masked(data)
        );
        file = &file[16 + length..];
        let event = fields(data);
        if is_first {
            assert_eq!(event[&3][0].text(), "brain.Event:2");
            is_first = false;
            continue;
        }
        let step = event.get(&2).map_or(0, |step| step[0].number());
        let values = event[&5][0].message()[&1]
            .iter()
            .map(|value| {
                let value = value.message();
                (
                    value[&1][0].text().to_owned(),
                    f32::from_bits(value[&2][0].number() as u32),
                )
            })
            .collect();
        events.push((step, f64::from_bits(event[&1][0].number()), values));
    }
    events
}

// ---- The decoder reads what the real libraries wrote. ----

#[test]
fn the_decoder_reads_a_file_of_the_real_wandb() {
    let records = wandb_records(include_bytes!("../../../tests/golden/wandb-0.31.0.wandb"));
    let runs = bodies(&records, 17);
    assert_eq!(runs[0][&1][0].text(), "abcd1234");
    assert_eq!(
        items(&runs[0][&4][0].message(), 1)["b"],
        r#"{"c":2.5,"d":"x"}"#
    );
    let history: Vec<_> = bodies(&records, 2)
        .iter()
        .map(|body| items(body, 1))
        .collect();
    assert_eq!(history.len(), 2);
    assert_eq!(
        (history[0]["_step"].as_str(), history[0]["x"].as_str()),
        ("1", "NaN")
    );
    assert_eq!(
        (
            history[1]["actor/pg_loss"].as_str(),
            history[1]["x"].as_str()
        ),
        ("0.25", "Infinity")
    );
    assert_eq!(bodies(&records, 18).len(), 1);
}

#[test]
fn the_decoder_reads_a_file_of_the_real_tensorboard() {
    let events = tensorboard_events(include_bytes!(
        "../../../tests/golden/tensorboard-2.21.0.tfevents"
    ));
    assert_eq!(events.len(), 2);
    assert_eq!(
        (events[0].0, events[0].1, events[0].2["actor/pg_loss"]),
        (1, 1001.5, 0.5)
    );
    assert!(events[1].2["actor/pg_loss"].is_nan());
}

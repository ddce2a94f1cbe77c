//! One event of a `TensorBoard` file, and what its values mean: scalars in their two encodings, text, hyperparameters.

use runlog::wire::proto::{Fields, NotAMessage, Value, take_varint};
use serde_json::{Map, Number, Value as Json};

/// `Event { wall_time = 1, step = 2, summary = 5, session_log = 7 { status = 1 } }`
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Event {
    pub wall_s: f64,
    pub step: i64,
    /// The run goes on at this step: what was said of it and of later ones does not count.
    pub is_restart: bool,
    pub values: Vec<TagValue>,
}

/// `Summary.Value { tag = 1, simple_value = 2, …, tensor = 8, metadata = 9 { plugin_data = 1, data_class = 4 } }`
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TagValue {
    pub tag: String,
    pub content: Content,
    /// Only the first value of a tag says it.
    pub plugin: Option<String>,
    /// What the plugin keeps for itself.
    pub plugin_content: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub enum Content {
    #[default]
    Nothing,
    Scalar(f64),
    /// Of one number; what it is, the tag's plugin says.
    Tensor(f64),
    Text(Vec<String>),
    /// A histogram, image, sound or larger tensor.
    Other(&'static str),
}

const SESSION_START: i64 = 1;
/// `DT_STRING`
const STRING: i64 = 7;

impl Event {
    pub fn parse(data: &[u8]) -> Result<Self, NotAMessage> {
        let mut event = Self::default();
        for field in Fields::new(data) {
            match field? {
                (1, value) => event.wall_s = value.double().ok_or(NotAMessage)?,
                (2, value) => event.step = value.integer().ok_or(NotAMessage)?,
                (5, value) => {
                    for field in Fields::new(value.bytes().ok_or(NotAMessage)?) {
                        if let (1, value) = field? {
                            let bytes = value.bytes().ok_or(NotAMessage)?;
                            event.values.push(TagValue::parse(bytes)?);
                        }
                    }
                }
                (7, value) => {
                    for field in Fields::new(value.bytes().ok_or(NotAMessage)?) {
                        let (field, value) = field?;
                        event.is_restart |= field == 1 && value.integer() == Some(SESSION_START);
                    }
                }
                _ => {}
            }
        }
        Ok(event)
    }
}

impl TagValue {
    fn parse(data: &[u8]) -> Result<Self, NotAMessage> {
        let mut value = Self::default();
        for field in Fields::new(data) {
            match field? {
                (1, tag) => value.tag = text_of(tag)?,
                (2, number) => {
                    value.content = Content::Scalar(f64::from(number.float().ok_or(NotAMessage)?));
                }
                (4, _) => value.content = Content::Other("an image"),
                (5, _) => value.content = Content::Other("a histogram"),
                (6, _) => value.content = Content::Other("a sound"),
                (8, tensor) => value.content = tensor_of(tensor.bytes().ok_or(NotAMessage)?)?,
                (9, metadata) => {
                    for field in Fields::new(metadata.bytes().ok_or(NotAMessage)?) {
                        let (1, plugin) = field? else { continue };
                        for field in Fields::new(plugin.bytes().ok_or(NotAMessage)?) {
                            match field? {
                                (1, name) => value.plugin = Some(text_of(name)?),
                                (2, content) => {
                                    value.plugin_content =
                                        content.bytes().ok_or(NotAMessage)?.to_vec();
                                }
                                _ => {}
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(value)
    }
}

fn text_of(value: Value) -> Result<String, NotAMessage> {
    let bytes = value.bytes().ok_or(NotAMessage)?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// `TensorProto { dtype = 1, tensor_shape = 2, tensor_content = 4, …_val }` of one number or of text.
fn tensor_of(data: &[u8]) -> Result<Content, NotAMessage> {
    let mut dtype = 0;
    let mut elements = 1_u64;
    let mut content: &[u8] = &[];
    let mut numbers: Vec<f64> = Vec::new();
    let mut texts = Vec::new();
    let mut halves: Vec<u64> = Vec::new();
    for field in Fields::new(data) {
        match field? {
            (1, value) => dtype = value.integer().ok_or(NotAMessage)?,
            (2, value) => elements = elements_of(value.bytes().ok_or(NotAMessage)?)?,
            (4, value) => content = value.bytes().ok_or(NotAMessage)?,
            (5, value) => packed(value, 4, &mut numbers, |bytes| {
                Some(f64::from(f32::from_le_bytes(*bytes.first_chunk()?)))
            })?,
            (6, value) => packed(value, 8, &mut numbers, |bytes| {
                Some(f64::from_le_bytes(*bytes.first_chunk()?))
            })?,
            (7 | 10 | 11, value) => {
                let mut integers = Vec::new();
                varints(value, &mut integers)?;
                numbers.extend(integers.into_iter().map(|integer| integer as i64 as f64));
            }
            (16 | 17, value) => {
                let mut integers = Vec::new();
                varints(value, &mut integers)?;
                numbers.extend(integers.into_iter().map(|integer| integer as f64));
            }
            (8, value) => texts.push(text_of(value)?),
            (13, value) => varints(value, &mut halves)?,
            _ => {}
        }
    }
    if dtype == STRING {
        return Ok(Content::Text(texts));
    }
    if elements != 1 {
        return Ok(Content::Other("a tensor of many numbers"));
    }
    let number = if !content.is_empty() {
        number_of(dtype, content)
    } else if let Some(bits) = halves.first() {
        number_of(dtype, &(*bits as u16).to_le_bytes())
    } else if let Some(number) = numbers.first() {
        Some(*number)
    } else {
        // Protobuf leaves out what is 0.
        is_number(dtype).then_some(0.0)
    };
    Ok(number.map_or(Content::Other("a tensor of no number"), Content::Tensor))
}

/// `TensorShapeProto { dim = 2 { size = 1 } }`
fn elements_of(shape: &[u8]) -> Result<u64, NotAMessage> {
    let mut elements = 1_u64;
    for field in Fields::new(shape) {
        let (2, dimension) = field? else { continue };
        let mut size = 0;
        for field in Fields::new(dimension.bytes().ok_or(NotAMessage)?) {
            if let (1, value) = field? {
                size = value.integer().ok_or(NotAMessage)?;
            }
        }
        elements = elements.saturating_mul(u64::try_from(size).unwrap_or(0));
    }
    Ok(elements)
}

fn packed(
    value: Value,
    width: usize,
    numbers: &mut Vec<f64>,
    read: impl Fn(&[u8]) -> Option<f64>,
) -> Result<(), NotAMessage> {
    match value {
        Value::Bytes(bytes) => {
            for chunk in bytes.chunks(width) {
                numbers.push(read(chunk).ok_or(NotAMessage)?);
            }
        }
        Value::Fixed32(bits) => numbers.push(f64::from(f32::from_bits(bits))),
        Value::Fixed64(bits) => numbers.push(f64::from_bits(bits)),
        Value::Varint(_) => return Err(NotAMessage),
    }
    Ok(())
}

fn varints(value: Value, integers: &mut Vec<u64>) -> Result<(), NotAMessage> {
    match value {
        Value::Varint(integer) => integers.push(integer),
        Value::Bytes(mut bytes) => {
            while !bytes.is_empty() {
                integers.push(take_varint(&mut bytes).ok_or(NotAMessage)?);
            }
        }
        _ => return Err(NotAMessage),
    }
    Ok(())
}

/// `DataType` of `types.proto`, little-endian.
fn number_of(dtype: i64, bytes: &[u8]) -> Option<f64> {
    Some(match dtype {
        1 => f64::from(f32::from_le_bytes(*bytes.first_chunk()?)),
        2 => f64::from_le_bytes(*bytes.first_chunk()?),
        3 => f64::from(i32::from_le_bytes(*bytes.first_chunk()?)),
        4 | 10 => f64::from(*bytes.first()?),
        5 => f64::from(i16::from_le_bytes(*bytes.first_chunk()?)),
        6 => f64::from(bytes.first()?.cast_signed()),
        9 => i64::from_le_bytes(*bytes.first_chunk()?) as f64,
        14 => {
            let bits = u16::from_le_bytes(*bytes.first_chunk()?);
            f64::from(f32::from_bits(u32::from(bits) << 16))
        }
        17 => f64::from(u16::from_le_bytes(*bytes.first_chunk()?)),
        19 => half(u16::from_le_bytes(*bytes.first_chunk()?)),
        22 => f64::from(u32::from_le_bytes(*bytes.first_chunk()?)),
        23 => u64::from_le_bytes(*bytes.first_chunk()?) as f64,
        _ => return None,
    })
}

fn is_number(dtype: i64) -> bool {
    number_of(dtype, &[0; 8]).is_some()
}

/// IEEE half precision.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f64::from(bits & 0x3ff) / 1024.0;
    sign * match exponent {
        0 => fraction * 2_f64.powi(-14),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction) * 2_f64.powi(exponent - 15),
    }
}

/// The settings in what the plugin `hparams` keeps at `_hparams_/session_start_info`:
/// `HParamsPluginData { session_start_info = 3 { hparams = 1 map<string, google.protobuf.Value> } }`.
pub fn hparams(content: &[u8]) -> Result<Map<String, Json>, NotAMessage> {
    let mut settings = Map::new();
    for field in Fields::new(content) {
        let (3, session) = field? else { continue };
        for field in Fields::new(session.bytes().ok_or(NotAMessage)?) {
            let (1, entry) = field? else { continue };
            let (mut key, mut setting) = (String::new(), Json::Null);
            for field in Fields::new(entry.bytes().ok_or(NotAMessage)?) {
                match field? {
                    (1, value) => key = text_of(value)?,
                    (2, value) => setting = any_value(value.bytes().ok_or(NotAMessage)?)?,
                    _ => {}
                }
            }
            settings.insert(key, setting);
        }
    }
    Ok(settings)
}

/// `google.protobuf.Value` of a scalar.
fn any_value(data: &[u8]) -> Result<Json, NotAMessage> {
    let mut value = Json::Null;
    for field in Fields::new(data) {
        match field? {
            (2, number) => {
                let number = number.double().ok_or(NotAMessage)?;
                value = Number::from_f64(number)
                    .map_or_else(|| Json::from(number.to_string()), Json::Number);
            }
            (3, text) => value = Json::from(text_of(text)?),
            (4, flag) => value = Json::from(flag.integer().ok_or(NotAMessage)? != 0),
            _ => {}
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog::wire::proto::Message;

    fn tensor(message: &Message) -> Content {
        tensor_of(message.bytes_of()).unwrap()
    }

    #[test]
    fn a_number_is_read_in_every_form_a_tensor_has_for_one() {
        let of = |dtype| Message::default().integer(1, dtype);
        let packed = |field, bytes: &[u8]| tensor(&of(1).bytes(field, bytes));
        assert_eq!(packed(5, &0.5_f32.to_le_bytes()), Content::Tensor(0.5));
        assert_eq!(tensor(&of(2).double(6, 0.1)), Content::Tensor(0.1));
        assert_eq!(tensor(&of(9).integer(10, -7)), Content::Tensor(-7.0));
        assert_eq!(
            tensor(&of(2).bytes(4, &0.1_f64.to_le_bytes())),
            Content::Tensor(0.1)
        );
        assert_eq!(tensor(&of(14).integer(13, 0x3f80)), Content::Tensor(1.0));
        assert_eq!(tensor(&of(19).integer(13, 0xc000)), Content::Tensor(-2.0));
        assert_eq!(tensor(&of(1)), Content::Tensor(0.0));
        let two = Message::default().integer(1, 2);
        let shape = Message::default().message(2, &two);
        assert!(matches!(
            tensor(&of(1).message(2, &shape)),
            Content::Other(_)
        ));
        assert!(matches!(tensor(&of(8)), Content::Other(_)));
    }

    #[test]
    fn halves_are_what_ieee_says() {
        assert_eq!(half(0x3c00), 1.0);
        assert_eq!(half(0x0001), 2_f64.powi(-24));
        assert_eq!(half(0xfc00), f64::NEG_INFINITY);
        assert!(half(0x7e00).is_nan());
    }
}

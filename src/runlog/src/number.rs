//! JSON has no NaN. A non-finite number is written as `"NaN"`, `"inf"` or `"-inf"` and read back as itself: never dropped.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A float that survives JSON whatever its value.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Number(pub f64);

/// Metric name to value, in name order. Names are those of the metric table.
pub type Values = BTreeMap<String, Number>;

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self(value)
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            value if value.is_nan() => serializer.serialize_str("NaN"),
            value if value == f64::INFINITY => serializer.serialize_str("inf"),
            value if value == f64::NEG_INFINITY => serializer.serialize_str("-inf"),
            value => serializer.serialize_f64(value),
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Number;
            fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
                formatter.write_str("a number, \"NaN\", \"inf\" or \"-inf\"")
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Number, E> {
                Ok(Number(value))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Number, E> {
                Ok(Number(value as f64))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Number, E> {
                Ok(Number(value as f64))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Number, E> {
                match value {
                    "NaN" => Ok(Number(f64::NAN)),
                    "inf" => Ok(Number(f64::INFINITY)),
                    "-inf" => Ok(Number(f64::NEG_INFINITY)),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

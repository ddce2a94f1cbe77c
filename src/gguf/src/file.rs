//! The container: a header of key-value pairs and tensor descriptions, then the tensors, aligned.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::GgufError;
use crate::quant::GgmlType;
use crate::value::Value;

/// Where a tensor lies, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    pub name: String,
    pub kind: GgmlType,
    /// Rows first, as `PyTorch` counts; the file has them the other way round.
    pub shape: Vec<usize>,
    /// Bytes from the start of the file.
    offset: u64,
    bytes: usize,
}

/// An opened file with its header read and checked against its length.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    file: File,
    pub metadata: BTreeMap<String, Value>,
    /// In the order of the file.
    pub tensors: Vec<TensorInfo>,
}

/// Tensors are aligned to this, unless `general.alignment` says otherwise.
const ALIGNMENT: u64 = 32;
/// Lists in lists deeper than this are no metadata.
const MOST_DEPTH: usize = 4;
const MOST_DIMENSIONS: u32 = 4;

impl GgufFile {
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let read = |source| GgufError::Read {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(read)?;
        let length = file.metadata().map_err(read)?.len();
        let mut header = Header {
            path,
            source: BufReader::new(&file),
            at: 0,
            length,
        };
        let magic: [u8; 4] = header.bytes("its first four bytes")?;
        if &magic != b"GGUF" {
            return Err(GgufError::NotGguf {
                path: path.to_owned(),
                found: String::from_utf8_lossy(&magic).into_owned(),
            });
        }
        let version = header.u32("its version")?;
        if !(2..=3).contains(&version) {
            return Err(GgufError::Version {
                path: path.to_owned(),
                version,
            });
        }
        let tensor_count = header.u64("the number of tensors")?;
        let pair_count = header.u64("the number of metadata pairs")?;
        let mut metadata = BTreeMap::new();
        for _ in 0..pair_count {
            let key = header.text("a metadata key")?;
            let kind = header.u32("a metadata type")?;
            let value = header.value(kind, 0)?;
            metadata.insert(key, value);
        }
        let mut described = Vec::new();
        for _ in 0..tensor_count {
            described.push(header.tensor()?);
        }
        let alignment = metadata
            .get("general.alignment")
            .and_then(Value::integer)
            .unwrap_or(ALIGNMENT);
        if !alignment.is_power_of_two() {
            return Err(header.damaged(format!("general.alignment is {alignment}")));
        }
        let data_start = header.at.next_multiple_of(alignment);
        let tensors = described
            .into_iter()
            .map(|described| described.placed(path, data_start, length))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            path: path.to_owned(),
            file,
            metadata,
            tensors,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tensor's bytes as they are stored.
    pub fn read(&mut self, tensor: &TensorInfo) -> Result<Vec<u8>, GgufError> {
        let mut bytes = vec![0; tensor.bytes];
        self.file
            .seek(SeekFrom::Start(tensor.offset))
            .and_then(|_| self.file.read_exact(&mut bytes))
            .map_err(|source| GgufError::Read {
                path: self.path.clone(),
                source,
            })?;
        Ok(bytes)
    }
}

/// A tensor as the header describes it.
struct Described {
    name: String,
    kind: u32,
    shape: Vec<u64>,
    offset: u64,
}

impl Described {
    fn placed(self, path: &Path, data_start: u64, length: u64) -> Result<TensorInfo, GgufError> {
        let damaged = |reason: String| GgufError::Damaged {
            path: path.to_owned(),
            reason,
        };
        let Some(kind) = GgmlType::of(self.kind) else {
            return Err(GgufError::TensorType {
                path: path.to_owned(),
                name: self.name,
                found: type_name(self.kind),
            });
        };
        let numbers = self
            .shape
            .iter()
            .try_fold(1_u64, |product, size| product.checked_mul(*size))
            .and_then(|numbers| usize::try_from(numbers).ok());
        // A row holds whole blocks.
        let row = usize::try_from(self.shape[0]).ok();
        let bytes = row
            .and_then(|row| kind.bytes(row))
            .and_then(|_| kind.bytes(numbers?));
        let Some(bytes) = bytes else {
            return Err(damaged(format!(
                "tensor {} of type {} has the shape {:?}",
                self.name,
                kind.name(),
                self.shape
            )));
        };
        let offset = data_start.checked_add(self.offset);
        let end = offset.and_then(|offset| offset.checked_add(bytes as u64));
        let (Some(offset), Some(end)) = (offset, end) else {
            return Err(damaged(format!(
                "tensor {} lies beyond all files",
                self.name
            )));
        };
        if end > length {
            return Err(damaged(format!(
                "tensor {} ends at byte {end} of a file of {length}",
                self.name
            )));
        }
        Ok(TensorInfo {
            name: self.name,
            kind,
            shape: self.shape.iter().rev().map(|size| *size as usize).collect(),
            offset,
            bytes,
        })
    }
}

/// Types that others write, by name, for the error.
fn type_name(id: u32) -> String {
    let known = match id {
        6 => "Q5_0",
        7 => "Q5_1",
        10 => "Q2_K",
        11 => "Q3_K",
        13 => "Q5_K",
        15 => "Q8_K",
        16..=23 | 29 => return format!("IQ (number {id})"),
        34 | 35 => "TQ",
        39 => "MXFP4",
        _ => return format!("number {id}"),
    };
    known.to_owned()
}

/// Reads the header from front to back and never further than the file is long.
struct Header<'a, R> {
    path: &'a Path,
    source: R,
    at: u64,
    length: u64,
}

impl<R: Read> Header<'_, R> {
    fn damaged(&self, reason: String) -> GgufError {
        GgufError::Damaged {
            path: self.path.to_owned(),
            reason,
        }
    }

    /// Before memory is taken for it: are there so many bytes at all?
    fn expect(&self, bytes: u64, what: &str) -> Result<(), GgufError> {
        if bytes > self.length - self.at {
            return Err(self.damaged(format!(
                "{what} at byte {} would take {bytes} bytes, and {} are left",
                self.at,
                self.length - self.at
            )));
        }
        Ok(())
    }

    fn take(&mut self, out: &mut [u8], what: &str) -> Result<(), GgufError> {
        self.expect(out.len() as u64, what)?;
        self.source
            .read_exact(out)
            .map_err(|source| GgufError::Read {
                path: self.path.to_owned(),
                source,
            })?;
        self.at += out.len() as u64;
        Ok(())
    }

    fn bytes<const N: usize>(&mut self, what: &str) -> Result<[u8; N], GgufError> {
        let mut bytes = [0; N];
        self.take(&mut bytes, what)?;
        Ok(bytes)
    }

    fn u32(&mut self, what: &str) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.bytes(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.bytes(what)?))
    }

    fn text(&mut self, what: &str) -> Result<String, GgufError> {
        let length = self.u64(what)?;
        self.expect(length, what)?;
        let mut bytes = vec![0; length as usize];
        self.take(&mut bytes, what)?;
        String::from_utf8(bytes).map_err(|_| self.damaged(format!("{what} is not UTF-8")))
    }

    fn value(&mut self, kind: u32, depth: usize) -> Result<Value, GgufError> {
        let what = "a metadata value";
        Ok(match kind {
            0 => Value::Integer(i128::from(self.bytes::<1>(what)?[0])),
            1 => Value::Integer(i128::from(self.bytes::<1>(what)?[0].cast_signed())),
            2 => Value::Integer(i128::from(u16::from_le_bytes(self.bytes(what)?))),
            3 => Value::Integer(i128::from(i16::from_le_bytes(self.bytes(what)?))),
            4 => Value::Integer(i128::from(self.u32(what)?)),
            5 => Value::Integer(i128::from(self.u32(what)?.cast_signed())),
            6 => Value::Float(f64::from(f32::from_le_bytes(self.bytes(what)?))),
            7 => Value::Bool(self.bytes::<1>(what)?[0] != 0),
            8 => Value::Text(self.text(what)?),
            9 if depth < MOST_DEPTH => {
                let kind = self.u32(what)?;
                let count = self.u64(what)?;
                // Every item takes a byte at least.
                self.expect(count, what)?;
                let items = (0..count).map(|_| self.value(kind, depth + 1));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            10 => Value::Integer(i128::from(self.u64(what)?)),
            11 => Value::Integer(i128::from(self.u64(what)?.cast_signed())),
            12 => Value::Float(f64::from_le_bytes(self.bytes(what)?)),
            other => return Err(self.damaged(format!("{what} has the type {other}"))),
        })
    }

    fn tensor(&mut self) -> Result<Described, GgufError> {
        let what = "a tensor's description";
        let name = self.text(what)?;
        let dimensions = self.u32(what)?;
        if !(1..=MOST_DIMENSIONS).contains(&dimensions) {
            return Err(self.damaged(format!("tensor {name} has {dimensions} dimensions")));
        }
        let shape = (0..dimensions)
            .map(|_| self.u64(what))
            .collect::<Result<_, _>>()?;
        Ok(Described {
            name,
            shape,
            kind: self.u32(what)?,
            offset: self.u64(what)?,
        })
    }
}

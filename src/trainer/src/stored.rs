//! A tensor as the writer of safetensors files wants it.

use std::borrow::Cow;

use safetensors::{Dtype, View};
use tch::{Device, Kind, Tensor};

use crate::torch_ext;

/// Shares its storage with the tensor. What lies contiguous on the CPU is written from there; of anything else one tensor at a
/// time is copied out.
pub(crate) struct StoredTensor {
    tensor: Tensor,
    shape: Vec<usize>,
}

impl StoredTensor {
    /// Of floating point.
    pub fn new(tensor: &Tensor) -> Self {
        Self {
            tensor: tensor.detach(),
            shape: tensor.size().iter().map(|size| *size as usize).collect(),
        }
    }
}

impl View for StoredTensor {
    fn dtype(&self) -> Dtype {
        match self.tensor.kind() {
            Kind::Float => Dtype::F32,
            Kind::Double => Dtype::F64,
            Kind::BFloat16 => Dtype::BF16,
            Kind::Half => Dtype::F16,
            other => unreachable!("weights and optimizer state are floating point, not {other:?}"),
        }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        if let Ok(bytes) = torch_ext::bytes(&self.tensor) {
            return Cow::Borrowed(bytes);
        }
        let host = self.tensor.to_device(Device::Cpu).contiguous();
        let bytes = torch_ext::bytes(&host).expect("contiguous and on the CPU by now");
        Cow::Owned(bytes.to_vec())
    }

    fn data_len(&self) -> usize {
        self.tensor.numel() * self.tensor.kind().elt_size_in_bytes()
    }
}

//! One hash over every tensor's name, shape and bytes. Equal fingerprints mean equal weights, bit for bit.

use std::fmt;

use tch::{Device, Kind, Tensor};
use xxhash_rust::xxh3::Xxh3;

use crate::torch_ext;

/// xxh3-128 over all tensors in name order of the list given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(u128);

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Fingerprint({self})")
    }
}

/// Hashes `tensors` as they are after a cast to `kind` (what the rollouts hold). A tensor on a GPU is copied to the host first.
pub fn fingerprint<'a>(
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
    kind: Kind,
) -> Fingerprint {
    let mut hash = Xxh3::new();
    for (name, tensor) in tensors {
        hash.update(name.as_bytes());
        for size in tensor.size() {
            hash.update(&size.to_le_bytes());
        }
        // No copy where dtype, place and layout already fit.
        let plain = tensor
            .detach()
            .to_kind(kind)
            .to_device(Device::Cpu)
            .contiguous();
        hash.update(torch_ext::bytes(&plain).expect("a contiguous tensor on the CPU"));
    }
    Fingerprint(hash.digest128())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_changed_bit_one_moved_name_or_one_other_shape_changes_the_fingerprint() {
        let tensor = Tensor::arange(12, (Kind::Float, Device::Cpu)).view([3, 4]);
        let of = |name: &str, tensor: &Tensor| fingerprint([(name, tensor)], Kind::Float);
        let before = of("a", &tensor);
        assert_eq!(before, of("a", &tensor.copy()));
        assert_ne!(before, of("b", &tensor));
        assert_ne!(before, of("a", &tensor.view([4, 3])));
        let mut changed = tensor.copy();
        let _ = changed.get(2).get(3).fill_(11.000_001);
        let _ = changed.fill_diagonal_(0.0, false);
        assert_ne!(before, of("a", &changed));
    }

    #[test]
    fn a_view_into_a_larger_tensor_hashes_as_its_own_copy() {
        let whole = Tensor::arange(20, (Kind::Float, Device::Cpu)).view([5, 4]);
        let view = whole.narrow(0, 1, 3);
        assert_eq!(
            fingerprint([("a", &view)], Kind::BFloat16),
            fingerprint([("a", &view.copy())], Kind::BFloat16)
        );
    }
}

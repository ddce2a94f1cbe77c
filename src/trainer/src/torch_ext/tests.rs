use tch::{Kind, Tensor};

use super::*;

#[test]
fn a_cpp_exception_becomes_an_error_with_its_message() {
    let logits = Tensor::zeros([2, 3], (Kind::Float, Device::Cpu));
    let targets = Tensor::from_slice(&[0_i64, 1, 2]);
    let error = token_logprobs(&logits, &targets, 1.0, false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "token log-probs: logits must be [M, V] and targets [M], got [2, 3] and [3]"
    );
}

#[test]
fn a_target_outside_the_vocabulary_is_refused() {
    let logits = Tensor::zeros([1, 3], (Kind::Float, Device::Cpu));
    let error = token_logprobs(&logits, &Tensor::from_slice(&[3_i64]), 1.0, false).unwrap_err();
    assert!(error.message.contains("out of bounds"), "{error}");
}

#[test]
fn bytes_are_the_elements_in_memory_order() {
    let tensor = Tensor::from_slice(&[1.0_f32, -2.5]);
    let expected: Vec<u8> = [1.0_f32, -2.5]
        .iter()
        .flat_map(|x| x.to_ne_bytes())
        .collect();
    assert_eq!(bytes(&tensor).unwrap(), expected);
    let transposed = Tensor::from_slice2(&[[1.0_f32, 2.0], [3.0, 4.0]]).transpose(0, 1);
    assert!(
        bytes(&transposed)
            .unwrap_err()
            .message
            .contains("not contiguous")
    );
    assert_eq!(
        bytes(&Tensor::zeros([0], (Kind::Int64, Device::Cpu))).unwrap(),
        &[0_u8; 0]
    );
}

#[test]
fn the_global_norm_is_that_of_all_elements_together() {
    let (a, b) = (
        Tensor::from_slice(&[3.0_f32]),
        Tensor::from_slice2(&[[0.0_f32, 4.0], [12.0, 0.0]]),
    );
    assert_eq!(global_norm(&[&a, &b]).unwrap().double_value(&[]), 13.0);
    assert_eq!(global_norm(&[]).unwrap().double_value(&[]), 0.0);
    scale(&[&a, &b], 2.0).unwrap();
    assert_eq!(global_norm(&[&a, &b]).unwrap().double_value(&[]), 26.0);
}

#[test]
fn one_bad_element_makes_a_list_not_finite() {
    let good = Tensor::from_slice(&[f32::MAX, f32::MIN]);
    assert!(all_finite(&[&good]).unwrap());
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let tensor = Tensor::from_slice(&[0.0, bad]);
        assert!(!all_finite(&[&good, &tensor]).unwrap(), "{bad}");
    }
}

#[test]
fn inference_mode_holds_for_its_thread_until_dropped() {
    {
        let _guard = InferenceMode::enter();
        assert!(InferenceMode::is_enabled());
        let elsewhere = std::thread::spawn(InferenceMode::is_enabled)
            .join()
            .unwrap();
        assert!(!elsewhere);
        let weight = Tensor::ones([2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        assert!(!(&weight * 2.0).requires_grad());
    }
    assert!(!InferenceMode::is_enabled());
}

#[test]
fn cuda_is_loaded_only_where_its_library_lies() {
    // Either answer is right, by the machine; a CPU libtorch must not be reported as loaded.
    if load_cuda_if_present() != CudaLoad::Loaded {
        assert!(!tch::Cuda::is_available());
    }
}

#[test]
fn copied_bytes_are_equal_whatever_the_size_and_place() {
    for (length, start) in [
        (1, 0),
        (1000, 1),
        (300_000, 0),
        (300_001, 3),
        (262_144, 7),
        (1_048_583, 5),
    ] {
        let from = Tensor::randint(256, [length + start], (Kind::Uint8, Device::Cpu))
            .narrow(0, start, length);
        let whole = Tensor::zeros([length + start + 64], (Kind::Uint8, Device::Cpu));
        let to = whole.narrow(0, start, length);
        assert!(copy_bytes(&to, &from));
        assert_eq!(to, from, "{length} bytes from {start} on");
        let after = whole.narrow(0, start + length, 64);
        assert_eq!(
            after.count_nonzero(0),
            Tensor::from(0_i64),
            "nothing is written past the end"
        );
    }
}

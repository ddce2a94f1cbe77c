//! What libtorch has and tch does not bind, through a small C++ shim: fused `AdamW`, norms over many tensors, log-probs with
//! a lean backward pass, inference mode, a tensor's bytes, CUDA loaded when it is there, OpenMP that does not spin.
//!
//! The only module of this crate with unsafe code; all it exports is safe. A C++ exception becomes an [`Error`].
#![expect(unsafe_code, reason = "calls into the C++ shim beside this file")]

mod ffi;
mod openmp;
#[cfg(test)]
mod tests;

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::ptr;

use tch::{Device, Tensor};
use torch_sys::C_tensor;

pub use openmp::ensure_passive_openmp;

/// What libtorch said, without its C++ backtrace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operation}: {message}")]
pub struct Error {
    pub operation: &'static str,
    pub message: String,
}

/// The numbers of one `AdamW` step (Loshchilov & Hutter 2019: the decay is decoupled from the gradient).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWNumbers {
    pub lr: f64,
    pub betas: [f64; 2],
    pub eps: f64,
    pub weight_decay: f64,
}

/// Tensors of one `AdamW` step; the five lists run in parallel. `steps` are float32 scalars and are counted up here.
#[derive(Debug)]
pub struct AdamWTensors<'a> {
    pub params: &'a [&'a Tensor],
    pub grads: &'a [&'a Tensor],
    pub exp_avgs: &'a [&'a Tensor],
    pub exp_avg_sqs: &'a [&'a Tensor],
    pub steps: &'a [&'a Tensor],
}

/// One `AdamW` step over all tensors in one pass. Gradients are divided by `grad_scale` (a float32 scalar) on the way in, and
/// hold the divided values afterwards. Parameters that require gradients are updated without being recorded.
pub fn fused_adamw(
    tensors: &AdamWTensors<'_>,
    numbers: &AdamWNumbers,
    grad_scale: Option<&Tensor>,
) -> Result<(), Error> {
    const OPERATION: &str = "AdamW step";
    let count = tensors.params.len();
    for list in [
        tensors.grads,
        tensors.exp_avgs,
        tensors.exp_avg_sqs,
        tensors.steps,
    ] {
        if list.len() != count {
            return Err(Error {
                operation: OPERATION,
                message: format!("{count} parameters but {} tensors beside them", list.len()),
            });
        }
    }
    let [params, grads, exp_avgs, exp_avg_sqs, steps] = [
        tensors.params,
        tensors.grads,
        tensors.exp_avgs,
        tensors.exp_avg_sqs,
        tensors.steps,
    ]
    .map(pointers);
    // SAFETY: five arrays of `count` live tensors; the shim copies the handles before it returns.
    let text = unsafe {
        ffi::lathe_fused_adamw(
            params.as_ptr(),
            grads.as_ptr(),
            exp_avgs.as_ptr(),
            exp_avg_sqs.as_ptr(),
            steps.as_ptr(),
            count,
            numbers.lr,
            numbers.betas[0],
            numbers.betas[1],
            numbers.weight_decay,
            numbers.eps,
            grad_scale.map_or(ptr::null(), Tensor::as_ptr),
        )
    };
    check(OPERATION, text)
}

/// L2 norm of all elements of all tensors as one vector, in float32 (float64 for float64): a scalar tensor, so that a GPU is not
/// waited for. 0 for no tensors.
pub fn global_norm(tensors: &[&Tensor]) -> Result<Tensor, Error> {
    norm_of_order("global norm", tensors, 2.0)
}

/// Whether no element of any tensor is NaN or infinite. Waits for the device.
pub fn all_finite(tensors: &[&Tensor]) -> Result<bool, Error> {
    let largest = norm_of_order("finiteness test", tensors, f64::INFINITY)?;
    Ok(largest.double_value(&[]).is_finite())
}

fn norm_of_order(
    operation: &'static str,
    tensors: &[&Tensor],
    order: f64,
) -> Result<Tensor, Error> {
    // An empty tensor has no largest element.
    let tensors: Vec<_> = tensors
        .iter()
        .copied()
        .filter(|tensor| tensor.numel() > 0)
        .collect();
    if tensors.is_empty() {
        return Ok(Tensor::zeros([], (tch::Kind::Float, Device::Cpu)));
    }
    let list = pointers(&tensors);
    let mut out = ptr::null_mut();
    // SAFETY: `list` has as many live tensors as said; `out` is written only on success.
    check(operation, unsafe {
        ffi::lathe_global_norm(list.as_ptr(), list.len(), order, &raw mut out)
    })?;
    // SAFETY: the shim made this tensor with `new` and gives it away.
    Ok(unsafe { Tensor::from_ptr(out) })
}

/// Drops the gradients (instead of zeroing them), so that the next backward pass writes where it would otherwise add.
pub fn clear_grads(tensors: &[&Tensor]) -> Result<(), Error> {
    let list = pointers(tensors);
    // SAFETY: `list` has as many live tensors as said.
    check("clearing gradients", unsafe {
        ffi::lathe_clear_grads(list.as_ptr(), list.len())
    })
}

/// Multiplies every tensor in place.
pub fn scale(tensors: &[&Tensor], factor: f64) -> Result<(), Error> {
    let list = pointers(tensors);
    // SAFETY: `list` has as many live tensors as said.
    check("scaling", unsafe {
        ffi::lathe_scale(list.as_ptr(), list.len(), factor)
    })
}

/// Log-probs of `targets` \[M\] under softmax(`logits` \[M, V\] / `temperature`) and, if asked for, the entropy in nats: both
/// \[M\], float32 (float64 for float64 logits), with gradients to the logits. Saves nothing but the logits: the backward pass
/// computes the softmax again, a few rows at a time.
pub fn token_logprobs(
    logits: &Tensor,
    targets: &Tensor,
    temperature: f64,
    with_entropy: bool,
) -> Result<(Tensor, Option<Tensor>), Error> {
    let (mut logprobs, mut entropy) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: both tensors live through the call; the outputs are written only on success.
    check("token log-probs", unsafe {
        ffi::lathe_token_logprobs(
            logits.as_ptr(),
            targets.as_ptr(),
            1.0 / temperature,
            with_entropy,
            &raw mut logprobs,
            &raw mut entropy,
        )
    })?;
    // SAFETY: the shim made these with `new` and gives them away; the second only when asked for.
    unsafe {
        let logprobs = Tensor::from_ptr(logprobs);
        Ok((logprobs, with_entropy.then(|| Tensor::from_ptr(entropy))))
    }
}

/// While it lives, this thread's tensors record nothing, not even versions: 3-19 % faster decoding than `no_grad`. Tensors made
/// under it can never take part in a backward pass.
#[derive(Debug)]
pub struct InferenceMode {
    guard: *mut c_void,
    // The mode belongs to the thread that entered it.
    _not_send: PhantomData<*const ()>,
}

impl InferenceMode {
    #[must_use = "the mode ends when the guard is dropped"]
    pub fn enter() -> Self {
        Self {
            // SAFETY: makes a guard for this thread; freed in `drop`, on the same thread since the type is not Send.
            guard: unsafe { ffi::lathe_inference_mode_enter() },
            _not_send: PhantomData,
        }
    }

    /// Whether this thread is in it.
    pub fn is_enabled() -> bool {
        // SAFETY: reads a thread-local flag.
        unsafe { ffi::lathe_inference_mode_is_enabled() }
    }
}

impl Drop for InferenceMode {
    fn drop(&mut self) {
        // SAFETY: made by `enter`, dropped once.
        unsafe { ffi::lathe_inference_mode_leave(self.guard) }
    }
}

/// Copies `from` over `to` with memcpy where that is the whole of it: both on the CPU, contiguous, of one kind and size.
/// Gives false, and does nothing, where a real `copy_` is needed. Large blocks then bypass the cache, which libtorch's own
/// copy does not.
///
/// As everywhere in tch, shallow clones share their storage: nobody may read `to` or write `from` meanwhile.
pub fn copy_bytes(to: &Tensor, from: &Tensor) -> bool {
    let is_plain = |tensor: &Tensor| tensor.device() == Device::Cpu && tensor.is_contiguous();
    if !is_plain(to)
        || !is_plain(from)
        || to.kind() != from.kind()
        || to.numel() != from.numel()
        || to.numel() == 0
    {
        return false;
    }
    let length = to.numel() * to.kind().elt_size_in_bytes();
    let (target, source) = (to.data_ptr().cast::<u8>(), from.data_ptr().cast::<u8>());
    if (target as usize).abs_diff(source as usize) < length {
        return false;
    }
    // SAFETY: both point to `length` bytes of live, contiguous storage, which do not overlap.
    unsafe { copy_around_the_cache(source, target, length) };
    true
}

/// Tensors from this size on are written around the cache: whoever reads them next has a whole model to read first. memcpy
/// does so only from about the size of the last cache on, and each tensor of a model is smaller than that.
#[cfg(target_arch = "x86_64")]
const STREAMED_BYTES: usize = 256 << 10;

/// As `ptr::copy_nonoverlapping`.
///
/// # Safety
/// Both point to `length` bytes which do not overlap; nobody else reads or writes them meanwhile.
#[cfg_attr(
    target_arch = "x86_64",
    expect(
        clippy::cast_ptr_alignment,
        reason = "the loads take any address, and the stores' was aligned"
    )
)]
unsafe fn copy_around_the_cache(source: *const u8, target: *mut u8, length: usize) {
    #[cfg(target_arch = "x86_64")]
    if length >= STREAMED_BYTES {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        const LINE: usize = 64;
        let head = target.align_offset(LINE).min(length);
        let lines = (length - head) / LINE;
        // SAFETY: head + lines * LINE <= length, so every access lies in the two blocks; a stream store needs an address
        // that is a multiple of 16, and `target + head` is one of 64. SSE2 is part of x86-64.
        unsafe {
            ptr::copy_nonoverlapping(source, target, head);
            let mut from = source.add(head).cast::<__m128i>();
            let mut to = target.add(head).cast::<__m128i>();
            for _ in 0..lines {
                let parts = [
                    _mm_loadu_si128(from),
                    _mm_loadu_si128(from.add(1)),
                    _mm_loadu_si128(from.add(2)),
                    _mm_loadu_si128(from.add(3)),
                ];
                _mm_stream_si128(to, parts[0]);
                _mm_stream_si128(to.add(1), parts[1]);
                _mm_stream_si128(to.add(2), parts[2]);
                _mm_stream_si128(to.add(3), parts[3]);
                from = from.add(4);
                to = to.add(4);
            }
            _mm_sfence();
            let done = head + lines * LINE;
            ptr::copy_nonoverlapping(source.add(done), target.add(done), length - done);
        }
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { ptr::copy_nonoverlapping(source, target, length) };
}

/// The bytes of a contiguous CPU tensor, without a copy: for hashing and for writing safetensors.
///
/// As everywhere in tch, a shallow clone shares the storage: nobody may write to it while these bytes are read.
pub fn bytes(tensor: &Tensor) -> Result<&[u8], Error> {
    let refuse = |message: String| Error {
        operation: "bytes of a tensor",
        message,
    };
    if tensor.device() != Device::Cpu {
        return Err(refuse(format!(
            "it is on {:?}; copy it to the CPU first",
            tensor.device()
        )));
    }
    if !tensor.is_contiguous() {
        return Err(refuse(
            "it is not contiguous; call contiguous() first".into(),
        ));
    }
    let length = tensor.numel() * tensor.kind().elt_size_in_bytes();
    if length == 0 {
        return Ok(&[]);
    }
    // SAFETY: a contiguous CPU tensor owns `length` initialised bytes from data_ptr on, and lives as long as the borrow.
    Ok(unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast::<u8>(), length) })
}

/// What came of looking for libtorch's CUDA half.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CudaLoad {
    Loaded,
    /// This libtorch is the CPU one.
    Absent,
    /// The file is there; this is why it does not load, mostly a missing NVIDIA library.
    Failed(String),
}

/// Loads `libtorch_cuda.so` from beside libtorch, if it is there, so that one build serves both kinds of machine: the linker
/// drops a library nothing refers to. Must be called before the first use of a tensor. A machine without CUDA is no error.
pub fn load_cuda_if_present() -> CudaLoad {
    let mut message = ptr::null_mut();
    // SAFETY: `message` is written with null or text to be freed.
    let code = unsafe { ffi::lathe_load_cuda(&raw mut message) };
    match (code, check("loading CUDA", message)) {
        (0, _) => CudaLoad::Loaded,
        (2, Err(error)) => CudaLoad::Failed(error.message),
        _ => CudaLoad::Absent,
    }
}

fn pointers(tensors: &[&Tensor]) -> Vec<*const C_tensor> {
    tensors.iter().map(|tensor| tensor.as_ptr()).collect()
}

fn check(operation: &'static str, text: *mut c_char) -> Result<(), Error> {
    if text.is_null() {
        return Ok(());
    }
    // SAFETY: text from the shim is a NUL-terminated string from strdup, freed here once.
    let message = unsafe {
        let message = CStr::from_ptr(text).to_string_lossy().into_owned();
        ffi::lathe_free_text(text);
        message
    };
    Err(Error { operation, message })
}

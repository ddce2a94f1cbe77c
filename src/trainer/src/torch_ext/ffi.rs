//! The shim's functions as C sees them. Each returns null or the text of an error.

use std::ffi::{c_char, c_int, c_void};

use torch_sys::C_tensor;

unsafe extern "C" {
    pub fn lathe_free_text(text: *mut c_char);
    pub fn lathe_fused_adamw(
        params: *const *const C_tensor,
        grads: *const *const C_tensor,
        exp_avgs: *const *const C_tensor,
        exp_avg_sqs: *const *const C_tensor,
        steps: *const *const C_tensor,
        count: usize,
        lr: f64,
        beta1: f64,
        beta2: f64,
        weight_decay: f64,
        eps: f64,
        grad_scale: *const C_tensor,
    ) -> *mut c_char;
    pub fn lathe_global_norm(
        tensors: *const *const C_tensor,
        count: usize,
        order: f64,
        out: *mut *mut C_tensor,
    ) -> *mut c_char;
    pub fn lathe_clear_grads(tensors: *const *const C_tensor, count: usize) -> *mut c_char;
    pub fn lathe_scale(tensors: *const *const C_tensor, count: usize, factor: f64) -> *mut c_char;
    pub fn lathe_token_logprobs(
        logits: *const C_tensor,
        targets: *const C_tensor,
        inverse_temperature: f64,
        with_entropy: bool,
        logprobs: *mut *mut C_tensor,
        entropy: *mut *mut C_tensor,
    ) -> *mut c_char;
    pub fn lathe_inference_mode_enter() -> *mut c_void;
    pub fn lathe_inference_mode_leave(guard: *mut c_void);
    pub fn lathe_inference_mode_is_enabled() -> bool;
    pub fn lathe_load_cuda(message: *mut *mut c_char) -> c_int;
}

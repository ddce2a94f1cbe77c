// What libtorch has and torch-sys does not bind. Each function returns null, or the error's text to be freed by
// lathe_free_text: a C++ exception must not cross into Rust. Tensors come as torch-sys holds them: at::Tensor*.

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace {

template <typename Body>
char* guarded(Body body) {
  try {
    body();
    return nullptr;
  } catch (const c10::Error& error) {
    // Without the C++ backtrace: the message is shown to people.
    return strdup(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return strdup(error.what());
  } catch (...) {
    return strdup("unknown C++ exception");
  }
}

std::vector<at::Tensor> tensor_list(at::Tensor* const* tensors, size_t count) {
  std::vector<at::Tensor> list;
  list.reserve(count);
  for (size_t index = 0; index < count; ++index) list.push_back(*tensors[index]);
  return list;
}

// Rows that fit in a core's cache on CPU, and enough work for a kernel launch on a GPU.
int64_t rows_per_chunk(const at::Tensor& logits) {
  const int64_t elements = logits.is_cpu() ? (int64_t{1} << 17) : (int64_t{1} << 24);
  return std::max<int64_t>(1, elements / std::max<int64_t>(1, logits.size(1)));
}

// Scaled logits of some rows in float32 or wider, as a tensor that may be overwritten.
at::Tensor scaled_rows(const at::Tensor& logits, int64_t start, int64_t rows, double inverse_temperature) {
  const auto chunk = logits.narrow(0, start, rows);
  const auto wide = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return inverse_temperature == 1.0 ? chunk.to(wide) : chunk.to(wide).mul(inverse_temperature);
}

// log softmax(logits / T) at the targets, and the entropy, saving nothing but the logits themselves: softmax is computed
// again in the backward pass, a few rows at a time.
struct TokenLogprobs : torch::autograd::Function<TokenLogprobs> {
  static torch::autograd::variable_list forward(
      torch::autograd::AutogradContext* context, const at::Tensor& logits, const at::Tensor& targets,
      double inverse_temperature, bool with_entropy) {
    context->save_for_backward({logits, targets});
    context->saved_data["inverse_temperature"] = inverse_temperature;
    const auto wide = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const auto count = logits.size(0);
    auto logprobs = at::empty({count}, logits.options().dtype(wide));
    auto entropy = with_entropy ? at::empty({count}, logprobs.options()) : at::Tensor();
    const auto step = rows_per_chunk(logits);
    for (int64_t start = 0; start < count; start += step) {
      const auto rows = std::min(step, count - start);
      const auto log_softmax = at::_log_softmax(scaled_rows(logits, start, rows, inverse_temperature), 1, false);
      const auto index = targets.narrow(0, start, rows).unsqueeze(1);
      logprobs.narrow(0, start, rows).copy_(log_softmax.gather(1, index).squeeze(1));
      if (with_entropy) {
        auto part = entropy.narrow(0, start, rows);
        part.copy_(log_softmax.exp().mul_(log_softmax).sum(1).neg_());
      }
    }
    if (!with_entropy) return {logprobs};
    return {logprobs, entropy};
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto& logits = saved[0];
    const auto& targets = saved[1];
    const double inverse_temperature = context->saved_data["inverse_temperature"].toDouble();
    const auto grad_logprobs = grads[0];
    const auto grad_entropy = grads.size() > 1 ? grads[1] : at::Tensor();
    const auto count = logits.size(0);
    auto grad_logits = at::empty_like(logits);
    const auto step = rows_per_chunk(logits);
    for (int64_t start = 0; start < count; start += step) {
      const auto rows = std::min(step, count - start);
      const auto scaled = scaled_rows(logits, start, rows, inverse_temperature);
      auto grad = at::_softmax(scaled, 1, false);
      if (grad_entropy.defined()) {
        // dH/dz = p (sum_k p_k z_k - z)
        const auto mean = grad.mul(scaled).sum(1, true);
        auto factor = mean.sub(scaled).mul_(grad_entropy.narrow(0, start, rows).unsqueeze(1));
        if (grad_logprobs.defined()) factor.sub_(grad_logprobs.narrow(0, start, rows).unsqueeze(1));
        grad.mul_(factor);
      } else {
        grad.mul_(grad_logprobs.narrow(0, start, rows).unsqueeze(1).neg());
      }
      if (grad_logprobs.defined()) {
        grad.scatter_add_(1, targets.narrow(0, start, rows).unsqueeze(1),
                          grad_logprobs.narrow(0, start, rows).unsqueeze(1));
      }
      if (inverse_temperature != 1.0) grad.mul_(inverse_temperature);
      grad_logits.narrow(0, start, rows).copy_(grad);
    }
    return {grad_logits, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

extern "C" {

void lathe_free_text(char* text) { std::free(text); }

char* lathe_fused_adamw(at::Tensor* const* params, at::Tensor* const* grads, at::Tensor* const* exp_avgs,
                        at::Tensor* const* exp_avg_sqs, at::Tensor* const* steps, size_t count, double lr, double beta1,
                        double beta2, double weight_decay, double eps, const at::Tensor* grad_scale) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    auto step_list = tensor_list(steps, count);
    at::_foreach_add_(step_list, 1);
    std::optional<at::Tensor> scale;
    if (grad_scale) scale = *grad_scale;
    at::_fused_adamw_(tensor_list(params, count), tensor_list(grads, count), tensor_list(exp_avgs, count),
                      tensor_list(exp_avg_sqs, count), {}, step_list, lr, beta1, beta2, weight_decay, eps,
                      /*amsgrad=*/false, /*maximize=*/false, scale, {});
  });
}

char* lathe_global_norm(at::Tensor* const* tensors, size_t count, double order, at::Tensor** out) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    // A norm in 16 bits would have two digits.
    const bool is_double = tensors[0]->scalar_type() == at::kDouble;
    const auto norms = at::_foreach_norm(tensor_list(tensors, count), order, is_double ? at::kDouble : at::kFloat);
    *out = new at::Tensor(at::linalg_vector_norm(at::stack(norms), order));
  });
}

char* lathe_clear_grads(at::Tensor* const* tensors, size_t count) {
  return guarded([&] {
    for (size_t index = 0; index < count; ++index) tensors[index]->mutable_grad() = at::Tensor();
  });
}

char* lathe_scale(at::Tensor* const* tensors, size_t count, double factor) {
  return guarded([&] {
    at::NoGradGuard no_grad;
    at::_foreach_mul_(tensor_list(tensors, count), factor);
  });
}

char* lathe_token_logprobs(const at::Tensor* logits, const at::Tensor* targets, double inverse_temperature,
                           bool with_entropy, at::Tensor** logprobs, at::Tensor** entropy) {
  return guarded([&] {
    TORCH_CHECK(logits->dim() == 2 && targets->dim() == 1 && logits->size(0) == targets->size(0),
                "logits must be [M, V] and targets [M], got ", logits->sizes(), " and ", targets->sizes());
    auto outputs = TokenLogprobs::apply(*logits, *targets, inverse_temperature, with_entropy);
    *logprobs = new at::Tensor(outputs[0]);
    if (with_entropy) *entropy = new at::Tensor(outputs[1]);
  });
}

void* lathe_inference_mode_enter() { return new c10::InferenceMode(true); }
void lathe_inference_mode_leave(void* guard) { delete static_cast<c10::InferenceMode*>(guard); }
bool lathe_inference_mode_is_enabled() { return c10::InferenceMode::is_enabled(); }

// 0: loaded; 1: no such file beside libtorch; 2: there but not loadable, with the loader's words in `message`.
int lathe_load_cuda(char** message) {
  *message = nullptr;
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&at::globalContext), &info) || !info.dli_fname) return 1;
  std::string path(info.dli_fname);
  const auto slash = path.rfind('/');
  path = (slash == std::string::npos ? std::string() : path.substr(0, slash + 1)) + "libtorch_cuda.so";
  if (access(path.c_str(), F_OK) != 0) return 1;
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) return 0;
  const char* error = dlerror();
  *message = strdup(error ? error : "unknown loader error");
  return 2;
}

}  // extern "C"

#include "draft/head_copy.h"

#include "draft/graph.h"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace dflash {

namespace {

ggml_backend_dev_t device_of(const ggml_tensor * tensor) {
    return ggml_backend_buft_get_device(ggml_backend_buffer_get_type(tensor->buffer));
}

// Whether a device can multiply with such a weight in memory of this type.
bool can_multiply(ggml_backend_dev_t device, ggml_backend_buffer_type_t type, const ggml_tensor * source) {
    const ggml_context_ptr        ctx(ggml_init({ 4 * ggml_tensor_overhead(), nullptr, true }));
    const ggml_backend_buffer_ptr nothing(ggml_backend_buft_alloc_buffer(type, 0));
    ggml_tensor *                 weight = ggml_new_tensor_2d(ctx.get(), source->type, source->ne[0], source->ne[1]);
    weight->buffer                       = nothing.get();
    ggml_tensor * rows                   = ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, source->ne[0], 16);
    return ggml_backend_dev_supports_op(device, ggml_mul_mat(ctx.get(), weight, rows));
}

// The CPU has its own layouts for products (cpu/gemm/).
ggml_backend_buffer_type_t best_memory(const ggml_tensor * source, const ggml_tensor * weight) {
    ggml_backend_buffer_type_t plain  = memory_beside(weight);
    ggml_backend_dev_t         device = ggml_backend_buft_get_device(plain);
    ggml_backend_reg_t         reg    = device ? ggml_backend_dev_backend_reg(device) : nullptr;
    const auto                 get    = (ggml_backend_dev_get_extra_bufts_t) (reg ? ggml_backend_reg_get_proc_address(
                                                                     reg, "ggml_backend_dev_get_extra_bufts")
                                                                                  : nullptr);
    for (ggml_backend_buffer_type_t * type = get ? get(device) : nullptr; type && *type; ++type) {
        if (can_multiply(device, *type, source)) {
            return *type;
        }
    }
    return plain;
}

}   // namespace

bool head_copy::is_needed(const ggml_tensor * head, const ggml_tensor * weight) {
    ggml_backend_dev_t device = device_of(head);
    ggml_backend_reg_t reg    = device ? ggml_backend_dev_backend_reg(device) : nullptr;   // a tensor split has none
    return reg && ggml_backend_reg_name(reg) == std::string("RPC") && device != device_of(weight);
}

head_copy::head_copy(const ggml_tensor * source, const ggml_tensor * weight) {
    ctx_.reset(ggml_init({ ggml_tensor_overhead(), nullptr, true }));
    tensor_ = ggml_dup_tensor(ctx_.get(), source);
    ggml_set_name(tensor_, source->name);
    buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(ctx_.get(), best_memory(source, weight)));
    if (!buffer_) {
        throw std::runtime_error("not enough memory for the drafter's copy of the target's output projection: place "
                                 "the drafter on the RPC server (-devd)");
    }
    ggml_backend_buffer_set_usage(buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    if (!source->data) {   // a memory plan: only the size is known
        return;
    }
    std::vector<uint8_t> data(ggml_nbytes(source));
    ggml_backend_tensor_get(source, data.data(), 0, data.size());
    ggml_backend_tensor_set(tensor_, data.data(), 0, data.size());
}

}   // namespace dflash

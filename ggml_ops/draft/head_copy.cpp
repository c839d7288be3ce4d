#include "draft/head_copy.h"

#include "base/error.h"
#include "base/backends.h"
#include "draft/graph.h"
#include "llama/devices.h"

#include <vector>

namespace dflash {

bool head_copy::is_needed(const ggml_tensor * head, const ggml_tensor * weight) {
    return is_rpc(device_of(head)) && device_of(head) != device_of(weight);
}

head_copy::head_copy(const ggml_tensor * source, const ggml_tensor * weight) {
    ctx_.reset(ggml_init({ ggml_tensor_overhead(), nullptr, true }));
    tensor_ = ggml_dup_tensor(ctx_.get(), source);
    ggml_set_name(tensor_, source->name);
    buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(
        ctx_.get(), best_buffer_type(memory_beside(weight), source->type, source->ne[0], source->ne[1])));
    fail_if(!buffer_, "not enough memory for the drafter's copy of the target's output projection: place "
                      "the drafter on the RPC server (-devd)");
    ggml_backend_buffer_set_usage(buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    if (!source->data) {   // a memory plan: only the size is known
        return;
    }
    std::vector<uint8_t> data(ggml_nbytes(source));
    ggml_backend_tensor_get(source, data.data(), 0, data.size());
    ggml_backend_tensor_set(tensor_, data.data(), 0, data.size());
}

}   // namespace dflash

#include "draft/target_ids.h"

#include "base/error.h"
#include "draft/graph.h"

namespace dflash {

target_ids::target_ids(size_t n, const ggml_tensor * weight) {
    ctx_.reset(ggml_init({ ggml_tensor_overhead(), nullptr, true }));
    tensor_ = ggml_new_tensor_2d(ctx_.get(), GGML_TYPE_I32, 1, (int64_t) n);
    buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(ctx_.get(), memory_beside(weight)));
    fail_if(!buffer_, "not enough memory for the drafter's vocabulary");
}

void target_ids::set(const std::vector<int64_t> & d2t) {
    const std::vector<int32_t> ids(d2t.begin(), d2t.end());
    ggml_backend_tensor_set(tensor_, ids.data(), 0, ids.size() * sizeof(int32_t));
}

}   // namespace dflash

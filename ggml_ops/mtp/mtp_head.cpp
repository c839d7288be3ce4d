#include "mtp/mtp_head.h"

#include "base/backends.h"
#include "base/error.h"
#include "llama/devices.h"

namespace dflash {

mtp_head::mtp_head(std::unique_ptr<head_part> part, int32_t n_threads) : part_(std::move(part)) {
    ggml_backend_dev_t device = device_of(part_->tensor());
    device                    = device ? device : ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    backend_.reset(ggml_backend_dev_init(device, nullptr));
    fail_if(!backend_, "a backend for the MTP layers' output projection could not be initialized");
    set_threads(device, backend_.get(), n_threads);
}

mtp_head::product & mtp_head::product_of(int32_t n) {
    const auto found = products_.find(n);
    if (found != products_.end()) {
        return found->second;
    }
    product p;
    p.ctx.reset(ggml_init({ 4 * ggml_tensor_overhead() + ggml_graph_overhead_custom(4, false), nullptr, true }));
    p.states = ggml_new_tensor_2d(p.ctx.get(), GGML_TYPE_F32, part_->tensor()->ne[0], n);
    p.logits = ggml_mul_mat(p.ctx.get(), part_->tensor(), p.states);
    p.graph  = ggml_new_graph_custom(p.ctx.get(), 4, false);
    ggml_build_forward_expand(p.graph, p.logits);
    p.buffer.reset(ggml_backend_alloc_ctx_tensors(p.ctx.get(), backend_.get()));
    fail_if(!p.buffer, "not enough memory for ", n, " rows of the MTP layers' logits");
    return products_[n] = std::move(p);
}

const float * mtp_head::compute(const std::vector<float> & states, int32_t n) {
    product & p = product_of(n);
    ggml_backend_tensor_set(p.states, states.data(), 0, ggml_nbytes(p.states));
    fail_if(ggml_backend_graph_compute(backend_.get(), p.graph) != GGML_STATUS_SUCCESS,
        "the product with the MTP layers' output projection failed");
    logits_.resize(ggml_nelements(p.logits));
    ggml_backend_tensor_get(p.logits, logits_.data(), 0, ggml_nbytes(p.logits));
    return logits_.data();
}

}   // namespace dflash

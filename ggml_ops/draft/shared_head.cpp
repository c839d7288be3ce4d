#include "draft/shared_head.h"

#include "base/error.h"
#include "base/backends.h"
#include "draft/graph.h"
#include "llama/devices.h"

#include <algorithm>

namespace dflash {

std::vector<int32_t> text_ends(const llama_vocab * vocab, int32_t n_tokens, int32_t n) {
    const int32_t        n_known = std::min(n_tokens, llama_vocab_n_tokens(vocab));
    std::vector<int32_t> ends;
    for (llama_token token = 0; token < n_known && (int32_t) ends.size() < n; ++token) {
        if (llama_vocab_is_eog(vocab, token)) {
            ends.push_back(token);
        }
    }
    return ends;
}

bool shared_head::is_remote(const ggml_tensor * head, const ggml_tensor * weight) {
    return is_rpc(device_of(head)) && device_of(head) != device_of(weight);
}

shared_head::shared_head(const ggml_tensor * head, int64_t n_rows, const ggml_tensor * weight) {
    ctx_.reset(ggml_init({ ggml_tensor_overhead(), nullptr, true }));
    tensor_ = ggml_new_tensor_2d(ctx_.get(), head->type, head->ne[0], n_rows);
    ggml_set_name(tensor_, head->name);
    buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(
        ctx_.get(), best_buffer_type(memory_beside(weight), head->type, head->ne[0], n_rows)));
    fail_if(!buffer_, "not enough memory for the drafter's copy of the target's output projection");
    ggml_backend_buffer_set_usage(buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
}

void shared_head::copy(const ggml_tensor * head) {
    std::vector<uint8_t> data(ggml_nbytes(head));
    ggml_backend_tensor_get(head, data.data(), 0, data.size());
    ggml_backend_tensor_set(tensor_, data.data(), 0, data.size());
}

void shared_head::read(const gguf_tensor & head, const std::vector<int32_t> & rows) {
    const std::vector<uint8_t> data = gguf_read_rows(head, rows);
    ggml_backend_tensor_set(tensor_, data.data(), 0, data.size());
}

}   // namespace dflash

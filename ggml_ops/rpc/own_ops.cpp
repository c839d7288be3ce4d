#include "rpc/own_ops.h"

#include "gdn/has_kernel.h"

#include "ggml-cpp.h"

#include <algorithm>

namespace dflash {

namespace {

bool has_kernels(ggml_backend_dev_t device) {
    return ggml_gdn_has_kernel(device, 64, 1, 1) && ggml_gdn_has_kernel(device, 128, 1, 1);
}

// Largest logits, bits of masks and quantized embeddings, as llama/logit_store.cpp, mask_words.cpp and
// embedding_rows.cpp compute them.
bool reduces(ggml_backend_dev_t device) {
    constexpr int64_t          N_VOCAB = 1 << 17;
    const ggml_context_ptr     owner(ggml_init({ 64 * ggml_tensor_overhead(), nullptr, true }));
    ggml_context *             ctx    = owner.get();
    ggml_tensor *              logits = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, N_VOCAB, 4);
    ggml_tensor *              best   = ggml_top_k(ctx, logits, 64);
    ggml_tensor *              values = ggml_get_rows(ctx, ggml_reshape_3d(ctx, logits, 1, N_VOCAB, 4), best);
    std::vector<ggml_tensor *> ops    = { ggml_argmax(ctx, logits), best, values, ggml_floor(ctx, logits) };
    for (const ggml_type type : EMBEDDED) {
        ggml_tensor * rows = ggml_new_tensor_2d(ctx, type, 4096, 16);
        ops.push_back(ggml_get_rows(ctx, rows, ggml_new_tensor_1d(ctx, GGML_TYPE_I32, 16)));
    }
    return std::all_of(
        ops.begin(), ops.end(), [&](const ggml_tensor * op) { return ggml_backend_dev_supports_op(device, op); });
}

}   // namespace

uint8_t rpc_own_ops(const std::vector<ggml_backend_t> & backends) {
    const auto all = [&](bool (*can)(ggml_backend_dev_t)) {
        return std::all_of(backends.begin(), backends.end(),
            [&](ggml_backend_t backend) { return can(ggml_backend_get_device(backend)); });
    };
    return OWN_BUILD | OWN_OPS | (all(has_kernels) ? HAS_KERNELS : 0) | (all(reduces) ? 0 : LACKS_OPS);
}

}   // namespace dflash

#include "gdn/has_kernel.h"

#include "gdn/gdn_tree.h"
#include "ggml-cpp.h"

bool ggml_gdn_has_kernel(ggml_backend_dev_t device, int64_t head, int64_t heads_k, int64_t heads_v) {
    ggml_context_ptr ctx{ ggml_init({ 8 * ggml_tensor_overhead(), nullptr, true }) };
    const auto       rows = [&](int64_t ne0, int64_t ne1) {
        return ggml_new_tensor_4d(ctx.get(), GGML_TYPE_F32, ne0, ne1, 1, 1);
    };
    ggml_tensor * k = rows(head, heads_k), *v = rows(head, heads_v), *g = rows(1, heads_v);
    ggml_tensor * state = ggml_new_tensor_4d(ctx.get(), GGML_TYPE_F32, head, head, heads_v, 1);
    return ggml_backend_dev_supports_op(
        device, ggml_gdn_tree(ctx.get(), k, k, v, g, g, state, ggml_new_tensor_2d(ctx.get(), GGML_TYPE_I32, 1, 1)));
}

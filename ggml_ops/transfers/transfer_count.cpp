#include "transfers/transfer_count.h"

#include "ggml-backend.h"

namespace dflash {

static thread_local transfer_counts counts = {};

static bool is_on_device(const ggml_tensor * tensor) {
    ggml_backend_buffer_t buffer = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
    return buffer && !ggml_backend_buffer_is_host(buffer);
}

transfer_counts transfers_of_this_thread() { return counts; }

void count_set(const ggml_tensor * tensor, size_t bytes) {
    if (is_on_device(tensor)) {
        counts.to_device += (int64_t) bytes;
    }
}

void count_get(const ggml_tensor * tensor, size_t bytes) {
    if (is_on_device(tensor)) {
        counts.from_device += (int64_t) bytes;
    }
}

bool count_copy(const ggml_tensor * src, const ggml_tensor * dst, bool done) {
    const int64_t bytes = done ? (int64_t) ggml_nbytes(src) : 0;
    const bool    from = is_on_device(src), to = is_on_device(dst);
    counts.between_devices += from && to ? bytes : 0;
    counts.from_device += from && !to ? bytes : 0;
    counts.to_device += to && !from ? bytes : 0;
    return done;
}

}   // namespace dflash

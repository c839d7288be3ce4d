// Shared code of programs that time ggml graphs.

#pragma once

#include "ggml-backend.h"

#include <memory>

using context = std::unique_ptr<ggml_context, decltype(&ggml_free)>;
using buffer  = std::unique_ptr<ggml_backend_buffer, decltype(&ggml_backend_buffer_free)>;

// A context for a graph with this many tensors, whose data is in a backend's buffers.
inline context metadata(size_t tensors) {
    return context(
        ggml_init({ ggml_tensor_overhead() * tensors + ggml_graph_overhead_custom(tensors, false), nullptr, true }),
        ggml_free);
}

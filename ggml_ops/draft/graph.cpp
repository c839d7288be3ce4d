#include "draft/graph.h"

#include <algorithm>
#include <stdexcept>

namespace dflash {

namespace {

constexpr size_t MAX_NODES = 8192;

}   // namespace

ggml_backend_buffer_type_t memory_beside(const ggml_tensor * weight) {
    ggml_backend_dev_t device = ggml_backend_buft_get_device(ggml_backend_buffer_get_type(weight->buffer));
    if (!device || ggml_backend_buffer_is_host(weight->buffer)) {
        device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    }
    return ggml_backend_dev_buffer_type(device);
}

int32_t inject_bucket(int32_t n_inject) {
    for (const int32_t bucket : { 0, 4, 8, 12, 16, 24, 32, 48, 64, 128, 256 }) {
        if (n_inject <= bucket) {
            return bucket;
        }
    }
    return (n_inject + 255) / 256 * 256;
}

draft_graph::draft_graph(const graph_shape & shape) : shape(shape) {
    ctx.reset(ggml_init(
        { MAX_NODES * ggml_tensor_overhead() + ggml_graph_overhead_custom(MAX_NODES, false), nullptr, true }));
    gf = ggml_new_graph_custom(ctx.get(), MAX_NODES, false);
}

ggml_tensor * draft_graph::input(ggml_tensor * tensor) {
    ggml_set_input(tensor);
    return tensor;
}

ggml_tensor * draft_graph::output(ggml_tensor * tensor) {
    ggml_set_output(tensor);
    add(tensor);
    return tensor;
}

draft_graph * graph_cache::find(const graph_shape & shape) {
    const auto found =
        std::find_if(graphs_.begin(), graphs_.end(), [&](const auto & graph) { return graph->shape == shape; });
    if (found == graphs_.end()) {
        return nullptr;
    }
    std::rotate(graphs_.begin(), found, found + 1);
    return graphs_.front().get();
}

draft_graph & graph_cache::add(std::unique_ptr<draft_graph> graph) {
    const bool inherits = graphs_.size() >= CAPACITY;
    if (inherits) {   // a scheduler keeps its compute buffers: the new graph takes over the oldest one's
        graph->sched = std::move(graphs_.back()->sched);
        graphs_.pop_back();
        ggml_backend_sched_reset(graph->sched.get());
    } else {
        graph->sched.reset(
            ggml_backend_sched_new(backends_.data(), nullptr, (int) backends_.size(), MAX_NODES, false, true));
    }
    // A scheduler that was taken over must plan anew: its allocator would keep the plan for any graph with as many
    // nodes of the same sizes, though other tensors may be inputs and outputs.
    if ((inherits && !ggml_backend_sched_reserve(graph->sched.get(), graph->gf)) ||
        !ggml_backend_sched_alloc_graph(graph->sched.get(), graph->gf)) {
        throw std::runtime_error("not enough memory for a drafter pass: lower -ub, -np or --draft-ctx");
    }
    graphs_.insert(graphs_.begin(), std::move(graph));
    return *graphs_.front();
}

}   // namespace dflash

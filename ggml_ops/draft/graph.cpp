#include "draft/graph.h"

#include "llama/devices.h"

#include <algorithm>
#include <stdexcept>

namespace dflash {

ggml_backend_buffer_type_t memory_beside(const ggml_tensor * weight) {
    ggml_backend_dev_t device = device_of(weight);
    if (!device || ggml_backend_buffer_is_host(weight->buffer)) {
        device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    }
    return ggml_backend_dev_buffer_type(device);
}

size_t alignment_of(const std::vector<ggml_backend_t> & backends) {
    size_t alignment = 1;
    for (ggml_backend_t backend : backends) {
        ggml_backend_buffer_type_t type = ggml_backend_get_default_buffer_type(backend);
        if (!ggml_backend_buft_is_host(type)) {
            alignment = std::max(alignment, ggml_backend_buft_get_alignment(type));
        }
    }
    return alignment;
}

int32_t inject_bucket(int32_t n_inject, bool on_device) {
    for (const int32_t bucket : { 0, 4, 8, 12, 16, 24, 32, 48, 64, 128, 256 }) {
        const bool is_coarse = bucket == 0 || bucket == 16 || bucket >= 64;
        if (n_inject <= bucket && (is_coarse || !on_device)) {
            return bucket;
        }
    }
    return (n_inject + 255) / 256 * 256;
}

draft_graph::draft_graph(const graph_shape & shape, size_t n_tensors) : shape(shape) {
    ctx.reset(ggml_init(
        { n_tensors * ggml_tensor_overhead() + ggml_graph_overhead_custom(n_tensors, false), nullptr, true }));
    gf = ggml_new_graph_custom(ctx.get(), n_tensors, false);
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

namespace {

[[noreturn]] void throw_no_memory() {
    throw std::runtime_error("not enough memory for a drafter pass: lower -ub, -np or --draft-ctx");
}

}   // namespace

draft_graph & graph_cache::add(const std::function<std::unique_ptr<draft_graph>()> & make) {
    ggml_backend_sched_ptr       sched = take_scheduler(make);
    std::unique_ptr<draft_graph> graph = make();
    graph->sched                       = std::move(sched);
    if (!ggml_backend_sched_alloc_graph(graph->sched.get(), graph->gf)) {
        throw_no_memory();
    }
    graphs_.insert(graphs_.begin(), std::move(graph));
    return *graphs_.front();
}

ggml_backend_sched_ptr graph_cache::new_scheduler() {
    return ggml_backend_sched_ptr(
        ggml_backend_sched_new(backends_.data(), nullptr, (int) backends_.size(), n_tensors_, false, true));
}

void graph_cache::reserve(const std::function<std::unique_ptr<draft_graph>()> & make) {
    while (graphs_.size() + reserved_.size() < CAPACITY) {
        ggml_backend_sched_ptr             sched = new_scheduler();
        const std::unique_ptr<draft_graph> graph = make();
        if (!ggml_backend_sched_reserve(sched.get(), graph->gf)) {
            throw_no_memory();
        }
        reserved_.push_back(std::move(sched));
    }
}

// Takes a new scheduler, or that of the oldest graph with its compute buffers. A reused scheduler must plan again: its
// allocator would keep its plan for any graph with the same number of nodes and sizes, even if other tensors are inputs
// and outputs.
ggml_backend_sched_ptr graph_cache::take_scheduler(const std::function<std::unique_ptr<draft_graph>()> & make) {
    ggml_backend_sched_ptr sched;
    if (!reserved_.empty()) {
        sched = std::move(reserved_.back());
        reserved_.pop_back();
    } else if (graphs_.size() < CAPACITY) {
        return new_scheduler();
    } else {
        sched = std::move(graphs_.back()->sched);
        graphs_.pop_back();
    }
    ggml_backend_sched_reset(sched.get());
    // Planning permanently replaces sources on other devices by copies, so it needs a graph of its own.
    const std::unique_ptr<draft_graph> planned = make();
    if (!ggml_backend_sched_reserve(sched.get(), planned->gf)) {
        throw_no_memory();
    }
    return sched;
}

std::map<ggml_backend_buffer_type_t, size_t> graph_cache::memory() const {
    std::map<ggml_backend_buffer_type_t, size_t> bytes;
    const auto                                   add = [&](const ggml_backend_sched_ptr & sched) {
        for (ggml_backend_t backend : backends_) {
            bytes[ggml_backend_get_default_buffer_type(backend)] +=
                ggml_backend_sched_get_buffer_size(sched.get(), backend);
        }
    };
    std::for_each(reserved_.begin(), reserved_.end(), add);
    for (const auto & graph : graphs_) {
        add(graph->sched);
    }
    return bytes;
}

}   // namespace dflash

// The memory of a backend's context for products of few rows: the tiles of the rows that were laid out last, and
// scratch.
//
// The pool of the context would not do: what it lends goes back in reverse order, and tiles live from node to node.
// Captured graphs name this memory, so it only grows, and what was too small stays until the context ends.

#pragma once

#include "gemm/cuda/few_rows_launch.cuh"
#include "ggml-impl.h"

#include <map>
#include <mutex>
#include <vector>

// Whether tensors share memory.
static inline bool overlap(const ggml_tensor * a, const ggml_tensor * b) {
    if (ggml_is_empty(a) || !a->data) {
        return false;
    }
    const char *a_begin = (const char *) a->data, *b_begin = (const char *) b->data;
    return a_begin < b_begin + ggml_nbytes(b) && b_begin < a_begin + ggml_nbytes(a);
}

class row_tiles {
  public:
    explicit row_tiles(int device) : device_(device) {}
    ~row_tiles() {
        ggml_cuda_set_device(device_);
        for (void * block : blocks_) {
            (void) cudaFree(block);
        }
    }
    row_tiles(const row_tiles &)             = delete;
    row_tiles & operator=(const row_tiles &) = delete;

    // Of a context, from the first call on.
    static row_tiles & of(const ggml_backend_cuda_context & ctx) {
        const std::lock_guard<std::mutex> guard(all().lock);
        return all().of.try_emplace(&ctx, ctx.device).first->second;
    }
    static void forget(const ggml_backend_cuda_context & ctx) {
        const std::lock_guard<std::mutex> guard(all().lock);
        all().of.erase(&ctx);
    }

    // Node i of a graph is next. Forgets rows if this is another evaluation, or if a node since has written to them.
    void reach(const ggml_cgraph * graph, int i) {
        const bool again = graph != graph_ || i <= last_;
        for (const ggml_tensor *& rows : rows_) {
            for (int node = reached_ + 1; rows && !again && node < i; ++node) {
                rows = overlap(graph->nodes[node], rows) ? nullptr : rows;
            }
            rows = again ? nullptr : rows;
        }
        graph_   = graph;
        last_    = i;
        reached_ = i - 1;
    }

    // Never outside a graph whose nodes are announced by reach().
    bool has(const ggml_tensor * rows, k_order order) const { return graph_ && rows_[(int) order] == rows; }

    // The tiles of an order are now those of rows, which have been computed.
    void keep(const ggml_tensor * rows, k_order order) { rows_[(int) order] = rows; }

    // The same of rows that were computed together with the nodes up to i.
    void keep(const ggml_tensor * rows, k_order order, int i) {
        reached_ = i;
        keep(rows, order);
    }

    char * tiles(k_order order, size_t bytes) {
        if (grow((int) order, bytes)) {
            rows_[(int) order] = nullptr;
        }
        return (char *) memory_[(int) order];
    }
    float4 * parts(size_t bytes) {
        grow(PARTS, bytes);
        return (float4 *) memory_[PARTS];
    }
    int * counts(size_t bytes) {
        if (grow(COUNTS, bytes)) {   // cleared now: the context's stream may be recording a graph that is given up
            CUDA_CHECK(cudaMemsetAsync(memory_[COUNTS], 0, bytes_[COUNTS], cudaStreamPerThread));
            CUDA_CHECK(cudaStreamSynchronize(cudaStreamPerThread));
        }
        return (int *) memory_[COUNTS];
    }

  private:
    static constexpr int ORDERS = 3, PARTS = ORDERS, COUNTS = PARTS + 1, USES = COUNTS + 1;

    struct contexts {
        std::mutex                                             lock;
        std::map<const ggml_backend_cuda_context *, row_tiles> of;
    };
    static contexts & all() {
        static contexts * all = new contexts;   // contexts may end when the process does
        return *all;
    }

    bool grow(int use, size_t bytes) {
        if (bytes <= bytes_[use]) {
            return false;
        }
        bytes_[use] = std::max(bytes, 2 * bytes_[use]);
        CUDA_CHECK(cudaMalloc(&memory_[use], bytes_[use]));
        blocks_.push_back(memory_[use]);
        return true;
    }

    int                 device_;
    std::vector<void *> blocks_;
    void *              memory_[USES] = {};
    size_t              bytes_[USES]  = {};
    const ggml_cgraph * graph_        = nullptr;
    int                 last_         = -1;   // the node that was announced last
    int                 reached_      = -1;   // up to here nodes have been compared with the rows
    const ggml_tensor * rows_[ORDERS] = {};
};

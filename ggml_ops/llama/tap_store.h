// Keeps the taps of a target that computes on a device in that device's memory, so that they do not travel to the host
// and back. A pass's graph writes each row into a cell, and the drafter's graph reads cells. Part of libllama:
// patches/0022 calls store_taps() from llama_model::build_graph().

#pragma once

#include "llama/tap_cell.h"

#include "ggml-backend.h"
#include "ggml-cpp.h"
#include "llama.h"

#include <cstdint>
#include <memory>
#include <vector>

struct llm_graph_context;

namespace dflash {

class LLAMA_API tap_store {
  public:
    // Reserved cells: one of zeros, for padding of the drafter's rows, and one for rows that are not needed.
    static constexpr int32_t ZEROS = 0, WASTE = 1;

    // The device on which the taps of these layers should stay: the drafter's (that of `fc`) if the target uses it too,
    // otherwise that of the last tapped layer. Null if that is the host or the device cannot do it.
    static ggml_backend_dev_t device_for(
        const llama_model * target, const std::vector<int32_t> & layers, const ggml_tensor * fc);

    // Allocates cells for n_rows rows of taps, n_embd floats per layer. Throws std::runtime_error if out of memory.
    tap_store(ggml_backend_dev_t device, const std::vector<int32_t> & layers, int32_t n_embd, int32_t n_rows);
    tap_store(const tap_store &) = delete;

    ggml_backend_dev_t device() const { return device_; }
    ggml_tensor *      rows() const { return rows_; }   // F32 [layers * n_embd, cells]
    size_t             memory_bytes() const;
    int32_t            n_free() const { return (int32_t) free_->size(); }

    // Takes n free cells. Throws std::runtime_error if there are fewer; takes none where it throws.
    std::vector<tap_cell> take(int32_t n);
    // Sets the cells for the next pass's rows, by their index in the batch; other rows are discarded.
    void                          set_pass(std::vector<tap_cell> cells) { pass_ = std::move(cells); }
    const std::vector<tap_cell> & pass() const { return pass_; }

    // Copies rows [cells.size(), layers * n_embd] to the host, and back.
    std::vector<float> read(const std::vector<tap_cell> & cells) const;
    void               write(const std::vector<tap_cell> & cells, const float * data);

    // For the graph (tap_store.cpp).
    const std::vector<int32_t> & layers() const { return layers_; }
    int32_t                      n_embd() const { return n_embd_; }
    int32_t                      pass_cell(int32_t row) const;

  private:
    ggml_backend_dev_t                    device_;
    std::vector<int32_t>                  layers_;
    int32_t                               n_embd_;
    std::shared_ptr<std::vector<int32_t>> free_;   // shared with the cells, which may outlive the store
    std::vector<tap_cell>                 pass_;
    ggml_context_ptr                      ctx_;
    ggml_backend_buffer_ptr               buffer_;
    ggml_tensor *                         rows_ = nullptr;
};

// From now on passes leave their taps in the store (not on the host); it must outlive the context.
LLAMA_API void access_set_tap_store(llama_context * ctx, tap_store * store);

// Adds nodes to a target's graph that write its taps into the context's store, if it has one.
void store_taps(llm_graph_context & graph);

}   // namespace dflash

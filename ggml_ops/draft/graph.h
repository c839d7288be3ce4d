// The graph of a drafter pass: the shape that it depends on, its inputs and outputs, and a cache of graphs for later
// passes of the same shape.

#pragma once

#include "llama/mask_words.h"

#include "ggml-backend.h"
#include "ggml-cpp.h"
#include "ggml.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace dflash {

// Memory of the device that holds a weight.
ggml_backend_buffer_type_t memory_beside(const ggml_tensor * weight);

// Alignment in bytes that operands need on any of these backends: Vulkan requires it for top-k, products and attention.
// The CPU takes any.
size_t alignment_of(const std::vector<ggml_backend_t> & backends);

template <class T> std::vector<T> download(const ggml_tensor * tensor) {
    std::vector<T> data(ggml_nelements(tensor));
    ggml_backend_tensor_get(tensor, data.data(), 0, data.size() * sizeof(T));
    return data;
}

// Everything that a graph depends on.
struct graph_shape {
    int32_t              n_inject     = 0;       // rows of taps, rounded up by inject_bucket()
    int32_t              n_block_rows = 0;       // of each slot, 0: inject only
    int32_t              first        = 1;       // first row of a block that proposes: 0 is the anchor's
    int32_t              n_pos        = 0;       // rows of a block that propose
    bool                 probe        = false;   // hidden states and logits are outputs, too
    std::vector<int32_t> slots;                  // those that denoise a block
    std::vector<int32_t> spans;                  // cells that each slot's attention spans

    bool operator==(const graph_shape & other) const {
        return n_inject == other.n_inject && n_block_rows == other.n_block_rows && first == other.first &&
               n_pos == other.n_pos && probe == other.probe && slots == other.slots && spans == other.spans;
    }
    int32_t n_slots() const { return (int32_t) slots.size(); }
    int32_t n_block() const { return n_block_rows * n_slots(); }   // block rows of all slots
    int32_t n_head() const { return first + n_pos; }               // rows of a block whose logits are computed
    int32_t n_out() const { return n_pos * n_slots(); }            // proposing rows of all slots
    int32_t n_rows() const { return n_inject + n_block(); }        // rows whose K/V are computed: taps, then blocks
};

// Rounds up the rows of taps to one of a few counts, so that graphs can be reused; fewer counts on devices, where
// padding is cheap.
int32_t inject_bucket(int32_t n_inject, bool on_device);

// A slot's mask [span, n_block_rows] as attention reads it: an input itself, or unpacked from words.
struct draft_mask {
    ggml_tensor * tensor = nullptr;   // null: no layer reads it
    mask_inputs   words;              // of each row, or of one that stands for all
};

// Which data is smaller on its way to and from a graph's device.
struct transfer_forms {
    bool masks = false;   // as bits
    bool rows  = false;   // rows of the embeddings as the host stores them
    bool pairs = false;   // DFlash 2's pair scores as F16
};

struct draft_graph {
    graph_shape            shape;
    ggml_context_ptr       ctx;
    ggml_backend_sched_ptr sched;
    ggml_cgraph *          gf        = nullptr;
    size_t                 alignment = 1;   // of operands, in bytes: alignment_of() the backends
    transfer_forms         transfers;

    // Inputs, null if the shape or the model does not use them. Positions have 4 axes with M-RoPE, otherwise 1.
    ggml_tensor * taps       = nullptr;         // F32 [n_taps * n_embd, n_inject], from the host
    ggml_tensor * tap_cells  = nullptr;         // I32 [n_inject]: cells of a tap store instead
    ggml_tensor * unscale    = nullptr;         // F32 [1, n_inject]: undoes tap_scale() of each row
    ggml_tensor * newest     = nullptr;         // I64 [n_inject]: slot whose newest row it is, n_slots: of none
    ggml_tensor * tokens     = nullptr;         // I32 [n_block]: ids, or rows of token_rows
    ggml_tensor * token_rows = nullptr;         // [n_embd, n_slots + 1] embeddings of the anchors and the mask token
    ggml_tensor * masked     = nullptr;         // F32 [1, n_block]: 1 where the token is the mask, else 0
    ggml_tensor * anchors    = nullptr;         // I32 [n_slots]
    ggml_tensor * pos_kv     = nullptr;         // I32 [n_rows * axes]
    ggml_tensor * pos_q      = nullptr;         // I32 [n_block * axes]
    ggml_tensor * cells      = nullptr;         // I64 [n_rows]: the cells that K and V go to
    std::vector<draft_mask> masks, masks_swa;   // per slot: full and sliding-window attention

    // Outputs. n_out: the drafted positions of all slots, in order. top_k and the number of scores are the selector's.
    // Logits are those of each block's first n_head() rows.
    ggml_tensor * ids    = nullptr;   // I32 [top_k, n_out]
    ggml_tensor * scores = nullptr;   // F32, or F16 as transfers.pairs says
    ggml_tensor * hidden = nullptr;   // probe: F32 [n_embd, n_block]
    ggml_tensor * logits = nullptr;   // probe: F32 [n_logits, n_head * n_slots]

    // n_tensors: room for nodes and leafs together.
    draft_graph(const graph_shape & shape, size_t n_tensors);

    ggml_tensor * input(ggml_tensor * tensor);    // marks it; its data is set before each pass
    ggml_tensor * output(ggml_tensor * tensor);   // marks it and adds it to the graph
    void          add(ggml_tensor * tensor) { ggml_build_forward_expand(gf, tensor); }
};

// The graphs that were built last, each with its compute buffers.
class graph_cache {
  public:
    // The backends must outlive the cache; the CPU's is the last. n_tensors: nodes and leafs of the largest graph.
    graph_cache(std::vector<ggml_backend_t> backends, size_t n_tensors) :
        alignment_(alignment_of(backends)), n_tensors_(n_tensors), backends_(std::move(backends)) {}

    size_t alignment() const { return alignment_; }
    size_t n_tensors() const { return n_tensors_; }

    // The cached graph of this shape, or null.
    draft_graph * find(const graph_shape & shape);
    // Adds a new graph, built by `make`, and allocates its memory. Throws std::runtime_error if out of memory.
    draft_graph & add(const std::function<std::unique_ptr<draft_graph>()> & make);

    // Allocates memory for a full cache of graphs as large as the one built by `make`: smaller graphs then need no
    // more.
    void reserve(const std::function<std::unique_ptr<draft_graph>()> & make);

    // Bytes of compute buffers.
    std::map<ggml_backend_buffer_type_t, size_t> memory() const;

  private:
    static constexpr size_t CAPACITY = 4;

    ggml_backend_sched_ptr new_scheduler();
    ggml_backend_sched_ptr take_scheduler(const std::function<std::unique_ptr<draft_graph>()> & make);

    size_t                                    alignment_, n_tensors_;
    std::vector<ggml_backend_t>               backends_;
    std::vector<ggml_backend_sched_ptr>       reserved_;   // with memory, for future graphs
    std::vector<std::unique_ptr<draft_graph>> graphs_;     // most recently used first
};

}   // namespace dflash

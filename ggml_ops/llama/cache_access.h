// What the engine asks of a target's cache as a whole: how full it is, who holds what, what it would take. Beside
// access.h, and compiled into libllama like it.

#pragma once

#include "ggml-backend.h"
#include "llama.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dflash {

// Cells in use of a cache that all sequences share; -1: a memory without cells that could be counted.
LLAMA_API int32_t access_used_cells(const llama_context * ctx);
// Of those, the ones that some of the sequences hold, each counted once.
LLAMA_API int32_t access_held_cells(const llama_context * ctx, const std::vector<int32_t> & seqs);
// Lets the empty sequence `to` hold what `from` holds without copying it. False: this memory cannot, and `to` may hold
// a part of it.
LLAMA_API bool access_share_sequence(llama_context * ctx, int32_t from, int32_t to);
// Whether cells of positions that no later token sees are used again: a sequence cannot be cut back at will.
LLAMA_API bool access_drops_cells(const llama_context * ctx);
// Whether K and V lie in the host's memory, where attention skips the cells of other sequences.
LLAMA_API bool access_on_host(const llama_context * ctx);

// A cache that is yet to be made.
struct cache_shape {
    ggml_type type_k, type_v;
    uint32_t  n_seqs, n_ubatch;
    bool      unified, swa_full;
    bool      offload;   // each layer's part lies on the device of the layer
};
// Bytes of K, V and states on one device.
struct memory_need {
    ggml_backend_dev_t device;      // null: the host
    double             per_token;   // of context
    double             fixed;       // windows and recurrent states
};
// One for each device that has layers. Tapes of recurrent targets are not counted.
LLAMA_API std::vector<memory_need> access_cache_needs(const llama_model * model, const cache_shape & shape);
// Bytes of a model's weights in the host's memory.
LLAMA_API size_t access_host_weights(const llama_model * model);

}   // namespace dflash

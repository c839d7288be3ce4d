// Queries about a target's cache as a whole: how full it is, who holds which cells, what it would allocate. Complements
// access.h and is compiled into libllama like it.

#pragma once

#include "ggml-backend.h"
#include "llama.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace dflash {

// Used cells of a cache that all sequences share; nothing if the memory has no cells to count.
LLAMA_API std::optional<int32_t> access_used_cells(const llama_context * ctx);
// How many cells the given sequences hold, each cell counted once.
LLAMA_API std::optional<int32_t> access_held_cells(const llama_context * ctx, const std::vector<int32_t> & seqs);
// Lets the empty sequence `to` share what `from` holds, without a copy. False if this memory cannot; `to` may then hold
// a part of it.
LLAMA_API bool access_share_sequence(llama_context * ctx, int32_t from, int32_t to);
// Says that an assistant's context exists, whose caches are views of this target's.
LLAMA_API void access_add_view(llama_context * target);
// Whether cells are reused once no later token sees their positions, so that a sequence cannot be cut back freely.
LLAMA_API bool access_drops_cells(const llama_context * ctx);
// Whether K and V are in host memory, where attention skips the cells of other sequences.
LLAMA_API bool access_on_host(const llama_context * ctx);

// A cache that does not exist yet.
struct cache_shape {
    ggml_type type_k, type_v;
    uint32_t  n_seqs, n_ubatch;
    bool      unified, swa_full;
    bool      offload;   // each layer's part is on the layer's device
};
// Bytes of K, V and states on one device.
struct memory_need {
    ggml_backend_dev_t device;      // null: the host
    double             per_token;   // of context
    double             fixed;       // windows and recurrent states
};
// One entry per device that has layers. Tapes of recurrent targets are not counted.
LLAMA_API std::vector<memory_need> access_cache_needs(const llama_model * model, const cache_shape & shape);
// Bytes of a model's weights in the host's memory.
LLAMA_API size_t access_host_weights(const llama_model * model);

}   // namespace dflash

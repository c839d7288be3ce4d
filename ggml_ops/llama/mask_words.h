// Attention masks go to devices as bits: a word for each WORD_CELLS cells of a row, which the device takes apart. A
// mask is as large as its context, and a step sends one for each attention; a bit is a sixteenth of an F16. Exact: the
// device has the numbers that the host would have sent.

#pragma once

#include "llama.h"

#include "ggml-backend.h"

#include <cstdint>
#include <vector>

struct llm_graph_context;

namespace dflash {

constexpr int32_t WORD_CELLS = 16;   // bits of a word: an F32 holds its integers exactly

// What a device takes masks apart with.
struct mask_inputs {
    ggml_tensor * words  = nullptr;   // F32 [n_kv / WORD_CELLS, rows]: bit i is set where cell i of a word is hidden
    ggml_tensor * powers = nullptr;   // F32 [WORD_CELLS, 2]: 2^-i, and half of it
};

// Whether a device can.
LLAMA_API bool can_unpack_masks(ggml_backend_dev_t device);
// New inputs, marked as such, for masks [n_kv, rows]; n_kv must be a multiple of WORD_CELLS.
LLAMA_API mask_inputs new_mask_inputs(ggml_context * ctx, int64_t n_kv, int64_t rows);
// -> [n_kv, rows] of `type` (F16 or F32): 0 or -INFINITY. nodes: what was added to the graph, views left out.
LLAMA_API ggml_tensor * unpack_mask(
    ggml_context * ctx, const mask_inputs & inputs, ggml_type type, std::vector<ggml_tensor *> * nodes = nullptr);
// Uploads what is 0 and what is not of a mask on the host, F16 or F32 [n_kv, rows].
LLAMA_API void set_mask(const mask_inputs & inputs, ggml_type type, const void * mask);

// The mask that layer `il` of a target reads: where its cache is on a device, one that is unpacked there. For passes of
// few rows (patches/0025).
ggml_tensor * mask_of_layer(const llm_graph_context & graph, ggml_tensor * mask, const ggml_tensor * k, int il);

}   // namespace dflash

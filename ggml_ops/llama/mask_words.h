// Attention masks are sent to devices as bits: one word per WORD_CELLS cells of a row, which the device unpacks. A mask
// is as large as its context, and each step sends one per kind of attention; a bit is a sixteenth of an F16. This is
// exact: the device gets the same values as from an uploaded mask.

#pragma once

#include "llama.h"

#include "ggml-backend.h"

#include <cstdint>
#include <vector>

struct llm_graph_context;

namespace dflash {

constexpr int32_t WORD_CELLS = 16;   // bits per word: an F32 represents these integers exactly

// The inputs from which a device unpacks masks.
struct mask_inputs {
    ggml_tensor * words  = nullptr;   // F32 [n_kv / WORD_CELLS, rows]: bit i is set if cell i of the word is hidden
    ggml_tensor * powers = nullptr;   // F32 [WORD_CELLS, 2]: 2^-i, and half of it
};

// Whether a device can unpack masks.
LLAMA_API bool can_unpack_masks(ggml_backend_dev_t device);
// Creates the inputs for masks [n_kv, rows]; n_kv must be a multiple of WORD_CELLS.
LLAMA_API mask_inputs new_mask_inputs(ggml_context * ctx, int64_t n_kv, int64_t rows);
// Returns the mask [n_kv, rows] of `type` (F16 or F32): 0 or -INFINITY. nodes: gets the nodes added to the graph,
// without views.
LLAMA_API ggml_tensor * unpack_mask(
    ggml_context * ctx, const mask_inputs & inputs, ggml_type type, std::vector<ggml_tensor *> * nodes = nullptr);
// Uploads a mask on the host, F16 or F32 [n_kv, rows]: which elements are not 0.
LLAMA_API void set_mask(const mask_inputs & inputs, ggml_type type, const void * mask);

// The mask that layer `il` of a target reads; if its cache is on a device, one that is unpacked there. For passes with
// few rows (patches/0025).
ggml_tensor * mask_of_layer(const llm_graph_context & graph, ggml_tensor * mask, const ggml_tensor * k, int il);

}   // namespace dflash

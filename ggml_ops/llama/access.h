// A window into llama.cpp's internals, which only this folder has: what the engine needs from a loaded target and its
// context. The sources of this folder are compiled into libllama, because libraries hide their internals on Windows and
// macOS; libdflash uses public headers and what is LLAMA_API here and in the headers beside this one.

#pragma once

#include "llama/drafter_model.h"

#include "llama.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dflash {

struct target_heads {
    ggml_tensor * tok_embd;
    ggml_tensor * output;
    bool          scaled_output;   // an NVFP4 scale beside the head
};
LLAMA_API target_heads access_heads(const llama_model * model);

// Contents of a KV cache's cells. iSWA has two caches; a memory without cells has none.
struct cell {
    int32_t              index;
    int32_t              pos;
    std::vector<int32_t> seqs;
};
struct cell_table {
    int32_t                        size;
    std::vector<std::vector<cell>> streams;   // cells in use
};
LLAMA_API std::vector<cell_table> access_cells(const llama_context * ctx);
// Keeps each sequence's cells in the order of its tokens, whatever else is in the cache, so that sums over cells run in
// a fixed order. Applies to plain KV caches, those of hybrids, and those of sliding windows that have the full size, if
// they are in host memory (patch 0009).
LLAMA_API void access_order_cells(llama_context * ctx);
// How often a cache had to be packed for that.
LLAMA_API int64_t access_packs(const llama_context * ctx);

LLAMA_API std::vector<ggml_backend_dev_t> access_devices(const llama_model * model);
// Bytes of a model's weights, by buffer type.
LLAMA_API std::map<ggml_backend_buffer_type_t, size_t> access_weights(const llama_model * model);
// Lets a model that was loaded without data (no_alloc) allocate contexts like any other; within a plan_scope that takes
// no memory. access_weights() no longer works on it.
LLAMA_API void access_plan_contexts(llama_model * model);
// Whether devices compute everything except the look-up of embeddings.
LLAMA_API bool access_on_devices(const llama_model * model);
// The device that computes the output projection: may be the CPU, or the one that represents a whole tensor split.
LLAMA_API ggml_backend_dev_t access_output_device(const llama_model * model);
// Whether each device has a kernel for the flash attention of its layers, as the context's graph has it (K's and V's
// types, sizes of heads): attention without one runs on the CPU. The log names the first that has none. For a new
// context.
LLAMA_API bool access_attends_on_devices(const llama_context * ctx);
// Whether a target with recurrent states can hold trees (llama_memory_set_tree_capacity).
LLAMA_API bool access_has_tapes(const llama_model * model);
// Bytes of one sequence's recurrent state of a model that keeps copies of it to go back to (n_rs_seq), 0: it keeps
// none.
LLAMA_API size_t access_snapshot_bytes(const llama_model * model);
// Bytes of one sequence's recurrent state, and of the tape that rolls it back.
struct state_bytes {
    size_t state, tape;
};
LLAMA_API state_bytes access_state_bytes(const llama_context * ctx);
// Bytes of all tapes, by buffer type.
LLAMA_API std::map<ggml_backend_buffer_type_t, size_t> access_tapes(const llama_context * ctx);
// Allocates the memory of passes again, if their outputs have changed since the context was created.
LLAMA_API void access_reserve(llama_context * ctx);
// Takes the host's memory for n rows of outputs. False: there is none.
LLAMA_API bool access_reserve_outputs(llama_context * ctx, int32_t n);
LLAMA_API std::string access_arch(const llama_model * model);
// Whether the model's graph falls back to dense attention if sequences share one KV cache, because its sparse attention
// finds blocks of cells by their positions.
LLAMA_API bool access_needs_streams(const llama_model * model);
// Limits the length of a sequence to less than the context: graphs choose the factors of LongRoPE by it.
LLAMA_API void access_limit_sequences(llama_context * ctx, uint32_t n_ctx_seq);
// Which factors of LongRoPE the context's graphs turn K by: 0 where there is no choice, 1 the short ones, 2 the long.
LLAMA_API int32_t access_rope_factors(const llama_context * ctx);
// Whether the architecture's graph can output the input of layer `layer` as a tap (other graphs abort).
LLAMA_API bool access_has_tap(const llama_model * model, int32_t layer);
// The architectures with taps, by general.architecture: of all layers' inputs; of the last layer's output, too.
struct tapped_archs {
    std::vector<std::string> all, to_the_end;
};
LLAMA_API tapped_archs access_tapped_archs();

// Why the last bits of a row's logits may depend on the rest of the pass or on the number of threads. Empty if they do
// not: drafted text is then bit for bit plain text (docs/kernels.md).
LLAMA_API std::string access_row_variance(const llama_context * ctx);

// How the vocabulary splits texts into words: with code that takes any text; with std::regex, which needs stack space
// for each character of a match; or with a regex that also takes quadratic time for a run of spaces or digits.
enum class splitter { any_text, recursive, quadratic };
LLAMA_API splitter access_splitter(const llama_vocab * vocab);

}   // namespace dflash

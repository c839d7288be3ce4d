// The one window into llama.cpp's internals: what the engine asks of a loaded target and its context. The sources of
// this folder are compiled into libllama, because on Windows and macOS a library hides its internals from others;
// libdflash uses public headers and what is declared here, in cache_access.h and in drafter_model.h.

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
    bool          scaled_output;   // NVFP4 scale beside the head
};
LLAMA_API target_heads access_heads(const llama_model * model);

// What a KV cache's cells hold. iSWA has two caches; a memory without cells has none.
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
// Keep each sequence's cells in the order of its tokens, whatever else shares the cache, so that sums over cells run in
// one order: plain KV caches, hybrids' and those of sliding windows that have the full size, where the host reaches
// them (patch 0009).
LLAMA_API void access_order_cells(llama_context * ctx);
// How often a cache had to be packed for it.
LLAMA_API int64_t access_packs(const llama_context * ctx);

LLAMA_API std::vector<ggml_backend_dev_t> access_devices(const llama_model * model);
// Bytes of a model's weights, by buffer type.
LLAMA_API std::map<ggml_backend_buffer_type_t, size_t> access_weights(const llama_model * model);
// Of a model that was loaded without its data (no_alloc): its contexts take their memory as those of any model, which
// within a plan_scope is none. From then on access_weights() knows nothing of it.
LLAMA_API void access_plan_contexts(llama_model * model);
// Whether devices compute everything but the look-up of embeddings.
LLAMA_API bool access_on_devices(const llama_model * model);
// Where the output projection is computed: a device, the CPU, or the one that stands for all of a tensor split.
LLAMA_API ggml_backend_dev_t access_output_device(const llama_model * model);
// Whether a target with recurrent states can hold trees (llama_memory_set_tree_capacity).
LLAMA_API bool access_has_tapes(const llama_model * model);
// Bytes of one sequence's recurrent state, and of what rolls it back.
struct state_bytes {
    size_t state, tape;
};
LLAMA_API state_bytes access_state_bytes(const llama_context * ctx);
// Bytes of all tapes, by buffer type.
LLAMA_API std::map<ggml_backend_buffer_type_t, size_t> access_tapes(const llama_context * ctx);
// Takes the memory of passes ahead, where what they give out has changed since the context was made.
LLAMA_API void access_reserve(llama_context * ctx);
LLAMA_API std::string access_arch(const llama_model * model);
// Whether the model's graph leaves out its sparse attention where sequences share one KV cache: it finds blocks of
// cells by their positions, and falls back to dense attention.
LLAMA_API bool access_needs_streams(const llama_model * model);
// Of how many tokens a sequence may be, where it may not fill the context: graphs choose the factors of LongRoPE by it.
LLAMA_API void access_limit_sequences(llama_context * ctx, uint32_t n_ctx_seq);
// Whether the architecture's graph offers the input of layer `layer` as a tap (others would abort when asked).
LLAMA_API bool access_has_tap(const llama_model * model, int32_t layer);
// The architectures that offer taps, by general.architecture: of their layers' inputs; of the last layer's output, too.
struct tapped_archs {
    std::vector<std::string> all, to_the_end;
};
LLAMA_API tapped_archs access_tapped_archs();

// Why a row's logits may depend, in their last bits, on what else is in the pass or on the number of threads; empty if
// they do not: then drafted text is plain text bit for bit (docs/kernels.md).
LLAMA_API std::string access_row_variance(const llama_context * ctx);

// How the vocabulary splits texts into words: by code that takes any text, by std::regex, which needs stack for each
// character of a match, or by one that needs time squared besides, for a run of spaces or digits.
enum class splitter { any_text, recursive, quadratic };
LLAMA_API splitter access_splitter(const llama_vocab * vocab);

}   // namespace dflash

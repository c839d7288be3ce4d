// Logits of a target whose head is computed on a device stay there. The graph finds what greedy and top-k sampling need
// of each row, and only that is copied to the host; a whole row is copied on demand. Part of libllama: patches/0024
// calls add_best_logits() from llama_model::build_graph() and keep_logits() from llama_context::decode().

#pragma once

#include "llama.h"

#include "ggml-backend.h"

#include <cstdint>
#include <vector>

struct llama_cparams;
struct llama_ubatch;
struct llm_graph_context;
class llm_graph_result;

namespace dflash {

// What sampling needs of each row of logits, the least first: where one is enough, so are those after it.
enum class needed_logits {
    largest,     // the token with the largest logit
    top,         // the TOP_LOGITS largest logits
    whole_row,   // all of them: the pass looks for nothing, and whole rows are read
};
constexpr int32_t TOP_LOGITS = 64;

// Outputs of a graph, or null.
struct best_logits_tensors {
    ggml_tensor * ids    = nullptr;   // I32 [1 or TOP_LOGITS, rows]
    ggml_tensor * values = nullptr;   // F32 [1, TOP_LOGITS, rows] in the order of ids
};

class LLAMA_API logit_store {
  public:
    // Whether a device can find them.
    static bool can_find(ggml_backend_dev_t device, int32_t n_vocab);

    explicit logit_store(int32_t n_vocab) : n_vocab_(n_vocab) {}
    logit_store(const logit_store &) = delete;

    needed_logits wanted = needed_logits::whole_row;   // in all later passes

    // For the batch's row i, after a pass. Null or false: the host has all rows of this pass (llama_get_logits_ith).
    const float * row(int32_t i);
    bool          largest(int32_t i, int32_t & token) const;
    // In descending order; logits not included are not larger than the last one.
    bool top(int32_t i, std::vector<llama_token_data> & out) const;

    // For llama_context (logit_store.cpp).
    bool keep(const llm_graph_result & res, const llama_ubatch & ubatch, ggml_backend_sched_t sched);
    void forget() { rows_.clear(); }

  private:
    int32_t index(int32_t i) const { return i >= 0 && i < (int32_t) rows_.size() ? rows_[i] : -1; }

    int32_t              n_vocab_;
    needed_logits        found_  = needed_logits::whole_row;
    const ggml_tensor *  logits_ = nullptr;
    std::vector<int32_t> rows_;   // per row of the batch, its row of logits, -1: none. empty: all on the host
    std::vector<int32_t> ids_;    // as in best_logits_tensors
    std::vector<float>   values_;
    std::vector<std::vector<float>> fetched_;   // per row of logits, empty: not read yet
};

// From now on the context's logits stay on the head's device; the store must outlive the context.
LLAMA_API void          access_set_logit_store(llama_context * ctx, logit_store * store);
LLAMA_API logit_store * access_logit_store(const llama_context * ctx);
// The device that computes the head, or null if it is the host.
LLAMA_API ggml_backend_dev_t access_head_device(const llama_model * model);

void add_best_logits(llm_graph_context & graph);
// After a pass: whether the logits stay on the device. A batch of n_tokens rows that takes several passes copies them
// to the host.
bool keep_logits(const llama_cparams & cparams, const llm_graph_result & res, const llama_ubatch & ubatch,
    uint32_t n_tokens, ggml_backend_sched_t sched);

}   // namespace dflash

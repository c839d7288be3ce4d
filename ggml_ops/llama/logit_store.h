// Logits of a target whose head computes on a device: they stay there. What greedy and top-k sampling need of each row
// is found in the graph and comes to the host; a whole row comes when somebody asks for it. Part of libllama:
// patches/0024 calls add_best_logits() from llama_model::build_graph() and keep_logits() from llama_context::decode().

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

// What a pass finds of each row of logits.
enum class best_logits {
    none,      // nothing: rows are looked at whole
    largest,   // the largest one's token
    top,       // the TOP_LOGITS largest ones
};
constexpr int32_t TOP_LOGITS = 64;

// Outputs of a graph, null where it has none.
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

    best_logits wanted = best_logits::none;   // by the passes from now on

    // Of the batch's row i, after a pass. Null or false: the host has all rows of this pass (llama_get_logits_ith).
    const float * row(int32_t i);
    bool          largest(int32_t i, int32_t & token) const;
    // In descending order; those that may be missing are not larger than the last.
    bool top(int32_t i, std::vector<llama_token_data> & out) const;

    // For llama_context (logit_store.cpp).
    bool keep(const llm_graph_result & res, const llama_ubatch & ubatch, ggml_backend_sched_t sched);
    void forget() { rows_.clear(); }

  private:
    int32_t index(int32_t i) const { return i >= 0 && i < (int32_t) rows_.size() ? rows_[i] : -1; }

    int32_t                         n_vocab_;
    best_logits                     found_  = best_logits::none;
    const ggml_tensor *             logits_ = nullptr;
    std::vector<int32_t>            rows_;   // of the batch: rows of the logits, -1: none. empty: all are on the host
    std::vector<int32_t>            ids_;    // as in best_logits_tensors
    std::vector<float>              values_;
    std::vector<std::vector<float>> fetched_;   // by row of the logits, empty: not yet
};

// From now on the context's logits stay on the device of its head; the store must outlive it.
LLAMA_API void          access_set_logit_store(llama_context * ctx, logit_store * store);
LLAMA_API logit_store * access_logit_store(const llama_context * ctx);
// The device that computes the head; null if that is the host.
LLAMA_API ggml_backend_dev_t access_head_device(const llama_model * model);

void add_best_logits(llm_graph_context & graph);
// After a pass: whether the logits stay. A batch of n_tokens rows that takes several passes goes over the host.
bool keep_logits(const llama_cparams & cparams, const llm_graph_result & res, const llama_ubatch & ubatch,
    uint32_t n_tokens, ggml_backend_sched_t sched);

}   // namespace dflash

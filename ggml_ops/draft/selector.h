// What a drafter proposes for each position, from its hidden states and logits. A selector has two halves: nodes of the
// graph that leave candidates and their scores as outputs, and what the host makes of these outputs.

#pragma once

#include "draft/graph.h"
#include "draft/tree.h"
#include "llama/drafter_model.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace dflash {

// Full outputs of one block, for parity tests.
struct draft_probe {
    std::vector<float>   hidden;   // [length, n_embd] after the final norm
    std::vector<float>   logits;   // [length, n_logits]
    std::vector<int32_t> ids;      // [length - 1, top_k]
    // DFlash: log-probabilities [length - 1, top_k]; DFlash 2: pair scores [length - 1, top_k, top_k]
    std::vector<float> scores;
};

class selector {
  public:
    explicit selector(int32_t top_k) : top_k_(top_k) {}
    virtual ~selector() = default;

    int32_t         top_k() const { return top_k_; }   // candidates of a position
    virtual bool    lattice() const  = 0;              // whether scores depend on the candidate before
    virtual int32_t n_scores() const = 0;              // of a position

    // Adds ids and scores of all drafted positions to the graph's outputs, from hidden states [n_embd, n_block] and
    // logits [n_logits, n_block].
    virtual void build(draft_graph & graph, ggml_tensor * hidden, ggml_tensor * logits) const = 0;
    // Makes candidates and probabilities, as tree.h describes them, of one slot's ids and scores. probe may be null.
    virtual void finish(draft & drafted, draft_probe * probe) const = 0;

  private:
    int32_t top_k_;
};

// DFlash: the top-k of each position. DFlash 2: the lattice of its candidate selector. The model has its output
// projection. Throws std::runtime_error.
std::unique_ptr<selector> make_selector(const drafter_model & model);

}   // namespace dflash

// Chooses what a drafter proposes for each position. A selector has two halves: graph nodes that output candidates and
// their scores, and code that turns these outputs into a draft on the host.

#pragma once

#include "draft/graph.h"
#include "draft/tree_growth.h"
#include "llama/drafter_model.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace dflash {

// Full outputs of one block, for parity tests.
struct draft_probe {
    std::vector<float>   hidden;   // [rows, n_embd] after the final norm
    std::vector<float>   logits;   // [n_head, n_logits]: of the block's first rows
    std::vector<int32_t> ids;      // [n_pos, top_k]
    // the marginals' logarithms [n_pos, top_k]; a lattice: pair scores [n_pos, top_k, top_k]
    std::vector<float> scores;
};

class selector {
  public:
    explicit selector(int32_t top_k) : top_k_(top_k) {}
    virtual ~selector() = default;

    int32_t         top_k() const { return top_k_; }   // candidates of a position
    virtual int32_t n_scores() const = 0;              // of a position

    // Adds what later passes need of the tap rows [n_embd, n_inject]: to every graph that injects.
    virtual void keep(draft_graph & /* graph */, ggml_tensor * /* taps */) const {}
    // Adds ids and scores of all drafted positions to the graph's outputs, from hidden states [n_embd, n_head *
    // n_slots] and logits [n_logits, n_head * n_slots].
    virtual void build(draft_graph & graph, ggml_tensor * hidden, ggml_tensor * logits) const = 0;
    // Fills in candidates and probabilities, as tree_growth.h describes them, from one slot's ids and scores. probe may
    // be null.
    virtual void finish(draft & drafted, draft_probe * probe) const = 0;

  protected:
    // finish() for scores of all pairs: probabilities of each candidate given each previous one.
    void finish_pairs(draft & drafted, draft_probe * probe) const;

  private:
    int32_t top_k_;
};

// The selector for the model's kind. The model must have its output projection, and its target_ids if there are any.
// n_slots: those of the drafter. Throws std::runtime_error.
std::unique_ptr<selector> make_selector(const drafter_model & model, int32_t n_slots);

// ---- parts of graphs ----

// Rows [from, from + n) of every block of `length` rows: [n_any, length * n_slots] -> [n_any, n * n_slots].
ggml_tensor * rows_of_blocks(const draft_graph & graph, ggml_tensor * rows, int64_t length, int64_t from, int64_t n);
// The rows that propose: [n_any, n_head * n_slots] -> [n_any, n_out].
ggml_tensor * proposing_rows(const draft_graph & graph, ggml_tensor * rows);
// rows [n, n_out] at ids [top_k, n_out] -> [top_k, n_out].
ggml_tensor * pick(ggml_context * ctx, ggml_tensor * rows, ggml_tensor * ids);
// The target's tokens of candidates, in the same shape.
ggml_tensor * target_tokens(ggml_context * ctx, const drafter_model & model, ggml_tensor * ids);
// Rows of a table [n, tokens] for the candidates [k, n_out] -> [n, k, n_pos, n_slots], and for those one position
// before, where the first position has the anchor k times.
ggml_tensor * rows_of_candidates(const draft_graph & graph, ggml_tensor * table, ggml_tensor * tokens);
ggml_tensor * rows_before(const draft_graph & graph, ggml_tensor * table, ggml_tensor * tokens);
// weight [n, m] times all rows [n, a, b, c], contiguous, as one matrix -> [m, a, b, c].
ggml_tensor * product(ggml_context * ctx, ggml_tensor * weight, ggml_tensor * rows);
// Embeddings of tokens, k for a place [k, n] -> [n_embd, k, n / n_slots, n_slots].
ggml_tensor * embed(const draft_graph & graph, const drafter_model & model, ggml_tensor * ids, int64_t k);

}   // namespace dflash

// Trees in a batch: checks the rows' parents and makes sure that a pass gets each tree whole. Part of libllama:
// patches/0003 calls it from llama_batch_allocr.

#pragma once

#include "llama-cparams.h"
#include "llama/llama_tree.h"

#include <bitset>
#include <cstdint>
#include <memory>
#include <vector>

namespace dflash {

// The parents of an ubatch's rows: a row of the ubatch, LLAMA_PARENT_NONE, LLAMA_PARENT_PADDING, or LLAMA_PARENT_UNSET
// outside of trees. Empty if the batch has no trees.
struct ubatch_parents {
    std::shared_ptr<const std::vector<int32_t>> rows;

    explicit operator bool() const { return rows != nullptr; }
    int32_t  operator[](uint32_t i) const { return (*rows)[i]; }

    bool in_tree(uint32_t i) const { return rows && (*rows)[i] != LLAMA_PARENT_UNSET; }
    bool is_tree() const { return in_tree(0); }   // equal splits: either all rows belong to trees or none
};

class batch_trees {
  public:
    // Reads and checks the parents of a batch. Logs and returns false if they do not form trees, if the memory cannot
    // hold them, or if a sequence has an uncommitted tree.
    bool init(const llama_batch_ext & ext, const llama_batch & batch);

    // Whether the sequence's rows in this batch form a tree.
    bool has(llama_seq_id seq_id) const { return !n_rows_.empty() && n_rows_[seq_id] > 0; }

    // Whether row `idx`, the next of an ubatch with room for n_free more rows, may join it. A tree that does not fit
    // starts the next ubatch.
    bool fits(int32_t idx, uint32_t n_free) const;

    // For splits of equal length: keeps only the sequence sets that can share an ubatch with the first one, because
    // their trees have the same size. consecutive: also drops all sets after the first one that cannot.
    void keep_equal(std::vector<std::bitset<LLAMA_MAX_SEQ>> & seq_sets, uint32_t n_ubatch, bool consecutive) const;

    // The parents for the ubatch with the batch's rows `idxs`. Logs and returns false if the ubatch splits a tree.
    bool split(const std::vector<int32_t> & idxs, ubatch_parents & parents) const;

  private:
    bool check_sequences(const llama_batch_ext & ext, const llama_batch & batch);
    bool add_row(const llama_batch_ext & ext, const llama_batch & batch, int32_t i);

    std::vector<int32_t>      parent_;    // per row, as in ubatch_parents, but indices of the batch. empty: no trees
    std::vector<llama_seq_id> seq_;       // per row, the first sequence if there are several
    std::vector<int32_t>      prev_;      // per row, the previous row of its sequence, -1: none
    std::vector<bool>         is_tree_;   // per sequence
    std::vector<int32_t>      n_rows_;    // per sequence, rows of its tree, 0: none. empty: no trees
};

}   // namespace dflash

#include "llama/batch_trees.h"

#include "llama-batch.h"
#include "llama-impl.h"
#include "llama/tree_memory.h"

#include <algorithm>

namespace dflash {

bool batch_trees::init(const llama_batch_ext & ext, const llama_batch & batch) {
    parent_.clear();
    n_rows_.clear();

    if (!check_sequences(ext, batch)) {
        return false;
    }
    if (std::find(is_tree_.begin(), is_tree_.end(), true) == is_tree_.end()) {
        return true;
    }
    if (!tree_memory(ext.mem).can_tree() || !batch.token) {
        LLAMA_LOG_ERROR("%s: trees need a batch of tokens and a memory that can hold siblings\n", __func__);
        return false;
    }

    parent_.assign(batch.n_tokens, LLAMA_PARENT_UNSET);
    n_rows_.assign(ext.n_seq_max, 0);

    for (int32_t i = 0; i < batch.n_tokens; ++i) {
        if (is_tree_[seq_[i]] && !add_row(ext, batch, i)) {
            return false;
        }
    }
    return true;
}

// Finds the sequences that are trees: one of their rows is marked as root or padding, or has another parent than the
// previous row.
bool batch_trees::check_sequences(const llama_batch_ext & ext, const llama_batch & batch) {
    const tree_memory mem(ext.mem);

    std::vector<int32_t> last(ext.n_seq_max, -1);   // the newest row of each sequence

    seq_.resize(batch.n_tokens);
    prev_.resize(batch.n_tokens);
    is_tree_.assign(ext.n_seq_max, false);

    for (int32_t i = 0; i < batch.n_tokens; ++i) {
        seq_[i]  = batch.seq_id[i][0];
        prev_[i] = last[seq_[i]];
        for (int32_t s = 0; s < batch.n_seq_id[i]; ++s) {
            const llama_seq_id seq_id = batch.seq_id[i][s];

            if (last[seq_id] < 0 && mem.has_tree(seq_id)) {
                LLAMA_LOG_ERROR("%s: sequence %d has a tree that was not committed\n", __func__, seq_id);
                return false;
            }
            last[seq_id] = i;
        }
        const int32_t named = ext.tokens[i].parent;
        if (named != LLAMA_PARENT_UNSET && (named < 0 || named != prev_[i])) {
            is_tree_[seq_[i]] = true;
        }
    }
    return true;
}

bool batch_trees::add_row(const llama_batch_ext & ext, const llama_batch & batch, int32_t i) {
    const int32_t capacity = tree_memory(ext.mem).capacity();
    const int32_t row      = n_rows_[seq_[i]]++;
    const int32_t named    = ext.tokens[i].parent;
    const int32_t p        = named != LLAMA_PARENT_UNSET ? named : row == 0 ? (int32_t) LLAMA_PARENT_NONE : prev_[i];

    const bool adjacent = prev_[i] == i - 1;

    bool ok = batch.n_seq_id[i] == 1 && row < capacity;
    if (row == 0) {
        ok = ok && p == LLAMA_PARENT_NONE;
    } else if (p == LLAMA_PARENT_PADDING) {
        ok = ok && adjacent && batch.pos[i] == batch.pos[i - row];
    } else {
        ok = ok && adjacent && p >= 0 && p < i && seq_[p] == seq_[i] && parent_[p] != LLAMA_PARENT_PADDING &&
             batch.pos[i] == batch.pos[p] + 1;
    }
    if (!ok) {
        LLAMA_LOG_ERROR("%s: token %d cannot be a child of token %d: the at most %d tokens of a tree are adjacent, "
                        "belong to one sequence, follow their parents and have the position after their parent's\n",
            __func__, i, p, capacity);
        return false;
    }

    parent_[i] = p;

    return true;
}

bool batch_trees::fits(int32_t idx, uint32_t n_free) const {
    return parent_.empty() || seq_[idx] == seq_[idx - 1] || n_rows_[seq_[idx]] <= (int32_t) n_free;
}

void batch_trees::keep_equal(
    std::vector<std::bitset<LLAMA_MAX_SEQ>> & seq_sets, uint32_t n_ubatch, bool consecutive) const {
    if (parent_.empty()) {
        return;
    }

    const auto size = [this](const std::bitset<LLAMA_MAX_SEQ> & set) -> uint32_t {
        for (size_t s = 0; s < n_rows_.size(); ++s) {
            if (n_rows_[s] > 0 && set.test(s)) {
                return set.count() == 1 ? n_rows_[s] : 0;   // a tree's rows belong to one sequence only
            }
        }
        return 0;
    };

    for (size_t s = 1; s < seq_sets.size();) {
        if (size(seq_sets[s]) == size(seq_sets[0]) && (s + 1) * size(seq_sets[0]) <= n_ubatch) {
            ++s;
        } else if (consecutive) {
            seq_sets.resize(s);
        } else {
            seq_sets.erase(seq_sets.begin() + s);
        }
    }
}

bool batch_trees::split(const std::vector<int32_t> & idxs, ubatch_parents & parents) const {
    if (parent_.empty()) {
        return true;
    }

    std::vector<int32_t> rows(idxs.size());
    std::vector<int32_t> row_of(parent_.size(), -1);   // the ubatch's row of each row of the batch
    std::vector<int32_t> n_taken(n_rows_.size(), 0);

    for (size_t i = 0; i < idxs.size(); ++i) {
        const int32_t p = parent_[idxs[i]];
        row_of[idxs[i]] = i;
        rows[i]         = p < 0 ? p : row_of[p];
        n_taken[seq_[idxs[i]]]++;
    }
    for (size_t s = 0; s < n_rows_.size(); ++s) {
        if (n_rows_[s] > 0 && n_taken[s] > 0 && n_taken[s] != n_rows_[s]) {
            LLAMA_LOG_ERROR(
                "%s: the tree of sequence %d (%d tokens) does not fit one ubatch\n", __func__, (int) s, n_rows_[s]);
            return false;
        }
    }

    parents.rows = std::make_shared<const std::vector<int32_t>>(std::move(rows));

    return true;
}

}   // namespace dflash

bool llama_batch_ext_set_parent(llama_batch_ext * batch, int32_t idx, int32_t parent) {
    if (idx < 0 || idx >= (int32_t) batch->tokens.size() || parent < LLAMA_PARENT_PADDING || parent >= idx) {
        return false;
    }
    batch->tokens[idx].parent = parent;
    return true;
}

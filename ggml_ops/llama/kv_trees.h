// Trees in a KV cache: the cells of uncommitted trees, what each of their rows may see, and what remains of them. Part
// of libllama: patches/0003 calls it from llama_kv_cache.

#pragma once

#include "llama.h"

#include <cstdint>
#include <map>
#include <vector>

class llama_kv_cache;
struct llama_ubatch;

namespace dflash {

// The rows of a sequence's last batch.
struct kv_tree {
    std::vector<uint32_t> cells;    // per row
    std::vector<int32_t>  parent;   // per row, the row of its parent, LLAMA_PARENT_NONE or LLAMA_PARENT_PADDING
    std::vector<uint64_t> seen;     // per row, the bit set of its ancestors and itself
    llama_pos             pos_min;
    llama_pos             pos_max;
};

// Whether path[n] begins with the root of a tree with these parents, and each of its rows is the parent of the next.
bool is_path(const std::vector<int32_t> & parents, const int32_t * path, int32_t n);

class kv_trees {
  public:
    explicit kv_trees(llama_kv_cache & kv) : kv_(kv) {}

    std::map<llama_seq_id, kv_tree> open;   // uncommitted

    bool possible() const;
    bool has(llama_seq_id seq_id) const { return open.find(seq_id) != open.end(); }
    bool has_path(llama_seq_id seq_id, const int32_t * path, int32_t n_path) const;
    void commit(llama_seq_id seq_id, const int32_t * path, int32_t n_path);

    // Whether an open tree forbids changing the sequence. Logs it.
    bool refuses(llama_seq_id seq_id) const;

    // Call before removing positions [p0, p1) (seq_id < 0: of all sequences), or all other sequences of the stream.
    // seq_rm() returns false if the range contains only part of a tree.
    bool seq_rm(llama_seq_id seq_id, llama_pos p0, llama_pos p1);
    void seq_keep(llama_seq_id seq_id);

    // The sequence's last certain position: `pos_max`, or the one before its open tree.
    llama_pos last_pos(llama_seq_id seq_id, llama_pos pos_max) const {
        const auto it = open.find(seq_id);
        return it == open.end() ? pos_max : it->second.pos_min - 1;
    }

    // Records that row i of the ubatch has taken this cell. Call in the rows' order.
    void add_row(const llama_ubatch & ubatch, uint32_t i, uint32_t cell);

    // Masks in [n_kv, n_tokens] (F16 or F32) all cells of a row's tree except its ancestors' and its own.
    void mask(ggml_tensor * kq_mask, const llama_ubatch & ubatch) const;

    // Call before saving the state of a sequence (-1: of all). Throws std::runtime_error if it has an open tree.
    void check_saved(llama_seq_id seq_id) const;

    // Whether K and V are in host memory.
    bool on_host() const;

    // Moves n cells with their K and V in all layers. The destination must be empty, or lower and may then overlap.
    // Requires on_host().
    void move_cells(uint32_t strm, uint32_t src, uint32_t dst, uint32_t n);

  private:
    llama_kv_cache & kv_;
};

}   // namespace dflash

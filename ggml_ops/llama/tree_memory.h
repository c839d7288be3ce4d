// Treats the parts of a memory that hold trees as one. Memories that derive data from positions cannot hold trees,
// because siblings have the same position.

#pragma once

#include "llama.h"

#include <cstdint>

struct llama_memory_i;

namespace dflash {

class kv_trees;
class state_tapes;

class tree_memory {
  public:
    explicit tree_memory(llama_memory_i * mem);   // null: cannot hold trees

    bool    can_tree() const;
    int32_t capacity() const;   // max. rows of a tree
    bool    set_capacity(int32_t n_rows);

    bool has_tree(llama_seq_id seq_id) const;   // an uncommitted one
    bool has_path(llama_seq_id seq_id, const int32_t * path, int32_t n_path) const;
    void commit(llama_seq_id seq_id, const int32_t * path, int32_t n_path);   // needs has_path()

    // Call if a pass over the sequence has failed, with its first row at position pos: forgets what it may have
    // written.
    void seq_fail(llama_seq_id seq_id, llama_pos pos);

  private:
    llama_memory_i * mem_;
    kv_trees *       kv_    = nullptr;
    kv_trees *       swa_   = nullptr;   // the second cache of a model with sliding windows
    state_tapes *    tapes_ = nullptr;
};

}   // namespace dflash

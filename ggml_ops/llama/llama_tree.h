// Trees of tokens in llama.cpp's C interface: one pass verifies a whole draft tree, and one of its paths is kept
// (docs/trees.md). Part of libllama, beside llama.h.

#pragma once

#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

enum llama_parent {
    LLAMA_PARENT_NONE    = -1,   // the token begins a tree, which may be a chain
    LLAMA_PARENT_PADDING = -2,   // the token only pads the pass; its position is that of the tree's first token
    LLAMA_PARENT_UNSET   = -3,   // not set: the token follows the previous one of its sequence
};

// Makes the token at index idx a child of the token at index parent, or sets LLAMA_PARENT_NONE or _PADDING.
// The sequence's tokens in the batch then form one tree: they are adjacent, belong to a single sequence, come after
// their parents, and have the position after their parent's. A token attends to the committed past, its ancestors and
// itself.
// Requires llama_memory_can_tree(); end with llama_memory_seq_commit(). Returns false if idx or parent is out of range.
LLAMA_API bool llama_batch_ext_set_parent(struct llama_batch_ext * batch, int32_t idx, int32_t parent);

// Whether rows of a batch may form trees.
LLAMA_API bool llama_memory_can_tree(llama_memory_t mem);

// Lets a memory with recurrent states (qwen35, qwen35moe, qwen3next; n_rs_seq must be 0) hold trees of at most n_rows
// rows, 1..64; other memories always hold 64. Allocates the memory for all sequences; cannot be changed later. Returns
// false if the memory has no recurrent states, cannot hold trees, or is out of memory.
LLAMA_API bool llama_memory_set_tree_capacity(llama_memory_t mem, int32_t n_rows);

// Ends the tree that the sequence's last batch has put into the memory: keeps the rows of one path and frees the
// others. path[n_path] are indices of the sequence's rows, starting with the first row, each the parent of the next;
// n_path == 0 frees all. Until then the sequence cannot be decoded, copied, shifted or saved.
// Returns false and changes nothing if there is no such tree or path.
LLAMA_API bool llama_memory_seq_commit(llama_memory_t mem, llama_seq_id seq_id, const int32_t * path, int32_t n_path);

#ifdef __cplusplus
}
#endif

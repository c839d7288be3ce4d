#include "llama/tree_memory.h"

#include "llama-kv-cache.h"
#include "llama-memory-recurrent.h"
#include "llama/llama_tree.h"
#include "llama/memory_parts.h"

namespace dflash {

tree_memory::tree_memory(llama_memory_i * mem) : mem_(mem) {
    const memory_parts parts(mem);
    kv_    = parts.kv ? &parts.kv->trees : nullptr;
    swa_   = parts.window ? &parts.window->trees : nullptr;
    tapes_ = parts.states ? &parts.states->tapes : nullptr;
}

bool tree_memory::can_tree() const {
    return kv_ && kv_->possible() && (!swa_ || swa_->possible()) && (!tapes_ || tapes_->capacity > 0);
}

int32_t tree_memory::capacity() const { return tapes_ ? tapes_->capacity : 64; }

bool tree_memory::set_capacity(int32_t n_rows) { return tapes_ && kv_->possible() && tapes_->set_capacity(n_rows); }

bool tree_memory::has_tree(llama_seq_id seq_id) const {
    return (kv_ && kv_->has(seq_id)) || (swa_ && swa_->has(seq_id)) || (tapes_ && tapes_->has_tree(seq_id));
}

bool tree_memory::has_path(llama_seq_id seq_id, const int32_t * path, int32_t n_path) const {
    return kv_ && kv_->has_path(seq_id, path, n_path) && (!swa_ || swa_->has_path(seq_id, path, n_path)) &&
           (!tapes_ || tapes_->has_path(seq_id, path, n_path));
}

void tree_memory::commit(llama_seq_id seq_id, const int32_t * path, int32_t n_path) {
    kv_->commit(seq_id, path, n_path);
    if (swa_) {
        swa_->commit(seq_id, path, n_path);
    }
    if (tapes_) {
        tapes_->commit(seq_id, path, n_path);
    }
}

void tree_memory::seq_fail(llama_seq_id seq_id, llama_pos pos) {
    // some recurrent layers may have applied a path and others not: such a state is lost
    mem_->seq_rm(seq_id, tapes_ && can_tree() ? -1 : pos, -1);
}

}   // namespace dflash

bool llama_memory_can_tree(llama_memory_t mem) { return dflash::tree_memory(mem).can_tree(); }

bool llama_memory_set_tree_capacity(llama_memory_t mem, int32_t n_rows) {
    return dflash::tree_memory(mem).set_capacity(n_rows);
}

bool llama_memory_seq_commit(llama_memory_t mem, llama_seq_id seq_id, const int32_t * path, int32_t n_path) {
    dflash::tree_memory trees(mem);
    const bool          can_commit = trees.has_path(seq_id, path, n_path);
    if (can_commit) {
        trees.commit(seq_id, path, n_path);
    }
    return can_commit;
}

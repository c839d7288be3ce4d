#include "target/memory.h"

#include "base/error.h"
#include "base/log.h"
#include "llama/access.h"
#include "llama/cache_access.h"
#include "llama/llama_tree.h"
#include "target/rpc_servers.h"

#include <algorithm>

namespace dflash {

static uint32_t state_flags(bool partial) { return partial ? LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY : 0; }

memory::memory(llama_context * ctx, bool tapes, const rpc_servers & rpc) : ctx_(ctx), rpc_(&rpc), tapes_(tapes) {
    const llama_model * model = llama_get_model(ctx);
    recurrent_                = llama_model_is_recurrent(model) || llama_model_is_hybrid(model);
    n_swa_                    = recurrent_ ? 0 : llama_model_n_swa(model);
    drops_cells_              = recurrent_ || access_drops_cells(ctx);
    reads_all_cells_          = !access_on_host(ctx);
}

void memory::need_tapes(int32_t n_nodes) {
    if (tape_rows_ > 0) {
        return;
    }
    if (!llama_memory_set_tree_capacity(memory_of(), n_nodes)) {
        throw status_error(DFLASH_ERROR_MEMORY, "no memory for trees of ", n_nodes, " nodes: ", logged_error());
    }
    tape_rows_ = n_nodes;
}

std::string memory::no_tree() const {
    if (tapes_ || llama_memory_can_tree(memory_of())) {
        return "";
    }
    return "the memory of the architecture " + access_arch(llama_get_model(ctx_)) + " holds " +
           (recurrent_ ? "one state per sequence" : "data derived from positions") + ": it cannot keep siblings apart";
}

int32_t memory::reach(int32_t seq, int32_t n_past) const {
    if (recurrent_) {
        return n_past;
    }
    // A sliding window may have dropped what its newest position does not see, or was copied without it.
    const llama_pos first = llama_memory_seq_pos_min(memory_of(), seq);
    return first <= 0 ? 0 : std::min(n_past, first + n_swa_ - 1);
}

int32_t memory::copied_reach(int32_t seq, int32_t n_past) const {
    // the copy of a sliding window holds only what the next token sees
    return n_swa_ > 0 && n_past > n_swa_ ? n_past - 1 : reach(seq, n_past);
}

void memory::forget(int32_t seq) { llama_memory_seq_rm(memory_of(), seq, -1, -1); }

void memory::forget_all(bool data) { llama_memory_clear(memory_of(), data); }

bool memory::cut(int32_t seq, int32_t n_past) { return llama_memory_seq_rm(memory_of(), seq, n_past, -1); }

bool memory::commit(int32_t seq, const std::vector<int32_t> & path) {
    return llama_memory_seq_commit(memory_of(), seq, path.data(), (int32_t) path.size());
}

bool memory::share(int32_t from, int32_t to) { return access_share_sequence(ctx_, from, to); }

size_t memory::size(int32_t seq) const { return llama_state_seq_get_size_ext(ctx_, seq, 0); }

raw_bytes memory::read(int32_t seq, bool partial) const {
    const uint32_t flags = state_flags(partial);
    raw_bytes      bytes(llama_state_seq_get_size_ext(ctx_, seq, flags));
    if (llama_state_seq_get_data_ext(ctx_, bytes.data(), bytes.size(), seq, flags) != bytes.size()) {
        bytes.clear();
    }
    rpc_->raise_failures();   // it would be zeros
    return bytes;
}

bool memory::write(int32_t seq, const raw_bytes & bytes, bool partial) {
    return !bytes.empty() &&
           llama_state_seq_set_data_ext(ctx_, bytes.data(), bytes.size(), seq, state_flags(partial)) == bytes.size();
}

std::string memory::refusal(const raw_bytes & bytes, const token_positions & tokens, bool partial) const {
    return access_check_state(ctx_, bytes.data(), bytes.size(), tokens, partial);
}

std::string memory::uncheckable() const { return access_uncheckable(ctx_); }

std::optional<int32_t> memory::used_cells() const { return access_used_cells(ctx_); }

std::optional<int32_t> memory::held_cells(const std::vector<int32_t> & seqs) const {
    return access_held_cells(ctx_, seqs);
}

}   // namespace dflash

// A context's memory, the target's or that of MTP layers: KV cells, sliding windows and recurrent states of all
// sequences. Nothing else calls llama_memory_* or llama_state_seq_*.

#pragma once

#include "base/raw_bytes.h"
#include "llama/state_check.h"

#include "llama.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dflash {

class rpc_servers;

class memory {
  public:
    // tapes: recurrent states are rolled back by tapes (need_tapes). The context and `rpc` must outlive this.
    memory(llama_context * ctx, bool tapes, const rpc_servers & rpc);

    // ---- what it can do ----

    bool recurrent() const { return recurrent_; }
    // Whether it rolls recurrent states back, of trees and of chains.
    bool tapes() const { return tapes_; }
    // Nodes of a tree that the tapes hold for each sequence, 0: there are none yet.
    int32_t tape_rows() const { return tape_rows_; }
    // Allocates tapes, once. Throws DFLASH_ERROR_MEMORY.
    void need_tapes(int32_t n_nodes);
    // Why it can hold only chains, empty if it can hold trees.
    std::string no_tree() const;
    // Whether it, or a copy of it, cannot go back to any token: checkpoints say where to.
    bool needs_checkpoints() const { return recurrent_ || n_swa_ > 0; }
    // Whether it cannot go back even where nothing was copied: it is recurrent, or drops cells that left a window.
    bool drops_cells() const { return drops_cells_; }
    // Whether passes read the cells of sequences that have no row in them, too.
    bool reads_all_cells() const { return reads_all_cells_; }
    // The fewest tokens that a sequence of n_past tokens can be cut back to, and a copy of it on the host.
    int32_t reach(int32_t seq, int32_t n_past) const;
    int32_t copied_reach(int32_t seq, int32_t n_past) const;

    // ---- what a sequence holds ----

    void forget(int32_t seq);
    void forget_all(bool data);   // data: K and V as well, not only which cells are used
    // Forgets positions from n_past on. False: it cannot.
    bool cut(int32_t seq, int32_t n_past);
    // Keeps one path of the tree of the last pass. False: there is no such tree or path.
    bool commit(int32_t seq, const std::vector<int32_t> & path);
    // Lets the empty sequence `to` share what `from` holds, without a copy. False: `to` may hold a part of it.
    bool share(int32_t from, int32_t to);
    // A copy on the host; partial: only of what cannot go back by itself. Empty: there is none. Throws std::bad_alloc.
    raw_bytes read(int32_t seq, bool partial = false) const;
    size_t    size(int32_t seq) const;   // bytes of read()
    // False: the sequence has lost its state.
    bool write(int32_t seq, const raw_bytes & bytes, bool partial = false);
    // What is wrong with bytes from outside as a state of these tokens, empty if they are one (llama/state_check.h).
    std::string refusal(const raw_bytes & bytes, const token_positions & tokens, bool partial) const;
    // Why bytes of this memory cannot be checked, empty if they can.
    std::string uncheckable() const;

    // ---- cells ----

    // Cells in use; nothing: it has none to count.
    std::optional<int32_t> used_cells() const;
    // Cells that these sequences hold, each counted once.
    std::optional<int32_t> held_cells(const std::vector<int32_t> & seqs) const;

  private:
    llama_memory_t memory_of() const { return llama_get_memory(ctx_); }

    llama_context *     ctx_;
    const rpc_servers * rpc_;
    bool                recurrent_, tapes_, drops_cells_, reads_all_cells_;
    int32_t             n_swa_;
    int32_t             tape_rows_ = 0;
};

}   // namespace dflash

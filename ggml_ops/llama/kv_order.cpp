#include "llama/kv_order.h"

#include "llama-kv-cache.h"

#include <algorithm>
#include <map>
#include <vector>

namespace dflash {

bool kv_order::enable() {
    // a cache that shares its cells with another does not own all of their data
    is_enabled_ = !kv_.other && kv_.trees.on_host();

    return is_enabled_;
}

bool kv_order::pack() {
    if (!is_enabled_ || kv_.get_has_shift() || kv_.v_cells_impl.use_count() > 1 + (long) n_views) {
        return false;
    }

    bool moved = false;
    for (uint32_t s = 0; s < kv_.n_stream; ++s) {
        moved = pack_stream(s) || moved;
    }
    n_packed += moved;

    return moved;
}

bool kv_order::pack_stream(uint32_t strm) {
    const auto &   cells = kv_.v_cells[strm];
    const uint32_t n     = cells.used_max_p1();

    std::vector<uint32_t> moved_to(n);   // the new index of each used cell

    bool     moved = false;
    uint32_t dst   = 0;

    for (uint32_t src = 0; src < n;) {
        uint32_t end = src;
        while (end < n && !cells.is_empty(end)) {
            moved_to[end] = dst + end - src;
            ++end;
        }

        if (src != dst && end > src) {
            kv_.trees.move_cells(strm, src, dst, end - src);
            moved = true;
        }

        dst += end - src;
        src = end + 1;
    }

    for (auto & [seq_id, tree] : kv_.trees.open) {
        for (uint32_t & cell : tree.cells) {
            cell = kv_.seq_to_stream[seq_id] == strm ? moved_to[cell] : cell;
        }
    }

    kv_.v_heads[strm] = dst;

    return moved;
}

}   // namespace dflash

llama_kv_cache::slot_info llama_kv_cache::find_slot_ordered(const llama_ubatch & ubatch) const {
    const uint32_t n_seqs   = n_stream > 1 ? ubatch.n_seqs_unq : 1;
    const uint32_t n_tokens = ubatch.n_tokens / n_seqs;

    slot_info slot = { LLAMA_MAX_SEQ, 0, {}, {} };
    slot.resize(n_seqs);

    for (uint32_t s = 0; s < n_seqs; ++s) {
        slot.strm[s] = seq_to_stream[ubatch.seq_id_unq[s]];
        slot.s0      = std::min<uint32_t>(slot.s0, slot.strm[s]);
        slot.s1      = std::max<uint32_t>(slot.s1, slot.strm[s]);

        const auto & cells = v_cells[slot.strm[s]];

        std::vector<bool>                taken(cells.size());
        std::map<llama_seq_id, uint32_t> above;   // per sequence, the first cell above its own

        for (uint32_t i = s * n_tokens; i < (s + 1) * n_tokens; ++i) {
            uint32_t idx = 0;

            for (int32_t k = 0; k < ubatch.n_seq_id[i]; ++k) {
                const auto & held = cells.seq_pos_get(ubatch.seq_id[i][k]);

                // the last token of a sequence has its highest cell
                const uint32_t first = held.empty() ? 0 : held.rbegin()->second + 1;
                idx                  = std::max(idx, above.emplace(ubatch.seq_id[i][k], first).first->second);
            }

            while (idx < cells.size() && (taken[idx] || !cells.is_empty(idx))) {
                ++idx;
            }

            if (idx == cells.size()) {
                return {};
            }

            taken[idx] = true;
            slot.idxs[s].push_back(idx);

            for (int32_t k = 0; k < ubatch.n_seq_id[i]; ++k) {
                above[ubatch.seq_id[i][k]] = idx + 1;
            }
        }
    }

    return slot;
}

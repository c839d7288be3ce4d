#include "engine/tree_padding.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace dflash {

// Prompts need rows and outputs of the pass, too, and change its graph.
static bool any_reads(const std::vector<slot> & slots) {
    return std::any_of(slots.begin(), slots.end(), [](const slot & s) { return s.reading(); });
}

std::vector<int32_t> tree_padding::sizes(const std::vector<slot> & slots, int32_t room) const {
    std::vector<int32_t> sizes;
    for (const slot & s : slots) {
        sizes.push_back(s.writing() ? s.drafts.tree.size() : 0);
    }
    limits_.equal_trees ? pad_to_equal(slots, room, sizes) : pad_last(slots, room, sizes);
    return sizes;
}

bool tree_padding::splits(const std::vector<int32_t> & sizes) const {
    const auto is_tree = [](int32_t n) { return n > 0; };
    const auto first   = std::find_if(sizes.begin(), sizes.end(), is_tree);
    return limits_.splits_trees &&
           std::any_of(first, sizes.end(), [&](int32_t n) { return is_tree(n) && n != *first; });
}

// Delta-net layers take trees of one size in a pass. Where one pass is cheaper than one for each size, smaller trees
// are padded.
void tree_padding::pad_to_equal(const std::vector<slot> & slots, int32_t room, std::vector<int32_t> & sizes) const {
    std::map<int32_t, int32_t> n_slots_of;   // by the size of their trees
    int32_t                    n_slots = 0, n_past = 0;
    for (const slot & s : slots) {
        if (s.writing()) {
            ++n_slots_of[s.drafts.tree.size()];
            ++n_slots;
            n_past = std::max(n_past, s.n_past());
        }
    }
    if (n_slots == 0) {
        return;
    }
    const bool    padded  = costs_.verify.padded();
    const int32_t largest = n_slots_of.rbegin()->first;
    const int32_t size = padded ? std::min(limits_.n_nodes, padded_rows(largest * n_slots, room) / n_slots) : largest;
    const int32_t most_rows = std::min(room, padded ? limits_.n_outputs : limits_.n_rows);
    double        apart_ms  = 0;
    for (const auto & [n_nodes, n] : n_slots_of) {
        apart_ms += costs_.verify.at(n_nodes * n);
    }
    const bool pays = padded ? !any_reads(slots) : costs_.verify.at(n_slots * size) < apart_ms;
    if (pays && n_past + size <= limits_.n_ctx_slot && n_slots * size <= most_rows) {
        std::replace_if(sizes.begin(), sizes.end(), [](int32_t n) { return n > 0; }, size);
    }
}

// Where trees of different sizes share a pass: pads the last one, if passes are padded.
void tree_padding::pad_last(const std::vector<slot> & slots, int32_t room, std::vector<int32_t> & sizes) const {
    const auto last = std::find_if(sizes.rbegin(), sizes.rend(), [](int32_t n) { return n > 0; });
    if (!costs_.verify.padded() || last == sizes.rend() || any_reads(slots)) {
        return;
    }
    const slot &  s       = slots[sizes.rend() - last - 1];
    const int32_t n_nodes = std::accumulate(sizes.begin(), sizes.end(), 0);
    const int32_t size    = *last + padded_rows(n_nodes, room) - n_nodes;
    if (!s.request.block_accept && s.n_past() + size <= limits_.n_ctx_slot && size <= limits_.n_nodes) {
        *last = size;
    }
}

// The width of a pass over n_rows rows.
int32_t tree_padding::padded_rows(int32_t n_rows, int32_t room) const {
    const int32_t most  = std::min(room, limits_.n_outputs);
    const int32_t width = width_.choose(costs_.verify.width(n_rows), most, costs_.verify, costs_.rebuild_ms);
    return width <= most ? width : n_rows;
}

}   // namespace dflash

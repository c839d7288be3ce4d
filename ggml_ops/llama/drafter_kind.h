// The kinds of drafters: how to recognize each in a GGUF, and what it supports. Code that reads files, builds graphs,
// checks requests or counts drafts looks up all differences between kinds here.
//
// A new kind has companions of its row: its tensors (llama/drafter_tensors.cpp) and keys (llama/drafter_model.cpp), a
// selector in draft/ and its line in selector.cpp, what its header must say (files/drafter_check.cpp), and its
// conversion (convert/kinds/). docs/contributing.md, "Add a drafter kind", has all steps.
//
// DFlare has no row: by all of this it is DFlash. Where it differs (files/drafter_check.cpp, draft/layers.cpp), its
// tensors tell: layer_fusion, and attn_k_ctx and attn_v_ctx of each layer.

#pragma once

#include "dflash.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dflash {

struct drafter_kind {
    enum kind_id { DFLASH, DFLASH2, DSPARK, DOMINO, LILICORR, MTP };

    kind_id      id;
    const char * name;           // in reports
    const char * title;          // in sentences
    const char * tensor;         // that every file of this kind has and no other; null: DFlash, what is left, and MTP
    bool         lattice;        // scores depend on the candidate before, so the probability of a drawn draft is known
    bool         anchor_first;   // the block's layout where the file does not say
    bool         whole_block;    // trained on blocks of one size: only its proposals are cut, not its rows
    bool         reduced_head;   // may have a vocabulary of its own (d2t)
    bool         head_in_part;   // some rows of a head that it shares are enough: it has no table with as many
    bool         needs_block_size;             // its file must give it
    int32_t      origin = DFLASH_BY_DRAFTER;   // dflash_origin of what it proposes
};

// clang-format off
inline constexpr drafter_kind DRAFTER_KINDS[] = {
    //                                                                         lattice anchor whole  reduced head   needs
    //                                                                                 first  block  head    in part size
    { drafter_kind::DFLASH,   "dflash",   "DFlash",   nullptr,                  false, false, false, true,  true,  false },
    { drafter_kind::DFLASH2,  "dflash2",  "DFlash 2", "selector_hidden.weight", true,  false, false, false, true,  true  },
    { drafter_kind::DSPARK,   "dspark",   "DSpark",   "markov_w1.weight",       true,  true,  true,  true,  false, true  },
    { drafter_kind::DOMINO,   "domino",   "Domino",   "domino_gru_ih.weight",   true,  false, true,  false, false, false },
    { drafter_kind::LILICORR, "lilicorr", "LiliCorr", "lilicorr_hidden.weight", true,  false, true,  false, true,  true  },
    // layers of the target's own, which no drafter's file has
    { drafter_kind::MTP,      "mtp",      "MTP",      nullptr,                  false, false, false, false, false, false,
        DFLASH_BY_MTP },
};
// clang-format on

inline constexpr const drafter_kind & MTP_KIND = DRAFTER_KINDS[drafter_kind::MTP];
static_assert(MTP_KIND.id == drafter_kind::MTP);

using drafter_kinds = std::vector<const drafter_kind *>;   // of several drafters

// The kind of a drafter with these tensors: has(name). refuse(tensor, why) is called for contradicting tensors.
template <class Has, class Refuse> const drafter_kind & find_drafter_kind(Has && has, Refuse && refuse) {
    const drafter_kind * found = &DRAFTER_KINDS[0];
    for (const drafter_kind & kind : DRAFTER_KINDS) {
        if (kind.tensor == nullptr || !has(kind.tensor)) {
            continue;
        }
        if (found->tensor != nullptr) {
            refuse(kind.tensor, std::string("does not go with '") + found->tensor + "': a drafter is of one kind");
        }
        found = &kind;
    }
    if (!found->reduced_head && has("d2t")) {
        refuse("d2t", std::string("is a reduced vocabulary, which no ") + found->title + " drafter has");
    }
    return *found;
}

}   // namespace dflash

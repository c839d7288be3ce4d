#include "engine/verified_tree.h"

namespace dflash {

static_assert(DFLASH_BY_LOOKUP + (int) quote_source::prediction == DFLASH_BY_PREDICTION &&
              DFLASH_BY_LOOKUP + (int) quote_source::answers == DFLASH_BY_ANSWERS);

static int32_t origin_of(const node & n, int32_t drafted_by, const quotation & quoted) {
    return n.depth == 0       ? DFLASH_BY_TARGET
           : n.candidate >= 0 ? drafted_by
                              : DFLASH_BY_LOOKUP + (int32_t) quoted.entries[n.entry].kind.source;
}

void verified_tree::set(
    const tree & t, int32_t drafted_by, const quotation & quoted, const std::vector<int32_t> & path) {
    clear();
    for (const node & n : t.nodes) {
        tokens_.push_back(n.token);
        parents_.push_back(n.parent);
        probs_.push_back(n.prob);
        values_.push_back(n.value);
        origins_.push_back(origin_of(n, drafted_by, quoted));
    }
    path_ = path;
}

dflash_verified_tree verified_tree::view() const {
    return { (int32_t) tokens_.size(), tokens_.data(), parents_.data(), probs_.data(), values_.data(), origins_.data(),
        (int32_t) path_.size(), path_.data() };
}

}   // namespace dflash

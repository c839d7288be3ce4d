// Quotations for tests.

#pragma once

#include "draft/quotation.h"

namespace dflash {

// These tokens after the anchor, each with the same probability.
inline quotation chain_quotation(
    const std::vector<int32_t> & tokens, float prob, quote_source source = quote_source::text) {
    quotation q;
    q.entries.emplace_back();
    for (const int32_t token : tokens) {
        quotation::entry & before = q.entries.back();
        before.first              = (int32_t) q.entries.size();
        before.n_after            = 1;
        quotation::entry e;
        e.token = token;
        e.depth = before.depth + 1;
        e.prob  = prob;
        e.value = before.value * prob;
        e.kind  = { source, quote_rank::alone, e.depth };
        q.entries.push_back(e);
    }
    return q;
}

// Places with their matched tokens, and what follows there.
inline continuations found_at(
    const std::vector<std::pair<int32_t, std::vector<int32_t>>> & places, quote_source source = quote_source::text) {
    continuations found;
    for (const auto & [matched, tokens] : places) {
        found.begin(source, matched);
        for (const int32_t token : tokens) {
            found.push(token);
        }
    }
    return found;
}

}   // namespace dflash

#include "draft/quotation.h"

#include <algorithm>
#include <functional>

namespace dflash {

// ---- continuations ----

void continuations::clear() {
    places_.clear();
    tokens_.clear();
}

void continuations::begin(quote_source source, int32_t matched) {
    places_.push_back({ source, matched, tokens_.size(), 0 });
}

void continuations::push(int32_t token) {
    tokens_.push_back(token);
    ++places_.back().n_tokens;
}

// ---- quote_priors ----

// Priors of a client's prediction: high, because the client expects it, but low while nothing has matched yet. There is
// only one prediction, so its rank does not matter.
static constexpr std::array<float, 9> PREDICTION = { 0.4f, 0.6f, 0.8f, 0.9f, 0.9f, 0.93f, 0.94f, 0.95f, 0.97f };

// benchmarks/results/quotations.md. [rank][bin]: up to 0, 1, 2, 3, 4, 6, 10, 16 and more matched tokens. Sources never
// find fewer than their least match.
const std::array<quote_priors::table, N_QUOTE_SOURCES> quote_priors::PRIORS = { {
    { {
        // text
        { 0.1f, 0.2f, 0.46f, 0.68f, 0.75f, 0.82f, 0.91f, 0.92f, 0.98f },
        { 0.2f, 0.4f, 0.76f, 0.93f, 0.93f, 0.95f, 0.95f, 0.98f, 0.99f },
        { 0.1f, 0.2f, 0.37f, 0.47f, 0.55f, 0.61f, 0.74f, 0.81f, 0.93f },
        { 0.05f, 0.1f, 0.16f, 0.22f, 0.22f, 0.30f, 0.23f, 0.23f, 0.40f },
        { 0.02f, 0.03f, 0.04f, 0.04f, 0.08f, 0.09f, 0.14f, 0.11f, 0.05f },
    } },
    { { PREDICTION, PREDICTION, PREDICTION, PREDICTION, PREDICTION } },
    { {
        // corpus; beyond six tokens too few places were seen: between what was and the values of earlier answers
        { 0.02f, 0.05f, 0.1f, 0.15f, 0.17f, 0.25f, 0.60f, 0.80f, 0.95f },
        { 0.1f, 0.2f, 0.3f, 0.4f, 0.44f, 0.71f, 0.82f, 0.90f, 0.97f },
        { 0.1f, 0.2f, 0.3f, 0.4f, 0.45f, 0.38f, 0.40f, 0.60f, 0.90f },
        { 0.01f, 0.01f, 0.02f, 0.02f, 0.02f, 0.04f, 0.12f, 0.20f, 0.30f },
        { 0.01f, 0.01f, 0.01f, 0.01f, 0.01f, 0.02f, 0.02f, 0.03f, 0.03f },
    } },
    { {
        // answers
        { 0.1f, 0.2f, 0.4f, 0.53f, 0.60f, 0.62f, 0.80f, 0.86f, 0.96f },
        { 0.1f, 0.3f, 0.5f, 0.63f, 0.84f, 0.85f, 0.90f, 0.93f, 0.99f },
        { 0.1f, 0.1f, 0.2f, 0.34f, 0.34f, 0.51f, 0.60f, 0.67f, 0.91f },
        { 0.02f, 0.04f, 0.07f, 0.10f, 0.18f, 0.28f, 0.30f, 0.33f, 0.40f },
        { 0.01f, 0.01f, 0.02f, 0.03f, 0.05f, 0.03f, 0.04f, 0.04f, 0.02f },
    } },
} };

static constexpr double PRIOR_WEIGHT = 16;     // observations that a prior counts as
static constexpr double KEPT         = 0.99;   // of the past, at each observation of a kind
static constexpr double MOST_CERTAIN = 0.998;

size_t quote_priors::bin(int32_t matched) {
    return std::lower_bound(MOST_MATCHED.begin(), MOST_MATCHED.end(), matched) - MOST_MATCHED.begin();
}

float quote_priors::at(const quote_kind & kind) const {
    const size_t  source = (size_t) kind.source, rank = (size_t) kind.rank, b = bin(kind.matched);
    const tally & seen  = seen_[source][rank][b];
    const double  prior = PRIOR_WEIGHT * PRIORS[source][rank][b];
    return (float) std::min(MOST_CERTAIN, (prior + seen.accepted) / (PRIOR_WEIGHT + seen.trials));
}

void quote_priors::observe(const quote_kind & kind, bool right) {
    tally & seen  = seen_[(size_t) kind.source][(size_t) kind.rank][bin(kind.matched)];
    seen.trials   = KEPT * seen.trials + 1;
    seen.accepted = KEPT * seen.accepted + right;
}

void quote_priors::fade(double weight) {
    for (auto & source : seen_) {
        for (auto & rank : source) {
            for (tally & seen : rank) {
                seen.fade(weight);
            }
        }
    }
}

void observe(quote_priors & priors, const quotation & quoted, const std::vector<int32_t> & tokens) {
    int32_t at = quoted.empty() ? -1 : 0;
    for (size_t i = 0; i < tokens.size() && at >= 0; ++i) {
        const quotation::entry & before = quoted.entries[at];
        for (int32_t k = 0; k < before.n_after; ++k) {
            const quotation::entry & e = quoted.entries[before.first + k];
            priors.observe(e.kind, e.token == tokens[i]);
        }
        at = quoted.after(at, tokens[i]);
    }
}

// ---- quotation ----

int32_t quotation::after(int32_t at, int32_t token) const {
    const entry & before = entries[at];
    for (int32_t i = before.first; i < before.first + before.n_after; ++i) {
        if (entries[i].token == token) {
            return i;
        }
    }
    return -1;
}

std::vector<float> quotation::values(bool path_only) const {
    std::vector<float> all;
    if (path_only) {
        for (int32_t at = 0; !empty() && entries[at].n_after > 0;) {
            at = entries[at].first;
            all.push_back(entries[at].value);
        }
        return all;
    }
    for (size_t i = 1; i < entries.size(); ++i) {
        all.push_back(entries[i].value);
    }
    std::sort(all.begin(), all.end(), std::greater<>());
    return all;
}

namespace {

constexpr float LEAST_VALUE = 0.02f;   // less likely ones are left out: no budget would ever reach them

// What several places of one source say comes next.
struct next_token {
    quote_source source;
    int32_t      token;
    int32_t      matched;   // the most of these places
    int32_t      n_most;    // places with as many
    int32_t      n_places;
};

class quoter {
  public:
    quoter(int32_t anchor, const continuations & found, const quote_priors & priors, int32_t length) :
        found_(found), priors_(priors), length_(length) {
        quoted_.entries.emplace_back();
        quoted_.entries[0].token = anchor;
        std::vector<int32_t> all(found.places().size());
        for (size_t i = 0; i < all.size(); ++i) {
            all[i] = (int32_t) i;
        }
        places_of_.push_back(std::move(all));
    }

    // Breadth first, so that the entries that follow one stand together.
    quotation quote() {
        for (size_t at = 0; at < quoted_.entries.size(); ++at) {
            if (quoted_.entries[at].depth < length_) {
                extend((int32_t) at);
            }
        }
        return std::move(quoted_);
    }

  private:
    void extend(int32_t at) {
        const std::vector<int32_t> places = std::move(places_of_[at]);
        const quotation::entry     before = quoted_.entries[at];
        collect(places, before.depth);
        std::vector<quotation::entry> after = ranked(before);
        std::stable_sort(after.begin(), after.end(),
            [](const quotation::entry & a, const quotation::entry & b) { return a.prob > b.prob; });
        float left                = 1;   // of the probability, beyond those that are likelier
        quoted_.entries[at].first = (int32_t) quoted_.entries.size();
        for (quotation::entry & e : after) {
            e.prob  = std::min(e.prob, left);
            e.value = before.value * e.prob;
            if (e.value < LEAST_VALUE || quoted_.entries[at].n_after == quotation::MAX_AFTER) {
                break;
            }
            left -= e.prob;
            ++quoted_.entries[at].n_after;
            quoted_.entries.push_back(e);
            places_of_.push_back(places_with(places, before.depth, e.token));
        }
    }

    std::vector<int32_t> places_with(const std::vector<int32_t> & places, int32_t depth, int32_t token) const {
        std::vector<int32_t> with;
        for (const int32_t i : places) {
            const continuations::place & p = found_.places()[i];
            if (depth < p.n_tokens && found_.token(p, depth) == token) {
                with.push_back(i);
            }
        }
        return with;
    }

    // What follows at these places, after `depth` tokens.
    void collect(const std::vector<int32_t> & places, int32_t depth) {
        next_.clear();
        for (const int32_t i : places) {
            const continuations::place & p = found_.places()[i];
            if (depth >= p.n_tokens) {
                continue;
            }
            const int32_t token = found_.token(p, depth), matched = std::min(p.matched + depth, MAX_MATCH);
            auto          n = std::find_if(next_.begin(), next_.end(),
                         [&](const next_token & other) { return other.source == p.source && other.token == token; });
            if (n == next_.end()) {
                n = next_.insert(n, { p.source, token, matched, 0, 0 });
            }
            n->n_most  = matched > n->matched ? 1 : n->n_most + (matched == n->matched);
            n->matched = std::max(n->matched, matched);
            ++n->n_places;
        }
    }

    quote_rank rank_of(const next_token & n) const {
        int32_t n_others = 0, n_tied = 0, most = 0;   // tied: places of others that agree with as many tokens
        for (const next_token & other : next_) {
            if (other.source == n.source && other.token != n.token) {
                ++n_others;
                most = std::max(most, other.matched);
                n_tied += other.matched == n.matched ? other.n_most : 0;
            }
        }
        if (n_others == 0) {
            return n.n_places > 1 ? quote_rank::again : quote_rank::alone;
        }
        return most > n.matched ? quote_rank::behind : n.n_most <= n_tied ? quote_rank::tied : quote_rank::leading;
    }

    // A token that several sources have counts as that of the likeliest.
    std::vector<quotation::entry> ranked(const quotation::entry & before) const {
        std::vector<quotation::entry> after;
        for (const next_token & n : next_) {
            quotation::entry e;
            e.token   = n.token;
            e.depth   = before.depth + 1;
            e.kind    = { n.source, rank_of(n), n.matched };
            e.prob    = priors_.at(e.kind);
            auto same = std::find_if(after.begin(), after.end(), [&](const auto & a) { return a.token == n.token; });
            if (same == after.end()) {
                after.push_back(e);
            } else if (e.prob > same->prob) {
                *same = e;
            }
        }
        return after;
    }

    const continuations &             found_;
    const quote_priors &              priors_;
    const int32_t                     length_;
    quotation                         quoted_;
    std::vector<std::vector<int32_t>> places_of_;   // [entries]: the places that go on with it
    std::vector<next_token>           next_;
};

}   // namespace

quotation quote(int32_t anchor, const continuations & found, const quote_priors & priors, int32_t length) {
    return quoter(anchor, found, priors, found.places().empty() ? 0 : length).quote();
}

}   // namespace dflash

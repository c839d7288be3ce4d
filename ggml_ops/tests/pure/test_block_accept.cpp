// Block verification, by enumerating every random decision that the code can make: texts have exactly the target's
// distribution, and at least as many tokens are accepted as with the token-level rule. Only the last test samples.

#include "accept/block_accept.h"

#include "check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

using namespace dflash;

using text = std::vector<int32_t>;
using law  = std::map<text, double>;   // probabilities of texts

// Runs a function once for every sequence of decisions that it can make, with the sequence's probability.
class every_decision : public random_decisions {
  public:
    template <class F> static void run(F && f) {
        every_decision all;
        do {
            all.at_          = 0;
            all.probability_ = 1;
            f(all, [&] { return all.probability_; });
        } while (all.next());
    }
    bool    happens(double p) override { return pick({ p, 1 - p }) == 0; }
    int32_t pick(const std::vector<double> & weights) override {
        double sum = 0;
        for (const double w : weights) {
            CHECK(w >= 0 && std::isfinite(w));
            sum += w;
        }
        CHECK(sum > 0);
        if (at_ == script_.size()) {
            script_.push_back({ 0, {} });
            for (int32_t i = 0; i < (int32_t) weights.size(); ++i) {
                if (weights[i] > 0) {
                    script_.back().open.push_back(i);
                }
            }
        }
        const decision & d = script_[at_++];
        probability_ *= weights[d.open[d.taken]] / sum;
        return d.open[d.taken];
    }

  private:
    struct decision {
        size_t               taken;
        std::vector<int32_t> open;
    };
    bool next() {
        while (!script_.empty() && ++script_.back().taken == script_.back().open.size()) {
            script_.pop_back();
        }
        return !script_.empty();
    }
    std::vector<decision> script_;
    size_t                at_          = 0;
    double                probability_ = 1;
};

// A target over `n_vocab` tokens that depends on the whole text: random probabilities per text, some of them 0.
struct target {
    int32_t  n_vocab;
    uint64_t seed;
    double   sharpness;

    std::vector<token_prob> after(const text & before) const {
        uint64_t h = seed;
        for (const int32_t token : before) {
            h = (h ^ (token + 1)) * 0x9e3779b97f4a7c15;
            h ^= h >> 29;
        }
        std::mt19937_64         rng(h);
        std::vector<token_prob> p;
        double                  sum = 0;
        for (int32_t token = n_vocab - 1; token >= 0; --token) {   // in no particular order
            const double u = double(rng() >> 11) * 0x1p-53;
            if (u > 0.15 || (token == 0 && p.empty())) {
                p.push_back({ token, std::pow(u + 0.01, sharpness) });
                sum += p.back().prob;
            }
        }
        for (token_prob & t : p) {
            t.prob /= sum;
        }
        return p;
    }
    double of(const text & before, int32_t token) const {
        for (const token_prob & t : after(before)) {
            if (t.token == token) {
                return t.prob;
            }
        }
        return 0;
    }
    // The probability of every text of this length.
    law texts(int32_t length) const {
        law now = { { {}, 1.0 } };
        for (int32_t i = 0; i < length; ++i) {
            law next;
            for (const auto & [before, w] : now) {
                for (const token_prob & t : after(before)) {
                    text x = before;
                    x.push_back(t.token);
                    next[x] += w * t.prob;
                }
            }
            now = std::move(next);
        }
        return now;
    }
};

static draft random_draft(uint64_t seed, int32_t n_vocab, int32_t length, int32_t k, bool lattice, double sharpness) {
    std::mt19937_64 rng(seed);
    draft           d;
    d.length  = length;
    d.top_k   = k;
    d.lattice = lattice;
    for (int32_t depth = 1; depth < length; ++depth) {
        std::vector<int32_t> ids(n_vocab);
        for (int32_t i = 0; i < n_vocab; ++i) {
            ids[i] = i;
        }
        for (int32_t i = n_vocab - 1; i > 0; --i) {
            std::swap(ids[i], ids[rng() % (i + 1)]);
        }
        d.ids.insert(d.ids.end(), ids.begin(), ids.begin() + k);
        for (int32_t row = 0; row < (lattice ? k : 1); ++row) {
            std::vector<float> p;
            for (int32_t i = 0; i < k; ++i) {
                p.push_back(std::pow(0.01f + float(rng() >> 40) * 0x1p-24f, float(sharpness)));
            }
            float sum = lattice ? 0.0f : 0.2f;   // marginals leave some probability to the rest of the vocabulary
            for (const float x : p) {
                sum += x;
            }
            if (!lattice) {
                std::sort(p.rbegin(), p.rend());
            }
            for (const float x : p) {
                d.probs.push_back(x / sum);
            }
        }
    }
    return d;
}

struct outcome {
    law    texts;            // of `length + 1` tokens: accepted ones, the bonus, then the target alone
    double accepted   = 0;   // expected
    double token_rule = 0;   // expected with min(1, p/q) token by token
    double reachable  = 0;   // the paper's optimum: sum over i of the expectation of p_i
};

// `claim` may change the chain between drawing and verifying.
template <class Claim>
static outcome enumerate(const target & t, const draft & d, int32_t length, const draft_shape & shape, Claim && claim) {
    outcome out;
    every_decision::run([&](random_decisions & random, auto && probability) {
        drawn_chain c = draw_chain(d, 99, length, shape, random);
        claim(c);
        double single = 1, joint = 1, sum_single = 0, sum_joint = 0;
        text   before;
        for (int32_t i = 0; i < c.length(); ++i) {
            const double ratio = t.of(before, c.tokens[i]) / c.q(i);
            sum_single += single *= std::min(1.0, ratio);
            sum_joint += joint = std::min(1.0, joint * ratio);
            before.push_back(c.tokens[i]);
        }
        std::vector<token_prob> row;
        const block_result      r = block_accept(
            c,
            [&](int32_t i) -> const std::vector<token_prob> & {
                CHECK(i <= c.length());
                return row = t.after(text(c.tokens.begin(), c.tokens.begin() + i));
            },
            random);
        const double w = probability();
        out.accepted += w * r.accepted;
        out.token_rule += w * sum_single;
        out.reachable += w * sum_joint;
        CHECK(r.accepted >= 0 && r.accepted <= c.length());

        text made(c.tokens.begin(), c.tokens.begin() + r.accepted);
        made.push_back(r.bonus);
        law tails = { { made, w } };
        while ((int32_t) tails.begin()->first.size() < length + 1) {
            law longer;
            for (const auto & [head, v] : tails) {
                for (const token_prob & next : t.after(head)) {
                    text y = head;
                    y.push_back(next.token);
                    longer[y] += v * next.prob;
                }
            }
            tails = std::move(longer);
        }
        for (const auto & [y, v] : tails) {
            out.texts[y] += v;
        }
    });
    return out;
}

static outcome enumerate(const target & t, const draft & d, int32_t length, const draft_shape & shape) {
    return enumerate(t, d, length, shape, [](drawn_chain &) {});
}

static double distance(const law & a, const law & b) {
    double most = 0;
    for (const auto & [x, p] : a) {
        const auto it = b.find(x);
        most          = std::max(most, std::fabs(p - (it == b.end() ? 0 : it->second)));
    }
    for (const auto & [x, p] : b) {
        most = std::max(most, a.count(x) ? 0 : p);
    }
    return most;
}

static void exact_distribution() {
    const draft_shape shapes[] = { {}, { 0.6, 0, 1, 0 }, { 1.7, 2, 1, 0 }, { 0.8, 0, 0.8, 0.1 } };
    double            gained   = 0;
    for (uint64_t seed = 0; seed < 96; ++seed) {
        const int32_t n_vocab = 3 + seed % 2, length = seed % 4 == 3 ? 3 : seed % 3, k = 2 + seed / 2 % 2;
        const target  t = { n_vocab, seed * 7919 + 1, 0.3 + seed % 5 };
        const draft   d = random_draft(seed + 100, n_vocab, length + 1 + seed % 2, k, seed % 4 != 1, 0.3 + seed % 3);
        const outcome o = enumerate(t, d, length, shapes[seed % 4]);
        CHECK(distance(o.texts, t.texts(length + 1)) < 1e-12);
        CHECK(std::fabs(o.accepted - o.reachable) < 1e-12);
        CHECK(o.accepted >= o.token_rule - 1e-12);
        gained += o.accepted - o.token_rule;
    }
    CHECK(gained > 0.1);
}

// The comparison above must notice a rule that is almost right.
static void wrong_rules_are_noticed() {
    const target t    = { 4, 5, 1.5 };
    const draft  d    = random_draft(3, 4, 3, 3, true, 1.5);
    const law    want = t.texts(3);
    CHECK(distance(enumerate(t, d, 2, {}).texts, want) < 1e-12);
    CHECK(distance(enumerate(t, d, 2, {},
                       [&](drawn_chain & c) {   // not the q that the chain was drawn from
                           for (int32_t i = 0; i < c.length(); ++i) {
                               double sum = 0;
                               for (int32_t j = 0; j < c.top_k; ++j) {
                                   sum += std::sqrt(c.row(i)[j].prob);
                               }
                               for (int32_t j = 0; j < c.top_k; ++j) {
                                   token_prob & x = c.rows[(size_t) i * c.top_k + j];
                                   x.prob         = std::sqrt(x.prob) / sum;
                               }
                           }
                       })
                       .texts,
              want) > 1e-3);
    CHECK(distance(enumerate(t, d, 2, {},
                       [&](drawn_chain & c) {   // a length that depends on the drawn tokens
                           c.truncate(c.length() == 2 && c.q(1) < 0.3 ? 1 : 2);
                       })
                       .texts,
              want) > 1e-3);
    CHECK(distance(enumerate(t, d, 2, {},
                       [&](drawn_chain & c) {   // chosen by the previous token: this does not look ahead
                           c.truncate(c.q(0) < 0.3 ? 1 : 2);
                       })
                       .texts,
              want) < 1e-12);
}

// Section 2 of the paper: p = (1/3, 2/3), q = (2/3, 1/3), two tokens: 10/9 tokens by the token rule, 11/9 by blocks.
static void the_papers_example() {
    draft d;
    d.length  = 3;
    d.top_k   = 2;
    d.lattice = true;
    d.ids     = { 0, 1, 0, 1 };
    for (int32_t row = 0; row < 4; ++row) {
        d.probs.insert(d.probs.end(), { 2 / 3.0f, 1 / 3.0f });
    }
    double                        block = 0, w_sum = 0;
    const std::vector<token_prob> p = { { 0, 1 / 3.0 }, { 1, 2 / 3.0 } };
    every_decision::run([&](random_decisions & random, auto && probability) {
        const drawn_chain  c = draw_chain(d, 9, 2, {}, random);
        const block_result r = block_accept(c, [&](int32_t) -> const std::vector<token_prob> & { return p; }, random);
        block += probability() * r.accepted;
        w_sum += probability();
    });
    CHECK(std::fabs(w_sum - 1) < 1e-12);
    CHECK(std::fabs(block - 11 / 9.0) < 1e-6);   // the lattice has floats
}

static void edges() {
    seeded_decisions              random(1);
    const std::vector<token_prob> p = { { 7, 0.25 }, { 3, 0.75 } };
    std::vector<int32_t>          asked;
    const target_rows             rows = [&](int32_t i) -> const std::vector<token_prob> & {
        asked.push_back(i);
        return p;
    };

    block_result r = block_accept(drawn_chain{}, rows, random);   // nothing drafted: plain decoding
    CHECK(r.accepted == 0 && (r.bonus == 7 || r.bonus == 3) && asked == text{ 0 });

    draft d;   // a token that the target never samples: no row after it is read
    d.length  = 4;
    d.top_k   = 2;
    d.lattice = true;
    d.ids     = { 3, 7, 1, 2, 3, 7 };
    d.probs.assign(12, 0.5f);
    asked.clear();
    r = block_accept(draw_chain(d, 0, 3, {}, random), rows, random);
    CHECK(r.accepted <= 1 && asked == (text{ 0, 1 }));

    d.ids         = { 3, 3, 7, 7, 3, 7 };   // listed twice: one probability
    drawn_chain c = draw_chain(d, 5, 3, {}, random);
    CHECK(c.length() == 3 && c.tokens[0] == 3 && c.q(0) == 1 && c.tokens[1] == 7 && c.q(1) == 1 && c.q(2) == 0.5);
    const tree t = c.to_tree();
    CHECK(t.size() == 4 && t.is_chain() && t.nodes[0].token == 5 && t.nodes[2].token == 7 && t.nodes[3].depth == 3 &&
          t.nodes[3].prob == 0.5f);
    c.truncate(1);
    CHECK(c.length() == 1 && c.rows.size() == 2 && c.to_tree().size() == 2);

    CHECK(draw_chain(d, 5, 99, {}, random).length() == 3);
    CHECK(draw_chain(d, 5, 0, {}, random).length() == 0);
    CHECK(draw_chain(draft{}, 5, 4, {}, random).length() == 0);
    d.probs.assign(12, NAN);
    CHECK(draw_chain(d, 5, 3, {}, random).length() == 0);

    // Draft probabilities shaped like the sampler's: 0.5, 0.3, 0.15, 0.05.
    d.length       = 2;
    d.top_k        = 4;
    d.ids          = { 1, 2, 3, 4 };
    d.probs        = { 0.15f, 0.5f, 0.05f, 0.3f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
    const auto row = [&](draft_shape shape) {
        const drawn_chain x = draw_chain(d, 0, 1, shape, random);
        return std::vector<double>{ x.row(0)[0].prob, x.row(0)[1].prob, x.row(0)[2].prob, x.row(0)[3].prob };
    };
    const auto near = [](const std::vector<double> & a, const std::vector<double> & b) {
        double most = 0;
        for (size_t i = 0; i < a.size(); ++i) {
            most = std::max(most, std::fabs(a[i] - b[i]));
        }
        return most < 1e-6;
    };
    CHECK(near(row({}), { 0.15, 0.5, 0.05, 0.3 }));
    CHECK(near(row({ 1, 2, 1, 0 }), { 0, 0.625, 0, 0.375 }));
    CHECK(near(row({ 1, 0, 0.7, 0 }), { 0, 0.625, 0, 0.375 }));
    CHECK(near(row({ 1, 0, 1, 0.2 }), { 0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95 }));
    CHECK(near(row({ 0.5, 2, 1, 0 }), { 0, 25 / 34.0, 0, 9 / 34.0 }));
    CHECK(near(row({ 1e-30, 0, 1, 0 }), { 0, 1, 0, 0 }));

    bool                          thrown = false;
    const std::vector<token_prob> none;
    try {
        block_accept(drawn_chain{}, [&](int32_t) -> const std::vector<token_prob> & { return none; }, random);
    } catch (const std::runtime_error &) {
        thrown = true;
    }
    CHECK(thrown);
}

static void seeds() {
    seeded_decisions          a(5), b(5), other(6);
    const std::vector<double> weights = { 0, 1, 0, 2.5, 1e-300, 0.5, 0 };
    std::vector<int32_t>      counts(weights.size());
    int32_t                   differ = 0, happened = 0;
    for (int32_t i = 0; i < 40000; ++i) {
        const int32_t x = a.pick(weights);
        CHECK(x == b.pick(weights));
        differ += x != other.pick(weights);
        ++counts[x];
        happened += a.happens(0.3);
        b.happens(0.3);
        other.happens(0.3);
    }
    CHECK(differ > 1000);
    CHECK(counts[0] == 0 && counts[2] == 0 && counts[6] == 0);
    CHECK(std::abs(counts[1] - 10000) < 450 && std::abs(counts[3] - 25000) < 500);
    CHECK(std::abs(happened - 12000) < 500 && !a.happens(0) && a.happens(1));
    seeded_decisions known(
        42);   // the same on every platform: std::mt19937_64 is specified, and the rest is our own code
    CHECK(known.pick({ 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }) == 7);
}

int main() {
    exact_distribution();
    wrong_rules_are_noticed();
    the_papers_example();
    edges();
    seeds();
    return TEST_RESULT;
}

#include "accept/logits_row.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

namespace dflash {

namespace {

// Maps floats to integers of the same order, with NaN at both ends. Compilers vectorize integer maxima; float maxima
// need -ffast-math. The mapping is its own inverse.
int32_t ordered(float x) {
    int32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    return bits ^ ((bits >> 31) & INT32_MAX);
}

float unordered(int32_t key) {
    const int32_t bits = key ^ ((key >> 31) & INT32_MAX);
    float         x;
    std::memcpy(&x, &bits, sizeof(x));
    return x;
}

struct extremes {
    int32_t least = INT32_MAX, most = INT32_MIN;

    void see(const float * x, int32_t n) {
        for (int32_t i = 0; i < n; ++i) {
            least = std::min(least, ordered(x[i]));
            most  = std::max(most, ordered(x[i]));
        }
    }
};

}   // namespace

void logits_row::scan(const float * logits, int32_t n) {
    logits_ = logits;
    n_      = n;
    block_max_.resize((n + BLOCK - 1) / BLOCK);
    extremes all;
    for (int32_t b = 0; b < int32_t(block_max_.size()); ++b) {
        extremes of;
        if (const int32_t begin = b * BLOCK; begin + BLOCK <= n) {
            of.see(logits + begin, BLOCK);   // constant length, so it is unrolled
        } else {
            of.see(logits + begin, n - begin);
        }
        block_max_[b] = unordered(of.most);
        all.least     = std::min(all.least, of.least);
        all.most      = std::max(all.most, of.most);
    }
    fail_if(all.least < ordered(-INFINITY) || all.most <= ordered(-INFINITY) || all.most >= ordered(INFINITY),
        "the target's logits are not finite: its weights or its cache are damaged, or a kernel is wrong");
    max_ = unordered(all.most);
}

template <class F> void logits_row::each_from(float least, F && found) const {
    for (size_t b = 0; b < block_max_.size(); ++b) {
        if (block_max_[b] >= least) {
            const int32_t begin = int32_t(b) * BLOCK, end = std::min(begin + BLOCK, n_);
            for (int32_t i = begin; i < end; ++i) {
                if (logits_[i] >= least) {
                    found(i);
                }
            }
        }
    }
}

int32_t logits_row::argmax() const {
    int32_t best = -1, count = 0;
    each_from(max_, [&](int32_t i) {
        best = i;
        ++count;
    });
    return count == 1 ? best : -1;
}

// Lists a superset of the k + 1 largest (or of all, if there are fewer).
void logits_row::list_candidates(int32_t k, std::vector<llama_token_data> & out) const {
    // The (k+1)-th largest block maximum is a lower bound for the (k+1)-th largest logit; most logits are below it.
    float least = -INFINITY;
    if (k < int32_t(block_max_.size())) {
        maxima_ = block_max_;
        std::nth_element(maxima_.begin(), maxima_.begin() + k, maxima_.end(), std::greater<float>());
        least = maxima_[k];
    }
    out.clear();
    each_from(least, [&](int32_t i) { out.push_back({ i, logits_[i], 0.0f }); });
}

bool logits_row::top(int32_t k, std::vector<llama_token_data> & out) const {
    list_candidates(k, out);
    const auto   by_logit = [](const llama_token_data & a, const llama_token_data & b) { return a.logit > b.logit; };
    const size_t kept = std::min<size_t>(k, out.size()), looked_at = std::min<size_t>(kept + 1, out.size());
    std::partial_sort(out.begin(), out.begin() + looked_at, out.end(), by_logit);
    for (size_t i = 1; i < looked_at; ++i) {
        if (out[i].logit == out[i - 1].logit) {
            return false;
        }
    }
    out.resize(kept);
    return true;
}

void logits_row::largest(int32_t k, std::vector<llama_token_data> & out) const {
    list_candidates(k, out);
    const size_t kept = std::min<size_t>(k, out.size());
    std::partial_sort(
        out.begin(), out.begin() + kept, out.end(), [](const llama_token_data & a, const llama_token_data & b) {
            return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
        });
    out.resize(kept);
}

double logits_row::log_sum_exp() const {
    double sum = 0;
    for (int32_t i = 0; i < n_; ++i) {
        sum += std::exp(logits_[i] - max_);
    }
    return max_ + std::log(sum);
}

}   // namespace dflash

// Log-probabilities and the likeliest tokens of a row, compared with a simple computation in double; probabilities
// after sampling.

#include "accept/token_probs.h"

#include "check.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>

using namespace dflash;

static std::vector<float> random_row(int32_t n, std::mt19937 & rng, bool ties) {
    std::normal_distribution<float> noise(0.0f, 4.0f);
    std::vector<float>              row(n);
    for (float & x : row) {
        x = ties ? std::round(noise(rng)) : noise(rng);
        x = rng() % 9 == 0 ? -INFINITY : x;
    }
    row[rng() % n] = 3;   // one is finite
    return row;
}

static void raw() {
    std::mt19937 rng(1);
    for (int round = 0; round < 300; ++round) {
        const int32_t            n   = 1 + (int32_t) (rng() % 500);
        const std::vector<float> row = random_row(n, rng, round % 2);
        std::vector<int32_t>     best(n);
        std::iota(best.begin(), best.end(), 0);
        std::stable_sort(best.begin(), best.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
        double sum = 0;
        for (const float x : row) {
            sum += std::exp((double) x);
        }
        const int32_t token = (int32_t) (rng() % n), n_top = 1 + (int32_t) (rng() % n);
        token_probs   probs;
        probs.add(row.data(), n, token, n_top);
        const dflash_token_probs got  = probs.view(0);
        const auto               near = [&](float value, float logit) {
            const double expected = logit - std::log(sum);
            return value == expected || std::fabs(value - expected) < 1e-5;
        };
        CHECK(got.n == 1 && got.tokens[0] == token && near(got.values[0], row[token]));
        CHECK(got.n_top[0] == n_top);
        for (int32_t i = 0; i < n_top; ++i) {
            CHECK(got.top_tokens[i] == best[i] && near(got.top_values[i], row[best[i]]));
        }
    }
    std::vector<float> bad     = { 1, NAN, 2 };
    bool               refused = false;
    try {
        token_probs().add(bad.data(), 3, 0, 1);
    } catch (const std::runtime_error &) {
        refused = true;
    }
    CHECK(refused);
}

static void after_sampling() {
    token_probs probs;
    probs.add({ { 7, 0.25 }, { 3, 0.5 }, { 5, 0.25 } }, 5, 2);
    probs.add({ { 7, 1.0 } }, 9, 4);
    const dflash_token_probs got = probs.view(1);
    CHECK(got.n == 2 && got.n_prompt == 1);
    CHECK(got.values[0] == 0.25f && got.values[1] == 0.0f);   // 9 could not be sampled
    CHECK(got.n_top[0] == 2 && got.n_top[1] == 1);
    CHECK(got.top_tokens[0] == 3 && got.top_tokens[1] == 5 && got.top_tokens[2] == 7);
    CHECK(got.top_values[0] == 0.5f && got.top_values[1] == 0.25f && got.top_values[2] == 1.0f);

    probs.add({ { 2, 0.5 }, { 1, 0.5 } }, 2, 1);
    const dflash_token_probs after = probs.view(0);
    CHECK(after.n == 3 && after.tokens[2] == 2 && after.top_tokens[3] == 1);   // ties by id
    probs.clear();
    CHECK(probs.view(0).n == 0);
}

int main() {
    raw();
    after_sampling();
    return TEST_RESULT;
}

// grow() must be negligible beside the passes: less than 50 microseconds for 64 nodes of 15 positions, the median of
// many runs. Built with optimization and without sanitizers, like the engine.

#include "draft/tree_growth.h"

#include "check.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

using namespace dflash;

// Candidates' probabilities like a drafter's; with `sharpness` 0 all are equal, which branches most.
static draft random_draft(std::mt19937 & rng, int32_t k, bool lattice, float sharpness) {
    draft d;
    d.length  = 16;
    d.top_k   = k;
    d.lattice = lattice;
    std::normal_distribution<float> score;
    for (int32_t i = 0; i < d.positions() * k; ++i) {
        d.ids.push_back(i);
    }
    for (int32_t row = 0; row < d.positions() * (lattice ? k : 1); ++row) {
        std::vector<float> p;
        float              sum = 0;
        for (int32_t i = 0; i < k; ++i) {
            p.push_back(std::exp(sharpness * score(rng)));
            sum += p.back();
        }
        for (float & x : p) {
            x /= sum;
        }
        if (!lattice) {
            std::sort(p.rbegin(), p.rend());
        }
        d.probs.insert(d.probs.end(), p.begin(), p.end());
    }
    return d;
}

static void measure(int32_t k, bool lattice, float sharpness) {
    constexpr int32_t DRAFTS = 16, RUNS = 100;
    const calibration learned;   // with its look-ups, as in the engine
    growth_limits     how;
    how.budget       = 64;
    how.max_children = 64;
    how.calibration  = &learned;
    std::mt19937       rng(1);
    std::vector<draft> drafts;
    for (int32_t i = 0; i < DRAFTS; ++i) {
        drafts.push_back(random_draft(rng, k, lattice, sharpness));
    }
    std::vector<double> us;
    for (int32_t run = 0; run < RUNS * DRAFTS; ++run) {
        const auto begin = std::chrono::steady_clock::now();
        const tree t     = grow(drafts[run % DRAFTS], 1, how);
        us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
        CHECK(t.size() == 64);
    }
    std::nth_element(us.begin(), us.begin() + us.size() / 2, us.end());
    const double median = us[us.size() / 2];
    std::printf(
        "%5.1f us  64 nodes from a %s of 15 x %d, sharpness %g\n", median, lattice ? "lattice" : "draft", k, sharpness);
    CHECK(median < 50);
}

int main() {
    for (const float sharpness : { 0.0f, 1.0f, 4.0f }) {
        measure(8, false, sharpness);
        measure(8, true, sharpness);
        measure(16, true, sharpness);
    }
    return TEST_RESULT;
}

// Calibration: observations overrule the drafter, bin by bin and depth by depth.

#include "draft/calibration.h"

#include "check.h"

#include <cmath>

using namespace dflash;

int main() {
    calibration c;
    CHECK(std::fabs(c.apply(0.7f, true, 1) - 0.7f) < 1e-6);   // no observations: the drafter's probability
    for (int i = 0; i < 500; ++i) {
        c.observe(0.7f, true, 1 + i % 8, i % 10 == 0);
    }
    CHECK(c.apply(0.7f, true, 3) < 0.2f);                        // an overconfident drafter
    CHECK(std::fabs(c.apply(0.05f, true, 12) - 0.05f) < 1e-6);   // other bins and depths untouched
    CHECK(std::fabs(c.apply(0.7f, false, 12) - 0.7f) < 1e-6);    // and so are the second candidates
    for (const float p : { 0.0f, 1.0f, 1e-30f }) {
        for (const int32_t depth : { 1, 15, 63 }) {
            CHECK(c.apply(p, true, depth) >= 0 && c.apply(p, true, depth) <= 1);
        }
    }

    calibration deep;   // right near the anchor, wrong far from it
    for (int i = 0; i < 2000; ++i) {
        const int32_t depth = 1 + i % 10;
        deep.observe(0.5f, true, depth, depth <= 5 ? i / 10 % 2 == 0 : i / 10 % 10 == 0);
    }
    CHECK(deep.apply(0.5f, true, 2) > 1.8f * deep.apply(0.5f, true, 9));
    CHECK(std::fabs(deep.apply(0.5f, true, 2) - 0.5f) < 0.12f);
    CHECK(deep.apply(0.5f, true, 9) < 0.25f);

    calibration faded = c;
    faded.fade(4);
    CHECK(std::fabs(faded.apply(0.7f, true, 3) - c.apply(0.7f, true, 3)) > 0.05f);   // the drafter counts again
    for (int i = 0; i < 30; ++i) {
        faded.observe(0.7f, true, 3, true);
    }
    CHECK(faded.apply(0.7f, true, 3) > 0.6f);   // and it adapts quickly to a new text
    return TEST_RESULT;
}

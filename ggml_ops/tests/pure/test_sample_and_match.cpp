// walk(): follows samples, stops at the first one that no child carries, samples at every visited node exactly once.

#include "accept/sample_and_match.h"

#include "check.h"

#include <map>

using namespace dflash;

static tree sample_tree() {
    //            0:10
    //       1:11      2:12
    //    3:13  4:14      5:13
    return { { { 10, -1, 0, 0, 1, 1 }, { 11, 0, 1, 0, 1, 1 }, { 12, 0, 1, 1, 1, 1 }, { 13, 1, 2, 0, 1, 1 },
        { 14, 1, 2, 1, 1, 1 }, { 13, 2, 2, 0, 1, 1 } } };
}

static walk_result run(
    const std::map<int32_t, int32_t> & samples, int32_t end, std::vector<int32_t> * asked = nullptr) {
    return walk(
        sample_tree(),
        [&](int32_t node) {
            if (asked) {
                asked->push_back(node);
            }
            return samples.at(node);
        },
        [&](int32_t token) { return token == end; });
}

int main() {
    std::vector<int32_t> asked;
    walk_result          w =
        run({ { 0, 12 }, { 2, 13 }, { 5, 99 } }, -1, &asked);   // the less likely branch to its leaf, then a bonus
    CHECK((w.path == std::vector<int32_t>{ 0, 2, 5 }));
    CHECK((w.tokens == std::vector<int32_t>{ 12, 13, 99 }));
    CHECK(!w.stopped && asked == w.path);

    w = run({ { 0, 77 } }, -1);   // nothing accepted: one token, like plain decoding
    CHECK((w.path == std::vector<int32_t>{ 0 }) && (w.tokens == std::vector<int32_t>{ 77 }) && !w.stopped);

    w = run({ { 0, 11 }, { 1, 12 } }, -1);   // 12 is a child of the root, not of node 1
    CHECK((w.path == std::vector<int32_t>{ 0, 1 }) && (w.tokens == std::vector<int32_t>{ 11, 12 }));

    w = run({ { 0, 11 } }, 11);   // the end token stops the walk even though it was drafted
    CHECK(w.stopped && (w.path == std::vector<int32_t>{ 0 }) && (w.tokens == std::vector<int32_t>{ 11 }));
    return TEST_RESULT;
}

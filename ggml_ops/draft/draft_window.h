// How far back the blocks of a slot look. A drafter may propose next to nothing once a text is longer than those that
// it was trained with, and no file says how long they were. Running statistics of one slot, no llama.cpp types.

#pragma once

#include <array>
#include <cstdint>

namespace dflash {

// Everything that the drafter holds, or less: what is best is tried. Now and then a block looks less or further back
// than usual, and is compared with the block before it, which met a text as hard. No pass is spent on it.
class draft_window {
  public:
    static constexpr int32_t ALL = INT32_MAX;

    // Positions before its anchor that the next block sees. n_held: of all that the drafter holds.
    int32_t choose(int32_t n_held);
    // What was accepted of that block.
    void observe(int32_t n_accepted);
    // Where a new answer may start: it is tried again soon.
    void fade();

    int32_t usual() const { return SIZES[usual_]; }

  private:
    static constexpr std::array<int32_t, 3> SIZES = { ALL, 1024, 256 };
    static constexpr int32_t                N     = (int32_t) SIZES.size();
    static constexpr int32_t                OFTEN = 4, SELDOM = 32;   // blocks between two trials
    static constexpr double                 MEMORY = 8;               // trials that count

    // Of a size that is not the usual one: by how many tokens more than with the usual one were accepted.
    struct rival {
        double n = 0, gain = 0;   // trials, and the mean of their differences
    };

    bool differs(int32_t size, int32_t n_held) const;
    void compare(double difference);
    void replace_usual(int32_t size);

    std::array<rival, N> rivals_;
    int32_t              usual_ = 0, chosen_ = 0, next_ = 0;   // places in SIZES
    int32_t              period_ = OFTEN, n_since_ = 0;        // blocks from one trial to the next, and since the last
    double               recent_ = -1, short_mean_ = 0, mean_ = 0;   // accepted of the last usual block, -1: none; of a
                                                                     // few; and of many
};

}   // namespace dflash

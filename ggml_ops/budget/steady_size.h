// Sizes of passes on devices, where another size makes a new graph (docs/placement.md, "Graphs are reused").

#pragma once

#include "budget/cost_curve.h"

#include <cstdint>

namespace dflash {

// A size that grows at once, and shrinks when keeping it has cost as much as a change would. Not after a single pass:
// the next one may need the old size again.
class steady_size {
  public:
    // Size of the next pass, which needs `narrow`, at most `most`. change_ms: what a new graph costs, as measured.
    int32_t choose(int32_t narrow, int32_t most, const cost_curve & costs, double change_ms) const;
    // A pass of this size, which needed `narrow`.
    void observe(int32_t size, int32_t narrow, const cost_curve & costs);
    // The next pass needs a new graph anyway.
    void forget();
    // The next pass is as narrow as possible, to measure it.
    void narrow_once();

  private:
    // The least cost of a change where rows are cheap, in passes of one row: a device does more for a new graph than
    // was measured (it captures and replays it in later passes), and on a busy machine the measurement means little.
    static constexpr double LEAST_COST = 4;
    // Cheap: a pass of the larger size takes at most this much longer. A CPU behind RPC is not such a device.
    static constexpr double CHEAP = 0.25;

    int32_t last_      = 0;   // size of the last pass, 0: it had another graph
    int32_t needed_    = 0;   // most that passes needed since one needed all of its size
    double  wasted_ms_ = 0;   // that they took for being larger
};

}   // namespace dflash

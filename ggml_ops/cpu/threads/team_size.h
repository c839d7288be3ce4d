// How many threads compute a graph. All of them, while each has a core. Once other programs want cores too, every
// thread that waits for one holds up all others: then a smaller team may be faster, and whether it is depends on the
// machine, so that it is tried. A result does not depend on the number of threads.

#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace dflash {

// Times in ns, of any clock that does not go back.
class team_size {
  public:
    explicit team_size(int most) : size_(most), most_(most) {}

    // Threads for a graph that begins now. Graphs with the same `kind` take equally long with equal teams.
    int choose(uint64_t kind, int64_t now);
    // Such a graph with so many threads has taken `duration`. For `late` of it, its leading thread slept since others
    // had not come yet.
    void observe(uint64_t kind, int size, int64_t duration, int64_t late, int64_t now);

    int size() const { return size_; }

  private:
    static constexpr int64_t MS     = 1'000'000;
    static constexpr int64_t WINDOW = 20 * MS;   // of work, in which waits are added up
    static constexpr double  LATE   = 0.1;       // of a window: then smaller teams are tried
    static constexpr int64_t TRIAL  = 30 * MS;   // of work for each size, at least
    static constexpr int     MOST   = 100;       // graphs for each size
    static constexpr double  GAIN   = 0.95;      // of the time: then a smaller team is better
    // Behind a trial that changed something; behind another one, in which time was lost, COST is the part of all time
    // that trials may lose.
    static constexpr int64_t SHORT_REST = 100 * MS, MIN_REST = 500 * MS, MAX_REST = 10000 * MS;
    static constexpr double  COST = 0.015;

    struct times {
        int64_t sum = 0;
        int     n   = 0;
    };

    void begin_trial();
    void end_trial(int64_t now);

    int              size_, most_;
    std::vector<int> tried_;   // sizes of the trial, the present one first; empty: no trial
    int              n_graphs_ = 0;
    int64_t          work_     = 0;
    int64_t          window_ = 0, late_ = 0;
    bool             is_late_    = false;   // the last window
    bool             all_next_   = false;   // the next trial of a larger team is one of all threads
    int64_t          next_trial_ = 0;

    std::map<uint64_t, std::vector<times>> kinds_;   // for each kind of graph, times of the sizes
};

}   // namespace dflash

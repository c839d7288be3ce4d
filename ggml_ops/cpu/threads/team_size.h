// How many threads compute a graph: all of them if each has a core. When other programs use the cores too, a thread
// that waits for a core holds up all others, and a smaller team may be faster. That depends on the machine, so it is
// measured. Results do not depend on the number of threads.

#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace dflash {

// Times are in ns, from any monotonic clock.
class team_size {
  public:
    explicit team_size(int most) : size_(most), most_(most) {}

    // Number of threads for a graph that starts now. Graphs of the same `kind` take the same time with teams of the
    // same size.
    int choose(uint64_t kind, int64_t now);
    // Record that such a graph took `duration` with `size` threads. `late` is how long its leading thread slept while
    // it waited for others.
    void observe(uint64_t kind, int size, int64_t duration, int64_t late, int64_t now);

    int size() const { return size_; }

  private:
    static constexpr int64_t MS     = 1'000'000;
    static constexpr int64_t WINDOW = 20 * MS;   // of compute time, over which waits are summed
    static constexpr double  LATE   = 0.1;       // share of two windows: above it, smaller teams are tried
    // A trial lasts for TRIAL of compute time per size, in MIN_ROUNDS graphs that all sizes have computed: a single
    // graph is disturbed too often. MOST: graphs per size after which it ends undecided. A size
    // that has taken HOPELESS times as long as the current one leaves it once that has cost MOST_LOST.
    static constexpr int64_t TRIAL      = 30 * MS;
    static constexpr int     MIN_ROUNDS = 6, MOST = 100;
    static constexpr double  GAIN     = 0.95;   // share of the time: below it, a smaller team is better
    static constexpr double  HOPELESS = 1.3, MOST_LOST = 15e6;
    // Pause after a trial: SHORT_REST if it changed the size. Otherwise long enough that trials lose at most the share
    // COST of all time: of compute time before a smaller team is tried (short requests must not pay for idle time
    // between them), of any time before a larger one (the other programs may have ended meanwhile). The first trial
    // waits for MIN_REST, too: threads wait for each other where a model's pages are first read.
    static constexpr int64_t SHORT_REST = 100 * MS, MIN_REST = 500 * MS, MAX_REST = 10000 * MS;
    static constexpr double  COST = 0.015;

    struct times {
        int64_t sum = 0;
        int     n   = 0;
    };

    // What the sizes of a trial took for the graphs that all of them have computed.
    struct comparison {
        std::vector<double> total;   // ns, of each size
        int                 n_rounds = 0;
    };

    void       begin_trial();
    comparison compared() const;
    void       drop_hopeless();
    void       end_trial(int64_t now);
    bool       is_late() const { return n_late_ >= 2; }

    int              size_, most_;
    std::vector<int> tried_;   // sizes in the trial, the current one first; empty: no trial
    int              n_graphs_ = 0;
    double           dropped_  = 0;   // ns that sizes took longer that have left the trial
    int64_t          window_ = 0, late_ = 0;
    int              n_late_      = 0;       // the latest windows, all late
    bool             all_next_    = false;   // whether the next trial of a larger team uses all threads
    int64_t          worked_      = 0;       // compute time of all graphs
    int64_t          next_larger_ = 0, next_smaller_ = MIN_REST;   // in `now` and in worked_

    std::map<uint64_t, std::vector<times>> kinds_;   // times of each size, per kind of graph
};

}   // namespace dflash

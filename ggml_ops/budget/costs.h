// What passes cost on this machine: measured at load, kept on disk, and corrected by every pass that runs (controller).

#pragma once

#include "budget/cost_curve.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dflash {

// How to run one pass of either kind. Each returns its milliseconds.
struct timed_passes {
    using draft_pass = std::function<double(int32_t n_slots, int32_t length)>;

    std::function<double(int32_t rows)> verify;
    std::vector<draft_pass>             drafts;   // of each drafter
};

// Bounds of an engine's passes.
struct pass_shapes {
    int32_t              n_slots = 1;
    std::vector<int32_t> max_lengths;      // of each drafter's drafts
    int32_t              n_rows_max = 1;   // widest target pass to measure
};

struct pass_costs {
    cost_curve              verify = cost_curve::of_target();   // by rows of the target pass
    std::vector<cost_curve> drafts;                             // of each drafter, by block tokens of its pass
    double                  rebuild_ms = 0;        // more for a target pass whose width differs from the last one's
    double                  other_ms   = 0;        // of a step beyond its passes; learned, not kept on disk
    const char *            source     = "none";   // "none", "measured" or "cache"
    bool                    fixed      = false;    // passes do not change them: DFLASH_FIXED_COSTS, for tests

    // Passes are timed as steps run them, target and drafter in turn: each finds the CPU's caches full of the other's
    // weights, which costs a tenth or more. elapsed_ms: the time since the start, which bounds how many points are
    // measured. Slow machines measure 1, 4 and 16 rows, and each drafter's blocks of 4 and 16 tokens.
    void measure(const timed_passes & passes, const pass_shapes & shapes, const std::function<double()> & elapsed_ms);

    // Records what such a pass took beyond the time of its width. One slow pass (another process) counts as twice what
    // is usual: it must not end changes of width.
    void observe_rebuild(double ms) {
        constexpr double RATE = 0.05, LEAST_MS = 0.05;
        const double     most = 2 * std::max(rebuild_ms, LEAST_MS);
        rebuild_ms += RATE * (std::clamp(ms, 0.0, most) - rebuild_ms);
    }

    // False, with nothing changed: the file cannot be read, or its values are impossible.
    bool read(const std::string & path, size_t n_drafters);
    // Best effort: without the file the next start measures again. No-op without a path or a measurement.
    void write(const std::string & path) const;

    // Whether 16 rows cost less than 15, so that it pays to fill the last group of rows.
    bool padding_pays() const;

  private:
    using timer = std::function<bool()>;   // whether there is time for more

    double measure_draft(
        size_t drafter, const timed_passes & passes, const pass_shapes & shapes, const timer & in_time);
    void measure_verify(const std::vector<int32_t> & widths, const timed_passes & passes, const pass_shapes & shapes,
        const timer & in_time);
    void repeat_disturbed(const timed_passes & passes, const pass_shapes & shapes, const timer & in_time);
};

}   // namespace dflash

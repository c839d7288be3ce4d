// What a pass costs by its width: measured points, corrected by every pass. No llama.cpp types.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

namespace dflash {

// The width that a pass of this many rows is padded to on devices: a few more rows cost little there, but a graph of a
// new shape costs a lot.
int32_t padded_width(int32_t rows);

// The time of a pass (ms) by its width (rows) and the cells that its rows attend to: measured points at an empty
// context, linear in between, plus a price per attended cell. Updated by a moving average, in which the first passes of
// a width weigh more: what was measured is of another moment.
//
// A width that was measured at a busy moment would never be tried: points that no pass has run since follow those that
// turn out faster than measured, and cost no more than the others allow (of_target()).
class cost_curve {
  public:
    // Of a target's passes, whose widths bound each other: some narrow passes can do the work of a wide one, and a wide
    // one does that of a narrow one as well. A drafter's passes for more tokens may be fewer or more.
    static cost_curve of_target() {
        cost_curve curve;
        curve.bounded_ = true;
        return curve;
    }

    void set(int32_t rows, double ms);
    void set_per_cell(double ms) { per_cell_ = ms; }
    // Whether passes are padded: then those with the same padded_width() cost the same.
    void    set_padded(bool padded) { padded_ = padded; }
    bool    padded() const { return padded_; }
    int32_t width(int32_t rows) const { return padded_ ? padded_width(rows) : rows; }
    // Records a pass. cells: positions that its rows attended to, summed over the rows.
    void                      observe(int32_t rows, double cells, double ms);
    double                    at(int32_t rows, double cells = 0) const;   // 0 if nothing was ever set
    double                    per_cell() const { return per_cell_; }
    bool                      empty() const { return points_.empty(); }
    bool                      has(int32_t rows) const { return points_.count(rows) > 0; }
    std::map<int32_t, double> points() const;
    // Whether a point costs more than the other ones allow: something disturbed its passes.
    bool doubtful(int32_t rows) const { return has(rows) && at(rows) > most(rows, false); }

  private:
    struct point {
        double  measured, ms;
        int32_t n_seen;                  // passes of this width that have run
        double  most       = INFINITY;   // while none has: what the seen points allow
        bool    is_doubted = false;      // they allowed less than was measured: it says nothing of the trend
    };

    point  first_point(int32_t rows, double ms) const;
    double value(const point & p) const { return p.n_seen > 0 ? p.ms : std::min(p.ms * trend_, p.most); }
    double most(int32_t rows, bool only_seen) const;
    void   bound_unseen();

    std::map<int32_t, point> points_;
    bool                     bounded_  = false;
    bool                     padded_   = false;
    double                   trend_    = 1;   // of seen points to what was measured, at most 1
    double                   per_cell_ = 0;
    double excess_ = 0, square_ = 0;   // decaying sums of the regression for per_cell_: excess * cells and cells^2
};

}   // namespace dflash

// Deterministic automata over Unicode code points: what a pattern, a length or a list of names lets through, and what
// several of these do at once. A grammar of right-recursive rules has the same strings.

#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace dflash {

// ---- sets of code points ----

using ranges = std::vector<std::pair<uint32_t, uint32_t>>;   // both ends included

constexpr uint32_t LAST_POINT = 0x10FFFF;

ranges united(ranges r);   // sorted, apart from each other
ranges without(const ranges & r, const ranges & others);
ranges complement(const ranges & r);   // of all code points
ranges all_points();                   // a surrogate is no character

std::vector<uint32_t> points_of(const std::string & text);   // of UTF-8; bad bytes give any points

// ---- automata ----

struct automaton {
    struct edge {
        uint32_t low, high;   // both included
        int32_t  to;
    };
    struct state {
        bool              accepts = false;
        std::vector<edge> edges   = {};   // sorted, apart from each other; a point without one ends in nothing
    };
    std::vector<state> states;   // a text begins in the first; no states: nothing is accepted

    bool accepts(const std::string & text) const;
    bool is_empty() const { return states.empty(); }   // of what these functions return
    bool takes_all(int32_t state) const;               // whatever follows, nothing too
};

constexpr size_t MAX_STATES = 20000;

// Thrown by what would need more of them.
struct automaton_size_error : std::length_error {
    using std::length_error::length_error;
};

automaton texts(const std::set<std::string> & all);
automaton lengths(size_t min, size_t max);   // in code points; max SIZE_MAX: without a limit
automaton both(const automaton & a, const automaton & b);
automaton other_than(const automaton & a);   // all texts but those
automaton minimal(const automaton & a);      // the smallest with the same texts

}   // namespace dflash

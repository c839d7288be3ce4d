// Deterministic automata over Unicode code points: what a pattern, a length or a list of names accepts, and what
// several of these accept together. A grammar of right-recursive rules accepts the same strings.

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

ranges united(ranges r);   // sorted and disjoint
ranges without(const ranges & r, const ranges & others);
ranges complement(const ranges & r);   // within all code points
ranges all_points();                   // without surrogates, which are not characters

std::vector<uint32_t> points_of(const std::string & text);   // decodes UTF-8; invalid bytes give arbitrary points

// ---- automata ----

struct automaton {
    struct edge {
        uint32_t low, high;   // both inclusive
        int32_t  to;
    };
    struct state {
        bool              accepts = false;
        std::vector<edge> edges   = {};   // sorted and disjoint; a point without an edge is rejected
    };
    std::vector<state> states;   // the first is the start; no states: nothing is accepted

    bool accepts(const std::string & text) const;
    bool is_empty() const { return states.empty(); }   // valid for results of these functions
    bool takes_all(int32_t state) const;               // whether it accepts whatever follows, including nothing
};

constexpr size_t MAX_STATES = 20000, MAX_EDGES = 500000;

// Thrown if a result would need more states or edges, or more work than there is a budget for.
struct automaton_size_error : std::length_error {
    automaton_size_error() : std::length_error("needs too large a grammar") {}
};

void check_automaton_size(size_t n_states, size_t n_edges = 0);   // throws it

// What making automata may cost in this thread while the budget lives: many small ones, or what becomes small in the
// end, can take as long as a large one. Inside another budget that one counts. Without any there is no limit.
class automaton_budget {
  public:
    automaton_budget();
    ~automaton_budget();
    automaton_budget(const automaton_budget &)             = delete;
    automaton_budget & operator=(const automaton_budget &) = delete;

    // Counts steps of about 20 ns. Throws automaton_size_error.
    static void spend(size_t steps);

  private:
    bool outermost_;
};

automaton texts(const std::set<std::string> & all);
automaton lengths(size_t min, size_t max);   // in code points; max SIZE_MAX: no limit
automaton both(const automaton & a, const automaton & b);
automaton other_than(const automaton & a);   // the complement: all other texts
automaton minimal(const automaton & a);      // the smallest equivalent automaton

}   // namespace dflash

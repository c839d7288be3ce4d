#include "schema/automaton.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace dflash {

namespace {

using edges = std::vector<automaton::edge>;

constexpr int64_t BUDGET = 50000000;   // steps: a second

thread_local int64_t budget_left = -1;   // -1: there is none

// Merges adjacent ranges with the same target.
edges joined(edges all) {
    std::sort(all.begin(), all.end(), [](const auto & a, const auto & b) { return a.low < b.low; });
    edges out;
    for (const automaton::edge & e : all) {
        if (!out.empty() && out.back().to == e.to && out.back().high + 1 == e.low) {
            out.back().high = e.high;
        } else {
            out.push_back(e);
        }
    }
    return out;
}

// Removes states that no text reaches or from which nothing is accepted.
automaton trimmed(const automaton & a) {
    const size_t                      n = a.states.size();
    std::vector<std::vector<int32_t>> sources(n);
    for (size_t i = 0; i < n; ++i) {
        for (const automaton::edge & e : a.states[i].edges) {
            sources[e.to].push_back(int32_t(i));
        }
    }
    std::vector<int32_t> open;
    std::vector<bool>    useful(n, false);
    for (size_t i = 0; i < n; ++i) {
        if (a.states[i].accepts) {
            useful[i] = true;
            open.push_back(int32_t(i));
        }
    }
    while (!open.empty()) {
        const int32_t i = open.back();
        open.pop_back();
        for (const int32_t from : sources[i]) {
            if (!useful[from]) {
                useful[from] = true;
                open.push_back(from);
            }
        }
    }
    automaton out;
    if (n == 0 || !useful[0]) {
        return out;
    }
    std::vector<int32_t> place(n, -1), order = { 0 };
    place[0] = 0;
    for (size_t k = 0; k < order.size(); ++k) {
        automaton::state s = { a.states[order[k]].accepts };
        for (automaton::edge e : a.states[order[k]].edges) {
            if (!useful[e.to]) {
                continue;
            }
            if (place[e.to] < 0) {
                place[e.to] = int32_t(order.size());
                order.push_back(e.to);
            }
            e.to = place[e.to];
            s.edges.push_back(e);
        }
        s.edges = joined(s.edges);
        out.states.push_back(std::move(s));
    }
    return out;
}

}   // namespace

// ---- sets of code points ----

ranges united(ranges r) {
    std::sort(r.begin(), r.end());
    ranges out;
    for (const auto & [low, high] : r) {
        if (!out.empty() && low <= out.back().second + 1) {
            out.back().second = std::max(out.back().second, high);
        } else {
            out.emplace_back(low, high);
        }
    }
    return out;
}

ranges complement(const ranges & r) {
    ranges   out;
    uint32_t next = 0;
    for (const auto & [low, high] : united(r)) {
        if (low > next) {
            out.emplace_back(next, low - 1);
        }
        next = high + 1;
    }
    if (next <= LAST_POINT) {
        out.emplace_back(next, LAST_POINT);
    }
    return out;
}

ranges without(const ranges & r, const ranges & others) {
    ranges all = complement(r);
    all.insert(all.end(), others.begin(), others.end());
    return complement(all);
}

ranges all_points() { return { { 0, 0xD7FF }, { 0xE000, LAST_POINT } }; }

std::vector<uint32_t> points_of(const std::string & text) {
    std::vector<uint32_t> points;
    for (size_t i = 0; i < text.size();) {
        const auto   c     = (unsigned char) text[i];
        const size_t n     = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
        uint32_t     point = n == 1 ? c : c & (0xFF >> (n + 1));
        for (size_t k = 1; k < n && i + k < text.size(); ++k) {
            point = (point << 6) | ((unsigned char) text[i + k] & 0x3F);
        }
        points.push_back(point);
        i += n;
    }
    return points;
}

// ---- automata ----

void check_automaton_size(size_t n_states, size_t n_edges) {
    if (n_states > MAX_STATES || n_edges > MAX_EDGES) {
        throw automaton_size_error();
    }
}

automaton_budget::automaton_budget() : outermost_(budget_left < 0) { budget_left = outermost_ ? BUDGET : budget_left; }

automaton_budget::~automaton_budget() { budget_left = outermost_ ? -1 : budget_left; }

void automaton_budget::spend(size_t steps) {
    if (budget_left >= 0 && (budget_left = std::max<int64_t>(0, budget_left - int64_t(steps))) == 0) {
        throw automaton_size_error();
    }
}

bool automaton::accepts(const std::string & text) const {
    if (states.empty()) {
        return false;
    }
    int32_t at = 0;
    for (const uint32_t point : points_of(text)) {
        const auto & all = states[at].edges;
        const auto   e   = std::find_if(
            all.begin(), all.end(), [&](const edge & one) { return one.low <= point && point <= one.high; });
        if (e == all.end()) {
            return false;
        }
        at = e->to;
    }
    return states[at].accepts;
}

bool automaton::takes_all(int32_t state) const {
    const auto & all = states[state].edges;
    return states[state].accepts && all.size() == 2 && all[0].low == 0 && all[0].high == 0xD7FF &&
           all[1].low == 0xE000 && all[1].high == LAST_POINT &&
           std::all_of(all.begin(), all.end(), [&](const edge & e) { return e.to == state; });
}

automaton texts(const std::set<std::string> & all) {
    automaton out;
    out.states.emplace_back();
    std::vector<std::map<uint32_t, int32_t>> next(1);
    for (const std::string & text : all) {
        int32_t at = 0;
        for (const uint32_t point : points_of(text)) {
            const auto [place, added] = next[at].emplace(point, int32_t(next.size()));
            at                        = place->second;
            if (added) {
                check_automaton_size(next.size());
                next.emplace_back();
                out.states.emplace_back();
            }
        }
        out.states[at].accepts = true;
    }
    for (size_t i = 0; i < next.size(); ++i) {
        for (const auto & [point, to] : next[i]) {
            out.states[i].edges.push_back({ point, point, to });
        }
    }
    return trimmed(out);
}

automaton lengths(size_t min, size_t max) {
    const size_t n = max == SIZE_MAX ? min : max;
    check_automaton_size(n);
    automaton out;
    for (size_t i = 0; i <= n; ++i) {
        automaton::state s = { i >= min };
        if (i < n || max == SIZE_MAX) {
            for (const auto & [low, high] : all_points()) {
                s.edges.push_back({ low, high, int32_t(std::min(i + 1, n)) });
            }
        }
        out.states.push_back(std::move(s));
    }
    return out;
}

automaton both(const automaton & a, const automaton & b) {
    automaton out;
    if (a.is_empty() || b.is_empty()) {
        return out;
    }
    std::map<std::pair<int32_t, int32_t>, int32_t> places  = { { { 0, 0 }, 0 } };
    std::vector<std::pair<int32_t, int32_t>>       pairs   = { { 0, 0 } };
    size_t                                         n_edges = 0;
    for (size_t k = 0; k < pairs.size(); ++k) {
        check_automaton_size(pairs.size(), n_edges);
        const automaton::state & s = a.states[pairs[k].first];
        const automaton::state & t = b.states[pairs[k].second];
        automaton::state         u = { s.accepts && t.accepts };
        for (size_t i = 0, j = 0; i < s.edges.size() && j < t.edges.size();) {
            const automaton::edge &x = s.edges[i], &y = t.edges[j];
            const uint32_t         low = std::max(x.low, y.low), high = std::min(x.high, y.high);
            if (low <= high) {
                const auto [place, added] = places.emplace(std::make_pair(x.to, y.to), int32_t(pairs.size()));
                if (added) {
                    pairs.emplace_back(x.to, y.to);
                }
                u.edges.push_back({ low, high, place->second });
            }
            (x.high < y.high ? i : j) += 1;
        }
        automaton_budget::spend(s.edges.size() + t.edges.size() + 4 * u.edges.size());
        n_edges += u.edges.size();
        out.states.push_back(std::move(u));
    }
    return trimmed(out);
}

automaton other_than(const automaton & a) {
    automaton     out = a;
    const int32_t all = int32_t(out.states.size());   // the state that any text reaches once `a` rejects it
    out.states.emplace_back();
    for (automaton::state & s : out.states) {
        ranges known;
        for (const automaton::edge & e : s.edges) {
            known.emplace_back(e.low, e.high);
        }
        for (const auto & [low, high] : without(all_points(), known)) {
            s.edges.push_back({ low, high, all });
        }
        s.accepts = !s.accepts;
        s.edges   = joined(s.edges);
        automaton_budget::spend(4 * s.edges.size());
    }
    return trimmed(out);
}

namespace {

// Refines classes of states until no text distinguishes those of one. Moore's rounds, in which only states that lead to
// a changed one are looked at again, and the largest part of a class keeps its number (Hopcroft 1971): so a state
// changes a logarithmic number of times, and a chain of n states takes n short rounds.
class partition {
  public:
    explicit partition(const automaton & a) : states_(a.states), sources_(a.states.size()), members_(2) {
        const size_t n = states_.size();
        for (size_t i = 0; i < n; ++i) {
            for (const automaton::edge & e : states_[i].edges) {
                sources_[e.to].push_back(int32_t(i));
            }
            classes_.push_back(states_[i].accepts);
            at_.push_back(members_[classes_[i]].size());
            members_[classes_[i]].push_back(int32_t(i));
            open_.push_back(int32_t(i));
        }
        is_open_.assign(n, true);
        while (!open_.empty()) {
            refine();
        }
    }

    // Of each state, numbered in the order of their first states.
    std::vector<int32_t> classes() const {
        std::vector<int32_t> numbers(members_.size(), -1), out;
        int32_t              n = 0;
        for (const int32_t c : classes_) {
            numbers[c] = numbers[c] < 0 ? n++ : numbers[c];
            out.push_back(numbers[c]);
        }
        return out;
    }

  private:
    using signature = std::vector<uint32_t>;   // low, high and class of each edge

    struct move {
        int32_t state, to;
    };

    // All signatures of a round are those of its beginning.
    void refine() {
        std::map<int32_t, std::vector<int32_t>> by_class;
        for (const int32_t i : open_) {
            by_class[classes_[i]].push_back(i);
        }
        std::vector<move> moves;
        for (const auto & [c, open] : by_class) {
            split(c, open, moves);
        }
        for (const int32_t i : open_) {
            is_open_[i] = false;
        }
        open_.clear();
        for (const move & m : moves) {
            apply(m);
            for (const int32_t i : sources_[m.state]) {
                if (!is_open_[i]) {
                    is_open_[i] = true;
                    open_.push_back(i);
                }
            }
        }
    }

    // `open`: members of the class that may differ. The others all have one signature.
    void split(int32_t c, const std::vector<int32_t> & open, std::vector<move> & moves) {
        std::map<signature, std::vector<int32_t>> parts;
        for (const int32_t i : open) {
            parts[signature_of(i)].push_back(i);
        }
        const auto                   is_other = [&](int32_t i) { return !is_open_[i]; };
        const size_t                 n_others = members_[c].size() - open.size();
        const std::vector<int32_t> * with     = nullptr;   // the part that the others belong to
        if (n_others > 0) {
            with = &parts[signature_of(*std::find_if(members_[c].begin(), members_[c].end(), is_other))];
        }
        const auto size    = [&](const auto & part) { return part.second.size() + (&part.second == with) * n_others; };
        const auto largest = std::max_element(
            parts.begin(), parts.end(), [&](const auto & a, const auto & b) { return size(a) < size(b); });
        for (auto part = parts.begin(); part != parts.end(); ++part) {
            if (part == largest) {
                continue;
            }
            if (&part->second == with) {
                std::copy_if(members_[c].begin(), members_[c].end(), std::back_inserter(part->second), is_other);
            }
            for (const int32_t i : part->second) {
                moves.push_back({ i, int32_t(members_.size()) });
            }
            members_.emplace_back();
        }
    }

    signature signature_of(int32_t i) const {
        edges all = states_[i].edges;
        automaton_budget::spend(4 * all.size());
        for (automaton::edge & e : all) {
            e.to = classes_[e.to];
        }
        signature s;
        for (const automaton::edge & e : joined(all)) {
            s.insert(s.end(), { e.low, e.high, uint32_t(e.to) });
        }
        return s;
    }

    void apply(const move & m) {
        std::vector<int32_t> & from = members_[classes_[m.state]];
        from[at_[m.state]]          = from.back();
        at_[from.back()]            = at_[m.state];
        from.pop_back();
        classes_[m.state] = m.to;
        at_[m.state]      = members_[m.to].size();
        members_[m.to].push_back(m.state);
    }

    const std::vector<automaton::state> & states_;
    std::vector<std::vector<int32_t>>     sources_;   // of each state: those with an edge to it
    std::vector<std::vector<int32_t>>     members_;   // of each class
    std::vector<int32_t>                  classes_;   // of each state
    std::vector<size_t>                   at_;        // where each state is among its class's members
    std::vector<int32_t>                  open_;      // states to look at
    std::vector<bool>                     is_open_;
};

}   // namespace

automaton minimal(const automaton & from) {
    const automaton            a       = trimmed(from);
    const std::vector<int32_t> classes = partition(a).classes();
    automaton                  out;
    for (size_t i = 0; i < classes.size(); ++i) {
        if (size_t(classes[i]) < out.states.size()) {
            continue;
        }
        automaton::state s = a.states[i];
        for (automaton::edge & e : s.edges) {
            e.to = classes[e.to];
        }
        s.edges = joined(s.edges);
        out.states.push_back(std::move(s));
    }
    return out;
}

}   // namespace dflash

#include "schema/automaton.h"

#include <algorithm>
#include <map>

namespace dflash {

namespace {

using edges = std::vector<automaton::edge>;

void check_size(size_t n_states) {
    if (n_states > MAX_STATES) {
        throw automaton_size_error("needs too large a grammar");
    }
}

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
                check_size(next.size());
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
    check_size(n);
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
    std::map<std::pair<int32_t, int32_t>, int32_t> places = { { { 0, 0 }, 0 } };
    std::vector<std::pair<int32_t, int32_t>>       pairs  = { { 0, 0 } };
    for (size_t k = 0; k < pairs.size(); ++k) {
        check_size(pairs.size());
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
    }
    return trimmed(out);
}

// Moore's algorithm: states are equal unless some text distinguishes them.
automaton minimal(const automaton & from) {
    automaton    a = trimmed(from);
    const size_t n = a.states.size();
    if (n == 0) {
        return a;
    }
    std::vector<int32_t> classes(n);
    for (size_t i = 0; i < n; ++i) {
        classes[i] = a.states[i].accepts;
    }
    for (size_t n_classes = 0;;) {
        std::map<std::vector<uint32_t>, int32_t> found;
        std::vector<int32_t>                     next(n);
        for (size_t i = 0; i < n; ++i) {
            edges all = a.states[i].edges;
            for (automaton::edge & e : all) {
                e.to = classes[e.to];
            }
            std::vector<uint32_t> signature = { uint32_t(classes[i]) };
            for (const automaton::edge & e : joined(all)) {
                signature.insert(signature.end(), { e.low, e.high, uint32_t(e.to) });
            }
            next[i] = found.emplace(std::move(signature), int32_t(found.size())).first->second;
        }
        classes = next;
        if (found.size() == n_classes) {
            break;
        }
        n_classes = found.size();
    }
    // the first state is in the first class
    automaton         out;
    std::vector<bool> written(n, false);
    for (size_t i = 0; i < n; ++i) {
        if (written[classes[i]]) {
            continue;
        }
        written[classes[i]] = true;
        automaton::state s  = a.states[i];
        for (automaton::edge & e : s.edges) {
            e.to = classes[e.to];
        }
        s.edges = joined(s.edges);
        out.states.push_back(std::move(s));
    }
    return out;
}

}   // namespace dflash

#include "budget/choice.h"

#include <algorithm>
#include <cmath>

namespace dflash {

// ---- choice of nodes ----

// A slot's draft node.
struct ranked_node {
    float   value;
    int32_t slot, index;
};

// The draft nodes of all slots, best first. Equal values keep a slot's own order, so that each prefix of the list is a
// prefix of every tree.
static std::vector<ranked_node> ranked_nodes(const std::vector<std::vector<float>> & values) {
    std::vector<ranked_node> nodes;
    for (int32_t s = 0; s < (int32_t) values.size(); ++s) {
        for (int32_t i = 0; i < (int32_t) values[s].size(); ++i) {
            nodes.push_back({ values[s][i], s, i });
        }
    }
    std::sort(nodes.begin(), nodes.end(), [](const ranked_node & a, const ranked_node & b) {
        return a.value != b.value ? a.value > b.value : a.index != b.index ? a.index < b.index : a.slot < b.slot;
    });
    return nodes;
}

// Whether the next passes are likely to have so many rows, too. A slot's trees mostly have a few.
static bool recurs(int32_t rows, const cost_curve & verify, const last_pass & previous) {
    constexpr int32_t FEW = 16;
    return verify.padded() ? rows == verify.width(rows)
                           : rows < FEW || rows % 4 == 0 || rows == previous.rows || verify.has(rows);
}

static double step_ms(
    int32_t rows, const cost_curve & verify, double n_attended, double fixed_ms, const last_pass & previous) {
    const bool   same = verify.width(rows) == verify.width(previous.rows);
    const double ms   = fixed_ms + verify.at(rows, rows * n_attended) + (same ? 0.0 : previous.rebuild_ms);
    if (verify.padded() && rows < previous.rows) {   // the pass may stay as wide as the last one
        return std::min(ms, fixed_ms + verify.at(previous.rows, rows * n_attended));
    }
    return ms;
}

node_choice best_nodes(const std::vector<std::vector<float>> & values, const cost_curve & verify, double n_attended,
    double fixed_ms, int32_t max_rows, last_pass previous) {
    const int32_t                  n_slots = (int32_t) values.size();
    const std::vector<ranked_node> nodes   = ranked_nodes(values);
    const int32_t                  last    = std::min((int32_t) nodes.size(), std::max(0, max_rows - n_slots));
    node_choice                    best;
    double                         gain = n_slots;
    for (int32_t k = 0; k <= last; ++k) {
        const int32_t rows = n_slots + k;
        gain += k > 0 ? nodes[k - 1].value : 0.0;
        if (k > 0 && k < last && !recurs(rows, verify, previous)) {
            continue;
        }
        const double ms   = step_ms(rows, verify, n_attended, fixed_ms, previous);
        const double rate = ms > 0 ? gain / ms : gain;
        if (k == 0 || rate > best.rate) {
            best.n_nodes = rows;
            best.gain    = gain;
            best.rate    = rate;
        }
    }
    best.per_slot.assign(n_slots, 1);
    for (int32_t k = 0; k < best.n_nodes - n_slots; ++k) {
        ++best.per_slot[nodes[k].slot];
    }
    return best;
}

// ---- value_profile ----

void value_profile::observe(int32_t length, const std::vector<int32_t> & lengths, const std::vector<int32_t> & depths,
    const std::vector<float> & values) {
    // A block that is good to its end says nothing about where a longer one would stop.
    bool whole = false;
    for (size_t i = 0; i < values.size(); ++i) {
        whole = whole || (depths[i] == length - 1 && values[i] >= GOOD_END);
    }
    for (auto & [l, m] : lengths_) {
        if (l > length) {
            m.age = whole ? STALE + 1 : m.age + 1;
        }
    }
    for (const int32_t l : lengths) {
        if (l > length) {
            continue;
        }
        const auto [it, fresh] = lengths_.try_emplace(l);
        mean & m               = it->second;
        m.age                  = 0;
        size_t n               = 0;
        for (size_t i = 0; i < values.size(); ++i) {
            if (depths[i] >= l) {
                continue;
            }
            if (n == m.values.size()) {
                m.values.push_back(fresh ? values[i] : NEWEST * values[i]);
            } else {
                m.values[n] += NEWEST * (values[i] - m.values[n]);
            }
            ++n;
        }
        for (; n < m.values.size(); ++n) {
            m.values[n] *= 1 - NEWEST;
        }
        // Averages of descending lists descend, except for rounding.
        for (size_t k = 1; k < m.values.size(); ++k) {
            m.values[k] = std::min(m.values[k], m.values[k - 1]);
        }
    }
}

const std::vector<float> * value_profile::at(int32_t length) const {
    const auto it = lengths_.find(length);
    return it == lengths_.end() || it->second.age > STALE ? nullptr : &it->second.values;
}

// ---- choice of the block length ----

// A longer block is preferred while it has so much of the best one's rate. What it is worth is then known for all
// lengths, whereas a short one that was chosen in a hard passage hides that the text behind its end is easy again.
// Where drafts gain little over plain decoding, that much would be all of it.
static constexpr double NEARLY = 0.95, NEARLY_IF_LITTLE = 0.99, LITTLE = 1.3;

length_choice best_length(const std::vector<const value_profile *> & slots, const std::vector<int32_t> & lengths,
    const cost_curve & verify, double n_attended, const cost_curve & draft, double other_ms, int32_t max_rows) {
    const int32_t n_slots = (int32_t) slots.size();
    length_choice best;
    if (n_slots == 0) {
        return best;
    }
    std::vector<length_choice> choices;
    double                     top = 0;
    for (const int32_t length : lengths) {
        std::vector<std::vector<float>> values;
        for (const value_profile * p : slots) {
            if (const std::vector<float> * v = p->at(length)) {
                values.push_back(*v);
            }
        }
        length_choice c;
        c.length = length;
        if ((int32_t) values.size() == n_slots) {
            const node_choice n =
                best_nodes(values, verify, n_attended, draft.at(n_slots * length) + other_ms, max_rows);
            c.rate  = n.rate;
            c.gain  = n.gain;
            c.nodes = n.n_nodes;
        }
        choices.push_back(c);
        top = std::max(top, c.rate);
    }
    const double plain_ms = verify.at(n_slots, n_slots * n_attended) + other_ms;
    const double nearly   = top * plain_ms < LITTLE * n_slots ? NEARLY_IF_LITTLE : NEARLY;
    // Longest first: a new slot starts with the whole block, and an old one checks again whether more would pay off.
    for (auto c = choices.rbegin(); c != choices.rend(); ++c) {
        if (c->rate == 0 || c->rate >= nearly * top) {
            c->known = top;
            return *c;
        }
    }
    return best;
}

// ---- drafter_turns ----

void drafter_turns::make_current(int32_t drafter) {
    const double gain = turns_[drafter].gain;
    for (auto & [other, t] : turns_) {
        t.gain -= gain;
    }
    current_             = drafter;
    turns_[drafter].wait = MIN_WAIT;
}

// Averages a trial's rate over the current drafter's of the step before.
void drafter_turns::compare(turn & t, double gain) {
    if (gain > GAIN) {   // has the text changed?
        t.n_compared = std::min(t.n_compared, FEW);
        t.wait       = MIN_WAIT;
    }
    t.gain += (gain - t.gain) / ++t.n_compared;
    t.n_compared = std::min(t.n_compared, MANY);
}

// Who is to be tried, null: nobody. What is unknown comes first.
const length_choice * drafter_turns::due(const std::vector<length_choice> & best) {
    const auto fresh = std::find_if(best.begin(), best.end(), [](const length_choice & c) { return c.known == 0; });
    if (fresh != best.end()) {
        return &*fresh;
    }
    for (const length_choice & c : best) {
        turn & t = turns_[c.drafter];
        if (c.drafter != current_ && t.n_since >= t.wait) {
            t.wait = std::min(2 * t.wait, MAX_WAIT);
            return &c;
        }
    }
    return nullptr;
}

const length_choice & drafter_turns::choose(const std::vector<length_choice> & best) {
    const auto current = std::find_if(best.begin(), best.end(), [&](auto & c) { return c.drafter == current_; });
    if (current == best.end()) {
        make_current(best.front().drafter);
        return choose(best);
    }
    const length_choice * top = &*current;
    for (const length_choice & c : best) {
        turn & t = turns_[c.drafter];
        if (&c != &*current && t.n_since == 0 && c.known > 0 && current->known > 0) {
            compare(t, std::log(c.known / current->known));
        }
        if (t.gain > GAIN && t.gain > turns_[top->drafter].gain) {
            top = &c;
        }
    }
    make_current(top->drafter);
    const length_choice * trial  = due(best);
    const length_choice & chosen = trial ? *trial : *top;
    for (auto & [drafter, t] : turns_) {
        t.n_since = drafter == chosen.drafter ? 0 : t.n_since + 1;
    }
    return chosen;
}

void drafter_turns::new_text() {
    for (auto & [drafter, t] : turns_) {
        t.wait = std::min(t.wait, 2 * MIN_WAIT);
    }
}

// ---- drafter_rests ----

void drafter_rests::fail(int32_t drafter) {
    rest & r = rests_[drafter];
    r.length = std::clamp(2 * r.length, MIN_REST, MAX_REST);
    r.n_left = r.length;
}

void drafter_rests::drafted(int32_t drafter) {
    rests_.erase(drafter);
    for (auto & [other, r] : rests_) {
        r.n_left = std::max(0, r.n_left - 1);
    }
}

void drafter_rests::new_text() {
    for (auto & [drafter, r] : rests_) {
        r.n_left = std::min(r.n_left, MIN_REST);
    }
}

int32_t drafter_rests::n_left(int32_t drafter) const {
    const auto found = rests_.find(drafter);
    return found == rests_.end() ? 0 : found->second.n_left;
}

bool drafter_rests::any_ready(const std::vector<int32_t> & drafters) const {
    return std::any_of(drafters.begin(), drafters.end(), [this](int32_t drafter) { return n_left(drafter) == 0; });
}

std::vector<int32_t> drafter_rests::ready(const std::vector<int32_t> & drafters) const {
    int32_t shortest = MAX_REST;
    for (const int32_t drafter : drafters) {
        shortest = std::min(shortest, n_left(drafter));
    }
    std::vector<int32_t> chosen;
    for (const int32_t drafter : drafters) {
        if (n_left(drafter) == shortest) {
            chosen.push_back(drafter);
        }
    }
    return chosen;
}

// ---- draft_switch ----

bool draft_switch::draft_now() {
    if (rest_ == 0) {
        return true;
    }
    is_trial_ = --rest_ == 0;
    return false;
}

void draft_switch::observe(int32_t n_slots, double accepted, double expected, double ms, double plain_rate) {
    failed_   = 0;
    accepted_ = LONG * accepted_ + accepted;
    expected_ = LONG * expected_ + expected;
    // What was accepted varies a lot between steps, what was expected may be wrong for long. One step's luck is no
    // trial.
    const double promised = expected * bias();
    const double tokens   = n_slots + (is_trial_ ? promised : 0.5 * (accepted + promised));
    is_trial_             = false;
    recent_tokens_        = SHORT * recent_tokens_ + tokens;
    recent_ms_            = SHORT * recent_ms_ + ms;
    loss_                 = std::max(0.0, loss_ + (plain_rate * ms - tokens) / n_slots);
    if (loss_ > LIMIT) {
        loss_ = LIMIT;
        rest(lost_);
    } else if (loss_ < 0.5 * LIMIT) {
        lost_ = 0;
    }
}

void draft_switch::rest(int32_t & length) {
    length = std::clamp(2 * length, MIN_REST, MAX_REST);
    rest_  = length;
}

void draft_switch::fail() { rest(failed_); }

void draft_switch::new_text(int32_t n_others) {
    if (n_others > 0) {
        rest_ = std::min(rest_, OTHERS_REST);
        return;
    }
    loss_     = std::min(loss_, LIMIT - CREDIT);
    is_trial_ = is_trial_ || rest_ > 0;
    rest_     = 0;
}

}   // namespace dflash

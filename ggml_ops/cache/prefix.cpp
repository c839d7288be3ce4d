// Where the beginning of a prompt comes from: what the sequence holds, what another one holds or is about to read, what
// the host keeps. That part is not read again.

#include "cache/cache.h"

#include <algorithm>
#include <new>

namespace dflash {

namespace {

// A prompt waits for another sequence that reads the same beginning if that saves at least this many rows: to read
// fewer in the same pass costs less than the wait.
constexpr int32_t MIN_SHARED_READING = 64;
// What comes from elsewhere must save at least this many rows more than what the sequence holds.
constexpr int32_t MIN_GAIN = 8;

// Tokens at a prompt's end that the next one may not repeat: the template's own words for the answer's beginning, and
// what a checkpoint leaves out.
constexpr int32_t TEMPLATE_TAIL = 32;

// Whether keeping n_kept tokens of a sequence or conversation loses more than half of it.
template <class T> bool loses_much(const T & from, int32_t n_kept) { return 2 * n_kept < (int32_t) from.tokens.size(); }

}   // namespace

std::vector<int32_t> reusable_part(const std::vector<int32_t> & prompt, int32_t probs_from) {
    const int32_t n = (int32_t) prompt.size();
    return { prompt.begin(), prompt.begin() + (probs_from > 0 ? std::min(probs_from, n) : n) };
}

// ---- which sequence ----

// Of the candidates, oldest first: the one whose conversation the prompt goes on with; otherwise one that holds
// nothing, so that nothing is lost; otherwise one that loses less than half; otherwise the first.
int32_t cache::choose(const std::vector<int32_t> & prompt, const int32_t * candidates, int32_t n) const {
    refuse_if(!candidates || n < 1, "slots is empty: give at least one idle slot");
    const sequence *goes_on = nullptr, *similar = nullptr, *empty = nullptr;
    int32_t         n_most = (int32_t) (slot_similarity_ * (float) prompt.size()), n_similar = n_most;
    for (int32_t i = 0; i < n; ++i) {
        const sequence & s = at(candidates[i]);
        if (s.running) {
            throw status_error(DFLASH_ERROR_BUSY, "slot ", s.id, " is running: choose an idle one");
        }
        if (s.tokens.empty()) {
            empty = empty ? empty : &s;
            continue;
        }
        const int32_t own = slot_similarity_ > 0 ? own_prefix(s, prompt) : 0;
        if (own > n_most && own >= s.n_asked - TEMPLATE_TAIL) {
            goes_on = &s;
            n_most  = own;
        } else if (own > n_similar && !loses_much(s, own)) {
            similar   = &s;
            n_similar = own;
        }
    }
    for (const sequence * s : { goes_on, empty, similar }) {
        if (s) {
            return s->id;
        }
    }
    return candidates[0];
}

// ---- where from ----

// Tokens of the prompt that a sequence need not read if it gets this prompt.
int32_t cache::own_prefix(const sequence & s, const std::vector<int32_t> & prompt) const {
    return kept_tokens(reach(s), s.checkpoints, s.media.whole(common_tokens(s.tokens, prompt)));
}

// The fewest tokens that it can be cut back to.
int32_t cache::reach(const sequence & s) const {
    return s.media.tokens_before(target_memory().reach(s.id, s.position()));
}

// Tokens of the prompt that another sequence will hold when it has read its own prompt.
int32_t cache::future_prefix(const sequence & s, const std::vector<int32_t> & prompt) const {
    const int32_t n_common = s.media.whole(common_tokens(*s.prompt, prompt));
    if (!target_memory().drops_cells()) {
        return n_common;
    }
    return s.save_at > 0 && s.save_at <= n_common ? s.save_at : 0;
}

int32_t cache::held_by_running(const std::vector<int32_t> & prompt) const {
    int32_t n = 0;
    for (const sequence & s : sequences_) {
        if (s.running) {
            n = std::max({ n, own_prefix(s, prompt), s.reading() ? future_prefix(s, prompt) : 0 });
        }
    }
    return n;
}

// Whether one sequence can have another one's cells, so that nothing of the target's memory is copied.
bool cache::shares_cells() const {
    return size().has_value() && (!target_memory().recurrent() || target_memory().tapes());
}

cache::source cache::best_source(const sequence & s, const std::vector<int32_t> & prompt) const {
    source  best = { source::OWN, s.id, own_prefix(s, prompt) };
    int32_t need = best.n_tokens + MIN_GAIN;   // that the next one must be worth
    for (const sequence & other : sequences_) {
        if (other.id == s.id || other.is_aside() || other.follows()) {
            continue;
        }
        const int32_t n_copied = shares_cells() ? 0 : other.n_past();
        if (const int32_t n = own_prefix(other, prompt); worth(n, n_copied) >= need) {
            best = { source::OTHER, other.id, n };
            need = worth(n, n_copied) + 1;
        }
        if (const int32_t n = other.reading() ? future_prefix(other, prompt) : 0;
            n >= std::max(need, best.n_tokens + MIN_SHARED_READING)) {
            best = { source::LEADER, other.id, n };
            need = n + 1;
        }
    }
    const host_cache::match match = host_.find(prompt);
    if (match.entry && match.worth >= need && has_cells((int32_t) match.entry->tokens.size())) {
        best = { source::HOST, -1, match.n_kept, match.entry };
    }
    return best;
}

// ---- taking it over ----

int32_t cache::begin(
    int32_t id, const std::vector<int32_t> & prompt, const std::vector<int32_t> & reusable, bool caches) {
    sequence &    s        = sequences_[id];
    const int32_t n_cached = take_over(s, reusable, caches);
    s.prompt               = &prompt;
    s.media                = media_.layout(prompt);
    s.request_number       = ++n_requests_;
    s.caches               = caches;
    s.n_asked              = (int32_t) prompt.size();
    s.save_at              = s.follows() ? 0 : checkpoint_place(s);
    s.running              = true;
    return n_cached;
}

// What the sequence held goes to the host if little of it stays.
int32_t cache::take_over(sequence & s, const std::vector<int32_t> & reusable, bool caches) {
    source best = { source::OWN, s.id, 0 };
    if (caches) {
        best = best_source(s, reusable);
    }
    // What goes to the host may push other entries out: this one is taken first.
    conversation entry = host_.take(best.entry);
    if (loses_much(s, best.place == source::OWN ? best.n_tokens : 0)) {
        keep_on_host(s);
    }
    switch (best.place) {
        // ask for all common tokens: the memory may keep more than own_prefix() promises
        case source::OWN: return cut_back(s, caches ? common_tokens(s.tokens, reusable) : 0);
        case source::OTHER: return share(sequences_[best.id], s, best.n_tokens);
        case source::LEADER:
            forget(s.id);
            s.leader = { best.id, sequences_[best.id].request_number, best.n_tokens };
            return 0;
        case source::HOST: break;
    }
    const int32_t n_kept = restore(s, entry, best.n_tokens);
    if (loses_much(entry, n_kept)) {
        host_.add(std::move(entry));
    }
    return n_kept;
}

std::optional<int32_t> cache::follow(int32_t id, const std::vector<int32_t> & reusable) {
    sequence &       s      = sequences_[id];
    const sequence & leader = sequences_[s.leader.id];
    const bool       reads  = leader.reading() && leader.request_number == s.leader.request_number;
    if (reads && own_prefix(leader, reusable) < s.leader.n_tokens) {
        return std::nullopt;
    }
    const int32_t n        = leader.is_aside() ? 0 : own_prefix(leader, reusable);
    s.leader               = {};
    const int32_t n_cached = n > 0 ? share(leader, s, n) : 0;
    s.media                = media_.layout(*s.prompt);
    s.save_at              = checkpoint_place(s);
    s.n_asked              = (int32_t) s.prompt->size();
    return n_cached;
}

// Copies the first n tokens of what `from` holds to `to`. Returns how many `to` holds then.
int32_t cache::share(const sequence & from, sequence & to, int32_t n) {
    forget(to.id);
    if (!share_memory(from, to)) {
        forget(to.id);
        return 0;
    }
    to.tokens      = from.tokens;
    to.media       = from.media;
    to.checkpoints = from.checkpoints;
    to.n_asked     = from.n_asked;
    drafts_.share(from.id, to.id, n);
    ++moved_.shared;
    return cut_back(to, n);
}

bool cache::share_memory(const sequence & from, const sequence & to) {
    try {
        if (size().has_value() && target_memory().share(from.id, to.id)) {   // the same cells
            return true;
        }
        return make_room(from.n_past(), to.id, from.id) && target_memory().write(to.id, target_memory().read(from.id));
    } catch (const std::bad_alloc &) {   // this one reads it itself
        return false;
    }
}

}   // namespace dflash

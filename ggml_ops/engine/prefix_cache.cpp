// Where the beginning of a prompt comes from: what the slot holds, what another slot holds or is about to read, what
// the host keeps. It is not read again.

#include "engine/engine.h"

#include "llama/cache_access.h"

#include <algorithm>

namespace dflash {

namespace {

// A prompt for which another slot does the reading waits for it if that spares it so many rows: fewer cost less in the
// same pass than waiting for it.
constexpr int32_t MIN_SHARED_READING = 64;
// What is copied from elsewhere must spare so many rows more than what the slot holds.
constexpr int32_t MIN_GAIN = 8;

// Tokens at a prompt's end that the next one may not repeat: the template's own words for the answer's beginning, and
// what a checkpoint leaves out.
constexpr int32_t TEMPLATE_TAIL = 32;

// Whether more than half of what a slot or conversation holds goes if n_kept tokens of it stay.
template <class T> bool loses_much(const T & from, int32_t n_kept) { return 2 * n_kept < (int32_t) from.tokens.size(); }

int32_t common_tokens(const std::vector<int32_t> & held, const std::vector<int32_t> & prompt) {
    // The last token is always read: its logits are needed.
    return std::min(common_prefix(held, prompt), (int32_t) prompt.size() - 1);
}

}   // namespace

std::vector<int32_t> reusable_part(const std::vector<int32_t> & prompt, int32_t probs_from) {
    const int32_t n = (int32_t) prompt.size();
    return { prompt.begin(), prompt.begin() + (probs_from > 0 ? std::min(probs_from, n) : n) };
}

// ---- which slot ----

// Of the idle candidates, oldest first: the one whose conversation the prompt goes on with; otherwise one that holds
// nothing, so that nothing is lost; otherwise one that loses less than half; otherwise the first.
int32_t engine::choose_slot(const prepared_request & p, const int32_t * candidates, int32_t n) const {
    if (!candidates || n < 1) {
        throw status_error(DFLASH_ERROR_ARG, "slots is empty: give at least one idle slot");
    }
    const slot *goes_on = nullptr, *similar = nullptr, *empty = nullptr;
    int32_t     n_most = (int32_t) (params_.slot_similarity * (float) p.prompt.size()), n_similar = n_most;
    for (int32_t i = 0; i < n; ++i) {
        const slot & s = at(candidates[i]);
        if (s.running()) {
            throw status_error(DFLASH_ERROR_BUSY, "slot " + std::to_string(s.id) + " is running: choose an idle one");
        }
        if (s.tokens.empty()) {
            empty = empty ? empty : &s;
            continue;
        }
        const int32_t own = params_.slot_similarity > 0 ? own_prefix(s, p.prompt) : 0;
        if (own > n_most && own >= s.n_asked - TEMPLATE_TAIL) {
            goes_on = &s;
            n_most  = own;
        } else if (own > n_similar && !loses_much(s, own)) {
            similar   = &s;
            n_similar = own;
        }
    }
    for (const slot * s : { goes_on, empty, similar }) {
        if (s) {
            return s->id;
        }
    }
    return candidates[0];
}

// ---- where from ----

// The fewest tokens that a slot's memory can be cut back to.
int32_t engine::reach(const slot & s) const {
    if (is_recurrent()) {
        return s.n_past();
    }
    // A sliding-window cache may have dropped what lies outside the window of its newest position, or got a copy
    // without it.
    const llama_pos first = llama_memory_seq_pos_min(llama_get_memory(ctx_.get()), s.id);
    return first <= 0 ? 0 : std::min(s.n_past(), first + llama_model_n_swa(model_.get()) - 1);
}

// Tokens of the prompt that a slot need not read if it gets this prompt.
int32_t engine::own_prefix(const slot & s, const std::vector<int32_t> & prompt) const {
    return kept_tokens(reach(s), s.checkpoints, common_tokens(s.tokens, prompt));
}

// Tokens of the prompt that another slot will hold when it has read its own one.
int32_t engine::future_prefix(const slot & s, const std::vector<int32_t> & prompt) const {
    const int32_t n_common = common_tokens(s.prompt, prompt);
    if (!drops_) {
        return n_common;
    }
    return s.save_at > 0 && s.save_at <= n_common ? s.save_at : 0;
}

prefix_source engine::best_source(const slot & s, const std::vector<int32_t> & prompt) const {
    prefix_source best = { prefix_source::OWN, s.id, own_prefix(s, prompt), nullptr };
    int32_t       need = best.n_tokens + MIN_GAIN;
    for (const slot & other : slots_) {
        if (other.id == s.id || other.is_aside() || other.follows()) {
            continue;
        }
        if (const int32_t n = own_prefix(other, prompt); n >= need) {
            best = { prefix_source::SLOT, other.id, n, nullptr };
            need = n + 1;
        }
        if (const int32_t n = other.reading() ? future_prefix(other, prompt) : 0;
            n >= std::max(need, best.n_tokens + MIN_SHARED_READING)) {
            best = { prefix_source::LEADER, other.id, n, nullptr };
            need = n + 1;
        }
    }
    const host_cache::match match = host_.find(prompt);
    if (match.n_kept >= need && has_cells((int32_t) match.entry->tokens.size())) {
        best = { prefix_source::HOST, -1, match.n_kept, match.entry };
    }
    return best;
}

// ---- taking it over ----

// Lets the idle slot hold as much of the prompt's beginning as can be had. Returns how many tokens. What the slot held
// goes to the host if little of it stays.
int32_t engine::take_over(slot & s, const std::vector<int32_t> & prompt, bool cache_prompt) {
    prefix_source source = { prefix_source::OWN, s.id, 0, nullptr };
    if (cache_prompt) {
        source = best_source(s, prompt);
    }
    // What goes to the host may push other entries out: this one is taken first.
    conversation entry = host_.take(source.entry);
    if (loses_much(s, source.from == prefix_source::OWN ? source.n_tokens : 0)) {
        keep_on_host(s);
    }
    switch (source.from) {
        // perhaps the memory can keep more than it is sure to
        case prefix_source::OWN: return cut_back(s, cache_prompt ? common_tokens(s.tokens, prompt) : 0);
        case prefix_source::SLOT: return share(slots_[source.index], s, source.n_tokens);
        case prefix_source::LEADER:
            forget(s);
            s.leader = { source.index, slots_[source.index].t_submit_us, source.n_tokens };
            return 0;
        case prefix_source::HOST: break;
    }
    const int32_t n_kept = restore(s, entry, source.n_tokens);
    if (loses_much(entry, source.n_tokens)) {
        host_.add(std::move(entry));
    }
    return n_kept;
}

// Before a pass: what another slot was to read is there, or will not come.
void engine::follow(slot & s) {
    const slot &               leader = slots_[s.leader.id];
    const bool                 reads  = leader.reading() && leader.t_submit_us == s.leader.t_submit_us;
    const std::vector<int32_t> prompt = reusable_part(s.prompt, s.probs_from);
    if (reads && own_prefix(leader, prompt) < s.leader.n_tokens) {
        return;
    }
    const int32_t n  = leader.is_aside() ? 0 : own_prefix(leader, prompt);
    s.leader         = {};
    s.stats.n_cached = n > 0 ? share(leader, s, n) : 0;
    s.save_at        = checkpoint_place(s);
    s.n_asked        = s.stats.n_prompt;
}

// Keeps the first n tokens of what the slot holds. Returns how many really stayed.
int32_t engine::cut_back(slot & s, int32_t n) {
    if (n > 0 && n < s.n_past() && !go_back(s, n)) {
        n = 0;
    }
    if (n == 0) {
        forget(s);
        return 0;
    }
    if (n < s.n_past()) {
        s.text.reset();
    }
    s.tokens.resize(n);
    s.n_asked = std::min(s.n_asked, n);
    while (!s.checkpoints.empty() && s.checkpoints.back().at > n) {
        s.checkpoints.pop_back();
    }
    if (drafter_) {   // the taps go on where its context ends, and end with the text
        s.taps.truncate(n, drafter_->tap_width());
        drafter_->rewind(s.id, s.taps.pos);
    }
    return n;
}

// Forgets what follows the first n tokens: n says how many stayed. A recurrent memory goes back no further than to the
// last tree's root, a sliding window not far, either to a checkpoint. False: nothing could be kept.
bool engine::go_back(slot & s, int32_t & n) {
    llama_memory_t mem = llama_get_memory(ctx_.get());
    if ((is_recurrent() || n >= reach(s)) && llama_memory_seq_rm(mem, s.id, n, -1)) {
        return true;
    }
    for (auto c = s.checkpoints.rbegin(); c != s.checkpoints.rend(); ++c) {
        if (c->at > n) {
            continue;
        }
        n = c->at;
        // the rest of the memory is cut by position
        return write_state(s.id, *c->state, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) &&
               llama_memory_seq_rm(mem, s.id, n, -1);
    }
    return false;
}

// Lets `to` hold the first n tokens of what `from` holds, which stays as it is. Returns how many it does.
int32_t engine::share(const slot & from, slot & to, int32_t n) {
    forget(to);
    if (!share_memory(from, to)) {
        forget(to);
        return 0;
    }
    to.tokens      = from.tokens;
    to.checkpoints = from.checkpoints;
    to.n_asked     = from.n_asked;
    to.taps        = from.taps;
    if (drafter_) {
        drafter_->put_context(to.id, drafter_->take_context(from.id, n));
    }
    ++kept_.n_shared;
    return cut_back(to, n);
}

bool engine::share_memory(const slot & from, const slot & to) {
    if (limits_.n_cells > 0 && access_share_sequence(ctx_.get(), from.id, to.id)) {
        return true;
    }
    return make_room(from.n_past(), &to, &from) && write_state(to.id, read_state(from.id, 0), 0);
}

// ---- to the host and back ----

pending_taps engine::on_host(const pending_taps & taps) const {
    if (!tap_store_) {
        return taps;
    }
    pending_taps copy = taps;
    copy.data         = tap_store_->read(taps.cells);
    copy.cells.clear();
    return copy;
}

// Gives a slot taps from the host. Where the store has no room for all, the drafter reads some at once.
void engine::take_in(slot & s, const pending_taps & taps) {
    if (!tap_store_) {
        s.taps = taps;
        return;
    }
    s.taps.clear(taps.pos);
    for (int32_t from = 0; from < taps.rows;) {
        if (tap_store_->n_free() == 0) {
            inject_all();
        }
        if (s.taps.pos + s.taps.rows != taps.pos + from) {   // the drafter failed, and has none of them
            return;
        }
        const int32_t         n = std::min(taps.rows - from, tap_store_->n_free());
        std::vector<tap_cell> cells(n);
        std::generate(cells.begin(), cells.end(), [this] { return tap_store_->take(); });
        tap_store_->write(cells, taps.data.data() + (size_t) from * drafter_->tap_width());
        s.taps.append(cells.data(), n);
        from += n;
    }
}

// Copies what the slot holds to the host's cache, if that has room and does not have it yet.
void engine::keep_on_host(const slot & s) {
    if (!host_.enabled() || s.tokens.empty() || host_.holds(s.tokens)) {
        return;
    }
    try {
        const size_t n_state = s.is_aside() ? s.aside.size() : llama_state_seq_get_size_ext(ctx_.get(), s.id, 0);
        if (!host_.make_room(n_state)) {
            return;
        }
        conversation c = copy_of(s);
        if (!c.state.empty()) {
            host_.add(std::move(c));
            ++kept_.n_saved;
        }
    } catch (const std::bad_alloc &) {
        host_.shrink();
    }
}

// What the slot holds. Throws std::bad_alloc.
conversation engine::copy_of(const slot & s) const {
    conversation c;
    c.tokens      = s.tokens;
    c.reach       = host_reach(s);
    c.checkpoints = s.checkpoints;
    c.n_asked     = s.n_asked;
    c.taps        = on_host(s.taps);
    c.state       = s.is_aside() ? s.aside : read_state(s.id, 0);
    if (drafter_) {
        c.ring = drafter_->take_context(s.id, s.n_past());
    }
    return c;
}

// The fewest tokens that a slot's state, once it is a copy, can be cut back to.
int32_t engine::host_reach(const slot & s) const {
    // a copy of a sliding window holds what the next token sees, and no more
    const int32_t n_swa = is_recurrent() ? 0 : llama_model_n_swa(model_.get());
    return n_swa > 0 && s.n_past() > n_swa ? s.n_past() - 1 : reach(s);
}

// Lets the slot hold the first n tokens of a conversation. Returns how many it does.
int32_t engine::restore(slot & s, const conversation & c, int32_t n) {
    forget(s);
    if (!make_room((int32_t) c.tokens.size(), &s) || !write_state(s.id, c.state, 0)) {
        forget(s);
        return 0;
    }
    s.tokens      = c.tokens;
    s.checkpoints = c.checkpoints;
    s.n_asked     = c.n_asked;
    if (drafter_) {
        drafter_->put_context(s.id, c.ring);
        take_in(s, c.taps);
    }
    ++kept_.n_restored;
    return cut_back(s, n);
}

// A copy of a sequence's state; empty if there is none. Throws std::bad_alloc.
raw_bytes engine::read_state(int32_t seq, uint32_t flags) const {
    raw_bytes bytes(llama_state_seq_get_size_ext(ctx_.get(), seq, flags));
    if (llama_state_seq_get_data_ext(ctx_.get(), bytes.data(), bytes.size(), seq, flags) != bytes.size()) {
        bytes.clear();
    }
    rpc_.raise_failures();   // it would be zeros
    return bytes;
}

// False: the sequence has lost its state.
bool engine::write_state(int32_t seq, const raw_bytes & bytes, uint32_t flags) {
    return !bytes.empty() &&
           llama_state_seq_set_data_ext(ctx_.get(), bytes.data(), bytes.size(), seq, flags) == bytes.size();
}

// ---- checkpoints ----

// Where in the prompt of a slot the next checkpoint belongs, 0: nowhere.
int32_t engine::checkpoint_place(const slot & s) const {
    // tokens at a prompt's end that a checkpoint leaves out: the next prompt rarely repeats the very end
    constexpr int32_t TAIL     = 16;
    const int32_t     n_prompt = (int32_t) s.prompt.size();
    return checkpoints_ && params_.n_checkpoints > 0 && s.caches && n_prompt - s.stats.n_cached > 4 * TAIL
               ? n_prompt - TAIL
               : 0;
}

void engine::add_checkpoint(slot & s) {
    auto & all = s.checkpoints;
    try {
        auto state = std::make_shared<raw_bytes>(read_state(s.id, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY));
        if (state->empty()) {
            return;
        }
        if (!all.empty() && s.n_past() - all.back().at < params_.checkpoint_step) {
            all.pop_back();
        }
        all.push_back({ s.n_past(), std::move(state) });
    } catch (const std::bad_alloc &) {   // the next prompt reads more
        return;
    }
    if ((int32_t) all.size() > params_.n_checkpoints) {
        all.erase(all.begin());
    }
}

// ---- forgetting ----

void engine::forget(slot & s) {
    s.checkpoints.clear();
    s.aside = {};
    llama_memory_seq_rm(llama_get_memory(ctx_.get()), s.id, -1, -1);
    s.tokens.clear();
    s.n_asked = 0;
    s.text.reset();
    s.taps.clear(0);
    if (drafter_) {
        drafter_->rewind(s.id, 0);
    }
}

int32_t engine::clear(int32_t i) {
    slot &        s = idle_slot(i);
    const int32_t n = s.n_past();
    forget(s);
    return n;
}

}   // namespace dflash

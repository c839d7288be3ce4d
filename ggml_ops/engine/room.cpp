// Cells of the cache that all slots share: idle slots leave for those that run, oldest first, and where that is not
// enough, the newest answer waits on the host until there is room again.

#include "engine/engine.h"

#include "llama/cache_access.h"

#include <algorithm>

namespace dflash {

// Cells that a running request is sure to find beyond its prompt, when the next one is admitted.
static constexpr int32_t ROOM_TO_WRITE = 256;

// ---- what there is ----

// All cells that hold something.
int32_t engine::used_cells() const {
    const int32_t used = access_used_cells(ctx_.get());
    return used >= 0 ? used : held_cells([](const slot &) { return true; });
}

// Cells that such slots hold, each counted once.
int32_t engine::held_cells(const std::function<bool(const slot &)> & which) const {
    std::vector<int32_t> seqs;
    int32_t              n_tokens = 0;
    for (const slot & s : slots_) {
        if (which(s) && !s.is_aside()) {
            seqs.push_back(s.id);
            n_tokens += s.n_past();
        }
    }
    const int32_t held = access_held_cells(ctx_.get(), seqs);
    return held >= 0 ? held : n_tokens;
}

int32_t engine::free_cells() const {
    return limits_.n_cells > 0 ? std::max(0, limits_.n_cells - used_cells()) : INT32_MAX;
}

// Rows of its prompt that a slot has to read itself.
static int32_t unread(const slot & s) {
    return s.state == DFLASH_READING ? (int32_t) s.prompt.size() - std::max(s.n_past(), s.leader.n_tokens) : 0;
}

static int32_t room_to_write(int32_t n_left) { return std::clamp(n_left, 0, ROOM_TO_WRITE); }

// Cells that running slots still have to find.
int32_t engine::promised_cells() const {
    int32_t n = 0;
    for (const slot & s : slots_) {
        if (s.running() && !s.is_aside()) {
            n += unread(s) + std::min(room_to_write(s.n_left()), limits_.n_ctx_slot - s.n_past());
        }
    }
    return n;
}

// Whether n cells are free once every idle slot has left.
bool engine::has_cells(int32_t n) const {
    return limits_.n_cells == 0 || held_cells([](const slot & s) { return s.running(); }) + n <= limits_.n_cells;
}

// Whether a request may begin now, without taking what running ones were promised.
bool engine::has_room(const prepared_request & p) const {
    const std::vector<int32_t> prompt    = reusable_part(p.prompt, p.probs_from);
    int32_t                    n_running = 0, n_shared = 0;
    for (const slot & s : slots_) {
        if (s.is_aside()) {
            return false;   // it comes first
        }
        if (s.running()) {
            ++n_running;
            n_shared = std::max({ n_shared, own_prefix(s, prompt), s.reading() ? future_prefix(s, prompt) : 0 });
        }
    }
    if (limits_.n_cells == 0 || n_running == 0) {
        return true;
    }
    const int32_t busy     = held_cells([](const slot & s) { return s.running(); }) + promised_cells();
    const int32_t n_left   = p.n_predict < 0 ? INT32_MAX : p.n_predict;
    const int32_t n_prompt = (int32_t) p.prompt.size();
    const int32_t room     = std::min(room_to_write(n_left), limits_.n_ctx_slot - n_prompt);
    return busy + n_prompt - (p.cache_prompt ? n_shared : 0) + room <= limits_.n_cells;
}

// ---- making room ----

// Idle slots leave, oldest first, until n cells are free; `but` and `and_but` stay. False: not enough are.
bool engine::make_room(int32_t n, const slot * but, const slot * and_but) {
    while (free_cells() < n) {
        slot * oldest = nullptr;
        for (slot & s : slots_) {
            const bool may_go = !s.running() && !s.tokens.empty() && &s != but && &s != and_but;
            if (may_go && (!oldest || s.t_used_us < oldest->t_used_us)) {
                oldest = &s;
            }
        }
        if (!oldest) {
            return false;
        }
        leave(*oldest);
    }
    return true;
}

// An idle slot gives its cells up.
void engine::leave(slot & s) {
    if (params_.cache_idle_slots) {
        keep_on_host(s);
    }
    forget(s);
    ++kept_.n_left;
}

// A running slot gives its cells up for a while. False: there is no memory on the host for what they hold.
bool engine::set_aside(slot & s) {
    try {
        s.aside = read_state(s.id, 0);
    } catch (const std::bad_alloc &) {
        return false;
    }
    if (!s.is_aside()) {
        return false;
    }
    llama_memory_seq_rm(llama_get_memory(ctx_.get()), s.id, -1, -1);
    ++kept_.n_set_aside;
    return true;
}

// Slots that were set aside go on, oldest request first, once they have room to get somewhere.
void engine::bring_back() {
    std::vector<slot *> waiting;
    for (slot & s : slots_) {
        if (s.running() && s.is_aside()) {
            waiting.push_back(&s);
        }
    }
    std::sort(
        waiting.begin(), waiting.end(), [](const slot * a, const slot * b) { return a->t_submit_us < b->t_submit_us; });
    for (slot * s : waiting) {
        const int32_t need =
            s->n_past() + unread(*s) + std::min(room_to_write(s->n_left()), limits_.n_ctx_slot - s->n_past());
        const int32_t busy = held_cells([](const slot & other) { return other.running(); });
        if (busy > 0 && busy + promised_cells() + need > limits_.n_cells) {
            return;
        }
        make_room(std::min(need, limits_.n_cells), s);
        const raw_bytes state = std::move(s->aside);
        s->aside              = {};
        if (!write_state(s->id, state, 0)) {
            end_early(*s, "the conversation could not be brought back from host memory");
        }
    }
}

// Ends a request that has no row in this pass.
void engine::end_early(slot & s, const std::string & why) {
    s.ended = true;
    fail(s, why);
}

// The newest request that has cells, if there is an older one.
slot * engine::newest_of_several() {
    slot *  newest = nullptr;
    int32_t n      = 0;
    for (slot & s : slots_) {
        if (s.running() && !s.is_aside()) {
            ++n;
            newest = !newest || s.t_submit_us >= newest->t_submit_us ? &s : newest;
        }
    }
    return n > 1 ? newest : nullptr;
}

// Before a pass: cells for every anchor and for the rest of every prompt. Returns how many all trees together may have.
int32_t engine::find_room() {
    if (limits_.n_cells == 0) {
        return INT32_MAX;
    }
    bring_back();
    for (;;) {
        int32_t n_anchors = 0, n_nodes = 0, n_unread = 0;
        for (const slot & s : slots_) {
            n_anchors += s.writing();
            n_nodes += s.writing() ? s.next.size() : 0;
            n_unread += s.reading() ? unread(s) : 0;
        }
        make_room(n_nodes + n_unread);
        const int32_t room = free_cells() - n_unread;
        slot *        last = room < n_anchors ? newest_of_several() : nullptr;
        if (!last) {
            return std::max(room, n_anchors);
        }
        if (!set_aside(*last)) {
            last->writing() ? end_full(*last) : end_early(*last, "no memory for the prompt beside the other requests");
        }
    }
}

// Ends an answer for which there is no room, without a row in this pass.
void engine::end_full(slot & s) {
    s.ended = true;
    finish(s, DFLASH_CONTEXT);
    leave(s);
}

// Cells for the next pass's trees, if idle slots left.
int32_t engine::room_for_trees() const {
    if (limits_.n_cells == 0) {
        return INT32_MAX;
    }
    int32_t n_unread = 0;
    for (const slot & s : slots_) {
        n_unread += s.reading() ? unread(s) : 0;
    }
    const int32_t room = free_cells() - n_unread;
    if (room >= limits_.n_outputs) {
        return room;
    }
    return limits_.n_cells - held_cells([](const slot & s) { return s.running(); }) - n_unread;
}

}   // namespace dflash

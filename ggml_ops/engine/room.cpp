#include "engine/room.h"

#include <algorithm>

namespace dflash {

// Cells that a running request is sure to find beyond its prompt, when the next one is admitted.
static constexpr int32_t ROOM_TO_WRITE = 256;

static int32_t room_to_write(int32_t n_left, int32_t n_positions) {
    return std::min(std::clamp(n_left, 0, ROOM_TO_WRITE), n_positions);
}

// Cells that a slot still has to find to make progress.
int32_t room::to_run(const slot & s) const {
    return s.n_unread() + room_to_write(s.n_left(), limits_.n_ctx_slot - s.n_past());
}

// Rows of their prompts that slots have still to read.
int32_t room::unread_rows() const {
    int32_t n = 0;
    for (const slot & s : slots_) {
        n += s.reading() ? s.n_unread() : 0;
    }
    return n;
}

// Cells that running slots still have to find.
int32_t room::promised_cells() const {
    int32_t n = 0;
    for (const slot & s : slots_) {
        n += s.running() && !s.held->is_aside() ? to_run(s) : 0;
    }
    return n;
}

bool room::has(const request & r) const {
    bool any_runs = false;
    for (const slot & s : slots_) {
        if (s.held->is_aside()) {
            return false;   // it comes first
        }
        any_runs |= s.running();
    }
    if (!cache_.size() || !any_runs) {
        return true;
    }
    const int32_t n_prompt = (int32_t) r.prompt.size();
    const int32_t n_shared = r.cache_prompt ? cache_.held_by_running(reusable_part(r.prompt, r.probs_from)) : 0;
    const int32_t n_left   = r.n_predict < 0 ? INT32_MAX : r.n_predict;
    const int32_t need     = n_prompt - n_shared + room_to_write(n_left, limits_.n_ctx_slot - n_prompt);
    return cache_.busy_cells() + promised_cells() + need <= *cache_.size();
}

// Slots that were set aside go on, oldest request first, once they have room to make progress.
void room::bring_back(const end_request & end) {
    std::vector<slot *> waiting;
    for (slot & s : slots_) {
        if (s.running() && s.held->is_aside()) {
            waiting.push_back(&s);
        }
    }
    std::sort(waiting.begin(), waiting.end(), older);
    const int32_t size = cache_.size().value_or(INT32_MAX);
    for (slot * s : waiting) {
        const int32_t need = s->n_past() + to_run(*s), busy = cache_.busy_cells();
        if (busy > 0 && busy + promised_cells() + need > size) {
            return;
        }
        cache_.make_room(std::min(need, size), s->id);
        if (!cache_.bring_back(s->id)) {
            end(*s, "the conversation could not be brought back from host memory");
        }
    }
}

// The newest request that has cells, if there is an older one.
slot * room::newest_of_several() const {
    slot *  newest = nullptr;
    int32_t n      = 0;
    for (slot & s : slots_) {
        if (s.running() && !s.held->is_aside()) {
            ++n;
            newest = !newest || s.t_submit_us >= newest->t_submit_us ? &s : newest;
        }
    }
    return n > 1 ? newest : nullptr;
}

int32_t room::claim(const end_request & end) {
    if (!cache_.size()) {
        return INT32_MAX;
    }
    bring_back(end);
    for (;;) {
        int32_t n_anchors = 0, n_nodes = 0;
        for (const slot & s : slots_) {
            n_anchors += s.writing();
            n_nodes += s.writing() ? s.drafts.tree.size() : 0;
        }
        const int32_t n_unread = unread_rows();
        cache_.make_room(n_nodes + n_unread);
        const int32_t n_free = cache_.free_cells() - n_unread;
        slot *        last   = n_free < n_anchors ? newest_of_several() : nullptr;
        if (!last) {
            return std::max(n_free, n_anchors);
        }
        if (!cache_.set_aside(last->id)) {
            end(*last, last->writing() ? "" : "no memory for the prompt beside the other requests");
        }
    }
}

int32_t room::for_trees() const {
    if (!cache_.size()) {
        return INT32_MAX;
    }
    const int32_t n_unread = unread_rows();
    const int32_t n_free   = cache_.free_cells() - n_unread;
    return n_free >= limits_.n_outputs ? n_free : *cache_.size() - cache_.busy_cells() - n_unread;
}

}   // namespace dflash

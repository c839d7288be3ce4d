// Cells of the cache that all sequences share: idle ones leave for those that run, oldest first.

#include "cache/cache.h"

#include <algorithm>

namespace dflash {

int32_t cache::used_cells() const {
    const std::optional<int32_t> used = target_memory().used_cells();
    return used ? *used : held_cells([](const sequence &) { return true; });
}

// Cells that such sequences hold, each counted once.
int32_t cache::held_cells(const std::function<bool(const sequence &)> & which) const {
    std::vector<int32_t> ids;
    int32_t              n_tokens = 0;
    for (const sequence & s : sequences_) {
        if (which(s) && !s.is_aside()) {
            ids.push_back(s.id);
            n_tokens += s.n_past();
        }
    }
    return target_memory().held_cells(ids).value_or(n_tokens);
}

int32_t cache::free_cells() const { return size() ? std::max(0, *size() - used_cells()) : INT32_MAX; }

int32_t cache::busy_cells() const {
    return held_cells([](const sequence & s) { return s.running; });
}

bool cache::has_cells(int32_t n) const { return !size() || busy_cells() + n <= *size(); }

bool cache::make_room(int32_t n, int32_t kept, int32_t also_kept) {
    while (free_cells() < n) {
        const sequence * oldest = nullptr;
        for (const sequence & s : sequences_) {
            const bool may_go = !s.running && !s.tokens.empty() && s.id != kept && s.id != also_kept;
            if (may_go && (!oldest || s.t_used_us < oldest->t_used_us)) {
                oldest = &s;
            }
        }
        if (!oldest) {
            return false;
        }
        leave(oldest->id);
    }
    return true;
}

void cache::leave(int32_t id) {
    if (cache_idle_) {
        keep_on_host(sequences_[id]);
    }
    forget(id);
    ++moved_.left;
}

void cache::leave_idle() {
    for (const sequence & s : sequences_) {
        if (leaves_idle_ && host_.enabled() && !s.running && !s.tokens.empty()) {
            leave(s.id);
        }
    }
}

bool cache::set_aside(int32_t id) {
    sequence & s = sequences_[id];
    try {
        s.aside = target_memory().read(id);
    } catch (const std::bad_alloc &) {
        return false;
    }
    if (!s.is_aside()) {
        return false;
    }
    if (s.follows()) {   // when it comes back, the one that it follows may be gone
        s.leader  = {};
        s.save_at = checkpoint_place(s);
    }
    target_memory().forget(id);
    drafts_.set_aside(id);
    ++moved_.set_aside;
    return true;
}

bool cache::bring_back(int32_t id) {
    const raw_bytes state = std::move(sequences_[id].aside);
    sequences_[id].aside  = {};
    if (!target_memory().write(id, state)) {
        return false;
    }
    drafts_.bring_back(id);
    return true;
}

}   // namespace dflash

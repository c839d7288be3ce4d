#include "cache/draft_memories.h"

namespace dflash {

draft_memories::draft_memories(target & target, std::vector<std::unique_ptr<drafter>> drafters) {
    for (std::unique_ptr<drafter> & drafter : drafters) {
        all_.push_back(std::make_unique<draft_memory>(target, std::move(drafter)));
    }
}

drafter_list draft_memories::drafters() const {
    drafter_list drafters;
    for (const auto & memory : all_) {
        drafters.push_back(&memory->drafter());
    }
    return drafters;
}

void draft_memories::keep_taps(int32_t id, int32_t row, int32_t n) {
    for (const auto & memory : all_) {
        memory->keep_taps(id, row, n);
    }
}

void draft_memories::keep_taps(int32_t id, int32_t first_row, const std::vector<int32_t> & path) {
    for (const auto & memory : all_) {
        memory->keep_taps(id, first_row, path);
    }
}

void draft_memories::free_tap_cells() {
    for (const auto & memory : all_) {
        memory->free_tap_cells();
    }
}

void draft_memories::count_text(const std::vector<int32_t> & tokens, size_t first) {
    for (const auto & memory : all_) {
        memory->drafter().count_text(tokens, first);
    }
}

void draft_memories::forget(int32_t id) {
    for (const auto & memory : all_) {
        memory->forget(id);
    }
}

void draft_memories::cut(int32_t id, int32_t n_past) {
    for (const auto & memory : all_) {
        memory->cut(id, n_past);
    }
}

void draft_memories::share(int32_t from, int32_t to, int32_t n_past) {
    for (const auto & memory : all_) {
        memory->share(from, to, n_past);
    }
}

void draft_memories::set_aside(int32_t id) {
    for (const auto & memory : all_) {
        memory->set_aside(id);
    }
}

void draft_memories::bring_back(int32_t id) {
    for (const auto & memory : all_) {
        memory->bring_back(id);
    }
}

void draft_memories::copy_to(conversation & c, int32_t id) const {
    for (const auto & memory : all_) {
        c.drafts.push_back(memory->copy_of(id, (int32_t) c.tokens.size()));
    }
}

size_t draft_memories::copy_bytes(int32_t id) const {
    size_t n = 0;
    for (const auto & memory : all_) {
        n += memory->copy_bytes(id);
    }
    return n;
}

void draft_memories::restore(int32_t id, const conversation & c) {
    for (size_t i = 0; i < all_.size(); ++i) {
        if (c.drafts.size() == all_.size()) {
            all_[i]->restore(id, c.drafts[i]);
        } else {
            all_[i]->begin_anew(id, (int32_t) c.tokens.size());
        }
    }
}

std::string draft_memories::refusal(const conversation & c) const {
    if (c.drafts.size() != all_.size()) {
        return "";
    }
    for (size_t i = 0; i < all_.size(); ++i) {
        if (std::string why = all_[i]->refusal(c.drafts[i], (int32_t) c.tokens.size()); !why.empty()) {
            return why;
        }
    }
    return "";
}

}   // namespace dflash

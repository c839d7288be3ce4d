#include "mtp/mtp_context.h"

#include "media/media_text.h"

#include "llama-ext.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

namespace dflash {

mtp_context::mtp_context(
    llama_context_ptr ctx, const rpc_servers & rpc, int32_t n_slots, int32_t row_size, bool shares) :
    ctx_(std::move(ctx)), memory_(ctx_.get(), false, rpc), row_size_(row_size), shares_(shares), slots_(n_slots) {
    for (slot_state & s : slots_) {
        s.newest.resize(row_size_);
    }
}

void mtp_context::rewind(int32_t slot, int32_t pos) {
    slot_state & s = slots_[slot];
    if (pos > s.end || pos <= s.begin) {
        restart(slot, pos);
    } else if (pos < s.end) {
        cut_rows(slot, pos);
        s.end = pos;
        std::fill(s.newest.begin(), s.newest.end(), 0.0f);
    }
}

void mtp_context::restart(int32_t slot, int32_t pos) {
    slot_state & s = slots_[slot];
    if (!shares_) {
        memory_.forget(slot);
        s.begin = pos;
    }
    s.end   = pos;
    s.aside = {};
    std::fill(s.newest.begin(), s.newest.end(), 0.0f);
}

// An assistant's cells are the target's, which are kept with it.
void mtp_context::leave(int32_t slot) {
    if (shares_) {
        return;
    }
    ring_copy rows;
    try {
        rows = take(slot, slots_[slot].end);
    } catch (const std::bad_alloc &) {
        rows.data.clear();   // it goes on without them
    }
    restart(slot, slots_[slot].end);
    slots_[slot].aside = std::move(rows);
}

void mtp_context::come_back(int32_t slot) {
    const ring_copy rows = std::exchange(slots_[slot].aside, {});
    if (!rows.data.empty()) {
        put(slot, rows);
    }
}

void mtp_context::advance(int32_t slot, int32_t n, const float * newest) {
    slots_[slot].end += n;
    slots_[slot].newest.assign(newest, newest + row_size_);
}

void mtp_context::cut_rows(int32_t slot, int32_t pos) {
    if (!shares_ && !memory_.cut(slot, pos)) {
        throw std::runtime_error("the memory of the MTP layers cannot be rolled back");
    }
}

ring_copy mtp_context::take(int32_t slot, int32_t end) const {
    const slot_state & s = slots_[slot];
    if (!s.aside.data.empty() && end >= s.end) {
        return s.aside;
    }
    ring_copy copy;
    copy.begin = copy.end = std::min(end, s.end);
    if (copy.end == 0 || !has_copy(slot)) {
        return copy;
    }
    const raw_bytes            rows = shares_ ? raw_bytes() : memory_.read(slot);
    const std::vector<float>   none(row_size_);
    const std::vector<float> & tap = copy.end == s.end ? s.newest : none;
    copy.begin                     = 0;
    copy.data.resize(tap_bytes() + rows.size());
    std::memcpy(copy.data.data(), tap.data(), tap_bytes());
    std::copy(rows.begin(), rows.end(), copy.data.begin() + (ptrdiff_t) tap_bytes());
    return copy;
}

size_t mtp_context::copy_bytes(int32_t slot) const {
    if (!slots_[slot].aside.data.empty()) {
        return slots_[slot].aside.bytes();
    }
    return has_copy(slot) ? tap_bytes() + (shares_ ? 0 : memory_.size(slot)) : 0;
}

void mtp_context::put(int32_t slot, const ring_copy & copy) {
    restart(slot, copy.end);
    if (copy.data.size() < tap_bytes()) {
        return;
    }
    const raw_bytes rows(copy.data.begin() + (ptrdiff_t) tap_bytes(), copy.data.end());
    if (!shares_ && !memory_.write(slot, rows)) {   // it goes on without them
        memory_.forget(slot);
        return;
    }
    slots_[slot].begin = 0;
    cut_rows(slot, copy.end);
    std::memcpy(slots_[slot].newest.data(), copy.data.data(), tap_bytes());
}

// As the target does: there are not many more cells here than it has.
void mtp_context::share(int32_t from, int32_t to, int32_t end) {
    restart(to, 0);
    if (shares_ || slots_[from].begin > 0 || slots_[from].end == 0 || !memory_.share(from, to)) {
        put(to, take(from, end));
        return;
    }
    slots_[to] = slots_[from];
    rewind(to, std::min(end, slots_[from].end));
}

bool mtp_context::fits(const ring_copy & copy) const {
    if (!copy.past.empty() || copy.data.empty()) {
        return copy.past.empty();
    }
    if (copy.begin != 0 || copy.data.size() < tap_bytes() || (copy.data.size() == tap_bytes()) != shares_) {
        return false;
    }
    std::vector<float> tap(row_size_);
    std::memcpy(tap.data(), copy.data.data(), tap_bytes());
    const raw_bytes rows(copy.data.begin() + (ptrdiff_t) tap_bytes(), copy.data.end());
    return std::all_of(tap.begin(), tap.end(), [](float x) { return std::isfinite(x); }) &&
           (shares_ || memory_.refusal(rows, media_layout().positions(copy.end), false).empty());
}

std::map<ggml_backend_buffer_type_t, size_t> mtp_context::memory() const {
    std::map<ggml_backend_buffer_type_t, size_t> bytes;
    for (const auto & [type, data] : llama_get_memory_breakdown(ctx_.get())) {
        bytes[type] += data.context;
    }
    return bytes;
}

}   // namespace dflash

#include "draft/kv_ring.h"

#include "base/error.h"
#include "draft/graph.h"

#include "ggml-backend.h"
#include "ggml.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>

namespace dflash {

namespace {

int32_t pad(int32_t n, int32_t step) { return (n + step - 1) / step * step; }

}   // namespace

kv_ring::kv_ring(const drafter_model & model, int32_t n_slots, int32_t n_ctx, ggml_type type_k, ggml_type type_v,
    bool offload, size_t history_limit) :
    n_ctx_(n_ctx), block_size_(model.block_size), n_scratch_(model.block_size + 1),
    n_cells_(pad(n_scratch_ + n_ctx + kv_history::STEP - 1, SPAN_STEP)), n_ring_(n_cells_ - n_scratch_),
    ranges_(n_slots), past_(n_slots), history_limit_(history_limit) {
    const int64_t n_row  = model.n_head_kv * model.head_dim;
    const int64_t n_rows = (int64_t) n_cells_ * n_slots;

    std::map<ggml_backend_buffer_type_t, ggml_context *> context_of;
    for (const drafter_layer & layer : model.layers) {
        ggml_context *& ctx = context_of[offload ? memory_beside(layer.wk) : ggml_backend_cpu_buffer_type()];
        if (!ctx) {
            contexts_.emplace_back(ggml_init({ 2 * model.layers.size() * ggml_tensor_overhead(), nullptr, true }));
            ctx = contexts_.back().get();
        }
        k_.push_back(ggml_new_tensor_2d(ctx, type_k, n_row, n_rows));
        v_.push_back(ggml_new_tensor_2d(ctx, type_v, n_row, n_rows));
    }
    for (const auto & [type, ctx] : context_of) {
        buffers_.emplace_back(ggml_backend_alloc_ctx_tensors_from_buft(ctx, type));
        fail_if(!buffers_.back(), "not enough memory for the drafter's context: lower --draft-ctx or -np");
        // Attention multiplies masked cells by 0, so they must be finite.
        ggml_backend_buffer_clear(buffers_.back().get(), 0);
    }
}

std::map<ggml_backend_buffer_type_t, size_t> kv_ring::memory() const {
    std::map<ggml_backend_buffer_type_t, size_t> bytes;
    for (const auto & buffer : buffers_) {
        bytes[ggml_backend_buffer_get_type(buffer.get())] += ggml_backend_buffer_get_size(buffer.get());
    }
    return bytes;
}

std::vector<ggml_tensor *> kv_ring::tensors() const {
    std::vector<ggml_tensor *> all = k_;
    all.insert(all.end(), v_.begin(), v_.end());
    return all;
}

size_t kv_ring::bytes_per_position() const {
    size_t bytes = 0;
    for (const ggml_tensor * tensor : tensors()) {
        bytes += tensor->nb[1];
    }
    return bytes;
}

template <class F> void kv_ring::each_run(int32_t slot, int32_t begin, int32_t end, F && f) const {
    for (int32_t pos = begin; pos < end;) {
        const int32_t n = std::min(end - pos, n_ring_ - pos % n_ring_);
        f(cell(slot, pos), n, pos - begin);
        pos += n;
    }
}

// ---- which positions ----

void kv_ring::restart(int32_t slot, int32_t pos) {
    ranges_[slot] = { pos, pos };
    past_[slot].clear();
}

void kv_ring::rewind(int32_t slot, int32_t pos) {
    range &      stored = ranges_[slot];
    kv_history & past   = past_[slot];
    if (pos > stored.end) {
        restart(slot, pos);
        return;
    }
    // A block at `pos` sees n_ctx positions before it.
    const int32_t oldest = std::max(0, pos - n_ctx_) / kv_history::STEP * kv_history::STEP;
    const int32_t first = std::max(oldest, past.begin()), last = std::min(stored.begin, pos);
    if (!past.empty() && first < last) {
        bring_back(slot, first, last);
        stored.begin = first;
    }
    if (pos <= stored.begin) {
        restart(slot, pos);
        return;
    }
    stored.end = pos;
    past.truncate(pos);
}

void kv_ring::extend(int32_t slot, int32_t pos) {
    range & stored = ranges_[slot];
    if (pos - stored.begin > n_ring_) {
        leave(slot, pad(pos - n_ring_, kv_history::STEP));
    }
    stored.end = pos;
}

// ---- the history ----

// Adds segments of positions [first, last), from `rows` with positions [begin, end). Throws std::bad_alloc.
void kv_ring::add_segments(
    kv_history & past, const raw_bytes & rows, int32_t begin, int32_t end, int32_t first, int32_t last) const {
    constexpr int32_t STEP = kv_history::STEP;
    for (int32_t pos = first; pos < last; pos += STEP) {
        auto            segment = std::make_shared<raw_bytes>(STEP * bytes_per_position());
        uint8_t *       to      = segment->data();
        const uint8_t * from    = rows.data();
        for (const ggml_tensor * tensor : tensors()) {
            const size_t size = tensor->nb[1];
            std::memcpy(to, from + (pos - begin) * size, STEP * size);
            to += STEP * size;
            from += (end - begin) * size;
        }
        past.append(pos, std::move(segment));
    }
}

// The first position not in a segment yet, if [begin, ...) follows the history.
static int32_t next_segment(const kv_history & past, int32_t begin) {
    return past.empty() ? pad(begin, kv_history::STEP) : past.end();
}

// Moves positions before `begin` out of the ring, in whole segments. Those that came from the history are still in it.
void kv_ring::leave(int32_t slot, int32_t begin) {
    range &       stored = ranges_[slot];
    kv_history &  past   = past_[slot];
    const int32_t first  = next_segment(past, stored.begin);
    stored.begin         = begin;
    if (history_limit_ < kv_history::STEP * bytes_per_position()) {   // not one
        past.clear();
        return;
    }
    if (first >= begin) {
        return;
    }
    try {
        add_segments(past, read(slot, first, begin), first, begin, first, begin);
    } catch (const std::bad_alloc &) {
        past.clear();
    }
    bound_histories();
}

// Copies positions [begin, end) from the history into their cells.
void kv_ring::bring_back(int32_t slot, int32_t begin, int32_t end) {
    constexpr int32_t  STEP = kv_history::STEP;
    const kv_history & past = past_[slot];
    for (int32_t pos = begin; pos < end;) {
        const int32_t   n    = std::min(end, pos / STEP * STEP + STEP) - pos;
        const uint8_t * from = past.holding(pos).data();
        for (ggml_tensor * tensor : tensors()) {
            const size_t size = tensor->nb[1];
            each_run(slot, pos, pos + n, [&](int64_t cell, int32_t n_cells, int32_t offset) {
                ggml_backend_tensor_set(tensor, from + (pos % STEP + offset) * size, cell * size, n_cells * size);
            });
            from += STEP * size;
        }
        pos += n;
    }
}

size_t kv_ring::history_bytes() const {
    return std::accumulate(
        past_.begin(), past_.end(), (size_t) 0, [](size_t n, const kv_history & past) { return n + past.bytes(); });
}

void kv_ring::bound_histories() {
    for (size_t n = history_bytes(); n > history_limit_;) {
        const auto longest = std::max_element(past_.begin(), past_.end(),
            [](const kv_history & a, const kv_history & b) { return a.segments().size() < b.segments().size(); });
        n -= longest->segments().front()->size();
        longest->drop_oldest();
    }
}

// ---- copies ----

// K of every layer, then V: the stored positions [begin, end).
raw_bytes kv_ring::read(int32_t slot, int32_t begin, int32_t end) const {
    raw_bytes data((end - begin) * bytes_per_position());
    uint8_t * to = data.data();
    for (const ggml_tensor * tensor : tensors()) {
        const size_t size = tensor->nb[1];
        each_run(slot, begin, end, [&](int64_t cell, int32_t n, int32_t offset) {
            ggml_backend_tensor_get(tensor, to + offset * size, cell * size, n * size);
        });
        to += (end - begin) * size;
    }
    return data;
}

ring_copy kv_ring::take(int32_t slot, int32_t end) const {
    const range & stored = ranges_[slot];
    ring_copy     copy;
    copy.end   = std::min(end, stored.end);
    copy.begin = std::min(stored.begin, copy.end);
    copy.data  = read(slot, copy.begin, copy.end);
    copy.past  = past_[slot].before(copy.end);
    return copy;
}

size_t kv_ring::copy_bytes(int32_t slot) const {
    return (ranges_[slot].end - ranges_[slot].begin) * bytes_per_position() + past_[slot].bytes();
}

bool kv_ring::has_sizes(const ring_copy & copy) const {
    const kv_history & past = copy.past;
    const size_t       row  = bytes_per_position();
    return copy.begin >= 0 && copy.end >= copy.begin && copy.data.size() == (size_t) (copy.end - copy.begin) * row &&
           (past.empty() || (past.begin() >= 0 && past.begin() % kv_history::STEP == 0 && past.end() >= copy.begin &&
                                past.end() - copy.end < kv_history::STEP)) &&
           std::all_of(past.segments().begin(), past.segments().end(),
               [&](const kv_history::segment & s) { return s->size() == kv_history::STEP * row; });
}

// Whether n rows of each tensor contain no NaN or infinity.
bool kv_ring::holds_numbers(const raw_bytes & rows, size_t n) const {
    const uint8_t * from = rows.data();
    for (const ggml_tensor * tensor : tensors()) {
        if (!ggml_validate_row_data(tensor->type, from, n * tensor->nb[1])) {
            return false;
        }
        from += n * tensor->nb[1];
    }
    return true;
}

bool kv_ring::fits(const ring_copy & copy) const {
    return has_sizes(copy) && holds_numbers(copy.data, copy.end - copy.begin) &&
           std::all_of(copy.past.segments().begin(), copy.past.segments().end(),
               [&](const kv_history::segment & s) { return holds_numbers(*s, kv_history::STEP); });
}

void kv_ring::put(int32_t slot, const ring_copy & copy) {
    fail_if(!has_sizes(copy), "the drafter's saved context has another size");
    const int32_t begin = std::max(copy.begin, pad(std::max(0, copy.end - n_ring_), kv_history::STEP));
    kv_history    past  = copy.past;
    add_segments(past, copy.data, copy.begin, copy.end, next_segment(past, copy.begin), begin);
    const uint8_t * from = copy.data.data();
    for (ggml_tensor * tensor : tensors()) {
        const size_t size = tensor->nb[1];
        each_run(slot, begin, copy.end, [&](int64_t cell, int32_t n, int32_t offset) {
            ggml_backend_tensor_set(tensor, from + (begin - copy.begin + offset) * size, cell * size, n * size);
        });
        from += (copy.end - copy.begin) * size;
    }
    ranges_[slot] = { begin, copy.end };
    past_[slot]   = std::move(past);
    rewind(slot, copy.end);
    bound_histories();
}

int32_t kv_ring::span(int32_t n_past) const {
    return std::min(n_cells_, pad(n_scratch_ + std::min(n_ring_, n_past), SPAN_STEP));
}

void kv_ring::fill_mask(
    std::vector<float> & mask, int32_t slot, int32_t span, int32_t length, int32_t window, bool causal) const {
    const range & stored = ranges_[slot];
    mask.assign((size_t) span * length, -INFINITY);
    for (int32_t row = 0; row < length; ++row) {
        float * seen = mask.data() + (size_t) row * span;
        for (int32_t i = 0; i < length; ++i) {
            if ((!causal || i <= row) && std::abs(row - i) < window) {
                seen[i] = 0.0f;
            }
        }
        const int32_t oldest = window == INT32_MAX ? 0 : stored.end + row - window + 1;
        for (int32_t pos = std::max({ stored.begin, stored.end - n_ctx_, oldest }); pos < stored.end; ++pos) {
            seen[n_scratch_ + pos % n_ring_] = 0.0f;
        }
    }
}

}   // namespace dflash

#include "draft/kv_ring.h"

#include "draft/graph.h"

#include "ggml-backend.h"
#include "ggml.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

namespace dflash {

namespace {

int32_t pad(int32_t n, int32_t step) { return (n + step - 1) / step * step; }

}   // namespace

kv_ring::kv_ring(
    const drafter_model & model, int32_t n_slots, int32_t n_ctx, ggml_type type_k, ggml_type type_v, bool offload) :
    n_ctx_(n_ctx), block_size_(model.block_size), n_scratch_(model.block_size + 1),
    n_cells_(pad(n_scratch_ + n_ctx, SPAN_STEP)), ranges_(n_slots) {
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
        if (!buffers_.back()) {
            throw std::runtime_error("not enough memory for the drafter's context: lower --draft-ctx or -np");
        }
        // Attention multiplies masked cells by 0, so they must be finite.
        ggml_backend_buffer_clear(buffers_.back().get(), 0);
    }
}

size_t kv_ring::memory_bytes() const {
    size_t bytes = 0;
    for (const auto & buffer : buffers_) {
        bytes += ggml_backend_buffer_get_size(buffer.get());
    }
    return bytes;
}

std::map<ggml_backend_buffer_type_t, size_t> kv_ring::memory() const {
    std::map<ggml_backend_buffer_type_t, size_t> bytes;
    for (const auto & buffer : buffers_) {
        bytes[ggml_backend_buffer_get_type(buffer.get())] += ggml_backend_buffer_get_size(buffer.get());
    }
    return bytes;
}

void kv_ring::rewind(int32_t slot, int32_t pos) {
    range & stored = ranges_[slot];
    if (pos > stored.end || pos <= stored.begin) {
        restart(slot, pos);
    } else {
        stored.end = pos;
    }
}

void kv_ring::extend(int32_t slot, int32_t pos) {
    range & stored = ranges_[slot];
    stored.end     = pos;
    stored.begin   = std::max(stored.begin, pos - n_ctx_);
}

template <class F> void kv_ring::each_run(int32_t slot, int32_t begin, int32_t end, F && f) const {
    for (int32_t pos = begin; pos < end;) {
        const int32_t n = std::min(end - pos, n_ctx_ - pos % n_ctx_);
        f(cell(slot, pos), n, pos - begin);
        pos += n;
    }
}

size_t kv_ring::bytes_per_position() const {
    size_t bytes = 0;
    for (const auto * tensors : { &k_, &v_ }) {
        for (const ggml_tensor * tensor : *tensors) {
            bytes += tensor->nb[1];
        }
    }
    return bytes;
}

ring_copy kv_ring::take(int32_t slot, int32_t end) const {
    const range & stored = ranges_[slot];
    ring_copy     copy;
    copy.end   = std::clamp(end, stored.begin, stored.end);
    copy.begin = stored.begin;
    copy.data.resize((copy.end - copy.begin) * bytes_per_position());
    uint8_t * to = copy.data.data();
    for (const auto * tensors : { &k_, &v_ }) {
        for (const ggml_tensor * tensor : *tensors) {
            const size_t size = tensor->nb[1];
            each_run(slot, copy.begin, copy.end, [&](int64_t cell, int32_t n, int32_t offset) {
                ggml_backend_tensor_get(tensor, to + offset * size, cell * size, n * size);
            });
            to += (copy.end - copy.begin) * size;
        }
    }
    return copy;
}

bool kv_ring::fits(const ring_copy & copy) const {
    const size_t n = (size_t) (copy.end - copy.begin);
    if (copy.begin < 0 || copy.end < copy.begin || copy.data.size() != n * bytes_per_position()) {
        return false;
    }
    const uint8_t * from = copy.data.data();
    for (const auto * tensors : { &k_, &v_ }) {
        for (const ggml_tensor * tensor : *tensors) {
            if (!ggml_validate_row_data(tensor->type, from, n * tensor->nb[1])) {
                return false;
            }
            from += n * tensor->nb[1];
        }
    }
    return true;
}

void kv_ring::put(int32_t slot, const ring_copy & copy) {
    if (copy.begin < 0 || copy.end < copy.begin ||
        copy.data.size() != (size_t) (copy.end - copy.begin) * bytes_per_position()) {
        throw std::runtime_error("the drafter's saved context has another size");
    }
    const int32_t   begin = std::max(copy.begin, copy.end - n_ctx_);
    const uint8_t * from  = copy.data.data();
    for (const auto * tensors : { &k_, &v_ }) {
        for (ggml_tensor * tensor : *tensors) {
            const size_t size = tensor->nb[1];
            each_run(slot, begin, copy.end, [&](int64_t cell, int32_t n, int32_t offset) {
                ggml_backend_tensor_set(tensor, from + (begin - copy.begin + offset) * size, cell * size, n * size);
            });
            from += (copy.end - copy.begin) * size;
        }
    }
    ranges_[slot] = { begin, copy.end };
}

int32_t kv_ring::span(int32_t n_past) const {
    return std::min(n_cells_, pad(n_scratch_ + std::min(n_ctx_, n_past), SPAN_STEP));
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
        for (int32_t pos = std::max(stored.begin, oldest); pos < stored.end; ++pos) {
            seen[n_scratch_ + pos % n_ctx_] = 0.0f;
        }
    }
}

}   // namespace dflash

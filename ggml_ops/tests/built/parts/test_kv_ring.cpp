// The drafter's K/V ring: whatever happened to a slot before, a block sees the newest n_ctx positions before it, and
// each of their cells has what was written for that position of the slot's text.

#include "draft/kv_ring.h"

#include "check.h"

#include "ggml-backend.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

using namespace dflash;

namespace {

constexpr int32_t N_SLOTS = 3, HEAD_DIM = 4, BLOCK = 5, N_LAYERS = 2;
constexpr size_t  NO_LIMIT = SIZE_MAX;

drafter_model small_model() {
    drafter_model model = {};
    model.n_head_kv     = 1;
    model.head_dim      = HEAD_DIM;
    model.block_size    = BLOCK;
    model.layers.resize(N_LAYERS);
    return model;
}

// A ring with a copy of what it must contain: a number for each position of each slot's text.
class watched_ring {
  public:
    explicit watched_ring(int32_t n_ctx, size_t history_limit = NO_LIMIT) :
        ring(small_model(), N_SLOTS, n_ctx, GGML_TYPE_F32, GGML_TYPE_F32, false, history_limit) {}

    int32_t end(int32_t slot) const { return (int32_t) texts_[slot].size(); }

    void write(int32_t slot, int32_t n) {
        const int32_t first = end(slot);
        ring.extend(slot, first + n);
        for (int32_t pos = first; pos < first + n; ++pos) {
            texts_[slot].push_back((float) ++n_written_);
            for (int32_t layer = 0; layer < N_LAYERS; ++layer) {
                set(ring.k(layer), ring.cell(slot, pos), row(slot, pos, layer, 0));
                set(ring.v(layer), ring.cell(slot, pos), row(slot, pos, layer, 1));
            }
        }
    }

    void rewind(int32_t slot, int32_t pos) {
        ring.rewind(slot, pos);
        if (pos > end(slot)) {
            first_known_[slot] = pos;
        }
        first_known_[slot] = pos <= first_known_[slot] ? pos : first_known_[slot];
        texts_[slot].resize(pos);
    }

    void restart(int32_t slot, int32_t pos) {
        ring.restart(slot, pos);
        texts_[slot].resize(pos);
        first_known_[slot] = pos;
    }

    void share(int32_t from, int32_t to, int32_t end) {
        ring.put(to, ring.take(from, end));
        texts_[to].assign(texts_[from].begin(), texts_[from].begin() + end);
        first_known_[to] = std::min(first_known_[from], end);
    }

    // A block's rows see each other and the window, which is complete if nothing was forgotten.
    void check(int32_t slot, bool whole = true) const {
        CHECK(ring.end(slot) == end(slot));
        const int32_t      span = ring.span(end(slot));
        std::vector<float> mask;
        ring.fill_mask(mask, slot, span, BLOCK, INT32_MAX, true);
        CHECK(mask.size() == (size_t) span * BLOCK);
        const int32_t oldest = std::max(0, end(slot) - ring.n_ctx());
        for (int32_t r = 0; r < BLOCK; ++r) {
            const float * seen   = mask.data() + (size_t) r * span;
            int32_t       n_seen = (int32_t) std::count(seen, seen + span, 0.0f);
            for (int32_t i = 0; i < BLOCK; ++i) {
                CHECK((seen[i] == 0.0f) == (i <= r));
            }
            n_seen -= r + 1;
            const int32_t first = end(slot) - n_seen;   // they are the newest
            CHECK(first >= oldest);
            CHECK(!whole || first == std::max(oldest, first_known_[slot]) || first == rounded(oldest, slot));
            for (int32_t pos = first; pos < end(slot); ++pos) {
                CHECK(seen[ring.cell(slot, pos) - ring.first_cell(slot)] == 0.0f);
            }
            if (r == 0) {
                check_cells(slot, first);
            }
        }
    }

    kv_ring ring;

  private:
    using values = std::vector<float>;

    // After a gap only whole segments can be kept: earlier positions are lost when they leave the ring.
    int32_t rounded(int32_t oldest, int32_t slot) const {
        const int32_t step = kv_history::STEP, known = (first_known_[slot] + step - 1) / step * step;
        return std::max(oldest, known);
    }

    values row(int32_t slot, int32_t pos, int32_t layer, int32_t part) const {
        return values(HEAD_DIM, texts_[slot][pos] * 8 + (float) (2 * layer + part));
    }

    static void set(ggml_tensor * tensor, int64_t cell, const values & row) {
        ggml_backend_tensor_set(tensor, row.data(), cell * tensor->nb[1], tensor->nb[1]);
    }

    static values get(const ggml_tensor * tensor, int64_t cell) {
        values row(HEAD_DIM);
        ggml_backend_tensor_get(tensor, row.data(), cell * tensor->nb[1], tensor->nb[1]);
        return row;
    }

    void check_cells(int32_t slot, int32_t first) const {
        bool same = true;
        for (int32_t pos = first; pos < end(slot); ++pos) {
            for (int32_t layer = 0; layer < N_LAYERS; ++layer) {
                same = same && get(ring.k(layer), ring.cell(slot, pos)) == row(slot, pos, layer, 0) &&
                       get(ring.v(layer), ring.cell(slot, pos)) == row(slot, pos, layer, 1);
            }
        }
        CHECK(same);
    }

    std::vector<float> texts_[N_SLOTS];
    int32_t            first_known_[N_SLOTS] = {};
    int32_t            n_written_            = 0;
};

// Text grows, is cut back anywhere, copied to other slots, and restarted.
void any_history(int32_t n_ctx, uint32_t seed) {
    watched_ring ring(n_ctx);
    std::mt19937 random(seed);
    const auto   below = [&](int32_t n) { return n > 0 ? (int32_t) (random() % n) : 0; };
    for (int32_t i = 0; i < 100 && g_failed == 0; ++i) {
        const int32_t slot = below(N_SLOTS), other = below(N_SLOTS);
        switch (below(8)) {
            case 0: ring.rewind(slot, below(ring.end(slot) + 1)); break;
            case 1: ring.rewind(slot, std::max(0, ring.end(slot) - below(30))); break;
            case 2: ring.share(slot, other, below(ring.end(slot) + 1)); break;
            case 3: ring.share(slot, other, ring.end(slot)); break;
            default: ring.write(slot, 1 + below(ring.ring.max_rows())); break;
        }
        if (below(40) == 0) {
            ring.rewind(slot, 0);
        }
        for (int32_t s = 0; s < N_SLOTS; ++s) {
            ring.check(s);
        }
    }
    CHECK(ring.ring.history_bytes() > 0);
}

void after_a_gap_the_context_begins_anew() {
    for (const int32_t gap : { 1, 77 }) {
        watched_ring ring(100);
        ring.write(0, 150);
        ring.rewind(0, 150 + gap);
        ring.check(0);
        for (int32_t i = 0; i < 9; ++i) {
            ring.write(0, 70);
            ring.check(0);
        }
        ring.rewind(0, 300);
        ring.check(0);
        ring.restart(0, 300);
        ring.check(0);
        ring.write(0, 10);
        ring.check(0);
    }
}

// Older positions may be forgotten but are never wrong.
void histories_are_bounded() {
    const size_t segment = (size_t) kv_history::STEP * 2 * N_LAYERS * HEAD_DIM * sizeof(float);
    for (const size_t n : { 0, 1, 7 }) {
        watched_ring ring(100, n * segment + 5);
        std::mt19937 random(7);
        for (int32_t i = 0; i < 200 && g_failed == 0; ++i) {
            const int32_t slot = (int32_t) (random() % N_SLOTS);
            if (random() % 4 == 0) {
                ring.rewind(slot, (int32_t) (random() % (ring.end(slot) + 1)));
            } else {
                ring.write(slot, 1 + (int32_t) (random() % 80));
            }
            ring.check(slot, false);
            CHECK(ring.ring.history_bytes() <= n * segment);
        }
    }
    watched_ring ring(100, 7 * segment);
    ring.write(0, 100);
    for (int32_t i = 0; i < 9; ++i) {
        ring.write(0, 64);
    }
    ring.rewind(0, 676 - 64);   // not far
    ring.check(0);
}

// Copies between rings of different sizes: a saved slot may come from another engine.
void copies_fit_any_ring() {
    for (const auto & [from, to] : { std::pair{ 40, 400 }, { 400, 40 }, { 400, 1 } }) {
        watched_ring a(from), b(to);
        for (int32_t i = 0; i < 11; ++i) {
            a.write(0, 60);
        }
        CHECK(a.ring.copy_bytes(0) == a.ring.take(0, 660).bytes());
        for (const int32_t end : { 660, 500, 130, 1, 0 }) {
            const ring_copy copy = a.ring.take(0, end);
            CHECK(b.ring.fits(copy));
            b.rewind(1, 0);
            for (int32_t i = 0; i < end; ++i) {   // the same text
                b.write(1, 1);
            }
            const watched_ring & c = b;
            b.ring.put(1, copy);
            std::vector<float> mask;
            c.ring.fill_mask(mask, 1, c.ring.span(end), 1, INT32_MAX, true);
            CHECK(c.ring.end(1) == end);
            CHECK(std::count(mask.begin(), mask.end(), 0.0f) == 1 + std::min(end, to));
        }
    }
}

void a_window_ends_on_both_sides() {
    watched_ring ring(40);
    ring.write(0, 30);
    constexpr int32_t  WINDOW = 3;
    const int32_t      end = ring.ring.end(0), span = ring.ring.span(end);
    std::vector<float> mask;
    for (const bool causal : { false, true }) {
        ring.ring.fill_mask(mask, 0, span, BLOCK, WINDOW, causal);
        for (int32_t row = 0; row < BLOCK; ++row) {
            const float * seen = mask.data() + (size_t) row * span;
            for (int32_t i = 0; i < BLOCK; ++i) {
                CHECK((seen[i] == 0.0f) == (std::abs(row - i) < WINDOW && (i <= row || !causal)));
            }
            for (int32_t pos = 0; pos < end; ++pos) {
                const float value = seen[ring.ring.cell(0, pos) - ring.ring.first_cell(0)];
                CHECK((value == 0.0f) == (end + row - pos < WINDOW));
            }
        }
    }
}

void copies_of_other_sizes_are_refused() {
    watched_ring ring(40);
    for (int32_t i = 0; i < 8; ++i) {
        ring.write(0, 60);
    }
    const ring_copy sound = ring.ring.take(0, 480);
    CHECK(ring.ring.fits(sound) && sound.past.end() > 0);
    std::vector<ring_copy> bad(7, sound);
    bad[0].begin = -1;
    bad[1].end   = bad[1].begin - 1;
    bad[2].data.pop_back();
    bad[3].past.append(bad[3].past.end(), std::make_shared<raw_bytes>(3));
    bad[4].past.truncate(64);                                                     // a gap before the ring
    bad[5].past.append(10, std::make_shared<raw_bytes>(sound.past.holding(0)));   // not a multiple of a segment
    while (bad[6].past.end() <= 600) {                                            // far past the ring's end
        bad[6].past.append(bad[6].past.end(), std::make_shared<raw_bytes>(sound.past.holding(0)));
    }
    for (const ring_copy & copy : bad) {
        CHECK(!ring.ring.fits(copy));
        bool thrown = false;
        try {
            ring.ring.put(0, copy);
        } catch (const std::runtime_error &) {
            thrown = true;
        }
        CHECK(thrown);
        ring.check(0);
    }
    ring_copy   numbers = sound;
    const float nan     = NAN;
    auto        segment = std::make_shared<raw_bytes>(sound.past.holding(0));
    std::copy_n((const uint8_t *) &nan, sizeof(nan), segment->data() + segment->size() - sizeof(nan));
    numbers.past.clear();
    numbers.past.append(0, segment);
    for (int32_t pos = 64; pos < sound.past.end(); pos += 64) {
        numbers.past.append(pos, std::make_shared<raw_bytes>(sound.past.holding(pos)));
    }
    CHECK(!ring.ring.fits(numbers));
}

}   // namespace

int main() {
    for (const int32_t n_ctx : { 1, 40, 300 }) {
        any_history(n_ctx, (uint32_t) n_ctx);
    }
    after_a_gap_the_context_begins_anew();
    histories_are_bounded();
    copies_fit_any_ring();
    a_window_ends_on_both_sides();
    copies_of_other_sizes_are_refused();
    return TEST_RESULT;
}

#include "cpu/gemm/packed_weights.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

namespace dflash {

bool has_panel_layout(ggml_type type) { return panel_block_bytes(type) > 0; }

int panel_block_size(ggml_type type) {
    return with_weight_type(type, 32, [](auto t) { return decltype(t)::panel::SIZE; });
}

size_t panel_block_bytes(ggml_type type) {
    return with_weight_type(type, (size_t) 0, [](auto t) { return sizeof(typename decltype(t)::panel); });
}

namespace {

uint32_t load_4(const void * bytes) {
    uint32_t x;
    std::memcpy(&x, bytes, 4);
    return x;
}

void store_4(void * bytes, uint32_t x) { std::memcpy(bytes, &x, 4); }

template <class Panel> void pack_nibbles(const uint8_t * q, int c, Panel & p) {
    for (int i = 0; i < 4; ++i) {
        std::memcpy(&p.q[i][4 * c], q + 4 * i, 4);   // ggml's nibbles are 16 positions apart as well
    }
}

// bits: bit l of the 32 is the fifth bit of inner position l.
template <class Scales> void pack_fifth_bits(const uint8_t (&bits)[4], int c, panel_of_32_with_fifth_bits<Scales> & p) {
    const uint32_t all = load_4(bits);
    for (int j = 0; j < 4; ++j) {
        uint8_t h = 0;
        for (int g = 0; g < 8; ++g) {
            h |= (all >> (4 * g + j) & 1) << g;
        }
        p.h[4 * c + j] = h;
    }
}

// ---- pack(): puts a ggml block into column c of a panel's block, for each type ----

void pack(const block_q4_0 & b, int c, q4_0::panel & p) {
    p.d[c] = b.d;
    pack_nibbles(b.qs, c, p);
}

void pack(const block_q4_1 & b, int c, q4_1::panel & p) {
    p.d[c]   = b.data.data.d;
    p.min[c] = b.data.data.m;
    pack_nibbles(b.qs, c, p);
}

void pack(const block_q5_0 & b, int c, q5_0::panel & p) {
    p.d[c] = b.d;
    pack_nibbles(b.qs, c, p);
    pack_fifth_bits(b.qh, c, p);
}

void pack(const block_q5_1 & b, int c, q5_1::panel & p) {
    p.d[c]   = b.data.data.d;
    p.min[c] = b.data.data.m;
    pack_nibbles(b.qs, c, p);
    pack_fifth_bits(b.qh, c, p);
}

void pack(const block_iq4_nl & b, int c, iq4_nl::panel & p) {
    p.d[c] = b.d;
    pack_nibbles(b.qs, c, p);
}

void pack(const block_mxfp4 & b, int c, mxfp4::panel & p) {
    p.d[c] = b.e;
    pack_nibbles(b.qs, c, p);
}

void pack(const block_q8_0 & b, int c, q8_0::panel & p) {
    p.d[c] = b.d;
    for (int i = 0; i < 8; ++i) {
        store_4(&p.q[i][4 * c], load_4(b.qs + 4 * i) ^ 0x80808080);   // + 128
    }
}

// Q4_K, and the nibbles, scales and minima of Q5_K.
template <class Block> void pack_with_minima(const Block & b, int c, panel_q4_K & p) {
    p.d[c]    = b.data.data.d;
    p.dmin[c] = b.data.data.dmin;
    for (int s = 0; s < 8; ++s) {
        // 6-bit scales and minima: four are stored whole, four are split (ggml-quants.c, get_scale_min_k4)
        const uint8_t * q      = b.scales;
        const uint8_t   scale  = s < 4 ? q[s] & 63 : (q[s + 4] & 15) | (q[s - 4] >> 6) << 4;
        const uint8_t   min    = s < 4 ? q[s + 4] & 63 : q[s + 4] >> 4 | (q[s] >> 6) << 4;
        p.scale[s][c]          = scale;
        p.min[s / 2][c][s % 2] = min;
        for (int i = 0; i < 4; ++i) {   // 32 bytes hold two sub-blocks as nibbles; four positions at once
            const uint32_t low = 0x0f0f0f0f, x = load_4(b.qs + 32 * (s / 2) + 4 * i),
                           y = load_4(b.qs + 32 * (s / 2) + 16 + 4 * i);
            store_4(&p.q[s][i][4 * c], s % 2 == 0 ? (x & low) | (y & low) << 4 : (x >> 4 & low) | (y & ~low));
        }
    }
}

void pack(const block_q4_K & b, int c, panel_q4_K & p) { pack_with_minima(b, c, p); }

void pack(const block_q5_K & b, int c, panel_q5_K & p) {
    pack_with_minima(b, c, p);
    for (int s = 0; s < 8; ++s) {
        uint32_t h = 0;
        for (int g = 0; g < 8; ++g) {   // bit s of byte l belongs to position l of sub-block s; four bytes at once
            h |= (load_4(b.qh + 4 * g) >> s & 0x01010101) << g;
        }
        store_4(&p.h[s][4 * c], h);
    }
}

void pack(const block_q6_K & b, int c, panel_q6_K & p) {
    p.d[c] = b.d;
    for (int s = 0; s < 16; ++s) {
        p.scale[s / 2][c][s % 2] = b.scales[s];
        // half, quarter and index within it (ggml-quants.c, dequantize_row_q6_K); four positions at once
        const int half = s / 8, quarter = s % 8 / 2, l = 16 * (s % 2);
        uint32_t  low[4], h = 0;
        for (int g = 0; g < 4; ++g) {
            const uint32_t two = load_4(b.ql + 64 * half + 32 * (quarter % 2) + l + 4 * g);
            low[g]             = (quarter < 2 ? two : two >> 4) & 0x0f0f0f0f;
            h |= (load_4(b.qh + 32 * half + l + 4 * g) >> (2 * quarter) & 0x03030303) << (2 * g);
        }
        store_4(&p.q[s][0][4 * c], low[0] | low[2] << 4);
        store_4(&p.q[s][1][4 * c], low[1] | low[3] << 4);
        store_4(&p.h[s][4 * c], h);
    }
}

// Column by column: a row of the weight matrix is a column of the panel.
template <class T> void pack_rows(const void * rows, size_t stride, int64_t n_blocks, void * out) {
    for (int c = 0; c < PANEL; ++c) {
        const auto * row = (const typename T::block *) ((const char *) rows + c * stride);
        for (int64_t b = 0; b < n_blocks; ++b) {
            pack(row[b], c, ((typename T::panel *) out)[b]);
        }
    }
}

}   // namespace

void pack_panel(ggml_type type, const void * rows, size_t stride, int64_t n_blocks, void * out) {
    for_each_weight_type([&](auto t) {
        if (t.TYPE == type) {
            pack_rows<decltype(t)>(rows, stride, n_blocks, out);
        }
    });
}

void pack_weights(const ggml_tensor * w, const void * data, void * out) {
    constexpr int64_t MAX_THREADS = 8;         // packing dominates the time of loading
    constexpr size_t  MIN_BYTES   = 1 << 20;   // per thread

    const int64_t n_blocks = n_blocks_of(w), n_panels = n_panels_of(w), n_all = n_panels * w->ne[2];
    const size_t  bytes      = panel_bytes(w);
    const auto    pack_range = [&](int64_t begin, int64_t end) {
        std::vector<char> padded;
        for (int64_t i = begin; i < end; ++i) {
            const int64_t matrix = i / n_panels, column = i % n_panels * PANEL;
            const char *  rows = (const char *) data + matrix * w->nb[2] + column * w->nb[1];
            if (column + PANEL > w->ne[1]) {   // zero bytes are zero weights in every type
                padded.assign(PANEL * w->nb[1], 0);
                std::memcpy(padded.data(), rows, (w->ne[1] - column) * w->nb[1]);
                rows = padded.data();
            }
            pack_panel(w->type, rows, w->nb[1], n_blocks, (char *) out + i * bytes);
        }
    };
    const int64_t n_cores   = std::max<int64_t>(1, std::thread::hardware_concurrency());
    const int64_t n_threads = ggml_nbytes(w) < MIN_BYTES ? 1 : std::min({ MAX_THREADS, n_all, n_cores });

    std::vector<std::thread> others;
    int64_t                  begin = n_all / n_threads;   // the calling thread packs what comes before
    try {
        for (int64_t t = 1; t < n_threads; ++t, begin = n_all * t / n_threads) {
            others.emplace_back(pack_range, begin, n_all * (t + 1) / n_threads);
        }
    } catch (const std::system_error &) {
        pack_range(begin, n_all);   // the system refused another thread
    }
    pack_range(0, n_all / n_threads);
    for (std::thread & other : others) {
        other.join();
    }
}

}   // namespace dflash

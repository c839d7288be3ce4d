#include "cpu/gemm/packed_weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

// weight_types.h has included this for its declarations; include it again for the codebook tables.
#define GGML_COMMON_IMPL_CPP
#include "ggml-common.h"

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

void pack_nibbles(const uint8_t * q, int c, uint8_t (&lines)[4][64]) {
    for (int i = 0; i < 4; ++i) {
        std::memcpy(&lines[i][4 * c], q + 4 * i, 4);   // ggml's nibbles are 16 positions apart as well
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

template <class Block> void pack_scales(const Block & b, int c, scales_of_32<ggml_half> & p) { p.d[c] = b.d; }
void                        pack_scales(const block_mxfp4 & b, int c, scales_of_32<uint8_t> & p) { p.d[c] = b.e; }
template <class Block> void pack_scales(const Block & b, int c, scales_and_minima_of_32 & p) {
    p.d[c]   = b.data.data.d;
    p.min[c] = b.data.data.m;
}

template <class Block, class Scales> void pack(const Block & b, int c, panel_of_32<Scales, 4> & p) {
    pack_scales(b, c, p);
    pack_nibbles(b.qs, c, p.q);
}

template <class Block, class Scales> void pack(const Block & b, int c, panel_of_32_with_fifth_bits<Scales> & p) {
    pack_scales(b, c, p);
    pack_nibbles(b.qs, c, p.q);
    pack_fifth_bits(b.qh, c, p);
}

void pack(const block_q8_0 & b, int c, q8_0::panel & p) {
    p.d[c] = b.d;
    for (int i = 0; i < 8; ++i) {
        store_4(&p.q[i][4 * c], load_4(b.qs + 4 * i) ^ 0x80808080);   // + 128
    }
}

// Bit s of byte l belongs to position 32 * s + l.
void pack_high_bits(const uint8_t (&bits)[32], int c, uint8_t (&lines)[8][64]) {
    for (int s = 0; s < 8; ++s) {
        uint32_t h = 0;
        for (int g = 0; g < 8; ++g) {   // four bytes at once
            h |= (load_4(bits + 4 * g) >> s & 0x01010101) << g;
        }
        store_4(&lines[s][4 * c], h);
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
    pack_high_bits(b.qh, c, p.h);
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

// ---- types that are packed by way of 64 words: 4 positions in a row each, a byte per position ----

using block_words = uint32_t[64];

constexpr uint32_t in_each_byte(uint8_t x) { return 0x01010101u * x; }

template <int SUB> void pack_words(const block_words & w, int c, panel_values<SUB> & p) {
    for (int s = 0; s < 256 / SUB; ++s) {
        for (int i = 0; i < SUB / 8; ++i) {
            const uint32_t * first = w + SUB / 4 * s + i;
            store_4(&p.q[s][i][4 * c], first[0] | first[SUB / 8] << 4);
        }
    }
}

void pack_words(const block_words & w, int c, uint8_t (&lines)[16][64]) {
    for (int s = 0; s < 16; ++s) {
        store_4(&lines[s][4 * c], w[4 * s] | w[4 * s + 1] << 2 | w[4 * s + 2] << 4 | w[4 * s + 3] << 6);
    }
}

// The lower two bits of all positions in Q2_K, Q3_K and TQ2_0: 32 bytes hold four times 32 positions.
void unpack_two_bits(const uint8_t (&q)[QK_K / 4], block_words & w) {
    for (int i = 0; i < 64; ++i) {
        w[i] = load_4(q + 32 * (i / 32) + 4 * (i % 8)) >> (2 * (i % 32 / 8)) & in_each_byte(3);
    }
}

void pack(const block_q2_K & b, int c, q2_K::panel & p) {
    p.d[c]    = b.data.data.d;
    p.dmin[c] = b.data.data.dmin;
    for (int s = 0; s < 16; ++s) {
        p.scale[s / 2][c][s % 2] = b.scales[s];
    }
    block_words w;
    unpack_two_bits(b.qs, w);
    pack_words(w, c, p.q);
}

void pack(const block_q3_K & b, int c, q3_K::panel & p) {
    p.d[c] = b.d;
    for (int s = 0; s < 16; ++s) {   // 6 bits: the lower four of s and s + 8 are in one byte, the upper two of s, s +
                                     // 4, s + 8, s + 12 in another (ggml-quants.c, dequantize_row_q3_K)
        const int low = b.scales[s % 8] >> (4 * (s / 8)) & 15, high = b.scales[8 + s % 4] >> (2 * (s / 4)) & 3;
        p.scale[s / 2][c][s % 2] = (int8_t) ((low | high << 4) - 32);
    }
    block_words w;
    unpack_two_bits(b.qs, w);
    pack_words(w, c, p.q);
    pack_high_bits(b.hmask, c, p.h);
}

void pack_ternary(const block_words & w, ggml_half d, int c, panel_q2_K & p) {
    p.d[c] = p.dmin[c] = d;
    for (int s = 0; s < 16; ++s) {
        p.scale[s / 2][c][s % 2] = 1 | 1 << 4;
    }
    pack_words(w, c, p.q);
}

void pack(const block_tq2_0 & b, int c, tq2_0::panel & p) {
    block_words w;
    unpack_two_bits(b.qs, w);
    pack_ternary(w, b.d, c, p);
}

// Digit n of 4 bytes of base 3, the most significant first (ggml-quants.c, dequantize_row_tq1_0).
uint32_t ternary_digits(const uint8_t * bytes, int n) {
    constexpr uint8_t POWERS[5] = { 1, 3, 9, 27, 81 };
    uint32_t          digits    = 0;
    for (int j = 0; j < 4; ++j) {
        const uint8_t rest = (uint8_t) (bytes[j] * POWERS[n]);
        digits |= (uint32_t) (rest * 3 >> 8) << (8 * j);
    }
    return digits;
}

void pack(const block_tq1_0 & b, int c, tq1_0::panel & p) {
    block_words w;
    uint32_t *  next  = w;
    const auto  group = [&](const uint8_t * bytes, int n_bytes, int n_digits) {
        for (int n = 0; n < n_digits; ++n) {
            for (int i = 0; i < n_bytes; i += 4) {
                *next++ = ternary_digits(bytes + i, n);
            }
        }
    };
    group(b.qs, 32, 5);
    group(b.qs + 32, 16, 5);
    group(b.qh, 4, 4);
    pack_ternary(w, b.d, c, p);
}

void pack(const block_iq4_xs & b, int c, iq4_xs::panel & p) {
    p.d[c] = b.d;
    for (int s = 0; s < 8; ++s) {
        const int low = b.scales_l[s / 2] >> (4 * (s % 2)) & 15, high = b.scales_h >> (2 * s) & 3;
        p.scale[s / 2][c][s % 2] = (int8_t) ((low | high << 4) - 32);
        pack_nibbles(b.qs + 16 * s, c, p.q[s]);
    }
}

// ---- types with a codebook ----

// Whether a positive value's bits from SHIFT on are its index, and its negative comes 8 later.
template <class T, int SHIFT> constexpr bool shift_finds_index() {
    for (int i = 0; i < 8; ++i) {
        const int8_t value = T::VALUES[i];
        if (value != 0 && (value >> SHIFT != i || T::VALUES[i + 8] != -value)) {
            return false;
        }
    }
    return true;
}

// 4 entries of a codebook as nibbles, with their signs.
template <class T, int SHIFT> uint32_t signed_nibbles(uint32_t entries, unsigned signs) {
    static_assert(shift_finds_index<T, SHIFT>());
    const uint32_t sign_of_each = (signs & 15) * 0x204081 & in_each_byte(1);   // bit j to byte j
    return (entries >> SHIFT & in_each_byte(7)) | sign_of_each << 3;
}

// 8 positions: an entry of 8 bytes, or two of 4.
template <class T, int SHIFT>
void look_up(const void * first, const void * second, unsigned signs, uint32_t * two_words) {
    two_words[0] = signed_nibbles<T, SHIFT>(load_4(first), signs);
    two_words[1] = signed_nibbles<T, SHIFT>(load_4(second), signs >> 4);
}
void look_up_iq2(const uint64_t & entry, unsigned signs, uint32_t * two_words) {
    look_up<iq2_s, 4>(&entry, (const char *) &entry + 4, signs, two_words);
}

int8_t odd_scale(unsigned s) { return (int8_t) (2 * s + 1); }

// Two scales of 4 bits for each 32 positions.
void pack_scale_pairs(const uint8_t (&scales)[QK_K / 32], int c, panel_scaled<16> & p) {
    for (int t = 0; t < 8; ++t) {
        p.scale[t][c][0] = odd_scale(scales[t] & 15);
        p.scale[t][c][1] = odd_scale(scales[t] >> 4);
    }
}

void pack(const block_iq2_xxs & b, int c, iq2_xxs::panel & p) {
    p.d[c] = b.d;
    block_words w;
    for (int s = 0; s < 8; ++s) {
        const uint32_t entries = load_4(b.qs + 4 * s), rest = load_4(b.qs + 4 * s + 2);
        p.scale[s / 2][c][s % 2] = odd_scale(rest >> 28);
        for (int l = 0; l < 4; ++l) {
            look_up_iq2(iq2xxs_grid[entries >> (8 * l) & 255], ksigns_iq2xs[rest >> (7 * l) & 127], w + 8 * s + 2 * l);
        }
    }
    pack_words(w, c, p);
}

void pack(const block_iq2_xs & b, int c, iq2_xs::panel & p) {
    p.d[c] = b.d;
    block_words w;
    for (int i = 0; i < 32; ++i) {
        look_up_iq2(iq2xs_grid[b.qs[i] & 511], ksigns_iq2xs[b.qs[i] >> 9], w + 2 * i);
    }
    pack_scale_pairs(b.scales, c, p);
    pack_words(w, c, p);
}

void pack(const block_iq2_s & b, int c, iq2_s::panel & p) {
    p.d[c] = b.d;
    block_words w;
    for (int i = 0; i < 32; ++i) {
        const int high = b.qh[i / 4] >> (2 * (i % 4)) & 3;
        look_up_iq2(iq2s_grid[b.qs[i] | high << 8], b.qs[QK_K / 8 + i], w + 2 * i);
    }
    pack_scale_pairs(b.scales, c, p);
    pack_words(w, c, p);
}

void pack(const block_iq3_xxs & b, int c, iq3_xxs::panel & p) {
    p.d[c] = b.d;
    block_words w;
    for (int s = 0; s < 8; ++s) {
        const uint32_t rest      = load_4(b.qs + QK_K / 4 + 4 * s);
        p.scale[s / 2][c][s % 2] = odd_scale(rest >> 28);
        for (int l = 0; l < 4; ++l) {
            const uint8_t * q = b.qs + 8 * s + 2 * l;
            look_up<iq3_xxs, 3>(
                &iq3xxs_grid[q[0]], &iq3xxs_grid[q[1]], ksigns_iq2xs[rest >> (7 * l) & 127], w + 8 * s + 2 * l);
        }
    }
    pack_words(w, c, p);
}

void pack(const block_iq3_s & b, int c, iq3_s::panel & p) {
    p.d[c] = b.d;
    block_words w;
    for (int s = 0; s < 8; ++s) {
        p.scale[s / 2][c][s % 2] = odd_scale(b.scales[s / 2] >> (4 * (s % 2)) & 15);
        for (int l = 0; l < 4; ++l) {
            const uint8_t *q = b.qs + 8 * s + 2 * l, high = b.qh[s] >> (2 * l);
            look_up<iq3_s, 1>(&iq3s_grid[q[0] | (high & 1) << 8], &iq3s_grid[q[1] | (high >> 1 & 1) << 8],
                b.signs[4 * s + l], w + 8 * s + 2 * l);
        }
    }
    pack_words(w, c, p);
}

// 8 positions of IQ1: an entry's bytes 0, 1 and -1 become 0, 1 and 3.
void look_up_iq1(int index, bool is_minus, uint32_t * two_words) {
    const uint64_t & entry = iq1s_grid[index];
    for (int i = 0; i < 2; ++i) {
        two_words[i] = (load_4((const char *) &entry + 4 * i) & in_each_byte(3)) | in_each_byte(is_minus ? 8 : 0);
    }
}

void pack(const block_iq1_s & b, int c, iq1_s::panel & p) {
    p.d[c] = b.d;
    block_words w;
    for (int s = 0; s < 8; ++s) {
        const unsigned qh        = b.qh[s];
        p.scale[s / 2][c][s % 2] = odd_scale(qh >> 12 & 7);
        for (int l = 0; l < 4; ++l) {
            look_up_iq1((int) (b.qs[4 * s + l] | (qh >> (3 * l) & 7) << 8), qh >> 15, w + 8 * s + 2 * l);
        }
    }
    pack_words(w, c, p);
}

void pack(const block_iq1_m & b, int c, iq1_m::panel & p) {
    uint16_t words[4];   // four scales of 3 bits each, and 4 bits of d
    std::memcpy(words, b.scales, sizeof(words));
    p.d[c] = (ggml_half) (words[0] >> 12 | (words[1] >> 12) << 4 | (words[2] >> 12) << 8 | (words[3] >> 12) << 12);
    for (int s = 0; s < 16; ++s) {
        p.scale[s / 2][c][s % 2] = odd_scale(words[s / 4] >> (3 * (s % 4)) & 7);
    }
    block_words w;
    for (int i = 0; i < 32; ++i) {
        const int high = b.qh[i / 2] >> (4 * (i % 2)) & 15;
        look_up_iq1(b.qs[i] | (high & 7) << 8, high & 8, w + 2 * i);
    }
    pack_words(w, c, p);
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
    constexpr size_t  MIN_BYTES   = 1 << 20;   // for threads to pay
    constexpr int64_t SHARES      = 16;        // of a thread

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

    // A thread takes the next few panels when it is done with its own, so that one whose core does something else, too,
    // holds up nobody.
    const int64_t        n_at_once = std::max<int64_t>(1, n_all / (n_threads * SHARES));
    std::atomic<int64_t> next{ 0 };
    const auto           pack_rest = [&] {
        for (int64_t i; (i = next.fetch_add(n_at_once)) < n_all;) {
            pack_range(i, std::min(i + n_at_once, n_all));
        }
    };
    std::vector<std::thread> others;
    try {
        while ((int64_t) others.size() < n_threads - 1) {
            others.emplace_back(pack_rest);
        }
    } catch (const std::system_error &) {
        pack_rest();   // the system refused another thread
    }
    pack_rest();
    for (std::thread & other : others) {
        other.join();
    }
}

}   // namespace dflash

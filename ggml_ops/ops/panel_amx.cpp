// Panel kernels for AMX: what panel_x86.cpp computes, bit for bit, with tiles of 16 rows.

#include "panel_layout.h"

#if defined(__x86_64__) && defined(__linux__) && (__GNUC__ >= 11 || __clang_major__ >= 12)

#include "cpu_x86.h"
#include "switches.h"

#include <cpuid.h>
#if defined(__GNUC__) && !defined(__clang__)
#    pragma GCC diagnostic ignored "-Wuninitialized"         // in gcc's own intrinsics (bug 105593)
#    pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#define LANES_TARGET "amx-tile,amx-int8,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma"
#define LANES_VNNI   1
#define AMX          __attribute__((target(LANES_TARGET)))
#define AMX_INLINE AMX __attribute__((always_inline)) static inline
#define LANES_INLINE        AMX_INLINE
#define LANES_INLINE_MEMBER AMX __attribute__((always_inline)) inline

namespace dflash {

namespace {

#include "lanes_avx512.h"

constexpr int TILE = 16;   // rows of activations in a tile at most
constexpr int PASS = 64;   // rows that one unpacked step of weights serves at most

// Tiles 0 to 3: sums, a row of the pass each and 16 columns. 4 and 5: activations, rows of `width` values. 6 and 7: weights, 4 inner positions of 16 columns a row.
struct alignas(64) tile_config {
    uint8_t  palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t  rows[16] = {};

    tile_config(int n, int width) {
        for (int t = 0; t < 8; ++t) {
            rows[t]  = (uint8_t) (t < 6 ? n : width / 4);
            bytes[t] = (uint16_t) (t == 4 || t == 5 ? width : 64);
        }
    }
};

// gcc's intrinsics declare less memory than their instructions read or write: what was stored before must be there, what is read after is new
AMX_INLINE void barrier(const void * p) { __asm__ volatile("" : : "r"(p) : "memory"); }

AMX_INLINE void   put(uint8_t * to, __m512i v) { _mm512_store_si512((__m512i *) to, v); }

// A step of the inner dimension of one panel in four parts, ready for tiles, and the sums of a step for the rows of a tile.
struct alignas(64) step_weights {
    uint8_t q[8][1024];
};

struct alignas(64) step_scales {
    float d[4][PANEL], back[4][PANEL];
};

struct alignas(64) step_sums {
    int32_t tile[4][TILE][PANEL];
};

// Where the rows of a tile lie behind its first. Rows are scaled in fours; what is scaled beyond the last is the last one's.
struct tile_rows {
    int64_t at[TILE];

    tile_rows(int n, size_t stride) {
        for (int r = 0; r < TILE; ++r) {
            at[r] = (int64_t) stride * std::min(r, n - 1);
        }
    }
};

AMX_INLINE void prefetch(const void * from, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) {
        _mm_prefetch((const char *) from + PANEL_AHEAD + i, _MM_HINT_T1);   // (the first cache is full of rows and sums)
    }
}

// ---- one scale per 32 positions: a part is a block, and its sums are scaled for themselves ----

// Signed weights, 16 times as large: a nibble moves to the upper half of its byte, with 8 taken from it there. The scale makes up for it, exactly.
AMX_INLINE __m512 unpack_block(const panel_q4_0 & x, uint8_t * q) {
    const __m512i upper = _mm512_set1_epi8((char) 0xf0), eight = _mm512_set1_epi8((char) 0x80);
    constexpr int AND_XOR = 0x6a;   // (a & b) ^ c
    for (int i = 0; i < 4; ++i) {
        const __m512i v = _mm512_loadu_si512(x.q[i]);
        put(q + 64 * i, _mm512_ternarylogic_epi32(_mm512_slli_epi16(v, 4), upper, eight, AND_XOR));
        put(q + 64 * i + 256, _mm512_ternarylogic_epi32(v, upper, eight, AND_XOR));
    }
    return _mm512_mul_ps(lanes::half(x.d), _mm512_set1_ps(1 / 16.0f));
}

AMX_INLINE __m512 unpack_block(const panel_q8_0 & x, uint8_t * q) {
    const __m512i high = _mm512_set1_epi8((char) 0x80);
    for (int i = 0; i < 8; ++i) {
        put(q + 64 * i, _mm512_xor_si512(_mm512_loadu_si512(x.q[i]), high));
    }
    return lanes::half(x.d);
}

// Nibbles that stand for values of a table.
AMX_INLINE void unpack_table(const uint8_t (&from)[4][64], __m512i table, uint8_t * q) {
    const __m512i low = _mm512_set1_epi8(15);
    for (int i = 0; i < 4; ++i) {
        const __m512i v = _mm512_loadu_si512(from[i]);
        put(q + 64 * i, _mm512_shuffle_epi8(table, _mm512_and_si512(v, low)));
        put(q + 64 * i + 256, _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(v, 4), low)));
    }
}

AMX_INLINE __m512i table_of(const int8_t * values) { return _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *) values)); }

struct panel_iq4_nl : panel_q4_0 {};

AMX_INLINE __m512 unpack_block(const panel_iq4_nl & x, uint8_t * q) {
    unpack_table(x.q, table_of(VALUES_IQ4_NL), q);
    return lanes::half(x.d);
}

AMX_INLINE __m512 unpack_block(const panel_mxfp4 & x, uint8_t * q) {
    unpack_table(x.q, _mm512_sub_epi8(table_of(VALUES_MXFP4_12), _mm512_set1_epi8(12)), q);
    return lanes::e8m0(x.e);
}

template <class Panel, ggml_type TYPE> struct by_32 {
    using panel = Panel;
    using scale_type = scale_q8_0;
    static constexpr int BLOCK = 32, STEP = 4, WIDTH = 32;
    static constexpr int32_t START = row_start(TYPE);

    AMX_INLINE void unpack(const panel * x, int part, step_weights & w, step_scales & d) {
        prefetch(&x[part], sizeof(panel));
        const __m512 scale = unpack_block(x[part], w.q[part]);
        _mm512_store_ps(d.d[part], scale);
        if (START) {
            _mm512_store_ps(d.back[part], _mm512_mul_ps(scale, _mm512_set1_ps(-0x1.8p23f)));
        }
    }

    AMX_INLINE void multiply(const int8_t * a, size_t stride, const step_weights & w, int part) {
#define DFLASH_BLOCK(I, A, B)                       \
        case I:                                     \
            _tile_zero(I);                          \
            _tile_loadd(A, a + 32 * I, stride);     \
            _tile_loadd(B, w.q[I], 64);             \
            _tile_dpbssd(I, A, B);                  \
            break;
        switch (part) {
            DFLASH_BLOCK(0, 4, 6)
            DFLASH_BLOCK(1, 5, 7)
            DFLASH_BLOCK(2, 4, 6)
            DFLASH_BLOCK(3, 5, 7)
        }
#undef DFLASH_BLOCK
    }

    // A part later than they are multiplied: a store that waits for its product holds up all stores behind it.
    AMX_INLINE void store(int part, int parts, step_sums & c) {
        if (part == 1 && parts > 0) { _tile_stored(0, c.tile[0], 64); }
        if (part == 2 && parts > 1) { _tile_stored(1, c.tile[1], 64); }
        if (part == 3 && parts > 2) { _tile_stored(2, c.tile[2], 64); }
        if (part == 3 && parts > 3) { _tile_stored(3, c.tile[3], 64); }
    }

    template <int N, int Q> AMX_INLINE void scale_blocks(const step_sums & c, const step_scales & w, int at, const tile_rows & rows, const char * scales, int part, __mmask16 have, float (*sums)[PANEL]) {
        __m512 d[N], back[N];
        for (int b = 0; b < N; ++b) {
            d[b] = _mm512_load_ps(w.d[at + b]);
            back[b] = START ? _mm512_load_ps(w.back[at + b]) : _mm512_setzero_ps();
        }
#pragma GCC unroll 4
        for (int r = Q * part; r < Q * part + Q; ++r) {
            const scale_q8_0 * s = (const scale_q8_0 *) (scales + rows.at[r]) + at;
            __m512 sum = _mm512_maskz_load_ps(have, sums[r]);
#pragma GCC unroll 4
            for (int b = 0; b < N; ++b) {
                const __m512i n = _mm512_load_si512(c.tile[at + b][r]);
                // without a conversion, as panel_tile.h has it: while tiles work, operations on floats have one of the two ports, additions of integers both
                const __m512 scaled = START ? _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_set1_epi32(START))), d[b], back[b]) : _mm512_mul_ps(_mm512_cvtepi32_ps(n), d[b]);
                sum = _mm512_fmadd_ps(scaled, _mm512_set1_ps(s[b].d), sum);
            }
            _mm512_store_ps(sums[r], sum);
        }
    }

    template <int Q> AMX_INLINE void scale(const step_sums & c, const step_scales & w, const panel *, int count, const tile_rows & rows, const char * scales, int part, __mmask16 have, float (*sums)[PANEL]) {
        if (count == STEP) {
            scale_blocks<STEP, Q>(c, w, 0, rows, scales, part, have, sums);
        } else {
            for (int b = 0; b < count; ++b) {
                scale_blocks<1, Q>(c, w, b, rows, scales, part, b ? (__mmask16) 0xffff : have, sums);
            }
        }
    }
};

// ---- integer scales within 256 positions: the weights take them before they are multiplied. A scaled weight has more than 8 bits, so it is
// two bytes, low and high, with a tile of sums each: the same integers as weights times activations times scale ----

template <class Type> struct by_256 {
    using panel = typename Type::panel;
    using scale_type = scale_q8_K;
    static constexpr int BLOCK = 256, STEP = 1, WIDTH = 64;

    AMX_INLINE void unpack(const panel * x, int part, step_weights & w, step_scales &) {
        prefetch((const char *) x + part * sizeof(panel) / 4, sizeof(panel) / 4);
        Type::unpack(*x, part, w.q[part], w.q[part + 4]);
    }

    AMX_INLINE void multiply(const int8_t * a, size_t stride, const step_weights & w, int part) {
        if (part == 0) {
            _tile_zero(0);
            _tile_zero(1);
        }
        _tile_loadd(4, a + 64 * part, stride);
        _tile_loadd(6, w.q[part], 64);
        _tile_dpbsud(0, 4, 6);
        _tile_loadd(7, w.q[part + 4], 64);
        if (Type::SIGNED) {
            _tile_dpbssd(1, 4, 7);
        } else {
            _tile_dpbsud(1, 4, 7);
        }
    }

    AMX_INLINE void store(int part, int parts, step_sums & c) {
        if (part == 3 && parts > 0) {
            _tile_stored(0, c.tile[0], 64);
            _tile_stored(1, c.tile[1], 64);
        }
    }

    template <int Q> AMX_INLINE void scale(const step_sums & c, const step_scales &, const panel * x, int, const tile_rows & rows, const char * scales, int part, __mmask16 have, float (*sums)[PANEL]) {
        Type::template scale<Q>(c, *x, rows, scales, part, have, sums);
    }
};

// The sums of scaled weights out of their low and high parts.
template <int SHIFT> AMX_INLINE __m512i both(const step_sums & c, int r) {
    return _mm512_add_epi32(_mm512_load_si512(c.tile[0][r]), _mm512_slli_epi32(_mm512_load_si512(c.tile[1][r]), SHIFT));
}

// What pairs of scales or minima of 16 columns multiply: sums of the activations.
AMX_INLINE __m512i dot_sums(const __m512i * pairs, int n, const int16_t * sums) {
    __m512i dot = _mm512_setzero_si512();
    for (int s = 0; s < n; ++s) {
        dot = lanes::dot2(dot, pairs[s], sums + 2 * s);
    }
    return dot;
}

// Q4_K and Q5_K.
template <class Panel> struct with_minima {
    using panel = Panel;
    static constexpr bool SIGNED = false;

    // weight times scale (6 bits: 8 * high + low), two weights at once: no product of 5 and 3 bits reaches beyond its byte
    AMX_INLINE void put_scaled(__m512i v, __m512i scale_lo, __m512i scale_hi, uint8_t * lo, uint8_t * hi) {
        put(lo, _mm512_mullo_epi16(v, scale_lo));
        put(hi, _mm512_mullo_epi16(v, scale_hi));
    }

    AMX_INLINE __m512i fifth(const panel_q4_K &, int, int, __m512i v) { return v; }
    AMX_INLINE __m512i fifth(const panel_q5_K & x, int s, int g, __m512i v) {
        const __m512i h = _mm512_loadu_si512(x.h[s]);
        return _mm512_or_si512(v, _mm512_and_si512(g < 4 ? _mm512_slli_epi16(h, 4 - g) : _mm512_srli_epi16(h, g - 4), _mm512_set1_epi8(16)));
    }

    AMX_INLINE void unpack(const panel & x, int part, uint8_t * lo, uint8_t * hi) {
        const __m512i low = _mm512_set1_epi8(15), seven = _mm512_set1_epi16(7);
        for (int s = 0; s < 2; ++s, lo += 512, hi += 512) {
            __m512i scale = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *) x.scale[2 * part + s]));
            scale = _mm512_or_si512(scale, _mm512_slli_epi32(scale, 16));
            const __m512i scale_lo = _mm512_and_si512(scale, seven), scale_hi = _mm512_srli_epi16(scale, 3);
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                const __m512i v = _mm512_loadu_si512(x.q[2 * part + s][i]);
                put_scaled(fifth(x, 2 * part + s, i, _mm512_and_si512(v, low)), scale_lo, scale_hi, lo + 64 * i, hi + 64 * i);
                put_scaled(fifth(x, 2 * part + s, i + 4, _mm512_and_si512(_mm512_srli_epi16(v, 4), low)), scale_lo, scale_hi, lo + 64 * i + 256, hi + 64 * i + 256);
            }
        }
    }

    template <int Q> AMX_INLINE void scale(const step_sums & c, const panel & x, const tile_rows & rows, const char * scales, int part, __mmask16 have, float (*sums)[PANEL]) {
        const __m512 d = lanes::half(x.d), dmin = lanes::half(x.dmin);
        __m512i m[4];
        for (int s = 0; s < 4; ++s) {
            m[s] = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *) x.min[s]));
        }
#pragma GCC unroll 4
        for (int r = Q * part; r < Q * part + Q; ++r) {
            const scale_q8_K & a = *(const scale_q8_K *) (scales + rows.at[r]);
            const __m512 da = _mm512_set1_ps(a.d);
            __m512 out = _mm512_maskz_load_ps(have, sums[r]);
            out = _mm512_fmadd_ps(_mm512_cvtepi32_ps(both<3>(c, r)), _mm512_mul_ps(d, da), out);
            out = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(dot_sums(m, 4, a.pairs)), _mm512_mul_ps(dmin, da), out);
            _mm512_store_ps(sums[r], out);
        }
    }
};

struct q6_K {
    using panel = panel_q6_K;
    static constexpr bool SIGNED = true;   // the high bytes

    AMX_INLINE void unpack(const panel & x, int part, uint8_t * lo, uint8_t * hi) {
        const __m512i low = _mm512_set1_epi8(15), two = _mm512_set1_epi8(48), offset = _mm512_set1_epi8(32);
        const __mmask64 odd = 0xaaaaaaaaaaaaaaaaull;
        for (int s = 0; s < 4; ++s, lo += 256, hi += 256) {
            const int at = 4 * part + s;
            const __m512i pair = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *) x.scale[at / 2]));
            __m512i scale = at % 2 == 0 ? _mm512_and_si512(pair, _mm512_set1_epi32(0xffff)) : _mm512_srli_epi32(pair, 16);
            scale = _mm512_or_si512(scale, _mm512_slli_epi32(scale, 16));   // of the even bytes
            const __m512i scale_odd = _mm512_slli_epi16(scale, 8), back = _mm512_maddubs_epi16(offset, scale);
            const __m512i q0 = _mm512_loadu_si512(x.q[at][0]), q1 = _mm512_loadu_si512(x.q[at][1]), h = _mm512_loadu_si512(x.h[at]);
            const __m512i v[4] = {
                _mm512_or_si512(_mm512_and_si512(q0, low), _mm512_and_si512(_mm512_slli_epi16(h, 4), two)),
                _mm512_or_si512(_mm512_and_si512(q1, low), _mm512_and_si512(_mm512_slli_epi16(h, 2), two)),
                _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(q0, 4), low), _mm512_and_si512(h, two)),
                _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(q1, 4), low), _mm512_and_si512(_mm512_srli_epi16(h, 2), two)),
            };
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                const __m512i a = _mm512_sub_epi16(_mm512_maddubs_epi16(v[i], scale), back), b = _mm512_sub_epi16(_mm512_maddubs_epi16(v[i], scale_odd), back);
                put(lo + 64 * i, _mm512_mask_blend_epi8(odd, a, _mm512_slli_epi16(b, 8)));
                put(hi + 64 * i, _mm512_mask_blend_epi8(odd, _mm512_srli_epi16(a, 8), b));
            }
        }
    }

    template <int Q> AMX_INLINE void scale(const step_sums & c, const panel & x, const tile_rows & rows, const char * scales, int part, __mmask16 have, float (*sums)[PANEL]) {
        const __m512 d = lanes::half(x.d);
#pragma GCC unroll 4
        for (int r = Q * part; r < Q * part + Q; ++r) {
            const scale_q8_K & a = *(const scale_q8_K *) (scales + rows.at[r]);
            _mm512_store_ps(sums[r], _mm512_fmadd_ps(_mm512_cvtepi32_ps(both<8>(c, r)), _mm512_mul_ps(d, _mm512_set1_ps(a.d)), _mm512_maskz_load_ps(have, sums[r])));
        }
    }
};

// ---- driver ----

// A group of rows: where its values, scales, results and totals begin.
struct row_group {
    const int8_t * a;
    const char *   scales;
    float *        out;
    float       (* total)[PANEL];
};

// What a group of rows does with a step of a panel.
template <class T> struct turn {
    const typename T::panel * x;
    const step_scales *       d;
    const int8_t *            a;        // the step's values and scales in the first row
    const char *              scales;
    step_sums *               sums;
    float                  (* total)[PANEL];
    float *                   out;      // null before the last step
    int                       parts;    // 4, in a last step maybe less
    __mmask16                 have;     // none in a first step: then there are no totals yet
};

// Part by part: while the tiles of this turn work, the sums of the turn before are scaled and, in the last turn of a step (LAST), the weights of the next step unpacked.
// A part scales Q rows. WHOLE: all parts of everything, which is code without branches.
template <class T, int Q, bool WHOLE, bool LAST> AMX_INLINE void work(const turn<T> & now, const turn<T> & before, size_t stride, const tile_rows & rows, step_weights & weights,
        const typename T::panel * next, int parts_next, step_scales & d_next) {
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) {
        barrier(&weights);
        if (WHOLE || part < now.parts) {
            T::multiply(now.a, stride, weights, part);
        }
        barrier(&weights);
        if (WHOLE || before.parts) {
            T::template scale<Q>(*before.sums, *before.d, before.x, WHOLE ? T::STEP : before.parts * T::STEP / 4, rows, before.scales, part, before.have, before.total);
        }
        barrier(now.sums);
        T::store(part, WHOLE ? 4 : now.parts, *now.sums);
        if (LAST && (WHOLE || part < parts_next)) {
            T::unpack(next, part, weights, d_next);
        }
    }
}

template <class T, int Q> AMX __attribute__((noinline)) void work_edge(const turn<T> & now, const turn<T> & before, size_t stride, const tile_rows & rows, step_weights & weights,
        const typename T::panel * next, int parts_next, step_scales & d_next) {
    work<T, Q, false, true>(now, before, stride, rows, weights, next, parts_next, d_next);
}

// Up to 64 rows in even groups, the last one moved back to be full (what is computed twice is the same).
template <class T, int Q> AMX void run(const void * panels, int64_t blocks, int64_t p0, int64_t p1, const char * rows, size_t stride, int n, float * out, size_t out_stride) {
    const int     groups = (n + TILE - 1) / TILE, take = (n + groups - 1) / groups;
    const int64_t k = blocks * T::BLOCK;
    const tile_rows tile(take, stride);
    const typename T::panel * x = (const typename T::panel *) panels + p0 * blocks, * end = (const typename T::panel *) panels + p1 * blocks;

    step_weights weights;     // of this step; a part gives way to the next step's as soon as its last tile is loaded
    step_scales  d[4];        // of the step before, this and the next
    step_sums    sums[2];     // of this turn and the one before
    alignas(64) float total[PASS][PANEL];

    row_group group[PASS / TILE];
    for (int g = 0; g < groups; ++g) {
        const int64_t row = std::min(g * take, n - take);
        group[g] = { (const int8_t *) rows + row * stride, rows + row * stride + k, out + row * out_stride, total + g * TILE };
    }
    const auto parts_of = [](int64_t left) { return (int) std::min<int64_t>(T::STEP, left) * 4 / T::STEP; };

    for (step_sums & s : sums) {   // what is scaled beyond the last row
        for (auto & tile_sums : s.tile) {
            std::fill((int32_t *) tile_sums + take * PANEL, (int32_t *) tile_sums + 4 * Q * PANEL, 0);
        }
    }

    turn<T> turns[2] = {};    // (not copied from one to the other: a copy reads in one piece what was written in many, and waits for all stores before it)
    int at = 0, flip = 0, parts_before = 0, parts = parts_of(blocks);
    for (int part = 0; part < parts; ++part) {
        T::unpack(x, part, weights, d[0]);
    }
    for (int64_t p = p0; p <= p1; ++p) {
        for (int64_t step = 0, left = blocks; left > 0; ++step, left -= T::STEP) {
            const bool ends = left <= T::STEP;
            const typename T::panel * next = x + (ends ? left : T::STEP);
            const int  parts_next = next < end ? parts_of(ends ? blocks : left - T::STEP) : 0;
            const bool whole = parts_before == 4 && parts == 4 && parts_next == 4;
            for (int g = 0; g < groups; ++g, flip ^= 1) {
                turn<T> & now = turns[flip], & before = turns[flip ^ 1];
                now.x = x;
                now.d = &d[at];
                now.a = group[g].a + step * (T::STEP * T::BLOCK);
                now.scales = group[g].scales + step * (T::STEP * sizeof(typename T::scale_type));
                now.sums = &sums[flip];
                now.total = group[g].total;
                now.out = ends ? group[g].out + PANEL * p : nullptr;
                now.parts = parts;
                now.have = step == 0 ? 0 : 0xffff;
                const bool last = g == groups - 1;
                step_scales & d_next = d[(at + 1) & 3];
                if (whole && last) {
                    work<T, Q, true, true>(now, before, stride, tile, weights, next, 4, d_next);
                } else if (whole) {
                    work<T, Q, true, false>(now, before, stride, tile, weights, next, 0, d_next);
                } else {
                    work_edge<T, Q>(now, before, stride, tile, weights, next, last ? parts_next : 0, d_next);
                }
                if (before.out) {
                    for (int r = 0; r < take; ++r) {
                        _mm512_storeu_ps(before.out + r * out_stride, _mm512_load_ps(before.total[r]));
                    }
                }
                if (!parts) {
                    return;   // behind the last panel, when its last sums are scaled
                }
            }
            x = next;
            at = (at + 1) & 3;
            parts_before = parts;
            parts = parts_next;
        }
    }
}

template <class T> AMX void kernel(const void * panels, int64_t blocks, int64_t p0, int64_t p1, const void * rows, size_t stride, int n, float * out, size_t out_stride) {
    // ggml's own AMX code configures a thread's tiles once: they are left as they were
    alignas(64) char theirs[64];
    _tile_storeconfig(theirs);
    barrier(theirs);
    for (int r = 0; r < n && p0 < p1; r += PASS) {
        const int take = std::min(PASS, n - r), groups = (take + TILE - 1) / TILE;
        const tile_config config((take + groups - 1) / groups, T::WIDTH);
        barrier(&config);
        _tile_loadconfig(&config);
        constexpr void (*runs[])(const void *, int64_t, int64_t, int64_t, const char *, size_t, int, float *, size_t) = { run<T, 1>, run<T, 2>, run<T, 3>, run<T, 4> };
        runs[(config.rows[0] - 1) / 4](panels, blocks, p0, p1, (const char *) rows + r * stride, stride, take, out + r * out_stride, out_stride);
    }
    _tile_release();
    if (theirs[0]) {
        _tile_loadconfig(theirs);
    }
}

bool has_amx() {
    static const bool yes = [] {
        unsigned a, b, c, d;
        if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & 1u << 24) || !(d & 1u << 25)) {
            return false;
        }
        unsigned low, high;
        __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
        return has_vnni() && (low >> 17 & 3) == 3 && is_on("DFLASH_AMX") && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
    }();
    return yes;
}

}  // namespace

panel_kernel panel_find_amx(ggml_type type) {
    if (!has_amx()) {
        return nullptr;
    }
    switch (type) {
        case GGML_TYPE_Q4_0: return kernel<by_32<panel_q4_0, GGML_TYPE_Q4_0>>;
        case GGML_TYPE_Q8_0: return kernel<by_32<panel_q8_0, GGML_TYPE_Q8_0>>;
        case GGML_TYPE_IQ4_NL: return kernel<by_32<panel_iq4_nl, GGML_TYPE_IQ4_NL>>;
        case GGML_TYPE_MXFP4: return kernel<by_32<panel_mxfp4, GGML_TYPE_MXFP4>>;
        case GGML_TYPE_Q4_K: return kernel<by_256<with_minima<panel_q4_K>>>;
        case GGML_TYPE_Q5_K: return kernel<by_256<with_minima<panel_q5_K>>>;
        case GGML_TYPE_Q6_K: return kernel<by_256<q6_K>>;
        default:             return nullptr;
    }
}

}  // namespace dflash

#else

namespace dflash {
panel_kernel panel_find_amx(ggml_type) { return nullptr; }
}

#endif

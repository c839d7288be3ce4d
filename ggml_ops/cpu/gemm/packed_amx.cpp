// Panel kernels for AMX: what panel_x86.cpp computes, bit for bit, with tiles of 16 rows.

#include "cpu/gemm/packed_layout.h"

#if defined(__x86_64__) && defined(__linux__) && (__GNUC__ >= 11 || __clang_major__ >= 12)

#include "cpu/isa/features_x86.h"
#include "cpu/isa/vectors.h"
#include "cpu/switches.h"

#include <cpuid.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"   // in gcc's own intrinsics (bug 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#define LANES_TARGET        "amx-tile,amx-int8,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma"
#define LANES_VNNI          1
#define AMX                 __attribute__((target(LANES_TARGET)))
#define AMX_INLINE          AMX __attribute__((always_inline)) static inline
#define LANES_INLINE        AMX_INLINE
#define LANES_INLINE_MEMBER AMX __attribute__((always_inline)) inline

namespace dflash {

namespace {

#include "cpu/isa/dot_avx512.h"
#include "cpu/isa/vectors_avx512.h"

constexpr int TILE = 16;   // rows of activations in a tile at most
constexpr int PASS = 64;   // rows that unpacked weights serve at most

// Tiles 0 to 3: sums, a row of the pass each and 16 columns. 4 and 5: activations, rows of `width` values. 6 and 7:
// weights, 4 inner positions of 16 columns a row.
struct alignas(64) tile_config {
    uint8_t  palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t  rows[16]  = {};

    tile_config(int n, int width) {
        for (int t = 0; t < 8; ++t) {
            rows[t]  = (uint8_t) (t < 6 ? n : width / 4);
            bytes[t] = (uint16_t) (t == 4 || t == 5 ? width : 64);
        }
    }
};

// gcc's intrinsics declare less memory than their instructions read or write: what was stored before must be there,
// what is read after is new
AMX_INLINE void barrier(const void * p) { __asm__ volatile("" : : "r"(p) : "memory"); }

AMX_INLINE void put(uint8_t * to, __m512i v) { _mm512_store_si512((__m512i *) to, v); }

// Into the first cache or the second.
template <int CACHE> AMX_INLINE void prefetch(const void * from, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) {
        const char * const line = (const char *) from + PANEL_AHEAD + i;
        CACHE == 1 ? _mm_prefetch(line, _MM_HINT_T0) : _mm_prefetch(line, _MM_HINT_T1);
    }
}

// Up to 64 rows in groups as even as can be; the last one is moved back to be full (what is computed twice is the
// same). A group is scaled in fours, the last four of which are moved back likewise.
struct row_groups {
    int count, take, last, n;   // groups; rows of each; the first of its last four

    explicit row_groups(int n) :
        count((n + TILE - 1) / TILE), take((n + count - 1) / count), last(std::max(0, take - 4)), n(n) {}
    int first(int g) const { return std::min(g * take, n - take); }
};

// Row r of the ROWS (a multiple of 4) that are scaled in a group of `take`: `last` is the first of the last four. Fewer
// than four rows: what is beyond them is not written.
template <int ROWS> AMX_INLINE int row_at(int r, int last) { return r < ROWS - 4 ? r : last + r % 4; }

// Memory of a thread for what its kernel sorts out of the rows. It is kept.
float * thread_memory(size_t n) {
    static thread_local std::vector<float> memory;
    if (memory.size() < n) {
        memory.resize(n);
    }
    return memory.data();
}

// Which tile: 0 to 3.
AMX_INLINE void store_tile(int tile, int32_t (*sums)[PANEL]) {
    switch (tile) {
        case 0: _tile_stored(0, sums, 64); break;
        case 1: _tile_stored(1, sums, 64); break;
        case 2: _tile_stored(2, sums, 64); break;
        case 3: _tile_stored(3, sums, 64); break;
    }
}

// 32 inner positions of a group of rows: tile = a * q.
AMX_INLINE void multiply_32(int tile, const int8_t * a, size_t stride, const uint8_t * q) {
#define DFLASH_MULTIPLY(I, A, B)   \
    case I:                        \
        _tile_zero(I);             \
        _tile_loadd(A, a, stride); \
        _tile_loadd(B, q, 64);     \
        _tile_dpbssd(I, A, B);     \
        break;
    switch (tile) {
        DFLASH_MULTIPLY(0, 4, 6)
        DFLASH_MULTIPLY(1, 5, 7)
        DFLASH_MULTIPLY(2, 4, 6)
        DFLASH_MULTIPLY(3, 5, 7)
    }
#undef DFLASH_MULTIPLY
}

// ---- a scale per 32 positions: a tile for each such block, whose sums are scaled for themselves ----

// Signed weights, 16 times as large: a nibble moves to the upper half of its byte, with 8 taken from it there. The
// scale makes up for it, exactly.
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

AMX_INLINE __m512i table_of(const int8_t * values) {
    return _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *) values));
}

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
    using panel                    = Panel;
    static constexpr int     WIDTH = 32;
    static constexpr int32_t START = row_start(TYPE);

    AMX_INLINE void unpack(const panel & x, uint8_t * q, float * d) { _mm512_store_ps(d, unpack_block(x, q)); }

    // Adds a block's sums, scaled, to the totals. a: the block's scales of the rows.
    template <int ROWS>
    AMX_INLINE void scale(
        const int32_t (*sums)[PANEL], const float * weight_scales, const float * a, int last, __m512 (&total)[ROWS]) {
        const __m512 d = _mm512_load_ps(weight_scales), back = _mm512_mul_ps(d, _mm512_set1_ps(-0x1.8p23f));
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
            const __m512i n = _mm512_load_si512(sums[row_at<ROWS>(r, last)]);
            // without a conversion, as panel_tile.h has it: while tiles work, operations on floats have one of the two
            // ports, additions of integers both
            const __m512 scaled =
                START ? _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_set1_epi32(START))), d, back)
                      : _mm512_mul_ps(_mm512_cvtepi32_ps(n), d);
            total[r] = _mm512_fmadd_ps(scaled, _mm512_set1_ps(a[r]), total[r]);
        }
    }

    // to[block][row of ROWS]: the scales of a group's rows, in sixteens of both.
    template <int ROWS>
    AMX static void sort_scales(
        const char * from, size_t stride, const row_groups & groups, int64_t blocks, float * to) {
        const __m512i     even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        alignas(64) float by_row[TILE][TILE] = {}, by_block[TILE][TILE];
        for (int64_t b = 0; b < blocks; b += TILE, from += TILE * sizeof(scale_q8_0)) {
            const int      some = (int) std::min<int64_t>(TILE, blocks - b);
            const uint32_t have = some == TILE ? 0xffffffff : (1u << 2 * some) - 1;   // floats, half of them scales
            for (int r = 0; r < ROWS; ++r) {
                const float * x =
                    (const float *) (from + std::min(row_at<ROWS>(r, groups.last), groups.take - 1) * stride);
                _mm512_store_ps(by_row[r], _mm512_permutex2var_ps(_mm512_maskz_loadu_ps((__mmask16) have, x), even,
                                               _mm512_maskz_loadu_ps((__mmask16) (have >> 16), x + 16)));
            }
            simd::transpose(by_row[0], TILE, by_block[0], TILE);
            for (int i = 0; i < some; ++i, to += ROWS) {
                std::memcpy(to, by_block[i], ROWS * sizeof(float));
            }
        }
    }

    // A group of rows takes CHUNK steps of four blocks before the next one comes, so that its totals stay in registers
    // that long (1: there is one group). In a block's time its tile is multiplied, that of the block before stored (a
    // store that waits for its product holds up all stores behind it), the block three before scaled (what is read back
    // at once waits) and, in the last group, a block of the next chunk unpacked in place of this one.
    template <int ROWS, int CHUNK>
    AMX static void run_chunks(const void * panels, int64_t blocks, int64_t p0, int64_t p1, const char * rows,
        size_t stride, int n, float * out, size_t out_stride) {
        constexpr int CACHE = CHUNK == 1 && sizeof(panel) < 512
                                  ? 1
                                  : 2;   // several groups of rows, or whole bytes, fill the first (measured: 3 to 10 %)
        struct four {                    // blocks that a group has multiplied, as far as they are still to be scaled
            const float *weight_scales = nullptr, *scales = nullptr;
            int          count = 0;
        };
        struct alignas(4096) scratch {   // (at page offsets that its stores share with few loads)
            int32_t sums[4][TILE][PANEL];
            uint8_t q[CHUNK][4][512];   // unpacked weights of this chunk; a block gives way to the next chunk's as soon
                                        // as its last tile is loaded
            float d[2][CHUNK][4][PANEL];   // their scales, and the next chunk's
            float totals[PASS / TILE][ROWS][PANEL];
        } m;
        const row_groups groups(n);
        const int        group_count = CHUNK == 1 ? 1 : groups.count;
        const int64_t    steps       = (blocks + 3) / 4;
        const auto       blocks_of   = [&](int64_t step) { return (int) std::min<int64_t>(4, blocks - 4 * step); };

        std::memset(m.sums, 0, sizeof(m.sums));
        float * const scales =
            thread_memory(group_count * blocks * ROWS);   // of the rows, those of a block side by side
        for (int g = 0; g < group_count; ++g) {
            sort_scales<ROWS>(
                rows + groups.first(g) * stride + blocks * 32, stride, groups, blocks, scales + g * blocks * ROWS);
        }

        __m512 total[ROWS];
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
            total[r] = _mm512_setzero_ps();
        }
        const auto write = [&](float * to) __attribute__((always_inline, target(LANES_TARGET))) {
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; ++r) {
                if (r < ROWS - 4 || r % 4 < groups.take) {
                    _mm512_storeu_ps(to + row_at<ROWS>(r, groups.last) * out_stride, total[r]);
                }
            }
        };

        const panel * x = (const panel *) panels + p0 * blocks;   // of this chunk
        for (int64_t s = 0; s < std::min<int64_t>(CHUNK, steps); ++s) {
            for (int b = 0; b < blocks_of(s); ++b) {
                unpack(x[4 * s + b], m.q[s][b], m.d[0][s][b]);
            }
        }
        four    before;
        float * out_before = nullptr;   // where the turn before has its results, if it was the last of its group
        float (*totals_before)[PANEL] = m.totals[0];
        int flip                      = 0;
        for (int64_t p = p0; p < p1; ++p) {
            for (int64_t step = 0; step < steps; step += CHUNK, flip ^= 1) {
                const int     count      = CHUNK == 1 ? 1 : (int) std::min<int64_t>(CHUNK, steps - step);
                const bool    ends       = step + count == steps;
                const int64_t step_next  = ends ? 0 : step + count;
                const int     count_next = ends && p + 1 == p1 ? 0 : (int) std::min<int64_t>(CHUNK, steps - step_next);
                const panel * next       = x + (ends ? blocks - 4 * step : 4 * count);
                for (int g = 0; g < group_count; ++g) {
                    const int8_t * a = (const int8_t *) rows + groups.first(g) * stride + 128 * step;
                    int            asks =
                        0;   // bit b: this group asks for block b of a step, so that memory is asked all the time
                    for (int b = g; b < 4; b += group_count) {
                        asks |= 1 << b;
                    }
                    for (int s = 0; s < count; ++s, a += 128) {
                        const four now   = { m.d[flip][s][0], scales + (g * blocks + 4 * (step + s)) * ROWS,
                              blocks_of(step + s) };
                        const int  renew = g == group_count - 1 && s < count_next ? blocks_of(step_next + s) : 0;
#pragma GCC unroll 4
                        for (int b = 0; b < 4; ++b) {
                            if (b == 3 &&
                                __builtin_expect(s == 0, 0)) {   // from here on, totals are those of this turn
                                if (out_before) {
                                    write(out_before);
                                }
                                if (group_count > 1) {
                                    const __mmask16 have = step == 0 ? 0 : 0xffff;
#pragma GCC unroll 16
                                    for (int r = 0; r < ROWS; ++r) {
                                        _mm512_store_ps(totals_before[r], total[r]);
                                    }
                                    barrier(m.totals);
#pragma GCC unroll 16
                                    for (int r = 0; r < ROWS; ++r) {
                                        total[r] = _mm512_maskz_load_ps(have, m.totals[g][r]);
                                    }
                                } else if (out_before) {
#pragma GCC unroll 16
                                    for (int r = 0; r < ROWS; ++r) {
                                        total[r] = _mm512_setzero_ps();
                                    }
                                }
                            }
                            barrier(&m);
                            if (__builtin_expect(b < now.count, 1)) {
                                multiply_32(b, a + 32 * b, stride, m.q[s][b]);
                            }
                            barrier(&m);
                            if (b == 3) {
                                scale<ROWS>(m.sums[0], now.weight_scales, now.scales, groups.last, total);
                            } else if (__builtin_expect(b + 1 < before.count, 1)) {
                                scale<ROWS>(m.sums[b + 1], before.weight_scales + (b + 1) * PANEL,
                                    before.scales + (b + 1) * ROWS, groups.last, total);
                            }
                            barrier(&m);
                            store_tile((b + 3) % 4, m.sums[(b + 3) % 4]);
                            if (asks >> b & 1) {
                                prefetch<CACHE>(&next[4 * s + b], sizeof(panel));
                            }
                            if (__builtin_expect(b < renew, 1)) {
                                unpack(next[4 * s + b], m.q[s][b], m.d[flip ^ 1][s][b]);
                            }
                        }
                        before = now;
                    }
                    out_before    = ends ? out + groups.first(g) * out_stride + PANEL * p : nullptr;
                    totals_before = m.totals[g];
                }
                for (int s = count; s < count_next; ++s) {   // behind a panel's last chunk, if that is a shorter one
                    for (int b = 0; b < blocks_of(step_next + s); ++b) {
                        unpack(next[4 * s + b], m.q[s][b], m.d[flip ^ 1][s][b]);
                    }
                }
                x = next;
            }
        }
        barrier(&m);
        store_tile(3, m.sums[3]);
        barrier(&m);
#pragma GCC unroll 3
        for (int b = 1; b < 4; ++b) {
            if (b < before.count) {
                scale<ROWS>(m.sums[b], before.weight_scales + b * PANEL, before.scales + b * ROWS, groups.last, total);
            }
        }
        write(out_before);
    }

    template <int Q>
    AMX static void run(const void * panels, int64_t blocks, int64_t p0, int64_t p1, const char * rows, size_t stride,
        int n, float * out, size_t out_stride) {
        if constexpr (Q > 2) {
            if (n > TILE) {
                return run_chunks<4 * Q, 4>(panels, blocks, p0, p1, rows, stride, n, out, out_stride);
            }
        }
        run_chunks<4 * Q, 1>(panels, blocks, p0, p1, rows, stride, n, out, out_stride);
    }
};

// ---- integer scales within 256 positions: the weights take them before they are multiplied. A scaled weight has more
// than 8 bits, so it is two bytes, low and high, with a tile of sums each: the same integers as weights times
// activations times scale ----

// 256 positions of a panel in four parts, ready for tiles; and the sums of them for the rows of a tile.
struct alignas(64) scaled_weights {
    uint8_t lo[4][1024], hi[4][1024];
};

struct alignas(64) scaled_sums {
    int32_t lo[TILE][PANEL], hi[TILE][PANEL];
};

// Where the rows of a tile lie behind its first. Rows are scaled in fours; what is scaled beyond the last is the last
// one's.
struct tile_rows {
    int64_t at[TILE];

    tile_rows(int n, size_t stride) {
        for (int r = 0; r < TILE; ++r) {
            at[r] = (int64_t) stride * std::min(r, n - 1);
        }
    }
};

// The sums of scaled weights out of their low and high parts.
template <int SHIFT> AMX_INLINE __m512i both(const scaled_sums & c, int r) {
    return _mm512_add_epi32(_mm512_load_si512(c.lo[r]), _mm512_slli_epi32(_mm512_load_si512(c.hi[r]), SHIFT));
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
    using panel                  = Panel;
    static constexpr bool SIGNED = false;

    // weight times scale (6 bits: 8 * high + low), two weights at once: no product of 5 and 3 bits reaches beyond its
    // byte
    AMX_INLINE void put_scaled(__m512i v, __m512i scale_lo, __m512i scale_hi, uint8_t * lo, uint8_t * hi) {
        put(lo, _mm512_mullo_epi16(v, scale_lo));
        put(hi, _mm512_mullo_epi16(v, scale_hi));
    }

    AMX_INLINE __m512i fifth(const panel_q4_K &, int, int, __m512i v) { return v; }
    AMX_INLINE __m512i fifth(const panel_q5_K & x, int s, int g, __m512i v) {
        const __m512i h = _mm512_loadu_si512(x.h[s]);
        return _mm512_or_si512(v,
            _mm512_and_si512(g < 4 ? _mm512_slli_epi16(h, 4 - g) : _mm512_srli_epi16(h, g - 4), _mm512_set1_epi8(16)));
    }

    AMX_INLINE void unpack(const panel & x, int part, uint8_t * lo, uint8_t * hi) {
        const __m512i low = _mm512_set1_epi8(15), seven = _mm512_set1_epi16(7);
        for (int s = 0; s < 2; ++s, lo += 512, hi += 512) {
            __m512i scale          = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *) x.scale[2 * part + s]));
            scale                  = _mm512_or_si512(scale, _mm512_slli_epi32(scale, 16));
            const __m512i scale_lo = _mm512_and_si512(scale, seven), scale_hi = _mm512_srli_epi16(scale, 3);
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                const __m512i v = _mm512_loadu_si512(x.q[2 * part + s][i]);
                put_scaled(
                    fifth(x, 2 * part + s, i, _mm512_and_si512(v, low)), scale_lo, scale_hi, lo + 64 * i, hi + 64 * i);
                put_scaled(fifth(x, 2 * part + s, i + 4, _mm512_and_si512(_mm512_srli_epi16(v, 4), low)), scale_lo,
                    scale_hi, lo + 64 * i + 256, hi + 64 * i + 256);
            }
        }
    }

    template <int Q>
    AMX_INLINE void scale(const scaled_sums & c, const panel & x, const tile_rows & rows, const char * scales, int part,
        __mmask16 have, float (*sums)[PANEL]) {
        const __m512 d = lanes::half(x.d), dmin = lanes::half(x.dmin);
        __m512i      m[4];
        for (int s = 0; s < 4; ++s) {
            m[s] = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *) x.min[s]));
        }
#pragma GCC unroll 4
        for (int r = Q * part; r < Q * part + Q; ++r) {
            const scale_q8_K & a   = *(const scale_q8_K *) (scales + rows.at[r]);
            const __m512       da  = _mm512_set1_ps(a.d);
            __m512             out = _mm512_maskz_load_ps(have, sums[r]);
            out                    = _mm512_fmadd_ps(_mm512_cvtepi32_ps(both<3>(c, r)), _mm512_mul_ps(d, da), out);
            out = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(dot_sums(m, 4, a.pairs)), _mm512_mul_ps(dmin, da), out);
            _mm512_store_ps(sums[r], out);
        }
    }
};

struct q6_K {
    using panel                  = panel_q6_K;
    static constexpr bool SIGNED = true;   // the high bytes

    AMX_INLINE void unpack(const panel & x, int part, uint8_t * lo, uint8_t * hi) {
        const __m512i   low = _mm512_set1_epi8(15), two = _mm512_set1_epi8(48), offset = _mm512_set1_epi8(32);
        const __mmask64 odd = 0xaaaaaaaaaaaaaaaaull;
        for (int s = 0; s < 4; ++s, lo += 256, hi += 256) {
            const int     at   = 4 * part + s;
            const __m512i pair = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *) x.scale[at / 2]));
            __m512i       scale =
                at % 2 == 0 ? _mm512_and_si512(pair, _mm512_set1_epi32(0xffff)) : _mm512_srli_epi32(pair, 16);
            scale                   = _mm512_or_si512(scale, _mm512_slli_epi32(scale, 16));   // of the even bytes
            const __m512i scale_odd = _mm512_slli_epi16(scale, 8), back = _mm512_maddubs_epi16(offset, scale);
            const __m512i q0 = _mm512_loadu_si512(x.q[at][0]), q1 = _mm512_loadu_si512(x.q[at][1]),
                          h    = _mm512_loadu_si512(x.h[at]);
            const __m512i v[4] = {
                _mm512_or_si512(_mm512_and_si512(q0, low), _mm512_and_si512(_mm512_slli_epi16(h, 4), two)),
                _mm512_or_si512(_mm512_and_si512(q1, low), _mm512_and_si512(_mm512_slli_epi16(h, 2), two)),
                _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(q0, 4), low), _mm512_and_si512(h, two)),
                _mm512_or_si512(
                    _mm512_and_si512(_mm512_srli_epi16(q1, 4), low), _mm512_and_si512(_mm512_srli_epi16(h, 2), two)),
            };
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                const __m512i a = _mm512_sub_epi16(_mm512_maddubs_epi16(v[i], scale), back),
                              b = _mm512_sub_epi16(_mm512_maddubs_epi16(v[i], scale_odd), back);
                put(lo + 64 * i, _mm512_mask_blend_epi8(odd, a, _mm512_slli_epi16(b, 8)));
                put(hi + 64 * i, _mm512_mask_blend_epi8(odd, _mm512_srli_epi16(a, 8), b));
            }
        }
    }

    template <int Q>
    AMX_INLINE void scale(const scaled_sums & c, const panel & x, const tile_rows & rows, const char * scales, int part,
        __mmask16 have, float (*sums)[PANEL]) {
        const __m512 d = lanes::half(x.d);
#pragma GCC unroll 4
        for (int r = Q * part; r < Q * part + Q; ++r) {
            const scale_q8_K & a = *(const scale_q8_K *) (scales + rows.at[r]);
            _mm512_store_ps(sums[r], _mm512_fmadd_ps(_mm512_cvtepi32_ps(both<8>(c, r)),
                                         _mm512_mul_ps(d, _mm512_set1_ps(a.d)), _mm512_maskz_load_ps(have, sums[r])));
        }
    }
};

template <class Type> struct by_256 {
    using panel                = typename Type::panel;
    static constexpr int WIDTH = 64;

    AMX_INLINE void unpack(const panel & x, int part, scaled_weights & w) {
        prefetch<2>((const char *) &x + part * sizeof(panel) / 4, sizeof(panel) / 4);
        Type::unpack(x, part, w.lo[part], w.hi[part]);
    }

    AMX_INLINE void multiply(const int8_t * a, size_t stride, const scaled_weights & w, int part) {
        if (part == 0) {
            _tile_zero(0);
            _tile_zero(1);
        }
        _tile_loadd(4, a + 64 * part, stride);
        _tile_loadd(6, w.lo[part], 64);
        _tile_dpbsud(0, 4, 6);
        _tile_loadd(7, w.hi[part], 64);
        if (Type::SIGNED) {
            _tile_dpbssd(1, 4, 7);
        } else {
            _tile_dpbsud(1, 4, 7);
        }
    }

    // What a group of rows does with 256 positions of a panel; x null: nothing.
    struct turn {
        const panel *  x      = nullptr;
        const int8_t * a      = nullptr;   // values and scales in the first row
        const char *   scales = nullptr;
        scaled_sums *  sums   = nullptr;
        float (*total)[PANEL] = nullptr;
        float *   out         = nullptr;   // null before the last positions
        __mmask16 have        = 0;         // none for the first positions: then there are no totals yet
    };

    // Part by part: while the tiles of this turn work, the sums of the turn before are scaled (Q rows in each part)
    // and, in the last turn of a block, the next block is unpacked. WHOLE: there is all of that, which is code without
    // branches. LAST: of its block.
    template <int Q, bool WHOLE, bool LAST>
    AMX_INLINE void work(const turn & now, const turn & before, size_t stride, const tile_rows & rows,
        scaled_weights & weights, const panel * next) {
#pragma GCC unroll 4
        for (int part = 0; part < 4; ++part) {
            barrier(&weights);
            if (WHOLE || now.x) {
                multiply(now.a, stride, weights, part);
            }
            barrier(&weights);
            if (WHOLE || before.x) {
                Type::template scale<Q>(*before.sums, *before.x, rows, before.scales, part, before.have, before.total);
            }
            barrier(now.sums);
            if (part == 3 && (WHOLE || now.x)) {
                store_tile(0, now.sums->lo);
                store_tile(1, now.sums->hi);
            }
            if (LAST && (WHOLE || next)) {
                unpack(*next, part, weights);
            }
        }
    }

    template <int Q>
    AMX __attribute__((noinline)) static void work_edge(const turn & now, const turn & before, size_t stride,
        const tile_rows & rows, scaled_weights & weights, const panel * next) {
        work<Q, false, true>(now, before, stride, rows, weights, next);
    }

    template <int Q>
    AMX static void run(const void * panels, int64_t blocks, int64_t p0, int64_t p1, const char * rows, size_t stride,
        int n, float * out, size_t out_stride) {
        const row_groups groups(n);
        const tile_rows  tile(groups.take, stride);
        const panel *x = (const panel *) panels + p0 * blocks, *const end = (const panel *) panels + p1 * blocks;
        scaled_weights    weights;   // a part gives way to the next block's as soon as its last tile is loaded
        scaled_sums       sums[2];   // of this turn and the one before
        alignas(64) float total[PASS][PANEL];
        std::memset(sums, 0, sizeof(sums));   // what is scaled beyond the last row
        turn turns[2];   // (not copied from one to the other: a copy reads in one piece what was written in many, and
                         // waits for all stores before it)
        for (int part = 0; part < 4; ++part) {
            unpack(*x, part, weights);
        }
        int flip = 0;
        for (int64_t p = p0; p <= p1; ++p) {
            for (int64_t b = 0; b < blocks; ++b, ++x) {
                const panel * next = x + 1 < end ? x + 1 : nullptr;
                for (int g = 0; g < groups.count; ++g, flip ^= 1) {
                    turn &       now = turns[flip], &before = turns[flip ^ 1];
                    const char * row = rows + groups.first(g) * stride;
                    now.x            = x < end ? x : nullptr;
                    now.a            = (const int8_t *) row + b * 256;
                    now.scales       = row + blocks * 256 + b * sizeof(scale_q8_K);
                    now.sums         = &sums[flip];
                    now.total        = total + g * TILE;
                    now.out          = b + 1 == blocks ? out + groups.first(g) * out_stride + PANEL * p : nullptr;
                    now.have         = b == 0 ? 0 : 0xffff;
                    const bool last = g == groups.count - 1, whole = before.x && next;
                    if (whole && last) {
                        work<Q, true, true>(now, before, stride, tile, weights, next);
                    } else if (whole) {
                        work<Q, true, false>(now, before, stride, tile, weights, next);
                    } else {
                        work_edge<Q>(now, before, stride, tile, weights, last ? next : nullptr);
                    }
                    if (before.out) {
                        for (int r = 0; r < groups.take; ++r) {
                            _mm512_storeu_ps(before.out + r * out_stride, _mm512_load_ps(before.total[r]));
                        }
                    }
                    if (!now.x) {
                        return;   // behind the last panel, when its last sums are scaled
                    }
                }
            }
        }
    }
};

template <class T>
AMX void kernel(const void * panels, int64_t blocks, int64_t p0, int64_t p1, const void * rows, size_t stride, int n,
    float * out, size_t out_stride) {
    // ggml's own AMX code configures a thread's tiles once: they are left as they were
    alignas(64) char theirs[64];
    _tile_storeconfig(theirs);
    barrier(theirs);
    for (int r = 0; r < n && p0 < p1; r += PASS) {
        const int         take = std::min(PASS, n - r);
        const tile_config config(row_groups(take).take, T::WIDTH);
        barrier(&config);
        _tile_loadconfig(&config);
        constexpr void (*runs[])(const void *, int64_t, int64_t, int64_t, const char *, size_t, int, float *,
            size_t) = { T::template run<1>, T::template run<2>, T::template run<3>, T::template run<4> };
        runs[(config.rows[0] - 1) / 4](
            panels, blocks, p0, p1, (const char *) rows + r * stride, stride, take, out + r * out_stride, out_stride);
    }
    _tile_release();
    if (theirs[0]) {
        _tile_loadconfig(theirs);
    }
}

bool has_amx() {
    static const bool yes = [] {
        unsigned a, b, c, d;
        if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
            !(d & 1u << 24) || !(d & 1u << 25)) {
            return false;
        }
        unsigned low, high;
        __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
        return has_vnni() && (low >> 17 & 3) == 3 && is_on("DFLASH_AMX") &&
               syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
    }();
    return yes;
}

}   // namespace

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
        default: return nullptr;
    }
}

}   // namespace dflash

#else

namespace dflash {
panel_kernel panel_find_amx(ggml_type) { return nullptr; }
}   // namespace dflash

#endif

// AMX kernels for types with a scale per 32 positions (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4): every block has
// its own tile, whose sums are scaled separately. Included by isa/amx.cpp after packed_gemm_amx.h.

// Row r of the ROWS (a multiple of 4) that are scaled in a group. With fewer than four rows, the surplus ones are not
// written.
template <int ROWS> ISA_INLINE int scaled_row(int r, int last_four) { return r < ROWS - 4 ? r : last_four + r % 4; }

// A thread's memory for the sorted scales of its rows, reused by later calls.
float * thread_memory(size_t n) {
    static thread_local std::vector<float> memory;
    if (memory.size() < n) {
        memory.resize(n);
    }
    return memory.data();
}

// 32 inner positions of a group of rows: tile = a * q.
ISA_INLINE void multiply_32(int tile, const int8_t * a, size_t row_stride, const uint8_t * q) {
#define DFLASH_MULTIPLY(SUMS, A, Q)    \
    case SUMS:                         \
        _tile_zero(SUMS);              \
        _tile_loadd(A, a, row_stride); \
        _tile_loadd(Q, q, 64);         \
        _tile_dpbssd(SUMS, A, Q);      \
        break;
    switch (tile) {
        DFLASH_MULTIPLY(0, 4, 6)
        DFLASH_MULTIPLY(1, 5, 7)
        DFLASH_MULTIPLY(2, 4, 6)
        DFLASH_MULTIPLY(3, 5, 7)
    }
#undef DFLASH_MULTIPLY
}

// ---- unpack_block(): a block's signed weights, 512 bytes; returns their scales ----

template <class T> ISA_INLINE __m512 unpack_block(const panel_of_32<scales_of_32<ggml_half>, 8> & x, uint8_t * q) {
    for (int i = 0; i < 8; ++i) {
        store_line(q + 64 * i, simd::flip_sign(simd::load_u8(x.q[i])));
    }
    return simd::load_f16(x.d);
}

// Unpacks nibbles without a table, 16 times too large: a nibble moves to the upper half of its byte, with 8 subtracted
// there. The scale makes up for it exactly.
ISA_INLINE __m512 unpack_nibbles_16(const panel_of_32<scales_of_32<ggml_half>, 4> & x, uint8_t * q) {
    const __m512i upper = _mm512_set1_epi8((char) 0xf0), eight = _mm512_set1_epi8((char) 0x80);
    constexpr int AND_XOR = 0x6a;   // (a & b) ^ c
    for (int i = 0; i < 4; ++i) {
        const __m512i v = _mm512_loadu_si512(x.q[i]);
        store_line(q + 64 * i, _mm512_ternarylogic_epi32(_mm512_slli_epi16(v, 4), upper, eight, AND_XOR));
        store_line(q + 64 * i + 256, _mm512_ternarylogic_epi32(v, upper, eight, AND_XOR));
    }
    return _mm512_mul_ps(simd::load_f16(x.d), _mm512_set1_ps(1 / 16.0f));
}

template <class T, class Scales> ISA_INLINE __m512 unpack_block(const panel_of_32<Scales, 4> & x, uint8_t * q) {
    if constexpr (!HAS_VALUES<T> && T::ZERO_POINT == 8) {
        return unpack_nibbles_16(x, q);
    } else {
        static_assert(HAS_VALUES<T> || T::ZERO_POINT == 0);
        for (int i = 0; i < 4; ++i) {
            const __m512i v = _mm512_loadu_si512(x.q[i]);
            store_line(q + 64 * i, value_of<T, 0>(simd::low_nibbles(v)));
            store_line(q + 64 * i + 256, value_of<T, 0>(simd::high_nibbles(v)));
        }
        return load_scales(x.d);
    }
}

template <class T, class Scales>
ISA_INLINE __m512 unpack_block(const panel_of_32_with_fifth_bits<Scales> & x, uint8_t * q) {
    const __m512i fifth = _mm512_set1_epi8(16), zero = _mm512_set1_epi8(T::ZERO_POINT), h = _mm512_loadu_si512(x.h);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const __m512i v = _mm512_loadu_si512(x.q[i]), fifth_low = _mm512_and_si512(_mm512_slli_epi16(h, 4 - i), fifth),
                      fifth_high = _mm512_and_si512(_mm512_srli_epi16(h, i), fifth);
        store_line(q + 64 * i, _mm512_sub_epi8(_mm512_or_si512(simd::low_nibbles(v), fifth_low), zero));
        store_line(q + 64 * i + 256, _mm512_sub_epi8(_mm512_or_si512(simd::high_nibbles(v), fifth_high), zero));
    }
    return load_scales(x.d);
}

// ---- the kernel ----

// Four blocks that a group of rows has multiplied, some of which are still to be scaled.
struct multiplied_quad {
    const float *weight_scales = nullptr, *row_scales = nullptr;
    int          n_blocks = 0;
};

// Memory that a call keeps rewriting (aligned so that its stores share page offsets with few loads).
// TERMS: 1, scales, or 2, minima after them.
template <int ROWS, int CHUNK, int TERMS> struct alignas(4096) chunk_scratch {
    int32_t sums[4][TILE][PANEL];
    uint8_t q[CHUNK][4][512];   // unpacked weights; the next chunk's replace blocks whose last tile was loaded
    float   d[2][CHUNK][4][TERMS * PANEL];   // their scales and minima, and the next chunk's
    float   totals[MAX_GEMM_ROWS / TILE][ROWS][PANEL];
};

// T: a record of weight_types.h
template <class T> struct blocks_of_32 {
    using panel                = typename T::panel;
    static constexpr int WIDTH = 32, TERMS = HAS_MINIMA_OF_32<T> ? 2 : 1;

    ISA_INLINE void unpack(const panel & x, uint8_t * q, float * d) {
        _mm512_store_ps(d, unpack_block<T>(x, q));
        if constexpr (TERMS == 2) {
            _mm512_store_ps(d + PANEL, simd::load_f16(x.min));
        }
    }

    // Adds a block's scaled sums to the totals. row_scales: the block's scales of the rows (and the sums of their
    // values, by which minima are multiplied).
    template <int ROWS>
    ISA_INLINE void scale(const int32_t (*sums)[PANEL], const float * weight_scales, const float * row_scales,
        int last_four, __m512 (&totals)[ROWS]) {
        const __m512 d = _mm512_load_ps(weight_scales), excess = _mm512_mul_ps(d, _mm512_set1_ps(-0x1.8p23f));
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
            const __m512i sum = _mm512_load_si512(sums[scaled_row<ROWS>(r, last_four)]);
            // without a conversion, as in packed_gemm_kernels.h: while tiles work, float operations can use only one of
            // the two ports, integer additions both
            const __m512 scaled =
                T::SUM_BIAS ? _mm512_fmadd_ps(
                                  _mm512_castsi512_ps(_mm512_add_epi32(sum, _mm512_set1_epi32(T::SUM_BIAS))), d, excess)
                            : _mm512_mul_ps(_mm512_cvtepi32_ps(sum), d);
            totals[r] = _mm512_fmadd_ps(scaled, _mm512_set1_ps(row_scales[r]), totals[r]);
            if constexpr (TERMS == 2) {
                totals[r] = _mm512_fmadd_ps(
                    _mm512_load_ps(weight_scales + PANEL), _mm512_set1_ps(row_scales[ROWS + r]), totals[r]);
            }
        }
    }

    // sorted[block][term][row of ROWS]: the scales of a group's rows, transposed in tiles of 16 x 16, and for minima
    // the sums of their values.
    template <int ROWS>
    ISA_FUNCTION void sort_scales(
        const char * scales, size_t row_stride, const row_groups & groups, int64_t n_blocks, float * sorted) {
        const __m512i     even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        alignas(64) float by_row[TILE][TILE] = {}, by_block[TILE][TILE];
        for (int64_t b = 0; b < n_blocks; b += TILE, scales += TILE * sizeof(scale_q8_0)) {
            const int      n    = (int) std::min<int64_t>(TILE, n_blocks - b);
            const uint32_t mask = n == TILE ? 0xffffffff : (1u << 2 * n) - 1;
            for (int term = 0; term < TERMS; ++term) {
                const __m512i places = _mm512_add_epi32(even, _mm512_set1_epi32(term));
                for (int r = 0; r < ROWS; ++r) {
                    const int     row = std::min(scaled_row<ROWS>(r, groups.last_four), groups.rows - 1);
                    const float * x   = (const float *) (scales + row * row_stride);
                    _mm512_store_ps(by_row[r], _mm512_permutex2var_ps(_mm512_maskz_loadu_ps((__mmask16) mask, x),
                                                   places, _mm512_maskz_loadu_ps((__mmask16) (mask >> 16), x + 16)));
                }
                simd::transpose(by_row[0], TILE, by_block[0], TILE);
                for (int i = 0; i < n; ++i) {
                    std::memcpy(sorted + (i * TERMS + term) * ROWS, by_block[i], ROWS * sizeof(float));
                }
            }
            sorted += n * TERMS * ROWS;
        }
    }

    template <int ROWS>
    ISA_INLINE void write_totals(
        const __m512 (&totals)[ROWS], const row_groups & groups, float * out, size_t out_stride) {
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
            if (r < ROWS - 4 || r % 4 < groups.rows) {
                _mm512_storeu_ps(out + scaled_row<ROWS>(r, groups.last_four) * out_stride, totals[r]);
            }
        }
    }

    template <int ROWS> ISA_INLINE void set_zero(__m512 (&totals)[ROWS]) {
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
            totals[r] = _mm512_setzero_ps();
        }
    }

    // Stores one group's totals from the registers and loads another's, if `any` exist.
    template <int ROWS>
    ISA_INLINE void exchange_totals(
        __m512 (&totals)[ROWS], float (*saved)[PANEL], const float (*other)[PANEL], bool any, const void * scratch) {
        const __mmask16 mask = any ? 0xffff : 0;
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
            _mm512_store_ps(saved[r], totals[r]);
        }
        barrier(scratch);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
            totals[r] = _mm512_maskz_load_ps(mask, other[r]);
        }
    }

    // Scales block b - 3 of a quad (at b = 3 block 0 of this quad, otherwise block b + 1 of the previous one).
    template <int ROWS>
    ISA_INLINE void scale_earlier_block(int b, const int32_t (*sums)[TILE][PANEL], const multiplied_quad & now,
        const multiplied_quad & before, int last_four, __m512 (&totals)[ROWS]) {
        if (b == 3) {
            scale<ROWS>(sums[0], now.weight_scales, now.row_scales, last_four, totals);
        } else if (__builtin_expect(b + 1 < before.n_blocks, 1)) {
            scale<ROWS>(sums[b + 1], before.weight_scales + (b + 1) * TERMS * PANEL,
                before.row_scales + (b + 1) * TERMS * ROWS, last_four, totals);
        }
    }

    template <int ROWS>
    ISA_INLINE void scale_last_blocks(
        const int32_t (*sums)[TILE][PANEL], const multiplied_quad & before, int last_four, __m512 (&totals)[ROWS]) {
#pragma GCC unroll 3
        for (int b = 1; b < 4; ++b) {
            if (b < before.n_blocks) {
                scale<ROWS>(sums[b], before.weight_scales + b * TERMS * PANEL, before.row_scales + b * TERMS * ROWS,
                    last_four, totals);
            }
        }
    }

    // Unpacks quads [first, last) of a chunk that begins with quad `quad` of a panel.
    template <int ROWS, int CHUNK>
    ISA_INLINE void unpack_quads(const panel * chunk, int64_t n_blocks, int64_t quad, int first, int last,
        chunk_scratch<ROWS, CHUNK, TERMS> & m, int flip) {
        for (int s = first; s < last; ++s) {
            const int n = (int) std::min<int64_t>(4, n_blocks - 4 * (quad + s));
#pragma GCC unroll 1
            for (int b = 0; b < n; ++b) {
                unpack(chunk[4 * s + b], m.q[s][b], m.d[flip][s][b]);
            }
        }
    }

    // For each group; those of a block are contiguous.
    template <int ROWS>
    ISA_INLINE const float * sort_all_scales(
        const char * rows, size_t row_stride, const row_groups & groups, int n_groups, int64_t n_blocks) {
        const int64_t size   = n_blocks * TERMS * ROWS;
        float * const sorted = thread_memory(n_groups * size);
        for (int g = 0; g < n_groups; ++g) {
            sort_scales<ROWS>(
                rows + groups.first(g) * row_stride + n_blocks * 32, row_stride, groups, n_blocks, sorted + g * size);
        }
        return sorted;
    }

    // Bit b: group g prefetches block b of a quad. Groups take turns, so that memory is always busy.
    static int blocks_to_prefetch(int g, int n_groups) {
        int bits = 0;
        for (int b = g; b < 4; b += n_groups) {
            bits |= 1 << b;
        }
        return bits;
    }

    // A group of rows computes CHUNK quads (of four blocks) before the next group does, so that its totals stay in
    // registers (CHUNK is 1 if there is only one group). For each block its tile is multiplied, the previous block's is
    // stored (a store that waits for its product holds up all later stores), the block three before is scaled (reading
    // it back earlier would stall), and in the last group a block of the next chunk is unpacked in place of this one.
    template <int ROWS, int CHUNK> ISA_FUNCTION void compute_chunks(const packed_gemm_call & call) {
        const int64_t      n_blocks = call.n_blocks, n_panels = call.n_panels;
        const char * const rows       = (const char *) call.rows;
        const size_t       row_stride = call.row_stride, out_stride = call.out_stride;
        // with several groups of rows, or 8-bit weights, L1 is full (measured: 3 to 10 %)
        constexpr int                     CACHE = CHUNK == 1 && !T::FILLS_CACHE_1 ? 1 : 2;
        chunk_scratch<ROWS, CHUNK, TERMS> m;
        const row_groups                  groups(call.n_rows);
        const int                         n_groups = CHUNK == 1 ? 1 : groups.count;
        const int64_t                     n_quads  = (n_blocks + 3) / 4;
        const auto blocks_of = [&](int64_t quad) { return (int) std::min<int64_t>(4, n_blocks - 4 * quad); };

        std::memset(m.sums, 0, sizeof(m.sums));
        const float * const row_scales = sort_all_scales<ROWS>(rows, row_stride, groups, n_groups, n_blocks);
        __m512              totals[ROWS];
        set_zero(totals);
        const panel * x = (const panel *) call.panels;
        unpack_quads<ROWS, CHUNK>(x, n_blocks, 0, 0, (int) std::min<int64_t>(CHUNK, n_quads), m, 0);
        multiplied_quad before;
        float *         out_before    = nullptr;   // of the previous group, if that chunk was its last
        float (*totals_before)[PANEL] = m.totals[0];
        int flip                      = 0;
        for (int64_t p = 0; p < n_panels; ++p) {
            for (int64_t quad = 0; quad < n_quads; quad += CHUNK, flip ^= 1) {
                const int     count     = CHUNK == 1 ? 1 : (int) std::min<int64_t>(CHUNK, n_quads - quad);
                const bool    ends      = quad + count == n_quads;
                const int64_t quad_next = ends ? 0 : quad + count;
                const int     count_next =
                    ends && p + 1 == n_panels ? 0 : (int) std::min<int64_t>(CHUNK, n_quads - quad_next);
                const panel * next = x + (ends ? n_blocks - 4 * quad : 4 * count);
                for (int g = 0; g < n_groups; ++g) {
                    const int8_t * a          = (const int8_t *) rows + groups.first(g) * row_stride + 128 * quad;
                    const int      prefetches = blocks_to_prefetch(g, n_groups);
                    for (int s = 0; s < count; ++s, a += 128) {
                        const multiplied_quad now = { m.d[flip][s][0],
                            row_scales + (g * n_blocks + 4 * (quad + s)) * TERMS * ROWS, blocks_of(quad + s) };
                        const int n_unpack        = g == n_groups - 1 && s < count_next ? blocks_of(quad_next + s) : 0;
#pragma GCC unroll 4
                        for (int b = 0; b < 4; ++b) {
                            if (b == 3 && __builtin_expect(s == 0, 0)) {   // from here on, totals are this group's
                                if (out_before) {
                                    write_totals<ROWS>(totals, groups, out_before, out_stride);
                                }
                                if (n_groups > 1) {
                                    exchange_totals<ROWS>(totals, totals_before, m.totals[g], quad != 0, m.totals);
                                } else if (out_before) {
                                    set_zero(totals);
                                }
                            }
                            barrier(&m);
                            if (__builtin_expect(b < now.n_blocks, 1)) {
                                multiply_32(b, a + 32 * b, row_stride, m.q[s][b]);
                            }
                            barrier(&m);
                            scale_earlier_block<ROWS>(b, m.sums, now, before, groups.last_four, totals);
                            barrier(&m);
                            store_tile((b + 3) % 4, m.sums[(b + 3) % 4]);
                            if (prefetches >> b & 1) {
                                prefetch_ahead<CACHE>(&next[4 * s + b], sizeof(panel));
                            }
                            if (__builtin_expect(b < n_unpack, 1)) {
                                unpack(next[4 * s + b], m.q[s][b], m.d[flip ^ 1][s][b]);
                            }
                        }
                        before = now;
                    }
                    out_before    = ends ? call.out + groups.first(g) * out_stride + PANEL * p : nullptr;
                    totals_before = m.totals[g];
                }
                // at a panel's end the next chunk may be shorter
                unpack_quads<ROWS, CHUNK>(next, n_blocks, quad_next, count, count_next, m, flip ^ 1);
                x = next;
            }
        }
        barrier(&m);
        store_tile(3, m.sums[3]);
        barrier(&m);
        scale_last_blocks<ROWS>(m.sums, before, groups.last_four, totals);
        write_totals<ROWS>(totals, groups, out_before, out_stride);
    }

    // FOURS: number of fours of rows in a tile
    template <int FOURS> ISA_FUNCTION void compute(const packed_gemm_call & call) {
        if constexpr (FOURS > 2) {
            if (call.n_rows > TILE) {
                return compute_chunks<4 * FOURS, 4>(call);
            }
        }
        compute_chunks<4 * FOURS, 1>(call);
    }
};

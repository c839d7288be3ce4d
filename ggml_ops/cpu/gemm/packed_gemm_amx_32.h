// AMX product for panel_of_32, a scale per 32 positions (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4): every block has
// its own tile, whose sums are scaled separately. Included by packed_gemm_amx.h.

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

// ---- scales of the rows ----

// Row r of the ROWS (a multiple of 4) that are scaled in a group. With fewer than four rows, the surplus ones are not
// written.
template <int ROWS> ISA_INLINE int scaled_row(int r, const row_groups & groups) {
    return r < ROWS - 4 ? r : groups.last_four + r % 4;
}

// sorted[block][term][row of ROWS]: the scales of a group's rows, transposed in tiles of 16 x 16, and for minima (TERMS
// is 2) the sums of their values.
template <int TERMS, int ROWS>
ISA_FUNCTION void sort_scales(
    const char * scales, size_t row_stride, const row_groups & groups, int64_t n_blocks, float * sorted) {
    const __m512i     even               = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    alignas(64) float by_row[TILE][TILE] = {}, by_block[TILE][TILE];
    for (int64_t b = 0; b < n_blocks; b += TILE, scales += TILE * sizeof(scale_q8_0)) {
        const int      n    = (int) std::min<int64_t>(TILE, n_blocks - b);
        const uint32_t mask = n == TILE ? 0xffffffff : (1u << 2 * n) - 1;
        for (int term = 0; term < TERMS; ++term) {
            const __m512i places = _mm512_add_epi32(even, _mm512_set1_epi32(term));
            for (int r = 0; r < ROWS; ++r) {
                const int     row = std::min(scaled_row<ROWS>(r, groups), groups.rows - 1);
                const float * x   = (const float *) (scales + row * row_stride);
                _mm512_store_ps(by_row[r], _mm512_permutex2var_ps(_mm512_maskz_loadu_ps((__mmask16) mask, x), places,
                                               _mm512_maskz_loadu_ps((__mmask16) (mask >> 16), x + 16)));
            }
            simd::transpose(by_row[0], TILE, by_block[0], TILE);
            for (int i = 0; i < n; ++i) {
                std::memcpy(sorted + (i * TERMS + term) * ROWS, by_block[i], ROWS * sizeof(float));
            }
        }
        sorted += n * TERMS * ROWS;
    }
}

// ---- the product ----

// The tiles of a call, in the order of its chunks: CHUNK quads (of four blocks) of a panel. A group of rows computes a
// chunk before the next group does, so that its totals stay in registers (CHUNK is 1 if there is only one group).
//
// A quad takes four steps. Block b has tile b, and its sums go through m_.sums[b]. In the last group, weights of the
// next chunk replace those whose tile was loaded. ': of the quad before, which may be another group's.
//
//   step        0          1          2          3
//   multiply    block 0    block 1    block 2    block 3
//   scale       block 1'   block 2'   block 3'   block 0     three before: reading its sums back earlier would stall
//   store       block 3'   block 0    block 1    block 2     one before: while it waits, no later store gets through
//   unpack      block 0    block 1    block 2    block 3     of the next chunk
//
// Between steps 2 and 3 of a group's first quad, its totals take the place of the previous group's, whose last block
// has been scaled then. Never referred to: its members are registers, the rest is scratch.
template <class T, int ROWS, int CHUNK> class pipeline_of_32 {
    using panel                = typename T::panel;
    static constexpr int TERMS = HAS_MINIMA_OF_32<T> ? 2 : 1;   // 1: scales, 2: minima after them
    // with several groups of rows, or 8-bit weights, L1 is full (measured: 3 to 10 %)
    static constexpr int CACHE = CHUNK == 1 && !T::FILLS_CACHE_1 ? 1 : 2;

  public:
    // Memory that a call keeps rewriting (aligned so that its stores share page offsets with few loads).
    struct alignas(4096) scratch {
        int32_t sums[4][TILE][PANEL];
        uint8_t q[CHUNK][4][512];   // unpacked weights; the next chunk's replace blocks whose last tile was loaded
        float   d[2][CHUNK][4][TERMS * PANEL];   // their scales and minima, and the next chunk's
        float   totals[MAX_GEMM_ROWS / TILE][ROWS][PANEL];
    };

  private:
    struct chunk {
        const panel * blocks;
        int64_t       n_panel, quad;   // its panel, and its first quad within that
        int           count;           // of quads; 0: there are no more chunks
    };

    // Four blocks that a group of rows has multiplied, some of which are still to be scaled.
    struct quad_product {
        const float *weight_scales = nullptr, *row_scales = nullptr;
        int          n_blocks = 0;
    };

    const packed_gemm_call call_;
    scratch &              m_;
    const row_groups       groups_;
    const int              n_groups_;
    const int64_t          n_quads_;
    const float * const    row_scales_;   // sorted, for each group
    __m512                 totals_[ROWS];
    quad_product           before_;
    float *                out_before_ = nullptr;   // of the previous group, if that chunk was its last
    float (*totals_before_)[PANEL];
    int flip_ = 0;   // the half of m_.d that this chunk's scales are in

    ISA_INLINE_MEMBER int blocks_of(int64_t quad) const {
        return (int) std::min<int64_t>(4, call_.n_blocks - 4 * quad);
    }
    ISA_INLINE_MEMBER int quads_from(int64_t quad) const {
        return CHUNK == 1 ? 1 : (int) std::min<int64_t>(CHUNK, n_quads_ - quad);
    }
    ISA_INLINE_MEMBER bool ends_panel(const chunk & c) const { return c.quad + c.count == n_quads_; }

    ISA_INLINE_MEMBER chunk after(const chunk & c) const {
        if (!ends_panel(c)) {
            return { c.blocks + 4 * c.count, c.n_panel, c.quad + c.count, quads_from(c.quad + c.count) };
        }
        return { c.blocks + call_.n_blocks - 4 * c.quad, c.n_panel + 1, 0,
            c.n_panel + 1 == call_.n_panels ? 0 : quads_from(0) };
    }

    // For each group; those of a block are contiguous.
    ISA_INLINE const float * sort_all_scales(const packed_gemm_call & call, int n_groups) {
        const row_groups groups(call.n_rows);
        const int64_t    size   = call.n_blocks * TERMS * ROWS;
        float * const    sorted = thread_memory(n_groups * size);
        for (int g = 0; g < n_groups; ++g) {
            sort_scales<TERMS, ROWS>((const char *) call.rows + groups.first(g) * call.row_stride + call.n_blocks * 32,
                call.row_stride, groups, call.n_blocks, sorted + g * size);
        }
        return sorted;
    }

    // Bit b: group g prefetches block b of a quad. Groups take turns, so that memory is always busy.
    ISA_INLINE_MEMBER int blocks_to_prefetch(int g) const {
        int bits = 0;
        for (int b = g; b < 4; b += n_groups_) {
            bits |= 1 << b;
        }
        return bits;
    }

    ISA_INLINE void unpack(const panel & x, uint8_t * q, float * d) {
        _mm512_store_ps(d, unpack_block<T>(x, q));
        if constexpr (TERMS == 2) {
            _mm512_store_ps(d + PANEL, simd::load_f16(x.min));
        }
    }

    // Quads of a chunk from `first` on, in half `flip` of m_.d.
    ISA_INLINE_MEMBER void unpack_quads(const chunk & c, int first, int flip) {
        for (int s = first; s < c.count; ++s) {
            const int n = blocks_of(c.quad + s);
#pragma GCC unroll 1
            for (int b = 0; b < n; ++b) {
                unpack(c.blocks[4 * s + b], m_.q[s][b], m_.d[flip][s][b]);
            }
        }
    }

    ISA_INLINE_MEMBER void set_zero() {
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
            totals_[r] = _mm512_setzero_ps();
        }
    }

    ISA_INLINE_MEMBER void write_totals() {
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
            if (r < ROWS - 4 || r % 4 < groups_.rows) {
                _mm512_storeu_ps(out_before_ + scaled_row<ROWS>(r, groups_) * call_.out_stride, totals_[r]);
            }
        }
    }

    // Stores the previous group's totals and loads those of group g, if `any` exist.
    ISA_INLINE_MEMBER void exchange_totals(int g, bool any) {
        const __mmask16 mask = any ? 0xffff : 0;
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
            _mm512_store_ps(totals_before_[r], totals_[r]);
        }
        compiler_barrier(&m_);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
            totals_[r] = _mm512_maskz_load_ps(mask, m_.totals[g][r]);
        }
    }

    // From here on, the totals are those of group g.
    ISA_INLINE_MEMBER void begin_group(const chunk & c, int g) {
        if (out_before_) {
            write_totals();
        }
        if (n_groups_ > 1) {
            exchange_totals(g, c.quad != 0);
        } else if (out_before_) {
            set_zero();
        }
    }

    // Adds the scaled sums of a quad's block b to the totals. Its scales of the rows come before the sums of their
    // values, by which minima are multiplied.
    ISA_INLINE_MEMBER void scale(const quad_product & quad, int b) {
        const float * const weight_scales = quad.weight_scales + b * TERMS * PANEL;
        const float * const row_scales    = quad.row_scales + b * TERMS * ROWS;
        const __m512        d = _mm512_load_ps(weight_scales), excess = _mm512_mul_ps(d, _mm512_set1_ps(-0x1.8p23f));
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; ++r) {
            const __m512i sum = _mm512_load_si512(m_.sums[b][scaled_row<ROWS>(r, groups_)]);
            // without a conversion, as in packed_gemm_kernels.h: while tiles work, float operations can use only one of
            // the two ports, integer additions both
            const __m512 scaled =
                T::SUM_BIAS ? _mm512_fmadd_ps(
                                  _mm512_castsi512_ps(_mm512_add_epi32(sum, _mm512_set1_epi32(T::SUM_BIAS))), d, excess)
                            : _mm512_mul_ps(_mm512_cvtepi32_ps(sum), d);
            totals_[r] = _mm512_fmadd_ps(scaled, _mm512_set1_ps(row_scales[r]), totals_[r]);
            if constexpr (TERMS == 2) {
                totals_[r] = _mm512_fmadd_ps(
                    _mm512_load_ps(weight_scales + PANEL), _mm512_set1_ps(row_scales[ROWS + r]), totals_[r]);
            }
        }
    }

    // Scales the block three before block b of the quad `now`: its block 0, or one of the quad before.
    ISA_INLINE_MEMBER void scale_earlier_block(const quad_product & now, int b) {
        if (b == 3) {
            scale(now, 0);
        } else if (__builtin_expect(b + 1 < before_.n_blocks, 1)) {
            scale(before_, b + 1);
        }
    }

    // Group g times a chunk; in the last group, the next chunk is unpacked.
    ISA_INLINE_MEMBER void compute_group(const chunk & c, const chunk & next, int g) {
        const int8_t * a          = (const int8_t *) call_.rows + groups_.first(g) * call_.row_stride + 128 * c.quad;
        const int      prefetches = blocks_to_prefetch(g);
        const panel *  x          = next.blocks;
        for (int s = 0; s < c.count; ++s, a += 128, x += 4) {
            const quad_product now      = { m_.d[flip_][s][0],
                     row_scales_ + (g * call_.n_blocks + 4 * (c.quad + s)) * TERMS * ROWS, blocks_of(c.quad + s) };
            const int          n_unpack = g == n_groups_ - 1 && s < next.count ? blocks_of(next.quad + s) : 0;
#pragma GCC unroll 4
            for (int b = 0; b < 4; ++b) {
                const int one_before = (b + 3) % 4;
                if (b == 3 && __builtin_expect(s == 0, 0)) {
                    begin_group(c, g);
                }
                compiler_barrier(&m_);
                if (__builtin_expect(b < now.n_blocks, 1)) {
                    multiply_32(b, a + 32 * b, call_.row_stride, m_.q[s][b]);
                }
                compiler_barrier(&m_);
                scale_earlier_block(now, b);
                compiler_barrier(&m_);
                store_tile(one_before, m_.sums[one_before]);
                if (prefetches >> b & 1) {
                    prefetch_ahead<CACHE>(&x[b], sizeof(panel));
                }
                if (__builtin_expect(b < n_unpack, 1)) {
                    unpack(x[b], m_.q[s][b], m_.d[flip_ ^ 1][s][b]);
                }
            }
            before_ = now;
        }
        out_before_    = ends_panel(c) ? call_.out + groups_.first(g) * call_.out_stride + PANEL * c.n_panel : nullptr;
        totals_before_ = m_.totals[g];
    }

    ISA_INLINE_MEMBER void finish() {
        compiler_barrier(&m_);
        store_tile(3, m_.sums[3]);
        compiler_barrier(&m_);
#pragma GCC unroll 3
        for (int b = 1; b < 4; ++b) {
            if (b < before_.n_blocks) {
                scale(before_, b);
            }
        }
        write_totals();
    }

  public:
    ISA_INLINE_MEMBER pipeline_of_32(const packed_gemm_call & call, scratch & m) :
        call_(call), m_(m), groups_(call.n_rows), n_groups_(CHUNK == 1 ? 1 : groups_.count),
        n_quads_((call.n_blocks + 3) / 4), row_scales_(sort_all_scales(call, n_groups_)), totals_before_(m.totals[0]) {
        std::memset(m.sums, 0, sizeof(m.sums));
        set_zero();
    }

    ISA_INLINE_MEMBER void run() {
        chunk now = { (const panel *) call_.panels, 0, 0, quads_from(0) };
        unpack_quads(now, 0, 0);
        while (now.count > 0) {
            const chunk next = after(now);
            for (int g = 0; g < n_groups_; ++g) {
                compute_group(now, next, g);
            }
            unpack_quads(next, now.count, flip_ ^ 1);   // a chunk at a panel's end may be shorter than the next
            now = next;
            flip_ ^= 1;
        }
        finish();
    }
};

// T: a record of weight_types.h
template <class T> struct product_of_32 {
    static constexpr int WIDTH = 32;

    template <int ROWS, int CHUNK> ISA_FUNCTION void compute_chunks(const packed_gemm_call & call) {
        typename pipeline_of_32<T, ROWS, CHUNK>::scratch m;
        pipeline_of_32<T, ROWS, CHUNK>(call, m).run();
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

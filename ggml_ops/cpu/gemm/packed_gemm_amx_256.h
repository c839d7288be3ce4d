// AMX product for the panels with integer scales within 256 positions: weights are multiplied by their scales first. A
// scaled weight has more than 8 bits, except for weights of 2 bits, so it is split into a low and a high byte, each
// with a tile of sums. The results are the same integers as the scaled sums of weights times activations. Included by
// packed_gemm_amx.h.

// 256 positions of a panel in four parts, ready for tiles; and their sums for the rows of a tile.
struct alignas(64) scaled_weights {
    uint8_t low[4][1024], high[4][1024];
};

struct alignas(64) scaled_sums {
    int32_t low[TILE][PANEL], high[TILE][PANEL];
};

// Offsets of a tile's rows from its first. Rows are scaled in fours; entries beyond the last row repeat the last one.
struct row_offsets {
    int64_t at[TILE];

    row_offsets() = default;
    row_offsets(int n_rows, size_t row_stride) {
        for (int r = 0; r < TILE; ++r) {
            at[r] = (int64_t) row_stride * std::min(r, n_rows - 1);
        }
    }
};

// Combines the sums of the low bytes, and of the high ones if there are any.
template <int SHIFT> ISA_INLINE __m512i combine(const scaled_sums & sums, int r) {
    const __m512i low = _mm512_load_si512(sums.low[r]);
    return SHIFT == 0 ? low : _mm512_add_epi32(low, _mm512_slli_epi32(_mm512_load_si512(sums.high[r]), SHIFT));
}

// Minima of 16 columns, for n pairs of sub-blocks, times the sums of the activations.
ISA_INLINE __m512i multiply_minima(const __m512i * minima, int n, const int16_t * row_sums) {
    __m512i dot = _mm512_setzero_si512();
    for (int s = 0; s < n; ++s) {
        dot = simd::dot_pairs(dot, minima[s], row_sums + 2 * s);
    }
    return dot;
}

// How the layouts differ. HIGH: by how many bits the high bytes are shifted, 0: products fit into one byte;
// SIGNED_HIGH; N_MINIMA: pairs of minima. unpack(): a part of 64 positions times their scales.

// panel_q4_K and panel_q5_K.
template <class T> struct scaled_q4_K {
    using panel                = typename T::panel;
    static constexpr int  HIGH = 3, N_MINIMA = 4;
    static constexpr bool SIGNED_HIGH = false;

    // weight times scale (6 bits: 8 * high + low), two weights at once: a product of 5 and 3 bits fits into its byte
    ISA_INLINE void store_scaled(__m512i v, __m512i scale_low, __m512i scale_high, uint8_t * low, uint8_t * high) {
        store_line(low, _mm512_mullo_epi16(v, scale_low));
        store_line(high, _mm512_mullo_epi16(v, scale_high));
    }

    ISA_INLINE __m512i add_fifth_bit(const panel_q4_K &, int, int, __m512i v) { return v; }
    ISA_INLINE __m512i add_fifth_bit(const panel_q5_K & x, int s, int g, __m512i v) {
        const __m512i h = _mm512_loadu_si512(x.h[s]);
        return _mm512_or_si512(v,
            _mm512_and_si512(g < 4 ? _mm512_slli_epi16(h, 4 - g) : _mm512_srli_epi16(h, g - 4), _mm512_set1_epi8(16)));
    }

    ISA_INLINE void unpack(const panel & x, int part, uint8_t * low, uint8_t * high) {
        const __m512i seven = _mm512_set1_epi16(7);
        for (int s = 0; s < 2; ++s, low += 512, high += 512) {
            __m512i scale           = simd::load_u8_as_i32(x.scale[2 * part + s]);
            scale                   = _mm512_or_si512(scale, _mm512_slli_epi32(scale, 16));
            const __m512i scale_low = _mm512_and_si512(scale, seven), scale_high = _mm512_srli_epi16(scale, 3);
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                const __m512i v = _mm512_loadu_si512(x.q[2 * part + s][i]);
                store_scaled(add_fifth_bit(x, 2 * part + s, i, simd::low_nibbles(v)), scale_low, scale_high,
                    low + 64 * i, high + 64 * i);
                store_scaled(add_fifth_bit(x, 2 * part + s, i + 4, simd::high_nibbles(v)), scale_low, scale_high,
                    low + 64 * i + 256, high + 64 * i + 256);
            }
        }
    }

    ISA_INLINE __m512i         minima(const panel & x, int pair) { return simd::load_pairs_u8(x.min[pair][0]); }
    ISA_INLINE const int16_t * sums(const scale_q8_K & row) { return row.pairs; }
};

// One of each pair, in both its places.
ISA_INLINE __m512i one_of_pairs(__m512i pairs, int which) {
    const __m512i one = which == 0 ? _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff)) : _mm512_srli_epi32(pairs, 16);
    return _mm512_or_si512(one, _mm512_slli_epi32(one, 16));
}

// panel_q2_K: 2 bits times 4 fit into one byte.
template <class T> struct scaled_q2_K {
    static constexpr int  HIGH = 0, N_MINIMA = 8;
    static constexpr bool SIGNED_HIGH = false;

    ISA_INLINE void unpack(const panel_q2_K & x, int part, uint8_t * low, uint8_t *) {
        const __m512i nibble = _mm512_set1_epi16(15), two_bits = _mm512_set1_epi8(3);
        for (int s = 4 * part; s < 4 * part + 4; ++s, low += 256) {
            const __m512i scale = _mm512_and_si512(one_of_pairs(simd::load_pairs_u8(x.scale[s / 2][0]), s % 2), nibble),
                          q     = _mm512_loadu_si512(x.q[s]);
#pragma GCC unroll 4
            for (int g = 0; g < 4; ++g) {
                store_line(
                    low + 64 * g, _mm512_mullo_epi16(_mm512_and_si512(_mm512_srli_epi16(q, 2 * g), two_bits), scale));
            }
        }
    }

    ISA_INLINE __m512i minima(const panel_q2_K & x, int pair) {
        return simd::high_nibbles_of_pairs(simd::load_pairs_u8(x.scale[pair][0]));
    }
    ISA_INLINE const int16_t * sums(const scale_q8_K & row) { return row.sums; }
};

// All of panel_scaled: Q3_K, Q6_K, IQ4_XS and the types with a codebook.
template <class T> struct scaled_signed {
    using panel                = typename T::panel;
    static constexpr int  HIGH = 8, N_MINIMA = 0;
    static constexpr bool SIGNED_HIGH = true;
    static constexpr int  SUB         = 128 / std::extent_v<decltype(panel::scale)>;

    // The weights of sub-block s plus ZERO_POINT, four positions each.
    ISA_INLINE void load_weights(const panel_q6_K & x, int s, __m512i (&v)[4]) {
        const __m512i two_bits = _mm512_set1_epi8(48);
        const __m512i q0 = _mm512_loadu_si512(x.q[s][0]), q1 = _mm512_loadu_si512(x.q[s][1]),
                      h = _mm512_loadu_si512(x.h[s]);
        v[0]            = _mm512_or_si512(simd::low_nibbles(q0), _mm512_and_si512(_mm512_slli_epi16(h, 4), two_bits));
        v[1]            = _mm512_or_si512(simd::low_nibbles(q1), _mm512_and_si512(_mm512_slli_epi16(h, 2), two_bits));
        v[2]            = _mm512_or_si512(simd::high_nibbles(q0), _mm512_and_si512(h, two_bits));
        v[3]            = _mm512_or_si512(simd::high_nibbles(q1), _mm512_and_si512(_mm512_srli_epi16(h, 2), two_bits));
    }
    ISA_INLINE void load_weights(const panel_q3_K & x, int s, __m512i (&v)[4]) {
        const __m512i two_bits = _mm512_set1_epi8(3), high_bit = _mm512_set1_epi8(4), q = _mm512_loadu_si512(x.q[s]),
                      pair = _mm512_loadu_si512(x.h[s / 2]), h = s % 2 == 0 ? pair : _mm512_srli_epi16(pair, 4);
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) {
            const __m512i high = g < 2 ? _mm512_slli_epi16(h, 2 - g) : _mm512_srli_epi16(h, g - 2);
            v[g]               = _mm512_or_si512(
                _mm512_and_si512(_mm512_srli_epi16(q, 2 * g), two_bits), _mm512_and_si512(high, high_bit));
        }
    }
    ISA_INLINE void load_weights(const panel_values<SUB> & x, int s, __m512i (&v)[SUB / 4]) {
#pragma GCC unroll 4
        for (int i = 0; i < SUB / 8; ++i) {
            const __m512i q = _mm512_loadu_si512(x.q[s][i]);
            v[i]            = value_of<T, T::ZERO_POINT>(simd::low_nibbles(q));
            v[i + SUB / 8]  = value_of<T, T::ZERO_POINT>(simd::high_nibbles(q));
        }
    }

    ISA_INLINE void unpack(const panel & x, int part, uint8_t * low, uint8_t * high) {
        const __m512i   offset    = _mm512_set1_epi8((char) T::ZERO_POINT);
        const __mmask64 odd_bytes = 0xaaaaaaaaaaaaaaaaull;
        for (int s = 64 / SUB * part; s < 64 / SUB * (part + 1); ++s, low += 16 * SUB, high += 16 * SUB) {
            const __m512i scale =   // for the even bytes
                one_of_pairs(simd::load_pairs_u8((const uint8_t *) x.scale[s / 2]), s % 2);
            const __m512i scale_odd = _mm512_slli_epi16(scale, 8), excess = _mm512_maddubs_epi16(offset, scale);
            __m512i       v[SUB / 4];
            load_weights(x, s, v);
#pragma GCC unroll 8
            for (int i = 0; i < SUB / 4; ++i) {
                const __m512i even = _mm512_sub_epi16(_mm512_maddubs_epi16(v[i], scale), excess),
                              odd  = _mm512_sub_epi16(_mm512_maddubs_epi16(v[i], scale_odd), excess);
                store_line(low + 64 * i, _mm512_mask_blend_epi8(odd_bytes, even, _mm512_slli_epi16(odd, 8)));
                store_line(high + 64 * i, _mm512_mask_blend_epi8(odd_bytes, _mm512_srli_epi16(even, 8), odd));
            }
        }
    }
};

template <class T, class Panel = typename T::panel>
using scaled_block = std::conditional_t<std::is_base_of_v<panel_q4_K, Panel>, scaled_q4_K<T>,
    std::conditional_t<std::is_same_v<panel_q2_K, Panel>, scaled_q2_K<T>, scaled_signed<T>>>;

// ---- the product ----

// The tasks of a call: for each block of a panel each group of rows. Part by part, while the tiles of a task multiply,
// the sums of the previous one are scaled (Q rows per part), and during a block's last task the next block is unpacked.
// Never referred to: its members are registers, the rest is scratch.
template <class T, int Q> class pipeline_of_256 {
    using panel = typename T::panel;
    using block = scaled_block<T>;

    // A group of rows times a panel's block; x null: nothing.
    struct task {
        const panel *  x          = nullptr;
        const int8_t * a          = nullptr;   // values and scales of the first row
        const char *   row_scales = nullptr;
        float (*totals)[PANEL]    = nullptr;
        float *     out           = nullptr;   // null before the last block
        __mmask16   mask          = 0;         // 0 for the first block: no totals yet
        scaled_sums sums          = {};        // of all rows of a tile: those beyond the last are scaled too
    };

  public:
    // Memory that a call keeps rewriting.
    struct scratch {
        scaled_weights weights;    // a part of the next block replaces one whose last tile has been loaded
        task           tasks[2];   // never copied: a wide load of fields just written waits for all their stores
        alignas(64) float totals[MAX_GEMM_ROWS][PANEL];
        size_t      row_stride;
        row_offsets offsets;
    };

  private:
    const packed_gemm_call call_;
    scratch &              m_;
    const row_groups       groups_;
    const panel *          x_;
    const panel * const    end_;
    int                    flip_ = 0;   // this task of m_.tasks

    ISA_INLINE void unpack(const panel & x, int part, scaled_weights & w) {
        prefetch_ahead<2>((const char *) &x + part * sizeof(panel) / 4, sizeof(panel) / 4);
        block::unpack(x, part, w.low[part], w.high[part]);
    }

    ISA_INLINE void multiply(const int8_t * a, size_t row_stride, const scaled_weights & w, int part) {
        if (part == 0) {
            _tile_zero(0);
            _tile_zero(1);
        }
        _tile_loadd(4, a + 64 * part, row_stride);
        _tile_loadd(6, w.low[part], 64);
        _tile_dpbsud(0, 4, 6);
        if (block::HIGH == 0) {
            return;
        }
        _tile_loadd(7, w.high[part], 64);
        if (block::SIGNED_HIGH) {
            _tile_dpbssd(1, 4, 7);
        } else {
            _tile_dpbsud(1, 4, 7);
        }
    }

    // Adds a task's sums of Q rows, starting at row Q * part, to its totals.
    ISA_INLINE void scale(const task & t, const row_offsets & rows, int part) {
        constexpr int      N          = block::N_MINIMA;
        const panel &      x          = *t.x;
        const char * const row_scales = t.row_scales;   // read once: stores of totals might change them
        float (*const totals)[PANEL]  = t.totals;
        const __mmask16 mask          = t.mask;

        __m512                   d = simd::load_f16(x.d);
        [[maybe_unused]] __m512i minima[N + 1];   // of pairs of sub-blocks
        if constexpr (T::D_FACTOR != 1) {
            d = _mm512_mul_ps(d, _mm512_set1_ps(T::D_FACTOR));
        }
        if constexpr (N > 0) {
            for (int s = 0; s < N; ++s) {
                minima[s] = block::minima(x, s);
            }
        }
#pragma GCC unroll 4
        for (int r = Q * part; r < Q * part + Q; ++r) {
            const scale_q8_K & a     = *(const scale_q8_K *) (row_scales + rows.at[r]);
            const __m512       d_row = _mm512_set1_ps(a.d);
            __m512             total = _mm512_maskz_load_ps(mask, totals[r]);
            total =
                _mm512_fmadd_ps(_mm512_cvtepi32_ps(combine<block::HIGH>(t.sums, r)), _mm512_mul_ps(d, d_row), total);
            if constexpr (N > 0) {
                total = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(multiply_minima(minima, N, block::sums(a))),
                    _mm512_mul_ps(simd::load_f16(x.dmin), d_row), total);
            }
            _mm512_store_ps(totals[r], total);
        }
    }

    // WHOLE: there is a previous task, and a next block; code without branches. LAST: this is a block's last task.
    template <bool WHOLE, bool LAST> ISA_INLINE void work(scratch & m, int flip, const panel * next) {
        task &       now    = m.tasks[flip];
        const task & before = m.tasks[flip ^ 1];
#pragma GCC unroll 4
        for (int part = 0; part < 4; ++part) {
            compiler_barrier(&m);
            if (WHOLE || now.x) {
                multiply(now.a, m.row_stride, m.weights, part);
            }
            compiler_barrier(&m);
            if (WHOLE || before.x) {
                scale(before, m.offsets, part);
            }
            compiler_barrier(&m);
            if (part == 3 && (WHOLE || now.x)) {
                store_tile(0, now.sums.low);
                if (block::HIGH > 0) {
                    store_tile(1, now.sums.high);
                }
            }
            if (LAST && (WHOLE || next)) {
                unpack(*next, part, m.weights);
            }
        }
    }

    ISA_ATTRIBUTE __attribute__((noinline)) static void work_at_edge(scratch & m, int flip, const panel * next) {
        work<false, true>(m, flip, next);
    }

    ISA_INLINE_MEMBER void write_totals(const task & t) {
        for (int r = 0; t.out && r < groups_.rows; ++r) {
            _mm512_storeu_ps(t.out + r * call_.out_stride, _mm512_load_ps(t.totals[r]));
        }
    }

    // Group g times block b of panel p, which is at x_.
    ISA_INLINE_MEMBER void compute_task(int64_t p, int64_t b, int g) {
        const int64_t      n_blocks = call_.n_blocks;
        const char * const row      = (const char *) call_.rows + groups_.first(g) * call_.row_stride;
        task &             now      = m_.tasks[flip_];
        const task &       before   = m_.tasks[flip_ ^ 1];
        now.x                       = x_;
        now.a                       = (const int8_t *) row + b * 256;
        now.row_scales              = row + n_blocks * 256 + b * sizeof(scale_q8_K);
        now.totals                  = m_.totals + g * TILE;
        now.out  = b + 1 == n_blocks ? call_.out + groups_.first(g) * call_.out_stride + PANEL * p : nullptr;
        now.mask = b == 0 ? 0 : 0xffff;

        const panel * const next     = x_ + 1 < end_ ? x_ + 1 : nullptr;
        const bool          is_last  = g == groups_.count - 1;
        const bool          is_whole = before.x && next;
        if (is_whole && is_last) {
            work<true, true>(m_, flip_, next);
        } else if (is_whole) {
            work<true, false>(m_, flip_, next);
        } else {
            work_at_edge(m_, flip_, is_last ? next : nullptr);
        }
        write_totals(before);
        flip_ ^= 1;
    }

    // Scales the sums of the last task.
    ISA_INLINE_MEMBER void finish() {
        m_.tasks[flip_].x = nullptr;
        work_at_edge(m_, flip_, nullptr);
        write_totals(m_.tasks[flip_ ^ 1]);
    }

  public:
    ISA_INLINE_MEMBER pipeline_of_256(const packed_gemm_call & call, scratch & m) :
        call_(call), m_(m), groups_(call.n_rows), x_((const panel *) call.panels),
        end_(x_ + call.n_panels * call.n_blocks) {
        m.row_stride = call.row_stride;
        m.offsets    = row_offsets(groups_.rows, call.row_stride);
        for (int part = 0; part < 4; ++part) {
            unpack(*x_, part, m.weights);
        }
    }

    ISA_INLINE_MEMBER void run() {
        for (int64_t p = 0; p < call_.n_panels; ++p) {
            for (int64_t b = 0; b < call_.n_blocks; ++b, ++x_) {
                for (int g = 0; g < groups_.count; ++g) {
                    compute_task(p, b, g);
                }
            }
        }
        finish();
    }
};

// T: a record of weight_types.h
template <class T> struct product_of_256 {
    static constexpr int WIDTH = 64;

    // FOURS: number of fours of rows in a tile
    template <int FOURS> ISA_FUNCTION void compute(const packed_gemm_call & call) {
        typename pipeline_of_256<T, FOURS>::scratch m;
        pipeline_of_256<T, FOURS>(call, m).run();
    }
};

// Packed GEMM, written once for all instruction sets (packed_gemm.h). Included by isa/<set>.cpp after its vectors. All
// sets give the same bits: integer sums are exact, and the float operations and their order are fixed here.
//
// A kernel is packed_micro_kernel<T>() of a weight type T, which calls multiply_block() for each block of its panel,
// and that calls multiply() for the integers. Which overloads these are follows from the panel (weight_types.h).
// XNNPACK would call the kernel of Q4_0 for AVX2 and four rows qd8-f32-qb4w-gemm-4x8c4.
//
//   weight types                            multiply() takes                multiply_block() takes
//   Q4_0 Q4_1 IQ4_NL MXFP4                  panel_of_32<_, 4>               panel_of_32
//   Q8_0                                    panel_of_32<_, 8>               panel_of_32
//   Q5_0 Q5_1                               panel_of_32_with_fifth_bits     panel_of_32
//   Q4_K                                    panel_q4_K                      panel_q4_K
//   Q5_K                                    panel_q5_K                      panel_q4_K
//   Q6_K                                    panel_q6_K                      panel_scaled<16>
//   Q3_K                                    panel_q3_K                      panel_scaled<16>
//   IQ4_XS IQ3_S IQ3_XXS IQ2_XXS IQ1_S      panel_values<32>                panel_scaled<32>
//   IQ2_S IQ2_XS IQ1_M                      panel_values<16>                panel_scaled<16>
//   Q2_K TQ1_0 TQ2_0                        -                               panel_q2_K
//
// All of them are compiled for each set, with its instructions. Rows x columns that are computed together, by each
// set's ROWS; up to three rows take a whole panel:
//
//   set      compiled in      instructions            1 to 3 rows    4 rows and more
//   AVX-512  isa/avx512.cpp   isa/vectors_avx512.h    x 16           up to 8 x 16
//   AVX2     isa/avx2.cpp     isa/vectors_avx2.h      x 16           up to 4 x 8
//   NEON     isa/neon.cpp     isa/vectors_neon.h      x 16           up to 8 x 4
//   AMX      isa/amx.cpp      packed_gemm_amx_*.h     from TILE_ROWS (weight_types.h) on: up to 16 x 16

#include "cpu/gemm/packed_gemm_values.h"

// Prefetches part `part` of N_PARTS of a panel's block, if not null. CACHE: 3 is L1, 2 is L2. Kernels compute between
// the parts, because more lines in flight than a core can track would stall its loads (with 256-position types this
// costs a fifth to a third of the speed of narrow passes).
template <int CACHE, class Panel, int N_PARTS> ISA_INLINE void prefetch_part(const void * block, int part) {
    constexpr int LINES = (sizeof(Panel) + 64 * N_PARTS - 1) / (64 * N_PARTS);
    if (block) {
        for (int n = 0; n < LINES; ++n) {
            __builtin_prefetch((const char *) block + 64 * (part * LINES + n), 0, CACHE);
        }
    }
}

// A row's scales come after its values.
ISA_INLINE const scale_q8_0 & scale_of_32(const int8_t * row, int64_t n_blocks, int64_t b) {
    return ((const scale_q8_0 *) (row + 32 * n_blocks))[b];
}
ISA_INLINE const scale_q8_K & scale_of_256(const int8_t * row, int64_t n_blocks, int64_t b) {
    return ((const scale_q8_K *) (row + 256 * n_blocks))[b];
}

// Below, R rows are multiplied with W columns of a panel, starting at column c. T: a record of weight_types.h. a: the
// rows. The panel's layout decides which multiply() and multiply_block() are used.

// ---- types with a scale per 32 positions ----

// The offset that was added to stored weights, or to the values of nibbles, to make them unsigned.
template <class T> constexpr int OFFSET = T::FULL_BYTES && simd::SIGNED_WEIGHTS ? 0 : T::ZERO_POINT;

// Multiplies LINES lines of nibbles. High nibbles hold the inner positions 4 * LINES after those of the low nibbles.
template <class T, int R, int LINES>
ISA_INLINE void multiply_nibbles(
    const uint8_t (&q)[LINES][64], int c, const int8_t * const * a, int64_t at, dot_products<R> & sums) {
    for (int n = 0; n < LINES; n += 2, at += 8) {
        const typename simd::u8 q0 = simd::load_u8(q[n] + 4 * c), q1 = simd::load_u8(q[n + 1] + 4 * c);
        sums.template add<T::FULL_BYTES>(
            value_of<T, OFFSET<T>>(simd::low_nibbles(q0)), value_of<T, OFFSET<T>>(simd::low_nibbles(q1)), a, at);
        sums.template add<T::FULL_BYTES>(value_of<T, OFFSET<T>>(simd::high_nibbles(q0)),
            value_of<T, OFFSET<T>>(simd::high_nibbles(q1)), a, at + 4 * LINES);
    }
}

// 4 inner positions of all columns: group G of the 8 of 32 positions, with its fifth bit from h.
template <int G> ISA_INLINE typename simd::u8 add_fifth_bit(typename simd::u8 nibble, typename simd::u8 h) {
    return simd::bit_or(nibble, simd::template shift_and_mask<4 - G>(h, 16));
}

template <class T, int R, class Scales>
ISA_INLINE void multiply(
    const panel_of_32<Scales, 4> & x, int c, const int8_t * const * a, int64_t at, dot_products<R> & sums) {
    multiply_nibbles<T, R>(x.q, c, a, at, sums);
}

ISA_INLINE typename simd::u8 load_bytes(const uint8_t * q) {
    return simd::SIGNED_WEIGHTS ? simd::flip_sign(simd::load_u8(q)) : simd::load_u8(q);
}

template <class T, int R, class Scales>
ISA_INLINE void multiply(
    const panel_of_32<Scales, 8> & x, int c, const int8_t * const * a, int64_t at, dot_products<R> & sums) {
    for (int n = 0; n < 8; n += 2) {
        sums.template add<true>(load_bytes(x.q[n] + 4 * c), load_bytes(x.q[n + 1] + 4 * c), a, at + 4 * n);
    }
}

// Lines N and N + 1 of the nibbles q, whose fifth bits are h.
template <int N, int R>
ISA_INLINE void multiply_lines(const uint8_t (&q)[4][64], const uint8_t (&h)[64], int c, const int8_t * const * a,
    int64_t at, dot_products<R> & sums) {
    const typename simd::u8 bits = simd::load_u8(h + 4 * c), q0 = simd::load_u8(q[N] + 4 * c),
                            q1 = simd::load_u8(q[N + 1] + 4 * c);
    sums.template add<false>(add_fifth_bit<N>(simd::low_nibbles(q0), bits),
        add_fifth_bit<N + 1>(simd::low_nibbles(q1), bits), a, at + 4 * N);
    sums.template add<false>(add_fifth_bit<N + 4>(simd::high_nibbles(q0), bits),
        add_fifth_bit<N + 5>(simd::high_nibbles(q1), bits), a, at + 4 * N + 16);
}

template <class T, int R, class Scales>
ISA_INLINE void multiply(const panel_of_32_with_fifth_bits<Scales> & x, int c, const int8_t * const * a, int64_t at,
    dot_products<R> & sums) {
    multiply_lines<0>(x.q, x.h, c, a, at, sums);
    multiply_lines<2>(x.q, x.h, c, a, at, sums);
}

// The initial sum of a row's block.
template <class T> ISA_INLINE int32_t initial_sum(const scale_q8_0 & scale) {
    const bool constant = HAS_MINIMA_OF_32<T> || (T::FULL_BYTES && simd::SIGNED_WEIGHTS);
    return constant ? T::SUM_BIAS : scale.initial_sum;
}

template <class T, int CACHE, int R, class Scales, int LINES>
ISA_INLINE void multiply_block(const panel_of_32<Scales, LINES> & x, int c, const int8_t * const * a, int64_t n_blocks,
    int64_t b, const void * next, typename simd::f32 (&totals)[R]) {
    prefetch_part<CACHE, typename T::panel, 2>(next, 0);
    dot_products<R> sums;
    for (int r = 0; r < R; ++r) {
        sums.set(r, initial_sum<T>(scale_of_32(a[r], n_blocks, b)));
    }
    multiply<T, R>(static_cast<const typename T::panel &>(x), c, a, 32 * b, sums);
    prefetch_part<CACHE, typename T::panel, 2>(next, 1);
    // sum * d, rounded once: if the sum is a float that is 1.5 * 2^23 too large, that much times d (exact, since d is a
    // half) is subtracted within the same rounding
    const typename simd::f32 d = load_scales(x.d + c), excess = simd::mul(d, simd::set1(-0x1.8p23f));
    for (int r = 0; r < R; ++r) {
        const typename simd::f32 scaled =
            T::SUM_BIAS ? simd::fma(simd::as_f32(sums.row(r)), d, excess) : simd::mul(simd::to_f32(sums.row(r)), d);
        totals[r] = simd::fma(scaled, simd::set1(scale_of_32(a[r], n_blocks, b).d), totals[r]);
    }
    if constexpr (HAS_MINIMA_OF_32<T>) {
        const typename simd::f32 min = simd::load_f16(x.min + c);
        for (int r = 0; r < R; ++r) {
            totals[r] = simd::fma(min, simd::set1(scale_of_32(a[r], n_blocks, b).sum), totals[r]);
        }
    }
}

// ---- types with integer scales within 256 positions ----

// Group G of 4 of a Q6_K sub-block, with its two high bits.
template <int G> ISA_INLINE typename simd::u8 add_high_bits(typename simd::u8 nibble, typename simd::u8 h) {
    return simd::bit_or(nibble, simd::template shift_and_mask<4 - 2 * G>(h, 48));
}

template <class T, int R>
ISA_INLINE void multiply(
    const panel_q4_K & x, int s, int c, const int8_t * const * a, int64_t at, dot_products<R> & sums) {
    multiply_nibbles<T, R>(x.q[s], c, a, at, sums);
}

template <class T, int R>
ISA_INLINE void multiply(
    const panel_q5_K & x, int s, int c, const int8_t * const * a, int64_t at, dot_products<R> & sums) {
    multiply_lines<0>(x.q[s], x.h[s], c, a, at, sums);
    multiply_lines<2>(x.q[s], x.h[s], c, a, at, sums);
}

// Adds a block's sums to the totals. Panel: with d and dmin.
template <int R, class Panel>
ISA_INLINE void add_with_minima(const Panel & x, int c, const int8_t * const * a, int64_t n_blocks, int64_t b,
    const typename simd::i32 (&sums)[R], const typename simd::i32 (&min_sums)[R], typename simd::f32 (&totals)[R]) {
    const typename simd::f32 d = simd::load_f16(x.d + c), dmin = simd::load_f16(x.dmin + c);
    for (int r = 0; r < R; ++r) {
        const typename simd::f32 d_row = simd::set1(scale_of_256(a[r], n_blocks, b).d);
        totals[r]                      = simd::fma(simd::to_f32(sums[r]), simd::mul(d, d_row), totals[r]);
        totals[r]                      = simd::fnma(simd::to_f32(min_sums[r]), simd::mul(dmin, d_row), totals[r]);
    }
}

// With minima: 8 sub-blocks of 32. T: Q4_K or Q5_K.
template <class T, int CACHE, int R>
ISA_INLINE void multiply_block(const panel_q4_K & x, int c, const int8_t * const * a, int64_t n_blocks, int64_t b,
    const void * next, typename simd::f32 (&totals)[R]) {
    typename simd::i32 sums[R] = {}, min_sums[R] = {};
    for (int s = 0; s < 8; ++s) {
        prefetch_part<CACHE, typename T::panel, 8>(next, s);
        dot_products<R> part = {};
        multiply<T, R>(static_cast<const typename T::panel &>(x), s, c, a, 256 * b + 32 * s, part);
        const typename simd::i32 scale = simd::load_u8_as_i32(x.scale[s] + c);
        for (int r = 0; r < R; ++r) {
            sums[r] = simd::mul_add(sums[r], part.row(r), scale);
        }
    }
    for (int s = 0; s < 4; ++s) {   // two sub-blocks at once
        const typename simd::i16 minima = simd::load_pairs_u8(x.min[s][c]);
        for (int r = 0; r < R; ++r) {
            min_sums[r] = simd::dot_pairs(min_sums[r], minima, scale_of_256(a[r], n_blocks, b).pairs + 2 * s);
        }
    }
    add_with_minima<R>(x, c, a, n_blocks, b, sums, min_sums, totals);
}

// Group G of 4 of a line with 2 bits per position.
template <int G> ISA_INLINE typename simd::u8 two_bits(typename simd::u8 q) {
    return simd::template shift_and_mask<-2 * G>(q, 3);
}
// The same with its high bit: group G of 8 of h.
template <int G> ISA_INLINE typename simd::u8 three_bits(typename simd::u8 q, typename simd::u8 h) {
    return simd::bit_or(two_bits<G % 4>(q), simd::template shift_and_mask<2 - G>(h, 4));
}

// 16 sub-blocks of 16, with scales and minima of 4 bits.
template <class T, int CACHE, int R>
ISA_INLINE void multiply_block(const panel_q2_K & x, int c, const int8_t * const * a, int64_t n_blocks, int64_t b,
    const void * next, typename simd::f32 (&totals)[R]) {
    typename simd::i32 sums[R] = {}, min_sums[R] = {};
    for (int s = 0; s < 16; ++s) {
        if (s % 2 == 0) {
            prefetch_part<CACHE, panel_q2_K, 8>(next, s / 2);
        }
        dot_products<R>         part = {};
        const typename simd::u8 q    = simd::load_u8(x.q[s] + 4 * c);
        part.template add<false>(two_bits<0>(q), two_bits<1>(q), a, 256 * b + 16 * s);
        part.template add<false>(two_bits<2>(q), two_bits<3>(q), a, 256 * b + 16 * s + 8);
        const typename simd::i16 both   = simd::load_pairs_u8(x.scale[s / 2][c]),
                                 scales = simd::low_nibbles_of_pairs(both);
        const typename simd::i32 scale  = s % 2 == 0 ? simd::even_of_pairs(scales) : simd::odd_of_pairs(scales);
        for (int r = 0; r < R; ++r) {
            sums[r] = simd::mul_add(sums[r], part.row(r), scale);
        }
        for (int r = 0; r < R && s % 2 == 1; ++r) {
            min_sums[r] = simd::dot_pairs(
                min_sums[r], simd::high_nibbles_of_pairs(both), scale_of_256(a[r], n_blocks, b).sums + s - 1);
        }
    }
    add_with_minima<R>(x, c, a, n_blocks, b, sums, min_sums, totals);
}

template <class T, int R>
ISA_INLINE void multiply(
    const panel_q6_K & x, int s, int c, const int8_t * const * a, int64_t at, dot_products<R> & sums) {
    const typename simd::u8 h = simd::load_u8(x.h[s] + 4 * c), q0 = simd::load_u8(x.q[s][0] + 4 * c),
                            q1 = simd::load_u8(x.q[s][1] + 4 * c);
    sums.template add<false>(
        add_high_bits<0>(simd::low_nibbles(q0), h), add_high_bits<1>(simd::low_nibbles(q1), h), a, at);
    sums.template add<false>(
        add_high_bits<2>(simd::high_nibbles(q0), h), add_high_bits<3>(simd::high_nibbles(q1), h), a, at + 8);
}

template <class T, int R>
ISA_INLINE void multiply(
    const panel_q3_K & x, int s, int c, const int8_t * const * a, int64_t at, dot_products<R> & sums) {
    const typename simd::u8 q = simd::load_u8(x.q[s] + 4 * c), h = simd::load_u8(x.h[s / 2] + 4 * c);
    if (s % 2 == 0) {
        sums.template add<false>(three_bits<0>(q, h), three_bits<1>(q, h), a, at);
        sums.template add<false>(three_bits<2>(q, h), three_bits<3>(q, h), a, at + 8);
    } else {
        sums.template add<false>(three_bits<4>(q, h), three_bits<5>(q, h), a, at);
        sums.template add<false>(three_bits<6>(q, h), three_bits<7>(q, h), a, at + 8);
    }
}

template <class T, int R, int SUB>
ISA_INLINE void multiply(
    const panel_values<SUB> & x, int s, int c, const int8_t * const * a, int64_t at, dot_products<R> & sums) {
    multiply_nibbles<T, R>(x.q[s], c, a, at, sums);
}

// The sums of a row's sub-blocks.
template <int SUB> ISA_INLINE const int16_t * sums_of(const scale_q8_K & row) {
    return SUB == 16 ? row.sums : row.pairs;
}

// With signed scales. Weights are stored ZERO_POINT too large, unless dot products take all of their bits as signed.
template <class T, int CACHE, int R, int SUB>
ISA_INLINE void multiply_block(const panel_scaled<SUB> & x, int c, const int8_t * const * a, int64_t n_blocks,
    int64_t b, const void * next, typename simd::f32 (&totals)[R]) {
    constexpr int      N       = 256 / SUB;
    typename simd::i32 sums[R] = {}, offset_sums[R] = {};   // offset_sums: to be multiplied by the offset
    for (int s = 0; s < N; ++s) {
        if (s % (N / 8) == 0) {
            prefetch_part<CACHE, typename T::panel, 8>(next, s / (N / 8));
        }
        dot_products<R> part = {};
        multiply<T, R>(static_cast<const typename T::panel &>(x), s, c, a, 256 * b + SUB * s, part);
        const typename simd::i16 two_scales = simd::load_pairs_s8(x.scale[s / 2][c]);
        const typename simd::i32 scale = s % 2 == 0 ? simd::even_of_pairs(two_scales) : simd::odd_of_pairs(two_scales);
        for (int r = 0; r < R; ++r) {
            sums[r] = simd::mul_add(sums[r], part.row(r), scale);
        }
        for (int r = 0; r < R && s % 2 == 1 && OFFSET<T> != 0; ++r) {
            offset_sums[r] =
                simd::dot_pairs(offset_sums[r], two_scales, sums_of<SUB>(scale_of_256(a[r], n_blocks, b)) + s - 1);
        }
    }
    typename simd::f32 d = simd::load_f16(x.d + c);
    if (T::D_FACTOR != 1) {
        d = simd::mul(d, simd::set1(T::D_FACTOR));
    }
    for (int r = 0; r < R; ++r) {
        const typename simd::i32 sum =
            OFFSET<T> == 0 ? sums[r] : simd::template sub_shifted<log2_of(OFFSET<T>)>(sums[r], offset_sums[r]);
        totals[r] =
            simd::fma(simd::to_f32(sum), simd::mul(d, simd::set1(scale_of_256(a[r], n_blocks, b).d)), totals[r]);
    }
}

// ---- driver ----

constexpr int PARTS_OF_PANEL = PANEL / simd::W;   // of W columns each

// R rows and P parts of a panel, starting at part `first` of all panels and at a row. For each row and column the
// operations and their order do not depend on R and P.
template <class T, int R, int P>
ISA_FUNCTION void packed_micro_kernel(const packed_gemm_call & call, int64_t first, int first_row) {
    const int64_t                   n_blocks = call.n_blocks;
    const typename T::panel * const w = (const typename T::panel *) call.panels + first / PARTS_OF_PANEL * n_blocks;
    const int                       column = (int) (first % PARTS_OF_PANEL) * simd::W;   // within the panel
    const int8_t *                  a[R];
    typename simd::f32              totals[P][R];
    for (int r = 0; r < R; ++r) {
        a[r] = (const int8_t *) call.rows + (first_row + r) * call.row_stride;
        for (int p = 0; p < P; ++p) {
            totals[p][r] = simd::set1(0);
        }
    }
    // The block PREFETCH_AHEAD bytes ahead: of the same panel, and at its end of the next one.
    constexpr int64_t BLOCKS = PREFETCH_AHEAD / sizeof(typename T::panel), AHEAD = BLOCKS > 1 ? BLOCKS : 1;
    constexpr int     CACHE = T::FILLS_CACHE_1 && R > 2 ? 2 : 3;   // measured: 3 to 6 %
    for (int64_t b = 0; b < n_blocks; ++b) {
        for (int p = 0; p < P; ++p) {
            const void * const next = column == 0 && p == 0 ? w + b + AHEAD : nullptr;
            multiply_block<T, CACHE, R>(w[b], column + p * simd::W, a, n_blocks, b, next, totals[p]);
        }
    }
    for (int r = 0; r < R; ++r) {
        float * const out = call.out + (first_row + r) * call.out_stride + simd::W * first;
        for (int p = 0; p < P; ++p) {
            simd::store(out + simd::W * p, totals[p][r]);
        }
    }
}

using micro_kernel = void (*)(const packed_gemm_call & call, int64_t first, int first_row);

// For n_rows rows and P parts.
template <class T, int P, int... N> micro_kernel find_micro_kernel(int n_rows, std::integer_sequence<int, N...>) {
    static constexpr micro_kernel kernels[] = { packed_micro_kernel<T, N + 1, P>... };
    return kernels[n_rows - 1];
}

// Panels are read one after the other, each from its beginning to its end: memory is read faster than in several places
// at once (docs/kernels.md).
template <class T> void packed_gemm(const packed_gemm_call & call) {
    constexpr int WHOLE   = simd::ROWS < 3 ? simd::ROWS : 3;   // most rows for which a whole panel's sums fit
    const int     n_rows  = call.n_rows;
    const int     n_parts = n_rows <= WHOLE ? PARTS_OF_PANEL : 1;
    const int64_t end     = call.n_panels * PARTS_OF_PANEL;
    for (int64_t part = 0; part < end; part += n_parts) {
        for (int r = 0; r < n_rows;) {
            // groups of equal size: 9 rows are 5 and 4
            const int          left = (n_rows - r + simd::ROWS - 1) / simd::ROWS, n = (n_rows - r + left - 1) / left;
            const micro_kernel kernel =
                n_rows <= WHOLE ? find_micro_kernel<T, PARTS_OF_PANEL>(n, std::make_integer_sequence<int, WHOLE>())
                                : find_micro_kernel<T, 1>(n, std::make_integer_sequence<int, simd::ROWS>());
            kernel(call, part, r);
            r += n;
        }
    }
}

inline packed_gemm_kernel find_packed_gemm(ggml_type type) {
    return with_weight_type(
        type, (packed_gemm_kernel) nullptr, [](auto t) -> packed_gemm_kernel { return packed_gemm<decltype(t)>; });
}

// The common interface of the vector headers. vectors_<set>.h is included into a namespace of each set (and of each
// variant of it, see isa/kernels.h), followed by the kernel templates. Before that, isa/<set>.cpp defines
// ISA_ATTRIBUTE: the function attribute that lets the compiler use the set.
//
// `simd`, types:
//   f32, i32, i64, f16, u8, i16   a vector of W floats, W int32, W int64 in fixed point, 2 W halves, 4 W bytes (4 inner
//                                 positions of W neighbouring columns), W pairs of int16
// constants:
//   W                             floats in a vector
//   ROWS                          most rows for W columns at once: a row needs two accumulators (an integer and a
//                                 float), and they must fit into the registers beside the weights
//   PARTS_AT_ONCE[3]                with 1, 2 and 3 rows, how many parts of W columns at once: in a single chain of
//                                 dot products each waits for the sum of the one before, 4 to 5 clocks with VNNI
//   SIGNED_WEIGHTS                dot products take signed weights; if not, unsigned ones (whole bytes: with 128 added)
// floats:
//   load_f32, load_f16, load_bf16, load_e8m0 (W scales of MXFP4), store, set1, mul, max
//   fma (a * b + c), fnma (c - a * b), to_f32 (converts int32), as_f32 (the bits of int32)
//   exp                           0 below -87
//   reduce_max, reduce_add        of one vector; reduce_add always adds in the same order
//   transpose                     W rows of W floats into W columns; strides in floats
// fixed-point sums, which do not depend on their order:
//   zero_i64, add_fixed_point (adds p * 2^40, rounded), reduce_add
// halves, in 128-bit lanes of 8:
//   load_rows_f16                 rows 0, 8, 16, ... of 8 halves, a row for each lane; the stride in halves
//   zip_low_N, zip_high_N         within a lane, N-bit values of the lower or upper halves of two vectors alternately
//   store_f16
// bytes and integers:
//   load_u8, flip_sign (xor 0x80), low_nibbles, high_nibbles, bit_or, lookup (in a table of 16 signed bytes)
//   shift_and_mask<N>             16-bit shift to the left by N (negative: to the right), then and with a mask
//   load_u8_as_i32 (W bytes), load_pairs_u8, load_pairs_s8 (W pairs), even_of_pairs, odd_of_pairs (as int32)
//   low_nibbles_of_pairs, high_nibbles_of_pairs (of int16 below 256)
//   dot_pairs                     adds the dot products of W pairs with one pair
//   mul_add (a + b * c), sub_shifted<N> (a - 2^N * b)
// `dot_products<R>`: int32 accumulators of R rows with W columns:
//   set(r, value), row(r)
//   add<FULL_BYTES>(w0, w1, a, at)   8 inner positions: two vectors of weights against a[r] + at. FULL_BYTES: weights
//                                 use all 8 bits

#pragma once

#include "cpu/gemm/weight_types.h"

#if defined(__x86_64__)
#include "cpu/isa/features_x86.h"
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"   // in gcc's own intrinsics (bug 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#else
#include "cpu/isa/features_arm.h"

#include <arm_neon.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#define ISA_FUNCTION      ISA_ATTRIBUTE static
#define ISA_INLINE        ISA_ATTRIBUTE __attribute__((always_inline)) static inline
#define ISA_INLINE_MEMBER ISA_ATTRIBUTE __attribute__((always_inline)) inline

// exp(x) = 2^n e^r, |r| <= ln 2 / 2, with a polynomial fitted for minimal relative error (1.4 units of 2^-24)
#define DFLASH_EXP_POLYNOMIAL(fma, set1, r)                                                               \
    fma(fma(fma(fma(fma(fma(set1(0x1.6a2352p-10f), r, set1(0x1.123a6cp-7f)), r, set1(0x1.5558f4p-5f)), r, \
                    set1(0x1.555490p-3f)),                                                                \
                r, set1(0x1.fffffcp-2f)),                                                                 \
            r, set1(1.0f)),                                                                               \
        r, set1(1.0f))

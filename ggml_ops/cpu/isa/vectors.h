// What the vectors of all instruction sets share. simd_<set>.h defines SIMD and SIMD_INLINE (attributes of functions
// that are compiled for the set) and `simd`, inside the namespace that includes it:
//   f, W             a vector of W floats
//   ROWS             rows (each against two vectors) whose sums the registers hold
//   load, half, bfloat, store, set1, mul, fma (a b + c), max
//   exp              0 below -87
//   greatest, sum    of one vector; sum always adds in the same order
//   integers, zero, fixed (adds p * 2^40, rounded), total
//   transpose        W rows of W floats into W columns; strides in floats
//   h                a vector of 2 W halves, in lanes of 8
//   rows             rows 0, 8, 16, ... of 8 halves, one a lane; the stride in halves
//   low_N, high_N    within a lane, the N-bit values of the low or high halves of two vectors in turns; store_halves

#pragma once

// exp(x) = 2^n e^r, |r| <= ln 2 / 2: a polynomial fitted for the least relative error (1.4 units of 2^-24)
#define DFLASH_EXP_POLYNOMIAL(fma, set1, r)                                                               \
    fma(fma(fma(fma(fma(fma(set1(0x1.6a2352p-10f), r, set1(0x1.123a6cp-7f)), r, set1(0x1.5558f4p-5f)), r, \
                    set1(0x1.555490p-3f)),                                                                \
                r, set1(0x1.fffffcp-2f)),                                                                 \
            r, set1(1.0f)),                                                                               \
        r, set1(1.0f))

// What each vector header defines (vectors.h). It includes this at its end, so that the compiler checks it. W: floats
// in a vector. With ISA_DOTPROD 0 a set has floats and halves alone.

// The operand of noexcept is compiled and not evaluated, so no code comes from it.
#define ISA_DEFINES(RESULT, FUNCTION, ...) \
    static_assert(noexcept(static_cast<RESULT (*)(__VA_ARGS__)>(simd::FUNCTION)), "simd::" #FUNCTION)

struct simd_interface {
    // ---- types: one vector each ----

    using f32 = simd::f32;   // W floats
    using i32 = simd::i32;   // W int32
    using i64 = simd::i64;   // W / 2 int64 in fixed point
    using f16 = simd::f16;   // 2 * W halves
    using u8  = simd::u8;    // 4 * W bytes: 4 inner positions of W neighbouring columns
    using i16 = simd::i16;   // W pairs of int16

    // ---- constants ----

    static constexpr int W = simd::W;
    static_assert(sizeof(f32) == 4 * W && sizeof(i32) == 4 * W && sizeof(i64) == 4 * W);
    static_assert(sizeof(f16) == 4 * W && sizeof(u8) == 4 * W && sizeof(i16) == 4 * W);
    // Most rows for W columns at once: a row needs two accumulators (an integer and a float), and they must fit into
    // the registers beside the weights.
    static_assert(simd::ROWS > 0);
    // Dot products take signed weights; if not, unsigned ones (whole bytes: with 128 added).
    static_assert(std::is_same_v<decltype(simd::SIGNED_WEIGHTS), const bool>);

    // ---- floats ----

    ISA_DEFINES(f32, load_f32, const float *);
    ISA_DEFINES(f32, load_f16, const ggml_fp16_t *);
    ISA_DEFINES(f32, load_bf16, const uint16_t *);
    ISA_DEFINES(void, store, float *, f32);
    ISA_DEFINES(f32, set1, float);
    ISA_DEFINES(f32, mul, f32, f32);
    ISA_DEFINES(f32, fma, f32, f32, f32);   // a * b + c
    ISA_DEFINES(f32, max, f32, f32);
    ISA_DEFINES(f32, hide, f32, f32);   // the second, but minus infinity where the first (the mask) is
    ISA_DEFINES(f32, exp, f32);         // 0 below -87, NaN of NaN
    ISA_DEFINES(float, reduce_max, f32);
    ISA_DEFINES(float, reduce_add, f32);   // always in the same order
    // W rows of W floats into W columns; strides in floats
    ISA_DEFINES(void, transpose, const float *, int64_t, float *, int64_t);

    // ---- fixed-point sums, which do not depend on their order ----

    ISA_DEFINES(i64, zero_i64, void);
    ISA_DEFINES(i64, add_fixed_point, i64, f32);   // adds p * 2^40, rounded
    ISA_DEFINES(int64_t, reduce_add, i64);         // wraps around: a NaN has been added as any number

    // ---- halves, in 128-bit lanes of 8 ----

    // rows 0, 8, 16, ... of 8 halves, a row for each lane; the stride in halves
    ISA_DEFINES(f16, load_rows_f16, const ggml_fp16_t *, int64_t);
    // within a lane, values of 16, 32 or 64 bits of the lower or upper halves of two vectors alternately
    ISA_DEFINES(f16, zip_low_16, f16, f16);
    ISA_DEFINES(f16, zip_high_16, f16, f16);
    ISA_DEFINES(f16, zip_low_32, f16, f16);
    ISA_DEFINES(f16, zip_high_32, f16, f16);
    ISA_DEFINES(f16, zip_low_64, f16, f16);
    ISA_DEFINES(f16, zip_high_64, f16, f16);
    ISA_DEFINES(void, store_f16, ggml_fp16_t *, f16);

#if !defined(ISA_DOTPROD) || ISA_DOTPROD

    // ---- bytes ----

    ISA_DEFINES(u8, load_u8, const uint8_t *);
    ISA_DEFINES(u8, flip_sign, u8);   // xor 0x80
    ISA_DEFINES(u8, low_nibbles, u8);
    ISA_DEFINES(u8, high_nibbles, u8);
    ISA_DEFINES(u8, bit_or, u8, u8);
    ISA_DEFINES(u8, lookup, const int8_t *, u8);   // in a table of 16 signed bytes
    // <N>: a 16-bit shift to the left by N (negative: to the right), then and with a mask
    ISA_DEFINES(u8, shift_and_mask<1>, u8, char);

    // ---- integers ----

    ISA_DEFINES(f32, load_e8m0, const uint8_t *);   // W scales of MXFP4
    ISA_DEFINES(i32, load_u8_as_i32, const uint8_t *);
    ISA_DEFINES(i16, load_pairs_u8, const uint8_t *);
    ISA_DEFINES(i16, load_pairs_s8, const int8_t *);
    ISA_DEFINES(i32, even_of_pairs, i16);
    ISA_DEFINES(i32, odd_of_pairs, i16);
    ISA_DEFINES(i16, low_nibbles_of_pairs, i16);   // of int16 below 256
    ISA_DEFINES(i16, high_nibbles_of_pairs, i16);
    ISA_DEFINES(i32, dot_pairs, i32, i16, const int16_t *);   // adds the dot products of W pairs with one pair
    ISA_DEFINES(i32, mul_add, i32, i32, i32);                 // a + b * c
    ISA_DEFINES(i32, sub_shifted<1>, i32, i32);               // <N>: a - 2^N * b
    ISA_DEFINES(f32, to_f32, i32);                            // converts
    ISA_DEFINES(f32, as_f32, i32);                            // the bits
    ISA_DEFINES(f32, fnma, f32, f32, f32);                    // c - a * b

    // ---- dot_products<R>: int32 accumulators of R rows with W columns ----

    using three_rows = dot_products<3>;
    static_assert(noexcept(static_cast<void (three_rows::*)(int, int32_t)>(&three_rows::set)));
    static_assert(noexcept(static_cast<i32 (three_rows::*)(int) const>(&three_rows::row)));
    // <FULL_BYTES>(w0, w1, a, at): 8 inner positions, two vectors of weights against a[r] + at. FULL_BYTES: weights use
    // all 8 bits.
    static_assert(
        noexcept(static_cast<void (three_rows::*)(u8, u8, const int8_t * const *, int64_t)>(&three_rows::add<true>)));

#endif
};

#undef ISA_DEFINES

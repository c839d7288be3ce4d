// The weight types that have our own kernels, one record each. Packing, quantization of activations, the kernels of all
// instruction sets and the choice between them read these records and select their code by the panel's layout.
//
// A panel holds 16 rows of the weight matrix (16 columns of the result) over the whole inner dimension, block after
// block. Within a block the same 4 inner positions of all 16 columns are contiguous: one 64-byte load feeds one dot
// product of 4 bytes in 16 columns, and what is loaded and unpacked once serves every row of the pass. All integers are
// those of ggml's format in another order. Weights that a product needs as unsigned are stored with an offset, which
// the sums of the activations cancel (quantize_rows.h).

#pragma once

#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"
#include "ggml.h"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace dflash {

constexpr int PANEL = 16;   // columns

// ---- layouts: one block of a panel; SIZE: its inner positions ----

// What the integers of 32 positions are multiplied with: a scale, or a scale and a minimum to be added.
template <class Scale> struct scales_of_32 {
    Scale d[PANEL];
};
struct scales_and_minima_of_32 {
    ggml_half d[PANEL], min[PANEL];
};

// LINES 4: nibbles, [i][4 * column + j]: the low nibble is inner position 4 * i + j, the high nibble 16 more.
// LINES 8: bytes, [i][4 * column + j].
template <class Scales, int LINES> struct panel_of_32 : Scales {
    static constexpr int SIZE = 32;
    uint8_t              q[LINES][64];
};

template <class Scales> struct panel_of_32_with_fifth_bits : panel_of_32<Scales, 4> {   // q: the low nibbles
    uint8_t h[64];   // [4 * column + j]: bit g is the fifth bit of inner position 4 * g + j
};

struct panel_q4_K {   // 8 sub-blocks of 32
    static constexpr int SIZE = 256;
    ggml_half            d[PANEL], dmin[PANEL];
    uint8_t              scale[8][PANEL];
    uint8_t              min[4][PANEL][2];   // of two neighbouring sub-blocks
    uint8_t              q[8][4][64];        // nibbles, as in panel_of_32, per sub-block
};

struct panel_q5_K : panel_q4_K {   // q: the low nibbles
    uint8_t h[8][64];              // [s][4 * column + j]: bit g is the fifth bit of inner position 4 * g + j
};

// Sub-blocks of SUB positions, with a signed scale each.
template <int SUB> struct panel_scaled {
    static constexpr int SIZE = 256;
    ggml_half            d[PANEL];
    int8_t               scale[128 / SUB][PANEL][2];   // of two neighbouring sub-blocks
};

struct panel_q6_K : panel_scaled<16> {
    // value + 32, low 4 bits, [s][i][4 * column + j]: low nibble inner position 4 * i + j, high nibble 8 more
    uint8_t q[16][2][64];
    uint8_t h[16][64];   // [s][4 * column + j]: bits 2 * g, 2 * g + 1 are the upper two of inner position 4 * g + j
};

struct panel_q3_K : panel_scaled<16> {
    // value + 4, [s][4 * column + j]: bits 2 * g, 2 * g + 1 are the lower two of inner position 4 * g + j
    uint8_t q[16][64];
    uint8_t h[8][64];   // of two neighbouring sub-blocks: bit g is the upper one of inner position 4 * g + j
};

// Nibbles that stand for the record's VALUES, [s][i][4 * column + j]: low nibble inner position 4 * i + j, high nibble
// SUB / 2 more.
template <int SUB> struct panel_values : panel_scaled<SUB> {
    uint8_t q[256 / SUB][SUB / 8][64];
};

struct panel_q2_K {   // 16 sub-blocks of 16
    static constexpr int SIZE = 256;
    ggml_half            d[PANEL], dmin[PANEL];
    uint8_t scale[8][PANEL][2];   // low nibbles: scales, high nibbles: minima, of two neighbouring sub-blocks
    uint8_t q[16][64];            // as in panel_q3_K
};

// ---- records ----

// The bits of 1.5 * 2^23 as a float. An integer accumulator that starts there, read as a float, is 1.5 * 2^23 plus its
// sum (which stays below 2^22): no conversion is needed.
constexpr int32_t BITS_OF_1_5_2_23 = 0x4b400000;

// The members of a record, with the usual values:
//   TYPE, block, panel   ggml's type, one block of its rows, and the layout of 16 such blocks
//   ZERO_POINT           the stored weight that means 0: cancelled by the initial sums of a row (a scale per 32
//                        positions), or by its sums times the scales (panel_scaled; a power of two)
//   FULL_BYTES           stored weights, or the values of nibbles, use all 8 bits
//   SUM_BIAS             the initial sum of a block, for types with a scale per 32 positions
//   VALUES               the values of the 16 nibbles; null: the nibble minus ZERO_POINT
//   D_FACTOR             what d is multiplied by, a power of two (panel_scaled)
//   FILLS_CACHE_1        its panels leave L1 no room: passes of more than two rows prefetch them into L2 (measured)
//   TILE_ROWS            number of rows from which AMX tiles are faster (measured, docs/kernels.md)
template <ggml_type T, class Block, class Panel> struct weight_type {
    using block                                = Block;
    using panel                                = Panel;
    static constexpr ggml_type      TYPE       = T;
    static constexpr int            ZERO_POINT = 0;
    static constexpr bool           FULL_BYTES = false, FILLS_CACHE_1 = false;
    static constexpr int32_t        SUM_BIAS  = BITS_OF_1_5_2_23;
    static constexpr std::nullptr_t VALUES    = nullptr;
    static constexpr float          D_FACTOR  = 1;
    static constexpr int            TILE_ROWS = 9;
};

struct q4_0 : weight_type<GGML_TYPE_Q4_0, block_q4_0, panel_of_32<scales_of_32<ggml_half>, 4>> {
    static constexpr int ZERO_POINT = 8;
};

struct q4_1 : weight_type<GGML_TYPE_Q4_1, block_q4_1, panel_of_32<scales_and_minima_of_32, 4>> {};

struct q5_0 : weight_type<GGML_TYPE_Q5_0, block_q5_0, panel_of_32_with_fifth_bits<scales_of_32<ggml_half>>> {
    static constexpr int ZERO_POINT = 16;
};

struct q5_1 : weight_type<GGML_TYPE_Q5_1, block_q5_1, panel_of_32_with_fifth_bits<scales_and_minima_of_32>> {};

struct iq4_nl : weight_type<GGML_TYPE_IQ4_NL, block_iq4_nl, panel_of_32<scales_of_32<ggml_half>, 4>> {
    static constexpr int    ZERO_POINT = 128;
    static constexpr bool   FULL_BYTES = true;
    static constexpr int8_t VALUES[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
};

// Scales are exponents.
struct mxfp4 : weight_type<GGML_TYPE_MXFP4, block_mxfp4, panel_of_32<scales_of_32<uint8_t>, 4>> {
    static constexpr int     ZERO_POINT = 12;
    static constexpr int32_t SUM_BIAS   = 0;   // scales can be too large for the usual one
    static constexpr int8_t  VALUES[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };
};

struct q8_0 : weight_type<GGML_TYPE_Q8_0, block_q8_0, panel_of_32<scales_of_32<ggml_half>, 8>> {
    static constexpr int  ZERO_POINT = 128, TILE_ROWS = 8;
    static constexpr bool FULL_BYTES = true, FILLS_CACHE_1 = true;
};

struct q4_K : weight_type<GGML_TYPE_Q4_K, block_q4_K, panel_q4_K> {
    static constexpr int TILE_ROWS = 4;
};

struct q5_K : weight_type<GGML_TYPE_Q5_K, block_q5_K, panel_q5_K> {
    static constexpr int TILE_ROWS = 2;
};

struct q6_K : weight_type<GGML_TYPE_Q6_K, block_q6_K, panel_q6_K> {
    static constexpr int ZERO_POINT = 32;
};

struct q2_K : weight_type<GGML_TYPE_Q2_K, block_q2_K, panel_q2_K> {
    static constexpr int TILE_ROWS = 4;
};

struct q3_K : weight_type<GGML_TYPE_Q3_K, block_q3_K, panel_q3_K> {
    static constexpr int ZERO_POINT = 4, TILE_ROWS = 8;
};

struct iq4_xs : weight_type<GGML_TYPE_IQ4_XS, block_iq4_xs, panel_values<32>> {
    static constexpr int          ZERO_POINT = 128;
    static constexpr bool         FULL_BYTES = true;
    static constexpr const auto & VALUES     = iq4_nl::VALUES;
};

// Types with a codebook: packing looks their weights up, and stores each as one of at most 16 values. Scales are the
// odd integers 2 * s + 1; where ggml's are s + 0.5, D_FACTOR has the half.

struct iq3_s : weight_type<GGML_TYPE_IQ3_S, block_iq3_s, panel_values<32>> {
    static constexpr int    ZERO_POINT = 16;
    static constexpr int8_t VALUES[16] = { 1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15 };
};

struct iq3_xxs : weight_type<GGML_TYPE_IQ3_XXS, block_iq3_xxs, panel_values<32>> {
    static constexpr int    ZERO_POINT = 128;
    static constexpr bool   FULL_BYTES = true;
    static constexpr int8_t VALUES[16] = { 4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62 };
    static constexpr float  D_FACTOR   = 0.25f;
};

template <ggml_type T, class Block, int SUB> struct iq2 : weight_type<T, Block, panel_values<SUB>> {
    static constexpr int    ZERO_POINT = 128;
    static constexpr bool   FULL_BYTES = true;
    static constexpr int8_t VALUES[16] = { 8, 25, 43, 0, 0, 0, 0, 0, -8, -25, -43 };
    static constexpr float  D_FACTOR   = 0.125f;
};
struct iq2_s : iq2<GGML_TYPE_IQ2_S, block_iq2_s, 16> {
    static constexpr int TILE_ROWS = 8;
};
struct iq2_xs : iq2<GGML_TYPE_IQ2_XS, block_iq2_xs, 16> {
    static constexpr int TILE_ROWS = 8;
};
struct iq2_xxs : iq2<GGML_TYPE_IQ2_XXS, block_iq2_xxs, 32> {};

// 0, 1 or (at 3) -1, plus or (from 8 on) minus IQ1S_DELTA; in eighths.
template <ggml_type T, class Block, int SUB> struct iq1 : weight_type<T, Block, panel_values<SUB>> {
    static constexpr int    ZERO_POINT = 16;
    static constexpr int8_t VALUES[16] = { 1, 9, 0, -7, 0, 0, 0, 0, -1, 7, 0, -9 };
    static constexpr float  D_FACTOR   = 0.125f;
};
struct iq1_s : iq1<GGML_TYPE_IQ1_S, block_iq1_s, 32> {};
struct iq1_m : iq1<GGML_TYPE_IQ1_M, block_iq1_m, 16> {
    static constexpr int TILE_ROWS = 8;
};

// Ternary: all scales and minima of Q2_K are 1.
struct tq1_0 : weight_type<GGML_TYPE_TQ1_0, block_tq1_0, panel_q2_K> {
    static constexpr int TILE_ROWS = 4;
};
struct tq2_0 : weight_type<GGML_TYPE_TQ2_0, block_tq2_0, panel_q2_K> {
    static constexpr int TILE_ROWS = 4;
};

template <class... T> struct type_list {};
using weight_types = type_list<q4_0, q4_1, q5_0, q5_1, iq4_nl, mxfp4, q8_0, q4_K, q5_K, q6_K, q2_K, q3_K, iq4_xs, iq3_s,
    iq3_xxs, iq2_s, iq2_xs, iq2_xxs, iq1_s, iq1_m, tq1_0, tq2_0>;

// Calls f(record) for every record.
template <class F, class... T> void for_each_weight_type(const F & f, type_list<T...>) { (f(T()), ...); }
template <class F> void             for_each_weight_type(const F & f) { for_each_weight_type(f, weight_types()); }

// f(record of the type), or `otherwise` if there is none.
template <class R, class F> R with_weight_type(ggml_type type, R otherwise, const F & f) {
    for_each_weight_type([&](auto record) {
        if (record.TYPE == type) {
            otherwise = f(record);
        }
    });
    return otherwise;
}

constexpr int log2_of(int power_of_two) { return power_of_two <= 1 ? 0 : 1 + log2_of(power_of_two / 2); }

template <class T> constexpr bool HAS_VALUES = std::is_array_v<std::remove_reference_t<decltype(T::VALUES)>>;
// A minimum per 32 positions.
template <class T> constexpr bool HAS_MINIMA_OF_32 = std::is_base_of_v<scales_and_minima_of_32, typename T::panel>;

// VALUES plus an offset, for kernels with table look-ups.
template <class T, int OFFSET> struct nibble_values {
    alignas(16) int8_t at[16] = {};
    constexpr nibble_values() {
        for (int i = 0; i < 16; ++i) {
            at[i] = (int8_t) (T::VALUES[i] + OFFSET);
        }
    }
};
template <class T, int OFFSET> alignas(16) constexpr nibble_values<T, OFFSET> NIBBLE_VALUES;

}   // namespace dflash

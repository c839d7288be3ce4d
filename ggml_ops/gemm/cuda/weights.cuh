// Quantized weights as operands of tensor cores: what a lane of a warp unpacks of a row of the weight matrix.
//
// A *chunk* is 256 weights of a row, whatever the type's block is. A lane (g = lane / 4, t = lane % 4) has 64 weights
// of a chunk of row g, in eight *groups* of eight. A group is two operands of mma.m16n8k16: four weights whose values
// of k follow each other (`place_of`) as the pairs (0, 2) and (1, 3), because bytes 0 and 2 of a word become a pair of
// halves with one mask. The rows of the pass are laid out to match (activations.cuh).
//
// An unsigned integer of up to 10 bits under the bits 0x6400 is the half 1024 + q, so unpacking needs no conversion. A
// weight is then one multiply-add, q * s = (1024 + q) * s - 1024 * s, which rounds once because 1024 * s is exact.
// Weights are multiplied by WEIGHT_SCALE so that small ones do not become denormal halves.

#pragma once

#include "gemm/cuda/intrinsics.cuh"

enum class few_rows_type { q4_K, q5_K, q6_K, q8_0, q4_0, q4_1, iq4_xs };

constexpr int   CHUNK        = 256;
constexpr float WEIGHT_SCALE = 64.0f;
constexpr float MIN_SCALE    = 8.0f;   // sums of values are divided by it, and mins multiplied

// Which values of k a lane's groups have, and in which of a group's two operands: as the types' blocks ask for it.
enum class k_order { halves_of_64, halves_of_32, strides_of_32 };

// Of the four values from k on (a multiple of 4).
template <k_order order> static __device__ __forceinline__ void place_of(int k, int & group, int & t, int & second) {
    const int sub_block = k % CHUNK / 32, four = k / 4 % 8;
    if (order == k_order::strides_of_32) {
        t      = four / 2;
        group  = 4 * (sub_block / 4) + 2 * (four % 2) + sub_block / 2 % 2;
        second = sub_block % 2;
    } else {
        t      = sub_block / 2;
        group  = order == k_order::halves_of_64 ? four : 4 * (sub_block % 2) + four % 4;
        second = order == k_order::halves_of_64 ? sub_block % 2 : four / 4;
    }
}

constexpr half_pair MAGIC = 0x64006400;   // 1024, 1024

// The bytes b0 to b3 of a word as 1024 + b: pairs (b0, b2) and (b1, b3).
static __device__ __forceinline__ half_pair bytes_02(uint32_t x) { return choose_bytes(x, MAGIC, 0x7250); }
static __device__ __forceinline__ half_pair bytes_13(uint32_t x) { return choose_bytes(x, MAGIC, 0x7351); }
static __device__ __forceinline__ half_pair twice_low(half_pair x) { return choose_bytes(x, x, 0x1010); }
static __device__ __forceinline__ half_pair twice_high(half_pair x) { return choose_bytes(x, x, 0x3232); }

// Words that begin `by` bits, 0 or 16, behind an aligned address. Reads up to four bytes behind them. (An address
// computed as an integer would no longer be one of shared memory.)
template <int n>
static __device__ __forceinline__ void read_shifted(uint32_t (&words)[n], const char * aligned, uint32_t by) {
    const uint32_t * const from = (const uint32_t *) aligned;
    uint32_t               low  = from[0];
#pragma unroll
    for (int i = 0; i < n; ++i) {
        const uint32_t high = from[i + 1];
        words[i]            = shift_right(low, high, by);
        low                 = high;
    }
}
// The same at an even number of bytes behind it.
template <int n> static __device__ __forceinline__ void read_at(uint32_t (&words)[n], const char * aligned, int byte) {
    read_shifted(words, aligned + (byte & ~3), 8 * (byte & 3));
}

static __device__ __forceinline__ void read_words(uint32_t (&words)[4], const uint4 x) {
    words[0] = x.x;
    words[1] = x.y;
    words[2] = x.z;
    words[3] = x.w;
}

static __device__ __forceinline__ half_pair read_half_twice(const char * address) {
    const uint32_t half = *(const uint16_t *) address;
    return half | half << 16;
}

// A lane's part of a chunk, which begins `at` bytes behind a multiple of 4: load() reads its scales, load_half() the
// weights of groups 4 * half to 4 * half + 3, and group() unpacks the i-th of these: operands {(0, 2), (1, 3)} x
// {first, second}. BYTES: of a chunk. MINS: the weights are q * scale - min, and mins() gives those of the lane's
// sub-blocks of 32 weights, 2t and 2t + 1, negative and times MIN_SCALE.
template <few_rows_type type> struct lane_weights;

static __device__ __forceinline__ half_pair both(float x) { return pair_of(x, x); }

// Scales and mins of 6 bits: those of a lane's two sub-blocks.
struct scales_of_k_quants {
    half_pair scales, mins;

    // header: d, dmin, then 12 bytes (get_scale_min_k4() in ggml's quants.c).
    __device__ __forceinline__ void load(const uint4 header, int t) {
        const int       by  = 16 * (t & 1);
        const uint32_t  low = header.y >> by, middle = header.z >> by, high = header.w >> by;
        const uint32_t  scale = t < 2 ? low & 0x3f3f : (high & 0x0f0f) | (low >> 2 & 0x3030);
        const uint32_t  min   = t < 2 ? middle & 0x3f3f : (high >> 4 & 0x0f0f) | (middle >> 2 & 0x3030);
        const half_pair d     = pair_mul(header.x, pair_of(WEIGHT_SCALE, -WEIGHT_SCALE * MIN_SCALE));
        scales                = pair_mul(pair_add(choose_bytes(scale, MAGIC, 0x7150), both(-1024.0f)), twice_low(d));
        mins                  = pair_mul(pair_add(choose_bytes(min, MAGIC, 0x7150), both(-1024.0f)), twice_high(d));
    }
};

template <> struct lane_weights<few_rows_type::q4_K> {
    static constexpr int     BYTES = 144;
    static constexpr k_order ORDER = k_order::halves_of_64;
    static constexpr bool    MINS  = true;

    uint32_t           quants[4];
    half_pair          scale[2], offset[2];
    scales_of_k_quants all;

    __device__ __forceinline__ void load(const char * chunk, int, int t) {
        all.load(*(const uint4 *) chunk, t);
        scale[0]  = twice_low(all.scales);
        scale[1]  = pair_mul(twice_high(all.scales), both(0.0625f));   // the second operand's integers are 16 * q
        offset[0] = pair_mul(scale[0], both(-1024.0f));
        offset[1] = pair_mul(scale[1], both(-1024.0f));
    }
    __device__ __forceinline__ void load_half(const char * chunk, int, int t, int half) {
        read_words(quants, ((const uint4 *) chunk)[1 + 2 * t + half]);
    }
    __device__ __forceinline__ half_pair mins() const { return all.mins; }
    __device__ __forceinline__ void      group(int, int i, half_pair (&out)[4]) const {
        const uint32_t even = quants[i], odd = quants[i] >> 8;
        out[0] = pair_fma(masked(even, 0x000f000f, MAGIC), scale[0], offset[0]);
        out[1] = pair_fma(masked(odd, 0x000f000f, MAGIC), scale[0], offset[0]);
        out[2] = pair_fma(masked(even, 0x00f000f0, MAGIC), scale[1], offset[1]);
        out[3] = pair_fma(masked(odd, 0x00f000f0, MAGIC), scale[1], offset[1]);
    }
};

template <> struct lane_weights<few_rows_type::q5_K> {
    static constexpr int     BYTES = 176;
    static constexpr k_order ORDER = k_order::halves_of_64;
    static constexpr bool    MINS  = true;

    uint32_t           quants[4], fifth[4];   // of fifth, all eight sub-blocks': a lane's are bits 2t and 2t + 1
    int                t;
    half_pair          scale[2], offset[2];
    scales_of_k_quants all;

    __device__ __forceinline__ void load(const char * chunk, int, int lane_t) {
        t = lane_t;
        all.load(*(const uint4 *) chunk, t);
        scale[0]  = twice_low(all.scales);
        scale[1]  = twice_high(all.scales);
        offset[0] = pair_mul(scale[0], both(-1024.0f));
        offset[1] = pair_mul(scale[1], both(-1024.0f));
    }
    __device__ __forceinline__ void load_half(const char * chunk, int, int, int half) {
        read_words(fifth, ((const uint4 *) chunk)[1 + half]);
        read_words(quants, ((const uint4 *) chunk)[3 + 2 * t + half]);
    }
    __device__ __forceinline__ half_pair mins() const { return all.mins; }
    __device__ __forceinline__ void      group(int, int i, half_pair (&out)[4]) const {
        const uint32_t bits   = fifth[i] >> 2 * t;
        const uint32_t first  = (quants[i] & 0x0f0f0f0f) | (bits << 4 & 0x10101010);
        const uint32_t second = (quants[i] >> 4 & 0x0f0f0f0f) | (bits << 3 & 0x10101010);
        out[0]                = pair_fma(bytes_02(first), scale[0], offset[0]);
        out[1]                = pair_fma(bytes_13(first), scale[0], offset[0]);
        out[2]                = pair_fma(bytes_02(second), scale[1], offset[1]);
        out[3]                = pair_fma(bytes_13(second), scale[1], offset[1]);
    }
};

template <> struct lane_weights<few_rows_type::q6_K> {
    static constexpr int     BYTES = 210;
    static constexpr k_order ORDER = k_order::strides_of_32;
    static constexpr bool    MINS  = false;

    uint32_t  low[2][2], high[2];   // by word
    half_pair scale[2][2];          // of this half's four sub-blocks of 32, for the lane's part of them
    half_pair d;

    __device__ __forceinline__ void load(const char * chunk, int at, int) {
        d = pair_mul(read_half_twice(chunk + at + 208), both(WEIGHT_SCALE));
    }
    __device__ __forceinline__ void load_half(const char * chunk, int at, int t, int half) {
        const uint32_t by = 8 * at;
        read_shifted(low[0], chunk + 64 * half + 8 * t, by);
        read_shifted(low[1], chunk + 64 * half + 32 + 8 * t, by);
        read_shifted(high, chunk + 128 + 32 * half + 8 * t, by);
        uint32_t scales[2];   // of 16 weights each, signed bytes: the lane has every second one
        read_shifted(scales, chunk + 192 + 8 * half, by);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint32_t  two  = (scales[i] ^ 0x80808080) >> 8 * (t / 2);
            const half_pair pair = pair_mul(pair_add(masked(two, 0x00ff00ff, MAGIC), both(-1152.0f)), d);
            scale[i][0]          = twice_low(pair);
            scale[i][1]          = twice_high(pair);
        }
    }
    __device__ __forceinline__ half_pair mins() const { return 0; }
    __device__ __forceinline__ void      group(int, int i, half_pair (&out)[4]) const {
        const int       word = i / 2, upper = i % 2;   // upper: the nibbles above
        const half_pair zero   = both(-1056.0f);       // 1024 + 32
        const uint32_t  bits   = high[word] >> 4 * upper;
        const uint32_t  first  = (low[0][word] >> 4 * upper & 0x0f0f0f0f) | (bits << 4 & 0x30303030);
        const uint32_t  second = (low[1][word] >> 4 * upper & 0x0f0f0f0f) | (bits << 2 & 0x30303030);
        out[0]                 = pair_mul(pair_add(bytes_02(first), zero), scale[upper][0]);
        out[1]                 = pair_mul(pair_add(bytes_13(first), zero), scale[upper][0]);
        out[2]                 = pair_mul(pair_add(bytes_02(second), zero), scale[upper][1]);
        out[3]                 = pair_mul(pair_add(bytes_13(second), zero), scale[upper][1]);
    }
};

// Blocks of 32 weights behind a scale: two of them are a lane's.
template <> struct lane_weights<few_rows_type::q8_0> {
    static constexpr int     BYTES = 8 * 34;
    static constexpr k_order ORDER = k_order::halves_of_64;
    static constexpr bool    MINS  = false;

    uint32_t  quants[2][4];
    half_pair scale[2];

    __device__ __forceinline__ void load(const char * chunk, int at, int t) {
        scale[0] = pair_mul(read_half_twice(chunk + at + 68 * t), both(WEIGHT_SCALE));
        scale[1] = pair_mul(read_half_twice(chunk + at + 68 * t + 34), both(WEIGHT_SCALE));
    }
    __device__ __forceinline__ void load_half(const char * chunk, int at, int t, int half) {
        read_at(quants[0], chunk, at + 68 * t + 2 + 16 * half);
        read_at(quants[1], chunk, at + 68 * t + 36 + 16 * half);
    }
    __device__ __forceinline__ half_pair mins() const { return 0; }
    __device__ __forceinline__ void      group(int, int i, half_pair (&out)[4]) const {
        const half_pair zero = both(-1152.0f);   // 1024 + 128
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const uint32_t x = quants[j][i] ^ 0x80808080;
            out[2 * j]       = pair_mul(pair_add(bytes_02(x), zero), scale[j]);
            out[2 * j + 1]   = pair_mul(pair_add(bytes_13(x), zero), scale[j]);
        }
    }
};

// Nibbles: the first 16 weights of a block are the lower ones. A half is a block. q4_1 has a min, which is added.
template <bool has_min> struct lane_nibbles {
    static constexpr int     BLOCK = has_min ? 20 : 18;
    static constexpr int     BYTES = 8 * BLOCK;
    static constexpr k_order ORDER = k_order::halves_of_32;
    static constexpr bool    MINS  = has_min;

    uint32_t  quants[4];
    half_pair scale, minima;

    __device__ __forceinline__ void load(const char * chunk, int at, int t) {
        if (has_min) {
            const uint32_t first  = *(const uint16_t *) (chunk + at + 2 * t * BLOCK + 2);
            const uint32_t second = *(const uint16_t *) (chunk + at + (2 * t + 1) * BLOCK + 2);
            minima                = pair_mul(first | second << 16, both(WEIGHT_SCALE * MIN_SCALE));
        }
    }
    __device__ __forceinline__ void load_half(const char * chunk, int at, int t, int half) {
        const int block = at + (2 * t + half) * BLOCK;
        read_at(quants, chunk, block + BLOCK - 16);
        scale = pair_mul(read_half_twice(chunk + block), both(WEIGHT_SCALE));
    }
    __device__ __forceinline__ half_pair mins() const { return minima; }
    __device__ __forceinline__ void      group(int, int i, half_pair (&out)[4]) const {
        const uint32_t  x = quants[i], y = quants[i] >> 8;
        const half_pair one = both(1.0f), part = both(0.0625f);
        const half_pair first = both(has_min ? -1024.0f : -1032.0f), second = both(has_min ? -64.0f : -72.0f);
        out[0] = pair_mul(pair_fma(masked(x, 0x000f000f, MAGIC), one, first), scale);
        out[1] = pair_mul(pair_fma(masked(y, 0x000f000f, MAGIC), one, first), scale);
        out[2] = pair_mul(pair_fma(masked(x, 0x00f000f0, MAGIC), part, second), scale);
        out[3] = pair_mul(pair_fma(masked(y, 0x00f000f0, MAGIC), part, second), scale);
    }
};
template <> struct lane_weights<few_rows_type::q4_0> : lane_nibbles<false> {};
template <> struct lane_weights<few_rows_type::q4_1> : lane_nibbles<true> {};

// Nibbles that are places in a table, with a scale of 6 bits for each 32 weights.
template <> struct lane_weights<few_rows_type::iq4_xs> {
    static constexpr int     BYTES = 136;
    static constexpr k_order ORDER = k_order::halves_of_32;
    static constexpr bool    MINS  = false;

    uint32_t  quants[4];
    half_pair scale[2];

    __device__ __forceinline__ void load(const char * chunk, int at, int t) {
        const uint32_t * const words = (const uint32_t *) (chunk + at);
        const uint32_t         low = words[1] >> 8 * t, high = words[0] >> 16 >> 4 * t;
        const uint32_t         two = (low & 0xf) | (low << 12 & 0xf0000) | (high << 4 & 0x30) | (high << 18 & 0x300000);
        const half_pair        d   = pair_mul(twice_low(words[0]), both(WEIGHT_SCALE));
        const half_pair        pair = pair_mul(pair_add(two | MAGIC, both(-1056.0f)), d);   // 1024 + 32
        scale[0]                    = twice_low(pair);
        scale[1]                    = twice_high(pair);
    }
    __device__ __forceinline__ void load_half(const char * chunk, int at, int t, int half) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            quants[i] = ((const uint32_t *) (chunk + at))[2 + 8 * t + 4 * half + i];
        }
    }
    __device__ __forceinline__ half_pair mins() const { return 0; }

    // The table's bytes for four nibbles, plus 128 (kvalues_iq4nl in ggml-common.h).
    static __device__ __forceinline__ uint32_t look_up(uint32_t nibbles) {
        const uint32_t place = nibbles & 0x7777;
        const uint32_t low   = choose_bytes(0x3f2d1801, 0x766a5d4f, place);
        const uint32_t high  = choose_bytes(0xa6998d81, 0xf1d9c5b5, place);
        return choose_bytes(low, high, 0x3210 | (nibbles >> 1 & 0x4444));
    }
    __device__ __forceinline__ void group(int half, int i, half_pair (&out)[4]) const {
        const uint32_t front = look_up(quants[i]), back = look_up(quants[i] >> 16);   // of bytes 0, 1 and 2, 3
        const uint32_t chosen[4] = { choose_bytes(front, back, 0x0400), choose_bytes(front, back, 0x0602),
            choose_bytes(front, back, 0x0501), choose_bytes(front, back, 0x0703) };
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            out[j] = pair_mul(pair_add(masked(chosen[j], 0x00ff00ff, MAGIC), both(-1152.0f)),
                half ? scale[1] : scale[0]);   // 1024 + 128
        }
    }
};

// The instructions of gemm/cuda/intrinsics.cuh as C++, for tests: pairs of halves, tensor cores, asynchronous copies.
// No GPU is involved. Blocks run one after another, so there are no clusters.

#pragma once

#include "cuda/emulated_cuda.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

struct uint2 {
    uint32_t x, y;
};
struct uint4 {
    uint32_t x, y, z, w;
};
struct float4 {
    float x, y, z, w;
};

using half_pair = uint32_t;
using std::min;
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

namespace emulated_cuda {

inline double half_value(uint32_t bits) {
    const uint16_t low = (uint16_t) bits;
    _Float16       x;
    std::memcpy(&x, &low, sizeof x);
    return (double) x;
}
inline uint32_t half_bits(double value) {
    const _Float16 x = (_Float16) value;
    uint16_t       bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
template <typename F> half_pair each_half(F f) { return half_bits(f(0)) | half_bits(f(16)) << 16; }

inline bool late_copies = false;   // a fault for tests: waits leave one group more

// Copies that were started and have not arrived: a thread's, by group. Memory has them only when waited for, at the
// latest moment that CUDA allows, so a read without the wait finds what was there before.
struct copies {
    struct copy {
        void *       to;
        const void * from;
    };
    std::vector<std::vector<copy>> groups = std::vector<std::vector<copy>>(1);

    void arrive(size_t n_left) {   // groups; the open one does not count
        while (groups.size() > n_left + 1 + late_copies) {
            for (const copy & c : groups.front()) {
                std::memcpy(c.to, c.from, 16);
            }
            groups.erase(groups.begin());
        }
    }
};
copies & copies_of_thread();   // empty when a block starts

}   // namespace emulated_cuda

inline half_pair pair_of(float low, float high) {
    return emulated_cuda::half_bits(low) | emulated_cuda::half_bits(high) << 16;
}
inline half_pair pair_fma(half_pair a, half_pair b, half_pair c) {
    return emulated_cuda::each_half([&](int i) {
        using emulated_cuda::half_value;
        return half_value(a >> i) * half_value(b >> i) + half_value(c >> i);
    });
}
inline half_pair pair_mul(half_pair a, half_pair b) { return pair_fma(a, b, 0x80008000); }
inline half_pair pair_add(half_pair a, half_pair b) { return pair_fma(a, 0x3c003c00, b); }
inline float     low_float(half_pair x) { return (float) emulated_cuda::half_value(x); }
inline float     high_float(half_pair x) { return (float) emulated_cuda::half_value(x >> 16); }

inline uint32_t choose_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    const uint64_t both = (uint64_t) high << 32 | low;
    uint32_t       out  = 0;
    for (int i = 0; i < 4; ++i) {
        out |= (uint32_t) (both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    }
    return out;
}
inline uint32_t masked(uint32_t x, uint32_t mask, uint32_t bits) { return (x & mask) | bits; }
inline uint32_t shift_right(uint32_t low, uint32_t high, uint32_t by) {
    return (uint32_t) (((uint64_t) high << 32 | low) >> by);
}

// PTX ISA, "Matrix Fragments for mma.m16n8k16" and "mma.m16n8k8": K / 8 registers of a for each half of its 16 rows.
template <int K> void emulated_multiply(float (&c)[4], const half_pair * a, const half_pair * b) {
    constexpr int N_A = K / 4, N_B = K / 8;
    double        all_a[16][K], all_b[K][8];
    for (int i = 0; i < N_A; ++i) {
        const uint64_t * given = emulated_cuda::warp_exchange(~0u, a[i]);
        for (int lane = 0; lane < 32; ++lane) {
            for (int j = 0; j < 2; ++j) {
                const int row = lane / 4 + i % 2 * 8, k = lane % 4 * 2 + i / 2 * 8 + j;
                all_a[row][k] = emulated_cuda::half_value((uint32_t) given[lane] >> 16 * j);
            }
        }
    }
    for (int i = 0; i < N_B; ++i) {
        const uint64_t * given = emulated_cuda::warp_exchange(~0u, b[i]);
        for (int lane = 0; lane < 32; ++lane) {
            for (int j = 0; j < 2; ++j) {
                all_b[lane % 4 * 2 + i * 8 + j][lane / 4] = emulated_cuda::half_value((uint32_t) given[lane] >> 16 * j);
            }
        }
    }
    const int lane = emulated_cuda::lane();
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        double    sum = c[i];
        for (int k = 0; k < K; ++k) {
            sum += all_a[row][k] * all_b[k][column];
        }
        c[i] = (float) sum;
    }
}
inline void multiply_k16(float (&c)[4], const half_pair (&a)[4], half_pair b0, half_pair b1) {
    const half_pair b[2] = { b0, b1 };
    emulated_multiply<16>(c, a, b);
}
inline void multiply_k8(float (&c)[4], half_pair a0, half_pair a1, half_pair b) {
    const half_pair a[2] = { a0, a1 };
    emulated_multiply<8>(c, a, &b);
}

inline char * block_memory() { return (char *) emulated_cuda::shared_memory(); }

inline void copy_16_bytes(void * shared, const void * global) {
    emulated_cuda::copies_of_thread().groups.back().push_back({ shared, global });
}
inline void           close_copies() { emulated_cuda::copies_of_thread().groups.emplace_back(); }
template <int n> void wait_for_copies() { emulated_cuda::copies_of_thread().arrive(n); }

inline void   meet_cluster() {}
inline float4 read_of_block(const float4 *, int) { return {}; }

inline void             __threadfence() {}             // NOLINT(bugprone-reserved-identifier): CUDA's name
template <typename T> T atomicAdd(T * to, T value) {   // NOLINT(readability-identifier-naming): CUDA's name
    const T before = *to;
    *to += value;
    return before;
}

// The instructions that products of few rows use beside CUDA's C++: pairs of halves in a register, tensor cores,
// asynchronous copies. In tests without a GPU the same functions are C++ (tests/cuda/emulated_mma.h).

#pragma once

#include "common.cuh"

#include <cstdint>

#if defined(__CUDACC__)

#include <cuda_fp16.h>

// Two halves in 32 bits, the first in the lower ones.
using half_pair = uint32_t;

static __device__ __forceinline__ half2     as_half2(half_pair x) { return *(const half2 *) &x; }
static __device__ __forceinline__ half_pair as_pair(half2 x) { return *(const half_pair *) &x; }

static __device__ __forceinline__ half_pair pair_of(float low, float high) {
    return as_pair(__floats2half2_rn(low, high));
}
static __device__ __forceinline__ half_pair pair_fma(half_pair a, half_pair b, half_pair c) {
    return as_pair(__hfma2(as_half2(a), as_half2(b), as_half2(c)));
}
static __device__ __forceinline__ half_pair pair_mul(half_pair a, half_pair b) {
    return as_pair(__hmul2(as_half2(a), as_half2(b)));
}
static __device__ __forceinline__ half_pair pair_add(half_pair a, half_pair b) {
    return as_pair(__hadd2(as_half2(a), as_half2(b)));
}
static __device__ __forceinline__ float low_float(half_pair x) { return __low2float(as_half2(x)); }
static __device__ __forceinline__ float high_float(half_pair x) { return __high2float(as_half2(x)); }

// Four bytes out of the eight of low and high; each digit of the selector names one.
static __device__ __forceinline__ uint32_t choose_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    return __byte_perm(low, high, selector);
}
// x & mask | bits, as one instruction: the compiler makes two if mask and bits are constants.
static __device__ __forceinline__ uint32_t masked(uint32_t x, uint32_t mask, uint32_t bits) {
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(x), "r"(mask), "r"(bits));
    return out;
}
// The lower 32 of the 64 bits high:low, shifted right by 0 to 31.
static __device__ __forceinline__ uint32_t shift_right(uint32_t low, uint32_t high, uint32_t by) {
    return __funnelshift_r(low, high, by);
}

// c += a * b: a 16x16 (rows: columns of the weights), b 16x8 (columns: rows of the pass), c 16x8. PTX ISA, "Matrix
// Fragments for mma.m16n8k16".
static __device__ __forceinline__ void multiply_k16(
    float (&c)[4], const half_pair (&a)[4], half_pair b0, half_pair b1) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}
// The same with 8 values of k.
static __device__ __forceinline__ void multiply_k8(float (&c)[4], half_pair a0, half_pair a1, half_pair b) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b));
#endif
}

// The launch's shared memory.
static __device__ __forceinline__ char * block_memory() {
    extern __shared__ __align__(16) char few_rows_shared[];
    return few_rows_shared;
}

// Starts to copy 16 bytes to shared memory, past the first-level cache.
static __device__ __forceinline__ void copy_16_bytes(void * shared, const void * global) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t) __cvta_generic_to_shared(shared)), "l"(global)
        : "memory");
#endif
}
static __device__ __forceinline__ void close_copies() {   // what was started since belongs together
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most the last n groups are still under way.
template <int n> static __device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
#endif
}

// Blocks of a cluster (sm_90): rendezvous, and a read of another one's shared memory.
static __device__ __forceinline__ void meet_cluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
static __device__ __forceinline__ float4 read_of_block(const float4 * shared, int block) {
    float4 x = { 0, 0, 0, 0 };
#if __CUDA_ARCH__ >= 900
    uint32_t address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(address)
        : "r"((uint32_t) __cvta_generic_to_shared(shared)), "r"(block));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
        : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
        : "r"(address)
        : "memory");
#endif
    return x;
}

#else
#include "cuda/emulated_mma.h"
#endif

// The tile instructions of AMX as functions, so that its kernels run on any CPU with AVX-512 VNNI. What the
// instructions refuse, and tiles that are used without a configuration, end the program.

#pragma once

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#define DFLASH_EMULATES_TILES

#include "cpu/isa/vectors.h"

#include <cstdio>
#include <cstdlib>

namespace emulated_tiles {

struct state {
    uint8_t  palette, start_row, reserved[14];
    uint16_t bytes[16];   // per row
    uint8_t  rows[16];
    alignas(64) uint8_t tile[8][16][64];
};

inline thread_local state g_tiles = {};

inline void require(bool allowed, const char * what) {
    if (!allowed) {
        std::fprintf(stderr, "a tile instruction would fault: %s\n", what);
        std::abort();
    }
}

inline void clear(int t) { std::memset(g_tiles.tile[t], 0, sizeof(g_tiles.tile[t])); }

inline void load_config(const void * config) {
    g_tiles = {};
    std::memcpy(&g_tiles, config, 64);
    require(g_tiles.palette == 1 && g_tiles.start_row == 0, "palette");
    for (int t = 0; t < 8; ++t) {
        require(g_tiles.rows[t] <= 16 && g_tiles.bytes[t] <= 64, "size");
    }
}

inline void store_config(void * config) { std::memcpy(config, &g_tiles, 64); }
inline void release() { g_tiles = {}; }

inline void zero(int t) {
    require(g_tiles.rows[t] > 0, "zero");
    clear(t);
}

inline void load(int t, const void * from, size_t stride) {
    zero(t);
    for (int r = 0; r < g_tiles.rows[t]; ++r) {
        std::memcpy(g_tiles.tile[t][r], (const char *) from + r * stride, g_tiles.bytes[t]);
    }
}

inline void store(int t, void * to, size_t stride) {
    require(g_tiles.rows[t] > 0, "store");
    for (int r = 0; r < g_tiles.rows[t]; ++r) {
        std::memcpy((char *) to + r * stride, g_tiles.tile[t][r], g_tiles.bytes[t]);
    }
}

// c += a * b, with signed bytes in a: four of a row times four of each column.
template <bool SIGNED_B>
__attribute__((target("avx512f,avx512bw,avx512vnni"))) inline void multiply(int c, int a, int b) {
    const state & s = g_tiles;
    require(
        s.rows[c] > 0 && s.rows[c] == s.rows[a] && s.bytes[c] == s.bytes[b] && s.bytes[a] == 4 * s.rows[b], "multiply");
    const __m512i offset = _mm512_set1_epi8(SIGNED_B ? (char) 0x80 : 0);   // makes b unsigned
    for (int r = 0; r < s.rows[c]; ++r) {
        __m512i sum = _mm512_load_si512(s.tile[c][r]);
        for (int k = 0; k < s.rows[b]; ++k) {
            int32_t four;
            std::memcpy(&four, s.tile[a][r] + 4 * k, 4);
            const __m512i x = _mm512_set1_epi32(four), y = _mm512_load_si512(s.tile[b][k]);
            sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(y, offset), x);
            sum = _mm512_sub_epi32(sum, _mm512_dpbusd_epi32(_mm512_setzero_si512(), offset, x));
        }
        _mm512_store_si512(g_tiles.tile[c][r], sum);
    }
}

}   // namespace emulated_tiles

#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbssd
#undef _tile_dpbsud
#define _tile_loadconfig  emulated_tiles::load_config
#define _tile_storeconfig emulated_tiles::store_config
#define _tile_release     emulated_tiles::release
#define _tile_zero        emulated_tiles::zero
#define _tile_loadd       emulated_tiles::load
#define _tile_stored      emulated_tiles::store
#define _tile_dpbssd      emulated_tiles::multiply<true>
#define _tile_dpbsud      emulated_tiles::multiply<false>

namespace dflash {

namespace {

namespace emulated_amx {
#define ISA_ATTRIBUTE __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma")))
#define ISA_VNNI      1
#include "cpu/isa/vectors_avx512.h"
#include "cpu/gemm/packed_gemm_amx.h"
#undef ISA_ATTRIBUTE
#undef ISA_VNNI
}   // namespace emulated_amx

}   // namespace

}   // namespace dflash

#endif

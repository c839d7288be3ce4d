// Panel kernels for AVX-512 and AVX2, with and without VNNI, and the choice of a kernel at run time.

#include "cpu/gemm/packed_layout.h"

#include <algorithm>
#include <iterator>
#include <cstring>
#include <utility>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include "cpu/isa/features_x86.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"   // in gcc's own intrinsics (bug 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

namespace dflash {

namespace {

#define LANES               __attribute__((target(LANES_TARGET))) static
#define LANES_INLINE        __attribute__((target(LANES_TARGET), always_inline)) static inline
#define LANES_INLINE_MEMBER __attribute__((target(LANES_TARGET), always_inline)) inline

namespace avx512_vnni {
#define LANES_TARGET "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma"
#define LANES_VNNI   1
#include "cpu/isa/dot_avx512.h"
#include "cpu/gemm/packed_tile.h"
#undef LANES_TARGET
#undef LANES_VNNI
}   // namespace avx512_vnni

namespace avx512 {
#define LANES_TARGET "avx512f,avx512bw,avx512vl,avx512dq,f16c,fma"
#define LANES_VNNI   0
#include "cpu/isa/dot_avx512.h"
#include "cpu/gemm/packed_tile.h"
#undef LANES_TARGET
#undef LANES_VNNI
}   // namespace avx512

namespace avx2_vnni {
#define LANES_TARGET "avx2,avxvnni,f16c,fma"
#define LANES_VNNI   1
#include "cpu/isa/dot_avx2.h"
#include "cpu/gemm/packed_tile.h"
#undef LANES_TARGET
#undef LANES_VNNI
}   // namespace avx2_vnni

namespace avx2 {
#define LANES_TARGET "avx2,f16c,fma"
#define LANES_VNNI   0
#include "cpu/isa/dot_avx2.h"
#include "cpu/gemm/packed_tile.h"
#undef LANES_TARGET
#undef LANES_VNNI
}   // namespace avx2

}   // namespace

std::vector<panel_choice> panel_kernels(ggml_type type) {
    const panel_choice all[] = {
        { "avx512-vnni", has_vnni() ? avx512_vnni::find(type) : nullptr },
        { "avx2-vnni", has_avx_vnni() ? avx2_vnni::find(type) : nullptr },
        { "avx512", has_avx512() ? avx512::find(type) : nullptr },
        { "avx2", has_avx2() ? avx2::find(type) : nullptr },
        { "amx", panel_find_amx(type) },
    };
    std::vector<panel_choice> here;
    std::copy_if(std::begin(all), std::end(all), std::back_inserter(here),
        [](const panel_choice & c) { return c.kernel != nullptr; });
    return here;
}

}   // namespace dflash

#elif !defined(__aarch64__)

namespace dflash {
std::vector<panel_choice> panel_kernels(ggml_type) { return {}; }
}   // namespace dflash

#endif

// Panel kernels for 64-bit ARM, with dotprod and with i8mm.

#if defined(__aarch64__)

#include "cpu/gemm/packed_layout.h"

#include "cpu/isa/features_arm.h"

#include <arm_neon.h>

#include <cstring>
#include <utility>

// Compilers that know these instructions in single functions; older ones know them where the whole build has them.
#if !defined(__clang__) || __clang_major__ >= 16
#define LANES_TARGET_DOTPROD __attribute__((target("arch=armv8.2-a+dotprod")))
#define LANES_TARGET_I8MM    __attribute__((target("arch=armv8.2-a+dotprod+i8mm")))
#else
#define LANES_TARGET_DOTPROD
#define LANES_TARGET_I8MM
#endif
#if !defined(__clang__) || __clang_major__ >= 16 || defined(__ARM_FEATURE_DOTPROD)
#define LANES_DOTPROD
#endif
#if !defined(__clang__) || __clang_major__ >= 16 || \
    (defined(__ARM_FEATURE_DOTPROD) && defined(__ARM_FEATURE_MATMUL_INT8))
#define LANES_MATMUL
#endif

namespace dflash {

namespace {

#define LANES               LANES_TARGET static
#define LANES_INLINE        LANES_TARGET __attribute__((always_inline)) static inline
#define LANES_INLINE_MEMBER LANES_TARGET __attribute__((always_inline)) inline

#ifdef LANES_DOTPROD
namespace dotprod {
#define LANES_TARGET LANES_TARGET_DOTPROD
#define LANES_I8MM   0
#include "cpu/isa/dot_neon.h"
#include "cpu/gemm/packed_tile.h"
#undef LANES_TARGET
#undef LANES_I8MM
}   // namespace dotprod
#endif

#ifdef LANES_MATMUL
namespace i8mm {
#define LANES_TARGET LANES_TARGET_I8MM
#define LANES_I8MM   1
#include "cpu/isa/dot_neon.h"
#include "cpu/gemm/packed_tile.h"
#undef LANES_TARGET
#undef LANES_I8MM
}   // namespace i8mm
#endif

}   // namespace

std::vector<panel_choice> panel_kernels([[maybe_unused]] ggml_type type) {
    std::vector<panel_choice>   here;
    [[maybe_unused]] const auto add = [&](const char * set, panel_kernel kernel) {
        if (kernel) {
            here.push_back({ set, kernel });
        }
    };
#ifdef LANES_MATMUL
    add("i8mm", has_i8mm() ? i8mm::find(type) : nullptr);
#endif
#ifdef LANES_DOTPROD
    add("dotprod", has_dotprod() ? dotprod::find(type) : nullptr);
#endif
    return here;
}

}   // namespace dflash

#endif

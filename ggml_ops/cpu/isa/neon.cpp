// All kernels for NEON, which every 64-bit ARM has; those for packed weights with dotprod, and also with i8mm.

#include "cpu/isa/kernels.h"

#if defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))

#include "cpu/isa/vectors.h"

// Some compilers can enable these instructions per function; older ones only for the whole build.
#if !defined(__clang__) || __clang_major__ >= 16
#define DFLASH_TARGET_DOTPROD __attribute__((target("arch=armv8.2-a+dotprod")))
#define DFLASH_TARGET_I8MM    __attribute__((target("arch=armv8.2-a+dotprod+i8mm")))
#else
#define DFLASH_TARGET_DOTPROD
#define DFLASH_TARGET_I8MM
#endif
#if !defined(__clang__) || __clang_major__ >= 16 || defined(__ARM_FEATURE_DOTPROD)
#define DFLASH_COMPILES_DOTPROD
#endif
#if !defined(__clang__) || __clang_major__ >= 16 || \
    (defined(__ARM_FEATURE_DOTPROD) && defined(__ARM_FEATURE_MATMUL_INT8))
#define DFLASH_COMPILES_I8MM
#endif

namespace dflash {

namespace {

namespace neon {
#define ISA_ATTRIBUTE
#define ISA_DOTPROD 0
#include "cpu/isa/vectors_neon.h"
#include "cpu/attention/attention_blocks.h"
#include "cpu/attention/flash_attention_kernel.h"
#include "cpu/attention/attention_no_flash_kernels.h"
#include "cpu/elementwise/elementwise_kernels.h"
#include "cpu/gemm/float_gemm_kernels.h"
#undef ISA_ATTRIBUTE
#undef ISA_DOTPROD
}   // namespace neon

#ifdef DFLASH_COMPILES_DOTPROD
namespace dotprod {
#define ISA_ATTRIBUTE DFLASH_TARGET_DOTPROD
#define ISA_DOTPROD   1
#define ISA_I8MM      0
#include "cpu/isa/vectors_neon.h"
#include "cpu/gemm/packed_gemm_kernels.h"
#undef ISA_ATTRIBUTE
#undef ISA_DOTPROD
#undef ISA_I8MM
}   // namespace dotprod
#endif

#ifdef DFLASH_COMPILES_I8MM
namespace i8mm {
#define ISA_ATTRIBUTE DFLASH_TARGET_I8MM
#define ISA_DOTPROD   1
#define ISA_I8MM      1
#include "cpu/isa/vectors_neon.h"
#include "cpu/gemm/packed_gemm_kernels.h"
#undef ISA_ATTRIBUTE
#undef ISA_DOTPROD
#undef ISA_I8MM
}   // namespace i8mm
#endif

}   // namespace

const kernel_table * neon_kernels() {
    static const kernel_table table = {
        /* .name               = */ "neon",
        /* .flash_attention    = */ { neon::BLOCK, neon::flash_attention },
        /* .attention_no_flash = */
        { neon::BLOCK, neon::transpose_k, neon::multiply_q_k, neon::softmax, neon::multiply_weights_v },
        /* .float_gemm         = */ neon::float_gemm,
        /* .elementwise        = */ { neon::add, neon::rms_norm, neon::rotate },
        /* .quantize_row       = */ nullptr,
        /* .packed_gemm        = */
        {
#ifdef DFLASH_COMPILES_I8MM
            { "i8mm", has_i8mm, i8mm::find_packed_gemm },
#else
            { nullptr },
#endif
#ifdef DFLASH_COMPILES_DOTPROD
            { "dotprod", has_dotprod, dotprod::find_packed_gemm },
#endif
        },
    };
    return &table;
}

}   // namespace dflash

#else

namespace dflash {
const kernel_table * neon_kernels() { return nullptr; }
}   // namespace dflash

#endif

// All kernels for AVX2 with FMA and F16C; those for packed weights also with AVX-VNNI.

#include "cpu/isa/kernels.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include "cpu/isa/vectors.h"

namespace dflash {

namespace {

namespace avx2_vnni {
#define ISA_ATTRIBUTE __attribute__((target("avx2,avxvnni,f16c,fma")))
#define ISA_VNNI      1
#include "cpu/isa/vectors_avx2.h"
#include "cpu/gemm/packed_gemm_kernels.h"
#undef ISA_ATTRIBUTE
#undef ISA_VNNI
}   // namespace avx2_vnni

namespace avx2 {
#define ISA_ATTRIBUTE __attribute__((target("avx2,f16c,fma")))
#define ISA_VNNI      0
#include "cpu/isa/vectors_avx2.h"
#include "cpu/attention/attention_blocks.h"
#include "cpu/attention/flash_attention_kernel.h"
#include "cpu/attention/attention_no_flash_kernels.h"
#include "cpu/elementwise/elementwise_kernels.h"
#include "cpu/gemm/float_gemm_kernels.h"
#include "cpu/gemm/packed_gemm_kernels.h"
#include "cpu/quantize_rows/quantize_rows_avx2.h"
#undef ISA_ATTRIBUTE
#undef ISA_VNNI
}   // namespace avx2

}   // namespace

const kernel_table * avx2_kernels() {
    static const kernel_table table = {
        /* .name               = */ "avx2",
        /* .flash_attention    = */ { avx2::BLOCK, avx2::flash_attention },
        /* .attention_no_flash = */
        { avx2::BLOCK, avx2::transpose_k, avx2::multiply_q_k, avx2::softmax, avx2::multiply_weights_v },
        /* .float_gemm         = */ avx2::float_gemm,
        /* .elementwise        = */ { avx2::add, avx2::rms_norm, avx2::rotate },
        /* .quantize_row       = */ avx2::quantize_row,
        /* .packed_gemm        = */
        { { "avx2-vnni", has_avx_vnni, avx2_vnni::find_packed_gemm }, { "avx2", has_avx2, avx2::find_packed_gemm } },
    };
    return has_avx2() ? &table : nullptr;
}

}   // namespace dflash

#else

namespace dflash {
const kernel_table * avx2_kernels() { return nullptr; }
}   // namespace dflash

#endif

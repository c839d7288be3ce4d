// Rows of activations for AVX2: the integers and scales of ggml's own quantization (quantize_row_q8_0 of arch/x86,
// quantize_row_q8_K_ref), straight into the kernels' form. ggml's Q8_K is scalar code; a tenth of a pass of 16 rows
// went there.

#include "cpu/gemm/packed_layout.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include "cpu/isa/features_x86.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#define AVX2        __attribute__((target("avx2,f16c,fma"))) static
#define AVX2_INLINE __attribute__((target("avx2,f16c,fma"), always_inline)) static inline

namespace dflash {

namespace {

AVX2_INLINE __m256 absolute(const float * x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), _mm256_loadu_ps(x)); }

AVX2_INLINE float greatest(__m256 v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m        = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// 32 values times `by`, rounded to the nearest integers, ties to even.
AVX2_INLINE __m256i integers(const float * x, float by) {
    const __m256 m = _mm256_set1_ps(by);
    __m256i      v[4];
    for (int i = 0; i < 4; ++i) {
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), m));
    }
    const __m256i all = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));   // packing works in halves
}

// Sums of 16 of the 32 values.
AVX2_INLINE void sums_of_16(__m256i q, int32_t & low, int32_t & high) {
    const __m256i four = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));
    const __m256i two  = _mm256_add_epi32(four, _mm256_shuffle_epi32(four, 0x4e)),
                  one  = _mm256_add_epi32(two, _mm256_shuffle_epi32(two, 0xb1));
    low                = _mm256_extract_epi32(one, 0);
    high               = _mm256_extract_epi32(one, 4);
}

AVX2 void quantize_32(const float * x, int zero, int32_t start, int8_t * q, scale_q8_0 * s, int64_t blocks) {
    for (int64_t b = 0; b < blocks; ++b, x += 32, q += 32) {
        const float   max = greatest(_mm256_max_ps(
            _mm256_max_ps(absolute(x), absolute(x + 8)), _mm256_max_ps(absolute(x + 16), absolute(x + 24))));
        const __m256i v   = integers(x, max != 0 ? 127 / max : 0);
        int32_t       low, high;
        sums_of_16(v, low, high);
        _mm256_storeu_si256((__m256i *) q, v);
        s[b].d      = _cvtsh_ss(_cvtss_sh(max / 127, 0));
        s[b].offset = start - zero * (low + high);
    }
}

AVX2 void quantize_256(const float * x, int8_t * q, scale_q8_K * s, int64_t blocks) {
    for (int64_t b = 0; b < blocks; ++b, x += 256, q += 256) {
        __m256 most = _mm256_setzero_ps();
        for (int i = 0; i < 256; i += 8) {
            most = _mm256_max_ps(most, absolute(x + i));
        }
        const float max = greatest(most);
        if (!(max > 0)) {   // NaN as well: ggml compares so
            std::memset(q, 0, 256);
            s[b] = {};
            continue;
        }
        int at = 0;   // of several values of that size the first
        for (int found = 0; !found && at < 256; at += 8) {
            found = _mm256_movemask_ps(_mm256_cmp_ps(absolute(x + at), _mm256_set1_ps(max), _CMP_EQ_OQ));
            if (found) {
                at += __builtin_ctz(found) - 8;
            }
        }
        const float scale = -127 / x[std::min(at, 255)];
        for (int i = 0; i < 8; ++i) {
            const __m256i v = integers(x + 32 * i, scale);
            int32_t       low, high;
            sums_of_16(v, low, high);
            _mm256_storeu_si256((__m256i *) (q + 32 * i), v);
            s[b].sums[2 * i]     = (int16_t) low;
            s[b].sums[2 * i + 1] = (int16_t) high;
            s[b].pairs[i]        = (int16_t) (low + high);
        }
        s[b].d = 1 / scale;
    }
}

}   // namespace

bool row_quantize_here(ggml_type type, int zero, const float * x, void * row, int64_t k, int64_t from, int64_t to) {
    if (!has_avx2()) {
        return false;
    }
    int8_t * q = (int8_t *) row;
    if (panel_block(type) == 256) {
        quantize_256(x, q + from, (scale_q8_K *) (q + k) + from / 256, (to - from) / 256);
    } else {
        quantize_32(x, zero, row_start(type), q + from, (scale_q8_0 *) (q + k) + from / 32, (to - from) / 32);
    }
    return true;
}

}   // namespace dflash

#else

namespace dflash {
bool row_quantize_here(ggml_type, int, const float *, void *, int64_t, int64_t, int64_t) { return false; }
}   // namespace dflash

#endif

// Row quantization for AVX2 (quantize_rows.h), with the integers and scales of ggml's own (quantize_row_q8_0 of
// arch/x86, quantize_row_q8_K_ref) in the layout that the kernels read. ggml's Q8_K is scalar code and took a tenth of
// a pass of 16 rows. Included by isa/avx2.cpp after its vectors.

ISA_INLINE __m256 absolute(const float * x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), _mm256_loadu_ps(x)); }

// 32 values times `factor`, rounded to nearest, ties to even.
ISA_INLINE __m256i round_32(const float * x, float factor) {
    const __m256 m = _mm256_set1_ps(factor);
    __m256i      v[4];
    for (int i = 0; i < 4; ++i) {
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), m));
    }
    const __m256i all = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(
        all, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));   // packing works per 128-bit half
}

// Two sums of 16 of the 32 values each.
ISA_INLINE void sums_of_16(__m256i q, int32_t & low, int32_t & high) {
    const __m256i four = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));
    const __m256i two  = _mm256_add_epi32(four, _mm256_shuffle_epi32(four, 0x4e)),
                  one  = _mm256_add_epi32(two, _mm256_shuffle_epi32(two, 0xb1));
    low                = _mm256_extract_epi32(one, 0);
    high               = _mm256_extract_epi32(one, 4);
}

ISA_FUNCTION void quantize_blocks_32(
    const float * x, const row_format & format, int8_t * q, scale_q8_0 * scales, int64_t n_blocks) {
    for (int64_t b = 0; b < n_blocks; ++b, x += 32, q += 32) {
        const float   max = simd::reduce_max(_mm256_max_ps(
            _mm256_max_ps(absolute(x), absolute(x + 8)), _mm256_max_ps(absolute(x + 16), absolute(x + 24))));
        const __m256i v   = round_32(x, max != 0 ? 127 / max : 0);
        int32_t       low, high;
        sums_of_16(v, low, high);
        _mm256_storeu_si256((__m256i *) q, v);
        scales[b] = format.scale(_cvtsh_ss(_cvtss_sh(max / 127, 0)), low + high);
    }
}

ISA_FUNCTION void quantize_blocks_256(const float * x, int8_t * q, scale_q8_K * scales, int64_t n_blocks) {
    for (int64_t b = 0; b < n_blocks; ++b, x += 256, q += 256) {
        __m256 maximum = _mm256_setzero_ps();
        for (int i = 0; i < 256; i += 8) {
            maximum = _mm256_max_ps(maximum, absolute(x + i));
        }
        const float max = simd::reduce_max(maximum);
        if (!(max > 0)) {   // also for NaN, as in ggml
            std::memset(q, 0, 256);
            scales[b] = {};
            continue;
        }
        int at = 0;   // the first value of that magnitude
        for (int found = 0; !found && at < 256; at += 8) {
            found = _mm256_movemask_ps(_mm256_cmp_ps(absolute(x + at), _mm256_set1_ps(max), _CMP_EQ_OQ));
            if (found) {
                at += __builtin_ctz(found) - 8;
            }
        }
        const float scale = -127 / x[std::min(at, 255)];
        for (int i = 0; i < 8; ++i) {
            const __m256i v = round_32(x + 32 * i, scale);
            int32_t       low, high;
            sums_of_16(v, low, high);
            _mm256_storeu_si256((__m256i *) (q + 32 * i), v);
            scales[b].sums[2 * i]     = (int16_t) low;
            scales[b].sums[2 * i + 1] = (int16_t) high;
            scales[b].pairs[i]        = (int16_t) (low + high);
        }
        scales[b].d = 1 / scale;
    }
}

ISA_FUNCTION void quantize_row(
    const row_format & format, const float * x, void * row, int64_t k, int64_t begin, int64_t end) {
    int8_t * values = (int8_t *) row;
    if (format.block_size == 256) {
        quantize_blocks_256(x, values + begin, (scale_q8_K *) (values + k) + begin / 256, (end - begin) / 256);
    } else {
        quantize_blocks_32(x, format, values + begin, (scale_q8_0 *) (values + k) + begin / 32, (end - begin) / 32);
    }
}

// Panel kernels for AVX-512 with VNNI, and the choice of a kernel at run time.

#include "panel_layout.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include "cpu_x86.h"

#include <immintrin.h>

#include <cstring>

#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma")))
#define VNNI_INLINE VNNI __attribute__((always_inline)) static inline

namespace dflash {

namespace {

VNNI_INLINE __m512 half16(const ggml_half * h) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) h)); }

VNNI_INLINE __m512i dot4(__m512i sum, __m512i w, const int8_t * a) {   // 4 activations against 4 weights of 16 columns
    int32_t four;
    std::memcpy(&four, a, 4);
    return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(four));
}

VNNI_INLINE void prefetch(const void * from, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) {
        _mm_prefetch((const char *) from + PANEL_AHEAD + i, _MM_HINT_T0);
    }
}

VNNI_INLINE __m512i two16(const int16_t * v) {
    int32_t two;
    std::memcpy(&two, v, 4);
    return _mm512_set1_epi32(two);
}

// A row's scales lie behind its values.
VNNI_INLINE const scale_q8_0 * of_q8_0(const int8_t * a, int64_t blocks) { return (const scale_q8_0 *) (a + 32 * blocks); }
VNNI_INLINE const scale_q8_K * of_q8_K(const int8_t * a, int64_t blocks) { return (const scale_q8_K *) (a + 256 * blocks); }

// A tile of R rows and P panels. Each block: load and unpack the weights of a panel once, use them for all rows. Per row and column the
// operations and their order do not depend on R and P.

template <int R, int P> VNNI_INLINE void tile_q4_0(const panel_q4_0 * const * w, int64_t blocks, const int8_t * const * a, __m512 (&out)[R][P]) {
    const __m512i low = _mm512_set1_epi8(15);
    for (int64_t b = 0; b < blocks; ++b) {
        for (int p = 0; p < P; ++p) {
            const panel_q4_0 & x = w[p][b];
            prefetch(&x, sizeof(x));
            __m512i sum[R];
            for (int r = 0; r < R; ++r) {
                sum[r] = _mm512_set1_epi32(of_q8_0(a[r], blocks)[b].offset);
            }
            for (int i = 0; i < 4; ++i) {
                const __m512i q  = _mm512_loadu_si512(x.q[i]);
                const __m512i lo = _mm512_and_si512(q, low), hi = _mm512_and_si512(_mm512_srli_epi16(q, 4), low);
                for (int r = 0; r < R; ++r) {
                    sum[r] = dot4(sum[r], lo, a[r] + 32 * b + 4 * i);
                    sum[r] = dot4(sum[r], hi, a[r] + 32 * b + 16 + 4 * i);
                }
            }
            const __m512 d = half16(x.d);
            for (int r = 0; r < R; ++r) {
                out[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r]), _mm512_mul_ps(d, _mm512_set1_ps(of_q8_0(a[r], blocks)[b].d)), out[r][p]);
            }
        }
    }
}

template <int R, int P> VNNI_INLINE void tile_q8_0(const panel_q8_0 * const * w, int64_t blocks, const int8_t * const * a, __m512 (&out)[R][P]) {
    for (int64_t b = 0; b < blocks; ++b) {
        for (int p = 0; p < P; ++p) {
            const panel_q8_0 & x = w[p][b];
            prefetch(&x, sizeof(x));
            __m512i sum[R];
            for (int r = 0; r < R; ++r) {
                sum[r] = _mm512_set1_epi32(of_q8_0(a[r], blocks)[b].offset);
            }
            for (int i = 0; i < 8; ++i) {
                const __m512i q = _mm512_loadu_si512(x.q[i]);
                for (int r = 0; r < R; ++r) {
                    sum[r] = dot4(sum[r], q, a[r] + 32 * b + 4 * i);
                }
            }
            const __m512 d = half16(x.d);
            for (int r = 0; r < R; ++r) {
                out[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r]), _mm512_mul_ps(d, _mm512_set1_ps(of_q8_0(a[r], blocks)[b].d)), out[r][p]);
            }
        }
    }
}

template <int R, int P> VNNI_INLINE void tile_q4_K(const panel_q4_K * const * w, int64_t blocks, const int8_t * const * a, __m512 (&out)[R][P]) {
    const __m512i low = _mm512_set1_epi8(15);
    for (int64_t b = 0; b < blocks; ++b) {
        for (int p = 0; p < P; ++p) {
            const panel_q4_K & x = w[p][b];
            prefetch(&x, sizeof(x));
            __m512i sum[R], min[R];
            for (int r = 0; r < R; ++r) {
                sum[r] = min[r] = _mm512_setzero_si512();
            }
            for (int s = 0; s < 8; ++s) {
                __m512i part[R];
                for (int r = 0; r < R; ++r) {
                    part[r] = _mm512_setzero_si512();
                }
                for (int i = 0; i < 4; ++i) {
                    const __m512i q  = _mm512_loadu_si512(x.q[s][i]);
                    const __m512i lo = _mm512_and_si512(q, low), hi = _mm512_and_si512(_mm512_srli_epi16(q, 4), low);
                    for (int r = 0; r < R; ++r) {
                        part[r] = dot4(part[r], lo, a[r] + 256 * b + 32 * s + 4 * i);
                        part[r] = dot4(part[r], hi, a[r] + 256 * b + 32 * s + 16 + 4 * i);
                    }
                }
                const __m512i scale = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *) x.scale[s]));
                for (int r = 0; r < R; ++r) {
                    sum[r] = _mm512_add_epi32(sum[r], _mm512_mullo_epi32(part[r], scale));
                }
            }
            for (int s = 0; s < 4; ++s) {   // two sub-blocks at once: pairs of 16-bit minima and sums
                const __m512i m = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *) x.min[s]));
                for (int r = 0; r < R; ++r) {
                    min[r] = _mm512_dpwssd_epi32(min[r], m, two16(of_q8_K(a[r], blocks)[b].pairs + 2 * s));
                }
            }
            const __m512 d = half16(x.d), dmin = half16(x.dmin);
            for (int r = 0; r < R; ++r) {
                const __m512 da = _mm512_set1_ps(of_q8_K(a[r], blocks)[b].d);
                out[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r]), _mm512_mul_ps(d, da), out[r][p]);
                out[r][p] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(min[r]), _mm512_mul_ps(dmin, da), out[r][p]);
            }
        }
    }
}

template <int R, int P> VNNI_INLINE void tile_q6_K(const panel_q6_K * const * w, int64_t blocks, const int8_t * const * a, __m512 (&out)[R][P]) {
    for (int64_t b = 0; b < blocks; ++b) {
        for (int p = 0; p < P; ++p) {
            const panel_q6_K & x = w[p][b];
            prefetch(&x, sizeof(x));
            __m512i sum[R];
            for (int r = 0; r < R; ++r) {
                sum[r] = _mm512_setzero_si512();
            }
            for (int s = 0; s < 16; ++s) {
                __m512i part[R];
                for (int r = 0; r < R; ++r) {
                    part[r] = _mm512_set1_epi32(-32 * of_q8_K(a[r], blocks)[b].sums[s]);
                }
                for (int i = 0; i < 4; ++i) {
                    const __m512i q = _mm512_loadu_si512(x.q[s][i]);
                    for (int r = 0; r < R; ++r) {
                        part[r] = dot4(part[r], q, a[r] + 256 * b + 16 * s + 4 * i);
                    }
                }
                const __m512i scale = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *) x.scale[s]));
                for (int r = 0; r < R; ++r) {
                    sum[r] = _mm512_add_epi32(sum[r], _mm512_mullo_epi32(part[r], scale));
                }
            }
            const __m512 d = half16(x.d);
            for (int r = 0; r < R; ++r) {
                out[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r]), _mm512_mul_ps(d, _mm512_set1_ps(of_q8_K(a[r], blocks)[b].d)), out[r][p]);
            }
        }
    }
}

// Types as tags, so that one driver serves all.
struct q4_0 { using panel = panel_q4_0; template <int R, int P> VNNI_INLINE void tile(const panel * const * w, int64_t n, const int8_t * const * a, __m512 (&o)[R][P]) { tile_q4_0<R, P>(w, n, a, o); } };
struct q8_0 { using panel = panel_q8_0; template <int R, int P> VNNI_INLINE void tile(const panel * const * w, int64_t n, const int8_t * const * a, __m512 (&o)[R][P]) { tile_q8_0<R, P>(w, n, a, o); } };
struct q4_K { using panel = panel_q4_K; template <int R, int P> VNNI_INLINE void tile(const panel * const * w, int64_t n, const int8_t * const * a, __m512 (&o)[R][P]) { tile_q4_K<R, P>(w, n, a, o); } };
struct q6_K { using panel = panel_q6_K; template <int R, int P> VNNI_INLINE void tile(const panel * const * w, int64_t n, const int8_t * const * a, __m512 (&o)[R][P]) { tile_q6_K<R, P>(w, n, a, o); } };

template <class T, int R, int P> VNNI void run(const void * panels, int64_t blocks, int64_t p0, const void * rows, size_t row_stride, float * out, size_t out_stride) {
    const typename T::panel * w[P];
    const int8_t *            a[R];
    __m512 sums[R][P];
    for (int p = 0; p < P; ++p) {
        w[p] = (const typename T::panel *) panels + (p0 + p) * blocks;
    }
    for (int r = 0; r < R; ++r) {
        a[r] = (const int8_t *) rows + r * row_stride;
        for (int p = 0; p < P; ++p) {
            sums[r][p] = _mm512_setzero_ps();
        }
    }
    T::template tile<R, P>(w, blocks, a, sums);
    for (int r = 0; r < R; ++r) {
        for (int p = 0; p < P; ++p) {
            _mm512_storeu_ps(out + r * out_stride + PANEL * (p0 + p), sums[r][p]);
        }
    }
}

// Few rows take several panels at once: a chain of dot products alone would wait for itself.
template <class T> void kernel(const void * panels, int64_t blocks, int64_t p0, int64_t p1, const void * rows, size_t row_stride, int n, float * out, size_t out_stride) {
    using run_t = void (*)(const void *, int64_t, int64_t, const void *, size_t, float *, size_t);
    static constexpr run_t one[]  = { run<T, 1, 1>, run<T, 2, 1>, run<T, 3, 1>, run<T, 4, 1>, run<T, 5, 1>, run<T, 6, 1>, run<T, 7, 1>, run<T, 8, 1> };
    static constexpr run_t many[] = { run<T, 1, 4>, run<T, 2, 2>, run<T, 3, 2> };
    static constexpr int   widths[] = { 4, 2, 2 };
    for (int64_t p = p0; p < p1;) {
        int64_t step = 1;
        for (int r = 0; r < n;) {
            // rows in even groups of at most 8: 9 rows are 5 and 4
            const int groups = (n - r + 7) / 8, take = (n - r + groups - 1) / groups;
            const char * a = (const char *) rows + r * row_stride;
            if (n <= 3 && p + widths[n - 1] <= p1) {
                step = widths[n - 1];
                many[n - 1](panels, blocks, p, a, row_stride, out, out_stride);
            } else {
                one[take - 1](panels, blocks, p, a, row_stride, out + r * out_stride, out_stride);
            }
            r += take;
        }
        p += step;
    }
}

}  // namespace

panel_kernel panel_find_vnni(ggml_type type) {
    if (!has_vnni()) {
        return nullptr;
    }
    switch (type) {
        case GGML_TYPE_Q4_0: return kernel<q4_0>;
        case GGML_TYPE_Q8_0: return kernel<q8_0>;
        case GGML_TYPE_Q4_K: return kernel<q4_K>;
        case GGML_TYPE_Q6_K: return kernel<q6_K>;
        default:             return nullptr;
    }
}

}  // namespace dflash

#else

namespace dflash {
panel_kernel panel_find_vnni(ggml_type) { return nullptr; }
}

#endif

namespace dflash {

namespace {

// From how many rows on AMX is faster (docs/kernels.md).
template <ggml_type T, int WIDE> void either(const void * panels, int64_t blocks, int64_t p0, int64_t p1, const void * rows, size_t row_stride, int n, float * out, size_t out_stride) {
    static const panel_kernel few = panel_find_vnni(T), many = panel_find_amx(T);
    (n < WIDE ? few : many)(panels, blocks, p0, p1, rows, row_stride, n, out, out_stride);
}

}  // namespace

panel_kernel panel_find_kernel(ggml_type type) {
    if (!panel_find_amx(type) || !panel_find_vnni(type)) {
        return panel_find_vnni(type);
    }
    switch (type) {
        case GGML_TYPE_Q4_0: return either<GGML_TYPE_Q4_0, 9>;
        case GGML_TYPE_Q8_0: return either<GGML_TYPE_Q8_0, 9>;
        case GGML_TYPE_Q4_K: return either<GGML_TYPE_Q4_K, 5>;
        case GGML_TYPE_Q6_K: return either<GGML_TYPE_Q6_K, 5>;
        default:             return nullptr;
    }
}

}  // namespace dflash

// What this machine can do at most: reading memory, and multiply-adds in registers. benchmarks/ceilings.py compiles it
// for the CPU that it runs on, so the compiler's own macros say which instructions there are.
//
// Arguments: threads, how often to measure (the fastest counts), then sizes in bytes. Prints one JSON object: for each
// size the GB/s at which all threads together read so many bytes again and again, each its own part; int8, f32 and
// tile: 10^9 multiply-adds per second (tile: 0 without AMX); instruction: of int8. With 0 for how often it prints
// instructions per clock instead, of the thread with the fewest: what a core can begin. Where another guest computes on
// the same core's other hardware thread, that is about half, while multiply-adds in registers are almost as fast as
// before.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define INLINE __attribute__((always_inline)) inline

using clock_type = std::chrono::steady_clock;

// Seconds of the fastest of several runs of `work(thread)` on all threads, which begin together.
static double fastest(int threads, int times, const std::function<void(int)> & work) {
    std::vector<std::thread> all;
    std::atomic<int>         arrived{ 0 };
    std::vector<double>      begin(threads * times), end(threads * times);
    const auto now = [] { return std::chrono::duration<double>(clock_type::now().time_since_epoch()).count(); };
    for (int t = 0; t < threads; ++t) {
        all.emplace_back([&, t] {
            for (int i = 0; i < times; ++i) {
                ++arrived;
                while (arrived < threads * (i + 1)) {
                    std::this_thread::yield();
                }
                begin[i * threads + t] = now();
                work(t);
                end[i * threads + t] = now();
            }
        });
    }
    for (std::thread & t : all) {
        t.join();
    }
    double best = 1e30;
    for (int i = 0; i < times; ++i) {
        best = std::min(best, *std::max_element(&end[i * threads], &end[i * threads] + threads) -
                                  *std::min_element(&begin[i * threads], &begin[i * threads] + threads));
    }
    return best;
}

// ---- memory ----

typedef uint64_t line __attribute__((vector_size(64)));   // a cache line, in whatever registers the CPU has

// STREAMS places of the part are read in turns: several pages at once keep more of the hardware's prefetchers busy than
// one.
template <int STREAMS, bool AHEAD> static void read_part(const line * from, size_t lines) {
    line         sum[STREAMS] = {};
    const size_t each         = lines / STREAMS;
    for (size_t i = 0; i < each; ++i) {
        for (int s = 0; s < STREAMS; ++s) {
            if (AHEAD) {
                __builtin_prefetch(from + s * each + i + 64);
            }
            sum[s] ^= from[s * each + i];
        }
    }
    for (const line & s : sum) {
        asm volatile("" : : "m"(s));
    }
}

static double bandwidth(int threads, int times, size_t bytes) {
    constexpr size_t PAGE = 2 << 20;
    const size_t     part = bytes / threads / 64;
    char *           all  = (char *) std::aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
    if (!all) {
        return 0;
    }
#if defined(__linux__)
    madvise(all, bytes, MADV_HUGEPAGE);
#endif
    std::fill(all, all + bytes, 1);
    const int rounds =
        std::max(6, (int) (6e8 * times / bytes));   // the first one fills the caches, and others may use the memory too
    double best = 1e30;
    for (const auto read : { read_part<1, false>, read_part<1, true>, read_part<4, false>, read_part<4, true> }) {
        best = std::min(best, fastest(threads, rounds, [&](int t) { read((const line *) all + t * part, part); }));
    }
    std::free(all);
    return part * 64 * threads / best / 1e9;
}

// ---- multiply-adds ----

constexpr long ROUNDS = 10000000;   // some 50 ms: longer than a burst
// Keeps the compiler from moving a value about and from seeing that nobody reads it.
template <class V> INLINE void hold(V & v) {
#if defined(__AVX512F__)
    asm volatile("" : "+v"(v));
#elif defined(__x86_64__)
    asm volatile("" : "+x"(v));
#elif defined(__aarch64__)
    asm volatile("" : "+w"(v));
#else
    asm volatile("" : "+m"(v));
#endif
}

// N sums that do not wait for each other, each in a register of its own.
template <int N, class V> struct sums {
    V                              v;
    sums<N - 1, V>                 others;
    INLINE                         sums(V zero) : v(zero), others(zero) {}
    template <class F> INLINE void step(const F & f) {
        v = f(v);
        hold(v);
        others.step(f);
    }
};
template <class V> struct sums<0, V> {
    INLINE                         sums(V) {}
    template <class F> INLINE void step(const F &) {}
};

template <int CHAINS, class V, class A, class F> INLINE void chains(V zero, A a, A b, const F & f) {
    sums<CHAINS, V> all(zero);
    hold(a);
    hold(b);
    for (long i = 0; i < ROUNDS; ++i) {
        all.step([&](V sum) { return f(sum, a, b); });
    }
}

#if defined(__AVX512VNNI__)
static const char * INT8_NAME   = "AVX-512 VNNI";
constexpr int       INT8_CHAINS = 12, INT8_MACS = 64;
static void         int8_work(int) {
    chains<INT8_CHAINS>(_mm512_setzero_si512(), _mm512_set1_epi8(3), _mm512_set1_epi8(1),
                [](__m512i s, __m512i a, __m512i b) { return _mm512_dpbusd_epi32(s, a, b); });
}
#elif defined(__AVXVNNI__)
static const char * INT8_NAME   = "AVX-VNNI";
constexpr int       INT8_CHAINS = 12, INT8_MACS = 32;
static void         int8_work(int) {
    chains<INT8_CHAINS>(_mm256_setzero_si256(), _mm256_set1_epi8(3), _mm256_set1_epi8(1),
                [](__m256i s, __m256i a, __m256i b) { return _mm256_dpbusd_avx_epi32(s, a, b); });
}
#elif defined(__AVX512BW__)
static const char * INT8_NAME   = "AVX-512 without VNNI";
constexpr int       INT8_CHAINS = 12, INT8_MACS = 64;
static void         int8_work(int) {
    const __m512i one = _mm512_set1_epi16(1);
    chains<INT8_CHAINS>(
        _mm512_setzero_si512(), _mm512_set1_epi8(3), _mm512_set1_epi8(1), [one](__m512i s, __m512i a, __m512i b) {
            __m512i pairs = _mm512_maddubs_epi16(a, b);
            hold(pairs);
            return _mm512_add_epi32(s, _mm512_madd_epi16(pairs, one));
        });
}
#elif defined(__AVX2__)
static const char * INT8_NAME   = "AVX2";
constexpr int       INT8_CHAINS = 12, INT8_MACS = 32;
static void         int8_work(int) {
    const __m256i one = _mm256_set1_epi16(1);
    chains<INT8_CHAINS>(
        _mm256_setzero_si256(), _mm256_set1_epi8(3), _mm256_set1_epi8(1), [one](__m256i s, __m256i a, __m256i b) {
            __m256i pairs = _mm256_maddubs_epi16(a, b);
            hold(pairs);
            return _mm256_add_epi32(s, _mm256_madd_epi16(pairs, one));
        });
}
#elif defined(__ARM_FEATURE_MATMUL_INT8)
static const char * INT8_NAME   = "NEON i8mm";
constexpr int       INT8_CHAINS = 16, INT8_MACS = 32;
static void         int8_work(int) {
    chains<INT8_CHAINS>(vdupq_n_s32(0), vdupq_n_s8(3), vdupq_n_s8(1),
                [](int32x4_t s, int8x16_t a, int8x16_t b) { return vmmlaq_s32(s, a, b); });
}
#elif defined(__ARM_FEATURE_DOTPROD)
static const char * INT8_NAME   = "NEON dotprod";
constexpr int       INT8_CHAINS = 16, INT8_MACS = 16;
static void         int8_work(int) {
    chains<INT8_CHAINS>(vdupq_n_s32(0), vdupq_n_s8(3), vdupq_n_s8(1),
                [](int32x4_t s, int8x16_t a, int8x16_t b) { return vdotq_s32(s, a, b); });
}
#else
static const char * INT8_NAME   = "one at a time";
constexpr int       INT8_CHAINS = 8, INT8_MACS = 1;
static void         int8_work(int) {
    chains<INT8_CHAINS>(
        (int32_t) 0, (int32_t) 3, (int32_t) 1, [](int32_t s, int32_t a, int32_t b) { return s + a * b; });
}
#endif

#if defined(__AVX512F__)
constexpr int F32_CHAINS = 12, F32_MACS = 16;
static void   f32_work(int) {
    chains<F32_CHAINS>(_mm512_setzero_ps(), _mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f),
          [](__m512 s, __m512 a, __m512 b) { return _mm512_fmadd_ps(a, b, s); });
}
#elif defined(__FMA__)
constexpr int F32_CHAINS = 12, F32_MACS = 8;
static void   f32_work(int) {
    chains<F32_CHAINS>(_mm256_setzero_ps(), _mm256_set1_ps(0.5f), _mm256_set1_ps(0.5f),
          [](__m256 s, __m256 a, __m256 b) { return _mm256_fmadd_ps(a, b, s); });
}
#elif defined(__aarch64__)
constexpr int F32_CHAINS = 16, F32_MACS = 4;
static void   f32_work(int) {
    chains<F32_CHAINS>(vdupq_n_f32(0), vdupq_n_f32(0.5f), vdupq_n_f32(0.5f),
          [](float32x4_t s, float32x4_t a, float32x4_t b) { return vfmaq_f32(s, a, b); });
}
#else
constexpr int F32_CHAINS = 8, F32_MACS = 1;
static void   f32_work(int) {
    chains<F32_CHAINS>(0.0f, 0.5f, 0.5f, [](float s, float a, float b) { return s + a * b; });
}
#endif

#if defined(__AMX_INT8__) && defined(__linux__)
constexpr int TILE_MACS = 4 * 16 * 16 * 64;   // of a round: four products of 16 by 64 by 16
static bool   has_tiles() { return syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */) == 0; }
static void   tile_work(int) {
    struct alignas(64) {
        uint8_t  palette = 1, start = 0, pad[14] = {};
        uint16_t columns[16] = {};
        uint8_t  rows[16]    = {};
    } config;
    std::fill(config.columns, config.columns + 8, 64);
    std::fill(config.rows, config.rows + 8, 16);
    asm volatile("" : : "m"(config));   // gcc 12 does not know that the next line reads it
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (long i = 0; i < ROUNDS / 8; ++i) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_release();
}
#else
constexpr int TILE_MACS = 0;
static bool   has_tiles() { return false; }
static void   tile_work(int) {}
#endif

// ---- instructions ----

static double instructions_per_clock(int threads) {
    constexpr int                    TURNS = 20000, EACH = 32, TIMES = 9;   // 40 us and 200 us
    std::vector<std::vector<double>> empty(threads), adds(threads);
    const auto                       since = [](clock_type::time_point begin) {
        return std::chrono::duration<double>(clock_type::now() - begin).count();
    };
    fastest(threads, TIMES, [&](int t) {
        auto begin = clock_type::now();
        for (int i = 0; i < TURNS; ++i) {
            asm volatile("nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; "
                         "nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop");
        }
        empty[t].push_back(since(begin));
        begin  = clock_type::now();
        long x = 1;
        for (int i = 0; i < TURNS;
            ++i) {   // each addition waits for the one before: one per clock, whoever else is there
            for (int n = 0; n < EACH; ++n) {
                x += x;
                asm volatile("" : "+r"(x));
            }
        }
        adds[t].push_back(since(begin));
    });
    double fewest = 1e30;
    for (int t = 0; t < threads; ++t) {
        std::nth_element(empty[t].begin(), empty[t].begin() + TIMES / 2, empty[t].end());
        fewest = std::min(fewest, *std::min_element(adds[t].begin(), adds[t].end()) /
                                      empty[t][TIMES / 2]);   // what interrupts makes it less, never more
    }
    return fewest;
}

int main(int argc, char ** argv) {
    const int threads = argc > 1 ? std::atoi(argv[1]) : 1, times = argc > 2 ? std::atoi(argv[2]) : 5;
    if (times == 0) {
        std::printf("%.3f\n", instructions_per_clock(threads));
        return 0;
    }
    const double rounds = (double) threads * ROUNDS;
    std::printf("{\"threads\": %d, \"read\": {", threads);
    for (int i = 3; i < argc; ++i) {
        std::printf("%s\"%s\": %.2f", i > 3 ? ", " : "", argv[i],
            bandwidth(threads, times, std::strtoull(argv[i], nullptr, 10)));
    }
    std::printf("}, \"int8\": %.1f, \"f32\": %.1f",
        rounds * INT8_CHAINS * INT8_MACS / fastest(threads, times, int8_work) / 1e9,
        rounds * F32_CHAINS * F32_MACS / fastest(threads, times, f32_work) / 1e9);
    std::printf(", \"tile\": %.1f, \"instruction\": \"%s\"}\n",
        has_tiles() ? rounds / 8 * TILE_MACS / fastest(threads, times, tile_work) / 1e9 : 0.0, INT8_NAME);
    return 0;
}

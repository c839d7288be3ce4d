// Kernels for packed weights compared with ggml's own dot products on the same quantized rows. A row's result must have
// the same bits whatever else is in the pass and whichever kernel computes it.

#include "cpu/gemm/packed_gemm_choice.h"
#include "cpu/gemm/packed_weights.h"
#include "cpu/isa/kernels.h"
#include "cpu/quantize_rows/quantize_rows.h"

#include "check.h"
#include "emulated_tiles.h"
#include "weights.h"

#include "ggml-cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

using namespace dflash;

// A thread's tile configuration, as set by ggml's own AMX code: kernels must restore it.
static void test_tile_configuration() {
#if defined(__x86_64__)
    if (!amx_packed_gemm() || !amx_packed_gemm()->is_supported()) {
        return;
    }
    const packed_gemm_kernel  kernel     = amx_packed_gemm()->find(GGML_TYPE_Q4_0);
    alignas(64) unsigned char theirs[64] = { 1 }, after[64] = {};
    theirs[16] = 32;   // tile 0: 8 rows of 32 bytes
    theirs[48] = 8;
    std::vector<char> panel(panel_block_bytes(GGML_TYPE_Q4_0)), row(quantized_row_size(GGML_TYPE_Q4_0, 32));
    float             out[PANEL];
    __asm__ volatile("ldtilecfg (%0)" : : "r"(theirs) : "memory");
    kernel({ panel.data(), 1, 1, row.data(), row.size(), 1, out, PANEL });
    __asm__ volatile("sttilecfg (%0)\n\ttilerelease" : : "r"(after) : "memory");
    CHECK(std::memcmp(theirs, after, sizeof(after)) == 0);
#endif
}

// Activations are quantized bit for bit like ggml's, including ties, several maxima of either sign, and zeros.
static void test_quantized_rows() {
    constexpr int64_t               k = 512;
    std::mt19937                    rng(2);
    std::normal_distribution<float> normal;
    for (int round = 0; round < 200; ++round) {
        std::vector<float> x(k);
        for (float & v : x) {
            v = round % 4 == 0   ? (float) ((int) (rng() % 255) - 127) / 2
                : round % 4 == 1 ? (rng() % 2 ? 1.0f : -1.0f)
                                 : normal(rng) * (rng() % 30 ? 1.0f : 20.0f);
        }
        if (round % 8 == 3) {
            std::fill(x.begin(), x.begin() + 256, 0.0f);
        }
        std::vector<block_q8_0> small(k / 32);
        std::vector<block_q8_K> large(k / 256);
        ggml_get_type_traits_cpu(GGML_TYPE_Q8_0)->from_float(x.data(), small.data(), k);
        ggml_get_type_traits_cpu(GGML_TYPE_Q8_K)->from_float(x.data(), large.data(), k);
        std::vector<char> row(std::max(quantized_row_size(GGML_TYPE_Q4_0, k), quantized_row_size(GGML_TYPE_Q4_K, k)));
        quantize_row(GGML_TYPE_Q4_0, x.data(), row.data(), k);
        const scale_q8_0 * s = (const scale_q8_0 *) (row.data() + k);
        for (int64_t b = 0; b < k / 32; ++b) {
            int sum = 0;
            for (int i = 0; i < 32; ++i) {
                sum += small[b].qs[i];
            }
            CHECK(std::memcmp(row.data() + 32 * b, small[b].qs, 32) == 0 && s[b].d == ggml_fp16_to_fp32(small[b].d) &&
                  s[b].initial_sum == q4_0::SUM_BIAS - 8 * sum);
        }
        quantize_row(GGML_TYPE_Q4_1, x.data(), row.data(), k);   // d times the sum, exactly
        for (int64_t b = 0; b < k / 32; ++b) {
            int sum = 0;
            for (int i = 0; i < 32; ++i) {
                sum += small[b].qs[i];
            }
            CHECK(std::memcmp(row.data() + 32 * b, small[b].qs, 32) == 0 && s[b].d == ggml_fp16_to_fp32(small[b].d) &&
                  (double) s[b].sum == (double) s[b].d * sum);
        }
        quantize_row(GGML_TYPE_Q4_K, x.data(), row.data(), k);
        const scale_q8_K * l = (const scale_q8_K *) (row.data() + k);
        for (int64_t b = 0; b < k / 256; ++b) {
            CHECK(std::memcmp(row.data() + 256 * b, large[b].qs, 256) == 0 && l[b].d == large[b].d);
            for (int i = 0; i < 16 && large[b].d != 0; ++i) {
                CHECK(l[b].sums[i] == large[b].bsums[i]);
            }
            for (int i = 0; i < 8; ++i) {
                CHECK(l[b].pairs[i] == l[b].sums[2 * i] + l[b].sums[2 * i + 1]);
            }
        }
    }
}

struct shape {
    int64_t k, m;
    bool    wild;   // any integers that the format can represent, with maximal activations
};

static constexpr int N_ROWS = 70;

// Weights of one type, quantized and packed, and activations as floats, quantized by ggml and by us.
struct problem {
    ggml_type                    type;
    int64_t                      k, m, n_blocks;
    size_t                       weight_row, row, ggml_row;   // bytes
    const ggml_type_traits_cpu * traits;
    std::vector<char>            quantized, panels, rows, ggml_rows;

    problem(ggml_type type, const shape & s, std::mt19937 & rng) :
        type(type), k(s.k - s.k % panel_block_size(type)), m(s.m), n_blocks(k / panel_block_size(type)),
        weight_row(ggml_row_size(type, k)), row(quantized_row_size(type, k)), traits(ggml_get_type_traits_cpu(type)) {
        ggml_row = ggml_row_size(traits->vec_dot_type, k);
        std::normal_distribution<float> normal;
        std::vector<float>              w(k * m), x(N_ROWS * k);
        for (float & v : w) {
            v = 0.05f * normal(rng);
        }
        for (float & v : x) {   // outliers, like real activations
            v = normal(rng) * (rng() % 50 == 0 ? 20.0f : 1.0f);
        }
        std::fill_n(x.begin() + 3 * k, k, 0.0f);   // and a row of zeros
        quantized = quantize(type, w, k, m);
        if (s.wild) {
            fill_with_any_integers(rng);
            for (float & v : x) {
                v = v < 0 ? -1.0f : 1.0f;
            }
        }
        pack(x);
    }

    // Rows [first_row, first_row + n) times panels [begin, end). out: of the first row.
    void multiply(packed_gemm_kernel kernel, int64_t begin, int64_t end, int first_row, int n, float * out) const {
        kernel({ panels.data() + begin * n_blocks * panel_block_bytes(type), n_blocks, end - begin,
            rows.data() + first_row * row, row, n, out + begin * PANEL, (size_t) m });
    }

  private:
    // Any bits, but scales that keep the results finite.
    void fill_with_any_integers(std::mt19937 & rng) {
        std::normal_distribution<float> normal;
        const size_t                    block = ggml_type_size(type);
        for (char * b = quantized.data(); b < quantized.data() + quantized.size(); b += block) {
            for (size_t i = 0; i < block; ++i) {
                b[i] = (char) rng();
            }
            const ggml_fp16_t ds[2] = { ggml_fp32_to_fp16(0.01f * normal(rng)), ggml_fp32_to_fp16(0.01f) };
            set_scales(b, ds, rng);
        }
    }

    void set_scales(char * b, const ggml_fp16_t (&ds)[2], std::mt19937 & rng) const {
        const size_t block = ggml_type_size(type);
        switch (type) {
            case GGML_TYPE_MXFP4: b[0] = (char) (110 + rng() % 16); break;
            case GGML_TYPE_Q4_1:
            case GGML_TYPE_Q5_1:
            case GGML_TYPE_Q4_K:
            case GGML_TYPE_Q5_K: std::memcpy(b, ds, 4); break;
            case GGML_TYPE_Q2_K: std::memcpy(b + block - 4, ds, 4); break;
            case GGML_TYPE_Q3_K:
            case GGML_TYPE_Q6_K:
            case GGML_TYPE_TQ1_0:
            case GGML_TYPE_TQ2_0: std::memcpy(b + block - 2, ds, 2); break;
            case GGML_TYPE_IQ1_M:   // the upper bits of the last four bytes of two, lowest first
                for (int i = 0; i < 4; ++i) {
                    char & byte = b[block - 7 + 2 * i];
                    byte        = (char) ((byte & 15) | (ds[0] >> (4 * i) & 15) << 4);
                }
                break;
            default: std::memcpy(b, ds, 2);
        }
    }

    void pack(const std::vector<float> & x) {
        panels.resize(m / PANEL * n_blocks * panel_block_bytes(type));
        for (int64_t p = 0; p < m / PANEL; ++p) {
            pack_panel(type, quantized.data() + p * PANEL * weight_row, weight_row, n_blocks,
                panels.data() + p * n_blocks * panel_block_bytes(type));
        }
        rows.resize(N_ROWS * row);
        ggml_rows.resize(N_ROWS * ggml_row);
        for (int r = 0; r < N_ROWS; ++r) {
            quantize_row(type, x.data() + r * k, rows.data() + r * row, k);
            ggml_get_type_traits_cpu(traits->vec_dot_type)
                ->from_float(x.data() + r * k, ggml_rows.data() + r * ggml_row, k);
        }
    }
};

// The integers are equal to ggml's, but float sums have another order: differs by up to `limit` of the largest term.
static void check_against_ggml(const problem & p, const std::vector<float> & out, double limit) {
    double worst = 0, scale = 0;
    for (int r = 0; r < N_ROWS; ++r) {
        for (int64_t c = 0; c < p.m; ++c) {
            float want = 0;
            p.traits->vec_dot((int) p.k, &want, 0, p.quantized.data() + c * p.weight_row, 0,
                p.ggml_rows.data() + r * p.ggml_row, 0, 1);
            worst = std::max(worst, (double) std::fabs(want - out[r * p.m + c]));
            scale = std::max(scale, (double) std::fabs(want));
            CHECK(std::isfinite(out[r * p.m + c]));
        }
    }
    CHECK(scale > 0 && worst < limit * scale);
}

// Against the dequantized weights times the quantized activations, in double precision, for types of 32 positions.
static void check_exactly(const problem & p, const std::vector<float> & out) {
    std::vector<float> w(p.k);
    double             worst = 0, scale = 0;
    for (int64_t c = 0; c < p.m; ++c) {
        ggml_get_type_traits(p.type)->to_float(p.quantized.data() + c * p.weight_row, w.data(), p.k);
        for (int r = 0; r < N_ROWS; ++r) {
            const int8_t *     q      = (const int8_t *) p.rows.data() + r * p.row;
            const scale_q8_0 * scales = (const scale_q8_0 *) (q + p.k);
            double             want   = 0;
            for (int64_t i = 0; i < p.k; ++i) {
                want += (double) w[i] * q[i] * scales[i / 32].d;
            }
            worst = std::max(worst, std::fabs(want - out[r * p.m + c]));
            scale = std::max(scale, std::fabs(want));
        }
    }
    CHECK(scale > 0 && worst < 1e-5 * scale);
}

// Any number of rows, any index in the pass, and any division into panels gives the rows of `all`. Nothing else is
// written.
static void check_row_invariance(
    const problem & p, const char * name, packed_gemm_kernel kernel, const std::vector<float> & all) {
    std::vector<float> out(N_ROWS * p.m);
    for (int n = 1; n <= N_ROWS; n += n < 20 ? 1 : 5) {
        const int     first = n % 2 && n + 3 <= N_ROWS ? 3 : 0;
        const int64_t cut   = p.m / PANEL * (n % 5) / 5;
        std::fill(out.begin(), out.end(), NAN);
        p.multiply(kernel, 0, cut, first, n, out.data());
        p.multiply(kernel, cut, p.m / PANEL, first, n, out.data());
        if (std::memcmp(out.data(), all.data() + first * p.m, (size_t) n * p.m * sizeof(float)) != 0) {
            std::printf("%s, %s: %d rows differ\n", ggml_type_name(p.type), name, n);
            CHECK(!"the same bits");
        }
        CHECK(n == N_ROWS || std::isnan(out[n * p.m]));
    }
}

// Types whose tiles are emulated, one or more of each layout: the others would take half a minute to compile.
struct emulated : q4_0, q4_1, q5_0, q5_1, iq4_nl, mxfp4, q8_0, q4_K, q5_K, q6_K, q2_K, q3_K, iq4_xs, iq2_s {};

// Returns the number of kernels for the type.
template <class T> static int test_type(std::mt19937 & rng) {
    constexpr ggml_type                                      type = T::TYPE;
    std::vector<std::pair<const char *, packed_gemm_kernel>> kernels;
    for (const packed_gemm_variant & variant : packed_gemm_variants()) {
        if (const packed_gemm_kernel kernel = variant.find(type)) {
            kernels.emplace_back(variant.name, kernel);
        }
    }
    const int count = (int) kernels.size();
    if (count == 0) {   // a CPU without any of the instruction sets
        CHECK(!choose_packed_gemm(type));
        return 0;
    }
    kernels.emplace_back("chosen", choose_packed_gemm(type));
#ifdef DFLASH_EMULATES_TILES
    if constexpr (std::is_base_of_v<T, emulated>) {
        if (has_vnni()) {
            kernels.emplace_back("amx, emulated", emulated_amx::packed_gemm<T>);
        }
    }
#endif
    for (const shape & s : { shape{ 256, 16, false }, { 512, 80, false }, { 1024, 304, false }, { 2816, 48, false },
             { 288, 32, false }, { 1024, 64, true } }) {   // 288: 9 blocks of 32
        const problem      p(type, s, rng);
        std::vector<float> all(N_ROWS * p.m, NAN);
        p.multiply(kernels[0].second, 0, p.m / PANEL, 0, N_ROWS, all.data());
        if constexpr (HAS_MINIMA_OF_32<T>) {   // ggml rounds the sums of a row's blocks to halves, we do not
            check_against_ggml(p, all, 1e-3);
            check_exactly(p, all);
        } else {
            check_against_ggml(p, all, 1e-5);
        }
        for (const auto & [name, kernel] : kernels) {
            check_row_invariance(p, name, kernel, all);
        }
    }
    return count;
}

int main() {
    ggml_cpu_init();
    test_quantized_rows();
    test_tile_configuration();
    std::mt19937 rng(1);
    int          kernels = 0;
    for_each_weight_type([&](auto record) { kernels += test_type<decltype(record)>(rng); });
    std::printf("%d kernels\n", kernels);
    return TEST_RESULT;
}

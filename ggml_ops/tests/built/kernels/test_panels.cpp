// Panel kernels against ggml's own dot products on the same quantized rows, and the promise that a row's result is the
// same bits whatever else is in the pass and whichever kernel computes it.

#include "cpu/gemm/packed_layout.h"

#include "check.h"

#include "ggml-cpu.h"

#include <cmath>
#include <cstring>
#include <random>
#include <thread>

using namespace dflash;

// A thread's tile configuration, as ggml's own AMX code leaves it: a kernel must give it back.
static void test_tiles_of_others() {
#if defined(__x86_64__)
    if (!panel_find_amx(GGML_TYPE_Q4_0)) {
        return;
    }
    alignas(64) unsigned char theirs[64] = { 1 }, after[64] = {};
    theirs[16] = 32;   // tile 0: 8 rows of 32 bytes
    theirs[48] = 8;
    std::vector<char> panel(panel_block_bytes(GGML_TYPE_Q4_0)), row(row_bytes(GGML_TYPE_Q4_0, 32));
    float             out[PANEL];
    __asm__ volatile("ldtilecfg (%0)" : : "r"(theirs) : "memory");
    panel_find_amx(GGML_TYPE_Q4_0)(panel.data(), 1, 0, 1, row.data(), row.size(), 1, out, PANEL);
    __asm__ volatile("sttilecfg (%0)\n\ttilerelease" : : "r"(after) : "memory");
    CHECK(std::memcmp(theirs, after, sizeof(after)) == 0);
#endif
}

// Activations are quantized as ggml does it, bit for bit: also ties, several greatest values of either sign, zeros.
static void test_rows() {
    constexpr int64_t               k = 512;
    std::mt19937                    rng(2);
    std::normal_distribution<float> normal;
    for (int turn = 0; turn < 200; ++turn) {
        std::vector<float> x(k);
        for (float & v : x) {
            v = turn % 4 == 0   ? (float) ((int) (rng() % 255) - 127) / 2
                : turn % 4 == 1 ? (rng() % 2 ? 1.0f : -1.0f)
                                : normal(rng) * (rng() % 30 ? 1.0f : 20.0f);
        }
        if (turn % 8 == 3) {
            std::fill(x.begin(), x.begin() + 256, 0.0f);
        }
        std::vector<block_q8_0> small(k / 32);
        std::vector<block_q8_K> large(k / 256);
        ggml_get_type_traits_cpu(GGML_TYPE_Q8_0)->from_float(x.data(), small.data(), k);
        ggml_get_type_traits_cpu(GGML_TYPE_Q8_K)->from_float(x.data(), large.data(), k);
        std::vector<char> row(std::max(row_bytes(GGML_TYPE_Q4_0, k), row_bytes(GGML_TYPE_Q4_K, k)));
        row_quantize(GGML_TYPE_Q4_0, x.data(), row.data(), k);
        const scale_q8_0 * s = (const scale_q8_0 *) (row.data() + k);
        for (int64_t b = 0; b < k / 32; ++b) {
            int sum = 0;
            for (int i = 0; i < 32; ++i) {
                sum += small[b].qs[i];
            }
            CHECK(std::memcmp(row.data() + 32 * b, small[b].qs, 32) == 0 && s[b].d == ggml_fp16_to_fp32(small[b].d) &&
                  s[b].offset == row_start(GGML_TYPE_Q4_0) - 8 * sum);
        }
        row_quantize(GGML_TYPE_Q4_K, x.data(), row.data(), k);
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

int main() {
    ggml_cpu_init();
    test_rows();
    test_tiles_of_others();
    std::mt19937                    rng(1);
    std::normal_distribution<float> normal;
    int                             kernels = 0;
    for (const ggml_type type : { GGML_TYPE_Q4_0, GGML_TYPE_IQ4_NL, GGML_TYPE_MXFP4, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K,
             GGML_TYPE_Q5_K, GGML_TYPE_Q6_K }) {
        const std::vector<panel_choice> here = panel_kernels(type);
        if (here.empty()) {
            CHECK(!panel_find_kernel(type));
            continue;   // a CPU without any of the sets
        }
        const panel_kernel kernel = here[0].kernel;
        kernels += (int) here.size();
        struct shape {
            int64_t k, m;
            bool    wild;
        };
        for (auto [k, m, wild] : { shape{ 256, 16, false }, { 512, 80, false }, { 1024, 304, false },
                 { 2816, 48, false }, { 288, 32, false }, { 1024, 64, true } }) {
            k -= k % panel_block(type);   // 288: 9 blocks of 32
            constexpr int      n_max      = 70;
            const size_t       weight_row = ggml_row_size(type, k), row = row_bytes(type, k);
            const int64_t      blocks = k / panel_block(type);
            std::vector<float> w(k * m), x(n_max * k);
            for (float & v : w) {
                v = 0.05f * normal(rng);
            }
            for (float & v : x) {
                v = normal(rng) * (rng() % 50 == 0 ? 20.0f : 1.0f);
            }   // outliers, as real activations have
            for (int64_t i = 0; i < k; ++i) {
                x[3 * k + i] = 0;
            }   // and a row of zeros
            std::vector<char> quantized(weight_row * m), panels(m / PANEL * blocks * panel_block_bytes(type)),
                rows(n_max * row);
            ggml_quantize_chunk(type, w.data(), quantized.data(), 0, m, k, nullptr);
            if (wild) {   // any integers that the format can hold, at the largest activations
                const size_t block = ggml_type_size(type), d = type == GGML_TYPE_Q6_K ? block - 2 : 0;
                for (char * b = quantized.data(); b < quantized.data() + quantized.size(); b += block) {
                    for (size_t i = 0; i < block; ++i) {
                        b[i] = (char) rng();
                    }
                    const ggml_fp16_t ds[2] = { ggml_fp32_to_fp16(0.01f * normal(rng)), ggml_fp32_to_fp16(0.01f) };
                    if (type == GGML_TYPE_MXFP4) {
                        b[0] = (char) (110 + rng() % 16);
                    } else {
                        std::memcpy(b + d, ds, type == GGML_TYPE_Q4_K || type == GGML_TYPE_Q5_K ? 4 : 2);
                    }
                }
                for (float & v : x) {
                    v = v < 0 ? -1.0f : 1.0f;
                }
            }
            for (int64_t p = 0; p < m / PANEL; ++p) {
                panel_pack(type, quantized.data() + p * PANEL * weight_row, weight_row, blocks,
                    panels.data() + p * blocks * panel_block_bytes(type));
            }
            const ggml_type_traits_cpu * traits = ggml_get_type_traits_cpu(type);
            const size_t                 theirs = ggml_row_size(traits->vec_dot_type, k);
            std::vector<char>            activations(n_max * theirs);
            for (int r = 0; r < n_max; ++r) {
                row_quantize(type, x.data() + r * k, rows.data() + r * row, k);
                ggml_get_type_traits_cpu(traits->vec_dot_type)
                    ->from_float(x.data() + r * k, activations.data() + r * theirs, k);
            }
            std::vector<float> out(n_max * m, NAN), again(n_max * m);
            kernel(panels.data(), blocks, 0, m / PANEL, rows.data(), row, n_max, out.data(), m);

            // Same integers, another order of the float sums: a part in a hundred thousand of the largest term.
            double worst = 0, scale = 0;
            for (int r = 0; r < n_max; ++r) {
                for (int64_t c = 0; c < m; ++c) {
                    float want = 0;
                    traits->vec_dot(
                        (int) k, &want, 0, quantized.data() + c * weight_row, 0, activations.data() + r * theirs, 0, 1);
                    worst = std::max(worst, (double) std::fabs(want - out[r * m + c]));
                    scale = std::max(scale, (double) std::fabs(want));
                    CHECK(std::isfinite(out[r * m + c]));
                }
            }
            CHECK(scale > 0 && worst < 1e-5 * scale);

            // Row invariance: any kernel, any count of rows, any place in the pass, any split into panels. Nothing is
            // written beside them.
            std::vector<panel_choice> all = here;
            all.push_back({ "chosen", panel_find_kernel(type) });
            for (const auto & [set, other] : all) {
                for (int n = 1; n <= n_max; n += n < 20 ? 1 : 5) {
                    const int     at  = n % 2 && n + 3 <= n_max ? 3 : 0;
                    const int64_t cut = m / PANEL * (n % 5) / 5;
                    std::fill(again.begin(), again.end(), NAN);
                    other(panels.data(), blocks, 0, cut, rows.data() + at * row, row, n, again.data(), m);
                    other(panels.data(), blocks, cut, m / PANEL, rows.data() + at * row, row, n, again.data(), m);
                    if (std::memcmp(again.data(), out.data() + at * m, (size_t) n * m * sizeof(float)) != 0) {
                        std::printf("%s, %s: %d rows differ\n", ggml_type_name(type), set, n);
                        CHECK(!"the same bits");
                    }
                    CHECK(n == n_max || std::isnan(again[n * m]));
                }
            }
        }
    }
    std::printf("%d kernels\n", kernels);
    return TEST_RESULT;
}

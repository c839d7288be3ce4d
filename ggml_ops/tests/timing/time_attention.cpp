// Times of flash attention through ggml's CPU backend: milliseconds per layer over a cache of f16, by cells and rows;
// the fastest of several passes over a model's layers, whose K and V are in no inner cache. DFLASH_ATTENTION=0 measures
// stock's. Arguments: threads, heads, KV heads, channels. Prints a table.

#include "graphs.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

using clock_type = std::chrono::steady_clock;

int main(int argc, char ** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "time_attention THREADS HEADS KV_HEADS CHANNELS\n");
        return 1;
    }
    const int64_t heads = std::atoll(argv[2]), kv_heads = std::atoll(argv[3]), d = std::atoll(argv[4]);
    ggml_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    const std::unique_ptr<ggml_backend, decltype(&ggml_backend_free)> backend(
        ggml_backend_cpu_init(), ggml_backend_free);
    ggml_backend_cpu_set_n_threads(backend.get(), std::atoi(argv[1]));
    std::mt19937                    rng(1);
    std::normal_distribution<float> normal;
    const int                       widths[] = { 1, 4, 8, 16, 32, 64, 512 };
    std::printf("| cells |");
    for (const int n : widths) {
        std::printf(" %d |", n);
    }
    std::printf("\n");
    for (const int64_t cells : { 256, 1024, 4096 }) {
        const int layers =
            (int) std::max<int64_t>(4, std::min<int64_t>(28, (int64_t) 128e6 / (cells * kv_heads * d * 4)));
        const context              cache = metadata(2 * layers);
        std::vector<ggml_tensor *> kv(2 * layers);
        for (ggml_tensor *& t : kv) {
            t = ggml_new_tensor_3d(cache.get(), GGML_TYPE_F16, d, kv_heads, cells);
        }
        const buffer held(ggml_backend_alloc_ctx_tensors(cache.get(), backend.get()), ggml_backend_buffer_free);
        std::vector<ggml_fp16_t> values(cells * kv_heads * d);
        for (ggml_fp16_t & v : values) {
            v = ggml_fp32_to_fp16(normal(rng));
        }
        for (ggml_tensor * t : kv) {
            ggml_backend_tensor_set(t, values.data(), 0, ggml_nbytes(t));
        }
        std::printf("| %d |", (int) cells);
        for (const int64_t n : widths) {
            const int use = (int) std::max<int64_t>(
                2, std::min<int64_t>(layers, (int64_t) (1e10 / (double) (cells * n * heads * d))));
            const context c     = metadata(4 * use + 8);
            ggml_tensor * q     = ggml_new_tensor_3d(c.get(), GGML_TYPE_F32, d, heads, n),
                        *mask   = ggml_new_tensor_2d(c.get(), GGML_TYPE_F16, cells, n);
            ggml_cgraph * graph = ggml_new_graph_custom(c.get(), 4 * use + 8, false);
            for (int i = 0; i < use; ++i) {
                ggml_tensor *k = ggml_permute(c.get(), kv[2 * i], 0, 2, 1, 3),
                            *v = ggml_permute(c.get(), kv[2 * i + 1], 0, 2, 1, 3);
                ggml_build_forward_expand(graph, ggml_flash_attn_ext(c.get(), ggml_permute(c.get(), q, 0, 2, 1, 3), k,
                                                     v, mask, 1.0f / std::sqrt((float) d), 0.0f, 0.0f));
            }
            const buffer       work(ggml_backend_alloc_ctx_tensors(c.get(), backend.get()), ggml_backend_buffer_free);
            std::vector<float> x(d * heads * n);
            for (float & v : x) {
                v = normal(rng);
            }
            std::vector<ggml_fp16_t> sees(cells * n);
            for (int64_t r = 0; r < n; ++r) {
                for (int64_t i = 0; i < cells; ++i) {
                    sees[r * cells + i] = ggml_fp32_to_fp16(i + n <= cells + r ? 0.0f : -INFINITY);
                }
            }
            ggml_backend_tensor_set(q, x.data(), 0, ggml_nbytes(q));
            ggml_backend_tensor_set(mask, sees.data(), 0, ggml_nbytes(mask));
            double best = 1e30, all = 0;
            for (int round = 0; round < 20 && (round < 3 || all < 2); ++round) {
                const auto begin = clock_type::now();
                ggml_backend_graph_compute(backend.get(), graph);
                const double seconds = std::chrono::duration<double>(clock_type::now() - begin).count();
                all += seconds;
                best = std::min(best, seconds);
            }
            std::printf(" %.3g |", best / use * 1e3);
            std::fflush(stdout);
        }
        std::printf("\n");
    }
    return 0;
}

// Speed of products with quantized weights through ggml, in each buffer type of its CPU backend that supports them:
// 10^9 multiply-adds per second by type and rows, best of many passes. Arguments: threads, inner dimension, columns,
// megabytes of weights, types. Prints a table.

#include "graphs.h"
#include "weights.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

using clock_type = std::chrono::steady_clock;

static bool takes(ggml_backend_dev_t device, ggml_backend_buffer_type_t place, ggml_type type, int64_t k, int64_t m) {
    const context c = metadata(8);
    const buffer  none(ggml_backend_buft_alloc_buffer(place, 0), ggml_backend_buffer_free);
    ggml_tensor * w = ggml_new_tensor_2d(c.get(), type, k, m);
    w->buffer       = none.get();
    return ggml_backend_dev_supports_op(
        device, ggml_mul_mat(c.get(), w, ggml_new_tensor_2d(c.get(), GGML_TYPE_F32, k, 8)));
}

static ggml_type type_of(const std::string & name) {
    for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
        if (ggml_type_name((ggml_type) t) && name == ggml_type_name((ggml_type) t)) {
            return (ggml_type) t;
        }
    }
    std::fprintf(stderr, "no type %s\n", name.c_str());
    std::exit(1);
}

int main(int argc, char ** argv) {
    if (argc < 6) {
        std::fprintf(stderr, "time_products THREADS K M MEGABYTES TYPE...\n");
        return 1;
    }
    const int     threads = std::atoi(argv[1]);
    const int64_t k = std::atoll(argv[2]), m = std::atoll(argv[3]);
    const size_t  bytes = (size_t) std::atoll(argv[4]) * 1000000;
    ggml_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    const std::unique_ptr<ggml_backend, decltype(&ggml_backend_free)> backend(
        ggml_backend_cpu_init(), ggml_backend_free);
    ggml_backend_cpu_set_n_threads(backend.get(), threads);
    const ggml_backend_dev_t device = ggml_backend_get_device(backend.get());
    const auto               extra  = (ggml_backend_dev_get_extra_bufts_t) ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts");
    std::vector<ggml_backend_buffer_type_t> places;
    for (auto * p = extra(device); p && *p; ++p) {
        places.push_back(*p);
    }
    places.push_back(ggml_backend_cpu_buffer_type());

    std::mt19937                    rng(1);
    std::normal_distribution<float> normal;
    std::vector<float>              values(k * m), x(512 * k);
    for (float & v : values) {
        v = 0.05f * normal(rng);
    }
    for (float & v : x) {
        v = normal(rng);
    }
    const int counts[] = { 1, 2, 4, 8, 16, 32, 64, 512 };
    std::printf("| type | buffer |");
    for (const int n : counts) {
        std::printf(" %d |", n);
    }
    std::printf("\n");
    for (int a = 5; a < argc; ++a) {
        const ggml_type         type      = type_of(argv[a]);
        const std::vector<char> quantized = quantize(type, values, k, m);
        const int               copies    = std::max(2, (int) (bytes / quantized.size()));
        for (const ggml_backend_buffer_type_t place : places) {
            if (!takes(device, place, type, k, m)) {
                continue;
            }
            const context              weights = metadata(copies);
            std::vector<ggml_tensor *> w(copies);
            for (ggml_tensor *& t : w) {
                t = ggml_new_tensor_2d(weights.get(), type, k, m);
            }
            const buffer held(ggml_backend_alloc_ctx_tensors_from_buft(weights.get(), place), ggml_backend_buffer_free);
            for (ggml_tensor * t : w) {
                ggml_backend_tensor_set(t, quantized.data(), 0, quantized.size());
            }
            std::printf("| %s | %s |", argv[a], ggml_backend_buft_name(place));
            for (const int n : counts) {
                const int     use   = std::min(copies, std::max(2, (int) (2e10 / ((double) k * m * n))));
                const context c     = metadata(2 * use + 8);
                ggml_tensor * rows  = ggml_new_tensor_2d(c.get(), GGML_TYPE_F32, k, n);
                ggml_cgraph * graph = ggml_new_graph_custom(c.get(), 2 * use + 8, false);
                for (int i = 0; i < use; ++i) {
                    ggml_build_forward_expand(graph, ggml_mul_mat(c.get(), w[i], rows));
                }
                const buffer work(ggml_backend_alloc_ctx_tensors(c.get(), backend.get()), ggml_backend_buffer_free);
                ggml_backend_tensor_set(rows, x.data(), 0, ggml_nbytes(rows));
                double best = 0;
                for (int round = 0; round < 10; ++round) {
                    const auto begin = clock_type::now();
                    ggml_backend_graph_compute(backend.get(), graph);
                    best = std::max(best, (double) k * m * n * use /
                                              std::chrono::duration<double>(clock_type::now() - begin).count() / 1e9);
                }
                std::printf(" %.0f |", best);
            }
            std::printf("\n");
            std::fflush(stdout);
        }
    }
    return 0;
}

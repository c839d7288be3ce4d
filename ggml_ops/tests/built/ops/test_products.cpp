// MUL_MAT and MUL_MAT_ID through ggml's CPU backend, with float and with packed weights: correct, and with the same
// bits for any combination of rows and threads.

#include "check.h"
#include "weights.h"

#include "ggml-backend.h"
#include "ggml-cpu-impl.h"
#include "ggml-cpu.h"

#include <cmath>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <vector>

static std::mt19937 rng(1);

static std::vector<float> random_floats(int64_t n, float scale) {
    std::normal_distribution<float> normal;
    std::vector<float>              x(n);
    for (float & y : x) {
        y = scale * normal(rng);
    }
    return x;
}

static std::vector<float> read(const ggml_tensor * t) {
    std::vector<float> x(ggml_nelements(t));
    ggml_backend_tensor_get(t, x.data(), 0, ggml_nbytes(t));
    return x;
}

// Computes a product of rows x columns in every possible way.
static void check(ggml_type type, ggml_backend_buffer_type_t weights_in, int64_t k, int64_t m, int64_t n,
    int64_t n_experts, int64_t slots) {
    ggml_backend_t cpu     = ggml_backend_cpu_init();
    ggml_context * weights = ggml_init({ 1 << 16, nullptr, true }), *ctx = ggml_init({ 1 << 20, nullptr, true });
    const bool     mixture = n_experts > 0;
    ggml_tensor *  w =
        mixture ? ggml_new_tensor_3d(weights, type, k, m, n_experts) : ggml_new_tensor_2d(weights, type, k, m);
    ggml_tensor *x   = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, k, mixture ? 1 : n, mixture ? n : 1),
                *ids = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, slots, n);

    ggml_tensor * all      = mixture ? ggml_mul_mat_id(ctx, w, x, ids) : ggml_mul_mat(ctx, w, x);
    ggml_cgraph * together = ggml_new_graph(ctx), *apart = ggml_new_graph(ctx);
    ggml_build_forward_expand(together, all);
    std::vector<ggml_tensor *> one;
    for (int64_t r = 0; r < n; ++r) {
        ggml_tensor * row = ggml_view_3d(ctx, x, k, 1, 1, x->nb[1], x->nb[2], r * k * sizeof(float));
        one.push_back(mixture
                          ? ggml_mul_mat_id(ctx, w, row, ggml_view_2d(ctx, ids, slots, 1, ids->nb[1], r * ids->nb[1]))
                          : ggml_mul_mat(ctx, w, row));
        ggml_build_forward_expand(apart, one.back());
    }
    ggml_backend_buffer_t w_buffer = ggml_backend_alloc_ctx_tensors_from_buft(weights, weights_in),
                          buffer   = ggml_backend_alloc_ctx_tensors(ctx, cpu);

    if (!ggml_backend_dev_supports_op(ggml_backend_get_device(cpu), all)) {   // no kernel for this CPU
        CHECK(weights_in != ggml_backend_cpu_buffer_type());
        ggml_backend_buffer_free(w_buffer);
        ggml_backend_buffer_free(buffer);
        ggml_free(weights);
        ggml_free(ctx);
        ggml_backend_free(cpu);
        return;
    }

    auto              w_floats = random_floats(ggml_nelements(w), 0.05f);
    const auto        x_floats = random_floats(ggml_nelements(x), 1.0f);
    std::vector<char> bytes    = quantize(type, w_floats, k, ggml_nrows(w));
    if (type == GGML_TYPE_F32) {
        std::memcpy(bytes.data(), w_floats.data(), bytes.size());
    } else {
        ggml_get_type_traits(type)->to_float(bytes.data(), w_floats.data(), (int64_t) w_floats.size());
    }
    std::vector<int32_t> chosen(slots * n);
    for (auto & id : chosen) {
        id = (int32_t) (rng() % (n_experts ? n_experts : 1));
    }
    ggml_backend_tensor_set(w, bytes.data(), 0, bytes.size());
    ggml_backend_tensor_set(x, x_floats.data(), 0, ggml_nbytes(x));
    ggml_backend_tensor_set(ids, chosen.data(), 0, ggml_nbytes(ids));

    std::vector<float> first;
    for (int threads = 1; threads <= 3; ++threads) {
        ggml_backend_cpu_set_n_threads(cpu, threads);
        CHECK(ggml_backend_graph_compute(cpu, together) == GGML_STATUS_SUCCESS);
        CHECK(ggml_backend_graph_compute(cpu, apart) == GGML_STATUS_SUCCESS);
        const auto got = read(all);
        first          = threads == 1 ? got : first;
        CHECK(std::memcmp(got.data(), first.data(), got.size() * sizeof(float)) == 0);
        for (int64_t r = 0; r < n; ++r) {
            const auto row = read(one[r]);
            CHECK(std::memcmp(row.data(), got.data() + r * (int64_t) row.size(), row.size() * sizeof(float)) == 0);
        }
    }

    // float weights: rounding of f32; quantized ones: of the activations to 8 bits, about k^0.5 * 0.05 / 200 each
    const double limit = ggml_is_quantized(type) ? 0.05 : 2e-5;
    double       worst = 0;
    for (int64_t r = 0; r < n; ++r) {
        for (int64_t s = 0; s < (mixture ? slots : 1); ++s) {
            const float * matrix = w_floats.data() + (mixture ? chosen[r * slots + s] * k * m : 0);
            for (int64_t c = 0; c < m; ++c) {
                double want = 0;
                for (int64_t i = 0; i < k; ++i) {
                    want += (double) matrix[c * k + i] * x_floats[r * k + i];
                }
                worst = std::max(worst, std::abs(want - first[(r * (mixture ? slots : 1) + s) * m + c]));
            }
        }
    }
    CHECK(worst < limit);
    CHECK(worst > 0);
    if (worst >= limit) {
        std::printf("%s, mixture %d: off by %g\n", ggml_type_name(type), mixture, worst);
    }
    ggml_backend_buffer_free(w_buffer);
    ggml_backend_buffer_free(buffer);
    ggml_free(weights);
    ggml_free(ctx);
    ggml_backend_free(cpu);
}

// The tasks of a product with two experts of many; 0 if there is no kernel for this CPU.
static int count_tasks(ggml_type type, ggml_backend_buffer_type_t weights_in, int64_t n_experts) {
    constexpr int           n_threads = 8;
    ggml_threadpool_params  params    = ggml_threadpool_params_default(n_threads);
    ggml_threadpool * const pool      = ggml_threadpool_new(&params);
    ggml_backend_t          cpu       = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(cpu, n_threads);
    ggml_backend_cpu_set_threadpool(cpu, pool);
    ggml_context *weights = ggml_init({ 1 << 16, nullptr, true }), *ctx = ggml_init({ 1 << 16, nullptr, true });
    ggml_tensor * w     = ggml_new_tensor_3d(weights, type, 64, 64, n_experts),
                *x      = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 64, 1, 1),
                *ids    = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 2, 1);
    ggml_tensor * out   = ggml_mul_mat_id(ctx, w, x, ids);
    ggml_cgraph * graph = ggml_new_graph_custom(ctx, 4, false);
    ggml_build_forward_expand(graph, out);
    ggml_backend_buffer_t w_buffer = ggml_backend_alloc_ctx_tensors_from_buft(weights, weights_in),
                          buffer   = ggml_backend_alloc_ctx_tensors(ctx, cpu);
    ggml_backend_buffer_clear(w_buffer, 0);
    ggml_backend_buffer_clear(buffer, 0);
    const int32_t chosen[] = { (int32_t) n_experts - 1, 0 };
    ggml_backend_tensor_set(ids, chosen, 0, sizeof(chosen));
    int n = 0;
    if (ggml_backend_dev_supports_op(ggml_backend_get_device(cpu), out)) {
        CHECK(ggml_backend_graph_compute(cpu, graph) == GGML_STATUS_SUCCESS);
        n = ggml_threadpool_chunk_add(pool, 0) - n_threads;   // it has counted a task for each thread before the first
    }
    ggml_backend_buffer_free(w_buffer);
    ggml_backend_buffer_free(buffer);
    ggml_free(weights);
    ggml_free(ctx);
    ggml_backend_free(cpu);
    ggml_threadpool_free(pool);
    return n;
}

// One product of a random shape: odd counts, non-contiguous rows, batches in any order, at least as many threads as
// columns.
static void fuzz(ggml_backend_buffer_type_t in_panels) {
    const ggml_type types[]   = { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1,
          GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_IQ4_NL, GGML_TYPE_MXFP4, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K,
          GGML_TYPE_Q5_K, GGML_TYPE_Q6_K, GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, GGML_TYPE_IQ4_XS, GGML_TYPE_IQ3_S,
          GGML_TYPE_IQ3_XXS, GGML_TYPE_IQ2_S, GGML_TYPE_IQ2_XS, GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ1_S, GGML_TYPE_IQ1_M,
          GGML_TYPE_TQ1_0, GGML_TYPE_TQ2_0 };
    const auto      pick      = [](int from, int to) { return from + (int64_t) (rng() % (uint32_t) (to - from + 1)); };
    const ggml_type type      = types[pick(0, (int) std::size(types) - 1)];
    const bool      quantized = ggml_is_quantized(type);
    const int64_t   k         = ggml_blck_size(type) == 1 ? 16 * pick(1, 40) : ggml_blck_size(type) * pick(1, 4),
                  m = pick(1, 100), gap = 4 * pick(0, 3);
    const int64_t  n1 = pick(1, 40), n2 = pick(1, 3), n3 = pick(1, 2);
    ggml_backend_t cpu     = ggml_backend_cpu_init();
    ggml_context * weights = ggml_init({ 1 << 16, nullptr, true }), *ctx = ggml_init({ 1 << 20, nullptr, true });
    ggml_tensor *  w       = ggml_new_tensor_2d(weights, type, k, m),
                *base      = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, k + gap, n1, n2, n3);
    ggml_tensor * x        = ggml_view_4d(ctx, base, k, n1, n2, n3, base->nb[1], base->nb[2], base->nb[3], 0);
    const bool    permuted = quantized && pick(0, 1);   // stock float products need contiguous rows
    x                      = permuted ? ggml_permute(ctx, x, 0, 2, 1, 3) : x;
    ggml_tensor * out      = ggml_mul_mat(ctx, w, x);
    ggml_cgraph * graph    = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, out);
    ggml_backend_buffer_t w_buffer = ggml_backend_alloc_ctx_tensors_from_buft(
                              weights, quantized ? in_panels : ggml_backend_cpu_buffer_type()),
                          buffer = ggml_backend_alloc_ctx_tensors(ctx, cpu);

    auto              w_floats = random_floats(k * m, 0.05f);
    const auto        x_floats = random_floats(ggml_nelements(base), 1.0f);
    std::vector<char> bytes(ggml_nbytes(w));
    if (type == GGML_TYPE_F32) {
        std::memcpy(bytes.data(), w_floats.data(), bytes.size());
    } else {
        bytes = quantize(type, w_floats, k, m);
        ggml_get_type_traits(type)->to_float(bytes.data(), w_floats.data(), k * m);
    }
    ggml_backend_tensor_set(w, bytes.data(), 0, bytes.size());
    ggml_backend_tensor_set(base, x_floats.data(), 0, ggml_nbytes(base));
    std::vector<float> first;
    for (const int threads : { 1, (int) pick(2, 8) }) {
        ggml_backend_cpu_set_n_threads(cpu, threads);
        CHECK(ggml_backend_graph_compute(cpu, graph) == GGML_STATUS_SUCCESS);
        const auto got = read(out);
        first          = first.empty() ? got : first;
        CHECK(std::memcmp(got.data(), first.data(), got.size() * sizeof(float)) == 0);
    }
    double worst = 0;
    for (int64_t r = 0; r < n1 * n2 * n3; ++r) {
        const int64_t i1 = r % out->ne[1], i2 = r / out->ne[1] % out->ne[2], i3 = r / (out->ne[1] * out->ne[2]);
        const float * row =
            (const float *) ((const char *) x_floats.data() + i1 * x->nb[1] + i2 * x->nb[2] + i3 * x->nb[3]);
        for (int64_t c = 0; c < m; ++c) {
            double want = 0;
            for (int64_t i = 0; i < k; ++i) {
                want += (double) w_floats[c * k + i] * row[i];
            }
            worst = std::max(worst, std::abs(want - first[r * m + c]));
        }
    }
    CHECK(worst < (quantized ? 0.08 : 2e-5));
    if (worst >= (quantized ? 0.08 : 2e-5)) {
        std::printf("%s, k %d, m %d, rows %d x %d x %d, gap %d, permuted %d: off by %g\n", ggml_type_name(type),
            (int) k, (int) m, (int) n1, (int) n2, (int) n3, (int) gap, permuted, worst);
    }
    ggml_backend_buffer_free(w_buffer);
    ggml_backend_buffer_free(buffer);
    ggml_free(weights);
    ggml_free(ctx);
    ggml_backend_free(cpu);
}

int main() {
    ggml_backend_buffer_type_t in_panels = panels();
    CHECK(in_panels);
    ggml_backend_buffer_type_t for_fuzz = ggml_backend_cpu_buffer_type();   // without kernels: stock's
    {
        ggml_context * ctx = ggml_init({ 1 << 16, nullptr, true });
        ggml_tensor *  w   = ggml_new_tensor_2d(ctx, GGML_TYPE_Q4_0, 32, 16);
        w->buffer          = ggml_backend_buft_alloc_buffer(in_panels, 0);
        if (ggml_backend_dev_supports_op(ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0),
                ggml_mul_mat(ctx, w, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 32, 1)))) {
            for_fuzz = in_panels;
        }
        ggml_backend_buffer_free(w->buffer);
        ggml_free(ctx);
    }
    for (int i = 0; i < 300; ++i) {
        fuzz(for_fuzz);
    }
    // experts without rows take no time of the threads
    CHECK(count_tasks(GGML_TYPE_F16, ggml_backend_cpu_buffer_type(), 128) ==
          count_tasks(GGML_TYPE_F16, ggml_backend_cpu_buffer_type(), 2));
    CHECK(count_tasks(GGML_TYPE_Q4_0, in_panels, 128) == count_tasks(GGML_TYPE_Q4_0, in_panels, 2));
    for (const int64_t n : { 1, 2, 5, 16, 37 }) {
        for (const ggml_type type : { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16 }) {
            check(type, ggml_backend_cpu_buffer_type(), 208, 77, n, 0, 1);
            check(type, ggml_backend_cpu_buffer_type(), 208, 77, n, 6, 3);
        }
        for (const ggml_type type : { GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_MXFP4, GGML_TYPE_Q8_0,
                 GGML_TYPE_Q5_K, GGML_TYPE_Q6_K, GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, GGML_TYPE_IQ4_XS, GGML_TYPE_IQ1_M }) {
            if (in_panels) {
                check(type, in_panels, 512, 391, n, 0, 1);
                check(type, in_panels, 512, 391, n, 6, 3);
            }
        }
    }
    return TEST_RESULT;
}

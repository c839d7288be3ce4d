// Fused ops (op_fusion.h) give the same bits as separate ops, in memory that is reused, for any number of rows and
// threads; and a norm and a RoPE are correct.
//
//   test_op_fusion [all] [N]     all pass widths and numbers of threads; only the first N pairs of types

#include "check.h"
#include "weights.h"

#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

static constexpr int64_t WIDTH = 512, HEAD = 64, HEADS = 8, KV_HEADS = 2, CELLS = 96;

static std::mt19937 rng(1);

static std::vector<float> random_floats(int64_t n) {
    std::normal_distribution<float> normal;
    std::vector<float>              x(n);
    for (float & v : x) {
        v = normal(rng);
    }
    return x;
}

struct layer {
    ggml_context *ctx, *fixed, *apart;   // computed; given; given and packed
    ggml_cgraph * graph;
    ggml_tensor * a, *b, *places, *positions, *norm, *head_norm, *k_cache, *v_cache, *q, *k, *v, *gate, *up, *glu;
    std::vector<ggml_tensor *> matrices, results;
    ggml_backend_buffer_t      memory[2] = {};

    // Types of Q, K and V and of the others, rows of the pass. `seen`: the result of SWIGLU is an output too.
    layer(ggml_type kind, ggml_type kind_v, int64_t n, int64_t hidden, bool seen) {
        ctx                = ggml_init({ 1 << 20, nullptr, true });
        fixed              = ggml_init({ 1 << 20, nullptr, true });
        apart              = ggml_init({ 1 << 20, nullptr, true });
        a                  = ggml_new_tensor_2d(fixed, GGML_TYPE_F32, WIDTH, n);
        b                  = ggml_new_tensor_2d(fixed, GGML_TYPE_F32, WIDTH, n);
        places             = ggml_new_tensor_1d(fixed, GGML_TYPE_I64, n);
        positions          = ggml_new_tensor_1d(fixed, GGML_TYPE_I32, n);
        norm               = ggml_new_tensor_1d(fixed, GGML_TYPE_F32, WIDTH);
        head_norm          = ggml_new_tensor_1d(fixed, GGML_TYPE_F32, HEAD);
        k_cache            = ggml_new_tensor_2d(fixed, GGML_TYPE_F16, HEAD * KV_HEADS, CELLS);
        v_cache            = ggml_new_tensor_2d(fixed, GGML_TYPE_F16, HEAD * KV_HEADS, CELLS);
        const auto product = [&](ggml_type type, int64_t to, ggml_tensor * x) {
            matrices.push_back(ggml_new_tensor_2d(apart, type, x->ne[0], to));
            return ggml_mul_mat(ctx, matrices.back(), x);
        };
        const auto heads = [&](ggml_tensor * x, int64_t count) {
            x = ggml_mul(ctx, ggml_rms_norm(ctx, ggml_reshape_3d(ctx, x, HEAD, count, n), 1e-6f), head_norm);
            return ggml_rope_ext(
                ctx, x, positions, nullptr, HEAD, GGML_ROPE_TYPE_NEOX, 4096, 10000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
        };
        ggml_tensor *sum = ggml_add(ctx, a, b), *x = ggml_mul(ctx, ggml_rms_norm(ctx, sum, 1e-6f), norm);
        q                      = product(kind, HEAD * HEADS, x);
        k                      = product(kind, HEAD * KV_HEADS, x);
        v                      = product(kind_v, HEAD * KV_HEADS, x);
        ggml_tensor *q_rotated = heads(q, HEADS), *k_rotated = heads(k, KV_HEADS);
        results = { q_rotated, ggml_set_rows(ctx, k_cache, ggml_reshape_2d(ctx, k_rotated, HEAD * KV_HEADS, n), places),
            ggml_set_rows(ctx, v_cache, v, places) };
        ggml_tensor * mixed =
            ggml_add(ctx, sum, product(kind, WIDTH, ggml_reshape_2d(ctx, q_rotated, HEAD * HEADS, n)));
        ggml_tensor * y = ggml_mul(ctx, ggml_rms_norm(ctx, mixed, 1e-6f), norm);
        gate            = product(kind, hidden, y);
        up              = product(kind, hidden, y);
        glu             = ggml_swiglu_split(ctx, gate, up);
        results.push_back(ggml_add(ctx, mixed, product(kind_v, WIDTH, glu)));
        results.push_back(ggml_mul(ctx, ggml_rms_norm(ctx, results.back(), 1e-6f), norm));   // a norm without products
        if (seen) {
            results.push_back(glu);
        }
        graph = ggml_new_graph(ctx);
        for (ggml_tensor * result : results) {
            ggml_set_output(result);
            ggml_build_forward_expand(graph, result);
        }
    }
    ~layer() {
        for (ggml_backend_buffer_t buffer : memory) {
            ggml_backend_buffer_free(buffer);
        }
        ggml_free(ctx);
        ggml_free(fixed);
        ggml_free(apart);
    }
    layer(const layer &) = delete;

    void allocate(ggml_backend_t cpu, ggml_backend_buffer_type_t matrices_in) {
        memory[0] = ggml_backend_alloc_ctx_tensors(fixed, cpu);
        memory[1] = ggml_backend_alloc_ctx_tensors_from_buft(apart, matrices_in);
        CHECK(memory[0] && memory[1]);
    }

    void fill() {
        rng.seed(7);
        for (ggml_tensor * t : { a, b, norm, head_norm }) {
            const std::vector<float> x = random_floats(ggml_nelements(t));
            ggml_backend_tensor_set(t, x.data(), 0, ggml_nbytes(t));
        }
        for (ggml_tensor * m : matrices) {
            std::vector<float> x = random_floats(ggml_nelements(m));
            for (float & f : x) {
                f *= 0.1f;
            }
            const std::vector<char> bytes = pack(m->type, x, m->ne[0]);
            ggml_backend_tensor_set(m, bytes.data(), 0, bytes.size());
        }
        for (int64_t i = 0; i < places->ne[0]; ++i) {
            const int64_t place    = i * 37 % CELLS;
            const int32_t position = (int32_t) (i * 13);
            ggml_backend_tensor_set(places, &place, i * sizeof(place), sizeof(place));
            ggml_backend_tensor_set(positions, &position, i * sizeof(position), sizeof(position));
        }
    }

    void clear() {
        for (ggml_tensor * t : read_from()) {
            if (t->data) {
                ggml_backend_tensor_memset(t, 0, 0, ggml_nbytes(t));
            }
        }
    }

    std::vector<ggml_tensor *> read_from() const {
        std::vector<ggml_tensor *> from = { k_cache, v_cache, results[0] };
        from.insert(from.end(), results.begin() + 3, results.end());
        return from;
    }

    std::vector<std::vector<char>> read() const {
        std::vector<std::vector<char>> out;
        for (const ggml_tensor * t : read_from()) {
            out.emplace_back(ggml_nbytes(t));
            ggml_backend_tensor_get(t, out.back().data(), 0, out.back().size());
        }
        return out;
    }

    int place_of(const ggml_tensor * node) {
        for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
            if (ggml_graph_node(graph, i) == node) {
                return i;
            }
        }
        return -1;
    }
};

static bool is_zero(const ggml_tensor * t) {
    std::vector<char> bytes(ggml_nbytes(t));
    ggml_backend_tensor_get(t, bytes.data(), 0, bytes.size());
    return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0; });
}

// Computes every op separately, first with its own memory for each tensor (only a norm and its weight are always
// together), then all in the same memory. swiglu_is_fused: the results of gate and up are then not written.
static std::vector<std::vector<char>> compute_alone(ggml_backend_t cpu, layer & l, bool swiglu_is_fused) {
    ggml_backend_buffer_t memory = ggml_backend_alloc_ctx_tensors(l.ctx, cpu);
    l.clear();
    const int            n = ggml_graph_n_nodes(l.graph);
    std::vector<int32_t> flags(n);
    for (int i = 0; i < n; ++i) {
        flags[i] = ggml_graph_node(l.graph, i)->flags;
        ggml_graph_node(l.graph, i)->flags &= ~GGML_TENSOR_FLAG_COMPUTE;
    }
    for (int i = 0; i < n; ++i) {
        const int last = ggml_graph_node(l.graph, i)->op == GGML_OP_RMS_NORM ? i + 1 : i;
        for (int j = i; j <= last; ++j) {
            ggml_graph_node(l.graph, j)->flags = flags[j];
        }
        CHECK(ggml_backend_graph_compute(cpu, l.graph) == GGML_STATUS_SUCCESS);
        for (int j = i; j <= last; ++j) {
            ggml_graph_node(l.graph, j)->flags &= ~GGML_TENSOR_FLAG_COMPUTE;
        }
        i = last;
    }
    auto out = l.read();
    for (int i = 0; i < n; ++i) {
        ggml_graph_node(l.graph, i)->flags = flags[i];
    }
    l.clear();
    for (ggml_tensor * t : { l.gate, l.up }) {
        ggml_backend_tensor_memset(t, 0, 0, ggml_nbytes(t));
    }
    CHECK(ggml_backend_graph_compute(cpu, l.graph) == GGML_STATUS_SUCCESS);
    CHECK(l.read() == out);
    CHECK(is_zero(l.gate) == swiglu_is_fused && is_zero(l.up) == swiglu_is_fused);
    ggml_backend_buffer_free(memory);
    return out;
}

static void check_norm(const layer & l, const std::vector<std::vector<char>> & out) {
    const float *      x = (const float *) out[3].data(), *y = (const float *) out[4].data();
    std::vector<float> weight(WIDTH);
    ggml_backend_tensor_get(l.norm, weight.data(), 0, WIDTH * sizeof(float));
    for (size_t row = 0; row < out[3].size() / sizeof(float); row += WIDTH) {
        double sum = 0;
        for (int64_t i = 0; i < WIDTH; ++i) {
            sum += (double) x[row + i] * x[row + i];
        }
        for (int64_t i = 0; i < WIDTH; ++i) {
            const double right = x[row + i] / std::sqrt(sum / WIDTH + 1e-6) * weight[i];
            CHECK(std::fabs(y[row + i] - right) <= 4e-7 * std::fabs(right));
        }
    }
}

// Rotating a head whose pairs are half a head apart (ours) is the same as rotating one whose pairs are adjacent
// (ggml's), whatever was rotated before.
static void check_rope(ggml_backend_t cpu) {
    struct rope_case {
        int64_t heads, rows;
        int     n_dims, offset, first;
        bool    factors, in_place;
        float   base, ext;
    };
    for (const rope_case & h : std::vector<rope_case>{ { 3, 1, 64, 0, 0, false, false, 1e4f, 0 },
             { 3, 7, 64, 0, 5, false, false, 1e4f, 0 }, { 1, 7, 64, 0, 5, false, true, 1e6f, 0 },
             { 2, 7, 64, 0, 5, true, false, 1e4f, 0 }, { 2, 7, 64, 0, 5, true, false, 1e4f, 1 },
             { 5, 70, 32, 0, 900, false, false, 1e4f, 1 }, { 2, 3, 36, 16, 8, true, false, 1e4f, 0 },
             { 3, 7, 64, 0, 5, false, false, 1e4f, 0 }, { 3, 7, 64, 0, 6, false, true, 1e4f, 0 } }) {
        ggml_context * c       = ggml_init({ 1 << 20, nullptr, true });
        ggml_tensor *  x       = ggml_new_tensor_3d(c, GGML_TYPE_F32, HEAD, h.heads, h.rows),
                    *y         = ggml_new_tensor_3d(c, GGML_TYPE_F32, HEAD, h.heads, h.rows);
        ggml_tensor *positions = ggml_new_tensor_1d(c, GGML_TYPE_I32, h.rows),
                    *factors   = h.factors ? ggml_new_tensor_1d(c, GGML_TYPE_F32, h.n_dims / 2) : nullptr;
        const auto rope        = [&](ggml_tensor * t, int mode) {
            ggml_tensor * out = (h.in_place ? ggml_rope_ext_inplace : ggml_rope_ext)(
                c, t, positions, factors, h.n_dims, mode, 4096, h.base, 0.5f, h.ext, 1.0f, 32.0f, 1.0f);
            out->op_params[15] = h.offset;
            return out;
        };
        ggml_tensor * apart = rope(x, GGML_ROPE_TYPE_NEOX), *beside = rope(y, GGML_ROPE_TYPE_NORMAL);
        ggml_cgraph * graph = ggml_new_graph(c);
        ggml_build_forward_expand(graph, apart);
        ggml_build_forward_expand(graph, beside);
        ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(c, cpu);
        const auto            place  = [&](int64_t i) {   // index in y of channel i of x
            const int64_t at = i - h.offset, half = h.n_dims / 2;
            return at < 0 || at >= h.n_dims ? i : h.offset + at % half * 2 + at / half;
        };
        const std::vector<float> from = random_floats(ggml_nelements(x));
        std::vector<float>       moved(from.size()), got(from.size()), want(from.size());
        for (size_t i = 0; i < from.size(); ++i) {
            moved[i / HEAD * HEAD + place(i % HEAD)] = from[i];
        }
        for (int threads = 1; threads <= 3; ++threads) {
            ggml_backend_tensor_set(x, from.data(), 0, ggml_nbytes(x));
            ggml_backend_tensor_set(y, moved.data(), 0, ggml_nbytes(y));
            std::vector<int32_t> at(h.rows);
            for (int64_t i = 0; i < h.rows; ++i) {
                at[i] = (int32_t) (h.first + i * 3 % 50);
            }
            ggml_backend_tensor_set(positions, at.data(), 0, ggml_nbytes(positions));
            if (factors) {
                std::vector<float> f(h.n_dims / 2);
                for (size_t i = 0; i < f.size(); ++i) {
                    f[i] = 1.0f + 0.25f * (float) i;
                }
                ggml_backend_tensor_set(factors, f.data(), 0, ggml_nbytes(factors));
            }
            ggml_backend_cpu_set_n_threads(cpu, threads);
            CHECK(ggml_backend_graph_compute(cpu, graph) == GGML_STATUS_SUCCESS);
            ggml_backend_tensor_get(apart, got.data(), 0, ggml_nbytes(apart));
            ggml_backend_tensor_get(beside, want.data(), 0, ggml_nbytes(beside));
            for (size_t i = 0; i < from.size(); ++i) {
                const size_t other   = i / HEAD * HEAD + place(i % HEAD);
                const int    channel = (int) (i % HEAD);
                const bool   still   = channel < h.offset || channel >= h.offset + h.n_dims;
                CHECK(still ? got[i] == from[i] : std::fabs(got[i] - want[other]) <= 1e-6f);
            }
        }
        ggml_backend_buffer_free(buffer);
        ggml_free(c);
    }
}

// Whether this CPU has kernels for packed weights.
static bool has_panels(ggml_backend_t cpu) {
    layer l(GGML_TYPE_Q4_0, GGML_TYPE_Q4_0, 1, 768, false);
    l.allocate(cpu, panels());
    return ggml_backend_supports_op(cpu, l.q);
}

// Compares a layer in one pass of n rows with its ops one by one.
static void check_layer(ggml_backend_t cpu, ggml_type kind, ggml_type kind_v, int64_t n, int64_t hidden, bool seen,
    bool in_panels, const std::vector<int> & numbers_of_threads) {
    layer alone(kind, kind_v, n, hidden, seen), together(kind, kind_v, n, hidden, seen);
    for (layer * l : { &alone, &together }) {
        l->allocate(cpu, in_panels ? panels() : ggml_backend_cpu_buffer_type());
        l->fill();
    }
    ggml_backend_cpu_set_n_threads(cpu, 1);
    const auto expected = compute_alone(cpu, alone, in_panels && hidden % 256 == 0);
    // memory is planned and reused, as in llama.cpp
    ggml_backend_buffer_type_t type  = ggml_backend_cpu_buffer_type();
    ggml_backend_sched_t       sched = ggml_backend_sched_new(&cpu, &type, 1, 256, false, false);
    for (const int threads : numbers_of_threads) {
        ggml_backend_cpu_set_n_threads(cpu, threads);
        together.clear();
        CHECK(ggml_backend_sched_graph_compute(sched, together.graph) == GGML_STATUS_SUCCESS);
        CHECK(together.read() == expected);
    }
    ggml_backend_sched_free(sched);
    check_norm(alone, expected);
    if (in_panels) {   // products with the same input and the same kind of rows are adjacent now
        const int q = together.place_of(together.q), k = together.place_of(together.k),
                  v     = together.place_of(together.v);
        const bool same = kind == kind_v || kind == GGML_TYPE_Q4_K || kind_v == GGML_TYPE_Q5_1;
        CHECK(k == q + 1 && (v == q + 2) == same);
    }
}

int main(int argc, char ** argv) {
    ggml_backend_t cpu = ggml_backend_cpu_init();
    CHECK(panels());
    const bool kernels = has_panels(cpu);
    check_rope(cpu);
    const ggml_type            kinds[][2] = { { GGML_TYPE_Q4_0, GGML_TYPE_Q4_0 }, { GGML_TYPE_Q4_0, GGML_TYPE_Q8_0 },
                   { GGML_TYPE_Q4_K, GGML_TYPE_Q6_K }, { GGML_TYPE_MXFP4, GGML_TYPE_IQ4_NL }, { GGML_TYPE_Q5_K, GGML_TYPE_F16 },
                   { GGML_TYPE_Q4_1, GGML_TYPE_Q5_1 }, { GGML_TYPE_Q4_1, GGML_TYPE_Q5_0 } };
    const bool                 all        = argc > 1 && argv[1] == std::string("all");
    const std::vector<int64_t> rows =
        all ? std::vector<int64_t>{ 1, 2, 3, 5, 16, 33, 70 } : std::vector<int64_t>{ 1, 3, 33 };
    const std::vector<int> threads = all ? std::vector<int>{ 1, 2, 3, 4, 8 } : std::vector<int>{ 1, 3 };
    int                    layers = 0, left = argc > 1 + all ? std::atoi(argv[1 + all]) : 100;
    for (const auto & [kind, kind_v] : kinds) {
        if (left-- == 0) {
            break;
        }
        for (const int64_t n : rows) {
            // pieces of whole panels and several blocks of the quantized type, and widths that cannot be divided like
            // that
            const int64_t hidden = n == 2 || n == 33 ? 512 + 64 * (kind_v == GGML_TYPE_Q8_0) + 256
                                   : n == 70         ? 4096
                                                     : 768;
            check_layer(cpu, kind, kind_v, n, hidden, n == 3 || n == 16, kernels && kind_v != GGML_TYPE_F16, threads);
            ++layers;
        }
    }
    std::printf("%d layers\n", layers);
    ggml_backend_free(cpu);
    return TEST_RESULT;
}

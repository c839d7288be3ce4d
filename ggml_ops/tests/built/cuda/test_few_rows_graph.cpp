// Graphs with products of few rows: gemm/cuda/few_rows.cu, emulated, computes what it says it does, and the CPU backend
// every other node, in the memory that ggml's allocator gives them. Against the same graph with float weights on the
// CPU alone.

#include "common.cuh"

#include "check.h"
#include "gemm/cuda/few_rows.cu"
#include "normal.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpp.h"
#include "ggml-cpu.h"

#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr int WIDTH = 256, INNER = 512;

ggml_context_ptr new_context() { return ggml_context_ptr(ggml_init({ 1 << 20, nullptr, true })); }

// Weights by name, as a type or as floats of the same values.
class weights {
  public:
    weights(ggml_backend_t backend, bool as_float) : ctx_(new_context()), backend_(backend), as_float_(as_float) {}

    ggml_tensor * matrix(ggml_type type, int n_k, int n_columns) {
        const std::vector<float> x = normal((size_t) n_k * n_columns, 0.05f, seed_++);
        std::vector<char>        data(ggml_row_size(type, n_k) * n_columns);
        ggml_quantize_chunk(type, x.data(), data.data(), 0, n_columns, n_k, nullptr);
        if (as_float_) {
            std::vector<char> floats(x.size() * sizeof(float));
            ggml_get_type_traits(type)->to_float(data.data(), (float *) floats.data(), (int64_t) x.size());
            return add(ggml_new_tensor_2d(ctx_.get(), GGML_TYPE_F32, n_k, n_columns), floats);
        }
        return add(ggml_new_tensor_2d(ctx_.get(), type, n_k, n_columns), data);
    }
    ggml_tensor * norm(int n) {
        const std::vector<float> x = normal(n, 1.0f, seed_++);
        return add(ggml_new_tensor_1d(ctx_.get(), GGML_TYPE_F32, n),
            { (const char *) x.data(), (const char *) (x.data() + x.size()) });
    }

    // Once all are there.
    void load() {
        buffer_.reset(ggml_backend_alloc_ctx_tensors(ctx_.get(), backend_));
        ggml_backend_buffer_set_usage(buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        for (size_t i = 0; i < tensors_.size(); ++i) {
            ggml_backend_tensor_set(tensors_[i], data_[i].data(), 0, data_[i].size());
        }
    }

  private:
    ggml_tensor * add(ggml_tensor * tensor, std::vector<char> data) {
        tensors_.push_back(tensor);
        data_.push_back(std::move(data));
        return tensor;
    }

    ggml_context_ptr               ctx_;
    ggml_backend_t                 backend_;
    bool                           as_float_;
    int                            seed_ = 1;
    std::vector<ggml_tensor *>     tensors_;
    std::vector<std::vector<char>> data_;
    ggml_backend_buffer_ptr        buffer_;
};

ggml_tensor * normed(ggml_context * ctx, ggml_tensor * x, ggml_tensor * weight) {
    return ggml_mul(ctx, ggml_rms_norm(ctx, x, 1e-6f), weight);
}

// Two layers like a transformer's, with a product in place of attention: q, k and v of one norm (v of another type),
// a residual stream, a gated feed-forward, a head. What is added may be on either side.
ggml_tensor * layers(ggml_context * ctx, ggml_cgraph * graph, weights & w, ggml_tensor * x) {
    for (int layer = 0; layer < 2; ++layer) {
        ggml_tensor * rows = normed(ctx, x, w.norm(WIDTH));
        ggml_tensor * q    = ggml_mul_mat(ctx, w.matrix(GGML_TYPE_Q4_K, WIDTH, WIDTH), rows);
        ggml_tensor * k    = ggml_mul_mat(ctx, w.matrix(GGML_TYPE_Q4_K, WIDTH, WIDTH), rows);
        ggml_tensor * v    = ggml_mul_mat(ctx, w.matrix(GGML_TYPE_Q6_K, WIDTH, WIDTH), rows);
        ggml_tensor * mix  = ggml_mul(ctx, ggml_silu(ctx, ggml_add(ctx, q, k)), v);
        ggml_build_forward_expand(graph, mix);
        ggml_tensor * out  = ggml_mul_mat(ctx, w.matrix(GGML_TYPE_Q5_K, WIDTH, WIDTH), mix);
        x                  = layer ? ggml_add(ctx, x, out) : ggml_add(ctx, out, x);
        ggml_tensor * ff   = normed(ctx, x, w.norm(WIDTH));
        ggml_tensor * gate = ggml_mul_mat(ctx, w.matrix(GGML_TYPE_Q8_0, WIDTH, INNER), ff);
        ggml_tensor * up   = ggml_mul_mat(ctx, w.matrix(GGML_TYPE_Q8_0, WIDTH, INNER), ff);
        ggml_tensor * glu  = ggml_swiglu_split(ctx, gate, up);
        x                  = ggml_add(ctx, ggml_mul_mat(ctx, w.matrix(GGML_TYPE_Q4_0, INNER, WIDTH), glu), x);
    }
    return ggml_mul_mat(ctx, w.matrix(GGML_TYPE_Q6_K, WIDTH, 300), normed(ctx, x, w.norm(WIDTH)));
}

// A row buffer that is written between two products that read it: the rows must be laid out again.
ggml_tensor * written_between(ggml_context * ctx, ggml_cgraph * graph, weights & w, ggml_tensor * x) {
    ggml_tensor * matrix = w.matrix(GGML_TYPE_Q4_K, WIDTH, WIDTH);
    ggml_tensor * rows   = ggml_scale(ctx, x, 2.0f);
    ggml_tensor * first  = ggml_mul_mat(ctx, matrix, rows);
    ggml_build_forward_expand(graph, first);
    ggml_build_forward_expand(graph, ggml_cpy(ctx, ggml_scale(ctx, x, -3.0f), rows));
    return ggml_add(ctx, ggml_mul_mat(ctx, matrix, rows), ggml_scale(ctx, first, 0.5f));
}

using maker = std::function<ggml_tensor *(ggml_context *, ggml_cgraph *, weights &, ggml_tensor *)>;

// The result of a graph over `rows`, evaluated as often as there are rows: each time another input. With a context, the
// nodes that gemm/cuda computes are its.
std::vector<std::vector<float>> results(const maker & make, const std::vector<std::vector<float>> & rows, int n_rows,
    ggml_backend_cuda_context * cuda, int * n_fused = nullptr) {
    const ggml_backend_ptr backend(ggml_backend_cpu_init());
    const ggml_context_ptr ctx   = new_context();
    ggml_cgraph *          graph = ggml_new_graph(ctx.get());
    weights                w(backend.get(), !cuda);
    ggml_tensor *          x = ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, WIDTH, n_rows);
    ggml_set_input(x);
    ggml_tensor * out = make(ctx.get(), graph, w, x);
    ggml_set_output(out);
    ggml_build_forward_expand(graph, out);
    w.load();
    const ggml_gallocr_ptr alloc(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend.get())));
    CHECK(ggml_gallocr_alloc_graph(alloc.get(), graph));

    std::vector<std::vector<float>> all;
    for (const std::vector<float> & input : rows) {
        ggml_backend_tensor_set(x, input.data(), 0, ggml_nbytes(x));
        for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
            ggml_tensor * node = ggml_graph_node(graph, i);
            if (const int n = cuda ? dflash_cuda_fuse(*cuda, graph, i) : 0) {
                i += n;
                if (n_fused) {
                    *n_fused += n;
                }
            } else if (cuda && dflash_cuda_has_mul_mat(0, node)) {
                dflash_cuda_mul_mat(*cuda, node);
            } else {
                ggml_cgraph one = ggml_graph_view(graph, i, i + 1);
                ggml_backend_graph_compute(backend.get(), &one);
            }
        }
        all.emplace_back(ggml_nelements(out));
        ggml_backend_tensor_get(out, all.back().data(), 0, ggml_nbytes(out));
    }
    return all;
}

double error(const std::vector<float> & a, const std::vector<float> & b) {
    double wrong = 0, all = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        wrong += ((double) a[i] - b[i]) * ((double) a[i] - b[i]);
        all += (double) b[i] * b[i];
    }
    return wrong / all;
}

void serve_all(int from) {
    for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
        dflash_cuda_set_few_rows(0, (ggml_type) type, from);
    }
}

void test_layers() {
    std::vector<std::vector<float>> inputs   = { normal(12 * WIDTH, 1.0f, 90), normal(12 * WIDTH, 1.0f, 91) };
    const auto                      expected = results(layers, inputs, 12, nullptr);
    serve_all(1);
    ggml_backend_cuda_context cuda;
    emulated_launches = 0;
    int        fused  = 0;
    const auto got    = results(layers, inputs, 12, &cuda, &fused);
    for (size_t i = 0; i < inputs.size(); ++i) {
        std::printf("layers: %.2e\n", error(got[i], expected[i]));
        CHECK(error(got[i], expected[i]) < 1e-5);
    }
    // Five norms; in each of two layers three sums with a product and a gate; by evaluation.
    CHECK(fused == 2 * (5 + 2 * (3 + 2)));
    // 17 products less the gates' two, 5 norms, and rows laid out for v, out and down.
    CHECK(emulated_launches == 2 * (2 * (3 + 1 + 1 + 1) + 1 + 5 + 2 * 3));

    // A row's bits are the same in a pass of its own.
    std::vector<float> one(inputs[0].begin(), inputs[0].begin() + WIDTH);
    const auto         alone = results(layers, { one }, 1, &cuda);
    CHECK(std::equal(alone[0].begin(), alone[0].end(), got[0].begin()));

    serve_all(13);   // not so few
    emulated_launches = 0;
    results(layers, inputs, 12, &cuda);
    CHECK(emulated_launches == 0);
    dflash_cuda_forget(cuda);
}

// Two evaluations of a graph with other inputs, of three rows.
void check_again(const maker & make, ggml_backend_cuda_context & cuda) {
    const std::vector<std::vector<float>> inputs   = { normal(3 * WIDTH, 1.0f, 7), normal(3 * WIDTH, 1.0f, 8) };
    const auto                            expected = results(make, inputs, 3, nullptr);
    serve_all(1);
    const auto got = results(make, inputs, 3, &cuda);
    for (size_t i = 0; i < inputs.size(); ++i) {
        CHECK(error(got[i], expected[i]) < 1e-5);
    }
}

void test_written_between() {
    ggml_backend_cuda_context cuda;
    check_again(written_between, cuda);
    cuda.curr_stream_no = 1;   // another stream may run beside this one: nothing is kept
    check_again(written_between, cuda);
    dflash_cuda_forget(cuda);
}

ggml_tensor * one_product(ggml_context * ctx, ggml_cgraph *, weights & w, ggml_tensor * x) {
    return ggml_mul_mat(ctx, w.matrix(GGML_TYPE_Q4_K, WIDTH, WIDTH), x);
}

// Its first node is its last: the next evaluation begins where this one ended.
void test_a_graph_of_one_product() {
    ggml_backend_cuda_context cuda;
    check_again(one_product, cuda);
    dflash_cuda_forget(cuda);
}

// 64 rows of these do not fit twice into the shared memory of an RTX 3090's block: ggml's product, and right.
void test_what_does_not_fit() {
    serve_all(1);
    for (const int n_rows : { 32, 33, 64 }) {
        const std::vector<std::vector<float>> input    = { normal((size_t) n_rows * WIDTH, 1.0f, n_rows) };
        const auto                            expected = results(one_product, input, n_rows, nullptr);
        ggml_backend_cuda_context             cuda;
        emulated_launches = 0;
        const auto got    = results(one_product, input, n_rows, &cuda);
        CHECK((emulated_launches > 0) == (n_rows <= 32));
        CHECK(error(got[0], expected[0]) < 1e-4);   // ggml's CPU product has rows of 8 bits
        dflash_cuda_forget(cuda);
    }
}

void test_what_is_not_served() {
    CHECK(dflash_cuda_set_few_rows(0, GGML_TYPE_Q4_K, 0) == 65 && dflash_cuda_set_few_rows(0, GGML_TYPE_F16, 1) == 0);
    CHECK(dflash_cuda_set_few_rows(1, GGML_TYPE_Q4_K, 1) == 0 && dflash_cuda_set_few_rows(-1, GGML_TYPE_Q4_K, 1) == 0);
    CHECK(
        dflash_cuda_set_few_rows(0, GGML_TYPE_Q4_K, 1000) == 65 && dflash_cuda_set_few_rows(0, GGML_TYPE_Q4_K, 9) == 9);
    CHECK(dflash_cuda_set_few_rows(0, GGML_TYPE_Q4_K, -1) == 9);
}

}   // namespace

int main() {
    test_layers();
    test_written_between();
    test_a_graph_of_one_product();
    test_what_does_not_fit();
    test_what_is_not_served();
    return TEST_RESULT;
}

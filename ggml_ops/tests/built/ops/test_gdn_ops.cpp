// gdn_tree and gdn_commit compared with float64 and, bit for bit, with ggml_gated_delta_net along every path; the GPU
// kernels run in loops over their threads. Needs the patched ggml. Arguments: "wrong-parent" and "bad-parent" must make
// it fail, "all" runs all cases instead of some, "bench [threads]" prints times.

#include "gdn/gdn_tree.h"
#include "gdn/composed.h"
#include "gdn/gdn_tree_gpu.h"

#include "check.h"
#include "gdn_trees.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

// The Metal kernels as C++: one real thread per thread of a threadgroup, with a real barrier.
namespace metal {
std::mutex              mutex;
std::condition_variable arrived;
int                     waiting, round_;
struct uint3 {
    uint32_t x, y, z;
};
enum class mem_flags { mem_threadgroup };
void threadgroup_barrier(mem_flags) {
    std::unique_lock<std::mutex> lock(mutex);
    const int                    mine = round_;
    if (++waiting == GDN_THREADS) {
        waiting = 0;
        ++round_;
        arrived.notify_all();
    }
    arrived.wait(lock, [&] { return round_ != mine; });
}
#undef GDN_TREE_GPU_H
#undef GDN_FN
#undef GDN_GLOBAL
#undef GDN_SHARED
#undef GDN_REF
#define __METAL_VERSION__ 300   // NOLINT(bugprone-reserved-identifier): the kernels need it
#define kernel            static
#define device
#define threadgroup
#define constant const
#define thread
#include "gdn_tree.metal.inc"   // gdn_tree.metal as inject.cmake completes it, without attributes (CMakeLists.txt)
#undef thread
#undef kernel
#undef device
#undef threadgroup
#undef constant
}   // namespace metal

namespace {

using namespace gdn_trees;

// Computes a threadgroup of the GPU kernels, thread by thread between its barriers.
void run_gpu_phases(const inputs & in, float * out) {
    const shape &       s = in.s;
    const gdn_tree_args a = gdn_tree_args_of(in.q, in.k, in.v, in.g, in.beta, in.state);
    std::vector<float>  shared(GDN_SHARED_FLOATS(s.T));
    const gdn_tree_data d   = { (const float *) in.q->data, (const float *) in.k->data, (const float *) in.v->data,
          (const float *) in.g->data, (const float *) in.beta->data, (const float *) in.state->data,
          (const int32_t *) in.parent->data, out };
    const auto          all = [&](auto phase) {
        for (int thread = 0; thread < GDN_THREADS; ++thread) {
            phase(thread);
        }
    };
    for (int b = 0; b < s.n; ++b)
        for (int h = 0; h < s.H; ++h)
            for (int j0 = 0; j0 < s.S; j0 += GDN_COLUMNS) {
                std::fill(shared.begin(), shared.end(), NAN);
                const gdn_tree_group group = { h, b, j0 };
                all([&](int thread) { gdn_tree_begin(a, d, group, shared.data(), thread); });
                for (int i0 = 0; i0 < s.S; i0 += GDN_CHANNELS) {
                    all([&](int thread) { gdn_tree_load(a, d, group, shared.data(), i0, thread); });
                    all([&](int thread) { gdn_tree_multiply(a, shared.data(), thread); });
                }
                all([&](int thread) { gdn_tree_decay(a, shared.data(), thread); });
                all([&](int thread) { gdn_tree_solve(a, d, group, shared.data(), thread); });
                all([&](int thread) { gdn_tree_write(a, d, group, shared.data(), thread); });
            }
}

// Compares graphs of ggml's own ops with the tree op's result and with the state after a path of each sequence.
void test_composed(inputs & in, const float * o, const float * delta) {
    const shape & s    = in.s;
    const auto    wide = [](const float * x, size_t n) { return std::vector<double>(x, x + n); };
    ggml_tensor * mask = ggml_new_tensor_4d(in.ctx, GGML_TYPE_F32, s.T, s.T, 1, s.n);
    ggml_gdn_tree_mask(in.parents(0), s.T, s.n, (float *) mask->data);
    const gdn_tree_parts parts = ggml_gdn_tree_composed(in.ctx, in.q, in.k, in.v, in.g, in.beta, in.state, mask);
    in.compute(parts.output, 1);
    in.compute(parts.delta, 1);
    const size_t n_out     = ggml_nelements(in.v);
    const double off       = error((const float *) parts.output->data, wide(o, n_out)),
                 off_delta = error((const float *) parts.delta->data, wide(delta, n_out));

    ggml_tensor *kept = ggml_new_tensor_4d(in.ctx, GGML_TYPE_F32, s.S, s.H, s.T, s.n),
                *ids  = ggml_new_tensor_2d(in.ctx, GGML_TYPE_I32, s.T, s.n);
    ggml_tensor * way = ggml_new_tensor_4d(in.ctx, GGML_TYPE_F32, s.T, s.T + 2, 1, s.n);
    std::memcpy(kept->data, delta, n_out * sizeof(float));
    for (int b = 0; b < s.n; ++b) {
        const std::vector<int> path = b == 1 ? std::vector<int>() : path_to(in.parents(b), s.T - 1);
        for (int i = 0; i < s.T; ++i) {
            ((int32_t *) ids->data)[b * s.T + i] = i < (int) path.size() ? path[i] : -1;
        }
    }
    ggml_gdn_commit_mask((const int32_t *) ids->data, s.T, s.T, s.n, (float *) way->data);
    const ggml_tensor * want = ggml_gdn_commit(in.ctx, in.state, in.k, kept, in.g, ids);
    ggml_tensor *       got  = ggml_gdn_commit_composed(in.ctx, in.state, in.k, kept, in.g, way);
    in.compute((ggml_tensor *) want, 1);
    in.compute(got, 1);
    const double off_state = error((const float *) got->data, wide((const float *) want->data, ggml_nelements(want)));
    std::printf("  composed: output %.1e delta %.1e state %.1e\n", off, off_delta, off_state);
    CHECK(off < 1e-5 && off_delta < 1e-5 && off_state < 1e-5);
}

void test(const shape & s, int kind, int n_padding, bool wrong) {
    inputs              in(s, make_parents(s, kind, n_padding));
    const ggml_tensor * tree  = in.tree(1);
    const size_t        n_out = ggml_nelements(in.v);
    const float *       o = (const float *) tree->data, *delta = o + n_out;
    for (const int threads : { 2, 3 }) {
        CHECK(same(in.tree(threads)->data, o, 2 * n_out));
    }
    std::vector<float> gpu(2 * n_out, NAN);
    run_gpu_phases(in, gpu.data());

    if (!s.channels) {
        test_composed(in, o, delta);
    }
    if (wrong) {   // the rows below are then not the op's path
        int32_t * parent = (int32_t *) in.parent->data;
        parent[s.T / 2]  = parent[s.T / 2] < 0 ? 0 : -1;
    }
    double worst = 0, worst_state = 0, worst_gpu = 0, worst_commit = 0;
    for (int b = 0; b < s.n; ++b) {
        const int32_t * parent = in.parents(b);
        const auto      row    = [&](const float * base, int h, int t) {
            return base + (((size_t) b * s.T + t) * s.H + h) * s.S;
        };
        for (int t = 0; t < s.T; ++t) {
            if (parent[t] == GGML_GDN_PADDING) {
                for (int i = 0; i < s.H * s.S; ++i) {
                    CHECK(row(o, 0, t)[i] == 0 && row(delta, 0, t)[i] == 0 && row(gpu.data(), 0, t)[i] == 0 &&
                          row(gpu.data() + n_out, 0, t)[i] == 0);
                }
                continue;
            }
            const std::vector<int> path = path_to(parent, t);
            if (in.is_leaf(b, t) || t % 7 == 0) {
                const ggml_tensor * chain = in.stock(b, path);
                for (size_t i = 0; i < path.size(); ++i) {
                    CHECK(same((const float *) chain->data + i * s.H * s.S, row(o, 0, path[i]), s.H * s.S));
                }
                ggml_tensor * ids  = in.ids_of(path, b);
                ggml_tensor * kept = ggml_new_tensor_4d(in.ctx, GGML_TYPE_F32, s.S, s.H, s.T, s.n);
                std::memcpy(kept->data, delta, n_out * sizeof(float));
                ggml_tensor * after = ggml_gdn_commit(in.ctx, in.state, in.k, kept, in.g, ids);
                in.compute(after, 1 + t % 3);
                const size_t D = (size_t) s.S * s.S * s.H;
                CHECK(same(
                    (const float *) after->data + b * D, (const float *) chain->data + path.size() * s.H * s.S, D));
                for (int other = 0; other < s.n; ++other) {
                    CHECK(other == b ||
                          same((const float *) after->data + other * D, inputs::at(in.state, 0, 0, other), D));
                }
                std::vector<double> S;
                const int           h = t % s.H;
                worst                 = std::max(worst, error(row(o, h, t), in.reference(b, h, path, S)));
                worst_gpu             = std::max(worst_gpu, error(row(gpu.data(), h, t), in.reference(b, h, path, S)));
                worst_state           = std::max(worst_state, error(inputs::at(after, 0, h, b), S));
                std::vector<float>    element(s.S * s.S);
                const gdn_commit_args a = gdn_commit_args_of(in.state, in.k, kept, in.g, ids);
                for (int j = 0; j < s.S; ++j)
                    for (int i = 0; i < s.S; ++i) {
                        element[j * s.S + i] = gdn_commit_element(a, (const float *) in.state->data,
                            (const float *) in.k->data, gpu.data() + n_out, (const float *) in.g->data,
                            (const int32_t *) ids->data, i, j, h, b);
                    }
                worst_commit = std::max(worst_commit, error(element.data(), S));
            }
        }
    }
    std::printf("S %3d heads %d/%d rows %2d sequences %d %s kind %d: output %.1e state %.1e gpu %.1e %.1e\n", s.S,
        s.H_k, s.H, s.T, s.n, s.channels ? "channels" : "scalar", kind, worst, worst_state, worst_gpu, worst_commit);
    CHECK(worst < 1e-5 && worst_state < 1e-5 && worst_gpu < 1e-5 && worst_commit < 1e-5);
}

// The Metal kernels with real threads give the same bits as the phases in loops.
void test_metal(bool channels) {
    const shape        s = { 64, 1, 2, 7, 2, channels };
    inputs             in(s, make_parents(s, 0, 2));
    std::vector<float> want(2 * ggml_nelements(in.v)), got(want.size(), NAN);
    run_gpu_phases(in, want.data());
    const gdn_tree_args a     = gdn_tree_args_of(in.q, in.k, in.v, in.g, in.beta, in.state);
    ggml_tensor *       delta = ggml_new_tensor_4d(in.ctx, GGML_TYPE_F32, s.S, s.H, s.T, s.n),
                *path         = ggml_new_tensor_2d(in.ctx, GGML_TYPE_I32, 3, s.n);
    std::memcpy(delta->data, want.data() + ggml_nelements(in.v), ggml_nbytes(delta));
    for (int i = 0; i < 3 * s.n; ++i) {
        ((int32_t *) path->data)[i] = i < 3 ? i : -1;
    }
    const gdn_commit_args  c = gdn_commit_args_of(in.state, in.k, delta, in.g, path);
    metal::gdn_tree_args   ma;
    metal::gdn_commit_args mc;
    static_assert(sizeof ma == sizeof a && sizeof mc == sizeof c, "the same struct");
    std::memcpy(&ma, &a, sizeof a);
    std::memcpy(&mc, &c, sizeof c);
    const auto               f = [](const ggml_tensor * t) { return (const float *) t->data; };
    std::vector<float>       shared(GDN_SHARED_FLOATS(s.T)), state(ggml_nelements(in.state));
    std::vector<std::thread> threads;
    for (uint32_t id = 0; id < GDN_THREADS; ++id) {
        threads.emplace_back([&, id] {
            for (uint32_t z = 0; z < (uint32_t) s.n; ++z)
                for (uint32_t y = 0; y < (uint32_t) s.H; ++y) {
                    for (uint32_t x = 0; x < (uint32_t) s.S / GDN_COLUMNS; ++x) {
                        metal::kernel_gdn_tree(ma, f(in.q), f(in.k), f(in.v), f(in.g), f(in.beta), f(in.state),
                            (const int32_t *) in.parent->data, got.data(), shared.data(), { x, y, z }, { id, 0, 0 });
                        metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);   // groups take turns
                    }
                    for (uint32_t x = 0; x < (uint32_t) (s.S * s.S / GDN_THREADS); ++x) {
                        metal::kernel_gdn_commit(mc, f(in.state), f(in.k), f(delta), f(in.g),
                            (const int32_t *) path->data, state.data(), { x, y, z }, { id, 0, 0 });
                    }
                }
        });
    }
    for (std::thread & t : threads) {
        t.join();
    }
    CHECK(same(got.data(), want.data(), got.size()));
    for (int i = 0; i < (int) state.size(); ++i) {
        const int D = s.S * s.S, h = i / D % s.H, b = i / D / s.H;
        CHECK(state[i] == gdn_commit_element(c, f(in.state), f(in.k), f(delta), f(in.g), (const int32_t *) path->data,
                              i % s.S, i / s.S % s.S, h, b));
    }
}

// Every device of the build through its backend: a GPU if there is one, and the CPU with the same bits as before.
void test_devices(const shape & s, int kind, int n_padding) {
    inputs              in(s, make_parents(s, kind, n_padding));
    const ggml_tensor * want  = in.tree(1);
    const size_t        n_out = ggml_nelements(in.v);
    ggml_tensor *       delta = ggml_new_tensor_4d(in.ctx, GGML_TYPE_F32, s.S, s.H, s.T, s.n),
                *path         = ggml_new_tensor_2d(in.ctx, GGML_TYPE_I32, s.T, s.n);
    std::memcpy(delta->data, (const float *) want->data + n_out, ggml_nbytes(delta));
    for (int b = 0; b < s.n; ++b) {
        const std::vector<int> rows = path_to(in.parents(b), in.parents(b)[s.T - 1] == GGML_GDN_PADDING ? 0 : s.T - 1);
        for (int i = 0; i < s.T; ++i) {
            ((int32_t *) path->data)[b * s.T + i] = i < (int) rows.size() ? rows[i] : -1;
        }
    }
    ggml_tensor * after = ggml_gdn_commit(in.ctx, in.state, in.k, delta, in.g, path);
    in.compute(after, 1);
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        ggml_context *     ctx = ggml_init({ 1u << 20, nullptr, true });
        ggml_tensor *      x[8], *from[8] = { in.q, in.k, in.v, in.g, in.beta, in.state, in.parent, path };
        for (int j = 0; j < 8; ++j) {
            x[j] = ggml_new_tensor(ctx, from[j]->type, 4, from[j]->ne);
        }
        ggml_tensor * tree  = ggml_gdn_tree(ctx, x[0], x[1], x[2], x[3], x[4], x[5], x[6]);
        ggml_tensor * state = ggml_gdn_commit(
            ctx, x[5], x[1], ggml_gdn_tree_delta(ctx, tree), x[3], x[7]);   // the second half of the result, as a view
        if (ggml_backend_dev_supports_op(dev, tree) && ggml_backend_dev_supports_op(dev, state)) {
            ggml_backend_t        backend = ggml_backend_dev_init(dev, nullptr);
            ggml_backend_buffer_t buffer  = ggml_backend_alloc_ctx_tensors(ctx, backend);
            for (int j = 0; j < 8; ++j) {
                ggml_tensor * dense = ggml_cont(in.ctx, from[j]);
                if (j < 3) {
                    in.compute(dense, 1);
                }
                ggml_backend_tensor_set(x[j], j < 3 ? dense->data : from[j]->data, 0, ggml_nbytes(x[j]));
            }
            ggml_cgraph * graph = ggml_new_graph(ctx);
            ggml_build_forward_expand(graph, state);
            CHECK(ggml_backend_graph_compute(backend, graph) == GGML_STATUS_SUCCESS);
            std::vector<float> got(2 * n_out), got_state(ggml_nelements(state));
            ggml_backend_tensor_get(tree, got.data(), 0, ggml_nbytes(tree));
            ggml_backend_tensor_get(state, got_state.data(), 0, ggml_nbytes(state));
            const double off =
                error(got.data(), { (const float *) want->data, (const float *) want->data + 2 * n_out });
            const double off_state = error(
                got_state.data(), { (const float *) after->data, (const float *) after->data + got_state.size() });
            std::printf(
                "%s rows %d: output and delta %.1e state %.1e\n", ggml_backend_dev_name(dev), s.T, off, off_state);
            CHECK(ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_CPU ? off == 0 && off_state == 0
                                                                             : off < 1e-4 && off_state < 1e-4);
            ggml_backend_buffer_free(buffer);
            ggml_backend_free(backend);
        } else {
            std::printf("%s: not supported\n", ggml_backend_dev_name(dev));
        }
        ggml_free(ctx);
    }
}

void test_support() {
    ggml_backend_dev_t cpu = ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
    for (const int S : { 32, 64, 96, 128, 256 }) {
        inputs     in({ S, 1, 1, 2, 1, false }, { -1, 0 });
        const bool fits = S == 64 || S == 128;
        CHECK(ggml_backend_dev_supports_op(
                  cpu, ggml_gdn_tree(in.ctx, in.q, in.k, in.v, in.g, in.beta, in.state, in.parent)) == fits);
        CHECK(
            ggml_backend_dev_supports_op(cpu, ggml_gdn_commit(in.ctx, in.state, in.k, in.v, in.g, in.parent)) == fits);
    }
}

// Times of one layer of a 27B-like model (16 key heads, 48 value heads, head size 128): best of several, in ms.
void bench(int threads) {
    const auto time = [&](inputs & in, ggml_tensor * x) {
        ggml_cgraph * graph = ggml_new_graph(in.ctx);
        ggml_build_forward_expand(graph, x);
        ggml_cplan           plan = ggml_graph_plan(graph, threads, nullptr);
        std::vector<uint8_t> work(plan.work_size + 1);
        plan.work_data = work.data();
        double best    = 1e9;
        for (int i = 0; i < 25; ++i) {
            const auto start = std::chrono::steady_clock::now();
            ggml_graph_compute(graph, &plan);
            best = std::min(
                best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
        }
        return best;
    };
    for (const int T : { 1, 4, 16, 32, 64 }) {
        const shape s = { 128, 16, 48, T, 1, false };
        double      ms[4];
        for (int kind = 0; kind < 2; ++kind) {
            inputs in(s, make_parents(s, kind, 0));
            ms[kind] = time(in, ggml_gdn_tree(in.ctx, in.q, in.k, in.v, in.g, in.beta, in.state, in.parent));
            if (kind == 1) {
                ms[2] = time(in, ggml_gated_delta_net(in.ctx, in.q, in.k, in.v, in.g, in.beta, in.state, 1));
                ggml_tensor * path = ggml_new_tensor_2d(in.ctx, GGML_TYPE_I32, T, 1);
                for (int t = 0; t < T; ++t) {
                    ((int32_t *) path->data)[t] = t < (T + 2) / 3 ? t : -1;
                }
                ms[3] = time(in, ggml_gdn_commit(in.ctx, in.state, in.k, in.v, in.g, path));
            }
        }
        std::printf("rows %2d threads %d: gdn_tree random %.2f chain %.2f, gated_delta_net chain %.2f, gdn_commit of a "
                    "third %.2f ms\n",
            T, threads, ms[0], ms[1], ms[2], ms[3]);
    }
}

}   // namespace

int main(int argc, char ** argv) {
    ggml_cpu_init();
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "bench") {
        bench(argc > 2 ? std::stoi(argv[2]) : 1);
        return 0;
    }
    if (mode == "wrong-parent") {
        test({ 64, 2, 4, 12, 1, false }, 0, 0, true);
        return TEST_RESULT;
    }
    if (mode == "bad-parent") {
        inputs in({ 64, 1, 1, 3, 1, false }, { -1, 2, 0 });
        in.tree(1);
        return 0;
    }
    test_support();
    for (const bool channels : { false, true }) {
        test_metal(channels);
        test_devices({ 128, 2, 6, 16, 2, channels }, 0, 3);
        test_devices({ 64, 1, 2, 64, 1, channels }, 0, 0);
    }
    // The CPU is compared with float64 below; other devices with the CPU, in the same cases.
    if (ggml_backend_dev_count() > 1) {
        for_each_case(true, test_devices);
    }
    for_each_case(mode == "all", [](const shape & s, int kind, int n_padding) { test(s, kind, n_padding, false); });
    return TEST_RESULT;
}

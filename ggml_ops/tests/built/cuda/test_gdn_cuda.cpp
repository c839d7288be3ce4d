// The CUDA kernels of gdn_tree and gdn_commit, emulated on the CPU, compared with float64 in the same cases as the
// CPU's. Argument: the name of a mutant (cuda.cmake) that must make it fail; or "all" cases instead of some.

#include "gdn/cuda/gdn_tree_cuda.cuh"
#include "gdn/gdn_tree_gpu.h"

#include "check.h"
#include "gdn_trees.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using tree_function = void (*)(ggml_backend_cuda_context &, ggml_tensor *);

struct mutant {
    const char *  name;
    tree_function tree;
};

#include "gdn_tree_cuda.inc"
#include "gdn_tree_cuda_mutants.inc"

namespace {

using namespace gdn_trees;
using emulated_cuda::turn_order;

ggml_backend_cuda_context cuda;

const float * run(tree_function function, ggml_tensor * op, turn_order order) {
    std::fill_n((float *) op->data, ggml_nelements(op), NAN);
    emulated_cuda::order = order;
    function(cuda, op);
    return (const float *) op->data;
}

// The results have the same bits whatever order the threads run in.
bool agrees(tree_function function, ggml_tensor * op) {
    const float *            result = run(function, op, turn_order::descending);
    const std::vector<float> first(result, result + ggml_nelements(op));
    return same(run(function, op, turn_order::ascending), first.data(), first.size());
}

// Commits a row's path: checks its sequence's state, and that the others keep theirs.
void test_commit(inputs & in, int b, const std::vector<int> & path, ggml_tensor * delta, int head,
    const std::vector<double> & want, double & worst) {
    ggml_tensor * after = ggml_gdn_commit(in.ctx, in.state, in.k, delta, in.g, in.ids_of(path, b));
    if (path.size() == 1) {   // its threads share nothing
        CHECK(agrees(dflash_cuda_gdn_commit, after));
    } else {
        run(dflash_cuda_gdn_commit, after, turn_order::ascending);
    }
    worst = std::max(worst, error(inputs::at(after, 0, head, b), want));
    for (int other = 0; other < in.s.n; ++other) {
        CHECK(other == b || same(inputs::at(after, 0, 0, other), inputs::at(in.state, 0, 0, other),
                                (size_t) in.s.S * in.s.S * in.s.H));
    }
}

void test(const shape & s, int kind, int n_padding) {
    inputs        in(s, make_parents(s, kind, n_padding));
    ggml_tensor * tree = ggml_gdn_tree(in.ctx, in.q, in.k, in.v, in.g, in.beta, in.state, in.parent);
    if (kind == 0) {   // the barriers do not depend on the tree
        CHECK(agrees(dflash_cuda_gdn_tree, tree));
    } else {
        run(dflash_cuda_gdn_tree, tree, turn_order::descending);
    }
    const float * output = (const float *) tree->data;
    ggml_tensor * delta  = ggml_gdn_tree_delta(in.ctx, tree);
    double        worst = 0, worst_state = 0;
    for (int b = 0; b < s.n; ++b)
        for (int t = 0; t < s.T; ++t) {
            const size_t row = ((size_t) b * s.T + t) * s.H * s.S;
            if (in.parents(b)[t] == GGML_GDN_PADDING) {
                for (int i = 0; i < s.H * s.S; ++i) {
                    CHECK(output[row + i] == 0 && ((const float *) delta->data)[row + i] == 0);
                }
                continue;
            }
            const std::vector<int> path = path_to(in.parents(b), t);
            std::vector<double>    state;
            const int              h = t % s.H;
            worst                    = std::max(worst, error(output + row + h * s.S, in.reference(b, h, path, state)));
            if (t % 15 == 0 || t == s.T - 1) {
                test_commit(in, b, path, delta, h, state, worst_state);
            }
        }
    std::printf("S %3d heads %d/%d rows %2d sequences %d %s kind %d: output %.1e state %.1e\n", s.S, s.H_k, s.H, s.T,
        s.n, s.channels ? "channels" : "scalar", kind, worst, worst_state);
    CHECK(worst < 2e-5 && worst_state < 1e-5);   // measured: 9e-6, a chain of 64 rows with gates per channel
}

// Whether a mutant's results differ from the kernels' in one of the orders.
bool differs(tree_function function) {
    for (const bool channels : { false, true }) {
        const shape        s = { 64, 1, 2, 12, 1, channels };
        inputs             in(s, make_parents(s, 0, 0));
        ggml_tensor *      tree = ggml_gdn_tree(in.ctx, in.q, in.k, in.v, in.g, in.beta, in.state, in.parent);
        const float *      data = run(dflash_cuda_gdn_tree, tree, turn_order::ascending);
        std::vector<float> want(data, data + ggml_nelements(tree));
        for (const turn_order order : { turn_order::ascending, turn_order::descending }) {
            if (!same(run(function, tree, order), want.data(), want.size())) {
                return true;
            }
        }
    }
    return false;
}

}   // namespace

int main(int argc, char ** argv) {
    ggml_cpu_init();
    for (const mutant & m : MUTANTS) {
        if (argc > 1 && m.name == std::string(argv[1])) {
            const bool found = differs(m.tree);
            std::printf("%s: results %s\n", m.name, found ? "differ" : "agree");
            return found ? 1 : 0;
        }
    }
    const bool all = argc > 1 && argv[1] == std::string("all");
    if (argc > 1 && !all) {
        std::printf("no mutant %s\n", argv[1]);
        return 2;
    }
    CHECK(!differs(dflash_cuda_gdn_tree));
    for_each_case(all, test);
    return TEST_RESULT;
}

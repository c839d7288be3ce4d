// Finds the ops of a graph that op_fusion.cpp computes together (op_fusion.h lists the sequences).

#pragma once

#include "ggml.h"

#include <array>
#include <optional>
#include <variant>

struct ggml_cgraph;

namespace dflash {

constexpr int MAX_PRODUCTS = 8;   // fused at once

using set_rows_ops = std::array<ggml_tensor *, 2>;

// [ADD] RMS_NORM MUL [ROPE]; null if not part of it.
struct norm_ops {
    ggml_tensor *add = nullptr, *norm = nullptr, *mul = nullptr, *rope = nullptr;

    const ggml_tensor *                weight() const { return mul->src[mul->src[0] == norm ? 1 : 0]; }
    std::array<const ggml_tensor *, 3> inputs() const {
        return { add ? add->src[0] : nullptr, add ? add->src[1] : nullptr, norm->src[0] };
    }
    std::array<const ggml_tensor *, 3> outputs() const { return { add, mul, rope }; }
};

struct swiglu_op {
    ggml_tensor * op;
};

// Products that share their quantized rows.
struct product_list {
    ggml_tensor * ops[MAX_PRODUCTS] = {};
    int           n                 = 0;
};

// The SWIGLU of a gate and an up product, and the products of its result.
struct swiglu_of_products {
    ggml_tensor * op;
    product_list  products;
    bool          write;   // false if only the products read it
};

struct product_chain {
    std::variant<std::monostate, norm_ops, swiglu_op> input;      // what computes it; none: it is in memory
    product_list                                      products;   // of the input
    std::optional<swiglu_of_products>                 swiglu;
};

// Ops that begin at a node, and the index of the last one.
template <class Ops> struct match {
    Ops ops;
    int last;
};

std::optional<match<set_rows_ops>>  find_set_rows(const ggml_cgraph * graph, int at);
std::optional<match<product_chain>> find_chain(const ggml_cgraph * graph, int at);

// Moves products of the same input behind the first of them.
void gather_products(ggml_cgraph * graph);

}   // namespace dflash

// What an RPC server reports about the ops of our graphs, in a byte of its greeting that is zero in stock servers.

#pragma once

#include "ggml-backend.h"

#include <cstdint>
#include <vector>

namespace dflash {

constexpr uint8_t OWN_BUILD   = 0x80;     // the server is a dflash-local build
constexpr uint8_t OWN_OPS     = 1 << 1;   // the version of our ops, in five bits: changes with their meaning
constexpr uint8_t HAS_KERNELS = 1;        // ggml_gdn_tree() and ggml_gdn_commit() run on each of the server's devices
constexpr uint8_t LACKS_OPS   = 0x40;     // one of them lacks an op of ggml's by which our graphs send less
constexpr uint8_t ABILITIES   = HAS_KERNELS | LACKS_OPS;

// Of embeddings whose rows are read where they are.
constexpr ggml_type EMBEDDED[] = { GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0,
    GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K };

uint8_t rpc_own_ops(const std::vector<ggml_backend_t> & backends);

}   // namespace dflash

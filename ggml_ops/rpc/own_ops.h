// What an RPC server reports about the ops of our graphs, in a byte of its greeting that is zero in stock servers.

#pragma once

#include "ggml-backend.h"

#include <cstdint>
#include <vector>

namespace dflash {

constexpr uint8_t OWN_BUILD   = 0x80;     // the server is a dflash-local build
constexpr uint8_t OWN_OPS     = 1 << 1;   // the version of our ops, in five bits: changes with their meaning
constexpr uint8_t HAS_KERNELS = 1;        // ggml_gdn_tree() and ggml_gdn_commit() run on each of the server's devices
constexpr uint8_t REDUCES     = 0x40;     // ... and so do ggml's ops by which our graphs send less
constexpr uint8_t ABILITIES   = HAS_KERNELS | REDUCES;

uint8_t rpc_own_ops(const std::vector<ggml_backend_t> & backends);

}   // namespace dflash

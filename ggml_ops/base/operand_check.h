// Checks the operands of a graph's op against what ggml's CPU kernels take, before it is computed.
//
// ggml's constructors compare shapes and little else. A kernel meets a type that it does not know, or a row that is not
// there, on a worker thread, where an assertion ends the process: abort_guard cannot help. mtmd builds a graph for each
// medium from what is in a file that says little about its types, so its graphs are checked here, node by node.

#pragma once

struct ggml_tensor;

namespace dflash {

// Throws std::runtime_error with the op and the operand. Inputs (indices of rows) must have been set.
void check_operands(const ggml_tensor * node);

}   // namespace dflash

// Tensors of a drafter that upstream's `dflash` models do not have, by name. A new one is a line of the table in
// drafter_tensors.cpp; llama_model_dflash calls load_drafter_tensors() once for all (patches/0013).

#pragma once

#include <string>

struct ggml_tensor;
struct llama_model;
struct llama_model_base;

namespace dflash {

// Creates those that the file has, between upstream's own. Throws std::runtime_error if one has a wrong shape.
void load_drafter_tensors(llama_model_base & model);

// A loaded tensor, null if the file has none of that name: "mask_embd.weight", "blk.3.attn_q.bias".
ggml_tensor * drafter_tensor(const llama_model & model, const std::string & name);

}   // namespace dflash

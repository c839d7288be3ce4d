// Tensors of a drafter, by name, that upstream's `dflash` models do not have. To add one, add a line to the table in
// drafter_tensors.cpp; llama_model_dflash loads them all with load_drafter_tensors() (patches/0013).

#pragma once

#include <string>

struct ggml_tensor;
struct llama_model;
struct llama_model_base;

namespace dflash {

// Creates those that the file has, in between upstream's own. Throws std::runtime_error if one has a wrong shape.
void load_drafter_tensors(llama_model_base & model);

// A loaded tensor, or null if the file does not have it: "mask_embd.weight", "blk.3.attn_q.bias".
ggml_tensor * drafter_tensor(const llama_model & model, const std::string & name);

}   // namespace dflash

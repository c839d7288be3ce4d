// A request's sampler: its JSON fields, and one sample per walked node.

#pragma once

#include "gate.h"
#include "logits_row.h"

#include "common/sampling.h"

#include <string>
#include <vector>

namespace dflash {

// dflash_request.sampling as llama.cpp's parameters; "" and "null" give its defaults, no seed or -1 a random one.
// Throws std::invalid_argument, "field 'x': ...", on everything that llama.cpp would ignore, misread or abort on.
common_params_sampling parse_sampling(const llama_model * model, const std::string & text);

// Samples as common_sampler_sample() does, token for token and random number for random number, but reads only what can
// win: a copy of the vocabulary per node costs more than a step's other work on a CPU. The chain itself is llama.cpp's.
class sampler {
  public:
    // Throws std::invalid_argument that names the field.
    sampler(const llama_model * model, common_params_sampling params);

    // The token at a node with these logits, [n_vocab]. Call it exactly once per walked node: samplers have state.
    // Throws std::runtime_error if the logits are not finite or nothing is left to sample.
    llama_token sample(const float * logits);
    // The same for output row i of the last pass.
    llama_token sample(llama_context * ctx, int32_t i);

    void accept(llama_token token);          // a generated token; throws std::runtime_error if the grammar forbids it
    void accept_prompt(llama_token token);   // a prompt token: for penalties and DRY only, as llama-server does

  private:
    enum class shortcut { none, greedy, top_k };

    llama_token sample_short(const float * logits);                   // LLAMA_TOKEN_NULL if equal logits forbid it
    llama_token sample_all(const float * logits, bool with_grammar);
    llama_token run_chain(bool sorted);                               // over candidates_

    static shortcut find_shortcut(const llama_vocab * vocab, const common_params_sampling & params);

    const llama_vocab *           vocab_;
    int32_t                       top_k_;
    shortcut                      shortcut_;
    token_gate                    gate_;
    common_sampler_ptr            chain_;
    logits_row                    row_;
    std::vector<llama_token_data> candidates_;
};

}  // namespace dflash

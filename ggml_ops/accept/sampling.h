// A request's sampler: one sample per walked node, and the distribution it is drawn from.

#pragma once

#include "accept/block_accept.h"
#include "accept/logits_row.h"
#include "accept/sample_and_match.h"
#include "grammar/token_constraints.h"
#include "llama/logit_store.h"

#include "common/sampling.h"

#include <functional>
#include <vector>

namespace dflash {

// Logits of output row i of the last pass, [n_vocab]. Throws std::runtime_error if the row has none.
const float * logits_of(llama_context * ctx, int32_t i);

// Gives the tokens of common_sampler_sample() and consumes the same random numbers, but reads only logits that can win:
// copying the vocabulary for each node would cost more than the rest of a step on a CPU. The chain itself is
// llama.cpp's.
class sampler {
  public:
    // Throws std::invalid_argument that names the field.
    sampler(const llama_model * model, const common_params_sampling & params);

    // Samples the token at a node with these logits, [n_vocab]. Call it exactly once per walked node, since samplers
    // have state. Throws std::runtime_error if the logits are not finite or no token is left to sample.
    llama_token sample(const float * logits);
    // The same for output row i of the last pass.
    llama_token sample(llama_context * ctx, int32_t i);

    // What a pass should find in a row so that the row itself need not be read.
    needed_logits needs() const;

    void accept(llama_token token);          // adds a generated token; throws std::runtime_error if the grammar forbids
                                             // it
    void accept_prompt(llama_token token);   // adds a prompt token, only for penalties and DRY, as in llama-server

    // Keep the distribution that each sample is drawn from.
    void keep_drawn_from() { keeps_drawn_from_ = true; }
    // Positive probabilities of the candidates left at the last sample, unordered; requires keep_drawn_from(). They may
    // include tokens that the grammar forbids but did not have to check, as in llama-server.
    const std::vector<token_prob> & drawn_from() const { return drawn_from_; }

    // Forces the end of the reasoning from the next sample on; the forced tokens are not drawn from a distribution.
    // Returns false if the answer is not reasoning. `generated`: all tokens passed to accept().
    bool end_reasoning(const llama_tokens & generated);

    // Whether sample() draws from a distribution that depends only on the logits and the accepted tokens, as block
    // verification requires. False with a grammar or a reasoning budget (they look at the sample, and lazy ones wait
    // for a trigger), mirostat and adaptive-p (their state changes with every sample), and XTC (it tosses a coin per
    // token). Also false at temperature 0: one token has all the probability, and the drafter's best chain matches it
    // more often than a drawn one. Such requests sample and match.
    bool gives_distribution() const { return gives_distribution_; }
    // The part of the request's sampler that a draft can apply too.
    const draft_shape & shape() const { return shape_; }
    // Random decisions of block verification, seeded by the request.
    random_decisions & random() { return random_; }

    // Runs the sampler a few tokens ahead without changing it: gives the distribution at each node of a path. Requires
    // gives_distribution().
    class ahead {
      public:
        explicit ahead(sampler & of);
        // What sample() would draw from: positive probabilities that sum to 1, unordered. Valid until the next call.
        // Throws like sample().
        const std::vector<token_prob> & distribution(const float * logits);
        const std::vector<token_prob> & distribution(llama_context * ctx, int32_t i);
        void                            accept(llama_token token);   // moves on to the path's next token

      private:
        sampler &                      of_;
        std::vector<llama_sampler_ptr> chain_;   // copies, except for the last one, which draws
        std::vector<token_prob>        found_;
    };

  private:
    enum class shortcut { none, greedy, top_k };

    llama_token sample_best(const logit_store & store, int32_t i);
    llama_token sample_short();   // LLAMA_TOKEN_NULL if there are ties
    bool        is_banned(llama_token token) const;
    void        drop_banned();   // from candidates_
    bool        list_top();      // fills candidates_ with the top_k_ best of row_; false if there are ties
    llama_token sample_all(const float * logits, bool with_grammar);
    llama_token run_chain(bool sorted);   // over candidates_
    llama_token keep_certain(llama_token token);
    void        list_all(const float * logits);   // fills candidates_
    // The same, without what the constraints forbid.
    llama_token_data_array list_masked(const float * logits, bool with_grammar);

    static shortcut find_shortcut(const llama_vocab * vocab, const common_params_sampling & params);

    const llama_vocab *           vocab_;
    int32_t                       top_k_;
    std::vector<llama_token>      banned_;   // in order
    shortcut                      shortcut_;
    token_constraints             constraints_;
    common_sampler_ptr            chain_;
    logits_row                    row_;
    std::vector<llama_token_data> candidates_;
    bool                          gives_distribution_;
    draft_shape                   shape_;
    seeded_decisions              random_;
    bool                          keeps_drawn_from_ = false;
    std::vector<token_prob>       drawn_from_;
};

// walk() with block verification. The chain's rows, anchor first, are the output rows from first_row on. The accepted
// tokens and the bonus update the sampler's state; ends(token) can stop inside the block. drawn_from: if not null, gets
// the distribution at each row that was used, which includes the walked ones.
walk_result block_walk(const drawn_chain & chain, sampler & s, llama_context * ctx, int32_t first_row,
    const std::function<bool(int32_t)> & ends, std::vector<std::vector<token_prob>> * drawn_from = nullptr);

}   // namespace dflash

// The largest entries of one row of logits, found without a copy of the row.

#pragma once

#include "llama.h"

#include <cstdint>
#include <vector>

namespace dflash {

class logits_row {
  public:
    // Reads n logits, which must outlive the next calls. Throws std::runtime_error if one is NaN or +inf, or none
    // finite.
    void scan(const float * logits, int32_t n);

    // The largest logit's index, -1 if two are equal.
    int32_t argmax() const;

    // The k largest in descending order; false if equal logits leave their set or order open. 1 <= k.
    bool top(int32_t k, std::vector<llama_token_data> & out) const;

    // The k largest in descending order, equal ones by their index. 1 <= k.
    void largest(int32_t k, std::vector<llama_token_data> & out) const;

    // log(sum(exp(logits))), the same bits for the same row.
    double log_sum_exp() const;

  private:
    void                    list_candidates(int32_t k, std::vector<llama_token_data> & out) const;
    template <class F> void each_from(float least, F && found) const;   // found(index) for every logit >= least

    static constexpr int32_t BLOCK = 32;   // logits per maximum

    const float *              logits_ = nullptr;
    int32_t                    n_      = 0;
    float                      max_    = 0;
    std::vector<float>         block_max_;
    mutable std::vector<float> maxima_;   // scratch of top()
};

}   // namespace dflash

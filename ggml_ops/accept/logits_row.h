// The largest entries of one row of logits, without copying the row.

#pragma once

#include "llama.h"

#include <cstdint>
#include <vector>

namespace dflash {

class logits_row {
  public:
    // Reads n logits, which must outlive the calls below. Throws std::runtime_error if one is NaN or +inf, or none is
    // finite.
    void scan(const float * logits, int32_t n);

    // Index of the largest logit, -1 if it is not unique.
    int32_t argmax() const;

    // The k largest in descending order; false if ties leave the set or order undefined. k >= 1.
    bool top(int32_t k, std::vector<llama_token_data> & out) const;

    // The k largest in descending order, ties by index. k >= 1.
    void largest(int32_t k, std::vector<llama_token_data> & out) const;

    // log(sum(exp(logits))), bit-identical for the same row.
    double log_sum_exp() const;

  private:
    void                    list_candidates(int32_t k, std::vector<llama_token_data> & out) const;
    template <class F> void each_from(float least, F && found) const;   // calls found(index) for every logit >= least

    static constexpr int32_t BLOCK = 32;   // logits per maximum

    const float *              logits_ = nullptr;
    int32_t                    n_      = 0;
    float                      max_    = 0;
    std::vector<float>         block_max_;
    mutable std::vector<float> maxima_;   // scratch space of top()
};

}   // namespace dflash

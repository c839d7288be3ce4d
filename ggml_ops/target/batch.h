// The rows of one target pass: prompt chunks, trees, and padding.

#pragma once

#include "base/rope_position.h"
#include "base/tree.h"

#include "llama-cpp.h"

#include <cstdint>
#include <vector>

namespace dflash {

class batch {
  public:
    void init(llama_context * ctx) { rows_.reset(llama_batch_ext_init(ctx)); }
    void clear();

    int32_t           n_rows() const { return n_rows_; }   // padding counted
    int32_t           n_padding() const { return n_padding_; }
    int32_t           n_outputs() const { return n_outputs_; }   // rows that have logits
    llama_batch_ext * get() { return rows_.get(); }
    // Where rows stand, [n_rows].
    const std::vector<rope_position> & positions() const { return positions_; }

    // Adds a row and returns its index. `output`: it has logits. Throws status_error if llama.cpp refuses it.
    int32_t add_row(int32_t seq, int32_t token, int32_t pos, bool output);
    // Adds a row of a medium: its embedding [n_embd], and its position with 4 sections. No other kind of row can be in
    // the same pass.
    void add_media_row(int32_t seq, const float * embedding, int32_t n_embd, const int32_t * pos);
    struct tree_form {
        bool    all_outputs = true;   // rows have logits; false: only the last
        bool    open        = true;   // a tree to the memory, which waits for the path (memory::commit); false: a chain
        int32_t padded_size = 0;      // rows of padding fill the tree up to it
    };
    // Adds a tree whose root has position n_past and returns its first row. Whether it must be open:
    // target::opens().
    int32_t add_tree(int32_t seq, const tree & t, int32_t n_past, const tree_form & form);
    // Marks a row as the root of a tree.
    void set_root(int32_t row);

    // Rows that fill a tree have logits, so that their number does not change the graph.
    void set_padding_outputs(bool outputs) { padding_outputs_ = outputs; }
    // Which sequence takes padding rows, -1: passes are not padded.
    void    set_padding_seq(int32_t seq) { padding_seq_ = seq; }
    int32_t padding_seq() const { return padding_seq_; }
    // Fills the last group of 4 rows, up to n_rows_max rows.
    void pad(int32_t n_rows_max);

  private:
    llama_batch_ext_ptr        rows_;
    std::vector<rope_position> positions_;
    int32_t                    n_rows_ = 0, n_outputs_ = 0, n_padding_ = 0, padding_seq_ = -1;
    bool                       padding_outputs_ = false;
};

}   // namespace dflash

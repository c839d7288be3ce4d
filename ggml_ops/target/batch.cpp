#include "target/batch.h"

#include "base/error.h"
#include "dflash.h"
#include "llama/llama_tree.h"

#include "llama-ext.h"

namespace dflash {

static constexpr int32_t ROW_GROUP = 4;   // rows that the CPU's matrix products take at once

void batch::clear() {
    llama_batch_ext_clear(rows_.get());
    positions_.clear();
    n_rows_ = n_outputs_ = n_padding_ = 0;
}

int32_t batch::add_row(int32_t seq, int32_t token, int32_t pos, bool output) {
    const int32_t row = llama_batch_ext_add_token(rows_.get(), seq, token);
    if (row != n_rows_ || !llama_batch_ext_set_pos(rows_.get(), row, &pos) ||
        !llama_batch_ext_set_output_logits(rows_.get(), row, output)) {
        throw status_error(DFLASH_ERROR_INTERNAL, "row ", n_rows_, " was refused by the batch");
    }
    positions_.push_back({ pos, pos, pos });
    ++n_rows_;
    n_outputs_ += output;
    return row;
}

void batch::add_media_row(int32_t seq, const float * embedding, int32_t n_embd, const int32_t * pos) {
    const int32_t row = llama_batch_ext_add_embd(rows_.get(), seq, { embedding, 1, (size_t) n_embd });
    if (row != n_rows_ || !llama_batch_ext_set_pos(rows_.get(), row, pos)) {
        throw status_error(DFLASH_ERROR_INTERNAL, "row ", n_rows_, " of a medium was refused by the batch");
    }
    positions_.push_back({ pos[0], pos[1], pos[2] });
    ++n_rows_;
}

int32_t batch::add_tree(int32_t seq, const tree & t, int32_t n_past, const tree_form & form) {
    const int32_t first = n_rows_;
    for (int32_t i = 0; i < t.size(); ++i) {
        const node &  n   = t.nodes[i];
        const int32_t row = add_row(seq, n.token, n_past + n.depth, form.all_outputs || i == t.size() - 1);
        if (form.open) {
            llama_batch_ext_set_parent(rows_.get(), row, i == 0 ? LLAMA_PARENT_NONE : first + n.parent);
        }
    }
    for (int32_t i = t.size(); i < form.padded_size; ++i) {
        const int32_t row = add_row(seq, t.nodes[0].token, n_past, padding_outputs_);
        llama_batch_ext_set_parent(rows_.get(), row, LLAMA_PARENT_PADDING);
    }
    return first;
}

void batch::set_root(int32_t row) { llama_batch_ext_set_parent(rows_.get(), row, LLAMA_PARENT_NONE); }

// The CPU's repacked matrix products take rows in groups of 4 and the rest one by one: 15 rows cost more than 16
// (measured at load). Rows of an unused sequence fill the last group.
void batch::pad(int32_t n_rows_max) {
    if (padding_seq_ < 0 || n_rows_ < ROW_GROUP || n_rows_ % ROW_GROUP < 2) {
        return;
    }
    while (n_rows_ % ROW_GROUP != 0 && n_rows_ < n_rows_max) {
        add_row(padding_seq_, 0, n_padding_++, false);
    }
}

}   // namespace dflash

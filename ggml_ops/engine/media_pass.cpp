#include "engine/media_pass.h"

#include <algorithm>

namespace dflash {

int32_t media_pass_rows(const pass_limits & limits, const medium & m, int32_t from) {
    const int32_t n_left = m.key.size.n_rows - from;
    return m.how.non_causal ? n_left : std::min(n_left, limits.n_prompt_rows);
}

namespace {
struct causal_again {   // whatever the pass throws: the next one is text
    llama_context * context;
    ~causal_again() { llama_set_causal_attn(context, true); }
};
}   // namespace

int process_media(target & target, draft_memories & drafts, int32_t seq, const medium & m, const float * rows,
    int32_t pos, int32_t from, int32_t n) {
    const int32_t n_embd = llama_model_n_embd_inp(target.model());
    batch &       b      = target.rows();
    b.clear();
    for (int32_t i = from; i < from + n; ++i) {
        int32_t at[medium::N_SECTIONS];
        m.position(pos, i, at);
        b.add_media_row(seq, rows + (size_t) i * n_embd, n_embd, at);
    }
    target.end_pass();
    drafts.free_tap_cells();
    const causal_again after{ target.context() };
    llama_set_causal_attn(target.context(), !m.how.non_causal);
    return target.process();
}

}   // namespace dflash

#include "draft/head_part.h"

#include <algorithm>

namespace dflash {

int32_t head_part::size(const whole_head & whole, uint32_t draft_vocab) {
    const ggml_tensor * head   = whole.tensor;
    const gguf_tensor & stored = whole.stored;
    const bool is_it = head && stored.type == (uint32_t) head->type && stored.ne[0] == (uint64_t) head->ne[0] &&
                       stored.ne[1] >= (uint64_t) whole.n_tokens && stored.ne[2] == 1 && stored.ne[3] == 1;
    if (!is_it || draft_vocab == ALL_TOKENS) {
        return 0;
    }
    return draft_vocab ? std::min((int32_t) draft_vocab, whole.n_tokens) : draft_vocabulary::enough(whole.n_tokens);
}

head_part::head_part(const whole_head & whole, int32_t n_tokens, const llama_vocab * vocab) :
    stored_(whole.stored), state_(file_state::of(whole.stored.path)), head_(whole.tensor, n_tokens, whole.beside),
    vocabulary_(whole.n_tokens, n_tokens, text_ends(vocab, whole.n_tokens, n_tokens)), tokens_(vocabulary_.tokens()) {
    if (whole.tensor->data) {   // else a memory plan: only the size is known
        read();
    }
}

void head_part::read() {
    head_.read(stored_, vocabulary_.tokens());
    tokens_ = vocabulary_.tokens();
}

std::map<ggml_backend_buffer_type_t, size_t> head_part::memory() const {
    return { { head_.memory_type(), head_.memory_bytes() } };
}

bool head_part::follow_texts() {
    if (is_lost_ || !vocabulary_.is_outdated()) {
        return false;
    }
    try {
        const file_state now = file_state::of(stored_.path);
        if (now.is_unknown()) {   // perhaps for a moment
            return false;
        }
        is_lost_ = !(now == state_);
        if (!is_lost_) {
            vocabulary_.choose();
            read();
        }
    } catch (const std::exception &) {   // drafts go on as they were
        is_lost_ = true;
    }
    return !is_lost_;
}

}   // namespace dflash

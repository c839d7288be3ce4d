// Drafts with the target's own next-token (MTP) layers: DeepSeek-V3 (arXiv 2412.19437, section 2.2), in llama.cpp's
// graphs of context type MTP.
//
// A pass of such layers proposes one token. So a draft takes a pass for each of its tokens, and the marginals of a
// position are those after the likeliest tokens of the positions before. The layers' rows of accepted tokens are
// computed anew with the target's hidden states, as upstream does (common/speculative.cpp, draft-mtp).
//
// An assistant (llama/mtp_layers.h) computes no rows of the text: it has the target's. All tokens of its draft are at
// the anchor's position, which is how it was trained.

#pragma once

#include "accept/logits_row.h"
#include "draft/drafter.h"
#include "mtp/mtp_context.h"
#include "mtp/mtp_head.h"
#include "target/target.h"

#include "llama-cpp.h"

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace dflash {

class mtp_drafter : public drafter {
  public:
    // `target` must outlive this, and leaves its final hidden states as taps from now on. Throws std::runtime_error.
    mtp_drafter(const model_pair & models, dflash::target & target);

    const drafter_kind & kind() const override { return MTP_KIND; }
    tap_source           taps() const override { return tap_source::final_state; }
    int32_t              tap_size() const override { return n_embd_; }
    int32_t              max_length() const override { return max_length_; }
    int32_t              n_ctx() const override { return (int32_t) llama_n_ctx_seq(context_.ctx()); }
    int32_t              top_k() const override { return TOP_K; }
    bool                 on_device() const override { return on_device_; }
    bool                 reads_target() const override { return context_.shares(); }
    mtp_context &        context() override { return context_; }
    const mtp_context &  context() const override { return context_; }
    std::map<ggml_backend_buffer_type_t, size_t> compute_memory() const override;
    std::map<ggml_backend_buffer_type_t, size_t> copied_memory() const override;
    drafter_layers                               layers() const override;

    void count_text(const std::vector<int32_t> & tokens, size_t first) override;
    void follow_texts() override;
    void run(const std::vector<draft_job> & jobs, int32_t length, std::vector<draft> & drafts) override;

  private:
    static constexpr int32_t TOP_K = 8;
    // A path less likely than this is not worth another pass.
    static constexpr float LEAST_VALUE = 1.0f / 64;

    // A row of a pass: a token at its position, and the hidden state before it.
    struct row {
        int32_t       slot, token, pos;
        const float * state;   // [n_embd]
        int32_t       path;    // that goes on behind it, -1: none
    };
    // A draft that grows token by token.
    struct path {
        int32_t              slot, pos;   // of the anchor
        draft *              drafted;
        float                least;       // value with which it goes on
        float                value = 1;   // of its last token
        std::vector<int32_t> tokens;      // from the anchor on
        std::vector<float>   states;      // [tokens, n_embd]: before each of them
    };
    // Layers that compute the same rows, one after the other; only the first one's outputs count. drafts_only: no row
    // is of the text.
    struct head_range {
        int32_t first, last;
        bool    drafts_only;
    };

    // Tokens that it may propose.
    int32_t n_logits() const { return head_ ? head_->n_logits() : n_vocab_; }

    void start(const draft_job & job, draft & drafted);
    void add_rows(int32_t i_path);
    void compute(head_range heads);
    void compute_chunk(const row * chunk, int32_t n, int32_t head, head_range heads);
    bool process(bool drafts_only);
    void propose_all(const row * chunk, int32_t n);
    void propose(path & p, const float * logits, const float * state);

    int32_t             n_embd_, n_vocab_;
    int32_t             max_length_;
    int32_t             n_heads_;   // layers that each propose one position; 1: one layer proposes them all
    bool                on_device_, crops_;
    bool                is_broken_ = false;   // a pass threw
    mtp_context         context_;
    llama_batch_ext_ptr batch_;
    logits_row          logits_;

    std::unique_ptr<mtp_head> head_;   // null: the graph computes all logits

    std::vector<row>              rows_;   // of the next pass
    std::vector<path>             paths_;
    std::vector<llama_token_data> best_;
};

}   // namespace dflash

// Runs single passes and exposes their intermediate values, for tests and training: teacher-forced scores, one drafter
// pass with all of its outputs, taps and distributions of a text, passes over any trees, and the target's KV cells.
// dflash.h has the contracts.

#pragma once

#include "cache/cache.h"
#include "cache/draft_memories.h"
#include "dflash.h"
#include "engine/prompt_media.h"
#include "media/media_encoder.h"
#include "target/target.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dflash {

class block_drafter;   // draft/block_drafter.h

// Slots are sequences here: idle ones of the cache.
class inspector {
  public:
    // encoder: null if the target reads text only.
    inspector(target & target, draft_memories & drafts, cache & cache, const media_table & media,
        const live_media & live, media_encoder * encoder) :
        target_(target), drafts_(drafts), cache_(cache), media_(media), live_(live), encoder_(encoder) {}

    void score(int32_t id, const dflash_score_params & p);
    void probe(int32_t id, const dflash_probe_params & p);
    void tap(int32_t id, const dflash_tap_params & p);
    // Returns the milliseconds of the pass. If the pass or a commit fails, all of its slots are empty.
    double tree_pass(const dflash_tree_rows * trees, int32_t n_trees);

  private:
    double  run_trees(const dflash_tree_rows * trees, const std::vector<tree> & checked);
    void    need_cells(int32_t n, const char * what);
    void    feed(int32_t id, const int32_t * tokens, int32_t n, int32_t width, int32_t first_output, const char * what,
           const std::function<void(int32_t from, int32_t n_rows)> & each_pass);
    int32_t feed_text(int32_t id, const int32_t * tokens, int32_t from, int32_t n, int32_t first_output,
        const media_layout & layout, const char * what);
    int32_t feed_medium(int32_t id, prompt_media & media, int32_t from, const char * what);
    void    spread_logits(
           const block_drafter & drafter, const std::vector<float> & rows, int32_t n_block, float * out) const;
    tree              check_tree(const dflash_tree_rows & rows, int32_t index);
    std::vector<tree> check_trees(const dflash_tree_rows * trees, int32_t n_trees);

    target &            target_;
    draft_memories &    drafts_;
    cache &             cache_;
    const media_table & media_;
    const live_media &  live_;
    media_encoder *     encoder_;
};

// The target's KV cells, as JSON.
std::string cells_json(const target & target);

}   // namespace dflash

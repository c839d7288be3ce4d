#include "engine/engine.h"

#include "accept/sampling.h"
#include "base/abort_guard.h"
#include "base/text.h"
#include "engine/drafter_load.h"
#include "engine/warm_up.h"
#include "media/projector_params.h"

#include "common/chat.h"

#include <new>

namespace dflash {

void engine_totals::add(const transfer_counts & before, const transfer_counts & after) {
    moved.to_device += after.to_device - before.to_device;
    moved.from_device += after.from_device - before.from_device;
    moved.between_devices += after.between_devices - before.between_devices;
}

// ---- load ----

static common_chat_templates * load_templates(const llama_model * model, const char * given) {
    const abort_guard guard(abort_guard::phase::load);
    if (is_set(given)) {
        return common_chat_templates_init(model, given).release();
    }
    try {
        return common_chat_templates_init(model, "").release();
    } catch (const std::exception &) {   // a broken template must not cost the model
        return common_chat_templates_init(model, "chatml").release();
    }
}

void engine::templates_deleter::operator()(common_chat_templates * t) const { common_chat_templates_free(t); }

static std::vector<drafter_traits> traits_of(const draft_memories & drafts) {
    std::vector<drafter_traits> traits;
    for (const drafter * d : drafts.drafters()) {
        traits.push_back({ d->max_length(), d->kind().lattice, d->on_device(), d->has_windows() });
    }
    return traits;
}

static std::unique_ptr<media_encoder> load_encoder(const target & target, const dflash_engine_params & given) {
    const dflash_engine_params p = params_beside(target.params(), given);
    return is_set(p.mmproj) ? std::make_unique<media_encoder>(p, target.model(), target.limits().n_rows) : nullptr;
}

engine::engine(const dflash_engine_params & params, dflash_progress_callback progress, void * user) :
    given_(resolve_params(params)), cost_cache_(params.cost_cache ? params.cost_cache : ""),
    models_(given_, { progress, user }), target_(given_, models_), drafts_(target_, load_drafters(models_, target_)),
    encoder_(load_encoder(target_, given_)), cache_(target_.params(), models_, target_, drafts_, media_),
    limits_(target_.limits()), answers_((int32_t) given_.lookup_answers), slots_(given_.n_slots),
    templates_(load_templates(models_.target(), given_.chat_template)) {
    controller_.set_drafters(traits_of(drafts_));
    for (size_t i = 0; i < slots_.size(); ++i) {
        slots_[i].id   = (int32_t) i;
        slots_[i].held = &cache_.at((int32_t) i);
    }
    controller_.costs().verify.set_padded(target_.pads_passes());
    target_.reserve_outputs();
    models_.rpc().blame([&] { warm_up(target_.params(), cost_cache_, target_, drafts_, controller_.costs()); });
    for (const slot & s : slots_) {
        cache_.forget(s.id);
    }
}

engine::~engine() {
    if (totals_.n_steps > 0) {
        controller_.costs().write(cost_cache_);   // what passes cost in use
    }
}

// ---- requests ----

std::unique_ptr<dflash_request> engine::prepare(const dflash_request_params & params) const {
    return std::make_unique<dflash_request>(
        dflash_request{ prepare_request(params, target_.params(), target_, kinds_, media_, live_media_), this });
}

media_prompt engine::prompt(
    const std::string & text, bool add_special, const dflash_media * media, int32_t n_media) const {
    refuse_if(!encoder_, "this model reads text only: start with its projector (--mmproj)");
    return encoder_->projector().tokenize(text, add_special, media, n_media, live_media_);
}

void engine::submit(int32_t id, dflash_request & given) {
    cache_.check_idle(id);
    refuse_if(given.owner != this, "request belongs to another engine: make it with this one");
    slot & s = slots_[id];
    s.begin(std::move(given));
    controller_.begin_answer(s, count_writing(slots_));
    s.request.media.begin(encoder_.get());
    try {
        start(s);
    } catch (...) {   // half of it may be done: the slot must be ready for another request
        finish(s, DFLASH_IDLE);
        cache_.forget(id);
        throw;
    }
}

// Takes over what is cached of the prompt. From now on steps read the rest.
void engine::start(slot & s) {
    const request & r = s.request;
    s.stats.n_cached  = cache_.begin(s.id, r.prompt, reusable_part(r.prompt, r.probs_from), r.cache_prompt);
    drafts_.count_text(r.prompt, s.stats.n_cached);
    s.t_submit_us = llama_time_us();
    s.state       = DFLASH_READING;
    cache_.leave_idle();
}

void engine::cancel(int32_t id) {
    const bool is_aside = cache_.at(id).is_aside();
    if (slots_[id].running()) {
        finish(slots_[id], DFLASH_IDLE);
    }
    if (is_aside) {   // its cells are others' now
        cache_.leave(id);
    }
}

// Takes effect with the next sample. The tree of the next pass, which was grown without knowing, is walked as usual:
// where it lacks the forced tokens, the walk ends.
bool engine::end_reasoning(int32_t id) {
    const std::vector<int32_t> & tokens = cache_.at(id).tokens;
    slot &                       s      = slots_[id];
    if (!s.running()) {
        return false;
    }
    request &    r = s.request;
    llama_tokens generated;
    if (s.state == DFLASH_WRITING) {   // set aside or not
        generated.assign(tokens.begin() + (ptrdiff_t) r.prompt.size(), tokens.end());
        generated.push_back(s.drafts.anchor);
    }
    const bool ends = r.sampler->end_reasoning(generated);
    r.block_accept &= r.sampler->gives_distribution();
    return ends;
}

void engine::set_corpus(dflash::corpus && texts) {
    for (const slot & s : slots_) {
        cache_.check_idle(s.id);
    }
    corpus_ = std::move(texts);
}

// Takes effect between two steps. What the last one holds of the slots stays: K and V that other weights made only make
// drafts a little worse, until the text moves on.
void engine::replace_drafter(const char * path) {
    for (const slot & s : slots_) {
        cache_.check_idle(s.id);
    }
    refuse_if(!models_.drafter(), "no drafter of a file is in use: load the engine with one");
    draft_memory & memory = drafts_[0];   // MTP layers come after it
    drafter_file   file   = models_.load_other_drafter(path, given_);
    models_.rpc().blame([&] { memory.replace_drafter(load_in_place_of(memory.drafter(), file.model.get(), models_)); });
    models_.use_drafter(std::move(file));
}

// An answer for later requests of its owner to quote, as far as it came, with the token that ended it.
void engine::remember(const slot & s) {
    if (given_.lookup_answers == 0 || !s.request.lookup || s.stats.n_generated == 0) {
        return;
    }
    try {
        std::vector<int32_t> tokens = cache_.at(s.id).tokens;
        tokens.push_back(s.drafts.anchor);
        answers_.add(s.request.lookup_owner, tokens, (int32_t) s.request.prompt.size());
    } catch (const std::bad_alloc &) {   // quotations are an optimization
        answers_.forget(s.request.lookup_owner);
    }
}

void engine::finish(slot & s, int32_t state) {
    if (state != DFLASH_FAILED && state != DFLASH_REFUSED) {
        remember(s);
    }
    s.stats = stats_of(s.id);
    s.state = state;
    cache_.end(s.id);
    s.request.sampler.reset();
    s.request.media.end(encoder_.get());
    controller_.end_answer(s);
    s.drafts.clear();
}

void engine::fail(slot & s, const std::string & why, int32_t state) {
    s.result.error = why;
    s.result.emitted.clear();
    s.result.probs.clear();
    s.result.n_prompt_probs = 0;
    finish(s, state);
    cache_.forget(s.id);
}

// Ends a request that has no row in this pass (room.h).
void engine::end_early(slot & s, const std::string & why) {
    s.result.ended = true;
    if (!why.empty()) {
        return fail(s, why);
    }
    finish(s, DFLASH_CONTEXT);
    cache_.leave(s.id);
}

dflash_slot_counters engine::stats_of(int32_t id) const {
    cache_.check_id(id);
    const slot &         s     = slots_[id];
    dflash_slot_counters stats = s.stats;
    if (s.running() && s.t_first_us) {
        stats.t_generate_ms = (llama_time_us() - s.t_first_us) / 1000.0;
    }
    return stats;
}

void engine::add_time(double ms) {
    times_.verify += ms;
    times_.step += ms;
}

}   // namespace dflash

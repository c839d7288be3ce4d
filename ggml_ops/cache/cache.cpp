#include "cache/cache.h"

#include <algorithm>

namespace dflash {

// Bytes that conversations which no sequence holds may take.
static size_t host_limit(const dflash_engine_params & p, const model_pair & models) {
    constexpr size_t MIB = 1 << 20, DEFAULT = 8192 * MIB;
    if (p.cache_ram == -1) {
        return host_cache::NO_LIMIT;
    }
    return p.cache_ram >= 0 ? p.cache_ram * MIB : std::min(DEFAULT, (size_t) (models.spare_memory() / 4));
}

cache::cache(const dflash_engine_params & p, const model_pair & models, target & target, draft_memories & drafts,
    media_table & media) :
    target_(target), drafts_(drafts), media_(media), sequences_(p.n_slots), host_(host_limit(p, models)),
    slot_similarity_(p.slot_similarity), cache_idle_(p.cache_idle_slots),
    leaves_idle_(p.cache_idle_slots && p.kv_unified && target.memory().reads_all_cells()),
    n_checkpoints_(target.memory().needs_checkpoints() ? p.n_checkpoints : 0), checkpoint_step_(p.checkpoint_step) {
    for (size_t i = 0; i < sequences_.size(); ++i) {
        sequences_[i].id = (int32_t) i;
    }
    set_owner(p);
}

void cache::check_id(int32_t id) const {
    refuse_if(id < 0 || id >= (int32_t) sequences_.size(), "slot is ", id, ", must be 0..", sequences_.size() - 1);
}

void cache::check_idle(int32_t id) const {
    if (at(id).running) {
        throw status_error(DFLASH_ERROR_BUSY, "slot ", id, " is running: wait for its end or cancel it");
    }
}

const sequence & cache::at(int32_t id) const {
    check_id(id);
    return sequences_[id];
}

void cache::add_prompt(int32_t id, int32_t n) {
    sequence & s    = sequences_[id];
    const auto from = s.prompt->begin() + s.n_past();
    s.tokens.insert(s.tokens.end(), from, from + n);
    if (s.n_past() == s.save_at) {
        add_checkpoint(s);
    }
}

bool cache::keep_path(int32_t id, const tree & t, const std::vector<int32_t> & path, bool open) {
    sequence & s = sequences_[id];
    for (const int32_t node : path) {
        s.tokens.push_back(t.nodes[node].token);
    }
    if (open) {
        return target_memory().commit(id, path);
    }
    // A chain's accepted rows are its first ones.
    return (int32_t) path.size() == t.size() || target_memory().cut(id, s.position());
}

void cache::find_quotations(int32_t id, int32_t anchor, int32_t length, continuations & found) {
    sequences_[id].text.find(sequences_[id].tokens, anchor, length, found);
}

void cache::end(int32_t id) {
    sequence & s = sequences_[id];
    s.running    = false;
    s.prompt     = nullptr;
    s.leader     = {};
    s.t_used_us  = llama_time_us();
    s.n_asked    = std::min(s.n_asked, s.n_past());   // it may not have been read whole
}

void cache::forget(int32_t id) {
    sequence & s = sequences_[id];
    s.checkpoints.clear();
    s.aside = {};
    s.tokens.clear();
    s.n_asked = 0;
    s.text.reset();
    s.media = {};
    target_memory().forget(id);
    drafts_.forget(id);
}

// ---- checkpoints ----

// Where in its prompt the next checkpoint of a sequence belongs, 0: nowhere.
int32_t cache::checkpoint_place(const sequence & s) const {
    // tokens at a prompt's end that a checkpoint leaves out: the next prompt rarely repeats the very end
    constexpr int32_t TAIL     = 16;
    const int32_t     n_prompt = (int32_t) s.prompt->size();
    return n_checkpoints_ > 0 && s.caches && n_prompt - s.n_past() > 4 * TAIL ? s.media.whole(n_prompt - TAIL) : 0;
}

void cache::add_checkpoint(sequence & s) {
    auto & all = s.checkpoints;
    try {
        auto state = std::make_shared<raw_bytes>(target_memory().read(s.id, true));
        if (state->empty()) {
            return;
        }
        if (!all.empty() && s.n_past() - all.back().at < checkpoint_step_) {
            all.pop_back();
        }
        all.push_back({ s.n_past(), std::move(state) });
    } catch (const std::bad_alloc &) {   // the next prompt reads more
        return;
    }
    if ((int32_t) all.size() > n_checkpoints_) {
        all.erase(all.begin());
    }
}

// ---- to the host and back ----

// Copies what the sequence holds to the host's cache, if its request wanted that, and the host has room and does not
// have it yet.
void cache::keep_on_host(const sequence & s) {
    if (!s.caches || !host_.enabled() || s.tokens.empty() || host_.holds(s.tokens)) {
        return;
    }
    try {
        if (!host_.make_room(copy_bytes(s))) {
            return;
        }
        conversation c = copy_of(s);
        moved_.saved += !c.state.empty() && host_.add(std::move(c));
    } catch (const std::bad_alloc &) {
        host_.shrink();
    }
}

// What the sequence holds. Throws std::bad_alloc.
conversation cache::copy_of(const sequence & s) const {
    conversation c;
    c.tokens      = s.tokens;
    c.reach       = s.media.tokens_before(target_memory().copied_reach(s.id, s.position()));
    c.checkpoints = s.checkpoints;
    c.n_asked     = s.n_asked;
    c.state       = s.is_aside() ? s.aside : target_memory().read(s.id);
    drafts_.copy_to(c, s.id);
    return c;
}

// Bytes of that copy.
size_t cache::copy_bytes(const sequence & s) const {
    return s.tokens.size() * sizeof(int32_t) + (s.is_aside() ? s.aside.size() : target_memory().size(s.id)) +
           bytes_of(s.checkpoints) + drafts_.copy_bytes(s.id);
}

// Lets the sequence hold the first n tokens of a conversation. Returns how many it does.
int32_t cache::restore(sequence & s, const conversation & c, int32_t n) {
    forget(s.id);
    if (!make_room((int32_t) c.tokens.size(), s.id) || !target_memory().write(s.id, c.state)) {
        forget(s.id);
        return 0;
    }
    s.tokens      = c.tokens;
    s.media       = media_.layout(s.tokens);
    s.checkpoints = c.checkpoints;
    s.n_asked     = c.n_asked;
    drafts_.restore(s.id, c);
    ++moved_.restored;
    return cut_back(s, n);
}

// Keeps the first n tokens of what the sequence holds. Returns how many really stayed.
int32_t cache::cut_back(sequence & s, int32_t n) {
    n = s.media.whole(n);
    if (n > 0 && n < s.n_past()) {
        n = go_back(s, n);
    }
    if (n == 0) {
        forget(s.id);
        return 0;
    }
    if (n < s.n_past()) {
        s.text.reset();
    }
    s.tokens.resize(n);
    s.n_asked = std::min(s.n_asked, n);
    while (!s.checkpoints.empty() && s.checkpoints.back().at > n) {
        s.checkpoints.pop_back();
    }
    drafts_.cut(s.id, n);
    return n;
}

// Lets the target's memory forget what follows the first n tokens. Returns how many stayed, 0: it has to be forgotten.
// A recurrent memory goes back no further than to the last tree's root, and without tapes, whose snapshots are those of
// the last pass alone, not at all; a sliding window goes back not far; each of them to a checkpoint.
int32_t cache::go_back(const sequence & s, int32_t n) {
    memory & m = target_memory();
    if ((m.recurrent() ? m.tapes() : n >= reach(s)) && m.cut(s.id, s.media.position(n))) {
        return n;
    }
    for (auto c = s.checkpoints.rbegin(); c != s.checkpoints.rend(); ++c) {
        if (c->at <= n) {   // the rest of the memory is cut by position
            return m.write(s.id, *c->state, true) && m.cut(s.id, s.media.position(c->at)) ? c->at : 0;
        }
    }
    return 0;
}

}   // namespace dflash

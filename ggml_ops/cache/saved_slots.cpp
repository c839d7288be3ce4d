// Slots as files: saved, and put back after everything in the file was checked. What does not fit leaves the slot as it
// was.

#include "cache/cache.h"
#include "base/text.h"
#include "cache/slot_file.h"
#include "llama/access.h"

#include <map>
#include <set>

namespace dflash {

void cache::set_owner(const dflash_engine_params & p) {
    const auto fingerprint = [](const char * path) { return is_set(path) ? model_fingerprint(path) : 0; };
    try {
        owner_ = { fingerprint(p.model), fingerprint(p.drafter), fingerprint(p.mmproj),
            access_rope_factors(target_.context()) };
    } catch (const std::runtime_error & e) {
        no_owner_ = concat("a model's file could not be read when it was loaded: ", e.what());
    }
}

const slot_file_owner & cache::owner() const {
    if (!no_owner_.empty()) {
        throw status_error(DFLASH_ERROR_INTERNAL, no_owner_);
    }
    return owner_;
}

// The media that tokens stand for, each once.
static std::vector<slot_medium> media_of(const std::vector<int32_t> & tokens, const media_table & table) {
    std::vector<slot_medium> media;
    for (const int32_t token : std::set<int32_t>(tokens.begin(), tokens.end())) {
        if (is_media(token)) {
            media.push_back({ token, table.key(token) });
        }
    }
    return media;
}

// Lets the tokens of a file stand for the same media here, and returns where these are. Throws status_error.
static media_layout adopt_media(slot_file & file, media_table & table) {
    std::map<int32_t, int32_t> here;
    for (const slot_medium & m : file.media) {
        here[m.token] = media_token(table.number(m.key));
    }
    for (int32_t & token : file.held.tokens) {
        if (token < 0) {
            const auto known = here.find(token);
            token            = known != here.end() ? known->second : -1;
        }
    }
    try {
        return table.layout(file.held.tokens);
    } catch (const std::runtime_error & e) {
        throw status_error(DFLASH_ERROR_ARG, "the file is damaged: ", e.what());
    }
}

dflash_slot_file cache::save(int32_t id, const std::string & path) {
    check_idle(id);
    sequence & s = sequences_[id];
    if (s.media.whole(s.n_past()) < s.n_past()) {   // its request ended within a medium, whose beginning is of no use
        cut_back(s, s.n_past());
    }
    refuse_if(s.tokens.empty(), "slot ", id, " holds nothing that could be saved");
    if (const std::string why = target_memory().uncheckable(); !why.empty()) {
        throw status_error(DFLASH_ERROR_ARG, "slots of this model cannot be saved: ", why);
    }
    const conversation c = copy_of(s);
    if (c.state.empty()) {
        throw status_error(DFLASH_ERROR_INTERNAL, "the state of slot ", id, " could not be read");
    }
    try {
        return { (int32_t) c.tokens.size(), write_slot_file(path, c, media_of(c.tokens, media_), owner()) };
    } catch (const std::runtime_error & e) {
        throw status_error(DFLASH_ERROR_INTERNAL, e.what());
    }
}

dflash_slot_file cache::load(int32_t id, const std::string & path) {
    check_idle(id);
    sequence &              s     = sequences_[id];
    const slot_file_owner & owner = this->owner();
    slot_file               file;
    try {
        file = read_slot_file(path, owner, target_.limits().n_ctx_slot - 1);
    } catch (const std::runtime_error & e) {
        throw status_error(DFLASH_ERROR_ARG, e.what());
    }
    const media_layout   media = adopt_media(file, media_);
    const conversation & c     = file.held;
    if (const std::string why = refusal(c, media); !why.empty()) {
        throw status_error(DFLASH_ERROR_ARG, "the file ", why);
    }
    const int32_t n = (int32_t) c.tokens.size();
    if (!has_cells(n)) {
        throw status_error(DFLASH_ERROR_BUSY, "no room for ", n, " tokens beside running requests: try again later");
    }
    conversation before = copy_of(s);
    if (restore(s, c, n) != n) {
        forget(id);
        if (!before.tokens.empty()) {
            restore(s, before, (int32_t) before.tokens.size());
        }
        throw status_error(DFLASH_ERROR_ARG,
            "the file does not fit this engine: it may have been saved with other cache types (-ctk, -ctv)");
    }
    if (s.caches && !before.tokens.empty() && !before.state.empty() && !host_.holds(before.tokens)) {
        host_.add(std::move(before));
    }
    s.caches    = true;
    s.t_used_us = llama_time_us();
    return { n, file.bytes };
}

// Why a conversation from outside cannot be one of this engine's, as what is to be said of its file; empty if it can.
std::string cache::refusal(const conversation & c, const media_layout & media) const {
    const int32_t n_vocab = target_.n_vocab();
    for (const int32_t token : c.tokens) {
        if (!is_media(token) && (token < 0 || token >= n_vocab)) {
            return "is damaged: a token outside the vocabulary";
        }
    }
    const memory & m = target_memory();
    if (std::string why = m.refusal(c.state, media.positions((int32_t) c.tokens.size()), false); !why.empty()) {
        return why;
    }
    if (!m.needs_checkpoints() && !c.checkpoints.empty()) {
        return "is damaged: checkpoints that this model does not need";
    }
    for (const checkpoint & p : c.checkpoints) {
        if (std::string why = m.refusal(*p.state, media.positions(p.at), true); !why.empty()) {
            return why;
        }
    }
    const std::string why = drafts_.refusal(c);
    return why.empty() ? "" : concat("is damaged: ", why);
}

}   // namespace dflash

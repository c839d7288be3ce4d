#include "target/model_pair.h"

#include "base/abort_guard.h"
#include "base/log.h"
#include "base/text.h"
#include "files/gguf_check.h"
#include "llama/access.h"
#include "llama/mtp_layers.h"
#include "llama/cache_access.h"

#include <algorithm>

namespace dflash {

namespace {

// The progress of one file as a part of the whole load.
struct load_progress {
    const load_options & options;
    float                from, share;
    bool                 cancelled = false;
};

bool on_progress(float p, void * user) {
    auto * s     = (load_progress *) user;
    s->cancelled = s->options.progress && !s->options.progress(s->from + s->share * p, s->options.user);
    return !s->cancelled;
}

llama_load_mode load_mode(const dflash_engine_params & p) {
    if (p.use_mlock) {
        return p.use_mmap ? LLAMA_LOAD_MODE_MMAP_MLOCK : LLAMA_LOAD_MODE_MLOCK;
    }
    return p.use_mmap ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
}

struct model_file {
    const char * path;
    const char * what;               // in messages
    bool         with_mtp = false;   // its MTP layers, too
};

llama_model * load_model(
    const model_file & file, const placement & placed, const dflash_engine_params & p, load_progress progress) {
    logged_error();   // forget what went wrong before
    llama_model_params mp          = llama_model_default_params();
    mp.no_alloc                    = progress.options.plans;
    mp.load_mode                   = progress.options.plans ? LLAMA_LOAD_MODE_NONE : load_mode(p);
    mp.load_mtp                    = file.with_mtp;
    mp.progress_callback           = on_progress;
    mp.progress_callback_user_data = &progress;
    placed.apply(mp);
    llama_model * model = llama_model_load_from_file(file.path, mp);
    refuse_if(!model && progress.cancelled, "loading the ", file.what, " was cancelled");
    if (!model) {
        throw status_error(
            DFLASH_ERROR_MODEL, "the ", file.what, " ", file.path, " could not be loaded: ", logged_error());
    }
    return model;
}

// Why a file's MTP layers cannot draft, empty if they can.
std::string no_mtp(const gguf_file & file) {
    const std::string  name  = file.find("general.architecture")->text;
    const gguf_value * count = file.find(name + ".nextn_predict_layers");
    const int64_t      n     = count && count->is_integer() ? count->integer() : 0;
    const bool         found = std::any_of(file.tensors.begin(), file.tensors.end(),
                [](const auto & tensor) { return tensor.first.find(".nextn.eh_proj.weight") != std::string::npos; });
    if (n < 1 || !found) {
        return "the file has no MTP layers (nextn tensors)";
    }
    const auto known = std::find_if(
        std::begin(MTP_ARCHS), std::end(MTP_ARCHS), [&](const mtp_arch & arch) { return name == arch.name; });
    if (known == std::end(MTP_ARCHS)) {
        return "llama.cpp does not compute the MTP layers of the architecture " + gguf_printable(name);
    }
    return known->one_head && n > 1 ? "llama.cpp computes only a single MTP layer of the architecture " + name : "";
}

// Whether this file's MTP layers are to draft. Throws status_error if they must, and cannot.
bool wants_mtp(const dflash_engine_params & p, const gguf_file & file) {
    if (p.draft_kind != DFLASH_KIND_MTP && p.draft_kind != DFLASH_KIND_AUTO) {
        return false;
    }
    const std::string why = no_mtp(file);
    if (p.draft_kind == DFLASH_KIND_MTP && !why.empty()) {
        throw status_error(DFLASH_ERROR_PAIR, "draft_kind is mtp, but ", file.path, " cannot draft: ", why);
    }
    return why.empty();
}

}   // namespace

model_pair::model_pair(const dflash_engine_params & params, const load_options & options) :
    rpc_(params.rpc), plans_(options.plans), host_memory_(params.host_memory) {
    const abort_guard guard(abort_guard::phase::load);
    rpc_.blame([&] {
        rpc_.connect();
        place(params, options.stand_ins);
        load(params, options);
    });
}

// Devices have names once the RPC servers are known.
void model_pair::place(const dflash_engine_params & params, const std::vector<ggml_backend_dev_t> & stand_ins) {
    std::vector<ggml_backend_dev_t> known = !stand_ins.empty() ? stand_ins
                                            : rpc_.none()      ? local_devices()
                                                               : rpc_.devices();
    known.erase(std::remove(known.begin(), known.end(), nullptr), known.end());
    target_place_  = placement::of_target(params, known);
    drafter_place_ = placement::of_drafter(params, known);
    if (!stand_ins.empty()) {
        known.push_back(nullptr);
        target_place_.prefer(known);
        drafter_place_.prefer(known);
        return;
    }
    target_place_.prefer(rpc_.devices());
    drafter_place_.prefer(rpc_servers().devices());   // not on servers of another engine
    if (!rpc_.none()) {                               // a drafter pass over the network would cost more than it saves
        drafter_place_.stay_on(rpc_servers().devices());
    }
}

void model_pair::load(const dflash_engine_params & p, const load_options & options) {
    const bool      has_file     = is_set(p.drafter) && p.draft_kind != DFLASH_KIND_LOOKUP;
    const float     target_share = has_file ? 0.8f : 1.0f;
    const gguf_file header       = check_gguf(p.model);
    uses_mtp_                    = !has_file && wants_mtp(p, header);
    target_.reset(load_model({ p.model, "target", uses_mtp_ }, target_place_, p, { options, 0.0f, target_share }));
    rpc_.raise_failures();
    target_weights_ = access_weights(target());
    check_target(p);
    if (has_file) {
        load_drafter(p, header, options);
    }
    if (uses_mtp_) {
        max_length_ = access_mtp_length(mtp());
    } else if (drafter()) {
        max_length_ = pair_error([&] { return access_drafter(drafter()).max_length(); });
    }
}

// From a file of its own: of its architecture, or MTP layers that were split off the target.
void model_pair::load_drafter(
    const dflash_engine_params & p, const gguf_file & target_file, const load_options & options) {
    const gguf_file file    = check_gguf(p.drafter);
    const auto      arch_of = [](const gguf_file & f) { return f.find("general.architecture")->text; };
    uses_mtp_               = arch_of(file) == arch_of(target_file) && wants_mtp(p, file);
    if (p.draft_kind == DFLASH_KIND_MTP && !uses_mtp_) {
        throw status_error(DFLASH_ERROR_PAIR, "draft_kind is mtp, but ", p.drafter,
            " is a drafter with layers of its own (", gguf_printable(arch_of(file)),
            "): leave it out, or leave draft_kind at auto");
    }
    if (const ggml_tensor * output = access_heads(target()).output) {
        const gguf_tensor * found = target_file.find_tensor(output->name);
        head_                     = found ? *found : gguf_tensor();
    }
    drafter_place_.settle(target_place_, target());
    drafter_.reset(load_model({ p.drafter, "drafter", uses_mtp_ }, drafter_place_, p, { options, 0.8f, 0.2f }));
    drafter_weights_ = access_weights(drafter());
}

void model_pair::check_target(const dflash_engine_params & p) const {
    if (!llama_model_has_decoder(target()) || llama_model_has_encoder(target())) {
        throw status_error(DFLASH_ERROR_MODEL, p.model, " is not a text-generation model (general.architecture ",
            access_arch(target()), ")");
    }
    if (llama_vocab_n_tokens(vocab()) < 1) {
        throw status_error(DFLASH_ERROR_MODEL, p.model, " has no vocabulary (tokenizer.ggml.tokens)");
    }
    refuse_if(recurrent() && target_place_.splits_tensors_over_rpc(),
        "split_mode tensor: RPC servers cannot hold the recurrent states of ", access_arch(target()),
        " in parts; use layer");
}

bool model_pair::recurrent() const { return llama_model_is_recurrent(target()) || llama_model_is_hybrid(target()); }

bool model_pair::on_devices() const {
    return drafts() && !(access_devices(target()).empty() && (!drafter() || access_devices(drafter()).empty()));
}

double model_pair::spare_memory() const {
    size_t free = host_memory_, total = 0;
    if (ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU); cpu && free == 0) {
        ggml_backend_dev_memory(cpu, &free, &total);
    }
    const size_t weights = access_host_weights(target()) + (drafter() ? access_host_weights(drafter()) : 0);
    return free > weights ? (double) (free - weights) : 0.0;
}

}   // namespace dflash

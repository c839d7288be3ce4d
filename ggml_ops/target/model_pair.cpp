#include "target/model_pair.h"

#include "base/abort_guard.h"
#include "base/log.h"
#include "base/text.h"
#include "files/gguf_check.h"
#include "llama/access.h"
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

llama_model * load_model(const char * path, const char * what, const placement & placed, const dflash_engine_params & p,
    load_progress progress) {
    logged_error();   // forget what went wrong before
    llama_model_params mp          = llama_model_default_params();
    mp.no_alloc                    = progress.options.plans;
    mp.load_mode                   = progress.options.plans ? LLAMA_LOAD_MODE_NONE : load_mode(p);
    mp.progress_callback           = on_progress;
    mp.progress_callback_user_data = &progress;
    placed.apply(mp);
    llama_model * model = llama_model_load_from_file(path, mp);
    refuse_if(!model && progress.cancelled, "loading the ", what, " was cancelled");
    if (!model) {
        throw status_error(DFLASH_ERROR_MODEL, "the ", what, " ", path, " could not be loaded: ", logged_error());
    }
    return model;
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
    const float     target_share = is_set(p.drafter) ? 0.8f : 1.0f;
    const gguf_file header       = check_gguf(p.model);
    target_.reset(load_model(p.model, "target", target_place_, p, { options, 0.0f, target_share }));
    rpc_.raise_failures();
    target_weights_ = access_weights(target());
    check_target(p);
    if (is_set(p.drafter)) {
        check_gguf(p.drafter);
        if (const ggml_tensor * output = access_heads(target()).output) {
            const gguf_tensor * found = header.find_tensor(output->name);
            head_                     = found ? *found : gguf_tensor();
        }
        drafter_place_.settle(target_place_, target());
        drafter_.reset(
            load_model(p.drafter, "drafter", drafter_place_, p, { options, target_share, 1 - target_share }));
        drafter_weights_ = access_weights(drafter());
        max_length_      = pair_error([&] { return access_drafter(drafter()).max_length(); });
    }
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
    return drafter() && !(access_devices(target()).empty() && access_devices(drafter()).empty());
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

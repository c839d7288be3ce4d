#include "target/model_pair.h"

#include "base/abort_guard.h"
#include "base/log.h"
#include "base/text.h"
#include "files/gguf_check.h"
#include "llama/access.h"
#include "llama/devices.h"
#include "llama/mtp_layers.h"
#include "llama/cache_access.h"
#include "target/mtp_check.h"

#include <algorithm>
#include <chrono>

namespace dflash {

namespace {

constexpr const char * ASSISTED_ARCH = "gemma4";

// Time between two reports of progress. llama.cpp tells of each tensor, and each time Python's would wait until another
// thread hands over its lock: hundreds of times half a millisecond beside imports.
constexpr std::chrono::milliseconds PROGRESS_INTERVAL(20);

// The progress of one file as a part of the whole load.
struct load_progress {
    const load_options &                  options;
    float                                 from, share;
    bool                                  cancelled = false;
    std::chrono::steady_clock::time_point told      = {};

    // Whether to go on. The end is always reported.
    bool report(float p) {
        const auto now = std::chrono::steady_clock::now();
        if (!options.progress || (p < 1.0f && now - told < PROGRESS_INTERVAL)) {
            return true;
        }
        told      = now;
        cancelled = !options.progress(from + share * p, options.user);
        return !cancelled;
    }
};

bool on_progress(float p, void * user) { return ((load_progress *) user)->report(p); }

// Whether the CPU packs weights of a file, and then never reads them there again.
bool packs_weights(const gguf_file & file) {
    const auto can_pack = backend_function<bool(ggml_type)>(ggml_backend_reg_by_name("CPU"), "dflash_can_pack_type");
    return can_pack && std::any_of(file.tensors.begin(), file.tensors.end(),
                           [&](const auto & named) { return can_pack((ggml_type) named.second.type); });
}

llama_load_mode load_mode(const dflash_engine_params & p, const char * path) {
    if (p.use_mlock) {
        // a mapped file is locked from its start to the last weight that is read from there: all packed ones, too
        const bool maps = p.use_mmap && !packs_weights(check_gguf(path));
        return maps ? LLAMA_LOAD_MODE_MMAP_MLOCK : LLAMA_LOAD_MODE_MLOCK;
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
    const log_silence silence("model has unused tensor");   // a line for each of MTP layers that are left out
    logged_error();                                         // forget what went wrong before
    llama_model_params mp          = llama_model_default_params();
    mp.no_alloc                    = progress.options.plans;
    mp.load_mode                   = progress.options.plans ? LLAMA_LOAD_MODE_NONE : load_mode(p, file.path);
    mp.load_mtp                    = file.with_mtp;
    mp.progress_callback           = on_progress;
    mp.progress_callback_user_data = &progress;
    placed.apply(mp);
    llama_model * model = llama_model_load_from_file(file.path, mp);
    if (!model && progress.cancelled) {
        throw status_error(DFLASH_ERROR_CANCELLED, "loading the ", file.what, " was cancelled");
    }
    if (!model) {
        throw status_error(
            DFLASH_ERROR_MODEL, "the ", file.what, " ", file.path, " could not be loaded: ", logged_error());
    }
    return model;
}

std::string arch_of(const gguf_file & file) { return file.find("general.architecture")->text; }

void refuse_layers(const dflash_engine_params & p) {
    if (p.draft_kind == DFLASH_KIND_DFLASH) {
        throw status_error(DFLASH_ERROR_PAIR, "draft_kind is dflash, but ", p.drafter,
            " has MTP layers: leave the file out, or draft_kind at auto");
    }
}

void check_assistance(const dflash_engine_params & p, const gguf_file & target) {
    if (arch_of(target) != ASSISTED_ARCH) {
        throw status_error(DFLASH_ERROR_PAIR, p.drafter, " is an assistant of ", ASSISTED_ARCH,
            " models, and the target's architecture is ", gguf_printable(arch_of(target)),
            ": take a drafter of this target");
    }
    refuse_layers(p);
}

// Whether the drafter's file has MTP layers of this target. Throws status_error if it has some that cannot draft, or
// draft_kind wants another drafter.
bool is_mtp_file(const dflash_engine_params & p, const gguf_file & target) {
    const gguf_file file = check_gguf(p.drafter);
    if (arch_of(file) == ASSISTANT_ARCH) {
        check_assistance(p, target);
        return true;
    }
    if (arch_of(file) != arch_of(target)) {
        if (p.draft_kind == DFLASH_KIND_MTP) {
            throw status_error(DFLASH_ERROR_PAIR, "draft_kind is mtp, but ", p.drafter, " has the architecture ",
                gguf_printable(arch_of(file)), ", not the target's: leave the file out, or draft_kind at auto");
        }
        return false;
    }
    const std::string why = no_mtp(file);
    if (!why.empty()) {
        throw status_error(DFLASH_ERROR_PAIR, p.drafter, " has the target's architecture, but cannot draft: ", why);
    }
    refuse_layers(p);
    return true;
}

// Whether the target's own MTP layers are to draft. Throws status_error if they must, and cannot.
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
    rpc_.connect();
    rpc_.blame([&] {
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
    drafter_place_ = placement::of_drafter(params, drafter_choice(known, stand_ins));
    if (!stand_ins.empty()) {
        known.push_back(nullptr);
        target_place_.prefer(known);
        drafter_place_.prefer(known);
        return;
    }
    target_place_.prefer(rpc_.devices());
    drafter_place_.prefer(rpc_servers().devices());   // not on servers of another engine
}

// Beside RPC servers the drafter is on this machine: its passes over the network would cost more than they save.
drafter_devices model_pair::drafter_choice(
    const std::vector<ggml_backend_dev_t> & known, const std::vector<ggml_backend_dev_t> & stand_ins) const {
    drafter_devices choice = { known, stand_ins.empty() ? local_devices() : known, target_place_.devices_of(known) };
    if (!rpc_.none()) {
        choice.beside.erase(std::remove_if(choice.beside.begin(), choice.beside.end(), is_rpc), choice.beside.end());
        if (choice.beside.empty() && !choice.own.empty()) {
            choice.beside.push_back(choice.own.front());
        }
    }
    return choice;
}

void model_pair::load(const dflash_engine_params & p, const load_options & options) {
    const bool      has_file     = is_set(p.drafter) && p.draft_kind != DFLASH_KIND_LOOKUP;
    const float     target_share = has_file ? 0.8f : 1.0f;
    const gguf_file header       = check_gguf(p.model);
    if (arch_of(header) == ASSISTANT_ARCH) {
        throw status_error(DFLASH_ERROR_MODEL, p.model,
            " drafts for a Gemma 4 model and is none: give that with -m, and this file with -md");
    }
    is_mtp_file_        = has_file && is_mtp_file(p, header);
    uses_mtp_           = is_mtp_file_ || wants_mtp(p, header);
    const bool with_mtp = uses_mtp_ && !is_mtp_file_;
    target_.reset(load_model({ p.model, "target", with_mtp }, target_place_, p, { options, 0.0f, target_share }));
    rpc_.raise_failures();
    target_lock_    = lock_packed(target(), p);
    target_weights_ = access_weights(target());
    check_target(p);
    if (has_file) {
        load_drafter(p, options);
    }
    find_heads(header);
    max_length_ = longest_draft();
}

void model_pair::load_drafter(const dflash_engine_params & p, const load_options & options) {
    drafter_place_.settle(target());
    file_ = load_file(p.drafter, p, options);
    if (access_is_assistant(file_.model.get())) {
        const std::string misfit = access_assistant_misfit(file_.model.get(), target());
        if (!misfit.empty()) {
            throw status_error(DFLASH_ERROR_PAIR, p.drafter, " is the assistant of another model: ", misfit);
        }
    }
}

drafter_file model_pair::load_file(
    const char * path, const dflash_engine_params & p, const load_options & options) const {
    drafter_file file;
    file.model.reset(load_model({ path, "drafter", is_mtp_file_ }, drafter_place_, p, { options, 0.8f, 0.2f }));
    file.lock    = lock_packed(file.model.get(), p);
    file.weights = access_weights(file.model.get());
    return file;
}

drafter_file model_pair::load_other_drafter(const char * path, const dflash_engine_params & p) const {
    const abort_guard guard(abort_guard::phase::load);
    const gguf_file   header = check_gguf(path);
    if (arch_of(header) != access_arch(drafter())) {
        throw status_error(DFLASH_ERROR_PAIR, path, " has the architecture ", gguf_printable(arch_of(header)),
            ", the drafter in use ", access_arch(drafter()), ": only a drafter of the same form can take its place");
    }
    return load_file(path, p, {});
}

weight_lock model_pair::lock_packed(const llama_model * model, const dflash_engine_params & p) const {
    return p.use_mlock && !plans_ ? access_lock_packed(model) : nullptr;
}

// Where drafters find rows of a projection that they use a part of.
void model_pair::find_heads(const gguf_file & target_file) {
    const auto find = [&](const ggml_tensor * tensor) {
        const gguf_tensor * found = tensor ? target_file.find_tensor(tensor->name) : nullptr;
        return found ? *found : gguf_tensor();
    };
    head_ = find(access_heads(target()).output);
    if (uses_mtp_ && !is_mtp_file_) {
        mtp_head_ = find(access_mtp_projection(target()).head);
    }
}

int32_t model_pair::longest_draft() const {
    const int32_t block = drafter() ? pair_error([&] { return access_drafter(drafter()).max_length(); }) : 0;
    return std::max(block, mtp() ? access_mtp_length(mtp()) : 0);
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
    return drafts() &&
           !(access_devices(target()).empty() && (!file_.model || access_devices(file_.model.get()).empty()));
}

double model_pair::spare_memory() const {
    size_t free = host_memory_, total = 0;
    if (ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU); cpu && free == 0) {
        ggml_backend_dev_memory(cpu, &free, &total);
    }
    const size_t weights = access_host_weights(target()) + (file_.model ? access_host_weights(file_.model.get()) : 0);
    return free > weights ? (double) (free - weights) : 0.0;
}

}   // namespace dflash

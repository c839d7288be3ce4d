#include "target/placement.h"

#include "base/error.h"
#include "common/common.h"
#include "llama/access.h"
#include "llama/devices.h"

#include "ggml-backend.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>

namespace dflash {

namespace {

bool contains(const std::vector<ggml_backend_dev_t> & devices, ggml_backend_dev_t device) {
    return std::find(devices.begin(), devices.end(), device) != devices.end();
}

std::string names_of(const std::vector<ggml_backend_dev_t> & devices) {
    std::vector<std::string> names(devices.size());
    std::transform(devices.begin(), devices.end(), names.begin(), ggml_backend_dev_name);
    return joined(names, ", ");
}

std::vector<std::string> parts_of(const std::string & text, const char * separators) {
    std::vector<std::string> parts;
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find_first_of(separators, begin), text.size());
        parts.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

ggml_backend_dev_t find_device(
    const std::string & name, const char * field, const std::vector<ggml_backend_dev_t> & known) {
    const auto found = std::find_if(
        known.begin(), known.end(), [&](ggml_backend_dev_t device) { return ggml_backend_dev_name(device) == name; });
    ggml_backend_dev_t device = found != known.end() ? *found : ggml_backend_dev_by_name(name.c_str());
    if (device && !is_cpu(device)) {
        return device;
    }
    const std::string there = names_of(known);
    const char *      why   = device ? "', which is no device to offload to" : "', which is not here";
    throw status_error(DFLASH_ERROR_ARG, field, " names '", name, why, ": give ",
        (there.empty() ? "" : there + ", or "), "none to use the CPU");
}

// Names -> devices and a null at the end.
std::vector<ggml_backend_dev_t> find_devices(
    const std::string & text, const char * field, const std::vector<ggml_backend_dev_t> & known) {
    std::vector<ggml_backend_dev_t> devices;
    for (const std::string & name : text == "none" ? std::vector<std::string>() : parts_of(text, ",")) {
        ggml_backend_dev_t device = find_device(name, field, known);
        refuse_if(contains(devices, device), field, " names '", name, "' twice");
        devices.push_back(device);
    }
    devices.push_back(nullptr);
    return devices;
}

std::vector<float> parse_shares(const char * text) {
    if (!text) {
        return {};
    }
    std::vector<float> shares(llama_max_devices(), 0.0f);
    size_t             n = 0;
    for (const std::string & part : parts_of(text, ",/")) {
        char *      end   = nullptr;
        const float share = std::strtof(part.c_str(), &end);
        refuse_if(n >= shares.size() || part.empty() || *end || !(share >= 0) || !std::isfinite(share),
            "tensor_split is '", text, "', must be at most ", shares.size(), " numbers such as 3,1");
        shares[n++] = share;
    }
    return shares;
}

llama_split_mode parse_split_mode(const char * name) {
    static const std::map<std::string, llama_split_mode> MODES = {
        { "none", LLAMA_SPLIT_MODE_NONE },
        { "layer", LLAMA_SPLIT_MODE_LAYER },
        { "row", LLAMA_SPLIT_MODE_ROW },
        { "tensor", LLAMA_SPLIT_MODE_TENSOR },
    };
    if (!is_set(name)) {
        return LLAMA_SPLIT_MODE_LAYER;
    }
    const auto mode = MODES.find(name);
    refuse_if(mode == MODES.end(), "split_mode is '", name, "', must be none, layer, row or tensor");
    return mode->second;
}

// A pass uses the model's devices and the CPU: llama.cpp aborts if a tensor is elsewhere.
void check_reach(ggml_backend_buffer_type_t type, const char * field, const std::vector<ggml_backend_dev_t> & devices) {
    ggml_backend_dev_t device = ggml_backend_buft_get_device(type);
    if (is_cpu(device) || contains(devices, device)) {
        return;
    }
    const char * its_devices = std::string(field) == "override_tensor" ? "device" : "device_draft";
    throw status_error(DFLASH_ERROR_ARG, field, " puts tensors on ", ggml_backend_dev_name(device),
        ", which is not among the devices of the model: name it with ", its_devices,
        ", too, or with main_gpu if split_mode is none");
}

// Buffer types by their names and by those of their devices.
std::map<std::string, ggml_backend_buffer_type_t> buffer_types(std::vector<ggml_backend_dev_t> devices) {
    std::map<std::string, ggml_backend_buffer_type_t> types;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        devices.insert(devices.begin() + (ptrdiff_t) i, ggml_backend_dev_get(i));
    }
    for (ggml_backend_dev_t device : devices) {   // known ones last: a plan's may have the name of one that is here
        if (ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(device)) {
            types[ggml_backend_buft_name(type)] = types[ggml_backend_dev_name(device)] = type;
        }
    }
    return types;
}

void check_pattern(const std::string & pattern, const char * field) {
    try {
        (void) std::regex(pattern);
    } catch (const std::regex_error & e) {
        throw status_error(
            DFLASH_ERROR_ARG, field, " has the pattern '", pattern, "', which is no regular expression: ", e.what());
    }
}

bool has_split_buffers(ggml_backend_dev_t device) {
    return backend_function<void()>(device, "ggml_backend_split_buffer_type");
}

}   // namespace

placement placement::of_target(const dflash_engine_params & params, const std::vector<ggml_backend_dev_t> & known) {
    placement placed;
    placed.split_mode_   = parse_split_mode(params.split_mode);
    placed.shares_       = parse_shares(params.tensor_split);
    placed.n_gpu_layers_ = params.n_gpu_layers;
    placed.main_gpu_     = params.main_gpu;
    if (is_set(params.device)) {
        placed.devices_ = find_devices(params.device, "device", known);
    }
    placed.check_split(known);
    if (placed.split_mode_ == LLAMA_SPLIT_MODE_TENSOR && placed.devices_.empty()) {
        placed.devices_ = known;
        placed.devices_.push_back(nullptr);
    }
    refuse_if(params.flash_attn == 0 && placed.split_mode_ == LLAMA_SPLIT_MODE_TENSOR,
        "split_mode tensor needs flash attention: leave flash_attn on or auto");
    refuse_if(is_set(params.drafter) && placed.split_mode_ == LLAMA_SPLIT_MODE_TENSOR,
        "split_mode tensor leaves no whole output projection that a drafter could use: use layer, or no drafter");
    if (placed.split_mode_ == LLAMA_SPLIT_MODE_NONE && !placed.devices_.empty() && placed.devices_.size() > 1) {
        placed.devices_  = { placed.devices_[std::max(0, placed.main_gpu_)], nullptr };
        placed.main_gpu_ = 0;
    }
    placed.read_overrides(params.override_tensor, "override_tensor", known);
    placed.check_overrides("override_tensor", placed.devices_of(known));
    placed.keep_experts_on_cpu(params);
    return placed;
}

// Modes that not every device supports: llama.cpp would fail in the middle of loading, or abort.
void placement::check_split(const std::vector<ggml_backend_dev_t> & known) const {
    std::vector<ggml_backend_dev_t> devices = devices_.empty() ? known : devices_;
    if (!devices.empty() && !devices.back()) {
        devices.pop_back();
    }
    // chosen from `devices_` even where no layer is put there
    refuse_if(split_mode_ == LLAMA_SPLIT_MODE_NONE && !devices.empty() && main_gpu_ >= (int32_t) devices.size(),
        "main_gpu is ", main_gpu_, ", and the devices are ", names_of(devices), ": the first one is 0");
    if (n_gpu_layers_ == 0 || split_mode_ == LLAMA_SPLIT_MODE_LAYER) {
        return;
    }
    refuse_if(split_mode_ == LLAMA_SPLIT_MODE_TENSOR && devices.empty(),
        "split_mode tensor needs a device, and there is none: use layer");
    for (ggml_backend_dev_t device : devices) {
        refuse_if(split_mode_ == LLAMA_SPLIT_MODE_ROW && !has_split_buffers(device),
            "split_mode row: ", ggml_backend_dev_name(device),
            " cannot split a matrix by its rows; use layer or tensor");
    }
}

placement placement::of_drafter(const dflash_engine_params & params, const drafter_devices & devices) {
    placement placed;
    placed.n_gpu_layers_ = params.n_gpu_layers_draft;
    placed.beside_       = devices.beside;
    if (is_set(params.device_draft)) {
        placed.devices_ = find_devices(params.device_draft, "device_draft", devices.known);
    }
    // a target on the CPU keeps a drafter off the device only if nobody has asked for one there
    placed.follows_ = placed.devices_.empty() && (params.n_gpu_layers != 0 || params.n_gpu_layers_draft < 0);
    placed.read_overrides(params.override_tensor_draft, "override_tensor_draft", devices.known);
    const std::vector<ggml_backend_dev_t> none;   // beside a target on the CPU
    const auto &                          beside = params.n_gpu_layers == 0 ? none : devices.beside;
    placed.check_overrides("override_tensor_draft", placed.follows_ ? beside : placed.devices_of(devices.own));
    return placed;
}

ggml_backend_dev_t drafter_device(ggml_backend_dev_t output, const std::vector<ggml_backend_dev_t> & beside) {
    if (is_rpc(output) && !contains(beside, output)) {
        return beside.empty() ? nullptr : beside.front();
    }
    return is_cpu(output) ? nullptr : output;
}

void placement::settle(const llama_model * target) {
    if (follows_) {
        devices_ = { drafter_device(access_output_device(target), beside_), nullptr };
        check_overrides("override_tensor_draft", devices_);
    }
}

void placement::prefer(const std::vector<ggml_backend_dev_t> & devices) {
    if (devices_.empty()) {
        devices_ = devices;
    }
}

std::vector<ggml_backend_dev_t> placement::devices_of(const std::vector<ggml_backend_dev_t> & known) const {
    std::vector<ggml_backend_dev_t> devices = devices_.empty() ? known : devices_;
    devices.erase(std::remove(devices.begin(), devices.end(), nullptr), devices.end());
    if (split_mode_ != LLAMA_SPLIT_MODE_NONE || devices.empty()) {
        return devices;
    }
    return main_gpu_ < 0 ? std::vector<ggml_backend_dev_t>() : std::vector<ggml_backend_dev_t>{ devices[main_gpu_] };
}

void placement::check_overrides(const char * field, const std::vector<ggml_backend_dev_t> & devices) const {
    for (const llama_model_tensor_buft_override & override : overrides_) {
        if (override.buft) {
            check_reach(override.buft, field, devices);
        }
    }
}

void placement::read_overrides(const char * text, const char * field, const std::vector<ggml_backend_dev_t> & known) {
    if (!is_set(text)) {
        return;
    }
    const auto types = buffer_types(known);
    for (const std::string & part : parts_of(text, ",")) {
        const size_t equals = part.find('=');
        const auto   type   = equals == std::string::npos ? types.end() : types.find(part.substr(equals + 1));
        if (type == types.end()) {
            std::vector<std::string> names(types.size());
            std::transform(types.begin(), types.end(), names.begin(), [](const auto & known) { return known.first; });
            throw status_error(DFLASH_ERROR_ARG, field, " has '", part,
                "', must be PATTERN=BUFFER with one of the buffers ", joined(names, ", "));
        }
        check_pattern(part.substr(0, equals), field);
        add_override(part.substr(0, equals), type->second);
    }
}

void placement::keep_experts_on_cpu(const dflash_engine_params & params) {
    ggml_backend_buffer_type_t cpu = ggml_backend_cpu_buffer_type();
    if (params.cpu_moe) {
        add_override(LLM_FFN_EXPS_REGEX, cpu);
    }
    for (int32_t layer = 0; layer < params.n_cpu_moe; ++layer) {
        add_override(llm_ffn_block_regex(layer, LLM_FFN_EXPS_REGEX), cpu);
    }
    for (int32_t layer = 0; layer < params.n_cpu_ffn; ++layer) {
        add_override(llm_ffn_block_regex(layer, LLM_FFN_DENSE_REGEX), cpu);
    }
}

void placement::add_override(const std::string & pattern, ggml_backend_buffer_type_t type) {
    patterns_.push_back(pattern);
    if (!overrides_.empty()) {
        overrides_.pop_back();
    }
    overrides_.push_back({ patterns_.back().c_str(), type });
    overrides_.push_back({ nullptr, nullptr });
}

bool placement::splits_tensors_over_rpc() const {
    return split_mode_ == LLAMA_SPLIT_MODE_TENSOR && std::any_of(devices_.begin(), devices_.end(), is_rpc);
}

void placement::apply(llama_model_params & params) const {
    params.devices = devices_.empty() ? nullptr : const_cast<ggml_backend_dev_t *>(devices_.data());   // only read
    params.tensor_buft_overrides = overrides_.empty() ? nullptr : overrides_.data();
    params.tensor_split          = shares_.empty() ? nullptr : shares_.data();
    params.split_mode            = split_mode_;
    params.n_gpu_layers          = n_gpu_layers_;
    params.main_gpu              = main_gpu_;
}

}   // namespace dflash

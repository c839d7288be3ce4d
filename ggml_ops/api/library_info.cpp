#include "api/library_info.h"

#include "base/backends.h"
#include "dflash.h"
#include "llama/access.h"
#include "llama/devices.h"
#include "llama/mtp_layers.h"

namespace dflash {

static const char * device_type(ggml_backend_dev_t dev) {
    switch (ggml_backend_dev_type(dev)) {
        case GGML_BACKEND_DEVICE_TYPE_CPU: return "cpu";
        case GGML_BACKEND_DEVICE_TYPE_GPU: return "gpu";
        case GGML_BACKEND_DEVICE_TYPE_IGPU: return "igpu";
        default: return "accel";
    }
}

json describe(ggml_backend_dev_t dev) {
    size_t free = 0, total = 0;
    ggml_backend_dev_memory(dev, &free, &total);
    return { { "name", ggml_backend_dev_name(dev) }, { "description", ggml_backend_dev_description(dev) },
        { "type", device_type(dev) }, { "memory_total", total }, { "memory_free", free } };
}

// The types of weights for which the CPU backend has our kernels.
static json packed_types() {
    json                     types         = json::array();
    const ggml_backend_reg_t cpu           = ggml_backend_reg_by_name("CPU");
    const auto               can_pack_type = backend_function<bool(ggml_type)>(cpu, "dflash_can_pack_type");
    for (int type = 0; can_pack_type && type < GGML_TYPE_COUNT; ++type) {
        if (can_pack_type((ggml_type) type)) {
            types.push_back(ggml_type_name((ggml_type) type));
        }
    }
    return types;
}

// Architectures whose MTP layers can draft, as far as `f` is true of them.
template <class F> static json mtp_archs(F && f) {
    json names = json::array();
    for (const mtp_arch & arch : MTP_ARCHS) {
        if (f(arch)) {
            names.push_back(arch.name);
        }
    }
    return names;
}

std::string library_info() {
    json backends = json::array(), devices = json::array(), features = json::object();
    for (size_t i = 0; i < ggml_backend_reg_count(); ++i) {
        ggml_backend_reg_t reg = ggml_backend_reg_get(i);
        backends.push_back(ggml_backend_reg_name(reg));
        if (const auto get =
                backend_function<ggml_backend_feature *(ggml_backend_reg_t)>(reg, "ggml_backend_get_features")) {
            for (const ggml_backend_feature * f = get(reg); f && f->name; ++f) {
                features[ggml_backend_reg_name(reg)][f->name] = f->value;
            }
        }
    }
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (!is_rpc(dev)) {   // skip other machines' devices
            devices.push_back(describe(dev));
        }
    }
    const json info = {
        { "abi", DFLASH_ABI_VERSION },
        { "llama", llama_version() },
        { "backends", backends },
        { "devices", devices },
        { "features", features },
        { "cpu_variant", cpu_variant() },
        { "packed_types", packed_types() },
        { "gpu_offload", llama_supports_gpu_offload() },
        { "tapped_architectures", access_tapped_archs().all },
        { "tapped_to_the_end", access_tapped_archs().to_the_end },
        { "mtp_architectures", mtp_archs([](const mtp_arch &) { return true; }) },
        { "mtp_chains", mtp_archs([](const mtp_arch & arch) { return !arch.one_head; }) },
    };
    return info.dump_safe();
}

}   // namespace dflash

#include "engine/dry_load.h"

#include "base/abort_guard.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/drafter_load.h"
#include "engine/memory_use.h"
#include "engine/model_description.h"
#include "engine/params.h"
#include "files/gguf_check.h"
#include "files/projector_check.h"
#include "llama/access.h"
#include "media/projector_memory.h"
#include "media/projector_params.h"
#include "plan/planned_buffer.h"

#include "llama-ext.h"

namespace dflash {

static json describe_devices(const llama_model * model) {
    json devices = json::array();
    for (const ggml_backend_dev_t device : access_devices(model)) {
        size_t free = 0, total = 0;
        ggml_backend_dev_memory(device, &free, &total);
        devices.push_back({ { "name", ggml_backend_dev_name(device) },
            { "description", ggml_backend_dev_description(device) }, { "free", free }, { "total", total } });
    }
    return devices;
}

std::string plan_json(const dflash_engine_params & given, const std::vector<ggml_backend_dev_t> & stand_ins) {
    const log_silence            silence;
    const plan_scope             scope;
    const dflash_engine_params   checked = resolve_params(given);
    const model_pair             models(checked, { nullptr, nullptr, true, stand_ins });
    target                       target(checked, models);
    const dflash_engine_params & params   = target.params();
    const auto                   loaded   = load_drafters(models, target);
    const drafter_list           drafters = list_of(loaded);
    {
        const abort_guard guard(abort_guard::phase::load);
        models.rpc().blame([&] { access_reserve(target.context()); });
    }
    memory_table table = allocated(models, target, drafters);
    if (is_set(params.mmproj)) {
        const projector_traits traits = traits_of(check_gguf(params.mmproj, gguf_use::project));
        table.add("projector", projector_memory(params_beside(params, checked), traits, models.target()));
    }
    table.add("output", { { ggml_backend_cpu_buffer_type(), target.output_bytes() } });
    json j = {
        { "target", describe(models.target()) },
        { "n_expert", llama_model_n_expert(models.target()) },
        { "n_ctx", params.n_ctx },
        { "n_ctx_slot", target.limits().n_ctx_slot },
        { "ctx_shared", params.share_ctx },
        { "ctx_limit", target.ctx_limit() },
        { "n_slots", params.n_slots },
        { "draft_ctx", drafters.empty() ? 0 : draft_ctx(*drafters[0], target) },
        { "tape_rows", target.memory().tape_rows() },
        { "devices", describe_devices(models.target()) },
        { "placement", by_device(table) },
    };
    add_drafters(j, drafters, models, target);
    return j.dump_safe();
}

}   // namespace dflash

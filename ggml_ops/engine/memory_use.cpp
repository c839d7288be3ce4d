#include "engine/memory_use.h"

#include "llama/access.h"

#include "llama-ext.h"

#include <algorithm>
#include <numeric>

namespace dflash {

memory_use used_memory(const target & target) {
    memory_use use;
    for (const auto & [type, data] : llama_get_memory_breakdown(target.context())) {
        use.context[type] += data.context;
        use.compute[type] += data.compute;
    }
    return use;
}

memory_table allocated(const model_pair & models, const target & target, const drafter_list & drafters) {
    memory_table table;
    auto [context, compute]  = used_memory(target);
    const buffer_bytes tapes = access_tapes(target.context());
    for (const auto & [type, bytes] : tapes) {
        context[type] -= std::min(bytes, context[type]);
    }
    table.add("target", models.target_weights());
    table.add("context", context);
    table.add("tapes", tapes);
    table.add("compute", compute);
    table.add("drafter", models.drafter_weights());
    for (const drafter * drafter : drafters) {
        table.add("drafter", drafter->copied_memory());
        table.add("drafter_context", drafter->context().memory());
        table.add("drafter_compute", drafter->compute_memory());
    }
    if (const tap_store * taps = target.taps()) {
        table.add("taps", { { ggml_backend_dev_buffer_type(taps->device()), taps->memory_bytes() } });
    }
    return table;
}

size_t total(const buffer_bytes & bytes) {
    return std::accumulate(
        bytes.begin(), bytes.end(), (size_t) 0, [](size_t sum, const auto & part) { return sum + part.second; });
}

json by_device(const memory_table & table) {
    json j = json::object();
    for (const memory_table::row & row : table.rows()) {
        for (const auto & [part, bytes] : row.parts) {
            j[row.device][part] = bytes;
        }
    }
    return j;
}

}   // namespace dflash

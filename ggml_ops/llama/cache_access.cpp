#include "llama/cache_access.h"

#include "llama-context.h"
#include "llama-kv-cache.h"
#include "llama-memory-recurrent.h"
#include "llama-model.h"
#include "llama/devices.h"
#include "llama/memory_parts.h"

#include <algorithm>

namespace dflash {

namespace {

memory_parts parts_of(const llama_context * ctx) { return memory_parts(llama_get_memory(ctx)); }

bool drops_cells(const memory_parts & parts) {
    return parts.window && parts.window->get_size() != parts.kv->get_size();
}

// Copies what `from` holds of a window to `to`, into other cells with the same K and V: a cell shared by two sequences
// would not be reused when it leaves the window of one.
bool copy_window(llama_context * ctx, llama_seq_id from, llama_seq_id to) {
    constexpr auto       WINDOW = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
    std::vector<uint8_t> bytes(llama_state_seq_get_size_ext(ctx, from, WINDOW));
    return llama_state_seq_get_data_ext(ctx, bytes.data(), bytes.size(), from, WINDOW) == bytes.size() &&
           llama_state_seq_set_data_ext(ctx, bytes.data(), bytes.size(), to, WINDOW) == bytes.size();
}

}   // namespace

std::optional<int32_t> access_used_cells(const llama_context * ctx) {
    const memory_parts parts = parts_of(ctx);
    return parts.kv ? std::optional((int32_t) parts.kv->get_cells(0).get_used()) : std::nullopt;
}

std::optional<int32_t> access_held_cells(const llama_context * ctx, const std::vector<int32_t> & seqs) {
    const memory_parts parts = parts_of(ctx);
    if (!parts.kv) {
        return std::nullopt;
    }
    const llama_kv_cells & cells  = parts.kv->get_cells(0);
    int32_t                n_held = 0;
    for (uint32_t i = 0; i < cells.used_max_p1(); ++i) {
        n_held += !cells.is_empty(i) &&
                  std::any_of(seqs.begin(), seqs.end(), [&](int32_t seq) { return cells.seq_has(i, seq); });
    }
    return n_held;
}

bool access_share_sequence(llama_context * ctx, int32_t from, int32_t to) {
    const memory_parts parts = parts_of(ctx);
    // llama.cpp's seq_cp leaves out which snapshot of the state the sequence has gone back to.
    const bool has_snapshots = parts.states && parts.states->n_rs_seq > 0;
    if (!parts.kv || parts.kv->get_n_stream() > 1 || has_snapshots) {
        return false;
    }
    if (drops_cells(parts)) {
        parts.kv->seq_cp(from, to, -1, -1);
        return copy_window(ctx, from, to);
    }
    llama_memory_seq_cp(llama_get_memory(ctx), from, to, -1, -1);
    return true;
}

void access_add_view(llama_context * target) {
    for (llama_kv_cache * kv : parts_of(target).caches()) {
        ++kv->order.n_views;
    }
}

bool access_drops_cells(const llama_context * ctx) { return drops_cells(parts_of(ctx)); }

bool access_on_host(const llama_context * ctx) {
    const memory_parts parts = parts_of(ctx);
    return !parts.kv || (parts.kv->trees.on_host() && (!parts.window || parts.window->trees.on_host()));
}

std::vector<memory_need> access_cache_needs(const llama_model * model, const cache_shape & shape) {
    const llama_hparams &    h = model->hparams;
    std::vector<memory_need> needs;
    for (uint32_t il = 0; il < h.n_layer(); ++il) {
        const ggml_backend_dev_t layer  = model->dev_layer((int) il);
        const ggml_backend_dev_t device = is_cpu(layer) || !shape.offload ? nullptr : layer;
        auto                     need   = std::find_if(
            needs.begin(), needs.end(), [device](const memory_need & other) { return other.device == device; });
        if (need == needs.end()) {
            need = needs.insert(needs.end(), memory_need{ device, 0, 0 });
        }
        if (h.is_recr(il)) {
            need->fixed += (double) sizeof(float) * (h.n_embd_r() + h.n_embd_s()) * shape.n_seqs;
            continue;
        }
        if (!h.has_kv(il)) {
            continue;
        }
        const double bytes = (double) ggml_row_size(shape.type_k, h.n_embd_k_gqa(il)) +
                             (h.is_mla() ? 0.0 : (double) ggml_row_size(shape.type_v, h.n_embd_v_gqa(il)));
        if (h.is_swa(il) && !shape.swa_full) {
            need->fixed += bytes * (h.n_swa * shape.n_seqs + shape.n_ubatch);
        } else {
            need->per_token += bytes;
        }
    }
    return needs;
}

size_t access_host_weights(const llama_model * model) {
    size_t bytes = 0;
    for (const auto & [type, size] : model->memory_breakdown()) {
        bytes += is_cpu(ggml_backend_buft_get_device(type)) ? size : 0;
    }
    return bytes;
}

}   // namespace dflash

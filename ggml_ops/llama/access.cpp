#include "llama/access.h"

#include "llama-context.h"
#include "llama-impl.h"
#include "llama-kv-cache.h"
#include "llama-memory-hybrid.h"
#include "llama-model.h"
#include "llama/devices.h"
#include "llama/memory_parts.h"
#include "llama/mutable_cparams.h"

#include "ggml-backend.h"

#include <algorithm>
#include <cstdlib>

namespace dflash {

target_heads access_heads(const llama_model * model) {
    return { model->tok_embd, model->output, model->output_s != nullptr };
}

std::vector<ggml_backend_dev_t> access_devices(const llama_model * model) {
    std::vector<ggml_backend_dev_t> devices;
    for (const auto & d : model->devices) {
        devices.push_back(d.dev);
    }
    return devices;
}

std::map<ggml_backend_buffer_type_t, size_t> access_weights(const llama_model * model) {
    return model->memory_breakdown();
}

void access_plan_contexts(llama_model * model) { model->hparams.no_alloc = false; }

bool access_on_devices(const llama_model * model) {
    size_t on_host = 0;
    for (const auto & [type, bytes] : model->memory_breakdown()) {
        on_host += is_cpu(ggml_backend_buft_get_device(type)) || ggml_backend_buft_is_host(type) ? bytes : 0;
    }
    // alignment, and tensors that no pass reads
    constexpr size_t    LITTLE  = 1 << 16;
    const ggml_tensor * table   = model->tok_embd;
    const bool          is_away = !table || (table->buffer && !ggml_backend_buffer_is_host(table->buffer));
    return on_host <= (is_away ? 0 : ggml_nbytes(table)) + LITTLE;
}

ggml_backend_dev_t access_output_device(const llama_model * model) { return model->dev_output(); }

bool access_attends_on_devices(const llama_context * ctx) {
    const auto & nodes = ctx->get_gf_res_reserve()->get_fused_nodes();
    return std::all_of(nodes.begin(), nodes.end(), [&](const llm_graph_fused_node & node) {
        ggml_backend_dev_t device = ctx->get_model().dev_layer(node.il);
        if (node.op != LLM_FUSED_OP_FLASH_ATTN || is_cpu(device)) {
            return true;
        }
        const bool is_split =
            ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_META;   // has no other attention
        const bool has_kernel = is_split || ggml_backend_dev_supports_op(device, node.tensor);
        if (!has_kernel) {
            LLAMA_LOG_WARN("%s has no flash attention for these types and sizes of K and V (layer %d)\n",
                ggml_backend_dev_name(device), node.il);
        }
        return has_kernel;
    });
}

bool access_has_tapes(const llama_model * model) { return tape_store(*model).possible(); }

size_t access_snapshot_bytes(const llama_model * model) {
    if (!llm_arch_supports_rs_rollback(model->arch)) {
        return 0;
    }
    const llama_hparams & h        = model->hparams;
    size_t                n_layers = 0;
    for (uint32_t il = 0; il < h.n_layer(); ++il) {
        n_layers += h.is_recr(il);
    }
    return n_layers * (h.n_embd_r() + h.n_embd_s()) * sizeof(float);
}

state_bytes access_state_bytes(const llama_context * ctx) {
    state_bytes bytes = {};
    if (const auto * hybrid = dynamic_cast<const llama_memory_hybrid *>(llama_get_memory(ctx))) {
        const llama_memory_recurrent & mem = *hybrid->get_mem_recr();
        for (size_t il = 0; il < mem.s_l.size(); ++il) {
            bytes.state += mem.s_l[il] ? (mem.r_l[il]->nb[1] + mem.s_l[il]->nb[1]) * (1 + mem.n_rs_seq) : 0;
            bytes.tape += mem.s_l[il] ? mem.tapes.row_bytes() * mem.tapes.capacity : 0;
        }
    }
    return bytes;
}

std::map<ggml_backend_buffer_type_t, size_t> access_tapes(const llama_context * ctx) {
    std::map<ggml_backend_buffer_type_t, size_t> bytes;
    if (const auto * hybrid = dynamic_cast<const llama_memory_hybrid *>(llama_get_memory(ctx))) {
        for (const ggml_tensor * tape : hybrid->get_mem_recr()->tapes.layers) {
            if (tape) {
                bytes[ggml_backend_buffer_get_type(tape->buffer)] += ggml_nbytes(tape);
            }
        }
    }
    return bytes;
}

void access_reserve(llama_context * ctx) { ctx->sched_reserve(); }

// llama_context::output_reserve is private; an explicit instantiation may name it.
static uint32_t reserve_outputs(llama_context & ctx, int32_t n);
template <auto reserve> struct output_reserver {
    friend uint32_t reserve_outputs(llama_context & ctx, int32_t n) { return (ctx.*reserve)(n); }
};
template struct output_reserver<&llama_context::output_reserve>;

bool access_reserve_outputs(llama_context * ctx, int32_t n) { return reserve_outputs(*ctx, n) >= (uint32_t) n; }

std::string access_arch(const llama_model * model) { return model->arch_name(); }

std::vector<cell_table> access_cells(const llama_context * ctx) {
    std::vector<cell_table> tables;
    for (const llama_kv_cache * kv : memory_parts(llama_get_memory(ctx)).caches()) {
        cell_table table = { (int32_t) kv->get_size(), {} };
        for (uint32_t s = 0; s < kv->get_n_stream(); ++s) {   // with several streams, stream s is sequence s
            const llama_kv_cells & cells = kv->get_cells((llama_seq_id) s);
            table.streams.emplace_back();
            for (uint32_t i = 0; i < cells.size(); ++i) {
                if (cells.is_empty(i)) {
                    continue;
                }
                cell c = { (int32_t) i, cells.pos_get(i), {} };
                for (llama_seq_id seq = 0; seq < (llama_seq_id) kv->get_n_seq_max(); ++seq) {
                    if (cells.seq_has(i, seq)) {
                        c.seqs.push_back(seq);
                    }
                }
                table.streams.back().push_back(c);
            }
        }
        tables.push_back(table);
    }
    return tables;
}

void access_order_cells(llama_context * ctx) {
    const char * off    = std::getenv("DFLASH_CELL_ORDER");   // 0: as upstream, for measurements
    const auto   caches = memory_parts(llama_get_memory(ctx)).caches();
    for (llama_kv_cache * kv : caches) {
        // The smaller cache of a sliding window has to reuse the cells of positions that no token sees any more.
        if (!(off && off[0] == '0') && kv->get_size() == caches[0]->get_size()) {
            kv->order.enable();
        }
    }
}

int64_t access_packs(const llama_context * ctx) {
    int64_t n = 0;
    for (const llama_kv_cache * kv : memory_parts(llama_get_memory(ctx)).caches()) {
        n += kv->order.n_packed;
    }
    return n;
}

bool access_needs_streams(const llama_model * model) { return model->arch == LLM_ARCH_MINIMAX_M3; }

void access_limit_sequences(llama_context * ctx, uint32_t n_ctx_seq) {
    llama_cparams & cparams = mutable_cparams(ctx);   // no graph has been built for use yet
    cparams.n_ctx_seq       = std::min(cparams.n_ctx_seq, n_ctx_seq);
}

int32_t access_rope_factors(const llama_context * ctx) {
    const llama_model & model   = ctx->get_model();
    const bool          chooses = std::any_of(
        model.layers.begin(), model.layers.end(), [](const auto & l) { return l.rope_long && !l.rope_freqs; });
    return !chooses ? 0 : ctx->get_cparams().n_ctx_seq > model.hparams.n_ctx_orig_yarn ? 2 : 1;
}

}   // namespace dflash

#include "llama/state_tape.h"

#include "gdn/gdn_tree.h"
#include "llama-impl.h"
#include "llama-io.h"
#include "llama-memory-recurrent.h"
#include "llama-model.h"

#include <algorithm>
#include <cstdlib>

namespace dflash {

tape_store::tape_store(const llama_model & model) {
    const llama_hparams & h = model.hparams;
    // heads with kernels, shapes that the architectures' graphs take; a tensor split would need rules for the tapes
    if ((h.ssm_d_state != 64 && h.ssm_d_state != 128) || h.ssm_d_inner != h.ssm_dt_rank * h.ssm_d_state ||
        h.ssm_n_group == 0 || h.ssm_dt_rank % h.ssm_n_group != 0 || h.ssm_d_conv < 2 ||
        model.split_mode() == LLAMA_SPLIT_MODE_TENSOR) {
        return;
    }
    switch (model.arch) {
        case LLM_ARCH_QWEN35:
        case LLM_ARCH_QWEN35MOE: heads_k = h.ssm_n_group; break;
        case LLM_ARCH_QWEN3NEXT: heads_k = h.ssm_dt_rank; break;   // its graph repeats keys for every value head
        default: return;
    }
    heads_v  = h.ssm_dt_rank;
    head     = h.ssm_d_state;
    channels = h.ssm_d_inner + 2 * h.ssm_n_group * h.ssm_d_state;
    d_conv   = h.ssm_d_conv;
}

bool tape_store::has_kernel(ggml_backend_dev_t device) const {
    if (std::getenv("DFLASH_GDN_COMPOSED")) {   // for tests
        return false;
    }
    if (!device) {   // the CPU's buffers belong to none
        return true;
    }
    ggml_context_ptr ctx{ ggml_init({ 8 * ggml_tensor_overhead(), nullptr, true }) };
    const auto       rows = [&](int64_t ne0, int64_t ne1) {
        return ggml_new_tensor_4d(ctx.get(), GGML_TYPE_F32, ne0, ne1, 1, 1);
    };
    ggml_tensor * k = rows(head, heads_k), *v = rows(head, heads_v), *g = rows(1, heads_v);
    ggml_tensor * state = ggml_new_tensor_4d(ctx.get(), GGML_TYPE_F32, head, head, heads_v, 1);
    return ggml_backend_dev_supports_op(
        device, ggml_gdn_tree(ctx.get(), k, k, v, g, g, state, ggml_new_tensor_2d(ctx.get(), GGML_TYPE_I32, 1, 1)));
}

bool tape_ref::has_path(const int32_t * rows, int32_t n) const {
    if (!open() || n < 0 || (n > 0 && !rows)) {
        return false;
    }
    for (int32_t k = 0; k < n; ++k) {
        if (rows[k] < 0 || rows[k] >= (int32_t) parents.size() || parents[rows[k]] != (k == 0 ? -1 : rows[k - 1])) {
            return false;
        }
    }
    return true;
}

int32_t path_bucket(int32_t longest, int32_t capacity) {
    return longest == 0 ? 0 : std::min(longest <= 16 ? 16 : 64, capacity);
}

}   // namespace dflash

// ---- llama_memory_recurrent ----

bool llama_memory_recurrent::set_tree_capacity(int32_t n_rows) {
    if (n_rows > 0 && n_rows == tapes.capacity) {
        return true;
    }
    if (tapes.capacity > 0 || n_rows < 1 || n_rows > 64 || n_rs_seq > 0 || !tapes.possible()) {
        return false;
    }

    tapes.layers.assign(s_l.size(), nullptr);
    tapes.composed.assign(s_l.size(), false);

    std::vector<std::pair<ggml_context_ptr, ggml_backend_buffer_ptr>> made;

    // a tape lies where its layer's states are
    for (size_t first = 0; first < s_l.size(); ++first) {
        if (!s_l[first] || tapes.layers[first]) {
            continue;
        }
        ggml_backend_buffer_type_t buft = ggml_backend_buffer_get_type(s_l[first]->buffer);

        ggml_context_ptr ctx{ ggml_init({ s_l.size() * ggml_tensor_overhead(), nullptr, true }) };
        if (!ctx) {
            return false;
        }
        for (size_t il = first; il < s_l.size(); ++il) {
            if (s_l[il] && ggml_backend_buffer_get_type(s_l[il]->buffer) == buft) {
                tapes.layers[il] = ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, tapes.n_row(), (int64_t) n_rows * size);
                ggml_format_name(tapes.layers[il], "cache_tape_l%zu", il);
                tapes.composed[il] = !tapes.has_kernel(ggml_backend_buft_get_device(buft));
            }
        }
        ggml_backend_buffer_ptr buf{ ggml_backend_alloc_ctx_tensors_from_buft(ctx.get(), buft) };
        if (!buf) {
            tapes.layers.clear();
            return false;
        }
        ggml_backend_buffer_clear(buf.get(), 0);
        made.emplace_back(std::move(ctx), std::move(buf));
    }
    for (auto & pair : made) {
        ctxs_bufs.push_back(std::move(pair));
    }

    tapes.capacity = n_rows;

    return true;
}

const dflash::tape_ref * llama_memory_recurrent::seq_tape(llama_seq_id seq_id) const {
    const int32_t tail = seq_id >= 0 && (uint32_t) seq_id < size ? cells[seq_id].tail : -1;
    return tail >= 0 ? &cells[tail].tape : nullptr;
}

bool llama_memory_recurrent::can_tree() const { return tapes.capacity > 0; }

bool llama_memory_recurrent::seq_has_tree(llama_seq_id seq_id) const {
    const dflash::tape_ref * tape = seq_tape(seq_id);
    return tape && tape->open();
}

bool llama_memory_recurrent::seq_has_path(llama_seq_id seq_id, const int32_t * path, int32_t n_path) const {
    const dflash::tape_ref * tape = seq_tape(seq_id);
    return tape && tape->has_path(path, n_path);
}

void llama_memory_recurrent::seq_commit(llama_seq_id seq_id, const int32_t * path, int32_t n_path) {
    auto & cell = cells[cells[seq_id].tail];

    if (n_path == 0 && cell.tape.root == 0) {
        seq_rm(seq_id, -1, -1);   // nothing is left of the sequence
        return;
    }
    cell.pos = cell.tape.root - 1 + n_path;
    cell.tape.path.assign(path, path + n_path);
    cell.tape.parents.clear();
    if (n_path == 0) {
        cell.tape = {};
    }
}

// Go back to the position before p0, which the cell's tape must be able to.
bool llama_memory_recurrent::cell_rewind(mem_cell & cell, llama_pos p0) {
    if (p0 < cell.tape.root || cell.tape.region < 0 || cell.seq_id.size() > 1 ||
        (cell.tape.open() && p0 > cell.tape.root)) {
        return false;
    }
    cell.pos = p0 - 1;
    cell.tape.parents.clear();
    cell.tape.path.resize(p0 - cell.tape.root);
    if (cell.tape.path.empty()) {
        cell.tape = {};
    }
    return true;
}

// A pass over the sequences of cells [first, first + n_seqs) begins: it takes in what is pending, and a tree gets a
// tape of its own.
void llama_memory_recurrent::begin_tapes(const llama_ubatch & ubatch, uint32_t first) {
    for (uint32_t s = 0; s < ubatch.n_seqs; ++s) {
        auto & cell = cells[first + s];
        GGML_ASSERT(!cell.tape.open());
        cell.taken = std::move(cell.tape);
        cell.tape  = {};
    }
    if (!ubatch.is_tree()) {
        return;
    }
    for (uint32_t s = 0; s < ubatch.n_seqs; ++s) {
        const uint32_t i    = s * ubatch.n_seq_tokens;
        auto &         tape = cells[first + s].tape;
        tape.region         = free_region();
        tape.root           = ubatch.pos[i];
        for (uint32_t k = i; k < i + ubatch.n_seq_tokens; ++k) {
            tape.parents.push_back(ubatch.parent[k] < 0 ? ubatch.parent[k] : ubatch.parent[k] - (int32_t) i);
        }
    }
}

int32_t llama_memory_recurrent::free_region() const {
    std::vector<bool> named(size);
    for (const auto & cell : cells) {
        if (!cell.is_empty() && cell.tape.region >= 0) {
            named[cell.tape.region] = true;
        }
    }
    return std::find(named.begin(), named.end(), false) - named.begin();
}

bool llama_memory_recurrent::has_path(llama_seq_id seq_id) const {
    return std::any_of(cells.begin(), cells.end(), [&](const mem_cell & cell) {
        return (seq_id == -1 ? !cell.is_empty() : cell.has_seq_id(seq_id)) && !cell.tape.path.empty();
    });
}

void llama_memory_recurrent::tape_write(llama_io_write_i & io, llama_seq_id seq_id) const {
    const int64_t n_row = tapes.n_row();
    io.write(&n_row, sizeof(n_row));

    for (const auto & cell : cells) {
        if (!(seq_id == -1 ? !cell.is_empty() : cell.has_seq_id(seq_id))) {
            continue;
        }
        const int32_t n_path = cell.tape.path.size();
        io.write(&n_path, sizeof(n_path));
        for (ggml_tensor * layer : tapes.layers) {
            for (int32_t k = 0; layer && k < n_path; ++k) {
                io.write_tensor(layer,
                    (cell.tape.region * (size_t) tapes.capacity + cell.tape.path[k]) * tapes.row_bytes(),
                    tapes.row_bytes());
            }
        }
    }
}

bool llama_memory_recurrent::tape_read(llama_io_read_i & io, uint32_t cell_count) {
    if (!can_tree()) {
        LLAMA_LOG_ERROR(
            "%s: the state has a path of a tree that it has not taken in: it needs a memory with tree capacity\n",
            __func__);
        return false;
    }

    int64_t n_row;
    io.read(&n_row, sizeof(n_row));
    if (n_row != tapes.n_row()) {
        LLAMA_LOG_ERROR(
            "%s: mismatched tape row size (%lld != %lld)\n", __func__, (long long) tapes.n_row(), (long long) n_row);
        return false;
    }

    for (uint32_t i = head; i < head + cell_count; ++i) {
        auto & cell = cells[i];

        int32_t n_path;
        io.read(&n_path, sizeof(n_path));
        if (n_path < 0 || n_path > tapes.capacity || n_path > cell.pos + 1) {
            LLAMA_LOG_ERROR("%s: a path of %d rows does not fit a tape of %d\n", __func__, n_path, tapes.capacity);
            return false;
        }

        cell.tape = {};
        if (n_path == 0) {
            continue;
        }
        const int32_t region = free_region();
        cell.tape.region     = region;
        cell.tape.root       = cell.pos + 1 - n_path;
        for (int32_t k = 0; k < n_path; ++k) {
            cell.tape.path.push_back(k);
        }
        for (ggml_tensor * layer : tapes.layers) {
            if (layer) {
                io.read_tensor(layer, (size_t) region * tapes.capacity * tapes.row_bytes(), n_path * tapes.row_bytes());
            }
        }
    }

    return true;
}

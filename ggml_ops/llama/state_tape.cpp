#include "llama/state_tape.h"

#include "gdn/has_kernel.h"
#include "llama-impl.h"
#include "llama-io.h"
#include "llama-memory-recurrent.h"
#include "llama-model.h"
#include "llama/kv_trees.h"

#include <cstdlib>
#include <stdexcept>

namespace dflash {

tape_store::tape_store(const llama_model & model) {
    const llama_hparams & h = model.hparams;
    // head sizes with kernels, and shapes that the architectures' graphs use; a tensor split would need rules for tapes
    if ((h.ssm_d_state != 64 && h.ssm_d_state != 128) || h.ssm_d_inner != h.ssm_dt_rank * h.ssm_d_state ||
        h.ssm_n_group == 0 || h.ssm_dt_rank % h.ssm_n_group != 0 || h.ssm_d_conv < 2 ||
        model.split_mode() == LLAMA_SPLIT_MODE_TENSOR) {
        return;
    }
    switch (model.arch) {
        case LLM_ARCH_QWEN35:
        case LLM_ARCH_QWEN35MOE: heads_k = h.ssm_n_group; break;
        case LLM_ARCH_QWEN3NEXT: heads_k = h.ssm_dt_rank; break;   // its graph repeats the keys for every value head
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
    return !device || ggml_gdn_has_kernel(device, head, heads_k, heads_v);   // CPU buffers have no device
}

bool tape_store::on_device() const {
    return std::all_of(layers.begin(), layers.end(),
        [](const ggml_tensor * layer) { return !layer || !ggml_backend_buffer_is_host(layer->buffer); });
}

bool tape_ref::has_path(const int32_t * rows, int32_t n) const { return open() && is_path(parents, rows, n); }

bool state_tapes::set_capacity(int32_t n_rows) {
    if (n_rows > 0 && n_rows == capacity) {
        return true;
    }
    if (capacity > 0 || n_rows < 1 || n_rows > 64 || mem_.n_rs_seq > 0 || !possible()) {
        return false;
    }

    layers.assign(mem_.s_l.size(), nullptr);
    composed.assign(mem_.s_l.size(), false);

    if (!allocate(n_rows)) {
        layers.clear();
        return false;
    }
    capacity = n_rows;

    return true;
}

bool state_tapes::allocate(int32_t n_rows) {
    std::vector<std::pair<ggml_context_ptr, ggml_backend_buffer_ptr>> made;

    // a tape is in the same kind of memory as its layer's states
    for (size_t first = 0; first < layers.size(); ++first) {
        if (!mem_.s_l[first] || layers[first]) {
            continue;
        }
        ggml_backend_buffer_type_t buft = ggml_backend_buffer_get_type(mem_.s_l[first]->buffer);

        ggml_context_ptr ctx{ ggml_init({ layers.size() * ggml_tensor_overhead(), nullptr, true }) };
        if (!ctx) {
            return false;
        }
        for (size_t il = first; il < layers.size(); ++il) {
            if (mem_.s_l[il] && ggml_backend_buffer_get_type(mem_.s_l[il]->buffer) == buft) {
                layers[il] = ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, n_row(), (int64_t) n_rows * mem_.size);
                ggml_format_name(layers[il], "cache_tape_l%zu", il);
                composed[il] = !has_kernel(ggml_backend_buft_get_device(buft));
            }
        }
        ggml_backend_buffer_ptr buf{ ggml_backend_alloc_ctx_tensors_from_buft(ctx.get(), buft) };
        if (!buf) {
            return false;
        }
        ggml_backend_buffer_clear(buf.get(), 0);
        made.emplace_back(std::move(ctx), std::move(buf));
    }
    std::move(made.begin(), made.end(), std::back_inserter(mem_.ctxs_bufs));

    return true;
}

const cell_tape * state_tapes::find(llama_seq_id seq_id) const {
    const int32_t tail = seq_id >= 0 && (uint32_t) seq_id < mem_.size ? mem_.cells[seq_id].tail : -1;
    return tail >= 0 ? &mem_.cells[tail].tape : nullptr;
}

bool state_tapes::has_tree(llama_seq_id seq_id) const {
    const cell_tape * tape = find(seq_id);
    return tape && tape->open();
}

bool state_tapes::has_path(llama_seq_id seq_id, const int32_t * path, int32_t n_path) const {
    const cell_tape * tape = find(seq_id);
    return tape && tape->has_path(path, n_path);
}

void state_tapes::commit(llama_seq_id seq_id, const int32_t * path, int32_t n_path) {
    auto & cell = mem_.cells[mem_.cells[seq_id].tail];

    if (n_path == 0 && cell.tape.root == 0) {
        mem_.seq_rm(seq_id, -1, -1);   // nothing of the sequence is left
        return;
    }
    cell.pos = cell.tape.root - 1 + n_path;
    cell.tape.path.assign(path, path + n_path);
    cell.tape.parents.clear();
    if (n_path == 0) {
        cell.tape = {};
    }
}

bool state_tapes::refuses(llama_seq_id seq_id) const {
    if (!has_tree(seq_id)) {
        return false;
    }
    LLAMA_LOG_ERROR("%s: sequence %d has a tree that was not committed\n", __func__, seq_id);
    return true;
}

bool state_tapes::refuses_div(llama_seq_id seq_id) const {
    const cell_tape * tape = find(seq_id);
    if (!tape || tape->region < 0) {
        return false;
    }
    LLAMA_LOG_ERROR("%s: sequence %d has a tree\n", __func__, seq_id);
    return true;
}

bool state_tapes::rewind(llama_seq_id seq_id, llama_pos p0) {
    auto & cell = mem_.cells[mem_.cells[seq_id].tail];

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

void state_tapes::begin_pass(const llama_ubatch & ubatch, uint32_t first) {
    ++n_without_path_;
    for (uint32_t s = 0; s < ubatch.n_seqs; ++s) {
        cell_tape & tape = mem_.cells[first + s].tape;
        GGML_ASSERT(!tape.open());
        n_without_path_               = tape.path.empty() ? n_without_path_ : 0;
        tape.taken                    = std::move(static_cast<tape_ref &>(tape));
        static_cast<tape_ref &>(tape) = {};
    }
    if (!ubatch.parents.is_tree()) {
        return;
    }
    for (uint32_t s = 0; s < ubatch.n_seqs; ++s) {
        const uint32_t begin = s * ubatch.n_seq_tokens, end = begin + ubatch.n_seq_tokens;

        auto & cell      = mem_.cells[first + s];
        cell.pos         = *std::max_element(ubatch.pos + begin, ubatch.pos + end);
        cell.tape.region = free_region();
        cell.tape.root   = ubatch.pos[begin];
        for (uint32_t i = begin; i < end; ++i) {
            const int32_t parent = ubatch.parents[i];
            cell.tape.parents.push_back(parent < 0 ? parent : parent - (int32_t) begin);
        }
    }
}

int32_t state_tapes::free_region() const {
    std::vector<bool> named(mem_.size);
    for (const auto & cell : mem_.cells) {
        if (!cell.is_empty() && cell.tape.region >= 0) {
            named[cell.tape.region] = true;
        }
    }
    return std::find(named.begin(), named.end(), false) - named.begin();
}

// ---- saved states ----

static constexpr uint32_t TAPE_FLAG = 1u << 31;   // in the count of cells

static bool is_saved(const llama_memory_recurrent::mem_cell & cell, llama_seq_id seq_id) {
    return seq_id == -1 ? !cell.is_empty() : cell.has_seq_id(seq_id);
}

uint32_t state_tapes::state_flag(llama_seq_id seq_id) const {
    for (llama_seq_id s = 0; s < (llama_seq_id) mem_.size; ++s) {
        if ((seq_id == -1 || seq_id == s) && has_tree(s)) {
            throw std::runtime_error("a sequence has a tree that was not committed");
        }
    }
    const bool pending = std::any_of(mem_.cells.begin(), mem_.cells.end(),
        [&](const auto & cell) { return is_saved(cell, seq_id) && !cell.tape.path.empty(); });

    return pending ? TAPE_FLAG : 0;
}

bool state_tapes::take_flag(uint32_t & cell_count) {
    const bool pending = cell_count & TAPE_FLAG;
    cell_count &= ~TAPE_FLAG;
    return pending;
}

void state_tapes::state_write(llama_io_write_i & io, llama_seq_id seq_id) const {
    const int64_t row_size = n_row();
    io.write(&row_size, sizeof(row_size));

    for (const auto & cell : mem_.cells) {
        if (!is_saved(cell, seq_id)) {
            continue;
        }
        const int32_t n_path = cell.tape.path.size();
        io.write(&n_path, sizeof(n_path));
        for (ggml_tensor * layer : layers) {
            for (int32_t k = 0; layer && k < n_path; ++k) {
                const size_t row = cell.tape.region * (size_t) capacity + cell.tape.path[k];
                io.write_tensor(layer, row * row_bytes(), row_bytes());
            }
        }
    }
}

bool state_tapes::state_read(llama_io_read_i & io, uint32_t cell_count) {
    if (capacity == 0) {
        LLAMA_LOG_ERROR(
            "%s: the state has a path of a tree that it has not taken in: it needs a memory with tree capacity\n",
            __func__);
        return false;
    }

    int64_t row_size;
    io.read(&row_size, sizeof(row_size));
    if (row_size != n_row()) {
        LLAMA_LOG_ERROR(
            "%s: mismatched tape row size (%lld != %lld)\n", __func__, (long long) n_row(), (long long) row_size);
        return false;
    }

    for (uint32_t i = mem_.head; i < mem_.head + cell_count; ++i) {
        if (!read_path(io, i)) {
            return false;
        }
    }
    return true;
}

bool state_tapes::read_path(llama_io_read_i & io, uint32_t i) {
    auto & cell = mem_.cells[i];

    int32_t n_path;
    io.read(&n_path, sizeof(n_path));
    if (n_path < 0 || n_path > capacity || n_path > cell.pos + 1) {
        LLAMA_LOG_ERROR("%s: a path of %d rows does not fit a tape of %d\n", __func__, n_path, capacity);
        return false;
    }

    cell.tape = {};
    if (n_path == 0) {
        return true;
    }
    const int32_t region = free_region();
    cell.tape.region     = region;
    cell.tape.root       = cell.pos + 1 - n_path;
    for (int32_t k = 0; k < n_path; ++k) {
        cell.tape.path.push_back(k);
    }
    for (ggml_tensor * layer : layers) {
        if (layer) {
            io.read_tensor(layer, (size_t) region * capacity * row_bytes(), n_path * row_bytes());
        }
    }
    return true;
}

// ---- pass_tapes ----

const state_tapes & pass_tapes::store() const { return mctx.mem->tapes; }

const tape_ref & pass_tapes::written(uint32_t s) const { return mctx.mem->cells[mctx.mem->head + s].tape; }

const tape_ref & pass_tapes::taken(uint32_t s) const { return mctx.mem->cells[mctx.mem->head + s].tape.taken; }

// Only a few different numbers, so that graphs can be reused. On devices, where rows are cheap and graphs are not,
// trees always have the maximum, and so does a row after a tree, until it seems that no more trees will come.
int32_t pass_tapes::n_path(const llama_ubatch & ubatch) const {
    constexpr int32_t FEW = 16, MANY = 64, SOON = 64;

    int32_t longest = 0;
    for (uint32_t s = 0; !mctx.is_full && s < ubatch.n_seqs; ++s) {
        longest = std::max(longest, (int32_t) taken(s).path.size());
    }
    const bool is_tree = ubatch.parents.is_tree();
    if (store().on_device() &&
        (longest > 0 || is_tree || (ubatch.n_seq_tokens == 1 && store().n_without_path() < SOON))) {
        return store().capacity;
    }
    return longest == 0 ? 0 : std::min(longest <= FEW ? FEW : MANY, store().capacity);
}

}   // namespace dflash

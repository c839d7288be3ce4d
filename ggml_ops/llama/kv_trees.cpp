#include "llama/kv_trees.h"

#include "llama-impl.h"
#include "llama-kv-cache.h"
#include "llama/llama_tree.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace dflash {

bool is_path(const std::vector<int32_t> & parents, const int32_t * path, int32_t n) {
    int32_t before = LLAMA_PARENT_NONE;
    for (int32_t k = 0; path && k < n; ++k) {
        if (path[k] < 0 || path[k] >= (int32_t) parents.size() || parents[path[k]] != before) {
            return false;
        }
        before = path[k];
    }
    return n == 0 || (n > 0 && path);
}

bool kv_trees::possible() const {
    // n-gram inputs look up the previous tokens by position; shared cells belong to another cache
    return !kv_.other && kv_.hparams.ple_n_heads == 0;
}

bool kv_trees::has_path(llama_seq_id seq_id, const int32_t * path, int32_t n_path) const {
    const auto it = open.find(seq_id);
    return it != open.end() && is_path(it->second.parent, path, n_path);
}

void kv_trees::commit(llama_seq_id seq_id, const int32_t * path, int32_t n_path) {
    const std::vector<uint32_t> & rows = open.at(seq_id).cells;
    const uint32_t                strm = kv_.seq_to_stream[seq_id];

    auto & cells = kv_.v_cells[strm];
    auto & head  = kv_.v_heads[strm];

    std::vector<uint32_t> kept;

    // rows of a path are in ascending order
    for (int32_t i = 0; i < (int32_t) rows.size(); ++i) {
        if ((int32_t) kept.size() < n_path && path[kept.size()] == i) {
            kept.push_back(rows[i]);
        } else if (!cells.is_empty(rows[i]) && cells.seq_has(rows[i], seq_id)) {
            cells.seq_rm(rows[i], seq_id);
        }
    }

    // the path moves to the tree's first cells, where a chain of its tokens would be: sums over cells then run in the
    // same order
    const bool can_move = on_host();

    for (size_t k = 0; k < kept.size(); ++k) {
        if (can_move && kept[k] != rows[k] && cells.is_empty(rows[k])) {
            move_cells(strm, kept[k], rows[k], 1);
        }
    }

    for (const uint32_t cell : rows) {
        if (cells.is_empty(cell)) {
            head = std::min(head, cell);
        }
    }

    open.erase(seq_id);
}

bool kv_trees::refuses(llama_seq_id seq_id) const {
    if (!has(seq_id)) {
        return false;
    }
    LLAMA_LOG_ERROR("%s: sequence %d has a tree that was not committed\n", __func__, seq_id);
    return true;
}

bool kv_trees::seq_rm(llama_seq_id seq_id, llama_pos p0, llama_pos p1) {
    // positions cannot distinguish siblings: a tree is removed whole or not at all
    for (auto it = open.begin(); it != open.end();) {
        const kv_tree & tree = it->second;
        if ((seq_id >= 0 && seq_id != it->first) || p1 <= tree.pos_min || p0 > tree.pos_max) {
            ++it;
        } else if (p0 <= tree.pos_min && p1 > tree.pos_max) {
            it = open.erase(it);
        } else {
            refuses(it->first);
            return false;
        }
    }
    return true;
}

void kv_trees::seq_keep(llama_seq_id seq_id) {
    for (auto it = open.begin(); it != open.end();) {
        const bool goes = it->first != seq_id && kv_.seq_to_stream[it->first] == kv_.seq_to_stream[seq_id];
        it              = goes ? open.erase(it) : std::next(it);
    }
}

void kv_trees::add_row(const llama_ubatch & ubatch, uint32_t i, uint32_t cell) {
    if (!ubatch.parents.in_tree(i)) {
        return;
    }

    // the rows of a tree are adjacent, and the root is the first
    kv_tree & tree = open[ubatch.seq_id[i][0]];
    if (ubatch.parents[i] == LLAMA_PARENT_NONE) {
        tree = { {}, {}, {}, ubatch.pos[i], ubatch.pos[i] };
    }

    const int32_t row    = tree.cells.size();
    const int32_t parent = ubatch.parents[i] < 0 ? ubatch.parents[i] : ubatch.parents[i] - ((int32_t) i - row);

    tree.cells.push_back(cell);
    tree.parent.push_back(parent);
    tree.seen.push_back((parent < 0 ? 0 : tree.seen[parent]) | (uint64_t(1) << row));
    tree.pos_max = std::max(tree.pos_max, ubatch.pos[i]);
}

template <class T> static void drop_unseen(const kv_tree & tree, T * mask, int64_t n_kv, T drop) {
    for (size_t row = 0; row < tree.cells.size(); ++row) {
        for (size_t other = 0; other < tree.cells.size(); ++other) {
            if (!(tree.seen[row] >> other & 1)) {
                mask[row * n_kv + tree.cells[other]] = drop;
            }
        }
    }
}

void kv_trees::mask(ggml_tensor * kq_mask, const llama_ubatch & ubatch) const {
    const int64_t n_kv = kq_mask->ne[0];

    for (uint32_t i = 0; ubatch.parents && i < ubatch.n_tokens; ++i) {
        if (ubatch.parents[i] != LLAMA_PARENT_NONE) {
            continue;
        }
        const kv_tree & tree = open.at(ubatch.seq_id[i][0]);
        if (kq_mask->type == GGML_TYPE_F16) {
            drop_unseen(tree, (ggml_fp16_t *) kq_mask->data + i * n_kv, n_kv, ggml_fp32_to_fp16(-INFINITY));
        } else {
            drop_unseen(tree, (float *) kq_mask->data + i * n_kv, n_kv, -INFINITY);
        }
    }
}

void kv_trees::check_saved(llama_seq_id seq_id) const {
    if (seq_id == -1 ? !open.empty() : has(seq_id)) {
        throw std::runtime_error("a sequence has a tree that was not committed");
    }
}

bool kv_trees::on_host() const {
    const auto reached = [](const ggml_tensor * t) {
        return !t || (t->buffer && ggml_backend_buffer_is_host(t->buffer));
    };

    return std::all_of(
        kv_.layers.begin(), kv_.layers.end(), [&](const auto & layer) { return reached(layer.k) && reached(layer.v); });
}

void kv_trees::move_cells(uint32_t strm, uint32_t src, uint32_t dst, uint32_t n) {
    // a row has cells of `size` bytes
    const auto move = [&](void * row, size_t size) {
        memmove((char *) row + dst * size, (char *) row + src * size, n * size);
    };

    for (const auto & layer : kv_.layers) {
        if (layer.k) {
            move(layer.k_stream[strm]->data, layer.k->nb[1]);
        }
        if (layer.v && !kv_.v_trans) {
            move(layer.v_stream[strm]->data, layer.v->nb[1]);
        } else if (layer.v) {
            const size_t size = ggml_element_size(layer.v);

            for (int64_t j = 0; j < layer.v->ne[0]; ++j) {
                move((char *) layer.v_stream[strm]->data + j * size * kv_.get_size(), size);
            }
        }
    }

    auto & cells = kv_.v_cells[strm];

    for (uint32_t i = 0; i < n; ++i) {
        cells.pos_set(dst + i, cells.pos_get(src + i));
        cells.ext_set(dst + i, cells.ext_get(src + i));

        for (llama_seq_id s = 0; s < (llama_seq_id) kv_.n_seq_max; ++s) {
            if (cells.seq_has(src + i, s)) {
                cells.seq_add(dst + i, s);
            }
        }

        cells.rm(src + i);
    }
}

}   // namespace dflash

// Tapes: what a verify pass leaves behind of every row of a tree, so that the one committed state of a sequence can
// take in the accepted path later, and no state per row is ever stored (docs/hybrid.md). Part of libllama: patches/0007
// calls it from llama_memory_recurrent.
//
// A tape has one row of f32 per tree row and delta-net layer: [k: S*H_k | delta: S*H_v | gate: H_v | convolution
// input]. Memory for as many tapes as there are cells is divided into regions. A cell names the region of its tape; a
// region is free when no cell in use names it, so every pass finds one, and sequences that share a cell share its tape.

#pragma once

#include "ggml-backend.h"
#include "ggml.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

struct llama_hparams;
struct llama_model;

namespace dflash {

// What a cell knows of its tape.
struct tape_ref {
    int32_t              region = -1;   // -1: no tape
    int32_t              root   = 0;    // position of the tree's root
    std::vector<int32_t> path;   // accepted rows of the region that the cell's state has not taken in, the root first
    std::vector<int32_t> parents;   // of a tree whose path is not decided: of each row, -1: root, -2: padding

    bool open() const { return !parents.empty(); }
    bool has_path(const int32_t * rows, int32_t n) const;
};

// The tapes of a memory.
struct tape_store {
    int32_t heads_k = 0, heads_v = 0, head = 0, channels = 0;   // as the tape holds them; 0: a model without tapes
    int32_t d_conv   = 0;
    int32_t capacity = 0;                // rows of a region, 0: no tapes
    std::vector<ggml_tensor *> layers;   // [n_row(), capacity * regions], null for layers without a state
    std::vector<bool> composed;   // layers whose device has no kernel for ggml_gdn_tree(): other ops stand in for it

    explicit tape_store(const llama_model & model);

    bool is_composed() const { return std::find(composed.begin(), composed.end(), true) != composed.end(); }
    bool has_kernel(ggml_backend_dev_t device) const;

    bool possible() const { return head > 0; }

    int64_t n_k() const { return (int64_t) head * heads_k; }
    int64_t n_delta() const { return (int64_t) head * heads_v; }
    int64_t n_state() const { return n_k() + n_delta() + heads_v; }   // floats that the state takes in
    int64_t n_row() const { return n_state() + channels; }
    size_t  row_bytes() const { return n_row() * sizeof(float); }
};

// Rows that a graph reserves for pending paths of at most `longest` rows: few shapes, so that graphs stay.
int32_t path_bucket(int32_t longest, int32_t capacity);

}   // namespace dflash

// Graphs of delta-net layers over a memory with tapes (state_tape.h): a pass first applies the pending path to the
// state, then computes a tree, or a chunk with llama.cpp's own kernels. Part of libllama: patches/0007 calls it from
// llm_build_delta_net_base.

#pragma once

#include "llama-graph.h"
#include "llama/state_tape.h"

// The inputs of a pass. T rows for each of n sequences; d = d_conv - 1. Tensors that the pass does not need are null.
class llm_graph_input_tape : public llm_graph_input_i {
  public:
    llm_graph_input_tape(ggml_context * ctx, const llama_ubatch & ubatch, const llama_memory_recurrent_context * mctx);

    void set_input(const llama_ubatch * ubatch) override;
    bool can_reuse(const llm_graph_params & params) override;

    const dflash::tape_store & tapes() const { return dflash::pass_tapes{ *mctx_ }.store(); }

    const bool    is_tree;
    const int32_t n_path;   // rows reserved for each pending path, 0: nothing is pending

    ggml_tensor * path_rows = nullptr;   // I32 [n_path * n] rows of the tapes: the pending paths
    ggml_tensor * path      = nullptr;   // I32 [n_path, n] 0, 1, ... for the length of the path, then -1
    ggml_tensor * tail_rows = nullptr;   // I32 [d * n] rows of the tapes: the last d rows of each path
    ggml_tensor * tail_pick = nullptr;   // I32 [d, n] rows of [convolution state | tail]: the state after the path
    ggml_tensor * parent    = nullptr;   // I32 [T, n] for ggml_gdn_tree()
    ggml_tensor * path_mask = nullptr;   // F32, for ggml_gdn_commit_composed()
    ggml_tensor * tree_mask = nullptr;   // F32, for ggml_gdn_tree_composed()
    ggml_tensor * window =
        nullptr;   // I32 [(d + 1) * T, n] rows of [convolution state | rows of the tree]: each row's last inputs
    ggml_tensor * new_rows = nullptr;   // I32 [T * n] rows of the tapes to write

  private:
    void set_path(int32_t n_seqs);
    void set_tree(int32_t n_seqs, int32_t n_seq_tokens);

    const llama_memory_recurrent_context * mctx_;
};

namespace dflash {

// Adds the inputs of a pass to its graph. Returns null if the memory has no tapes.
llm_graph_input_tape * add_tape_input(llm_graph_result & res, ggml_context * ctx, const llama_ubatch & ubatch,
    const llama_memory_recurrent_context * mctx);

// Applies the pending paths to the convolution states [d, channels, n]. For trees, also stores them and returns the
// input of ggml_ssm_conv() for every row: [d + 1, channels, T * n]. Returns null for chunks and without tapes.
ggml_tensor * tape_conv_input(ggml_context * ctx, ggml_cgraph * gf, const llm_graph_input_rs * inp,
    ggml_tensor *& conv_states, ggml_tensor * qkv, int il);

// Applies the pending paths to the states [S, S, H, n]. For trees, also stores them and returns the output of every
// row: [S, H, T, n]. Returns null for chunks and without tapes.
ggml_tensor * tape_attention(ggml_context * ctx, ggml_cgraph * gf, const llm_graph_input_rs * inp, ggml_tensor * q,
    ggml_tensor * k, ggml_tensor * v, ggml_tensor * g, ggml_tensor * b, ggml_tensor *& state, int il);

}   // namespace dflash

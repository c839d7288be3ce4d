#include "llama/layer_input.h"

#include "ggml.h"
#include "llama-graph.h"

#include <string>

namespace dflash {

void note_layer_input(llm_graph_result & graph, ggml_tensor * input, const ggml_tensor * norm, int layer) {
    if (layer < 0 || !norm || (size_t) layer >= graph.t_layer_inp.size() || graph.t_layer_inp[layer]) {
        return;
    }
    if ("blk." + std::to_string(layer) + ".attn_norm.weight" == ggml_get_name(norm)) {
        graph.t_layer_inp[layer] = input;
    }
}

}   // namespace dflash

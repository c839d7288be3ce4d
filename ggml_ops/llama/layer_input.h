// Taps for architectures whose graphs do not set them (t_layer_inp). Part of libllama: patches/0015 calls it from
// llm_graph_context::build_norm().

#pragma once

struct ggml_tensor;
class llm_graph_result;

namespace dflash {

// Called for each norm while a graph is built: `input` [n_embd, rows] is normalized with the weights `norm` of layer
// `layer`. If the layer begins with this norm before its attention, the input is the layer's tap; a tap that the graph
// has set itself is kept. Which architectures do so: access_tapped_archs().
void note_layer_input(llm_graph_result & graph, ggml_tensor * input, const ggml_tensor * norm, int layer);

}   // namespace dflash

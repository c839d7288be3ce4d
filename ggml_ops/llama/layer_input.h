// Taps of architectures whose graphs do not set them (t_layer_inp). Part of libllama: patches/0015 calls it from
// llm_graph_context::build_norm().

#pragma once

struct ggml_tensor;
class llm_graph_result;

namespace dflash {

// Called for each norm of a graph that is built: `input` [n_embd, rows] goes into the norm with weights `norm` of layer
// `layer`. In a layer that begins with the norm before its attention, that is the layer's input; a tap that the graph
// has set itself stays. Which architectures begin so: access_tapped_archs().
void note_layer_input(llm_graph_result & graph, ggml_tensor * input, const ggml_tensor * norm, int layer);

}   // namespace dflash

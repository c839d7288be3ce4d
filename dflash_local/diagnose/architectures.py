"""What the engine can do with architectures (general.architecture), for whoever reads headers without the library."""

from __future__ import annotations

# Architectures (general.architecture) whose graphs expose the inputs of their layers: `t_layer_inp` in
# src/models/*.cpp, or by patches/0015. This list and those below repeat what the library knows, because pairing must
# not load it; tests/test_taps.py compares them with the library and with the pinned source.
TAPPED_ARCHS = frozenset({
    "afmoe", "apertus", "arcee", "arctic", "baichuan", "bailingmoe", "bailingmoe2", "bailingmoe3", "bitnet", "chatglm",
    "codeshell", "cohere2", "cohere2moe", "command-r", "dbrx", "deci", "deepseek", "deepseek2", "deepseek32",
    "deepseek4", "dots1", "ernie4_5", "ernie4_5-moe", "exaone", "exaone-moe", "falcon", "gemma", "gemma2", "gemma3",
    "gemma4", "glm-dsa", "glm4", "glm4moe", "glm5-next", "gpt-oss", "gptneox", "granite", "granite_swa", "granitemoe",
    "grok", "grovemoe", "hunyuan-dense", "hunyuan-moe", "hunyuan_vl", "hy_v3", "internlm2", "jais", "jais2", "laguna",
    "lfm2", "lfm2moe", "llama", "llama4", "maincoder", "maple", "mellum", "mimo2", "minicpm", "minimax-01",
    "minimax-m2", "minimax-m3", "mistral3", "mistral4", "muse-glimmer", "nanbeige", "nemotron", "nemotron_h",
    "nemotron_h_moe", "olmoe", "openelm", "orion", "paddleocr", "pangu-embedded", "phi2", "phi3", "phimoe", "plamo",
    "plamo3", "qwen", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next",
    "qwen3vl", "qwen3vlmoe", "qwen4exp", "refact", "seed_oss", "smallthinker", "smollm3", "spark2_5", "stablelm",
    "starcoder2", "step35", "xverse",
})  # fmt: skip
# Those of them that also expose the output of the last layer.
TAPPED_TO_THE_END = frozenset({"deepseek4", "mimo2", "nemotron_h", "nemotron_h_moe"})
# The recurrent ones whose state neither llama.cpp (`llm_arch_supports_rs_rollback`) nor our tapes (docs/hybrid.md) can
# roll back after a refused draft.
NO_ROLLBACK = frozenset({"minimax-01"})
# All recurrent ones of which that is true: prompt lookup cannot draft either, so decoding is plain.
NO_LOOKUP = NO_ROLLBACK | {
    "arwkv7", "falcon-h1", "granitehybrid", "jamba", "kimi-linear", "mamba", "mamba2", "plamo2", "rwkv6", "rwkv6qwen2",
    "rwkv7",
}  # fmt: skip
# Those whose next-token (MTP) layers llama.cpp computes (ggml_ops/llama/mtp_layers.h), and those of them that may have
# several, each of which proposes one position.
MTP_ARCHS = frozenset({
    "bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "deepseek4", "glm-dsa", "glm4moe", "hy_v3", "mimo2",
    "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next", "step35",
})  # fmt: skip
MTP_CHAINS = frozenset({"hy_v3", "mimo2", "step35"})
# Those that are MTP layers in a file of their own, with the architecture of their targets.
ASSISTANTS = {"gemma4-assistant": "gemma4"}


def no_drafting(arch: str) -> str:
    """Why no drafter at all works with targets of an architecture; "" if one can."""
    if arch not in TAPPED_ARCHS:
        return f"llama.cpp gives out no hidden states of {arch!r} models, which a drafter reads"
    return f"the recurrent state of {arch!r} cannot be rolled back" if arch in NO_ROLLBACK else ""


def no_mtp(arch: str, n_layers: int) -> str:
    """Why `n_layers` next-token (MTP) layers of an architecture cannot draft, as the engine says it; "" if they can."""
    if n_layers < 1:
        return "the file has no MTP layers"
    if arch not in MTP_ARCHS:
        return f"llama.cpp does not compute the MTP layers of the architecture {arch}"
    if n_layers > 1 and arch not in MTP_CHAINS:
        return f"llama.cpp computes only a single MTP layer of the architecture {arch}"
    return ""

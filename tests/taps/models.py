"""Tiny random f32 targets of many architectures: only their metadata is here, llama.cpp itself asks for tensors
(make.py). Keys that an architecture does not know do no harm, so most share one set."""

from __future__ import annotations

from tests.fuzz.architectures import EMBD, EXPERT_FF, EXPERTS, FF, HEAD, HEADS, HEADS_KV, Keys, pair
from tests.fuzz.gguf_image import Image
from tests.trees.models import WINDOW, tokenizer

# Architectures whose taps come through patches/0015 ...
ARCHS = (
    "afmoe", "apertus", "arcee", "arctic", "baichuan", "bailingmoe", "bailingmoe2", "bitnet", "chatglm", "codeshell",
    "cohere2", "cohere2moe", "command-r", "dbrx", "deci", "deepseek", "deepseek2", "deepseek32", "dots1", "ernie4_5",
    "ernie4_5-moe", "exaone", "exaone-moe", "falcon", "gemma", "gemma2", "gemma3", "glm-dsa", "glm4", "glm4moe",
    "glm5-next", "gptneox", "granite", "granite_swa", "granitemoe", "grok", "grovemoe", "hunyuan-moe", "hy_v3",
    "internlm2", "jais", "jais2", "laguna", "llama4", "maincoder", "maple", "mellum", "minicpm", "minimax-m3",
    "mistral3", "mistral4", "nemotron", "olmoe", "openelm", "orion", "paddleocr", "pangu-embedded", "phi2", "phi3",
    "phimoe", "plamo", "plamo3", "qwen", "qwen2", "qwen2moe", "qwen2vl", "qwen3vl", "qwen3vlmoe", "refact", "seed_oss",
    "smallthinker", "smollm3", "spark2_5", "stablelm", "starcoder2", "step35", "xverse",
)  # fmt: skip
# ... and those whose graphs set taps themselves.
ELSEWHERE = {
    "bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "hunyuan-dense", "hunyuan_vl", "lfm2", "lfm2moe", "llama", "mimo2",
    "minimax-01", "minimax-m2", "muse-glimmer", "nanbeige", "nemotron_h", "nemotron_h_moe", "qwen3", "qwen35",
    "qwen35moe", "qwen3moe", "qwen3next", "qwen4exp",
}  # fmt: skip
# What most people run, or has drafters: tested more often than the rest.
COMMON_ONES = (
    "deepseek2", "ernie4_5", "exaone-moe", "gemma2", "gemma3", "glm4moe", "granite", "hy_v3", "llama4", "mistral3",
    "mistral4", "phi3", "qwen2", "qwen2vl", "qwen3vl", "qwen3vlmoe", "seed_oss", "step35",
)  # fmt: skip
# Those whose memory holds no siblings.
CHAINS = ("deepseek32", "glm-dsa", "glm5-next", "minimax-m3")

LAYERS = 3
COMMON: Keys = {
    "block_count": LAYERS, "context_length": 512, "embedding_length": EMBD, "feed_forward_length": FF,
    "attention.head_count": HEADS, "attention.head_count_kv": HEADS_KV, "attention.key_length": HEAD,
    "attention.value_length": HEAD, "rope.dimension_count": HEAD, "rope.freq_base": 1e4,
    "attention.layer_norm_rms_epsilon": 1e-6, "attention.layer_norm_epsilon": 1e-5,
    "attention.sliding_window": WINDOW, "attention.clamp_kqv": 8.0, "attention.max_alibi_bias": 8.0,
    "use_parallel_residual": False, "logit_scale": 1.0, "residual_scale": 0.5, "embedding_scale": 1.5,
    "attention.scale": HEAD**-0.5, "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0,
    "expert_count": EXPERTS, "expert_used_count": EXPERTS, "expert_feed_forward_length": EXPERT_FF,
    "expert_shared_feed_forward_length": EXPERT_FF, "expert_shared_count": 1, "expert_weights_scale": 1.0,
    "expert_weights_norm": True, "expert_gating_func": 2, "leading_dense_block_count": 1,
    "interleave_moe_layer_step": 1, "rope.dimension_sections": [4, 2, 2, 0], "expert_group_scale": 1.0,
    "experts_per_group": 1,
}  # fmt: skip
# Multi-head latent attention: rows of the cache hold `latent` numbers and HEAD that carry the position.
LATENT = 32
MLA: Keys = {
    "attention.head_count_kv": 1, "attention.key_length": LATENT + HEAD, "attention.value_length": LATENT,
    "attention.key_length_mla": 2 * HEAD, "attention.value_length_mla": HEAD, "attention.kv_lora_rank": LATENT,
    "attention.q_lora_rank": 24, "expert_group_count": 1, "expert_group_used_count": 1,
}  # fmt: skip
INDEXER: Keys = {
    "attention.indexer.head_count": 64, "attention.indexer.key_length": 128, "attention.indexer.top_k": 512,
    "attention.indexer.block_size": 16, "attention.indexer.local_blocks": 1,
}  # fmt: skip


SLIDES: Keys = {"attention.sliding_window_pattern": [True, False, True]}
HYPER: Keys = {
    "hyper_connection.count": 4, "hyper_connection.sinkhorn_iterations": 2, "hyper_connection.epsilon": 1e-6,
    "hyper_connection.low_rank": 8,
}  # fmt: skip

# What an architecture has beside COMMON, or instead of it.
KEYS: dict[str, Keys] = {
    "apertus": {"xielu.alpha_n": 1.0, "xielu.alpha_p": 1.0, "xielu.beta": 1.0, "xielu.eps": 1e-7},
    "deepseek2": MLA,
    "deepseek32": MLA | INDEXER,
    "glm-dsa": MLA | INDEXER,
    "glm5-next": MLA
    | INDEXER
    | HYPER
    | {
        "attention.head_count_kv": [1, 0, 1], "attention.key_length": LATENT, "rope.dimension_count": 0,
        "attention.compress_ratios": [4, 4, 4], "kda.head_dim": HEAD, "ssm.conv_kernel": 4,
        "kda.gate_lower_bound": -5.0, "kda.safe_gate": True, "attention.indexer.kpool": 4,
        "attention.indexer.kpool_select_tail": True,
    },
    "granite_swa": SLIDES,
    "llama4": {"block_count": 4},  # every fourth layer has no RoPE
    "maple": SLIDES | {"swiglu_clamp_exp": 7.0},
    "minicpm3": MLA,
    "minimax-m3": INDEXER | {"attention.indexer.head_count": HEADS_KV, "attention.indexer.key_length": HEAD},
    "mistral4": MLA,
    "chameleon": {"attention.head_count_kv": HEADS},
    "dots1": {"attention.head_count_kv": HEADS},
    "olmoe": {"attention.head_count_kv": HEADS},
    "plm": MLA,
    "spark2_5": SLIDES,
    "step35": SLIDES,
}  # fmt: skip


def header(arch: str) -> Image:
    """The metadata of a model without tensors."""
    keys = COMMON | KEYS.get(arch, {})
    pairs = [pair("general.architecture", arch)]
    pairs += [pair(key if key.startswith("xielu") else f"{arch}.{key}", value) for key, value in keys.items()]
    return Image(pairs + tokenizer().pairs, [])

"""Names and values that mean something to llama.cpp's loaders: what the mutations draw from."""

from __future__ import annotations

INTEGERS = [
    *(0, 1, 2, 3, 5, 7, 8, 31, 33, 64, 100, 255, 512, 513, 1024, 4097, 65535, -1, -2),
    *(1 << 20, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1),
]
FLOATS = [0.0, -0.0, -1.0, 1.0, 1e-45, -1e-6, 1e-30, 1e30, 3e38, float("nan"), float("inf"), float("-inf")]
TEXTS = [
    *(b"", b"\0", b"a\0b", b"\xff\xfe", b"%s%n", b"x" * 5000),
    *b"none yarn longrope llama bert gpt2 t5 rwkv plamo2 test gemma4 default kimi-k2 silu gelu".split(),
]
ARCHITECTURES = b"""
    llama llama4 qwen2 qwen2moe qwen3 qwen3moe qwen3next qwen35 qwen35moe dflash eagle3 gemma gemma2 gemma3 gemma3n
    gemma4 gpt-oss deepseek2 deepseek4 bert t5 clip mamba mamba2 rwkv6 rwkv7 lfm2 nemotron_h ernie4_5-moe glm4 glm4moe
    phi3 phi2 mpt bloom falcon gpt2 stablelm olmo2 exaone4 smollm3 cohere2 granite granitehybrid minimax-m2 mimo2
    hunyuan_vl kimi-linear deci command-r wavtokenizer-dec dream plamo2 falcon-h1 jamba apertus seed_oss nanbeige
    minimax-01 bailingmoe3 muse-glimmer
""".split()
# Keys of an architecture, without its name.
SUFFIXES = b"""
    block_count context_length embedding_length embedding_length_out feed_forward_length attention.head_count
    attention.head_count_kv attention.key_length attention.value_length attention.key_length_swa
    attention.value_length_swa attention.layer_norm_epsilon attention.layer_norm_rms_epsilon attention.causal
    attention.sliding_window attention.sliding_window_pattern attention.scale attention.value_scale
    attention.max_alibi_bias attention.clamp_kqv attention.recurrent_layers rope.dimension_count
    rope.dimension_count_swa rope.dimension_sections rope.freq_base rope.freq_base_swa rope.scaling.type
    rope.scaling.factor rope.scaling.attn_factor rope.scaling.original_context_length rope.scaling.finetuned
    rope.scaling.yarn_ext_factor rope.scaling.yarn_beta_fast expert_count expert_used_count expert_group_count
    expert_group_used_count expert_feed_forward_length expert_gating_func expert_shared_count nextn_predict_layers
    pooling_type classifier.output_labels logit_scale final_logit_softcapping embedding_scale residual_scale
    full_attention_interval interleave_moe_layer_step leading_dense_block_count ssm.conv_kernel ssm.inner_size
    ssm.state_size ssm.time_step_rank ssm.group_count wkv.head_size shortconv.l_cache vocab_size hidden_activation
    target_layers block_size conv_kernel_size conv_group_size selector_rank selector_top_k sample_from_anchor
    lilicorr_top_k lilicorr_block_count lilicorr_head_count lilicorr_logit_scale lilicorr_vector_epsilon
    hyper_connection.count attention.output_group_count
""".split()
GLOBALS = b"""
    general.alignment general.file_type general.name general.tensor_extra.name general.tensor_extra.prec_a4
    general.quantization_version split.count split.no split.tensors.count tokenizer.ggml.scores
    tokenizer.ggml.token_type_count tokenizer.ggml.precompiled_charsmap tokenizer.ggml.suppress_tokens
    tokenizer.ggml.bos_token_id tokenizer.ggml.eot_token_id tokenizer.ggml.mask_token_id tokenizer.ggml.add_bos_token
    tokenizer.ggml.add_space_prefix tokenizer.chat_template tokenizer.chat_template.tool_use adapter.type
""".split()
# Tensors that a loader looks for and the file does not have, and names that are none.
TENSORS = [
    *b"""
    d2t rope_freqs.weight output.weight token_embd.weight selector_hidden.weight markov_w1.weight cls.output.weight
    lilicorr_hidden.weight lilicorr_token.weight
    cls.weight blk.0.attn_q.bias blk.0.attn_qkv.weight blk.0.attn_q.scale blk.0.attn_q.input_scale
    blk.0.attn_sinks.weight blk.0.layer_output_scale.weight blk.0.post_attention_norm.weight output.scale fc.scale
    blk.0.rope_freqs.weight token_embd_norm.weight blk.99.attn_q.weight blk.-1.attn_q.weight
""".split(),
    b"",
    b"x" * 63,
    b"x" * 64,
]


def deep(opening: bytes, closing: bytes = b"", *, times: int = 100_000) -> bytes:
    return b"{{ " + opening * times + b"x" + closing * times + b" }}"


TEMPLATES = [
    *(b"", b"\0", b"{{", b"{%", b"{{ messages }}", b"\xff\xfe{{ '\xff' }}"),
    # divisions
    *(b"{{ 1 is divisibleby(0) }}", b"{{ 1 % 0 }}", b"{{ 1 // 0 }}", b"{{ (-9223372036854775807 - 1) % -1 }}"),
    # recursion of the parser, of the destructors and of the interpreter
    *(deep(b"(", b")"), deep(b"["), deep(b"not "), deep(b"-"), deep(b"", b"+1"), deep(b"", b".y"), deep(b"", b"|trim")),
    b"{% if a %}" * 50_000 + b"{% endif %}" * 50_000,
    b"{% if a %}" + b"{% elif b %}" * 50_000 + b"{% endif %}",
    b"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    # memory and time
    b"{% for i in range(1000000000000) %}{{ i }}{% endfor %}",
    b"{% set x = 'a' * 10000000000 %}{{ x }}",
    b"{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    b"{{ 'a'|indent(1000000000000) }}",
    # arguments at their limits
    b"{{ 'x'[10] }}{{ 'x'[-10] }}{{ [1][9223372036854775807] }}{{ 'abc'[::-1] }}{{ 'abc'[::0] }}",
    *(b"{{ 99999999999999999999 }}", b"{{ strftime_now('%c' * 100) }}", b"{{ raise_exception('no') }}"),
]

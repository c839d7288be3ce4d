"""Keyword arguments of `Engine.generate`, `stream`, `chat`, `submit` and `submit_chat`, for type checkers and editors.

Type checkers do not run code, so the fields of RequestOptions and SamplingParams are repeated here, with their types;
tests/engine/test_keywords.py compares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from dflash_local.draft_options import Accept, Budget, Draft


class SubmitChatKeywords(TypedDict, total=False):
    """Fields of RequestOptions, without those that `submit_chat` names itself."""

    max_tokens: int
    budget: Budget
    draft: Draft | None
    accept: Accept | None
    draft_n_max: int
    lookup: bool | None
    cache_prompt: bool
    n_probs: int
    post_sampling_probs: bool
    probs_from: int
    prediction: Sequence[int]
    return_drafts: bool
    lookup_owner: int
    special: bool | frozenset[int]
    trace: bool
    progress: bool
    timings: bool
    time_limit_ms: int
    n_indent: int
    id_slot: int | None


class SubmitKeywords(SubmitChatKeywords, total=False):
    """Fields of RequestOptions, without the prompt and the sampling parameters."""

    stop: str | Sequence[str]


class SamplingKeywords(TypedDict, total=False):
    """Fields of SamplingParams."""

    seed: int | None
    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    repeat_last_n: int
    repeat_penalty: float
    frequency_penalty: float
    presence_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: Sequence[str] | None
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    adaptive_target: float
    adaptive_decay: float
    min_keep: int
    samplers: Sequence[str] | str | None
    logit_bias: Mapping[str, float | bool] | Sequence[Sequence[Any]] | None
    ignore_eos: bool
    grammar: str | None
    json_schema: Mapping[str, Any] | bool | None
    grammar_type: str | None
    grammar_lazy: bool
    grammar_triggers: Sequence[Any] | None
    preserved_tokens: Sequence[Any] | None
    generation_prompt: str | None
    reasoning_budget_tokens: int
    thinking_start_tag: str | None
    thinking_end_tags: Sequence[str] | None
    reasoning_budget_message: str | None


class GenerateKeywords(SubmitKeywords, SamplingKeywords, total=False):
    """Those of `submit`, and every field of SamplingParams."""


class ChatKeywords(GenerateKeywords, total=False):
    """Those of `generate`, and CHAT_FIELDS, in OpenAI's and llama-server's shapes."""

    tools: Sequence[Mapping[str, Any]] | None
    tool_choice: str | Mapping[str, Any] | None
    parallel_tool_calls: bool | None
    response_format: Mapping[str, Any] | None
    chat_template_kwargs: Mapping[str, Any] | None
    reasoning_format: str | None
    enable_thinking: bool | None
    add_generation_prompt: bool | None
    continue_final_message: bool | str | None
    force_pure_content: bool | None

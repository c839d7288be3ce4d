"""Questions that have one right answer: at temperature 0, with a seed, or without sampling at all; for every endpoint.

`QUESTIONS[kind](variant)` is a pure function. Its answer is compared with the one that the server gave before, alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.fuzz.http.sound import CALL, CITY, FUNCTION, TOOL

VARIANTS = 6
SLOTS = 8
MAX_TOKENS = 32

CHAT, TEXT, NATIVE = "/v1/chat/completions", "/v1/completions", "/completion"
INFILL, MESSAGES, RESPONSES = "/infill", "/v1/messages", "/v1/responses"
OLLAMA_CHAT, OLLAMA_TEXT = "/api/chat", "/api/generate"
STREAMING = frozenset({CHAT, TEXT, NATIVE, INFILL, MESSAGES, RESPONSES, OLLAMA_CHAT, OLLAMA_TEXT})
# Server-sent events, which can be read again by the name of their stream.
RECORDED = STREAMING - {OLLAMA_CHAT, OLLAMA_TEXT}

TOPICS = (
    "What is 48 plus 24?",
    "Write a short story about a cat.",
    "Name three colours, one to a line.",
    "What is the weather in Lisbon?",
    "Count from one to twenty.",
    "Why is the sky blue? Be brief.",
)
OPENINGS = (
    "One, two, three,",
    "def add(a, b):\n",
    "Once upon a time there was",
    '{"name": "',
    "The capital of France is",
    "- apples\n- pears\n-",
)
CHOICES: tuple[Any, ...] = ("auto", "required", {"type": "function", "function": {"name": "get_weather"}})
DRAFTS: tuple[dict[str, Any], ...] = (
    {"draft": "off"},
    {"draft": "chain", "budget": 8},
    {"draft": "tree", "budget": 32},
    {"budget": 1},
    {"budget": 64, "lookup": False},
    {"speculative.n_max": 2, "return_drafts": True},
)
SAMPLERS: tuple[dict[str, Any], ...] = (
    {"repeat_penalty": 1.2, "repeat_last_n": 32, "presence_penalty": 0.3, "frequency_penalty": 0.2},
    {"dry_multiplier": 0.8, "dry_allowed_length": 2},
    {"xtc_probability": 0.5, "xtc_threshold": 0.1},
    {"mirostat": 2, "mirostat_tau": 4.0},
    {"top_k": 0, "top_p": 1.0, "min_p": 0.05, "typical_p": 0.9},
    {"dynatemp_range": 0.5, "top_n_sigma": 2.0},
)
ANTHROPIC_TOOL = {"name": "get_weather", "description": "Weather", "input_schema": CITY}
EMBEDDED: tuple[Any, ...] = ("the cat sat on the mat", ["a big dog ran", "learning 1 2 3"], ["paris is small"] * 5)


@dataclass(frozen=True)
class Question:
    """A request; it is a GET if it has no body."""

    path: str
    body: dict[str, Any] | None = None

    @property
    def streams(self) -> bool:
        """Whether its answer may come as a stream."""
        return self.path in STREAMING

    def asked(self, *, stream: bool) -> dict[str, Any] | None:
        """The body that asks for a stream, or for a whole answer, where there is a choice."""
        return {**self.body, "stream": stream} if self.body is not None and self.streams else self.body


def decoding(variant: int) -> dict[str, Any]:
    """Greedy and seeded by turns."""
    return {"temperature": 0} if variant % 2 == 0 else {"temperature": 1, "seed": 100 + variant}


def chat(variant: int, **more: Any) -> Question:
    """OpenAI's chat."""
    messages = [{"role": "user", "content": TOPICS[variant]}]
    return Question(CHAT, {"messages": messages, "max_tokens": MAX_TOKENS, **decoding(variant), **more})


def conversation(variant: int) -> Question:
    """One that has gone on for a while, with a call and its result."""
    turns = [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "Weather in Lisbon?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        {"role": "assistant", "content": "It is sunny."},
        {"role": "user", "content": TOPICS[variant]},
    ]
    return chat(variant, messages=turns, tools=[TOOL])


def structured(variant: int) -> Question:
    """A chat that answers with JSON."""
    schema = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": CITY}}
    return chat(variant, response_format=schema if variant % 3 else {"type": "json_object"})


def predicted(variant: int) -> Question:
    """A chat whose answer is said to be nearly its question."""
    return chat(variant, prediction={"type": "content", "content": TOPICS[variant] + " " + OPENINGS[variant] * 3})


def biased(variant: int) -> Question:
    return chat(variant, logit_bias={"5": -100, str(20 + variant): 2.5, "30": -1.5})


def native(variant: int, **more: Any) -> Question:
    """llama-server's own completion."""
    body = {"prompt": OPENINGS[variant], "n_predict": MAX_TOKENS, **decoding(variant), "return_tokens": True}
    return Question(NATIVE, {**body, **more})


def text(variant: int, **more: Any) -> Question:
    """OpenAI's completion."""
    return Question(TEXT, {"prompt": OPENINGS[variant], "max_tokens": MAX_TOKENS, **decoding(variant), **more})


def several(variant: int) -> Question:
    """Two answers each to two prompts, one of them of tokens."""
    return text(variant, prompt=[OPENINGS[variant], [11, 12, 13, 14 + variant]], n=2, max_tokens=8)


def echoed(variant: int) -> Question:
    """The prompt and its probabilities, as evaluation harnesses ask for them."""
    return text(variant, prompt=TOPICS[variant] + " " + OPENINGS[variant] * 4, echo=True, logprobs=1, max_tokens=1)


def infill(variant: int) -> Question:
    body = {
        "input_prefix": OPENINGS[variant],
        "input_suffix": "    return total\n",
        "input_extra": [{"filename": "a.py", "text": "total = a + b\n" * (1 + variant)}],
        "n_predict": MAX_TOKENS,
    }
    return Question(INFILL, {**body, **decoding(variant)})


def message(variant: int, **more: Any) -> Question:
    """Anthropic's."""
    body = {"model": "m", "max_tokens": MAX_TOKENS, "system": "Be brief.", "stop_sequences": ["\n\n\n"]}
    asked = [{"role": "user", "content": [{"type": "text", "text": TOPICS[variant]}]}]
    return Question(MESSAGES, {**body, "messages": asked, **decoding(variant), **more})


def response(variant: int, **more: Any) -> Question:
    """OpenAI's newer format."""
    body = {"model": "m", "input": TOPICS[variant], "instructions": "Be brief.", "max_output_tokens": MAX_TOKENS}
    return Question(RESPONSES, {**body, **decoding(variant), **more})


def ollama_chat(variant: int, **more: Any) -> Question:
    messages = [{"role": "user", "content": TOPICS[variant]}]
    options = {"num_predict": MAX_TOKENS, **decoding(variant)}
    return Question(OLLAMA_CHAT, {"model": "m", "messages": messages, "options": options, **more})


def ollama_text(variant: int, **more: Any) -> Question:
    options = {"num_predict": MAX_TOKENS, **decoding(variant)}
    return Question(OLLAMA_TEXT, {"model": "m", "prompt": TOPICS[variant], "options": options, **more})


# What generates.
ANSWERS: dict[str, Callable[[int], Question]] = {
    "chat": chat,
    "chat, a conversation": conversation,
    "chat, tools": lambda v: chat(v, tools=[TOOL], tool_choice=CHOICES[v % 3], parallel_tool_calls=v % 2 == 0),
    "chat, JSON": structured,
    "chat, a grammar": lambda v: chat(v, grammar='root ::= [a-z ]{4,40} ("." | "!")'),
    "chat, probabilities": lambda v: chat(v, logprobs=True, top_logprobs=3),
    "chat, two answers": lambda v: chat(v, n=2, stream_options={"include_usage": True}),
    "chat, stops": lambda v: chat(v, stop=["a", ", ", "\n\n"][v % 3 :], timings_per_token=True),
    "chat, biases": biased,
    "chat, a prediction": predicted,
    "chat, drafts": lambda v: chat(v, **DRAFTS[v]),
    "chat, block verification": lambda v: chat(v, temperature=0, accept="block"),
    "chat, samplers": lambda v: chat(v, temperature=1, seed=v, **SAMPLERS[v]),
    "completion": native,
    "completion, probabilities": lambda v: native(v, n_probs=4, post_sampling_probs=v % 2 == 0),
    "completion, a slot": lambda v: native(v, id_slot=v % SLOTS, cache_prompt=v % 3 != 0),
    "completion, two prompts": lambda v: native(v, prompt=[OPENINGS[v], TOPICS[v]], n_predict=8),
    "completion, a schema": lambda v: native(v, json_schema=CITY),
    "completion, long": lambda v: native(v, prompt=OPENINGS[v] * 40, n_predict=8),
    "text": lambda v: text(v, logprobs=2, stop=["\n\n"]),
    "text, several": several,
    "text, echoed": echoed,
    "infill": infill,
    "message": message,
    "message, tools": lambda v: message(v, tools=[ANTHROPIC_TOOL], tool_choice={"type": ["auto", "any"][v % 2]}),
    "response": response,
    "response, tools": lambda v: response(
        v, tools=[{"type": "function", **FUNCTION}], tool_choice=["auto", "required"][v % 2]
    ),
    "response, JSON": lambda v: response(v, text={"format": {"type": "json_schema", "name": "city", "schema": CITY}}),
    "Ollama's chat": ollama_chat,
    "Ollama's chat, tools": lambda v: ollama_chat(v, tools=[TOOL]),
    "Ollama's text": lambda v: ollama_text(v, system="Be brief.", logprobs=True, top_logprobs=2),
    # With an opening: a whole sentence needs no more, say the pocket models.
    "Ollama's text, raw": lambda v: ollama_text(v, prompt=OPENINGS[v], raw=True),
    "Ollama's text, JSON": lambda v: ollama_text(v, format=CITY if v % 2 else "json"),
}

# What does not.
FACTS: dict[str, Callable[[int], Question]] = {
    "tokens": lambda v: Question("/tokenize", {"content": TOPICS[v] * 5, "with_pieces": v % 2 == 0}),
    "text of tokens": lambda v: Question("/detokenize", {"tokens": list(range(10 + v, 60))}),
    "template": lambda v: Question("/apply-template", conversation(v).body),
    "tokens of a chat": lambda v: Question(f"{CHAT}/input_tokens", conversation(v).body),
    "tokens of a message": lambda v: Question(f"{MESSAGES}/count_tokens", message(v, tools=[ANTHROPIC_TOOL]).body),
    "tokens of a response": lambda v: Question(f"{RESPONSES}/input_tokens", response(v).body),
    "vectors": lambda v: Question("/v1/embeddings", {"input": EMBEDDED[v % 3], "user": str(v)}),
    "vectors, base64": lambda v: Question("/v1/embeddings", {"input": EMBEDDED[v % 3], "encoding_format": "base64"}),
    "vectors, llama-server's": lambda v: Question("/embedding", {"content": EMBEDDED[v % 3], "embd_normalize": v % 3}),
    "vectors, Ollama's": lambda v: Question("/api/embed", {"model": "m", "input": EMBEDDED[v % 3]}),
    "ranks": lambda v: Question("/v1/rerank", {"query": "a cat", "documents": EMBEDDED[2][: 1 + v % 3]}),
    "page": lambda v: Question(("/", "/docs", "/openapi.json")[v % 3]),
    "constants": lambda v: Question(
        ("/v1/models", "/lora-adapters", "/tokenizer_info", "/api/version", "/api/tags", "/favicon.ico")[v]
    ),
}

QUESTIONS = {**ANSWERS, **FACTS}

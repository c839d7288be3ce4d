"""The real thing: Engine over libdflash and the pocket pair. (tests/lossless proves what it says; here is how it
behaves.)"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_local import native
from dflash_local.engine import Engine, SamplingParams
from dflash_local.errors import ContextLengthError, DFlashError, EngineDeadError, ModelError, PairError, RequestError
from tests.patience import PATIENCE

PROMPT = "<|im_start|>user\nWhat is 48 plus 24?<|im_end|>\n<|im_start|>assistant\n"
MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "What is 48 plus 24?"}]
GREEDY = SamplingParams(temperature=0)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the weather in a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


@pytest.fixture(scope="module")
def engine(pocket: dict[str, Path]) -> Iterator[Engine]:
    with Engine(pocket["target"], pocket["dflash"], n_ctx=4096, n_slots=4, n_threads=1, warmup=False) as engine:
        yield engine


def test_progress_tells_each_pass_of_the_prompt(engine: Engine) -> None:
    prompt = engine.tokenize("What is 48 plus 24? " * 100)[:900]
    for n_cached in (0, len(prompt) - 1):
        chunks = list(engine.stream(prompt, max_tokens=4, progress=True))
        told = [chunk.progress for chunk in chunks if chunk.progress]
        read = [one.processed for one in told]
        assert read == sorted(set(read))
        assert (read[0], read[-1]) == (n_cached, len(prompt))
        assert {(one.total, one.cache) for one in told} == {(len(prompt), n_cached)}
        assert len(told) >= 3 or n_cached
        assert all(chunk.progress for chunk in chunks[: len(told)])


def test_timings_go_on_while_an_answer_is_written(engine: Engine) -> None:
    told = [chunk.timings for chunk in engine.stream(PROMPT, max_tokens=30, ignore_eos=True, timings=True)]
    predicted = [(one.predicted_n, one.predicted_ms) for one in told if one]
    assert len(predicted) == len(told) > 2
    assert predicted == sorted(set(predicted))
    assert predicted[1][1] > 0


def test_close_waits_for_a_request_that_is_being_prepared(pocket: dict[str, Path]) -> None:
    """Its grammar takes a while; the engine that it reads must not be freed meanwhile."""
    names = [f"line-{i}" for i in range(3000)]
    grammar = "\n".join([f"root ::= {' | '.join(names)}", *(f'{name} ::= "{name} " [0-9]{{1,8}}' for name in names)])
    for wait in (0.0, 0.02, 0.1):
        engine = Engine(pocket["target"], n_ctx=256, n_threads=1, warmup=False)
        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(engine.generate, "Hello", grammar=grammar, max_tokens=9) for _ in range(4)]
            time.sleep(wait)
            engine.close()
        for answer in answers:
            if error := answer.exception(PATIENCE):
                assert isinstance(error, EngineDeadError)
            else:
                assert answer.result().text.startswith("line-")


def test_generate_and_timings(engine: Engine) -> None:
    done = engine.generate(PROMPT, temperature=0, max_tokens=60, budget=16, cache_prompt=False)
    assert done.prompt_tokens == len(engine.tokenize(PROMPT))
    assert len(done.tokens) == 60
    assert done.finish_reason == "length"
    timings = done.timings
    assert timings.draft_n >= timings.draft_n_accepted > 0
    assert sum(done.acceptance_lengths) == 59
    assert timings.n_passes == len(done.acceptance_lengths)
    assert timings.acceptance_length == pytest.approx(59 / timings.n_passes)
    assert timings.n_passes < 40
    assert timings.prompt_ms > 0
    assert timings.predicted_ms > 0


def test_a_request_shapes_its_drafts(engine: Engine) -> None:
    def shapes(**options: Any) -> list[tuple[int, int]]:
        done = engine.generate(PROMPT, temperature=0, max_tokens=60, trace=True, cache_prompt=False, **options)
        assert sum(step.n_tokens for step in done.steps) == 59
        # The last pass may have no room left for its draft.
        return [(step.n_nodes, step.n_depth) for step in done.steps[:-1]]

    assert set(shapes(draft="off")) == {(1, 0)}
    assert {nodes - depth for nodes, depth in shapes(draft="chain", budget=8)} == {1}
    assert any(nodes > depth + 1 for nodes, depth in shapes(budget=32))
    assert max(depth for _, depth in shapes(budget=16, draft_n_max=3)) == 3
    with pytest.raises(RequestError, match="DFlash 2"):
        shapes(accept="block")


def test_timings_tell_how_a_request_was_drafted(engine: Engine) -> None:
    def timings(**options: Any) -> dict[str, Any]:
        done = engine.generate(PROMPT, temperature=0, max_tokens=60, cache_prompt=False, **options)
        return done.timings.to_dict() | done.timings.drafting()

    for plain in (timings(draft="off"), timings(budget=1)):
        assert (plain["passes_n"], plain["plain_n"], plain["draft_n"], plain["nodes_mean"]) == (59, 59, 0, 1)
        assert (plain["depth_mean"], plain["denoised_mean"], plain["reason"]) == (None, None, "drafting is off")
    chain, tree, short = timings(draft="chain", budget=8), timings(budget=32), timings(budget=16, draft_n_max=3)
    # The last token needs no draft.
    assert {drafted["reason"] for drafted in (chain, tree, short)} <= {
        "fixed budget",
        "drafting is off",
    }
    assert chain["plain_n"] <= 1
    assert chain["nodes_mean"] == pytest.approx(1 + chain["depth_mean"] * (1 - chain["plain_n"] / chain["passes_n"]))
    assert 8 < tree["depth_mean"] + 1 < tree["nodes_mean"] <= 32
    assert tree["acceptance_length"] >= chain["acceptance_length"] > short["acceptance_length"]
    assert 2 < short["depth_mean"] <= 3 and short["denoised_mean"] <= 4 < chain["denoised_mean"]


def test_a_request_goes_no_deeper_than_the_engine(pocket: dict[str, Path]) -> None:
    """Shape and budget may be said anew, the greatest depth may not."""

    settings: dict[str, Any] = {"draft": "chain", "draft_n_max": 3, "budget": 8}
    with Engine(pocket["target"], pocket["dflash"], n_ctx=512, n_threads=1, warmup=False, **settings) as small:

        def shapes(**options: Any) -> list[tuple[int, int]]:
            return [
                (step.n_nodes, step.n_depth)
                for step in small.generate(PROMPT, GREEDY, max_tokens=40, trace=True, **options).steps
            ]

        assert max(shapes()) == max(shapes(draft_n_max=7)) == (4, 3)
        assert max(shapes(budget=3)) == (3, 2)
        assert max(shapes(draft="tree")) == (8, 3)


def test_without_a_drafter_that_is_the_reason(pocket: dict[str, Path]) -> None:
    with Engine(pocket["target"], n_ctx=512, n_threads=1, warmup=False, lookup=False) as plain:
        done = plain.generate(PROMPT, GREEDY, max_tokens=10, budget=8, trace=True)
    assert {step.reason for step in done.steps} == {done.timings.reason} == {"no drafter"}


def test_measured_costs_are_kept(pocket: dict[str, Path], tmp_path: Path) -> None:
    sources = []
    for _ in range(2):
        with Engine(
            pocket["target"], pocket["dflash"], n_ctx=512, n_threads=1, cost_cache=tmp_path / "costs.json"
        ) as engine:
            sources.append(engine.stats()["cost_source"])
    assert sources == ["measured", "cache"]


def test_stream_is_generate_in_pieces(engine: Engine) -> None:
    whole = engine.generate(PROMPT, temperature=0, max_tokens=60)
    chunks = list(engine.stream(PROMPT, temperature=0, max_tokens=60))
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert [token for chunk in chunks for token in chunk.tokens] == whole.tokens
    assert chunks[0].accepted is None
    assert engine.detokenize(whole.tokens) == whole.text


def test_slots_at_once_answer_as_alone(engine: Engine) -> None:
    prompts = [PROMPT.replace("48", str(number)) for number in range(10, 18)]
    alone = [engine.generate(prompt, temperature=0, max_tokens=40).text for prompt in prompts]
    together = [engine.submit(engine.tokenize(prompt), GREEDY, max_tokens=40) for prompt in prompts]
    assert [generation.result(60).text for generation in together] == alone


def test_prefix_reuse(engine: Engine) -> None:
    first = engine.generate(PROMPT, temperature=0, max_tokens=20)
    again = engine.generate(PROMPT, temperature=0, max_tokens=20)
    assert again.cached_tokens == again.prompt_tokens - 1
    assert again.tokens == first.tokens
    assert engine.generate(PROMPT, temperature=0, max_tokens=20, cache_prompt=False).cached_tokens == 0


def test_cancel(engine: Engine) -> None:
    generation = engine.submit(engine.tokenize(PROMPT), GREEDY, budget=1, max_tokens=900)
    next(iter(generation))
    generation.cancel()
    assert generation.result(PATIENCE).finish_reason in ("cancelled", "stop")
    assert engine.n_running == 0


def test_asyncio(engine: Engine) -> None:
    async def main() -> str:
        return "".join([chunk.text async for chunk in engine.submit(engine.tokenize(PROMPT), GREEDY, max_tokens=30)])

    assert asyncio.run(main()) == engine.generate(PROMPT, temperature=0, max_tokens=30).text


def test_chat(engine: Engine) -> None:
    done = engine.chat(MESSAGES, temperature=0, max_tokens=90)
    streamed = list(engine.chat(MESSAGES, temperature=0, max_tokens=90, stream=True))
    assert done.message["role"] == "assistant"
    assert "".join(delta.content or "" for delta in streamed) == done.text != ""
    assert streamed[-1].finish_reason == done.finish_reason


def test_tool_call(engine: Engine) -> None:
    messages = [{"role": "user", "content": "What is the weather in Lisbon?"}]
    done = engine.chat(messages, tools=TOOLS, tool_choice="required", temperature=0, max_tokens=80)
    assert done.finish_reason == "tool_calls"
    call = done.message["tool_calls"][0]["function"]
    assert call["name"] == "get_weather"
    assert "city" in json.loads(call["arguments"])


def test_json_schema_holds(engine: Engine) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "ok": {"type": "boolean"}},
        "required": ["n", "ok"],
    }
    response_format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    for seed in range(5):
        done = engine.chat(MESSAGES, response_format=response_format, temperature=1.5, seed=seed, max_tokens=200)
        answer = json.loads(done.text)
        assert type(answer["n"]) is int
        assert type(answer["ok"]) is bool


def test_same_seed_same_text(engine: Engine) -> None:
    texts = [engine.generate(PROMPT, temperature=1.0, seed=5, max_tokens=40).text for _ in range(2)]
    assert texts[0] == texts[1]
    others = {engine.generate(PROMPT, temperature=1.5, max_tokens=40).text for _ in range(30)}  # half are the same
    assert len(others) > 1


def test_score_and_probe(engine: Engine) -> None:
    tokens = engine.tokenize(PROMPT)
    answer = engine.generate(tokens, temperature=0, max_tokens=20).tokens
    score = engine.score(tokens + answer, len(tokens))
    np.testing.assert_array_equal(score.best_id, answer)
    np.testing.assert_array_equal(score.best_logit, score.logit)
    probe = engine.draft_probe(tokens + answer[:3], 8)
    assert probe.hidden.shape == (8, engine.info["drafter"]["n_embd"])
    assert probe.logits.shape == (8, engine.n_vocab)
    assert probe.ids.shape == probe.scores.shape == (8, engine.info["drafter"]["top_k"])
    np.testing.assert_array_equal(probe.logits[1:].argmax(1), probe.ids[1:, 0])


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"grammar": "root ::= ("}, "grammar"),
        ({"grammar": "root ::= [a]", "json_schema": {}}, "json_schema"),
        ({"json_schema": {"type": "nonsense"}}, "json_schema"),
        ({"samplers": ["magic"]}, "samplers[0]"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"logit_bias": 3}, "logit_bias"),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"dry_sequence_breakers": [""]}, "dry_sequence_breakers[0]"),
    ],
)
def test_bad_sampling_is_refused_at_once(engine: Engine, options: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        engine.submit(engine.tokenize(PROMPT), SamplingParams(**options))
    assert (caught.value.param or "").startswith(param.split("[")[0])


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0].type",
        ),
        ({"messages": MESSAGES, "tools": {}}, "tools"),
        ({"messages": MESSAGES, "tool_choice": "maybe"}, "tool_choice"),
        ({"messages": MESSAGES, "response_format": {"type": "poem"}}, "response_format.type"),
    ],
)
def test_bad_chats_name_the_field(engine: Engine, body: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        engine.apply_chat(body)
    assert caught.value.param == param


def test_a_template_of_ones_own(pocket: dict[str, Path]) -> None:
    template = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    with Engine(pocket["target"], n_ctx=256, n_threads=1, warmup=False, chat_template=template) as engine:
        assert engine.apply_chat({"messages": MESSAGES}).prompt == "[What is 48 plus 24?]"


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.name | default('you') }}: {{ m.content }}{% endfor %}",
        "{% for m in messages %}{% if not m.name %}{{ raise_exception('who?') }}{% endif %}{{ m.content }}{% endfor %}",
    ],
)
def test_names_that_a_template_reads(pocket: dict[str, Path], template: str) -> None:
    with Engine(pocket["target"], n_ctx=256, n_threads=1, warmup=False, chat_template=template) as engine:
        assert engine.apply_chat({"messages": [{**MESSAGES[0], "name": "ann"}]}).ignored == ()


def test_names_that_no_template_shows_are_told(engine: Engine) -> None:
    """The pocket target's template mentions other names: those of tools."""
    call = {"type": "function", "function": {"name": "add", "arguments": "{}"}}
    called = [*MESSAGES, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "name": "add", "content": "72"}]
    assert engine.apply_chat({"messages": called}).ignored == ()
    assert engine.apply_chat({"messages": [{**called[0], "name": ""}]}).ignored == ()
    assert engine.apply_chat({"messages": [{**called[0], "name": "ann"}, *called[1:]]}).ignored == ("messages[].name",)


def test_context(pocket: dict[str, Path]) -> None:
    with Engine(pocket["target"], pocket["dflash2"], n_ctx=256, n_threads=1, warmup=False) as engine:
        assert engine.n_ctx_slot == 256
        with pytest.raises(ContextLengthError):
            engine.generate([5] * 256)
        answers = [engine.generate(PROMPT, ignore_eos=True, temperature=0, draft=draft) for draft in ("tree", "off")]
        assert answers[0].tokens == answers[1].tokens
        for done in (*answers, engine.generate([5] * 255)):
            assert (done.finish_reason, done.truncated) == ("length", True)
            assert done.prompt_tokens + len(done.tokens) == 256
        cut = engine.generate(PROMPT, ignore_eos=True, max_tokens=5)
        assert (cut.finish_reason, cut.truncated) == ("length", False)


def test_what_llama_server_tells_of_a_model(engine: Engine) -> None:
    assert (engine.info["target"]["ftype"], engine.info["target"]["vocab_type"]) == ("F16", 2)  # BPE
    assert engine.info["chat_template_caps"]["supports_tools"] is True


def test_stats(engine: Engine) -> None:
    engine.generate(PROMPT, max_tokens=5)
    assert engine.stats()["steps"] > 0


def test_wrong_files(pocket: dict[str, Path], tmp_path: Path) -> None:
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(pocket["target"].read_bytes()[:100_000])
    with pytest.raises(ModelError, match="torn"):
        Engine(torn)
    with pytest.raises(ModelError, match=r"nowhere\.gguf"):
        Engine(tmp_path / "nowhere.gguf")
    with pytest.raises((ModelError, PairError)):
        Engine(pocket["target"], pocket["target"])
    with pytest.raises(RequestError):
        Engine(pocket["target"], n_slots=0)
    with pytest.raises(RequestError):
        Engine(pocket["target"], n_slots=1000)
    with pytest.raises(DFlashError):
        Engine(pocket["target"], cache_type_k="q17")


def test_loading_reports_progress_and_can_be_cancelled(pocket: dict[str, Path]) -> None:
    seen: list[float] = []
    Engine(pocket["target"], n_ctx=256, warmup=False, progress=lambda done: seen.append(done) or True).close()  # type: ignore[func-returns-value]
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    with pytest.raises(RequestError, match="cancelled"):
        Engine(pocket["target"], n_ctx=256, warmup=False, progress=lambda _: False)


def test_native_messages_reach_logging(pocket: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    native.set_log_level(logging.INFO)
    try:
        with caplog.at_level(logging.INFO, "dflash_local.native"):
            Engine(pocket["target"], n_ctx=256, warmup=False).close()
        assert any("qwen3" in record.message for record in caplog.records)
    finally:
        native.set_log_level(logging.WARNING)


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "engine.close()",
        "del engine",
        "import sys; sys.exit(3)",
        "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    ],
)
def test_the_interpreter_ends_cleanly(pocket: dict[str, Path], ending: str) -> None:
    """An engine that is busy when the interpreter ends neither hangs nor crashes it."""
    program = f"""
from dflash_local import Engine
engine = Engine({str(pocket["target"])!r}, n_ctx=4096, n_threads=1, warmup=False)
generation = engine.submit(engine.tokenize("x"), max_tokens=3000)
next(iter(generation))
{ending}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    expected = 3 if "exit" in ending else -signal.SIGINT if "SIGINT" in ending else 0
    assert done.returncode == expected, done.stderr


def test_the_library_describes_itself() -> None:
    info = native.library_info()
    assert info["abi"] == native.ABI_VERSION
    assert any(device["type"] == "cpu" for device in info["devices"])


def test_an_answer_to_be_continued_must_fit_its_schema(engine: Engine) -> None:
    begun = {"messages": [*MESSAGES, {"role": "assistant", "content": "Sunny."}], "continue_final_message": True}
    prompt = engine.apply_chat({**begun, "add_generation_prompt": False, "json_schema": {"type": "object"}})
    with pytest.raises(RequestError, match="to be continued") as error:
        engine.submit_chat(prompt)
    assert error.value.param == "messages"


def test_a_request_that_forbids_every_token_is_to_blame(engine: Engine) -> None:
    with pytest.raises(RequestError, match="no token is left to sample"):
        engine.generate("One, two,", max_tokens=8, grammar='root ::= "a"', ignore_eos=True)
    assert engine.generate("One, two,", max_tokens=8, temperature=0).tokens

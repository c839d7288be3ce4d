"""Infill: how prompts with a gap are laid out, by llama-server's rules, and the endpoints that take them."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dflash_local.engine import Engine
from dflash_local.server.infill import Gap, Infill
from dflash_local.server.settings import Settings
from tests.fake_native import FakeNative
from tests.fuzz import gguf_image
from tests.patience import wait_until
from tests.server.live import Live, live, live_pair
from tests.server.test_cli import parse
from tests.server.test_endpoints import sse

# Tokens of the fake engine are bytes.
NEEDED = {"fim_pre": 1, "fim_suf": 2, "fim_mid": 3}
WHOLE = {**NEEDED, "fim_rep": 4, "fim_sep": 5, "add_bos": True, "bos_token": 6}
N_CTX = 400
BATCH = 64

GAP: Any = {"input_prefix": "before", "input_suffix": "behind"}
FILES: Any = {"input_extra": [{"text": "one"}, {"text": "two", "filename": "b.c"}]}


class Asked:
    """A server, and the prompts that reach its engine."""

    def __init__(self, server: Live, native: FakeNative) -> None:
        self.http, self._native = server.http, native

    def prompt(self, path: str = "/infill", **body: Any) -> bytes:
        self._native.prepared.clear()
        self.http.post(path, json={"n_predict": 2, **body}).raise_for_status()
        (prepared,) = self._native.prepared
        return bytes(prepared.tokens)


def served(info: Mapping[str, Any], **settings: Any) -> Iterator[Asked]:
    native = FakeNative(b"hello", n_ctx_slot=N_CTX, info=info)
    with live(lambda _progress: Engine.over(native), Settings(n_batch=BATCH, **settings)) as server:
        yield Asked(server, native)


@pytest.fixture(scope="module")
def needed() -> Iterator[Asked]:
    yield from served(NEEDED)


@pytest.fixture(scope="module")
def whole() -> Iterator[Asked]:
    yield from served(WHOLE)


@pytest.fixture(scope="module")
def suffix_first() -> Iterator[Asked]:
    yield from served(WHOLE, spm_infill=True)


# ---- the prompt ----


def test_only_what_fits_is_tokenized(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is sent; and the prompt is the same as if all of it were."""
    native = FakeNative(n_ctx_slot=4096, info=WHOLE)
    words = "".join(random.Random(3).choices("abcdefgh", k=1_000_000))
    files = [(f"{number}.c", words[start : start + 1000]) for number, start in enumerate(range(0, len(words), 1000))]
    with Engine.over(native) as engine:
        layout = Infill(engine, 256)
        whole = b"".join(b"\5%s\n%s" % (name.encode(), text.encode()) for name, text in files) + b"\5filename\n"
        most = 4096 - 256 - 2 * 8
        begin = layout.prompt(Gap([], []), 8)
        n_read = 0
        tokenize = native.tokenize

        def counted(text: str, add_special: bool, parse_special: bool) -> list[int]:
            nonlocal n_read
            n_read += len(text)
            return tokenize(text, add_special, parse_special)

        monkeypatch.setattr(native, "tokenize", counted)
        for some in (files, [("all.c", words)]):
            prompt = layout.prompt(Gap(layout.before(words), layout.behind(words), files=some), 8)
            assert begin[-4:] == [6, 1, 2, 3] and len(prompt) < 4096
            kept = bytes(prompt[: prompt.index(6)])
            assert 3 * most // 4 <= len(kept) <= most
            assert (whole if some is files else words.encode() + b"\5filename\n").endswith(kept)
        assert n_read < 150_000


def test_order(needed: Asked, whole: Asked, suffix_first: Asked) -> None:
    assert needed.prompt(**GAP) == b"\1before\2behind\3"
    assert needed.prompt(**GAP, prompt="begun") == b"\1beforebegun\2behind\3"
    assert whole.prompt(**GAP) == b"\4myproject\n\5filename\n\6\1before\2behind\3"
    assert suffix_first.prompt(**GAP, prompt="begun") == b"\4myproject\n\5filename\n\6\2behind\1beforebegun\3"
    assert needed.prompt(input_prefix="", input_suffix="") == b"\1\2\3"


def test_other_files(needed: Asked, whole: Asked) -> None:
    separator = b"\n\n--- snippet ---\n\n"
    assert needed.prompt(**GAP, **FILES) == separator + b"one" + separator + b"two\1before\2behind\3"
    files = b"\4myproject\n\5tmp\none\5b.c\ntwo\5filename\n"
    assert whole.prompt(**GAP, **FILES) == files + b"\6\1before\2behind\3"


def test_names_of_control_tokens_in_a_text_are_text(needed: Asked) -> None:
    call = "<tool_call>"
    text = call.encode()
    assert needed.prompt(input_prefix=call, input_suffix=call) == b"\1" + text + b"\2" + text + b"\3"


def test_far_parts_of_a_long_text_are_left_out(needed: Asked) -> None:
    long = {"input_prefix": "far" + "p" * 100, "input_suffix": "s" * 100 + "far"}
    assert needed.prompt(**long) == b"\1" + b"p" * 48 + b"\2" + b"s" * 14 + b"\3"
    assert needed.prompt(**long, prompt="begun") == b"\1" + b"p" * 48 + b"begun\2" + b"s" * 9 + b"\3"
    assert needed.prompt(**long, prompt="b" * 20) == b"\1" + b"p" * 48 + b"b" * 20 + b"\2\3"


def test_prompts_of_a_growing_text_begin_alike(needed: Asked) -> None:
    """Otherwise nothing of a prompt could be taken from the cache while a long text is written."""
    text = bytes(random.Random(1).choices(b"abcdefgh", k=400)).decode()
    begins = []
    for length in range(200, 400):
        prompt = needed.prompt(input_prefix=text[:length], input_suffix="s").decode()
        kept = prompt[1 : prompt.index("\2")]
        assert text[:length].endswith(kept) and 36 <= len(kept) <= 48
        begins.append(prompt[:16])
    assert len(set(begins)) < 50


def test_files_get_the_rest_of_the_context(whole: Asked) -> None:
    """n_ctx - n_batch - 2 n_predict tokens: the last ones."""
    long = {**GAP, "input_extra": [{"text": "far"}, {"text": "x" * 1000}]}
    tail = b"\5filename\n"
    end = tail + b"\6\1before\2behind\3"
    for n_predict in (10, 100):
        assert whole.prompt(**long, n_predict=n_predict) == b"x" * (N_CTX - BATCH - 2 * n_predict - len(tail)) + end
    for n_predict in (N_CTX, -1):
        assert whole.prompt(**long, n_predict=n_predict) == end.removeprefix(tail)


@pytest.mark.parametrize("n_predict", [-1, 0, 1, 300, 10**9])
@pytest.mark.parametrize("n_ctx", [16, 100, 400, 4096])
def test_the_longest_texts_fit(n_predict: int, n_ctx: int) -> None:
    """Even where a batch is longer than the context; in llama-server that is an error."""
    gap = Gap(b"p" * 5000, b"s" * 5000, files=[("name", "x" * 9000)])
    with Engine.over(FakeNative(n_ctx_slot=n_ctx, info=WHOLE)) as engine:
        for n_batch in (n_ctx - 5, n_ctx, 2048):
            assert len(Infill(engine, n_batch).prompt(gap, n_predict)) < n_ctx


# ---- the endpoints ----


def test_answers_are_llama_servers(needed: Asked) -> None:
    answer = needed.http.post("/infill", json=GAP).raise_for_status().json()
    assert (answer["content"], answer["stop"], answer["stop_type"]) == ("hello", True, "eos")
    assert answer["tokens_evaluated"] == 15
    text = needed.http.post("/infill", json={**GAP, "stream": True}).text
    events = sse(text, done=False)
    assert "".join(event["content"] for event in events) == "hello"


def test_suffix_of_a_completion(needed: Asked, suffix_first: Asked) -> None:
    path = "/v1/completions"
    assert needed.prompt(path, prompt="before", suffix="behind") == b"\1before\2behind\3"
    assert needed.prompt(path, prompt=[7, 8], suffix="behind") == b"\1\7\x08\2behind\3"
    assert suffix_first.prompt(path, prompt="before", suffix="x").endswith(b"\6\2x\1before\3")
    assert needed.prompt(path, prompt="before", suffix="") == b"before"
    answer = needed.http.post(path, json={"prompt": ["a", "b"], "suffix": "c"}).json()
    assert [choice["text"] for choice in answer["choices"]] == ["hello", "hello"]
    refusal = needed.http.post("/completion", json={"prompt": "a", "suffix": "b"})
    assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, "suffix")


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input_prefix": None}, "input_prefix"),
        ({"input_prefix": 1}, "input_prefix"),
        ({"input_suffix": None}, "input_suffix"),
        ({"input_suffix": ["x"]}, "input_suffix"),
        ({"prompt": ["x"]}, "prompt"),
        ({"prompt": "x" * N_CTX}, "prompt"),
        ({"input_extra": {}}, "input_extra"),
        ({"input_extra": [1]}, "input_extra[0]"),
        ({"input_extra": [{"text": ""}] * 1025}, "input_extra"),
        ({"input_extra": [{"text": "x"}, {}]}, "input_extra[1].text"),
        ({"input_extra": [{"filename": "ok"}]}, "input_extra[0].text"),
        ({"input_extra": [{"filename": 123, "text": "x"}]}, "input_extra[0].filename"),
        ({"suffix": "x"}, "suffix"),
        ({"grammar": "refuse me"}, "grammar"),
    ],
)
def test_refusals(needed: Asked, change: dict[str, Any], param: str) -> None:
    answer = needed.http.post("/infill", json={**GAP, **change})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


# What llama.vim (plugin of August 2026) and llama.vscode 0.0.63 send with every suggestion, besides the texts.
VIM: Any = {
    "id_slot": 0, "n_predict": 128, "stop": [], "n_indent": 4, "top_k": 40, "top_p": 0.90,
    "samplers": ["top_k", "top_p", "infill"], "stream": False, "cache_prompt": True, "t_max_prompt_ms": 500,
    "t_max_predict_ms": 250,
    "response_fields": [
        "content", "timings/prompt_n", "timings/prompt_ms", "timings/prompt_per_token_ms", "timings/prompt_per_second",
        "timings/predicted_n", "timings/predicted_ms", "timings/predicted_per_token_ms",
        "timings/predicted_per_second", "truncated", "tokens_cached",
    ],
}  # fmt: skip
VSCODE: Any = {
    "id_slot": 0, "n_predict": 128, "n_cmpl": 3, "top_k": 40, "top_p": 0.99, "stream": False,
    "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True, "n_indent": 4, "t_max_prompt_ms": 500,
    "t_max_predict_ms": 500, "model": "local",
}  # fmt: skip
# What both send ahead when their chunks change. llama.vscode leaves out stream, temperature and response_fields.
AHEAD: Any = {
    "id_slot": 0, "input_prefix": "", "input_suffix": "", "prompt": "", "n_predict": 0, "temperature": 0.0,
    "samplers": [], "stream": False, "cache_prompt": True, "t_max_prompt_ms": 1, "t_max_predict_ms": 1,
    "response_fields": [""],
}  # fmt: skip
CHUNKS = [
    {"text": "def one():\n    return 1\n", "time": [1, 2], "filename": "one.py"},  # llama.vim's: reltime()
    {"text": "def two():\n    return 2\n", "time": 1764270000000, "filename": "/home/u/two.py"},
]
EDIT: Any = {
    "input_prefix": "def add(a, b):\n", "input_suffix": "\n\nprint(add(1, 2))\n", "input_extra": CHUNKS,
    "prompt": "    return ",
}  # fmt: skip


def test_what_llama_vim_sends(needed: Asked) -> None:
    answer = needed.http.post("/infill", json={**EDIT, **VIM}).raise_for_status()
    assert "X-DFlash-Ignored" not in answer.headers
    assert list(answer.json()) == VIM["response_fields"]
    assert answer.json()["content"] == "hello"


def test_what_llama_vscode_sends(needed: Asked) -> None:
    """Three choices: a list."""
    answer = needed.http.post("/infill", json={**EDIT, **VSCODE}).raise_for_status()
    assert "X-DFlash-Ignored" not in answer.headers
    assert [one["content"] for one in answer.json()] == ["hello"] * 3
    one = needed.http.post("/infill", json={**EDIT, **VSCODE, "n_cmpl": 1}).raise_for_status().json()
    assert (one["content"], one["truncated"], one["timings"]["predicted_n"]) == ("hello", False, 5)
    adapter = needed.http.post("/infill", json={**EDIT, **VSCODE, "lora": [{"id": 0, "scale": 0.5}]})
    assert (adapter.status_code, adapter.json()["error"]["param"]) == (400, "lora")


def test_what_plugins_send_ahead() -> None:
    """Only the files are read, and the next suggestion's prompt begins like this one, even where files are cut."""
    native = FakeNative(n_ctx_slot=4096, info=NEEDED)
    long = "".join(random.Random(2).choices("abcdefgh", k=5000))
    with live(lambda _progress: Engine.over(native), Settings(n_batch=256)) as server:
        asked = Asked(server, native)
        for files in (CHUNKS, [{"text": long}, *CHUNKS]):
            answer = asked.http.post("/infill", json={**AHEAD, "input_extra": files}).raise_for_status()
            assert answer.json() == {} and "X-DFlash-Ignored" not in answer.headers
            ahead = asked.prompt(**{**AHEAD, "input_extra": files})
            suggestion = asked.prompt(**{**EDIT, **VSCODE, "n_cmpl": 1, "input_extra": files})
            assert ahead.endswith(b"\1\2\3") and suggestion.startswith(ahead.removesuffix(b"\2\3"))


def test_choices_need_not_wait_for_the_slot_of_the_first() -> None:
    gate = threading.Semaphore(0)
    native = FakeNative(b"hello " * 20, n_slots=4, info=NEEDED, gate=gate)
    with live(lambda _progress: Engine.over(native), Settings()) as server, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.http.post, "/infill", json={**EDIT, **VSCODE, "n_indent": None})
        wait_until(lambda: server.engine.n_running + server.engine.n_waiting == 3)
        gate.release(1000)
        assert [one["id_slot"] for one in asked.result().raise_for_status().json()] == [0, 1, 2]


def test_what_followed_elsewhere_is_predicted() -> None:
    """In the files, the prefix and the suffix, unless lookup is off or the client has a prediction itself."""
    native = FakeNative(info=NEEDED)
    line = "    total = sum(values)\n"
    nowhere = {"input_prefix": "    total = su", "input_suffix": "\n"}
    cases: list[tuple[dict[str, Any], bytes]] = [
        (nowhere, b""),
        ({**nowhere, "input_extra": [{"text": line}]}, b"m(values)\n"),
        ({**nowhere, "input_suffix": "\n" + line}, b"m(values)\n"),
        ({"input_prefix": line + "x\n", "prompt": "    total", "input_suffix": ""}, b" = sum(values)\nx\n    total"),
        ({**nowhere, "input_extra": [{"text": line}], "lookup": False}, b""),
        ({**nowhere, "input_extra": [{"text": line}], "prediction": {"type": "content", "content": "mine"}}, b"mine"),
    ]
    with live(lambda _progress: Engine.over(native), Settings()) as server:
        for body, predicted in cases:
            native.prepared.clear()
            server.http.post("/infill", json=body).raise_for_status()
            assert [bytes(one.prediction) for one in native.prepared] == [predicted]


def test_strict_servers_take_them(needed: Asked) -> None:
    for asked in served(NEEDED, strict_fields=True):
        for body in ({**EDIT, **VIM}, {**EDIT, **VSCODE}, {**AHEAD, "input_extra": CHUNKS}):
            asked.http.post("/infill", json=body).raise_for_status()


def test_a_line_that_is_indented_less_ends_the_suggestion() -> None:
    native = FakeNative(b"one\n    two\n\tthree\nfour", info=NEEDED)
    with live(lambda _progress: Engine.over(native), Settings()) as server:
        for n_indent, text in ((4, "one\n    two\n\t"), (1, "one\n    two\n\tthree\n"), (5, "one\n    ")):
            body = {**GAP, "n_indent": n_indent}
            answer = server.http.post("/infill", json=body).raise_for_status().json()
            assert (answer["content"], answer["stop_type"]) == (text, "limit")
            events = sse(server.http.post("/infill", json={**body, "stream": True}).text, done=False)
            assert "".join(event["content"] for event in events) == text
        refused = server.http.post("/infill", json={**GAP, "n_indent": -1})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "n_indent")


def test_unknown_names_are_told(needed: Asked) -> None:
    body = {**GAP, "colour": 1, "input_extra": [{"text": "x", "time": 3, "colour": 2}]}
    assert needed.http.post("/infill", json=body).headers["X-DFlash-Ignored"] == "colour, input_extra[0].colour"
    for asked in served(NEEDED, strict_fields=True):
        answer = asked.http.post("/infill", json={**GAP, "input_extra": [{"text": "x", "colour": 2}]})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input_extra[0].colour")


def test_a_model_without_tokens_for_it() -> None:
    for missing in ({}, {"fim_pre": -1, "fim_suf": -1, "fim_mid": -1}):
        for asked in served(missing):
            for path, body in (("/infill", {}), ("/infill", GAP), ("/v1/completions", {"prompt": "x", "suffix": "y"})):
                answer = asked.http.post(path, json=body)
                error = answer.json()["error"]
                assert (answer.status_code, error["type"]) == (501, "not_supported_error")
                assert error["message"].endswith(
                    "model: prefix token is missing. suffix token is missing. middle token is missing."
                )
    for asked in served({**NEEDED, "fim_suf": -1}):
        assert (
            asked.http.post("/infill", json=GAP).json()["error"]["message"].endswith("model: suffix token is missing.")
        )


def test_the_flags() -> None:
    from dflash_local.cli.serving.serve_app import make_settings

    settings = make_settings(parse("-m", "T.gguf", "--spm-infill", "-b", "512"))
    assert (settings.spm_infill, settings.n_batch) == (True, 512)
    assert not make_settings(parse("-m", "T.gguf")).spm_infill


def test_the_pocket_pair_answers_a_laid_out_prompt(pocket: dict[str, Path], tmp_path: Path) -> None:
    """With control tokens that the pair has in the places of those that it has not."""
    image = gguf_image.read(pocket["target"])
    image.pairs += [
        gguf_image.Pair(b"tokenizer.ggml.fim_%s_token_id" % name, gguf_image.U32, gguf_image.number(gguf_image.U32, id))
        for name, id in ((b"pre", 8), (b"suf", 9), (b"mid", 3))
    ]
    target = tmp_path / "target.gguf"
    target.write_bytes(image.encode()[0])

    with live_pair(target, pocket["dflash"], n_ctx=1024) as server:
        greedy = {"temperature": 0, "n_predict": 24}
        answer = server.http.post("/infill", json={**GAP, **greedy}).raise_for_status().json()
        words = [server.engine.tokenize(text, add_special=False) for text in GAP.values()]
        tokens = [8, *words[0], 9, *words[1], 3]
        plain = server.http.post("/completion", json={"prompt": tokens, **greedy}).raise_for_status().json()
        assert answer["content"] == plain["content"]
        assert answer["tokens_evaluated"] == len(tokens)

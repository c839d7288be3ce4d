"""Embeddings and ranks by a second model: numbers equal to numpy's and to llama-cpp-python's own, shapes of their
owners, refusals."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from dflash_local import cli
from dflash_local.cli.flags.embedding_flags import EmbeddingFlags, check_embedding_flags, embedding_settings
from dflash_local.cli.flags.http_flags import HttpFlags, http_settings
from dflash_local.engine import Engine
from dflash_local.errors import ModelError, QueueFullError, RequestError
from dflash_local.native import check_embedding_gguf, check_gguf
from dflash_local.server.embeddings.embedding_model import EmbeddingModel
from dflash_local.server.embeddings.embedding_process import EmbeddingProcess
from dflash_local.server.embeddings.options import ModelOptions
from dflash_local.server.embeddings.worker import Worker
from dflash_local.server.service import Service
from dflash_local.server.settings import Settings
from tests.convert import samples
from tests.fake_native import FakeNative
from tests.fuzz import gguf_image
from tests.patience import PATIENCE, wait_until
from tests.server import encoders
from tests.server.conftest import nested
from tests.server.live import Live, live, serving

TEXTS = ["the cat sat on the mat", "a big dog ran", "learning 1 2 3", "paris is big small"]


def ids_of(text: str) -> list[int]:
    """What the tiny tokenizer makes of words that it knows."""
    return [encoders.CLS, *(encoders.TOKENS.index(f"\u2581{word}") for word in text.split()), encoders.SEP]


KNOWN = "the cat sat on the mat"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("encoders")


@pytest.fixture(scope="module")
def weights() -> dict[str, Any]:
    return encoders.weights()


@pytest.fixture(scope="module")
def head() -> dict[str, Any]:
    return encoders.weights(2, rerank=True)


@pytest.fixture(scope="module")
def bert(folder: Path, weights: dict[str, Any]) -> Path:
    return encoders.write_bert(folder / "bert.gguf", weights)


@pytest.fixture(scope="module")
def ranker(folder: Path, head: dict[str, Any]) -> Path:
    return encoders.write_bert(folder / "ranker.gguf", head)


def settings_for(bert: Path, ranker: Path | None = None, **more: Any) -> Settings:
    rerank = None if ranker is None else ModelOptions(str(ranker), "tiny-ranker", pooling="rank")
    return Settings(alias="fake", embedding=ModelOptions(str(bert), "tiny-bert", **more), rerank=rerank)


@pytest.fixture(scope="module")
def server(bert: Path, ranker: Path) -> Iterator[Live]:
    with live(lambda _progress: Engine.over(FakeNative(b"hello")), settings_for(bert, ranker)) as running:
        yield running


def in_a_process(function: Callable[..., Any], *args: Any) -> Any:
    """As models for embeddings are: in this one they would use devices whose servers other tests have ended."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *args).result(PATIENCE)


def score_by(path: Path) -> tuple[bool, Any]:
    with closing(EmbeddingModel(ModelOptions(str(path), "ranker", pooling="rank"))) as model:
        (scores,) = model.run([model.pairing("cat")("the mat")])
        return model.has_head, scores[0][1]


def test_a_head_in_a_later_part_is_a_head(ranker: Path, folder: Path) -> None:
    split = samples.write_split(ranker, folder / "split-ranker", lambda name: name.startswith("cls."))
    assert in_a_process(score_by, split) == in_a_process(score_by, ranker)
    assert in_a_process(score_by, split)[0]


def split_blanks(path: Path) -> str:
    with closing(EmbeddingModel(ModelOptions(str(path), "language", pooling="last"))) as model:
        try:
            model.tokenize("x" + " " * 40_000)
        except RequestError as error:
            return str(error)
    return ""


def test_a_text_is_split_as_the_engine_splits_it(pocket: dict[str, Path], folder: Path) -> None:
    """Not by llama.cpp's own function, which some texts end."""
    image = gguf_image.read(pocket["target"])
    image.find(b"tokenizer.ggml.pre").body = gguf_image.text(b"superbpe")
    (folder / "language.gguf").write_bytes(image.encode()[0])
    assert "more than 512 spaces or digits in a row" in in_a_process(split_blanks, folder / "language.gguf")


def embed(server: Live, texts: Any, **fields: Any) -> list[Any]:
    answer = server.http.post("/v1/embeddings", json={"input": texts, **fields})
    assert answer.status_code == 200, answer.text
    return [np.array(item["embedding"], np.float32) for item in answer.json()["data"]]


def test_the_worker_takes_no_modules_of_the_current_folder(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts where numpy is anybody's."""

    async def start_and_stop() -> None:
        process = EmbeddingProcess(ModelOptions(str(bert), "tiny-bert"))
        await process.start()
        await process.close()

    (tmp_path / "numpy.py").write_text("raise SystemExit('foreign')")
    monkeypatch.chdir(tmp_path)
    asyncio.run(start_and_stop())


# ---- numbers ----


def test_vectors_are_berts(server: Live, weights: dict[str, Any]) -> None:
    """By numpy, from the same weights; alone and in a batch."""
    for vector, text in zip(embed(server, TEXTS), TEXTS, strict=True):
        if all(f"\u2581{word}" in encoders.TOKENS for word in text.split()):
            np.testing.assert_allclose(vector, encoders.unit(encoders.hidden(weights, ids_of(text))[0]), atol=2e-3)
        np.testing.assert_allclose(vector, embed(server, text)[0], atol=1e-5)
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


def test_scores_are_berts(server: Live, head: dict[str, Any]) -> None:
    documents = ["the dog ran", "a cat", "small tree"]
    answer = server.http.post("/v1/rerank", json={"query": "the cat", "documents": documents}).json()
    pairs = [[*ids_of("the cat"), encoders.SEP, *ids_of(text)[1:]] for text in documents]
    expected = [encoders.score(head, pair) for pair in pairs]
    found = {item["index"]: item["relevance_score"] for item in answer["results"]}
    np.testing.assert_allclose([found[0], found[1], found[2]], expected, atol=5e-3)
    assert [item["index"] for item in answer["results"]] == sorted(range(3), key=lambda index: -expected[index])
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] == sum(map(len, pairs))


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_poolings(bert: Path, weights: dict[str, Any], pooling: str) -> None:
    with live(None, settings_for(bert, pooling=pooling)) as server:
        states = encoders.hidden(weights, ids_of(KNOWN))
        expected = states.mean(0) if pooling == "mean" else states[-1]
        np.testing.assert_allclose(embed(server, KNOWN)[0], encoders.unit(expected), atol=2e-3)


def test_alone(bert: Path) -> None:
    """Without an engine: llama-server's names in /metrics, the model's own tokens, and no text."""
    with live(None, settings_for(bert)) as server:
        assert server.http.post("/tokenize", json={"content": KNOWN, "add_special": True}).json() == {
            "tokens": ids_of(KNOWN)
        }
        embed(server, ["a cat", "a dog"])
        metrics = server.http.get("/metrics").text
        for line in (
            "llamacpp:prompt_tokens_total 8",
            "llamacpp:n_decode_total 1",
            "llamacpp:tokens_predicted_total 0",
        ):
            assert line in metrics
        assert server.http.get("/props").json()["model_alias"] == "tiny-bert"
        assert server.http.post("/completion", json={"prompt": "a"}).status_code == 501


def test_no_pooling(bert: Path, weights: dict[str, Any]) -> None:
    """A row for each token, as the model gives it, and only from llama-server's own endpoint."""
    with live(None, settings_for(bert, pooling="none")) as server:
        rows = server.http.post("/embeddings", json={"content": KNOWN}).json()[0]["embedding"]
        np.testing.assert_allclose(rows, encoders.hidden(weights, ids_of(KNOWN)), atol=1e-2)
        refusal = server.http.post("/v1/embeddings", json={"input": KNOWN})
        assert refusal.status_code == 400 and "Pooling type 'none'" in refusal.json()["error"]["message"]


DIRECT = """
import json, sys
import llama_cpp
model = llama_cpp.Llama(sys.argv[1], embedding=True, n_ctx=256, n_batch=256, n_ubatch=256, verbose=False,
                        pooling_type=int(sys.argv[2]), n_threads=1)
print(json.dumps(model.embed(json.loads(sys.argv[3]), normalize=True)))
"""


@pytest.mark.parametrize(("pooling", "number"), [("mean", 1), ("last", 3)])
def test_a_language_model_is_llama_cpp_pythons(pocket: dict[str, Path], pooling: str, number: int) -> None:
    """In pieces, too: 600 tokens in passes of 512."""
    texts = ["def add(a, b):", "hello hello hello"]
    flags = ["-m", pocket["target"], "--embedding", "--pooling", pooling, "-c", 1024, "-t", 1]
    with serving(flags) as (_, url):
        answer = httpx.post(f"{url}/v1/embeddings", json={"input": texts}).json()
        direct = [sys.executable, "-c", DIRECT, str(pocket["target"]), str(number), json.dumps(texts)]
        expected = json.loads(subprocess.run(direct, check=True, capture_output=True).stdout)
        found = [item["embedding"] for item in answer["data"]]
        np.testing.assert_allclose(found, expected, atol=1e-4)
        long = httpx.post(f"{url}/v1/embeddings", json={"input": [7] * 600 + [9]}, timeout=60).json()
        short = httpx.post(f"{url}/v1/embeddings", json={"input": [7] * 600}, timeout=60).json()
        assert long["usage"]["prompt_tokens"] == 601
        assert long["data"][0]["embedding"] != short["data"][0]["embedding"]
        text = httpx.post(f"{url}/v1/chat/completions", json={"messages": [{"role": "user", "content": "hi"}]})
        assert text.status_code == 501 and "-m MODEL.gguf" in text.json()["error"]["message"]
        assert httpx.get(f"{url}/props").json()["model_path"] == str(pocket["target"])


def test_norms(server: Live, weights: dict[str, Any]) -> None:
    raw = encoders.hidden(weights, ids_of(KNOWN))[0]
    for norm, expected in ((-1, raw), (0, raw / np.abs(raw).max() * 32760), (1, raw / np.abs(raw).sum()),
                           (3, raw / (np.abs(raw) ** 3).sum() ** (1 / 3))):  # fmt: skip
        # as near for every norm: one makes the numbers thousands of times as large
        near = 5e-3 * np.abs(expected).max() / np.abs(raw).max()
        np.testing.assert_allclose(embed(server, KNOWN, embd_normalize=norm)[0], expected, rtol=2e-2, atol=near)


# ---- shapes ----


def test_openai_package(server: Live) -> None:
    """It asks for base64 by itself."""
    answer = server.openai.embeddings.create(model="text-embedding-3-small", input=TEXTS)
    assert [item.index for item in answer.data] == [0, 1, 2, 3]
    assert answer.model == "text-embedding-3-small"
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 20
    np.testing.assert_allclose([item.embedding for item in answer.data], embed(server, TEXTS), atol=1e-6)


def test_base64(server: Live) -> None:
    answer = server.http.post("/v1/embeddings", json={"input": KNOWN, "encoding_format": "base64"}).json()
    item = answer["data"][0]
    assert (item["object"], item["index"], item["encoding_format"]) == ("embedding", 0, "base64")
    assert np.array_equal(np.frombuffer(base64.b64decode(item["embedding"]), "<f4"), embed(server, KNOWN)[0])


@pytest.mark.parametrize(
    ("texts", "same_as"),
    [
        (KNOWN, KNOWN),
        (ids_of(KNOWN), KNOWN),
        ([ids_of(KNOWN), KNOWN], KNOWN),
        ([KNOWN, ids_of(KNOWN)], KNOWN),
        ({"prompt_string": KNOWN}, KNOWN),
        ({"content": [{"type": "text", "text": "the cat sat "}, {"type": "text", "text": "on the mat"}]}, KNOWN),
        ([ids_of(KNOWN)[0], *ids_of(KNOWN)[1:-1], "", encoders.SEP], KNOWN),
    ],
)
def test_what_input_may_be(server: Live, texts: Any, same_as: str) -> None:
    expected = embed(server, same_as)[0]
    for vector in embed(server, texts):
        np.testing.assert_allclose(vector, expected, atol=1e-5)


def test_native_shape(server: Live) -> None:
    for path in ("/embeddings", "/embedding"):
        answer = server.http.post(path, json={"input": ["a cat", "a dog"]}).json()
        assert [(item["index"], len(item["embedding"]), len(item["embedding"][0])) for item in answer] == [
            (0, 1, encoders.EMBD), (1, 1, encoders.EMBD),
        ]  # fmt: skip


def test_rerank_shapes(server: Live) -> None:
    documents = ["the dog", "a cat", "small tree"]
    body = {"query": "cat", "documents": documents}
    for path in ("/rerank", "/reranking", "/v1/rerank", "/v1/reranking"):
        answer = server.http.post(path, json={**body, "model": "m", "top_n": 2, "return_documents": True}).json()
        assert (answer["model"], answer["object"], len(answer["results"])) == ("m", "list", 2)
        assert all(item["document"]["text"] == documents[item["index"]] for item in answer["results"])
    assert server.http.post("/rerank", json={**body, "documents": [{"text": "the dog"}]}).status_code == 200
    assert len(server.http.post("/rerank", json={**body, "top_n": 99}).json()["results"]) == 3
    both = {**body, "documents": [{"text": "a", "title": "b"}], "texts": ["c"], "return_text": True}
    lost = server.http.post("/rerank", json=both)
    assert lost.headers["X-DFlash-Ignored"] == "texts, return_text, documents[].title"
    part = {"content": [{"type": "text", "text": "a cat", "novel": 1}]}
    refused = server.http.post("/v1/embeddings", json={"input": part})
    assert (refused.status_code, refused.json()["error"]["message"].partition(" (")[0]) == (
        400, "input.content[0].novel is not known here",
    )  # fmt: skip
    tei = server.http.post("/rerank", json={"query": "cat", "texts": documents, "return_text": True}).json()
    assert [item["text"] for item in tei] == [documents[item["index"]] for item in tei]
    scores = [item["score"] for item in tei]
    assert scores == sorted(scores, reverse=True)
    shares = server.http.post("/rerank", json={"query": "cat", "texts": documents, "raw_scores": False}).json()
    assert [item["index"] for item in shares] == [item["index"] for item in tei]
    assert [item["score"] for item in shares] == pytest.approx([1 / (1 + math.exp(-score)) for score in scores])


def test_what_is_served(server: Live) -> None:
    models = server.http.get("/v1/models").json()["data"]
    assert [model["id"] for model in models] == ["fake", "tiny-bert", "tiny-ranker"]
    assert models[1]["meta"]["n_embd"] == encoders.EMBD
    assert models[1]["meta"]["n_ctx"] == encoders.CONTEXT
    assert server.openai.chat.completions.create(model="fake", messages=[{"role": "user", "content": "hi"}]).choices
    text = server.http.get("/metrics").text
    assert 'dflash:embedding_requests_total{task="embed"}' in text
    assert 'dflash:embedding_tokens_total{task="rerank"}' in text


# ---- refusals ----


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({}, "input", "must be provided"),
        ({"input": []}, "input", "must not be empty"),
        ({"input": [""] * 2 + [[]]}, "input", "input[2] must be"),
        ({"input": 5}, "input", "must be"),
        ({"input": [True]}, "input", "must be"),
        ({"input": {"content": "text"}}, "input", "must be a list of parts"),
        ({"input": {"content": [{"type": "image_url", "image_url": {"url": "x"}}]}}, "input", "of type text"),
        ({"input": {"prompt_string": "a", "multimodal_data": ["x"]}}, "input", "must be"),
        ({"input": nested("a", lambda inner: {"prompt_string": inner}, 400)}, "input", "input.prompt_string must be"),
        ({"input": [10**9]}, "input", "the vocabulary has"),
        ({"input": [[-1]]}, "input", "the vocabulary has"),
        ({"input": "a " * 500}, "input", "too large"),
        ({"input": "a" * 2_000_000}, "input", "too large"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format", "one of 'float' or 'base64'"),
        ({"content": "a", "encoding_format": "base64"}, "encoding_format", "answered with numbers"),
        ({"input": "a", "dimensions": 8}, "dimensions", "have 32, not 8"),
        ({"input": "a", "embd_normalize": 1000}, "embd_normalize", "at most 64"),
        ({"input": "a", "embd_normalize": "x"}, "embd_normalize", "an integer"),
        ({"input": "a", "truncate": True}, "truncate", "never cut"),
    ],
)
def test_refused_embeddings(server: Live, body: dict[str, Any], param: str, message: str) -> None:
    answer = server.http.post("/v1/embeddings", json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    assert message in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"documents": ["a"]}, "query"),
        ({"query": 1, "documents": ["a"]}, "query"),
        ({"query": "a"}, "documents"),
        ({"query": "a", "documents": []}, "documents"),
        ({"query": "a", "documents": None}, "documents"),
        ({"query": "a", "documents": 123}, "documents"),
        ({"query": "a", "documents": [1, 2, 3]}, "documents"),
        ({"query": "a", "texts": [None]}, "texts"),
        ({"query": "a", "documents": ["a"], "top_n": 0}, "top_n"),
        ({"query": "a", "documents": ["a", "b " * 300]}, "documents"),
        ({"query": "a" * 2_000_000, "documents": ["a"]}, "query"),
    ],
)
def test_refused_ranks(server: Live, body: dict[str, Any], param: str) -> None:
    answer = server.http.post("/rerank", json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param


def test_unknown_fields_are_told(server: Live) -> None:
    answer = server.http.post("/v1/embeddings", json={"input": "a", "user": "me", "colour": 1, "truncate": False})
    assert (answer.status_code, answer.headers["X-DFlash-Ignored"]) == (200, "colour")
    assert server.http.post("/embeddings", json={"input": "a", "encoding_format": "base64"}).status_code == 400


def test_without_the_models() -> None:
    with live(lambda _progress: Engine.over(FakeNative(b"hello"))) as server:
        for path, flag in (("/v1/embeddings", "--embedding-model"), ("/v1/rerank", "--rerank-model")):
            answer = server.http.post(path, json={"input": "a", "query": "a", "documents": ["a"]})
            assert answer.status_code == 501
            assert answer.json()["error"]["type"] == "not_supported_error"
            assert flag in answer.json()["error"]["message"]


# ---- files ----


def test_what_may_give_embeddings(bert: Path, pocket: dict[str, Path]) -> None:
    check_embedding_gguf(bert)
    check_embedding_gguf(pocket["target"])
    with pytest.raises(ModelError, match="gives embeddings, not text"):
        check_gguf(bert)
    with pytest.raises(ModelError, match="gives no embeddings"):
        check_embedding_gguf(pocket["dflash"])


DAMAGED: dict[str, dict[str, Any]] = {
    "attention.head_count": {"bert.attention.head_count": 3},
    "embedding_length_out": {"bert.embedding_length_out": 64},
    "classifier.output_labels": {"bert.classifier.output_labels": ["a", "b"]},
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_encoders(folder: Path, what: str) -> None:
    """Each of them ends the process of stock llama.cpp."""
    path = encoders.write_bert(folder / "damaged.gguf", encoders.weights(), keys=DAMAGED[what])
    with pytest.raises(ModelError, match=what):
        check_embedding_gguf(path)


def test_a_damaged_encoder_does_not_start(folder: Path) -> None:
    path = encoders.write_bert(folder / "damaged.gguf", encoders.weights(), keys={"bert.attention.head_count": 3})
    command = [sys.executable, "-m", "dflash_local.cli", "serve", "--embedding-model", str(path), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "head_count" in done.stderr and "Traceback" not in done.stderr


# ---- flags ----


def flags(*words: str) -> EmbeddingFlags:
    args: EmbeddingFlags = cli.parse(["serve", *words])[1]
    check_embedding_flags(args)
    return args


def test_flags(bert: Path, ranker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = flags("--embedding-model", str(bert), "--rerank-model", str(ranker), "--pooling", "mean", "-t", "3")
    found = embedding_settings(args, "", "unused")
    assert args.writes_no_text
    assert (found["embedding"].path, found["embedding"].name) == (str(bert), "bert.gguf")
    assert (found["embedding"].pooling, found["rerank"].pooling, found["rerank"].n_threads) == ("mean", "rank", 3)
    assert not flags("-m", "T.gguf", "--embedding-model", str(bert)).writes_no_text
    monkeypatch.setenv("LLAMA_ARG_EMBEDDINGS", "1")
    monkeypatch.setenv("LLAMA_ARG_POOLING", "cls")
    found = embedding_settings(flags("-m", str(bert), "-c", "64"), str(bert), "mine")
    assert (found["embedding"].name, found["embedding"].n_ctx, found["embedding"].pooling) == ("mine", 64, "cls")
    monkeypatch.setenv("LLAMA_ARG_POOLING", "rank")
    found = embedding_settings(flags("-m", str(ranker)), str(ranker), "mine")
    assert found["embedding"] is None and found["rerank"].pooling == "rank"


@pytest.mark.parametrize(
    ("words", "param"),
    [
        (["-m", "T.gguf", "--embedding", "--embedding-model", "E.gguf"], "--embedding-model"),
        (["-m", "T.gguf", "--embedding", "-md", "D.gguf"], "-md"),
        (["-m", "T.gguf", "--reranking", "--rerank-model", "E.gguf"], "--rerank-model"),
        (["-m", "T.gguf", "--pooling", "mean"], "--pooling"),
        (["-m", "T.gguf", "--embd-normalize", "99"], "--embd-normalize"),
    ],
)
def test_refused_flags(words: list[str], param: str) -> None:
    with pytest.raises(RequestError) as error:
        flags(*words)
    assert error.value.param == param


def test_the_file_of_another_kind_is_told() -> None:
    with pytest.raises(ModelError, match="no such file"):
        embedding_settings(flags("--embedding-model", "none.gguf"), "", "")


# ---- life ----


def test_a_worker_that_dies_comes_back(bert: Path) -> None:
    with live(None, settings_for(bert)) as server:
        expected = embed(server, KNOWN)[0]
        process = server.service.embedder._process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        answers: list[httpx.Response] = []
        waiting = threading.Thread(
            target=lambda: answers.append(server.http.post("/v1/embeddings", json={"input": "a"}))
        )
        waiting.start()
        wait_until(lambda: len(server.service.embedder._pending) == 1)
        os.kill(process.pid, signal.SIGKILL)
        waiting.join()
        assert answers[0].status_code == 500
        assert "the embedding model's process ended (SIGKILL)" in answers[0].json()["error"]["message"]
        np.testing.assert_array_equal(embed(server, KNOWN)[0], expected)
        assert server.http.get("/health").status_code == 200


def test_a_short_request_passes_a_long_one(server: Live) -> None:
    done: list[str] = []

    def long() -> None:
        embed(server, ["the cat sat on the mat " * 20] * 400)
        done.append("long")

    thread = threading.Thread(target=long)
    thread.start()
    wait_until(lambda: len(server.service.embedder._pending) == 1)
    httpx.post(f"{server.url}/v1/embeddings", json={"input": KNOWN}, timeout=60).raise_for_status()
    done.append("short")
    thread.join()
    assert done == ["short", "long"]


class Counting:
    """A model that counts what it tokenizes."""

    n_ctx = n_ctx_train = n_vocab = 10
    n_passes = 0

    def __init__(self) -> None:
        self.n_texts = self.n_queries = 0

    def tokens_of(self, text: str) -> list[int]:
        assert text != "broken"
        self.n_texts += 1
        return [1]

    def pairing(self, query: str) -> Callable[[str], list[int]]:
        self.n_queries += 1
        return self.tokens_of


class Told:
    """A parent that remembers what it is told."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def say(self, message: dict[str, Any], data: bytes = b"") -> None:
        self.messages.append(message)


def test_others_have_their_turn_while_a_list_is_tokenized() -> None:
    for message in ({"do": "embed", "input": ["a"] * 100, "param": "input"},
                    {"do": "rerank", "query": "a", "documents": ["a"] * 100}):  # fmt: skip
        model = Counting()
        worker: Any = Worker(model, Told())  # type: ignore[arg-type]
        worker._take({"id": 0, "base64": False, "normalize": 2, **message})
        turns = []
        for _ in range(4):
            worker._turn()
            turns.append(model.n_texts)
        assert turns == [32, 64, 96, 100]
        assert model.n_queries == (message["do"] == "rerank")


def test_what_nobody_foresaw_ends_its_request_alone(capfd: pytest.CaptureFixture[str]) -> None:
    parent = Told()
    worker: Any = Worker(Counting(), parent)  # type: ignore[arg-type]
    worker._take({"id": 3, "do": "embed", "input": ["broken"], "param": "input", "base64": False, "normalize": 2})
    worker._turn()
    (told,) = parent.messages
    assert (told["id"], told["error"]["kind"]) == (3, "ComputeError") and "AssertionError" in told["error"]["message"]
    assert not worker._jobs and "Traceback" in capfd.readouterr().err


def test_the_queue_is_bounded_while_the_model_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """--max-queue requests wait besides the one that is at work. A client that leaves ends nobody's loading."""
    args: HttpFlags = cli.parse(["serve", "-m", "T.gguf", "--max-queue", "1"])[1]
    settings = replace(http_settings(args), embedding=ModelOptions("E.gguf", "e"))
    process = Service(None, settings)._embedder
    assert process is not None
    asyncio.run(check_the_queue(process, monkeypatch))


async def check_the_queue(process: EmbeddingProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    may_load, loads = asyncio.Event(), []

    async def load() -> None:
        loads.append(1)
        await may_load.wait()
        raise ModelError("gone")

    monkeypatch.setattr(process, "start", load)
    asked = [asyncio.create_task(process.tokenize("a", add_special=True, parse_special=True)) for _ in range(3)]
    await asyncio.sleep(0)
    assert process.n_waiting == 2
    with pytest.raises(QueueFullError):
        await asked[2]
    asked[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked[0]
    assert process.n_waiting == 1 and not asked[1].done()
    may_load.set()
    with pytest.raises(ModelError, match="gone"):
        await asked[1]
    assert loads == [1]


def test_a_client_that_leaves_frees_its_place(server: Live) -> None:
    body = {"input": ["the cat sat on the mat " * 20] * 5000}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/v1/embeddings", json=body, timeout=httpx.Timeout(PATIENCE, read=0.5))
    wait_until(lambda: not server.service.embedder._pending)
    assert embed(server, KNOWN)

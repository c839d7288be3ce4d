"""Texts of one kind of character: most vocabularies split texts by std::regex, whose stack grows with a match."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_local.errors import ModelError, RequestError
from dflash_local.native import NativeEngine
from dflash_local.vocabulary import token_order
from tests.fuzz import gguf_image

# Of targets that have drafters: gpt-oss, DeepSeek, Mistral, EXAONE; and "default", of files that name none.
RECURSIVE = ("gpt-4o", "deepseek-v3", "tekken", "exaone-moe", "default")
# All that have splitters of their own.
BY_HAND = (
    "llama-bpe", "dbrx", "smaug-bpe", "chatglm-bpe", "gpt-2", "mpt", "olmo", "jais", "trillion", "stablelm2", "qwen2",
    "hunyuan", "solar-open", "qwen35", "kimi-k2", "grok-2", "laguna", "gemma4", "sarvam-moe",
)  # fmt: skip
UTF_8 = ("gemma4", "sarvam-moe")  # whose tokens are UTF-8, where the pocket target's stand for bytes
# Kinds of characters that some expression repeats.
RUNS = ("A", "a", "Aa", "1", "=", " ", "\n", "\u8a9e", "\u0416", "\U0001f600", "e\u0301", "\u0301", "\x01", "_", "ab ")
LONG, MOST = 60_000, 1 << 20

ASK = """
import json, sys
from dflash_local.native import NativeEngine
from dflash_local.vocabulary import token_order
engine = NativeEngine({"model": sys.argv[1], "n_ctx": 64, "n_threads": 1, "warmup": False, "budget": 1})
for run in json.loads(sys.argv[2]):
    text = (run * %d)[: %d]
    back = b"".join(engine.token_piece(t, False) for t in engine.tokenize(text, False, False))
    assert back == text.encode() or sys.argv[3], run
engine.destroy()
print("fine")
""" % (LONG, LONG)  # noqa: UP031


def splits_as(pocket: dict[str, Path], folder: Path, name: str) -> Path:
    """The pocket target, whose texts are split as those of another model."""
    image = gguf_image.read(pocket["target"])
    image.find(b"tokenizer.ggml.pre").body = gguf_image.text(name.encode())
    path = folder / "target.gguf"
    path.write_bytes(image.encode()[0])
    return path


def ask(model: Path, runs: tuple[str, ...], *, other_bytes: bool = False) -> None:
    """In a process of its own: it may die of it. `other_bytes`: the tokens are not those of such a splitter."""
    import json

    command = [sys.executable, "-c", ASK, str(model), json.dumps(runs), "other bytes" * other_bytes]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.stdout == "fine\n", f"exit status {done.returncode}: {done.stderr[-500:]}"


@pytest.mark.parametrize("name", RECURSIVE[:2])
def test_a_long_run_does_not_end_the_process(pocket: dict[str, Path], tmp_path: Path, name: str) -> None:
    ask(splits_as(pocket, tmp_path, name), ("A", " ", "\u8a9e"))


@pytest.mark.slow
@pytest.mark.parametrize("name", RECURSIVE + BY_HAND)
def test_no_long_run_ends_the_process(pocket: dict[str, Path], tmp_path: Path, name: str) -> None:
    ask(splits_as(pocket, tmp_path, name), RUNS, other_bytes=name in UTF_8)


def test_what_is_too_long_is_refused(pocket: dict[str, Path], tmp_path: Path) -> None:
    """Only where the splitter cannot take it; texts of ordinary words may have that length, too."""
    for name, takes in (("gpt-4o", False), ("qwen2", True)):
        model = splits_as(pocket, tmp_path, name)
        engine = NativeEngine({"model": str(model), "n_ctx": 64, "n_threads": 1, "warmup": False, "budget": 1})
        text = "two words " * (MOST // 10)
        assert len(engine.tokenize(text, False, False)) > MOST // 10
        if takes:
            assert engine.tokenize(text + text, False, False)
        else:
            with pytest.raises(RequestError, match="too long for this model's tokenizer"):
                engine.tokenize(text + text, False, False)
        engine.destroy()


@pytest.mark.parametrize("name", ["deepseek-llm", "superbpe"])
def test_what_takes_time_squared_is_refused(pocket: dict[str, Path], tmp_path: Path, name: str) -> None:
    """40,000 spaces or digits in a row take them minutes, a million hours."""
    model = splits_as(pocket, tmp_path, name)
    engine = NativeEngine({"model": str(model), "n_ctx": 64, "n_threads": 1, "warmup": False, "budget": 1})
    for run in (" ", "\t", "\u3000", "1", "\n\u00a0"):
        with pytest.raises(RequestError, match="more than 512 spaces or digits in a row"):
            engine.tokenize("x" + run * 40_000 + "\u8a9e", False, False)
        assert engine.tokenize(("x" + (run * 512)[:512]) * 3 + "\u8a9e", False, False)
    engine.destroy()


@pytest.mark.parametrize(("name", "run"), [("gpt-4o", "A"), ("superbpe", " ")])
def test_a_corpus_may_hold_any_text(pocket: dict[str, Path], tmp_path: Path, name: str, run: str) -> None:
    """Its tokens are counted as the engine would split it: also where the run is beyond the process' stack, or has to
    be cut."""
    model, corpus = splits_as(pocket, tmp_path, name), tmp_path / "corpus.txt"
    corpus.write_text("two words\n" * 20_000 + run * 300_000)
    code = (
        "import sys; from pathlib import Path; from dflash_local.vocabulary import token_order;"
        "print(token_order(Path(sys.argv[1]), Path(sys.argv[2])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(model), str(corpus)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr[-500:]}"
    found = [int(number) for number in re.findall(r"\d+", done.stdout)]
    engine = NativeEngine({"model": str(model), "n_ctx": 64, "n_threads": 1, "warmup": False, "budget": 1})
    often = {*engine.tokenize("two words\n", False, False), *engine.tokenize(run * 400, False, False)}
    engine.destroy()
    assert often <= set(found[: 2 * len(often) + 300]) and len(found) == len(set(found))


def test_a_damaged_target_of_a_corpus_is_an_error(pocket: dict[str, Path], tmp_path: Path) -> None:
    image = gguf_image.read(pocket["target"])
    image.find(b"qwen3.attention.head_count_kv").body = (3).to_bytes(4, "little")
    (tmp_path / "target.gguf").write_bytes(image.encode()[0])
    (tmp_path / "corpus.txt").write_text("two words")
    with pytest.raises(ModelError, match="does not divide"):
        token_order(tmp_path / "target.gguf", tmp_path / "corpus.txt")


# Those of llama.cpp that split a text, by any of its languages' names.
ITS_OWN = re.compile(r"\b(llama_tokenize|common_tokenize|llama_cpp\.Llama|from llama_cpp import)\b|->tokenize\(")


def test_nothing_else_calls_llama_cpps_tokenizer(repo: Path) -> None:
    """Whatever text comes from outside goes through tokenize() of ggml_ops/base/."""
    sources = [
        path
        for folder in ("ggml_ops", "dflash_local", "server", "convert")
        for path in (repo / folder).rglob("*")
        if path.suffix in (".cpp", ".h", ".cu", ".py") and "tests" not in path.parts
    ]
    assert len(sources) > 300
    found = [path.relative_to(repo).as_posix() for path in sources if ITS_OWN.search(path.read_text(encoding="utf-8"))]
    assert found == ["ggml_ops/base/tokenize.cpp", "ggml_ops/base/tokenize.h"]

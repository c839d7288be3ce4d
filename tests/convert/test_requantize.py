"""Drafters in other types and with reduced heads: which tensor becomes what, and that the engine runs them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGUFValueType

from dflash_local.convert import OUTTYPES, convert
from dflash_local.convert.conversion import exact_types
from dflash_local.convert.gguf_metadata import array, read_header, read_metadata, u32
from dflash_local.convert.outtypes import OUTTYPES as TYPES
from dflash_local.convert.outtypes import find_outtype
from dflash_local.convert.requantize import ReducedHead, requantize
from dflash_local.convert.tensor_spec import TensorSpec
from dflash_local.convert.writer import OutputTensor, write_gguf
from dflash_local.demo.pocket import bundled_pair
from dflash_local.engine import DraftProbe, Engine
from dflash_local.errors import ConvertError
from dflash_local.generation import Completion
from dflash_local.native import quantize_rows
from dflash_local.sampling import SamplingParams
from dflash_local.vocabulary import frequent_tokens, ordered
from tests.fast import some_fast
from tests.gguf_files import rewritten

from . import samples
from .dialect_samples import write_tensors
from .test_kinds import DFLARE, dflare_tensors

PAIR = bundled_pair("dflash")
TARGET, DRAFTER = Path(PAIR.target), Path(PAIR.drafter)
Contents = dict[str, tuple[str, np.ndarray]]  # type and data of each tensor


def test_picked_rows() -> None:
    tensor = read_header(TARGET)[1]["token_embd.weight"]
    picked = [tensor.n_rows - 1, 0, 3, 3]
    assert np.array_equal(tensor.picked_rows(picked), tensor.rows(0, tensor.n_rows)[picked])
    assert tensor.picked_rows([]).shape == (0, tensor.row_bytes)


def test_names_are_listed_once() -> None:
    assert tuple(TYPES) == OUTTYPES


@pytest.mark.parametrize(
    ("outtype", "name", "columns", "kind"),
    [
        ("q4_k", "blk.0.attn_q.weight", 512, "Q4_K"),
        ("q4_k", "blk.0.attn_q.weight", 96, "Q5_0"),  # no whole blocks of 256
        ("q2_k", "blk.0.attn_q.weight", 96, "IQ4_NL"),
        ("q6_k", "blk.0.attn_q.weight", 96, "Q8_0"),
        ("q4_0", "blk.0.attn_q.weight", 80, "F16"),
        ("q4_0", "output.weight", 512, "Q6_K"),
        ("q8_0", "output.weight", 512, "Q8_0"),
        ("q2_k", "token_embd.weight", 512, "Q8_0"),
        ("q4_k", "selector_successor.weight", 64, "Q8_0"),
        ("f16", "selector_successor.weight", 64, "F16"),
    ],
)
def test_type_of_a_tensor(outtype: str, name: str, columns: int, kind: str) -> None:
    assert find_outtype(outtype).of(TensorSpec(name, (4, columns))).name == kind


@pytest.mark.parametrize(
    ("fc_type", "columns", "kind"),
    [
        (None, 512, "BF16"),
        ("f32", 512, "F32"),
        ("q8_0", 512, "Q8_0"),
        ("q4_k", 512, "Q4_K"),
        ("q4_k", 96, "Q5_0"),
        ("q4_k", 40, "BF16"),
    ],
)
def test_type_of_the_fusion(fc_type: str | None, columns: int, kind: str) -> None:
    fc = TensorSpec("fc.weight", (4, columns), wide=True)
    assert find_outtype("q8_0", fc_type).of(fc, "BF16").name == kind
    assert find_outtype("q8_0", fc_type).needs_ggml == (fc_type == "q4_k")


@pytest.mark.parametrize("outtype", ["q4_0", "q4_k", "q2_k", "iq4_nl"])
def test_converting_and_requantizing_give_the_same_file(
    tmp_path: Path, target: Path, checkpoint: Path, outtype: str
) -> None:
    convert(checkpoint, target, tmp_path / "bf16.gguf", outtype="bf16")
    convert(checkpoint, target, tmp_path / "direct.gguf", outtype=outtype, ggml=quantize_rows)
    requantize(tmp_path / "bf16.gguf", tmp_path / "again.gguf", find_outtype(outtype), ggml=quantize_rows)
    direct, again = (samples.read_tensors(tmp_path / f"{name}.gguf") for name in ("direct", "again"))
    assert list(direct) == list(again)
    for name, (kind, data) in direct.items():
        assert again[name][0] == kind, name
        np.testing.assert_array_equal(again[name][1], data)
    keys = samples.read_keys(tmp_path / "again.gguf")
    assert keys == samples.read_keys(tmp_path / "direct.gguf")
    assert keys["general.file_type"] == TYPES[outtype].file_type


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
@pytest.mark.parametrize("outtype", ["f32", "f16", "bf16", "q8_0"])
def test_from_an_exact_conversion_the_fusion_gets_its_type_too(
    tmp_path: Path, target: Path, outtype: str, dtype: str
) -> None:
    """Weights that bfloat16 cannot hold are not rounded to it on the way."""
    contents = {name: data * np.float32(1.001) for name, data in samples.tensors(samples.CONFIG).items()}
    checkpoint = samples.write_checkpoint(tmp_path / "d", samples.config(), contents, dtype=dtype)
    matrices, fc_type = exact_types(checkpoint, target)
    assert matrices == fc_type == dtype.lower()
    convert(checkpoint, target, tmp_path / "exact.gguf", outtype=matrices, fc_type=fc_type)
    convert(checkpoint, target, tmp_path / "direct.gguf", outtype=outtype)
    requantize(tmp_path / "exact.gguf", tmp_path / "again.gguf", find_outtype(outtype), fuses_anew=True)
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "direct.gguf").read_bytes()


def test_types_of_an_exact_conversion(tmp_path: Path, target: Path) -> None:
    dflare = samples.write_checkpoint(tmp_path / "dflare", DFLARE, dflare_tensors())
    assert exact_types(dflare, target) == ("bf16", None)
    contents = samples.tensors(samples.CONFIG)
    mixed = samples.write_checkpoint(tmp_path / "mixed", samples.config(), contents)
    fc = {"fc.weight": contents.pop("fc.weight")}
    samples.write_file(mixed / "model-00001-of-00002.safetensors", *samples.header_of(contents, "BF16"))
    samples.write_file(mixed / "model-00002-of-00002.safetensors", *samples.header_of(fc, "F32"))
    (mixed / "model.safetensors").unlink()
    assert exact_types(mixed, target) == ("bf16", "f32")


def test_what_is_quantized_is_not_quantized_again(tmp_path: Path, target: Path, checkpoint: Path) -> None:
    """All types would be the same file, by other names."""
    convert(checkpoint, target, tmp_path / "q8_0.gguf", outtype="q8_0")
    with pytest.raises(ConvertError, match=r"q8_0\.gguf is quantized already: '.*' is Q8_0"):
        requantize(tmp_path / "q8_0.gguf", tmp_path / "again.gguf", find_outtype("bf16"))
    requantize(tmp_path / "q8_0.gguf", tmp_path / "again.gguf", None)


def answers(drafter: Path | None) -> list[Completion]:
    chats = ["Count from 10 to 40 in steps of 3.", "Write a Python function that filters limits above 37."]
    params = SamplingParams(temperature=0.0)
    with Engine(TARGET, drafter, n_ctx=512, n_threads=1) as engine:
        prompts = [engine.apply_chat({"messages": [{"role": "user", "content": text}]}) for text in chats]
        return [engine.submit_chat(prompt, params, max_tokens=40, budget=12).result() for prompt in prompts]


@pytest.fixture(scope="module")
def plain() -> list[str]:
    return [answer.text for answer in answers(None)]


@pytest.mark.parametrize("outtype", some_fast(OUTTYPES, ("f16", "q8_0", "q4_0", "q4_k", "iq4_nl")))
def test_every_type_drafts(tmp_path: Path, plain: list[str], outtype: str) -> None:
    path = tmp_path / "drafter.gguf"
    requantize(DRAFTER, path, find_outtype(outtype), ggml=quantize_rows)
    drafted = answers(path)
    assert [answer.text for answer in drafted] == plain
    assert sum(answer.timings.draft_n_accepted for answer in drafted) > 20


def written(path: Path, contents: Contents) -> Path:
    """The bundled DFlash drafter with other tensors."""
    outputs = [
        OutputTensor(name, data.shape, gguf.GGMLQuantizationType[kind], lambda data=data: [data])  # type: ignore[misc]
        for name, (kind, data) in contents.items()
    ]
    write_gguf(path, read_metadata(DRAFTER), outputs)
    return path


@pytest.fixture(scope="module")
def dflare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DFlare drafter, untrained: the bundled DFlash drafter's layers, over equal shares of its taps."""
    contents = samples.read_tensors(DRAFTER)
    n_taps = contents.pop("fc.weight")[1].shape[1] // contents["output_norm.weight"][1].shape[0]
    n_layer = sum(name.endswith(".attn_k.weight") for name in contents)
    for i in range(n_layer):
        for part in ("k", "v"):
            contents[f"blk.{i}.attn_{part}_ctx.weight"] = contents[f"blk.{i}.attn_{part}.weight"]
    contents["layer_fusion.weight"] = "F32", np.full((n_layer, n_taps), 1 / n_taps, np.float32)
    return written(tmp_path_factory.mktemp("dflare") / "drafter.gguf", contents)


# Drafters by kind, and draft tokens that must be accepted at least.
REDUCED = {"dflash": 20, "dspark": 20, "dspark-first": 20, "dflare": 0}


def test_tokens_of_a_reduced_head_rise() -> None:
    assert ReducedHead.of([9, 1, 300, 64, 1, 8], TARGET).tokens == (1, 8, 9, 64, 300)


@pytest.mark.parametrize("kind", REDUCED)
def test_a_reduced_head_proposes_its_tokens_and_changes_no_answer(
    tmp_path: Path, repo: Path, plain: list[str], dflare: Path, kind: str
) -> None:
    source = dflare if kind == "dflare" else Path(bundled_pair(kind).drafter)
    tokens = frequent_tokens(TARGET, repo / "benchmarks" / "perplexity.txt", 400)
    path = tmp_path / "drafter.gguf"
    requantize(source, path, None, head=ReducedHead.of(tokens, TARGET))
    drafted = answers(path)
    assert [answer.text for answer in drafted] == plain
    assert sum(answer.timings.draft_n for answer in drafted) > 20
    assert sum(answer.timings.draft_n_accepted for answer in drafted) >= REDUCED[kind]
    stored, others = samples.read_tensors(path), samples.read_tensors(source)
    assert stored["d2t"][1].tolist() == tokens
    expected = samples.read_tensors(TARGET)["output.weight"][1]
    np.testing.assert_array_equal(stored["output.weight"][1], expected[tokens])
    assert stored.keys() - others.keys() == {"d2t", "output.weight"}
    for name, (_, data) in others.items():
        np.testing.assert_array_equal(stored[name][1], data[tokens] if name == "markov_w2.weight" else data)


@pytest.fixture(scope="module")
def split_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The target in two parts, its output projection in the second."""
    return samples.write_split(TARGET, tmp_path_factory.mktemp("split") / "t", "output.weight".__eq__, 64)


def test_files_in_parts_and_of_any_alignment_make_the_same_drafter(tmp_path: Path, split_target: Path) -> None:
    metadata, tensors = read_header(DRAFTER)
    write_tensors(tmp_path / "aligned.gguf", metadata | {"general.alignment": u32(64)}, tensors)
    split = samples.write_split(DRAFTER, tmp_path / "d", lambda name: name.startswith("blk.1."), 64)
    for name, outtype, heads in (
        ("q8_0", find_outtype("q8_0"), (None, None)),
        ("reduced", None, (ReducedHead.of(range(900), TARGET), ReducedHead.of(range(900), split_target))),
    ):
        expected, written = tmp_path / f"{name}.gguf", tmp_path / f"{name}-again.gguf"
        requantize(DRAFTER, expected, outtype, head=heads[0])
        for source in (tmp_path / "aligned.gguf", split):
            requantize(source, written, outtype, head=heads[1])
            assert samples.read_keys(written) == samples.read_keys(expected)
            found, same = samples.read_tensors(written), samples.read_tensors(expected)
            assert found.keys() == same.keys()
            for tensor, (kind, data) in same.items():
                assert found[tensor][0] == kind
                np.testing.assert_array_equal(found[tensor][1], data)


def probe(drafter: Path) -> DraftProbe:
    with Engine(TARGET, drafter, n_ctx=256, n_threads=1) as engine:
        n_block = engine.info["drafter"]["block_size"]
        return engine.draft_probe(engine.tokenize("Count from 10 to 40 in steps of 3. 10, 13,"), n_block)


@pytest.mark.parametrize("kind", some_fast(REDUCED, ("dflash2", "dspark-first")))
def test_a_reduced_head_scores_its_tokens_as_before(tmp_path: Path, dflare: Path, kind: str) -> None:
    source = dflare if kind == "dflare" else Path(bundled_pair(kind).drafter)
    tokens = range(1, 1699, 3)
    requantize(source, tmp_path / "drafter.gguf", None, head=ReducedHead.of(tokens, TARGET))
    whole, reduced = probe(source), probe(tmp_path / "drafter.gguf")
    first = 0 if kind == "dspark-first" else 1  # the anchor's row proposes nothing
    np.testing.assert_allclose(reduced.logits[first:, tokens], whole.logits[first:, tokens], atol=1e-3)
    ids, scores = reduced.ids[first:], reduced.scores[first:]
    assert np.isin(ids, tokens).all() and not np.isin(whole.ids[first:], tokens).all()
    if kind.startswith("dspark"):
        before, after = (samples.read_tensors(source)[f"markov_w{i}.weight"][1].astype(np.float32) for i in (1, 2))
        for row in range(1, len(ids)):
            pairs = whole.logits[first + row, ids[row]] + before[ids[row - 1]] @ after[ids[row]].T
            np.testing.assert_allclose(np.diff(scores[row]), np.diff(pairs), atol=1e-3)


def test_frequent_tokens_are_control_tokens_then_the_corpus_then_low_ids(tmp_path: Path) -> None:
    with Engine(TARGET, n_ctx=256, n_threads=1) as engine:
        often, seldom = engine.tokenize(" function", add_special=False), engine.tokenize(" limits", add_special=False)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(" function" * 50 + " limits")
    types = read_header(TARGET)[0]["tokenizer.ggml.token_type"].data
    control = {token for token, kind in enumerate(types) if kind == 3}
    few = frequent_tokens(TARGET, corpus, len(control | set(often)))
    assert set(few) == control | set(often) and few == sorted(few)
    more = set(frequent_tokens(TARGET, corpus, len(control | set(often) | set(seldom)) + 5))
    assert more >= control | set(often) | set(seldom)
    assert len(more - control - set(often) - set(seldom)) == 5


def test_placeholders_are_no_frequent_tokens(tmp_path: Path) -> None:
    """Mistral's, Llama 3's and gpt-oss's targets have up to a thousand; what the text holds of them counts as words."""
    tokens = list(read_header(TARGET)[0]["tokenizer.ggml.tokens"].data)
    types = list(read_header(TARGET)[0]["tokenizer.ggml.token_type"].data)
    named = [token for token, kind in enumerate(types) if kind == 3]
    reserved = range(600, 900)
    for number in reserved:
        tokens[number], types[number] = b"<|reserved_%d|>" % number, 3
    keys = {
        "tokenizer.ggml.tokens": array(GGUFValueType.STRING, tokens),
        "tokenizer.ggml.token_type": array(GGUFValueType.INT32, types),
    }
    order = ordered(rewritten(TARGET, tmp_path / "reserved.gguf", keys), Counter({1500: 9, 650: 3, 1400: 2}))
    n = len(named)
    assert set(order[:n]) == set(named) and order[n : n + 3] == [1500, 650, 1400]
    assert set(order[-len(reserved) + 1 :]) == set(reserved) - {650} and len(set(order)) == len(order) == len(tokens)


def test_refusals(tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    head = ReducedHead.of([1, 5, 9], TARGET)
    with pytest.raises(ConvertError, match="DFlash 2 drafter") as error:
        requantize(Path(bundled_pair("dflash2").drafter), out, None, head=head)
    assert error.value.field == "selector_hidden.weight"
    with pytest.raises(ConvertError, match="must be of 0 to 1698"):
        requantize(DRAFTER, out, None, head=replace(head, tokens=(5, 1699)))
    with pytest.raises(ConvertError, match="not a drafter"):
        requantize(TARGET, out, None)
    requantize(DRAFTER, out, None, head=head)
    with pytest.raises(ConvertError, match="reduced vocabulary already"):
        requantize(out, tmp_path / "twice.gguf", None, head=head)
    with pytest.raises(ConvertError, match="cannot write"):
        requantize(DRAFTER, tmp_path / "none" / "out.gguf", None)

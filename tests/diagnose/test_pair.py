"""Pairing from two headers: real pairs pass, and each way of not fitting is found and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dflash_local.convert.gguf_metadata import Value, read_metadata
from dflash_local.convert.kinds import DFlash2
from dflash_local.convert.target import Target
from dflash_local.convert.writer import write_gguf
from dflash_local.demo.pocket import PAIRS, bundled_pair
from dflash_local.diagnose.architectures import TAPPED_ARCHS
from dflash_local.diagnose.finding import Level
from dflash_local.diagnose.pair import Drafter, check, compare
from dflash_local.errors import ModelError, PairError

Change = Callable[[dict[str, Value]], None]


def edited(path: Path, out: Path, change: Change) -> Path:
    """A copy of the header of `path` with `change` applied to its keys."""
    keys = read_metadata(path)
    change(keys)
    keys["general.architecture"] = replace(
        keys["general.architecture"], data=keys["general.architecture"].data.decode()
    )
    write_gguf(out, keys, [], lambda name, n: None)
    return out


def setting(key: str, data: Any) -> Change:
    def change(keys: dict[str, Value]) -> None:
        keys[key] = replace(keys[key], data=data)

    return change


def without(key: str) -> Change:
    def change(keys: dict[str, Value]) -> None:
        del keys[key]

    return change


def tokens(edit: Callable[[list[bytes]], list[bytes]]) -> Change:
    def change(keys: dict[str, Value]) -> None:
        value = keys["tokenizer.ggml.tokens"]
        keys["tokenizer.ggml.tokens"] = replace(value, data=edit(list(value.data)))

    return change


@pytest.mark.parametrize("drafter", PAIRS)
def test_bundled_pairs_fit(drafter: str) -> None:
    pair = bundled_pair(drafter)
    check(*pair)
    read = Drafter.read(pair.drafter)
    assert (read.kind is DFlash2) == (drafter == "dflash2")
    assert {finding.level for finding in compare(Target.read(pair.target), read)} == {Level.OK}


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        (setting("dflash.embedding_length", 512), "dflash.embedding_length", "512 wide, the target 256"),
        (setting("dflash.target_layers", [1, 3, 6]), "dflash.target_layers", "layer 6"),
        (setting("dflash.target_layers", [-1]), "dflash.target_layers", "layer -1"),
        (setting("dflash.block_size", 1), "dflash.block_size", "block size is 1"),
        (setting("dflash.block_size", 100), "dflash.block_size", "block size is 100"),
        (setting("tokenizer.ggml.mask_token_id", 1699), "tokenizer.ggml.mask_token_id", "1699 is not in"),
        (without("tokenizer.ggml.mask_token_id"), "tokenizer.ggml.mask_token_id", "-1 is not in"),
        (tokens(lambda t: t[1:]), "tokenizer.ggml.tokens", "1698 of 1698 tokens differ"),
        (tokens(lambda t: t[::-1]), "tokenizer.ggml.tokens", "1698 of 1699 tokens differ"),
    ],
)
def test_each_misfit_is_named(tmp_path: Path, change: Change, field: str, said: str) -> None:
    target, drafter = bundled_pair()
    with pytest.raises(PairError) as caught:
        check(target, edited(drafter, tmp_path / "drafter.gguf", change))
    assert caught.value.field == field
    assert said in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (tokens(lambda t: [*t[:-1], b"<pad>"]), "1 of 1699 tokens differ; the first is 1698: '<pad>' in the drafter"),
        (setting("tokenizer.ggml.pre", b"llama-bpe"), "pre-tokenizer 'llama-bpe' in the drafter"),
        (setting("dflash.target_layers", [1, 3, 3]), "listed twice"),
    ],
)
def test_small_differences_only_warn(tmp_path: Path, change: Change, said: str) -> None:
    target, drafter = bundled_pair()
    drafter = edited(drafter, tmp_path / "drafter.gguf", change)
    check(target, drafter)
    warnings = [f for f in compare(Target.read(target), Drafter.read(drafter)) if f.level is Level.WARN]
    assert len(warnings) == 1 and said in warnings[0].text


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda t: t[:-9], "1690 tokens, the same; the target has 9 more"),
        (lambda t: [*t, b"<a>", b"<b>"], "1699 tokens, the same; the drafter has 2 more"),
    ],
)
def test_padding_of_the_vocabulary_fits(tmp_path: Path, edit: Callable[[list[bytes]], list[bytes]], said: str) -> None:
    target, drafter = bundled_pair()
    drafter = edited(drafter, tmp_path / "drafter.gguf", tokens(edit))
    check(target, drafter)
    findings = list(compare(Target.read(target), Drafter.read(drafter)))
    assert {f.level for f in findings} == {Level.OK}
    assert next(f.text for f in findings if f.subject == "vocabulary").startswith(said)


def test_a_drafter_without_taps_is_a_misfit() -> None:
    target, drafter = bundled_pair()
    findings = list(compare(Target.read(target), replace(Drafter.read(drafter), taps=())))
    assert [f.subject for f in findings if f.level is Level.FAIL] == ["taps"]


@pytest.mark.parametrize("key", ["dflash.target_layers", "dflash.embedding_length", "tokenizer.ggml.tokens"])
def test_a_missing_key_is_a_model_error(tmp_path: Path, key: str) -> None:
    target, drafter = bundled_pair()
    with pytest.raises(ModelError) as caught:
        check(target, edited(drafter, tmp_path / "drafter.gguf", without(key)))
    assert caught.value.field == key and not isinstance(caught.value, PairError)


def test_swapped_files_say_so() -> None:
    target, drafter = bundled_pair()
    with pytest.raises(ModelError, match="not a target"):
        check(drafter, target)
    with pytest.raises(ModelError, match="not a DFlash drafter") as caught:
        check(target, target)
    assert "-md" in (caught.value.hint or "")


def test_architectures_without_taps_are_refused(tmp_path: Path) -> None:
    def become_exaone4(keys: dict[str, Value]) -> None:
        for key in [key for key in keys if key.startswith("qwen3.")]:
            keys["exaone4." + key.removeprefix("qwen3.")] = keys.pop(key)
        keys["general.architecture"] = replace(keys["general.architecture"], data=b"exaone4")

    target, drafter = bundled_pair()
    assert "exaone4" not in TAPPED_ARCHS
    with pytest.raises(PairError, match="'exaone4'") as caught:
        check(edited(target, tmp_path / "target.gguf", become_exaone4), drafter)
    assert caught.value.field == "general.architecture"


def test_every_truncation_of_a_header_is_a_model_error(tmp_path: Path) -> None:
    target, drafter = bundled_pair()
    whole = drafter.read_bytes()
    broken = tmp_path / "broken.gguf"
    for size in range(0, 20_000, 997):
        broken.write_bytes(whole[:size])
        with pytest.raises(ModelError):
            check(target, broken)


def test_a_rotation_that_was_copied_from_the_target(tmp_path: Path, pocket: dict[str, Path]) -> None:
    target, sound = Target.read(pocket["hybrid-target"]), pocket["hybrid-dflash"]
    assert target.arch.startswith("qwen35")
    assert not [finding for finding in compare(target, Drafter.read(sound)) if finding.subject == "rotation"]

    def quarter(keys: dict[str, Value]) -> None:
        keys["dflash.rope.dimension_count"] = replace(keys["dflash.attention.key_length"], data=4)

    drafter = edited(sound, tmp_path / "quarter drafter.gguf", quarter)
    (finding,) = [finding for finding in compare(target, Drafter.read(drafter)) if finding.subject == "rotation"]
    assert finding.level is Level.WARN and f"dflash-local convert '{drafter}' --target" in (finding.advice or "")
    plain = Target.read(bundled_pair().target)
    assert not [f for f in compare(plain, Drafter.read(drafter)) if f.subject == "rotation"]


@pytest.mark.parametrize("arch", ["dflash-draft", "gemma4-dflash-draft", "dspark"])
def test_another_dialect(tmp_path: Path, arch: str) -> None:
    target, drafter = bundled_pair()
    other = edited(drafter, tmp_path / "drafter.gguf", setting("general.architecture", arch.encode()))
    with pytest.raises(ModelError, match="another dialect") as caught:
        check(target, other)
    assert caught.value.field == "general.architecture"
    assert f"dflash-local convert {other} --target {target}" in (caught.value.hint or "")

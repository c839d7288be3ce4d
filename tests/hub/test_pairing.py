"""A target by name finds its drafter, checks it from headers, and both become files: on the command line and within."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from dflash_local.cli import main, parse
from dflash_local.cli.flags.engine_arguments import engine_options
from dflash_local.cli.flags.named_models import suggest, take_models
from dflash_local.convert.gguf_metadata import read_header, read_metadata, read_model, string
from dflash_local.convert.gguf_parts import part_paths
from dflash_local.convert.writer import OutputTensor, write_gguf
from dflash_local.demo.pocket import bundled_pair
from dflash_local.errors import DFlashError, HubError, ModelError, PairError, RequestError
from dflash_local.file_lock import locked
from dflash_local.hub import conversions
from dflash_local.hub.client import Hub
from dflash_local.hub.model_source import Source
from dflash_local.hub.pairing import Pairing
from dflash_local.hub.selection import Name
from tests.convert import samples
from tests.convert.dialect_samples import write_dialect
from tests.gguf_files import numbers, stored
from tests.server.live import serving

from .stand_in import StandIn, refuse

TARGET, DRAFTER = "user/Pocket-GGUF", "lab/Pocket-DFlash"
POCKET = {
    "architectures": ["DFlashDraftModel"],
    "block_size": 16,
    "dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 2, 4]},
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 256,
    "intermediate_size": 768,
    "max_position_embeddings": 4096,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "num_target_layers": 6,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "vocab_size": 1699,
}
pytestmark = pytest.mark.usefixtures("own_folders")

Make = Callable[..., Any]


@pytest.fixture
def target(endpoint: StandIn, pocket: dict[str, Path]) -> bytes:
    """The target's repository; the listing has what is not wanted first."""
    content = pocket["target"].read_bytes()
    endpoint.add(TARGET, {"README.md": b"#", "Pocket-F16.gguf": b"GGUF no", "Pocket-Q8_0.gguf": content})
    return content


@pytest.fixture(scope="module")
def weights(pocket: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The pocket drafter as a checkpoint, in two shards."""
    folder = tmp_path_factory.mktemp("checkpoint") / "Pocket-DFlash"
    samples.write_checkpoint(folder, POCKET, samples.tensors_of_drafter(pocket["dflash"]), dtype="F32", shards=2)
    return {path.name: path.read_bytes() for path in folder.iterdir()} | {"README.md": b"# drafter"}


@pytest.fixture
def checkpoint(endpoint: StandIn, weights: dict[str, bytes]) -> None:
    endpoint.add(DRAFTER, dict(weights), commit="c" * 40)


def register(tmp_path: Path, *drafters: dict[str, Any], **facts: Any) -> None:
    """The user's file says so of the target."""
    path = tmp_path / "config" / "dflash-local" / "pairs.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    entry = {"target": "Pocket", "repositories": ["pocket"], "drafters": list(drafters), **facts}
    path.write_text(json.dumps({"targets": [entry]}))


def args_of(*flags: str, command: str = "serve") -> Any:
    return parse([command, *flags])[1]


def taken(*flags: str) -> tuple[str, str | None]:
    models = take_models(args_of(*flags))
    return models.target, models.drafter


def weights_fetched(endpoint: StandIn) -> int:
    """Bytes of large files that were asked for."""
    total = 0
    for request in endpoint.requests:
        if request.host == "cdn" and request.range:
            first, last = re.findall(r"\d+", request.range)
            total += int(last) - int(first) + 1
    return total


def test_a_name_alone_finds_converts_and_keeps(
    endpoint: StandIn, target: bytes, checkpoint: None, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    pocket: dict[str, Path],
) -> None:  # fmt: skip
    register(tmp_path, {"repository": DRAFTER})
    model, drafter = taken("-hf", f"{TARGET}:Q8_0")
    assert Path(model).read_bytes() == target
    assert drafter and Path(drafter).parent == tmp_path / "own" / "drafters"
    keys = read_metadata(Path(drafter))
    assert keys["general.source.huggingface.repository"].data == DRAFTER.encode()
    assert keys["general.source.url"].data == f"https://huggingface.co/{DRAFTER}/tree/{'c' * 40}".encode()
    assert keys["general.name"].data == b"Pocket-DFlash"
    ours, shipped = numbers(Path(drafter)), numbers(pocket["dflash"])
    assert list(ours) == list(shipped)
    assert all(np.array_equal(ours[name], shipped[name]) for name in ours)  # but for the type of fc
    shown = capsys.readouterr().err
    assert "converting lab/Pocket-DFlash for Pocket-Q8_0.gguf" in shown and f"drafter: {DRAFTER}" in shown
    assert "100% of" in shown
    # The header of the target and those of the checkpoint came first, by ranges.
    ranges = [(r.path, r.range) for r in endpoint.requests if r.host == "cdn" and r.range]
    assert ranges[0] == (f"/{TARGET}/Pocket-Q8_0.gguf", "bytes=0-1048575")
    assert [r for p, r in ranges if "safetensors" in p][:2] == ["bytes=0-65535"] * 2

    # The second time nothing is downloaded or converted; and offline there is no request at all.
    endpoint.requests.clear()
    before = Path(drafter).stat().st_ino
    assert taken("-hf", TARGET) == (model, drafter)
    assert endpoint.paths("cdn") == [] and Path(drafter).stat().st_ino == before
    endpoint.requests.clear()
    assert taken("-hf", TARGET, "--offline") == (model, drafter)
    assert endpoint.requests == []


def test_another_commit_type_or_target_is_another_conversion(
    endpoint: StandIn, target: bytes, checkpoint: None, tmp_path: Path, pocket: dict[str, Path]
) -> None:
    first = taken("-hf", TARGET, "-hfd", DRAFTER)[1]
    endpoint.repositories[DRAFTER].commit = "d" * 40
    second = taken("-hf", TARGET, "-hfd", DRAFTER)[1]
    assert first and second and first != second and f"@{'d' * 12}-" in second
    assert main(["pull", TARGET, "-hfd", DRAFTER, "--outtype", "q4_k"]) == 0
    third = taken("-hf", TARGET, "-hfd", DRAFTER)[1]
    assert third and third.endswith("-q4_k.gguf")  # the one that was made last
    for outtype in ("f16", "q4_k"):  # or asked for
        assert main(["pull", TARGET, "-hfd", DRAFTER, "--outtype", outtype]) == 0
        assert str(taken("-hf", TARGET, "-hfd", DRAFTER)[1]).endswith(f"-{outtype}.gguf")
    other = tmp_path / "other.gguf"
    content = pocket["target"].read_bytes()
    other.write_bytes(content.replace(b"general.name", b"general.nema").replace(b"chat_template", b"chat_tamplete"))
    assert taken("-m", str(other), "-hfd", DRAFTER)[1] not in (first, second, third)


def test_a_type_without_a_conversion(
    endpoint: StandIn, target: bytes, pocket: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for flags, why in (
        (["--no-drafter"], "no drafter is wanted"),
        ([], "there is no drafter, and only checkpoints are converted"),
    ):
        assert main(["pull", TARGET, "--outtype", "q8_0", *flags]) == 1
        assert f"--outtype has no effect: {why}" in capsys.readouterr().err
    endpoint.repositories[TARGET].files["dflash-Pocket-F16.gguf"] = pocket["dflash"].read_bytes()
    assert main(["pull", TARGET, "--outtype", "q8_0"]) == 1
    assert "dflash-Pocket-F16.gguf is a GGUF, and only checkpoints" in capsys.readouterr().err


def test_what_a_conversion_says_is_noted_once(
    endpoint: StandIn, target: bytes, checkpoint: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the download and after it, the converter reads the same checkpoint."""
    config = POCKET | {"num_target_layers": 7}
    endpoint.repositories[DRAFTER].files["config.json"] = json.dumps(config).encode()
    warning = f"note: {DRAFTER}: num_target_layers is 7, but Pocket-Q8_0.gguf has 6 layers"
    for flags in (["--dry-run"], []):
        assert main(["pull", TARGET, "-hfd", DRAFTER, *flags]) == 0
        assert capsys.readouterr().err.count(warning) == 1


def test_a_conversion_that_another_process_makes(
    target: bytes, checkpoint: None, tmp_path: Path, make_hub: Make
) -> None:
    """It is waited for and taken. What a killed process left is removed before the next."""
    folder = tmp_path / "own" / "drafters"

    def fetched(hub: Hub) -> Path:
        with Pairing(hub) as pairing:
            pairing.hub_target(Name.parse(TARGET))
            pairing.hub_drafter(Name.parse(DRAFTER))
            path = pairing.fetch()[1]
        assert path
        return path

    folder.mkdir(parents=True)
    (folder / ".left.part").write_bytes(b"half")
    path = fetched(make_hub())
    assert not list(folder.glob("*.part"))
    path.unlink()
    hub, waits = make_hub(), threading.Event()
    hub.note = lambda text: waits.set() if "another process writes into" in text else None
    with ThreadPoolExecutor(1) as pool:
        with locked(folder / ".lock"):
            found = pool.submit(fetched, hub)
            assert waits.wait(60)
            path.write_bytes(b"theirs")
        assert found.result(60).read_bytes() == b"theirs"


def test_another_version_of_the_converter_replaces_what_was_made(
    endpoint: StandIn, target: bytes, checkpoint: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its type. What it would never find again does not stay for ever."""
    for outtype in ("f16", "q8_0"):
        assert main(["pull", TARGET, "-hfd", DRAFTER, "--outtype", outtype]) == 0
    other = tmp_path / "own" / "drafters" / "lab--Other@cccccccccccc-0-0-f16.gguf"
    other.write_bytes(b"of another checkpoint")
    lately, long_ago = sorted(other.parent.glob("lab--Pocket*-f16.gguf")), sorted(other.parent.glob("*-q8_0.gguf"))
    for path in (other, *long_ago):
        os.utime(path, (1e9 + 1, 1e9 + 1))
    assert len(lately) == len(long_ago) == 1
    monkeypatch.setattr(conversions, "_converter_hash", lambda: "0" * 8)
    drafter = taken("-hf", TARGET, "-hfd", DRAFTER)[1]
    assert drafter and drafter.endswith("-00000000-f16.gguf")
    assert set(other.parent.glob("*.gguf")) == {Path(drafter), other, *lately}


def test_the_converters_hash_is_of_what_a_conversion_runs() -> None:
    """A change of what reads GGUFs makes no conversion again."""
    code = "import sys, dflash_local.convert.conversion\n"
    code += "print(*(m.__file__ for name, m in sys.modules.items() if 'dflash_local.convert' in name), sep='\\n')"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(map(Path, out.splitlines())) == set(conversions.converter_files())


@pytest.mark.parametrize(("code", "hint"), [(errno.ENOSPC, "free some"), (errno.EACCES, "check its rights")])
def test_a_conversion_that_cannot_be_written(
    target: bytes, checkpoint: None, monkeypatch: pytest.MonkeyPatch, code: int, hint: str
) -> None:
    """There is no -o to give."""

    def no(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("dflash_local.convert.writer.write_gguf", no)
    with pytest.raises(HubError, match=r"own/drafters") as caught:
        taken("-hf", TARGET, "-hfd", DRAFTER)
    assert caught.value.hint and caught.value.hint.startswith(hint)
    assert "DFLASH_CACHE" in caught.value.hint and "-o" not in caught.value.hint


def test_a_new_commit_hides_nothing_until_it_is_there(
    endpoint: StandIn, target: bytes, checkpoint: None, pocket: dict[str, Path], waits: list[float]
) -> None:
    """Neither by a look at it, nor by a part of it."""
    old = taken("-hf", TARGET, "-hfd", DRAFTER)
    sidecar = pocket["dflash"].read_bytes()
    endpoint.add(TARGET, {"Pocket-Q8_0.gguf": target + b"0", "dflash-Pocket-F16.gguf": sidecar}, commit="e" * 40)
    weights = endpoint.repositories[DRAFTER].files | {"config.json": json.dumps(POCKET).encode() + b" "}
    endpoint.add(DRAFTER, weights, commit="f" * 40)
    assert main(["pull", TARGET, "-hfd", DRAFTER, "--dry-run"]) == 0

    def only_the_header(handler: Any, request: Any) -> bool:
        is_rest = request.host == "cdn" and "Pocket-Q8_0" in request.path and request.range != "bytes=0-1048575"
        if is_rest:
            refuse(404)(handler)
        return is_rest

    endpoint.faults.append(only_the_header)
    assert main(["pull", TARGET]) == 1  # only its drafter comes
    assert taken("-hf", TARGET, "-hfd", DRAFTER, "--offline") == old
    endpoint.faults.clear()
    new = taken("-hf", TARGET)
    assert new[0] != old[0] and taken("-hf", TARGET, "--offline") == new


def test_a_pinned_revision(endpoint: StandIn, target: bytes, checkpoint: None, tmp_path: Path) -> None:
    endpoint.repositories[DRAFTER].older = ("9a1996cc" + "0" * 32,)
    register(tmp_path, {"repository": DRAFTER, "revision": "9a1996cc"})
    drafter = taken("-hf", TARGET)[1]
    assert drafter and "@9a1996cc0000-" in drafter
    assert taken("-hf", TARGET, "--offline")[1] == drafter


def test_a_sidecar_comes_before_the_list(
    endpoint: StandIn, target: bytes, pocket: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = endpoint.repositories[TARGET].files
    files["dflash-Pocket-F16.gguf"] = pocket["dflash"].read_bytes()
    register(tmp_path, {"repository": DRAFTER})
    drafter = taken("-hf", TARGET)[1]
    assert drafter and Path(drafter).name == "dflash-Pocket-F16.gguf"
    assert [path for path in endpoint.paths() if DRAFTER in path] == []
    # By another spelling; and by its header another kind than its name says.
    del files["dflash-Pocket-F16.gguf"]
    files["Pocket-DSpark.F16.gguf"] = pocket["dflash2"].read_bytes()
    drafter = taken("-hf", TARGET)[1]
    assert drafter and Path(drafter).name == "Pocket-DSpark.F16.gguf"


def test_a_drafter_of_the_list_on_this_disk(
    endpoint: StandIn, target: bytes, pocket: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is taken where it is, also offline; one that is gone, or of another model, is passed over."""
    here = shutil.copy(pocket["dflash"], tmp_path / "here.gguf")
    files = [{"file": str(path)} for path in (tmp_path / "gone.gguf", pocket["hybrid-dflash"], here)]
    shape = {"architecture": "qwen3", "n_embd": 256, "n_layer": 6, "n_vocab": 1699}
    register(tmp_path, *files, shape=shape)
    for flags in ((), ("--offline",)):
        assert taken("-hf", TARGET, *flags)[1] == str(here)
        notes = capsys.readouterr().err
        assert f"{tmp_path / 'gone.gguf'} cannot be used: there is no such file" in notes
        assert f"{pocket['hybrid-dflash']} cannot be used: " in notes and f"note: drafter: {here}\n" in notes
    register(tmp_path, files[2], shape=shape)
    assert main(["pull", TARGET]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"drafter: {here}"


def test_a_local_file_takes_the_drafter_that_is_listed_for_its_name(
    pocket: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another name one line tells of it."""
    monkeypatch.setattr("socket.socket", None)
    shape = {"architecture": "qwen3", "n_embd": 256, "n_layer": 6, "n_vocab": 1699}
    here, other = str(pocket["dflash"]), str(pocket["hybrid-dflash"])
    register(tmp_path, {"repository": DRAFTER}, {"file": here}, shape=shape)
    named, finetune, broken = (str(tmp_path / f"{name}.gguf") for name in ("Pocket-Q8_0", "My-Pocket", "Pocket"))
    for path in (named, finetune):
        shutil.copy(pocket["target"], path)
    Path(broken).write_bytes(b"GGUF")
    assert taken("-m", named) == (named, here)
    assert capsys.readouterr().err == f"note: drafter: {here}\n"
    models = take_models(args_of("-m", named, "--draft-kind", "dflash"))
    suggest(models)
    assert models.drafter == here
    capsys.readouterr()
    for flags in (("--draft", "off"), ("--draft-kind", "lookup"), ("--draft-kind", "mtp")):
        assert taken("-m", named, *flags)[1] is None
    assert taken("-m", named, "-md", other)[1] == other
    assert taken("-m", broken)[1] is None
    gone = args_of("-m", str(tmp_path / "gone" / "Pocket.gguf"))
    assert take_models(gone, must_exist=False).drafter is None
    assert capsys.readouterr().err == ""
    register(tmp_path, {"file": here}, shape=shape)
    models = take_models(args_of("-m", finetune))
    suggest(models)
    assert models.drafter is None
    assert capsys.readouterr().err == f"note: a drafter is known for Pocket: add -md {here}\n"


def test_a_listed_file_that_does_not_fit_is_noted_once(
    pocket: dict[str, Path], untrained_mtp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model runs without it, as it does with a list that is wrong."""
    named = str(shutil.copy(pocket["target"], tmp_path / "Pocket-Q8_0.gguf"))

    def noted(*files: Path, **facts: Any) -> str:
        register(tmp_path, *({"file": str(file)} for file in files), **facts)
        models = take_models(args_of("-m", named))
        suggest(models)
        assert models.drafter is None
        return str(capsys.readouterr().err)

    other, theirs = pocket["hybrid-dflash"], write_dialect(tmp_path / "theirs.gguf", "B", pocket["dflash"])
    assert noted(other).startswith(f"note: {other} cannot be used: ") and noted(other).count("note: ") == 1
    assert f"{theirs} cannot be used: it is in another dialect (fix: 'dflash-local convert' rewrites it)" in noted(
        theirs
    )
    assert noted(tmp_path / "gone.gguf") == ""
    assert noted(pocket["dflash"], shape={"architecture": "qwen3", "n_embd": 128}) == ""
    assert "pairs.json: Pocket: 'n_embd' must be of type int" in noted(other, shape={"n_embd": "256"})


def test_next_token_layers_come_after_dflash_drafters(
    endpoint: StandIn, pocket: dict[str, Path], untrained_mtp: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of a file beside the model; none is needed where it has its own."""
    trunk, dflash = pocket["hybrid-target"].read_bytes(), pocket["hybrid-dflash"].read_bytes()
    files = {"P-Q8_0.gguf": trunk, "mtp-P-Q8_0.gguf": untrained_mtp.read_bytes(), "dflash-P-Q8_0.gguf": dflash}
    endpoint.add(TARGET, files)
    register(tmp_path, repositories=["other"])

    def drafter(*flags: str) -> str | None:
        path = taken("-hf", TARGET, *flags)[1]
        return path and Path(path).name

    assert drafter() == "dflash-P-Q8_0.gguf"
    assert drafter("--draft-kind", "mtp") == drafter("--spec-type", "draft-mtp") == "mtp-P-Q8_0.gguf"
    assert drafter("--draft-kind", "lookup") is drafter("--spec-type", "none") is None
    assert drafter("--spec-type", "ngram-mod") is None
    assert Path(taken("-m", str(pocket["hybrid-target"]), "-hfd", TARGET)[1] or "").name == "dflash-P-Q8_0.gguf"
    del endpoint.repositories[TARGET].files["dflash-P-Q8_0.gguf"]
    assert drafter() == "mtp-P-Q8_0.gguf"
    assert Path(taken("-m", str(pocket["hybrid-target"]), "-hfd", TARGET)[1] or "").name == "mtp-P-Q8_0.gguf"
    args = args_of("-hf", TARGET)
    assert engine_options(args, take_models(args))["drafter"].endswith("mtp-P-Q8_0.gguf")  # not to be rewritten
    capsys.readouterr()
    assert drafter("--draft-kind", "dflash") is None
    assert "no drafter is known" in capsys.readouterr().err
    endpoint.repositories[TARGET].files["P-Q8_0.gguf"] = untrained_mtp.read_bytes()
    shutil.rmtree(os.environ["LLAMA_CACHE"])
    assert drafter() is None
    assert "note: drafter: the model's own next-token (MTP) layers" in capsys.readouterr().err


@pytest.mark.parametrize("is_split", [False, True])
def test_layers_that_only_the_keys_count_hide_none_beside_them(
    endpoint: StandIn, pocket: dict[str, Path], untrained_mtp: Path, tmp_path: Path, is_split: bool
) -> None:
    """Some files lost their MTP layers and kept the keys. In a split one the layers are among the last parts."""

    def add(source: Path) -> None:
        path = tmp_path / "P-Q8_0.gguf"
        if is_split:
            path = samples.write_split(source, tmp_path / "P-Q8_0", lambda name: "nextn" in name)
        else:
            shutil.copy(source, path)
        parts = part_paths(path)
        mtp = {"mtp-P-Q8_0.gguf": pocket["hybrid-mtp"].read_bytes()}
        endpoint.add(
            TARGET, mtp | {part.name: part.read_bytes() for part in parts}, commit=f"{len(endpoint.requests):040}"
        )

    metadata, tensors = read_model(untrained_mtp)
    outputs = [OutputTensor.of(tensor) for name, tensor in tensors.items() if "nextn" not in name]
    write_gguf(tmp_path / "stripped.gguf", metadata, outputs)
    add(tmp_path / "stripped.gguf")
    drafter = taken("-hf", TARGET)[1]
    assert drafter and Path(drafter).name == "mtp-P-Q8_0.gguf"
    add(untrained_mtp)
    assert taken("-hf", TARGET)[1] is None


def test_a_sidecar_that_does_not_fit_is_passed_over(
    endpoint: StandIn, target: bytes, checkpoint: None, pocket: dict[str, Path], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    files = endpoint.repositories[TARGET].files
    files["dflash-Pocket-F16.gguf"] = pocket["hybrid-dflash"].read_bytes()
    files["dspark-Pocket-F16.gguf"] = pocket["target"].read_bytes()
    register(tmp_path, {"repository": DRAFTER})
    drafter = taken("-hf", TARGET)[1]
    assert drafter and "lab--Pocket-DFlash" in drafter
    shown = capsys.readouterr().err
    assert "dspark-Pocket-F16.gguf cannot be used: " in shown and "'qwen3' is no dialect of drafters" in shown
    assert "dflash-Pocket-F16.gguf cannot be used: " in shown
    # They were told from their headers alone: nothing of them is in the cache.
    assert sorted(path.name for path in Path(os.environ["LLAMA_CACHE"]).glob("**/snapshots/**/*.gguf")) == [
        "Pocket-Q8_0.gguf"
    ]


def test_without_a_drafter_that_can_be_used_decoding_is_plain(
    endpoint: StandIn, target: bytes, checkpoint: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    register(
        tmp_path, {"repository": "a/Gone"}, {"repository": "a/Gated"}, {"repository": "a/Odd", "refused": "odd layers"}
    )
    endpoint.add("a/Gated", {"config.json": b"{}", "model.safetensors": b"x" * 100}, gated=True)
    model, drafter = taken("-hf", TARGET)
    assert drafter is None and Path(model).read_bytes() == target
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("note: a/Gone cannot be used: a/Gone does not exist, or is private or gated (fix: ")
    assert lines[1].startswith("note: a/Gated cannot be used: a/Gated is gated (fix: accept its terms at ")
    assert lines[2] == "note: a/Odd cannot be used: odd layers"
    assert lines[3] == "note: no drafter of Pocket can be used: drafting by prompt lookup alone"
    register(tmp_path, none="its name is a secret")
    taken("-hf", TARGET)
    assert "no drafter of Pocket can be used (its name is a secret)" in capsys.readouterr().err
    register(tmp_path, repositories=["other"])
    taken("-hf", TARGET)
    assert f"no drafter is known for {TARGET}: drafting by prompt lookup alone" in capsys.readouterr().err


def test_offline_is_short_about_drafters_that_are_not_here(
    endpoint: StandIn, target: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken("-hf", TARGET, "--draft", "off")
    register(tmp_path, {"repository": "a/One"}, {"repository": "a/Two"})
    capsys.readouterr()
    assert taken("-hf", TARGET, "--offline")[1] is None
    assert capsys.readouterr().err == "note: no drafter of Pocket can be used: drafting by prompt lookup alone\n"


def test_an_architecture_without_taps_needs_no_drafter(
    endpoint: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = samples.write_target(tmp_path / "t.gguf", arch="gpt2").read_bytes()
    endpoint.add(TARGET, {"Pocket-Q8_0.gguf": content, "dflash-Pocket.gguf": b"GGUF"})
    assert taken("-hf", TARGET)[1] is None
    assert "gives out no hidden states of 'gpt2' models" in capsys.readouterr().err
    with pytest.raises(PairError, match="gives out no hidden states"):
        taken("-hf", TARGET, "-hfd", TARGET)


def test_draft_off_asks_for_none(endpoint: StandIn, target: bytes, tmp_path: Path) -> None:
    register(tmp_path, {"repository": DRAFTER})
    assert taken("-hf", TARGET, "--draft", "off")[1] is None
    assert [path for path in endpoint.paths() if DRAFTER in path] == []


def test_a_drafter_of_ones_own_is_kept(endpoint: StandIn, target: bytes, pocket: dict[str, Path]) -> None:
    assert taken("-hf", TARGET, "-md", str(pocket["dflash"]))[1] == str(pocket["dflash"])


@pytest.mark.parametrize(
    ("files", "flags", "expected"),
    [
        ({"dflash-a-Q8_0.gguf": "dflash", "dspark-a-Q8_0.gguf": "dflash2"}, (), "dspark-a-Q8_0.gguf"),
        ({"draft-Q4_K_M.gguf": "dflash"}, (), "draft-Q4_K_M.gguf"),
        ({"a-dflash-F16.gguf": "dflash", "a-dflash-Q8_0.gguf": "dflash"}, (":F16",), "a-dflash-F16.gguf"),
        (
            {"dflash-a-Q8_0.gguf": "dflash", "b.gguf": "dflash2"},
            ("", "-md", "b.gguf"),
            "b.gguf",
        ),
    ],
    ids=["dspark first", "no sidecar", "tag", "-md names a file in there"],
)
def test_drafters_by_name(
    endpoint: StandIn, target: bytes, pocket: dict[str, Path], files: dict[str, str], flags: tuple[str, ...],
    expected: str,
) -> None:  # fmt: skip
    endpoint.add(DRAFTER, {name: pocket[kind].read_bytes() for name, kind in files.items()})
    tag, more = (flags[0], flags[1:]) if flags else ("", ())
    model, drafter = taken("-m", str(pocket["target"]), "-hfd", DRAFTER + tag, *more)
    assert model == str(pocket["target"]) and drafter and Path(drafter).name == expected


def test_a_named_drafter_that_does_not_fit_is_an_error(
    endpoint: StandIn, target: bytes, checkpoint: None, tmp_path: Path, weights: dict[str, bytes],
    pocket: dict[str, Path],
) -> None:  # fmt: skip
    endpoint.repositories[DRAFTER].files = {"d.gguf": pocket["hybrid-dflash"].read_bytes()}
    with pytest.raises(PairError):
        taken("-hf", TARGET, "-hfd", DRAFTER)
    config = json.dumps(POCKET | {"hidden_size": 512}).encode()
    endpoint.repositories[DRAFTER].files = weights | {"config.json": config}
    with pytest.raises(DFlashError, match="hidden_size is 512"):
        taken("-hf", TARGET, "-hfd", DRAFTER)
    endpoint.repositories[DRAFTER].files = {"README.md": b"#"}
    with pytest.raises(HubError, match="lab/Pocket-DFlash holds no drafter"):
        taken("-hf", TARGET, "-hfd", DRAFTER)
    register(tmp_path, {"repository": DRAFTER, "refused": "odd layers"})
    with pytest.raises(PairError, match="lab/Pocket-DFlash cannot be used: odd layers"):
        taken("-hf", TARGET, "-hfd", DRAFTER)
    assert list(Path(os.environ["LLAMA_CACHE"]).glob("**/snapshots/**/*.gguf")) == []  # no weights came


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "is EAGLE"),
        ({"architectures": ["LlamaForCausalLM"]}, "the architecture is LlamaForCausalLM"),
        ({"hidden_size": 512}, "hidden_size is 512"),
        ({"hidden_size": None, "transformer_layer_config": {"hidden_size": 512}}, "hidden_size is 512"),
        ({"architectures": ["Gemma4AssistantForCausalLM"]}, "an assistant of Gemma 4, and the target is qwen3"),
    ],
)
def test_weights_of_torch_save_are_not_downloaded_in_vain(
    endpoint: StandIn, target: bytes, changes: dict[str, Any], why: str
) -> None:
    config = json.dumps(POCKET | changes).encode()
    endpoint.add(DRAFTER, {"config.json": config, "pytorch_model.bin": bytes(1000)})
    with pytest.raises(DFlashError, match=why):
        taken("-hf", TARGET, "-hfd", DRAFTER)
    assert not [path for path in endpoint.paths() if "pytorch_model.bin" in path]


def test_deepseek_v4s_own_drafter_is_refused_by_name(
    endpoint: StandIn, target: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"dflash.hyper_connection.count": 4, "dflash.target_layers": [1]}
    content = samples.write_target(tmp_path / "d.gguf", changes, arch="dflash").read_bytes()
    endpoint.repositories[TARGET].files["dspark-Pocket.gguf"] = content
    assert taken("-hf", TARGET)[1] is None
    assert "it is a DeepSeek-V4 drafter" in capsys.readouterr().err


@pytest.mark.parametrize("dialect", ["B", "A0"])
def test_other_dialects_are_rewritten_into_the_cache(
    endpoint: StandIn, target: bytes, pocket: dict[str, Path], tmp_path: Path, dialect: str, capsys: Any
) -> None:
    theirs = write_dialect(tmp_path / "theirs.gguf", dialect, pocket["dflash"])
    endpoint.add(DRAFTER, {"Pocket-DFlash.F16.gguf": theirs.read_bytes()})
    register(tmp_path, {"repository": DRAFTER})
    args = args_of("-hf", TARGET)
    models = take_models(args)
    drafter = Path(engine_options(args, models)["drafter"])
    assert drafter.parent == tmp_path / "own" / "drafters" and models.auto_convert
    ours, shipped = (read_header(path)[1].values() for path in (drafter, pocket["dflash"]))
    assert {t.name: stored(t).tobytes() for t in ours} == {t.name: stored(t).tobytes() for t in shipped}
    assert main(["pull", TARGET]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"drafter: {drafter}"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("-hf", f"{TARGET}:Q2_K"), "user/Pocket-GGUF holds no GGUF of type Q2_K"),
        (("-hf", TARGET, "-hff", "x.gguf"), "user/Pocket-GGUF holds no file x.gguf"),
        (("-hf", DRAFTER), "lab/Pocket-DFlash holds no GGUF"),
        (("-hf", "Pocket"), "'Pocket' names no repository"),
    ],
)
def test_targets_that_are_not_there(
    endpoint: StandIn, target: bytes, checkpoint: None, flags: tuple[str, ...], message: str
) -> None:
    with pytest.raises(HubError, match=message) as caught:
        taken(*flags)
    assert caught.value.hint


def test_a_file_of_a_repository(endpoint: StandIn, target: bytes, pocket: dict[str, Path]) -> None:
    endpoint.repositories[TARGET].files["other/Own.gguf"] = pocket["hybrid-target"].read_bytes()
    model, _ = taken("-hf", TARGET, "-hff", "other/Own.gguf")
    assert model.endswith("other/Own.gguf")


def test_a_preset_is_no_model(endpoint: StandIn, target: bytes) -> None:
    endpoint.repositories[TARGET].files["preset.ini"] = b"[x]"
    with pytest.raises(HubError, match="is a preset for llama-server's router"):
        taken("-hf", TARGET)


def test_a_file_that_is_no_model(endpoint: StandIn, target: bytes) -> None:
    with pytest.raises(ModelError, match=r"Pocket-F16\.gguf"):
        taken("-hf", f"{TARGET}:F16")


def test_split_models(endpoint: StandIn, target: bytes) -> None:
    parts = {f"q/P-Q8_0-0000{n}-of-00003.gguf": b"part %d" % n for n in (2, 3)}
    endpoint.add(TARGET, {"q/P-Q8_0-00001-of-00003.gguf": target, **parts})
    model, _ = taken("-hf", TARGET)
    assert model.endswith("q/P-Q8_0-00001-of-00003.gguf")
    assert [(Path(model).parent / Path(name).name).read_bytes() for name in parts] == list(parts.values())


@pytest.mark.parametrize("dialect", ["A", "B"])
def test_split_sidecars(
    endpoint: StandIn, target: bytes, pocket: dict[str, Path], tmp_path: Path, dialect: str
) -> None:
    """All parts of a drafter are downloaded, and what its headers say is told from all of them."""
    whole = pocket["dflash"] if dialect == "A" else write_dialect(tmp_path / "b.gguf", "B", pocket["dflash"])
    first = samples.write_split(whole, tmp_path / "dflash-Pocket-F16", lambda name: name.startswith("blk.1."))
    parts = [first, tmp_path / "dflash-Pocket-F16-00002-of-00002.gguf"]
    endpoint.repositories[TARGET].files.update({part.name: part.read_bytes() for part in reversed(parts)})
    drafter = taken("-hf", TARGET)[1]
    assert drafter and Path(drafter).name == first.name
    assert [(Path(drafter).parent / part.name).read_bytes() for part in parts] == [p.read_bytes() for p in parts]
    for part in parts:  # by name, too
        shutil.rmtree(os.environ["LLAMA_CACHE"])
        assert taken("-m", str(pocket["target"]), "-hfd", TARGET, "-md", part.name)[1] == drafter
        assert all((Path(drafter).parent / part.name).is_file() for part in parts)


def test_which_flag_counts(endpoint: StandIn, target: bytes, pocket: dict[str, Path], monkeypatch: Any) -> None:
    """A typed flag beats a variable; two typed ones are an error."""
    local = str(pocket["target"])
    with pytest.raises(RequestError, match="both name the target"):
        taken("-m", local, "-hf", TARGET)
    with pytest.raises(RequestError, match="no model is named"):
        taken()
    monkeypatch.setenv("LLAMA_ARG_MODEL", local)
    with pytest.raises(RequestError, match="both name the target"):  # though the variable says the same
        taken("-m", local, "-hf", TARGET)
    assert taken("-hf", TARGET, "--draft", "off")[0] != local
    assert taken("--draft", "off")[0] == local
    monkeypatch.delenv("LLAMA_ARG_MODEL")
    monkeypatch.setenv("LLAMA_ARG_HF_REPO", TARGET)
    assert taken("-m", local, "--draft", "off")[0] == local
    monkeypatch.setenv("LLAMA_ARG_HF_FILE", "Pocket-Q8_0.gguf")
    assert taken("--draft", "off")[0].endswith("Pocket-Q8_0.gguf")
    monkeypatch.setenv("LLAMA_ARG_OFFLINE", "1")
    endpoint.requests.clear()
    assert taken("--draft", "off")[0].endswith("Pocket-Q8_0.gguf") and endpoint.requests == []


def test_the_token_is_not_shown(endpoint: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with pytest.raises(SystemExit):
        args_of("--help")
    endpoint.fault("refs", refuse(403))
    assert main(["pull", TARGET]) == 1
    shown = capsys.readouterr()
    assert "hf_secret" not in shown.out + shown.err and "HF_TOKEN" in shown.out
    assert endpoint.requests[0].authorization == "Bearer hf_secret"


def test_a_hint_for_a_local_target(tmp_path: Path, pocket: dict[str, Path], capsys: Any, monkeypatch: Any) -> None:
    local = str(shutil.copy(pocket["target"], tmp_path / "My-Q8_0.gguf"))
    monkeypatch.setattr("socket.socket", None)
    assert taken("-m", local) == (local, None)
    assert capsys.readouterr().err == ""
    shape = {"architecture": "qwen3", "n_embd": 256, "n_layer": 6, "n_vocab": 1699}
    register(tmp_path, {"repository": "a/Odd", "refused": "x"}, {"repository": DRAFTER, "revision": "v1"}, shape=shape)

    def noted(*flags: str, facts: dict[str, Any] | None = None) -> str:
        models = take_models(args_of("-m", *flags))
        assert capsys.readouterr().err == ""  # not before the target is loaded
        for _ in range(2):
            suggest(models, facts)
        return str(capsys.readouterr().err)

    note = f"note: a drafter is known for Pocket: add -hfd {DRAFTER}@v1\n"
    assert noted(local) == noted(local, facts={"arch": "qwen3", "n_embd": 256}) == note
    assert noted(local, facts={"arch": "qwen3", "n_embd": 512}) == ""
    for flags in (("--draft", "off"), ("--spec-type", "none"), ("-md", str(pocket["dflash"]))):
        assert noted(local, *flags) == ""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    assert noted(str(broken)) == ""  # the engine will say


def test_pull(endpoint: StandIn, target: bytes, checkpoint: None, tmp_path: Path, capsys: Any) -> None:
    register(tmp_path, {"repository": DRAFTER})
    assert main(["pull", TARGET, "--dry-run"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == [f"target:  {TARGET}/Pocket-Q8_0.gguf", f"drafter: {DRAFTER}"]
    assert out[2].endswith(f"{TARGET}/Pocket-Q8_0.gguf") and out[-1].endswith("  to download") and len(out) == 6
    assert main(["pull", "-hf", TARGET, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == out
    assert not (tmp_path / "own" / "drafters").exists()
    assert main(["pull", TARGET]) == 0
    lines = capsys.readouterr().out.splitlines()
    model, drafter = (Path(line.split(None, 1)[1]) for line in lines)
    assert model.read_bytes() == target and drafter.is_file()
    assert main(["pull", TARGET, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == ["   0 bytes  to download"]
    assert main(["pull", TARGET, "--no-drafter", "--offline"]) == 0
    assert capsys.readouterr().out == f"target:  {model}\n"
    assert main(["pull", "--target", str(model), "-hfd", DRAFTER, "--offline"]) == 0
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize("flags", [[], ["--target", "x.gguf"], [TARGET, "--target", "x.gguf"], [TARGET, "-hf", "x/y"]])
def test_pull_of_nothing(flags: list[str], capsys: Any) -> None:
    assert main(["pull", *flags]) == 1
    assert "fix: give" in capsys.readouterr().err


def test_convert_takes_a_target_by_name(
    endpoint: StandIn, target: bytes, weights: dict[str, bytes], tmp_path: Path, cache_folder: Path
) -> None:
    folder = tmp_path / "Pocket-DFlash"
    folder.mkdir()
    for name, content in weights.items():
        (folder / name).write_bytes(content)
    assert main(["convert", str(folder), "--target", f"{TARGET}:Q8_0", "-o", str(tmp_path / "d.gguf"), "-q"]) == 0
    assert (tmp_path / "d.gguf").stat().st_size > 1000
    assert list(cache_folder.glob("**/*.gguf")) == []  # only the header came
    assert main(["convert", str(folder), "--target", "none/none.gguf", "-o", str(tmp_path / "e.gguf")]) == 1
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("one two three " * 100)
    more = ["--draft-vocab", "512", "--corpus", str(corpus), "-q", "-o", str(tmp_path / "r.gguf")]
    assert main(["convert", str(folder), "--target", TARGET, *more]) == 0
    # rows of the target's own head are in there, so the whole target came
    (model,) = cache_folder.glob("**/*.gguf")
    rows, head = (read_header(path)[1]["output.weight"] for path in (tmp_path / "r.gguf", model))
    kept = read_header(tmp_path / "r.gguf")[1]["d2t"].rows(0, 1).view(np.int64)[0]
    assert (rows.rows(0, 1) == head.rows(kept[0], kept[0] + 1)).all() and rows.rows(0, 512).any()


def test_quantize_takes_a_target_by_name(endpoint: StandIn, target: bytes, tmp_path: Path, capsys: Any) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("Count from 10 to 40 in steps of 3.\n")
    drafter = str(bundled_pair().drafter)
    small = ["--types", "f16", "-p", str(prompts), "-n", "8", "--repeat", "1", "-t", "1", "-c", "512"]
    assert main(["quantize", drafter, "--target", TARGET, *small]) == 0
    assert "recommended: f16" in capsys.readouterr().out
    assert main(["quantize", drafter, "--target", "none/none", *small]) == 1


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "no ranges"])
def test_headers_longer_than_the_first_request(
    make_hub: Make, endpoint: StandIn, target: bytes, monkeypatch: pytest.MonkeyPatch, ranges: bool
) -> None:
    from dflash_local.hub import headers

    endpoint.ranges = ranges
    monkeypatch.setattr(headers, "_GGUF_STEPS", (64, 5000, 1 << 20))
    with Pairing(make_hub()) as pairing:
        pairing.hub_target(Name.parse(TARGET))
        assert (pairing.header().arch, pairing.header().n_vocab) == ("qwen3", 1699)
    asked = [request.range for request in endpoint.requests if request.host == "cdn"]
    assert asked[:2] == ["bytes=0-63", "bytes=64-4999"] and len(asked) == 3


def test_a_long_header_costs_at_most_twice_its_length(
    make_hub: Make, endpoint: StandIn, pocket: dict[str, Path], tmp_path: Path
) -> None:
    """That of a vocabulary of 150,000 tokens has 6 MB, and a pair has two."""
    metadata, tensors = read_model(pocket["target"])
    text = "x" * (6 << 20)
    path = tmp_path / "long.gguf"
    write_gguf(path, metadata | {"general.license": string(text)}, [OutputTensor.of(one) for one in tensors.values()])
    endpoint.add(TARGET, {"a.gguf": path.read_bytes() + bytes(16 << 20)})
    with Pairing(make_hub()) as pairing:
        pairing.hub_target(Name.parse(TARGET))
        assert pairing.header().n_vocab == 1699
    assert len(text) < weights_fetched(endpoint) <= 2 * len(text)


def test_a_header_that_never_ends_is_given_up(make_hub: Make, endpoint: StandIn, monkeypatch: Any) -> None:
    from dflash_local.hub import headers

    monkeypatch.setattr(headers, "_GGUF_STEPS", (64, 128))
    endpoint.add(TARGET, {"a.gguf": b"GGUF\3\0\0\0" + b"\1" + b"\0" * 7 + b"\xff" * 500})
    with Pairing(make_hub()) as pairing:
        pairing.hub_target(Name.parse(TARGET))
        with pytest.raises(ModelError, match="is damaged"):
            pairing.header()
    safetensors = b"\xff" * 8 + b"{}" * 100
    config = json.dumps(POCKET).encode()
    endpoint.add(DRAFTER, {"config.json": config, "model.safetensors": safetensors})
    with pytest.raises(HubError, match="claims a header of"), Pairing(make_hub()) as pairing:
        pairing.local_target(Path(__file__).parents[2] / "dflash_local" / "demo" / "pocket-target.gguf")
        pairing.hub_drafter(Name.parse(DRAFTER))


def fails_to_find_the_drafter(hub: Hub, says: str) -> HubError:
    with pytest.raises(HubError, match=says) as caught, Pairing(hub) as pairing:
        pairing.hub_target(Name.parse(TARGET))
        pairing.hub_drafter(Name.parse(DRAFTER))
    return caught.value


def test_a_checkpoint_whose_settings_are_large(
    make_hub: Make, endpoint: StandIn, target: bytes, checkpoint: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dflash_local.hub import headers

    monkeypatch.setattr(headers, "_LARGEST_SMALL", 1000)
    error = fails_to_find_the_drafter(make_hub(), f"index.json of {DRAFTER} has .*kB, more than any file")
    assert error.hint == "name a drafter's repository"
    assert not any("index.json" in path for path in endpoint.paths())


def test_a_folder_of_temporary_files_that_takes_nothing(
    make_hub: Make, target: bytes, checkpoint: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dflash_local.hub import headers

    def no(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for module, name in ((tempfile, "TemporaryDirectory"), (headers, "extend")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, no)
            error = fails_to_find_the_drafter(make_hub(), "cannot write a temporary file: No space left")
        assert error.hint == "free some, or point TMPDIR at a larger disk"


def test_a_size_that_no_file_can_have(make_hub: Make, target: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = make_hub()
    with Pairing(hub) as pairing:
        pairing.hub_target(Name.parse(TARGET))
        pairing.target = Source(files=(replace(pairing.target.files[0], size=1 << 70),))
        with pytest.raises(HubError, match="none that a file can have"):
            pairing.header()


def test_serve_by_name(endpoint: StandIn, target: bytes, checkpoint: None, tmp_path: Path) -> None:
    """The whole way, in a process of its own: a name, an answer, drafted."""
    register(tmp_path, {"repository": DRAFTER})
    with serving(["-hf", f"{TARGET}:Q8_0", "-c", "512", "-t", "1", "--budget", "8"]) as (_, url):
        assert httpx.get(url + "/v1/models").json()["data"][0]["id"] == f"{TARGET}:Q8_0"
        body = {"messages": [{"role": "user", "content": "What is 48 plus 24?"}], "temperature": 0}
        answer = httpx.post(url + "/v1/chat/completions", json=body, timeout=60).json()
    assert answer["timings"]["draft_n"] > 0


@pytest.mark.parametrize("command", ["doctor", "bench", "chat"])
def test_every_command_takes_names(
    endpoint: StandIn, target: bytes, checkpoint: None, tmp_path: Path, command: str
) -> None:
    register(tmp_path, {"repository": DRAFTER})
    more = {"bench": ["-n", "4", "--repeat", "1"], "chat": ["-n", "4"]}.get(command, [])
    run = subprocess.run(
        [sys.executable, "-m", "dflash_local.cli", command, "-hf", TARGET, "-c", "512", "-t", "1", *more],
        input="Hello\n", capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert f"note: drafter: {DRAFTER}" in run.stderr
    expected = {"doctor": "DFlash, 16 tokens, mask token 3", "bench": "speed-up", "chat": ""}[command]
    assert expected.lower() in run.stdout.lower()

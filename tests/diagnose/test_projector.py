"""Projectors by their headers: those that fit pass, and each way of not fitting is found and named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFValueType

from dflash_local.cli import main
from dflash_local.convert.gguf_metadata import Value, array, string, u32
from dflash_local.demo.pocket import bundled_pair
from dflash_local.diagnose.companions import projector_beside
from dflash_local.diagnose.finding import Level
from dflash_local.diagnose.projector import (
    KINDS,
    Projector,
    check_options,
    check_projector,
    compare_projector,
    input_width,
)
from dflash_local.diagnose.projector_findings import look_at_projector
from dflash_local.engine import Engine
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import DFlashError, ModelError, PairError, RequestError
from tests.gguf_files import rewritten
from tests.media.tiny_projectors import PROJECTORS, write
from tests.projector_files import projector_file
from tests.server.llama_flags import pinned_source

TARGET = bundled_pair().target
GPU = {"devices": [{"name": "CPU", "type": "cpu"}, {"name": "CUDA0", "type": "gpu"}]}


@pytest.fixture
def fitting(tmp_path: Path) -> Path:
    return projector_file(tmp_path / "mmproj-F16.gguf")


def test_kinds_are_those_of_the_pinned_source() -> None:
    names = pinned_source("tools/mtmd/clip-impl.h").partition("PROJECTOR_TYPE_NAMES = {")[2].partition("};")[0]
    assert {*re.findall(r'"([^"]+)"', names)} == KINDS


def test_one_that_fits(fitting: Path) -> None:
    found = check_projector(TARGET, fitting)
    assert (found.kinds, found.reads, found.quantization) == ({"vision": "gemma3"}, ("images",), "F16")
    findings = [*compare_projector(TARGET, found)]
    assert {finding.level for finding in findings} == {Level.OK}
    assert findings[0].text == "gemma3, reads images, F16"


@pytest.mark.parametrize(
    ("keys", "field", "said"),
    [
        ({"clip.vision.projection_dim": 512}, "clip.vision.projection_dim", "are 512 wide, those of pocket-target"),
        ({"clip.projector_type": "of-tomorrow"}, "clip.projector_type", "computes no projectors of the kind 'of-tom"),
        ({"clip.projector_type": None}, "clip.projector_type", "computes no projectors of the kind ''"),
        ({"clip.has_vision_encoder": None}, "clip.has_vision_encoder", "reads neither images nor audio"),
        ({"clip.has_vision_encoder": 1}, "clip.has_vision_encoder", "'clip.has_vision_encoder' is of the wrong type"),
        ({"clip.vision.projection_dim": "w"}, "clip.vision.projection_dim", "is of the wrong type"),
        (
            {"clip.projector_type": Value(GGUFValueType.STRING, b"\xff")},
            "clip.projector_type",
            "computes no projectors of the kind",
        ),
        ({"general.architecture": "llama"}, "general.architecture", "is a GGUF of the type 'mmproj', not a projector"),
        (
            {"general.architecture": "llama", "general.type": None},
            "general.architecture",
            "is a model (llama), not a projector",
        ),
        ({"general.architecture": "eagle3", "general.type": None}, "general.architecture", "is a drafter (eagle3), "),
    ],
)
def test_one_that_does_not_fit(tmp_path: Path, keys: dict[str, Any], field: str, said: str) -> None:
    path = projector_file(tmp_path / "mmproj.gguf", keys=keys)
    with pytest.raises(ModelError, match=re.escape(said)) as caught:
        check_projector(TARGET, path)
    assert caught.value.field == field and caught.value.hint


def test_audio_beside_images(tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "clip.projector_type": None, "clip.vision.projector_type": "gemma4v", "clip.has_audio_encoder": True,
        "clip.audio.projector_type": "gemma4a", "clip.audio.projection_dim": 256,
    }  # fmt: skip
    found = check_projector(TARGET, projector_file(tmp_path / "a.gguf", keys=keys))
    assert found.reads == ("images", "audio")
    assert next(compare_projector(TARGET, found)).text == "gemma4v and gemma4a, reads images and audio, F16"
    wrong = projector_file(tmp_path / "b.gguf", keys={**keys, "clip.audio.projection_dim": 128})
    with pytest.raises(PairError, match="are 128 wide") as caught:
        check_projector(TARGET, wrong)
    assert caught.value.field == "clip.audio.projection_dim"
    stem = {"v.conv_stem.conv.weight": (8, 3, 3, 3)}
    no_audio = projector_file(tmp_path / "c.gguf", keys={**keys, "clip.vision.projector_type": "gemma3nv"}, more=stem)
    assert Projector.read(no_audio).reads == ("images",)  # mtmd leaves it out


def test_deepstack_makes_wider_rows(tmp_path: Path) -> None:
    """Both sides count the layers that get rows of their own."""
    layers = {f"v.deepstack.{n}.fc1.weight": (64, 64) for n in (0, 1)}
    seeing = {"clip.projector_type": "qwen3vl_merger"}
    path = projector_file(tmp_path / "mmproj.gguf", keys=seeing, more=layers)
    target = rewritten(TARGET, tmp_path / "t.gguf", {"qwen3.n_deepstack_layers": u32(2)})
    assert input_width(target) == 3 * 256 and Projector.read(path).widths == {"vision": 3 * 256}
    check_projector(target, path)
    with pytest.raises(PairError, match=r"are 768 wide, those of pocket-target\.gguf 256"):
        check_projector(TARGET, path)
    mapping = array(GGUFValueType.INT32, [-1, 0, 1, 0, -1, -1])
    granite = rewritten(TARGET, tmp_path / "g.gguf", {"qwen3.deepstack_mapping": mapping})
    nonsense = {"qwen3.deepstack_mapping": string("x"), "qwen3.n_deepstack_layers": string("x")}
    assert input_width(rewritten(TARGET, tmp_path / "n.gguf", nonsense)) == 256
    features = {"clip.projector_type": "granite4_vision", "clip.vision.feature_layer": mapping}
    assert input_width(granite) == 3 * 256
    assert Projector.read(projector_file(tmp_path / "v.gguf", keys=features)).widths == {"vision": 6 * 256}


@pytest.mark.parametrize(
    ("kind", "more", "width"),
    [
        ("mlp", {"mm.2.weight": (256, 32)}, 256),
        ("mlp", {"mm.2.weight": (64, 32), "mm.3.bias": (256,)}, 256),
        ("resampler", {"resampler.proj.weight": (32, 256)}, 256),
    ],
)
def test_old_kinds_show_their_width_by_tensors(
    tmp_path: Path, kind: str, more: dict[str, tuple[int, ...]], width: int
) -> None:
    """Their projection_dim is another size."""
    keys = {"clip.projector_type": kind, "clip.vision.projection_dim": 768}
    path = projector_file(tmp_path / "mmproj.gguf", keys=keys, more=more)
    assert Projector.read(path).widths == {"vision": width}
    check_projector(TARGET, path)
    with pytest.raises(ModelError, match="is damaged: it lacks the tensor"):
        Projector.read(projector_file(path, keys=keys))


def test_a_missing_first_tensor(tmp_path: Path) -> None:
    """mtmd would crash without it."""
    path = projector_file(tmp_path / "mmproj.gguf", keys={"clip.projector_type": "gemma3nv"})
    with pytest.raises(ModelError, match=r"mmproj\.gguf is damaged: it lacks the tensor 'v\.conv_stem\.weight'"):
        check_projector(TARGET, path)
    Projector.read(projector_file(path, keys={"clip.projector_type": "dots3note_v"}))
    path.write_bytes(projector_file(path).read_bytes().replace(b"v.patch_embd.", b"v.other_embd."))
    with pytest.raises(ModelError, match=r"it lacks the tensor 'v\.patch_embd\.weight'"):
        check_projector(TARGET, path)


def test_swapped_arguments(fitting: Path) -> None:
    with pytest.raises(ModelError, match=r"mmproj-F16\.gguf is a projector, not a model") as caught:
        check_projector(fitting, TARGET)
    assert caught.value.hint == "-m and --mmproj are swapped"
    with pytest.raises(ModelError, match="is a projector, not a model"):
        check_projector(fitting, fitting)


@pytest.mark.parametrize("drafter", [None, bundled_pair().drafter])
def test_an_engine_refuses_it_before_loading(tmp_path: Path, fitting: Path, drafter: Path | None) -> None:
    check_options(EngineOptions(TARGET, mmproj=fitting))
    with pytest.raises(ModelError, match=r"cannot read .*none\.gguf"):
        Engine(TARGET, drafter, mmproj=tmp_path / "none.gguf")
    with pytest.raises(ModelError, match=r"pocket-dspark.gguf is a drafter \(dflash\), not a projector"):
        Engine(TARGET, drafter, mmproj=bundled_pair("dspark").drafter)
    with pytest.raises(ModelError, match="is a projector, not a model"):
        Engine(fitting, drafter, mmproj=TARGET)


def test_sizes_of_images_must_not_contradict() -> None:
    with pytest.raises(RequestError, match="image_min_tokens is 65, more than image_max_tokens, 64") as caught:
        EngineOptions(TARGET, image_min_tokens=65, image_max_tokens=64)
    assert caught.value.param == "image_min_tokens"
    assert EngineOptions(TARGET, image_min_tokens=65).image_max_tokens == 0


# ---- doctor ----


def said(**options: Any) -> list[str]:
    return [str(finding) for finding in look_at_projector(EngineOptions(**{"model": TARGET, **options}), GPU)]


def test_doctor_tells_of_it(fitting: Path) -> None:
    text = "\n".join(said(mmproj=fitting))
    assert "  OK  file            mmproj-F16.gguf, " in text
    assert "  OK  projector       gemma3, reads images, F16" in text
    assert "  OK  projector width 256" in text
    assert "  OK  projector       computed on CUDA0" in text
    assert "computed on the CPU" in "\n".join(said(mmproj=fitting, mmproj_offload=False))
    assert "computed on the CPU" in "\n".join(said(mmproj=fitting, device="none"))
    assert "computed on CUDA1" in "\n".join(said(mmproj=fitting, device="CUDA1,CUDA0"))
    assert "computed on CUDA0" in "\n".join(said(mmproj=fitting, device="RPC0,CUDA0"))
    assert "computed on the CPU" in "\n".join(said(mmproj=fitting, device="RPC0"))
    assert "FAIL  projector " in "\n".join(said(mmproj=bundled_pair().drafter))


def test_doctor_finds_the_one_beside_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "some model" / "M-Q8_0.gguf"
    model.parent.mkdir()
    model.symlink_to(TARGET)
    assert said(model=model) == []
    path = projector_file(model.parent / "mmproj-F16.gguf")
    (finding,) = said(model=model)
    assert "none is used, so the model reads text alone; with mmproj-F16.gguf beside it, images, too" in finding
    assert f"-> add --mmproj '{path}'" in finding
    projector_file(path, 512)
    assert said(model=model) == []  # another model's
    main(["doctor", "-m", str(path), "--mmproj", str(model)])
    assert "-m and --mmproj are swapped" in capsys.readouterr().out


def test_which_one_lies_beside(tmp_path: Path) -> None:
    model = tmp_path / "M-Q8_0.gguf"
    assert projector_beside(model) is None
    for name in ("mmproj-M-F32.gguf", "mmproj-M-F16.gguf", "other.gguf"):
        (tmp_path / name).write_bytes(b"")
    assert projector_beside(model) == tmp_path / "mmproj-M-F16.gguf"
    (tmp_path / "M-mmproj-Q8_0.gguf").write_bytes(b"")
    assert projector_beside(model) == tmp_path / "M-mmproj-Q8_0.gguf"
    assert projector_beside(tmp_path / "none" / "M.gguf") is None


def test_a_damaged_file_is_one_error(fitting: Path) -> None:
    data = fitting.read_bytes()
    for length in (0, 3, 20, 200, 1000, 2000):
        fitting.write_bytes(data[:length])
        with pytest.raises(DFlashError):
            check_projector(TARGET, fitting)


@pytest.mark.parametrize("name", PROJECTORS)
def test_a_projector_of_each_kind_fits_its_model(tmp_path: Path, name: str) -> None:
    """mtmd loads these pairs (tests/media)."""
    files = write(name, tmp_path)
    found = check_projector(files.model, files.mmproj)
    assert set(found.widths.values()) == {input_width(files.model)}
    made = PROJECTORS[name]
    assert found.reads == (("images", "audio") if name == "qwen2.5o" else ("audio",) if made.audio else ("images",))

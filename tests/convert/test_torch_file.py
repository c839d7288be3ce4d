"""Files of torch.save, read without torch: against real torch, and against those who mean harm."""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_local.convert import convert, torch_file, zip_records
from dflash_local.convert.checkpoint import Checkpoint
from dflash_local.convert.safetensors_file import StoredTensor, read_header
from dflash_local.convert.torch_file import read_torch_file, read_torch_tensors
from dflash_local.errors import ConvertError

from . import samples

torch = pytest.importorskip("torch")
FORMATS = {"zip": True, "before torch 1.6": False}


def numbers(stored: StoredTensor) -> Any:
    """The tensor in the shape that it has in its file."""
    return stored.rows(0, stored.n_rows).reshape(stored.shape)


def same(stored: StoredTensor, tensor: Any) -> bool:
    """Whether every number is read as torch would give it."""
    expected = tensor.detach()
    expected = expected.numpy() if tensor.dtype == torch.int64 else expected.to(torch.float32).numpy()
    return stored.shape == tuple(tensor.shape) and bool(np.array_equal(numbers(stored), expected))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_types(tmp_path: Path, form: str, dtype: str) -> None:
    tensors = {
        "matrix": torch.randn(7, 5).to(getattr(torch, dtype)),
        "cube": torch.randn(2, 3, 4).to(getattr(torch, dtype)),
        "scalar": torch.tensor(2.5).to(getattr(torch, dtype)),
        "none": torch.zeros(0, 4).to(getattr(torch, dtype)),
        "ids": torch.tensor([3, -4, 2**40]),
    }
    torch.save(tensors, tmp_path / "x.bin", _use_new_zipfile_serialization=FORMATS[form])
    read = read_torch_file(tmp_path / "x.bin")
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read[name].name == name
        assert same(read[name], tensor), name
    assert np.array_equal(read["matrix"].rows(2, 4), tensors["matrix"][2:4].to(torch.float32).numpy())


@pytest.mark.parametrize("form", FORMATS)
def test_views_and_shared_storages(tmp_path: Path, form: str) -> None:
    whole = torch.randn(6, 8)
    tensors = {
        "whole": whole,
        "rows": whole[2:4],
        "transposed": whole.t(),
        "columns": whole[:, 1:7:2],
        "column": whole[:, 3],
        "cube": whole.view(2, 3, 8).permute(2, 0, 1),
        "tied": whole,
        "one": whole[3:4, 5:6],
    }
    torch.save(tensors, tmp_path / "x.bin", _use_new_zipfile_serialization=FORMATS[form])
    read = read_torch_file(tmp_path / "x.bin")
    for name, tensor in tensors.items():
        assert same(read[name], tensor), name
    assert np.array_equal(read["cube"].rows(5, 9), tensors["cube"].reshape(-1, 3)[5:9].numpy())
    assert (tmp_path / "x.bin").stat().st_size < 6000  # the storage is there once


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_module_and_a_mask_embedding(tmp_path: Path, form: str, protocol: int) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    options = {"_use_new_zipfile_serialization": FORMATS[form], "pickle_protocol": protocol}
    torch.save(module.state_dict(), tmp_path / "m.bin", **options)  # an ordered dictionary with attributes
    assert {tensor.name for tensor in read_torch_tensors(tmp_path / "m.bin")} == module.state_dict().keys()
    torch.save({"mask_token_id": 151669, "embedding": torch.ones(4)}, tmp_path / "mask_embedding.pt", **options)
    mask = read_torch_file(tmp_path / "mask_embedding.pt")
    assert mask["mask_token_id"] == 151669
    assert np.array_equal(mask["embedding"].rows(0, 1), np.ones((1, 4)))


def test_a_file_from_a_stream(tmp_path: Path) -> None:
    """Its records lie in a folder with a name of its own."""
    stream = io.BytesIO()
    torch.save({"a": torch.ones(3)}, stream)
    (tmp_path / "x.pt").write_bytes(stream.getvalue())
    assert numbers(read_torch_file(tmp_path / "x.pt")["a"]).tolist() == [1, 1, 1]


def write_bin(directory: Path, settings: samples.Config, shards: int = 0) -> Path:
    """The sample checkpoint as `pytorch_model.bin`, or in shards with an index."""
    directory.parent.mkdir(exist_ok=True)
    samples.write_checkpoint(directory, settings, shards=shards)
    for path in sorted(directory.glob("*.safetensors*")):
        name = path.name.replace("model", "pytorch_model").replace(".safetensors", ".bin")
        if path.suffix == ".json":
            text = path.read_text().replace('"model-', '"pytorch_model-').replace(".safetensors", ".bin")
            (directory / name).write_text(text)
        else:
            tensors = {t.name: torch.from_numpy(numbers(t)).bfloat16() for t in read_header(path)}
            torch.save(tensors, directory / name)
        path.unlink()
    return directory


@pytest.mark.parametrize("shards", [0, 3])
def test_conversion_gives_the_same_file(tmp_path: Path, checkpoint: Path, target: Path, shards: int) -> None:
    directory = write_bin(tmp_path / "bin" / "drafter", samples.config(), shards)
    for source, name in ((checkpoint, "safetensors.gguf"), (directory, "bin.gguf")):
        convert(source, target, tmp_path / name)
    assert (tmp_path / "bin.gguf").read_bytes() == (tmp_path / "safetensors.gguf").read_bytes()


def test_safetensors_come_first(tmp_path: Path) -> None:
    directory = samples.write_checkpoint(tmp_path / "drafter", samples.config())
    (directory / "pytorch_model.bin").write_bytes(b"not looked at")
    assert {t.path.suffix for t in Checkpoint.open(directory).tensors.values()} == {".safetensors"}


def test_shards_of_torch(tmp_path: Path) -> None:
    directory = write_bin(tmp_path / "drafter", samples.config(), 2)
    (directory / "pytorch_model.bin.index.json").unlink()
    assert "fc.weight" in Checkpoint.open(directory).tensors
    (directory / "pytorch_model-00001-of-00002.bin").unlink()
    with pytest.raises(ConvertError, match="1 of 2 shards are there"):
        Checkpoint.open(directory)


def test_only_tensors_make_a_checkpoint(tmp_path: Path) -> None:
    directory = write_bin(tmp_path / "drafter", samples.config())
    torch.save({"state_dict": {"a": torch.ones(1)}}, directory / "pytorch_model.bin")
    with pytest.raises(ConvertError, match="'state_dict' is a dict, not a tensor") as error:
        Checkpoint.open(directory)
    assert error.value.field == "state_dict"


# ---- hostile files ---------------------------------------------------------------------------------------------------

PICKLED_ONE = b"\x80\x02}X\x01\x00\x00\x00aK\x01s."  # {"a": 1}


def archive(path: Path, data: bytes = PICKLED_ONE, records: dict[str, bytes] | None = None, **options: Any) -> Path:
    """A zip archive as torch makes it, with this pickle and these storages."""
    with zipfile.ZipFile(path, "w", **options) as file:
        file.writestr("x/data.pkl", data)
        for name, content in (records or {}).items():
            file.writestr(f"x/{name}", content)
    return path


def tensor_pickle(
    *, dtype: str = "FloatStorage", key: str = "0", count: Any = 6, start: Any = 0, shape: Any = (2, 3),
    strides: Any = (3, 1), call: bytes = b"ctorch._utils\n_rebuild_tensor_v2\n", rest: Any = (),
) -> bytes:  # fmt: skip
    """{"a": a tensor}, with every part as the test wants it."""

    def plain(value: Any) -> bytes:
        return pickle.dumps(value, protocol=2)[2:-1]

    storage = b"(" + plain("storage") + b"ctorch\n" + dtype.encode() + b"\n" + plain(key) + plain("cpu") + plain(count)
    arguments = plain(start) + plain(shape) + plain(strides) + plain(False) + b"ccollections\nOrderedDict\n)R"
    return b"\x80\x02}" + plain("a") + call + b"(" + storage + b"tQ" + arguments + b"".join(map(plain, rest)) + b"tRs."


def refused(path: Path) -> ConvertError:
    with pytest.raises(ConvertError) as error:
        read_torch_file(path)
    assert path.name in error.value.message
    return error.value


def test_the_builders_of_hostile_files_make_sound_ones(tmp_path: Path) -> None:
    stored = read_torch_file(archive(tmp_path / "x.pt", tensor_pickle(), {"data/0": bytes(24)}))["a"]
    assert numbers(stored).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert read_torch_file(archive(tmp_path / "y.pt")) == {"a": 1}


class Call:
    """Pickled, it is a call."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.reduced = (function, arguments)

    def __reduce__(self) -> Any:
        return self.reduced


CALLS: dict[str, tuple[Any, str]] = {
    "shell": (Call(os.system, "touch HACKED"), "posix.system"),
    "eval": (Call(eval, "open('HACKED', 'w')"), "eval"),
    "import": (Call(__import__, "HACKED"), "__import__"),
    "getattr": (Call(getattr, "text", "upper"), "getattr"),
    "numpy": (np.ones(3), "numpy"),
    "parameter": (torch.nn.Parameter(torch.ones(2)), "torch._utils._rebuild_parameter"),
}


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("case", CALLS)
def test_calls_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, protocol: int) -> None:
    monkeypatch.chdir(tmp_path)
    value, name = CALLS[case]
    for new in FORMATS.values():
        path = tmp_path / "x.pt"
        torch.save({"a": value}, path, _use_new_zipfile_serialization=new, pickle_protocol=protocol)
        error = refused(path)
        assert name in error.message and "not run" in error.message
        assert not (tmp_path / "HACKED").exists()


PICKLES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "damaged"),
    "no end": (b"\x80\x02}", "damaged"),
    "nothing on the stack": (b"\x80\x02.", "no operand"),
    "only a mark": (b"\x80\x02(.", "no operand"),
    "no mark": (b"\x80\x02t.", "no operand"),
    "unknown instruction": (b"\x80\x02\xff.", "damaged"),
    "old instance": (b"(ios\nsystem\n.", "uses INST"),
    "object": (b"\x80\x02ccollections\nOrderedDict\n)\x81.", "uses NEWOBJ"),
    "extension": (b"\x80\x02\x82\x01.", "uses EXT1"),
    "huge memo": (b"\x80\x02}r\xff\xff\xff\x7f.", ""),
    "memo without value": (b"\x80\x02h\x05.", "damaged"),
    "call of a dictionary": (b"\x80\x02})R.", "calls what is no function"),
    "call of a storage": (b"\x80\x02ctorch\nFloatStorage\n)R.", "calls what is no function"),
    "arguments are a list": (b"\x80\x02ccollections\nOrderedDict\n]R.", "calls what is no function"),
    "dictionary with arguments": (b"\x80\x02ccollections\nOrderedDict\n}\x85R.", "has arguments"),
    "items of a list": (b"\x80\x02]X\x01\x00\x00\x00aK\x01s.", "sets items of what is no dictionary"),
    "append to a dictionary": (b"\x80\x02}K\x01a.", "damaged"),
    "key is a list": (b"\x80\x02}]K\x01s.", "is not a string"),
    "key twice": (b"\x80\x02}X\x01\x00\x00\x00aK\x01sX\x01\x00\x00\x00aK\x02s.", "there twice"),
    "attributes of a storage": (b"\x80\x02ctorch\nFloatStorage\n}b.", "attributes of what has none"),
    "a list": (b"\x80\x02].", "no dictionary"),
    "persistent nonsense": (b"\x80\x02K\x01Q.", "no storage"),
    "claims a long string": (b"\x80\x02X\xff\xff\xff\x7fa.", "damaged"),
    "endless digits": (b"I" + b"9" * 100_000 + b"\n.", "uses INT"),
    "name on the stack": (b"\x80\x04K\x01K\x02\x93.", "damaged"),
    "key of nested tuples": (b"\x80\x02})" + b"\x85" * 1_000_000 + b"K\x01s.", "is not a string"),
    "attributes of a call": (b"\x80\x02ccollections\nOrderedDict\n}b.", "attributes of what has none"),
}


@pytest.mark.parametrize("case", PICKLES)
def test_bad_pickles(tmp_path: Path, case: str) -> None:
    data, message = PICKLES[case]
    path = archive(tmp_path / "x.pt", data)
    if not message:  # sound, only odd
        assert read_torch_file(path) == {}
    else:
        assert message in refused(path).message


TENSORS: dict[str, tuple[dict[str, Any], str]] = {
    "storage is missing": ({"key": "1"}, "storage '1' is missing"),
    "storage is elsewhere": ({"key": "../data.pkl"}, "is missing"),
    "storage is smaller": ({"count": 7}, "24 bytes for 7 elements of F32"),
    "storage has another type": ({"dtype": "HalfStorage"}, "24 bytes for 6 elements of F16"),
    "negative count": ({"count": -6}, "has no size"),
    "count is a text": ({"count": "6"}, "no storage"),
    "unknown storage": ({"dtype": "QUInt8Storage"}, "torch.QUInt8Storage"),
    "too many rows": ({"shape": (3, 3)}, "exceed its storage of 6"),
    "starts late": ({"start": 1}, "exceed its storage of 6"),
    "starts early": ({"start": -1}, "not whole numbers"),
    "long strides": ({"strides": (4, 1)}, "exceed its storage of 6"),
    "negative strides": ({"strides": (-3, 1)}, "not whole numbers"),
    "repeated without end": ({"shape": (2**40, 3), "strides": (0, 1)}, "exceed its storage of 6"),
    "overflow": ({"shape": (2**62, 2**62), "strides": (0, 0)}, "exceed its storage of 6"),
    "huge size": ({"shape": (2**64, 3)}, "not whole numbers"),
    "sizes are a list": ({"shape": [2, 3]}, "not whole numbers"),
    "sizes are truths": ({"shape": (True, True)}, "not whole numbers"),
    "fewer strides": ({"strides": (1,)}, "not whole numbers"),
    "many dimensions": ({"shape": (1,) * 9, "strides": (1,) * 9}, "9 dimensions"),
    "negated": ({"rest": ({"neg": True},)}, "negated"),
    "more arguments": ({"rest": ({}, 1)}, "wrong number of arguments"),
}


@pytest.mark.parametrize("case", TENSORS)
def test_bad_tensors(tmp_path: Path, case: str) -> None:
    parts, message = TENSORS[case]
    assert message in refused(archive(tmp_path / "x.pt", tensor_pickle(**parts), {"data/0": bytes(24)})).message


def test_bad_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, zeros = tmp_path / "x.pt", bytes(24)
    archive(path, tensor_pickle(), {"data/0": zeros}, compression=zipfile.ZIP_DEFLATED)
    assert "compressed" in refused(path).message
    raw = archive(path, tensor_pickle(), {"data/0": zeros}).read_bytes()
    path.write_bytes(raw[:-1])
    assert "truncated" in refused(path).message
    path.write_bytes(raw[:10])
    assert "truncated" in refused(path).message
    path.write_bytes(b"PK\x03\x04")
    assert "truncated" in refused(path).message
    with pytest.warns(UserWarning, match="Duplicate"):
        archive(path, tensor_pickle(), {"data/0": zeros, "data.pkl": b"."})
    assert "listed twice" in refused(path).message
    archive(path, tensor_pickle(), {"data/0": zeros, "byteorder": b"big"})
    assert "little-endian" in refused(path).message
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x/other", b"")
    assert "0 data.pkl" in refused(path).message
    at = raw.index(b"PK\x01\x02", raw.index(b"PK\x01\x02") + 1)
    path.write_bytes(raw[: at + 8] + b"\x01" + raw[at + 9 :])
    assert "encrypted" in refused(path).message
    path.write_bytes(raw[: at + 42] + struct.pack("<I", 0) + raw[at + 46 :])  # the storage is laid over the pickle
    assert "begins inside another" in refused(path).message or "truncated" in refused(path).message
    monkeypatch.setattr(zip_records, "MAX_CONTENTS_BYTES", 40)
    path.write_bytes(raw)
    assert "list of contents takes" in refused(path).message
    monkeypatch.undo()
    monkeypatch.setattr(torch_file, "MAX_PICKLE_BYTES", 40)
    assert "40 are allowed" in refused(path).message


def test_other_files(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    for content in (b"", b"PK", b"GGUF" * 100, pickle.dumps({"a": 1}), pickle.dumps(Call(os.system, "true"))):
        path.write_bytes(content)
        refused(path)
    assert "cannot read" in refused(tmp_path / "missing.pt").message
    (tmp_path / "folder.pt").mkdir()
    assert "cannot read" in refused(tmp_path / "folder.pt").message


def test_a_truncated_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"a": torch.randn(40), "b": torch.randn(3)}, path, _use_new_zipfile_serialization=False)
    raw = path.read_bytes()
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        refused(path)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "seeds", [range(400), pytest.param(range(400, 8000), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_fuzz(tmp_path: Path, form: str, seeds: range) -> None:
    """A damaged file is refused, or its tensors can be read."""
    path = tmp_path / "x.pt"
    tensors = {"matrix": torch.randn(6, 5), "view": torch.randn(4, 4).t(), "half": torch.randn(9).half(), "n": 3}
    torch.save(tensors, path, _use_new_zipfile_serialization=FORMATS[form])
    sound = path.read_bytes()
    n_refused = 0
    for seed in seeds:
        rng, raw = random.Random(seed), sound
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(raw))
            match rng.randrange(4):
                case 0:
                    raw = raw[:at] + bytes([raw[at] ^ 1 << rng.randrange(8)]) + raw[at + 1 :]
                case 1:
                    raw = raw[:at] + rng.randbytes(rng.randrange(1, 9)) + raw[at + rng.randrange(9) :]
                case 2:
                    raw = raw[:at] + rng.choice([b"\xff\xff\xff\xff", bytes(4)]) + raw[at + 4 :]
                case _:
                    raw = raw[: max(at, 1)] if rng.random() < 0.2 else raw
        path.write_bytes(raw)
        try:
            for stored in read_torch_file(path).values():
                if isinstance(stored, StoredTensor) and stored.dtype in ("F32", "F16", "BF16", "F64", "I64"):
                    assert numbers(stored).shape == stored.shape
        except ConvertError:
            n_refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
    assert n_refused > 0.2 * len(seeds)


PEAK = """
import re, sys
from pathlib import Path
from dflash_local.convert.torch_file import read_torch_file
from dflash_local.errors import ConvertError

def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

before = peak()
try:
    print({name: t.rows(3, 5).shape for name, t in read_torch_file(Path(sys.argv[1])).items()})
except ConvertError as error:
    print(error.message)
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc/self/status")
def test_peak_memory(tmp_path: Path) -> None:
    """Two rows of 100 MB, and pickles that are nothing but instructions to allocate."""
    path = tmp_path / "x.pt"

    def measured() -> tuple[str, float]:
        run = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True)
        text, mib = run.stdout.splitlines()
        return text, float(mib)

    torch.save({"view": torch.zeros(250, 100_000)[:, 1:], "tensor": torch.zeros(250, 100_000)}, path)
    text, mib = measured()
    assert text == "{'view': (2, 99999), 'tensor': (2, 100000)}" and mib < 40
    archive(path, b"\x80\x02}" + b"r\xff\xff\xff\x7f" * 1000 + b".")
    assert measured()[1] < 20
    archive(path, b"\x80\x02" + b"}" * (torch_file.MAX_PICKLE_BYTES - 10))
    text, mib = measured()
    assert "damaged" in text and mib < 250
    with zipfile.ZipFile(path, "w") as archived:
        for index in range(30_000):
            archived.writestr(zipfile.ZipInfo(f"{index:x}"), b"")
    text, mib = measured()
    assert "0 data.pkl" in text and mib < 100
    with path.open("ab") as file:  # a sparse file of 64 GiB whose end claims all of it as a list of contents
        file.truncate(2**36)
        file.seek(2**36)
        file.write(struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, 2**36, 0))
        file.write(
            struct.pack("<4sIQI4s4H2IH", b"PK\x06\x07", 0, 2**36, 1, b"PK\x05\x06", *[0xFFFF] * 4, *[2**32 - 1] * 2, 0)
        )
    text, mib = measured()
    assert "list of contents takes" in text and mib < 20

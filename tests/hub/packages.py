"""A stand-in for a package index: wheels in a folder, which pip finds by its own configuration."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path

from dflash_local.hub.packaged_models import PackagedModel, Part

from .stand_in import COMMIT

REPO, FILE = "user/Tiny-GGUF", "tiny.gguf"


@dataclass(frozen=True)
class Index:
    """The folder of wheels."""

    folder: Path

    def add(self, package: str, path: str, content: bytes) -> None:
        """Put a wheel there with one file besides what every wheel has."""
        info = f"{package}-1.0.dist-info"
        facts = {
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": "",
        }
        with zipfile.ZipFile(self.folder / f"{package}-1.0-py3-none-any.whl", "w") as wheel:
            for name, text in facts.items():
                wheel.writestr(name, text)
            wheel.writestr(f"{package}/{path}", content)

    def remove(self, package: str) -> None:
        """Take a wheel away."""
        (self.folder / f"{package}-1.0-py3-none-any.whl").unlink()

    def model(self, content: bytes, n_parts: int = 1) -> PackagedModel:
        """A model in `n_parts` packages, which are added."""
        size = -(-len(content) // n_parts)
        names = [f"tiny{n}" for n in range(1, n_parts + 1)]
        for i, name in enumerate(names):
            self.add(name, f"data/{name}.bin", content[i * size : (i + 1) * size])
        parts = tuple(Part(name, "1.0", f"data/{name}.bin") for name in names)
        return PackagedModel("Tiny", len(content), hashlib.sha256(content).hexdigest(), parts, size, REPO, COMMIT, FILE)

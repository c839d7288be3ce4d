"""The pinned source's own server tests, out of the source package that the build fetches; never in the repository."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path

from dflash_local.build.log import BuildLog
from dflash_local.build.peer import pin
from dflash_local.cache_dir import cache_dir
from tests.media.samples import picture, saved

# What the tests read besides themselves: chat templates.
_PARTS = ("tools/server/tests/", "models/templates/")


def source_tree() -> Path:
    """The part of llama.cpp's tree that the tests need, unpacked once into the cache. It must not be written to."""
    upstream = pin()
    tree = cache_dir() / "server-tests" / upstream.sha256[:16]
    if not tree.is_dir():
        tree.parent.mkdir(parents=True, exist_ok=True)
        with BuildLog(cache_dir() / "logs" / "server-tests.log") as log:
            archive = upstream.fetch(log)
        root = f"{archive.name.removesuffix('.tar.gz')}/vendor/llama.cpp/"
        with tempfile.TemporaryDirectory(dir=tree.parent) as scratch, tarfile.open(archive) as tar:
            # Trusted: its hash is checked. As in dflash_local/build/upstream.py.
            tar.extraction_filter = tarfile.data_filter if hasattr(tarfile, "data_filter") else None
            for member in tar:
                path = member.name.removeprefix(root)
                if member.isfile() and path != member.name and path.startswith(_PARTS):
                    member.name = path
                    tar.extract(member, scratch)
            Path(scratch, "tree").mkdir()
            for part in ("tools", "models"):
                Path(scratch, part).replace(Path(scratch, "tree", part))
            try:
                Path(scratch, "tree").rename(tree)
            except OSError:  # another process was faster
                if not tree.is_dir():
                    raise
    return tree


def working_copy(folder: Path) -> Path:
    """The tests' folder inside a copy of the tree below `folder`: they write into it, and find templates by `../`."""
    tree = source_tree()
    tests = folder / "tools" / "server" / "tests"
    shutil.copytree(tree / "tools" / "server" / "tests", tests)
    (folder / "models").symlink_to(tree / "models", target_is_directory=True)
    (tests / "tmp").mkdir(exist_ok=True)
    photograph = folder / "tools" / "mtmd" / "test-1.jpeg"  # which the source package leaves out
    photograph.parent.mkdir()
    photograph.write_bytes(saved(picture(64, 48), "JPEG"))
    return tests

"""`--auto-convert`: a drafter's GGUF of another dialect, rewritten into the cache."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from dflash_local.cli.terminal.notes import note
from dflash_local.cli.terminal.progress import Progress
from dflash_local.convert.gguf_glance import Glance
from dflash_local.convert.gguf_metadata import pack_metadata
from dflash_local.convert.gguf_parts import part_paths
from dflash_local.convert.relabel import VERSION, Relabelling, relabel
from dflash_local.diagnose.mtp_layers import is_split_off
from dflash_local.hub.drafter_folder import drafter_folder, write_once


def auto_convert(drafter: Path, target: Path) -> Path:
    """`drafter` itself if it is in llama.cpp's dialect, as MTP layers are, else a copy in the cache, rewritten for
    `target`.

    It is rewritten only if the drafter's file, the target's tokenizer or this code has changed. Of several processes
    one writes, the others wait. Raises ConvertError (drafter), ModelError (target) or HubError (cache).
    """
    if is_split_off(drafter, Glance.of(target).architecture):
        return drafter
    relabelling = relabel(drafter, target)
    if not relabelling.is_needed:
        return drafter
    path = drafter_folder() / f"{drafter.stem}-{_key(relabelling)}.gguf"
    write_once(path, lambda: _write(relabelling, path), note)
    return path


def _key(relabelling: Relabelling) -> str:
    """A hash of everything that is written: the new header, including the target's tokenizer, and the identity of the
    file with the weights."""
    stats = [part.stat() for part in part_paths(relabelling.source)]
    files = [(stat.st_size, stat.st_mtime_ns) for stat in stats]
    tensors = [(tensor.name, tensor.shape, int(tensor.type)) for tensor in relabelling.tensors]
    known = repr((VERSION, files, tensors)).encode()
    return hashlib.sha256(known + pack_metadata(relabelling.metadata)).hexdigest()[:16]


def _write(relabelling: Relabelling, path: Path) -> None:
    print(f"rewriting {relabelling.source.name} (dialect {relabelling.dialect.name}) as {path}", file=sys.stderr)
    for text in relabelling.notes:
        note(text)
    with Progress() as progress:
        relabelling.write(path, progress)

"""The headers of a target, its drafter and its projector as files, to plan their memory before they are downloaded.

The files have the sizes of the real ones, and no weights. A drafter that a download would convert or rewrite is written
so here, in the folder of temporary files: nothing without weights gets among the kept drafters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dflash_local import convert as converter
from dflash_local.convert.gguf_parts import Parts
from dflash_local.convert.relabel import relabel
from dflash_local.convert.target import Target
from dflash_local.diagnose.mtp_layers import is_split_off
from dflash_local.errors import ConvertError
from dflash_local.hub import cache_space
from dflash_local.hub.headers import checkpoint_headers, gguf_header, temporary_folder
from dflash_local.hub.model_source import Source
from dflash_local.hub.pairing import Pairing
from dflash_local.native import quantize_rows


@dataclass(frozen=True)
class PairHeaders:
    """Files to read instead of the models. Those that are on this disk are the models themselves."""

    target: Path
    drafter: Path | None
    projector: Path | None


@contextmanager
def pair_headers(pairing: Pairing) -> Iterator[PairHeaders]:
    """The headers of what a pairing has chosen, as long as this is open. Only torch.save's weights, whose index is at
    their end, are downloaded and converted. Raises DFlashError."""
    with ExitStack() as stack:
        target, drafter, projector = pairing.whole_header(), pairing.drafter, pairing.projector
        yield PairHeaders(
            target.path,
            stack.enter_context(_drafter_header(pairing, drafter, target)) if drafter else None,
            stack.enter_context(gguf_header(pairing.hub, projector)) if projector else None,
        )


@contextmanager
def _drafter_header(pairing: Pairing, drafter: Source, target: Target) -> Iterator[Path | None]:
    if drafter.path:
        yield drafter.path
    elif not drafter.is_checkpoint:
        with gguf_header(pairing.hub, *drafter.files) as path, _in_our_dialect(path, target) as ours:
            yield ours
    elif pairing.converted() or len(drafter.early_files) < len(drafter.files):
        yield pairing.fetch_drafter()
    else:
        with _converted_header(pairing, drafter, target) as path:
            yield path


@contextmanager
def _in_our_dialect(drafter: Path, target: Target) -> Iterator[Path]:
    """A drafter's header, rewritten if --auto-convert would rewrite the file."""
    if is_split_off(drafter, target.arch) or not (found := relabel(drafter, target.path)).is_needed:
        yield drafter
        return
    with _written(Parts.of(drafter.name).prefix, partial(found.write, hollow=True)) as path:
        yield path


@contextmanager
def _converted_header(pairing: Pairing, drafter: Source, target: Target) -> Iterator[Path]:
    """The header of the GGUF that a checkpoint would become."""
    first = drafter.files[0]

    def write(output: Path) -> None:
        converter.convert(
            checkpoint, target.path, output, outtype=pairing.type_of(first), ggml=quantize_rows,
            origin=(first.repo, first.commit), hollow=True,
        )  # fmt: skip

    name = first.repo.rpartition("/")[2]
    with checkpoint_headers(pairing.hub, drafter.files) as checkpoint, _written(name, write) as path:
        yield path


@contextmanager
def _written(name: str, write: Callable[[Path], object]) -> Iterator[Path]:
    """The GGUF `name` in a folder of its own, as `write` writes it. Raises HubError if the disk does not take it."""
    with temporary_folder() as folder:
        path = folder / f"{name}.gguf"
        try:
            write(path)
        except ConvertError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            raise cache_space.failed(folder, error.__cause__, variable="TMPDIR") from None
        yield path

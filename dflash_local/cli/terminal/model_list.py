"""The list of models on this disk: for each its drafter, and the command that serves it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from dflash_local.cli.terminal.notes import visible
from dflash_local.words import file_size_text

if TYPE_CHECKING:
    from dflash_local.hub.local_models import LocalModel, LocalModels
    from dflash_local.hub.local_pairs import Drafting

_WIDEST = 60
_TITLES = ("name", "size", "type", "program", "reads", "drafter")


@dataclass(frozen=True)
class Row:
    """A model of the list, and how it would be drafted for."""

    model: LocalModel
    drafting: Drafting

    @property
    def flags(self) -> tuple[str, ...]:
        """For `serve` and `chat`."""
        return (*self.model.flags, *self.drafting.flags)

    @property
    def command(self) -> str:
        return shlex.join(("dflash-local", "serve", *self.flags))

    def cells(self) -> tuple[str, ...]:
        """As shown, without control characters."""
        model = self.model
        size, kind = file_size_text(model.size), model.quantization or "?"
        reads = ", ".join(("text", *model.media))
        return tuple(map(visible, (model.name, size, kind, model.program, reads, str(self.drafting))))

    def to_json(self) -> dict[str, Any]:
        model, drafting = self.model, self.drafting
        return {
            "name": model.name,
            "also": list(model.also),
            "program": model.program,
            "path": str(model.path.absolute()),
            "size": model.size,
            "quantization": model.quantization or None,
            "architecture": model.glance.architecture,
            "drafting": drafting.way,
            "drafter": drafting.drafter or None,
            "drafter_is_here": drafting.is_here,
            "next_token_layers": drafting.next_token_layers,
            "projector": str(model.projector.absolute()) if model.projector else None,
            "reads": ["text", *model.media],
            "serve": self.command,
        }


def rows_of(found: LocalModels) -> list[Row]:
    """Models with a drafter first, among them those whose drafter is here, then models with MTP layers, and of equals
    models for `-hf`. If the user's list of pairs is wrong, which `pairs` reports, only ours counts."""
    from dflash_local.errors import HubError
    from dflash_local.hub.local_pairs import LocalPairs

    try:
        pairs = LocalPairs.of(found)
    except HubError:
        pairs = LocalPairs([], found.drafters)
    return sorted((Row(model, pairs.drafting(model)) for model in found.models), key=_order)


def _order(row: Row) -> tuple[object, ...]:
    from dflash_local.hub.local_pairs import Way

    way = get_args(Way).index(row.drafting.way)
    return way, not row.drafting.is_here, not row.model.is_named, row.model.name.lower()


def table(rows: Sequence[Row]) -> Iterator[str]:
    """A line of titles, then two lines for each model: what it is, and the command that serves it."""
    cells = [_TITLES, *(row.cells() for row in rows)]
    widths = [min(max(len(line[column]) for line in cells), _WIDEST) for column in range(len(_TITLES) - 1)]
    for index, line in enumerate(cells):
        name, size, *others, drafter = line
        middle = "  ".join(f"{text:<{width}}" for text, width in zip(others, widths[2:], strict=True))
        yield f"  {name:<{widths[0]}}  {size:>{widths[1]}}  {middle}  {drafter}".rstrip()
        if index:
            yield visible(f"      {rows[index - 1].command}")

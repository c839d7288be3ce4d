"""AdaptedPair: a target with the drafter that learns from its answers, its folder, and the command that trains it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_local.child_process import module_command
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import DFlashError, ModelError, RequestError
from dflash_local.train.written_texts import identity

if TYPE_CHECKING:
    from dflash_local.convert.gguf_metadata import StoredGgufTensor

FLAG = "--adapt"
NO_DRAFTER = "there is no drafter file that could learn"
_EPOCHS = 4
_SLOTS = 4  # with which `train` measures in any case
_STEM = 48  # letters of the target's name in that of the folder


@dataclass
class AdaptedPair:
    """A target with its drafter, and where its adaptation keeps what. `drafter`: the one in use, and `original` that of
    the command line."""

    target: Path
    original: Path
    drafter: Path
    folder: Path
    n_ctx: int
    machine: list[str]

    @classmethod
    def of(cls, options: EngineOptions, parent: Path, n_ctx: int, n_gpu_layers: int = -1) -> AdaptedPair:
        """`n_gpu_layers`: that of rounds. Raises RequestError for a drafter that is none, or not trained here."""
        assert options.drafter is not None
        target, drafter = Path(options.model), Path(options.drafter)
        _check_trained(drafter, target)
        digest = hashlib.sha256(f"{identity(target)} {identity(drafter)}".encode()).hexdigest()[:8]
        machine = [] if options.n_threads is None else ["--threads", str(options.n_threads)]
        machine += [] if n_gpu_layers < 0 else ["--n-gpu-layers", str(n_gpu_layers)]
        # The process has a current folder of its own.
        folder = parent.absolute() / f"{target.stem[:_STEM]}-{digest}"
        return cls(target.absolute(), drafter.absolute(), drafter.absolute(), folder, n_ctx, machine)

    def command(self, length: int) -> Sequence[str]:
        """What a round runs: a drafter of the same form, as it would be drafted with. Raises ModelError."""
        return (
            *module_command("dflash_local.cli"), "train", "--background",
            "--model", str(self.target), "--init", str(self.drafter), "--data", str(self.texts),
            "--output", str(self.new), "--work", str(self.work),
            "--length", str(length), "--epochs", str(_EPOCHS), "--slots", str(_SLOTS),
            "--draft-vocab", "0",  # a head as it has it
            *types_of(self.drafter), *self.machine,
        )  # fmt: skip

    @property
    def answers(self) -> Path:
        return self.folder / "answers"

    @property
    def kept(self) -> Path:
        return self.folder / "drafter.gguf"

    @property
    def next(self) -> Path:
        return self.folder / "next.gguf"

    @property
    def state(self) -> Path:
        return self.folder / "state.json"

    @property
    def rounds(self) -> Path:
        return self.folder / "rounds.jsonl"

    @property
    def last_log(self) -> Path:
        return self.folder / "last.log"

    @property
    def round(self) -> Path:
        return self.folder / "round"

    @property
    def begun(self) -> Path:
        return self.round / "round.json"

    @property
    def texts(self) -> Path:
        return self.round / "texts.jsonl"

    @property
    def work(self) -> Path:
        return self.round / "run"

    @property
    def new(self) -> Path:
        return self.round / "new.gguf"

    @property
    def log(self) -> Path:
        return self.round / "log.txt"


def _check_trained(drafter: Path, target: Path) -> None:
    """Raise RequestError unless `train` goes on with this drafter."""
    from dflash_local.convert.target import Target
    from dflash_local.train.drafter_file import DrafterFile

    try:
        DrafterFile.read_form(drafter, Target.read(target))
        types_of(drafter)
    except DFlashError as error:
        raise RequestError(
            f"{drafter.name} cannot learn: {error.message}", param=FLAG, hint=f"leave {FLAG} out"
        ) from None


def types_of(drafter: Path) -> list[str]:
    """Flags for a file of the same types. Raises ModelError if `train` writes none."""
    from dflash_local.convert import FC_TYPES
    from dflash_local.convert.gguf_metadata import read_model
    from dflash_local.convert.outtypes import OUTTYPES

    keys, tensors = read_model(drafter)
    file_type = keys["general.file_type"].data if "general.file_type" in keys else None
    found = [name for name, outtype in OUTTYPES.items() if outtype.file_type == file_type]
    outtype = found[0] if found else _most_frequent(tensors)
    if outtype not in OUTTYPES:
        raise ModelError(
            f"its matrices are {outtype.upper()}, which training does not write", field="general.file_type"
        )
    fc = tensors["fc.weight"].type.name.lower() if "fc.weight" in tensors else ""
    return ["--outtype", outtype, *(["--fc-type", fc] if fc in FC_TYPES else [])]


def _most_frequent(tensors: Mapping[str, StoredGgufTensor]) -> str:
    """The type of most matrices of the layers: that of mixtures such as Q4_K_M, too."""
    types = Counter(t.type for name, t in tensors.items() if name.startswith("blk.") and len(t.shape) > 1)
    return types.most_common(1)[0][0].name.lower() if types else "none"

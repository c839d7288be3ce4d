"""The stage `fit`: the drafter learns to say what the target wrote."""

from __future__ import annotations

import io
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dflash_local.convert.gguf_metadata import StoredGgufTensor
from dflash_local.errors import DFlashError
from dflash_local.train.batches import EmbeddingTable, Sampler, all_tokens, token_counts
from dflash_local.train.drafter_file import DrafterFile
from dflash_local.train.low_rank import add_low_rank
from dflash_local.train.mtp_file import MtpFile
from dflash_local.train.mtp_network import MtpNetwork
from dflash_local.train.network import Network, TrainedNetwork, trained_parameters
from dflash_local.train.objective import Head, Objective
from dflash_local.train.shards import TappedText
from dflash_local.train.step_size import GROUP, texts_at_once, texts_of_step
from dflash_local.train.token_rows import embedding_rows, frequent, head_rows, mask_row
from dflash_local.train.train_settings import TrainSettings, Watcher
from dflash_local.train.workspace import Workspace, whole_file

_WARM_UP = 0.04  # of the whole fit
_WARM_UP_STEPS = 20  # at least, however slow they are
_LEAST_RATE = 0.03  # of the rate, at the end
_CLIP = 1.0  # of the gradients' norm
_SAVE_SHARE = 0.03  # of the time may go into checkpoints
_SLEPT = 10  # times as long as usual
_WIDTH = 576  # for which the rates were measured


@dataclass
class Course:
    """How the fit went: of each point, the steps so far, and averages since the point before."""

    steps: list[int] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    chain: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Course:
        """From a checkpoint; those of earlier versions have more."""
        return cls(**{name: saved[name] for name in vars(cls())})


def pick_device(name: str) -> torch.device:
    """Raises DFlashError if torch does not have it."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    there = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if name in there and not there[name]():
        raise DFlashError(
            f"torch finds no {name} device", hint="leave --device out, or install a build of torch that has it"
        )
    return torch.device(name)


def bf16_helps(device: torch.device) -> bool:
    """Is bfloat16 faster? On GPUs that have it, yes; on a CPU it is measured, since without instructions for it, it is
    many times slower."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False

    def seconds(dtype: torch.dtype) -> float:
        a, b = torch.ones(512, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype)
        times = []
        for _ in range(4):
            begin = time.perf_counter()
            a @ b
            times.append(time.perf_counter() - begin)
        return min(times)

    return seconds(torch.bfloat16) < 0.8 * seconds(torch.float32)


def rate_of(settings: TrainSettings, file: DrafterFile) -> float:
    """The highest learning rate: as asked for, or by what is trained and how wide it is."""
    if settings.rate is not None:
        return settings.rate
    base = 1.2e-3 if not settings.continues else {"lora": 1e-3, "heads": 1e-3}.get(settings.only or "", 6e-4)
    return base * math.sqrt(_WIDTH / file.config.n_embd)


@contextmanager
def memory_errors(n_texts: int, settings: TrainSettings) -> Iterator[None]:
    """Raises DFlashError if the GPU's memory does not suffice in the block, which computes `n_texts` at once (1: fewer
    would not help)."""
    try:
        yield
    except RuntimeError as error:  # of CUDA a class of its own, of Metal this one
        if "out of memory" not in str(error):
            raise
        raise DFlashError("the fit needs more memory than the GPU has", hint=_less_memory(n_texts, settings)) from None


def _less_memory(n_texts: int, settings: TrainSettings) -> str:
    """What takes less memory, and is not refused with these settings."""
    if n_texts > 1:
        return f"--micro {n_texts // 2} computes fewer texts at once, and the fit goes on with the same --batch"
    # A DFlash drafter that becomes another kind has new parts, which small changes do not teach.
    if settings.continues and settings.only != "lora" and settings.kind not in ("dflash2", "dspark"):
        return "'--only lora --restart fit' takes less, and so does a smaller --length, with '--restart answer'"
    return "a smaller --length, with '--restart answer', takes less"


class Fit:
    """A fit that can be saved, loaded and continued. `done` is the share of it that is over."""

    save_every = 30.0  # seconds; longer where saving takes long

    def __init__(
        self,
        file: DrafterFile,
        texts: Sequence[TappedText],
        target: Mapping[str, StoredGgufTensor],
        settings: TrainSettings,
        device: torch.device,
    ) -> None:
        torch.manual_seed(settings.seed)
        self._settings, self.file = settings, file
        self._bf16 = bf16_helps(device)
        self._device = device
        self.network: TrainedNetwork
        self.network = MtpNetwork(file, device) if isinstance(file, MtpFile) else Network(file, device)
        if settings.only == "lora":
            self._parameters = add_low_rank(self.network, settings.rank)
        else:
            self._parameters = trained_parameters(self.network, settings.only)
        if not self._parameters:
            raise DFlashError("nothing of this drafter would be trained", hint="choose another part with --only")
        self._optimizer = torch.optim.AdamW(
            self._parameters, lr=1.0, betas=(0.9, 0.95), weight_decay=0.01, fused=device.type in ("cpu", "cuda")
        )
        self._objective = Objective(self.network, settings.goal, settings.weights)
        self._head = self._make_head(texts, target)
        self._n_texts = texts_of_step(settings)  # in parts over which gradients are summed
        self._n_parts = self._n_texts // texts_at_once(settings, device.type)
        self.sampler = self._make_sampler(texts, target)
        self.rate = rate_of(settings, file)
        self.step = self.n_batches = 0
        self.seconds = 0.0  # of all runs
        self.course = Course()
        self._since: list[tuple[float, float]] = []
        self._times: deque[float] = deque(maxlen=99)

    def _make_head(self, texts: Sequence[TappedText], target: Mapping[str, StoredGgufTensor]) -> Head:
        rows, s = head_rows(self.file, target), self._settings
        self.token_counts = counts = token_counts(texts, s.n_likeliest)
        dtype = torch.bfloat16 if self._bf16 else torch.float32
        return Head(rows, frequent(counts, s.head_rows), self.file.config.n_vocab, s.seed, self._device, dtype)

    def _make_sampler(self, texts: Sequence[TappedText], target: Mapping[str, StoredGgufTensor]) -> Sampler:
        c, rows = self.file.config, embedding_rows(self.file, target)
        scale = np.float32(c.embedding_scale or 1.0)
        is_mtp = isinstance(self.file, MtpFile)
        tokens = all_tokens(texts, prompts=is_mtp)
        mask = None if is_mtp else mask_row(self.file, rows) * scale
        table = EmbeddingTable(tokens, rows.of(tokens) * scale, mask, c.n_vocab, self._device)
        return Sampler(
            texts, block_size=c.block_size, anchor_first=c.samples_from_anchor, mask_token=c.mask_token,
            embedding=table, n_texts=self._n_texts // self._n_parts, seed=self._settings.seed, device=self._device,
        )  # fmt: skip

    @property
    def n_steps(self) -> float:
        """Steps of all epochs; infinite where only time bounds them."""
        return max(1, self._settings.n_epochs * self.sampler.per_epoch / self._n_parts)

    @property
    def n_anchors(self) -> int:
        """Anchors so far."""
        return self.step * self._n_texts * GROUP

    def precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self._device.type, torch.bfloat16) if self._bf16 else nullcontext()

    def loss(self, number: int) -> tuple[Tensor, float, float]:
        """Of batch `number`: the loss, the mean cross-entropy, and what a greedy chain brings."""
        batch = self.sampler.batch(number)
        blocks = batch.blocks if self._bf16 else replace(batch.blocks, taps=batch.blocks.taps.float())
        with self.precision():
            hidden = self.network(blocks)
            score = self._objective.score(hidden, batch.wanted, self._head.classes(self.step))
        return score.loss, score.entropy, score.chain

    def advance(self, done: float) -> None:
        """One step; `done` is the share of the fit that is over, which sets the rate."""
        rate = self.rate * min(1.0, (done + 1e-3) / _WARM_UP, (self.step + 1) / _WARM_UP_STEPS)
        rate *= (1 - _LEAST_RATE) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0))) + _LEAST_RATE
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.zero_grad(set_to_none=True)
        entropy = chain = 0.0
        for _ in range(self._n_parts):
            loss, e, c = self.loss(self.n_batches)
            (loss / self._n_parts).backward()
            entropy, chain = entropy + e / self._n_parts, chain + c / self._n_parts
            self.n_batches += 1
        norm = float(nn.utils.clip_grad_norm_(self._parameters, _CLIP))
        if not (math.isfinite(entropy) and math.isfinite(norm)):
            raise DFlashError(
                f"the loss is not a number after {self.step + 1} steps", hint="begin the fit anew with a lower --rate"
            )
        self._optimizer.step()
        self.step += 1
        self._since.append((entropy, chain))

    def count(self, seconds: float) -> None:
        """Count the time of a step; of one during which the machine slept, what steps usually take."""
        self._times.append(seconds)
        self.seconds += min(seconds, _SLEPT * median(self._times))

    def mark(self) -> tuple[float, float]:
        """Add a point to the course; returns its averages."""
        if self._since:
            entropy, chain = (sum(values) / len(self._since) for values in zip(*self._since, strict=True))
            self._since.clear()
            self.course.steps.append(self.step)
            self.course.entropy.append(entropy)
            self.course.chain.append(chain)
        return (self.course.entropy[-1], self.course.chain[-1]) if self.course.entropy else (math.nan, 1.0)

    @contextmanager
    def parked(self) -> Iterator[None]:
        """While an engine runs on the GPU: the fit waits in the host's memory."""
        if self._device.type != "cuda":
            yield
            return
        self._move(torch.device("cpu"))
        torch.cuda.empty_cache()
        try:
            yield
        finally:
            self._move(self._device)

    def _move(self, device: torch.device) -> None:
        self.network.to(device)  # in place, so the optimizer keeps its parameters
        for state in self._optimizer.state.values():
            for name, value in state.items():
                if isinstance(value, Tensor) and value.dim():
                    state[name] = value.to(device)

    # ---- checkpoints ----

    def save(self, path: Path) -> None:
        """Raises DFlashError if the disk is full."""
        trained = {name for name, p in self.network.named_parameters() if p.requires_grad}
        buffer = io.BytesIO()
        torch.save(
            {
                "values": {n: v for n, v in self.network.state_dict().items() if n in trained},
                "optimizer": self._optimizer.state_dict(),
                "step": self.step,
                "n_batches": self.n_batches,
                "seconds": self.seconds,
                "course": vars(self.course),
            },
            buffer,
        )
        with whole_file(path) as file:
            file.write(buffer.getbuffer())

    @contextmanager
    def saved_at_the_end(self, path: Path) -> Iterator[None]:
        """Save when the block ends, or is interrupted."""
        try:
            yield
        except KeyboardInterrupt:
            self.save(path)
            raise
        self.save(path)

    def load(self, path: Path) -> None:
        """Go on from a checkpoint. Raises DFlashError if it is damaged."""
        try:
            saved = torch.load(path, map_location=self._device, weights_only=True)
            left = self.network.load_state_dict(saved["values"], strict=False)
            if left.unexpected_keys:
                raise KeyError(left.unexpected_keys[0])
            self._optimizer.load_state_dict(saved["optimizer"])
            self.step, self.n_batches = saved["step"], saved["n_batches"]
            self.seconds, self.course = saved["seconds"], Course.of(saved["course"])
        except Exception as error:  # torch raises half a dozen kinds for a damaged file
            raise DFlashError(
                f"the checkpoint {path} is damaged: {str(error)[:200]}", hint="'--restart fit' begins the fit anew"
            ) from error


def run_fit(
    fit: Fit,
    workspace: Workspace,
    settings: TrainSettings,
    seconds: Callable[[], float | None],
    watcher: Watcher,
    evaluate: Callable[[Fit, float], None],
) -> None:
    """Fit for all epochs, or for `seconds()` of all runs together, which evaluations may change."""
    if settings.threads:
        torch.set_num_threads(settings.threads)
    marks = [(i + 1) / (settings.evaluations + 1) for i in range(settings.evaluations)]
    last_save = last_word = time.monotonic()
    entropy, chain = fit.mark()
    save_every = fit.save_every
    n_seconds = seconds()

    def share() -> float:
        by_steps = fit.step / fit.n_steps
        return by_steps if n_seconds is None else max(fit.seconds / max(n_seconds, 1e-3), by_steps)

    def left() -> list[float]:
        """The marks after the last evaluation."""
        evaluated = share() * (workspace.last_evaluated / max(fit.step, 1))
        return [mark for mark in marks if mark > evaluated]

    to_come = left()
    with fit.saved_at_the_end(workspace.checkpoint):
        while (done := share()) < 1:
            begin = time.monotonic()
            fit.advance(done)
            now = time.monotonic()
            fit.count(now - begin)
            if now - last_word > 1 or fit.step == 1:
                last_word = now
                entropy, chain = fit.mark()
            speed = fit.n_anchors / max(fit.seconds, 1e-3)
            watcher.progress(
                min(share(), 1.0),
                1.0,
                f"step {fit.step}, loss {entropy:.3f}, chains {chain:.2f}, {speed:.0f} anchors/s",
            )
            if now - last_save > save_every:
                fit.save(workspace.checkpoint)
                last_save = time.monotonic()
                save_every = max(fit.save_every, (last_save - now) / _SAVE_SHARE)
            if to_come and share() >= to_come[0]:
                fit.mark()
                fit.save(workspace.checkpoint)
                evaluate(fit, share())
                n_seconds, to_come = seconds(), left()
                last_save = time.monotonic()
        fit.mark()

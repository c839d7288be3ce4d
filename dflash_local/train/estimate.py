"""What a training run takes, before it: tokens, memory, disk and time, for `train --plan`.

Rates are those of this machine: a small product and a copy are timed. The formulas and what they were checked against
are in docs/training.md.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dflash_local.convert.config import DrafterConfig
from dflash_local.convert.gguf_metadata import read_model
from dflash_local.convert.kinds import DFlash2, DSpark
from dflash_local.convert.target import Target
from dflash_local.train.draft_vocabulary import check_head
from dflash_local.train.drafter_size import DrafterSize
from dflash_local.train.evaluation import answer_seconds, n_measured
from dflash_local.train.examples import check_enough, read_data
from dflash_local.train.initial_file import initial_file
from dflash_local.train.recorded_texts import own_texts
from dflash_local.train.run_checks import check_hf, check_init, check_settings
from dflash_local.train.shards import Layout
from dflash_local.train.step_size import GROUP, texts_at_once
from dflash_local.train.token_rows import check_readable
from dflash_local.train.train_settings import ANSWER_SHARE, LEAST_FIT, TAP_SHARE, TrainSettings, Watcher
from dflash_local.train.workspace import Workspace
from dflash_local.train.written_texts import identity
from dflash_local.words import file_size_text, memory_text

_ANSWER_PART = 0.55  # of the most tokens that an answer may have, it has on average
_PROMPT = 40  # tokens of a prompt
_PASS_SHARE = 0.6  # of the machine's bandwidth and products, a target's pass reaches
_FIT_SHARE = 0.35  # of the machine's products, the fit reaches
_SAMPLED = 1024  # rows of the head besides the frequent ones


@dataclass(frozen=True)
class Rates:
    """A machine: bytes per second of its memory, and operations per second of its products: of quantized weights in the
    engine, and in torch."""

    bandwidth: float
    engine: float
    torch: float


@dataclass(frozen=True)
class Load:
    """What a run has to do: sizes of the target and of the drafter, tokens, and answers that are measured. Of
    `answer_tokens` `written` are to be written, the others are recorded; `all_tokens` are those of prompts, too."""

    target_bytes: int
    target_params: int
    drafter: DrafterSize
    answer_tokens: int
    written: int
    all_tokens: int
    token_bytes: int
    head_rows: int
    n_measured: int
    n_predict: int

    @property
    def config(self) -> DrafterConfig:
        return self.drafter.config

    @property
    def disk(self) -> int:
        """Bytes of the taps and of the fit."""
        return self.all_tokens * self.token_bytes + self.drafter.fit_bytes

    def within(self, seconds: float, rates: Rates, slots: int) -> Load:
        """With no more tokens than can be answered in so many seconds."""
        share = min(1.0, seconds / max(self.seconds(rates, slots, 0)["answer"], 1e-9))
        left_out = int((1 - share) * self.written)
        prompts = int(left_out * _PROMPT / (_ANSWER_PART * self.n_predict))
        return replace(
            self, answer_tokens=self.answer_tokens - left_out, written=self.written - left_out,
            all_tokens=self.all_tokens - left_out - prompts,
        )  # fmt: skip

    def tapped_within(self, seconds: float, rates: Rates) -> Load:
        """With no more tokens than pass through the target in so many seconds; what is written stays the same."""
        share = min(1.0, seconds / max(self.seconds(rates, 1, 0)["tap"], 1e-9))
        return replace(self, answer_tokens=int(share * self.answer_tokens), all_tokens=int(share * self.all_tokens))

    def fit_operations(self, anchors: float) -> float:
        """Products of forward and backward passes: each parameter six times for each row of a block; what reads the
        context once for each of its tokens; the rows of the head four times."""
        length = self.all_tokens / max(self.answer_tokens, 1) * GROUP * 4  # of the context of a group
        blocks = 6.0 * (self.drafter.n_all - self.drafter.n_context) * self.config.block_size
        context = 6.0 * self.drafter.n_context * length / GROUP
        head = 4.0 * self.config.n_embd * (self.head_rows + _SAMPLED) * self.config.block_size
        return anchors * (blocks + context + head)

    def fit_memory(self, n_texts: int) -> int:
        """Bytes with so many texts at once: values, gradients and the optimizer's two averages in float32, rows of
        embeddings and head in two bytes, and what a batch keeps for its backward pass: logits too, where a kind has
        heads that read them."""
        rows = n_texts * GROUP * self.config.block_size
        kept = rows * self.config.n_layer * (14 * self.config.n_embd + 4 * self.config.n_ff) * 3
        has_heads = isinstance(self.config.kind, DFlash2 | DSpark)
        logits = rows * (self.head_rows + _SAMPLED) * 4 * 4 if has_heads else 0
        tables = 2 * self.config.n_embd * (2 * self.head_rows + _SAMPLED)
        return 4 * self.drafter.n_all + 12 * self.drafter.n_trained + kept + logits + tables

    def step_seconds(self, rates: Rates, slots: int) -> float:
        """Of a pass that writes a token in each slot."""
        return max(self.target_bytes / rates.bandwidth, 2.0 * self.target_params * slots / rates.engine) / _PASS_SHARE

    def seconds(self, rates: Rates, slots: int, epochs: float) -> dict[str, float]:
        """Of each stage, and of the measurements in between."""
        step = self.step_seconds(rates, slots)
        return {
            "answer": self.written / slots * step,
            "tap": 2.0 * self.target_params * self.all_tokens / (rates.engine * _PASS_SHARE),
            "measure": self.n_measured * answer_seconds(step),
            "fit": self.fit_operations(epochs * self.answer_tokens) / (rates.torch * _FIT_SHARE),
        }


def load_of(settings: TrainSettings) -> Load:
    """Raises the errors of reading the target, the drafter and the prompts, and what a run refuses before it begins."""
    check_settings(settings)
    if settings.hf:
        check_hf(settings.hf, Workspace(settings.work).last_state().get("hf"))
    target, stored = Target.read(settings.model), read_model(settings.model)[1]
    prompts, recorded = read_data(settings.data, settings.work)
    recorded = own_texts(recorded, identity(settings.model), Watcher(), has_prompts=bool(prompts))
    check_enough(len(prompts) + len(recorded))
    with tempfile.TemporaryDirectory() as folder:
        init = initial_file(settings, target, Path(folder))
        check_init(settings, init)
        check_readable(init, stored)
        drafter = DrafterSize.of(settings, target, init)
    config = drafter.config
    if settings.draft_vocab:
        check_head(settings.draft_vocab, config)
    n_answers = len(prompts) * settings.n_rounds()
    written = int(n_answers * _ANSWER_PART * settings.n_predict)
    answered = written + sum(len(text.answer) for text in recorded)
    read = answered + n_answers * _PROMPT + sum(len(text.prompt) for text in recorded)
    return Load(
        target_bytes=sum(tensor.n_bytes for tensor in stored.values()),
        target_params=sum(math.prod(tensor.shape) for tensor in stored.values()),
        drafter=drafter,
        answer_tokens=answered,
        written=written,
        all_tokens=read,
        token_bytes=Layout(config.taps, config.n_embd, settings.n_likeliest).token_bytes,
        head_rows=min(settings.head_rows, config.n_vocab),
        n_measured=n_measured(settings),
        n_predict=settings.n_predict,
    )


def this_rates(device_name: str) -> tuple[Rates, str]:
    """This machine's, timed for a second; of a GPU, torch's products and a published bandwidth's order. And the type
    of the device that --device names, "cpu" without torch. Raises DFlashError if torch does not have it."""
    block = np.ones(64 << 20, np.uint8)
    bandwidth = 2 * block.nbytes / _best(lambda: block.copy())
    products = _numpy_products()
    try:
        import torch
    except ImportError:
        return Rates(bandwidth, 2 * products, products), "cpu"
    from dflash_local.train.fitting import bf16_helps, pick_device

    device = pick_device(device_name)
    dtype = torch.bfloat16 if bf16_helps(device) else torch.float32
    a = torch.ones(1024, 1024, dtype=dtype, device=device)

    def multiply() -> None:
        (a @ a).sum().item()

    torch_products = 2 * 1024**3 / _best(multiply)
    if device.type == "cpu":
        return Rates(bandwidth, 2 * products, torch_products), device.type
    b = torch.ones(64 << 20, dtype=torch.uint8, device=device)

    def copy() -> None:
        b.clone().sum().item()

    return Rates(3 * b.numel() / _best(copy), torch_products, torch_products), device.type


def _numpy_products() -> float:
    a = np.ones((768, 768), np.float32)
    return 2 * 768**3 / _best(lambda: a @ a)


def _best(work: object) -> float:
    assert callable(work)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def estimate(settings: TrainSettings) -> Iterator[str]:
    """Lines for a terminal."""
    load = load_of(settings)
    rates, device = this_rates(settings.device)
    most = 60 * settings.minutes if settings.minutes else math.inf
    load = load.within(ANSWER_SHARE * most, rates, settings.slots).tapped_within(TAP_SHARE * most, rates)
    times = load.seconds(rates, settings.slots, settings.n_epochs)
    others = sum(times.values()) - times["fit"]
    times["fit"] = min(times["fit"], max(most - others, LEAST_FIT * most))
    yield f"target: {load.target_params / 1e9:.2f} billion parameters, {file_size_text(load.target_bytes)}"
    yield f"drafter: {load.drafter.n_all / 1e6:.1f} million parameters, {load.drafter.n_trained / 1e6:.1f} trained"
    yield f"text: about {load.answer_tokens} tokens of answers, {load.all_tokens} with their prompts"
    parent = settings.work.resolve().parent
    free = shutil.disk_usage(next(p for p in (parent, *parent.parents) if p.exists())).free
    yield f"disk: {file_size_text(load.disk)} in {settings.work} ({file_size_text(free)} are free)"
    memory = memory_text(load.fit_memory(texts_at_once(settings, device)))
    yield f"memory: answering and tapping as the target needs it ('dflash-local plan'), fitting {memory}"
    for name, seconds in times.items():
        yield f"{name}: {_hours(seconds)}"
    yield f"together: {_hours(sum(times.values()))}"
    if load.disk > free:
        yield "it does not fit the disk: fewer prompts, --rounds or --minutes, or --work on another disk"


def _hours(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

"""One step of training against plain torch written from the paper (arXiv 2602.06036, section 4): loss and gradients.

The plain form takes the authors' model, one text and one dense mask over [context | all blocks]; ours takes several
texts at once and never makes that mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dflash_local.convert.gguf_metadata import read_metadata, read_model
from dflash_local.convert.target import Target
from dflash_local.train.batches import Batch, EmbeddingTable, Sampler
from dflash_local.train.drafter_file import FACTORS, DrafterFile
from dflash_local.train.network import Network
from dflash_local.train.objective import Head, Objective
from dflash_local.train.shards import TappedText, bfloat16
from dflash_local.train.token_rows import embedding_rows, head_rows
from tests.gguf_files import rewritten
from tests.parity.f32 import widen
from tests.parity.reference import BLOCK_SIZE, DRAFTERS, MASK, load_drafter, load_target

N_VOCAB, WIDTH = 1699, 256
TOP_K = 4


@pytest.fixture(autouse=True)
def gradients() -> Iterator[None]:
    with torch.enable_grad():
        yield


def random_text(rng: np.random.Generator, n: int, n_prompt: int, n_taps: int) -> TappedText:
    """A text with hidden states that no target made, exact in bfloat16."""
    taps = bfloat16(rng.standard_normal((n, n_taps * WIDTH), np.float32))
    ids = np.stack([rng.permutation(N_VOCAB)[:TOP_K] for _ in range(n)]).astype(np.int32)
    probs = np.sort(rng.dirichlet(np.ones(TOP_K), n))[:, ::-1] * 0.9
    return TappedText(
        rng.integers(4, N_VOCAB, n).astype(np.int32), n_prompt, taps, ids, np.log(probs).astype(np.float32)
    )


@dataclass
class Setup:
    file: DrafterFile
    network: Network
    sampler: Sampler
    head: Head
    target: Any

    def batch(self, texts: list[TappedText], anchors: list[list[int]]) -> Batch:
        return self.sampler.at(texts, np.array(anchors))

    def loss(self, batch: Batch, goal: str, weights: str) -> Tensor:
        objective = Objective(self.network, goal, weights)
        blocks = batch.blocks
        hidden = self.network(replace(blocks, taps=blocks.taps.float()))
        return objective.score(hidden, batch.wanted, self.head.classes(0)).loss


def setup(name: str, pocket: dict[str, Path], target_f32: Path, folder: Path) -> Setup:
    path = widen(pocket[name], folder / f"{name}.gguf")
    target = Target.read(target_f32)
    file = DrafterFile.read(path, target, folder)
    stored, cpu = read_model(target_f32)[1], torch.device("cpu")
    rows, every = embedding_rows(file, stored), np.arange(N_VOCAB)
    table = EmbeddingTable(every, rows.of(every), rows.of(np.array([MASK]))[0], N_VOCAB, cpu)
    sampler = Sampler(
        [], block_size=file.config.block_size, anchor_first=file.config.samples_from_anchor, mask_token=MASK,
        embedding=table, n_texts=2, seed=1, device=cpu,
    )  # fmt: skip
    head = Head(head_rows(file, stored), range(N_VOCAB), N_VOCAB, 1, cpu, torch.float32)
    return Setup(file, Network(file, cpu), sampler, head, load_target(target_f32))


def plain_loss(
    drafter: Any, target: Any, text: TappedText, anchors: list[int], goal: str, weights: str
) -> tuple[Tensor, Tensor]:
    """The weighed sum of a text's losses and the sum of weights, as the paper says it."""
    n, length = max(anchors), BLOCK_SIZE
    taps = torch.from_numpy(text.taps[:n].astype(np.uint32) << 16).view(torch.float32)[None]
    starts = torch.tensor(anchors)
    positions = starts[:, None] + torch.arange(length)
    tokens = torch.from_numpy(text.tokens).long()
    inside = positions < len(tokens)
    wanted = tokens[positions.clamp_max(len(tokens) - 1)]
    block = torch.full_like(wanted, MASK)
    block[:, 0] = wanted[:, 0]
    before = (torch.arange(n) < starts[:, None]).repeat_interleave(length, 0)
    own = torch.block_diag(*[torch.ones(length, length)] * len(anchors)).bool()
    hidden = drafter(
        target_hidden=taps,
        noise_embedding=target.get_input_embeddings()(block.view(1, -1)),
        position_ids=torch.cat([torch.arange(n), positions.reshape(-1)])[None],
        attention_mask=torch.cat([before, own], -1)[None, None],
    ).view(len(anchors), length, -1)[:, 1:]
    log_probs = torch.log_softmax(target.lm_head(hidden), -1)
    own_log = log_probs.gather(-1, wanted[:, 1:, None])[..., 0]
    losses = -own_log
    if goal == "distill":
        rows = (positions[:, :-1]).clamp_max(len(text.ids) - 1)
        teacher = torch.from_numpy(text.log_probs)[rows].softmax(-1)
        losses = -(teacher * log_probs.gather(-1, torch.from_numpy(text.ids).long()[rows])).sum(-1)
    counts = inside[:, 1:].float()
    if weights == "decay":
        weight = torch.exp(-torch.arange(length - 1) / 7.0).expand_as(losses) * counts
    else:
        weight = dpace(own_log.detach(), counts) * counts
    return (losses * weight).sum(), weight.sum()


def dpace(log_probs: Tensor, counts: Tensor) -> Tensor:
    """Equations 7 and 8 of D-PACE (arXiv 2605.18810), term by term."""
    smooth = (0.5 * log_probs.exp() + 0.5) * counts
    weight = torch.zeros_like(smooth)
    n = smooth.shape[-1]
    for j in range(n):
        for m in range(j, n):
            weight[:, j] += smooth[:, : m + 1].prod(-1)
    return weight


@pytest.mark.parametrize("goal", ["text", "distill"])
@pytest.mark.parametrize("weights", ["decay", "dpace"])
def test_loss_and_gradients(goal: str, weights: str, pocket: dict[str, Path], target_f32: Path, tmp_path: Path) -> None:
    """Two texts of unlike lengths, anchors at the edges and more of them than one view has: the first block sees almost
    nothing, the last ones end beyond the text."""
    ours = setup("dflash", pocket, target_f32, tmp_path)
    rng = np.random.default_rng(3)
    texts = [random_text(rng, 170, 5, 3), random_text(rng, 33, 1, 3)]
    anchors = [[5, 20, 41, 63, 64, 65, 80, 81, 100, 130, 168], [1, 2, 3, 5, 8, 13, 17, 19, 23, 29, 31]]
    loss = ours.loss(ours.batch(texts, anchors), goal, weights)
    loss.backward()

    theirs = load_drafter(tmp_path / "dflash.gguf", DRAFTERS["dflash"]).requires_grad_(True)
    parts = [
        plain_loss(theirs, ours.target, text, where, goal, weights)
        for text, where in zip(texts, anchors, strict=True)
    ]  # fmt: skip
    plain = sum(part for part, _ in parts) / sum(weight for _, weight in parts)
    plain.backward()

    assert loss.item() == pytest.approx(plain.item(), rel=1e-5)
    gradients = dict(theirs.named_parameters())
    for name, parameter in ours.network.named_parameters():
        expected = gradients[name].grad
        assert parameter.grad is not None and expected is not None
        scale = expected.abs().max().clamp_min(1e-3)
        assert (parameter.grad - expected).abs().max() / scale < 1e-5, name


def test_blocks_see_neither_their_answer_nor_each_other(
    pocket: dict[str, Path], target_f32: Path, tmp_path: Path
) -> None:
    """Hidden states at and after an anchor, and other blocks, change nothing of a block."""
    ours = setup("dflash", pocket, target_f32, tmp_path)
    rng = np.random.default_rng(4)
    text = random_text(rng, 60, 3, 3)
    with torch.no_grad():
        blocks = ours.batch([text], [[10, 30, 50]]).blocks
        taps = blocks.taps.float()
        whole = ours.network(replace(blocks, taps=taps))
        taps = taps.clone()
        taps[:, 30:] = 7.0
        changed = ours.network(replace(blocks, taps=taps))
    assert torch.allclose(whole[:, :2], changed[:, :2], atol=1e-5)
    assert (whole[:, 2] - changed[:, 2]).abs().max() > 0.1


@pytest.mark.parametrize("name", ["dflash-small", "dflash", "dflash2", "dspark", "dspark-first", "factors"])
def test_network_is_what_the_engine_computes(
    name: str, pocket: dict[str, Path], target_f32: Path, tmp_path: Path
) -> None:
    """Hidden states of blocks in the trainer and in the engine, from the engine's own taps."""
    from tests.parity.f32 import engine_f32

    n_pairs = read_metadata(pocket["dflash"])["dflash.attention.key_length"].data // 2
    factors = {FACTORS: np.geomspace(1, 8, n_pairs, dtype=np.float32)}
    pocket = {**pocket, "factors": rewritten(pocket["dflash"], tmp_path / "source.gguf", {}, factors)}
    ours = setup(name, pocket, target_f32, tmp_path)
    config = ours.file.config
    tokens = np.random.default_rng(5).integers(4, N_VOCAB, 60).tolist()
    with engine_f32(target_f32, None, n_ctx=256) as engine:
        taps = engine.tap(tokens, config.taps).hidden.reshape(len(tokens), -1)
    places = [2, 5, 9, 14, 19, 25, 26, 31, 37, 40]  # more than one view has
    text = TappedText(
        np.array(tokens, np.int32), 1, bfloat16(taps), np.zeros((60, 1), np.int32), np.zeros((60, 1), np.float32)
    )
    blocks = ours.batch([text], [places]).blocks
    with torch.no_grad():
        hidden = ours.network(replace(blocks, taps=torch.from_numpy(taps[None, : max(places)])))
    with engine_f32(target_f32, tmp_path / f"{name}.gguf", n_ctx=256) as engine:
        for row, place in enumerate(places):
            probe = engine.draft_probe(tokens[: place + 1], config.block_size)
            np.testing.assert_allclose(hidden[0, row].numpy(), probe.hidden, atol=1e-4)


def test_sampled_head_is_the_whole_one_on_average(
    pocket: dict[str, Path], target_f32: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The softmax's denominator over frequent and sampled rows, averaged over many draws."""
    monkeypatch.setattr("dflash_local.train.objective._SAMPLED", 200)
    ours = setup("dflash", pocket, target_f32, tmp_path)
    rows = head_rows(ours.file, read_model(target_f32)[1])
    hidden = torch.randn(N_VOCAB, generator=torch.Generator().manual_seed(1))[:WIDTH]
    whole = torch.from_numpy(rows.of(np.arange(N_VOCAB))) @ hidden
    head = Head(rows, range(100), N_VOCAB, 1, torch.device("cpu"), torch.float32)
    assert head.n_rows == 300
    sums = []
    for draw in range(200):
        classes = head.classes(16 * draw)
        logits = classes.head @ hidden + classes.corrections
        sums.append(logits.exp().sum().item())
    assert np.mean(sums) == pytest.approx(whole.exp().sum().item(), rel=0.03)


def test_an_epochs_order_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the order of all texts; batches are the same, whichever was drawn before."""
    rng, cpu = np.random.default_rng(1), torch.device("cpu")
    texts = [random_text(rng, 40, 10, 1) for _ in range(6)]
    table = EmbeddingTable(
        np.arange(N_VOCAB), np.zeros((N_VOCAB, 2), np.float32), np.zeros(2, np.float32), N_VOCAB, cpu
    )

    def sampler() -> Sampler:
        return Sampler(
            texts, block_size=4, anchor_first=False, mask_token=0, embedding=table, n_texts=2, seed=3, device=cpu
        )

    asked: list[tuple[int, ...]] = []
    default_rng = np.random.default_rng

    def heard(seed: tuple[int, ...]) -> np.random.Generator:
        asked.append(seed)
        return default_rng(seed)

    monkeypatch.setattr(np.random, "default_rng", heard)
    one = sampler()
    found = [one.batch(number).wanted.tokens for number in (0, 1, 2, 3, 1)]
    assert [seed for seed in asked if len(seed) == 2] == [(3, 0), (3, 1), (3, 0)]
    for number, tokens in zip((0, 1, 2, 3, 1), found, strict=True):
        assert torch.equal(sampler().batch(number).wanted.tokens, tokens)

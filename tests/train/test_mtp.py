"""MTP layers: hidden states, one step against plain torch on the parts of transformers' Qwen3.5, and whole runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import (
    Qwen3_5DecoderLayer,
    Qwen3_5RMSNorm,
    Qwen3_5TextRotaryEmbedding,
)

from dflash_local import Engine
from dflash_local.convert.gguf_metadata import read_header, read_model
from dflash_local.convert.target import Target
from dflash_local.demo.pocket import as_hy_v3, join_mtp
from dflash_local.draft_options import FINAL_STATE
from dflash_local.errors import ConvertError, DFlashError, ModelError, RequestError
from dflash_local.train.batches import EmbeddingTable, Sampler
from dflash_local.train.drafter_file import HISTORY
from dflash_local.train.mtp_file import MtpFile
from dflash_local.train.mtp_network import MtpNetwork
from dflash_local.train.network import Blocks
from dflash_local.train.objective import Head, Objective
from dflash_local.train.shards import TappedText
from dflash_local.train.token_rows import embedding_rows, head_rows
from dflash_local.train.train_settings import TrainSettings, Watcher
from dflash_local.train.training import Result, train
from tests.cli import mtp_target
from tests.gguf_files import numbers, rewritten
from tests.parity.f32 import engine_f32, widen
from tests.parity.test_hybrid import NAMES, SHAPE, load_hybrid
from tests.train.test_step import N_VOCAB, WIDTH, dpace, random_text

LAYER = SHAPE["num_hidden_layers"]
LENGTH = 5  # of drafts, the anchor counted
LEAST_VALUE = 1 / 64  # of ggml_ops/mtp/mtp_drafter.h


@pytest.fixture(scope="session")
def with_layer(pocket: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hybrid pocket target with an MTP layer that learned noise."""
    tokens = np.random.default_rng(1).integers(4, N_VOCAB, 3000).tolist()
    return mtp_target.write(pocket["hybrid-target"], tmp_path_factory.mktemp("mtp") / "target.gguf", tokens)


# ---- one step ----


class Plain(nn.Module):  # type: ignore[misc]
    """The layer as the paper describes it (arXiv 2412.19437, section 2.2), computed anew for every row."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        config = Qwen3_5TextConfig(**SHAPE)
        config._attn_implementation = "eager"
        self.fc = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.enorm, self.hnorm, self.norm = (Qwen3_5RMSNorm(WIDTH, eps=config.rms_norm_eps) for _ in range(3))
        self.layer = Qwen3_5DecoderLayer(config, LAYER - 1)
        self.rotary = Qwen3_5TextRotaryEmbedding(config)
        names = {"eh_proj": "fc", "enorm": "enorm", "hnorm": "hnorm", "shared_head_norm": "norm"}
        parts = {f"nextn.{part}.weight": f"{name}.weight" for part, name in names.items()}
        parts |= {part: f"layer.{name}" for part, name in NAMES.items()}
        state = {}
        for name, values in numbers(path).items():
            if name.startswith(f"blk.{LAYER}."):
                part = name.removeprefix(f"blk.{LAYER}.")
                state[parts[part]] = torch.from_numpy(values - 1 if part.endswith("norm.weight") else values)
        self.load_state_dict(state, strict=True)

    def forward(self, embedded: list[Tensor], states: list[Tensor], n: int) -> list[Tensor]:
        """The states after `n` steps; `embedded` tokens, and `states` of the target before all but the last n - 1."""
        out: list[Tensor] = []
        for i in range(n):
            length = len(states) + i
            rows = torch.cat([self.enorm(torch.stack(embedded[:length])), self.hnorm(torch.stack(states + out))], -1)
            mask = torch.full((length, length), -torch.inf).triu(1)[None, None]
            angles = self.rotary(rows, torch.arange(length)[None])
            out.append(self.norm(self.layer(self.fc(rows)[None], angles, mask)[0, -1]))
        return out


def plain_loss(
    plain: Plain, target: Any, text: TappedText, anchors: list[int], goal: str, weights: str
) -> tuple[Tensor, Tensor]:
    """The weighed sum of a text's losses and the sum of weights."""
    taps = torch.from_numpy(text.taps.astype(np.uint32) << 16).view(torch.float32)
    tokens, n = torch.from_numpy(text.tokens).long(), LENGTH - 1
    embedded = list(target.get_input_embeddings()(tokens)) + [torch.zeros(WIDTH)] * n
    total, sums = torch.zeros(()), torch.zeros(())
    for anchor in anchors:
        n_inside = min(n, len(tokens) - 1 - anchor)
        states = [torch.zeros(WIDTH), *taps][: anchor + 1]
        log_probs = torch.log_softmax(target.lm_head(torch.stack(plain(embedded, states, n_inside))), -1)
        wanted = tokens[anchor + 1 : anchor + 1 + n_inside]
        own = log_probs.gather(-1, wanted[:, None])[:, 0]
        losses = -own
        if goal == "distill":
            rows = slice(anchor, anchor + n_inside)
            teacher = torch.from_numpy(text.log_probs[rows]).softmax(-1)
            losses = -(teacher * log_probs.gather(-1, torch.from_numpy(text.ids[rows]).long())).sum(-1)
        if weights == "decay":
            weight = torch.exp(-torch.arange(n_inside) / (n / 2))
        else:
            weight = dpace(own.detach()[None], torch.ones(1, n_inside))[0]
        total, sums = total + (losses * weight).sum(), sums + weight.sum()
    return total, sums


@pytest.mark.parametrize(("goal", "weights"), [("text", "dpace"), ("distill", "decay")])
def test_loss_and_gradients(goal: str, weights: str, with_layer: Path, pocket: dict[str, Path], tmp_path: Path) -> None:
    """Two texts of unlike lengths, anchors at the edges: before the first there is one row, the last ends beyond the
    text."""
    path = widen(with_layer, tmp_path / "target.gguf")
    file = MtpFile.of(path, Target.read(path), LENGTH)
    cpu, stored, every = torch.device("cpu"), read_model(path)[1], np.arange(N_VOCAB)
    network = MtpNetwork(file, cpu)
    table = EmbeddingTable(every, embedding_rows(file, stored).of(every), None, N_VOCAB, cpu)
    sampler = Sampler([], block_size=LENGTH - 1, anchor_first=True, mask_token=0, embedding=table, n_texts=2, seed=1,
                      device=cpu)  # fmt: skip
    head = Head(head_rows(file, stored), range(N_VOCAB), N_VOCAB, 1, cpu, torch.float32)
    rng = np.random.default_rng(3)
    texts, anchors = [random_text(rng, 40, 5, 1), random_text(rng, 23, 1, 1)], [[5, 20, 38], [1, 9, 21]]
    batch = sampler.at(texts, np.array(anchors))
    loss = Objective(network, goal, weights).score(network(batch.blocks), batch.wanted, head.classes(0)).loss
    loss.backward()

    plain, target = Plain(path), load_hybrid(pocket["hybrid-target"])
    parts = [plain_loss(plain, target, text, at, goal, weights) for text, at in zip(texts, anchors, strict=True)]
    expected = sum(part for part, _ in parts) / sum(weight for _, weight in parts)
    expected.backward()

    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    names = {"fc": "fc", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "norm"}
    gradients = {name: parameter.grad for name, parameter in plain.named_parameters()}
    for name, parameter in network.named_parameters():
        stem, _, part = name.rpartition(".")
        theirs = gradients[f"{names[stem]}.{part}" if stem in names else name.replace("layers.0.", "layer.")]
        assert parameter.grad is not None and theirs is not None
        scale = theirs.abs().max().clamp_min(1e-3)
        assert (parameter.grad - theirs).abs().max() / scale < 1e-5, name


# ---- hidden states ----


def test_final_states(with_layer: Path, pocket: dict[str, Path], tmp_path: Path) -> None:
    """What the engine taps is what transformers computes; without MTP layers in use they are not even loaded."""
    path, tokens = widen(with_layer, tmp_path / "target.gguf"), np.random.default_rng(1).integers(4, N_VOCAB, 150)
    with engine_f32(path, None, n_ctx=256, draft_kind="lookup", lookup=True) as engine:
        found = engine.tap(tokens.tolist(), (3, FINAL_STATE), 1).hidden
    with torch.no_grad():
        out = load_hybrid(pocket["hybrid-target"]).model(torch.from_numpy(tokens)[None], output_hidden_states=True)
    np.testing.assert_allclose(found[:, 0], out.hidden_states[3][0].numpy(), atol=1e-4)
    np.testing.assert_allclose(found[:, 1], out.last_hidden_state[0].numpy(), atol=1e-4)
    with (
        Engine(pocket["target"], n_ctx=256, warmup=False) as other,
        pytest.raises(RequestError, match="layers has -1, which the target"),
    ):
        other.tap(tokens.tolist(), (FINAL_STATE,))


# ---- runs ----


@pytest.fixture(scope="module")
def asked(with_layer: Path, prompts_file: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainSettings:
    folder = tmp_path_factory.mktemp("run")
    return TrainSettings(
        model=with_layer, kind="mtp", data=(prompts_file,), output=folder / "mtp-new.gguf", work=folder / "run",
        merge=folder / "merged.gguf", temperatures=(0.0,), n_predict=64, length=256, slots=4, held_out=2, epochs=8.0,
        batch=64, block=6, rate=4e-3, evaluations=0, threads=1,
    )  # fmt: skip


@pytest.fixture(scope="module")
def result(asked: TrainSettings) -> Result:
    with torch.enable_grad():
        return train(asked, Watcher())


def question(engine: Engine) -> list[int]:
    return engine.tokenize(engine.apply_chat({"messages": [{"role": "user", "content": "What is 12 + 9?"}]}).prompt)


def test_run(asked: TrainSettings, result: Result) -> None:
    """A layer that guesses nothing learns to guess; the result is its layer alone, with the history. A second run finds
    nothing left to do."""
    assert result.evaluations[0].al < 1.2 < 1.5 < result.best.al
    keys, tensors = read_header(asked.output)
    history = json.loads(keys[HISTORY].data)
    assert history["kind"] == "mtp" and history["steps"] == result.best.step and history["init"] is None
    assert {name.split(".")[1] for name in tensors if name.startswith("blk.")} == {str(LAYER)}
    assert train(asked, Watcher()).evaluations == result.evaluations


def test_merged(asked: TrainSettings, result: Result, with_layer: Path) -> None:
    """The whole target with the new layer drafts as the layer's own file does; nothing else of it is new."""
    assert asked.merge
    before, merged = read_header(with_layer)[1], read_header(asked.merge)[1]
    assert merged.keys() == before.keys()
    for name in before:
        if not name.startswith(f"blk.{LAYER}."):
            np.testing.assert_array_equal(
                merged[name].rows(0, merged[name].n_rows), before[name].rows(0, before[name].n_rows)
            )
    answers = []
    for files in ((with_layer, None), (with_layer, asked.output), (asked.merge, None)):
        with Engine(*files, n_ctx=512, n_threads=1, warmup=False, lookup=False) as engine:
            answers.append(engine.generate(question(engine), max_tokens=48, temperature=0, budget=8))
    noise, apart, whole = answers
    assert noise.tokens == apart.tokens == whole.tokens
    assert len(apart.acceptance_lengths) < len(noise.acceptance_lengths)
    assert apart.acceptance_lengths == whole.acceptance_lengths


def check_drafts(path: Path) -> None:
    """As many tokens of each draft of an f32 model are accepted as the network says, from the engine's own hidden
    states."""
    n_drafted = 6
    with engine_f32(path, None, n_ctx=512) as engine:
        prompt = question(engine)
        answer = engine.generate(prompt, max_tokens=64, temperature=0, draft="chain", budget=n_drafted + 1)
    tokens = torch.tensor(prompt + answer.tokens)
    with engine_f32(path, None, n_ctx=512, draft_kind="lookup", lookup=True) as engine:
        taps = torch.from_numpy(engine.tap(tokens.tolist(), (FINAL_STATE,)).hidden[:, 0])
    file, stored = MtpFile.of(path, Target.read(path), None), read_model(path)[1]
    network, every = MtpNetwork(file, torch.device("cpu")), np.arange(N_VOCAB)
    embeddings, head = (torch.from_numpy(rows(file, stored).of(every)) for rows in (embedding_rows, head_rows))

    def draft(anchor: int) -> list[int]:
        drafted, value = [int(tokens[anchor])], 1.0
        while len(drafted) <= n_drafted and value >= LEAST_VALUE:
            blocks = Blocks(
                taps[None, :anchor], torch.tensor([[anchor]]), embeddings[drafted][None, None],
                embeddings[tokens[:anchor]][None],
            )  # fmt: skip
            probs = (head @ network(blocks)[0, 0, -1]).softmax(-1)
            drafted.append(int(probs.argmax()))
            value *= float(probs.max())
        return drafted[1:]

    expected, anchor = [], len(prompt)
    while anchor + n_drafted + 1 < len(tokens):  # where nothing ends the walk early
        with torch.no_grad():
            hits = [guess == token for guess, token in zip(draft(anchor), tokens[anchor + 1 :].tolist(), strict=False)]
        expected.append([*hits, False].index(False) + 1)
        anchor += expected[-1]
    assert len(expected) > 3 and max(expected) > 2
    assert answer.acceptance_lengths[: len(expected)] == expected


def test_drafts_are_the_engines(asked: TrainSettings, result: Result, tmp_path: Path) -> None:
    assert asked.merge
    check_drafts(widen(asked.merge, tmp_path / "merged.gguf"))


def test_drafts_without_a_gate(pocket: dict[str, Path], tmp_path: Path) -> None:
    """hy_v3, whose attention has none."""
    target = as_hy_v3(pocket["target"], tmp_path / "hy_v3.gguf")
    check_drafts(widen(join_mtp(target, pocket["mtp"], tmp_path / "joined.gguf"), tmp_path / "f32.gguf"))


def test_init(asked: TrainSettings, result: Result, pocket: dict[str, Path], tmp_path: Path) -> None:
    """A target without a layer takes that of another file; low-rank changes leave norms as they are."""
    init: dict[str, Any] = {"model": pocket["hybrid-target"], "init": asked.output, "merge": tmp_path / "merged.gguf"}
    changed = replace(asked, **init, output=tmp_path / "mtp-new.gguf", work=tmp_path / "run", only="lora", rank=4,
                      epochs=0.5, outtype="f32", rate=1e-4)  # fmt: skip
    again = train(changed, Watcher())
    assert again.best.al > 0.8 * again.evaluations[0].al > 1.2
    before, after = numbers(asked.output), numbers(tmp_path / "merged.gguf")
    assert not (before[f"blk.{LAYER}.attn_k.weight"] == after[f"blk.{LAYER}.attn_k.weight"]).all()
    assert (before[f"blk.{LAYER}.attn_norm.weight"] == after[f"blk.{LAYER}.attn_norm.weight"]).all()
    with Engine(tmp_path / "merged.gguf", n_ctx=256, n_threads=1, warmup=False, draft_kind="mtp") as engine:
        assert engine.generate(question(engine), max_tokens=8, temperature=0).tokens


# ---- refusals ----


def test_wrong_files(asked: TrainSettings, pocket: dict[str, Path], with_layer: Path, tmp_path: Path) -> None:
    """Each says what is wrong and what to do, before anything is computed."""

    def refusal(error_type: type[DFlashError], match: str, **files: Any) -> str:
        with pytest.raises(error_type, match=match) as error:
            train(replace(asked, **files, work=tmp_path / "run"), Watcher())
        assert error.value.hint
        return error.value.hint

    assert "--init" in refusal(ModelError, "pocket-hybrid-target.gguf has no MTP layer", model=pocket["hybrid-target"])
    assert "--init" in refusal(ModelError, "has no MTP layer", init=pocket["hybrid-target"])
    assert "leave --kind mtp out" in refusal(ConvertError, r"\(qwen3\): MTP layers are trained", model=pocket["target"])
    refusal(ConvertError, r"\(dflash\): MTP layers are trained", init=pocket["hybrid-dflash"])
    refusal(RequestError, "prompts.jsonl is no GGUF file", init=asked.data[0])
    narrow = {f"blk.{LAYER}.attn_k.weight": np.zeros((64, WIDTH), np.float32)}
    refusal(
        ModelError, "attn_k.weight' has the shape", init=rewritten(with_layer, tmp_path / "narrow.gguf", {}, narrow)
    )
    refusal(ConvertError, "is an input", merge=with_layer)
    hint = refusal(ConvertError, "is not a drafter of architecture 'dflash'", kind=None, merge=None, init=with_layer)
    assert "--kind mtp" in hint


@pytest.mark.parametrize(
    ("change", "flag"),
    [
        ({"layers": 2}, "--layers"),
        ({"feed_forward": 64}, "--feed-forward"),
        ({"taps": (1,)}, "--taps"),
        ({"hf": Path("folder")}, "--hf"),
        ({"draft_vocab": 4096}, "--draft-vocab"),
        ({"only": "heads"}, "heads"),
        ({"kind": None}, "--merge"),
    ],
)
def test_wrong_flags(change: dict[str, Any], flag: str, asked: TrainSettings) -> None:
    with pytest.raises(RequestError, match=flag):
        replace(asked, **change)

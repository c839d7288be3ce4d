"""Which targets a drafter can read: the library's list and that of pair.py, which loads no library, are what the pinned
source says.

Three architectures use the graph of another one, and its taps with it: a tiny random model of each drafts, and answers
as without a drafter.
"""

from __future__ import annotations

import re
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dflash_local import Engine
from dflash_local.build.log import BuildLog
from dflash_local.build.upstream import Upstream
from dflash_local.diagnose.pair import NO_ROLLBACK, TAPPED_ARCHS, TAPPED_TO_THE_END
from dflash_local.native import library_info
from tests.fuzz.architectures import (
    EMBD,
    EXPERT_FF,
    EXPERT_KEYS,
    EXPERTS,
    HEADS_KV,
    Keys,
    Shapes,
    attention,
    dense,
    experts,
    image,
    pair,
    qk_norm,
)
from tests.fuzz.gguf_image import Image
from tests.hybrid.models import HYBRIDS
from tests.parity.f32 import engine_f32
from tests.trees.models import N_VOCAB, fill, find, tokenizer

NO_TARGETS = {"llama-embed"}  # taps without text: the check of a file's header refuses it

# ---- the lists ----


class Source:
    """What the pinned llama.cpp says of its architectures."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files
        self.names = dict(re.findall(r'\{ (LLM_ARCH_\w+), +"(\S+)"', files["llama-arch.cpp"]))
        self.classes = dict(
            re.findall(r"case (LLM_ARCH_\w+):\s+return new (llama_model_\w+)\(", files["llama-model.cpp"])
        )
        parts = re.split(r"^struct (llama_model_\w+) : public (\w+) \{$", files["models/models.h"], flags=re.M)[1:]
        self.structs = {parts[i]: (parts[i + 1], parts[i + 2]) for i in range(0, len(parts), 3)}

    def graph_of(self, model: str) -> str:
        """The class whose graph a model's class builds: its own, one that it names, or that of its base."""
        base, body = self.structs[model]
        if named := re.search(r"using graph = (llama_model_\w+)::graph", body):
            return self.graph_of(named[1])
        return model if re.search(r"struct graph\b", body) or base not in self.structs else self.graph_of(base)

    def with_tap(self, index: str) -> set[str]:
        """Architectures whose graph fills t_layer_inp[index]."""
        graphs = set()
        for name, text in self.files.items():
            if name.startswith("models/"):
                for function in re.split(r"^(?=llama_model_\w+::graph)", text, flags=re.M)[1:]:
                    if f"res->t_layer_inp[{index}] =" in function:
                        graphs.add(function.split("::")[0])
        tapped = {self.names[arch] for arch, model in self.classes.items() if self.graph_of(model) in graphs}
        return tapped - NO_TARGETS

    def where(self, question: str) -> set[str]:
        """Architectures of which a function `bool question(arch)` says yes."""
        body = self.files["llama-arch.cpp"].split(f"bool {question}(")[1].split("return true")[0]
        return {self.names[arch] for arch in re.findall(r"case (LLM_ARCH_\w+):", body)}


@pytest.fixture(scope="module")
def source(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Source:
    with BuildLog(tmp_path_factory.mktemp("log") / "log") as log:
        archive = Upstream.read(repo / "patches" / "UPSTREAM").fetch(log)
    files = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            folder, _, name = member.name.partition("/vendor/llama.cpp/src/")
            if "/" not in folder and re.fullmatch(r"models/.*\.(cpp|h)|llama-(arch|model)\.cpp", name):
                file = tar.extractfile(member)
                assert file is not None
                files[name] = file.read().decode()
    return Source(files)


def test_tapped_architectures_are_those_of_the_source(source: Source) -> None:
    assert len(source.with_tap("il")) > 20
    assert set(library_info()["tapped_architectures"]) == source.with_tap("il")
    assert source.with_tap("il") == TAPPED_ARCHS


def test_taps_after_the_last_layer_are_those_of_the_source(source: Source) -> None:
    assert len(source.with_tap("n_layer")) > 2
    assert set(library_info()["tapped_to_the_end"]) == source.with_tap("n_layer")
    assert source.with_tap("n_layer") == TAPPED_TO_THE_END


def test_states_that_cannot_be_rolled_back_are_those_of_the_source(source: Source) -> None:
    recurrent = source.where("llm_arch_is_recurrent") | source.where("llm_arch_is_hybrid")
    assert recurrent >= HYBRIDS.keys(), "architectures whose states our tapes roll back"
    stuck = recurrent - source.where("llm_arch_supports_rs_rollback") - HYBRIDS.keys()
    assert stuck & TAPPED_ARCHS == NO_ROLLBACK


# ---- models that share a graph ----

BLOCK, MASK = 4, N_VOCAB - 2


def hunyuan_dense(base: Image) -> Image:
    layer = attention() | qk_norm() | dense() | {"ffn_norm.weight": [EMBD]}
    return image("hunyuan-dense", base, {}, lambda _: layer)


def lfm2moe(base: Image) -> Image:
    """Short convolution with a dense layer, then attention with a mixture."""
    conv: Shapes = {
        "attn_norm.weight": [EMBD], "shortconv.conv.weight": [3, EMBD],
        "shortconv.in_proj.weight": [EMBD, 3 * EMBD], "shortconv.out_proj.weight": [EMBD, EMBD],
    }  # fmt: skip
    first = conv | dense() | {"ffn_norm.weight": [EMBD]}
    second = attention() | qk_norm() | experts() | {"exp_probs_b.bias": [EXPERTS], "ffn_norm.weight": [EMBD]}
    keys: Keys = EXPERT_KEYS | {
        "attention.head_count_kv": [0, HEADS_KV], "shortconv.l_cache": 3, "leading_dense_block_count": 1, "expert_gating_func": 2,
    }  # fmt: skip
    made = image("lfm2moe", base, keys, lambda i: second if i else first)
    find(made, "output_norm.weight").name = b"token_embd_norm.weight"
    return made


def nemotron_h_moe(base: Image) -> Image:
    """Mamba 2, attention, a mixture: each a layer of its own."""
    inner, state, heads, groups = EMBD, 16, 4, 2
    channels = inner + 2 * groups * state
    mamba: Shapes = {
        "attn_norm.weight": [EMBD], "ssm_in.weight": [EMBD, inner + channels + heads], "ssm_conv1d.weight": [4, channels],
        "ssm_conv1d.bias": [channels], "ssm_dt.bias": [heads], "ssm_a": [1, heads], "ssm_d": [1, heads],
        "ssm_norm.weight": [inner // groups, groups], "ssm_out.weight": [inner, EMBD],
    }  # fmt: skip
    mixture: Shapes = {name: dims for name, dims in experts().items() if "gate_exps" not in name} | {
        "attn_norm.weight": [EMBD], "exp_probs_b.bias": [EXPERTS],
        "ffn_up_shexp.weight": [EMBD, EXPERT_FF], "ffn_down_shexp.weight": [EXPERT_FF, EMBD],
    }  # fmt: skip
    keys: Keys = EXPERT_KEYS | {
        "attention.head_count_kv": [0, HEADS_KV, 0], "feed_forward_length": [0, 0, EXPERT_FF], "attention.layer_norm_epsilon": 1e-6,
        "ssm.conv_kernel": 4, "ssm.inner_size": inner, "ssm.state_size": state, "ssm.time_step_rank": heads, "ssm.group_count": groups,
        "expert_shared_feed_forward_length": EXPERT_FF, "expert_shared_count": 1, "expert_weights_norm": True,
    }  # fmt: skip
    made = image("nemotron_h_moe", base, keys, lambda i: (mamba, attention(), mixture)[i], layers=3)
    find(made, "blk.0.ssm_a").data = struct.pack("<4f", -0.01, -0.1, -0.5, -1.0)  # states fade
    return made


def prefer(made: Image) -> Image:
    """A preference for some tokens, whatever is before them: all embeddings share a channel that the head reads. A
    drafter that borrows both guesses some tokens right."""
    rng = np.random.default_rng(7)
    for name, channel in (("token_embd.weight", 4.0), ("output.weight", rng.normal(0, 0.5, N_VOCAB))):
        tensor = find(made, name)
        rows = np.frombuffer(tensor.data, np.float32).reshape(N_VOCAB, EMBD).copy()
        rows[:, 0] = channel
        tensor.data = rows.tobytes()
    return made


def drafter(base: Image, taps: list[int]) -> Image:
    """A random DFlash drafter of one layer that borrows embeddings and head."""
    keys: Keys = {"target_layers": taps, "block_size": BLOCK, "attention.causal": False}
    layer = attention() | qk_norm() | dense() | {"ffn_norm.weight": [EMBD]}
    others: Shapes = {"fc.weight": [len(taps) * EMBD, EMBD], "enc.output_norm.weight": [EMBD]}
    made = image("dflash", base, keys, lambda _: layer, layers=1, others=others)
    made.pairs.append(pair("tokenizer.ggml.mask_token_id", MASK))
    made.tensors = [tensor for tensor in made.tensors if tensor.name not in (b"token_embd.weight", b"output.weight")]
    fill(made, "enc.output_norm.weight", 1.0)
    return made


SHARED: dict[str, tuple[Callable[[Image], Image], list[int]]] = {
    "hunyuan-dense": (hunyuan_dense, [0, 1]),
    "lfm2moe": (lfm2moe, [0, 1]),
    "nemotron_h_moe": (nemotron_h_moe, [1, 2, 3]),  # the last one is what leaves the last layer
}


@pytest.fixture(params=SHARED)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    make, taps = SHARED[request.param]
    target, draft = tmp_path / "target.gguf", tmp_path / "drafter.gguf"
    target.write_bytes(prefer(make(tokenizer())).encode()[0])
    draft.write_bytes(drafter(tokenizer(), taps).encode()[0])
    return engine_f32(target, draft, n_ctx=256)


def test_a_shared_graph_drafts_and_answers_alike(engine: Engine) -> None:
    with engine:
        accepted = 0
        for seed in range(6):
            prompt = [int(word) for word in np.random.default_rng(seed).integers(0, MASK, 9)]
            answers = [
                engine.generate(prompt, max_tokens=60, temperature=0.7, seed=seed, ignore_eos=True, budget=budget)
                for budget in (1, BLOCK)
            ]
            assert answers[0].tokens == answers[1].tokens
            assert answers[0].timings.draft_n == 0 < answers[1].timings.draft_n
            accepted += answers[1].timings.draft_n_accepted
        assert accepted > 0


def test_a_shared_graph_gives_taps_that_say_what_was_read(engine: Engine) -> None:
    """The drafter sees the target through its taps alone: other words before the same anchor, other hidden states."""
    with engine:
        probes = [engine.draft_probe([*words, 5], BLOCK).hidden for words in ([1, 2, 3], [1, 2, 3], [3, 2, 1])]
        assert np.isfinite(probes[0]).all()
        np.testing.assert_array_equal(probes[0], probes[1])
        assert np.abs(probes[0] - probes[2]).max() > 1e-3

"""Files that ended the process before there was a check, a patch or a guard against them; each stays refused, or
harmless, for good.

The header-level ones are also in ggml_ops/tests/pure/test_gguf_check.cpp; these go through the whole engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .gguf_image import ARRAY, F32, I32, I64, U32, Image, Pair, Tensor, array, number, tensor_bytes, text

F64_TENSOR, I8_TENSOR, Q8_1_TENSOR, I32_TENSOR, I64_TENSOR = 28, 24, 9, 26, 27


@dataclass(frozen=True)
class Case:
    """A damaged file and what the engine says to it."""

    base: str  # "target", "drafter" (a DFlash 2 one) or the name of another architecture
    edit: Callable[[Image], None]
    result: str  # part of the worker's result, "" if any will do
    origin: str  # what stock llama.cpp did, or who refuses the file before libdflash sees it


def put(image: Image, suffix: str, kind: int, body: bytes) -> None:
    key = image.architecture + b"." + suffix.encode()
    image.pairs = [p for p in image.pairs if p.key != key] + [Pair(key, kind, body)]


def retype(name: str, kind: int) -> Callable[[Image], None]:
    def edit(image: Image) -> None:
        tensor = next(t for t in image.tensors if t.name == name.encode())
        tensor.kind, tensor.data = kind, bytes(tensor_bytes(tensor.dims, kind))

    return edit


def key(suffix: str, value: float, kind: int = U32) -> Callable[[Image], None]:
    return lambda image: put(image, suffix, kind, number(kind, value))


def template(source: str) -> Callable[[Image], None]:
    def edit(image: Image) -> None:
        image.find(b"tokenizer.chat_template").body = text(source.encode())

    return edit


def twin_tokens(image: Image) -> None:
    pair = image.find(b"tokenizer.ggml.tokens")
    items = pair.items()
    pair.body = array(pair.item, [text(b"a\0b"), text(b"a\0c"), *items[2:]])


def sections(image: Image) -> None:
    put(image, "rope.dimension_sections", ARRAY, array(I32, [number(I32, n) for n in (1, -1, 0, 0)]))


def far_tap(image: Image) -> None:
    put(image, "target_layers", ARRAY, array(I32, [number(I32, n) for n in (1, 3, 6)]))


def foreign_tokens(image: Image) -> None:
    pair = image.find(b"tokenizer.ggml.tokens")
    pair.body = array(pair.item, [text(b"%d" % n) for n in range(len(pair.items()))])


def one_token_less(image: Image) -> None:
    for name in (b"tokenizer.ggml.tokens", b"tokenizer.ggml.token_type"):
        pair = image.find(name)
        pair.body = array(pair.item, pair.items()[:-1])


def more_tensors(width: int) -> Callable[[Image], None]:
    """Attention biases and an embedding of the mask token, of `width` times their size."""

    def edit(image: Image) -> None:
        sizes = {tensor.name: tensor.dims for tensor in image.tensors}
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            n = width * sizes[f"blk.0.{name}.weight".encode()][1]
            image.tensors.append(Tensor(f"blk.0.{name}.bias".encode(), [n], 0, number(F32, 0.25) * n))
        n = width * sizes[b"output_norm.weight"][0]
        image.tensors.append(Tensor(b"mask_embd.weight", [n], 0, number(F32, 0.25) * n))

    return edit


def everything_of_ours(image: Image) -> None:
    more_tensors(1)(image)
    put(image, "backbone_rotary_base", F32, number(F32, 5e6))
    put(image, "selector_vocab_size", U32, number(U32, 1000))


def small_d2t(image: Image) -> None:
    image.tensors.append(Tensor(b"d2t", [64], I64_TENSOR, bytes(64 * 8)))


def wild_d2t(image: Image) -> None:
    rows = len(image.find(b"tokenizer.ggml.tokens").items())
    image.tensors.append(Tensor(b"d2t", [rows], I64_TENSOR, b"".join(number(I64, 1 << 40) for _ in range(rows))))


def remove(name: str) -> Callable[[Image], None]:
    def edit(image: Image) -> None:
        image.tensors = [t for t in image.tensors if t.name != name.encode()]

    return edit


def not_a_number(image: Image) -> None:
    for tensor in image.tensors:
        if tensor.name == b"output_norm.weight":
            tensor.data = b"\xff" * len(tensor.data)


CASES = {
    # types without a kernel: GGML_ABORT or a null function pointer, on a worker thread
    "f64 norm": Case("target", retype("blk.0.attn_norm.weight", F64_TENSOR), "must be f32", "SIGABRT in binary_op"),
    "f64 drafter norm": Case(
        "drafter", retype("output_norm.weight", F64_TENSOR), "must be f32", "SIGABRT in binary_op"
    ),
    "i8 embedding": Case("target", retype("token_embd.weight", I8_TENSOR), "cannot multiply", "SIGABRT in get_rows"),
    "q8_1 matrix": Case("target", retype("blk.2.attn_q.weight", Q8_1_TENSOR), "cannot multiply", "SIGSEGV: no vec_dot"),
    "i8 convolution": Case(
        "drafter", retype("blk.0.attn_conv_proj.weight", I8_TENSOR), "cannot multiply", "SIGSEGV: no vec_dot"
    ),
    # numbers that are asserted on
    "513 layers": Case("target", key("block_count", 513), "block_count", "SIGABRT in load_hparams"),
    "rope beyond the head": Case(
        "target", key("rope.dimension_count", 512), "rope.dimension_count", "SIGABRT in the graph"
    ),
    "rope over nothing": Case("drafter", key("rope.dimension_count", 0), "rope.dimension_count", "an endless loop"),
    "negative rope": Case("drafter", key("rope.dimension_count", -2), "rope.dimension_count", "an endless loop"),
    "experts, none used": Case("target", key("expert_count", 1024), "expert_used_count", "SIGABRT in load_hparams"),
    "negative epsilon": Case(
        "target", key("attention.layer_norm_rms_epsilon", -1.0, F32), "layer_norm_rms_epsilon", "SIGABRT in rms_norm"
    ),
    "wider output": Case(
        "drafter", key("embedding_length_out", 1024), "embedding_length_out", "SIGABRT: read out of bounds"
    ),
    # numbers that are divided by
    "sections that cancel out": Case("drafter", sections, "rope.dimension_sections", "SIGFPE in rope"),
    # the vocabulary
    "tokens equal up to a zero byte": Case("target", twin_tokens, "the same text twice", "SIGABRT in llama_vocab"),
    # tables of indices
    "d2t without output rows": Case("drafter", small_d2t, "d2t", "SIGABRT in the graph"),
    "d2t beyond the vocabulary": Case("drafter", wild_d2t, "d2t", "SIGABRT in set_rows"),
    # chat templates; one that cannot be parsed may be refused or replaced by a plain one
    "nested template": Case(
        "target", template("{{ " + "(" * 100_000 + "1" + ")" * 100_000 + " }}"), "", "SIGSEGV: stack"
    ),
    "long sum": Case("target", template("{{ 1" + "+1" * 200_000 + " }}"), "", "SIGSEGV: stack, in the destructor"),
    "endless macro": Case(
        "target", template("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), "limit of nesting", "SIGSEGV: stack"
    ),
    "division by zero": Case("target", template("{{ 1 is divisibleby(0) }}"), "must not be zero", "SIGFPE"),
    "endless range": Case(
        "target", template("{% for i in range(1000000000000) %}{{ i }}{% endfor %}"), "limit of items", "all memory"
    ),
    "endless string": Case("target", template("{{ 'a' * 10000000000 }}"), "limit of text", "all memory"),
    # what the checker does not know: the graph asserts, the guard makes it an error
    "recurrent layer without its gate": Case(
        "qwen35", remove("blk.0.attn_gate.weight"), "refused", "SIGSEGV: null weight"
    ),
    # pairs that do not fit; the worker keeps pair.check out of the way
    "a tap beyond the target": Case("drafter", far_tap, "does not offer as a tap", "pair.check"),
    "a smaller vocabulary": Case("drafter", one_token_less, "refused", "pair.check"),
    "more candidates than tokens": Case("drafter", key("selector_vocab_size", 1 << 20), "selector_vocab_size", "new"),
    "fewer candidates than the lattice": Case("drafter", key("selector_vocab_size", 3), "selector_top_k", "new"),
    # what upstream does not know
    "no base of injected keys": Case(
        "drafter", key("backbone_rotary_base", 0.0, F32), "backbone_rotary_base", "angles that are not finite"
    ),
    "another base of injected keys": Case("drafter", key("backbone_rotary_base", 5e6, F32), "answered", "new"),
    "biases and a mask embedding": Case("drafter", more_tensors(1), "answered", "new"),
    "biases of another shape": Case("drafter", more_tensors(2), "wrong shape", "read out of bounds"),
    "nothing that fuses the taps": Case("drafter", remove("fc.weight"), "fc.weight", "new: it is optional in 0013"),
    "another vocabulary": Case("drafter", foreign_tokens, "answered", "pair.check"),
    # weights
    "weights that are no numbers": Case("target", not_a_number, "not finite", "noise"),
}

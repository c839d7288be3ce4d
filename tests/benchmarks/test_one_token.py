"""The benchmark of one token: which part a sample belongs to, and what its table says."""

from __future__ import annotations

import pytest

from benchmarks import one_token


@pytest.mark.parametrize(
    ("symbol", "part"),
    [
        ("libggml-cpu.so void dflash::multiply<dflash::panel_q4_1, 1>(...)", "products"),
        ("libggml-cpu.so dflash::flash_attention(...)", "attention"),
        ("libggml-cpu.so ggml_compute_forward_rms_norm", "norms, RoPE, activations, KV writes"),
        ("libggml-cpu.so dflash::wait_for(...)", "waiting for the other thread"),
        ("[kernel.kallsyms] futex_wait", "waiting for the other thread"),
        ("libllama.so llama_batch_allocr::init", "graphs and batches"),
        ("libdflash.so dflash::engine::step()", "sampling and the step"),
        ("libpython3.11.so.1.0 _PyEval_EvalFrameDefault", "Python and HTTP"),
        ("libc.so.6 __memmove_avx512_unaligned_erms", one_token.REST),
    ],
)
def test_a_symbol_has_a_part(symbol: str, part: str) -> None:
    assert one_token.part_of(symbol) == part


def test_threads_that_compute_share_their_time() -> None:
    product, step, python = ("libggml-cpu.so multiply", "libdflash.so step", "libpython3.so eval")
    samples = [("1", product)] * 50 + [("2", product)] * 50 + [("1", step)] * 10 + [("3", python)] * 5
    parts = one_token.milliseconds(samples, 10, 2)
    assert parts["products"] == pytest.approx(50 * one_token.PERIOD_MS / 10)
    assert parts["sampling and the step"] == pytest.approx(10 * one_token.PERIOD_MS / 10)
    assert parts["Python and HTTP"] == pytest.approx(5 * one_token.PERIOD_MS / 10)


def test_a_line_of_perf() -> None:
    assert one_token._parsed("  123      7f5e dflash::step(int) (/a b/lib/libdflash.so)") == (
        "123", "libdflash.so dflash::step(int)",
    )  # fmt: skip
    assert one_token._parsed("") is None


def test_the_table() -> None:
    row = {"model": "Model", "token_ms": 2.5, "parts_ms": {"products": 2.0, "attention": 0.25}}
    lines = one_token.markdown([row], "Here.").splitlines()
    assert lines[0] == "| ms of one token | Model |" and lines[2] == "| products | 2.000 |"
    assert lines[4:6] == ["| together | 2.25 |", "| by the server's clock | 2.50 |"]

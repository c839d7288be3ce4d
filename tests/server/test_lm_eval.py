"""lm-evaluation-harness against a live server: a task of each kind that it has for language models, without the hub.

Its likelihoods are compared with the engine's own and with softmax of the logits, its answers with what the engine
says. Its tokenizer is the server's (vLLM's `/tokenizer_info`, `/tokenize`, `/detokenize`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_local.engine import Engine, TreeRows
from tests.extras import needs
from tests.server.live import Live, live_pair

pytestmark = pytest.mark.slow

CHOICES: list[dict[str, Any]] = [
    {
        "question": "What is the symbol of copper?",
        "choices": ["Cu", "The chemical symbol of copper is Cu.", "The symbol of gold is Au."],
        "answer": 1,
    },
    {"question": "What is 48 plus 24?", "choices": ["72", "48 plus 24 is 72.", "41"], "answer": 1},
    {
        "question": "What is the capital of France?",
        "choices": ["Lisbon", "The capital of France is Paris."],
        "answer": 1,
    },
]
ASKED = "<|im_start|>user\n{{question}}<|im_end|>\n<|im_start|>assistant\n"
TASKS: dict[str, dict[str, Any]] = {
    "pocket_choices": {
        "output_type": "multiple_choice",
        "doc_to_text": ASKED,
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{answer}}",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}],
    },
    "pocket_likelihood": {
        "output_type": "loglikelihood",
        "doc_to_text": ASKED,
        "doc_to_target": "{{choices[answer]}}",
        "target_delimiter": "",
        "metric_list": [{"metric": "perplexity"}, {"metric": "acc"}],
    },
    "pocket_answers": {
        "output_type": "generate_until",
        "doc_to_text": ASKED,
        "doc_to_target": "{{choices[answer]}}",
        "generation_kwargs": {"until": ["<|im_end|>", "."], "max_gen_toks": 40, "do_sample": False},
        "metric_list": [{"metric": "exact_match"}],
    },
    "pocket_text": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{question}}",
        "metric_list": [{"metric": "word_perplexity"}],
    },
}


@pytest.fixture(scope="module")
def server(pocket: dict[str, Path]) -> Iterator[Live]:
    with live_pair(pocket["target"], pocket["dflash"], n_ctx=2048, n_slots=4) as running:
        yield running


@pytest.fixture(scope="module", params=[(1, 4), (3, 1)], ids=["one by one, four at a time", "batches of three"])
def samples(
    request: pytest.FixtureRequest, server: Live, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    """What the harness did with each document, by task."""
    needs("lm_eval")
    folder = tmp_path_factory.mktemp("lm_eval")
    documents = folder / "documents.jsonl"
    documents.write_text("".join(json.dumps(choice) + "\n" for choice in CHOICES))
    for name, task in TASKS.items():
        files = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(documents)}}}
        config = {"task": name, **files, "test_split": "test", **task}
        (folder / f"{name}.yaml").write_text(json.dumps(config))  # JSON is YAML
    batch_size, num_concurrent = request.param
    arguments = {
        "model": "pocket", "base_url": f"{server.url}/v1/completions", "max_length": 512,
        "num_concurrent": num_concurrent,
    }  # fmt: skip
    command = [
        sys.executable, "-m", "lm_eval", "--model", "local-completions", "--include_path", folder,
        "--model_args", ",".join(f"{name}={value}" for name, value in arguments.items()),
        "--tasks", ",".join(TASKS), "--output_path", folder / "out", "--log_samples",
        "--batch_size", batch_size,
    ]  # fmt: skip
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
    ran = subprocess.run(
        [str(word) for word in command], env={**os.environ, **offline}, capture_output=True, text=True, timeout=900
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = {}
    for name in TASKS:
        (path,) = (folder / "out").rglob(f"samples_{name}_*.jsonl")
        found[name] = sorted((json.loads(line) for line in path.open()), key=lambda sample: int(sample["doc_id"]))
    return found


def asked(question: str) -> str:
    return ASKED.replace("{{question}}", question)


def by_hand(engine: Engine, context: str, text: str) -> tuple[float, bool]:
    """The text's log-likelihood by softmax of the logits in double precision, and whether it is the greedy answer."""
    before, after = (engine.tokenize(part, add_special=False) for part in (context, text))
    tokens = before + after
    engine.slot_clear(0)
    path = range(len(tokens))
    (logits,) = engine.tree_pass([TreeRows(0, tokens, [i - 1 for i in path], path)])
    engine.slot_clear(0)
    assert logits is not None
    rows = logits[len(before) - 1 : -1].astype(np.float64)
    rows -= np.log(np.exp(rows - rows.max(1, keepdims=True)).sum(1, keepdims=True)) + rows.max(1, keepdims=True)
    said = rows[np.arange(len(after)), after]
    return float(said.sum()), bool((said == rows.max(1)).all())


def test_likelihoods(server: Live, samples: dict[str, list[dict[str, Any]]]) -> None:
    greedy = 0
    for choice, sample in zip(CHOICES, samples["pocket_choices"], strict=True):
        for text, response in zip(choice["choices"], sample["resps"], strict=True):
            likelihood, is_greedy = response[0]
            expected, expected_greedy = by_hand(server.engine, asked(choice["question"]), text)
            assert float(likelihood) == pytest.approx(expected, abs=1e-4)
            assert str(is_greedy) == str(expected_greedy)
            greedy += expected_greedy
    assert greedy == 2  # two of the answers are what the model says
    for choice, sample in zip(CHOICES, samples["pocket_likelihood"], strict=True):
        expected, _ = by_hand(server.engine, asked(choice["question"]), choice["choices"][choice["answer"]])
        assert float(sample["resps"][0][0][0]) == pytest.approx(expected, abs=1e-4)


def test_rolling_likelihoods(server: Live, samples: dict[str, list[dict[str, Any]]]) -> None:
    end = server.engine.detokenize([server.engine.info["eos_token"]], special=True)  # the harness's prefix
    for choice, sample in zip(CHOICES, samples["pocket_text"], strict=True):
        expected, _ = by_hand(server.engine, end, choice["question"])
        assert float(sample["resps"][0][0]) == pytest.approx(expected, abs=1e-4)


def test_answers(server: Live, samples: dict[str, list[dict[str, Any]]]) -> None:
    for choice, sample in zip(CHOICES, samples["pocket_answers"], strict=True):
        prompt = asked(choice["question"])
        said = server.engine.generate(prompt, temperature=0, max_tokens=40, stop=["<|im_end|>", "."], draft="off")
        assert sample["resps"][0][0] == said.text

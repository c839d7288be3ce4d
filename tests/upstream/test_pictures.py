"""Upstream's server and ours, undrafted, read the same pictures and answer with the same words.

Both run mtmd's encoder, but kernels of ours round otherwise. So log-probabilities of the same tokens may differ by
`TOLERANCE`, and words where two of them are as likely as that; after that they are of other texts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from gguf import GGMLQuantizationType
from PIL import Image

from benchmarks.http_load import Server
from benchmarks.pocket_vl import scenes
from benchmarks.systems import our_server, upstream_server
from dflash_local.build.peer import build as build_peer
from dflash_local.demo.pocket import seeing_pair
from tests.fuzz.media.files import noise
from tests.gguf_files import mixed
from tests.media.samples import saved, text_of
from tests.patience import PATIENCE
from tests.projector_files import projector_file
from tests.upstream.names import TARGET

pytestmark = pytest.mark.slow

TOKENS, TOP = 32, 5
# Measured: 0.012, and with Q8_0, whose activations are integers, 0.17; of texts without pictures 0.009 and 0.09.
TOLERANCE = {"f16": 0.03, "q8_0": 0.3, "pocket-vl": 0.05}
USER, ANSWER = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"


def _scene(width: int, height: int) -> Image.Image:
    """A few squares."""
    picture = Image.new("RGB", (width, height), (250, 250, 240))
    for number, color in enumerate([(200, 30, 30), (30, 30, 200), (20, 140, 40)]):
        side = min(width, height) // 4
        picture.paste(
            color, (number * width // 3, number * height // 4, number * width // 3 + side, height // 4 + side)
        )
    return picture


PICTURES = {
    "scene": saved(_scene(96, 96)),
    "wide": saved(_scene(160, 64)),
    "noise": saved(noise(48, 80)),
    "dot": saved(noise(1, 1)),
    "one": saved(Image.fromarray(scenes.draw(scenes.scene(1)))),
    "other": saved(Image.fromarray(scenes.draw(scenes.scene(4)))),
}
# A text, in which names in braces stand for pictures.
PROMPTS = {
    "none": "Describe the weather in spring.",
    "first": "{scene}Describe the picture.",
    "last": "Describe the picture.{scene}",
    "between": "This is the first: {noise} What is it?",
    "wide": "{wide}Which shape is left?",
    "dot": "{dot}Which color is it?",
    "two": "{scene}{wide}What is different?",
    "twice": "One: {noise} and the same again: {noise} Are they equal?",
    "drawn": "{one}Describe the picture.",
    "both drawn": "{one}{other}Which picture has more shapes?",
}


class Models(NamedTuple):
    """A target and its projector."""

    target: Path
    projector: Path


class Servers(NamedTuple):
    """The ports of both, and the type of the target's weights."""

    theirs: int
    ours: int
    kind: str


@pytest.fixture(scope="module", params=["f16", "q8_0", "pocket-vl"])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Both with the pocket target and a projector of random weights, or with the pocket-VL."""
    folder = tmp_path_factory.mktemp("pictures")
    kind = request.param
    models = Models(TARGET, projector_file(folder / "mmproj.gguf"))
    if kind == "q8_0":
        models = models._replace(target=mixed(models.target, folder / "q8_0.gguf", [GGMLQuantizationType.Q8_0]))
    if kind == "pocket-vl":
        models = Models(*seeing_pair()[:2])
    flags = [
        "-m",
        str(models.target),
        "--mmproj",
        str(models.projector),
        "-c",
        "1024",
        "-np",
        "1",
        "-t",
        "1",
        "-fa",
        "on",
    ]
    theirs, ours = upstream_server(build_peer(), flags), our_server(flags, "--draft", "off")
    with Server("theirs", theirs, folder / "theirs.log") as one, Server("ours", ours, folder / "ours.log") as other:
        yield Servers(one.port, other.port, kind)


def answer(port: int, text: str) -> dict[str, Any]:
    """What a server says to a text with pictures."""
    url = f"http://127.0.0.1:{port}"
    marker = httpx.get(url + "/props", timeout=PATIENCE).json()["media_marker"]
    names = [part.split("}")[0] for part in text.split("{")[1:]]
    marked = USER + text.format_map(dict.fromkeys(PICTURES, marker)) + ANSWER
    prompt = {"prompt_string": marked, "multimodal_data": [text_of(PICTURES[name]) for name in names]}
    body = {"prompt": prompt if names else marked, "n_predict": TOKENS, "temperature": 0, "n_probs": TOP}
    response = httpx.post(url + "/completion", json={**body, "cache_prompt": False}, timeout=PATIENCE)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("name", PROMPTS)
def test_the_same_words(servers: Servers, name: str) -> None:
    theirs, ours = (answer(port, PROMPTS[name]) for port in (servers.theirs, servers.ours))
    # All tokens of the prompt, rows of pictures among them.
    assert ours["tokens_evaluated"] == theirs["tokens_evaluated"]
    pairs = list(zip(theirs["completion_probabilities"], ours["completion_probabilities"], strict=False))
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0]["id"] == pair[1]["id"], pairs))
    most = max(
        difference(*pair) for pair in pairs[: same + 1]
    )  # that of the first other word, too: it is no other text
    print(f"{name}: {same} of {len(pairs)} tokens are the same, log-probabilities within {most:.4f}")
    assert most < TOLERANCE[servers.kind]
    assert same < len(pairs) or ours["content"] == theirs["content"]


def difference(theirs: dict[str, Any], ours: dict[str, Any]) -> float:
    """Of the log-probabilities of the likeliest tokens that both list, at most."""
    one, other = ({top["id"]: top["logprob"] for top in row["top_logprobs"]} for row in (theirs, ours))
    return max(abs(one[token] - other[token]) for token in one.keys() & other.keys())


def test_pictures_decide(servers: Servers) -> None:
    """Both look: another picture is another distribution of the first word."""
    for port in (servers.theirs, servers.ours):
        first, second = (answer(port, text)["completion_probabilities"][0] for text in ("{scene}See?", "{noise}See?"))
        assert first["top_logprobs"] != second["top_logprobs"]

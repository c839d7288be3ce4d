"""A real engine with a projector, behind HTTP: tiny random weights, so only counts and refusals are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dflash_local.server.settings import Settings
from tests.media.samples import data_url, flac, png, text_of, wav
from tests.media.tiny_projectors import write
from tests.server.conftest import events, post
from tests.server.live import Live, live_pair

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
IMAGE = {"type": "image_url", "image_url": {"url": data_url(png(40, 56))}}
OTHER = {"type": "image_url", "image_url": {"url": data_url(png(40, 56, (0, 0, 255)))}}
SOUND = {"type": "input_audio", "input_audio": {"data": text_of(wav(16_000)), "format": "wav"}}
SHORT = {"max_tokens": 2, "temperature": 0}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Qwen2.5-Omni's kind of projector, which sees and hears."""
    files = write("qwen2.5o", tmp_path_factory.mktemp("omni"))

    with live_pair(
        files.model, settings=Settings(alias="omni"), mmproj=files.mmproj, n_ctx=2048, n_slots=2, chat_template="chatml"
    ) as running:
        yield running


def user(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [*parts]}], **SHORT}


def details(answer: Any) -> dict[str, int]:
    found: dict[str, int] = answer["usage"]["prompt_tokens_details"]
    return found


def test_what_it_reads(server: Live) -> None:
    assert server.http.get("/props").json()["modalities"] == {"vision": True, "audio": True, "video": False}


def test_rows_of_images_and_audio_are_counted(server: Live) -> None:
    """Each alone, both together, and by all that count tokens."""
    image, sound = (details(post(server, CHAT, user(part))) for part in (IMAGE, SOUND))
    assert image["image_tokens"] > 1 and "audio_tokens" not in image
    assert sound["audio_tokens"] > 1 and "image_tokens" not in sound
    body = user(IMAGE, {"type": "text", "text": "w1 w2"}, SOUND, OTHER)
    both = post(server, CHAT, body)
    assert details(both)["image_tokens"] == 2 * image["image_tokens"]
    assert details(both)["audio_tokens"] == sound["audio_tokens"]
    assert post(server, f"{CHAT}/input_tokens", body)["input_tokens"] == both["usage"]["prompt_tokens"]


def test_a_follow_up_reads_no_picture_again(server: Live) -> None:
    first = user(OTHER, {"type": "text", "text": "w3"}, IMAGE, SOUND)
    answer = post(server, CHAT, first)
    turns = [*first["messages"], answer["choices"][0]["message"], {"role": "user", "content": "w4"}]
    later = details(post(server, CHAT, {**first, "messages": turns}))
    assert later["cached_tokens"] >= details(answer)["image_tokens"] + details(answer)["audio_tokens"]
    again = events(server, CHAT, {**first, "stream_options": {"include_usage": True}})[-1]
    assert details(again)["cached_tokens"] >= answer["usage"]["prompt_tokens"] - 8


def test_choices_see_the_same(server: Live) -> None:
    choices = post(server, CHAT, {**user(IMAGE), "n": 2})["choices"]
    assert choices[0]["message"] == choices[1]["message"]


def test_the_other_formats(server: Live) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": text_of(png(40, 56))}
    blocks = [{"type": "image", "source": source}, {"type": "text", "text": "w1"}]
    message = post(server, MESSAGES, {"messages": [{"role": "user", "content": blocks}], **SHORT})
    counted = post(server, f"{MESSAGES}/count_tokens", {"messages": [{"role": "user", "content": blocks}]})
    assert sum(message["usage"][f"{kind}input_tokens"] for kind in ("", "cache_read_")) == counted["input_tokens"]
    shown = {"type": "input_image", "image_url": IMAGE["image_url"]["url"]}  # type: ignore[index]
    post(server, RESPONSES, {"input": [{"role": "user", "content": [shown]}], "max_output_tokens": 2})
    prompt = {"role": "user", "content": "w1", "images": [text_of(png(40, 56))]}
    assert post(server, "/api/chat", {"messages": [prompt], "stream": False})["prompt_eval_count"] > 8
    marker = server.http.get("/props").json()["media_marker"]
    body = {"prompt_string": f"w1{marker}w2{marker}", "multimodal_data": [text_of(png(40, 56)), text_of(wav(16_000))]}
    assert post(server, "/completion", {"prompt": body, "n_predict": 2})["tokens_evaluated"] > 10


def test_audio_that_only_the_decoder_can_refuse(server: Live) -> None:
    """Its header is sound; the rest is not."""
    data = text_of(flac())
    body = user(
        {"type": "text", "text": "w1"}, {"type": "input_audio", "input_audio": {"data": data, "format": "flac"}}
    )
    marker = server.http.get("/props").json()["media_marker"]
    native = {"prompt": {"prompt_string": marker, "multimodal_data": [data]}}
    for path, sent, param in (
        (CHAT, body, "messages[0].content[1].input_audio"),
        ("/completion", native, "prompt.multimodal_data[0]"),
    ):
        answer = server.http.post(path, json=sent)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == param
        assert "no audio that can be read" in answer.json()["error"]["message"]
    assert post(server, CHAT, user(IMAGE))

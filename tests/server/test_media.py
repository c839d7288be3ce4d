"""Images and audio in all APIs: what reaches the model, what it costs, and what is refused in whose words."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import ollama
import psutil
import pytest
from PIL import Image

from dflash_local.engine import Engine
from dflash_local.media.image_file import FORMATS
from dflash_local.media.media_sources import MediaSources
from dflash_local.media.medium import Medium
from dflash_local.server.media_gate import MOST
from dflash_local.server.security.limits import Limits
from dflash_local.server.settings import Settings
from tests.fake_native import MARKER, ROWS, SEES_AND_HEARS, FakeNative
from tests.media.samples import data_url, flac, mp3, png, png_of, saved, text_of, wav
from tests.patience import PATIENCE
from tests.server.conftest import events, post
from tests.server.live import Live, live

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
RED, BLUE = png(), png(2, 5, (0, 0, 255))
N_ROWS = ROWS["image"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "red.png").write_bytes(RED)
    return folder


@pytest.fixture(scope="module")
def native() -> FakeNative:
    return FakeNative(n_slots=2, info=SEES_AND_HEARS)


@pytest.fixture(scope="module")
def server(native: FakeNative, folder: Path) -> Iterator[Live]:
    settings = Settings(alias="fake", media=MediaSources(folder=folder))
    with live(lambda _progress: Engine.over(native), settings) as running:
        yield running


@pytest.fixture(autouse=True)
def forget(native: FakeNative) -> None:
    native.prepared.clear()
    native.media.clear()


def image(data: bytes = RED, **more: Any) -> dict[str, Any]:
    """OpenAI's part."""
    return {"type": "image_url", "image_url": {"url": data_url(data), **more}}


def sound(data: bytes = b"", form: str = "wav") -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": text_of(data or wav()), "format": form}}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def user(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [*parts]}]


def prompt_of(native: FakeNative) -> str:
    """The last prompt: each medium is a letter, rows of equal media have the same."""
    return "".join(chr(token) if token >= 0 else chr(ord("A") - 2 - token) for token in native.prepared[-1].tokens)


def sizes(media: list[Medium]) -> list[tuple[str, int, int]]:
    return [(medium.kind, medium.width, medium.height) for medium in media]


def error_of(server: Live, path: str, body: dict[str, Any]) -> Any:
    answer = server.http.post(path, json=body)
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]


# ---- OpenAI's chat ----


def test_a_chat_with_two_images_and_audio(server: Live, native: FakeNative) -> None:
    body = {"messages": user(text("is "), image(), text(" or "), image(BLUE), image(), sound(), text("?"))}
    answer = post(server, CHAT, body)
    assert sizes(native.media) == [("image", 4, 3), ("image", 2, 5), ("image", 4, 3), ("audio", 0, 0)]
    assert native.media[0].data == bytes([255, 0, 0] * 12)
    said = prompt_of(native)
    assert len({*said} & {*"ABCDEFGH"}) == 3  # equal pictures have equal rows
    usage = answer["usage"]
    assert usage["prompt_tokens"] == len(said)
    assert usage["prompt_tokens_details"] == {
        "cached_tokens": 0, "image_tokens": 3 * N_ROWS, "audio_tokens": ROWS["audio"],
    }  # fmt: skip


def test_a_stream_counts_images_too(server: Live) -> None:
    body = {"messages": user(image()), "stream_options": {"include_usage": True}}
    assert events(server, CHAT, body)[-1]["usage"]["prompt_tokens_details"]["image_tokens"] == N_ROWS
    assert "image_tokens" not in post(server, CHAT, {"messages": user(text("hi"))})["usage"]["prompt_tokens_details"]


def test_several_choices_share_their_pictures(server: Live, native: FakeNative) -> None:
    answer = post(server, CHAT, {"messages": user(image()), "n": 3})
    assert len(answer["choices"]) == 3
    assert len(native.media) == 1
    assert answer["usage"]["prompt_tokens_details"]["image_tokens"] == N_ROWS


def test_every_role_may_show_images(server: Live, native: FakeNative) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": [text("like this: "), image()]},
        {"role": "user", "content": "look"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": [text("seen: "), image(BLUE)]},
    ]
    post(server, CHAT, {"messages": messages})
    assert sizes(native.media) == [("image", 4, 3), ("image", 2, 5)]


def test_details_of_an_image_are_listed_as_ignored(server: Live) -> None:
    for detail, ignored in (("auto", None), ("low", "messages[].content[].image_url.detail")):
        answer = server.http.post(CHAT, json={"messages": user(image(detail=detail))})
        assert answer.headers.get("X-DFlash-Ignored") == ignored


def test_openais_client(server: Live, native: FakeNative) -> None:
    parts: list[Any] = [text("what?"), image(), sound()]
    answer = server.openai.chat.completions.create(model="fake", messages=[{"role": "user", "content": parts}])
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.audio_tokens == ROWS["audio"]
    assert len(native.media) == 2


def test_a_file_of_the_folder_and_no_other(server: Live, native: FakeNative) -> None:
    def asked(url: str) -> dict[str, Any]:
        return {"messages": user({"type": "image_url", "image_url": {"url": url}})}

    post(server, CHAT, asked("file://red.png"))
    assert sizes(native.media) == [("image", 4, 3)]
    for url in ("file:///etc/passwd", "file://../red.png", "http://127.0.0.1/a.png", "https://example.com/a.png"):
        assert error_of(server, CHAT, asked(url))["param"] == "messages[0].content[0].image_url.url"


@pytest.mark.parametrize(
    ("part", "param", "why"),
    [
        ({"type": "image_url"}, ".image_url", "is missing"),
        ({"type": "image_url", "image_url": 7}, ".image_url", "must be an object"),
        ({"type": "image_url", "image_url": {}}, ".image_url.url", "is missing"),
        ({"type": "image_url", "image_url": {"url": 7}}, ".image_url.url", "must be a string"),
        ({"type": "image_url", "image_url": {"url": "malformed"}}, ".image_url.url", "is not valid base64"),
        ({"type": "image_url", "image_url": {"url": "data:text/html;base64,aGVsbG8="}}, ".image_url.url", "type of"),
        (image(b"hello"), ".image_url.url", "is not an image"),
        (image(png_of(12_000, 12_000)), ".image_url.url", "has 12000 x 12000 pixels"),
        ({"type": "input_audio", "input_audio": {"format": "wav"}}, ".input_audio.data", "is missing"),
        (sound(form="mp3"), ".input_audio.data", "is a wav file, but the format says mp3"),
        (sound(flac(2**36 - 1), "flac"), ".input_audio.data", "is longer than 3600 seconds"),
        (sound(b"OggS"), ".input_audio.data", "is not audio that can be read"),
        ({"type": "image", "image": "/etc/passwd"}, ".image", "must be bytes or a pathlib.Path"),
        ({"type": "audio", "audio": {"path": "/etc/passwd"}}, ".audio", "must be bytes or a pathlib.Path"),
        ({"type": "video_url", "video_url": {"url": "x"}}, ".type", "video is not supported"),
        ({"type": "input_video", "input_video": {"data": "x"}}, ".type", "video is not supported"),
        ({"type": "media_marker", "text": MARKER}, ".type", "no type of a client's parts"),
    ],
)
def test_what_a_chat_refuses(server: Live, part: Any, param: str, why: str) -> None:
    error = error_of(server, CHAT, {"messages": user(text("see"), part)})
    assert error["param"] == f"messages[0].content[1]{param}"
    assert why in error["message"]
    assert error["type"] == "invalid_request_error"


def test_the_marker_itself_stands_for_nothing(server: Live, native: FakeNative) -> None:
    for said in (MARKER, f"{MARKER}[0]"):
        error = error_of(server, CHAT, {"messages": user(text(f"this {said}"), image())})
        assert "marker" in error["message"]
    post(server, CHAT, {"messages": user(text(MARKER))})  # without media it is text
    assert MARKER in prompt_of(native)


# ---- OpenAI's responses ----


def test_responses_show_images_and_audio(server: Live, native: FakeNative) -> None:
    shown = {"type": "input_image", "image_url": data_url(RED), "detail": "auto"}
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, shown, sound()]},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{**shown, "image_url": data_url(BLUE)}]},
    ]
    answer = post(server, RESPONSES, {"input": items})
    assert sizes(native.media) == [("image", 4, 3), ("audio", 0, 0), ("image", 2, 5)]
    assert answer["usage"]["input_tokens"] == len(prompt_of(native))


@pytest.mark.parametrize(
    ("content", "param", "why"),
    [
        ({"type": "input_image", "image_url": data_url(b"x")}, ".image_url", "does not represent a valid image"),
        ({"type": "input_image", "file_id": "file-1"}, ".file_id", "nothing is stored"),
        ({"type": "input_image"}, ".image_url", "is missing"),
        ({"type": "input_image", "image_url": "https://example.com/a"}, ".image_url", "--media-hosts"),
        ({"type": "input_file", "file_data": "x"}, ".type", "'input_file' is not supported"),
        ({"type": "input_audio", "input_audio": {"data": 7}}, ".input_audio.data", "must be a string"),
    ],
)
def test_what_responses_refuse(server: Live, content: Any, param: str, why: str) -> None:
    texts = [{"type": "input_text", "text": "a"}] * 2
    for place, item in (
        ("input[1].content[2]", {"role": "user", "content": [*texts, content]}),
        ("input[1].output[2]", {"type": "function_call_output", "call_id": "c", "output": [*texts, content]}),
    ):
        error = error_of(server, RESPONSES, {"input": [{"role": "user", "content": "x"}, item]})
        assert error["param"] == place + param
        assert why in error["message"]


def test_images_belong_to_users_and_tools(server: Live) -> None:
    content = [{"type": "input_image", "image_url": data_url(RED)}]
    error = error_of(server, RESPONSES, {"input": [{"role": "assistant", "content": content}]})
    assert error["param"] == "input[0].content[0].type"


# ---- Anthropic's messages ----


def block(data: bytes = RED) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": text_of(data)}
    return {"type": "image", "source": source, "cache_control": {"type": "ephemeral"}}


def test_messages_show_images_also_in_results(server: Live, native: FakeNative) -> None:
    messages = [
        {"role": "user", "content": [text("a"), block(), text("b")]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": [text("c"), block(BLUE)], "is_error": True},
            block(), text("d")]},
    ]  # fmt: skip
    answer = post(server, MESSAGES, {"messages": messages, "max_tokens": 20})
    assert sizes(native.media) == [("image", 4, 3), ("image", 2, 5), ("image", 4, 3)]
    said = prompt_of(native)
    assert "tool: Error:c" in said
    assert answer["usage"]["input_tokens"] == len(said)
    counted = post(server, f"{MESSAGES}/count_tokens", {"messages": messages})
    assert counted["input_tokens"] == len(said)


def test_anthropics_client(server: Live, native: FakeNative) -> None:
    content: list[Any] = [block(), text("what?")]
    with anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=0) as client:
        answer = client.messages.create(model="fake", max_tokens=9, messages=[{"role": "user", "content": content}])
    assert answer.usage.input_tokens == len(prompt_of(native))
    assert len(native.media) == 1


@pytest.mark.parametrize(
    ("content", "place", "why"),
    [
        ([text("a"), block(b"x")], "messages.0.content.1.image", "Could not process image: it is not an image"),
        (
            [{"type": "tool_result", "tool_use_id": "t", "content": [text("a"), block(b"x")]}],
            "messages.0.content.0.tool_result.content.1.image",
            "Could not process image",
        ),
        ([{"type": "image", "source": {"type": "file", "file_id": "f"}}], "messages.0.content.0.image", "not stored"),
        ([{"type": "image"}], "messages.0.content.0.image", "source is missing"),
        (
            [{"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}],
            "messages.0.content.0.image",
            "Could not process image: it is a URL",
        ),
        (
            [{"type": "image", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}],
            "messages.0.content.0.image",
            "Could not process image",
        ),
        (
            [{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}],
            "messages.0.content.0.document",
            "Could not process PDF: documents are not read here",
        ),
    ],
)
def test_what_messages_refuse(server: Live, content: Any, place: str, why: str) -> None:
    error = error_of(server, MESSAGES, {"messages": [{"role": "user", "content": content}], "max_tokens": 9})
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith(f"{place}: ")
    assert why in error["message"]


# ---- Ollama's API ----


def test_ollama_shows_images_before_the_text(server: Live, native: FakeNative) -> None:
    message = {"role": "user", "content": "what?", "images": [text_of(RED), text_of(BLUE)]}
    answer = post(server, "/api/chat", {"messages": [message], "stream": False})
    said = prompt_of(native)
    assert said.startswith("user: ")
    assert said.endswith("what?\n")
    assert answer["prompt_eval_count"] == len(said) == len("user: what?\n") + 2 * N_ROWS


def test_ollamas_client(server: Live, native: FakeNative, folder: Path) -> None:
    client = ollama.Client(host=server.url)
    client.chat(model="fake", messages=[{"role": "user", "content": "what?", "images": [str(folder / "red.png")]}])
    first = client.generate(model="fake", prompt="what?", images=[RED], system="be short")
    assert sizes(native.media) == [("image", 4, 3)] * 2
    # The context of an answer has its text, not its pictures.
    assert first.context is not None
    assert all(token >= 0 for token in first.context)
    client.generate(model="fake", prompt="and now?", context=first.context)
    assert "what?" in prompt_of(native)
    assert {"vision", "audio"} <= {*(client.show("fake").capabilities or ())}


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["??"]}]}, "messages[0].images[0]: it"),
        ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": "eA=="}]}, "messages[0].images must be"),
        ("/api/generate", {"prompt": "x", "system": "y", "images": [text_of(b"x")]}, "images[0]: it is not an image"),
        ("/api/generate", {"prompt": "x", "images": [7]}, "images must be a list of base64 texts"),
        ("/api/generate", {"prompt": "x", "raw": True, "images": [text_of(RED)]}, "images: they need"),
    ],
)
def test_what_ollama_refuses(server: Live, path: str, body: dict[str, Any], why: str) -> None:
    assert why in error_of(server, path, body)


# ---- llama-server's completion ----


def test_a_completion_with_markers(server: Live, native: FakeNative) -> None:
    marker = server.http.get("/props").json()["media_marker"]
    prompt = {"prompt_string": f"see {marker} and hear {marker}", "multimodal_data": [text_of(RED), text_of(wav())]}
    for path in ("/completion", "/v1/completions"):
        post(server, path, {"prompt": [prompt, "text"]})
    assert sizes(native.media) == [("image", 4, 3), ("audio", 0, 0)] * 2
    answer = post(server, "/completion", {"prompt": prompt, "n_predict": 4})
    assert answer["tokens_evaluated"] == len("see  and hear ") + N_ROWS + ROWS["audio"]
    assert answer["prompt"] == "see  and hear "


@pytest.mark.parametrize(
    ("prompt", "param", "why"),
    [
        ({"prompt_string": MARKER, "multimodal_data": ["malformed"]}, "prompt.multimodal_data[0]", "base64|image"),
        ({"prompt_string": "x", "multimodal_data": [""]}, "prompt.multimodal_data[0]", "is empty"),
        ({"prompt_string": "x", "multimodal_data": [text_of(RED)]}, "prompt", "0 markers"),
        ({"prompt_string": MARKER * 2, "multimodal_data": [text_of(RED)]}, "prompt", "2 markers"),
        ({"prompt_string": ["x"], "multimodal_data": [text_of(RED)]}, "prompt", "must be a text"),
        ({"prompt_string": "x", "multimodal_data": "x"}, "prompt", "must be a list"),
        ({"prompt_string": "x", "multimodal_data": [7]}, "prompt", "must be a list"),
    ],
)
def test_what_a_completion_refuses(server: Live, prompt: Any, param: str, why: str) -> None:
    for path in ("/completion", "/v1/completions"):
        error = error_of(server, path, {"prompt": prompt})
        assert error["param"] == param
        assert any(part in error["message"] for part in why.split("|"))


def test_a_chosen_marker(native: FakeNative) -> None:
    """It stands for media where a client writes a prompt; in chats it is a text."""
    prompt = {"prompt_string": "see <one> now", "multimodal_data": [text_of(RED)]}
    with live(lambda _progress: Engine.over(native), Settings(media_marker="<one>")) as server:
        assert server.http.get("/props").json()["media_marker"] == "<one>"
        assert post(server, "/completion", {"prompt": prompt, "n_predict": 4})["prompt"] == "see  now"
        post(server, CHAT, {"messages": user(text("<one>"), image()), "max_tokens": 4})
        assert prompt_of(native) == "user: <one>" + "A" * N_ROWS + "\n"


def test_no_echo_of_media(server: Live) -> None:
    prompt = {"prompt_string": MARKER, "multimodal_data": [text_of(RED)]}
    for field in ({"echo": True}, {"suffix": "x"}):
        assert "images or audio" in error_of(server, "/v1/completions", {"prompt": prompt, **field})["message"]


# ---- counts and facts ----


def test_input_tokens_count_media(server: Live) -> None:
    body = {"messages": user(text("what?"), image())}
    n_tokens = post(server, CHAT, body)["usage"]["prompt_tokens"]
    assert post(server, f"{CHAT}/input_tokens", body)["input_tokens"] == n_tokens
    items = [{"role": "user", "content": [{"type": "input_image", "image_url": data_url(RED)}]}]
    n_tokens = post(server, RESPONSES, {"input": items})["usage"]["input_tokens"]
    assert post(server, f"{RESPONSES}/input_tokens", {"input": items})["input_tokens"] == n_tokens


def test_the_template_shows_where_media_stand(server: Live) -> None:
    assert post(server, "/apply-template", {"messages": user(text("a"), image())})["prompt"] == f"user: a{MARKER}\n"


def test_what_the_model_reads_is_told(server: Live) -> None:
    props, models = server.http.get("/props").json(), server.http.get("/v1/models").json()
    assert props["modalities"] == {"vision": True, "audio": True, "video": False}
    assert props["media_marker"] == MARKER
    assert models["data"][0]["architecture"] == {
        "input_modalities": ["text", "image", "audio"], "output_modalities": ["text"],
    }  # fmt: skip
    assert models["models"][0]["capabilities"] == ["completion", "multimodal"]


def test_a_prompt_that_is_too_long_says_so(server: Live) -> None:
    error = error_of(server, CHAT, {"messages": user(*[image()] * 200, text("x" * 4000))})
    assert error["code"] == "context_length_exceeded"


def test_too_many_media(server: Live) -> None:
    error = error_of(server, CHAT, {"messages": user(*[image()] * 257)})
    assert "at most 256" in error["message"]


def test_few_prompts_with_media_are_prepared_at_once(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts pass by those who wait for their pictures."""
    inside, most, gate = 0, 0, threading.Event()
    lock = threading.Lock()

    def read(self: MediaSources, url: str, kind: str, param: str) -> bytes:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        gate.wait(PATIENCE)
        with lock:
            inside -= 1
        return RED

    monkeypatch.setattr(MediaSources, "read", read)
    asks = [threading.Thread(target=post, args=(server, CHAT, {"messages": user(image())})) for _ in range(2 * MOST)]
    for ask in asks:
        ask.start()
    for _ in range(3):
        post(server, CHAT, {"messages": user(text("hi"))})
    gate.set()
    for ask in asks:
        ask.join(PATIENCE)
    assert most <= MOST


@pytest.mark.slow
def test_five_thousand_damaged_files_leave_nothing_behind(server: Live) -> None:
    """One clear error or an answer each, and no more memory in the second half than in the first."""
    noise = Image.effect_noise((24, 24), 90)
    files = [saved(noise.convert("RGB"), form) for form in FORMATS] + [wav(), mp3(), flac()]
    chance, process, sizes = random.Random(5), psutil.Process(), list[int]()
    for number in range(5000):
        damaged = bytearray(chance.choice(files))
        for _ in range(chance.randint(1, 8)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        if chance.random() < 0.2:
            del damaged[chance.randrange(len(damaged)) :]
        part = image(bytes(damaged)) if chance.random() < 0.8 else sound(bytes(damaged))
        answer = server.http.post(CHAT, json={"messages": user(part), "max_tokens": 1})
        assert answer.status_code in (200, 400), answer.text
        if answer.status_code == 400:
            assert len(answer.json()["error"]["message"]) < 400
        if number % 500 == 499:
            gc.collect()
            sizes.append(process.memory_info().rss)
    assert max(sizes[5:]) - max(sizes[:5]) < 16 << 20
    assert post(server, CHAT, {"messages": user(image())})


# ---- a model that reads text alone ----


@pytest.fixture(scope="module")
def text_server() -> Iterator[Live]:
    with live(lambda _progress: Engine.over(FakeNative()), Settings(alias="fake", limits=Limits())) as running:
        yield running


NO_IMAGES = "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (CHAT, {"messages": user(image())}, "Invalid content type. image_url is only supported by certain models"),
        (CHAT, {"messages": user(image(b"x"))}, NO_IMAGES),  # it is not even looked at
        (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": data_url(RED)}]}]},
         "The image data you provided does not represent a valid image"),
        (MESSAGES, {"messages": user(block()), "max_tokens": 9}, "messages.0.content.0.image: Could not process image"),
        ("/completion", {"prompt": {"prompt_string": MARKER, "multimodal_data": [text_of(RED)]}},
         "Multimodal data provided, but model does not support multimodal requests."),
    ],
)  # fmt: skip
def test_a_text_model_says_so_in_its_clients_words(
    text_server: Live, path: str, body: dict[str, Any], words: str
) -> None:
    message = error_of(text_server, path, body)["message"]
    assert words in message
    assert NO_IMAGES in message


def test_a_text_model_hears_nothing(text_server: Live) -> None:
    message = error_of(text_server, CHAT, {"messages": user(sound())})["message"]
    assert "audio input is not supported - hint: if this is unexpected, you may need to provide the mmproj" in message


def test_a_text_model_tells_that_it_reads_text(text_server: Live) -> None:
    assert text_server.http.get("/props").json()["modalities"] == {"vision": False, "audio": False, "video": False}
    models = text_server.http.get("/v1/models").json()
    assert models["data"][0]["architecture"]["input_modalities"] == ["text"]
    assert models["models"][0]["capabilities"] == ["completion"]


def test_a_model_that_only_sees() -> None:
    media = {"vision": True, "audio": False, "marker": MARKER}
    with live(lambda _progress: Engine.over(FakeNative(info={"media": media})), Settings(alias="fake")) as server:
        post(server, CHAT, {"messages": user(image())})
        assert "audio input is not supported" in error_of(server, CHAT, {"messages": user(sound())})["message"]

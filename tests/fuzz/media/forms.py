"""Requests with images, in the form of each API, and what may be wrong with a request itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.media.samples import data_url, mp3, text_of, wav

from .files import ANY, File

Json = Any
TOKENS = 6
QUESTION = "What is to be seen?"
MOST_IMAGES = 256  # of a prompt


class Asked(NamedTuple):
    """A request, and what is to come of it: an answer (True), an error of the client's (False), or one of both."""

    path: str
    body: Json
    answers: bool | None
    what: str


def _parts(urls: Sequence[Json]) -> list[Json]:
    return [*({"type": "image_url", "image_url": {"url": url}} for url in urls), {"type": "text", "text": QUESTION}]


def chat(urls: Sequence[Json]) -> tuple[str, Json]:
    body = {"messages": [{"role": "user", "content": _parts(urls)}], "max_tokens": TOKENS, "temperature": 0}
    return "/v1/chat/completions", body


def responses(urls: Sequence[Json]) -> tuple[str, Json]:
    parts = [*({"type": "input_image", "image_url": url} for url in urls), {"type": "input_text", "text": QUESTION}]
    body = {"model": "m", "input": [{"role": "user", "content": parts}], "max_output_tokens": TOKENS, "temperature": 0}
    return "/v1/responses", body


def messages(urls: Sequence[Json]) -> tuple[str, Json]:
    content = [*(_block(url) for url in urls), {"type": "text", "text": QUESTION}]
    return "/v1/messages", _messages(content)


def tool_result(urls: Sequence[Json]) -> tuple[str, Json]:
    call = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [_block(url) for url in urls]}
    path, body = "/v1/messages", _messages([result])
    body["messages"] = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": [call]},
        *body["messages"],
    ]
    body["tools"] = [{"name": "look", "input_schema": {"type": "object"}}]
    return path, body


def _messages(content: Json) -> dict[str, Json]:
    return {"model": "m", "max_tokens": TOKENS, "temperature": 0, "messages": [{"role": "user", "content": content}]}


def _block(url: Json) -> Json:
    if isinstance(url, str) and url.startswith("data:") and ";base64," in url:
        kind, data = url.removeprefix("data:").split(";base64,", 1)
        return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
    return {"type": "image", "source": {"type": "url", "url": url}}


def ollama_chat(urls: Sequence[Json]) -> tuple[str, Json]:
    message = {"role": "user", "content": QUESTION, "images": [_bare(url) for url in urls]}
    return "/api/chat", {"model": "m", "messages": [message], "stream": False, "options": _OPTIONS}


def ollama_text(urls: Sequence[Json]) -> tuple[str, Json]:
    images = [_bare(url) for url in urls]
    return "/api/generate", {"model": "m", "prompt": QUESTION, "images": images, "stream": False, "options": _OPTIONS}


_OPTIONS = {"temperature": 0, "num_predict": TOKENS}


def _bare(url: Json) -> Json:
    return url.split(";base64,", 1)[-1] if isinstance(url, str) else url


def counted(urls: Sequence[Json]) -> tuple[str, Json]:
    return "/v1/messages/count_tokens", messages(urls)[1]


FORMS: dict[str, Callable[[Sequence[Json]], tuple[str, Json]]] = {
    "chat": chat, "responses": responses, "messages": messages, "tool_result": tool_result,
    "ollama_chat": ollama_chat, "ollama_text": ollama_text, "counted": counted,
}  # fmt: skip


def of_files(form: str, files: Sequence[File]) -> Asked:
    """The images of one request. If one must be refused, so must all of them; if one may, all may."""
    results = [file.reads for file in files]
    answers = False if False in results else ANY if ANY in results else True
    path, body = FORMS[form]([data_url(file.data) for file in files])
    return Asked(path, body, answers, f"{form}: {', '.join(file.name for file in files[:3])}")


def wrong(rng: random.Random, form: str, sound: File) -> Asked:
    """A sound image in a request that is wrong, or unusual, itself."""
    name, url = rng.choice(list(_urls(rng, sound).items()))
    if form.startswith("ollama") and name in _BARE:  # there base64 comes without the rest
        name, url = "no base64", "*" * 40
    path, body = FORMS[form]([url])
    return Asked(path, body, name in _FINE, f"{form}: {name}")


def _urls(rng: random.Random, sound: File) -> dict[str, Json]:
    text = text_of(sound.data)
    return {
        "no base64": f"data:image/png;base64,{text[:-3]}*{text[-2:]}",
        "cut base64": f"data:image/png;base64,{text.rstrip('=')[: len(text) // 8 * 4 + 1]}",
        "letters of others": "data:image/png;base64,äöü",
        "no type": f"data:;base64,{text}",
        "type of text": f"data:text/html;base64,{text}",
        "not base64": f"data:image/png,{text}",
        "a long type": f"data:image/{'x' * 5000};base64,{text}",
        "another type": f"data:image/{rng.choice(['gif', 'jpeg', 'x-unknown'])};base64,{text}",
        "line breaks": f"data:image/png;base64,{text[:40]}\r\n{text[40:]}",
        "a file": "file:///etc/passwd",
        "a folder above": "file://../../etc/passwd",
        "a host": "http://127.0.0.1:1/a.png",
        "another host": "https://169.254.169.254/latest/meta-data",
        "a scheme": "gopher://example.com/a.png",
        "a program": "javascript:alert(1)",
        "nothing": "",
        "a zero": "\0",
        "a number": 5,
        "null": None,
        "a list": [text],
        "an object": {"url": {"url": text}},
    }


_BARE = ("no type", "type of text", "not base64", "a long type", "another type", "line breaks")
_FINE = ("no type", "another type", "line breaks")


def many(rng: random.Random, form: str, sound: Sequence[File], room: int) -> Asked:
    """Many images: `room` fit into the context."""
    count = rng.choice([2, 3, 100, MOST_IMAGES + 1])
    path, body = FORMS[form]([data_url(rng.choice(sound).data) for _ in range(count)])
    counts = form == "counted" and count <= MOST_IMAGES
    return Asked(path, body, counts or count <= room, f"{form}: {count} images")


def unseen(rng: random.Random, _: str) -> Asked:
    """Audio, video and files, which a model that only sees refuses."""
    data = rng.choice([wav(), mp3(), wav(16_000, rate=8000, channels=2)])
    part: Json = rng.choice(
        [
            {"type": "input_audio", "input_audio": {"data": text_of(data), "format": "wav"}},
            {"type": "video_url", "video_url": {"url": data_url(data, "video/mp4")}},
            {"type": "media_marker", "text": "<__media__>"},
            {"type": "image_url", "image_url": {"url": data_url(data, "audio/wav")}},
            {"type": "image_url"},
            {"type": "image_url", "image_url": []},
            {"type": "file", "file": {"file_data": data_url(data, "application/pdf"), "filename": "a.pdf"}},
        ]
    )
    path, body = chat([])
    body["messages"][0]["content"].insert(rng.randrange(2), part)
    return Asked(path, body, False, f"a part of type {part['type']}")


def completion(rng: random.Random, sound: Sequence[File], marker: str) -> Asked:
    """llama-server's own form: markers in a text, as many as there are files, or not."""
    n_markers, n_files = rng.choice([(1, 1), (1, 1), (2, 2), (0, 1), (1, 2), (3, 1)])
    text = " and ".join([marker] * n_markers) + " are what?"
    prompt = {"prompt_string": text, "multimodal_data": [text_of(rng.choice(sound).data) for _ in range(n_files)]}
    body = {"prompt": prompt, "n_predict": TOKENS, "temperature": 0}
    return Asked("/completion", body, n_markers == n_files, f"completion: {n_files} images for {n_markers} markers")

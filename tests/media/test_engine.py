"""Media in Python: content parts of `Engine.chat`, and prompts whose rows of media mean something while they live."""

from __future__ import annotations

import gc
import logging
import weakref
from array import array
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from dflash_local.engine import Engine
from dflash_local.errors import ContextLengthError, MediaError, RequestError
from dflash_local.media.audio_file import read_audio
from dflash_local.media.image_file import read_image
from dflash_local.media.media_prompt import MediaPrompt, text_tokens
from dflash_local.media.media_sources import MediaSources
from dflash_local.media.medium import Medium
from dflash_local.train.answer_record import AnswerRecord
from tests.fake_native import MARKER, ROWS, SEES_AND_HEARS, FakeNative
from tests.media.samples import data_url, picture, png, wav

IMAGE = ROWS["image"]


@pytest.fixture
def native() -> FakeNative:
    return FakeNative(b"a red square", info=SEES_AND_HEARS, n_ctx_slot=256)


@pytest.fixture
def engine(native: FakeNative) -> Iterator[Engine]:
    with Engine.over(native) as engine:
        yield engine


def user(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [*parts]}]


def image(value: Any) -> dict[str, Any]:
    return {"type": "image", "image": value}


def test_images_as_bytes_paths_and_pictures(engine: Engine, native: FakeNative, tmp_path: Path) -> None:
    path = tmp_path / "red.png"
    path.write_bytes(png())
    (tmp_path / "link.png").symlink_to(path)
    medium = read_image(png(), "image")
    values = (png(), bytearray(png()), memoryview(png()), path, tmp_path / "link.png", picture(), medium)
    answer = engine.chat(user({"type": "text", "text": "what?"}, *map(image, values)))
    assert answer.text == "a red square"
    assert {one.data for one in native.media} == {bytes([255, 0, 0] * 12)}
    assert answer.completion.image_tokens == len(values) * IMAGE
    assert answer.completion.prompt_tokens == len("user: what?\n") + len(values) * IMAGE


def test_audio_as_bytes_and_paths(engine: Engine, native: FakeNative, tmp_path: Path) -> None:
    path = tmp_path / "silence.wav"
    path.write_bytes(wav())
    parts = [{"type": "audio", "audio": value} for value in (wav(), path, read_audio(wav(), "audio"))]
    answer = engine.chat(user(*parts))
    assert answer.completion.audio_tokens == 3 * ROWS["audio"]
    assert [one.kind for one in native.media] == ["audio"] * 3


def test_a_stream(engine: Engine) -> None:
    with engine.chat(user(image(png())), stream=True) as stream:
        deltas = [*stream]
    assert "".join(delta.content or "" for delta in deltas) == "a red square"
    assert deltas[-1].completion is not None
    assert deltas[-1].completion.image_tokens == IMAGE


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (image("cat.png"), "must be bytes or a pathlib.Path, a picture of Pillow, got 'cat.png'"),
        (image(None), "must be bytes"),
        (image(Path("/no/such/file.png")), "cannot be opened"),
        (image(Path("/")), "is no file"),
        (image(b"hello"), "is not an image"),
        ({"type": "audio", "audio": png()}, "is not audio"),
        ({"type": "audio", "audio": BytesIO(wav())}, "must be bytes or a pathlib.Path, got"),
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, "is a URL"),
        ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "is a URL of a file"),
    ],
)
def test_values_that_are_refused(engine: Engine, part: Any, why: str) -> None:
    with pytest.raises(RequestError) as caught:
        engine.chat(user({"type": "text", "text": "x"}, part))
    assert why in caught.value.message
    assert (caught.value.param or "").startswith("messages[0].content[1]")


def test_urls_where_sources_allow_them(engine: Engine, native: FakeNative, tmp_path: Path) -> None:
    (tmp_path / "red.png").write_bytes(png())
    part = {"type": "image_url", "image_url": {"url": "file://red.png"}}
    engine.chat(user(part), sources=MediaSources(folder=tmp_path))
    assert len(native.media) == 1


def test_all_files_together_may_take_only_so_long(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 9))
    monkeypatch.setattr("dflash_local.media.content_parts.time.monotonic", lambda: float(next(now)))
    part = {"type": "image_url", "image_url": {"url": data_url(png())}}
    engine.apply_chat({"messages": user(*[part] * 3)})
    with pytest.raises(MediaError, match="came too late") as caught:
        engine.apply_chat({"messages": user(*[part] * 4)})
    assert caught.value.param == "messages[0].content[3].image_url.url"


def test_media_stand_where_the_template_shows_them(native: FakeNative) -> None:
    """Some templates show turns in another order, or twice."""
    shown = FakeNative.chat_apply

    def turned(self: FakeNative, template: str | None, body: str) -> dict[str, Any]:
        applied = shown(self, template, body)
        lines = applied["prompt"].splitlines()
        return {**applied, "prompt": "\n".join([*reversed(lines), lines[0]])}

    with pytest.MonkeyPatch.context() as patch, Engine.over(native) as engine:
        patch.setattr(FakeNative, "chat_apply", turned)
        engine.chat([*user(image(png())), *user(image(png(2, 2)))])
    assert [one.width for one in native.media] == [2, 4, 4]


def test_a_template_that_leaves_media_out_is_an_error(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    applied = {"prompt": "user:", "stops": [], "sampling": {}, "parser": {"tool": ""}}
    monkeypatch.setattr(FakeNative, "chat_apply", lambda *_: applied)
    with pytest.raises(RequestError, match="leaves out an image"):
        engine.chat(user(image(png())))


def test_a_text_model_refuses_before_it_reads_a_file() -> None:
    with Engine.over(FakeNative()) as engine, pytest.raises(MediaError, match="image input is not supported") as caught:
        engine.chat(user(image(Path("/no/such/file"))))
    assert caught.value.kind == "image"


# ---- tokens ----


def media() -> list[Medium]:
    return [read_image(png(), "image"), read_audio(wav(), "audio")]


def test_tokens_of_a_text_with_markers(engine: Engine) -> None:
    tokens = engine.tokenize_prompt(f"a{MARKER}b{MARKER}", media())
    assert isinstance(tokens, MediaPrompt)
    assert [*tokens] == [ord("a"), *[-2] * IMAGE, ord("b"), *[-3] * ROWS["audio"]]
    assert tokens.rows == {"image": IMAGE, "audio": ROWS["audio"]}
    assert engine.detokenize(tokens) == "ab"
    completion = engine.submit(tokens).result()
    assert (completion.image_tokens, completion.audio_tokens) == (IMAGE, ROWS["audio"])


@pytest.mark.parametrize("text", ["none", MARKER, MARKER * 3])
def test_each_medium_has_one_marker(engine: Engine, text: str) -> None:
    with pytest.raises(RequestError, match=r"the prompt has \d markers"):
        engine.tokenize_prompt(text, media())


def test_token_ids_have_no_markers(engine: Engine) -> None:
    with pytest.raises(RequestError, match="must be a text"):
        engine.tokenize_prompt([1, 2], media())


def test_negative_numbers_alone_are_no_rows(engine: Engine) -> None:
    for tokens in ([97, -2], array("i", [97, -2])):
        with pytest.raises(RequestError, match="holds token -2"):
            engine.submit(tokens)
    with pytest.raises(RequestError, match="holds token -2"):
        engine.generate("x", prediction=[-2])


def test_rows_count_in_the_context(engine: Engine) -> None:
    parts = [image(png())] * (256 // IMAGE + 1)
    with pytest.raises(ContextLengthError):
        engine.chat(user(*parts))


def test_what_rows_mean_lives_until_the_request_is_prepared(engine: Engine, native: FakeNative) -> None:
    class Owner:
        """What libdflash keeps for a prompt."""

    owner = Owner()
    alive = weakref.ref(owner)
    seen: list[bool] = []
    native.on_prepare = lambda: seen.append(alive() is not None)
    tokens = MediaPrompt(array("i", [97, -2]), {"image": 1}, owner)
    del owner
    generation = engine.submit(tokens)
    del tokens
    gc.collect()
    assert seen == [True]
    assert alive() is None  # the generation only counts
    assert generation.result().image_tokens == 1
    assert [*generation.request.prompt_tokens] == [97, -2]


def test_text_tokens() -> None:
    tokens = MediaPrompt(array("i", [97, -2, -2, 98]), {"image": 2})
    assert [*text_tokens(tokens)] == [97, 98]
    assert text_tokens([1, 2]) == [1, 2]
    assert len(tokens) == 4
    assert tokens[1] == -2
    assert tokens[2:].tolist() == [-2, 98]


def test_answers_about_media_are_not_recorded(
    engine: Engine, pocket: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = AnswerRecord(tmp_path, Path(pocket["target"]), 1 << 20)
    engine.watch_answers(record)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            engine.chat(user(image(png())))
        engine.chat(user({"type": "text", "text": "what?"}))
    record.close()
    lines = next(tmp_path.glob("*.jsonl")).read_text().splitlines()
    assert len(lines) == 1
    assert '"what' not in lines[0]
    assert [entry.message for entry in caplog.records if "not recorded" in entry.message] == [
        "answers about images and audio are not recorded"
    ]

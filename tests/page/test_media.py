"""Pictures and audio on the chat page: what is taken, what is sent, where they stay."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import ExifTags, Image
from playwright.sync_api import expect

from dflash_local.media.abilities import Abilities
from dflash_local.server.security.limits import Limits
from dflash_local.server.settings import Settings
from tests.fake_native import MARKER, SEES_AND_HEARS
from tests.media.samples import mp3, wav
from tests.page.conftest import OpenTab, Served, Tab, faults, serve
from tests.page.scenes import saved, scene
from tests.patience import wait_until
from tests.server.test_router import model, routing

PICTURES = "input[accept='image/*'][multiple]"
ANY = "input[multiple]:not([accept])"
PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
MAKE_FILES = """(files) => {
  const data = new DataTransfer();
  for (const { name, type, text, base64 } of files) {
    const bytes = base64 ? Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)) : text;
    if (name) data.items.add(new File([bytes], name, { type }));
    else data.setData(type, text);
  }
  return data;
}"""
KEPT = """new Promise((resolve) => {
  const asked = indexedDB.open("dflash-local");
  asked.onsuccess = () => {
    const keys = asked.result.transaction("media").objectStore("media").getAllKeys();
    keys.onsuccess = () => (asked.result.close(), resolve(keys.result));
  };
})"""

# The ids of media whose bytes a page has.
HELD = """
  window.held = new Set();
  const { set, delete: remove } = Map.prototype;
  Map.prototype.set = function (key, value) {
    if (value instanceof ArrayBuffer) held.add(key);
    return set.call(this, key, value);
  };
  Map.prototype.delete = function (key) {
    held.delete(key);
    return remove.call(this, key);
  };
"""

# Pictures are read when `gate` lets them; `read`: so many are.
HELD_UP = """
  Object.assign(window, { gate: null, openGate: null, read: 0 });
  const { createImageBitmap: decode } = window;
  window.createImageBitmap = (file) => Promise.resolve(gate).then(() => decode(file));
  const { close } = ImageBitmap.prototype;
  ImageBitmap.prototype.close = function () {
    read += 1;
    return close.call(this);
  };
"""


@pytest.fixture(scope="module")
def shared_sighted() -> Iterator[Served]:
    with serve(info=SEES_AND_HEARS) as served:
        yield served


@pytest.fixture
def sighted(shared_sighted: Served) -> Iterator[Served]:
    """A server whose model sees and hears."""
    yield shared_sighted
    shared_sighted.pace.free()
    shared_sighted.native.media.clear()


@pytest.fixture
def seeing(open_tab: OpenTab, sighted: Served) -> Tab:
    return open_tab(sighted.url)


def attach(tab: Tab, *files: Path, to: str = PICTURES) -> None:
    """Choose files by a button, and wait until they are read."""
    expect(tab.page.locator(PICTURES)).to_have_count(1)
    tab.page.set_input_files(to, list(files))
    expect(tab.page.locator(".composer .reading")).to_have_count(0)


def fire(tab: Tab, event: str, target: str, *files: dict[str, str]) -> None:
    """A paste or a drop of files, and of texts where an entry has no name."""
    name, member = ("ClipboardEvent", "clipboardData") if event == "paste" else ("DragEvent", "dataTransfer")
    options = f"{{ bubbles: true, cancelable: true, {member}: ({MAKE_FILES})(files) }}"
    script = f"([target, files]) => document.querySelector(target).dispatchEvent(new {name}('{event}', {options}))"
    tab.page.evaluate(script, [target, list(files)])


def as_pasted(path: Path, kind: str = "image/png") -> dict[str, str]:
    return {"name": path.name, "type": kind, "base64": base64.b64encode(path.read_bytes()).decode()}


def written(folder: Path, files: dict[str, bytes]) -> list[Path]:
    """Files of these names with these bytes."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return [folder / name for name in files]


def thumbnails(tab: Tab) -> Any:
    return tab.page.locator(".composer .thumbnail img")


def notice(tab: Tab) -> Any:
    return tab.page.locator(".notice")


def picture_of(part: dict[str, Any]) -> tuple[str, Image.Image]:
    """The type and the pixels of an `image_url`."""
    assert part["type"] == "image_url"
    head, data = part["image_url"]["url"].split(",")
    return head, Image.open(io.BytesIO(base64.b64decode(data)))


def content(tab: Tab) -> Any:
    """Of the last message that was sent."""
    return tab.asked[-1]["messages"][-1]["content"]


def is_shown(tab: Tab, picture: Any) -> None:
    """The browser has drawn it."""
    expect(picture).to_be_visible()
    wait_until(lambda: picture.evaluate("(image) => image.complete && image.naturalWidth > 0"))


# ---- what is attached and sent ----


def test_pictures_go_with_the_question_as_they_are(seeing: Tab, sighted: Served, tmp_path: Path) -> None:
    house, tall = saved(scene(), tmp_path / "house.png"), saved(scene(300, 500), tmp_path / "tall.jpg")
    attach(seeing, house, tall)
    expect(thumbnails(seeing)).to_have_count(2)
    expect(thumbnails(seeing).first).to_have_attribute("alt", "house.png")
    is_shown(seeing, thumbnails(seeing).first)
    seeing.ask("What is this?")
    assert seeing.done() == "You said: What is this?"
    first, second, text = content(seeing)
    assert first["image_url"]["url"] == "data:image/png;base64," + base64.b64encode(house.read_bytes()).decode()
    assert second["image_url"]["url"] == "data:image/jpeg;base64," + base64.b64encode(tall.read_bytes()).decode()
    assert text == {"type": "text", "text": "What is this?"}
    assert [(medium.width, medium.height) for medium in sighted.native.media] == [(640, 400), (300, 500)]
    expect(seeing.page.locator(".chips")).to_have_count(0)
    shown = seeing.page.locator(".question .picture img")
    expect(shown).to_have_count(2)
    is_shown(seeing, shown.last)
    seeing.ask("And the sun?")
    seeing.done(2)
    assert seeing.asked[1]["messages"][0] == seeing.asked[0]["messages"][0]
    assert content(seeing) == "And the sun?"


def test_a_picture_alone_is_a_question(seeing: Tab, tmp_path: Path) -> None:
    attach(seeing, saved(scene(), tmp_path / "house.png"))
    seeing.button("Send").click()
    seeing.done()
    assert [part["type"] for part in content(seeing)] == ["image_url"]
    expect(seeing.page.locator(".conversations .title")).to_have_text("house.png")


def test_one_of_several_is_removed_again(seeing: Tab, tmp_path: Path) -> None:
    attach(seeing, saved(scene(), tmp_path / "one.png"), saved(scene(50, 60), tmp_path / "two.png"))
    seeing.button("Remove one.png").click()
    expect(thumbnails(seeing)).to_have_count(1)
    seeing.ask("which?")
    seeing.done()
    assert [picture_of(part)[1].size for part in content(seeing)[:-1]] == [(50, 60)]


@pytest.mark.parametrize("event", ["paste", "drop"])
def test_pictures_are_pasted_and_dropped(seeing: Tab, tmp_path: Path, event: str) -> None:
    expect(seeing.page.locator(PICTURES)).to_have_count(1)
    files = [as_pasted(saved(scene(40, 30), tmp_path / "a.png")), as_pasted(saved(scene(30, 40), tmp_path / "b.png"))]
    fire(seeing, event, "#message" if event == "paste" else ".thread", *files)
    expect(thumbnails(seeing)).to_have_count(2)
    seeing.ask("these")
    seeing.done()
    assert [picture_of(part)[1].size for part in content(seeing)[:-1]] == [(40, 30), (30, 40)]


def test_a_drop_says_where_it_goes(seeing: Tab) -> None:
    expect(seeing.page.locator(PICTURES)).to_have_count(1)  # by then shortcuts are heard
    seeing.page.keyboard.press("Alt+m")
    expect(seeing.page.locator(".machine")).to_be_visible()
    fire(seeing, "dragover", "body", {"name": "a.txt", "type": "text/plain", "text": "hello"})
    expect(seeing.page.locator(".drop-place")).to_have_count(1)
    fire(seeing, "drop", "body", {"name": "a.txt", "type": "text/plain", "text": "hello"})
    expect(seeing.page.locator(".composer .chips li")).to_have_text(["a.txt"])
    expect(seeing.page.locator(".composer .chips li")).to_be_visible()
    expect(seeing.page.locator(".drop-place")).to_have_count(0)
    fire(seeing, "dragover", "body", {"type": "text/plain", "text": "only words"})
    expect(seeing.page.locator(".drop-place")).to_have_count(0)


def test_a_pasted_table_is_text_though_it_has_a_picture(seeing: Tab, tmp_path: Path) -> None:
    expect(seeing.page.locator(PICTURES)).to_have_count(1)
    picture = as_pasted(saved(scene(40, 30), tmp_path / "image.png"))
    texts = [{"type": kind, "text": "1\t2"} for kind in ("text/plain", "text/html")]
    fire(seeing, "paste", "#message", *texts, picture)
    fire(seeing, "paste", "#message", {**picture, "name": "real.png"})
    expect(thumbnails(seeing)).to_have_count(1)
    expect(thumbnails(seeing)).to_have_attribute("alt", "real.png")


def test_audio_where_the_model_hears(seeing: Tab, sighted: Served, tmp_path: Path) -> None:
    files = {"voice.wav": wav(3200), "song.mp3": mp3()}
    attach(seeing, *written(tmp_path, files), to=ANY)
    expect(seeing.page.locator(".chips li")).to_have_text(["voice.wav", "song.mp3"])
    seeing.ask("what does it say?")
    seeing.done()
    assert [part.get("input_audio") for part in content(seeing)] == [
        *({"data": base64.b64encode(data).decode(), "format": name[-3:]} for name, data in files.items()),
        None,
    ]
    assert [medium.kind for medium in sighted.native.media] == ["audio", "audio"]
    player = seeing.page.locator(".question audio").first
    wait_until(lambda: abs(player.evaluate("(player) => player.duration || 0") - 0.2) < 0.01)
    assert player.get_attribute("aria-label") == "voice.wav"


def test_text_files_come_after_pictures(seeing: Tab, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("a note\n")
    attach(seeing, tmp_path / "notes.md", saved(scene(), tmp_path / "house.png"), to=ANY)
    seeing.ask("compare")
    seeing.done()
    assert [part["type"] for part in content(seeing)] == ["image_url", "text"]
    assert content(seeing)[1]["text"] == "File notes.md:\n```\na note\n```\n\ncompare"


# ---- what becomes of a picture before it is sent ----


def clear(size: tuple[int, int]) -> Image.Image:
    """With a hole in the middle."""
    image = scene(*size).convert("RGBA")
    image.paste((0, 0, 0, 0), (size[0] // 4, size[1] // 4, size[0] // 2, size[1] // 2))
    return image


def noise() -> Image.Image:
    """As PNG it is larger than what is sent as PNG."""
    return Image.effect_noise((2048, 2048), 90).convert("RGB")


def pixel(picture: Image.Image, x: int, y: int) -> tuple[int, ...]:
    """The colour there."""
    return tuple(picture.crop((x, y, x + 1, y + 1)).tobytes())


def turned() -> Image.Exif:
    """Held by its side: to be turned by 90 degrees."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    return exif


CHANGES: dict[str, tuple[Callable[[Path], Path], str, tuple[int, int]]] = {
    "a large photograph": (lambda to: saved(scene(4000, 3000), to / "x.jpg"), "JPEG", (2048, 1536)),
    "one held by its side": (lambda to: saved(scene(3000, 2000), to / "x.jpg", exif=turned()), "JPEG", (1365, 2048)),
    "a large drawing": (lambda to: saved(scene(3000, 300), to / "x.png"), "PNG", (2048, 205)),
    "a large one with a hole": (lambda to: saved(clear((2500, 2500)), to / "x.png"), "PNG", (2048, 2048)),
    "noise": (lambda to: saved(noise(), to / "x.png"), "JPEG", (2048, 2048)),
    "an animation": (lambda to: saved(scene(90, 60), to / "x.gif", save_all=True, append_images=[scene(90, 60)]),
                     "PNG", (90, 60)),
    "WebP": (lambda to: saved(scene(), to / "x.webp"), "JPEG", (640, 400)),
    "WebP with a hole": (lambda to: saved(clear((64, 64)), to / "x.webp", lossless=True), "PNG", (64, 64)),
    "WebP that is called PNG": (lambda to: saved(scene(), to / "x.webp").rename(to / "x.png"), "PNG", (640, 400)),
    "one dot": (lambda to: saved(scene(1, 1), to / "x.bmp"), "PNG", (1, 1)),
    "a hair": (lambda to: saved(scene(6000, 40), to / "x.png"), "PNG", (2048, 14)),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_a_picture_is_made_one_that_any_server_reads(seeing: Tab, tmp_path: Path, what: str) -> None:
    make, format_, size = CHANGES[what]
    attach(seeing, make(tmp_path))
    seeing.ask("look")
    seeing.done()
    head, picture = picture_of(content(seeing)[0])
    assert head == f"data:image/{format_.lower()};base64"
    assert (picture.format, picture.size) == (format_, size)
    if "hole" in what:
        assert pixel(picture.convert("RGBA"), size[0] // 3, size[1] // 3)[3] == 0
    if what == "one held by its side":  # the sky was above, so it is at the right now
        assert ExifTags.Base.Orientation not in picture.getexif()
        red, _, blue = pixel(picture.convert("RGB"), size[0] - 10, size[1] // 3)
        assert blue > red


# ---- what is refused ----


def test_a_routers_models_differ(open_tab: OpenTab, tmp_path: Path) -> None:
    """Also before they are loaded."""
    with routing(tmp_path / "run", model("a"), model("b", abilities=Abilities(vision=True))) as server:
        tab = open_tab(server.url)
        expect(tab.page.locator(".welcome")).to_contain_text("One of 2 models")
        expect(tab.page.locator(PICTURES)).to_have_count(0)
        tab.page.get_by_label("Model").select_option("b")
        expect(tab.page.locator(PICTURES)).to_have_count(1)
        expect(tab.button("Attach text files and pictures")).to_be_visible()
        tab.page.get_by_label("Model").select_option("a")
        expect(tab.page.locator(PICTURES)).to_have_count(0)
        assert {one["status"]["value"] for one in server.http.get("/models").json()["data"]} == {"unloaded"}


def test_files_that_cannot_be_attached_say_why(seeing: Tab, tmp_path: Path) -> None:
    attach(seeing, saved(scene(), tmp_path / "good.png"))
    (tmp_path / "bad.png").write_text("no picture at all")
    (tmp_path / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    (tmp_path / "voice.ogg").write_bytes(b"OggS" + bytes(20))
    (tmp_path / "voice.aac").write_bytes(b"\xff\xf1\x50\x80" + bytes(20))  # begins much as MP3 does
    (tmp_path / "paper.pdf").write_bytes(b"%PDF-1.7\n\x00\xff")
    names = ("bad.png", "cut.jpg", "voice.ogg", "voice.aac", "paper.pdf")
    attach(seeing, *(tmp_path / name for name in names), to=ANY)
    for text in (
        "bad.png is no picture that this browser can read.",
        "cut.jpg is no picture that this browser can read.",
        "voice.ogg is neither WAV nor MP3.",
        "voice.aac is neither WAV nor MP3.",
        "paper.pdf is no text: only text files, pictures and audio files can be attached.",
    ):
        expect(notice(seeing)).to_contain_text(text)
    expect(thumbnails(seeing)).to_have_count(1)


def test_files_that_are_too_large(seeing: Tab) -> None:
    expect(seeing.page.locator(PICTURES)).to_have_count(1)
    seeing.page.evaluate("""() => {
      const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(2 ** 26 + 1)], "huge.png", { type: "image/png" }));
      data.items.add(new File([new Uint8Array(2 ** 24 + 1)], "long.wav", { type: "audio/wav" }));
      dispatchEvent(new DragEvent("drop", { dataTransfer: data }));
    }""")
    expect(notice(seeing)).to_have_text("huge.png is larger than 64 MiB. long.wav is larger than 16 MiB.")


def test_a_model_that_reads_text_only(tab: Tab, tmp_path: Path) -> None:
    expect(tab.page.locator(".composer .send")).to_be_enabled()
    expect(tab.page.locator(".composer input[type=file]")).to_have_count(1)
    expect(tab.button("Add pictures")).to_have_count(0)
    expect(tab.button("Take a photo")).to_have_count(0)
    expect(tab.button("Attach text files")).to_be_visible()
    picture = as_pasted(saved(scene(40, 30), tmp_path / "a.png"))
    for event, target in (("paste", "#message"), ("drop", ".thread")):
        fire(tab, event, target, {**picture, "name": f"{event}.png"})
        expect(notice(tab)).to_have_text(f"{event}.png: this model does not see pictures.")
    fire(tab, "drop", ".thread", as_pasted(written(tmp_path, {"voice.wav": wav()})[0], "audio/wav"))
    expect(notice(tab)).to_have_text("voice.wav: this model does not hear audio.")
    expect(tab.page.locator(".chips")).to_have_count(0)


def test_a_model_that_only_hears(open_tab: OpenTab, sighted: Served, tmp_path: Path) -> None:
    with serve(info={"media": {"vision": False, "audio": True, "marker": MARKER}}) as served:
        tab = open_tab(served.url)
        expect(tab.page.locator(".welcome")).to_contain_text("It hears audio.")
        expect(tab.button("Attach text files and audio files")).to_be_visible()
        expect(tab.button("Add pictures")).to_have_count(0)
        fire(tab, "drop", ".thread", as_pasted(saved(scene(4, 3), tmp_path / "a.png")))
        expect(notice(tab)).to_have_text("a.png: this model does not see pictures.")


# ---- the conversation ----


def test_pictures_are_kept_and_sent_again_after_a_reload(seeing: Tab, tmp_path: Path) -> None:
    attach(seeing, saved(scene(), tmp_path / "house.png"))
    seeing.ask("one")
    seeing.done()
    seeing.page.reload()
    is_shown(seeing, seeing.page.locator(".question .picture img"))
    seeing.ask("two")
    seeing.done(2)
    assert seeing.asked[1]["messages"][0] == seeing.asked[0]["messages"][0]
    seeing.button("Answer again").last.click()
    expect(seeing.answers().last.locator(".branches")).to_contain_text("2 / 2")
    seeing.done(2)
    assert seeing.asked[2]["messages"] == seeing.asked[1]["messages"]


def test_an_edited_question_keeps_its_pictures_or_not(seeing: Tab, tmp_path: Path) -> None:
    attach(seeing, saved(scene(), tmp_path / "house.png"), saved(scene(50, 60), tmp_path / "small.png"))
    seeing.ask("one")
    seeing.done()
    seeing.page.locator(".question").hover()
    seeing.button("Edit question").click()
    editor = seeing.page.locator(".editor")
    expect(editor.locator(".thumbnail img")).to_have_count(2)
    editor.get_by_label("Remove house.png").click()
    picture = as_pasted(saved(scene(70, 80), tmp_path / "new.png"))
    fire(seeing, "paste", ".editor textarea", picture)
    expect(editor.locator(".thumbnail img")).to_have_count(2)
    seeing.page.get_by_label("Edited question").fill("two")
    seeing.button("Ask again").click()
    seeing.sees("You said: two")
    seeing.done()
    assert [picture_of(part)[1].size for part in content(seeing)[:-1]] == [(50, 60), (70, 80)]
    expect(seeing.page.locator(".question .picture")).to_have_count(2)
    seeing.page.locator(".question").get_by_label("Previous branch").click()
    seeing.sees("You said: one")
    seeing.page.reload()
    seeing.sees("You said: one")
    is_shown(seeing, seeing.page.get_by_alt_text("house.png"))
    assert len(seeing.page.evaluate(KEPT)) == 3  # the branches share one


def test_conversations_are_found_by_the_names_of_their_files(seeing: Tab, tmp_path: Path) -> None:
    attach(seeing, saved(scene(), tmp_path / "Holiday in Oslo.png"))
    seeing.ask("where?")
    seeing.done()
    seeing.page.fill("#search", "oslo")
    expect(seeing.page.locator(".conversations .title")).to_have_text(["where?"])
    seeing.page.fill("#search", "bergen")
    expect(seeing.page.locator(".nothing")).to_be_visible()


def test_export_and_import(seeing: Tab, open_tab: OpenTab, sighted: Served, tmp_path: Path) -> None:
    attach(seeing, saved(scene(), tmp_path / "house.png"), *written(tmp_path, {"voice.wav": wav()}), to=ANY)
    seeing.ask("keep this")
    seeing.done()
    with seeing.page.expect_download() as download:
        seeing.button("Export").click()
    download.value.save_as(file := tmp_path / "conversations.json")
    told = json.loads(file.read_text())["conversations"][0]["turns"][0]["files"]
    assert [(one["name"], one["type"]) for one in told] == [("house.png", "image/png"), ("voice.wav", "audio/wav")]
    with seeing.page.expect_download() as download:
        seeing.button("Save this chat as Markdown").click()
    markdown = Path(download.value.path()).read_text(encoding="utf-8")
    assert "## You\n\n(Attached: house.png, voice.wav)\n\nkeep this\n" in markdown
    other = open_tab(sighted.url)
    other.imports(file)
    other.page.locator(".conversations .title").click()
    other.page.reload()
    is_shown(other, other.page.locator(".question .picture img"))
    other.ask("and now?")
    other.done(2)
    assert other.asked[0]["messages"][0] == seeing.asked[0]["messages"][0]


def test_an_import_takes_only_pictures_and_audio(seeing: Tab, tmp_path: Path) -> None:
    def imported(kind: str, data: str) -> None:
        files = [{"id": "x", "name": "a", "type": kind, "size": 1, "data": data}]
        turn = {"id": "t", "role": "user", "parent": None, "content": "hi", "files": files}
        conversation = {"id": "c", "title": "c", "leaf": "t", "turns": [turn]}
        told = {"format": "dflash-local conversations", "version": 1, "conversations": [conversation]}
        (tmp_path / "file.json").write_text(json.dumps(told))
        seeing.imports(tmp_path / "file.json")

    imported("image/png", "https://example.org/a.png")
    expect(notice(seeing)).to_contain_text("a file of a turn is incomplete")
    expect(seeing.page.locator(".conversations .title")).to_have_count(0)
    imported("text/html", "data:text/html;base64,PGI+")
    seeing.page.locator(".conversations .title").click()
    expect(seeing.page.locator(".question .picture")).to_have_count(0)
    expect(seeing.page.locator(".file")).to_have_count(1)


def test_undo_brings_pictures_back_and_a_removal_frees_them(seeing: Tab, tmp_path: Path) -> None:
    attach(seeing, saved(scene(), tmp_path / "house.png"))
    seeing.ask("one")
    seeing.done()

    def remove() -> None:
        seeing.page.locator(".conversations li").hover()
        seeing.button("Remove one").click()
        expect(seeing.page.locator(".conversations li")).to_have_count(0)

    remove()
    seeing.button("Undo").click()
    seeing.page.locator(".conversations .title").click()
    seeing.page.reload()
    is_shown(seeing, seeing.page.locator(".question .picture img"))
    assert len(seeing.page.evaluate(KEPT)) == 1
    remove()
    wait_until(lambda: seeing.page.evaluate(KEPT.replace('"media"', '"turns"')) == [])
    seeing.page.reload()
    expect(seeing.page.locator(".welcome h1")).to_be_visible()
    wait_until(lambda: seeing.page.evaluate(KEPT) == [])


def test_a_picture_that_the_browser_lost(seeing: Tab, tmp_path: Path) -> None:
    attach(seeing, saved(scene(), tmp_path / "house.png"))
    seeing.ask("one")
    seeing.done()
    seeing.page.evaluate("""new Promise((resolve) => {
      const asked = indexedDB.open("dflash-local");
      asked.onsuccess = () => {
        const transaction = asked.result.transaction("media", "readwrite");
        transaction.objectStore("media").clear();
        transaction.oncomplete = () => (asked.result.close(), resolve());
      };
    })""")
    seeing.page.reload()
    expect(seeing.page.locator(".question .lost")).to_have_text("house.png is not kept in this browser.")
    seeing.ask("two")
    expect(seeing.answers().last.locator(".error")).to_have_text("house.png is not kept in this browser.")
    assert len(seeing.asked) == 1


def test_a_picture_that_does_not_fit_the_storage_leaves_its_text(seeing: Tab, tmp_path: Path) -> None:
    seeing.page.evaluate("""() => {
      const put = IDBObjectStore.prototype.put;
      IDBObjectStore.prototype.put = function (value) {
        if (this.name === "media") throw new Error("it is full");
        return put.call(this, value);
      };
    }""")
    attach(seeing, saved(scene(), tmp_path / "house.png"))
    seeing.ask("one")
    expect(seeing.page.locator(".trouble")).to_have_text("Files of a question were not kept: it is full")
    seeing.done()
    expect(seeing.page.locator(".trouble")).to_have_text("Files of a question were not kept: it is full")
    is_shown(seeing, seeing.page.locator(".question .picture img"))
    seeing.page.reload()
    expect(seeing.page.locator(".question .bubble")).to_have_text("one")
    expect(seeing.page.locator(".question .lost")).to_have_text("house.png is not kept in this browser.")


def test_without_a_database_pictures_stay_as_long_as_the_page(
    open_tab: OpenTab, sighted: Served, tmp_path: Path
) -> None:
    tab = open_tab(sighted.url, init="indexedDB.open = () => { throw new Error('none here'); };")
    expect(tab.page.locator(".trouble")).to_contain_text("none here")
    attach(tab, saved(scene(), tmp_path / "house.png"))
    tab.ask("one")
    tab.done()
    is_shown(tab, tab.page.locator(".question .picture img"))
    tab.ask("two")
    tab.done(2)
    assert tab.asked[1]["messages"][0] == tab.asked[0]["messages"][0]


def test_bytes_of_what_was_not_sent_are_forgotten(open_tab: OpenTab, sighted: Served, tmp_path: Path) -> None:
    """Those of a question's own pictures are not: without a database nothing else has them."""
    tab = open_tab(sighted.url, init="indexedDB.open = () => { throw new Error('none here'); };" + HELD)
    attach(tab, saved(scene(), tmp_path / "one.png"), saved(scene(50, 60), tmp_path / "two.png"))
    assert tab.page.evaluate("held.size") == 2
    tab.button("Remove one.png").click()
    wait_until(lambda: tab.page.evaluate("held.size") == 1)
    tab.ask("one")
    tab.done()
    tab.button("Edit question").click()
    editor = tab.page.locator(".editor")
    editor.get_by_label("Remove two.png").click()
    fire(tab, "paste", ".editor textarea", as_pasted(saved(scene(70, 80), tmp_path / "new.png")))
    expect(editor.locator(".thumbnail img")).to_have_count(1)
    assert tab.page.evaluate("held.size") == 2
    tab.button("Cancel").click()
    wait_until(lambda: tab.page.evaluate("held.size") == 1)
    tab.ask("two")
    tab.done(2)
    assert tab.asked[1]["messages"][0] == tab.asked[0]["messages"][0]


def test_bytes_of_what_an_editor_still_reads_are_forgotten(open_tab: OpenTab, sighted: Served, tmp_path: Path) -> None:
    """The picture comes when its editor is closed: nothing would ever release it."""
    tab = open_tab(sighted.url, init="indexedDB.open = () => { throw new Error('none here'); };" + HELD + HELD_UP)
    attach(tab, saved(scene(), tmp_path / "one.png"))
    tab.ask("one")
    tab.done()
    tab.button("Edit question").click()
    tab.page.evaluate("() => { gate = new Promise((open) => (openGate = open)); }")
    fire(tab, "paste", ".editor textarea", as_pasted(saved(scene(70, 80), tmp_path / "new.png")))
    expect(tab.page.locator(".editor .reading")).to_have_count(1)
    tab.button("Cancel").click()
    expect(tab.page.locator(".editor")).to_have_count(0)
    tab.page.evaluate("openGate()")
    wait_until(lambda: tab.page.evaluate("read") == 2)
    assert tab.page.evaluate("held.size") == 1


def test_conversations_of_an_older_page_are_as_they_were(seeing: Tab) -> None:
    """Version 2 of the database had no media."""
    seeing.page.evaluate("""async () => {
      const done = (asked) => new Promise((resolve, reject) => {
        asked.onsuccess = () => resolve(asked.result);
        asked.onerror = () => reject(asked.error);
      });
      await done(indexedDB.deleteDatabase("dflash-local"));
      const asked = indexedDB.open("dflash-local", 2);
      asked.onupgradeneeded = () => {
        asked.result.createObjectStore("conversations", { keyPath: "id" });
        asked.result.createObjectStore("turns", { keyPath: "id" }).createIndex("conversation", "conversation");
        asked.result.createObjectStore("passes", { keyPath: ["turn", "part"] });
      };
      const database = await done(asked);
      const transaction = database.transaction(["conversations", "turns"], "readwrite");
      const record = { id: "c", title: "old", created: 1, changed: 1, leaf: "t" };
      const turn = { id: "t", conversation: "c", parent: null, created: 1, role: "user", content: "hello",
                     reasoning: "", files: [{ name: "notes.md", text: "a note" }], toolCalls: [], toolCallId: null,
                     state: "done" };
      transaction.objectStore("conversations").put(record);
      transaction.objectStore("turns").put(turn);
      await new Promise((resolve) => (transaction.oncomplete = resolve));
      database.close();
    }""")
    seeing.page.reload()
    seeing.page.locator(".conversations .title", has_text="old").click()
    expect(seeing.page.locator(".question .file summary")).to_have_text("notes.md")
    expect(seeing.page.locator(".question .bubble")).to_have_text("hello")


def test_the_proof_asks_with_the_same_pictures(seeing: Tab, tmp_path: Path) -> None:
    seeing.button("Show drafts").click()
    attach(seeing, saved(scene(), tmp_path / "house.png"))
    seeing.ask("show drafts")
    expect(seeing.button("Prove it")).to_be_visible()
    seeing.button("Prove it").click()
    expect(seeing.page.locator(".verdict")).to_contain_text("Identical")
    drafted, plain = seeing.asked
    assert plain["draft"] == "off" and plain["messages"] == drafted["messages"]
    assert plain["messages"][0]["content"][0]["type"] == "image_url"


def test_unanswered_questions_are_joined_with_their_pictures(seeing: Tab, tmp_path: Path) -> None:
    seeing.expected = ("400",)
    refusal = {"error": {"message": "no"}}
    seeing.page.route("**/v1/chat/completions", lambda route: route.fulfill(status=400, json=refusal))
    attach(seeing, saved(scene(), tmp_path / "house.png"))
    seeing.ask("one")
    expect(seeing.answers().locator(".error")).to_have_text("no")
    seeing.page.unroute("**/v1/chat/completions")
    seeing.ask("two")
    seeing.done(2)
    (message,) = seeing.asked[-1]["messages"]
    assert [part.get("text") for part in message["content"]] == [None, "one", "two"]


# ---- looks ----


def test_a_picture_is_enlarged_by_keyboard(seeing: Tab, tmp_path: Path) -> None:
    attach(seeing, saved(scene(), tmp_path / "house.png"), saved(scene(300, 900), tmp_path / "tall.png"))
    seeing.ask("one")
    seeing.done()
    seeing.page.get_by_role("button", name="Enlarge house.png").focus()
    seeing.page.keyboard.press("Enter")
    dialog = seeing.page.get_by_role("dialog")
    expect(dialog.get_by_role("img", name="house.png")).to_be_visible()
    expect(dialog.locator("footer")).to_contain_text("1 / 2, 640 × 400")
    seeing.page.keyboard.press("ArrowRight")
    is_shown(seeing, dialog.get_by_role("img", name="tall.png"))
    expect(dialog.get_by_label("Next picture")).to_be_disabled()
    expect(dialog.get_by_label("Previous picture")).to_have_css("opacity", "1")
    box = dialog.locator("img").bounding_box()
    assert box and box["height"] < 820 and abs(box["width"] / box["height"] - 1 / 3) < 0.02
    seeing.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(seeing.page.get_by_role("button", name="Enlarge house.png")).to_be_focused()


def test_a_phone_takes_photographs(open_tab: OpenTab, sighted: Served, tmp_path: Path) -> None:
    tab = open_tab(sighted.url, **PHONE)
    expect(tab.button("Take a photo")).to_be_visible()
    attach(tab, saved(scene(3000, 4000), tmp_path / "photo.jpg"), to="input[capture='environment']")
    tab.ask("what is it?")
    tab.done()
    assert picture_of(content(tab)[0])[1].size == (1536, 2048)
    assert tab.page.evaluate("document.documentElement.scrollWidth") == 360
    assert tab.page.evaluate("document.querySelector('.thread').scrollWidth") == 360


def test_a_camera_is_for_phones(seeing: Tab) -> None:
    expect(seeing.button("Add pictures")).to_be_visible()
    expect(seeing.page.get_by_label("Take a photo").last).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(open_tab: OpenTab, sighted: Served, tmp_path: Path, scheme: str) -> None:
    """axe finds nothing while pictures are attached, shown, enlarged and edited, and on a phone."""
    tab = open_tab(sighted.url, color_scheme=scheme, reduced_motion="reduce")
    pictures = [saved(scene(), tmp_path / "house.png"), saved(scene(300, 500), tmp_path / "tall.jpg")]
    files = [*pictures, *written(tmp_path, {"a.wav": wav()})]
    attach(tab, *files, to=ANY)
    expect(tab.page.locator(".composer .chips li")).to_have_count(3)
    assert faults(tab.page) == []
    tab.ask("look")
    tab.done()
    attach(tab, files[0])
    assert faults(tab.page) == []
    tab.page.locator(".picture").first.click()
    expect(tab.page.get_by_role("dialog")).to_be_visible()
    assert faults(tab.page) == []
    tab.page.keyboard.press("Escape")
    tab.page.locator(".question").hover()
    tab.button("Edit question").click()
    tab.page.set_viewport_size({"width": 360, "height": 740})
    assert faults(tab.page) == []


def test_more_pictures_than_a_server_reads(open_tab: OpenTab, tmp_path: Path) -> None:
    with serve(Settings(alias="small", limits=Limits(body=2**21)), info=SEES_AND_HEARS) as served:
        tab = open_tab(served.url)
        tab.expected = ("413",)
        attach(tab, saved(noise(), tmp_path / "noise.png"))
        tab.ask("look")
        expect(tab.answers().locator(".error")).to_contain_text("--max-body")

"""Draws docs/figures/page-*.png, the chat page over a scripted engine: python -m tests.page.figures"""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from dflash_local.engine import Engine
from dflash_local.native import StepUpdate
from dflash_local.server.settings import Settings
from tests.fake_native import SEES_AND_HEARS, FakeNative, bytes_in_blocks
from tests.page.drafted import DraftedNative
from tests.page.scenes import saved, scene
from tests.page.scripts import RICH, Pace
from tests.server.live import live

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "figures"
QUESTION = "How does speculative decoding make a model faster?"
SHOWN = "What is in this picture, and where does the light come from?"
SEEN = (
    b"A **red house** with a dark roof stands on a green hill, under a clear sky.\n\n"
    b"The light comes from the sun at the top right, so the left wall is in the shade."
)
OTHERS = ("A regex for ISO dates", "Explain KV caches to a child", "Plan a week in Lisbon", "Why is my loop slow?")
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1180, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1180, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 800}, "color_scheme": "light", "device_scale_factor": 2},
}
PASS_MS = 48.0
COLOURS = 256
PICTURES = "input[accept='image/*'][multiple]"  # the button that chooses some
SHOWN_PASSES = 18  # the prompt's and 17 more; the last one keeps some of what it guessed


class Scripted(FakeNative):
    """The times of its passes are made up."""

    def _pass(self, index: int, slot: Any) -> StepUpdate:
        update = super()._pass(index, slot)
        slot.stats.t_generate_ms += PASS_MS
        return update


def script(prompt: bytes) -> list[list[int]]:
    asked = prompt.decode().rstrip("\n").split("\n")[-1]
    thoughts = b"What is checked, and what does it cost?"
    if QUESTION not in asked:
        return bytes_in_blocks(b"Gladly.")
    return [[*b"<think>"], [*thoughts], [*b"</think>"], *bytes_in_blocks(RICH.encode())]


def main() -> None:
    """Draw all of them."""
    native, settings = Scripted(script), Settings(alias="Qwen3-8B-Q4_K_M")
    with live(lambda _: Engine.over(native), settings) as server, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, options in LOOKS.items():
            page = chromium.new_context(**options).new_page()
            page.goto(server.url)
            for text in (*OTHERS, QUESTION):
                page.keyboard.press("Alt+n")
                page.fill("#message", text)
                page.keyboard.press("Enter")
                page.locator(".answer.done").wait_for()
            page.locator(".thread").evaluate("(thread) => thread.scrollTop = 0")
            page.wait_for_timeout(500)
            save(page.screenshot(), FOLDER / f"page-{name}.png")
        for name, options in LOOKS.items():
            draw_picture(chromium.new_context(**options).new_page(), name)
            draw_drafts(chromium.new_context(**options).new_page(), name)
        chromium.close()


def draw_picture(page: Any, name: str) -> None:
    """A question about a picture."""
    native = Scripted(lambda _prompt: bytes_in_blocks(SEEN), info=SEES_AND_HEARS)
    with live(lambda _: Engine.over(native), Settings(alias="Qwen3-VL-8B-Q4_K_M")) as server:
        page.goto(server.url)
        with tempfile.TemporaryDirectory() as folder:
            page.set_input_files(PICTURES, saved(scene(), Path(folder) / "house.png"))
            page.locator(".composer .thumbnail img").wait_for()
        page.fill("#message", SHOWN)
        page.keyboard.press("Enter")
        page.locator(".answer.done").wait_for()
        page.wait_for_timeout(300)
        save(page.screenshot(), FOLDER / f"page-picture-{name}.png")


def draw_drafts(page: Any, name: str) -> None:
    """Drafts while they come, the tree of a pass, and the proof."""
    pace = Pace()
    native = DraftedNative(lambda _prompt: DraftedNative.words.passes(RICH), gate=pace)
    with live(lambda _: Engine.over(native), Settings(alias="Qwen3-8B-Q4_K_M")) as server:
        page.goto(server.url)
        page.get_by_role("button", name="Show drafts").click()
        page.locator("#switch-lookup").wait_for()
        pace.hold()
        page.fill("#message", QUESTION)
        page.keyboard.press("Enter")
        pace.release(SHOWN_PASSES)
        page.locator(".guess", has_text=f"pass {SHOWN_PASSES - 1}").wait_for()
        page.wait_for_timeout(300)  # the refused branches have not faded yet
        save(page.screenshot(), FOLDER / f"page-drafts-{name}.png")
        pace.free()
        page.locator(".answer.done").wait_for()
        page.locator(".token.draft.d7").first.click()
        page.keyboard.press("Enter")
        page.wait_for_timeout(300)
        save(page.screenshot(), FOLDER / f"page-tree-{name}.png")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Prove it").click()
        page.locator(".verdict", has_text="Identical").wait_for()
        save(page.screenshot(), FOLDER / f"page-proof-{name}.png")
        pace.free()


def save(picture: bytes, path: Path) -> None:
    """With few colours, which makes it small."""
    from PIL import Image

    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()

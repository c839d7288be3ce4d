"""Draws docs/figures/page.webp, the animated picture in README.md: python -m tests.page.animation [EVENTS]

A real answer of the demo pair is recorded without a browser beside it, which would slow the model; then the page gets
the recorded events, ten times slower than the server's clock says. With EVENTS, a file, they are kept there, or taken
from there if it exists: on a machine that others use, too, one records in a quiet moment.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import ViewportSize, sync_playwright

from dflash_local.demo.pocket import inflated_pair
from dflash_local.engine import Engine
from dflash_local.server.settings import Settings
from tests.fake_native import FakeNative
from tests.page.figures import FOLDER
from tests.server.live import Live, live

# The bundled model's answers are short; a small drafter does not guess all of it at once.
QUESTION, DRAFTER = "Write a Python function that averages a list of angles.", "dflash-small"
SLOWER = 10  # than it was: a third of a second is too short to see anything
FRAME_MS = 50
START_MS, TREE_MS, END_MS = 600, 2500, 1500
SIZE = ViewportSize(width=960, height=760)
QUALITY = 70
SETTINGS = Settings(alias="pocket")
ADVANCE = """([text, isLast]) => new Promise((drawn) => {
  window.stream_.enqueue(new TextEncoder().encode(text));
  if (isLast) window.stream_.close();
  requestAnimationFrame(() => requestAnimationFrame(drawn));
})"""
# The page's request gets a stream that the script fills.
REPLAY = """
const fetch_ = window.fetch;
window.fetch = (path, init) => {
  if (!String(path).endsWith("v1/chat/completions")) return fetch_(path, init);
  const body = new ReadableStream({ start: (stream) => { window.stream_ = stream; } });
  return Promise.resolve(new Response(body, { status: 200 }));
};
"""


def record(server: Live) -> list[tuple[float, str]]:
    """A real answer: its events, and when they came, in milliseconds of writing."""
    body = {
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "stream": True,
        "timings_per_token": True,
        "return_drafts": True,
    }
    server.http.post("/v1/chat/completions", json={**body, "stream": False})  # the pages of the model are in memory now
    text = server.http.post("/v1/chat/completions", json=body).text
    events: list[tuple[float, str]] = []
    for frame in text.split("\n\n"):
        if not frame.startswith("data: "):
            continue
        at = events[-1][0] / SLOWER if events else 0.0
        if frame != "data: [DONE]":
            at = json.loads(frame.removeprefix("data: ")).get("timings", {}).get("predicted_ms", at)
        events.append((SLOWER * at, f"{frame}\n\n"))
    return events


def draw(page: Any, events: list[tuple[float, str]]) -> list[tuple[Image.Image, int]]:
    """Pictures, and how long each is shown."""
    frames: list[tuple[Image.Image, int]] = []

    def shoot(ms: int) -> None:
        frames.append((Image.open(io.BytesIO(page.screenshot())).convert("RGB"), ms))

    page.fill("#message", QUESTION)
    shoot(START_MS)
    page.keyboard.press("Enter")
    page.wait_for_function("window.stream_ !== undefined")
    done, now = 0, 0.0
    while done < len(events):
        due = sum(at <= now for at, _ in events)
        page.evaluate(ADVANCE, ["".join(text for _, text in events[done:due]), due == len(events)])
        done, now = due, now + FRAME_MS
        shoot(FRAME_MS)
    page.locator(".answer.done").wait_for()
    shoot(END_MS)
    best = max(range(len(passes := passes_of(events))), key=lambda at: (passes[at]["accepted"], passes[at]["nodes"]))
    page.locator(f".token[data-pass='{best}']").first.click()
    page.keyboard.press("Enter")
    page.locator(".tree-dialog").wait_for()
    shoot(TREE_MS)
    return frames


def passes_of(events: list[tuple[float, str]]) -> list[dict[str, Any]]:
    """What the passes did."""
    bodies = [json.loads(text.removeprefix("data: ")) for _, text in events if "[DONE]" not in text]
    return [body["dflash"]["pass"] for body in bodies if "pass" in body.get("dflash", {})]


def load(_progress: Any) -> Engine:
    pair = inflated_pair("0.6b", "q4_0", DRAFTER)
    return Engine(pair.target, pair.drafter, n_ctx=2048)


def recorded(kept: Path | None) -> list[tuple[float, str]]:
    """The events, from the file if there is one."""
    if kept and kept.exists():
        return [(at, text) for at, text in json.loads(kept.read_text())]
    with live(load, SETTINGS) as server:
        events = record(server)
    if kept:
        kept.write_text(json.dumps(events))
    return events


def main() -> None:
    """Record, replay, draw."""
    events = recorded(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    with live(lambda _: Engine.over(FakeNative()), SETTINGS) as server, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = chromium.new_context(viewport=SIZE, color_scheme="light").new_page()
        page.add_init_script(REPLAY)
        page.goto(server.url)
        page.get_by_role("button", name="Show drafts").click()
        page.locator("#switch-lookup").wait_for()
        page.get_by_role("button", name="Conversations").click()  # room for what is to be seen
        frames = draw(page, events)
        chromium.close()
    pictures, times = [picture for picture, _ in frames], [ms for _, ms in frames]
    path = FOLDER / "page.webp"
    more: dict[str, Any] = {
        "append_images": pictures[1:],
        "duration": times,
        "loop": 0,
        "quality": QUALITY,
        "method": 6,
    }
    pictures[0].save(path, save_all=True, **more)
    print(
        f"{path}: {len(frames)} frames, {path.stat().st_size // 1024} KiB, {events[-1][0] / SLOWER:.0f} ms of writing"
    )


if __name__ == "__main__":
    main()

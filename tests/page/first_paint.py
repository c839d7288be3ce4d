"""How long the page takes to its first paint, over a scripted engine: python -m tests.page.first_paint"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import sync_playwright

from tests.page.conftest import serve

VISITS = 10
READ = """async () => {
  const paint = await new Promise((resolve) => new PerformanceObserver((list) => {
    const found = list.getEntriesByName("first-contentful-paint")[0];
    if (found) resolve(found);
  }).observe({ type: "paint", buffered: true }));
  await new Promise((resolve) => setTimeout(resolve, 500));  // the parts that come after it
  const fetched = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  const files = fetched.filter(({ name }) => !/health|props/.test(name));
  const sum = (some) => some.reduce((bytes, { transferSize }) => bytes + transferSize, 0);
  const before = files.filter(({ responseEnd }) => responseEnd <= paint.startTime);
  return { ms: paint.startTime, bytes: sum(files), bytes_before: sum(before) };
}"""


@dataclass
class Paint:
    """The first contentful paint of a visit: `ms` after the navigation began; bytes over HTTP, heads included, of all
    files of the page, and of those that had come by then."""

    ms: float
    bytes: int
    bytes_before: int


def first_paint(page: Any, url: str) -> Paint:
    """Visit the page."""
    page.goto(url)
    return Paint(**page.evaluate(READ))


def told(paints: Sequence[Paint]) -> str:
    times = [paint.ms for paint in paints]
    last = paints[-1]
    return (
        f"{statistics.median(times):.0f} ms (median of {len(times)}; {min(times):.0f} to {max(times):.0f}), "
        f"{last.bytes / 1e3:.0f} kB, {last.bytes_before / 1e3:.0f} of them before"
    )


def main() -> None:
    """Print medians of visits by browsers with nothing, by one with its cache, and with the service worker."""
    with serve() as served, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        first_paint(chromium.new_page(), served.url)  # the browser itself starts
        fresh = []
        for _ in range(VISITS):
            with chromium.new_context(service_workers="block") as context:
                fresh.append(first_paint(context.new_page(), served.url))
        print("first visit:", told(fresh))
        for kind in ("block", "allow"):
            with chromium.new_context(service_workers=kind) as context:
                page = context.new_page()
                first_paint(page, served.url)
                if kind == "allow":
                    page.evaluate("navigator.serviceWorker.ready.then(() => undefined)")
                paints = [first_paint(page, served.url) for _ in range(VISITS)]
            print("again, with the service worker:" if kind == "allow" else "again:", told(paints))
        chromium.close()


if __name__ == "__main__":
    main()

"""Draws server/page/app/icon-*.png of icon.svg, for systems that take no SVG: python -m tests.page.icons"""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).resolve().parents[2] / "server" / "page" / "app"
# Whole squares, for systems that cut icons to a shape of their own; the others have round corners.
SQUARE = frozenset({"icon-180.png", "icon-maskable.png"})
SIZES = {"icon-180.png": 180, "icon-192.png": 192, "icon-512.png": 512, "icon-maskable.png": 512}


def main() -> None:
    """Draw all of them."""
    drawing = (FOLDER / "icon.svg").read_text(encoding="utf-8")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, size in SIZES.items():
            page = chromium.new_page(viewport={"width": size, "height": size})
            shape = drawing.replace(' rx="8"', "") if name in SQUARE else drawing
            page.set_content(f"<style>body {{ margin: 0 }} svg {{ display: block }}</style>{shape}")
            page.screenshot(path=FOLDER / name, omit_background=name not in SQUARE)
        chromium.close()


if __name__ == "__main__":
    main()

"""Draws docs/figures/report-*.png, the report of a run: python -m tests.report.figures REPORT.html"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.page.figures import FOLDER, save

SIZE: Any = {"width": 1060, "height": 1000}


def main(report: Path) -> None:
    """Draw both."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name in ("light", "dark"):
            page = chromium.new_context(viewport=SIZE, color_scheme=name).new_page()
            page.goto(report.resolve().as_uri())
            save(page.screenshot(), FOLDER / f"report-{name}.png")
        chromium.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

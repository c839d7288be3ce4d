"""A text that grows looks at its end as if it had come at once: MarkdownView alone, cut at random places."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.page.scripts import EVIL, RICH, TRICKY

N_TRIALS = 800
# Time stands still, so that no draw is put off.
DRAW = """([text, cuts]) => {
  performance.now = () => 0;
  const drawn = (cuts) => {
    const root = document.createElement("div");
    const view = new Page.MarkdownView(root);
    for (const cut of cuts) view.set(text.slice(0, cut), false);
    view.set(text, true);
    return root.innerHTML.replaceAll("<!---->", "").replace(/>\\s+</g, "><");
  };
  return [drawn(cuts), drawn([])];
}"""


@pytest.fixture(scope="module")
def bundle(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundle") / "markdown_view.js"
    command = ("node_modules/.bin/esbuild", "src/markdown/markdown_view.ts", "--bundle", "--global-name=Page")
    subprocess.run([*command, f"--outfile={out}"], cwd=installed, check=True, capture_output=True)
    return out


@pytest.mark.slow
def test_any_cuts_give_the_same(browser: Any, bundle: Path) -> None:
    texts = [*TRICKY, RICH, EVIL]
    lines = [line for text in texts for line in text.split("\n")]
    page = browser.new_page()
    page.add_script_tag(path=bundle)
    for seed in range(N_TRIALS):
        chance = random.Random(seed)
        text = chance.choice(texts) if seed % 3 == 0 else "\n".join(chance.sample(lines, 12))
        cuts = sorted(chance.sample(range(1, len(text)), min(chance.choice([2, 5, 20, len(text)]), len(text) - 1)))
        grown, at_once = page.evaluate(DRAW, [text, cuts])
        assert grown == at_once, (seed, text, cuts)
    page.close()

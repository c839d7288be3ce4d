"""The chat page's cost for a model on the same cores: with drafts shown against the ordinary view.

Usage: python benchmarks/page_cost.py [--shapes 4b 0.6b] [--drafter dflash] [--type q4_0]

Each prompt is asked through the page at temperature 0, with drafts shown and without, in alternating order. The clock
is the engine's (`/metrics`), so that the same passes are compared.
"""

from __future__ import annotations

import http.client
import shutil
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the package `benchmarks`

from benchmarks import pairs, record
from benchmarks.http_load import LoadError
from benchmarks.record import say
from benchmarks.systems import OURS, Setting, Systems, order
from dflash_local.baseline import HOST
from dflash_local.demo.shapes import SHAPES

KINDS = (False, True)  # drafts shown
LIMIT = 0.98
WAIT_MS = 300_000


def written(port: int) -> tuple[int, float]:
    """Tokens that the engine has written so far, and its seconds for them."""
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    values = dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    named = {name.partition(":")[2].partition("{")[0]: float(value) for name, value in values.items()}
    return int(named["tokens_predicted_total"]), named["tokens_predicted_seconds_total"]


def show_drafts(page: Page, shown: bool) -> None:
    if (page.locator("#switch-draft").count() > 0) != shown:
        page.get_by_role("button", name="Show drafts").click()
        page.keyboard.press("Escape")


def ask(page: Page, port: int, text: str) -> tuple[int, float]:
    """Tokens and seconds of one answer in a new chat."""
    page.get_by_role("button", name="New chat").first.click()
    page.wait_for_timeout(500)  # for remaining work of the last chat
    tokens, seconds = written(port)
    page.fill("#message", text)
    page.keyboard.press("Enter")
    page.locator(".answer.done").wait_for(timeout=WAIT_MS)
    done = written(port)
    return done[0] - tokens, done[1] - seconds


def measure(page: Page, port: int, prompts: Sequence[str], repeats: int) -> list[dict[bool, float]]:
    """Tokens per second of each repeat."""
    found = []
    for repeat in range(repeats):
        sums = {kind: [0.0, 0.0] for kind in KINDS}
        for i, text in enumerate(prompts):
            counts = set()
            for kind in order(KINDS, repeat + i):
                show_drafts(page, kind)
                tokens, seconds = ask(page, port, text)
                sums[kind][0] += tokens
                sums[kind][1] += seconds
                counts.add(tokens)
            if len(counts) > 1:
                raise LoadError(f"the answers differ in length: {sorted(counts)} tokens")
        found.append({kind: tokens / seconds for kind, (tokens, seconds) in sums.items()})
        say(f"{repeat + 1}/{repeats}: {found[-1][False]:.1f} tok/s, with drafts shown {found[-1][True]:.1f}")
    return found


def row_of(shape: str, found: Sequence[dict[bool, float]]) -> dict[str, Any]:
    ordinary, shown = ([one[kind] for one in found] for kind in KINDS)
    medians = {"ordinary": statistics.median(ordinary), "shown": statistics.median(shown)}
    return {"shape": shape, **medians, **record.ratio_row(ordinary, shown, LIMIT)}


def markdown(rows: Sequence[dict[str, Any]], footer: str) -> str:
    head = ["target", "ordinary view, tok/s", "drafts shown, tok/s", "ratio", "limit", ""]
    lines = [
        [row["shape"], f"{row['ordinary']:.1f}", f"{row['shown']:.1f}", *record.ratio_cells(row, LIMIT)] for row in rows
    ]
    return f"{record.table(head, lines)}\n\n{footer}\n"


def main(argv: Sequence[str] | None = None) -> int:
    ap = record.parser(__doc__, "page_cost", n_predict=200, repeats=5)
    ap.add_argument("--shapes", nargs="+", choices=SHAPES, default=["4b", "0.6b"], help="of the inflated pairs")
    record.add_work_option(ap)
    record.add_pair_choice(ap)
    args = ap.parse_args(argv)
    table = record.Table(ap, args, markdown)
    bodies = record.requests(record.read_prompts(args.prompts, args.limit), args.n_predict, 0.0, stream=True)
    prompts = [body["messages"][-1]["content"] for body in bodies]
    flags = ("--temp", "0", "-n", str(args.n_predict), "--metrics")
    for shape in args.shapes:
        pair = pairs.make(args.work, shape, args.type, args.drafter)
        commands = {OURS: Setting(pair, Path(), threads=args.threads).ours(*flags)}
        with Systems(commands) as systems, sync_playwright() as playwright:
            systems.warm_up(bodies[:1])
            port = systems.servers[OURS].port
            path = shutil.which("chromium") or shutil.which("google-chrome")
            with playwright.chromium.launch(executable_path=path, args=["--no-sandbox"]) as browser:
                page = browser.new_page(viewport={"width": 1200, "height": 820})
                page.goto(f"http://{HOST}:{port}/")
                page.locator("#message").wait_for()
                ask(page, port, prompts[0])
                table.add(row_of(shape, measure(page, port, prompts, args.repeats)))
    return table.show()


if __name__ == "__main__":
    record.run(main)

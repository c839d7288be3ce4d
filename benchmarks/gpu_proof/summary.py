"""The summary, written after each part: which parts ran, how they ended, and where their figures are."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.gpu_proof.device import Found
from benchmarks.gpu_proof.runner import Outcome
from dflash_local.build.commit import running_commit
from dflash_local.machine.hardware import this_machine

SWITCHES = ("DFLASH_", "GGML_", "CUDA_VISIBLE_DEVICES")
SECRETS = re.compile("KEY|TOKEN|SECRET|PASSWORD")


def settings(environment: Mapping[str, str]) -> str:
    """Variables that change what is measured; "" if there are none. Those that name a folder do not, and a secret must
    not be in a record, which is published."""
    names = [name for name in environment if name.startswith(SWITCHES) and not SECRETS.search(name)]
    return ", ".join(f"{name}={environment[name]}" for name in sorted(names) if "/" not in environment[name])


class Record:
    """summary.json and summary.md in a folder. An earlier run's parts are kept if commit, build, device and machine are
    the same; else their files are deleted, so that results do not mix."""

    def __init__(
        self, out: Path, device: str, key: str, found: Found, plan: Sequence[tuple[str, str]], native: str = ""
    ) -> None:
        self._out, self._plan = out, plan
        self._head = {
            "device": device,
            "machine": found.text,
            "host": str(this_machine()),
            "commit": running_commit(),
            "build": key,
            "native": native,
            "settings": settings(os.environ),
        }
        self._parts: dict[str, dict[str, Any]] = {}
        self._inflated: dict[str, float] = {}
        out.mkdir(parents=True, exist_ok=True)
        try:
            before = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            before = {}
        if {name: before.get(name) for name in self._head} == self._head:
            self._parts = {part["name"]: part for part in before["parts"]}
            self._inflated = before.get("inflated", {})
        elif before:
            different = ", ".join(name for name in self._head if before.get(name) != self._head[name])
            print(f"{out / 'summary.json'} was of another {different}: all parts run again", flush=True)
            for name, _ in plan:
                for suffix in ("json", "md"):
                    (out / f"{name}.{suffix}").unlink(missing_ok=True)

    def is_done(self, name: str) -> bool:
        return self._parts.get(name, {}).get("status") == Outcome.DONE

    def add(self, outcome: Outcome, inflated: Mapping[str, float] = MappingProxyType({})) -> None:
        """Write a part's outcome, and the seconds that pairs took."""
        self._inflated.update(inflated)
        self._parts[outcome.name] = {**asdict(outcome), "ended": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())}
        parts = [self._parts[name] for name, _ in self._plan if name in self._parts]
        figures = json.dumps({**self._head, "parts": parts, "inflated": self._inflated}, indent=1) + "\n"
        for name, text in (("summary.json", figures), ("summary.md", self.text())):
            unfinished = self._out / f".{name}"  # not by dflash_local.convert, which a checkout does not have
            unfinished.write_text(text, encoding="utf-8")
            unfinished.replace(self._out / name)

    def text(self) -> str:
        """The table, including parts that have not run."""
        head = self._head
        parts = [f"# {head['machine']}"]
        if head["device"] != "cuda":
            parts.append("**A rehearsal, no GPU was used: these figures say nothing.**")
        native = f", native code {head['native']}" if head["native"] else ""
        parts += [f"{head['host']}; commit {head['commit']}, build {head['build']}{native}."]
        if head["settings"]:
            parts.append(f"**Not the defaults: {head['settings']}.**")
        parts.append("`make gpu-proof`")
        lines = ["| part | what | how it ended | seconds | of at most |", "|---|---|---|---|---|"]
        for name, what in self._plan:
            part = self._parts.get(name)
            if part is None:
                lines.append(f"| {name} | {what} | not run | | |")
                continue
            ended = part["status"] + (f": {part['detail']}" if part["detail"] else "")
            link = f"[{name}]({name}.md)" if (self._out / f"{name}.md").is_file() else name
            cell = ended.replace("|", "\\|").replace("\n", " ")
            lines.append(f"| {link} | {what} | {cell} | {part['seconds']:.0f} | {part['limit']:.0f} |")
        made = [f"{pair} in {seconds:.0f} s" for pair, seconds in self._inflated.items()]
        return "\n\n".join([*parts, "\n".join(lines), *([f"Inflated: {', '.join(made)}."] if made else [])]) + "\n"

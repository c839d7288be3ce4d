"""The file for a bug report: `doctor`'s findings, versions, settings and the end of the last build's log."""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from dflash_local import __version__
from dflash_local.build import installed_build
from dflash_local.cache_dir import cache_dir
from dflash_local.diagnose.finding import Finding
from dflash_local.diagnose.redaction import Redaction
from dflash_local.machine.hardware import Machine

# Settings that change what runs; all other variables are left out.
VARIABLES = (
    "CC=", "CFLAGS", "CMAKE_", "CUDA", "CXX", "DFLASH_", "GGML_", "HIP_", "HF_ENDPOINT", "HF_HOME", "HF_HUB_",
    "LDFLAGS", "LLAMA_", "OMP_", "ROCR_", "VK_",
)  # fmt: skip
_LOG_LINES = 60
_STAMP = ("version", "backend", "flags", "compilers", "platform", "llama_cpp_commit", "native", "patches", "key")


def report(
    findings: Sequence[Finding], machine: Machine, library: Mapping[str, Any], redact: Redaction | None = None
) -> str:
    """The report as Markdown, redacted. It has no prompts or answers, and of models only those given to `doctor`."""
    redact = redact or Redaction()
    sections = {
        "findings": "\n".join(map(str, findings)),
        "machine": _lines(machine.to_json()),
        "software": "\n".join(_software()),
        "build": _stamp(),
        "library": _lines(library),
        "settings": "\n".join(redact.variables(VARIABLES)) or "none",
        "the end of the last build's log": "\n".join(_build_log()) or "none",
    }
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    text = f"# dflash-local {__version__}, {now}\n\nWhat happened, and what was expected:\n\n(please write this)\n"
    for title, content in sections.items():
        text += f"\n## {title}\n\n```\n{redact(content).replace('```', '` ` `')}\n```\n"
    return text


def _lines(values: Mapping[str, Any]) -> str:
    return "\n".join(f"{key}: {json.dumps(value, default=str)}" for key, value in values.items()) or "none"


def _software() -> Iterator[str]:
    """Versions of Python, of the system, and of all our dependencies."""
    yield f"python {sys.version.split()[0]} ({platform.python_implementation()}), {sys.prefix}"
    yield f"{platform.platform()}, {' '.join(platform.libc_ver())}".strip(", ")
    for name in sorted({*_dependencies(), "llama-cpp-python", "ray"}):
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"{name}: not installed"


def _dependencies() -> Iterator[str]:
    with suppress(PackageNotFoundError):
        for requirement in requires("dflash-local") or ():
            if "extra ==" not in requirement:
                yield re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def _stamp() -> str:
    stamp = installed_build.installed_stamp()
    return _lines({name: stamp[name] for name in _STAMP if name in stamp}) if stamp else "none installed"


def _build_log() -> list[str]:
    with suppress(OSError):
        logs = sorted((cache_dir() / "logs").glob("*.log"), key=lambda path: path.stat().st_mtime)
        if logs:
            return _tail(logs[-1])
    return []


def _tail(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8", errors="replace")
    return [line[:400] for line in text.splitlines()[-_LOG_LINES:]]

"""Lines of Prometheus' text format."""

from __future__ import annotations


def head(name: str, kind: str, text: str) -> list[str]:
    """The lines before a metric's samples."""
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def label(name: str, value: object) -> str:
    escaped = str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{name}="{escaped}"'

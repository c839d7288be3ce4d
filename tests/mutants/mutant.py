"""One change of one line, and the tests that are to notice it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

NATIVE = "native "


class MutantError(Exception):
    """A mutant that proves nothing: its line is not there, it does not compile, or its tests cannot run."""


@dataclass(frozen=True)
class Mutant:
    """`before` becomes `after`: a part of one line of `file` that is there once.

    Attributes:
        tests: those that concern it, the quickest first: arguments of pytest, or "native NAME", a test of
            ggml_ops/tests.
    """

    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    @property
    def key(self) -> str:
        """What tells it from every other."""
        return hashlib.sha256(repr(astuple(self)).encode()).hexdigest()[:16]

    @property
    def is_native(self) -> bool:
        return self.file.startswith("ggml_ops/")

    @property
    def uses_library(self) -> bool:
        """Whether a test of its runs against libdflash."""
        return self.is_native and any(not test.startswith(NATIVE) for test in self.tests)

    def __str__(self) -> str:
        return f"{self.file}: {self.before!r} -> {self.after!r}"

    def of(self, text: str) -> str:
        """The changed text of its file. Raises MutantError."""
        count = text.count(self.before)
        if count != 1 or "\n" in self.before + self.after or self.before == self.after:
            raise MutantError(
                f"{self}: its line is there {count} times" if count != 1 else f"{self}: no change of a line"
            )
        return text.replace(self.before, self.after)

    @contextmanager
    def within(self, *roots: Path) -> Iterator[None]:
        """Its file is changed in each of these folders meanwhile. Raises MutantError."""
        files = [root / self.file.removeprefix("ggml_ops/" if root.name == "ggml_ops" else "") for root in roots]
        if missing := [file for file in files if not file.is_file()]:
            raise MutantError(f"{self}: {missing[0]} is not there")
        texts = [file.read_text(encoding="utf-8") for file in files]
        changed = [self.of(text) for text in texts]
        try:
            for file, text in zip(files, changed, strict=True):
                file.write_text(text, encoding="utf-8")
            yield
        finally:
            for file, text in zip(files, texts, strict=True):
                file.write_text(text, encoding="utf-8")

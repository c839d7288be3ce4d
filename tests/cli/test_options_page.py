"""docs/options.md says what the options say, and each is described."""

from __future__ import annotations

import re

from dflash_local import Engine
from dflash_local.engine_options import OPTIONS
from dflash_local.request_options import REQUEST_OPTIONS
from tests.cli import options_page


def test_the_page_is_that_of_the_options() -> None:
    assert options_page.PAGE.read_text(encoding="utf-8") == options_page.text(), "python -m tests.cli.options_page"


def test_every_option_is_in_it() -> None:
    page = options_page.text()
    for name in [*OPTIONS, *REQUEST_OPTIONS, "temperature", "top_k"]:
        assert f"`{name}`" in page


def test_docstrings_explain_every_argument() -> None:
    for method, options in ((Engine.__init__, OPTIONS), (Engine.submit, REQUEST_OPTIONS)):
        explained = re.findall(r"^ {4}(\w+): \S", method.__doc__ or "", re.MULTILINE)
        assert set(explained) >= set(options)

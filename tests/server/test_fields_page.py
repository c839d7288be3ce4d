"""docs/fields.md says what the fields say."""

from __future__ import annotations

from tests.server import fields_page


def test_the_page_is_that_of_the_fields() -> None:
    assert fields_page.PAGE.read_text(encoding="utf-8") == fields_page.text(), "python -m tests.server.fields_page"


def test_every_body_is_in_it() -> None:
    page, found = fields_page.text(), fields_page.bodies()
    assert {"/v1/chat/completions", "/v1/messages", "/infill", "/tokenize"} <= set(found)
    for path in found:
        assert f"`{path}`" in page

"""A page as self-contained HTML: without other files, network or scripts."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import jinja2


def document(template: str, **values: Any) -> str:
    """The template of this folder, rendered with `values` and the common style. Each extends document.html."""
    folder = files("dflash_local.report")
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
    )
    style = (folder / "style.css").read_text(encoding="utf-8")
    return environment.get_template(template).render(style=style, **values)

"""Drawing: an SVG picture for an HTML page, coloured by the page's style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from markupsafe import Markup

_CHARACTER = 6.0  # average width in pixels


class Drawing:
    """Shapes with classes of the style sheet, in pixels of `width` by `height`. `label` is for screen readers, empty if
    there is nothing to say. All text is escaped."""

    def __init__(self, width: float, height: float, label: str, kind: str = "") -> None:
        self.width, self.height = width, height
        described = {"role": "img", "aria-label": label} if label else {"aria-hidden": "true"}
        self._root = ET.Element("svg", {"viewBox": f"0 0 {_number(width)} {_number(height)}", **described})
        if kind:
            self._root.set("class", kind)

    def rect(self, x: float, y: float, width: float, height: float, kind: str, tip: str = "") -> None:
        """A bar; `tip` is shown under the pointer."""
        width, height = max(width, 0.0), max(height, 0.0)
        places = {"x": x, "y": y, "width": width, "height": height, "rx": min(2.0, width / 2, height / 2)}
        self._add("rect", kind, places, tip)

    def circle(self, x: float, y: float, radius: float, kind: str, tip: str = "") -> None:
        self._add("circle", kind, {"cx": x, "cy": y, "r": radius}, tip)

    def diamond(self, x: float, y: float, radius: float, kind: str, tip: str = "") -> None:
        corners = ((x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y))
        self._shape("polygon", corners, kind, tip)

    def triangle(self, x: float, y: float, radius: float, kind: str, tip: str = "") -> None:
        self._shape("polygon", ((x, y - radius), (x + radius, y + radius), (x - radius, y + radius)), kind, tip)

    def square(self, x: float, y: float, radius: float, kind: str, tip: str = "") -> None:
        half = 0.85 * radius  # looks as large as the others
        self.rect(x - half, y - half, 2 * half, 2 * half, kind, tip)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self._add("line", kind, {"x1": x1, "y1": y1, "x2": x2, "y2": y2})

    def polyline(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        self._shape("polyline", points, kind)

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start", width: float = 0) -> None:
        """Text that starts, is centered or ends at `x`, on the line `y`. Above `width` it is cut, with a tip."""
        most = int(width / _CHARACTER)
        is_cut = bool(width) and len(text) > most
        element = self._add("text", kind, {"x": x, "y": y}, text if is_cut else "")
        if anchor != "start":
            element.set("text-anchor", anchor)
        shown = text[: max(most - 1, 1)].rstrip() + "…" if is_cut else text
        if is_cut:
            element[0].tail = shown
        else:
            element.text = shown

    def markup(self) -> Markup:
        """The element, already escaped."""
        return Markup(ET.tostring(self._root, encoding="unicode"))

    def _shape(self, tag: str, points: Sequence[tuple[float, float]], kind: str, tip: str = "") -> None:
        self._add(tag, kind, {}, tip).set("points", " ".join(f"{_number(x)},{_number(y)}" for x, y in points))

    def _add(self, tag: str, kind: str, places: dict[str, float], tip: str = "") -> ET.Element:
        element = ET.SubElement(self._root, tag, {name: _number(value) for name, value in places.items()})
        if kind:
            element.set("class", kind)
        if tip:
            ET.SubElement(element, "title").text = tip
        return element


def text_width(text: str) -> float:
    """The approximate width of a plot's text."""
    return _CHARACTER * len(text)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")

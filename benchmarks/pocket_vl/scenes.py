"""Drawn scenes with questions: coloured shapes on a plain ground, the same for the same seed.

A scene is drawn by `draw()`; `questions()` asks about one picture and `comparisons()` about two, each with the one
answer that is true. Seeds below `HELD_OUT` are for tests and benchmarks: training draws its scenes from others.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

HELD_OUT = 1_000_000
UNIT = 32  # pixels of one row of the target: a patch of 16, merged two by two
GRID = 8  # pixels: a shape's centre lies on multiples of it, so that a tiny tower learns to tell shapes apart
SIDES = (3, 4, 5)  # of a picture, in units
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 170, 60),
    "blue": (50, 80, 220),
    "yellow": (235, 200, 40),
    "purple": (150, 60, 190),
}
KINDS = ("circle", "square", "triangle", "cross")
RADII = {"small": 7, "medium": 10, "big": 14}  # pixels
GROUNDS = (255, 225, 20)  # levels of grey
ROWS, COLUMNS = ("top", "middle", "bottom"), ("left", "centre", "right")
SIDE_WORDS = {"left of": (0, -1), "right of": (0, 1), "above": (1, -1), "below": (1, 1)}


class Question(NamedTuple):
    """A question about one or two pictures, what kind of question it is, and the true answer."""

    kind: str
    text: str
    answer: str


@dataclass(frozen=True)
class Shape:
    """A shape of a scene: its place is a cell (column, row) of three by three, its centre is given in pixels."""

    colour: str
    kind: str
    size: str
    cell: tuple[int, int]
    centre: tuple[int, int]

    @property
    def name(self) -> str:
        return f"{self.colour} {self.kind}"

    @property
    def place(self) -> str:
        return place(self.cell)


@dataclass(frozen=True)
class Scene:
    """A picture of `width` by `height` pixels on a ground of grey, with its shapes in reading order."""

    width: int
    height: int
    ground: int
    shapes: tuple[Shape, ...]

    def unique(self, part: Literal["name", "kind", "colour"] = "name") -> list[Shape]:
        """The shapes whose name, kind or colour stands for one shape only."""
        of_shapes = [getattr(shape, part) for shape in self.shapes]
        return [shape for shape in self.shapes if of_shapes.count(getattr(shape, part)) == 1]


def scene(seed: int) -> Scene:
    """The scene of a seed."""
    return _scene(random.Random(f"scene {seed}"))


def pair(seed: int) -> tuple[Scene, Scene]:
    """Two scenes of a seed: the second is the first with one change, or with none."""
    r = random.Random(f"pair {seed}")
    first = _scene(r)
    return first, _changed(r, first)


def draw(scene: Scene) -> NDArray[np.uint8]:
    """The picture of a scene, RGB [height, width, 3]."""
    picture = np.full((scene.height, scene.width, 3), scene.ground, np.uint8)
    y, x = np.mgrid[: scene.height, : scene.width]
    for shape in scene.shapes:
        inside = _inside(shape.kind, x - shape.centre[0], y - shape.centre[1], RADII[shape.size])
        picture[inside] = COLOURS[shape.colour]
    return picture


def questions(scene: Scene, seed: int) -> Iterator[Question]:
    """Questions about a scene, one of each kind that has a single true answer, in an order of the seed."""
    r = random.Random(f"questions {seed}")
    ask = [_total, _count, _colour, _kind, _place, _side, _side, _largest, _exists, _describe, _list]
    r.shuffle(ask)
    asked = set()
    for make in ask:
        question = make(r, scene)
        if question and question.text not in asked:
            asked.add(question.text)
            yield question


def comparisons(first: Scene, second: Scene, seed: int) -> list[Question]:
    """Questions about two pictures, in an order of the seed."""
    asked = [
        Question("difference", "What differs?", _difference(first, second)),
        Question("more", "Which picture has more shapes?", _more(len(first.shapes), len(second.shapes))),
    ]
    random.Random(f"comparisons {seed}").shuffle(asked)
    return asked


def place(cell: tuple[int, int]) -> str:
    """The words for a cell (column, row): "at the top left", "in the centre"."""
    column, row = COLUMNS[cell[0]], ROWS[cell[1]]
    if cell == (1, 1):
        return "in the centre"
    if row == "middle":
        return f"on the {column}"
    return f"at the {row}" if column == "centre" else f"at the {row} {column}"


def _inside(kind: str, x: NDArray[np.int64], y: NDArray[np.int64], radius: int) -> NDArray[np.bool_]:
    """Where a shape of that radius around (0, 0) is."""
    if kind == "circle":
        return x * x + y * y <= radius * radius
    across, along = np.abs(x), np.abs(y)
    if kind == "square":
        return np.maximum(across, along) <= radius * 0.85
    if kind == "triangle":
        return (along <= radius) & (2 * across <= y + radius)
    return (np.minimum(across, along) <= radius * 0.3) & (np.maximum(across, along) <= radius)


def _scene(r: random.Random) -> Scene:
    width, height = UNIT * r.choice(SIDES), UNIT * r.choice(SIDES)
    cells = r.sample([(column, row) for row in range(3) for column in range(3)], r.choice((1, 2, 2, 3, 3, 4)))
    shapes: list[Shape] = []
    for cell in sorted(cells, key=lambda cell: cell[::-1]):
        colour, kind = r.choice(list(COLOURS)), r.choice(KINDS)
        if shapes and r.random() < 0.3:
            colour, kind = shapes[-1].colour, shapes[-1].kind
        shapes.append(_placed(r, Shape(colour, kind, r.choice(list(RADII)), cell, (0, 0)), width, height))
    return Scene(width, height, r.choice(GROUNDS), tuple(shapes))


def _placed(r: random.Random, shape: Shape, width: int, height: int) -> Shape:
    """The shape with a centre inside its cell, whole and clear of its neighbours."""
    radius = RADII[shape.size]

    def centre(cell: int, side: int) -> int:
        low, high = side * cell // 3 + radius + 1, side * (cell + 1) // 3 - radius - 1
        return GRID * r.randint(-(-low // GRID), high // GRID)

    return replace(shape, centre=(centre(shape.cell[0], width), centre(shape.cell[1], height)))


def _changed(r: random.Random, scene: Scene) -> Scene:
    names = scene.unique()
    change = r.choice(("colour", "kind", "place", "missing", "new", "nothing"))
    if change == "nothing" or not names:
        return scene
    shape, others = r.choice(names), {shape.name for shape in scene.shapes}
    rest = [other for other in scene.shapes if other != shape]
    free = [(x, y) for x in range(3) for y in range(3) if all((x, y) != other.cell for other in scene.shapes)]
    if change == "missing" and rest:
        return replace(scene, shapes=tuple(rest))
    if change == "place":
        return _with(scene, rest, _placed(r, replace(shape, cell=r.choice(free)), scene.width, scene.height))
    if change == "new" and len(scene.shapes) < 4:
        names_left = [(c, k) for c in COLOURS for k in KINDS if f"{c} {k}" not in others]
        colour, kind = r.choice(names_left)
        new = Shape(colour, kind, r.choice(list(RADII)), r.choice(free), (0, 0))
        return _with(scene, list(scene.shapes), _placed(r, new, scene.width, scene.height))
    if change == "kind":
        kinds = [kind for kind in KINDS if f"{shape.colour} {kind}" not in others]
        return _with(scene, rest, replace(shape, kind=r.choice(kinds))) if kinds else scene
    colours = [colour for colour in COLOURS if f"{colour} {shape.kind}" not in others]
    return _with(scene, rest, replace(shape, colour=r.choice(colours)))


def _with(scene: Scene, rest: Sequence[Shape], shape: Shape) -> Scene:
    return replace(scene, shapes=tuple(sorted([*rest, shape], key=lambda shape: shape.cell[::-1])))


def _difference(first: Scene, second: Scene) -> str:
    gone = [shape for shape in first.shapes if shape not in second.shapes]
    new = [shape for shape in second.shapes if shape not in first.shapes]
    if not gone and not new:
        return "Nothing differs."
    if not new:
        return f"The {gone[0].name} is missing in the second picture."
    if not gone:
        return f"The {new[0].name} {new[0].place} is new in the second picture."
    if gone[0].colour != new[0].colour:
        return f"The {gone[0].name} is {new[0].colour} in the second picture."
    if gone[0].kind != new[0].kind:
        return f"The {gone[0].name} is a {new[0].kind} in the second picture."
    return f"The {gone[0].name} is {new[0].place} in the second picture."


def _more(first: int, second: int) -> str:
    if first == second:
        return f"Both pictures have {_shapes(first)}."
    return f"The {'first' if first > second else 'second'} picture has more shapes: {first} and {second}."


def _shapes(n: int) -> str:
    return "1 shape" if n == 1 else f"{n} shapes"


def _total(r: random.Random, scene: Scene) -> Question:
    return Question("total", "How many shapes are there?", str(len(scene.shapes)))


def _count(r: random.Random, scene: Scene) -> Question:
    names = [shape.name for shape in scene.shapes]
    name = r.choice(names) if r.random() < 0.8 else f"{r.choice(list(COLOURS))} {r.choice(KINDS)}"
    n = names.count(name)
    plural = f"{name}es" if name.endswith("s") else f"{name}s"
    are = "is" if n == 1 else "are"
    return Question("count", f"How many {plural} are there?", f"There {are} {n or 'no'} {name if n == 1 else plural}.")


def _colour(r: random.Random, scene: Scene) -> Question | None:
    if not scene.unique("kind"):
        return None
    shape = r.choice(scene.unique("kind"))
    return Question("colour", f"What colour is the {shape.kind}?", f"The {shape.kind} is {shape.colour}.")


def _kind(r: random.Random, scene: Scene) -> Question | None:
    if not scene.unique("colour"):
        return None
    shape = r.choice(scene.unique("colour"))
    return Question("kind", f"Which shape is {shape.colour}?", f"The {shape.kind} is {shape.colour}.")


def _place(r: random.Random, scene: Scene) -> Question | None:
    if not scene.unique():
        return None
    shape = r.choice(scene.unique())
    return Question("place", f"Where is the {shape.name}?", f"The {shape.name} is {shape.place}.")


def _side(r: random.Random, scene: Scene) -> Question | None:
    if not scene.unique():
        return None
    shape, words = r.choice(scene.unique()), r.choice(list(SIDE_WORDS))
    axis, sign = SIDE_WORDS[words]
    found = [other for other in scene.shapes if (other.cell[axis] - shape.cell[axis]) * sign > 0]
    names = " and ".join(f"a {other.name}" for other in found) or "nothing"
    names, are = names[0].upper() + names[1:], "are" if len(found) > 1 else "is"
    return Question("side", f"What is {words} the {shape.name}?", f"{names} {are} {words} the {shape.name}.")


def _largest(r: random.Random, scene: Scene) -> Question | None:
    radii = [RADII[shape.size] for shape in scene.shapes]
    if radii.count(max(radii)) > 1 or len(radii) == 1:
        return None
    shape = scene.shapes[radii.index(max(radii))]
    return Question("largest", "Which shape is the largest?", f"The {shape.name} is the largest.")


def _exists(r: random.Random, scene: Scene) -> Question:
    names = [shape.name for shape in scene.shapes]
    absent = [f"{colour} {kind}" for colour in COLOURS for kind in KINDS if f"{colour} {kind}" not in names]
    if scene.unique() and r.random() < 0.5:
        shape = r.choice(scene.unique())
        return Question("exists", f"Is there a {shape.name}?", f"Yes, there is a {shape.name} {shape.place}.")
    name = r.choice(absent)
    return Question("exists", f"Is there a {name}?", f"No, there is no {name}.")


def _describe(r: random.Random, scene: Scene) -> Question:
    parts = [f"a {shape.size} {shape.name} {shape.place}" for shape in scene.shapes]
    n = len(parts)
    listed = parts[0] if n == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
    return Question("describe", "Describe the picture.", f"The picture shows {_shapes(n)}: {listed}.")


def _list(r: random.Random, scene: Scene) -> Question:
    listed = [f"- a {shape.size} {shape.name} {shape.place}" for shape in scene.shapes]
    return Question("list", "List the shapes.", "\n".join(listed))

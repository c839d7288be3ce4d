"""Drawn scenes: the same for the same seed, and what is said of them can be seen in the picture."""

from __future__ import annotations

import re

import numpy as np
import pytest

from benchmarks.pocket_vl import pictures, scenes
from benchmarks.pocket_vl.scenes import Scene

SEEDS = range(200)


def seen(scene: Scene) -> list[tuple[str, int, int, int]]:
    """Colour, column, row (of three by three) and pixels of each shape, found in the picture alone."""
    picture = scenes.draw(scene)
    found = []
    for colour, level in scenes.COLOURS.items():
        left = (picture == level).all(-1)
        while left.any():
            piece = grown(left, *np.argwhere(left)[0])
            left &= ~piece
            y, x = (axis.min() + axis.max() for axis in np.nonzero(piece))
            found.append((colour, int(x) * 3 // (2 * scene.width), int(y) * 3 // (2 * scene.height), int(piece.sum())))
    return sorted(found)


def grown(mask: np.ndarray, row: int, column: int) -> np.ndarray:
    """The connected part of a mask around a pixel."""
    part = np.zeros_like(mask)
    part[row, column] = True
    while True:
        wider = part.copy()
        wider[1:] |= part[:-1]
        wider[:-1] |= part[1:]
        wider[:, 1:] |= part[:, :-1]
        wider[:, :-1] |= part[:, 1:]
        wider &= mask
        if (wider == part).all():
            return part
        part = wider


@pytest.mark.parametrize("seed", SEEDS[:60])
def test_pictures_show_the_scene_and_nothing_else(seed: int) -> None:
    scene = scenes.scene(seed)
    listed = sorted((shape.colour, *shape.cell) for shape in scene.shapes)
    assert [shape[:3] for shape in seen(scene)] == listed
    assert scene.width % pictures.UNIT == scene.height % pictures.UNIT == 0


def test_a_seed_stands_for_one_scene() -> None:
    drawn = {scenes.draw(scenes.scene(seed)).tobytes() for seed in SEEDS}
    assert len(drawn) > 190
    again = {scenes.draw(scenes.scene(seed)).tobytes() for seed in SEEDS}
    assert drawn == again
    assert list(scenes.questions(scenes.scene(3), 3)) == list(scenes.questions(scenes.scene(3), 3))


def test_answers_are_what_the_picture_shows() -> None:
    """Those that colours, places and sizes decide."""
    checked = set()
    for seed in SEEDS:
        scene = scenes.scene(seed)
        shapes = seen(scene)
        for kind, text, answer in scenes.questions(scene, seed):
            if kind == "total":
                assert answer == str(len(shapes))
            elif kind == "place":
                colour = text.split()[3]
                places = {scenes.place((column, row)) for other, column, row, _ in shapes if other == colour}
                assert answer.split(" is ")[1] in {f"{place}." for place in places}
            elif kind == "largest":
                assert max(shapes, key=lambda shape: shape[3])[0] == answer.split()[1] or "cross" in answer
            elif kind == "describe":
                named = re.findall("|".join(scenes.COLOURS), answer)
                assert sorted(named) == [shape[0] for shape in shapes]
            checked.add(kind)
    assert len(checked) == 10


def test_differences_are_told() -> None:
    told = set()
    for seed in SEEDS:
        first, second = scenes.pair(seed)
        answers = {question.kind: question.answer for question in scenes.comparisons(first, second, seed)}
        same = (scenes.draw(first) == scenes.draw(second)).all()
        assert (answers["difference"] == "Nothing differs.") == same
        told.add(re.sub(r"The .*? (is|differs)", r"\1", answers["difference"])[:8])
    assert len(told) >= 5


def test_patches_keep_every_pixel() -> None:
    """The tower's order: the four patches that it merges follow each other, both frames are equal."""
    picture = scenes.draw(scenes.scene(0))
    rows = pictures.patches(picture).reshape(-1, 3, pictures.FRAMES, pictures.PATCH, pictures.PATCH)
    across = picture.shape[1] // pictures.UNIT
    for place in (0, 1, 2, 3, 4, 4 * across, len(rows) - 1):
        unit, inner = divmod(place, 4)
        y = unit // across * pictures.UNIT + inner // 2 * pictures.PATCH
        x = unit % across * pictures.UNIT + inner % 2 * pictures.PATCH
        patch = picture[y : y + pictures.PATCH, x : x + pictures.PATCH].transpose(2, 0, 1) / 127.5 - 1
        assert np.allclose(rows[place, :, 0], patch) and np.allclose(rows[place, :, 1], patch)

"""Which files a name means. The repositories and picks are those of upstream's tests/test-model-resolution.cpp, so
that a name means here what it means to llama-server; our own rules follow."""

from __future__ import annotations

import pytest

from dflash_local.convert.gguf_parts import Parts
from dflash_local.errors import HubError
from dflash_local.hub import selection
from dflash_local.hub.cache import HubFile
from dflash_local.hub.selection import Name

FLAT = [
    "README.md",
    "model-BF16.gguf",
    "model-Q4_K_M.gguf",
    "model-Q8_0.gguf",
    "mmproj-model-BF16.gguf",
    "mmproj-model-Q8_0.gguf",
    "mtp-model-BF16.gguf",
    "mtp-model-Q4_0.gguf",
    "mtp-model-Q8_0.gguf",
    "dflash-model-BF16.gguf",
    "dflash-model-Q8_0.gguf",
]
SUBDIR = [
    *["mmproj-model-f16.gguf", "model-mtp-BF16.gguf", "model-mtp-Q8_0.gguf"],
    *(f"Q3_K_M/model-Q3_K_M-0000{n}-of-00003.gguf" for n in (1, 2, 3)),
    *(f"Q8_0/model-Q8_0-0000{n}-of-00002.gguf" for n in (1, 2)),
]
HOLE = [path for path in FLAT if path.endswith(".gguf") and "mmproj" not in path]
UNSLOTH = ["model-UD-Q8_K_XL.gguf", "mmproj-BF16.gguf", "model-MTP-BF16.gguf"]
VENDORS = ["TheDrummer_Model-24B-v4.1-Q8_0.gguf", "BlackSheep-24B.Q8_0.gguf"]
QUAD = ["model-Q8_0.gguf", *(f"{kind}-model-Q8_0.gguf" for kind in ("mtp", "dflash", "eagle3", "dspark"))]
SPARK = ["README.md", "model-MXFP4.gguf", "dspark-model-BF16.gguf", "dspark-model-MXFP4.gguf"]
PAIR = ["model-Q8_0.gguf", "dflash-model-Q8_0.gguf", "dspark-model-Q8_0.gguf"]

SHARDS = SUBDIR[3:6]
KEYWORDS = ("mmproj", "mtp-", "dflash-", "eagle3-", "dspark-")


def listing(paths: list[str], turn: int = 0) -> list[HubFile]:
    """The files in another order: turned, and every other time backwards."""
    turned = paths[turn:] + paths[:turn]
    return [HubFile("u/r", "a" * 40, path) for path in (turned[::-1] if turn % 2 else turned)]


def path(file: HubFile | None) -> str:
    return file.path if file else ""


# name, files, tag, whether the pick depends on the order, model, its parts, sidecars in the order of KEYWORDS
PLANS = [
    (
        "exact tag", FLAT, "Q8_0", False, "model-Q8_0.gguf", None,
        ("mmproj-model-Q8_0.gguf", "mtp-model-Q8_0.gguf", "dflash-model-Q8_0.gguf", "", ""),
    ),
    ("default", FLAT, "", False, "model-Q4_K_M.gguf", None, None),
    ("first", UNSLOTH, "", True, "model-UD-Q8_K_XL.gguf", None, ("mmproj-BF16.gguf", "", "", "", "")),
    ("parts", SUBDIR, "Q3_K_M", False, SHARDS[0], SHARDS, ("mmproj-model-f16.gguf", "model-mtp-Q8_0.gguf", "", "", "")),
    ("sidecar alone", HOLE, "Q4_0", False, "", None, ("", "mtp-model-Q4_0.gguf", "dflash-model-Q8_0.gguf", "", "")),
    (
        "nearest to the model", HOLE, "", False, "model-Q4_K_M.gguf", None,
        ("", "mtp-model-Q4_0.gguf", "dflash-model-Q8_0.gguf", "", ""),
    ),
    ("case matters", UNSLOTH, "Q8_K_XL", False, "model-UD-Q8_K_XL.gguf", None, ("mmproj-BF16.gguf", "", "", "", "")),
    ("vendors", VENDORS, "Q8_0", True, VENDORS[0], None, None),
    ("all kinds", QUAD, "Q8_0", False, "model-Q8_0.gguf", None, ("", *QUAD[1:])),
    ("nearest type", SPARK, "", False, "model-MXFP4.gguf", None, ("", "", "", "", "dspark-model-MXFP4.gguf")),
    ("sidecar of a type", SPARK, "BF16", False, "", None, ("", "", "", "", "dspark-model-BF16.gguf")),
]  # fmt: skip


@pytest.mark.parametrize("plan", PLANS, ids=[plan[0] for plan in PLANS])
def test_upstreams_picks(plan: tuple) -> None:  # type: ignore[type-arg]
    _, paths, tag, ordered, model, parts, sidecars = plan
    for turn in range(1 if ordered else len(paths)):
        files = listing(paths, turn)
        found = selection.model(files, tag)
        assert path(found) == model
        if found:
            assert [file.path for file in selection.all_parts(files, found)] == (parts or [model])
        if sidecars is not None:
            assert tuple(path(selection.sidecar(files, model, word, tag)) for word in KEYWORDS) == sidecars


def test_a_sidecar_lies_beside_the_model_or_above() -> None:
    files = listing(["a/m-Q8_0.gguf", "dflash-up-Q8_0.gguf", "a/dflash-m-BF16.gguf", "b/dflash-m-Q8_0.gguf"])
    assert path(selection.sidecar(files, "a/m-Q8_0.gguf", "dflash-")) == "a/dflash-m-BF16.gguf"  # the deepest
    assert path(selection.sidecar(files, "m-Q8_0.gguf", "dflash-")) == "dflash-up-Q8_0.gguf"
    assert path(selection.sidecar(files, "c/m-Q8_0.gguf", "dflash-")) == "dflash-up-Q8_0.gguf"


@pytest.mark.parametrize(
    ("paths", "beside", "tag", "expected"),
    [
        (PAIR, "model-Q8_0.gguf", "", ["dspark-model-Q8_0.gguf", "dflash-model-Q8_0.gguf"]),
        (FLAT, "model-Q4_K_M.gguf", "Q4_K_M", ["dflash-model-Q8_0.gguf"]),
        (["draft-model-Q4_K_M.gguf"], "", "", []),
        (["dflash-m-Q4_1.gguf", "dflash-m-Q4_0.gguf"], "", "q4_0", ["dflash-m-Q4_0.gguf"]),  # the tag, of equal bits
        # Beyond upstream: any spelling, 8 bits if nothing is said.
        (["X-DFlash.Q4_0.gguf", "X-DFlash.Q8_0.gguf", "X-DFlash.BF16.gguf"], "", "", ["X-DFlash.Q8_0.gguf"]),
        (["X-DFlash.Q4_0.gguf", "X-DFlash.Q8_0.gguf"], "", "Q4_0", ["X-DFlash.Q4_0.gguf"]),
        (["m-DSpark-BF16.gguf", "m-Q4_0.gguf"], "m-Q4_0.gguf", "", ["m-DSpark-BF16.gguf"]),
        (["sub/m-DSpark-BF16.gguf", "m-Q4_0.gguf"], "m-Q4_0.gguf", "", []),
        (
            ["dflash-m-Q8_0-00002-of-00002.gguf", "dflash-m-Q8_0-00001-of-00002.gguf"],
            "",
            "",
            ["dflash-m-Q8_0-00001-of-00002.gguf"],
        ),
    ],
)
def test_drafters(paths: list[str], beside: str, tag: str, expected: list[str]) -> None:
    for turn in range(len(paths)):
        assert [file.path for file in selection.drafters(listing(paths, turn), beside, tag)] == expected


def test_a_drafter_with_another_spelling_is_no_target() -> None:
    """Upstream takes it for the model, if it comes first."""
    paths = ["Laguna-DFlash-BF16.gguf", "Laguna-BF16.gguf"]
    assert path(selection.model(listing(paths), "BF16")) == "Laguna-BF16.gguf"
    assert path(selection.model(listing(paths[:1]), "BF16")) == "Laguna-DFlash-BF16.gguf"
    assert path(selection.model(listing(["DFlash-model/a-Q8_0.gguf"]), "q8_0")) == "DFlash-model/a-Q8_0.gguf"


@pytest.mark.parametrize("others", [["m-BF16.gguf"], ["m-F16-imat.gguf"], ["F16/m-BF16-00001-of-00001.gguf"]])
def test_a_tag_is_first_looked_for_at_the_end_of_names(others: list[str]) -> None:
    """Upstream takes the first file that has it anywhere, so that F16 is BF16."""
    for turn in range(2):
        assert path(selection.model(listing([*others, "m-F16.gguf"], turn), "f16")) == "m-F16.gguf"
    assert path(selection.model(listing(others), "F16")) == others[0]
    assert path(selection.model(listing(["m-Q4_K_M-old.gguf", "m-Q4_K_M.gguf"]))) == "m-Q4_K_M.gguf"


def test_a_missing_part_is_named() -> None:
    files = [file for file in listing(SUBDIR) if "00002-of-00003" not in file.path]
    with pytest.raises(HubError, match="has 2 of 3 parts of Q3_K_M/model-Q3_K_M; part 2 is missing"):
        selection.all_parts(files, files[3])


def test_names_of_files() -> None:
    assert Parts.of("a/b-UD-q4_k_m.gguf") == Parts("a/b-UD-q4_k_m", "Q4_K_M", 1, 1)
    assert Parts.of("b.Q8_0-00002-of-00010.gguf") == Parts("b.Q8_0", "Q8_0", 2, 10)
    assert Parts.of("README.md") == Parts()
    assert [Parts.of(f"x-{tag}.gguf").bits for tag in ("Q4_0", "BF16", "MXFP4", "IQ3_XXS", "XL")] == [4, 16, 4, 3, 0]


def test_names_of_models() -> None:
    assert Name.parse("u/r") == Name("u/r")
    assert Name.parse("u/r:Q4_K_M") == Name("u/r", None, "Q4_K_M")
    assert str(Name.parse("u/r@9a1996cc:Q8_0")) == "u/r@9a1996cc:Q8_0" and Name.parse("u/r@v1").revision == "v1"
    for bad in (
        "",
        "r",
        "u/r/x",
        "u/r:",
        "u/r:a:b",
        "u/r@",
        "/r",
        "u/",
        "u//r",
        "../r",
        "u/..",
        "u/a b",
        "u/-r",
        "ü/r",
    ):
        with pytest.raises(HubError, match="names no repository"):
            Name.parse(bad)


def test_checkpoints() -> None:
    paths = ["config.json", "model-00001-of-00001.safetensors", "pytorch_model.bin", "README.md", "old/config.json"]
    assert [file.path for file in selection.checkpoint(listing(paths))] == paths[:2]
    assert [file.path for file in selection.checkpoint(listing([paths[0], paths[2]]))] == [paths[0], paths[2]]
    assert not selection.is_checkpoint(listing(["config.json", "m.gguf"]))
    assert not selection.is_checkpoint(listing(["sub/config.json", "sub/model.safetensors"]))
